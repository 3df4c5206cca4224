#!/bin/sh
# fa2-tune from the outside: standard output, standard error and exit status, on a machine without a GPU
# (one that is there is hidden). Usage: test_cli.sh FA2_TUNE. What compiles: test_cli_build.sh.
set -u
[ $# -ge 1 ] || {
    echo "usage: test_cli.sh FA2_TUNE" >&2
    exit 2
}
tune=$1
quickstart=$(realpath "$(dirname "$0")/../tuner/quickstart.sh")
# shellcheck source=tests/expect.sh
. "$(dirname "$0")/expect.sh"
export FA2_DB="$folder/fa2.db" FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1
unset FA2_GEN_PATH

# ---- help and names ----
run 2
empty out
has err "fa2-tune COMMAND"
for args in --help -h help; do
    run 0 $args
    empty err
    has out "explain"
done
for args in --version -V; do
    run 0 $args
    has out "fa2-tune 0."
done
for command in tune build warm bench devices doctor list show explain source report export import check gc field-report forget; do
    run 0 $command --help
    empty err
    has out "fa2-tune $command"
    run 0 help $command
    has out "fa2-tune $command"
    case $(cat out) in
    *SHAPES*)
        has out "op [forward], B (batch) [1], Hkv (heads_kv) [as Hq], Sk (seq_k) [as Sq]"
        has out "D (head_dim)"
        has out "dtype [fp16], causal [0]"
        has out "Wl (window_left) [-1 with window]"
        ;;
    esac
    run 2 $command --nonsense
    empty out
    has err "$command has no option \"--nonsense\"; it takes --help"
done
for command in help completion man; do
    run 0 help $command
    has out "fa2-tune $command"
    run 0 $command --help
    has out "fa2-tune $command"
    run 2 $command --nonsense
    has err "$command has no option \"--nonsense\"; it takes --help"
    run 0 --help
    has out "  $command "
done
has out "130 interrupted"
has out "drop code beyond the file's size limit"
for args in "--version extra" "help explain extra" "--help explain extra" "man extra" "completion bash extra"; do
    # shellcheck disable=SC2086 # words
    run 2 $args
    empty out
    has err '"extra" is too much'
done
run 2 tuen
has err 'there is no command "tuen", did you mean tune?'
run 2 help lst
has err 'there is no command "lst", did you mean list?'
run 2 tuning
known="tune build warm bench devices doctor list show explain source report export import check gc field-report forget help completion man"
has err "there is no command \"tuning\"; known: $known"
run 2 help tuen
has err 'there is no command "tuen"'
run 2 --nonsense
has err 'tune has no option "--nonsense"'

