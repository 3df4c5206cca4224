#!/bin/sh
# fa2-tune tune on a GPU: it tunes, a second run measures nothing, a run killed on the way is gone on
# with, and kernels that fault or hang are recorded and hurt nobody. Usage: gpu_tune.sh FA2_TUNE
# SOURCE_DIR. Exit status 77: no usable device here.
set -u
[ $# -ge 2 ] || {
    echo "usage: gpu_tune.sh FA2_TUNE SOURCE_DIR" >&2
    exit 2
}
tune=$1
source=$2
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
unset FA2_GEN_PATH FA2_DB

"$tune" devices >found 2>&1 || {
    cat found >&2
    exit 77
}

# run STATUS ARGUMENT...: tune device 0 with --json.
run() {
    status=$1
    shift
    expect_status "$status" "tune $*" "$tune" tune --device 0 --json "$@"
}

# number NAME: from the summary. states STATE: how many problems are in it.
number() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" out | head -n 1
}
states() {
    grep -c "\"state\":\"$1\"" out
}

# expect WHAT TEST-ARGUMENT...
expect() {
    what=$1
    shift
    checks=$((checks + 1))
    [ "$@" ] || fail "$ran: $what: $*"
}

# Preset quick, forward and backward; then there is nothing left to do.
run 0 --preset quick --db quick.db
problems=$(states measured)
forward=$(grep '"state"' out | grep -vc op=backward)
expect "all problems measured" "$problems" -ge 11
expect "forward among them" "$forward" -ge 6
expect "kernels verified" "$(number verified)" -gt 20
expect "none wrong" "$(number wrong)" -eq 0
expect "none faults" "$(number fault)" -eq 0
expect "none hangs" "$(number hang)" -eq 0
grep -E '^took' err >&2
run 0 --preset quick --db quick.db
expect "all settled" "$(states settled)" -eq "$problems"
expect "nothing compiled" "$(number compiled)" -eq 0
expect "nothing verified" "$(number verified)" -eq 0
expect "nothing timed" "$(number timed)" -eq 0
grep -E '^took' err >&2

# Killed after the first winner: only the rest is measured.
"$tune" tune --device 0 --preset quick --op forward --db killed.db >killed.out 2>killed.err </dev/null &
pid=$!
until [ -s killed.out ] || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.02
done
kill -9 "$pid"
wait "$pid" 2>/dev/null
run 0 --preset quick --op forward --db killed.db
expect "nothing compiled again" "$(number compiled)" -eq 0
expect "nothing verified again" "$(number verified)" -eq 0
expect "what was settled stays" "$(states settled)" -ge 1
expect "all have winners" $(($(states settled) + $(states measured))) -eq "$forward"
run 0 --preset quick --op forward --db killed.db
expect "nothing left" "$(number timed)" -eq 0

# Ctrl-C: exit status 130, and the same.
"$tune" tune --device 0 --preset quick --op forward --db stopped.db >stopped.out 2>stopped.err </dev/null &
pid=$!
until [ -s stopped.out ] || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.02
done
kill -TERM "$pid"
wait "$pid"
status=$?
ran="tune, stopped"
cp stopped.out out
cp stopped.err err
expect "exit status" "$status" -eq 130
run 0 --preset quick --op forward --db stopped.db
expect "all have winners" $(($(states settled) + $(states measured))) -eq "$forward"

# Families that fault and hang: one variant each, recorded once; the others are not touched by it.
FA2_GEN_PATH="$source/tests/families"
export FA2_GEN_PATH
run 0 --shape B=2,Hq=4,Sq=512,D=64 --db families.db
expect "measured" "$(states measured)" -eq 1
expect "the fault is recorded" "$(number fault)" -eq 1
expect "the hang is recorded" "$(number hang)" -eq 1
run 0 --shape B=2,Hq=4,Sq=512,D=64 --db families.db
expect "settled, failures included" "$(states settled)" -eq 1

summary
