/* SPDX-License-Identifier: Apache-2.0
 *
 * INDEX reads element j of a buffer of indices, i32 or i64. It is `limit` (at most 2^31) if the index is not in 0 ..
 * limit-1. */
#define INDEX(U, indices, j, limit) PASTE(checked_, U)(LOAD(U, indices, j), limit)
uint checked_i32(int index, uint limit) {
    return index >= 0 && U32(index) < limit ? U32(index) : limit;
}
uint checked_i64(INT64 index, uint limit) {
    return index >= I64(0) && index < I64(limit) ? U32(index) : limit;
}
