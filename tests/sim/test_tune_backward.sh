#!/bin/sh
# Backward from end to end on the software device: tune, show, list, explain, export, import, check, and a
# client on the tuned database.
# Usage: test_tune_backward.sh FA2_TUNE CLIENT CARD
set -u
[ $# -eq 3 ] || {
    echo "usage: test_tune_backward.sh FA2_TUNE CLIENT CARD" >&2
    exit 2
}
tune=$1
client=$2
export FA2_SIM_CARD="$3"
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/../expect.sh"
export FA2_DB="$folder/$3.db"
shape=B=1,Hq=2,Hkv=1,Sq=48,Sk=80,D=16,causal=1

# run STATUS COMMAND ARGUMENT...
run() {
    status=$1
    shift
    expect_status "$status" "$FA2_SIM_CARD: $*" "$@"
}

run 0 "$tune" --device 0 --op backward --shape $shape
has err "0 of them failed"
has out "op=backward B=1"
run 0 "$tune" --device 0 --shape op=backward,$shape
has err "1 tuned already"
run 0 "$tune" list
has out "backward"
run 0 "$tune" show --shape op=backward,$shape
has out bwd_sm
run 0 "$tune" explain --device 0 --shape op=backward,$shape
has out "exact: "
run 0 "$tune" export export.json
run 0 "$tune" import export.json --db imported.db
run 0 "$tune" check
run 0 "$client" "$FA2_DB" 1 2 1 48 80 16 1 0
has out "exact: bwd_sm"
# What is not tuned: another length, keys that nobody sees, and the class that is deterministic.
run 0 "$client" "$FA2_DB" 1 2 1 65 33 16 1 0
has out "nearest: bwd_sm"
run 0 "$client" "$FA2_DB" 2 2 2 40 70 16 0 1
has out "default: bwd_sm"
has out "dq=separate"
summary
