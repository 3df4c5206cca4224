#!/bin/sh
# fa2-tune report from the outside: pages of databases that report_database makes. Usage: test_report.sh
# FA2_TUNE REPORT_DATABASE
set -u
[ $# -ge 2 ] || {
    echo "usage: test_report.sh FA2_TUNE REPORT_DATABASE" >&2
    exit 2
}
tune=$1
make_database=$2
check_against=$(realpath "$(dirname "$0")/report_against.py")
check_page=$(realpath "$(dirname "$0")/report_page.py")
shipped=$(realpath "$(dirname "$0")/../runtime/share/nvidia_h200_presets.jsonl")
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
export FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1
unset FA2_GEN_PATH

# Errors alone: what may be left out in HTML it takes for a warning, and says so with 1.
check_html() {
    expect_status 0 "tidy $1" sh -c 'tidy -quiet -errors --show-warnings no "$1"; [ $? -le 1 ]' sh "$1"
}

"$make_database" few.db 600 || fail "report_database"
"$make_database" other.db 600 1.5 || fail "report_database"

# ---- the page ----
run 0 report --db few.db --html few.html
empty out
has err "wrote few.html"
expect_status 0 "the page" python3 "$check_page" few.html few.db
run 0 report --db "$PWD/few.db" --against "$PWD/other.db" --html few.html
has few.html "in <code>few.db</code>"
has few.html "<code>other.db</code>"
lacks few.html "$PWD"
python3 -c 'import html, re, sys
text = re.search("<code id=\"shapes\">(.*?)</code>", sys.stdin.read(), re.S).group(1)
print(html.unescape(text))' <few.html >shapes.csv
run 0 show --db few.db --shapes shapes.csv
cp few.db "it's few.db"
run 0 report --db "it's few.db" --html few.html
has few.html "--against &#39;it&#39;\\&#39;&#39;s few.db&#39; --db"
run 0 report --db few.db --html few.html
lacks few.html "<script>alert"
has few.html "H&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;200&quot; | \`x\`"
check_html few.html

# ---- markdown, and what goes to standard output ----
run 0 report --db few.db --markdown few.md
has few.md "H&lt;script\>alert(1)&lt;/script\> &amp; \"200\" \| \\\`x\\\`"
lacks few.md "<script"
run 0 report --db few.db
empty err
has out "# fa2 tuning report"
run 0 report --db few.db --html -
empty err
has out "<h1>"

# ---- files ----
run 0 report --db few.db --html few.html
has err "in the place of the report that was there"
echo "my page" >mine.html
run 2 report --db few.db --html mine.html
has err "mine.html: is a file of another kind, not a report, and is not overwritten; name another file"
has mine.html "my page"
run 2 report --db few.db --html few.db
has err "few.db: is a database, not a report"
run 2 report --db few.db --html ""
has err '--html "": expected the path of a file'
run 2 report --db few.db --html one.html --markdown one.html
has err "--html and --markdown both say one.html"
checks=$((checks + 1))
[ ! -e one.html ] || fail "a page that would have been replaced by the text"
run 1 report --db few.db --html nowhere/few.html
has err "nowhere/few.html: its folder is not there"
run 2 report --db missing.db --html missing.html
has err "missing.db"
checks=$((checks + 1))
[ ! -e missing.html ] || fail "a page of no database"

# ---- a part; nothing; two databases ----
run 0 report --db few.db --shape D=64 --html part.html
has part.html "D=64"
lacks part.html "D=128"
"$make_database" none.db 0 || fail "report_database"
run 0 report --db none.db --html none.html
has none.html "Nothing tuned yet"
check_html none.html
run 0 report --db few.db --against other.db --html both.html
has both.html "Against the other database"
has both.html "<dd>1.500<small>"
has both.html ">time there / time here<"
expect_status 0 "the page" python3 "$check_page" both.html few.db
check_html both.html
"$make_database" part.db 240 2 "H100 elsewhere" || fail "report_database"
for pair in few.db:part.db part.db:few.db; do
    run 0 report --db "${pair%:*}" --against "${pair#*:}" --html cards.html
    expect_status 0 "figures of $pair" python3 "$check_against" cards.html "${pair%:*}" "${pair#*:}"
