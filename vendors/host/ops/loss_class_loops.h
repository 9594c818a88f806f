/// Losses of class numbers for one type (see loss_class.c). An element is [outer][class][inner]; a point is one
/// (outer, inner).

static REAL *NAME(element)(const struct class_task *task, const void *base, int64_t point) {
  const int64_t inner = task->shape.inner;
  return (REAL *)base + point / inner * task->shape.length * inner + point % inner;
}

/// Loss and weight of one point; x holds logarithms of probabilities.
static void NAME(point_loss)(const struct class_task *task, int64_t point, double *loss, double *weight) {
  const REAL *x = NAME(element)(task, task->x, point);
  const int64_t inner = task->shape.inner, classes = task->shape.length;
  const double *w = task->weight;
  double total = 0;
  *loss = *weight = 0;
  if (task->target_p) {
    const REAL *t = NAME(element)(task, task->target_p, point);
    for (int64_t c = 0; c < classes; c++) {
      total -= w[c] * ((double)t[c * inner] * (1 - task->smoothing) + task->smoothing / (double)classes) *
               (double)x[c * inner];
    }
    *loss = total;
    *weight = 1;
    return;
  }
  const int64_t target = task->target[point];
  if (target == task->ignore) {
    return;
  }
  *weight = w[target];
  *loss = -w[target] * (double)x[target * inner];
  if (task->smoothing > 0) {
    for (int64_t c = 0; c < classes; c++) {
      total -= w[c] * (double)x[c * inner];
    }
    *loss = (1 - task->smoothing) * *loss + task->smoothing / (double)classes * total;
  }
}

/// grad_input of one point of a loss with softmax: out holds the probabilities. s is the gradient of the point's loss.
static void NAME(point_gradient)(const struct class_task *task, int64_t point, double s) {
  REAL *out = NAME(element)(task, task->out, point);
  const int64_t inner = task->shape.inner, classes = task->shape.length;
  const double *w = task->weight, even = task->smoothing / (double)classes;
  double total = 0;
  if (task->target_p) {
    const REAL *t = NAME(element)(task, task->target_p, point);
    for (int64_t c = 0; c < classes; c++) {
      total += w[c] * ((double)t[c * inner] * (1 - task->smoothing) + even);
    }
    for (int64_t c = 0; c < classes; c++) {
      const double share = w[c] * ((double)t[c * inner] * (1 - task->smoothing) + even);
      out[c * inner] = (REAL)(s * ((double)out[c * inner] * total - share));
    }
    return;
  }
  const int64_t target = task->target[point];
  if (target == task->ignore) {
    for (int64_t c = 0; c < classes; c++) {
      out[c * inner] = 0;
    }
    return;
  }
  const double own = (1 - task->smoothing) * w[target];
  total = own + even * task->weight_sum;
  if (inner == 1 && task->smoothing == 0) {
    NAME(row_affine)(out, out, classes, (REAL)(s * total), 0);
  } else {
    for (int64_t c = 0; c < classes; c++) {
      out[c * inner] = (REAL)(s * ((double)out[c * inner] * total - even * w[c]));
    }
  }
  out[target * inner] -= (REAL)(s * own);
}

/// The same for a loss of given logarithms.
static void NAME(point_gradient_plain)(const struct class_task *task, int64_t point, double s) {
  REAL *out = NAME(element)(task, task->out, point);
  const int64_t target = task->target[point];
  for (int64_t c = 0; c < task->shape.length; c++) {
    out[c * task->shape.inner] = 0;
  }
  if (target != task->ignore) {
    out[target * task->shape.inner] = (REAL)(-s * task->weight[target]);
  }
}

static void NAME(run_points)(const struct class_task *task, int64_t chunk) {
  const int64_t first = chunk * CHUNK, last = first + CHUNK < task->points ? first + CHUNK : task->points;
  double sum = 0, weight = 0;
  for (int64_t point = first; point < last; point++) {
    if (task->backward) {
      const double s = task->scale * (double)((const REAL *)task->grad)[task->reduction == ReductionNone ? point : 0];
      (task->softmax ? NAME(point_gradient) : NAME(point_gradient_plain))(task, point, s);
      continue;
    }
    double loss, own;
    NAME(point_loss)(task, point, &loss, &own);
    sum += loss;
    weight += own;
    if (task->reduction == ReductionNone) {
      ((REAL *)task->out)[point] = (REAL)loss;
    }
  }
  task->sums[2 * chunk] = sum;
  task->sums[2 * chunk + 1] = weight;
}
