#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The training step of four replicas, whose gradients are summed by all_reduce inside of the program. jaxlib runs it.
set -u
strata=$STRATA_BUILD_DIR/strata
python=${STRATA_TEST_JAX_PYTHON:-}
[ -n "$python" ] || { echo "skipped: jaxlib is not here: STRATA_TEST_JAX_PYTHON names a Python that has it"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0
for sample in linear regression mnist mnist_cnn cifar10; do
    "$strata" compile $sample --batch 8 --emit stablehlo "$work/one" || exit 1
    "$strata" compile $sample --batch 8 --strategy tpu --target v5e:2x2 --emit stablehlo "$work/four" || exit 1
    echo "$sample"
    "$python" "$STRATA_SOURCE_DIR/tests/pjrt/replicas.py" "$work/one" "$work/four" || code=1
done
exit $code
