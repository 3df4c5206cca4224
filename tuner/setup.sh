# shellcheck shell=bash
# Finds or installs the tools and libraries with which fa2 is built. Sourced by tuner/quickstart.sh and tests/run.sh,
# which have set -euo pipefail and stand in the top folder of the source tree.
#
# Nothing is fetched when all is there, so it works without a network on a machine that is set up.
# FA2_CUDA_FROM_PYTHON=1 takes NVRTC and the CUDA headers from NVIDIA's Python packages even where there
# is a CUDA toolkit.

# CMake options that tell where CUDA is; filled by setup_cuda, used by those who source this.
# shellcheck disable=SC2034
cuda_options=()

# Known to work together. CUDA 13 code needs a driver that serves CUDA 13, hence the two lines.
cuda13_packages=(nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96)
cuda12_packages=(nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79)

say() {
    printf '%s: %s\n' "${0##*/}" "$*"
}

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# quietly WHAT COMMAND...: its output is shown only when it fails.
quietly() {
    local what=$1 log status=0
    shift
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        cat "$log" >&2
        printf '%s: failed: %s\n' "${0##*/}" "$what" >&2
    fi
    rm -f "$log"
    return "$status"
}

# The distribution's package for each thing that is missing. It looks for the thing, not for the
# package: a CMake from elsewhere is as good.
missing_packages() {
    local packages=()
    have cmake || packages+=(cmake)
    have ninja || packages+=(ninja-build)
    have gcc || packages+=(gcc libc6-dev)
    have pkg-config || packages+=(pkg-config)
    has_library lua5.4 || has_library lua-5.4 || has_library lua54 || packages+=(liblua5.4-dev)
    has_library 'sqlite3 >= 3.37' || packages+=(libsqlite3-dev)
    has_library libmd || packages+=(libmd-dev)
    echo "${packages[*]}"
}

has_library() {
    have pkg-config && pkg-config --exists "$1"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
}

# Install packages by name; nothing to do without names.
install_packages() {
    [ $# -gt 0 ] || return 0
    have apt-get || die "missing: $*. These are the names of Debian 12 and Ubuntu 22.04;" \
        "there is no apt-get here, so install their equivalents and run this again"
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        die "missing: $*. Not root, and there is no sudo; as root, run: apt-get install --no-install-recommends $*"
    fi
    say "installing $*"
    # The package lists may be missing (a fresh container) or old: fetch them only if need be.
    if ! apt_install "$@" >/dev/null 2>&1; then
        quietly "apt-get update" as_root apt-get -qq update ||
            die "cannot fetch the package lists; is there a network?"
        quietly "apt-get install" apt_install "$@" || die "cannot install $*"
    fi
}

# setup_packages [PACKAGE...]: what building needs, and these besides.
setup_packages() {
    local missing
    read -r -a missing <<<"$(missing_packages) $*"
    install_packages "${missing[@]}"
    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*//p')
    printf '3.21\n%s\n' "$version" | sort -C -V ||
        die "CMake $version is too old: 3.21 or newer is needed (Debian 12, Ubuntu 22.04)"
}

# The major version of CUDA that the driver serves; empty without a driver.
driver_cuda() {
    have python3 || return 0
    python3 - <<'PYTHON'
import ctypes
version = ctypes.c_int()
for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
    try:
        if ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version)) == 0:
            print(version.value // 1000)
            break
    except OSError:
        continue
PYTHON
}

# The first libnvrtc of CUDA 13 or 12 that the library would find by itself; empty without one, or when
# no toolkit has cuda.h and nvrtc.h.
toolkit_nvrtc() {
    local folder library
    local -a homes=("${CUDA_HOME:-/usr/local/cuda}" "${CUDA_PATH:-/usr/local/cuda}" /usr/local/cuda)
    for folder in "${homes[@]/%//include}" /usr/include ""; do
        [ ! -e "$folder/cuda.h" ] || [ ! -e "$folder/nvrtc.h" ] || break
    done
    [ -n "$folder" ] || return 0
    for library in $(/sbin/ldconfig -p | sed -n 's/.*libnvrtc\.so\.13 .*=> //p') \
        $(/sbin/ldconfig -p | sed -n 's/.*libnvrtc\.so\.12 .*=> //p') \
        "${homes[@]/%//lib64/libnvrtc.so.13}" "${homes[@]/%//lib64/libnvrtc.so.12}"; do
        if [ -e "$library" ]; then
            echo "$library"
            return
        fi
    done
}

# Fill cuda_options: the toolkit if its code runs with this driver, else NVIDIA's Python packages.
setup_cuda() {
    local driver nvrtc
    driver=$(driver_cuda)
    if [ -n "$driver" ] && [ "$driver" -lt 12 ]; then
        die "the NVIDIA driver serves CUDA $driver; fa2 needs CUDA 12, that is driver 525 or newer"
    fi
    nvrtc=$(toolkit_nvrtc)
    if [ -n "$nvrtc" ] && [ "${nvrtc##*.so.}" -gt "${driver:-13}" ]; then
        say "the toolkit's CUDA ${nvrtc##*.so.} is newer than the driver's CUDA $driver: not used"
    elif [ -n "$nvrtc" ] && [ "${FA2_CUDA_FROM_PYTHON:-0}" != 1 ]; then
        say "CUDA toolkit: $nvrtc"
        return
    fi
    setup_cuda_python "${driver:-13}"
}

# setup_cuda_python MAJOR: NVRTC and headers from NVIDIA's Python packages, in .venv.
setup_cuda_python() {
    local site include python_nvrtc
    local -a packages=("${cuda13_packages[@]}")
    local nvrtc_folder=nvidia/cu13 runtime_folder=nvidia/cu13 name=libnvrtc.so.13
    if [ "$1" -eq 12 ]; then
        packages=("${cuda12_packages[@]}")
        nvrtc_folder=nvidia/cuda_nvrtc runtime_folder=nvidia/cuda_runtime name=libnvrtc.so.12
    fi
    python_nvrtc=$(find_in_venv "$nvrtc_folder/lib/$name")
    if [ -z "$python_nvrtc" ] || [ -z "$(find_in_venv "$runtime_folder/include/cuda.h")" ]; then
        install_python_packages "${packages[@]}"
        python_nvrtc=$(find_in_venv "$nvrtc_folder/lib/$name")
        [ -n "$python_nvrtc" ] || die "${packages[0]} is installed in .venv, but holds no $name"
    fi
    site=${python_nvrtc%"/$nvrtc_folder/lib/$name"}
    include="$site/$runtime_folder/include"
    [ "$nvrtc_folder" = "$runtime_folder" ] || include="$include;$site/$nvrtc_folder/include"
    cuda_options=("-DFA2_CUDA_INCLUDE_DIR=$include" "-DFA2_NVRTC_DIR=$site/$nvrtc_folder/lib")
    say "CUDA from Python packages: $python_nvrtc; what is built here goes on using it, so keep it"
}

find_in_venv() {
    local path
    for path in "$PWD"/.venv/lib/python3*/site-packages/"$1"; do
        if [ -e "$path" ]; then
            echo "$path"
            return
        fi
    done
}

install_python_packages() {
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages python3 python3-venv
    fi
    say "installing $* into .venv"
    if [ ! -x .venv/bin/pip ]; then
        quietly "python3 -m venv" python3 -m venv .venv || die "cannot make .venv"
    fi
    quietly "pip install" .venv/bin/pip install -q --disable-pip-version-check "$@" ||
        die "cannot install $*; without a network, install the CUDA toolkit instead"
}