# ---- what the caller can get wrong ----
run 2 build
has err "build needs --arch"
run 2 build --arch sm_61 --preset quick
has err "known: sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121"
run 2 build --arch sm_86 --preset nope
has err 'there is no preset "nope"; known: seeds, paper, quick, llm, vision, diffusion'
printf 'batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n1,8,8,x,512,64,fp16,0\n' >bad.csv
run 2 build --arch sm_86 --shapes bad.csv
has err 'bad.csv:2:4: seq_q is "x"; it must be a whole number'
run 2 build --arch sm_86 --shapes missing.csv
has err "missing.csv: No such file or directory"
run 0 help presets
has out "seeds"
has out "diffusion"
checks=$((checks + 1))
[ "$(sed 's/ .*//' out | paste -sd ' ')" = "seeds paper quick llm vision diffusion" ] || fail "help presets: $(cat out)"
run 0 help tune
has out "page [16 with paged]"
has out "rotary_dim [as D, in steps of 16, up to 256, with rotary]"
has out "  Wl or Wr: window=sliding, Tq or Tk: varlen=1, page: paged=1, rotary: append=1."
has out "But rotary_dim needs rotary, and kv_scales needs kv beside it."
expect_status 2 "an unknown preset" "$quickstart" nosuch
has err 'there is no preset "nosuch"; known: seeds paper quick llm vision diffusion'
# The place of the database is checked before anything is installed or built.
mkdir stubs
printf '#!/bin/sh\nexit 9\n' | tee stubs/cmake stubs/apt-get >stubs/sudo
chmod +x stubs/*
for place in /nonexistent/fa2.db:"there is no folder /nonexistent for the database" "$folder":"is a folder; name a file"; do
    expect_status 1 "quickstart.sh with FA2_DB=${place%%:*}" env PATH="$folder/stubs:$PATH" FA2_DB="${place%%:*}" "$quickstart"
    has err "${place#*:}"
    empty out
done
ran="quickstart.sh with a new folder at home, which stops at the first of these programs"
env PATH="$folder/stubs:$PATH" HOME="$folder" FA2_DB="$folder/new/one/fa2.db" "$quickstart" >out 2>err </dev/null
lacks err "the database"
rm -r stubs
# NVRTC from Python packages beside a toolkit: the build is given its folder, and nothing else must be set.
site=$folder/clone/.venv/lib/python3.11/site-packages/nvidia/cu13
mkdir -p "$site/lib" "$site/include"
touch "$site/lib/libnvrtc.so.13" "$site/include/cuda.h"
ran="setup_cuda with Python packages, beside a toolkit"
# shellcheck disable=SC2016 # for bash
FA2_CUDA_FROM_PYTHON=1 env -C clone -u FA2_NVRTC_LIBRARY bash -euc '. "$0"
    driver_cuda() { echo 13; }
    toolkit_nvrtc() { echo /usr/local/cuda/lib64/libnvrtc.so.13; }
    setup_cuda
    printf "%s\n" "${cuda_options[@]}" "set: ${FA2_NVRTC_LIBRARY-}."' "${quickstart%/*}/setup.sh" >out 2>err
has out "CUDA from Python packages: $site/lib/libnvrtc.so.13; what is built here goes on using it, so keep it"
has out "-DFA2_NVRTC_DIR=$site/lib"
has out "set: ."
lacks out "FA2_NVRTC_LIBRARY"
rm -r clone
mkfifo shapes.pipe
run 2 build --arch sm_86 --shapes shapes.pipe
has err "shapes.pipe: is no regular file; name one, or - for standard input"
printf 'batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n1,8,8,y,512,64,fp16,0\n' >bad.csv
ran="a pipe with a writer, as a shell's <(...) has"
cat bad.csv | "$tune" build --arch sm_86 --shapes /dev/fd/0 2>err
has err '/dev/fd/0:2:4: seq_q is "y"; it must be a whole number'
printf 'batch,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal,op,softcap\n' >bad.csv
printf '1,8,3,512,512,64,fp16,0,,\n' >>bad.csv
run 2 build --arch sm_86 --shapes bad.csv
has err "bad.csv:2:2: heads_q is 8; it must be a multiple of heads_kv (3)"
sed -i '2s/.*/1,65536,1,65536,512,64,fp16,0,,/' bad.csv
run 2 build --arch sm_86 --shapes bad.csv
has err "bad.csv:2:4: seq_q times heads_q / heads_kv is"
sed -i 's/softcap/sofcap/' bad.csv
run 2 build --arch sm_86 --shapes bad.csv
has err 'bad.csv:1:10: unknown column "sofcap", did you mean softcap?'
run 2 build --arch sm_86 --shapes - --shapes bad.csv
has err 'standard input:1:1: there is no header'
run 2 build --arch sm_86 --shape hq=8,Sq=512,D=64
has err 'unknown key "hq", did you mean Hq?'
run 2 build --arch sm_86 --shape Hq=8,Sq=512,D=64,caus=1
has err 'unknown key "caus", did you mean causal?'
run 2 build --arch sm_86 --shape Hq=8,Sq=512,D=64,caus
has err '"caus" is not KEY=VALUE, did you mean causal=VALUE?'
run 2 build --arch sm_86 --shape Hq=8,Sq=512,head_dm=64
has err 'unknown key "head_dm", did you mean D?'
run 2 list --jso
has err 'list has no option "--jso", did you mean --json?'
run 2 expl
has err 'there is no command "expl", did you mean explain?'
# What no launch can have is refused by the same words wherever it is asked for.
run 2 build --arch sm_86 --shape B=2147483647,Hq=65536,Sq=536870912,D=64 --db huge.db
has err "rounded up to a multiple of 16, is 75557863690729951330304; a launch takes at most 8589934591 rows"
run 2 explain --arch sm_86 --shape B=1073741824,Hq=8,Sq=536870912,D=64 --db huge.db
has err "B times Hq times Sq, rounded up to a multiple of 16, is 4611686018427387904; a launch takes at most"
run 2 explain --arch sm_86 --shape op=backward,B=2147483647,Hq=1,Sq=1,Tq=536870912,Tk=536870912,D=64 --db huge.db
has err "Hq times the sum of Tq and 128 times B is 275414777728; a launch takes at most 8589934591 rows"
run 0 explain --arch sm_86 --shape Hq=1,Sq=536870912,D=64,causal=1 --db huge.db
lacks out nan
# K and V in 8 bits: on SM 9.0, too, the families on mma.sync serve them
for shape in "Sq=1,Sk=4096 fwd_splitkv_sm80" "Sq=1024,Sk=4096 fwd_sm80"; do
    run 0 explain --arch sm_90 --shape "B=16,Hq=32,Hkv=8,${shape% *},D=128,kv=int8,kv_scales=fp16" --db huge.db
    has out "kernel    ${shape#* } d=128"
