#!/usr/bin/env bash
# All tests: luacheck, a clang build (for its warnings), CTest under ASan and UBSan, CTest of the dev
# build. Installs what is missing. Every part runs, whatever became of the ones before; the exit status
# is 0 if all passed. CTest's summary of the dev build comes last. GPU tests skip themselves where there
# is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=tuner/setup.sh
. tuner/setup.sh

jobs=$(nproc)
failed=()

# part NAME COMMAND...: note whether it passed, and go on.
part() {
    local name=$1
    shift
    say "$name"
    "$@" || failed+=("$name")
}

# build FOLDER PRESET CMAKE_OPTION...: warnings are errors.
build() {
    local folder=$1 preset=$2
    shift 2
    quietly "cmake" cmake --preset "$preset" -B "$folder" -DFA2_WERROR=ON "${cuda_options[@]}" \
        "$@" && quietly "build" cmake --build "$folder" -j "$jobs"
}

build_and_test() {
    local folder=$1 preset=$2
    shift 2
    build "$folder" "$preset" -DCMAKE_C_COMPILER=gcc &&
        ctest --test-dir "$folder" --output-on-failure -j "$jobs" "$@"
}

tools=()
have clang || tools+=(clang)
have luacheck || tools+=(lua-check)
setup_packages "${tools[@]}"
setup_cuda

part "luacheck" luacheck -q gen
part "clang build" build build-clang dev -DCMAKE_C_COMPILER=clang
# The driver's address-space reservations and ASan's do not go together, so no GPU tests here; and none of
# those that wait for NVRTC for minutes.
part "tests under ASan and UBSan" build_and_test build-asan asan-ubsan -LE 'gpu|slow'
[ ${#failed[@]} -eq 0 ] || say "failed so far: ${failed[*]}"
part "tests" build_and_test build dev
[ ${#failed[@]} -eq 0 ]
