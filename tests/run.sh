#!/usr/bin/env bash
# All tests: luacheck, clang-format, clang (for its warnings), the tests of the host code under ASan and UBSan, and
# those of kernels, on the software device, in the dev build. Installs what is missing. Every part runs, whatever became
# of the ones before; the exit status is 0 if all passed. Last come what ran on the software device, the minutes,
# CTest's summary of the dev build, and how to run alone what failed. GPU tests skip themselves where there is no GPU.
#
#     tests/run.sh [--quick]
#
# --quick, for while one works: luacheck, clang-format, one build, the host tests that take seconds, a kernel of each
# family.
set -euo pipefail
cd "$(dirname "$0")/.."
case "$*" in
    "") quick= ;;
    --quick) quick=yes ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' tests/run.sh; exit 0 ;;
    *) echo "usage: tests/run.sh [--quick]" >&2; exit 2 ;;
esac

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

# build FOLDER PRESET CMAKE_OPTION...: warnings are errors. The sanitizers need only lines of what debuggers want, and
# with -O1 the compiler takes little more than half of the time. (The dev build has -O2, and the warnings that come with
# it. What must be fast asks for -O3 itself.)
build() {
    local folder=$1 preset=$2 debug=()
    shift 2
    [ "$preset" != asan-ubsan ] || debug=(-DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1 -DNDEBUG")
    quietly "cmake" cmake --preset "$preset" -B "$folder" -DFA2_WERROR=ON "${cuda_options[@]}" "${debug[@]}" \
        "$@" && quietly "build" cmake --build "$folder" -j "$jobs"
}

# The "swept" lines of the sweeps in CTest's log (tests/sim/test_sweep.c), added up over their parts.
print_swept() {
    awk '/^swept / {
        key = $2 " " $3; variants[key] += $4; launches[key] += $6; failed[key] += $8
    }
    END {
        for (key in variants)
            printf "%s %d variants on the software device: %d launches, %d failed\n",
                key, variants[key], launches[key], failed[key]
    }' "$1" | sort
}

# The commands that run the tests which CTest's summary says failed, each alone.
print_alone() {
    sed -n "/ (Skipped)$/d; s/^[[:space:]]*[0-9]* - \\([^ ]*\\) (.*/ctest --test-dir $1 -R '^\\1\$' --output-on-failure/p" "$2"
}

# summary_last LOG COMMAND...: run CTest; what it swept and the minutes go before its summary.
summary_last() {
    local log=$1 summary status=0
    shift
    summary=$(mktemp)
    "$@" | sed -u -e "/% tests passed/,\$ {" -e "w $summary" -e "d" -e "}" || status=$?
    print_swept "$log"
    say "$((SECONDS / 60)) minutes since the start"
    cat "$summary"
    [ "$status" -eq 0 ] || print_alone "${log%%/*}" "$summary"
    rm -f "$summary"
    return "$status"
}

# Both builds keep what NVRTC compiled in one place (tests/kept_nvrtc.c), whose files that no run has read for
# a week go.
kept=$PWD/build/kept-code
build_for_tests() {
    mkdir -p "$kept"
    find "$kept" -type f -mtime +7 -delete
    build "$1" "$2" -DCMAKE_C_COMPILER=gcc -DFA2_KEPT_CODE="$kept"
}

build_and_test() {
    local folder=$1 preset=$2
    shift 2
    build_for_tests "$folder" "$preset" &&
        summary_last "$folder/Testing/Temporary/LastTest.log" \
            ctest --test-dir "$folder" --output-on-failure -j $((jobs + 1)) "$@" # one more: some tests wait for seconds
}

tools=()
have clang || tools+=(clang)
have clang-format || tools+=(clang-format)
have luacheck || tools+=(lua-check)
have tidy || tools+=(tidy)
have mandoc || tools+=(mandoc)
have patch || tools+=(patch)
python3 -c 'import ensurepip, venv' 2>/dev/null || tools+=(python3-venv)
[ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || tools+=(python3-dev)
setup_packages "${tools[@]}"
setup_cuda

part "luacheck" luacheck -q gen tuner
part "format" sh -c 'find cache gen runtime tests tuner -name "*.[ch]" -o -name "*.[ch]pp" | xargs clang-format --dry-run --Werror'
if [ -n "$quick" ]; then
    part "quick tests" build_and_test build dev -LE 'gpu|slow|long'
    [ ${#failed[@]} -eq 0 ]
    exit
fi
part "build" build_for_tests build dev
# For what it warns of.
part "clang" tests/clang_warnings.py build "$jobs"
# The driver's address-space reservations and ASan's do not go together, so no GPU tests here. The sanitizers look at
# the host's code: of kernels on the software device, those of a few minutes are enough for them.
# libasan 12 looks for the header that glibc 2.19 had before each thread-local block of a loaded library. One block in
# 256 lies where such a header would, and then LeakSanitizer reads at an address that is garbage, and crashes.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}intercept_tls_get_addr=0
part "tests under ASan and UBSan" build_and_test build-asan asan-ubsan -LE 'gpu|slow|plain'
[ ${#failed[@]} -eq 0 ] || say "failed so far: ${failed[*]}"
# Two of these build the product with full optimisation, where gcc sees more and assert() uses no variable: python and
# toy_feature.
part "tests" build_and_test build dev -LE host
[ ${#failed[@]} -eq 0 ]
