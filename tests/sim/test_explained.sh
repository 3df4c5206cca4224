#!/bin/sh
# What explain says is what a call does, on the software device: each damage is done to two copies of a database, of
# which explain reads one and a program the other. Usage: test_explained.sh FA2_TUNE LIBFA2SIM SIM_CLIENT
set -u
[ $# -ge 3 ] || {
    echo "usage: test_explained.sh FA2_TUNE LIBFA2SIM SIM_CLIENT" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"

# agree STATUS RULE FROM STATEMENTS: the exit status of both, and the rule of both (or "none"). What explain said is in
# the file said, and as JSON in json.
agree() {
    rm -f explained.db called.db
    [ "$3" = - ] || {
        cp "$3" explained.db
        sql explained.db "$4"
        cp explained.db called.db
    }
    run "$1" explain --shape $shape --device 0 --db explained.db
    cp out said
    has said "rule      $2:"
    run "$1" explain --shape $shape --device 0 --db explained.db --json
    cp out json
    checks=$((checks + 1))
    python3 -c 'import json; json.load(open("json"))' || fail "$ran: no JSON"
    checks=$((checks + 1))
    ran="a call, $4"
    "$client" 1 2 48 16 1 --db called.db >out 2>err
    got=$?
    if [ "$1" -eq 0 ]; then
        [ "$got" -eq 0 ] || fail "$ran: exit status $got"
        has out "rule       $2:"
        has out "kernel     $(sed -n 's/^kernel    //p' said) ("
    else
        [ "$got" -ne 0 ] || fail "$ran: it succeeds"
        has err "$(sed -n 's/^message   //p' said | sed 's/explained\.db/called.db/g')"
        has json '"rule":null,"variant":null'
    fi
}
winners="(SELECT code FROM image WHERE kernel IN (SELECT kernel FROM winner))"
without=/nonexistent/libnvrtc.so

run 0 --device 0 --shape $shape --db good.db
run 0 explain --shape $shape --device 0 --db good.db
won=$(sed -n 's/^kernel    //p' out)
run 0 doctor --db good.db
has out ": right; "
has out "nothing is wrong"
cp good.db hurt.db
sql hurt.db "UPDATE code SET data = zeroblob(length(data))"
run 1 doctor --db hurt.db
has out "  1. "
has out "fa2-tune gc"
FA2_SHARE=/nonexistent run 1 doctor --db good.db
has out "/nonexistent: No such file or directory. Without these times"
FA2_SHARE="$PWD/good.db" run 1 doctor --db good.db
has out "good.db: is no folder. Without these times"
FA2_SYSTEM_DB="$PWD/good.db" run 0 doctor --db new.db
has out "system database $PWD/good.db"
has out "nothing is wrong"
FA2_SYSTEM_DB="$PWD/hurt.db:$PWD/nowhere.db" run 1 doctor --db new.db
has out "  1. a system database is passed over: $PWD/nowhere.db: "
has out "  2. "
run 0 explain --shape $shape --device 0 --db good.db
has out "registers - (it is PTX"
run 0 explain --shape $shape --device 0 --db good.db --json
has out '"registers":null,"spill_bytes":null'
has out '"median_us":null'
run 0 source --shape $shape --device 0 --db good.db
has out "// $won"
has out "(software device) (sm_86), by the rule exact"

# ---- a winner whose code is damaged, cut or gone: made again, or else replaced ----
agree 0 exact good.db "UPDATE code SET data = zeroblob(length(data)) WHERE id IN $winners"
has said "code      lost: compiled again at the first call"
has said "  damaged  "
has json '"code":false,"damaged":true'
has out "exact: the fastest for this very problem"
export FA2_NVRTC_LIBRARY=$without
for damage in "UPDATE code SET data = zeroblob(length(data)) WHERE id IN $winners" \
    "UPDATE code SET data = substr(data, 1, length(data) / 2) WHERE id IN $winners" \
    "DELETE FROM code WHERE id IN $winners"; do
    agree 0 exact good.db "$damage"
    has said "not taken the problem's winner, $won: its code is damaged or missing"
    has said "  damaged  "
    has out "the fastest that can be used for this very problem"
    has out "it replaces the winner $won"
done
agree 0 exact good.db "DELETE FROM image WHERE kernel IN (SELECT kernel FROM winner)"
has said "not taken the problem's winner, $won"

# ---- records that are damaged: the winner's own, and its kernel's ----
unset FA2_NVRTC_LIBRARY
of_winner="WHERE id IN (SELECT kernel FROM winner)"
agree 0 exact good.db "UPDATE winner SET model_us = -1"
has said "kernel    $won"
has err "wins by a record that is damaged and does not count; see fa2-tune check"
lacks err "not used"
agree 0 exact good.db "UPDATE kernel SET outcome = 'compile_error' $of_winner"
has said "not taken the problem's winner, $won: it does not compile for compute_86, as its record says"
has out "it replaces the winner $won: it does not compile for compute_86"
agree 0 exact good.db "UPDATE kernel SET recipe = replace(recipe, 'smem=', 'smem=1') $of_winner"
has said "code      lost: compiled again at the first call"
for damage in "recipe = 'nonsense'" "generator = 'x'"; do
    agree 0 default good.db "UPDATE kernel SET $damage $of_winner"
    has said "not taken the problem's winner: explained.db: the kernel is damaged"
    has json '"not_taken":"","not_taken_why":"explained.db: the kernel is damaged","not_taken_count":1,'
    has json '"replaces_winner":true'
    has err "is damaged and is not used; see fa2-tune check"
done
export FA2_NVRTC_LIBRARY=$without

# ---- nothing to take, and nothing to compile with: the call fails, in these words ----
agree 1 none good.db "UPDATE code SET data = zeroblob(length(data))"
has said "and none can be compiled: no NVRTC library found"
agree 1 none good.db "DELETE FROM image"
agree 1 none - "no database"
run 0 explain --shape $shape --arch sm_86 --db none.db # a card elsewhere, where there may be one
has out "compiled at the first call, and kept if the database can be made; that needs NVRTC, which is not here"
run 0 explain --shape $shape --arch sm_86 --db none.db --json
has out '"needs_nvrtc":true'
unset FA2_NVRTC_LIBRARY
agree 0 default - "no database"

# ---- what failed its verification is promised to nobody, and is nobody's rival ----
FA2_SIM_FAULT=fault=1 run 1 --device 0 --shape $shape --db fault.db
agree 1 none fault.db "SELECT 1"
has said "failed its verification (fault)"
has json '"candidates":[]'
agree 0 exact good.db "UPDATE verification SET outcome = 'hang' WHERE kernel NOT IN (SELECT kernel FROM winner)"
lacks said "for the next"
has said "failed its verification (hang)"

# ---- cubins, which this driver refuses: the same kernels as PTX, beside them; without NVRTC there is nothing ----
run 0 build --arch sm_86 --shape $shape --db cubins.db
agree 0 arch cubins.db "SELECT 1"
has said "code      the driver refuses what the database has: compiled again at the first call"
has json '"lost":false,"refused":true'
has err "was compiled again, for compute_86: the driver refuses its sm_86 code (CUDA_ERROR_NO_BINARY_FOR_GPU)"
run 0 explain --shape $shape --device 0 --db called.db
has out "code      in called.db"
export FA2_NVRTC_LIBRARY=$without
cp called.db both.db
agree 0 arch both.db "SELECT 1" # what was compiled then serves where nothing can be compiled
agree 1 none cubins.db "SELECT 1"
has err "the driver refuses its sm_86 code (CUDA_ERROR_NO_BINARY_FOR_GPU), and there is no NVRTC to compile it again"
unset FA2_NVRTC_LIBRARY
run 0 explain --shape $shape --arch sm_86 --db cubins.db # of a card elsewhere nothing is known
has out "code      in cubins.db"

# ---- warm: later calls need no NVRTC, and find their choice stored; a program is run, and its calls count ----
run 0 warm --device 0 --shape $shape --shape Hq=2,Sq=40,D=16 --db warm.db
has out "2 problems ready, 0 failed"
run 0 warm --device 0 --db program.db -- "$client" 1 2 48 16 1
has out "1 problem ready, 0 failed"
run 1 warm --device 0 --db program.db -- sh -c "$client 1 2 48 16 1; exit 3"
export FA2_NVRTC_LIBRARY=$without
for db in warm.db program.db; do
    checks=$((checks + 1))
    "$client" 1 2 48 16 1 --db $db >out 2>err || fail "a call with $db: exit status $?"
done
run 1 warm --device 0 --shape $shape --db cold.db
has err "no NVRTC library found"
has out "0 problems ready, 1 failed"
unset FA2_NVRTC_LIBRARY
trap '' XFSZ # a file that cannot grow stands for a full disk
run 0 warm --device 0 --shape $shape --db full.db
got=$(
    ulimit -f $(($(wc -c <full.db) / 512))
    "$tune" warm --device 0 --shape Hq=2,Sq=40,D=24 --db full.db >out 2>err
    echo $?
)
checks=$((checks + 1))
[ "$got" -eq 1 ] || fail "warm on a full disk: exit status $got"
trap - XFSZ
has out "not everything was stored"
has err "compiled kernels are not stored: full.db: "
run 2 warm --shape $shape --db warm.db
has err "warm needs --device N"
run 3 warm --device 7 --shape $shape --db warm.db
run 1 warm --device 0 --shape $shape --db nowhere/warm.db
has err "nowhere/warm.db: "

# ---- a database that is only read keeps nothing ----
[ "$(id -u)" -eq 0 ] || {
    rm -f explained.db
    cp good.db explained.db
    sql explained.db "DELETE FROM image"
    chmod 400 explained.db
    run 0 explain --shape $shape --device 0 --db explained.db
    has out ", and not kept: the database cannot be written"
}
summary
