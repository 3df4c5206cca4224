#!/bin/sh
# Databases of the system below the user's own (runtime/plan/layers.h), on the software device.
# Usage: test_system.sh FA2_TUNE LIBFA2SIM SIM_CLIENT
set -u
[ $# -ge 3 ] || {
    echo "usage: test_system.sh FA2_TUNE LIBFA2SIM SIM_CLIENT" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"

# call_with STATUS DATABASE: a call of the shape that the system's database has
call_with() {
    call "$1" 1 2 48 16 1 --db "$2"
}
# alter STATEMENTS: hurt.db is the system's database after these
alter() {
    rm -f hurt.db
    cp system.db hurt.db
    chmod 600 hurt.db
    sql hurt.db "$1"
    chmod 444 hurt.db
}
without=/nonexistent/libnvrtc.so

# ---- hits in both, without a compiler; the system's file stays as it is ----
run 0 --device 0 --shape $shape --db system.db
chmod 444 system.db
cp system.db before.db
run 0 --device 0 --shape Hq=2,Sq=48,D=16 --db user.db
export FA2_SYSTEM_DB="$PWD/system.db" FA2_NVRTC_LIBRARY=$without
call_with 0 user.db
has out "rule       exact:"
call_with 0 new.db
has out "rule       exact:"
call 0 1 2 48 16 0 --db user.db # the user's own problem
has out "rule       exact:"
call_with 1 "" # no database of any kind
run 0 explain --shape $shape --device 0 --db user.db
has out "rule      exact:"
has out "code      in $PWD/system.db"
run 0 explain --shape $shape --device 0 --db user.db --json
has out "\"code_in\":\"$PWD/system.db\""
run 0 explain --shape Hq=2,Sq=48,D=16 --device 0 --db user.db # the user's own
has out "code      in user.db"
run 0 explain --shape $shape --device 0 --db new-too.db
has err "explaining without a database of yours"
has out "code      in $PWD/system.db"
FA2_DB=user.db run 1 show --shape $shape
has err "nothing was measured for"
has err "$PWD/system.db, a system database, has winners for some of these problems; show them with --db"
FA2_DB=nowhere.db run 2 show --shape $shape
has err "$PWD/system.db, a system database, has winners for some of these problems; show them with --db"
FA2_DB=user.db run 1 show --op backward
lacks err "a system database"
run 0 explain --shape Hq=2,Sq=40,D=16,causal=1 --device 0 --db user.db # its times count for near problems, too
has out "rule      nearest:"
FA2_DB=user.db run 0 list
has out "user.db"
has out "$PWD/system.db"
checks=$((checks + 1))
[ "$(grep -c 'fwd_' out)" -eq 2 ] || fail "$ran: not one winner of each"
FA2_DB=user.db run 0 list --json # one array of both
checks=$((checks + 1))
python3 -c 'import json, os
found = [os.path.basename(one["database"]) for one in json.load(open("out"))]
assert found == ["user.db", "system.db"], found' || fail "$ran"
FA2_DB=user.db FA2_SYSTEM_DB="$PWD/system.db:$PWD/../${PWD##*/}/system.db" run 0 list # named twice, opened once
checks=$((checks + 1))
[ "$(grep -c 'fwd_' out)" -eq 2 ] || fail "$ran: a file is listed twice"
FA2_DB=nowhere.db run 0 list
lacks out "nowhere.db"
run 0 list --db user.db
lacks out "system.db"
unset FA2_NVRTC_LIBRARY
run 0 gc --db user.db
run 0 forget --shape $shape --db user.db
untouched system.db before.db

# ---- what the user's database knows to be wrong is not taken from the system's ----
FA2_SYSTEM_DB='' FA2_SIM_FAULT=fault=1 run 1 --device 0 --shape $shape --db fault.db
export FA2_NVRTC_LIBRARY=$without
call_with 1 fault.db
has err "failed its verification"
unset FA2_NVRTC_LIBRARY

# ---- damaged code, and another kernel's code, is compiled again, into the user's file; without NVRTC it never runs ----
winners="(SELECT code FROM image WHERE kernel IN (SELECT kernel FROM winner))"
for damage in "UPDATE code SET data = zeroblob(length(data)) WHERE id IN $winners" \
    "UPDATE image SET code = (SELECT max(id) FROM code WHERE id NOT IN $winners)" "DELETE FROM image"; do
    alter "$damage"
    cp hurt.db hurt_before.db
    # as a named file of the system, as one of its folder, and as the user's own
    for layer in named second own; do
        rm -rf made.db two
        export FA2_NVRTC_LIBRARY=$without
        case $layer in
        named) export FA2_SYSTEM_DB="$PWD/hurt.db" ;;
        second)
            mkdir two
            cp user.db two/a.db
            cp hurt.db two/b.db
            unset FA2_SYSTEM_DB
            export FA2_SHARE="$PWD/two"
            ;;
        own)
            export FA2_SYSTEM_DB='' FA2_SHARE=''
            cp hurt.db made.db
            chmod 600 made.db
            ;;
        esac
        case $damage in
        DELETE*) call_with 1 made.db ;;
        *)
            call_with 0 made.db # another kernel of the file
            has out "it replaces the winner"
            has out "its code is damaged or missing"
            ;;
        esac
    done
    export FA2_SYSTEM_DB="$PWD/hurt.db"
    rm -f made.db
    unset FA2_NVRTC_LIBRARY
    call_with 0 made.db
    has err "was compiled again"
    export FA2_NVRTC_LIBRARY=$without
    call_with 0 made.db
    unset FA2_NVRTC_LIBRARY
    untouched hurt.db hurt_before.db