done
run 2 tune --device 0 --device 1
has err "--device is given twice"
for first in batch Batch; do
    printf '%s,heads_q,heads_kv,seq_q,seq_k,head_dim,dtype,causal\n1,8,8,512,512,64,fp16,0\n' $first |
        "$tune" build --arch sm_86 --shapes - --shapes=- >out 2>err
    got=$?
    ran="fa2-tune build --shapes - --shapes - of $first"
    checks=$((checks + 1))
    [ "$got" -eq 2 ] || fail "$ran: exit status $got, expected 2"
    case $first in
    Batch) has err 'standard input:1:1: unknown column "Batch", did you mean batch?' ;;
    *) has err "--shapes - is given twice; standard input can be read once" ;;
    esac
done
# The command after options.
run 2 --db w.db list
has err "the command comes first: fa2-tune list --db w.db"
run 2 --json --db="a b.db" explain --arch sm_86
has err "the command comes first: fa2-tune explain --json '--db=a b.db' --arch sm_86"
run 2 --db list --budget x # the name of a file
has err '--budget "x"'
run 2 show
has err "show needs --shape"
run 2 show --op backward --shape op=forward,Hq=8,Sq=512,D=64
has err "--op backward contradicts --shape, which says op=forward; leave out one of them"
for command in list report "forget --failures" "tune --device 0" "build --arch sm_86" "explain --arch sm_86"; do
    # shellcheck disable=SC2086 # a command and its arguments
    run 2 $command --op backward --shape op=forward,Hq=8,Sq=512,D=64
    has err "--op backward contradicts --shape, which says op=forward; leave out one of them"
    empty out
