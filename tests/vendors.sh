#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the kernels that the library would use on GPUs of AMD, Intel and NVIDIA by these vendors' compilers, which need none
# of the hardware. What it checks and prints: vendors/README.md.
set -u

usage() {
    cat <<'END'
usage: sh tests/vendors.sh [--targets TEXT] [--kernels TEXT] [--every | --quick] [--seconds N] [--no-fetch]
                            [--built] [--folder DIR]

  --targets TEXT   only targets whose name contains TEXT: "radv", "ptxas sm_80"
  --kernels TEXT   only kernels whose name contains TEXT
  --every          every constant of every kernel; vendors/README.md says which are compiled otherwise
  --quick          what changed since its last result, and a few kernels of each kind; minutes less
  --seconds N      start no compiler after N seconds of compiling; what was left out is printed
  --built          build/tests is built already
  --folder DIR     where compilers and results are kept, instead of build/vendors
  --no-fetch       fetch nothing: compilers that build/vendors/ does not have are left out

Compilers are fetched once, as Debian and pip packages, into build/vendors/; nothing is installed. Results are kept there too:
only kernels that changed are compiled again.
Exit codes: 0 all as expected, 1 a kernel does not compile, spills, or fits a compute unit too few times, 2 wrong usage,
77 no compiler could be had.
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

# fetch_debian STAMP PACKAGE...: unpacks them into build/vendors/root.
fetch_debian() {
    stamp=$folder/packages/$1
    shift
    [ -n "$fetch" ] && [ ! -e "$stamp" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
    (cd "$folder/packages" && apt-get download "$@" && for file in *.deb; do dpkg -x "$file" "$folder/root" || exit 1; done &&
        rm -f ./*.deb && touch "$stamp") >"$stamp.log" 2>&1 ||
        echo "vendors: apt-get could not fetch $*: $(tail -n 1 "$stamp.log")" >&2
}
fetch_pip() { # STAMP PACKAGE
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
