#!/bin/sh
# A database that is looked into, damaged, mended and tuned again, on the software device with a few variants: filters
# and what contradicts them, code that is lost, variants that fail, what a dry run promises.
# Usage: test_upkeep.sh FA2_TUNE LIBFA2SIM CLIENT
set -u
[ $# -ge 3 ] || {
    echo "usage: test_upkeep.sh FA2_TUNE LIBFA2SIM CLIENT" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"
shape=Hq=2,Sq=48,D=16
shapes="--shape $shape --shape op=backward,$shape --shape Hq=2,Sq=32,D=16"

# is SQL TEXT [DATABASE]: what a question to a database answers.
is() {
    answer=$(sqlite3 -readonly "${3:-fa2.db}" "$1" 2>&1)
    checks=$((checks + 1))
    [ "$answer" = "$2" ] || fail "${3:-fa2.db}: $1: $answer, expected $2"
}
# json EXPRESSION: of d, the document that the last run wrote, this holds.
json() {
    checks=$((checks + 1))
    python3 -c "import json, sys; d = json.load(sys.stdin); sys.exit(not ($1))" <out || fail "$ran: not $1"
}

# shellcheck disable=SC2086 # several words
run 0 --device 0 $shapes
cp fa2.db whole.db

# ---- what is meant: operations, devices, nothing ----
run 0 show --op backward --shape D=16
has out bwd_sm80
lacks out fwd_sm80
run 0 show --op backward --shape $shape
has out bwd_sm80
lacks out fwd_sm80
run 0 show --op backward
has out bwd_sm80
lacks out fwd_sm80
for command in list show report "forget --variant br=" "--device 0 --dry-run"; do
    # shellcheck disable=SC2086 # a command and its arguments
    run 2 $command --op backward --shape op=forward,$shape
    has err "--op backward contradicts --shape, which says op=forward; leave out one of them"
    empty out
done
for command in list forget show; do
    run 2 $command --shape ,
done
run 0 show --op all
has out fwd_sm80
has out bwd_sm80
run 0 list --op all --device all
has out forward
has out backward
run 0 show --device 3060
has out "Sq=32 Sk=32"
has out bwd_sm80
run 0 show --device 0 --json
json "len(d) == 6 and {e['op'] for e in d} == {'forward', 'backward'}"
run 0 show --json --shape $shape --shape Hq=2,Sq=32,D=16
json "len(d) == 4"
# Variants that were left out have an outcome of their own, which is no failure.
json "sorted({e['outcome'] for e in d}) == ['left_out', 'ok']"
json "all((e['n'] > 0) == (e['outcome'] == 'ok') for e in d)"
for command in "list --device H100" "show --device H100" "list --device H100 --json" "show --device H100 --json"; do
    # shellcheck disable=SC2086 # a command and its arguments
    run 2 $command
    has err "the devices in it: NVIDIA GeForce RTX 3060 (software device)"
    empty out
done
run 1 show --shape Hq=2,Sq=49,D=16 --json
json "d == []"
run 1 show --shape Hq=2,Sq=49,D=16
empty out
run 1 show --preset paper --shape $shape
has out fwd_sm80
has err "fa2-tune: nor for "
checks=$((checks + 1))
[ "$(grep -c "nothing was measured for" err)" = 4 ] || fail "$ran: it names others than four"
run 2 forget --device H100
empty out
has err "the devices in it: NVIDIA GeForce RTX 3060 (software device)"
run 3 show --device 7
has err "--device 7 means this machine's (another's is named by a part of its name: L4, 'A100 80'): there is no CUDA"
untouched fa2.db whole.db
run 0 forget --device all
run 0 list
has err "no winners"

# ---- code that is lost, or damaged: what was measured stays ----
times="SELECT group_concat(median_us) FROM (SELECT median_us FROM measurement ORDER BY problem, kernel)"
winners="SELECT group_concat(model_us || tuned_at) FROM (SELECT * FROM winner ORDER BY problem)"
for damage in "update code set data = zeroblob(length(data))" "delete from image" \
    "delete from image where kernel in (select kernel from winner)"; do
    cp whole.db lost.db
    sqlite3 lost.db "$damage"
    run 1 check --db lost.db
    has err "fa2-tune gc"
    has err "their next call"
    # list marks them in one column, and speaks of those that it lists.
    run 0 list --db lost.db
    has out "  state "
    lacks out "  code "
    run 0 list --db lost.db --shape causal=1
    lacks err damaged
    # A dry run counts what must be compiled, and a tuning does that and no more.
    # shellcheck disable=SC2086
    run 0 --device 0 $shapes --db lost.db --dry-run
    has out "(its code is lost: to compile again)"
    has out "to compile: 2, to verify: 0, problems to measure: 0;"
    # shellcheck disable=SC2086
    run 0 --device 0 $shapes --db lost.db --dry-run --json
    json "all(p['state'] == 'settled' and p['lost'] for p in d['problems'])"
    cp lost.db tuned.db
    # shellcheck disable=SC2086
    run 0 --device 0 $shapes --db tuned.db
    has err "problems: 0 modelled, 3 tuned already"
    has err "2 compiled, 0 reused, 0 verified"
    is "$times" "$(sqlite3 whole.db "$times")" tuned.db
    is "$winners" "$(sqlite3 whole.db "$winners")" tuned.db
    # shellcheck disable=SC2086
    run 0 --device 0 $shapes --db tuned.db --dry-run
    has out "to compile: 0, to verify: 0, problems to measure: 0"
    run 0 gc --db tuned.db # losers' code that is damaged
    has out "0 winners that could not serve"
    run 0 check --db tuned.db
    # gc compiles them, too. Without a compiler it says what will.
    FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so run 1 gc --db lost.db
    has err "2 kernels of winners without code: the next call, or fa2-tune gc, compiles where NVRTC is; here: no NVRTC"
    FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so run 1 --device 0 --shape $shape --db lost.db
    has err "/nonexistent/libnvrtc.so"
    run 1 check --db lost.db
    has err "winners without code: 3; fa2-tune gc --db 'lost.db' compiles it where NVRTC is, as does their next call; what was"
    is "$winners" "$(sqlite3 whole.db "$winners")" lost.db
    cp lost.db called.db
    run 0 gc --db lost.db
    has out "compiled 2 of 2 kernels of winners without code"
    run 0 check --db lost.db
    is "$times" "$(sqlite3 whole.db "$times")" lost.db
    is "$winners" "$(sqlite3 whole.db "$winners")" lost.db
    # And a call.
    call 0 1 2 48 16 0 --db called.db
    has out "rule       exact"
    call 0 1 2 48 16 0 --backward --db called.db
    run 0 check --db called.db
    is "$winners" "$(sqlite3 whole.db "$winners")" called.db
done
# Winners whose kernels are gone are in no view, and are not none.
cp whole.db lost.db
sqlite3 lost.db "update winner set kernel = 99999"
run 0 list --db lost.db
has err "3 winners are damaged"
lacks err "there are no"
# A winner that its own measurement says to have failed.
cp whole.db lost.db
sqlite3 lost.db "update measurement set outcome = 'fault' where (problem, kernel) in (select problem, kernel from
    winner join problem on problem = id where seq_q = 48 and op = 'forward')"