done
run 2 explain --device H200 --shape Hq=8,Sq=512,D=64
has err '--device "H200": expected a device number, 0 to 1023, as fa2-tune devices lists them; tune also takes all'
run 2 explain --shape Hq=8,Sq=512,D=64
has err "needs one of --device N and --arch"
run 2 explain --shape Hq=8,Sq=512,D=64 --device 0 --arch sm_86
run 2 explain --shape Hq=8,Sq=512,D=64 --arch sm_80,sm_61
empty out
has err "there is no reference card for sm_61"
run 0 explain --shape Hq=8,Sq=1000,D=64,dtype=bf16 --arch sm_75,sm_80,sm_88
has err "sm_75: the call fails: bf16 needs compute capability 8.0, and this is 7.5"
has out "(sm_75)"
has out "(sm_80)"
has out "(sm_88)"
has out "rounded   to B=1 Hq=8 Hkv=8 Sq=1024 Sk=1024 D=64 dtype=bf16 causal=0, for which estimates are made"
has out "TFLOPS for the problem itself, not rounded"
run 0 explain --shape Hq=8,Sq=512,D=64 --arch sm_75,sm_121 --json
has out '"sm":75,'
has out '"sm":121,'
has out '"estimated_for":"B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0"'
# A problem that no family serves is one of several, in its place.
for format in "" --json; do
    # shellcheck disable=SC2086 # no argument, or one
    run 1 explain --shape Hq=8,Sq=512,D=64 --shape Hq=8,Sq=512,D=64,dtype=bf16 --shape Hq=4,Sq=512,D=64 --arch sm_75 \
        $format
    cp out explained$format
    has err "the call fails: bf16 needs compute capability 8.0, and this is 7.5"
