#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A residual network and a small transformer that PyTorch itself exports: the same predictions here, trained on, and back.
#
# torch is that of the system's Python, or Debian's package python3-torch with all that it needs, which is downloaded (140 MB)
# and unpacked into build/torch without being installed. With neither the test is skipped.
set -u
work=$STRATA_BUILD_DIR/pytorch-test
torch=$STRATA_SOURCE_DIR/build/torch
modules="numpy"
. "$(dirname "$0")/python.sh"
said=$("$STRATA_BUILD_DIR/strata" convert none.onnx none.strata 2>&1)
if echo "$said" | grep -q 'this build of Strata has no ONNX'; then
    echo "skipped: this build has no ONNX (libprotobuf-c-dev, protobuf-c-compiler)"
    exit 77
fi

# Debian's Python, for which its packages are.
libraries=$torch/root/usr/lib/$(uname -m)-linux-gnu
with_packages() {
    env LD_LIBRARY_PATH="$libraries:$torch/root/usr/lib:$libraries/blas:$libraries/lapack" \
        PYTHONPATH="$torch/root/usr/lib/python3/dist-packages" /usr/bin/python3 "$@"
}
with_system() {
    python3 "$@"
}
fetch() {
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    rm -rf "$torch"
    mkdir -p "$torch/archives/partial" "$torch/root"
    timeout 240 apt-get install -d -y --no-install-recommends -o Dir::Cache::archives="$torch/archives" \
        -o Debug::NoLocking=true python3-torch python3-numpy >"$torch/log" 2>&1 || return 1
    for package in "$torch"/archives/*.deb; do dpkg -x "$package" "$torch/root" || return 1; done
    rm -rf "$torch/archives"
    touch "$torch/complete"
}
if with_system -c 'import numpy, torch' 2>/dev/null; then
    run=with_system
elif [ -e "$torch/complete" ] || fetch; then
    run=with_packages
else
    echo "skipped: Python has no torch, and Debian's python3-torch could not be fetched"
    exit 77
fi
if ! $run -c 'import numpy, torch' 2>"$torch/log"; then
    echo "skipped: torch does not start: $(tail -n 1 "$torch/log")"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
$run "$STRATA_SOURCE_DIR/tests/interchange/torch_export.py" "$work" || exit 1
LD_PRELOAD="$runtime" exec "$python" "$STRATA_SOURCE_DIR/tests/interchange/pytorch.py" "$work"
