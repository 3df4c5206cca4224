#!/bin/sh
# A card that plays an older SM (tune --arch), on the software device. Its results are shown under a name of their own,
# and change no choice of any card. Usage: test_proxy.sh FA2_TUNE LIBFA2SIM
set -u
[ $# -ge 2 ] || {
    echo "usage: test_proxy.sh FA2_TUNE LIBFA2SIM" >&2
    exit 2
}
self=$(realpath "$0")
tune=$1
export FA2_CUDA_LIBRARY="$2"
# shellcheck source=tests/expect.sh
. "$(dirname "$self")/../expect.sh"
shape=B=1,Hq=2,Hkv=1,Sq=48,Sk=80,D=16,causal=1
backward=op=backward,Hq=1,Sq=32,D=16

# explained CARD ARGUMENT...: what a call on the card would get, into the file `answer`. That a kernel's code is stored,
# as code of the same text is, is left out.
explained() {
    FA2_SIM_CARD=$1
    shift
    run 0 explain --device 0 --shape $shape "$@"
    sed -e '/^code /d; s/  yes  /       /; s/, registers.*//' out >answer
}

mkdir -m 700 db
export FA2_DB="$folder/db/proxies.db" FA2_SIM_CARD=h200
for card in h200 a100 t4; do
    explained $card --db none.db
    mv answer $card.untuned
done

# Another problem of the class, tuned on the card itself: of kernels that the proxy timed, too.
export FA2_SIM_CARD=a100
own=B=1,Hq=2,Hkv=1,Sq=200,D=16,causal=1
run 0 tune --device 0 --shape $own --all --db "$folder/db/own.db"
explained a100 --db "$folder/db/own.db"
mv answer a100.tuned

export FA2_SIM_CARD=h200
run 0 tune --device 0 --arch sm_80 --shape $shape --shape $backward
has err "device 0: proxy sm_80 on NVIDIA H200"
has err "code for compute_80"
has err "0 of them failed"
run 0 tune --device 0 --arch sm_80 --shape $shape --shape $backward
has err "2 tuned already"
run 0 tune --device 0 --arch sm_75 --shape $shape --json
has out '"device":"proxy sm_75 on NVIDIA H200'
has out '"arch":"sm_75"'
export FA2_SIM_CARD=a100
run 0 tune --device 0 --arch sm_75 --shape $shape
has err "proxy sm_75 on NVIDIA A100"
lacks err "1 tuned already"

run 0 list
has out "proxy sm_80 on NVIDIA H200"
has out "proxy sm_75 on NVIDIA A100"
has out "fwd_sm75"
run 0 show --device "proxy sm_75"
has out "fwd_sm75"
lacks out "fwd_sm80"
run 0 report
has out 'proxy sm\_80 on NVIDIA H200'
run 0 check
run 0 export all.jsonl
grep -q '"name":"proxy sm_80 on NVIDIA H200.*","arch":80' all.jsonl || fail "the export does not name the proxy"
run 0 import all.jsonl --db "$folder/db/imported.db"

# No card takes a proxy's winner, time or kernel: neither the card that played, nor one with the SM that it played.
for card in h200 a100 t4; do
    for db in "$FA2_DB" "$folder/db/imported.db"; do
        explained $card --db "$db"
        checks=$((checks + 1))
        cmp -s answer $card.untuned || fail "$card: proxies in $db change the answer: $(diff answer $card.untuned)"
    done
done
export FA2_SIM_CARD=a100
run 0 tune --device 0 --shape $own --all --db "$folder/db/imported.db"
explained a100 --db "$folder/db/imported.db"
checks=$((checks + 1))
cmp -s answer a100.tuned || fail "a100, tuned: proxies change the answer: $(diff answer a100.tuned)"

for arch in sm_80 sm_86 sm_90; do
    run 2 tune --device 0 --arch $arch --shape $shape
    has err "--arch $arch: a card plays only an SM older than its own, and this is NVIDIA A100"
done
run 2 tune --device 0 --arch sm_80 --shape $shape
has err "tune it without --arch"
run 2 tune --device 0 --arch sm_61 --shape $shape
has err "there is no reference card for sm_61"
for list in sm_75,sm_80 native all sm_75,all; do
    run 2 tune --device 0 --arch $list --shape $shape
    has err "tune takes one SM for the card to play, and no list: --arch sm_86"
done
run 2 tune --device 0 --arch 75 --shape $shape
has err 'expected architectures such as sm_86'
run 2 tune --arch sm_75 --shape $shape
has err "tune needs --device N"
summary
