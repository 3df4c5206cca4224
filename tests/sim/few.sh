# To be sourced (with `.`) by a script whose arguments are FA2_TUNE LIBFA2SIM [CLIENT]: what ../expect.sh does, and
# fa2-tune and a client on the software device, an RTX 3060, with a few variants and a database of the script's own.
here=$(realpath "$(dirname "$0")")
texts=$here/../golden/texts
tune=$1
client=${3:-}
# shellcheck source=tests/expect.sh
. "$here/../expect.sh"
export FA2_CUDA_LIBRARY="$2" FA2_SIM_CARD=rtx3060 FA2_DB="$folder/fa2.db" FA2_GEN_PATH="$here/few" TMPDIR="$folder"
unset FA2_CAPTURE
shape=Hq=2,Sq=48,D=16,causal=1

# run STATUS ARGUMENT...: fa2-tune.
run() {
    status=$1
    shift
    expect_status "$status" "fa2-tune $*" "$tune" "$@"
}
# call STATUS ARGUMENT...: a program that calls attention.
call() {
    status=$1
    shift
    expect_status "$status" "a call of $*" "$client" "$@"
}

# sql FILE STATEMENTS
sql() {
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA foreign_keys = OFF")
db.executescript(sys.argv[2])' "$@"
}
