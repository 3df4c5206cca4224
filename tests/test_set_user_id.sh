#!/bin/sh
# A program that has more rights than its caller believes none of the caller's variables, and loads no library that one
# names. Usage: test_set_user_id.sh CLIENT LIBRARY SOURCE. Exit status 77: no program can be set-user-ID here.
set -u
[ $# -eq 3 ] || {
    echo "usage: test_set_user_id.sh CLIENT LIBRARY SOURCE" >&2
    exit 2
}
caller=65534 owner=65533
failures=0
fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# Everything that is linked into the library, and fa2-tune, asks for variables in one place.
found=$(cd "$3" && grep -rlE '\b(secure_)?getenv *\(' cache gen runtime tuner --include=*.[ch] |
    grep -v '^runtime/examples/' | sort | tr '\n' ' ')
[ "$found" = "runtime/base/environment.c " ] || fail "getenv is called in: $found"

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cp "$1" "$folder/client" && cp "$2" "$folder/told.so" || exit 1
mkdir "$folder/cuda" "$folder/cuda/lib64" && cp "$2" "$folder/cuda/lib64/libnvrtc.so.13" || exit 1

# ask VARIABLES... -- ARGUMENTS...: as the caller, with these variables alone.
ask() {
    $as_caller env -i "$@" 2>&1
}
attack() {
    ask FA2_CUDA_LIBRARY="$folder/told.so" FA2_NVRTC_LIBRARY="$folder/told.so" FA2_DB=/told/fa2.db \
        FA2_SHARE=/told FA2_GEN_PATH=/told "$folder/client" "$@"
    ask CUDA_HOME="$folder/cuda" CUDA_PATH="$folder/cuda" VIRTUAL_ENV=/told XDG_CACHE_HOME=/told HOME=/told \
        "$folder/client" "$@"
}

# With the same rights every variable counts: the attack below is one.
as_caller=
said=$(attack --plain)
for wanted in "told library: runs as user $(id -u)" "database: /told/fa2.db" "database: /told/fa2/fa2.db" \
    "share: /told" "scripts: FA2_GEN_PATH: /told"; do
    case $said in
    *"$wanted"*) ;;
    *) fail "as a plain program it said: $said; expected: $wanted" ;;
    esac
done
[ $failures -eq 0 ] || exit 1

as_caller="setpriv --reuid $caller --regid $caller --clear-groups"
if [ "$(id -u)" != 0 ] || ! chown $owner "$folder/client" || ! chmod 4755 "$folder/client" ||
    ! $as_caller true 2>/dev/null; then
    echo "skipped: only root can make a set-user-ID program of another user" >&2
    exit 77
fi
ask "$folder/client" >/dev/null
if [ $? -eq 77 ]; then
    echo "skipped: set-user-ID has no effect in $folder (nosuid?)" >&2
    exit 77
fi
said=$(attack)
case $said in
*told*) fail "as a set-user-ID program it believed its caller: $said" ;;
esac
[ "$(printf '%s\n' "$said" | grep -c '^database: none$')" = 2 ] || fail "it said: $said"
[ "$(printf '%s\n' "$said" | grep -c '^scripts: own$')" = 2 ] || fail "it said: $said"
exit $((failures > 0))
