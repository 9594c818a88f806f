/// RoiAlign on the host (see roi_align.c): regions side by side, channels side by side in the gradient, where regions
/// of one image may meet.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/scratch.h"
#include "fail.h"
#include "roi_align.h"

struct roi_run {
  const struct roi_align *call;
  void *images, *bins;
  const void *rois;
  atomic_bool failed;
};

#define REAL float
#define NAME(x) x##_f32
#define CEIL ceilf
#define FABS fabsf
#include "roi_align_loops.h"
#define REAL double
#define NAME(x) x##_f64
#define CEIL ceil
#define FABS fabs
#include "roi_align_loops.h"

static diopiError_t work(void *context) {
  struct roi_align *call = context;
  const int type = dense_get_work(call->input.dtype);
  const bool wide = type == DIT_DTYPE_F64;
  struct dense out = {0}, input = {0}, rois = {0};
  int64_t bad = -1;
  bool valid = true;
  bool done = dense_read(&input, &call->input, type) && dense_read(&rois, &call->rois, type) &&
              dense_reserve(&out, &call->out, type);
  if (done) {
    struct roi_run run = {call, call->backward ? out.data : input.data, call->backward ? input.data : out.data,
                          rois.data, false};
    valid = wide ? check_f64(call, rois.data, &bad) : check_f32(call, rois.data, &bad);
    if (valid && call->backward && out.data) {
      memset(out.data, 0, (size_t)call->out.numel * dit_dtype_get_size(type));
    }
    if (valid && call->out.numel > 0) {
      dit_parallel_for(0, call->backward ? call->channels : call->rois.sizes[0], 1, wide ? run_f64 : run_f32, &run);
      done = !atomic_load(&run.failed);
      dense_store(&out);
    }
  }
  dense_close(&out);
  dense_close(&input);
  dense_close(&rois);
  if (!valid) {
    return frame_fail_range(call->frame, "row %lld of 'rois' names an image that does not exist, or no finite region",
                            (long long)bad);
  }
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t roi_align_run(struct roi_align *call) {
  return frame_run(call->frame, work, call);
}
