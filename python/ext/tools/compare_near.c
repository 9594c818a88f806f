// The common case in one pass: float32 results that differ from the CPU's in the last bits alone.
//
// The legacy columns and the question whether every element is within the yardstick that an earlier call of this
// operator and signature left behind (compare_judge.c). A "yes" decides; everything else (no yardstick yet, NaN,
// infinities, other dtypes and layouts, anything beyond) goes to the judge, so this never says "wrong". The reference
// is float64 or float32; the columns compare it rounded to float32, as the original did. Depends on compare_judge.h.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/compare_judge.h"
#include "tools/compare_state.h"

// Two lanes: every processor has them, and no calling convention depends on them.
typedef double lanes __attribute__((vector_size(16)));
typedef float narrow __attribute__((vector_size(8)));
typedef int64_t bits __attribute__((vector_size(16)));

struct near {
  double difference, relative;  ///< largest |a - b| and |a - b| / (|a| + 1e-6)
  double beyond;                ///< largest |a - b| - (atol + rtol |b|)
  double excess;                ///< largest |a - reference| - yardstick |reference|
  double scale;                 ///< largest |b|
  double dot, norm_a, norm_b;
  double poison;  ///< NaN when anything was not finite
};

static inline lanes lanes_abs(lanes x) {
  const bits sign = {INT64_MAX, INT64_MAX};
  return (lanes)((bits)x & sign);
}

// To float32 and back. Not {(float)x, (float)y}: GCC 12 drops that rounding when it builds a vector.
static inline lanes lanes_round(lanes x) {
  return __builtin_convertvector(__builtin_convertvector(x, narrow), lanes);
}

static inline lanes lanes_max(lanes x, lanes y) {
  bits larger = x > y;
  return (lanes)(((bits)x & larger) | ((bits)y & ~larger));
}

struct near_lanes {
  lanes difference, relative, beyond, excess, scale, dot, norm_a, norm_b, poison;
};

static inline void near_add(struct near_lanes *n, lanes a, lanes b, lanes reference, double atol, double rtol,
                            double yardstick) {
  lanes size_a = lanes_abs(a), size_b = lanes_abs(b), difference = lanes_abs(a - b);
  n->difference = lanes_max(difference, n->difference);
  n->relative = lanes_max(difference / (size_a + 1e-6), n->relative);
  n->beyond = lanes_max(difference - (atol + rtol * size_b), n->beyond);
  n->excess = lanes_max(lanes_abs(a - reference) - yardstick * lanes_abs(reference), n->excess);
  n->scale = lanes_max(size_b, n->scale);
  n->dot += a * b;
  n->norm_a += a * a;
  n->norm_b += b * b;
  n->poison += (a - a) + (reference - reference);
}

static double lanes_top(lanes x) {
  return x[0] > x[1] ? x[0] : x[1];
}

// Norms as sums of blocks: long tensors keep their digits.
static void near_fold(struct near *out, const struct near_lanes *n) {
  out->difference = fmax(out->difference, lanes_top(n->difference));
  out->relative = fmax(out->relative, lanes_top(n->relative));
  out->beyond = fmax(out->beyond, lanes_top(n->beyond));
  out->excess = fmax(out->excess, lanes_top(n->excess));
  out->scale = fmax(out->scale, lanes_top(n->scale));
  out->dot += n->dot[0] + n->dot[1];
  out->norm_a += n->norm_a[0] + n->norm_a[1];
  out->norm_b += n->norm_b[0] + n->norm_b[1];
  out->poison += n->poison[0] + n->poison[1];
}

#define NEAR_BLOCK 4096

