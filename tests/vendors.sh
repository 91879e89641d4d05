#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the kernels that the library would use on GPUs of AMD, Intel and NVIDIA, with these vendors' compilers, which do not
# need the hardware. vendors/README.md explains what it checks and prints.
set -u

usage() {
    cat <<'END'
usage: sh tests/vendors.sh [--targets TEXT] [--kernels TEXT] [--every | --quick] [--seconds N] [--no-fetch]
                            [--built] [--folder DIR]

  --targets TEXT   only targets whose name contains TEXT: "radv", "ptxas sm_80"
  --kernels TEXT   only kernels whose name contains TEXT
  --every          all values of the constants of every kernel; vendors/README.md explains the default selection
  --quick          only kernels that changed since their last result, and a few kernels of each kind; it saves minutes
  --seconds N      start no compiler after N seconds; the kernels that are left out are printed
  --built          do not build build/tests, which is up to date
  --folder DIR     keep compilers and results in DIR instead of build/vendors
  --no-fetch       download nothing; targets whose compiler is not in the folder are left out

Compilers are downloaded once, as Debian and pip packages, into the folder; nothing is installed. Results are kept there too, so
that only changed kernels are compiled again.
Exit codes: 0 success; 1 a kernel does not compile, spills registers, or too few of its work-groups fit a compute unit; 2 wrong
usage; 77 no compiler is available.
END
}

fetch=yes
kept="" built="" folder=""
while [ $# -gt 0 ]; do
    case $1 in
    --targets | --kernels | --seconds | --folder)
        [ $# -gt 1 ] || { echo "vendors.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --targets) targets=$2 ;;
        --kernels) kernels=$2 ;;
        --seconds) seconds=$2 ;;
        --folder) folder=$2 ;;
        esac
        shift
        ;;
    --every | --quick) kept="$kept $1" ;;
    --built) built=yes ;;
    --no-fetch) fetch="" ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

cd "$(dirname "$0")/.." || exit 1
mkdir -p "${folder:=$PWD/build/vendors}" && folder=$(cd "$folder" && pwd) || exit 1
mkdir -p "$folder/packages" "$folder/kernels" || exit 1

# fetch_debian NAME PACKAGE...: downloads Debian packages and unpacks them into the folder root of $folder. The file
# packages/NAME records that this is done.
fetch_debian() {
    stamp=$folder/packages/$1
    shift
    [ -n "$fetch" ] && [ ! -e "$stamp" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
    (cd "$folder/packages" && apt-get download "$@" && for file in *.deb; do dpkg -x "$file" "$folder/root" || exit 1; done &&
        rm -f ./*.deb && touch "$stamp") >"$stamp.log" 2>&1 ||
        echo "vendors: apt-get could not fetch $*: $(tail -n 1 "$stamp.log")" >&2
}
fetch_pip() { # NAME PACKAGE: does the same with a pip package
    [ -n "$fetch" ] && [ ! -e "$folder/packages/$1" ] || return 0
    (python3 -m pip download -q --no-deps -d "$folder/packages" "$2" &&
        python3 -m zipfile -e "$folder/packages/"*.whl "$folder/root" && rm -f "$folder/packages/"*.whl &&
        touch "$folder/packages/$1") >"$folder/packages/$1.log" 2>&1 ||
        echo "vendors: pip could not fetch $2: $(tail -n 1 "$folder/packages/$1.log")" >&2
}
fetch_debian clang clang-15 libclang-common-15-dev libclang-cpp15 libllvm15 libclc-15 libclc-15-dev rocm-device-libs
fetch_debian ocloc intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libclang-cpp14 libllvm14 \
    libllvmspirvlib14
fetch_pip ptxas nvidia-cuda-nvcc-cu12

log=$folder/build.log
build() { cmake --preset tests && cmake --build --preset tests --target vendors_kernels vendors_radv; }
if [ -z "$built" ] && ! build >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "vendors.sh: the build failed (a build without OpenCL or Vulkan has no kernels to compile)" >&2
    exit 1
fi
build/tests/suites/vendors_kernels "$folder/kernels" samples/*/*.json >"$folder/kernels.jsonl" || exit 1
exec python3 tests/vendors/vendors.py "$folder" --targets "${targets:-}" --kernels "${kernels:-}" \
    --seconds "${seconds:-inf}" $kept
