/// How every reduction begins: its arguments as views, the dimensions as a mask, the checks they share.
#ifndef DIT_HOST_OPS_REDUCE_BEGIN_H
#define DIT_HOST_OPS_REDUCE_BEGIN_H

#include "frame.h"

/// Outputs of a reduction share no memory with its input.
static inline diopiError_t check_out(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                                     const struct dit_tensor_view *in) {
  return frame_check_output(frame, name, out, (const struct dit_tensor_view *[]){in}, 1, false);
}

static inline bool is_empty_fold(const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  return in->numel == 0 && out->numel > 0;
}

struct reduction {
  struct frame frame;
  const char *out_name, *in_name;  ///< of the parameters, for messages
  struct dit_tensor_view out, in;
  uint32_t mask;
};

static inline diopiError_t begin(struct reduction *r, const char *function, diopiContextHandle_t ctx,
                                 diopiTensorHandle_t out, diopiConstTensorHandle_t input, diopiSize_t dim,
                                 uint64_t dtypes) {
  FRAME_TRY(frame_begin(&r->frame, function, ctx));
  FRAME_TRY(frame_take(&r->frame, r->out_name, out, &r->out));
  FRAME_TRY(frame_take(&r->frame, r->in_name, input, &r->in));
  if (!frame_has_dtype(dtypes, r->in.dtype)) {
    return frame_fail_dtype(&r->frame, r->in_name, r->in.dtype);
  }
  return frame_get_mask(&r->frame, "dim", dim, r->in.ndim, true, &r->mask);
}

/// Over a list of dimensions, and over one or all (`dim` NULL); parameters carry their own names.
#define BEGIN_DIMS(r, function, ctx, out, input, dim, dtypes) \
  FRAME_TRY(((r)->out_name = #out, (r)->in_name = #input, begin(r, function, ctx, out, input, dim, dtypes)))
#define BEGIN_DIM(r, function, ctx, out, input, dim, dtypes) \
  BEGIN_DIMS(r, function, ctx, out, input, ((diopiSize_t){dim, (dim) != NULL}), dtypes)

static inline diopiError_t check_dtype(struct reduction *r, bool right) {
  return right ? diopiSuccess : frame_fail_dtype(&r->frame, r->out_name, r->out.dtype);
}

#define IS(view, set) frame_has_dtype(set, (view).dtype)

#endif
