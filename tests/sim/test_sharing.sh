#!/bin/sh
# fa2-tune around other processes, on the software device with a few variants: programs that it runs to find out
# what they call, databases of which parts are forgotten, other tuners on the same device, several devices.
# Usage: test_sharing.sh FA2_TUNE LIBFA2SIM CLIENT
set -u
[ $# -ge 3 ] || {
    echo "usage: test_sharing.sh FA2_TUNE LIBFA2SIM CLIENT" >&2
    exit 2
}
# shellcheck source=tests/sim/few.sh
. "$(dirname "$0")/few.sh"

# ---- programs ----
# Its problems are tuned, those that take the most time first, and its capture is gone.
run 0 --device 0 -- sh -c "$client 1 2 48 16 1; $client 1 2 32 16 0"
has err "problems: 2 modelled"
has out "max error" # the program's own words
checks=$((checks + 1))
[ "$(ls)" = "$(printf 'err\nfa2.db\nout')" ] || fail "$ran: it left $(ls)"
run 0 --device 0 -- "$client" 1 2 48 16 1
has err "1 tuned already"
has out "rule       exact"
# Its end.
run 1 --device 0 -- sh -c "$client 1 2 48 16 1; exit 3"
has err "sh ended with status 3; what it asked for until then counts"
has err "1 tuned already"
run 1 --device 0 --json -- sh -c "$client 1 2 48 16 1; kill -ABRT \$\$"
has err "sh was ended by signal 6"
lacks out "max error"
has out '"state":"settled"'
# A call that failed without a kernel is tuned, too.
run 1 --device 0 --db lacking.db -- env FA2_NVRTC_LIBRARY=/nonexistent "$client" 1 2 48 16 1
has err "problems: 1 modelled"
FA2_NVRTC_LIBRARY=/nonexistent run 0 --device 0 --db lacking.db -- "$client" 1 2 48 16 1
has out "rule       exact"
rm lacking.db
run 2 --device 0 -- true
has err "true never used fa2"
run 1 --device 0 -- false
has err "false ended with status 1"
has err "false never used fa2"
# Shapes named beside the program are tuned all the same.
run 0 --device 0 --shape $shape -- true
has err "true never used fa2, or one too old to report its calls; what was named beside it counts"
has err "1 tuned already"
run 1 --device 0 --shape $shape -- false
has err "1 tuned already"
run 2 --device 0 -- ./nothing
has err "cannot run ./nothing: No such file or directory"
run 2 --device 0 --
has err "needs a program after it"
# It uses the database that is tuned, wherever it works.
mkdir elsewhere
run 0 --device 0 --db other.db -- sh -c "cd elsewhere; echo \$FA2_DB; $client 1 2 48 16 1"
has out "$folder/other.db"
has err "problems: 1 modelled"
run 0 --device 0 --db other.db -- sh -c "cd elsewhere; $client 1 2 48 16 1"
has out "rule       exact"
run 0 --device 0 --shape $shape -- sh -c "echo \$FA2_DB"
has out "$folder/fa2.db"
# The same of names that the environment has, which are relative to this folder.
FA2_DB=other.db FA2_CAPTURE=calls.csv run 0 --device 0 -- sh -c "cd elsewhere; echo \$FA2_DB; $client 1 2 48 16 1"
has out "$folder/other.db"
has out "rule       exact"
has err "1 tuned already"
[ -s calls.csv ] || fail "$ran: no calls.csv"
rm -r elsewhere other.db calls.csv
# A dry run keeps nothing of what the program compiles, which finds what is there.
cp fa2.db before.db
run 0 --device 0 --dry-run -- sh -c "$client 1 2 48 16 1; $client 1 2 32 32 1; echo \$FA2_DB >path"
has out "rule       exact"
has err "2 problems, 1 tuned already"
checks=$((checks + 1))
[ "$(sqlite3 -readonly fa2.db .dump)" = "$(sqlite3 -readonly before.db .dump)" ] || fail "$ran: fa2.db has other rows"
[ ! -e "$(cat path)" ] && [ ! -e "$(dirname "$(cat path)")" ] || fail "the copy is still there"
run 0 --device 0 --dry-run --db new.db -- "$client" 1 2 48 16 1
[ ! -e new.db ] || fail "$ran: it made new.db"
rm before.db path
# A program is not run for a database that cannot be made.
for dry in --dry-run ""; do
    run 1 --device 0 --db /nonexistent/d/x.db $dry -- touch told
    has err "/nonexistent/d/x.db: there is no folder /nonexistent, and only those"
    [ ! -e told ] || fail "$ran: it ran the program"
    run 1 --device 0 --db /nonexistent/d/x.db $dry --shape Hq=2,Sq=48,D=16
    has err "/nonexistent/d/x.db: there is no folder /nonexistent, and only those"
    run 1 build --arch sm_86 --db /nonexistent/d/x.db $dry --shape Hq=2,Sq=48,D=16
    has err "/nonexistent/d/x.db: there is no folder /nonexistent, and only those"
    touch plain
    run 1 --device 0 --db plain/x.db $dry --shape Hq=2,Sq=48,D=16
    has err "plain/x.db: cannot create the database (Not a directory)"
    HOME=$folder run 0 --device 0 --db "$folder/made/x.db" $dry --shape Hq=2,Sq=48,D=16
    rm -rf plain made
