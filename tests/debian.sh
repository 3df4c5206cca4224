# shellcheck shell=bash
# Makes a Debian 12 with debootstrap, for recipes.sh and aarch64.sh, which source this file and need root and a network.
#     make_debian FOLDER
# FOLDER may be there already. Sets $here, the top of this tree, and $root, the folder. The tree's last commit is in
# $root/src. /proc is mounted until the script ends.
make_debian() {
    here=$(realpath "$(dirname "$0")/..")
    root=$(realpath -m "$1")
    [ "$(id -u)" -eq 0 ] || { echo "$(basename "$0"): not root: skipped"; exit 77; }
    command -v debootstrap >/dev/null || { echo "$(basename "$0"): no debootstrap: skipped"; exit 77; }
    [ -e "$root/etc/debian_version" ] || debootstrap --variant=minbase bookworm "$root"
    rm -rf "$root/src"
    mkdir -p "$root/src"
    git -C "$here" -c safe.directory="$here" archive HEAD | tar -C "$root/src" -x
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # A network with certificates of its own. The package ca-certificates writes over what is in /etc.
    if [ -n "${PIP_CERT:-}" ]; then
        install -D -m 644 "$PIP_CERT" "$root/opt/pip_cert.pem"
        export PIP_CERT=/opt/pip_cert.pem
        unset REQUESTS_CA_BUNDLE CURL_CA_BUNDLE # pip would take them in the place of PIP_CERT
    fi
    [ -e "$root/proc/self" ] || mount -t proc proc "$root/proc"
    trap 'umount "$root/proc"' EXIT
}
