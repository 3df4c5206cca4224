#!/bin/sh
# Helpers that need arguments say so without them, whatever machine this is. Usage: test_usage.sh
# HELPER...
set -u
[ $# -ge 1 ] || {
    echo "usage: test_usage.sh HELPER..." >&2
    exit 2
}
failures=0
for helper; do
    said=$("$helper" 2>&1)
    status=$?
    case $status:$said in
    "2:usage: $(basename "$helper") "*) ;;
    *)
        echo "FAILED: $helper: status $status, said: $said" >&2
        failures=$((failures + 1))
        ;;
    esac
done
exit $((failures > 0))
