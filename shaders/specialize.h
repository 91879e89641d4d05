/* SPDX-License-Identifier: Apache-2.0
 *
 * A SPIR-V module for one set of constants, smaller than the one for all of them. Internal to the Vulkan backend. */
#ifndef STRATA_SHADERS_SPECIALIZE_H
#define STRATA_SHADERS_SPECIALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gives specialization constant i the value values[i], for good, and leaves out the blocks that no branch reaches then. So a
 * driver whose compiler is simple never sees them.
 *   words   the module, as glslc writes it
 * Returns the module, which has no specialization constants any more, for free(); NULL where memory runs out or the module has
 * something that this code does not know: the module itself is right then, too, as it was. Thread: any. */
uint32_t *strata_shader_specialize(const uint32_t *words, size_t n_words, const uint32_t *values, int n_values,
                                   size_t *out_words);

/* Instructions of its functions, without labels; 0: it is not SPIR-V. */
size_t strata_shader_count_instructions(const uint32_t *words, size_t n_words);

#endif
