/// Group norm for one type (see norm_group.c).

/// Groups [begin, end) of samples * groups: `width` channels of `area` elements, one after the other in memory.
static void NAME(forward_groups)(const struct group_task *task, int64_t begin, int64_t end) {
  const int64_t area = task->area, size = task->width * area;
  const REAL *weight = task->weight, *bias = task->bias;
  for (int64_t k = begin; k < end; k++) {
    double middle, squares;
    NAME(data_moments)(&task->x, k * size, size, &middle, &squares);
    const REAL mean = (REAL)middle, lost = (REAL)(middle - (double)mean);
    const REAL scale = (REAL)(1 / sqrt(squares / (double)size + task->eps));
    for (int64_t j = 0; j < task->width; j++) {
      const int64_t c = k % task->groups * task->width + j;
      const REAL a = weight ? scale * weight[c] : scale, b = (bias ? bias[c] : 0) - lost * a;
      NAME(data_centered)(&task->out, &task->x, k * size + j * area, area, mean, a, b);
    }
    if (task->mean) {
      ((REAL *)task->mean)[k] = mean;
    }
    if (task->scale) {
      ((REAL *)task->scale)[k] = scale;
    }
  }
}

/// Per channel sums of g and g * (x - mean) into task->sums, and grad_input.
static void NAME(backward_groups)(const struct group_task *task, int64_t begin, int64_t end) {
  const int64_t area = task->area, width = task->width, size = width * area;
  const REAL *weight = task->weight;
  for (int64_t k = begin; k < end; k++) {
    const REAL mean = ((const REAL *)task->mean)[k];
    const double scale = (double)((const REAL *)task->scale)[k];
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < width; j++) {
      double *sums = task->sums + 2 * (k * width + j);
      const double w = weight ? (double)weight[k % task->groups * width + j] : 1;
      NAME(data_dot_centered)(&task->g, &task->x, k * size + j * area, area, mean, &sums[0], &sums[1]);
      sum += w * sums[0];
      dot += w * sums[1];
    }
    if (!task->out.data) {
      continue;
    }
    const double b = -scale * scale * scale * dot / (double)size;
    const double c = -scale * sum / (double)size - b * (double)mean;
    for (int64_t j = 0; j < width; j++) {
      const double w = weight ? (double)weight[k % task->groups * width + j] : 1;
      NAME(data_combine)
      (&task->out, &task->g, &task->x, k * size + j * area, area, (REAL)(scale * w), (REAL)b, (REAL)c);
    }
  }
}

static void NAME(add_parameters)(const struct group_task *task, REAL *grad_weight, REAL *grad_bias) {
  const int64_t channels = task->groups * task->width;
  for (int64_t c = 0; c < channels; c++) {
    double dw = 0, db = 0;
    for (int64_t n = 0; n < task->samples; n++) {
      const double *sums = task->sums + 2 * (n * channels + c);
      db += sums[0];
      dw += sums[1] * (double)((const REAL *)task->scale)[n * task->groups + c / task->width];
    }
    if (grad_weight) {
      grad_weight[c] = (REAL)dw;
    }
    if (grad_bias) {
      grad_bias[c] = (REAL)db;
    }
  }
}
