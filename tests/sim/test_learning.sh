#!/bin/sh
# What a tuning learns, and the choice among kernels of problems that were not tuned, on the software device with six
# variants of each family, against its own exhaustive ranking: every variant timed on every problem.
# Usage: test_learning.sh FA2_TUNE LIBFA2SIM CARD [all]
#
# all: a second class of problems, the tuning that learns, and its order.
set -u
[ $# -ge 3 ] || {
    echo "usage: test_learning.sh FA2_TUNE LIBFA2SIM CARD [all]" >&2
    exit 2
}
self=$(realpath "$0")
tune=$1
# shellcheck source=tests/expect.sh
. "$(dirname "$self")/../expect.sh"
export FA2_CUDA_LIBRARY="$2" FA2_SIM_CARD="$3"
FA2_GEN_PATH=$(dirname "$self")/some
export FA2_GEN_PATH
unset FA2_CAPTURE FA2_DB
first="--shape Hq=4,Sq=96,D=16 --shape B=2,Hq=4,Sq=64,D=16 --shape Hq=2,Sq=200,D=16 --shape Hq=8,Hkv=2,Sq=80,D=16"
second="--shape Hq=4,Sq=96,D=16,causal=1 --shape Hq=2,Sq=200,D=16,causal=1"
[ "${4:-}" = all ] || second=""

# run STATUS COMMAND ARGUMENT...
run() {
    status=$1
    shift
    expect_status "$status" "$*" "$@"
}
# is SQL TEXT DATABASE: what a question to a database answers.
is() {
    answer=$(sqlite3 -readonly "$3" "$1" 2>&1)
    checks=$((checks + 1))
    [ "$answer" = "$2" ] || fail "$3: $1: $answer, expected $2"
}

# ---- everything, and what a tuning that learns leaves out ----
if [ -n "$second" ]; then
    # shellcheck disable=SC2086 # several words
    run 0 "$tune" --device 0 --jobs 2 --db learned.db $first $second # with more threads nothing may be left uncompiled
    has err "problems: 6 modelled"
    is "SELECT count(*) FROM measurement WHERE detail LIKE 'left out:%' AND NOT settled" 0 learned.db
    # A later problem takes no more than an earlier one of its kind, and the last half as much as the first.
    taken="SELECT sum(n > 0) FROM measurement GROUP BY problem ORDER BY problem"
    is "SELECT 2 * min(taken) <= max(taken) AND max(taken) = max(iif(one = 1, taken, 0)) FROM (SELECT problem AS one,
        sum(n > 0) AS taken FROM measurement GROUP BY problem)" 1 learned.db
    is "SELECT count(*) > 0 FROM measurement m WHERE n = 0 AND kernel NOT IN (SELECT kernel FROM image)" 1 learned.db
    sqlite3 -readonly learned.db "$taken" | paste -sd' ' | sed 's/^/measured, problem by problem: /' >&2
    cp out said
    # What was left out is settled, in a database that is sound.
    # shellcheck disable=SC2086
    run 0 "$tune" --device 0 --jobs 2 --db learned.db $first $second # with more threads nothing may be left uncompiled
    has err "6 tuned already"
    has err "0 compiled"
    run 0 "$tune" check --db learned.db
    cp learned.db all.db
fi
# With nothing there --all does what --force does.
whole=--all
[ -z "$second" ] || whole=--force
# shellcheck disable=SC2086
run 0 "$tune" --device 0 --db all.db $first $second $whole
lacks err "left out by"
is "SELECT count(*) FROM measurement WHERE n = 0" 0 all.db
if [ -n "$second" ]; then
    sqlite3 all.db "ATTACH 'learned.db' AS l; SELECT max(lw.model_us / w.model_us) FROM winner w JOIN l.winner lw
        USING (problem)" >worst
    printf 'winners against those of all variants, worst: %s\n' "$(cat worst)" >&2
    checks=$((checks + 1))
    [ "$(echo "$(cat worst) <= 1.05" | bc)" = 1 ] || fail "learned winners, worst: $(cat worst)"
fi

# ---- the choice for each problem by what was measured on others, and by nothing ----
# taken DATABASE SHAPE: the time of the kernel that the runtime takes, by bench's modelled launch, the tuner's too.
taken() {
    "$tune" bench --device 0 --db "$1" --shape "$2" --runs 10 --format csv 2>err >out || fail "bench $2: status $?"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        NR == 2 && $at["variant"] == variant && $at["outcome"] == "ok" { print $at["median_us"] }' \
        variant="$variant" out
}
# ask DATABASE SHAPE ID: the problem's time with the kernel that explain names, over the least of its candidates. One
# that was tuned for another problem may be none of them (more waves, whose splits are the same here): it is timed then.
ask() {
    "$tune" explain --device 0 --db "$1" --shape "$2" --json >said 2>err || fail "explain $2: status $?"
    variant=$(sed 's/.*"runner_up_us":[^,]*,"variant":"\([^"]*\)".*/\1/;q' said)
    us=$(sqlite3 -readonly all.db "SELECT m.median_us FROM measurement m JOIN kernel k ON k.id = m.kernel
        WHERE m.problem = $3 AND k.variant = '$variant'")
    sqlite3 -readonly all.db "SELECT round(${us:-$(taken "$1" "$2")} / min(median_us), 4) FROM measurement
        WHERE problem = $3" 2>&1
}
id=0
for shape in $first $second; do
    [ "$shape" = --shape ] && continue
    id=$((id + 1))
    cp all.db others.db
    run 0 "$tune" forget --db others.db --shape "$shape"
    echo "$shape $(ask others.db "$shape" $id) $(ask none.db "$shape" $id)"
done >choices
sed 's/^/others tuned, nothing tuned: /' choices >&2
checks=$((checks + 2))
# Bounds: beside tuned problems 1.10, by the model alone 1.30, and no database worse than none by more than 1.05. Beside
# tuned ones a choice may be faster than all of the problem's candidates.
awk '!($2 > 0.5 && $2 <= 1.10 && $2 <= 1.05 * $3) { bad = 1 } END { exit bad || NR == 0 }' choices ||
    fail "a choice beside tuned problems"
awk '!($3 >= 1 && $3 <= 1.3) { bad = 1 } END { exit bad || NR == 0 }' choices || fail "a choice by the model alone"

# ---- the order with a budget: what is expected to gain most first ----
if [ -n "$second" ]; then
    run 0 "$tune" --device 0 --db all.db --dry-run --budget 100 --shape Hq=4,Sq=100,D=16 --shape Hq=4,Sq=100,D=64
    checks=$((checks + 1))
    head -1 out | grep -q D=64 || fail "with a budget, a class of which nothing is known should come first"
    run 0 "$tune" --device 0 --db all.db --dry-run --shape Hq=4,Sq=100,D=16 --shape Hq=4,Sq=100,D=64
    checks=$((checks + 1))
    head -1 out | grep -q D=16 || fail "without a budget, as they were given"
fi
summary
