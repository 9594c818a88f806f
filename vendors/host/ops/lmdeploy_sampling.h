/// Drawing the next token of each sequence, after lmdeploy_sampling.c has checked the arguments.
#ifndef DIT_HOST_OPS_LMDEPLOY_SAMPLING_H
#define DIT_HOST_OPS_LMDEPLOY_SAMPLING_H

#include "frame.h"

struct sampling_call {
  struct frame *frame;
  struct dit_tensor_view ids, logits, end_ids, finished, lengths, top_k, top_p, skip, cum, own;
  int64_t step, batch, vocab;
  diopiGeneratorHandle_t *generators;
  bool by_k;
};

/// Waits for the stream.
diopiError_t sampling_run(struct sampling_call *call);

#endif
