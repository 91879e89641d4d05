/* SPDX-License-Identifier: Apache-2.0
 *
 * A constant element of any type from two parameter words. */
#define BITS(T, low, high)  PASTE(BITS_, T)(low, high)
#define BITS_b8(low, high)  (low)
#define BITS_b16(low, high) (low)
#define BITS_b32(low, high) (low)
#define BITS_b64(low, high) ((I64(high) << 32) | I64(low))
#define NO_BITS(T)          BITS(T, 0u, 0u)
