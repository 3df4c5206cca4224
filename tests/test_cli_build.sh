#!/bin/sh
# fa2-tune where it compiles, from the outside, on a machine without a GPU (one that is there is hidden): build, what
# the other commands make of its database, and import. Usage: test_cli_build.sh FA2_TUNE. Exit status 77: no NVRTC.
set -u
[ $# -ge 1 ] || {
    echo "usage: test_cli_build.sh FA2_TUNE" >&2
    exit 2
}
tune=$1
few=$(realpath "$(dirname "$0")/sim/few")
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
export FA2_DB="$folder/fa2.db" FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1
unset FA2_GEN_PATH

# sealed FILE: give an export that was changed the last line that it needs.
sealed() {
    grep -v '"type":"end"' "$1" >unsealed
    cp unsealed "$1"
    printf '{"type":"end","rows":%d,"sha256":"%s"}\n' $(($(wc -l <unsealed) - 1)) \
        "$(sha256sum <unsealed | cut -d ' ' -f 1)" >>"$1"
}

# terminate PID WHAT: SIGTERM ends WHAT, with the status of what was interrupted.
terminate() {
    kill -TERM "$1"
    wait "$1"
    got=$?
    checks=$((checks + 1))
    ran="$2, then SIGTERM"
    [ "$got" -eq 130 ] || fail "$ran: exit status $got, expected 130"
}

# has_run PID: for 0.3 s of processor time.
has_run() {
    [ "$(cut -d ' ' -f 14 "/proc/$1/stat")" -ge $((3 * $(getconf CLK_TCK) / 10)) ]
}

# stop_scripts WHAT MESSAGE: a build that SIGTERM ends while its scripts run says MESSAGE.
stop_scripts() {
    "$tune" build --arch sm_86 --shape "$shape" >out 2>err &
    build=$!
    await $build has_run $build
    terminate $build "$1"
    has err "$2"
}
has_kernels() {
    "$tune" check 2>/dev/null | grep -q "kernels  *[1-9]"
}

"$tune" devices --json >out 2>err
if ! grep -qF '"nvrtc":{"found":true' out; then
    echo "SKIP: no NVRTC, so build and what needs a built database are not tested" >&2
    exit 77
fi

# ---- every SM that this NVRTC compiles for and a card stands for, with few variants ----
run 2 build --arch sm_85 --shape Hq=2,Sq=64,D=16
has err "there is no reference card for sm_85"
run 2 build --arch sm_86,any
has err "native or all"
run 3 build --arch native --shape Hq=2,Sq=64,D=16
has err "/nonexistent/libcuda.so.1"
FA2_GEN_PATH=$few
export FA2_GEN_PATH
run 0 explain --arch all --shape Hq=2,Sq=64,D=16
for sm in $("$tune" devices | sed -n 's/^ *compiles for //p'); do
    has out "($sm)"
done
run 0 build --arch all --shape Hq=2,Sq=64,D=16 --db all.db
for sm in $("$tune" devices | sed -n 's/^ *compiles for //p'); do
    has out "$sm, winners by the cost model"
done

# ---- a card for which nothing compiles ----
cp -R "$few" no_cpp
mkdir -p no_cpp/templates/lib
sed '1a this is no C++;' "$few/../../../templates/lib/types.cuh" >no_cpp/templates/lib/types.cuh
export FA2_GEN_PATH="$PWD/no_cpp" FA2_DB="$folder/no_cpp.db"
run 1 build --arch sm_86 --shape Hq=2,Sq=64,D=16
reason="kernels did not compile: templates/lib/types.cuh(2): error"
for command in "0 list" "0 list --json" "1 show --device all" "1 show --shape Hq=2,Sq=64,D=16"; do
    # shellcheck disable=SC2086 # the status, and the command's words
    run $command
    has err "NVIDIA GeForce RTX 3060 (sm_86) has no results: "
    has err "$reason"
done
run 0 report --html page.html
run 0 report
has out "; no results: "
for page in out page.html; do
    has "$page" "$reason"
