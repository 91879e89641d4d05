/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the pooling kernels. A work-item owns a pixel of the result and CHANNELS neighbouring channels; CHANNELS
 * divides the number of channels. The window at output (oh, ow) covers rows oh stride_h - pad_h .. + window_h - 1 of
 * the input, limited to 0 .. in_h - 1. */
/* clang-format off */
#define POOL_WORDS(X)                                                                                                     \
    X(uint, n) X(uint, in_h) X(uint, in_w) X(uint, out_h) X(uint, out_w) X(uint, channels) X(uint, window_h)              \
    X(uint, window_w) X(uint, stride_h) X(uint, stride_w) X(uint, pad_h) X(uint, pad_w)
/* clang-format on */

/* Declares pixel (image, row, column) and channels first_c .. of work-item i, for a result of `height` x `width`
 * pixels. */
#define POOL_ITEM(i, height, width)                                           \
    const uint runs = channels / CHANNELS, pixel = i / runs;                  \
    const uint first_c = (i - pixel * runs) * CHANNELS, line = pixel / width; \
    const uint column = pixel - line * width, image = line / height, row = line - image * height;

/* First row (or column) of the window at output o, and one past its last. The comparison is signed, because compilers
 * would turn an unsigned one into a saturating subtraction, which Oclgrind 21.10 does not support. */
#define WINDOW_BEGIN(o, stride, pad)          (I32((o) * (stride)) > I32(pad) ? (o) * (stride) - (pad) : 0u)
#define WINDOW_END(o, stride, pad, size, lim) MIN_U32((o) * (stride) + (size) - (pad), (lim))

/* Outputs whose window covers row or column `at`: from the first to one past the last. */
#define COVER_BEGIN(at, stride, pad, size)    ((at) + (pad) >= (size) ? ((at) + (pad) - (size)) / (stride) + 1u : 0u)
#define COVER_END(at, stride, pad, n_outputs) MIN_U32(((at) + (pad)) / (stride) + 1u, (n_outputs))