done

# ---- files that cannot be used are named once, and passed over ----
alter "SELECT 1"
chmod 666 hurt.db
export FA2_SYSTEM_DB="$PWD/hurt.db:$PWD/nowhere.db:$PWD/system.db" FA2_NVRTC_LIBRARY=$without
call_with 0 user.db
has err "a system database is passed over: $PWD/hurt.db: "
has err "a system database is passed over: $PWD/nowhere.db: "
has err "and FA2_SYSTEM_DB names another"
lacks err "--db"
has out "rule       exact:"
unset FA2_SYSTEM_DB
call_with 1 plain.db

# ---- others may write the working directory: the database is elsewhere ----
unset FA2_SYSTEM_DB FA2_NVRTC_LIBRARY
mkdir open
chmod 775 open
cd open || exit 1
run 0 tune --device 0 --shape $shape --db ../elsewhere.db
cd ..
export FA2_NVRTC_LIBRARY=$without

# ---- databases in the folder of files that come with fa2, in the order of their names ----
unset FA2_NVRTC_LIBRARY
run 0 --device 0 --shape Hq=2,Sq=64,D=16,causal=1 --db other.db
export FA2_NVRTC_LIBRARY=$without
mkdir share
cp other.db share/other.db
cp system.db share/second.db
cp system.db share/.hidden.db
chmod 444 share/*.db
export FA2_SHARE="$PWD/share"
call_with 0 plain.db
has out "rule       exact:"
call 0 1 2 64 16 1 --db plain.db
has out "rule       exact:"
call 0 1 2 48 16 0 --db user.db
has out "rule       exact:"
FA2_DB=user.db run 0 list --json
checks=$((checks + 1))
python3 -c 'import json, os
found = [os.path.basename(one["database"]) for one in json.load(open("out"))]
assert found == ["user.db", "other.db", "second.db"], found' || fail "$ran"
untouched share/other.db other.db
untouched share/second.db system.db

# the first file that has a winner gives it, whatever a later one says
cp system.db share/zzz.db
chmod 600 share/zzz.db
sql share/zzz.db "UPDATE winner SET kernel = (SELECT max(id) FROM kernel WHERE id NOT IN (SELECT kernel FROM winner))"
call_with 0 plain.db
has out "rule       exact:"
grep "^kernel" out >first
mv share/zzz.db share/aaa.db
call_with 0 plain.db
has out "rule       exact:"
checks=$((checks + 1))
grep "^kernel" out | cmp -s first - && fail "$ran: the order of names does not count"

# one that others can write is passed over, and the next one serves
chmod 666 share/aaa.db
call_with 0 plain.db
has err "a system database is passed over: $PWD/share/aaa.db: "
has out "rule       exact:"
FA2_DB=user.db run 0 list
has err "a system database is passed over: $PWD/share/aaa.db: "
lacks out "share/aaa.db"
export FA2_SYSTEM_DB=''
call_with 1 plain.db
summary
