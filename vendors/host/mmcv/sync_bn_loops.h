/// Channels of the steps of batch norm (sync_bn.c), for REAL elements.

static void NAME(mean_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *input = call_data(call, 0);
  double *mean = call_data(call, 1);
  const int64_t batch = call_size(call, 'n'), channels = call_size(call, 'c'), length = call_size(call, 'l');
  for (int64_t c = begin; c < end; c++) {
    double sum = 0;
    for (int64_t n = 0; n < batch; n++) {
      for (int64_t l = 0; l < length; l++) {
        sum += (double)input[(n * channels + c) * length + l];
      }
    }
    mean[c] = sum / (double)(batch * length);
  }
}

static void NAME(var_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *input = call_data(call, 0);
  const double *mean = call_data(call, 1);
  double *var = call_data(call, 2);
  const int64_t batch = call_size(call, 'n'), channels = call_size(call, 'c'), length = call_size(call, 'l');
  for (int64_t c = begin; c < end; c++) {
    double sum = 0;
    for (int64_t n = 0; n < batch; n++) {
      for (int64_t l = 0; l < length; l++) {
        const double distance = (double)input[(n * channels + c) * length + l] - mean[c];
        sum += distance * distance;
      }
    }
    var[c] = sum / (double)(batch * length);
  }
}

static void NAME(output_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const struct norm_task *task = call->task;
  const REAL *input = call_data(call, 0);
  const double *mean = call_data(call, 1), *var = call_data(call, 2);
  const double *weight = call_data(call, 3), *bias = call_data(call, 4);
  double *running_mean = call_data(call, 5), *running_var = call_data(call, 6);
  double *norm = call_data(call, 7), *std = call_data(call, 8);
  REAL *output = call_data(call, 9);
  const int64_t batch = call_size(call, 'n'), channels = call_size(call, 'c'), length = call_size(call, 'l');
  const double count = (double)(batch * length * task->group_size);
  for (int64_t c = begin; c < end; c++) {
    std[c] = sqrt(var[c] + task->eps);
    for (int64_t n = 0; n < batch; n++) {
      for (int64_t l = 0; l < length; l++) {
        const int64_t at = (n * channels + c) * length + l;
        const double value = ((double)input[at] - mean[c]) / std[c];
        if (norm) {
          norm[at] = value;
        }
        output[at] = (REAL)(value * (weight ? weight[c] : 1) + (bias ? bias[c] : 0));
      }
    }
    if (running_mean) {
      running_mean[c] = task->momentum * mean[c] + (1 - task->momentum) * running_mean[c];
    }
    if (running_var) {
      const double unbiased = count > 1 ? var[c] * count / (count - 1) : var[c];
      running_var[c] = task->momentum * unbiased + (1 - task->momentum) * running_var[c];
    }
  }
}

static void NAME(param_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *grad = call_data(call, 0);
  const double *norm = call_data(call, 1);
  double *grad_weight = call_data(call, 2), *grad_bias = call_data(call, 3);
  const int64_t batch = call_size(call, 'n'), channels = call_size(call, 'c'), length = call_size(call, 'l');
  for (int64_t c = begin; c < end; c++) {
    double products = 0, sum = 0;
    for (int64_t n = 0; n < batch; n++) {
      for (int64_t l = 0; l < length; l++) {
        const int64_t at = (n * channels + c) * length + l;
        products += (double)grad[at] * norm[at];
        sum += (double)grad[at];
      }
    }
    grad_weight[c] = products;
    grad_bias[c] = sum;
  }
}

static void NAME(data_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const REAL *grad = call_data(call, 0);
  const double *weight = call_data(call, 1), *grad_weight = call_data(call, 2), *grad_bias = call_data(call, 3);
  const double *norm = call_data(call, 4), *std = call_data(call, 5);
  REAL *grad_input = call_data(call, 6);
  const int64_t batch = call_size(call, 'n'), channels = call_size(call, 'c'), length = call_size(call, 'l');
  const double count = (double)(batch * length);
  for (int64_t c = begin; c < end; c++) {
    for (int64_t n = 0; n < batch; n++) {
      for (int64_t l = 0; l < length; l++) {
        const int64_t at = (n * channels + c) * length + l;
        const double centred = (double)grad[at] - (grad_weight[c] * norm[at] + grad_bias[c]) / count;
        grad_input[at] = (REAL)(weight[c] * centred / std[c]);
      }
    }
  }
}
