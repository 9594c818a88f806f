/// Rows of the focal losses (focal.c), for REAL elements.

static double NAME(get_weight)(const struct call *call, int64_t target, int64_t classes) {
  const REAL *weight = call_data(call, 2);
  return weight && target >= 0 && target < classes ? (double)weight[target] : 1;
}

static void NAME(sigmoid_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *input = call_data(call, 0);
  const int64_t *target = call_data(call, 1), classes = call_size(call, 'c');
  REAL *output = call_data(call, 3);
  for (int64_t n = begin; n < end; n++) {
    const double weight = NAME(get_weight)(call, target[n], classes);
    const REAL *row = input + n * classes;
    const int64_t hit = target[n];
    const bool is_class = hit >= 0 && hit < classes;
    const double x = is_class ? (double)row[hit] : 0;  // before it may be written over
    NAME(miss_loss)(output + n * classes, row, classes, weight, call->task);
    if (is_class) {
      output[n * classes + hit] = (REAL)(weight * get_hit_loss(x, call->task));
    }
  }
}

static void NAME(sigmoid_backward_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *input = call_data(call, 0);
  const int64_t *target = call_data(call, 1), classes = call_size(call, 'c');
  REAL *grad = call_data(call, 3);
  for (int64_t n = begin; n < end; n++) {
    const double weight = NAME(get_weight)(call, target[n], classes);
    const REAL *row = input + n * classes;
    const int64_t hit = target[n];
    const bool is_class = hit >= 0 && hit < classes;
    const double x = is_class ? (double)row[hit] : 0;  // before it may be written over
    NAME(miss_gradient)(grad + n * classes, row, classes, weight, call->task);
    if (is_class) {
      grad[n * classes + hit] = (REAL)(weight * get_hit_gradient(x, call->task));
    }
  }
}

static void NAME(softmax_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct focal_task *task = call->task;
  const REAL *softmax = call_data(call, 0);
  const int64_t *target = call_data(call, 1), classes = call_size(call, 'c');
  REAL *output = call_data(call, 3);
  for (int64_t n = begin; n < end; n++) {
    double loss = 0;
    if (target[n] >= 0) {
      const double p = (double)softmax[n * classes + target[n]];
      loss = -task->alpha * pow(1 - p, task->gamma) * safe_log(p) * NAME(get_weight)(call, target[n], classes);
    }
    output[n] = (REAL)loss;
  }
}

static void NAME(softmax_backward_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct focal_task *task = call->task;
  const REAL *softmax = call_data(call, 0);
  const int64_t *target = call_data(call, 1), classes = call_size(call, 'c');
  REAL *grad = call_data(call, 3);
  for (int64_t n = begin; n < end; n++) {
    double factor = 0;
    if (target[n] >= 0) {
      const double p = (double)softmax[n * classes + target[n]], q = 1 - p;
      factor = task->alpha * NAME(get_weight)(call, target[n], classes) *
               (task->gamma * (q > 0 ? pow(q, task->gamma - 1) : 0) * p * safe_log(p) - pow(q, task->gamma));
    }
    for (int64_t c = 0; c < classes; c++) {
      grad[n * classes + c] = (REAL)(factor * ((target[n] == c) - (double)softmax[n * classes + c]));
    }
  }
}