done
unset FA2_GEN_PATH
export FA2_DB="$folder/fa2.db"
run 0 build --arch sm_86,sm_75 --shape Hq=2,Sq=64,D=16 --db "$folder/no_cpp.db" --jobs 2
run 0 list --db "$folder/no_cpp.db"
lacks err "no results"
run 0 forget --device "RTX 3060" --db "$folder/no_cpp.db" # its kernels stay, and most of them compiled
run 0 list --db "$folder/no_cpp.db"
lacks err "no results"

# ---- a build, and the database it makes ----
shape=Hq=2,Sq=64,D=16
run 0 build --arch sm_86,sm_75 --shape $shape --shape $shape,dtype=bf16 --jobs 2 --dry-run
has out "sm_86: to compile: 24, compiled already: 0, problems that it does not serve: 0; about 13 s with 2 threads"
has out "sm_75: to compile: 12, compiled already: 0, problems that it does not serve: 1; about 7 s with 2 threads"
checks=$((checks + 1))
[ ! -e "$FA2_DB" ] || fail "a dry run made a database"
export FA2_DUMP=/nonexistent # one line, and the build goes on
run 0 build --arch sm_86 --shape $shape --jobs 2
unset FA2_DUMP
checks=$((checks + 1))
[ "$(grep -c "^fa2-tune: FA2_DUMP=/nonexistent: cannot write fwd_.*,sm_86.cu (No such file or directory)$" err)" -eq 1 ] ||
    fail "$ran: not one line about FA2_DUMP"
has out "sm_86, winners by the cost model"
has out "B=1 Hq=2 Hkv=2 Sq=64 Sk=64 D=16 dtype=fp16 causal=0"
has err "compiling for sm_86"
run 0 build --arch sm_86 --shape $shape --json
has out '"compiled":0,'
lacks err "compiling"
for dry in "" --dry-run "--dry-run --json"; do
    # shellcheck disable=SC2086
    run 2 build --arch sm_75 --shape $shape,dtype=bf16 $dry
    has err "none of the problems can run"
done
run 0 list
has out "(sm_86)"
has out "modelled"
empty err
run 0 list --json
has out '"source":"modelled"'
run 0 show --shape $shape # nothing was measured
has err "nothing was measured for B=1 Hq=2 Hkv=2 Sq=64 Sk=64 D=16"
has err "what the cost model chose:"
has out "fwd_sm80 "
has out "modelled"
run 0 show --shape $shape --json
has err "what the cost model chose:"
has out '"source":"modelled","variant":"fwd_sm80 '
for filter in "--shape D=16" "--op forward" "--device 3060"; do
    # shellcheck disable=SC2086 # an option and its value
    run 0 show $filter
    has err "nothing was measured for B=1 Hq=2 Hkv=2 Sq=64 Sk=64 D=16"
    has err "what the cost model chose:"
    has out "modelled"
done
run 1 show --shape D=32
has err "nothing was measured or chosen for such problems in $FA2_DB; fa2-tune list has the winners"
run 0 explain --arch sm_86 --shape $shape --never-compile
run 1 explain --arch sm_80,sm_89 --shape $shape --never-compile
for sm in sm_80 sm_89; do
    has out "D=16 dtype=fp16 causal=0 for $sm (it has it for sm_86), and none can be compiled: "
    has out "\`fa2-tune build --arch $sm --shape B=1,Hq=2,Hkv=2,Sq=64,Sk=64,D=16,dtype=fp16,causal=0 --db '$FA2_DB'\`"
done
run 1 explain --arch sm_80 --shape $shape,causal=1 --never-compile
has out "causal=1 for sm_80, and none can be compiled"
run 0 check
has out "with code"
run 0 gc
has out "dropped the code of 0 kernels, 0 winners"
run 1 show --shape $shape --device T4
for command in "list" "list --json" "forget --dry-run"; do
    # shellcheck disable=SC2086 # the command's words
    run 2 $command --device nothere
    has err "--device \"nothere\": there is no such device in $FA2_DB; the devices in it: NVIDIA GeForce RTX 3060"
    empty out
