# To be sourced (with `.`): a script that runs a command, looks at its exit status and at what it wrote, goes on after
# what is wrong and counts it. It works in a folder of its own, which goes at the end. The script's own paths are to be
# made absolute before.
texts=${texts:-$(realpath "$(dirname "$0")")/golden/texts}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export FA2_SHARE= # whatever is installed on this machine
checks=0
failures=0
ran="" # what has, lacks and empty speak of

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n--- stdout\n%s\n--- stderr\n%s\n' "$1" "$(cat out)" "$(tail -30 err)" >&2
}

# expect_status STATUS WHAT COMMAND ARGUMENT...: keeps its output in the files out and err. A command that
# hangs is ended, some day: nothing here depends on the machine's speed.
expect_status() {
    wanted=$1
    ran=$2
    shift 2
    checks=$((checks + 1))
    timeout 7200 "$@" >out 2>err </dev/null
    got=$?
    [ "$got" -eq "$wanted" ] || fail "$ran: exit status $got, expected $wanted"
}

# await PID COMMAND ARGUMENT...: until the command succeeds, or that process has ended.
await() {
    awaited=$1
    shift
    until "$@" || ! kill -0 "$awaited" 2>/dev/null; do
        sleep 0.02
    done
}

# run STATUS ARGUMENT...: fa2-tune, whose path is $tune.
run() {
    status=$1
    shift
    expect_status "$status" "fa2-tune $*" "$tune" "$@"
}

# has FILE TEXT, lacks FILE TEXT, empty FILE: what the last run wrote.
has() {
    checks=$((checks + 1))
    grep -qF -e "$2" "$1" || fail "$ran: no \"$2\" in $1"
}
lacks() {
    checks=$((checks + 1))
    ! grep -qF -e "$2" "$1" || fail "$ran: \"$2\" in $1"
}
empty() {
    checks=$((checks + 1))
    [ ! -s "$1" ] || fail "$ran: $1 is not empty"
}
# untouched FILE COPY: the last run left it as it was.
untouched() {
    checks=$((checks + 1))
    cmp -s "$1" "$2" || fail "$ran: $1 was changed"
}

# golden FILE TEXT, masked FILE TEXT: what the last run wrote to FILE is the text in tests/golden/texts; masked, numbers
# and the parameters of kernels, which change with the cost model, are any. FA2_UPDATE_GOLDEN=1 writes it.
golden() {
    checks=$((checks + 1))
    [ -z "${FA2_UPDATE_GOLDEN:-}" ] || cp "$1" "$texts/$2"
    diff "$texts/$2" "$1" >difference || fail "$ran: not the text of $2
$(cat difference)"
}
masked() {
    sed -E -e 's/(fwd|bwd|naive)[a-z0-9_]*( [a-z]+=[a-z0-9]+)+/KERNEL/g' \
        -e 's/-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?[kM]?/N/g; s/-{3,}/---/g; s/ +/ /g' "$1" >"$1.masked"
    golden "$1.masked" "$2"
}

# The script's exit status.
summary() {
    printf '%d checks, %d failed\n' "$checks" "$failures" >&2
    [ "$failures" -eq 0 ]
}
