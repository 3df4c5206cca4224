#!/bin/sh
# Kernels for an editor: a compile database for clangd of the headers in templates/ (*.cuh), and of a whole kernel of
# each family, expanded from the templates of this source tree. A header is read after the configuration of the first
# family below that includes it: FOLDER/before/HEADER. Usage: kernels.sh [--check] FA2_TUNE FOLDER. With --check clang++
# reads them all; exit status 77 where there is none that knows CUDA.
set -eu
check=
[ "${1:-}" != --check ] || {
    check=1
    shift
}
[ $# -eq 2 ] || {
    echo "usage: kernels.sh [--check] FA2_TUNE FOLDER" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
templates=$(cd "$here/../../templates" && pwd)
tune=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
export FA2_GEN_PATH="$here/../.." FA2_SHARE='' FA2_DB="$folder/none.db" # what was measured somewhere chooses nothing
flags="-x cuda --cuda-device-only -nocudainc -nocudalib -std=c++17 -include $here/nvrtc.cuh"
# The macro is __CUDA_ARCH__; the toolkit is not read; a header is a main file here.
flags="$flags -I $templates -Wno-macro-redefined -Wno-unknown-cuda-version -Wno-pragma-once-outside-header"

compile() { # SM FILE [OPTIONS]: the command, for an SM that clang knows since version 11
    known=80
    [ "$1" != 75 ] || known=75
    echo "clang++ $flags --cuda-gpu-arch=sm_$known -D__CUDA_ARCH__=${1}0 ${3:-} -fsyntax-only $2"
}

comma='['
entry() { # FILE COMMAND: another one of the compile database
    printf '%s{"directory": "%s", "file": "%s", "command": "%s"}' "$comma
" "$folder" "$1" "$2" >>"$folder/commands"
    comma=,
}

# headers KERNEL_WITH_LINES: prints the headers that no kernel before had, and writes FOLDER/before/HEADER: the
# generated parts (config and lists), and the headers that come before.
headers() {
    awk -v folder="$folder/before" '
        function begin(header,    file, path, line) {
            file = path = folder "/" header
            if ((getline line <file) < 0) {
                sub("/[^/]*$", "", path)
                system("mkdir -p " path)
                printf "%s", before >file
                print header
            }
            close(file)
            before = before "#include \"" header "\"\n"
            known[header]
        }
        /^#line / {
            split($0, parts, "\"")
            from = substr(parts[2], length("templates/") + 1)
            if (from ~ /\.cuh$/ && !(from in known))
                begin(from)
            next
        }
        from ~ /(config|lists)\.cu\.in$/ { before = before $0 "\n" }' "$1"
}

# read_kernel SM VARIANT: writes the kernel to FOLDER/lines, and enters the headers that no kernel before had.
read_kernel() {
    "$tune" source "$2" --lines >"$folder/lines"
    for header in $(headers "$folder/lines"); do
        entry "$templates/$header" "$(compile "$1" "$templates/$header" "-include $folder/before/$header")"
    done
}

# The model's first choice of each family, for a problem that the family serves.
dense=Hq=16,Sq=2048,D=128
decode=Hq=32,Hkv=8,Sq=1,Sk=8192,D=128
grown=$decode,append=1,rotary=halves
shared=op=backward,Hq=1,Sq=512,D=128,sinks=1 # few blocks, which share queries
short=op=backward,Hq=2,Sq=128,D=64,dropout=1 # dQ has blocks of its own
latent=Hq=128,Hkv=1,Sq=1,Sk=8192,D=576,Dv=512,v_in_k=1,dtype=bf16
rm -rf "$folder/before"
: >"$folder/commands"
for family in "fwd_sm80 $dense" "fwd_splitkv_sm80 $grown" "fwd_sm90 $dense" "fwd_splitkv_sm90 $latent" \
    "bwd_sm80 $shared" "bwd_sm90 op=backward,$dense" "fwd_sm75 $dense" "fwd_splitkv_sm75 $decode" \
    "fwd_bytes_sm89 $dense,scores=int8,pv=fp8" \
    "fwd_bytes_sm90 Hq=16,Sq=8192,D=256,scores=int8,pv=fp8" \
    "fwd_fp32_sm80 $dense,dtype=fp32" "fwd_fp32_sm75 $dense,dtype=fp32" "bwd_sm75 $short" \
    "bwd_fp32_sm80 op=backward,$dense,dtype=fp32" "bwd_fp32_sm75 op=backward,$dense,dtype=fp32" "merge_sm80 op=merge,Hq=16,Sq=2048,Sk=4,D=128"; do
    shape=${family#* }
    name=${family%% *}
    sm=${name##*_sm}
    variant=$("$tune" explain --shape "$shape" --arch "sm_$sm" --json 2>/dev/null |
        grep -o "\"variant\":\"$name [^\"]*" | head -1 | cut -d '"' -f 4)
    [ -n "$variant" ] || {
        echo "kernels.sh: $name has no candidate for $shape on sm_$sm" >&2
        exit 1
    }
    read_kernel "$sm" "$variant"
    grep -v '^#line ' "$folder/lines" >"$folder/$name.cu"
    entry "$name.cu" "$(compile "$sm" "$name.cu")"
done
# The headers of features, from kernels that have them: the sample of tests/bench/gate.py.
sed -n 's/^sm_\([0-9]*\)a\{0,1\} \([fb]wd_\)/\1 \2/p' "$here/../bench/gate.txt" >"$folder/sample"
while read -r sm variant; do
    read_kernel "$sm" "$variant"
done <"$folder/sample"
rm "$folder/lines" "$folder/sample"
printf '\n]\n' >>"$folder/commands"
mv "$folder/commands" "$folder/compile_commands.json"
(cd "$templates" && find . -name '*.cuh') | while read -r header; do
    [ -e "$folder/before/$header" ] || {
        echo "kernels.sh: no kernel has templates/${header#./}" >&2
        exit 1
    }
done
[ -n "$check" ] || exit 0

echo '__attribute__((global)) void empty() {}' >"$folder/empty.cu"
cd "$folder"
eval "$(compile 80 empty.cu)" 2>/dev/null || {
    echo "skipped: there is no clang++ that reads CUDA" >&2
    exit 77
}
sed -n 's/.*"command": "\(.*\)"}.*/\1/p' compile_commands.json | while read -r command; do
    $command -Werror </dev/null || exit 1
done
