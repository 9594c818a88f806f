/// A tensor put together of pieces of another one, line by line: pad, flip and roll of lines that lie dense in memory.
#ifndef DIT_HOST_ENGINE_PAD_H
#define DIT_HOST_ENGINE_PAD_H

#include <stdbool.h>

#include "dit/error.h"
#include "dit/tensor.h"

/// Elements [to, to + count) of the result are those of the input from `from` on, in steps of `step`.
struct piece {
  int64_t to, from, count, step;
};
/// Along each dimension; they do not overlap.
struct pieces {
  int count[DIT_MAX_DIMS];
  struct piece piece[DIT_MAX_DIMS][3];
};

/// Can pad_lines do it? The elements of the last dimension are neighbours on both sides.
bool pad_has_lines(const struct dit_tensor_view *out, const struct dit_tensor_view *in);
/// Every element of `out` once: the pieces, and `element` (of out's dtype) where there are none. On the stream.
enum dit_status pad_lines(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          const struct pieces *pieces, const void *element, struct dit_error *err);

#endif