done
run 0 show --device all
has out "modelled"
run 0 explain --shape $shape --arch sm_86 --json
has out '"reason":"the cost model chose it for B=1'
run 0 explain --shape $shape --arch sm_86
has out "reason    the cost model chose it for B=1"
lacks out "tuned for"
has out "ranked by the cost model"
has out "registers"
lacks out "rule      default:"
if command -v sqlite3 >/dev/null; then
    lacks out "lost "
    cp fa2.db lost.db
    sqlite3 lost.db 'delete from image where kernel in (select kernel from winner)'
    run 0 explain --shape $shape --arch sm_86 --db lost.db
    has out "code      lost: compiled again at the first call"
    # Nobody can compile it here: one that has code is taken.
    FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
    export FA2_NVRTC_LIBRARY
    run 0 explain --shape $shape --arch sm_86 --db lost.db
    has out "not taken fwd_sm80"
    has out "its code is damaged or missing, and there is no NVRTC to compile it again"
    run 0 explain --shape $shape --arch sm_86 --db lost.db --json
    has out '"not_taken":"fwd_sm80'
    unset FA2_NVRTC_LIBRARY
else
    echo "skipped, there is no sqlite3: explaining what lost its code" >&2
fi
run 0 check
has out "file intact"
run 0 check --json
has out '"intact":true'
run 0 export rows.jsonl
empty out
run 0 export -
checks=$((checks + 1))
cmp -s out rows.jsonl || fail "export to a file and to standard output differ"
run 1 export /nonexistent/rows.jsonl
has err "fa2-tune: /nonexistent/rows.jsonl: its folder is not there"
run 0 import rows.jsonl --db other.db
has out "compiled 1 of 1 kernel without code"
run 0 import rows.jsonl --db other.db
has out "imported 0 new rows"
run 0 list --db other.db
has out "modelled"
run 0 explain --shape $shape --arch sm_86 --db other.db
lacks out "rule      default:"
# recipe_of_winner EXPORT: how the kernel of its one winner is launched.
recipe_of_winner() {
    key=$(sed -n 's/.*"type":"winner".*"kernel":"\([0-9a-f]*\)".*/\1/p' "$1")
    grep -F "\"key\":\"$key\"" "$1" | grep -o '"recipe":"[^"]*"'
}
sed 's/ rows=[0-9]*/ rows=65536/' rows.jsonl >forged.jsonl
run 2 import forged.jsonl --db forged.db
has err "export it again"
sealed forged.jsonl
run 0 import forged.jsonl --db forged.db
has err "launch it otherwise"
has out "compiled 1 of 1 kernel without code"
run 0 export forged.jsonl --db forged.db
checks=$((checks + 1))
[ -n "$(recipe_of_winner rows.jsonl)" ] && [ "$(recipe_of_winner forged.jsonl)" = \
    "$(recipe_of_winner rows.jsonl)" ] || fail "the file's recipe was taken"