done
# A capture that stays, by the environment; with what is there it is a shape file for everybody.
export FA2_CAPTURE="$folder/calls.csv"
call 0 1 2 48 16 1
run 0 --device 0 -- "$client" 1 2 40 16 1
has err "problems: 1 modelled, 1 tuned already"
unset FA2_CAPTURE
expect_status 0 calls.csv cat calls.csv
has out "calls,op,batch"
"$tune" --device 0 --shapes - <calls.csv >out 2>err || fail "--shapes -: status $?"
ran="--shapes -"
has err "2 tuned already"
# Rows that name their operation, and --op: of a file, of a program, of both.
echo batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,op >ops.csv
printf '1,2,2,48,48,16,fp16,0,forward\n1,2,2,49,49,16,fp16,0,backward\n' >>ops.csv
run 0 --device 0 --dry-run --db new.db --shapes ops.csv --op backward
has out "op=backward B=1 Hq=2 Hkv=2 Sq=49"
lacks out "Sq=48"
has err "--op backward leaves out 1 row whose column op names another operation"
run 2 --device 0 --dry-run --db new.db --op backward -- "$client" 1 2 48 16 1
has err "--op backward leaves nothing: the column op of the shapes names another operation in all of 1 row"
run 0 --device 0 --dry-run --db new.db --op backward --shapes ops.csv -- "$client" 1 2 48 16 1
has err "--op backward leaves out 2 rows whose column op names another operation"
rm ops.csv
# Files that cannot be.
FA2_CAPTURE=/nonexistent/calls.csv
export FA2_CAPTURE
call 1 1 2 48 16 1
has err "FA2_CAPTURE=/nonexistent/calls.csv: it cannot be written (No such file or directory)"
unset FA2_CAPTURE
TMPDIR=/nonexistent run 1 --device 0 -- "$client" 1 2 48 16 1
has err "TMPDIR can name a folder"
# SIGTERM ends both, and so does a SIGINT that is no Ctrl-C; what was counted before is not tuned then.
# interrupted SIGNAL DEVICE: tuning for that device what a program asks for, which waits for the signal, too.
interrupted() {
    "$tune" --device "$2" -- sh -c 'trap "echo told >told; exit 1" TERM; touch started; while :; do sleep 0.1; done' \
        >out 2>err &
    pid=$!
    await $pid [ -e started ]
    kill "-$1" $pid
    wait $pid
    got=$?
    ran="--device $2 with a program, then SIG$1"
    checks=$((checks + 2))
    [ "$got" -eq 130 ] || fail "$ran: exit status $got"
    [ -e told ] || fail "$ran: the program was not told"
    has err "fa2-tune: interrupted; nothing was tuned"
    lacks err "counts"
    rm -f told started
}
interrupted TERM 0
interrupted INT 0

# ---- what is to be done, what was, and what is to be done again ----
shape=B=1,Hq=2,Sq=48,D=16
rm -f fa2.db
run 0 --device 0 --shape $shape --dry-run
has out "to compile: 2, to verify: 2, problems to measure: 1; modelled: on such a card about "
has err "database $FA2_DB, seed"
checks=$((checks + 1))
[ ! -e fa2.db ] || fail "$ran: it made a database"
# If several problems cannot be tuned, one line says why.
FA2_SIM_CARD=t4 run 0 --device 0 --shape $shape --shape $shape,dtype=bf16 --shape Hq=2,Sq=40,D=16,dtype=bf16 --dry-run
has err "2 problems unserved, the first B=1 Hq=2 Hkv=2 Sq=48 Sk=48 D=16 dtype=bf16 causal=0: bf16 needs"
has out "problems to measure: 1;"
FA2_SIM_CARD=t4 run 0 --device 0 --shape $shape --shape $shape,dtype=bf16 --dry-run
has err "dtype=bf16 causal=0: unserved: bf16 needs"
for dry in "" --dry-run "--dry-run --json"; do
    # shellcheck disable=SC2086
    FA2_SIM_CARD=t4 run 2 --device 0 --shape $shape,dtype=bf16 --db unserved.db $dry
    has err "dtype=bf16 causal=0: unserved: bf16 needs"
