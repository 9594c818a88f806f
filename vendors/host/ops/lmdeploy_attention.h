/// The work of lmdeploy's fused attention, after lmdeploy_attention.c has checked the arguments.
#ifndef DIT_HOST_OPS_LMDEPLOY_ATTENTION_H
#define DIT_HOST_OPS_LMDEPLOY_ATTENTION_H

#include "frame.h"

struct fused_call {
  struct frame *frame;
  struct dit_tensor_view x, weight, bias, keys, values, lengths, finished, padding;
  int64_t batch, layer, heads, key_heads, width, longest, max_q, max_k, rotary;
  double theta;
  bool decode;
};

/// Waits for the stream.
diopiError_t fused_attention_run(struct fused_call *call);

#endif
