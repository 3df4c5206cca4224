#!/bin/sh
# fa2-tune and the example client from end to end on the software device, with and without faults.
# Usage: test_tune.sh FA2_TUNE LIBFA2SIM CLIENT
#
# Every card: tune, list, show, explain, export, import (which compiles and verifies again), check, and
# the client on the tuned database. Faults: whichever comes, the run ends by itself with a clear
# status, the database is sound, and a run without the fault finishes the work.
set -u
tune=$1
export FA2_CUDA_LIBRARY=$2
client=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir lib && ln -s "$2" lib/libcuda.so.1 || exit 1 # the client opens the driver by this name
shape=B=1,Hq=2,Hkv=1,Sq=48,Sk=80,D=16,causal=1
checks=0
failures=0

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n--- stdout\n%s\n--- stderr\n%s\n' "$1" "$(cat out)" "$(tail -30 err)" >&2
}

# run STATUS COMMAND ARGUMENT...: keeps its output in the files out and err.
run() {
    wanted=$1
    shift
    ran="$FA2_SIM_CARD: $*"
    checks=$((checks + 1))
    timeout 300 "$@" >out 2>err </dev/null
    got=$?
    [ "$got" -eq "$wanted" ] || fail "$ran: exit status $got, expected $wanted"
}

# has FILE TEXT: what the last run wrote.
has() {
    checks=$((checks + 1))
    grep -qF -e "$2" "$1" || fail "$ran: no \"$2\" in $1"
}

# One card, the whole way.
whole() {
    export FA2_SIM_CARD=$1 FA2_DB="$folder/$1.db"
    run 0 "$tune" devices
    has out "$2"
    run 0 "$tune" --device 0 --shape $shape
    has err "0 of them failed"
    run 0 "$tune" list
    has out modelled
    has out "$2"
    run 0 "$tune" show --shape $shape
    has out "$3"
    run 0 "$tune" explain --shape $shape --device 0
    has out "$3"
    run 0 "$tune" check
    run 0 "$tune" export export.json
    export FA2_DB="$folder/$1-imported.db"
    run 0 "$tune" import export.json
    run 0 "$tune" list
    has out "$2"
    run 0 env LD_LIBRARY_PATH="$folder/lib" "$client" 1 2 48 16 1 --db "$FA2_DB"
    printf '%s: the whole way, %d checks so far\n' "$1" "$checks"
}

# A fault at its nth occasion over all processes of a tuning: it ends by itself, and what is stored is
# sound; then the same without the fault. All but the first begin with what was compiled for that.
fault() {
    rm -f fault.db counts
    [ ! -f compiled.db ] || cp compiled.db fault.db
    export FA2_DB="$folder/fault.db" FA2_SIM_FAULT=$1 FA2_SIM_FAULT_COUNTS="$folder/counts"
    ran="$FA2_SIM_CARD: tune with $1"
    timeout 300 "$tune" --device 0 --shape $shape >out 2>err </dev/null
    got=$?
    checks=$((checks + 1))
    [ "$got" -le 1 ] || [ "$got" -eq 3 ] || fail "$ran: exit status $got"
    printf '%s: exit status %d, %s\n' "$1" "$got" "$(grep -m 1 '^variants:' err || tail -n 1 err)"
    unset FA2_SIM_FAULT FA2_SIM_FAULT_COUNTS
    [ ! -f fault.db ] || run 0 "$tune" check
    [ -f compiled.db ] || cp fault.db compiled.db
    run 0 "$tune" --device 0 --shape $shape
    run 0 "$tune" list
    has out modelled
}

whole t4 "Tesla T4" fwd_sm75
whole rtx3060 "RTX 3060" fwd_sm80
whole l4 "NVIDIA L4" fwd_sm80

export FA2_SIM_CARD=rtx3060
# alloc=1 comes after compiling and before anything has run.
for wanted in alloc=1 alloc=4 load=1 load=20 fault=1 fault=60 wrong=1 wrong=40 hang=5 lost=3 \
    memory=100000000; do
    fault "$wanted"
done
printf '%d checks, %d failed\n' "$checks" "$failures"
[ "$failures" -eq 0 ]