// One loop per type of the reference.
#define NEAR_LOOP(name, type)                                                                             \
  static void name(const float *a, const type *b, int64_t count, const struct compare_judgement *columns, \
                   double yardstick, struct near *out) {                                                  \
    for (int64_t begin = 0; begin < count; begin += NEAR_BLOCK) {                                         \
      struct near_lanes n = {.beyond = {-INFINITY, -INFINITY}, .excess = {-INFINITY, -INFINITY}};         \
      int64_t end = count - begin < NEAR_BLOCK ? count : begin + NEAR_BLOCK, i = begin;                   \
      for (; i + 2 <= end; i += 2) {                                                                      \
        lanes device = {a[i], a[i + 1]}, reference = {b[i], b[i + 1]};                                    \
        near_add(&n, device, lanes_round(reference), reference, columns->atol, columns->rtol, yardstick); \
      }                                                                                                   \
      if (i < end) { /* the last one, beside a zero */                                                    \
        lanes device = {a[i], 0}, reference = {b[i], 0};                                                  \
        near_add(&n, device, lanes_round(reference), reference, columns->atol, columns->rtol, yardstick); \
      }                                                                                                   \
      near_fold(out, &n);                                                                                 \
    }                                                                                                     \
  }
NEAR_LOOP(near_loop_double, double)
NEAR_LOOP(near_loop_float, float)

static bool views_fit(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  if (a->dtype != DIT_DTYPE_F32 || (b->dtype != DIT_DTYPE_F32 && b->dtype != DIT_DTYPE_F64) || a->ndim != b->ndim ||
      a->numel != b->numel) {
    return false;
  }
  size_t size = (size_t)a->ndim * sizeof *a->sizes;
  if (size && (memcmp(a->sizes, b->sizes, size) != 0 || memcmp(a->strides, b->strides, size) != 0)) {
    return false;
  }
  return dit_shape_is_dense(a->ndim, a->sizes, a->strides);
}

// Everything finite and within the yardstick: then nothing is wrong.
static bool near_is_right(const struct near *near, double residual) {
  return near->poison == 0 && near->excess <= residual * near->scale && near->norm_a > 0 && near->norm_b > 0 &&
         isfinite(near->norm_a) && isfinite(near->norm_b);
}

static void columns_fill(struct compare_judgement *out, const struct near *near, const struct dit_tensor_view *a,
                         const struct dit_tensor_view *b) {
  out->numel = a->numel;
  out->close = near->beyond <= 0;
  double cosine = near->dot / (sqrt(near->norm_a) * sqrt(near->norm_b));
  out->cosine = fmin(1, fmax(-1, cosine));
  out->max_abs_diff = (double)(float)near->difference;
  out->max_relative_diff = near->relative;
  out->verdict = out->auto_verdict = COMPARE_RIGHT;
  if (a->dtype != b->dtype) {
    snprintf(out->info, sizeof out->info, "Inconsistent dtypes: torch.%s torch.%s", dit_dtype_get_name(a->dtype),
             dit_dtype_get_name(b->dtype));
  }
}

static int views_judge(struct compare_case *c, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                       double relative, double residual, struct compare_judgement *out) {
  struct near near = {.beyond = -INFINITY, .excess = -INFINITY};
  struct compare_judgement columns = {.index = -1, .cpu_error = NAN};
  if (compare_tolerance_get(c, a->dtype, &columns.atol, &columns.rtol) < 0) {
    return -1;
  }
  Py_BEGIN_ALLOW_THREADS;
  if (b->dtype == DIT_DTYPE_F64) {
    near_loop_double(a->data, b->data, a->numel, &columns, relative, &near);
  } else {
    near_loop_float(a->data, b->data, a->numel, &columns, relative, &near);
  }
  Py_END_ALLOW_THREADS;
  bool right = near_is_right(&near, residual);
  if (right) {
    columns_fill(&columns, &near, a, b);
    right = columns.close || !compare_verdict_is_legacy(c);
  }
  if (right) {
    *out = columns;
  }
  return right;
}

int compare_near_judge(struct compare_case *c, enum compare_what what, int index, PyObject *device, PyObject *reference,
                       struct compare_judgement *out) {
  if (!device || !reference || !engine_is_tensor(device) || !engine_is_tensor(reference)) {
    return 0;
  }
  struct engine_tensor a, b;
  struct dit_tensor_view first, second;
  double relative = 0, residual = 0;
  int right = 0;
  engine_tensor_read(device, &a);
  engine_tensor_read(reference, &b);
  if (a.numel > 0 && engine_tensor_get_view(&a, &first) && engine_tensor_get_view(&b, &second) &&
      views_fit(&first, &second) && judge_seen_get(c, what, index, &first, &relative, &residual)) {
    right = views_judge(c, &first, &second, relative, residual, out);
  }
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return right;
}
