#!/bin/sh
# What fa2-tune says of a database on a read-only file system and on a full one. Usage:
# test_filesystems.sh FA2_TUNE. Exit status 77: nothing can be mounted here.
set -u
[ $# -eq 1 ] || {
    echo "usage: test_filesystems.sh FA2_TUNE" >&2
    exit 2
}
if [ "${FA2_TEST_MOUNTED:-0}" = 0 ]; then
    for who in "" --map-root-user; do
        # shellcheck disable=SC2086 # an option or nothing
        if unshare $who --mount mount -t tmpfs none /mnt 2>/dev/null; then
            exec env FA2_TEST_MOUNTED=1 unshare $who --mount "$0" "$1"
        fi
    done
    echo "skipped: nothing can be mounted here" >&2
    exit 77
fi

tune=$1
failures=0
mount -t tmpfs -o mode=755,size=64k,nr_inodes=1 none /mnt || exit 1

# refuses TEXT COMMAND...: status 1, and the text on stderr.
refuses() {
    wanted=$1
    shift
    said=$("$tune" "$@" 2>&1 </dev/null)
    got=$?
    case $got:$said in
    1:*"$wanted"*) ;;
    *)
        echo "FAILED: fa2-tune $*: status $got, said: $said; expected: $wanted" >&2
        failures=$((failures + 1))
        ;;
    esac
}

# sees YES_OR_NO: does the doctor say that the disk is full?
sees() {
    said=$("$tune" doctor --db /mnt/some/fa2.db 2>&1 </dev/null)
    case $1:$said in
    yes:*"/mnt/some/fa2.db: its disk is full: 0.1 MB are left"*) ;;
    yes:* | no:*"its disk is full"*)
        echo "FAILED: doctor of a disk that is full: $1, said: $said" >&2
        failures=$((failures + 1))
        ;;
    esac
}

sees yes
mount -o remount,size=64m /mnt || exit 1
sees no
mount -o remount,size=64k /mnt || exit 1
refuses "cannot create the database, the disk is full; make room" import - --db /mnt/fa2.db
HOME=/mnt refuses "cannot create /mnt/new, the disk is full; make room" import - --db /mnt/new/fa2.db
mount -o remount,nr_inodes=9 /mnt || exit 1
head -c 60k /dev/zero >/mnt/filler
refuses "is full: free some space" import - --db /mnt/fa2.db
rm -f /mnt/fa2.db /mnt/filler
: >/mnt/fa2.db
chmod 600 /mnt/fa2.db
mount -o remount,ro /mnt || exit 1
refuses "is on a read-only file system; copy it" import - --db /mnt/fa2.db
refuses "on a read-only file system; name a database elsewhere" import - --db /mnt/other.db
exit $((failures > 0))
