#!/usr/bin/env bash
# Compiles fa2 for aarch64 (Jetson Orin) with Debian's cross compiler, and runs host tests under qemu-user. It does so in
# a Debian 12 made by debootstrap, as tests/recipes.sh makes one.
#     tests/aarch64.sh FOLDER [TEST...]
# FOLDER: where the Debian goes; it may be there already. Needs root, debootstrap and a network; takes minutes.
set -euo pipefail
# shellcheck source=tests/debian.sh
. "$(dirname "$0")/debian.sh"
make_debian "$1"
shift
[ $# -gt 0 ] || set -- test_base test_recipe test_plan test_choose test_cache test_struct_sizes test_context

chroot "$root" /bin/sh -eux <<'END'
dpkg --add-architecture arm64
apt-get update
apt-get install -y --no-install-recommends cmake ninja-build pkg-config python3-venv qemu-user \
    gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross liblua5.4-dev:arm64 libsqlite3-dev:arm64 libmd-dev:arm64
[ -d /opt/cuda ] || python3 -m venv /opt/cuda
/opt/cuda/bin/pip install -q nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96
ln -sfn /opt/cuda /src/.venv # where CMake looks for CUDA's headers if there is no toolkit
END
chroot "$root" env PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig /bin/sh -eux <<END
cmake -S /src -B /tmp/arm -G Ninja -DCMAKE_BUILD_TYPE=Release -DFA2_WERROR=ON -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/"
cmake --build /tmp/arm --target fa2_shared fa2-tune fa2_share $*
qemu-aarch64 -L / /tmp/arm/tuner/fa2-tune --version
qemu-aarch64 -L / /tmp/arm/tuner/fa2-tune explain --arch sm_87 --shape Hq=8,Sq=512,D=64 | grep '^kernel '
ctest --test-dir /tmp/arm -R '^($(IFS='|'; echo "$*"))$' --output-on-failure --no-tests=error
END
echo "aarch64.sh: fa2-tune and $# host tests run on aarch64"