done
check_html cards.html
run 0 report --db few.db --against other.db
has out "## Against other.db"
has out "| problem | here µs |"
lacks out "(model)"
# A winner without measurements has the model's time, and both tables say so.
run 0 report --db part.db --against few.db
checks=$((checks + 1))
python3 - <<'END' || fail "$ran: times of winners and times against the other"
import re
winners, against = {}, {}
with open("out", encoding="utf-8") as file:
    for line in file:
        section = line if line.startswith("## ") else section if "section" in globals() else ""
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and "D=" in cells[1]:
            (against if "Against" in section else winners)[cells[1]] = cells[2]
times = [winners[shape] for shape in against]
assert times == list(against.values()) and "\u2013" not in times
modelled = [time for time in times if re.fullmatch(r"[0-9.]+ \(model\)", time)]
assert 0 < len(modelled) < len(times)
END
# Nothing in common: a sentence, no empty table.
run 0 report --db few.db --against few.db --shape D=8
has out "no problem in common, so there is nothing to compare"
lacks out "here µs"
run 0 report --db few.db --against few.db --shape D=8 --html nothing.html
has nothing.html "no problem in common, so there is nothing to compare"
check_html nothing.html
# A filter that nothing passes leaves the page that is there.
cp both.html kept.html
run 2 report --db few.db --device nosuch --html kept.html
has err "nothing in few.db passes --shape, --op and --device, so no report was written"
expect_status 0 "the page before" cmp both.html kept.html
run 2 report --db few.db --against missing.db
has err "--against: missing.db: there is no such database"

# ---- what a benchmark measured beside it: ceilings, and naive attention ----
python3 - <<'END'
import json, sqlite3
rows = sqlite3.connect("few.db").execute(
    "SELECT device, batch, heads_q, heads_kv, seq_q, seq_k, head_dim, median_us FROM winners "
    "WHERE op = 'forward' AND head_dim = 64").fetchall()
shapes = [("B=%d Hq=%d Hkv=%d Sq=%d Sk=%d D=%d dtype=fp16 causal=0" % row[1:7], row[7]) for row in rows]
ceilings = [{"name": "tensor_fp16", "unit": "TFLOPS", "rate": 612.7}, {"name": "copy", "unit": "GB/s", "rate": 4123},
            {"name": "wgmma_bf16", "unit": "TFLOPS", "rate": 976.4},
            {"name": "tensor_fp16_fp16", "unit": "TFLOPS", "rate": None, "why": "no"}]
kernels = lambda us: [{"kernel": "tuned", "median_us": us}, {"kernel": "naive", "outcome": "ok", "median_us": 8 * us}]
with open("bench.json", "w") as file:
    json.dump({"device": rows[0][0], "ceilings": ceilings,
               "problems": [{"problem": shape, "kernels": kernels(us)} for shape, us in shapes]}, file)
with open("field.jsonl", "w") as file:
    print('{"fa2_export":2,"schema":2}', file=file)
    print(json.dumps({"fa2_report": "about", "device": rows[0][0]}, separators=(",", ":")), file=file)
    for ceiling in ceilings:
        print(json.dumps({"fa2_report": "ceiling", **ceiling}, separators=(",", ":")), file=file)
END
run 0 report --db few.db --html few.html
lacks few.html "naive"
has few.html "by the card"
# An H200 has two ways to multiply, and each its roof with its name, also where the winners are far left of both.
has few.html "<title>wgmma, by the card"
has few.html "<title>mma.sync, by the card"
"$make_database" decode.db "$shipped" || fail "report_database"
run 0 report --db decode.db --shape Sq=1 --html decode.html
has decode.html ">wgmma</text>"
has decode.html ">mma.sync</text>"
expect_status 0 "the page" python3 "$check_page" decode.html
run 0 report --db few.db --bench bench.json --html bench.html --markdown bench.md
has bench.html "Gains over naive attention"
has bench.html "<dd>8.0<small>×"
has bench.html "mma.sync:"
has bench.html "613 TFLOPS"
has bench.html "wgmma:"
has bench.html "976 TFLOPS"
has bench.html "4123 GB/s"
lacks bench.html "by the card"
has bench.html ">8.00"
has bench.md "Gain over naive attention: 8.00 (geometric mean over"
expect_status 0 "the page" python3 "$check_page" bench.html few.db
check_html bench.html
run 0 report --db few.db --bench field.jsonl --html field.html
has field.html "613 TFLOPS"
lacks field.html "Gains over naive"
check_html field.html
run 2 report --db few.db --bench few.md --html field.html
has err "few.md: is not JSON, or was cut; it must be what bench --json or field-report writes"
head -c 100 bench.json >cut.json
run 2 report --db few.db --bench cut.json --html field.html
has err "cut.json: is not JSON, or was cut"
head -c -9 field.jsonl >cut.jsonl
run 2 report --db few.db --bench cut.jsonl --html field.html
has err "cut.jsonl: is not JSON, or was cut"
echo '{"ceilings":[]}' >cut.json
run 2 report --db few.db --bench cut.json --html field.html
has err "cut.json: has no ceilings of a card: it is not what bench --json or field-report writes"
run 2 report --db few.db --bench missing.json --html field.html
has err "missing.json: No such file"