run 1 check --db lost.db
has err "winners that failed when they were measured: 1; fa2-tune show says how"
run 0 --device 0 --shape $shape --db lost.db
has err "problems: 1 modelled"
run 0 check --db lost.db
# With measurements to take, too, and a kernel that is another problem's.
cp whole.db lost.db
sqlite3 lost.db "delete from image; delete from code"
run 0 --device 0 --shape $shape --shape Hq=2,Sq=40,D=16 --db lost.db
has err "problems: 1 modelled, 1 tuned already"
run 0 gc --db lost.db
run 0 check --db lost.db
# A variant that this fa2 does not have stays, until its problem is tuned again. (One wrong bit, as in sm81, gc would mend.)
cp whole.db lost.db
sqlite3 lost.db "update kernel set variant = replace(variant, 'fwd_sm80', 'fwd_sm87') where id in
    (select kernel from winner)"
run 1 gc --db lost.db
has err "there is no family 'fwd_sm87'"
has err "for 1 kernel no code can be made here: tune the problems again that it won, or fa2-tune forget --variant TEXT"
run 1 check --db lost.db
# shellcheck disable=SC2086
run 0 --device 0 $shapes --db lost.db
run 0 check --db lost.db

# A winner without code that is no candidate now is measured again, and then nothing is left to be done.
cp whole.db stray.db
sqlite3 stray.db "
    create temp table kernels as select * from kernel where id in (select kernel from winner);
    update kernels set id = id + 1000, key = randomblob(32);
    insert into kernel select * from kernels;
    create temp table verdicts as select * from verification where kernel in (select kernel from winner);
    update verdicts set kernel = kernel + 1000;
    insert into verification select * from verdicts;
    update winner set kernel = kernel + 1000;"