done
run 0 --device 0 --shape $shape --shape op=backward,Hq=2,Sq=48,D=16
has err "problems: 2 modelled"
cp fa2.db before.db
run 0 --device 0 --shape $shape --shape B=1,Hq=2,Sq=32,D=16 --dry-run
has out "to compile: 0, to verify: 0, problems to measure: 1"
checks=$((checks + 1))
cmp -s fa2.db before.db || fail "$ran: it wrote to the database"
run 0 --device 0 --shape $shape --force
has err "problems: 1 modelled, 0 tuned already"
has err "0 compiled, 2 reused, 0 verified"
run 0 list --op forward
lacks out bwd_sm80
has out fwd_sm80
run 0 list --device 3060 --shape D=16,causal=0 --op backward --json
has out bwd_sm80
lacks out fwd_sm80
run 2 list --device l4
has err "there is no such device in"
run 0 list --device 0 --shape D=32
has err "no such winners"
run 3 list --device 1
has err "there is no CUDA device 1"
run 0 show --shape D=16
has out fwd_sm80
has out bwd_sm80
run 1 show --shape D=24
run 2 show --shape $shape --device l4
has err "there is no such device in"
run 2 forget
has err "forget needs --shape"
cp fa2.db before.db
run 0 forget --op backward --dry-run
has out "to forget: 2 measurements, 1 winner, 0 verifications and 0 kernels"
empty err
untouched fa2.db before.db
run 0 forget --op backward
has out "forgot 2 measurements, 1 winner, 0 verifications and 0 kernels"
run 0 list
lacks out bwd_sm80
run 0 --device 0 --shape op=backward,Hq=2,Sq=48,D=16
has err "problems: 1 modelled, 0 tuned already"
has err "0 compiled"
run 0 forget --variant fwd_ --dry-run
has out "1 winner, 2 verifications and 2 kernels"
run 2 forget --device L40 --dry-run
empty out
has err "there is no such device in"
has err "the devices in it: NVIDIA GeForce RTX 3060 (software device)"
run 2 forget --dry-run
run 0 forget --variant fwd_
has out "1 winner, 2 verifications and 2 kernels"
run 0 --device 0 --shape $shape
has err "2 compiled, 0 reused, 2 verified"
rm -f wrong.db
FA2_SIM_FAULT=wrong=1 run 0 --device 0 --shape $shape --db wrong.db
has err "1 wrong"
run 0 forget --failures --db wrong.db
has out "forgot 1 measurement, 0 winners, 1 verification and 0 kernels"
run 0 --device 0 --shape $shape --db wrong.db
has err "1 verified"
run 0 forget --device 3060
has out "kernels"
run 0 list
has err "no winners"
run 0 check

# ---- two tuners on one device ----
# Software devices are each process's own, unless they are told that they are one machine's.
export FA2_SIM_MACHINE="$folder"
rm -f fa2.db
shapes="--shape Hq=2,Sq=48,D=16 --shape Hq=2,Sq=40,D=16 --shape Hq=2,Sq=32,D=16 --shape Hq=2,Sq=24,D=16,causal=1"
# shellcheck disable=SC2086 # several words
two() { # two OPTIONS...: both at once; their words in 1.err and 2.err
    "$tune" --device 0 $shapes "$@" >1.out 2>1.err &
    first=$!
    "$tune" --device 0 $shapes "$@" >2.out 2>2.err &
    second=$!
    wait $first
    one=$?
    wait $second
    another=$?
    ran="two tuners $*"
    checks=$((checks + 1))
    [ "$one$another" = 00 ] || fail "$ran: exit statuses $one and $another"
    cat 1.err 2.err >err
}
two
has err "another fa2-tune (process "
has err "waiting for its end"
has err "problems: 4 modelled, 0 tuned already"
has err "problems: 0 modelled, 4 tuned already"
checks=$((checks + 1))
[ "$(sed -n 's/^variants: \([0-9]*\) compiled.*/\1/p' err | paste -sd+ | bc)" = 4 ] ||
    fail "$ran: what one compiled the other did not reuse"
