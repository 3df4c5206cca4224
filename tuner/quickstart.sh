#!/usr/bin/env bash
# From a fresh Debian or Ubuntu to a tuned database: installs what is missing, builds, tunes for the GPU
# in this machine, prints the winners. Without a GPU it fills the database by the cost model instead.
# Run it again at any time: what is done is not done twice.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
tuner/quickstart.sh [PRESET]

Set up, build into build-release/, tune PRESET (default: seeds) for GPU 0, print the winners.
Without a GPU: compile forward for sm_75 ... sm_90 and let the cost model choose.

FA2_DB=FILE               the database (default: ~/.cache/fa2/fa2.db)
FA2_CUDA_FROM_PYTHON=1    NVRTC from NVIDIA's Python packages, whatever toolkit there is
TEXT
}

if [ $# -gt 1 ]; then
    echo "quickstart.sh: one preset, not $# arguments; try --help" >&2
    exit 2
fi
case ${1:-seeds} in
-h | --help)
    usage
    exit 0
    ;;
-*)
    echo "quickstart.sh: unknown option $1; try --help" >&2
    exit 2
    ;;
esac
preset=${1:-seeds}
# Before anything is installed or built: the presets are the first column of this file.
mapfile -t presets < <(sed '/^#/d; /^$/d; /^preset,/d; s/,.*//' tuner/input/presets.csv | uniq)
[[ " ${presets[*]} " == *" $preset "* ]] || {
    echo "quickstart.sh: there is no preset \"$preset\"; known: ${presets[*]}" >&2
    exit 2
}

# shellcheck source=tuner/setup.sh
. tuner/setup.sh

# is_below FOLDER HOME...: strictly below one of them.
is_below() {
    local home
    for home in "${@:2}"; do
        [[ -z $home || $1 != "${home%/}"/?* ]] || return 0
    done
    return 1
}

# check_database: fails if the database could not be written. The build takes minutes, so it must not be the tuner that
# finds out.
check_database() {
    local file=${FA2_DB:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/fa2/fa2.db} folder
    folder=$(dirname -- "$file")
    [ ! -d "$file" ] || die "the database $file is a folder; name a file with FA2_DB"
    [ ! -e "$file" ] || [ -w "$file" ] || die "the database $file cannot be written; name another one with FA2_DB"
    while [ ! -e "$folder" ] && is_below "$folder" "${HOME:-}" "${XDG_CACHE_HOME:-}"; do # fa2 makes folders there
        folder=$(dirname -- "$folder")
    done
    [ -d "$folder" ] || die "there is no folder $folder for the database $file; make it, or set FA2_DB"
    [ -w "$folder" ] || die "the folder $folder cannot be written, so there is no place for the database $file;" \
        "name another one with FA2_DB"
}

check_database
fa2_tune=build-release/tuner/fa2-tune
setup_packages
setup_cuda
say "building $fa2_tune"
quietly "cmake" cmake --preset release "${cuda_options[@]}" || die "CMake cannot configure the build"
quietly "build" cmake --build --preset release || die "the build failed"

status=0
"$fa2_tune" devices || status=$?
case $status in
0)
    say "tuning preset $preset for device 0"
    "$fa2_tune" tune --device 0 --preset "$preset" || die "tuning failed (see above);" \
        "what was measured is kept, and running this again goes on from there"
    ;;
3)
    say "no usable GPU here: building the database by the cost model, nothing is measured"
    # Forward alone, for a minute is enough to show how it goes. Its table of winners is left out: list prints them
    # below, whatever they come from.
    offline=("$fa2_tune" build --arch sm_75,sm_80,sm_86,sm_89,sm_90 --preset "$preset")
    "${offline[@]}" --op forward >/dev/null || die "the offline build failed (see above)"
    say "gradients take some minutes more: ${offline[*]} --op backward"
    ;;
*)
    die "cannot look for devices (see above)"
    ;;
esac

say "winners ($fa2_tune list)"
"$fa2_tune" list
say "done. README.md goes on with \"Use it from Python\", \"Use it from C\" and \"Tune your shapes\";" \
    "fa2-tune there is $PWD/$fa2_tune"