run 0 --device 0 --shape $shape --db stray.db --dry-run
has out "to compile: 0, to verify: 0, problems to measure: 1"
lacks out "its code is lost"
run 0 --device 0 --shape $shape --db stray.db
has err "problems: 1 modelled"
lacks err "still to compile"
lacks out "its code is lost"
# A winner of another version of fa2 has times of another kernel than the one that this version compiles.
old=dropout=1,$shape
rm -f old.db new.db
run 0 --device 0 --shape $old --db old.db
sqlite3 old.db "update kernel set recipe = replace(recipe, ' abi=5 ', ' abi=4 '), key = randomblob(32);
    delete from image"
cp old.db before.db
# It is no winner for this one, with code or without.
run 0 list --db old.db
has out "  other version  "
run 0 list --db old.db --json
json "[e['other_version'] for e in d] == [1]"
run 0 list --db whole.db
lacks out state
run 0 show --db old.db --shape $old
has out "won in another version of fa2; no call takes it"
lacks out "*"
cp old.db failed.db # why a variant failed is said for every version
sqlite3 failed.db "update measurement set outcome = 'fault', n = 0, min_us = 0, q1_us = 0, median_us = 0, q3_us = 0,
    detail = 'an illegal address' where kernel not in (select kernel from winner)"
run 0 show --db failed.db --shape $old
has out "an illegal address"
has out "won in another version of fa2; no call takes it"
run 0 show --db old.db --shape $old --json
json "all(e['other_version'] == 1 for e in d)"
run 0 show --db whole.db --shape $shape
lacks out "another version"
has out "*"
run 1 check --db old.db
has out "winners without code 0, refuted 0, failed 0, of another version 1,"
has err "winners of another version of fa2, which no call takes: 1; fa2-tune list shows them, and tuning their problems"
run 1 check --db old.db --json
json "d['other_version'] == 1"
run 0 gc --db old.db # it is left alone
lacks out "without code"
empty err
rows="select group_concat(hex(key) || recipe) from (select * from kernel join winner on kernel = id)"
is "$rows" "$(sqlite3 before.db "$rows")" old.db
run 0 export old.jsonl --db old.db
run 0 import old.jsonl --db new.db
lacks out "without code"
run 1 check --db new.db
has err "winners of another version of fa2"
is "$rows" "$(sqlite3 before.db "$rows")" new.db
run 0 --device 0 --shape $old --db old.db
has err "problems: 1 modelled"
run 0 check --db old.db

