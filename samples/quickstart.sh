#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh Debian or Ubuntu to a trained classifier: installs packages, builds into build/, lists the devices, trains
# mnist for five epochs, evaluates it, and prints the accuracy.
set -eu

usage() {
    cat <<'END'
usage: sh samples/quickstart.sh [--data DIR] [--device NAME] [more options of `strata train`]

  --data DIR      the four MNIST files (train-images-idx3-ubyte.gz, ...); without it the program draws its own digits
  --device NAME   opencl:0, vulkan:0, host, or part of a name; without it the best one is taken
  -h, --help      this text

Packages are installed with apt (as root or through sudo). The build and the model mnist.strata go to build/.
END
}

data="" device="" epochs="--epochs 5" seed="--seed 1"
n=$#
while [ "$n" -gt 0 ]; do # takes out what `strata evaluate` needs as well; the rest stays in "$@" for `strata train`
    option=$1
    shift
    n=$((n - 1))
    case $option in
    -h | --help) usage; exit 0 ;;
    --data=*) data=${option#*=} ;;
    --device=*) device=${option#*=} ;;
    --data | --device)
        [ "$n" -gt 0 ] || { echo "quickstart: $option needs a value" >&2; usage >&2; exit 2; }
        if [ "$option" = --data ]; then data=$1; else device=$1; fi
        shift
        n=$((n - 1))
        ;;
    *)
        case $option in --epochs | --epochs=*) epochs="" ;; --seed | --seed=*) seed="" ;; esac
        set -- "$@" "$option"
        ;;
    esac
done

if [ -n "$data" ]; then
    folder=$(cd "$data" 2>/dev/null && pwd) || { echo "quickstart: --data: no folder that can be read at '$data'" >&2; exit 3; }
    data=$folder # from here on the current folder is another
fi
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "packages"
sh samples/install-packages.sh build run
step "build"
generator="-G Ninja"
if [ -f build/CMakeCache.txt ]; then generator=""; fi # a folder configured earlier keeps its own
# shellcheck disable=SC2086 # two words or none
cmake -S . -B build $generator -DCMAKE_BUILD_TYPE=Release -DSTRATA_TESTS=OFF
cmake --build build
step "devices"
build/strata devices
step "train"
# shellcheck disable=SC2086 # two words or none
build/strata train mnist $epochs $seed ${data:+--data "$data"} ${device:+--device "$device"} "$@" --save build/mnist.strata
step "evaluate"
build/strata evaluate build/mnist.strata ${data:+--data "$data"} ${device:+--device "$device"}
