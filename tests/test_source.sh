#!/bin/sh
# fa2-tune source: six whole kernels, to the byte (tests/golden/kernels; FA2_UPDATE_GOLDEN=1 writes them anew, each of
# the variant in its first line), and the ways to name a kernel, its PTX and its machine code. Usage: test_source.sh
# FA2_TUNE REPORT_DATABASE
set -u
[ $# -ge 2 ] || {
    echo "usage: test_source.sh FA2_TUNE REPORT_DATABASE" >&2
    exit 2
}
tune=$(realpath "$1")
make_database=$(realpath "$2")
tests=$(realpath "$(dirname "$0")")
texts=$tests/golden/kernels
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
real_nvrtc=${FA2_NVRTC_LIBRARY:-}
export FA2_DB="$folder/fa2.db" FA2_CUDA_LIBRARY=/nonexistent/libcuda.so.1 FA2_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
unset FA2_GEN_PATH CUDA_HOME CUDA_PATH

# same FILE FILE
same() {
    checks=$((checks + 1))
    cmp -s "$1" "$2" || fail "$ran: $1 and $2 differ"
}

# ---- whole kernels ----
for kernel in "$texts"/*.cu; do
    run 0 source "$(sed '1!d; s,^// ,,' "$kernel")"
    [ "$got" -eq 0 ] || continue # the file stays, and with it the variant
    golden out "$(basename "$kernel")"
    lacks out "#line"
done
run 0 source "$(sed '1!d; s,^// ,,' "$texts/fwd_sm80.cu")" --lines
has out '#line 1 "templates/'
grep -v '^#line ' out >without
same without "$texts/fwd_sm80.cu"

# ---- a kernel by its variant, as tables show it, and by its key ----
variant="fwd_sm80 d=64 dtype=bf16 causal=1 softcap=1 br=64 bc=64"
variant="$variant warps=4 kstages=2 vstages=2 layout=swizzle q=reg fill=whole"
run 0 source "$variant"
cp out whole
has whole "// $variant"
has whole "role=main threads=128 smem="
empty err
short=$(echo "$variant" | sed 's/ d=.*softcap=1//')
run 0 source "$short" --shape Hq=2,Sq=64,D=64,dtype=bf16,causal=1,softcap=1
same out whole
run 2 source "$short"
has err "fill=whole' lacks d=, dtype=fp16|bf16, causal=0|1; a text without the problem's fields needs a --shape that has them"
run 2 source "fwd_sm80 br=64 bc=64 layout=swizzle" --shape Hq=2,Sq=64,D=64
has err "'fwd_sm80 d=64 dtype=fp16 causal=0 br=64 bc=64 layout=swizzle' lacks warps="
has err "|8, kstages=1|2|3, vstages=1|2|3, q="
lacks err "layout=swizzle|pad" # it is given
run 2 source "$variant" --shape Hq=2,Sq=64,D=128
has err "is for D=64 dtype=bf16 causal=1 softcap=1, and the shape is D=128 dtype=fp16 causal=0"
run 2 source "fwd_sm85 d=64"
has err "there is no family 'fwd_sm85'"
run 2 source "${variant%fill=whole}fill=halb"
has err "'fill=halb' is not one of whole, spread"
run 2 source "$variant" --arch sm_75
has err "sm_75 has no fwd_sm80 kernels: it needs compute capability 8.0"
run 2 source "bwd_sm90 d=128 dtype=bf16 causal=1 br=64" --arch sm_90,sm_100
has err "sm_100 has no bwd_sm90 kernels: it needs compute capability 9.0, and no newer one"
run 2 source "$variant" --arch sm_61
has err "there is no reference card for sm_61"
run 0 source "naive d=64 dtype=fp16 causal=0" --arch sm_90 # to compare with, on any SM
run 2 source fwd_sm80 d=64
has err 'source takes one variant, as one word: "fwd_sm80 d=64 ..."'
run 2 source ""
has err 'source needs a variant, not ""'
run 2 source "$variant$variant$variant"
has err "a variant's text has at most 255 characters"
key=$(printf '%064d' 7)
run 2 source "$key"
has err "there is no such database"
"$make_database" fa2.db "$tests/golden/texts/card.jsonl" || fail "report_database"
run 2 source "$key"
has err "has no kernel of that key; fa2-tune list --json and show --json say keys"
run 0 list --json --op backward
cp out listed
run 0 source "$(sed -n 's/.*"variant":"\([^"]*\)".*/\1/p' listed)"
cp out by_text
run 0 source "$(sed -n 's/.*"key":"\([^"]*\)".*/\1/p' listed)"
same out by_text
run 0 show --shape B=8,Hq=16,Sq=1024,D=128,dtype=bf16,causal=1 --json
run 0 source "$(sed -n 's/.*"outcome":"spilled".*"key":"\([^"]*\)".*/\1/p' out | head -1)"
has out "// fwd_sm80 d=128 dtype=bf16 causal=1"
rm fa2.db

# ---- the kernel of a problem ----
run 2 source
has err "source needs a variant, as list and show print it, or --shape"
run 2 source --shape Hq=8,Sq=512,D=64
has err "source needs --device N or --arch sm_86 to choose a kernel for a problem"
run 2 source --shape Hq=8,Sq=512,D=64 --device 0 --arch sm_86
has err "source takes one of --device N and --arch sm_86"
run 3 source --shape Hq=8,Sq=512,D=64 --device 0
has err "--device 0 (--arch with the SM of your card needs no GPU): no CUDA driver library found"
run 0 explain --shape Hq=8,Sq=512,D=64 --arch sm_86 --json
chosen=$(sed -n 's/.*"rule":"default".*"variant":"\([^"]*\)","threads".*/\1/p' out)
run 0 source "$chosen"
sed 1,2d out >text
run 0 source --shape Hq=8,Sq=512,D=64 --arch sm_86
has err "choosing without a database"
sed 1,3d out >of_problem
same of_problem text
has out "// $chosen"
has out "// for B=1 Hq=8 Hkv=8 Sq=512 Sk=512 D=64 dtype=fp16 causal=0 on NVIDIA GeForce RTX 3060 (sm_86), by the rule "
run 0 source --shape Hq=8,Sq=512,D=64 --shape op=backward,Hq=8,Sq=512,D=64 --arch sm_75,sm_80
for family in fwd bwd; do
    has out "// ${family}_sm75 d=64"
    has out "// ${family}_sm80 d=64"
done
run 1 source --shape Hq=8,Sq=512,D=64,dtype=bf16 --shape Hq=8,Sq=512,D=64 --arch sm_75
has err "dtype=bf16 causal=0 on sm_75: the call fails: bf16 needs compute capability 8.0, and this is 7.5"
has out "// fwd_sm75 d=64"
run 2 source --preset nope --arch sm_86
has err 'there is no preset "nope"'

# ---- where it cannot be written ----
if [ -c /dev/full ]; then
    "$tune" source "$variant" >/dev/full 2>err
    status=$?
    ran="source on a full disk"
    checks=$((checks + 1))
    [ "$status" -eq 1 ] || fail "$ran: status $status, not 1"
    has err "standard output"
else
    echo "skipped, there is no device /dev/full" >&2
fi
ran="source into a pipe that nobody reads"
mkfifo pipe
"$tune" source "$variant" --arch sm_80,sm_86,sm_87,sm_88,sm_89,sm_90,sm_100,sm_120 >pipe 2>err &
head -1 <pipe >out
wait $!
status=$?
checks=$((checks + 1))
[ "$status" -eq 141 ] || fail "$ran: status $status, not that of SIGPIPE"
lacks err "standard output"

# ---- what is missing ----
run 2 source "$variant" --ptx
has err "source needs --device N or --arch sm_86 to compile for"
run 2 source "$variant" --ptx --sass --arch sm_86
has err "source takes one of --ptx, --sass and --lines"
run 1 source "$variant" --ptx --arch sm_86
has err "no NVRTC library found"
empty out
if [ -x /usr/local/cuda/bin/nvdisasm ] || [ -x /usr/local/cuda/bin/cuobjdump ]; then
    echo "skipped, /usr/local/cuda has a disassembler: --sass without one" >&2
else
    expect_status 1 "source --sass without a tool" env PATH=/nonexistent "$tune" source "$variant" --sass --arch sm_86
    has err "--sass needs nvdisasm or cuobjdump of the CUDA toolkit, and neither is in PATH, \$CUDA_HOME/bin"
    empty out
fi

# ---- PTX and machine code ----
if [ -n "$real_nvrtc" ]; then
    export FA2_NVRTC_LIBRARY="$real_nvrtc"
else
    unset FA2_NVRTC_LIBRARY
fi
"$tune" devices --json >out 2>err
if ! grep -qF '"nvrtc":{"found":true' out; then
    echo "skipped, there is no NVRTC: --ptx and --sass" >&2
    summary
    exit
fi
run 0 source "$variant" --ptx --arch sm_86
has out "// compute_86, NVRTC "
has out ".entry fwd_sm80("
has out ".target sm_86"
# tool NAME STATUS: a disassembler that says how it was called, and on what.
tool() {
    mkdir -p tools/bin
    rm -f tools/bin/*
    # shellcheck disable=SC2016 # for the tool
    printf '#!/bin/sh\necho "option $1, $(head -c 4 "$2" | od -An -c | tr -d " ")"\nexit %s\n' "$2" >"tools/bin/$1"
    chmod +x "tools/bin/$1"
}
tool nvdisasm 0
old_path=$PATH
PATH=$folder/tools/bin:$PATH
run 0 source "$variant" --sass --arch sm_86
has out "// sm_86, NVRTC "
has out " registers, 0 bytes spilled"
has out "option -c, 177ELF"
tool nvdisasm 3
run 1 source "$variant" --sass --arch sm_86
has err "tools/bin/nvdisasm failed on the machine code"
tool cuobjdump 0
if ! PATH=$old_path command -v nvdisasm >/dev/null; then
    run 0 source "$variant" --sass --arch sm_86
    has out "option -sass, 177ELF"
    expect_status 0 "source --sass by CUDA_HOME" env PATH="$old_path" CUDA_HOME="$folder/tools" \
        "$tune" source "$variant" --sass --arch sm_86
    has out "option -sass, 177ELF"
fi
PATH=$old_path
summary
