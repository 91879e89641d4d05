# SPDX-License-Identifier: Apache-2.0
#
# Writes pipeline.txt: the elements that tf.data returns for stages which Strata has as well. Each line contains a pipeline:
# its name, and then its elements, separated by '|'. The numbers of a batch are separated by spaces, the rows of a padded
# batch by '/'. Needs TensorFlow 2: python3 pipeline.py > pipeline.txt
import numpy as np
import tensorflow as tf

D = tf.data.Dataset


def ragged(n):
    return D.from_generator(lambda: (np.arange(i, dtype=np.int32) + 1 for i in range(n)), output_signature=tf.TensorSpec([None], tf.int32))


def text(value):
    value = np.asarray(value)
    if value.ndim == 2:
        return "/".join(text(row) for row in value)
    return " ".join(str(int(v)) for v in value.reshape(-1))


def inner(length):
    return lambda x: D.range(10 * x, 10 * x + length)


def growing(x):
    return D.range(10 * x, 10 * x + x)


CASES = {
    "batch": D.range(10).batch(4),
    "batch_drop": D.range(10).batch(4, drop_remainder=True),
    "batch_whole": D.range(8).batch(4),
    "batch_batch": D.range(9).batch(2).batch(2),
    "repeat": D.range(3).repeat(3),
    "repeat_batch": D.range(5).repeat(2).batch(3),
    "batch_repeat": D.range(5).batch(3).repeat(2),
    "take": D.range(10).take(3),
    "take_more": D.range(3).take(10),
    "take_none": D.range(3).take(0),
    "skip": D.range(10).skip(7),
    "skip_more": D.range(3).skip(5),
    "skip_take": D.range(10).skip(2).take(3),
    "repeat_take": D.range(3).repeat().take(8),
    "repeat_skip_take": D.range(3).repeat().skip(7).take(4),
    "shard_0": D.range(10).shard(3, 0),
    "shard_1": D.range(10).shard(3, 1),
    "shard_2": D.range(10).shard(3, 2),
    "shard_beyond": D.range(2).shard(4, 3),
    "shard_batch": D.range(10).shard(2, 1).batch(2),
    "batch_shard": D.range(10).batch(2).shard(2, 1),
    "filter": D.range(10).filter(lambda x: x % 3 == 1),
    "filter_batch": D.range(10).filter(lambda x: x % 2 == 0).batch(2),
    "map": D.range(6).map(lambda x: x * x),
    "map_parallel": D.range(40).map(lambda x: x * x, num_parallel_calls=4, deterministic=True),
    "map_batch_map": D.range(6).map(lambda x: x * x).batch(4).map(lambda x: x * x),
    "cache_repeat": D.range(4).cache().repeat(2),
    "prefetch": D.range(6).prefetch(2),
    "padded": ragged(6).padded_batch(4),
    "padded_to_5": ragged(5).padded_batch(3, padded_shapes=[5]),
    "padded_with_9": ragged(4).padded_batch(3, padding_values=tf.constant(9, tf.int32)),
    "padded_drop": ragged(5).padded_batch(2, drop_remainder=True),
    "interleave_1_1": D.range(1, 4).interleave(inner(4), cycle_length=1, block_length=1),
    "interleave_2_1": D.range(1, 6).interleave(inner(3), cycle_length=2, block_length=1),
    "interleave_2_2": D.range(1, 5).interleave(inner(5), cycle_length=2, block_length=2),
    "interleave_3_4": D.range(1, 6).interleave(inner(6), cycle_length=3, block_length=4),
    "interleave_growing": D.range(0, 6).interleave(growing, cycle_length=3, block_length=2),
    "interleave_wide": D.range(1, 3).interleave(inner(3), cycle_length=7, block_length=1),
}

for name, dataset in CASES.items():
    print(name + ":" + "|".join(text(v) for v in dataset.as_numpy_iterator()))
print("zip:" + "|".join(text(v) for v in D.zip((D.range(5), D.range(10, 13))).as_numpy_iterator()))
