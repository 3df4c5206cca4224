#!/usr/bin/env bash
# The kernels under NVIDIA's compute-sanitizer, over a sample of the numerics grids: memcheck, initcheck and
# synccheck on what the runtime chooses, forward and backward; racecheck on the plain families of forward and, on
# SM 9.0, on fwd_sm90. Those that split the keys use named barriers, of which racecheck (2025.3.1) reports hazards that
# are none, in some runs of a program and not in others. Where it finds none in ten runs of
# tests/sim/record/named_barriers.c, a kernel of that form without a race, it gets all families of forward.
# COMPUTE_SANITIZER names the tool. Exit status 77: no tool or no usable device here.
#
# tests/gpu_sanitizer.sh [FOLDER]     FOLDER: a finished build; default: build
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tests=${1:-build}/tests
if [ ! -x "$tests/gpu_forward" ] || [ ! -x "$tests/sim/named_barriers" ]; then
    echo "usage: gpu_sanitizer.sh FOLDER; there is no finished build in ${1:-build}" >&2
    exit 2
fi
tool=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
if [ ! -x "$tool" ]; then
    echo "skipped: there is no compute-sanitizer (COMPUTE_SANITIZER can name one)" >&2
    exit 77
fi
"$tests/sim/named_barriers" >/dev/null || exit

# A grid and its options, one sample a line.
features="gpu_features --small --every 7 --dtype fp16
gpu_features --small --every 5 --arch 80 --dtype bf16"
forward="gpu_forward --small --every 5 --dtype fp16 --dim 64
gpu_forward --small --every 5 --dtype fp16 --dim 40
gpu_forward --small --every 5 --dtype bf16 --dim 128
gpu_forward --small --every 7 --dtype fp16 --dim 256
gpu_forward --small --every 5 --arch 75 --dtype fp16 --dim 64"
backward="gpu_backward --small --every 29 --dtype fp16 --dim 64
gpu_backward --small --every 29 --dtype bf16 --dim 128
gpu_backward --small --every 29 --arch 75 --dtype fp16 --dim 64"
on_maps="gpu_forward --small --every 41 --dtype fp16 --dim 64
gpu_forward --small --every 41 --dtype bf16 --dim 128"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# watch LOG TOOL COMMAND...: 0 when the tool found nothing and the command succeeded. It looks at the kernels that
# `filter` names, or at all.
filter=()
watch() {
    local log=$1 what=$2
    shift 2
    timeout 150 "$tool" --tool "$what" "${filter[@]}" --error-exitcode 99 --print-limit 20 "$@" >"$log" 2>&1 &&
        grep -q 'SUMMARY: 0 ' "$log"
}

# run TOOL SAMPLES: one after the other; a line for each, and what was found.
run() {
    local sample log seconds
    while read -r sample; do
        log="$folder/$1.log" seconds=$SECONDS
        # shellcheck disable=SC2086 # the options are words
        if watch "$log" "$1" "$tests/"$sample; then
            echo "$1: $sample: clean, $(grep -o "[0-9]* launches" "$log" | tail -n 1), $((SECONDS - seconds)) s"
        else
            echo "$1: $sample: FAILED"
            tail -n 40 "$log"
        fi
    done <<<"$2" >>"$folder/$1.out"
}

"$tool" --version | tail -n 1
racecheck_families="all families"
for round in 1 2 3 4 5 6 7 8 9 10; do
    watch "$folder/named.log" racecheck "$tests/sim/named_barriers" && continue
    echo "racecheck reports hazards in a kernel without a race, in run $round:" \
        "$(grep -o 'SUMMARY: .*' "$folder/named.log")"
    racecheck_families="the plain families and fwd_sm90"
    break
done
for what in memcheck initcheck synccheck; do
    run "$what" "$forward
$backward
$features" &
done
(
    if [ "$racecheck_families" != "all families" ]; then
        filter=(--kernel-name kernel_substring=fwd_sm90)
        run racecheck "$on_maps"
        filter=()
        export FA2_GEN_PATH=tests/families
    fi
    run racecheck "$forward"
) &
wait
cat "$folder"/{memcheck,initcheck,synccheck,racecheck}.out
failures=$(cat "$folder"/*.out | grep -c 'FAILED$')
echo "$SECONDS s; racecheck on $racecheck_families; $failures samples failed"
[ "$failures" -eq 0 ]
