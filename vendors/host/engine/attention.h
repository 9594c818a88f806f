/// Attention without the matrix of all scores: softmax(scale Q K^T) V in tiles, with running maxima and sums.
///
/// Rows of queries, keys and values have neighbouring elements; all other strides are free. float or double. One task
/// per sequence and head (per key head in the gradient), so results do not depend on the number of threads.
#ifndef DIT_HOST_ENGINE_ATTENTION_H
#define DIT_HOST_ENGINE_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

/// (sequence, row, head, element), strides in elements; the stride of elements is 1.
struct attention_tensor {
  void *data;
  int64_t sequence, row, head;
};

struct attention_shape {
  int64_t sequences, heads, key_heads, width;
  int64_t queries, keys;  ///< rows of a sequence; with ends, the largest
  /// Not NULL: rows of all sequences follow each other, those of sequence i from ends[i] to ends[i + 1].
  const int64_t *query_ends, *key_ends;
  /// Not NULL: sequence i has lengths[i] rows; with `starts` they begin at row starts[i] of all rows.
  const int64_t *starts, *lengths;
  double scale;
  int64_t left, right;  ///< keys seen before and after the query's own position; -1: all. The last query's own is the
                        ///< last key
  const float *slopes;  ///< of a bias -slope * distance, or NULL
  int64_t slope_sequence, slope_head;  ///< strides
  const uint8_t *mask;                 ///< not 0: the query does not see the key; or NULL
  int64_t mask_strides[4];             ///< of sequence, head, query, key
  double dropout;                      ///< probability of a 0
  uint64_t seed, offset;               ///< element e of (sequence, head, query, key) takes word e of the numbers
  bool wide;
};

/// out = attention; lse (sequences, heads, queries) gets the logarithm of the sums. False without memory.
bool attention_forward(const struct attention_shape *shape, const struct attention_tensor *out, void *lse,
                       const struct attention_tensor *q, const struct attention_tensor *k,
                       const struct attention_tensor *v);
/// The gradients are set to 0 first.
bool attention_backward(const struct attention_shape *shape, const struct attention_tensor *grad_q,
                        const struct attention_tensor *grad_k, const struct attention_tensor *grad_v,
                        const struct attention_tensor *grad, const struct attention_tensor *q,
                        const struct attention_tensor *k, const struct attention_tensor *v,
                        const struct attention_tensor *out, const void *lse);

#endif
