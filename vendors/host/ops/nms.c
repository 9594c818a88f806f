/// Non-maximum suppression: which boxes stay.
///
/// boxes (N, 4): x1, y1, x2, y2; confidence (N). `out`, made here, gets the int64 positions of the boxes that stay, by
/// falling confidence (equal ones by position, NaN first): a box goes when its intersection over union with one that
/// stays exceeds iou_threshold. Floating dtypes, one for both; half types are computed in float. The result depends on
/// values, so the call waits for its stream.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dense.h"
#include "engine/scratch.h"

struct nms_call {
  struct frame frame;
  struct dit_tensor_view boxes, confidence;
  double threshold;
  diopiTensorHandle_t *out;
};

struct candidate {
  double confidence;
  int64_t position;
};

static int compare(const void *first, const void *second) {
  const struct candidate *a = first, *b = second;
  const bool a_nan = isnan(a->confidence), b_nan = isnan(b->confidence);
  if (a_nan != b_nan) {
    return a_nan ? -1 : 1;
  }
  if (!a_nan && a->confidence != b->confidence) {
    return a->confidence > b->confidence ? -1 : 1;
  }
  return a->position < b->position ? -1 : 1;
}

/// Marks in `gone` the candidates behind `from` that overlap it too much. Areas and overlaps in the boxes' own type.
#define DEFINE_SUPPRESS(type, name)                                                                             \
  static void name(const struct nms_call *call, const type *boxes, const struct candidate *order, int64_t from, \
                   int64_t count, bool *gone) {                                                                 \
    const type *box = boxes + 4 * order[from].position;                                                         \
    const type area = (box[2] - box[0]) * (box[3] - box[1]);                                                    \
    for (int64_t i = from + 1; i < count; i++) {                                                                \
      const type *other = boxes + 4 * order[i].position;                                                        \
      const type left = box[0] > other[0] ? box[0] : other[0], right = box[2] < other[2] ? box[2] : other[2];   \
      const type top = box[1] > other[1] ? box[1] : other[1], bottom = box[3] < other[3] ? box[3] : other[3];   \
      const type width = right - left, height = bottom - top;                                                   \
      const type shared = width > 0 && height > 0 ? width * height : 0;                                         \
      const type whole = area + (other[2] - other[0]) * (other[3] - other[1]) - shared;                         \
      gone[i] = gone[i] || (double)(shared / whole) > call->threshold;                                          \
    }                                                                                                           \
  }
DEFINE_SUPPRESS(float, suppress_f32)
DEFINE_SUPPRESS(double, suppress_f64)

/// Positions that stay, into order[..].position; how many.
static int64_t select_boxes(const struct nms_call *call, const void *boxes, const double *confidence,
                            struct candidate *order, bool *gone) {
  const int64_t count = call->confidence.numel;
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    order[i] = (struct candidate){confidence[i], i};
    gone[i] = false;
  }
  qsort(order, (size_t)count, sizeof *order, compare);
  for (int64_t i = 0; i < count; i++) {
    if (gone[i]) {
      continue;
    }
    if (call->boxes.dtype == DIT_DTYPE_F64) {
      suppress_f64(call, boxes, order, i, count, gone);
    } else {
      suppress_f32(call, boxes, order, i, count, gone);
    }
    order[kept++].position = order[i].position;
  }
  return kept;
}

static diopiError_t store(struct nms_call *call, const struct candidate *order, int64_t kept) {
  struct dit_tensor_view out;
  const diopiSize_t size = {&kept, 1};
  if (diopiRequireTensor(call->frame.context, call->out, &size, NULL, diopi_dtype_int64, diopi_device) !=
      diopiSuccess) {
    return frame_fail(&call->frame, diopiErrorOccurred, "no memory for the result");
  }
  FRAME_TRY(frame_take(&call->frame, "out", *call->out, &out));
  for (int64_t i = 0; i < kept; i++) {
    ((int64_t *)out.data)[i] = order[i].position;
  }
  return diopiSuccess;
}

static diopiError_t work(void *context) {
  struct nms_call *call = context;
  const size_t count = (size_t)call->confidence.numel;
  struct dense boxes = {0}, confidence = {0};
  struct candidate *order = scratch_take(count * (sizeof *order + sizeof(bool)) + 1);
  diopiError_t code;
  if (order && dense_read(&boxes, &call->boxes, dense_get_work(call->boxes.dtype)) &&
      dense_read(&confidence, &call->confidence, DIT_DTYPE_F64)) {
    const int64_t kept = select_boxes(call, boxes.data, confidence.data, order, (bool *)(order + count));
    code = store(call, order, kept);
  } else {
    code = dense_fail(&call->frame);
  }
  dense_close(&boxes);
  dense_close(&confidence);
  scratch_give(order);
  return code;
}

diopiError_t diopiNms(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t boxes,
                      diopiConstTensorHandle_t confidence, double iou_threshold) {
  struct nms_call call = {.threshold = iou_threshold, .out = out};
  FRAME_BEGIN(&call.frame, ctx);
  FRAME_CHECK(&call.frame, out, "'out' is NULL; it must be a place for the result's handle");
  FRAME_TAKE(&call.frame, boxes, &call.boxes);
  FRAME_TAKE(&call.frame, confidence, &call.confidence);
  FRAME_CHECK(&call.frame, call.boxes.ndim == 2 && call.boxes.sizes[1] == 4, "'boxes' must have 4 columns");
  FRAME_CHECK(&call.frame, call.confidence.ndim == 1 && call.confidence.sizes[0] == call.boxes.sizes[0],
              "'confidence' must have one dimension of size %lld", (long long)call.boxes.sizes[0]);
  FRAME_CHECK(&call.frame, call.boxes.dtype == call.confidence.dtype, "'boxes' is %s and 'confidence' %s",
              dit_dtype_get_name(call.boxes.dtype), dit_dtype_get_name(call.confidence.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call.boxes.dtype)) {
    return frame_fail_dtype(&call.frame, "boxes", call.boxes.dtype);
  }
  return frame_run(&call.frame, work, &call);
}