# ---- variants that all fail ----
for fault in fault hang; do
    rm -f dead.db
    FA2_SIM_FAULT=$fault=1 run 1 --device 0 --shape $shape --db dead.db
    has err "failed: no variant can run ($fault: 2): fa2-tune show says why, and fa2-tune forget --failures"
    has err "forward: 1 problem, 2 variants, 0 of them usable, 0 spilled"
    # Nothing is promised, nor done, until it is forgotten.
    run 1 --device 0 --shape $shape --db dead.db --dry-run
    has out "to compile: 0, to verify: 0, problems to measure: 0"
    has err "fa2-tune forget --failures"
    run 1 --device 0 --shape $shape --db dead.db --dry-run --json
    json "d['problems'][0]['state'] == 'failed' and 'forget --failures' in d['problems'][0]['message']"
    run 1 --device 0 --shape $shape --db dead.db
    has err "0 compiled, 0 reused, 0 verified"
    has err "fa2-tune forget --failures"
    run 0 forget --failures --shape $shape --db dead.db
    run 0 --device 0 --shape $shape --db dead.db --dry-run
    has out "to verify: 2, problems to measure: 1"
    run 0 --device 0 --shape $shape --db dead.db
    has err "problems: 1 modelled"
    run 0 check --db dead.db
done
# A launch that takes too many instructions hangs, however long that took.
rm -f dead.db
FA2_SIM_BUDGET=100 run 1 --device 0 --shape $shape --db dead.db
has err "failed: no variant can run (hang: 2)"
has err "timeout: the warp has executed 100 instructions"
# A worker that stands still, as on a machine that has no time for it, is no hang.
rm -f dead.db
"$tune" --device 0 --shape $shape --db dead.db >out 2>err &
first=$!
await $first pgrep -P $first >worker
kill -STOP "$(cat worker)" && sleep 7 && kill -CONT "$(cat worker)"
wait $first
got=$?
ran="tune, with a worker that stood still"
checks=$((checks + 1))
[ $got -eq 0 ] || fail "$ran: exit status $got"
has err "2 taken, 0 of them failed"
# Verdicts of a tuning that was ended before it measured.
rm -f dead.db
FA2_SIM_FAULT=fault=1 run 1 --device 0 --shape $shape --db dead.db
sqlite3 dead.db "delete from measurement"
run 1 --device 0 --shape $shape --db dead.db --dry-run
has err "no variant can run (fault: 2)"
run 0 forget --failures --shape $shape --db dead.db
has out "2 verifications"
run 0 --device 0 --shape $shape --db dead.db

# ---- --force: the new replaces the old, or the old stays ----
rows() { # DATABASE: what a tuning decided
    sqlite3 -readonly "$1" "select * from winner; select * from verification; select device, problem, kernel, session,
        outcome, settled, median_us, max_error, detail from measurement"
}
rm -f once.db
run 0 --device 0 --shape $shape --db once.db
rows once.db >once.rows
for fault in fault=1 fault=2 lost=1 hang=1; do
    cp once.db forced.db
    FA2_SIM_BUDGET=1000000 FA2_SIM_FAULT=$fault run 1 --device 0 --force --shape $shape --db forced.db
    has err "failed: no variant ran this time, for the reasons above; what was tuned before stays. If"
    has err "drop it with fa2-tune forget --shape"
    rows forced.db >forced.rows
    untouched forced.rows once.rows
    run 0 --device 0 --shape $shape --db forced.db
    has err "0 modelled, 1 tuned already"
done
# An image that is refused before the driver took any is loaded again when it has taken one.
cp once.db forced.db
FA2_SIM_FAULT=load=1 run 0 --device 0 --force --shape $shape --db forced.db
has err "problems: 1 modelled"
has err "2 taken, 0 of them failed"
# Where one is usable it wins, and the other is no winner, whichever was before.
former=$(sqlite3 once.db "select kernel from winner")
others=0
for fault in fault=1 fault=3 wrong=3 wrong=4 wrong=5 wrong=6; do
    rm -f counts
    cp once.db forced.db
    FA2_SIM_FAULT=$fault FA2_SIM_FAULT_COUNTS=counts run 0 --device 0 --force --shape $shape --db forced.db
    has err "problems: 1 modelled"
    is "select count(*) from winner join measurement m using (device, problem, kernel) join verification v
        using (device, kernel) where m.outcome = 'ok' and v.outcome = 'ok'" 1 forced.db
    [ "$(sqlite3 forced.db "select kernel from winner")" = "$former" ] || others=$((others + 1))
    run 0 check --db forced.db
    run 0 --device 0 --shape $shape --db forced.db
    has err "0 modelled, 1 tuned already"
