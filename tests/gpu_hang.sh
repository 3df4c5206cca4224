#!/bin/sh
# A pipeline that waits for what never comes, in a kernel whose loads arrive at barriers: fa2-tune tune records the
# hang, goes on with the other kernels and has a winner. The faults are planted in a copy of the template.
# Usage: gpu_hang.sh FA2_TUNE SOURCE_DIR. Exit status 77: no usable device here, or none of SM 9.0.
set -u
[ $# -ge 2 ] || {
    echo "usage: gpu_hang.sh FA2_TUNE SOURCE_DIR" >&2
    exit 2
}
tune=$1
source=$2
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
unset FA2_GEN_PATH FA2_DB

"$tune" devices >found 2>&1 && grep '^ *0 ' found | grep sm_90 | grep -qv '(software device)' || {
    cat found >&2
    echo "skipped: device 0 is not of SM 9.0" >&2
    exit 77
}

# plant NAME FROM TO: a tree with a fault, and a tuning that survives it.
plant() {
    FA2_GEN_PATH=$PWD/$1
    export FA2_GEN_PATH
    mkdir -p "$1/templates/hopper"
    cp -r "$source/tests/hang/gen" "$1"
    sed "s/$2/$3/" "$source/templates/hopper/fwd_producer.cuh" >"$1/templates/hopper/fwd_producer.cuh"
    checks=$((checks + 1))
    if cmp -s "$source/templates/hopper/fwd_producer.cuh" "$1/templates/hopper/fwd_producer.cuh"; then
        fail "$1: there is no '$2' in the template"
    fi
    expect_status 0 "tune, $1" "$tune" tune --device 0 --json --shape B=2,Hq=4,Sq=512,D=64 --db "$1.db"
    checks=$((checks + 1))
    grep -q '"hang":1' out && grep -q '"state":"measured"' out || fail "$1: no hang is recorded, or no winner"
    checks=$((checks + 1))
    grep -q '"wrong":0' out && grep -q '"fault":0' out || fail "$1: another failure than a hang"
}

# Bytes are announced that nobody sends; a stage is waited for that nobody reads first.
plant bytes 'barrier_expect(full, kTileBytes)' 'barrier_expect(full, kTileBytes + 16)'
plant parity 'barrier_wait(empty, stage.parity ^ 1)' 'barrier_wait(empty, stage.parity)'

summary