rm -f fa2.db
two --share
lacks err "waiting for its end"
checks=$((checks + 1))
[ "$(sed -n 's/^problems: \([0-9]*\) modelled.*/\1/p' err | paste -sd+ | bc)" = 4 ] ||
    fail "$ran: the problems were not shared"
# A tuner that was killed does not stop the next one.
rm -f fa2.db
# shellcheck disable=SC2086
FA2_SIM_FAULT=hang=1 "$tune" --device 0 $shapes >1.out 2>1.err &
first=$!
await $first grep -q verifying 1.err
kill -KILL $first
wait $first 2>/dev/null
# shellcheck disable=SC2086
run 0 --device 0 $shapes
has err "problems: 4 modelled"

# ---- all devices of a machine ----
rm -f fa2.db
export FA2_SIM_CARD=rtx3060,rtx3060,l4
# shellcheck disable=SC2086
run 0 --device all $shapes
has err "device 0: problems:"
has err "device 0: NVIDIA"
lacks err "device 0: device 0:"
has err "device 2: problems: 4 modelled"
checks=$((checks + 2))
[ "$(sed -n 's/^device [01]: problems: \([0-9]*\) modelled.*/\1/p' err | paste -sd+ | bc)" = 4 ] ||
    fail "$ran: the equal cards did not share the problems"
[ "$(sed -n 's/^device [01]: variants: [0-9]* compiled, [0-9]* reused, \([0-9]*\) verified.*/\1/p' err |
    paste -sd+ | bc)" = 4 ] || fail "$ran: the equal cards did not share the verification"
run 0 list --device l4
has out "NVIDIA L4"
lacks out "RTX 3060"
# shellcheck disable=SC2086
run 0 --device all $shapes --json
has out '{"devices":['
has out '"state":"settled"'
# A program runs once; what it called is tuned for all of them, and what is named beside it.
rm -f fa2.db
run 0 --device all --shape Hq=2,Sq=24,D=16 -- sh -c "echo ran >>runs; $client 1 2 48 16 1; $client 1 2 32 16 0"
has err "device 2: problems: 3 modelled"
checks=$((checks + 2))
[ "$(sed -n 's/^device [01]: problems: \([0-9]*\) modelled.*/\1/p' err | paste -sd+ | bc)" = 3 ] ||
    fail "$ran: the equal cards did not share the problems"
[ "$(cat runs)" = ran ] || fail "$ran: it did not run once"
rm runs
run 0 --device all --json -- "$client" 1 2 48 16 1
has out '"state":"settled"'
lacks out "max error"
run 1 --device all --jobs 2 -- sh -c "$client 1 2 48 16 1; exit 3"
has err "sh ended with status 3"
has err "device 1: problems: 0 modelled, 1 tuned already"
run 2 --device all -- true
has err "true never used fa2"
lacks err "device 0"
run 2 --device all --op backward -- "$client" 1 2 48 16 1
has err "fa2-tune: --op backward leaves nothing"
run 0 --device all --dry-run --db new.db -- \
    sh -c "sqlite3 \"\$FA2_DB\" 'select count(*) from device'; $client 1 2 48 16 1"
checks=$((checks + 1))
grep -qx 0 out || fail "$ran: the program's database has a device, and no card is known yet"
has out "device 2: to compile: 2, to verify: 2, problems to measure: 1"
[ ! -e new.db ] || fail "$ran: it made new.db"
run 1 --device all --db /nonexistent/d/x.db -- touch told
[ ! -e told ] || fail "$ran: it ran the program"
FA2_CUDA_LIBRARY=/nonexistent/libcuda.so run 3 --device all -- touch told
[ ! -e told ] || fail "$ran: it ran the program"
printf 'batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,op\n1,2,2,40,40,16,fp16,0,backward\n' >ops.csv
"$tune" --device all --shapes - --shape=$shape --op=backward <ops.csv >out 2>err || fail "--shapes -: status $?"
ran="--device all --shapes -"
has err "device 1: 2 problems, 0 tuned already"
has out "op=backward"
rm ops.csv
interrupted TERM all
run 2 --device all --shape Hq=2,Sq=0,D=16

summary
