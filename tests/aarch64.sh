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
# Without test_capture and test_cache_limit: qemu-user cannot fork a process that has threads, and a test that runs
# itself anew needs the kernel to know the emulator. 16 other host tests pass, too, but take up to two minutes each.
[ $# -gt 0 ] || set -- test_base test_recipe test_cuda_api test_compile test_dump test_device test_splits test_grid \
    test_args test_feature_args test_ops test_backward_call test_merge_args test_bias_gradient test_load test_launch \
    test_lua_pool test_template test_shapes test_options test_table test_progress test_cache test_cache_code \
    test_cache_results test_cache_open test_cache_trust test_cache_schema test_choose test_steps test_answers test_plan \
    test_context test_map_limits test_struct_sizes test_reference test_features test_search

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
