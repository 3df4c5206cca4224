# To be sourced (with `.`): a script that runs a command, looks at its exit status and at what it wrote, goes on after what is
# wrong and counts it. It works in a folder of its own, which goes at the end. The script's own paths are to be
# made absolute before.
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
# hangs is ended.
expect_status() {
    wanted=$1
    ran=$2
    shift 2
    checks=$((checks + 1))
    timeout 900 "$@" >out 2>err </dev/null
    got=$?
    [ "$got" -eq "$wanted" ] || fail "$ran: exit status $got, expected $wanted"
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

# The script's exit status.
summary() {
    printf '%d checks, %d failed\n' "$checks" "$failures" >&2
    [ "$failures" -eq 0 ]
}
