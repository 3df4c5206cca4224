#!/usr/bin/env bash
# Runs the lines of runtime/recipes/Dockerfile in an empty Debian 12, made by debootstrap, and looks at what the image's
# user finds. Only apt-get and pip have a network: what builds and runs fa2 has none.
#     tests/recipes.sh FOLDER
# FOLDER: where the Debian goes; it may be there already. Needs root, debootstrap and a network; takes minutes and 1 GB.
set -euo pipefail
# shellcheck source=tests/debian.sh
. "$(dirname "$0")/debian.sh"
make_debian "$1"

sed -n 's/^RUN //p' "$here/runtime/recipes/Dockerfile" | while IFS= read -r line; do
    printf 'RUN %s\n' "$line"
    case $line in
    cmake* | fa2-tune*) unshare --net chroot "$root" /bin/sh -ec "$line" </dev/null ;;
    *) chroot "$root" /bin/sh -ec "$line" </dev/null ;;
    esac
done
as_user() {
    unshare --net chroot --userspec=user "$root" env HOME=/home/user "$@"
}
as_user fa2-tune --version
as_user fa2-tune list | grep /usr/local/share/fa2/system.db || { echo "list does not name the image's file"; exit 1; }
as_user fa2-tune explain --arch sm_89 --shape Hq=8,Sq=512,D=64 | grep "^code "
as_user sh -c 'echo x >>/usr/local/share/fa2/system.db' 2>/dev/null && { echo "the user can write the image's file"; exit 1; }
echo "recipes.sh: the image's user finds kernels, and cannot change them"
