/// Conversion of contiguous blocks between element types, and gathering or scattering of strided ones.
#ifndef DIT_HOST_OPS_CAST_H
#define DIT_HOST_OPS_CAST_H

#include <stdbool.h>
#include <stdint.h>

/// Is there a conversion? Equal types always have one (a copy of bytes).
bool cast_is_supported(int dst_dtype, int src_dtype);
/// dst[i] = src[i] as PyTorch casts; no overlap. Only for pairs that cast_is_supported allows.
void cast_block(int dst_dtype, void *dst, int src_dtype, const void *src, int64_t count);
/// dst[i] = *(src + i * stride bytes), elements of `width` bytes; and the way back.
void cast_gather(void *dst, const char *src, int64_t stride, int width, int64_t count);
void cast_scatter(char *dst, int64_t stride, const void *src, int width, int64_t count);
/// Strided copy of same-typed elements.
void cast_move(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int width, int64_t count);

/// A transposed tile of elements of 1, 2, 4 or 8 bytes, at most CAST_TURN_SIDE a side: `inner` elements lie together in
/// dst and src_inner bytes apart in src, `outer` ones together in src and dst_outer bytes apart in dst. In copy.c.
#define CAST_TURN_SIDE 32
void cast_turn(char *dst, int64_t dst_outer, const char *src, int64_t src_inner, int width, int64_t inner,
               int64_t outer);

/// Widen to float: half, bfloat16.
void cast_half_to_float(float *restrict dst, const uint16_t *restrict src, int64_t count);
void cast_bfloat_to_float(float *restrict dst, const uint16_t *restrict src, int64_t count);

#endif
