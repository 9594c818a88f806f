/// Products of row-major matrices of a work type, by the engine's best code.
#ifndef DIT_HOST_MMCV_PRODUCT_H
#define DIT_HOST_MMCV_PRODUCT_H

#include "call.h"

/// c (m, n) = a @ b; a (m, k) or, turned, (k, m); b (k, n) or, turned, (n, k). Outside of parallel loops.
void product_multiply(int dtype, int64_t m, int64_t n, int64_t k, const void *a, bool turn_a, const void *b,
                      bool turn_b, void *c);

#endif
