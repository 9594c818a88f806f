/// Attention calls as the flash attention functions and their older names (MultiHeadAttention) share them; attention.c
/// says what they compute.
#ifndef DIT_HOST_OPS_FLASH_H
#define DIT_HOST_OPS_FLASH_H

#include "frame.h"

/// The parameters' names where functions differ, for messages.
struct flash_names {
  const char *out, *grad, *key_ends;
};

/// The arguments that all calls have.
struct flash_arguments {
  const struct flash_names *names;
  diopiConstTensorHandle_t q, k, v, alibi_slopes, cum_q, cum_k;
  diopiGeneratorHandle_t generator;
  double dropout, scale;
  int64_t max_q, max_k, left, right;
  bool causal, packed;  ///< packed: VarLen
  // of the customized functions alone
  bool customized;
  diopiConstTensorHandle_t mask;  ///< true hides; or NULL
  const char *layout;             ///< "BSH" and so on; NULL: BSND
  int64_t heads;                  ///< of q, for layouts that join heads and width
  diopiSize_t list_q, list_k;     ///< packed: ends of sequences, instead of cum_q and cum_k
  const uint64_t *seed;           ///< backward with dropout: seed and offset of the forward call
};

/// What a backward call has besides.
struct flash_gradients {
  diopiTensorHandle_t grad_q, grad_k, grad_v;
  diopiConstTensorHandle_t grad_output, out, lse;
};

diopiError_t flash_forward(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                           diopiTensorHandle_t lse, const struct flash_arguments *arguments);
diopiError_t flash_backward(const char *function, diopiContextHandle_t ctx, const struct flash_gradients *gradients,
                            const struct flash_arguments *arguments);

#endif