# ---- a software device measures nothing ----
if command -v sqlite3 >/dev/null; then
    cp few.db software.db
    sqlite3 software.db "update session set modelled = 1; update winner set measured = 0"
    run 0 report --db software.db --html software.html --markdown software.md
    has software.html "This card is the software device: its times are modelled from what it counts, not measured."
    has software.html "The cost model against the software device"
    has software.html ">µs, modelled by the software device</text>"
    has software.html "<td>modelled by the software device<td"
    has software.html "Rank correlation of cost model and software device"
    has software.md "the software device: its times are modelled, not measured"
    for page in software.html software.md; do
        checks=$((checks + 1))
        [ "$(grep -c measure "$page")" -eq 1 ] || fail "$ran: $page speaks of measurements: $(grep -n measure "$page")"
    done
    check_html software.html
fi

# ---- winners that no call takes as they are, in the words of list ----
if command -v sqlite3 >/dev/null; then
    # The first have lost their code, and the others' is damaged. One is of another version, and failed; one of the
    # damaged ones was refuted.
    cp few.db marked.db
    sqlite3 marked.db "insert into code (id, hash, data) values (1, zeroblob(32), x'00');
        insert into image (kernel, seal, code) select distinct kernel, zeroblob(32), 1 from winner where problem > 4;
        update kernel set recipe = replace(recipe, 'abi=', 'abi=9')
            where id = (select kernel from winner where problem = 2);
        insert into verification select device, kernel, 'wrong', 9, '', '2026-11-21T17:45:00Z' from winner
            where problem > 4 and kernel <> (select kernel from winner where problem = 2) order by problem limit 1;
        update measurement set outcome = 'hang' where problem = 2
            and kernel = (select kernel from winner where problem = 2)"
    run 0 list --db marked.db --json
    cp out list.json
    run 0 report --db marked.db --html marked.html --markdown marked.md
    checks=$((checks + 1))
    python3 - <<'END' || fail "$ran: not what list says of winners"
import json, re
with open("list.json") as file:
    rows = json.load(file)
said = [("other version" if row["other_version"] else "missing" if not row["has_image"] else
         "damaged" if row["damaged"] else "", row["refuted"] or "") for row in rows]
with open("marked.html", encoding="utf-8") as file:
    table = re.search(r'<table[^>]*id="t-winners">.*?</table>', file.read(), re.S).group(0)
assert [re.search('<th scope="col">' + title, table) for title in ("state", "refuted", "failed")].count(None) == 0
marks = [tuple(re.findall(r"<td class=f>([^<\n]*)", row)) for row in table.split("<tr>")[2:]]
assert sorted(mark[:2] for mark in marks) == sorted(said), (marks, said)
assert {state for state, _ in said} == {"other version", "missing", "damaged"}
assert {refuted for _, refuted in said} == {"", "wrong"}
assert [failed for _, _, failed in marks if failed] == ["hang"]
END
    has marked.md "(damaged, refuted: wrong)"
    has marked.md "(other version, failed: hang)"
    check_html marked.html
else
    echo "skipped, there is no sqlite3: winners that no call takes" >&2
fi

# ---- ten thousand measurements ----
"$make_database" many.db 10000 || fail "report_database"
run 0 report --db many.db --html many.html
expect_status 0 "the page" python3 "$check_page" many.html many.db
bytes=$(wc -c <many.html)
checks=$((checks + 1))
[ "$bytes" -le 3000000 ] || fail "a page of 10000 measurements has $bytes bytes"
summary
