// The common case in one pass: float32 results that differ from the CPU's in the last bits alone.
//
// The legacy columns and the question whether every element is within the yardstick that an earlier call of this
// operator and signature left behind (compare/judge.c). A "yes" decides; everything else (no yardstick yet, NaN,
// infinities, other dtypes and layouts, anything beyond) goes to the judge, so this never says "wrong". The pass is
// dit_judge_near. Depends on compare/judge.h.
#include <math.h>
#include <stdio.h>

#include "tools/compare/judge.h"
#include "tools/compare/state.h"

// Everything finite and within the yardstick: then nothing is wrong.
static bool near_is_right(const struct dit_judge_near *near, double residual) {
  return near->poison == 0 && near->excess <= residual * near->scale && near->norm_x > 0 && near->norm_r > 0 &&
         isfinite(near->norm_x) && isfinite(near->norm_r);
}

static void columns_fill(struct compare_judgement *out, const struct dit_judge_near *near,
                         const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  out->numel = a->numel;
  out->close = near->beyond <= 0;
  double cosine = near->dot / (sqrt(near->norm_x) * sqrt(near->norm_r));
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
  struct dit_judge_near near;
  struct compare_judgement columns = {.index = -1, .cpu_error = NAN};
  if (compare_tolerance_get(c, a->dtype, &columns.atol, &columns.rtol) < 0) {
    return -1;
  }
  const struct dit_judge_near_rule rule = {columns.atol, columns.rtol, relative};
  bool right;
  Py_BEGIN_ALLOW_THREADS;
  right = dit_judge_near(a, b, &rule, &near) && near_is_right(&near, residual);
  Py_END_ALLOW_THREADS;
  if (right) {
    columns_fill(&columns, &near, a, b);
    right = columns.close || !compare_tolerance_decides(c, a->dtype);
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
  if (a.numel > 0 && a.dtype == DIT_DTYPE_F32 && engine_tensor_get_view(&a, &first) &&
      engine_tensor_get_view(&b, &second) && judge_seen_get(c, what, index, &first, &relative, &residual)) {
    right = views_judge(c, &first, &second, relative, residual, out);
  }
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return right;
}
