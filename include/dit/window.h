/// Windows of convolution and pooling along one dimension.
#ifndef DIT_WINDOW_H
#define DIT_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// `ceil`: a last window may reach beyond the padding when it begins inside.
struct dit_window {
  int64_t size, kernel, stride, padding, dilation;
  bool ceil;
};
/// Positions of the window: (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1; 0 when none fits.
DIT_API int64_t dit_window_count(const struct dit_window *window);
/// The size that a transposed convolution gives: (size - 1) stride - 2 padding + dilation (kernel - 1) + extra + 1; at
/// least 0.
DIT_API int64_t dit_window_get_transposed(const struct dit_window *window, int64_t extra);

DIT_EXTERN_C_END

#endif
