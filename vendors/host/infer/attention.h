/// Attention over packed keys or a paged cache: what the three operators share.
#ifndef DIT_HOST_INFER_ATTENTION_H
#define DIT_HOST_INFER_ATTENTION_H

#include "dit/tensor.h"

/// Keys or values: row of token j of a sequence is found by its block, or lies packed.
struct attention_rows {
  const struct dit_tensor_view *view;
  int64_t block, row, head;  ///< strides, in elements; packed: block 0
  int dtype, size;           ///< of an element; bytes that mean int8 are DIT_DTYPE_I8
  float scale, zero;         ///< of int8: (q + zero) * scale; else 1, 0
};

struct attention_call {
  const struct dit_tensor_view *query, *out;
  struct attention_rows k, v;
  const int64_t *starts;   ///< sequences + 1: where the queries of a sequence begin
  const int64_t *lengths;  ///< keys of a sequence
  const int64_t *blocks;   ///< numbers of the blocks, `table_row` for each sequence; NULL: packed at `starts`
  int64_t table_row, block_size;
  int64_t sequences, heads, key_heads, width, value_width;
  bool causal;
  int64_t window;  ///< keys that a query sees, its own included; <= 0: all
  double scale, softcap;
  const float *slopes, *sinks;  ///< one for each head, or NULL
};

/// False without memory.
bool attention_run(const struct attention_call *call);

#endif