done
checks=$((checks + 1))
[ $others -ge 2 ] || fail "the former winner failed $others times"
# A problem's own data refute its winner only if a new winner takes its place. The next problem's new winner does not
# refute it.
rm -f counts
set -- --shape Hq=2,Sq=48,D=16,causal=1 --shape Hq=2,Sq=40,D=16,causal=1
run 0 --device 0 "$@" --db pair.db
FA2_SIM_FAULT=wrong=4,fault=5 FA2_SIM_FAULT_COUNTS=counts run 1 --device 0 --force "$@" --db pair.db
has err "wrong: fwd_sm80"
has err "Sq=48 Sk=48 D=16 dtype=fp16 causal=1: failed: no variant ran this time"
has err "problems: 1 modelled"
is "select group_concat(outcome) from verification" ok,ok pair.db
run 0 check --db pair.db

# ---- a winner that another card of the SM found wrong: no call takes it, so the problem has no winner ----
forward="--shape $shape"
rm -f counts refuted.db
export FA2_SIM_CARD=t4
run 0 --device 0 $forward --db refuted.db
FA2_SIM_CARD=rtx2060 FA2_SIM_FAULT=wrong=1 FA2_SIM_FAULT_COUNTS=counts run 0 --device 0 $forward --db refuted.db
# Whichever that was, of the T4's problem it is the winner here.
sqlite3 refuted.db "update winner set kernel = (select kernel from verification where outcome = 'wrong')
    where device = (select min(id) from device)"
bad=$(sqlite3 refuted.db "select variant from kernel where id = (select kernel from verification
    where outcome = 'wrong')")
times="select group_concat(outcome) from (select outcome from measurement where device = 1 order by outcome)"
is "$times" ok,ok refuted.db
run 0 list --db refuted.db
has out "refuted"
has out "  wrong  "
run 0 list --db refuted.db --json
json "sorted((e['device'][:8], e['refuted'] or '') for e in d) == [('NVIDIA G', ''), ('Tesla T4', 'wrong')]"
run 1 check --db refuted.db
has err "winners that a card's verification refuted, and that no call takes: 1; fa2-tune list shows them"
has err "fa2-tune forget --failures --shape of the problem"
cp refuted.db again.db
# No code is made for it, and none is missed.
cp refuted.db bare.db
sqlite3 bare.db "delete from image where kernel in (select kernel from verification where outcome = 'wrong')"
run 0 gc --db bare.db
lacks out "without code"
run 1 check --db bare.db
has out "winners without code 0, refuted 1,"
# A new problem does not crown it, nor time it.
run 0 --device 0 --shape Hq=2,Sq=40,D=16 --db refuted.db --dry-run
has out "to compile: 0, to verify: 0, problems to measure: 1"
run 0 --device 0 --shape Hq=2,Sq=40,D=16 --db refuted.db
has err "wrong: $bad: on another card, NVIDIA GeForce RTX 2060"
has err "1 of them usable"
has err "measurements: 1 taken"
run 0 show --shape Hq=2,Sq=40,D=16 --db refuted.db
has out "on another card"
# Its own problem gets another winner, of the others, and then is settled.
run 0 --device 0 $forward --db refuted.db --dry-run
has out "to compile: 0, to verify: 0, problems to measure: 1"
run 0 --device 0 $forward --db refuted.db
has err "0 compiled, 1 reused, 0 verified, 1 wrong"
has err "problems: 1 modelled, 0 tuned already"
is "$times" ok,ok,wrong,wrong refuted.db
is "select count(*) from winner join verification using (kernel) where outcome <> 'ok'" 0 refuted.db
run 0 check --db refuted.db
run 0 list --db refuted.db
lacks out "refuted"
run 0 --device 0 $forward --db refuted.db
has err "0 modelled, 1 tuned already"
call 0 1 2 48 16 0 --db refuted.db
has out "rule       exact"
# Where the verdict is held for wrong.
run 0 forget --failures $forward --db again.db
run 0 check --db again.db
run 0 --device 0 $forward --db again.db
run 0 check --db again.db
# If all are refuted, a message says how to try them again.
sqlite3 refuted.db "update verification set outcome = 'wrong' where device <> (select min(id) from device)"
run 1 --device 0 $forward --db refuted.db
has err "no variant can run (wrong: 2): fa2-tune show says why, and fa2-tune forget --failures"
FA2_SIM_CARD=rtx3060

