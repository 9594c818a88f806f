/// Attention of one new token per sequence over a pool of tokens: what the functions of attention_token.c share.
#ifndef DIT_HOST_OPS_ATTENTION_TOKEN_H
#define DIT_HOST_OPS_ATTENTION_TOKEN_H

#include "token_pool.h"

/// Dense tensors in the work type. A step that has no scores of its own computes them from q and k; one without v stops
/// there.
struct token_step {
  int64_t sequences, heads, width;
  double scale;
  const int64_t *lengths;  ///< tokens of each sequence
  const int64_t *places;   ///< their rows in the pools, those of sequence i from offsets[i] on
  const int64_t *offsets;
  const struct token_pool *k, *v;  ///< or NULL
  const void *q;                   ///< (sequences, heads, width), with k
  void *scores;                    ///< (heads, score_row), with `starts` where a sequence begins; or NULL
  const int64_t *starts;
  int64_t score_row;
  const uint8_t *mask;  ///< not 0 hides a token; or NULL
  int64_t mask_sequence, mask_head, mask_key;
  void *out;  ///< (sequences, heads, width), with v
};

/// False without memory.
bool token_step_run(const struct token_step *step, bool wide);

#endif
