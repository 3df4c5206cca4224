#!/bin/sh
# fa2-tune and the example client from end to end on the software device, with and without faults.
# Usage: test_tune.sh FA2_TUNE LIBFA2SIM CLIENT
#
# Every card, one of them with all variants: tune, list, show, explain, export, import (which compiles
# and verifies again), check, and the client on the tuned database. Two cards in one machine: each is
# itself. Faults: each kind from its first to its last occasion in a tuning of a few variants; whichever
# comes, the run ends by itself with a clear status, the database is sound, and a run without the fault
# finishes the work.
set -u
[ $# -ge 3 ] || {
    echo "usage: test_tune.sh FA2_TUNE LIBFA2SIM CLIENT" >&2
    exit 2
}
self=$(realpath "$0")
tune=$1
export FA2_CUDA_LIBRARY="$2"
client=$3
# shellcheck source=tests/expect.sh
. "$(dirname "$self")/../expect.sh"
shape=B=1,Hq=2,Hkv=1,Sq=48,Sk=80,D=16,causal=1

# run STATUS COMMAND ARGUMENT...
run() {
    status=$1
    shift
    expect_status "$status" "$FA2_SIM_CARD: $*" "$@"
}

# One card, the whole way.
whole() {
    export FA2_SIM_CARD="$1" FA2_DB="$folder/$1.db"
    run 0 "$tune" devices
    has out "$2"
    run 1 "$tune" --device 0 --shape $shape --budget 0.001
    has err "nothing was measured, because the budget ran out first"
    run 0 "$tune" --device 0 --shape $shape
    has err "0 of them failed"
    has err "problems: 1 modelled, 0 tuned already"
    run 0 "$tune" list
    has out modelled
    has out "$2"
    run 0 "$tune" show --shape $shape
    has out "$3"
    has out "modelled"
    ! grep -q measured out || fail "$ran: it says measured"
    run 0 "$tune" show --shape $shape --json
    has out '"source":"modelled"'
    run 0 "$tune" explain --shape $shape --device 0
    has out "$3"
    run 0 "$tune" check
    run 0 "$tune" export export.json
    export FA2_DB="$folder/$1-imported.db"
    run 0 "$tune" import export.json
    run 0 "$tune" list
    has out "$2"
    run 0 "$client" 1 2 48 16 1 --db "$FA2_DB"
    run 0 "$client" 1 2 48 16 0 --softcap 2 --window 9,4 --db "$FA2_DB"
    has out "softcap=1 window=1"
    run 0 "$client" 1 2 48 16 1 --backward --db "$FA2_DB"
    has out "problem    backward B=1"
    printf '%s: the whole way, %d checks so far\n' "$1" "$checks"
}

# Two cards in one machine, and the database that the second one tuned.
both() {
    export FA2_SIM_CARD=t4,l4 FA2_DB="$folder/l4.db"
    run 0 "$tune" devices
    has out "Tesla T4"
    has out "NVIDIA L4"
    run 0 "$tune" explain --shape $shape --device 1
    has out "exact: "
    run 0 "$tune" explain --shape $shape --device 0
    has out "default: "
    run 0 "$tune" --device 1 --shape $shape
    has err "1 tuned already"
    run 3 "$tune" --device 2 --shape $shape
    has err "there are 2"
    # What is tuned needs no compiler; what is not, does.
    export FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
    run 0 "$tune" --device 1 --shape $shape
    has err "1 tuned already"
    has err "no NVRTC here"
    run 1 "$tune" --device 1 --shape $shape --shape Hq=2,Sq=48,D=16
    has err "/nonexistent/libnvrtc.so"
    run 1 "$tune" --device 0 --shape $shape
    has err "/nonexistent/libnvrtc.so"
    unset FA2_NVRTC_LIBRARY
}

# occasions KIND: how many there were of it, the first kind being 0 (faults.c).
occasions() {
    od -An -t d8 -j $((8 * $1)) -N 8 counts | tr -d ' '
}

# tune_faulty FAULT...: with these faults on demand, counted over all processes of the tuning.
tune_faulty() {
    rm -f counts
    FA2_SIM_FAULT=$1 FA2_SIM_FAULT_COUNTS="$folder/counts" \
        timeout 7200 "$tune" --device 0 --shape $shape >out 2>err </dev/null
}

# fault NAME KIND N: at its nth occasion; then the same without the fault. All begin with what is
# compiled.
fault() {
    cp compiled.db fault.db
    tune_faulty "$1=$3"
    got=$?
    ran="$FA2_SIM_CARD: tune with $1=$3"
    checks=$((checks + 3))
    [ "$got" -le 1 ] || [ "$got" -eq 3 ] || fail "$ran: exit status $got"
    [ "$got" -eq 0 ] || grep -q "^fa2-tune: ..." err || fail "$ran: it does not say why"
    [ "$(occasions "$2")" -ge "$3" ] || fail "$ran: it had $(occasions "$2") occasions"
    printf '%s=%s: exit status %d, %s\n' "$1" "$3" "$got" \
        "$(grep -m 1 '^variants:' err || tail -n 1 err)"
    run 0 "$tune" check
    run 0 "$tune" --device 0 --shape $shape
    run 0 "$tune" list
    has out modelled
}

# faults NAME KIND FACTOR MOST: at occasions 1, FACTOR, FACTOR * FACTOR ... up to MOST.
faults() {
    n=1
    while [ "$n" -le "$4" ]; do
        fault "$1" "$2" "$n"
        n=$((n * $3))
    done
}

whole l4 "NVIDIA L4" fwd_sm80
both

FA2_GEN_PATH=$(dirname "$self")/few
export FA2_GEN_PATH
whole t4 "Tesla T4" fwd_sm75
whole rtx3060 "RTX 3060" fwd_sm80

export FA2_SIM_CARD=rtx3060 FA2_DB="$folder/fault.db"
tune_faulty alloc=1 # comes after compiling and before anything has run
cp fault.db compiled.db
never=1000000000
tune_faulty "alloc=$never,load=$never,fault=$never" || fail "tune without a fault"
allocations=$(occasions 0)
loads=$(occasions 1)
launches=$(occasions 2)
printf 'a tuning has %d allocations, %d loads, %d launches\n' "$allocations" "$loads" "$launches"
faults alloc 0 2 "$allocations"
faults load 1 2 "$loads"
faults fault 2 4 "$launches"
faults hang 3 64 "$launches"
faults wrong 4 4 "$launches"
faults lost 5 8 "$launches"
cp compiled.db fault.db
ran="$FA2_SIM_CARD: tune with a megabyte of memory"
checks=$((checks + 1))
! tune_faulty memory=1000000 || fail "$ran: exit status 0"
has err "CUDA_ERROR_OUT_OF_MEMORY"
run 0 "$tune" check
summary