done
has explained "rule      none: the call fails, not supported on this device or by this version"
has explained "message   bf16 needs compute capability 8.0, and this is 7.5"
checks=$((checks + 1))
[ "$(grep -c '^rule      default: ' explained)" -eq 2 ] || fail "$ran: the others are not explained"
has explained--json '"status":"not supported on this device or by this version","message":"bf16 needs'
for count in 3:'"problem":"' 2:'"rule":"default"' 1:'"rule":null,"variant":null' 1:'"candidates":[],'; do
    checks=$((checks + 1))
    [ "$(grep -cF "${count#*:}" explained--json)" -eq "${count%%:*}" ] || fail "$ran: not $count"
done
run 1 explain --shape Hq=8,Sq=512,D=64,dtype=bf16 --arch sm_75
run 0 explain --shape Hq=8,Sq=512,D=64,dtype=bf16 --shape Hq=8,Sq=512,D=64 --arch sm_75,sm_80 --json
has out '"variant":null'
run 2 export
has err "export needs a file"
for command in export import; do
    run 2 $command ""
    has err "$command needs a file, not \"\""
done
run 2 import nothing.jsonl
has err "nothing.jsonl: No such file or directory"

# ---- no GPU, no database ----
run 3 devices
has out "/nonexistent/libcuda.so.1"
run 3 devices --json
has out '"usable":0'
run 3 doctor
has out "  1. "
has out "Install NVIDIA's driver"
run 3 tune --device 0 --preset quick
has err "/nonexistent/libcuda.so.1"
lacks err "no shapes are given"
for command in tune warm; do
    run 3 $command --device 0
    has err "no shapes are given: these are the preset seeds"
    has err "\`fa2-tune doctor\` says what is missing"
    lacks err "preparing"
    run 2 $command
    has err "$command needs --device N"
    lacks err "no shapes are given"
done
run 3 --device 0 --preset quick
run 3 tune --device all --preset quick
has err "/nonexistent/libcuda.so.1"
run 3 explain --shape Hq=8,Sq=512,D=64 --device 0
has err "--device 0 (--arch with the SM of your card needs no GPU): no CUDA driver library found"
for command in list report check gc "show --shape Hq=8,Sq=512,D=64" "export -"; do
    # shellcheck disable=SC2086 # a command and its arguments
    # As with any other file that was named and is not there.
    run 2 $command
    empty out
    has err "there is no such database"
    run 2 $command --db missing.db
    empty out
    has err "missing.db: there is no such database; fa2-tune makes it when it tunes or builds, and --db or FA2_DB names"
done
rm -f fa2.db # tune may have made one before it asked for the device
run 0 explain --shape Hq=8,Sq=512,D=64 --arch sm_86
has err "explaining without a database"
has out "rule      default:"
has out "rejected ("
run 0 explain --shape Hq=8,Sq=512,D=64 --shape Hq=8,Sq=1024,D=64 --arch sm_86 --json
has out '"rule":"default"'
has out '"why":"'
echo "this is no database" >fa2.db
chmod 600 fa2.db
run 1 list
has err "fa2.db"
run 1 check
rm fa2.db

# ---- export replaces an export when it is complete, and nothing else ----
printf '{"fa2_export":2,"schema":2}\n%s,%s}\n' '{"type":"problem","id":1,"op":"forward","dtype":"fp16","batch":1' \
    '"heads_q":2,"heads_kv":2,"seq_q":64,"seq_k":64,"head_dim":16,"causal":0' >old.jsonl
printf '{"type":"end","rows":1,"sha256":"%s"}\n' "$(sha256sum <old.jsonl | cut -d" " -f1)" >>old.jsonl
run 0 import old.jsonl
has out "imported 1 new row into"
has out "of the 1 row of the file, 0 were here already"
run 0 export -
has err "exported 1 row of"
cp out small.jsonl
has out '"causal":0,"softcap":0,'
rm fa2.db
run 0 import small.jsonl
cp old.jsonl rows.jsonl
chmod 640 rows.jsonl
run 0 export --with-code secret.jsonl
has err "with the code of 0 kernels"
[ "$(stat -c %a secret.jsonl)" = 600 ] || fail "others can read an export with code"
chmod 666 secret.jsonl
run 1 import --trust secret.jsonl --db other.db
has err "others can write it"
[ ! -e other.db ] || fail "a refused import made a database"
run 2 import --trust - --db other.db </dev/null
has err "is no file whose owner could be trusted"
run 2 export --trust rows.jsonl
run 2 import --with-code rows.jsonl
rm secret.jsonl
run 0 export rows.jsonl
has err "to rows.jsonl, in the place of the export that was there"
checks=$((checks + 1))
cmp -s small.jsonl rows.jsonl || fail "the export is not what was imported"
checks=$((checks + 1))
[ "$(stat -c %a rows.jsonl)" = 640 ] || fail "the export did not keep the permissions"
cp fa2.db copy.db
run 2 export fa2.db
has err "fa2.db: is a database, not an export, and is not overwritten"
untouched fa2.db copy.db
run 2 export copy.db
untouched fa2.db copy.db
ln -s copy.db link
run 2 export link
has err "link: is a symbolic link to copy.db; name the file itself"
untouched fa2.db copy.db
ln -s nowhere.jsonl dangling
run 2 export dangling
has err "symbolic link to nowhere.jsonl, which is not there"
run 2 list --db dangling
has err "symbolic link to nowhere.jsonl, which is not there"
echo "something else" >notes.txt
cp notes.txt copy.txt
for suffix in journal wal shm claims; do
    run 2 export fa2.db-$suffix
    has err "fa2.db-$suffix: is the name of a file that belongs to the database fa2.db"
    checks=$((checks + 1))
    [ ! -e fa2.db-$suffix ] || [ $suffix = claims ] || fail "$ran: it is there"
done
run 0 export nothing.db-wal # belongs to nothing
rm nothing.db-wal
if [ -w /proc ]; then
    run 1 export /proc/rows.jsonl
    has err "/proc/rows.jsonl: the file cannot be made there (No such file or directory)"
fi
run 2 export notes.txt
has err "notes.txt: is a file of another kind, not an export"
untouched notes.txt copy.txt
: >nothing
run 2 export nothing
run 2 export .
has err "is a folder"
rm link dangling nothing copy.db
mkfifo pipe
cat pipe >piped &
reader=$!
run 0 export pipe
wait $reader
checks=$((checks + 1))
cmp -s small.jsonl piped && [ -p pipe ] || fail "an export into a pipe"
checks=$((checks + 1))
(trap '' XFSZ && ulimit -f 0 && exec "$tune" export rows.jsonl 2>/dev/null)
[ $? -eq 1 ] || fail "an export beyond the limit of file sizes: not status 1"
(trap '' XFSZ && ulimit -f 0 && exec "$tune" export rows.jsonl 2>&1) | cat >err
ran="an export beyond the limit of file sizes"
has err "fa2-tune: rows.jsonl: cannot write the export (File too large)"
lacks err ".tmp"
checks=$((checks + 1))
cmp -s small.jsonl rows.jsonl || fail "a failed export destroyed the one before"
checks=$((checks + 1))
[ -z "$(find . -name '*.tmp')" ] || fail "a failed export left a file"
if [ -c /dev/full ]; then
    ln -s /dev/full full
    run 1 export full
    has err "cannot write"
    checks=$((checks + 1))
    [ -L full ] && [ -c /dev/full ] || fail "a failed export removed the device"
    # Results that do not reach standard output, also where they are written bit by bit.
    for command in "explain --arch sm_86 --shape Hq=8,Sq=512,D=64" "list --json" report "export -" man; do
        # shellcheck disable=SC2086 # the command's words
        "$tune" $command >/dev/full 2>err
        status=$?
        checks=$((checks + 1))
        [ "$status" -eq 1 ] || fail "$command on a full disk: status $status, not 1"
        ran="$command on a full disk"
        has err "standard output"
    done
else
    echo "skipped, there is no device /dev/full: exporting to a full disk" >&2
fi
rm -f rows.jsonl

# ---- what is damaged: check, export and gc say so; all columns are in test_cache_faults ----
if command -v sqlite3 >/dev/null; then
    sqlite3 fa2.db 'update problem set gflop = -1'
    run 1 check
    has err "problem: 'gflop' must be a finite number from 0 on"
    has err "fa2-tune gc mends them, or drops them"
    run 1 check --json
    has out '"faults":1,'
    run 0 export -
    has err "left out: 1 damaged row; fa2-tune check says what is wrong"
    run 1 check --db fa2.db # a file that was named is named in the advice
    has err "fa2-tune gc --db 'fa2.db' mends them, or drops them"
    run 0 gc
    has out "mended 1 value"
    has out "0 other damaged rows"
    run 0 check
    sqlite3 fa2.db 'update problem set seq_q = -5'
    run 0 gc
    has out "1 other damaged row"
    run 0 check
    sqlite3 fa2.db 'create table notes (text)'
    run 1 gc # that table stays: somebody may need it
    has err "is still damaged: its table 'notes' is not one of fa2's"
    sqlite3 fa2.db 'drop table notes'
    run 0 gc
    run 0 gc --max-size 2G
    has out "the file keeps code up to 2147483648 bytes from now on"
    [ "$(sqlite3 fa2.db "select value from setting where name = 'max_bytes'")" = 2147483648 ]
    run 2 gc --max-size 100
    has err "--max-size \"100\": expected a size such as 256M or 2G"
    sqlite3 fa2.db 'drop view winners'
    run 0 list # the views of the file are for people
    run 1 check
    has err "its view 'winners' is not there; fa2-tune gc makes it anew"
    run 0 gc
    run 0 check
    sqlite3 fa2.db 'create trigger more after insert on kernel begin select 1; end'
    run 1 check
    has err "its trigger 'more' is not one of fa2's; fa2-tune gc drops it"
    run 1 import small.jsonl
    has err "its trigger 'more' is not one of fa2's, and would run whenever something is stored"
    run 0 gc
    run 0 check
    sqlite3 fa2.db 'drop table measurement'
    for command in list check; do
        run 1 $command
        has err "its table 'measurement' is not there"
        has err "fa2-tune gc --db"
    done
    run 0 gc
    run 0 check
    head -c 8192 /dev/zero | tr '\0' 'x' >junk.db # nothing of it can be read
    run 1 list --db junk.db
    has err "move the file away, or name another database; if it was one of fa2's, \`fa2-tune gc --db 'junk.db'\` first"
    run 1 gc --db junk.db
    has err "junk.db: is damaged (file is not a database); reading what can be read"
    has err "junk.db: file is not a database: too little of it can be read to make it anew; move the file away, and tune"
    lacks err "fa2-tune gc"
    rm junk.db
else
    echo "skipped, there is no sqlite3: damaged databases" >&2
fi
rm -f fa2.db

summary
