/// Batch norm over several devices in steps, as mmcv splits it; the sums between devices are the caller's.
///
/// Tensors are (N, C, L); statistics are (C) in a floating dtype of their own (float32). mean and var are over N and L,
/// var biased. norm = (input - mean) / std, output = norm * weight + bias, std = sqrt(var + eps); running statistics
/// move by `momentum`, with the variance times count / (count - 1), where count is N L group_size. Backward:
/// grad_weight = sum(grad_output norm), grad_bias = sum(grad_output), grad_input = weight / std (grad_output -
/// (grad_weight norm + grad_bias) / (N L)). Sums are taken in double; floating dtypes.
#include <math.h>

#include "call.h"

struct norm_task {
  double eps, momentum;
  int64_t group_size;
};

#define LOOPS "sync_bn_loops.h"
#include "twice.h"

static int64_t get_cost(const struct call *call) {
  return 2 * call_size(call, 'n') * call_size(call, 'l');
}
static diopiError_t run_mean(struct call *call) {
  CALL_LOOP(call, call_size(call, 'c'), get_cost(call), mean_channels);
  return diopiSuccess;
}
static diopiError_t run_var(struct call *call) {
  CALL_LOOP(call, call_size(call, 'c'), get_cost(call), var_channels);
  return diopiSuccess;
}
static diopiError_t run_output(struct call *call) {
  CALL_LOOP(call, call_size(call, 'c'), get_cost(call), output_channels);
  return diopiSuccess;
}
static diopiError_t run_param(struct call *call) {
  CALL_LOOP(call, call_size(call, 'c'), get_cost(call), param_channels);
  return diopiSuccess;
}
static diopiError_t run_data(struct call *call) {
  CALL_LOOP(call, call_size(call, 'c'), get_cost(call), data_channels);
  return diopiSuccess;
}

diopiError_t diopiSyncBnMeanMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t mean, diopiConstTensorHandle_t input) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:ncl");
  CALL_OUT(&call, mean, "s:c");
  return call_run(&call, run_mean);
}

diopiError_t diopiSyncBnVarMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t var, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t mean) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:ncl");
  CALL_IN(&call, mean, "s:c");
  CALL_OUT(&call, var, "s:c");
  return call_run(&call, run_var);
}

diopiError_t diopiSyncBnOutputMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t running_mean,
                                   diopiTensorHandle_t running_var, diopiTensorHandle_t norm, diopiTensorHandle_t std,
                                   diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t mean, diopiConstTensorHandle_t var,
                                   diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias, float eps,
                                   float momentum, int64_t group_size) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, group_size > 0, "'group_size' is %lld; valid: from 1", (long long)group_size);
  CALL_IN(&call, input, "f:ncl");
  CALL_IN(&call, mean, "s:c");
  CALL_IN(&call, var, "s:c");
  CALL_OPTIONAL(&call, weight, "s:c");
  CALL_OPTIONAL(&call, bias, "s:c");
  CALL_INOUT_OPTIONAL(&call, running_mean, "s:c");
  CALL_INOUT_OPTIONAL(&call, running_var, "s:c");
  CALL_OUT_OPTIONAL(&call, norm, "s:ncl");
  CALL_OUT(&call, std, "s:c");
  CALL_OUT(&call, output, "f:ncl");
  call.task = &(struct norm_task){eps, momentum, group_size};
  return call_run(&call, run_output);
}

diopiError_t diopiSyncBnBackwardParamMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_weight,
                                          diopiTensorHandle_t grad_bias, diopiConstTensorHandle_t grad_output,
                                          diopiConstTensorHandle_t norm) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, grad_output, "f:ncl");
  CALL_IN(&call, norm, "s:ncl");
  CALL_OUT(&call, grad_weight, "s:c");
  CALL_OUT(&call, grad_bias, "s:c");
  return call_run(&call, run_param);
}

diopiError_t diopiSyncBnBackwardDataMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t weight,
                                         diopiConstTensorHandle_t grad_weight, diopiConstTensorHandle_t grad_bias,
                                         diopiConstTensorHandle_t norm, diopiConstTensorHandle_t std) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, grad_output, "f:ncl");
  CALL_IN(&call, weight, "s:c");
  CALL_IN(&call, grad_weight, "s:c");
  CALL_IN(&call, grad_bias, "s:c");
  CALL_IN(&call, norm, "s:ncl");
  CALL_IN(&call, std, "s:c");
  CALL_OUT(&call, grad_input, "f:ncl");
  return call_run(&call, run_data);
}
