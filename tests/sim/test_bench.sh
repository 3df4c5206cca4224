#!/bin/sh
# fa2-tune bench on the software device with a few variants: what it says in each format, that it says that times
# are modelled, and what it does about kernels that fail. Usage: test_bench.sh FA2_TUNE LIBFA2SIM RUN_LUA
set -u
[ $# -ge 3 ] || {
    echo "usage: test_bench.sh FA2_TUNE LIBFA2SIM RUN_LUA" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"
run_lua=$3
touch rows

# script STATUS SCRIPT ARGUMENT...: of those that read measurements, from the file rows.
script() {
    status=$1
    shift
    expect_status "$status" "$*" sh -c 'rows=$(realpath rows); cd "$1" && shift && exec "$@" <"$rows"' sh \
        "$here/../.." "$run_lua" "$@"
}

# field NAME: of the first row of the CSV that the last run wrote.
field() {
    python3 -c 'import csv, sys; print(next(csv.DictReader(open("out")))[sys.argv[1]])' "$1"
}
is() {
    checks=$((checks + 1))
    [ "$(field "$1")" = "$2" ] || fail "$ran: $1 is $(field "$1"), not $2"
}

# ---- what the caller can get wrong ----
run 2 bench
has err "bench needs --device N"
run 2 bench --device 0 --runs 9
has err '--runs "9": expected a number of timed runs, 10 to 100000'
run 2 bench --device 0 --rest 10001
has err '--rest "10001": expected milliseconds, 0 to 10000'
run 2 bench --device 0 --scale H
has err '--scale "H": expected S, B or D'
run 2 bench --device 0 --format xml
has err '--format "xml": expected text, csv or json'

# ---- nothing is tuned, and nothing is written ----
run 0 bench --device 0 --shape $shape
has err "nothing is tuned"
sed 's/not measured: .*/not measured: WHY/; s/not known: .*/not known: WHY/' out >bench
masked bench bench
has out "NVIDIA GeForce RTX 3060"
has out "This device is software: times are modelled, not measured"
has out "B=1 Hq=2 Hkv=2 Sq=48 Sk=48 D=16 dtype=fp16 causal=1"
has out "(default)"
lacks out "tuned:"
lacks out "spread too wide"
has out "naive: three kernels with S x S in memory"
# The software device does not know which bytes the L2 has; all other ceilings are those of the card that it plays.
has out "read              not measured: a software device does not model which bytes the L2 has"
has out "copy              not measured: a software device does not model which bytes the L2 has"
for ceiling in tensor_fp16 tensor_fp16_k8 tensor_fp16_fp16 tensor_bf16 ex2 shared l2; do
    checks=$((checks + 1))
    grep -qE "^  $ceiling +[1-9][0-9.]* (TFLOPS|G/s|GB/s)" out || fail "$ran: no rate of $ceiling"
done
checks=$((checks + 1))
awk '$1 == "tensor_fp16" { found = $2 > 24 && $2 < 26 } END { exit !found }' out ||
    fail "$ran: tensor_fp16 is not the 25.5 TFLOPS of the card"
checks=$((checks + 1))
[ ! -e fa2.db ] || fail "$ran: it made a database"

# What wgmma can do is known of the card that has it.
card=$FA2_SIM_CARD
FA2_SIM_CARD=h200
run 0 bench --device 0 --shape $shape
FA2_SIM_CARD=$card
for ceiling in wgmma_fp16 wgmma_bf16; do
    checks=$((checks + 1))
    awk -v name=$ceiling '$1 == name { found = $2 > 780 && $2 < 810 } END { exit !found }' out ||
        fail "$ran: $ceiling is not the 800 TFLOPS of the card"
done

run 0 bench --device 0 --shape Hq=1,Sq=16,D=16 --scale S
has out "by S: B=1 Hq=1 Hkv=1 Sq=4 Sk=4 D=16 dtype=fp16 causal=0, and others"
checks=$((checks + 1))
[ "$(sed -n '/^by S/,$p' out | grep -cE '^ *(4|8|16|32|64) +[0-9.]+ ')" -eq 5 ] || fail "$ran: the table by S"

# ---- problems that differ in precision: errors against fp64 attention of the numbers before rounding ----
run 0 bench --device 0 --shape Hq=1,Sq=96,D=32 --precisions
has out "by precision: B=1 Hq=1 Hkv=1 Sq=96 Sk=96 D=32 dtype=fp16 causal=0; errors of O, relative to fp64"
# error PRECISION COLUMN LEAST MOST: in per cent; columns after the name: normal, means, outliers, a column.
error() {
    checks=$((checks + 1))
    sed -n '/^by precision/,$p' out | awk -v name="$1" -v column="$2" -v least="$3" -v most="$4" '
        index($0, name "  ") == 1 { gsub(/ %/, ""); found = $(column + 3) >= least && $(column + 3) <= most }
        END { exit !found }' || fail "$ran: the error of $1, column $2, is not from $3 to $4 %"
}
for column in 1 2 3 4; do
    error exact $column 0.005 0.06
    error sums=fast $column 0.005 0.12
done
error kv=int8 1 0.4 1.3
error kv=int8 2 1 4
error kv=int8 3 0.6 4
error kv=int8 4 5 60
error kv=fp8 1 2 5
run 0 bench --device 0 --shape Hq=1,Sq=96,D=32,kv=int8,kv_scales=fp16 --precisions --json
checks=$((checks + 1))
python3 - <<'END' || fail "$ran: the errors in JSON"
import json
with open("out") as file:
    problems = json.load(file)["problems"]
(errors,) = [p["kernels"][0]["relative_errors"] for p in problems if p.get("kv_scales") == "fp16"]
assert list(errors) == ["normal", "means", "outliers", "channel"] and 0.004 < errors["normal"] < 0.013, errors
END

# ---- what is tuned stands beside the default ----
run 0 --device 0 --shape $shape
# Its time is the model's: neither tune nor list makes a rate or a gain of it.
checks=$((checks + 1))
grep -qE ' us \(model\) +- TFLOPS +- default ' out || fail "$ran: $(cat out)"
run 0 --device 0 --shape $shape --json
checks=$((checks + 1))
python3 - <<'END' || fail "$ran: the winner of tune is not that of list"
import json
with open("out") as file:
    (tuned,) = json.load(file)["problems"]
assert tuned["median_us"] is None and tuned["tflops"] is None and tuned["speedup_vs_default"] is None
assert tuned["model_us"] > 0
with open("tuned_us", "w") as file:
    file.write(str(tuned["model_us"]))
END
run 0 list --json
checks=$((checks + 1))
python3 - <<'END' || fail "$ran: the winner of tune is not that of list"
import json
with open("out") as file:
    (listed,) = json.load(file)
with open("tuned_us") as file:
    assert listed["model_us"] == float(file.read())
assert listed["median_us"] is None and listed["tflops"] is None and listed["speedup_vs_default"] is None
END
cp fa2.db before.db
run 0 bench --device 0 --shape $shape --format csv
is kernel tuned
is rule exact
is outcome ok
is modelled 1
is runs 1
is wide 0
is flop 147456 # 4 B H S S D / 2
is square_bytes 9216
is bytes 12288
is copy_share ""
is mj ""
median=$(field median_us)
run 0 list --json
checks=$((checks + 1))
python3 - "$median" <<'END' || fail "$ran: it is not the bench's median of $median us"
import json, sys
with open("out") as file:
    assert abs(json.load(file)[0]["model_us"] - float(sys.argv[1])) < 1e-2
END
run 0 bench --device 0 --shape $shape,op=backward --json --cold
checks=$((checks + 1))
python3 - <<'END' || fail "$ran: its JSON"
import json
with open("out") as file:
    bench = json.load(file)
assert bench["modelled"] and bench["runs"] == 1 and bench["l2"] == "cold"
(problem,) = bench["problems"]
assert problem["op"] == "backward" and problem["flop"] == 2.5 * 147456
assert [c["name"] for c in bench["ceilings"] if c["rate"] is None] == [
    "wgmma_fp16", "wgmma_bf16", "read", "copy"]
assert "naive" not in [k["kernel"] for k in problem["kernels"]]
for kernel in problem["kernels"]:
    assert kernel["outcome"] == "ok" and 0 < kernel["max_error"] < 0.01 and kernel["sd_us"] == 0
    assert kernel["mj"] is None and kernel["copy_share"] is None and kernel["tensor_share"] > 0
END
run 0 report --html page.html
has page.html "This card is the software device: its times are modelled"
run 0 bench --device 0 --shape $shape --json
has out '{"kernel":"naive","rule":null,"variant":"naive d='
# The naive kernels are right, too, at tails, with grouped heads, where rows see no key.
run 0 bench --device 0 --format csv --shape Hq=4,Hkv=2,Sq=67,Sk=50,D=24,dtype=bf16,causal=1 \
    --shape B=2,Hq=1,Sq=3,Sk=130,D=72 --shape $shape,softcap=1
checks=$((checks + 1))
[ "$(grep -c ',naive,,naive d=.*,ok,' out)" -eq 2 ] || fail "$ran: the naive kernels"
checks=$((checks + 1))
cmp -s fa2.db before.db || fail "$ran: it wrote into the database"

# ---- against an earlier result: equal here, because times are modelled; then that result was faster ----
run 0 bench --device 0 --shape $shape --format json
cp out earlier.json
run 0 bench --device 0 --shape $shape --against earlier.json --fail-above 5%
has out "against earlier.json"
has out " 1.000"
lacks out "too slow"
lacks out "not compared"
run 0 bench --device 0 --shape $shape --shape Hq=1,Sq=32,D=16 --against earlier.json
has out "no time of them: 1 of 2 problems"
python3 -c 'import json
earlier = json.load(open("earlier.json"))
for problem in earlier["problems"]:
    problem["kernels"][0]["median_us"] /= 1.06
json.dump(earlier, open("faster.json", "w"))'
run 1 bench --device 0 --shape $shape --against faster.json --fail-above 5%
has out "too slow"
has out " 1.060"
run 0 bench --device 0 --shape $shape --against faster.json --fail-above 7
run 0 bench --device 0 --shape $shape --against faster.json --format csv
has err " 1.060"
run 2 bench --device 0 --shape Hq=1,Sq=32,D=16 --against earlier.json
has err "earlier.json: has no time of these problems"
lacks out "TFLOPS" # and nothing was measured for that
sed 's/"sm_count":[0-9]*/"sm_count":7/' earlier.json >part.json # a part of such a card
run 2 bench --device 0 --shape $shape --against part.json
has err "part.json: has no time of these problems on "
has err " SMs"
run 2 bench --device 0 --shape $shape --cold --against earlier.json
has err "earlier.json: was measured with a warm L2, this benchmark has a cold one; leave out --cold"
sed 's/"median_us":[0-9.]*/"median_us":1e999/g' earlier.json >infinite.json
run 2 bench --device 0 --shape $shape --against infinite.json
has err "infinite.json: has no times of problems"
run 2 bench --device 0 --fail-above 5%
has err "--fail-above needs --against FILE"
for wrong in -5% 0% x%; do
    run 2 bench --device 0 --against earlier.json --fail-above $wrong
    has err "--fail-above \"$wrong\": expected a percentage above 0, such as 5%"
done
run 2 bench --device 0 --against nowhere.json
has err "nowhere.json: No such file"
mkfifo pipe
for other in pipe .; do
    run 2 bench --device 0 --against $other
    has err "$other: is no regular file"
done
echo few >few.txt
run 2 bench --device 0 --against few.txt
has err "few.txt: "

# ---- kernels that fail, and problems that no family serves ----
export FA2_SIM_FAULT=fault=1
run 1 bench --device 0 --shape $shape
has out "not timed: fault"
# A naive kernel without room for its matrices, or without NVRTC, is a note: by what the card has, by what is
# left of it.
export FA2_SIM_FAULT=memory=9000000
run 0 bench --device 0 --shape Hq=32,Sq=384,D=16,causal=1
has out "not timed: launch_error: needs 0.0 GiB of device memory"
run 0 bench --device 0 --shape Hq=8,Sq=384,D=16,causal=1
has out "not timed: launch_error: allocating the workspace: CUDA_ERROR_OUT_OF_MEMORY"
unset FA2_SIM_FAULT
export FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
run 0 bench --device 0 --shape $shape
has out "not timed: compile_error: naive d=16 dtype=fp16 causal=1 must be compiled, and there is no NVRTC"
# An image that is refused before the driver took any is loaded again; here there are no ceilings before it.
export FA2_SIM_FAULT=load=1
run 0 bench --device 0 --shape $shape
has out "tuned:"
unset FA2_SIM_FAULT
# Where a call would fail, there is nothing to time; the next problem may have a kernel.
run 1 bench --device 0 --shape Hq=2,Sq=64,D=16 --shape $shape
has err "D=16 dtype=fp16 causal=0: not measured: $folder/fa2.db has no kernel that can be used for"
has out "tuned:"
unset FA2_NVRTC_LIBRARY
export FA2_SIM_FAULT=wrong=31 # launches: 27 of ceilings, one of what is chosen, three of naive
run 1 bench --device 0 --shape $shape
has out "not timed: wrong:"
unset FA2_SIM_FAULT
export FA2_SIM_CARD=t4
run 1 bench --device 0 --shape $shape,dtype=bf16
has out "not measured:"
has err "dtype=bf16 causal=1: not measured:"
run 1 bench --device 0 --shape $shape,dtype=bf16 --format csv
has err "dtype=bf16 causal=1: not measured:"
is dtype bf16
is kernel ""
is mj ""
checks=$((checks + 1))
[ -n "$(field detail)" ] || fail "$ran: no message"
export FA2_SIM_CARD=rtx3060

# ---- field reports: made, continued, checked elsewhere, imported ----
run 2 field-report report.jsonl
has err "field-report needs --device N"
run 2 field-report - --device 0
has err "field-report needs a file"
mkfifo pipe
run 2 field-report pipe --device 0
has err "pipe: is no regular file, and what is measured is kept beside it"
run 1 field-report nowhere/report.jsonl --device 0
has err "nowhere/report.jsonl: its folder is not there; make it, or name a file elsewhere"
lacks err "--db"
checks=$((checks + 1))
[ "$(wc -l <err)" -eq 1 ] || fail "$ran: more than one message"
echo letters >letters.txt
run 2 field-report letters.txt --device 0
has err "letters.txt: is a file of another kind, not a field report, and is not overwritten"
# An export of another database begins as a report does.
run 0 export theirs.jsonl
cp theirs.jsonl theirs.txt
run 2 field-report theirs.jsonl --device 0
has err "theirs.jsonl: is an export, not a field report, and is not overwritten; name another file"
untouched theirs.jsonl theirs.txt
checks=$((checks + 1))
[ ! -e theirs.jsonl.field.db ] || fail "$ran: it measured first"
echo theirs >report.jsonl.db # not the command's
run 0 field-report report.jsonl --device 0
masked out field-report
has err "3 problems, 0 tuned already"
has out "The database is report.jsonl.field.db; it is not"
checks=$((checks + 1))
[ "$(cat report.jsonl.db)" = theirs ] || fail "$ran: it wrote into somebody's file"
has out "No name of a person or machine, no path, no address"
for words in 'about","fa2":"0.' 'ceiling","name":"ex2","unit":"G/s","rate":7' 'problem","problem":"B=1 Hq=2' \
    'summary","op":"forward","problems":'; do
    has report.jsonl "{\"fa2_report\":\"$words"
done
lacks report.jsonl "$folder"
lacks report.jsonl "$(uname -n)"
cp report.jsonl first.jsonl
run 0 field-report report.jsonl --device 0 --budget 0.4
has err "3 tuned already"
has out "The database is report.jsonl.field.db, which was there before."
checks=$((checks + 1))
cmp -s report.jsonl first.jsonl || fail "$ran: another report of the same measurements"
run 2 export report.jsonl
has err "report.jsonl: is a field report, not an export, and is not overwritten"
untouched report.jsonl first.jsonl
FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1
run 0 field-report report.jsonl --check
has out "the same figures here"
run 0 import report.jsonl --db imported.db
has out "new rows into imported.db"
if command -v sqlite3 >/dev/null; then
    # The scripts that judge and fit the cost model take each card of a database for itself.
    cp imported.db elsewhere.db
    sqlite3 elsewhere.db "update device set name = 'NVIDIA RTX A4000'"
    run 0 export another.jsonl --db elsewhere.db
    # Of another version, whose variants are unknown here: no error, they do not count.
    sqlite3 elsewhere.db "update kernel set variant = replace(variant, ' bc=', ' bc=1')"
    run 0 export old.jsonl --db elsewhere.db
    grep fa2_report report.jsonl >>old.jsonl
    run 1 field-report old.jsonl --check
    has out "here: nothing"
    run 0 import another.jsonl --db imported.db
    script 0 tests/bench/model.lua query
    sqlite3 -csv imported.db "$(cat out)" >rows
    script 0 tests/bench/model.lua
    has out " on NVIDIA RTX A4000"
    has out "6 problems: median rank correlation"
    script 0 tests/bench/fit.lua 1 2
    has out "6 problems, cards: 2: 0."
    has out "left out of 2 fits: 0."
    has out "plain barrier = "
    has out "backward barrier = "
    lacks out nan
else
    echo "skipped, there is no sqlite3: what is fitted to reports" >&2
fi
sed 's/"rank_correlation_median":[^,]*,/"rank_correlation_median":0.1234,/' report.jsonl >other.jsonl
run 1 field-report other.jsonl --check
has out "other figures here"
sed '/fa2_report/d' report.jsonl >plain.jsonl
run 2 field-report plain.jsonl --check
has err "it is no field report"
echo '{"type":"device"}' >>report.jsonl
run 2 import report.jsonl --db imported.db
has err "there is a line behind the last one"
summary
