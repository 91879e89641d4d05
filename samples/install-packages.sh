#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian or Ubuntu packages that Strata needs: sh samples/install-packages.sh build run test
#   build   compiler, CMake, headers, the SPIR-V tools
#   run     OpenCL and Vulkan on the CPU (PoCL, lavapipe); a machine with a vendor's driver uses that too
#   test    Criterion, validation layers, Oclgrind, clang and its tools, numpy, Open MPI, MPICH, ccache
# Does nothing, quickly, when all is there. Exit codes: 0 all there, 1 something required is missing and could not be installed.
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libcjson-dev zlib1g-dev libssl-dev"
build_optional="ocl-icd-opencl-dev libvulkan-dev glslc spirv-tools libclblast-dev liblzma-dev libpng-dev libcurl4-openssl-dev"
build_optional="$build_optional libturbojpeg0-dev libwebp-dev libgif-dev libtiff-dev libprotobuf-c-dev protobuf-c-compiler"
run=""
run_optional="pocl-opencl-icd mesa-vulkan-drivers libvulkan1 ocl-icd-libopencl1 libclblast1"
test="libcriterion-dev g++ git python3"
test_optional="vulkan-validationlayers oclgrind clang clang-format python3-numpy python3-venv openmpi-bin libopenmpi3 mpich"
test_optional="$test_optional libhdf5-dev python3-setuptools python3-wheel dpkg-dev file groff-base ccache locales"
test_optional="$test_optional libclc-15 libllvmspirvlib15 libclang-cpp15"

required="" optional=""
for set in "$@"; do
    case $set in
    build) required="$required $build" optional="$optional $build_optional" ;;
    run) required="$required $run" optional="$optional $run_optional" ;;
    test) required="$required $test" optional="$optional $test_optional" ;;
    *) echo "usage: sh $0 build|run|test ...   (unknown set: $set)" >&2; exit 2 ;;
    esac
done

missing_of() {
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s ' "$package"
    done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "install-packages: no apt here; by their Debian names Strata needs:$required; and where there are such:$optional" >&2
    exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then as_root=sudo; fi
install() { # packages...; asks the archive for its lists only when something is missing
    if [ -n "$as_root" ] && ! command -v sudo >/dev/null; then
        echo "install-packages: not root and no sudo; as root run: apt-get install $*" >&2
        return 1
    fi
    if [ -z "${lists_fresh:-}" ]; then
        $as_root apt-get update -qq >&2 ||
            echo "install-packages: apt-get update failed (no network?); trying with older lists" >&2
        lists_fresh=1
    fi
    echo "install-packages: installing $*" >&2
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" </dev/null >&2
}

# shellcheck disable=SC2086 # lists of words
missing=$(missing_of $required)
# shellcheck disable=SC2086
if [ -n "$missing" ] && ! install $missing; then
    echo "install-packages: could not install: $missing" >&2
    echo "  The next step needs them. Check the network and the sources of apt, or install them by hand." >&2
    exit 1
fi

# What is missing from here on costs a backend or a test, which the build and the tests then say.
# shellcheck disable=SC2086
missing=$(missing_of $optional)
# shellcheck disable=SC2086
if [ -n "$missing" ] && ! install $missing; then
    for package in $missing; do
        install "$package" || echo "install-packages: went on without $package" >&2
    done
fi

# clang's sanitizers and libFuzzer are in a package that is named after clang's version.
case " $* " in *" test "*)
    if command -v clang >/dev/null; then
        runtime=libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev
        if [ -n "$(missing_of "$runtime")" ] && [ -n "$(apt-cache policy "$runtime" 2>/dev/null)" ]; then
            install "$runtime" || echo "install-packages: went on without $runtime" >&2
        fi
    fi
    ;;
esac
