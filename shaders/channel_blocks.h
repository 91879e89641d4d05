/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over the elements of a (rows, channels) tensor, for kernels that need some numbers of each channel. A
 * work-group processes blocks of `block` rows x up to 256 channels. It first writes the numbers of the block's channels
 * to local arrays of 256 elements, then it processes the block's elements. The kernel has the words rows, channels and
 * block. */

/* Use: FOR_EACH_BLOCK { BLOCK_BOUNDS FOR_EACH_CHANNEL(k, c) { ... } BARRIER; EACH_ELEMENT(i, k, ...) BARRIER; } */
#define FOR_EACH_BLOCK                                            \
    const uint across = (channels + 255u) / 256u;                 \
    const uint n_blocks = ((rows + block - 1u) / block) * across; \
    FOR_EACH_GROUP(g, n_blocks)
#define BLOCK_BOUNDS                                                                              \
    const uint first = (g - g / across * across) * 256u, width = MIN_U32(256u, channels - first); \
    const uint begin = g / across * block, end = MIN_U32(begin + block, rows);
/* Loops over the channels c of the block; k counts them from 0. */
#define FOR_EACH_CHANNEL(k, c) for (uint k = LOCAL_ID(0), c = first + k; k < width; k += LOCAL_X, c += LOCAL_X)
/* Executes `body` once for each element i of the block. The element's channel is the block's k-th. */
#define EACH_ELEMENT(i, k, body)                                              \
    if (LOCAL_X == 1u) {                                                      \
        for (uint row = begin; row < end; row++)                              \
            for (uint k = 0u; k < width; k++) {                               \
                const uint i = row * channels + first + k;                    \
                body                                                          \
            }                                                                 \
    } else {                                                                  \
        for (uint e = LOCAL_ID(0); e < (end - begin) * width; e += LOCAL_X) { \
            const uint row = e / width, k = e - row * width;                  \
            const uint i = (begin + row) * channels + first + k;              \
            body                                                              \
        }                                                                     \
    }
