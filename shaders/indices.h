/* SPDX-License-Identifier: Apache-2.0
 *
 * Indices from a buffer of i32 or i64: element j, or `limit` where it is not in 0 .. limit-1 (limit at most 2^31). */
#define INDEX(U, indices, j, limit) PASTE(checked_, U)(LOAD(U, indices, j), limit)
uint checked_i32(int index, uint limit) {
    return index >= 0 && U32(index) < limit ? U32(index) : limit;
}
uint checked_i64(INT64 index, uint limit) {
    return index >= I64(0) && index < I64(limit) ? U32(index) : limit;
}