# A file that was cut, or goes on, or has what no fa2 made: nothing of it, and no database.
head -n 3 rows.jsonl >bad.jsonl
run 2 import bad.jsonl --db third.db
has err "bad.jsonl:4: the line of type end is missing"
head -c 700 rows.jsonl >bad.jsonl
run 2 import bad.jsonl --db third.db
cp rows.jsonl bad.jsonl
echo '{"type":"nonsense"}' >>bad.jsonl
run 2 import bad.jsonl --db third.db
has err "there is a line behind the last one"
checks=$((checks + 1))
[ ! -e third.db ] || fail "an import that failed left a database"
cp other.db third.db
run 2 import bad.jsonl --db third.db
untouched third.db other.db
run 2 import other.db --db third.db
has err "other.db: is a database; name a file that fa2-tune export or field-report wrote"
run 2 import / --db third.db
has err "/: is a folder"
run 2 field-report other.db --check
has err "other.db: is a database"
# What another fa2 knows and this one does not is passed over, and said.
sed 's/"variant":"fwd_sm80/"variant":"fwd_sm81/' rows.jsonl >newer.jsonl
sealed newer.jsonl
run 0 import newer.jsonl --db newer.db
has out "kernels that this fa2 does not know; the first: "
has out "there is no family 'fwd_sm81'"
lacks out "compiled"
# A kernel that the file has twice is one.
about=$(sed -n 's/^passed over: .* about \([0-9]* kernels\) .*/about \1 /p' out)
sed '/"type":"kernel".*"variant":"fwd_sm81/p' newer.jsonl >twice.jsonl
sealed twice.jsonl
run 0 import twice.jsonl --db twice.db
has out "${about:-about no kernels}"
# Scripts that fail say nothing about a kernel: nothing comes in.
mkdir -p bad/gen bad/templates/forward empty/templates/forward
echo 'return {variant = function() error("the scripts are broken") end}' >bad/gen/init.lua
FA2_GEN_PATH="$folder/bad"
export FA2_GEN_PATH
run 1 import rows.jsonl --db broken.db
has err "the scripts are broken"
lacks out "passed over"
checks=$((checks + 1))
[ ! -e broken.db ] || fail "an import that failed left a database"
unset FA2_GEN_PATH
run 0 gc
has out "dropped"
run 0 check
has out "winners without code 0"

# ---- without NVRTC ----
export FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
run 1 build --arch sm_86 --shape $shape
has err "/nonexistent/libnvrtc.so"
# A dry run needs it where there is something to compile.
run 0 build --arch sm_86 --shape $shape --dry-run
has out "sm_86: to compile: 0, compiled already: "
run 0 build --arch sm_86 --shape $shape --dry-run --json
has out '"to_compile":0'
run 1 build --arch sm_86,sm_89 --shape $shape --dry-run --json
has err "/nonexistent/libnvrtc.so"
has out '"to_compile":0'
python3 -c "import json; json.load(open('out'))" || fail "$ran: no JSON"
run 1 build --arch sm_86 --shape $shape,dropout=1 --dry-run
has err "/nonexistent/libnvrtc.so"
empty out
run 1 build --arch sm_86 --shape $shape --dry-run --db new.db
has err "/nonexistent/libnvrtc.so"
run 3 devices
has out "explain --arch"
run 1 import rows.jsonl --db fourth.db
has out "new rows into"
has err "not compiled"
unset FA2_NVRTC_LIBRARY

# ---- scripts and templates that are no good ----
: >empty/templates/forward/fwd_sm80.cu.in
export FA2_GEN_PATH="$folder/empty"
run 1 build --arch sm_86 --shape Hq=64,Sq=640,D=16 --db empty.db
has err "the code has no entry point fwd_sm80"
echo 'while true do end' >bad/gen/init.lua
export FA2_GEN_PATH="$folder/bad"
run 1 build --arch sm_86 --shape $shape
has err "the scripts run without end"
# Scripts have more time than one who said Ctrl-C: once ends them.
for script in 'while true do end' \
    'local a, b = ("x"):rep(5e7) .. "a", ("x"):rep(5e7) .. "b" while a < b do end'; do
    echo "$script" >bad/gen/init.lua
    stop_scripts "build with the script $script" "interrupted while the scripts ran"
done
# A call of a library function cannot be stopped; the process ends ten seconds after the signal.
echo 'string.find(string.rep("a", 200), string.rep("a-", 40) .. "b")' >bad/gen/init.lua
stop_scripts "build with an endless call" "interrupted, but did not end in time"
# A folder in the place of a script is none.
rm bad/gen/init.lua
mkdir bad/gen/init.lua
run 1 build --arch sm_86 --shape $shape
has err "gen/init.lua is no regular file"
unset FA2_GEN_PATH

# ---- Ctrl-C: what was compiled stays, the next run goes on ----
rm -f fa2.db
"$tune" build --arch sm_80,sm_86,sm_89 --preset quick --jobs 1 >out 2>err &
build=$!
await $build has_kernels
terminate $build "build"
has err "interrupted"
run 0 check
lacks out "kernels       0,"

summary
