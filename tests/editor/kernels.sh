#!/bin/sh
# Kernels for an editor: one of each family, expanded from the templates of this source tree, and a compile database
# for clangd. Usage: kernels.sh [--check] FA2_TUNE FOLDER. With --check clang++ reads them all; exit status 77 where
# there is none that knows CUDA.
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
tune=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
export FA2_GEN_PATH="$here/../.." FA2_SHARE='' FA2_DB="$folder/none.db" # what was measured somewhere chooses nothing
flags="-x cuda --cuda-device-only -nocudainc -nocudalib -std=c++17 -include $here/nvrtc.cuh"
flags="$flags -Wno-macro-redefined -Wno-unknown-cuda-version" # of __CUDA_ARCH__; of a toolkit, which is not read

compile() { # SM FILE: the command, for an SM that clang knows since version 11
    known=80
    [ "$1" != 75 ] || known=75
    echo "clang++ $flags --cuda-gpu-arch=sm_$known -D__CUDA_ARCH__=${1}0 -fsyntax-only $2"
}

# The model's first choice of each family, for a problem that the family serves.
dense=Hq=16,Sq=2048,D=128
decode=Hq=32,Hkv=8,Sq=1,Sk=8192,D=128
latent=Hq=128,Hkv=1,Sq=1,Sk=8192,D=576,Dv=512,v_in_k=1,dtype=bf16
comma='['
: >"$folder/commands"
for family in "fwd_sm75 $dense" "fwd_sm80 $dense" "fwd_sm90 $dense" "fwd_splitkv_sm75 $decode" \
    "fwd_splitkv_sm80 $decode" "fwd_splitkv_sm90 $latent" "bwd_sm75 op=backward,$dense" "bwd_sm80 op=backward,$dense" \
    "bwd_sm90 op=backward,$dense"; do
    shape=${family#* }
    name=${family%% *}
    sm=${name##*_sm}
    variant=$("$tune" explain --shape "$shape" --arch "sm_$sm" --json 2>/dev/null |
        grep -o "\"variant\":\"$name [^\"]*" | head -1 | cut -d '"' -f 4)
    [ -n "$variant" ] || {
        echo "kernels.sh: $name has no candidate for $shape on sm_$sm" >&2
        exit 1
    }
    "$tune" source "$variant" >"$folder/$name.cu"
    printf '%s{"directory": "%s", "file": "%s", "command": "%s"}' "$comma
" "$folder" "$name.cu" "$(compile "$sm" "$name.cu")" >>"$folder/commands"
    comma=,
done
printf '\n]\n' >>"$folder/commands"
mv "$folder/commands" "$folder/compile_commands.json"
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
