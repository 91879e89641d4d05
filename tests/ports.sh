#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds Strata for another processor or C library on Debian, and runs there what needs no driver.
set -eu

usage() {
    cat <<'END'
usage: sh tests/ports.sh i386|arm64|musl [FOLDER]

  i386    a 32-bit Debian in FOLDER/i386 (debootstrap, chroot): builds all of it there and runs the host's tests
  arm64   cross-compiles with the libraries of an arm64 Debian in FOLDER/arm64, and runs the command in qemu-user
  musl    compiles each source of the library and the command against musl's headers; nothing is linked or run, as Debian has
          OpenSSL, zlib and cJSON for the GNU C library alone

FOLDER is build/ports unless it is given; what is there is used again. It takes 1 GB. i386 and arm64 need root, debootstrap and
the network. A slow machine needs half an hour for each, so continuous integration runs none of them.
Environment: STRATA_PORTS_MIRROR  the archive of Debian packages (http://deb.debian.org/debian)
             STRATA_PORTS_TESTS   a regular expression: which tests of ctest run on i386
END
}

case "${1:-}" in
i386 | arm64 | musl) port=$1 ;;
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

need() { # PROGRAM PACKAGE...
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

i386() {
    need_root
    system=$folder/i386
    if [ ! -e "$system/made" ]; then
        debootstrap --variant=minbase --arch=i386 --include=$packages bookworm "$system" "$mirror"
        touch "$system/made"
    fi
    mkdir -p "$system/src" "$system/build"
    git ls-files -z | tar --null -T - -cf - | tar -C "$system/src" -xf -
    for mount in proc dev; do
        mountpoint -q "$system/$mount" || mount --bind "/$mount" "$system/$mount"
    done
    trap 'umount "$system/proc" "$system/dev"' EXIT
    commands='(tune|usage|train|own_data|checkpoint|validation|model_file|samples)_test'
    tests=${STRATA_PORTS_TESTS:-^test_|^replay_|^threads_|$commands}
    # shellcheck disable=SC2086 # words
    chroot "$system" cmake -S /src -B /build $options
    chroot "$system" cmake --build /build
    chroot "$system" ctest --test-dir /build --output-on-failure --timeout 900 -R "$tests"
}

arm64() {
    need_root
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    need qemu-aarch64-static qemu-user-static
    need cmake cmake
    need ninja ninja-build
    system=$folder/arm64
    if [ ! -e "$system/made" ]; then
        # The packages are unpacked and not set up, which no program of theirs needs to run for.
        debootstrap --foreign --variant=minbase --arch=arm64 --include=$packages bookworm "$system" "$mirror"
        for package in "$system"/var/cache/apt/archives/*.deb; do
            dpkg-deb --fsys-tarfile "$package" | tar -C "$system" --keep-directory-symlink -xf -
        done
        # cJSON's CMake files name its place on an installed system.
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
    cmake --build "$folder/build-arm64" --target sample_strata test_base test_op test_data
    # Criterion does not get a case started in the emulator ("Could not spawn test instance"): the suites are compiled alone.
    $run "$folder/build-arm64/strata" train linear --device host
    $run "$folder/build-arm64/strata" train regression --device host --epochs 1
}

musl() {
    need musl-gcc musl-tools
    include=$folder/musl-include failed=0 n=0
    mkdir -p "$include"
    for header in zlib.h zconf.h cjson lzma lzma.h png.h pngconf.h pnglibconf.h linux asm-generic; do
        [ ! -e "/usr/include/$header" ] || ln -sfn "/usr/include/$header" "$include/$header"
    done
    for part in openssl asm; do # those of one processor and those of all
        mkdir -p "$include/$part"
        for from in "/usr/include/$part" "/usr/include/$(gcc -print-multiarch)/$part"; do
            [ ! -d "$from" ] || cp -rL "$from/." "$include/$part/"
        done
    done
    generated=$(find build -name sample_models.h -path '*generated*' 2>/dev/null | head -n 1)
    [ -n "$generated" ] || { echo "ports: build Strata first; the command's sources include what the build makes" >&2; exit 3; }
    for source in $(git ls-files 'core/*.c' 'cluster/*.c' 'strategies/*.c' 'backends/*.c' 'samples/strata/*.c' |
        grep -vE '/(opencl|vulkan)/'); do
        n=$((n + 1))
        musl-gcc -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -DSTRATA_WITH_OPENCL=0 -DSTRATA_WITH_VULKAN=0 \
            -DSTRATA_WITH_CLBLAST=0 -DSTRATA_WITH_XZ=1 -DSTRATA_WITH_PNG=1 -DSTRATA_WITH_JPEG=0 -DSTRATA_WITH_WEBP=0 \
            -DSTRATA_WITH_CURL=0 -Iinclude -I. -I"$(dirname "$generated")" -isystem "$include" "$source" ||
            failed=$((failed + 1))
    done
    echo "musl: $n sources, $failed failed"
    [ $failed = 0 ]
}

$port
