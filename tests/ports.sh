#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds Strata for another processor or C library on Debian, and runs the tests that need no driver there.
set -eu

usage() {
    cat <<'END'
usage: sh tests/ports.sh i386|arm64|musl|endian|matrix [FOLDER]

  i386    makes a 32-bit Debian in FOLDER/i386 (debootstrap, chroot), builds everything there and runs the tests on the host
          backend
  arm64   cross-compiles with the libraries of an arm64 Debian in FOLDER/arm64, and runs the command, the programs of
          tests/threads and the inputs of the fuzz targets in qemu-user
  musl    builds Debian's sources of zlib, cJSON and OpenSSL against musl, then Strata with them, and runs the programs of
          tests/threads, the command in one process, and two of its workers
  endian  checks that the compiler rejects core/base/tensor.c for a big-endian processor, with the reason
  matrix  makes the newest Debian in FOLDER/matrix (debootstrap, chroot), whose tools can compile the kernels for matrix units;
          runs the tests of these kernels on Mesa's Vulkan driver for CPUs, which supports matrix units in Mesa 26.2, and
          compiles the kernels with Mesa's driver for AMD (tests/vendors.sh)

FOLDER is build/ports by default; a system that it contains is used again. It needs 1 GB, and for matrix 2 GB. i386, arm64 and
matrix need root, debootstrap and the network. musl and endian need the network, and root where their compiler is not installed.
A slow machine needs half an hour for each of the first three, so continuous integration runs none of them.
Environment: STRATA_PORTS_MIRROR  the archive of Debian packages (http://deb.debian.org/debian)
             STRATA_PORTS_TESTS   a regular expression that selects the tests of ctest
             STRATA_PORTS_SUITE   the suite of Debian for matrix (sid)
END
}

case "${1:-}" in
i386 | arm64 | musl | endian | matrix) port=$1 ;;
-h | --help) usage; exit 0 ;;
*) usage >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
folder=${2:-build/ports}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
mirror=${STRATA_PORTS_MIRROR:-http://deb.debian.org/debian}
packages=gcc,libc6-dev,cmake,ninja-build,pkg-config,libcjson-dev,zlib1g-dev,libssl-dev,libcriterion-dev,python3,libpng-dev
packages=$packages,liblzma-dev
options="-G Ninja -DCMAKE_BUILD_TYPE=Release -DSTRATA_WERROR=ON -DSTRATA_OPENCL=OFF -DSTRATA_VULKAN=OFF"

need() { # PROGRAM PACKAGE...: installs the packages unless the program exists
    program=$1
    shift
    command -v "$program" >/dev/null && return
    [ "$(id -u)" = 0 ] || { echo "ports: $program is missing; as root: apt-get install $*" >&2; exit 3; }
    apt-get install -y -qq --no-install-recommends "$@" >&2
}
need_root() {
    [ "$(id -u)" = 0 ] || { echo "ports: $port needs root, for debootstrap" >&2; exit 3; }
    need debootstrap debootstrap
}

# plain_programs PREFIX FILE...: prints the targets of programs that need no test framework: threads_rpc for
# tests/threads/rpc_main.c.
plain_programs() {
    prefix=$1
    shift
    for file in "$@"; do basename "$file" | sed "s/_[a-z]*\.c\$//; s/^/${prefix}_/"; done
}

# enter SUITE ARCHITECTURE PACKAGES: installs a Debian in the folder $system unless it exists, copies the sources into it, and
# mounts /proc and /dev, which a chroot needs, until this script ends.
enter() {
    unset CMAKE_C_COMPILER_LAUNCHER # ccache is not installed in the chroot
    if [ ! -e "$system/made" ]; then
        debootstrap --variant=minbase --arch="$2" --include="$3" "$1" "$system" "$mirror"
        touch "$system/made"
    fi
    mkdir -p "$system/src" "$system/build"
    git ls-files -z | tar --null -T - -cf - | tar -C "$system/src" -xf -
    for mount in proc dev; do
        mountpoint -q "$system/$mount" || mount --bind "/$mount" "$system/$mount"
    done
    trap 'umount "$system/proc" "$system/dev"' EXIT
}

i386() {
    need_root
    system=$folder/i386
    enter bookworm i386 $packages
    commands='(tune|usage|train|own_data|checkpoint|validation|model_file|samples)_test'
    tests=${STRATA_PORTS_TESTS:-^test_|^replay_|^threads_|$commands}
    # shellcheck disable=SC2086 # words
    chroot "$system" cmake -S /src -B /build $options
    chroot "$system" cmake --build /build
    chroot "$system" ctest --test-dir /build --output-on-failure --timeout 900 -R "$tests"
}

matrix() {
    need_root
    system=$folder/matrix
    enter "${STRATA_PORTS_SUITE:-sid}" "$(dpkg --print-architecture)" \
        $packages,libvulkan-dev,glslc,spirv-tools,mesa-vulkan-drivers,mesa-drm-shim,vulkan-validationlayers
    # shellcheck disable=SC2086 # words
    chroot "$system" cmake -S /src -B /build $options -DSTRATA_VULKAN=ON
    chroot "$system" cmake --build /build --target sample_strata test_backend test_conformance vendors_kernels vendors_radv
    chroot "$system" /build/strata devices
    chroot "$system" /build/strata devices | grep -q "matrix units" ||
        { echo "ports: no Vulkan driver there has matrix units; set STRATA_PORTS_SUITE to a newer Debian" >&2; exit 1; }
    rm -rf "$system/cache" # an earlier run may have recorded kernels there that computed wrong results
    export XDG_CACHE_HOME=/cache
    for suite in shaders shader_size list; do chroot "$system" /build/suites/test_backend --filter "$suite/*"; done
    for suite in units matmul; do
        STRATA_TEST_DEVICES=vulkan STRATA_TEST_KERNELS=gpu \
            chroot "$system" /build/suites/test_conformance --filter "conformance_$suite/*"
    done
    STRATA_TEST_DEVICES=vulkan STRATA_TEST_KERNELS=gpu \
        chroot "$system" /build/suites/test_conformance --filter "conformance_ops/@(products|window)"
    mkdir -p "$system/src/build"
    ln -sfn /build "$system/src/build/tests"
    chroot "$system" sh /src/tests/vendors.sh --built --no-fetch --targets radv --kernels matrix_units --folder /vendors
}

arm64() {
    need_root
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    need qemu-aarch64-static qemu-user-static
    need cmake cmake
    need ninja ninja-build
    system=$folder/arm64
    if [ ! -e "$system/made" ]; then
        # The packages are unpacked but not configured, since that would run their programs.
        debootstrap --foreign --variant=minbase --arch=arm64 --include=$packages bookworm "$system" "$mirror"
        for package in "$system"/var/cache/apt/archives/*.deb; do
            dpkg-deb --fsys-tarfile "$package" | tar -C "$system" --keep-directory-symlink -xf -
        done
        # cJSON's CMake files contain absolute paths of an installed system.
        sed -i "s|\"/usr/|\"$system/usr/|g" "$system"/usr/lib/aarch64-linux-gnu/cmake/cJSON/*.cmake
        touch "$system/made"
    fi
    cat >"$folder/arm64.cmake" <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_SYSROOT $system)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L $system)
END
    run="qemu-aarch64-static -L $system"
    # shellcheck disable=SC2086 # words
    cmake -S . -B "$folder/build-arm64" $options -DCMAKE_TOOLCHAIN_FILE="$folder/arm64.cmake"
    # shellcheck disable=SC2046 # words
    cmake --build "$folder/build-arm64" --target sample_strata test_base test_op test_data threads_faults \
        $(plain_programs threads tests/threads/*_main.c) $(plain_programs replay tests/fuzz/*_fuzz.c)
    # Criterion cannot start a case in the emulator ("Could not spawn test instance"), so its suites are compiled but not run.
    $run "$folder/build-arm64/strata" train linear --device host
    $run "$folder/build-arm64/strata" train regression --device host --epochs 1
    ctest --test-dir "$folder/build-arm64" --output-on-failure --timeout 900 -R "${STRATA_PORTS_TESTS:-^replay_|^threads_}" \
        -E "threads_cluster_alone|threads_mpi"
}

# Unpacks Debian's sources of the given packages. apt-get writes its lists into $system and does not change those of this
# machine.
unpack_sources() {
    mkdir -p "$system/lists/partial" "$system/cache/archives/partial" "$system/archives" "$system/sources"
    echo "deb-src $mirror bookworm main" >"$system/sources.list"
    cat >"$system/apt.conf" <<END
Dir::Etc::SourceList "$system/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$system/lists";
Dir::Cache "$system/cache";
APT::Sandbox::User "root";
END
    (
        cd "$system/archives"
        APT_CONFIG=$system/apt.conf apt-get -qq update
        APT_CONFIG=$system/apt.conf apt-get -qq source --download-only "$@"
        for archive in *.orig.tar.*; do
            case $archive in *.asc) ;; *) tar -C "$system/sources" -xf "$archive" ;; esac
        done
    )
}

# musl does not come with the headers of the Linux kernel. Those of this machine are used, since they are the same for every C
# library.
kernel_headers() {
    mkdir -p "$system/include"
    for header in linux asm-generic; do ln -sfn "/usr/include/$header" "$system/include/$header"; done
    ln -sfn "/usr/include/$(gcc -print-multiarch)/asm" "$system/include/asm"
}

musl_libraries() {
    unpack_sources zlib cjson openssl
    kernel_headers
    (
        cd "$system"/sources/openssl-*/
        # shellcheck disable=SC2046 # words
        CC=musl-gcc ./Configure --prefix="$system/usr" --libdir=lib no-asm no-shared \
            $(printf 'no-%s ' tests module legacy engine dso async comp cms ct ocsp ts srp srtp dtls) \
            -O1 -idirafter "$system/include"
        make -s -j2 build_libs
        make -s install_dev
    )
    (
        cd "$system"/sources/zlib-*/
        CC=musl-gcc CFLAGS='-O2 -fPIC' ./configure --static --prefix="$system/usr"
        make -s -j2 libz.a
        make -s install
    )
    cmake -S "$system"/sources/cJSON-*/ -B "$system/cjson" -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_INSTALL_PREFIX="$system/usr" \
        -DCMAKE_INSTALL_LIBDIR=lib -DENABLE_CJSON_TEST=OFF -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON
    cmake --build "$system/cjson" -j2
    cmake --install "$system/cjson"
}

