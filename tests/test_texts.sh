#!/bin/sh
# What list, show, explain and report write, to the byte: in a pipe, on terminals of 80 and of 200 columns; and where
# colours are. Usage: test_texts.sh FA2_TUNE REPORT_DATABASE
set -u
[ $# -ge 2 ] || {
    echo "usage: test_texts.sh FA2_TUNE REPORT_DATABASE" >&2
    exit 2
}
tune=$(realpath "$1")
make_database=$(realpath "$2")
on_terminal=$(realpath "$(dirname "$0")/on_terminal.py")
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
export FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1 FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
export FA2_DB=card.db NO_COLOR=1 TERM=xterm
unset FA2_GEN_PATH COLUMNS

run() {
    expect_status 0 "fa2-tune $*" "$tune" "$@"
}
# shown COLUMNS ARGUMENT...: fa2-tune on a terminal.
shown() {
    columns=$1
    shift
    expect_status 0 "fa2-tune $* on $columns columns" "$on_terminal" "$columns" "$tune" "$@"
}
# Nothing is longer than the terminal is wide.
fits() {
    checks=$((checks + 1))
    awk -v most="$1" 'length($0) > most { exit 1 }' out || fail "$ran: a line has more than $1 characters"
}

# words FILE LIST: its words, but for a title that is left out where its column is below.
words() {
    tr -s ' \n-' '\n\n\n' <"$1" | grep -vx variant | sort >"$2"
}

# What is held below comes through a terminal as it was written.
expect_status 0 "a terminal" "$on_terminal" 80 seq 100000
seq 100000 >numbers
untouched out numbers

# explain says how far it is where its entries go elsewhere, and that alone.
for fewer in "" ",sm_86"; do
    # shellcheck disable=SC2016 # for the shell on the terminal
    expect_status 0 "explain into a file" "$on_terminal" 80 sh -c \
        '"$0" explain --db missing.db --shape Hq=8,Sq=512,D=64 --arch sm_80$1 --json >explained' "$tune" "$fewer"
    if [ -n "$fewer" ]; then
        has out "explaining 2/2 done in"
    else
        lacks out "explaining 1"
    fi
done
shown 80 explain --shape Hq=8,Sq=512,D=64 --arch sm_80,sm_86
lacks out "explaining 2/2"

"$make_database" card.db "$texts/card.jsonl" || fail "report_database"
shape=B=8,Hq=16,Sq=1024,D=128,dtype=bf16,causal=1

run list
golden out list.pipe
run show --shape $shape
golden out show.pipe
for columns in 80 200; do
    shown $columns list
    golden out "list.$columns"
    fits $columns
    shown $columns show --shape $shape
    golden out "show.$columns"
    fits $columns
    shown $columns explain --shape $shape --arch sm_90
    fits $columns
    words out explained.$columns
done
# What the generator makes of the problem is not held here: kernels come and go, and with them what the choice rests on.
run explain --shape $shape --arch sm_90
words out explained
has out "problem   B=8 Hq=16 Hkv=16 Sq=1024 Sk=1024 D=128 dtype=bf16 causal=1"
has out "card      NVIDIA H200 (sm_90): 132 SMs, 232448 bytes of shared memory per block"
for label in "rule      " "estimate  " "kernel    " "code      " "model     " "kernels by their estimates for B=8 " \
    " us  TFLOPS  rests on  model us  code  variant" "rejected ("; do
    has out "$label"
done
for columns in 80 200; do
    checks=$((checks + 1))
    cmp -s explained explained.$columns || fail "$ran: on $columns columns it has other words"
done
run report
sed '/^- Made/d; s/[0-9TZ:-]\{20\}/MOMENT/g' out >report
masked report report.md

# ---- colours: on a terminal, and nowhere else ----
escape=$(printf '\033[')
lacks out "$escape"
unset NO_COLOR
for command in "list" "show --shape $shape" "explain --shape $shape --arch sm_90"; do
    # shellcheck disable=SC2086 # words
    shown 80 $command
    has out "${escape}1m"
    # The same without them.
    sed "s/$(printf '\033')\[[0-9]*m//g" out >plain
    # shellcheck disable=SC2086
    NO_COLOR=1 shown 80 $command
    checks=$((checks + 1))
    cmp -s plain out || fail "$ran: another text with colours"
    lacks out "$escape"
    # shellcheck disable=SC2086
    TERM=dumb shown 80 $command
    lacks out "$escape"
    # shellcheck disable=SC2086
    NO_COLOR='' shown 80 $command
    has out "${escape}1m"
    # shellcheck disable=SC2086
    run $command
    lacks out "$escape"
done
shown 80 show --shape $shape
has out "${escape}31m"
has out "${escape}32m"
summary
