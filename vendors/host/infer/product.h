/// Products of a few or many rows with weights that are widened tile by tile: c = a @ w^T.
#ifndef DIT_HOST_INFER_PRODUCT_H
#define DIT_HOST_INFER_PRODUCT_H

#include <stdint.h>

#define PRODUCT_TILE 32  ///< outputs of a tile

/// c (rows x count) = a (rows x depth) @ w^T (count x depth), floats without gaps; stays in the calling thread when it
/// is called inside of a parallel loop.
void infer_multiply(float *c, const float *a, const float *w, int64_t rows, int64_t count, int64_t depth);

/// out = silu(gate) * up (activation.c).
void infer_gate_row(float *out, const float *gate, const float *up, int64_t count);

#endif