musl() {
    need musl-gcc musl-tools
    need gcc gcc libc6-dev
    need make make
    need perl perl
    need bzip2 bzip2
    need cmake cmake
    need ninja ninja-build
    system=$folder/musl build=$folder/build-musl
    if [ ! -e "$system/made" ]; then
        musl_libraries
        touch "$system/made"
    fi
    programs="threads_faults $(plain_programs threads tests/threads/*_main.c)"
    # Debian builds Criterion, the framework of the other suites, only for the GNU C library.
    # shellcheck disable=SC2086 # words
    cmake -S . -B "$build" $options -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_C_FLAGS="-idirafter $system/include" \
        -DCMAKE_PREFIX_PATH="$system/usr" -DOPENSSL_ROOT_DIR="$system/usr" -DOPENSSL_USE_STATIC_LIBS=ON -DSTRATA_XZ=OFF \
        -DSTRATA_PNG=OFF -DSTRATA_JPEG=OFF -DSTRATA_WEBP=OFF -DSTRATA_CURL=OFF -DSTRATA_ONNX=OFF \
        -DSTRATA_CRITERION_LIBRARY=OFF
    # shellcheck disable=SC2086 # words
    cmake --build "$build" -j2 --target sample_strata $programs
    "$build/strata" train regression --device host --save "$build/regression.strata"
    "$build/strata" evaluate "$build/regression.strata" --device host
    "$build/strata" launch -n 2 -- "$build/strata" train regression --device host --strategy multi_worker_mirrored
    echo "musl: threads_mpi is skipped: the MPI of this machine is built for the GNU C library"
    ctest --test-dir "$build" --output-on-failure --timeout 900 -R "${STRATA_PORTS_TESTS:-^threads_}" \
        -E "threads_cluster_alone|threads_mpi"
}

endian() {
    need s390x-linux-gnu-cpp cpp-s390x-linux-gnu
    if said=$(s390x-linux-gnu-cpp -Iinclude -I. core/base/tensor.c 2>&1 >/dev/null); then
        echo "ports: a big-endian compiler accepts core/base/tensor.c, which must be an error" >&2
        return 1
    fi
    echo "$said" | grep "#error" ||
        { echo "ports: the compiler rejects core/base/tensor.c for another reason: $said" >&2; return 1; }
}

$port