# ---- without NVRTC: whatever needs no compiling ----
cp whole.db without.db
export FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
run 0 --device 0 --dry-run --force --shape $shape --db without.db
has out "to compile: 0, to verify: 0, problems to measure: 1"
for more in "--shape Hq=2,Sq=40,D=16" "--force --shape $shape"; do
    # shellcheck disable=SC2086
    run 0 --device 0 --dry-run --db without.db $more
    has out "to compile: 0, to verify: 0, problems to measure: 1"
    has err "no NVRTC here; compiled by NVRTC"
    # shellcheck disable=SC2086
    run 0 --device 0 --db without.db $more
    has err "problems: 1 modelled"
done
for dry in --dry-run ""; do
    run 1 --device 0 --db without.db $dry --shape $shape,causal=1
    has err "/nonexistent/libnvrtc.so"
    run 1 --device 0 --db empty.db $dry --shape $shape
    has err "/nonexistent/libnvrtc.so"
done
unset FA2_NVRTC_LIBRARY

# ---- a dry run with a budget, or with calls: the order, why, and what fits, with two threads on any machine ----
wide=Hq=4,Sq=100,D=64
gradients=op=backward,Hq=4,Sq=100,D=32
run 0 --device 0 --db whole.db --dry-run --jobs 2 --budget 2.5 --shape $shape --shape $gradients --shape $wide
has out "op=backward B=1 Hq=4 Hkv=4 Sq=100 Sk=100 D=32"
has out " us to gain in 1 call"
has out "; beyond the budget"
has out "; the budget of 2.5 s is about enough for 1 of 2 problems"
run 0 --device 0 --db whole.db --dry-run --jobs 2 --budget 2.5 --shape $gradients --shape $wide --json
json "[p['fits'] for p in d['problems']] == [True, False] and d['budget'] == 2.5 and d['fit'] == 1"
run 0 --device 0 --db whole.db --dry-run --budget 1000 --shape $gradients --shape $wide
has out "about enough for 2 of 2 problems"
lacks out "beyond the budget"
run 0 --device 0 --db whole.db --dry-run --shape $wide
lacks out "gain"
lacks out "budget"
printf 'calls,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n7,1,2,2,64,64,16,fp16,0\n' >calls.csv
run 0 --device 0 --db whole.db --dry-run --shapes calls.csv
has out "nothing to gain expected"
# Where nothing is to be gained, most GPU time first.
cat >calls.csv <<end
calls,batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal
1,1,2,2,64,64,16,fp16,0
50,1,2,2,32,32,16,fp16,0
1000,1,2,2,40,40,16,fp16,0
end
for budget in "" "--budget 3"; do
    # shellcheck disable=SC2086
    run 0 --device 0 --db whole.db --dry-run --shapes calls.csv --force --json $budget
    json "all(p['gain_us'] < 0.05 for p in d['problems'])"
    json "[p['calls'] for p in d['problems']] == [1000, 50, 1]"
done
FA2_SIM_CARD=rtx3060,rtx3060 run 0 --device all --db whole.db --dry-run --shape $wide
has err "fa2-tune: devices that are equal share the work; each line says all of it, not a device's share"
has out "device 1: "
# A budget that is spent before does not mend a lost kernel, and a message says so.
cp whole.db lost.db
sqlite3 lost.db "delete from image"
run 1 --device 0 --shape $shape --db lost.db --budget 0.001
has err "nothing was compiled again, because the budget ran out first; still to compile: 1 variant, to verify: 0"

summary
