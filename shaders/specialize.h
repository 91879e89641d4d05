/* SPDX-License-Identifier: Apache-2.0
 *
 * Specializes a SPIR-V module: makes a smaller module for one set of constants. Internal to the Vulkan backend. */
#ifndef STRATA_SHADERS_SPECIALIZE_H
#define STRATA_SHADERS_SPECIALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces specialization constant i by values[i] and removes the blocks that no branch reaches with these values. So a
 * driver with a simple compiler need not compile them.
 *   words   the module as glslc writes it
 * Returns a module without specialization constants, which the caller frees with free(). Returns NULL if memory runs
 * out, or if the module contains something that this code does not support; the caller can use the original module
 * then. Thread: any. */
uint32_t *strata_shader_specialize(const uint32_t *words, size_t n_words, const uint32_t *values, int n_values,
                                   size_t *out_words);

/* Returns the number of instructions in the module's functions, without labels; 0 if it is not SPIR-V. */
size_t strata_shader_count_instructions(const uint32_t *words, size_t n_words);

#endif
