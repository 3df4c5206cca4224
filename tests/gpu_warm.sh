#!/bin/sh
# Tune a preset, then run every tuned problem in a new process that has no NVRTC. Usage: gpu_warm.sh
# FA2_TUNE GPU_WARM [PRESET]. Exit status 77: no usable device here.
set -eu
[ $# -ge 2 ] || {
    echo "usage: gpu_warm.sh FA2_TUNE GPU_WARM [PRESET]" >&2
    exit 2
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" devices >"$folder/found" 2>&1 || {
    cat "$folder/found" >&2
    exit 77
}
"$1" tune --device 0 --preset "${3:-quick}" --db "$folder/fa2.db" >"$folder/out"
"$2" "$folder/fa2.db"
