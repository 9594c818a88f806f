/// The operators of general use, and what a library says about itself.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_H
#define DIOPI_FUNCTIONS_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// library info

/// Name of the vendor, in one word; static text.
DIOPI_API const char *diopiGetVendorName(void);

/// Version of the library, in words; static text.
DIOPI_API const char *diopiGetImplVersion(void);

/// Text of the last error, of the calling thread where the library keeps one per thread; valid until the next call.
DIOPI_API const char *diopiGetLastErrorString(void);

// conv

/// 2-d convolution (cross-correlation): input (N, C, H, W) or without N, weight (O, C / groups, kH, kW), bias (O) or
/// NULL, out (N, O, ...). `stride`, `padding`, `dilation` have 2 values or one for all; padding is zeros. C and O are
/// multiples of `groups`. One floating or complex dtype; half types accumulate in float. Any dense layout,
/// channels-last included.
DIOPI_API diopiError_t diopiConvolution2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                          diopiConstTensorHandle_t bias, diopiSize_t stride, diopiSize_t padding,
                                          diopiSize_t dilation, int64_t groups);

/// Gradients of diopiConvolution2d from grad_output. grad_input, grad_weight and grad_bias may be NULL when they are
/// not wanted; `bias_sizes` is the shape of the bias, NULL when there is none.
DIOPI_API diopiError_t diopiConvolution2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                  diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                                  diopiConstTensorHandle_t grad_output,
                                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                                  diopiSize_t *bias_sizes, diopiSize_t stride, diopiSize_t padding,
                                                  diopiSize_t dilation, int64_t groups);

// normalization

/// out = (input - mean) * invstd * weight + bias per channel (dimension 1). `training`: mean and 1 / sqrt(var + eps) of
/// the batch, biased, go to save_mean and save_invstd, and running_mean = (1 - momentum) * running_mean + momentum *
/// mean, running_var likewise with the unbiased variance. Otherwise the running statistics are used; save_mean and
/// save_invstd may be empty. weight, bias and the running statistics may be NULL (the latter in training only).
/// Statistics are float32 for half types, else of input's dtype. Floating dtypes.
DIOPI_API diopiError_t diopiBatchNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiTensorHandle_t save_mean, diopiTensorHandle_t save_invstd,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                      diopiConstTensorHandle_t bias, diopiTensorHandle_t running_mean,
                                      diopiTensorHandle_t running_var, bool training, double momentum, double eps);

/// mean and invstd = 1 / sqrt(var + eps) per channel (dimension 1) of `input`, with the biased variance. Statistics are
/// float32 for half types, else of input's dtype.
DIOPI_API diopiError_t diopiBatchNormStats(diopiContextHandle_t ctx, diopiTensorHandle_t mean,
                                           diopiTensorHandle_t invstd, diopiConstTensorHandle_t input, double eps);

/// Joint mean and invstd of several ranks: mean_all and invstd_all are (ranks, C), `counts` has the number of elements
/// per channel of each rank. running_mean and running_var are updated as in diopiBatchNorm, with the unbiased variance
/// of all; both may be NULL. `input` tells the dtype alone and may be NULL.
DIOPI_API diopiError_t diopiBatchNormGatherStatsWithCounts(diopiContextHandle_t ctx, diopiTensorHandle_t mean,
                                                           diopiTensorHandle_t invstd, diopiConstTensorHandle_t input,
                                                           diopiConstTensorHandle_t mean_all,
                                                           diopiConstTensorHandle_t invstd_all,
                                                           diopiTensorHandle_t running_mean,
                                                           diopiTensorHandle_t running_var, float momentum, float eps,
                                                           diopiConstTensorHandle_t counts);

/// Per channel: sum_dy = sum grad_out, sum_dy_xmu = sum grad_out * (input - mean), grad_weight = sum_dy_xmu * invstd,
/// grad_bias = sum_dy. `input_g`, `weight_g` and `bias_g` say which are wanted; the others may be NULL. `weight` may be
/// NULL.
DIOPI_API diopiError_t diopiBatchNormBackwardReduce(diopiContextHandle_t ctx, diopiTensorHandle_t sum_dy,
                                                    diopiTensorHandle_t sum_dy_xmu, diopiTensorHandle_t grad_weight,
                                                    diopiTensorHandle_t grad_bias, diopiConstTensorHandle_t grad_out,
                                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t mean,
                                                    diopiConstTensorHandle_t invstd, diopiConstTensorHandle_t weight,
                                                    bool input_g, bool weight_g, bool bias_g);

/// grad_input = (grad_out - sum_dy / n - (input - mean) * invstd^2 * sum_dy_xmu / n) * invstd * weight per channel,
/// with n the sum of `count`. `weight` may be NULL.
DIOPI_API diopiError_t diopiBatchNormBackwardElemt(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                   diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t input,
                                                   diopiConstTensorHandle_t mean, diopiConstTensorHandle_t invstd,
                                                   diopiConstTensorHandle_t weight, diopiConstTensorHandle_t sum_dy,
                                                   diopiConstTensorHandle_t sum_dy_xmu, diopiConstTensorHandle_t count);

/// out = (input - mean) * invstd * weight + bias per channel (dimension 1). weight and bias may be NULL. `eps` is not
/// used: invstd holds it.
DIOPI_API diopiError_t diopiBatchNormElemt(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                           diopiConstTensorHandle_t bias, diopiConstTensorHandle_t mean,
                                           diopiConstTensorHandle_t invstd, float eps);

/// Gradients of diopiBatchNorm from grad_output: in training with save_mean and save_invstd, else with the running
/// statistics. grad_input, grad_weight and grad_bias may be NULL when they are not wanted; so may weight and the
/// statistics that are not used.
DIOPI_API diopiError_t diopiBatchNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiConstTensorHandle_t weight, diopiConstTensorHandle_t running_mean,
                                              diopiConstTensorHandle_t running_var,
                                              diopiConstTensorHandle_t save_mean,
                                              diopiConstTensorHandle_t save_invstd, bool training, double eps);

// activation

/// out[i] = max(x, 0); NaN stays NaN, with x = input[i]. Shapes are equal. Real dtypes but bool. `out` may be `input`.
DIOPI_API diopiError_t diopiRelu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = max(x, 0); NaN stays NaN, with x = input[i], in place. Real dtypes but bool.
DIOPI_API diopiError_t diopiReluInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = input[i] limited to [min_val, max_val]; NaN stays NaN. Shapes and dtypes are equal. Real dtypes but bool.
/// `out` may be `input`.
DIOPI_API diopiError_t diopiHardtanh(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *min_val,
                                     const diopiScalar_t *max_val);

/// input[i] limited to [min_val, max_val], in place; NaN stays NaN. Real dtypes but bool.
DIOPI_API diopiError_t diopiHardtanhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *min_val, const diopiScalar_t *max_val);

/// grad_input[i] = grad_output[i] where min_val < input[i] < max_val, else 0. Shapes and floating dtypes are equal.
/// `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiHardtanhBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                             diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                             const diopiScalar_t *min_val, const diopiScalar_t *max_val);

/// out[i] = x * min(max(x + 3, 0), 6) / 6, with x = input[i]. Shapes are equal. Floating dtypes. `out` may be `input`.
DIOPI_API diopiError_t diopiHardswish(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input);

/// input[i] = x * min(max(x + 3, 0), 6) / 6, with x = input[i], in place. Floating dtypes.
DIOPI_API diopiError_t diopiHardswishInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// grad_input[i] = grad_output[i] * (0 for x < -3, 1 for x > 3, else x / 3 + 0.5), with x = input[i]. Shapes and
/// floating dtypes are equal. `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiHardswishBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input);

/// out[i] = input[i] > threshold ? input[i] : value; NaN stays NaN. Shapes and dtypes are equal. Real dtypes but bool.
/// `out` may be `input`.
DIOPI_API diopiError_t diopiThreshold(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *threshold,
                                      const diopiScalar_t *value);

/// input[i] = input[i] > threshold ? input[i] : value, in place; NaN stays NaN. Real dtypes but bool.
DIOPI_API diopiError_t diopiThresholdInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *threshold, const diopiScalar_t *value);

/// grad_input[i] = input[i] > threshold ? grad_output[i] : 0. Shapes and dtypes are equal. Real dtypes but bool.
/// `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiThresholdBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              const diopiScalar_t *threshold);

/// `approximate` "none" (or NULL): out[i] = x * Phi(x) with the normal distribution's Phi; "tanh": 0.5 x (1 +
/// tanh(sqrt(2 / pi) (x + 0.044715 x^3))). Any other text is an error. Shapes and floating dtypes are equal. `out` may
/// be `input`.
DIOPI_API diopiError_t diopiGelu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 const char *approximate);

/// grad_input = grad_output times the derivative of diopiGelu at `input`, for the same `approximate`. Shapes and
/// floating dtypes are equal. `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiGeluBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                         const char *approximate);

/// out[i] = x > 0 ? x : x * negative_slope, with x = input[i]. Shapes and floating dtypes are equal. `out` may be
/// `input`.
DIOPI_API diopiError_t diopiLeakyRelu(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *negative_slope);

/// input[i] = x > 0 ? x : x * negative_slope, with x = input[i], in place. Floating dtypes.
DIOPI_API diopiError_t diopiLeakyReluInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *negative_slope);

/// grad_input[i] = input[i] > 0 ? grad_output[i] : grad_output[i] * negative_slope. `input_is_result`: `input` is the
/// result of the forward function, which then needs negative_slope >= 0. Shapes and floating dtypes are equal.
/// `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiLeakyReluBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              const diopiScalar_t *negative_slope, bool input_is_result);

// pooling

/// Largest element of each window: input (N, C, L) or (C, L). `kernel_size`, `stride` (empty: the kernel), `padding`
/// (at most half the kernel, counted as -inf), `dilation` have 1 values or one for all; `ceil_mode` also takes windows
/// that begin inside and end outside. NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiMaxPool1d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, diopiSize_t dilation, bool ceil_mode);

/// grad_input = sums of grad_output at the `indices` that diopiMaxPool1dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiMaxPool1dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              diopiSize_t dilation, bool ceil_mode, diopiConstTensorHandle_t indices);

/// diopiMaxPool1d, and in `indices` (int64) the position of each element within its plane, row-major; the first of
/// equal ones.
DIOPI_API diopiError_t diopiMaxPool1dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                 diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                                 diopiSize_t dilation, bool ceil_mode);

/// Mean of each window: input (N, C, L) or (C, L); lists as in diopiMaxPool1d. `count_include_pad` counts padding as
/// zeros, else the divisor is the number of real elements. Floating dtypes.
DIOPI_API diopiError_t diopiAvgPool1d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, bool ceil_mode, bool count_include_pad);

/// Gradient of diopiAvgPool1d: every element of a window gets its share of grad_output.
DIOPI_API diopiError_t diopiAvgPool1dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              bool ceil_mode, bool count_include_pad);

/// Largest elements over the windows of diopiAdaptiveAvgPool1d; NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiAdaptiveMaxPool1d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// diopiAdaptiveMaxPool1d, and in `indices` (int64) the position of each element within its plane, row-major.
DIOPI_API diopiError_t diopiAdaptiveMaxPool1dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                         diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                         diopiSize_t output_size);

/// grad_input = sums of grad_output at the `indices` that diopiAdaptiveMaxPool1dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiAdaptiveMaxPool1dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices);

/// Gradient of diopiAdaptiveAvgPool1d; `input` tells the shape.
DIOPI_API diopiError_t diopiAdaptiveAvgPool1dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input);

/// Means over a grid of output_size windows, window k from floor(k * size / out) to ceil((k + 1) * size / out): input
/// (N, C, L) or (C, L). Floating dtypes.
DIOPI_API diopiError_t diopiAdaptiveAvgPool1d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// All 1-d poolings by one function: `mode` is "max" or "avg"; `exclusive` leaves padding out of means; `adaptive`
/// takes windows from `output_size` and ignores ksize, stride and padding.
DIOPI_API diopiError_t diopiPool1d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   const char *mode, diopiSize_t ksize, diopiSize_t stride, diopiSize_t padding,
                                   diopiSize_t dilation, const bool ceil_mode, const bool exclusive,
                                   const bool adaptive, diopiSize_t output_size);

/// Gradient of diopiPool1d with the same attributes; `indices` is needed for "max" alone and may be NULL otherwise.
DIOPI_API diopiError_t diopiPool1dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           const char *mode, diopiSize_t ksize, diopiSize_t stride,
                                           diopiSize_t padding, diopiSize_t dilation, const bool ceil_mode,
                                           const bool exclusive, const bool adaptive, diopiConstTensorHandle_t indices);

/// Mean of each window: input (N, C, H, W) or (C, H, W); lists as in diopiMaxPool2d. `count_include_pad` counts padding
/// as zeros, else the divisor is the number of real elements. `divisor_override`, where not NULL, is the divisor.
/// Floating dtypes.
DIOPI_API diopiError_t diopiAvgPool2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, bool ceil_mode, bool count_include_pad,
                                      const int64_t *divisor_override);

/// Gradient of diopiAvgPool2d: every element of a window gets its share of grad_output.
DIOPI_API diopiError_t diopiAvgPool2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              bool ceil_mode, bool count_include_pad, const int64_t *divisor_override);

/// Largest element of each window: input (N, C, H, W) or (C, H, W). `kernel_size`, `stride` (empty: the kernel),
/// `padding` (at most half the kernel, counted as -inf), `dilation` have 2 values or one for all; `ceil_mode` also
/// takes windows that begin inside and end outside. NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiMaxPool2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, diopiSize_t dilation, bool ceil_mode);

/// diopiMaxPool2d, and in `indices` (int64) the position of each element within its plane, row-major; the first of
/// equal ones.
DIOPI_API diopiError_t diopiMaxPool2dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                 diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                                 diopiSize_t dilation, bool ceil_mode);

/// grad_input = sums of grad_output at the `indices` that diopiMaxPool2dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiMaxPool2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              diopiSize_t dilation, bool ceil_mode, diopiConstTensorHandle_t indices);

/// All 2-d poolings by one function: `mode` is "max" or "avg"; `exclusive` leaves padding out of means; `adaptive`
/// takes windows from `output_size` and ignores ksize, stride and padding.
DIOPI_API diopiError_t diopiPool2d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   const char *mode, diopiSize_t ksize, diopiSize_t stride, diopiSize_t padding,
                                   diopiSize_t dilation, const bool ceil_mode, const bool exclusive,
                                   const bool adaptive, diopiSize_t output_size);

/// Gradient of diopiPool2d with the same attributes; `indices` is needed for "max" alone and may be NULL otherwise.
DIOPI_API diopiError_t diopiPool2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           const char *mode, diopiSize_t ksize, diopiSize_t stride,
                                           diopiSize_t padding, diopiSize_t dilation, const bool ceil_mode,
                                           const bool exclusive, const bool adaptive, diopiConstTensorHandle_t indices);

/// Means over a grid of output_size windows, window k from floor(k * size / out) to ceil((k + 1) * size / out): input
/// (N, C, H, W) or (C, H, W). Floating dtypes.
DIOPI_API diopiError_t diopiAdaptiveAvgPool2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// Gradient of diopiAdaptiveAvgPool2d; `input` tells the shape.
DIOPI_API diopiError_t diopiAdaptiveAvgPool2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input);

/// Largest elements over the windows of diopiAdaptiveAvgPool2d; NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiAdaptiveMaxPool2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// diopiAdaptiveMaxPool2d, and in `indices` (int64) the position of each element within its plane, row-major.
DIOPI_API diopiError_t diopiAdaptiveMaxPool2dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                         diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                         diopiSize_t output_size);

/// grad_input = sums of grad_output at the `indices` that diopiAdaptiveMaxPool2dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiAdaptiveMaxPool2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices);

// random

/// `train`: mask[i] is true with probability 1 - p, out[i] = mask[i] ? input[i] / (1 - p) : 0; else out = input and
/// mask is true. Shapes are equal; `mask` is bool (or uint8). Floating or complex dtypes. Element k of the row-major
/// order takes its random numbers from the generator's counters by k alone. The generator's offset moves forward by
/// what was used.
DIOPI_API diopiError_t diopiDropout(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t mask,
                                    diopiConstTensorHandle_t input, double p, bool train,
                                    diopiGeneratorHandle_t generator);

/// diopiDropout in place of `input`. Element k of the row-major order takes its random numbers from the generator's
/// counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiDropoutInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiTensorHandle_t mask,
                                       double p, bool train, diopiGeneratorHandle_t generator);

// loss

/// (input - target)^2 per element; `target` has input's shape. ReductionNone keeps the shape, ReductionMean and
/// ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiMSELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t target, diopiReduction_t reduction);

/// Gradient of diopiMSELoss with respect to `input` for the same attributes; grad_output has the shape of its result.
/// grad_input has input's shape.
DIOPI_API diopiError_t diopiMSELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t target, diopiReduction_t reduction);

/// alpha_t * (1 - p_t)^gamma * BCEWithLogits(inputs, targets), p_t the probability of the right answer; alpha below 0:
/// no weighting. ReductionNone keeps the shape, ReductionMean and ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiSigmoidFocalLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t inputs, diopiConstTensorHandle_t targets,
                                             float alpha, float gamma, diopiReduction_t reduction);

/// Gradient of diopiSigmoidFocalLoss: grad_input from grad_output, which is only read although it is not const. The
/// order of parameters is the standard's own.
DIOPI_API diopiError_t diopiSigmoidFocalLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_output,
                                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                                     diopiTensorHandle_t grad_input, float gamma, float alpha,
                                                     diopiReduction_t reduction);

/// diopiNLLLoss of the log-softmax of `input` along dimension 1 (0 for a 1-d input), with `label_smoothing` mixing in
/// the mean over classes; or, where `target` has input's shape and a floating dtype, -sum target * weight *
/// log-softmax. `weight` (C) may be NULL. ReductionNone keeps the shape, ReductionMean and ReductionSum give one
/// element. Floating dtypes.
DIOPI_API diopiError_t diopiCrossEntropyLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                             diopiConstTensorHandle_t weight, diopiReduction_t reduction,
                                             int64_t ignore_index, double label_smoothing);

/// Gradient of diopiCrossEntropyLoss with respect to `input` for the same attributes; grad_output has the shape of its
/// result. grad_input has input's shape.
DIOPI_API diopiError_t diopiCrossEntropyLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                     diopiConstTensorHandle_t grad_output,
                                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                                     diopiConstTensorHandle_t weight, diopiReduction_t reduction,
                                                     int64_t ignore_index, double label_smoothing);

/// -weight[t] * input[.., t, ..] for the class t = target at each position; input (N, C, ...) or (C), target (N, ...)
/// or () of int64. Positions with ignore_index give 0; the mean divides by the sum of weights. `weight` (C) may be
/// NULL. A target outside [0, C) that is not ignore_index is an error. ReductionNone keeps the shape, ReductionMean and
/// ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiNLLLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                    diopiReduction_t reduction, int64_t ignore_index);

/// Gradient of diopiNLLLoss with respect to `input` for the same attributes; grad_output has the shape of its result.
/// grad_input has input's shape.
DIOPI_API diopiError_t diopiNLLLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                            diopiReduction_t reduction, int64_t ignore_index);

/// diopiNLLLoss that also gives the sum of the weights in totalWeight, one element. ReductionNone keeps the shape,
/// ReductionMean and ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiNLLLossV2(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiTensorHandle_t totalWeight, diopiConstTensorHandle_t input,
                                      diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                      diopiReduction_t reduction, int64_t ignore_index);

/// Gradient of diopiNLLLossV2 with respect to `input`, with its totalWeight. grad_input has input's shape.
DIOPI_API diopiError_t diopiNLLLossV2Backward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                              diopiConstTensorHandle_t totalWeight, diopiReduction_t reduction,
                                              int64_t ignore_index);

/// Binary cross entropy of sigmoid(input), computed without overflow: ((1 - t) x + (1 + (pos_weight - 1) t) ln(1 +
/// e^-x)) * weight. weight and pos_weight broadcast and may be NULL. ReductionNone keeps the shape, ReductionMean and
/// ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiBCEWithLogits(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                          diopiConstTensorHandle_t weight, diopiConstTensorHandle_t pos_weight,
                                          diopiReduction_t reduction);

/// Gradient of diopiBCEWithLogits with respect to `input` for the same attributes; grad_output has the shape of its
/// result. grad_input has input's shape.
DIOPI_API diopiError_t diopiBCEWithLogitsBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                  diopiConstTensorHandle_t grad_output,
                                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                                  diopiConstTensorHandle_t weight,
                                                  diopiConstTensorHandle_t pos_weight, diopiReduction_t reduction);

/// -(t ln x + (1 - t) ln(1 - x)) * weight per element, logarithms not below -100; x in [0, 1]. `weight` broadcasts and
/// may be NULL. ReductionNone keeps the shape, ReductionMean and ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiBCELoss(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                    diopiReduction_t reduction);

/// Gradient of diopiBCELoss with respect to `input` for the same attributes; grad_output has the shape of its result.
/// grad_input has input's shape.
DIOPI_API diopiError_t diopiBCELossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t target, diopiConstTensorHandle_t weight,
                                            diopiReduction_t reduction);

// pointwise unary

/// out[i] = -1, 0 or 1 by the sign of input[i]; 0 stays 0, NaN stays NaN. Shapes and dtypes are equal. Every real
/// dtype; a bool is copied. `out` may be `input`.
DIOPI_API diopiError_t diopiSign(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = |x|; the modulus, a real number, for complex ones, with x = input[i], in place. Every dtype but bool; the
/// smallest signed integer stays as it is.
DIOPI_API diopiError_t diopiAbsInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = |x|; the modulus, a real number, for complex ones, with x = input[i]. Shapes are equal. Every dtype but
/// bool; the smallest signed integer stays as it is. `out` may be `input`.
DIOPI_API diopiError_t diopiAbs(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = -x, with x = input[i], in place. Every dtype but bool; integers wrap.
DIOPI_API diopiError_t diopiNegInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = -x, with x = input[i]. Shapes are equal. Every dtype but bool; integers wrap. `out` may be `input`.
DIOPI_API diopiError_t diopiNeg(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the largest integer not above x, with x = input[i], in place. Floating dtypes; integers are copied.
DIOPI_API diopiError_t diopiFloorInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the largest integer not above x, with x = input[i]. Shapes are equal. Floating dtypes; integers are copied.
/// `out` may be `input`.
DIOPI_API diopiError_t diopiFloor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the smallest integer not below x, with x = input[i], in place. Floating dtypes; integers are copied.
DIOPI_API diopiError_t diopiCeilInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the smallest integer not below x, with x = input[i]. Shapes are equal. Floating dtypes; integers are
/// copied. `out` may be `input`.
DIOPI_API diopiError_t diopiCeil(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the square root of x, NaN below 0, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiSqrtInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the square root of x, NaN below 0, with x = input[i]. Shapes are equal. Floating or complex dtypes; an
/// integer or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiSqrt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = 1 / sqrt(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiRsqrtInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = 1 / sqrt(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input
/// computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiRsqrt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = sin(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiSinInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = sin(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiSin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = asin(x), NaN outside [-1, 1], with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAsinInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = asin(x), NaN outside [-1, 1], with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer
/// or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAsin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = cos(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiCosInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = cos(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiCos(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = acos(x), NaN outside [-1, 1], with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAcosInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = acos(x), NaN outside [-1, 1], with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer
/// or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAcos(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = tan(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiTanInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = tan(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiTan(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = sinh(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiSinhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = sinh(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiSinh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = cosh(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiCoshInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = cosh(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiCosh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// activation

/// input[i] = tanh(x), with x = input[i], in place. Floating or complex dtypes; integers and bool compute in out's
/// floating dtype.
DIOPI_API diopiError_t diopiTanhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = tanh(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; integers and bool compute in
/// out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiTanh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// grad_input[i] = grad_output[i] * (1 - output[i]^2), with the conjugate for complex numbers; `output` is the result
/// of diopiTanh. Shapes and dtypes are equal. `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiTanhBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output);

// pointwise unary

/// out[i] = atan(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAtan(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = atan(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAtanInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// input[i] = asinh(x), with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAsinhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = asinh(x), with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input
/// computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAsinh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = acosh(x), NaN below 1, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAcoshInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = acosh(x), NaN below 1, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool
/// input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAcosh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = atanh(x), NaN outside [-1, 1], with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiAtanhInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = atanh(x), NaN outside [-1, 1], with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer
/// or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAtanh(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// activation

/// input[i] = 1 / (1 + e^-x), with x = input[i], in place. Floating or complex dtypes; integers and bool compute in
/// out's floating dtype.
DIOPI_API diopiError_t diopiSigmoidInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = 1 / (1 + e^-x), with x = input[i]. Shapes are equal. Floating or complex dtypes; integers and bool compute
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiSigmoid(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// grad_input[i] = grad_output[i] * (1 - output[i]) * output[i], with conjugates for complex numbers; `output` is the
/// result of diopiSigmoid. Shapes and dtypes are equal. `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiSigmoidBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output);

/// input[i] = x / (1 + e^-x), with x = input[i], in place. Floating dtypes.
DIOPI_API diopiError_t diopiSiluInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = x / (1 + e^-x), with x = input[i]. Shapes are equal. Floating dtypes. `out` may be `input`.
DIOPI_API diopiError_t diopiSilu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// grad_input[i] = grad_output[i] * s * (1 + x * (1 - s)), with x = input[i] and s = 1 / (1 + e^-x). Shapes and
/// floating dtypes are equal. `grad_input` may be `grad_output`.
DIOPI_API diopiError_t diopiSiluBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input);

// pointwise unary

/// input[i] = e^x, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiExpInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = e^x, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes in
/// out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiExp(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = e^x - 1, exact near 0, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiExpm1Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = e^x - 1, exact near 0, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool
/// input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiExpm1(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = ln x, -inf at 0, NaN below, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiLogInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = ln x, -inf at 0, NaN below, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or
/// bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLog(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the logarithm of x to base 2, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiLog2Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the logarithm of x to base 2, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer
/// or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLog2(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the logarithm of x to base 10, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiLog10Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the logarithm of x to base 10, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer
/// or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLog10(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = ln(1 + x), exact near 0, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiLog1pInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = ln(1 + x), exact near 0, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or
/// bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLog1p(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the error function of x, with x = input[i], in place. Floating dtypes.
DIOPI_API diopiError_t diopiErfInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = the error function of x, with x = input[i]. Shapes are equal. Floating dtypes; an integer or bool input
/// computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiErf(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// pointwise binary

/// out[i] = input ^ exponent[i]: the number is the base, the tensor the exponent. Shapes of `out` and `exponent` are
/// equal. `out` may be `exponent`.
DIOPI_API diopiError_t diopiPowScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *input,
                                      diopiConstTensorHandle_t exponent);

/// out[i] = input[i] ^ exponent. Every dtype but bool; an integer to a negative whole power is an error. Shapes of
/// `out` and `input` are equal. `out` may be `input`.
DIOPI_API diopiError_t diopiPow(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                const diopiScalar_t *exponent);

/// input[i] = input[i] ^ exponent, in place. Every dtype but bool; an integer to a negative whole power is an error.
DIOPI_API diopiError_t diopiPowInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *exponent);

/// out[i] = input[i] ^ exponent[i]. `input` and `exponent` broadcast to out's shape and promote as in PyTorch; an
/// integer to a negative power is 0, or 1 and -1 for a base of 1 and -1. `out` may be one of them.
DIOPI_API diopiError_t diopiPowTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t exponent);

/// input[i] = input[i] ^ exponent[i], in place. `exponent` broadcasts to input's shape.
DIOPI_API diopiError_t diopiPowInpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         diopiConstTensorHandle_t exponent);

/// out[i] = input[i] + alpha * other[i]. `alpha` must be whole for integers. Every dtype; bool adds as logical or;
/// integers wrap. `input` and `other` broadcast to out's shape and promote as in PyTorch; `out` may be one of them,
/// element for element.
DIOPI_API diopiError_t diopiAdd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t other, const diopiScalar_t *alpha);

/// input[i] = input[i] + alpha * other[i], in place. `alpha` must be whole for integers. Every dtype; bool adds as
/// logical or; integers wrap. `other` broadcasts to input's shape; the result is converted to input's dtype, which must
/// be able to hold it.
DIOPI_API diopiError_t diopiAddInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                   diopiConstTensorHandle_t other, const diopiScalar_t *alpha);

/// out[i] = input[i] + alpha * other. `alpha` must be whole for integers. Every dtype; bool adds as logical or;
/// integers wrap. Shapes of `out` and `input` are equal; the number promotes as a Python number does. `out` may be
/// `input`.
DIOPI_API diopiError_t diopiAddScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *other,
                                      const diopiScalar_t *alpha);

/// input[i] = input[i] + alpha * other, in place. `alpha` must be whole for integers. Every dtype; bool adds as logical
/// or; integers wrap.
DIOPI_API diopiError_t diopiAddInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *other, const diopiScalar_t *alpha);

// foreach

/// outs[k][i] = inputs[k][i] + other. `inputSize` tensors, each with a shape and dtype of its own. outs[k] has
/// inputs[k]'s shape, allocated by the caller, and may be inputs[k].
DIOPI_API diopiError_t diopiForeachaddScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                             diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                             const diopiScalar_t *other);

/// inputs[k][i] += other, in place. `inputSize` tensors, each with a shape and dtype of its own.
DIOPI_API diopiError_t diopiForeachaddInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs,
                                                int64_t inputSize, const diopiScalar_t *other);

// pointwise binary

/// out[i] = input[i] - alpha * other[i]. `alpha` must be whole for integers. Every dtype but bool; integers wrap.
/// `input` and `other` broadcast to out's shape and promote as in PyTorch; `out` may be one of them, element for
/// element.
DIOPI_API diopiError_t diopiSub(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t other, const diopiScalar_t *alpha);

/// input[i] = input[i] - alpha * other[i], in place. `alpha` must be whole for integers. Every dtype but bool; integers
/// wrap. `other` broadcasts to input's shape; the result is converted to input's dtype, which must be able to hold it.
DIOPI_API diopiError_t diopiSubInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                   diopiConstTensorHandle_t other, const diopiScalar_t *alpha);

/// out[i] = input[i] - alpha * other. `alpha` must be whole for integers. Every dtype but bool; integers wrap. Shapes
/// of `out` and `input` are equal; the number promotes as a Python number does. `out` may be `input`.
DIOPI_API diopiError_t diopiSubScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *other,
                                      const diopiScalar_t *alpha);

/// input[i] = input[i] - alpha * other, in place. `alpha` must be whole for integers. Every dtype but bool; integers
/// wrap.
DIOPI_API diopiError_t diopiSubInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *other, const diopiScalar_t *alpha);

/// out[i] = input[i] * other[i]. Every dtype; bool multiplies as logical and; integers wrap. `input` and `other`
/// broadcast to out's shape and promote as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiMul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t other);

/// input[i] = input[i] * other[i], in place. Every dtype; bool multiplies as logical and; integers wrap. `other`
/// broadcasts to input's shape; the result is converted to input's dtype, which must be able to hold it.
DIOPI_API diopiError_t diopiMulInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = input[i] * other. Every dtype; bool multiplies as logical and; integers wrap. Shapes of `out` and `input`
/// are equal; the number promotes as a Python number does. `out` may be `input`.
DIOPI_API diopiError_t diopiMulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] * other, in place. Every dtype; bool multiplies as logical and; integers wrap.
DIOPI_API diopiError_t diopiMulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *other);

// foreach

/// outs[k][i] = inputs[k][i] * other. `inputSize` tensors, each with a shape and dtype of its own. outs[k] has
/// inputs[k]'s shape, allocated by the caller, and may be inputs[k].
DIOPI_API diopiError_t diopiForeachmulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                             diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                             const diopiScalar_t *other);

/// inputs[k][i] *= other, in place. `inputSize` tensors, each with a shape and dtype of its own.
DIOPI_API diopiError_t diopiForeachmulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs,
                                                int64_t inputSize, const diopiScalar_t *other);

/// outs[k][i] = inputs[k][i] * other, a tensor with one element. `inputSize` tensors, each with a shape and dtype of
/// its own. outs[k] has inputs[k]'s shape, allocated by the caller.
DIOPI_API diopiError_t diopiForeachmulTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                             diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                             const diopiConstTensorHandle_t other);

/// inputs[k][i] *= other, a tensor with one element, in place. `inputSize` tensors, each with a shape and dtype of its
/// own.
DIOPI_API diopiError_t diopiForeachmulInpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs,
                                                int64_t inputSize, const diopiConstTensorHandle_t other);

// pointwise binary

/// out[i] = input[i] / other[i]. `rounding_mode` rounds the quotient: none, towards zero, or downwards; without
/// rounding integers give a floating result. Every dtype. Division of integers by 0 with rounding is an error or gives
/// any value, never a crash. `input` and `other` broadcast to out's shape and promote as in PyTorch; `out` may be one
/// of them, element for element.
DIOPI_API diopiError_t diopiDiv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t other, diopiRoundMode_t rounding_mode);

/// input[i] = input[i] / other[i], in place. `rounding_mode` rounds the quotient: none, towards zero, or downwards;
/// without rounding integers give a floating result. Every dtype. Division of integers by 0 with rounding is an error
/// or gives any value, never a crash. `other` broadcasts to input's shape; the result is converted to input's dtype,
/// which must be able to hold it.
DIOPI_API diopiError_t diopiDivInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                   diopiConstTensorHandle_t other, diopiRoundMode_t rounding_mode);

/// out[i] = input[i] / other. `rounding_mode` rounds the quotient: none, towards zero, or downwards; without rounding
/// integers give a floating result. Every dtype. Division of integers by 0 with rounding is an error or gives any
/// value, never a crash. Shapes of `out` and `input` are equal; the number promotes as a Python number does. `out` may
/// be `input`.
DIOPI_API diopiError_t diopiDivScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, const diopiScalar_t *other,
                                      diopiRoundMode_t rounding_mode);

/// input[i] = input[i] / other, in place. `rounding_mode` rounds the quotient: none, towards zero, or downwards;
/// without rounding integers give a floating result. Every dtype. Division of integers by 0 with rounding is an error
/// or gives any value, never a crash.
DIOPI_API diopiError_t diopiDivInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         const diopiScalar_t *other, diopiRoundMode_t rounding_mode);

// matmul

/// out[b] = input[b] @ mat2[b]: (B, N, K) by (B, K, M) gives (B, N, M). One dtype; half types accumulate in float,
/// integers wrap. K = 0 gives zeros.
DIOPI_API diopiError_t diopiBmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t mat2);

/// out = beta * input + alpha * (batch1 @ batch2), batch by batch; `input` broadcasts to (B, N, M). beta = 0 ignores
/// input, NaN included. One dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiBaddbmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t batch1, diopiConstTensorHandle_t batch2, double beta,
                                    double alpha);

/// input = beta * input + alpha * (batch1 @ batch2), in place, batch by batch. beta = 0 ignores what input held. One
/// dtype.
DIOPI_API diopiError_t diopiBaddbmmInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                       diopiConstTensorHandle_t batch1, diopiConstTensorHandle_t batch2, double beta,
                                       double alpha);

// pointwise ternary

/// out[i] = input[i] + value * tensor1[i] * tensor2[i]. The three broadcast to out's shape and promote as in PyTorch;
/// `value` must be whole for integers. Every dtype but bool. `out` may be one of them.
DIOPI_API diopiError_t diopiAddcmul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t tensor1, diopiConstTensorHandle_t tensor2,
                                    const diopiScalar_t *value);

/// input[i] += value * tensor1[i] * tensor2[i], in place. The other two broadcast to input's shape. Every dtype but
/// bool.
DIOPI_API diopiError_t diopiAddcmulInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                       diopiConstTensorHandle_t tensor1, diopiConstTensorHandle_t tensor2,
                                       const diopiScalar_t *value);

// matmul

/// Matrix product with PyTorch's rules for ranks: vectors are rows or columns that vanish from the result, leading
/// dimensions broadcast. One dtype; half types accumulate in float, integers wrap.
DIOPI_API diopiError_t diopiMatmul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t other);

/// Gradients of diopiMatmul: grad_input has input's shape, grad_other other's; sums over broadcast dimensions. One
/// floating or complex dtype. Either gradient may be NULL when it is not wanted.
DIOPI_API diopiError_t diopiMatmulBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiTensorHandle_t grad_other, diopiConstTensorHandle_t grad_out,
                                           diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

// pointwise ternary

/// out[i] = input[i] + value * tensor1[i] / tensor2[i]. The three broadcast to out's shape and promote as in PyTorch.
/// Floating or complex dtypes. `out` may be one of them.
DIOPI_API diopiError_t diopiAddcdiv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t tensor1, diopiConstTensorHandle_t tensor2,
                                    const diopiScalar_t *value);

/// input[i] += value * tensor1[i] / tensor2[i], in place. The other two broadcast to input's shape. Floating or complex
/// dtypes.
DIOPI_API diopiError_t diopiAddcdivInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                       diopiConstTensorHandle_t tensor1, diopiConstTensorHandle_t tensor2,
                                       const diopiScalar_t *value);

// matmul

/// out = beta * input + alpha * (mat1 @ mat2): (N, K) by (K, M); `input` broadcasts to (N, M). beta = 0 ignores input,
/// NaN included. One dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiAddmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t mat1, diopiConstTensorHandle_t mat2,
                                  const diopiScalar_t *beta, const diopiScalar_t *alpha);

// linalg

/// out = the Cholesky factor of each symmetric positive-definite matrix of `mat` (..., N, N): lower, or upper; `info`
/// (int32) is 0, or the order of the first minor that is not positive; `checkerror` makes that an error. float32,
/// float64, complex.
DIOPI_API diopiError_t diopiCholesky(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t info,
                                     diopiConstTensorHandle_t mat, bool upper, bool checkerror);

/// Gradient of diopiCholesky with respect to the matrix, from grad_output and the factor `L`.
DIOPI_API diopiError_t diopiCholeskyBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_mat,
                                             diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t L,
                                             bool upper);

/// out = the solution of mat @ out = b for triangular matrices (upper or lower, transposed when `transpose`, with ones
/// on the diagonal when `unitriangular`); cloned_mat gets a copy of mat. Leading dimensions broadcast.
DIOPI_API diopiError_t diopiTriangularSolve(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiTensorHandle_t cloned_mat, diopiConstTensorHandle_t b,
                                            diopiConstTensorHandle_t mat, bool upper, bool transpose,
                                            bool unitriangular);

/// Gradients of diopiTriangularSolve: grad_b and grad_mat from grad_x and grad_cloned_mat, with its solution `x`.
DIOPI_API diopiError_t diopiTriangularSolveBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_b,
                                                    diopiTensorHandle_t grad_mat, diopiConstTensorHandle_t grad_x,
                                                    diopiConstTensorHandle_t grad_cloned_mat,
                                                    diopiConstTensorHandle_t x, diopiConstTensorHandle_t b,
                                                    diopiConstTensorHandle_t mat, bool upper, bool transpose,
                                                    bool unitriangular);

// pointwise ternary

/// input[i] = input[i] limited to [min, max], in place. `min` or `max` may be NULL, not both; `max` wins where min >
/// max. Real dtypes.
DIOPI_API diopiError_t diopiClampInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                           const diopiScalar_t *min, const diopiScalar_t *max);

/// input[i] = input[i] limited to [min, max], in place, with tensors as limits that broadcast to input's shape. `min`
/// or `max` may be NULL, not both; `max` wins where min > max. Real dtypes.
DIOPI_API diopiError_t diopiClampInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                     diopiConstTensorHandle_t min, diopiConstTensorHandle_t max);

/// out[i] = input[i] limited to [min, max]; NaN stays NaN. `min` or `max` may be NULL, not both; `max` wins where min >
/// max. Real dtypes. Shapes of `out` and `input` are equal. `out` may be `input`.
DIOPI_API diopiError_t diopiClampScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                        diopiConstTensorHandle_t input, const diopiScalar_t *min,
                                        const diopiScalar_t *max);

/// out[i] = input[i] limited to [min, max], with tensors as limits that broadcast and promote as in PyTorch; NaN stays
/// NaN, a limit that is NaN gives NaN. `min` or `max` may be NULL, not both; `max` wins where min > max. Real dtypes.
/// `out` may be `input`.
DIOPI_API diopiError_t diopiClamp(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t min, diopiConstTensorHandle_t max);

/// input[i] = the smaller of input[i] and max, in place. Real dtypes.
DIOPI_API diopiError_t diopiClampMaxInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                              const diopiScalar_t *max);

/// input[i] = the smaller of input[i] and max, in place, with tensors as limits that broadcast to input's shape. Real
/// dtypes.
DIOPI_API diopiError_t diopiClampMaxInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        diopiConstTensorHandle_t max);

/// out[i] = the smaller of input[i] and max; NaN stays NaN. Real dtypes. Shapes of `out` and `input` are equal. `out`
/// may be `input`.
DIOPI_API diopiError_t diopiClampMaxScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t input, const diopiScalar_t *max);

/// out[i] = the smaller of input[i] and max, with tensors as limits that broadcast and promote as in PyTorch; NaN stays
/// NaN, a limit that is NaN gives NaN. Real dtypes. `out` may be `input`.
DIOPI_API diopiError_t diopiClampMax(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t max);

/// input[i] = the larger of input[i] and min, in place. Real dtypes.
DIOPI_API diopiError_t diopiClampMinInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                              const diopiScalar_t *min);

/// input[i] = the larger of input[i] and min, in place, with tensors as limits that broadcast to input's shape. Real
/// dtypes.
DIOPI_API diopiError_t diopiClampMinInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        diopiConstTensorHandle_t min);

/// out[i] = the larger of input[i] and min; NaN stays NaN. Real dtypes. Shapes of `out` and `input` are equal. `out`
/// may be `input`.
DIOPI_API diopiError_t diopiClampMinScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t input, const diopiScalar_t *min);

/// out[i] = the larger of input[i] and min, with tensors as limits that broadcast and promote as in PyTorch; NaN stays
/// NaN, a limit that is NaN gives NaN. Real dtypes. `out` may be `input`.
DIOPI_API diopiError_t diopiClampMin(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t min);

// creation fill

/// Every element of `input` becomes `value`, converted to its dtype, in place. Every dtype.
DIOPI_API diopiError_t diopiFill(diopiContextHandle_t ctx, diopiTensorHandle_t input, const diopiScalar_t *value);

// logical bitwise

/// out[i] = input[i] != 0 and other[i] != 0. Operands broadcast to out's shape and may have different dtypes; `out` is
/// bool, or holds 0 and 1. Every dtype.
DIOPI_API diopiError_t diopiLogicalAnd(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

/// input[i] = input[i] != 0 and other[i] != 0 as 0 or 1 of input's dtype, in place. `other` broadcasts to input's
/// shape. Every dtype.
DIOPI_API diopiError_t diopiLogicalAndInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                          diopiConstTensorHandle_t other);

/// out[i] = input[i] != 0 or other[i] != 0. Operands broadcast to out's shape and may have different dtypes; `out` is
/// bool, or holds 0 and 1. Every dtype.
DIOPI_API diopiError_t diopiLogicalOr(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

/// input[i] = input[i] != 0 or other[i] != 0 as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape.
/// Every dtype.
DIOPI_API diopiError_t diopiLogicalOrInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         diopiConstTensorHandle_t other);

/// out[i] = input[i] == 0. Shapes are equal; `out` is bool, or holds 0 and 1. Every dtype.
DIOPI_API diopiError_t diopiLogicalNot(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input);

/// input[i] = input[i] == 0 as 0 or 1 of input's dtype, in place. Every dtype.
DIOPI_API diopiError_t diopiLogicalNotInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = input[i] & other[i]. Integers and bool (logical). `input` and `other` broadcast to out's shape and promote
/// as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiBitwiseAnd(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

/// input[i] = input[i] & other[i], in place. Integers and bool. `other` broadcasts to input's shape; the result is
/// converted to input's dtype, which must be able to hold it.
DIOPI_API diopiError_t diopiBitwiseAndInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                          diopiConstTensorHandle_t other);

/// out[i] = input[i] & other. Integers and bool (logical). Shapes of `out` and `input` are equal; the number promotes
/// as a Python number does. `out` may be `input`.
DIOPI_API diopiError_t diopiBitwiseAndScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] & other, in place. Integers and bool.
DIOPI_API diopiError_t diopiBitwiseAndInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                                const diopiScalar_t *other);

/// out[i] = input[i] | other[i]. Integers and bool (logical). `input` and `other` broadcast to out's shape and promote
/// as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiBitwiseOr(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

/// input[i] = input[i] | other[i], in place. Integers and bool. `other` broadcasts to input's shape; the result is
/// converted to input's dtype, which must be able to hold it.
DIOPI_API diopiError_t diopiBitwiseOrInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                         diopiConstTensorHandle_t other);

/// out[i] = input[i] | other. Integers and bool (logical). Shapes of `out` and `input` are equal; the number promotes
/// as a Python number does. `out` may be `input`.
DIOPI_API diopiError_t diopiBitwiseOrScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] | other, in place. Integers and bool.
DIOPI_API diopiError_t diopiBitwiseOrInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                               const diopiScalar_t *other);

/// out[i] = ~input[i]; logical not for bool. Shapes and dtypes are equal. Integers and bool. `out` may be `input`.
DIOPI_API diopiError_t diopiBitwiseNot(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input);

/// input[i] = ~input[i], in place; logical not for bool. Integers and bool.
DIOPI_API diopiError_t diopiBitwiseNotInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

// comparison

/// out[i] = input[i] == other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Every dtype. A
/// comparison with NaN is false.
DIOPI_API diopiError_t diopiEqScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] == other as 0 or 1 of input's dtype, in place. Every dtype. A comparison with NaN is false.
DIOPI_API diopiError_t diopiEqInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] == other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Every dtype. A comparison with NaN is false.
DIOPI_API diopiError_t diopiEq(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] == other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Every
/// dtype. A comparison with NaN is false.
DIOPI_API diopiError_t diopiEqInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// *out = the tensors have one shape and all elements are equal (NaN equals nothing). `out` points to one bool on the
/// host; the function waits for its result. Dtypes are equal.
DIOPI_API diopiError_t diopiEqual(diopiContextHandle_t ctx, bool *out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t other);

/// out[i] = input[i] != other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Every dtype. A
/// comparison with NaN is true.
DIOPI_API diopiError_t diopiNeScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] != other as 0 or 1 of input's dtype, in place. Every dtype. A comparison with NaN is true.
DIOPI_API diopiError_t diopiNeInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] != other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Every dtype. A comparison with NaN is true.
DIOPI_API diopiError_t diopiNe(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] != other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Every
/// dtype. A comparison with NaN is true.
DIOPI_API diopiError_t diopiNeInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = input[i] >= other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Real dtypes. A
/// comparison with NaN is false.
DIOPI_API diopiError_t diopiGeScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] >= other as 0 or 1 of input's dtype, in place. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGeInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] >= other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGe(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] >= other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Real
/// dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGeInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = input[i] > other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Real dtypes. A
/// comparison with NaN is false.
DIOPI_API diopiError_t diopiGtScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] > other as 0 or 1 of input's dtype, in place. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGtInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] > other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] > other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Real
/// dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiGtInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = input[i] <= other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Real dtypes. A
/// comparison with NaN is false.
DIOPI_API diopiError_t diopiLeScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] <= other as 0 or 1 of input's dtype, in place. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLeInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] <= other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLe(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] <= other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Real
/// dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLeInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = input[i] < other. Shapes of `out` and `input` are equal; `out` is bool, or holds 0 and 1. Real dtypes. A
/// comparison with NaN is false.
DIOPI_API diopiError_t diopiLtScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// input[i] = input[i] < other as 0 or 1 of input's dtype, in place. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLtInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        const diopiScalar_t *other);

/// out[i] = input[i] < other[i]. Operands broadcast to out's shape and are compared in their promoted dtype; `out` is
/// bool, or holds 0 and 1. Real dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLt(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t other);

/// input[i] = input[i] < other[i] as 0 or 1 of input's dtype, in place. `other` broadcasts to input's shape. Real
/// dtypes. A comparison with NaN is false.
DIOPI_API diopiError_t diopiLtInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other);

// reduction

/// Mean over `dim`. `dim` lists dimensions, -ndim to ndim - 1, none twice; an empty list means all. `out` has input's
/// shape with the reduced dimensions left out or kept as 1: its shape says which. Floating or complex `out`; elements
/// are converted to out's dtype and summed in float for half types. A mean over no elements is NaN.
DIOPI_API diopiError_t diopiMean(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiSize_t dim);

/// Sum over `dim`. `dim` lists dimensions, -ndim to ndim - 1, none twice; an empty list means all. `out` has input's
/// shape with the reduced dimensions left out or kept as 1: its shape says which. Elements are converted to out's dtype
/// first and summed in float for half types; integers and bool usually go to int64. A sum over no elements is 0.
DIOPI_API diopiError_t diopiSum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiSize_t dim);

/// Standard deviation over `dim`: sqrt(sum |x - mean|^2 / (n - correction)); `correction` NULL means 1. `dim` lists
/// dimensions, -ndim to ndim - 1, none twice; an empty list means all. `out` has input's shape with the reduced
/// dimensions left out or kept as 1: its shape says which. Floating or complex dtypes. NaN when n <= correction.
DIOPI_API diopiError_t diopiStd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiSize_t dim, const diopiScalar_t *correction);

/// min = the smallest elements along `dim`, min_indices their int64 positions (any one of equal elements); NaN wins.
/// Both results have input's shape without `dim` or with 1 there. Real dtypes. The dimension must not be empty.
DIOPI_API diopiError_t diopiMin(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiTensorHandle_t min_indices,
                                diopiConstTensorHandle_t input, int64_t dim);

/// min = the smallest element of all, a tensor with one element; NaN wins. Real dtypes. `input` must not be empty.
DIOPI_API diopiError_t diopiMinAll(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiConstTensorHandle_t input);

/// max = the largest elements along `dim`, max_indices their int64 positions (any one of equal elements); NaN wins.
/// Both results have input's shape without `dim` or with 1 there. Real dtypes. The dimension must not be empty.
DIOPI_API diopiError_t diopiMax(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiTensorHandle_t max_indices,
                                diopiConstTensorHandle_t input, int64_t dim);

/// max = the largest element of all, a tensor with one element; NaN wins. Real dtypes. `input` must not be empty.
DIOPI_API diopiError_t diopiMaxAll(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiConstTensorHandle_t input);

/// Is some element along *dim not zero? `dim` NULL: of all. `out` has input's shape with the reduced dimensions left
/// out or kept as 1: its shape says which. `out` is bool, or uint8 with 0 and 1. Every dtype. False over no elements.
DIOPI_API diopiError_t diopiAny(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                const int64_t *dim);

/// Are all elements along *dim not zero? `dim` NULL: of all. `out` has input's shape with the reduced dimensions left
/// out or kept as 1: its shape says which. `out` is bool, or uint8 with 0 and 1. Every dtype. True over no elements.
DIOPI_API diopiError_t diopiAll(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                const int64_t *dim);

// softmax

/// out = e^(x - max) / sum e^(x - max) along `dim`. Shapes are equal. Floating dtypes; `out` may be float32 for a half
/// input. Summed in float for half types. `out` may be `input`.
DIOPI_API diopiError_t diopiSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    int64_t dim);

/// grad_input = (grad_output - sum(grad_output * output)) * output along `dim`; `output` is the result of diopiSoftmax.
/// Shapes are equal; floating dtypes; grad_input may be half when the others are float32.
DIOPI_API diopiError_t diopiSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output,
                                            int64_t dim);

/// out = x - max - ln sum e^(x - max) along `dim`. Shapes are equal. Floating dtypes; `out` may be float32 for a half
/// input. `out` may be `input`.
DIOPI_API diopiError_t diopiLogSoftmax(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, int64_t dim);

/// grad_input = grad_output - e^output * sum(grad_output) along `dim`; `output` is the result of diopiLogSoftmax.
/// Shapes are equal; floating dtypes; grad_input may be half when the others are float32.
DIOPI_API diopiError_t diopiLogSoftmaxBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                               diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t output,
                                               int64_t dim);

// indexing

/// Advanced indexing input[indices[0], indices[1], ...]: `nums` tensors, NULL for a full slice. Index tensors broadcast
/// together; a bool or uint8 mask stands for its nonzero positions. The broadcast dimensions take the place of the
/// indexed ones when these are adjacent, else they come first. `out` receives a tensor that the library makes. Index
/// tensors are int64 or int32 (bool masks where said); negative values count from the end; a value out of range is an
/// error before anything is written. Every dtype.
DIOPI_API diopiError_t diopiIndex(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t *indices, int64_t nums);

/// grad_input = zeros_like_input with grad_output added at `indices`, as diopiIndex reads them; zeros_like_input comes
/// filled with zeros and may be grad_input. Index tensors are int64 or int32 (bool masks where said); negative values
/// count from the end; a value out of range is an error before anything is written.
DIOPI_API diopiError_t diopiIndexBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiTensorHandle_t zeros_like_input, diopiConstTensorHandle_t *indices,
                                          int64_t nums, diopiConstTensorHandle_t grad_output);

/// out = the slices of `input` along `dim` that `index` (1-d) names, in its order. `index` is int64 or int32 and not
/// negative; a value out of range is an error. Every dtype.
DIOPI_API diopiError_t diopiIndexSelect(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                        diopiConstTensorHandle_t input, int64_t dim, diopiConstTensorHandle_t index);

/// grad_input, of shape input_sizes: zeros with the slices of `grad` added at `index` along `dim`.
DIOPI_API diopiError_t diopiIndexSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                diopiConstTensorHandle_t grad, diopiSize_t input_sizes, int64_t dim,
                                                diopiConstTensorHandle_t index);

/// out = input at `index` along `dim`, without that dimension. `index` counts from the end when negative. Every dtype.
DIOPI_API diopiError_t diopiSelect(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   int64_t dim, int64_t index);

/// grad_input, of shape input_sizes: zeros with grad_output at `index` along `dim`.
DIOPI_API diopiError_t diopiSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                           int64_t index);

/// out = `input` with `src` put at `index` along `dim`. Shapes of out and input are equal; src lacks `dim`. Every
/// dtype.
DIOPI_API diopiError_t diopiSelectScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t src, int64_t dim,
                                          int64_t index);

/// out = `input` with `src` put into the slice start:end:step along `dim`. Negative bounds count from the end; step is
/// positive. Every dtype.
DIOPI_API diopiError_t diopiSliceScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t src, int64_t dim,
                                         int64_t start, int64_t end, int64_t step);

/// null_out = the slice start:end:step of `input` along `dim`, copied. Negative bounds count from the end and are
/// limited to the size; step is positive. Every dtype.
DIOPI_API diopiError_t diopiSlice(diopiContextHandle_t ctx, diopiTensorHandle_t null_out,
                                  diopiConstTensorHandle_t input, int64_t dim, int64_t start, int64_t end,
                                  int64_t step);

/// grad_input, of shape input_sizes: zeros with grad_output in the slice start:end:step along `dim`.
DIOPI_API diopiError_t diopiSliceBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                          int64_t start, int64_t end, int64_t step);

/// out = `input` with the elements where `mask` is true replaced, in row-major order, by the first elements of
/// `source`; too few are an error. `mask` (bool) broadcasts to input's shape. Every dtype.
DIOPI_API diopiError_t diopiMaskedScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                          diopiConstTensorHandle_t source);

// vision

/// `out` receives the int64 positions of the boxes (x1, y1, x2, y2) that stay, by falling `confidence`: a box goes when
/// its overlap with one that stays exceeds iou_threshold. The function waits for its result.
DIOPI_API diopiError_t diopiNms(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t boxes,
                                diopiConstTensorHandle_t confidence, double iou_threshold);

// indexing

/// `out` receives an int64 tensor (count, ndim) of the positions of elements that are not zero, in row-major order.
/// Every dtype. The function waits for its result.
DIOPI_API diopiError_t diopiNonzero(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input);

// matmul

/// out = input @ weight^T + bias: input (..., K), weight (M, K), bias (M) or NULL, out (..., M). One floating or
/// complex dtype.
DIOPI_API diopiError_t diopiLinear(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias);

/// Gradients of diopiLinear from grad_output: grad_input (..., K), grad_weight (M, K), grad_bias (M), any of which may
/// be NULL when it is not wanted.
DIOPI_API diopiError_t diopiLinearBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           diopiConstTensorHandle_t weight);

// vision

/// out (K, C, pooled_height, pooled_width) = means of bilinear samples of `input` (N, C, H, W) in the bins of rois (K,
/// 5): batch number, x1, y1, x2, y2, times spatial_scale. sampling_ratio of 0 or less: as many samples as fit.
/// `aligned` shifts by half a pixel.
DIOPI_API diopiError_t diopiRoiAlign(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                     double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                                     int64_t sampling_ratio, bool aligned);

/// Gradient of diopiRoiAlign: out (batch_size, channels, height, width) from `grad`.
DIOPI_API diopiError_t diopiRoiAlignBackward(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t grad, diopiConstTensorHandle_t rois,
                                             double spatial_scale, int64_t pooled_height, int64_t pooled_width,
                                             int64_t batch_size, int64_t channels, int64_t height, int64_t width,
                                             int64_t sampling_ratio, bool aligned);

// optimizer

/// g = grad + weight_decay * param; with momentum: buf = momentum * buf + (1 - dampening) * g (buf = g where it is NaN
/// or new: the caller passes zeros and dampening 0 on the first step), g = nesterov ? g + momentum * buf : buf; param
/// -= lr * g. In place; `buf` may be NULL without momentum. One floating dtype.
DIOPI_API diopiError_t diopiSgd(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiTensorHandle_t grad,
                                diopiTensorHandle_t buf, double lr, double momentum, double dampening,
                                double weight_decay, bool nesterov);

/// *out (a double on the host) = the norm of order norm_type over all elements of the `num_grads` tensors; where it
/// exceeds max_norm they are scaled by max_norm / (norm + 1e-6), in place. `error_if_nonfinite` makes a norm that is
/// not finite an error. The function waits for its result.
DIOPI_API diopiError_t diopiClipGradNorm(diopiContextHandle_t ctx, double *out, diopiTensorHandle_t *grads,
                                         int64_t num_grads, double max_norm, double norm_type, bool error_if_nonfinite);

// embedding

/// The rows of `inout` that `indices` name and whose norm of order norm_type exceeds max_norm are scaled down to
/// max_norm, in place.
DIOPI_API diopiError_t diopiEmbeddingRenorm_(diopiContextHandle_t ctx, diopiTensorHandle_t inout,
                                             diopiConstTensorHandle_t indices, double max_norm, double norm_type);

/// out[..., :] = weight[indices[...], :]; weight (V, D), indices of int64 or int32, out (..., D). An index out of range
/// is an error. padding_idx, scale_grad_byfreq and sparse matter to the gradient alone.
DIOPI_API diopiError_t diopiEmbedding(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t weight, diopiConstTensorHandle_t indices,
                                      int64_t padding_idx, bool scale_grad_byfreq, bool sparse);

/// out (num_weights, D) = sums of the rows of `grad` by `indices`; the row padding_idx stays 0 (negative: none);
/// `scale_grad_byfreq` divides by the number of times an index occurs. `sparse` true is not supported.
DIOPI_API diopiError_t diopiEmbeddingBackward(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t grad, diopiConstTensorHandle_t indices,
                                              int64_t num_weights, int64_t padding_idx, bool scale_grad_byfreq,
                                              bool sparse);

// shape layout

/// out = `input` with everything above the `diagonal` of its last two dimensions 0. Shapes and dtypes are equal. Every
/// dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiTril(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 int64_t diagonal);

/// out = the tensors one after another along `dim`; other dimensions are equal, 1-d empty tensors are passed over.
/// Elements are converted to out's dtype. Every dtype.
DIOPI_API diopiError_t diopiCat(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t *tensors,
                                int64_t num_inputs, int64_t dim);

/// outs[k] = piece k of `input` along `dim`, of splitSizes[k] slices; the caller has made `num_outs` tensors. The sizes
/// sum up to the dimension. Every dtype.
DIOPI_API diopiError_t diopiSplitWithSizes(diopiContextHandle_t ctx, diopiTensorHandle_t *outs, int64_t num_outs,
                                           diopiConstTensorHandle_t input, const diopiSize_t splitSizes, int64_t dim);

/// out = the tensors, all of one shape, along a new dimension `dim`. Elements are converted to out's dtype. Every
/// dtype.
DIOPI_API diopiError_t diopiStack(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                  diopiConstTensorHandle_t *tensors, int64_t numTensors, int64_t dim);

// sort search

/// values = `input` sorted along `dim`, indices (int64) where each element came from. NaN counts as largest. *pStable
/// true keeps equal elements in order; NULL counts as false. Real dtypes.
DIOPI_API diopiError_t diopiSort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                                 diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *pStable);

/// grad_input, of shape `sizes`: zeros with grad_output put at `indices` along `dim`. `keepdim` false: the dimension
/// was left out of grad_output.
DIOPI_API diopiError_t diopiSortBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, int64_t dim,
                                         diopiConstTensorHandle_t indices, diopiSize_t sizes, bool keepdim);

/// values = the k largest (or smallest) elements along `dim`, indices (int64) their positions, in order when `sorted`.
/// NaN counts as largest. Real dtypes. k is at most the dimension's size.
DIOPI_API diopiError_t diopiTopk(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                                 diopiConstTensorHandle_t input, int64_t k, int64_t dim, bool largest, bool sorted);

// shape layout

/// out = `input` with dim0 and dim1 exchanged, copied. Every dtype.
DIOPI_API diopiError_t diopiTranspose(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, int64_t dim0, int64_t dim1);

/// out[..., k] = input[...] == k, in int64; num_classes of -1 takes the largest value plus one, which out's shape
/// tells. Classes are not negative and below num_classes.
DIOPI_API diopiError_t diopiOneHot(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   int64_t num_classes);

// pointwise ternary

/// out[i] = condition[i] ? input[i] : other[i]. The three broadcast to out's shape; `condition` is bool (or uint8);
/// `input` and `other` promote as in PyTorch. Every dtype. `out` may be `input` or `other`.
DIOPI_API diopiError_t diopiWhere(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                  diopiConstTensorHandle_t condition, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t other);

// indexing

/// out[i] = mask[i] ? value : input[i], with a 0-d tensor as value. `mask` is bool (or uint8) and broadcasts to input's
/// shape. Every dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiMaskedFill(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                       diopiConstTensorHandle_t value);

/// input[i] = value where mask[i], in place, with a 0-d tensor as value. `mask` is bool (or uint8) and broadcasts to
/// input's shape. Every dtype.
DIOPI_API diopiError_t diopiMaskedFillInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                          diopiConstTensorHandle_t mask, diopiConstTensorHandle_t value);

/// out[i] = mask[i] ? value : input[i]. `mask` is bool (or uint8) and broadcasts to input's shape. Every dtype. `out`
/// may be `input`.
DIOPI_API diopiError_t diopiMaskedFillScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask,
                                             const diopiScalar_t *value);

/// input[i] = value where mask[i], in place. `mask` is bool (or uint8) and broadcasts to input's shape. Every dtype.
DIOPI_API diopiError_t diopiMaskedFillInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                                diopiConstTensorHandle_t mask, const diopiScalar_t *value);

// pointwise unary

/// out[i] = 1 / x, with x = input[i]. Shapes are equal. Floating or complex dtypes; an integer or bool input computes
/// in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiReciprocal(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input);

/// input[i] = 1 / x, with x = input[i], in place. Floating or complex dtypes.
DIOPI_API diopiError_t diopiReciprocalInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

// optimizer

/// diopiAdamW for `nums` tensors; state_steps[k] is a 0-d tensor that holds the step, counted already; `maximize` takes
/// -grad. max_exp_avg_sqs may be NULL without amsgrad. In place.
DIOPI_API diopiError_t diopiFusedAdamW(diopiContextHandle_t ctx, diopiTensorHandle_t *params,
                                       diopiConstTensorHandle_t *grads, diopiTensorHandle_t *exp_avgs,
                                       diopiTensorHandle_t *exp_avg_sqs, diopiTensorHandle_t *max_exp_avg_sqs,
                                       diopiConstTensorHandle_t *state_steps, int64_t nums, double lr, double beta1,
                                       double beta2, double eps, double weight_decay, bool amsgrad, bool maximize);

/// param *= 1 - lr * weight_decay, g = grad; exp_avg = beta1 * exp_avg + (1 - beta1) * g, exp_avg_sq = beta2 *
/// exp_avg_sq + (1 - beta2) * g^2, param -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq / (1 - beta2^step)) +
/// eps); `amsgrad` uses the largest exp_avg_sq so far, kept in max_exp_avg_sq, which may be NULL otherwise. `step`
/// counts from 1. In place.
DIOPI_API diopiError_t diopiAdamW(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiConstTensorHandle_t grad,
                                  diopiTensorHandle_t exp_avg, diopiTensorHandle_t exp_avg_sq,
                                  diopiTensorHandle_t max_exp_avg_sq, float lr, float beta1, float beta2, float eps,
                                  float weight_decay, int64_t step, bool amsgrad);

// conv

/// 2-d transposed convolution: input (N, C, H, W) or without N, weight (C, O / groups, kH, kW), bias (O) or NULL.
/// `output_padding` enlarges one side of the result and is smaller than stride or dilation. Otherwise as
/// diopiConvolution2d.
DIOPI_API diopiError_t diopiConvTranspose2d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                            diopiConstTensorHandle_t bias, diopiSize_t stride, diopiSize_t padding,
                                            diopiSize_t output_padding, int64_t groups, diopiSize_t dilation);

/// Gradients of diopiConvTranspose2d from grad_output. grad_input, grad_weight and grad_bias may be NULL when they are
/// not wanted; `bias_sizes` is the shape of the bias, NULL when there is none.
DIOPI_API diopiError_t diopiConvTranspose2dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                                    diopiConstTensorHandle_t grad_output,
                                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                                    diopiSize_t *bias_sizes, diopiSize_t stride, diopiSize_t padding,
                                                    diopiSize_t dilation, diopiSize_t output_padding, int64_t groups);

/// 3-d transposed convolution: input (N, C, D, H, W) or without N, weight (C, O / groups, kD, kH, kW), bias (O) or
/// NULL. `output_padding` enlarges one side of the result and is smaller than stride or dilation. Otherwise as
/// diopiConvolution3d.
DIOPI_API diopiError_t diopiConvTranspose3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                            diopiConstTensorHandle_t bias, diopiSize_t stride, diopiSize_t padding,
                                            diopiSize_t output_padding, int64_t groups, diopiSize_t dilation);

/// Gradients of diopiConvTranspose3d from grad_output. grad_input, grad_weight and grad_bias may be NULL when they are
/// not wanted; `bias_sizes` is the shape of the bias, NULL when there is none.
DIOPI_API diopiError_t diopiConvTranspose3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                    diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                                    diopiConstTensorHandle_t grad_output,
                                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                                    diopiSize_t *bias_sizes, diopiSize_t stride, diopiSize_t padding,
                                                    diopiSize_t dilation, diopiSize_t output_padding, int64_t groups);

// shape layout

/// out = windows of `size` elements every `step` along `dim`, as a new last dimension, copied. Every dtype.
DIOPI_API diopiError_t diopiUnfold(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   int64_t dim, int64_t size, int64_t step);

/// grad_input, of shape input_sizes: sums of grad_output over the windows that diopiUnfold took.
DIOPI_API diopiError_t diopiUnfoldBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiSize_t input_sizes, int64_t dim,
                                           int64_t size, int64_t step);

// scan

/// out[.., k, ..] = the sum of input[.., 0..k, ..] along `dim`. Shapes are equal; elements are converted to out's dtype
/// first. Every dtype; bool goes to int64. `out` may be `input` when dtypes are equal.
DIOPI_API diopiError_t diopiCumsum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   int64_t dim);

/// grad_input[.., k, ..] = the sum of grad_output[.., k.., ..] along `dim`. Shapes are equal.
DIOPI_API diopiError_t diopiCumsumBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, int64_t dim);

// linalg

/// out[.., i, j] = the p-norm distance of row i of input1 (..., P, M) and row j of input2 (..., R, M). *compute_mode:
/// NULL or 0 uses a matrix product for p = 2 above 25 rows, 1 always, 2 never. Leading dimensions broadcast.
DIOPI_API diopiError_t diopiCdist(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input1,
                                  diopiConstTensorHandle_t input2, double p, const int64_t *compute_mode);

/// Gradient of diopiCdist with respect to input1, with its result `cdist`.
DIOPI_API diopiError_t diopiCdistBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input1,
                                          diopiConstTensorHandle_t input2, double p, diopiConstTensorHandle_t cdist);

// reduction

/// int64 position of the largest element along *dim, the first of equal ones; NaN counts as largest. `dim` NULL:
/// position in the flattened input. `keepdim` keeps *dim as 1. Real dtypes. The dimension must not be empty.
DIOPI_API diopiError_t diopiArgmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   const int64_t *dim, bool keepdim);

/// int64 position of the smallest element along *dim, the first of equal ones; NaN counts as smallest. `dim` NULL:
/// position in the flattened input. `keepdim` keeps *dim as 1. Real dtypes. The dimension must not be empty.
DIOPI_API diopiError_t diopiArgmin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   const int64_t *dim, bool keepdim);

// sort search

/// out (int64) = the positions that sort `input` along *dim (NULL: the last). NaN counts as largest. `stable` keeps
/// equal elements in order. Real dtypes.
DIOPI_API diopiError_t diopiArgsort(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    bool stable, const int64_t *dim, bool descending);

// optimizer

/// g = grad + weight_decay * param; square_avg = rho * square_avg + (1 - rho) * g^2; delta = sqrt((acc_delta + eps) /
/// (square_avg + eps)) * g; acc_delta = rho * acc_delta + (1 - rho) * delta^2; param -= lr * delta. In place.
DIOPI_API diopiError_t diopiAdadelta(diopiContextHandle_t ctx, diopiTensorHandle_t param,
                                     diopiConstTensorHandle_t grad, diopiTensorHandle_t square_avg,
                                     diopiTensorHandle_t acc_delta, float lr, float rho, float eps, float weight_decay);

/// g = grad + weight_decay * param; exp_avg = beta1 * exp_avg + (1 - beta1) * g, exp_avg_sq = beta2 * exp_avg_sq + (1 -
/// beta2) * g^2, param -= lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq / (1 - beta2^step)) + eps); `amsgrad` uses
/// the largest exp_avg_sq so far, kept in max_exp_avg_sq, which may be NULL otherwise. `step` counts from 1. In place.
DIOPI_API diopiError_t diopiAdam(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiConstTensorHandle_t grad,
                                 diopiTensorHandle_t exp_avg, diopiTensorHandle_t exp_avg_sq,
                                 diopiTensorHandle_t max_exp_avg_sq, float lr, float beta1, float beta2, float eps,
                                 float weight_decay, int64_t step, bool amsgrad);

/// g = grad + weight_decay * param; square_avg = alpha * square_avg + (1 - alpha) * g^2; `centered` subtracts the
/// square of grad_avg = alpha * grad_avg + (1 - alpha) * g; step = g / (sqrt(avg) + eps); with momentum momentum_buf =
/// momentum * momentum_buf + step; param -= lr * step. grad_avg and momentum_buf may be NULL where unused. In place.
DIOPI_API diopiError_t diopiRmsprop(diopiContextHandle_t ctx, diopiTensorHandle_t param,
                                    diopiConstTensorHandle_t grad, diopiTensorHandle_t square_avg,
                                    diopiTensorHandle_t grad_avg, diopiTensorHandle_t momentum_buf, float lr,
                                    float alpha, float eps, float weight_decay, float momentum, bool centered);

// loss

/// 0.5 d^2 / beta where |d| < beta, else |d| - 0.5 beta, with d = input - target; beta = 0 is |d|. beta must not be
/// negative. ReductionNone keeps the shape, ReductionMean and ReductionSum give one element. Floating dtypes.
DIOPI_API diopiError_t diopiSmoothL1Loss(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                         diopiReduction_t reduction, double beta);

/// Gradient of diopiSmoothL1Loss with respect to `input` for the same attributes; grad_output has the shape of its
/// result. grad_input has input's shape.
DIOPI_API diopiError_t diopiSmoothL1LossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                                 diopiConstTensorHandle_t target, diopiReduction_t reduction,
                                                 double beta);

// conv

/// 3-d convolution (cross-correlation): input (N, C, D, H, W) or without N, weight (O, C / groups, kD, kH, kW), bias
/// (O) or NULL, out (N, O, ...). `stride`, `padding`, `dilation` have 3 values or one for all; padding is zeros. C and
/// O are multiples of `groups`. One floating or complex dtype; half types accumulate in float. Any dense layout,
/// channels-last included.
DIOPI_API diopiError_t diopiConvolution3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                          diopiConstTensorHandle_t bias, diopiSize_t stride, diopiSize_t padding,
                                          diopiSize_t dilation, int64_t groups);

/// Gradients of diopiConvolution3d from grad_output. grad_input, grad_weight and grad_bias may be NULL when they are
/// not wanted; `bias_sizes` is the shape of the bias, NULL when there is none.
DIOPI_API diopiError_t diopiConvolution3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                  diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                                  diopiConstTensorHandle_t grad_output,
                                                  diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                                  diopiSize_t *bias_sizes, diopiSize_t stride, diopiSize_t padding,
                                                  diopiSize_t dilation, int64_t groups);

// pooling

/// Mean of each window: input (N, C, D, H, W) or (C, D, H, W); lists as in diopiMaxPool3d. `count_include_pad` counts
/// padding as zeros, else the divisor is the number of real elements. `divisor_override`, where not NULL, is the
/// divisor. Floating dtypes.
DIOPI_API diopiError_t diopiAvgPool3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, bool ceil_mode, bool count_include_pad,
                                      const int64_t *divisor_override);

/// Gradient of diopiAvgPool3d: every element of a window gets its share of grad_output.
DIOPI_API diopiError_t diopiAvgPool3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              bool ceil_mode, bool count_include_pad, const int64_t *divisor_override);

/// Largest element of each window: input (N, C, D, H, W) or (C, D, H, W). `kernel_size`, `stride` (empty: the kernel),
/// `padding` (at most half the kernel, counted as -inf), `dilation` have 3 values or one for all; `ceil_mode` also
/// takes windows that begin inside and end outside. NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiMaxPool3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiSize_t kernel_size, diopiSize_t stride,
                                      diopiSize_t padding, diopiSize_t dilation, bool ceil_mode);

/// diopiMaxPool3d, and in `indices` (int64) the position of each element within its plane, row-major; the first of
/// equal ones.
DIOPI_API diopiError_t diopiMaxPool3dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                 diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                                 diopiSize_t dilation, bool ceil_mode);

/// grad_input = sums of grad_output at the `indices` that diopiMaxPool3dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiMaxPool3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiSize_t kernel_size, diopiSize_t stride, diopiSize_t padding,
                                              diopiSize_t dilation, bool ceil_mode, diopiConstTensorHandle_t indices);

/// Means over a grid of output_size windows, window k from floor(k * size / out) to ceil((k + 1) * size / out): input
/// (N, C, D, H, W) or (C, D, H, W). Floating dtypes.
DIOPI_API diopiError_t diopiAdaptiveAvgPool3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// Gradient of diopiAdaptiveAvgPool3d; `input` tells the shape.
DIOPI_API diopiError_t diopiAdaptiveAvgPool3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input);

/// Largest elements over the windows of diopiAdaptiveAvgPool3d; NaN wins. Real dtypes.
DIOPI_API diopiError_t diopiAdaptiveMaxPool3d(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                              diopiConstTensorHandle_t input, diopiSize_t output_size);

/// diopiAdaptiveMaxPool3d, and in `indices` (int64) the position of each element within its plane, row-major.
DIOPI_API diopiError_t diopiAdaptiveMaxPool3dWithIndices(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                         diopiTensorHandle_t indices, diopiConstTensorHandle_t input,
                                                         diopiSize_t output_size);

/// grad_input = sums of grad_output at the `indices` that diopiAdaptiveMaxPool3dWithIndices gave, 0 elsewhere.
DIOPI_API diopiError_t diopiAdaptiveMaxPool3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices);

/// All 3-d poolings by one function: `mode` is "max" or "avg"; `exclusive` leaves padding out of means; `adaptive`
/// takes windows from `output_size` and ignores ksize, stride and padding.
DIOPI_API diopiError_t diopiPool3d(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   const char *mode, diopiSize_t ksize, diopiSize_t stride, diopiSize_t padding,
                                   diopiSize_t dilation, const bool ceil_mode, const bool exclusive,
                                   const bool adaptive, diopiSize_t output_size);

/// Gradient of diopiPool3d with the same attributes; `indices` is needed for "max" alone and may be NULL otherwise.
DIOPI_API diopiError_t diopiPool3dBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           const char *mode, diopiSize_t ksize, diopiSize_t stride,
                                           diopiSize_t padding, diopiSize_t dilation, const bool ceil_mode,
                                           const bool exclusive, const bool adaptive, diopiConstTensorHandle_t indices);

// indexing

/// `out` receives a 1-d tensor of the elements where `mask` is true, in row-major order; input and mask (bool)
/// broadcast together. Every dtype. The function waits for its result.
DIOPI_API diopiError_t diopiMaskedSelect(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t mask);

/// grad_input, of input's shape: zeros with the elements of grad_output at the places that diopiMaskedSelect took them
/// from; sums over broadcast dimensions.
DIOPI_API diopiError_t diopiMaskedSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                                 diopiConstTensorHandle_t mask);

// pointwise binary

/// out[i] = the larger of input[i] and other[i]; NaN when one is NaN. Real dtypes. `input` and `other` broadcast to
/// out's shape and promote as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiMaximum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t other);

/// out[i] = the smaller of input[i] and other[i]; NaN when one is NaN. Real dtypes. `input` and `other` broadcast to
/// out's shape and promote as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiMinimum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiConstTensorHandle_t other);

// matmul

/// out = input @ mat2: (N, K) by (K, M). One dtype; half types accumulate in float, integers wrap. K = 0 gives zeros.
DIOPI_API diopiError_t diopiMm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t mat2);

// indexing

/// out = `input` with the slices that `index` names along `dim` set to `value`. `index` is 1-d, int64 or int32,
/// negative values count from the end, out of range is an error. Every dtype.
DIOPI_API diopiError_t diopiIndexFillScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, int64_t dim,
                                            diopiConstTensorHandle_t index, const diopiScalar_t *value);

/// out = `input` with the slices that `index` names along `dim` set to the 0-d tensor `value`. `index` is 1-d, int64 or
/// int32, negative values count from the end, out of range is an error. Every dtype.
DIOPI_API diopiError_t diopiIndexFill(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, int64_t dim, diopiConstTensorHandle_t index,
                                      diopiConstTensorHandle_t value);

/// The slices of `input` that `index` names along `dim` are set to `value`, in place. `index` is 1-d, int64 or int32,
/// negative values count from the end, out of range is an error. Every dtype.
DIOPI_API diopiError_t diopiIndexFillInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                               diopiConstTensorHandle_t index, const diopiScalar_t *value);

/// The slices of `input` that `index` names along `dim` are set to the 0-d tensor `value`, in place. `index` is 1-d,
/// int64 or int32, negative values count from the end, out of range is an error. Every dtype.
DIOPI_API diopiError_t diopiIndexFillInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                         diopiConstTensorHandle_t index, diopiConstTensorHandle_t value);

// shape layout

/// out = `input` broadcast to out's shape, copied. Every dtype.
DIOPI_API diopiError_t diopiExpand(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// creation fill

/// out = `steps` numbers from `start` to `end`, both included, at equal distances. 1-d. Every real dtype; whole for
/// integers, rounded towards zero.
DIOPI_API diopiError_t diopiLinspace(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *start,
                                     const diopiScalar_t *end, int64_t steps);

// shape layout

/// out = `input` with its dimensions in the order `dims`, copied. Every dtype.
DIOPI_API diopiError_t diopiPermute(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    diopiSize_t dims);

/// out = `input` with pad[0], pad[1] elements before and behind the last dimension, pad[2], pad[3] the one before it,
/// and so on; negative values cut. `mode`: "constant" (with *value, 0 when NULL), "reflect", "replicate", "circular".
/// Every dtype for constant.
DIOPI_API diopiError_t diopiPad(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiSize_t pad, const char *mode, const double *value);

/// out = `input` with its elements moved by shifts[k] along dims[k], those at the end coming back at the beginning.
/// Without `dims` the flattened input is rolled by one shift. Every dtype.
DIOPI_API diopiError_t diopiRoll(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiSize_t shifts, diopiSize_t dims);

/// out = `input` in reverse order along `dims`. Every dtype.
DIOPI_API diopiError_t diopiFlip(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiSize_t dims);

// reduction

/// p-norm (sum |x|^p)^(1/p) over `dim`; p of 0 counts elements that are not zero, inf and -inf take the largest and
/// smallest |x|. `dim` lists dimensions, -ndim to ndim - 1, none twice; an empty list means all. `out` has input's
/// shape with the reduced dimensions left out or kept as 1: its shape says which. Floating or complex dtypes; `out` is
/// real.
DIOPI_API diopiError_t diopiNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 const diopiScalar_t *p, diopiSize_t dim);

/// Gradient of diopiNorm: grad_input = grad_output * d norm / d self, with `norm` the result of diopiNorm over the same
/// `dim` and `p`; 0 where the norm is 0. grad_input has self's shape; grad_output and norm keep `dim` as 1 or leave it
/// out.
DIOPI_API diopiError_t diopiNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t self,
                                         diopiConstTensorHandle_t norm, diopiSize_t dim, const diopiScalar_t *p);

// normalization

/// diopiLayerNorm over the dimensions from `begin_norm_axis` on; running_mean and running_var get the mean and 1 /
/// sqrt(var + eps) of each row.
DIOPI_API diopiError_t diopiLayerNormGB(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                        diopiTensorHandle_t running_mean, diopiTensorHandle_t running_var,
                                        diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                        diopiConstTensorHandle_t bias, const double eps, const int64_t begin_norm_axis);

// foreach

/// outs[k] = the vector norm of order `ord` over all elements of inputs[k]; 0-d results, allocated by the caller.
/// `inputSize` tensors, each with a shape and dtype of its own. Floating or complex dtypes.
DIOPI_API diopiError_t diopiForeachnormScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                              diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                              const diopiScalar_t *ord);

// normalization

/// out = (input - mean) * rstd * weight + bias over each of `num_groups` groups of channels (dimension 1) with all
/// positions; weight and bias (C) may be NULL. save_mean and save_invstd are (N, num_groups). Statistics are float32
/// for half types, else of input's dtype. Floating dtypes.
DIOPI_API diopiError_t diopiGroupNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiTensorHandle_t save_mean, diopiTensorHandle_t save_invstd,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                      diopiConstTensorHandle_t bias, int64_t num_groups, double eps);

/// Gradients of diopiGroupNorm from grad_output, with its saved `mean` and `rstd`. grad_weight and grad_bias may be
/// NULL when they are not wanted; so may weight.
DIOPI_API diopiError_t diopiGroupNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiConstTensorHandle_t weight, diopiConstTensorHandle_t mean,
                                              diopiConstTensorHandle_t rstd, int64_t num_groups);

// reduction

/// Vector norm of order `ord` over `dim`, as diopiNorm; `keepdim` keeps the reduced dimensions as 1. `dim` lists
/// dimensions, -ndim to ndim - 1, none twice; an empty list means all. Floating or complex dtypes; `out` is real.
DIOPI_API diopiError_t diopiLinalgVecNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, diopiScalar_t *ord, diopiSize_t dim,
                                          bool keepdim);

// sort search

/// `out` receives the distinct elements, or slices along *dim; `sorted` puts them in order. indices (int64, input's
/// shape or the dimension's length) gets the number of each element's value and may be NULL; `counts` receives how
/// often each occurs, with return_counts. The function waits for its result.
DIOPI_API diopiError_t diopiUnique(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                                   const int64_t *dim, bool sorted, bool return_counts, diopiTensorHandle_t indices,
                                   diopiTensorHandle_t *counts);

// reduction

/// Product along *dim; `dim` NULL: of all. `out` has input's shape with the reduced dimensions left out or kept as 1:
/// its shape says which. Elements are converted to out's dtype first. A product over no elements is 1.
DIOPI_API diopiError_t diopiProd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 const int64_t *dim);

// loss

/// Connectionist temporal classification: log_probs (T, N, C) of log-softmax, targets (N, S) or concatenated, lengths
/// of int64 or int32. neg_log_likelihood (N) and log_alpha (N, T, 2 S + 1) are kept for the gradient. `zero_infinity`
/// turns infinite losses into 0. The mean divides by target lengths first. ReductionNone keeps the shape, ReductionMean
/// and ReductionSum give one element. float32 and float64.
DIOPI_API diopiError_t diopiCTCLoss(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                    diopiTensorHandle_t neg_log_likelihood, diopiTensorHandle_t log_alpha,
                                    diopiConstTensorHandle_t log_probs, diopiConstTensorHandle_t targets,
                                    diopiConstTensorHandle_t input_lengths, diopiConstTensorHandle_t target_lengths,
                                    int64_t blank, diopiReduction_t reduction, bool zero_infinity);

/// Gradient of diopiCTCLoss with respect to log_probs, with its neg_log_likelihood and log_alpha.
DIOPI_API diopiError_t diopiCTCLossBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                            diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t log_probs,
                                            diopiConstTensorHandle_t targets, diopiConstTensorHandle_t input_lengths,
                                            diopiConstTensorHandle_t target_lengths,
                                            diopiConstTensorHandle_t neg_log_likelihood,
                                            diopiConstTensorHandle_t log_alpha, int64_t blank,
                                            diopiReduction_t reduction, bool zero_infinity);

// pointwise ternary

/// out[i] = input[i] + weight[i] * (end[i] - input[i]). The three broadcast to out's shape and have one floating or
/// complex dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLerpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t end,
                                       diopiConstTensorHandle_t weight);

/// out[i] = input[i] + weight * (end[i] - input[i]). `input` and `end` broadcast to out's shape and have one floating
/// or complex dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiLerpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t end,
                                       const diopiScalar_t *weight);

// pointwise binary

/// out[i] = input[i] - floor(input[i] / other[i]) * other[i]: the sign of the divisor. Real dtypes but bool; an integer
/// divisor of 0 is an error or gives any value, never a crash. `input` and `other` broadcast to out's shape and promote
/// as in PyTorch; `out` may be one of them, element for element.
DIOPI_API diopiError_t diopiRemainderTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t other);

/// out[i] = the remainder of input[i] by `other`, with the sign of the divisor. Real dtypes but bool. Shapes of `out`
/// and `input` are equal; the number promotes as a Python number does. `out` may be `input`.
DIOPI_API diopiError_t diopiRemainderScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, const diopiScalar_t *other);

/// out[i] = the remainder of the number `input` by other[i], with the sign of the divisor. Real dtypes but bool. Shapes
/// of `out` and `other` are equal; `out` may be `other`.
DIOPI_API diopiError_t diopiRemainder(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *input,
                                      diopiConstTensorHandle_t other);

// indexing

/// out[.., k, ..] = input[.., index[.., k, ..], ..] along `dim`; out has index's shape. `index` is int64 (or int32),
/// not negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions
/// other than `dim`. Every dtype.
DIOPI_API diopiError_t diopiGather(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   int64_t dim, diopiConstTensorHandle_t index);

/// grad_input, of input's shape: zeros with grad_output added at `index` along `dim`. `index` is int64 (or int32), not
/// negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions other
/// than `dim`.
DIOPI_API diopiError_t diopiGatherBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                           diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                           int64_t dim, diopiConstTensorHandle_t index);

/// src[.., k, ..] is written to input[.., index[.., k, ..], ..] along `dim`, in place. `reduce`: "" (or NULL) writes,
/// of several writes to one place any; "add" and "multiply" combine with what is there. `index` is int64 (or int32),
/// not negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions
/// other than `dim`.
DIOPI_API diopiError_t diopiScatterInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                       diopiConstTensorHandle_t src, diopiConstTensorHandle_t index,
                                       const char *reduce);

/// `value` is written to input[.., index[.., k, ..], ..] along `dim`, in place. `reduce`: "" (or NULL) writes, of
/// several writes to one place any; "add" and "multiply" combine with what is there. `index` is int64 (or int32), not
/// negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions other
/// than `dim`.
DIOPI_API diopiError_t diopiScatterInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t dim,
                                             const diopiScalar_t *value, diopiConstTensorHandle_t index,
                                             const char *reduce);

/// out = `input` with src[.., k, ..] written to [.., index[.., k, ..], ..] along `dim`. `reduce`: "" (or NULL) writes,
/// of several writes to one place any; "add" and "multiply" combine with what is there. `index` is int64 (or int32),
/// not negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions
/// other than `dim`. Every dtype; combining needs a number type.
DIOPI_API diopiError_t diopiScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                    int64_t dim, diopiConstTensorHandle_t src, diopiConstTensorHandle_t index,
                                    const char *reduce);

/// out = `input` with `value` written to [.., index[.., k, ..], ..] along `dim`. `reduce`: "" (or NULL) writes, of
/// several writes to one place any; "add" and "multiply" combine with what is there. `index` is int64 (or int32), not
/// negative, below the size of `dim`; anything else is an error. It may be smaller than the others in dimensions other
/// than `dim`.
DIOPI_API diopiError_t diopiScatterScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                          diopiConstTensorHandle_t input, int64_t dim, const diopiScalar_t *value,
                                          diopiConstTensorHandle_t index, const char *reduce);

/// `values` (broadcast) are written to the places of `input` that `indices` name, in place; `accumulate` adds. Index
/// tensors are int64 or int32 (bool masks where said); negative values count from the end; a value out of range is an
/// error before anything is written. Every dtype.
DIOPI_API diopiError_t diopiIndexPutInp(diopiContextHandle_t ctx, diopiTensorHandle_t input,
                                        diopiConstTensorHandle_t values, diopiConstTensorHandle_t *indices,
                                        int64_t indices_counts, bool accumulate);

/// out = `input` with `values` (broadcast) written to the places that `indices` name, as diopiIndex reads them;
/// `accumulate` adds, so that places named several times get every value. Index tensors are int64 or int32 (bool masks
/// where said); negative values count from the end; a value out of range is an error before anything is written. Every
/// dtype.
DIOPI_API diopiError_t diopiIndexPut(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                     diopiConstTensorHandle_t input, diopiConstTensorHandle_t values,
                                     diopiConstTensorHandle_t *indices, int64_t indices_counts, bool accumulate);

// random

/// inout[i] = a whole number from [from, *to); `to` NULL: up to the largest that the dtype holds exactly. Every real
/// dtype. Element k of the row-major order takes its random numbers from the generator's counters by k alone. The
/// generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiRandomInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, int64_t from,
                                      const int64_t *to, diopiGeneratorHandle_t generator);

/// inout[i] = a number from [from, to), in place. Floating dtypes. Element k of the row-major order takes its random
/// numbers from the generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiUniformInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, double from, double to,
                                       diopiGeneratorHandle_t generator);

/// out[i] = 1 with probability input[i], else 0. Shapes are equal; probabilities outside [0, 1] are an error. Element k
/// of the row-major order takes its random numbers from the generator's counters by k alone. The generator's offset
/// moves forward by what was used.
DIOPI_API diopiError_t diopiBernoulli(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input, diopiGeneratorHandle_t generator);

/// inout[i] = 1 with probability inout[i], else 0, in place. Element k of the row-major order takes its random numbers
/// from the generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiBernoulliInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout,
                                         diopiGeneratorHandle_t generator);

/// out[i] = 1 with probability p, else 0. Every real dtype. Element k of the row-major order takes its random numbers
/// from the generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiBernoulliScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, double p,
                                            diopiGeneratorHandle_t generator);

// creation fill

/// out[k] = start + k * step, as many as lie before `end`; out's length tells. 1-d. Every real dtype; computed in
/// double for floating dtypes.
DIOPI_API diopiError_t diopiArange(diopiContextHandle_t ctx, diopiTensorHandle_t out, const diopiScalar_t *start,
                                   const diopiScalar_t *end, const diopiScalar_t *step);

// random

/// out = the numbers 0 to n - 1 in random order. 1-d. Integers and floating dtypes that hold n exactly. Element k of
/// the row-major order takes its random numbers from the generator's counters by k alone. The generator's offset moves
/// forward by what was used.
DIOPI_API diopiError_t diopiRandperm(diopiContextHandle_t ctx, diopiTensorHandle_t out, int64_t n,
                                     diopiGeneratorHandle_t generator);

/// out[i] from the normal distribution with `mean` and `std`; std is not negative. Floating or complex dtypes. Element
/// k of the row-major order takes its random numbers from the generator's counters by k alone. The generator's offset
/// moves forward by what was used.
DIOPI_API diopiError_t diopiNormal(diopiContextHandle_t ctx, diopiTensorHandle_t out, double mean, double std,
                                   diopiGeneratorHandle_t generator);

/// out[i] from the normal distribution with mean[i] and `std`. Shapes are equal. Element k of the row-major order takes
/// its random numbers from the generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiNormalTensorScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                               diopiConstTensorHandle_t mean, double std,
                                               diopiGeneratorHandle_t generator);

/// out[i] from the normal distribution with `mean` and std[i]. Shapes are equal. Element k of the row-major order takes
/// its random numbers from the generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiNormalScalarTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, double mean,
                                               diopiConstTensorHandle_t std, diopiGeneratorHandle_t generator);

/// out[i] from the normal distribution with mean[i] and std[i], which broadcast to out's shape. Element k of the
/// row-major order takes its random numbers from the generator's counters by k alone. The generator's offset moves
/// forward by what was used.
DIOPI_API diopiError_t diopiNormalTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                         diopiConstTensorHandle_t mean, diopiConstTensorHandle_t std,
                                         diopiGeneratorHandle_t generator);

/// diopiNormal in place. Element k of the row-major order takes its random numbers from the generator's counters by k
/// alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiNormalInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, double mean, double std,
                                      diopiGeneratorHandle_t generator);

// shape layout

/// outs[k] = inputs[k] (1-d or 0-d) broadcast along dimension k of the grid of all lengths; the caller has made
/// `inputsNum` tensors. One dtype. Every dtype.
DIOPI_API diopiError_t diopiMeshGrid(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                     diopiConstTensorHandle_t *inputs, int64_t inputsNum);

// vision

/// out (N, C, Ho, Wo) = `input` (N, C, H, W) at the places `grid` (N, Ho, Wo, 2), x then y in [-1, 1], with zeros
/// outside. `mode`: "bilinear", "nearest" or "bicubic".
DIOPI_API diopiError_t diopiGridSample(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                       diopiConstTensorHandle_t input, diopiConstTensorHandle_t grid, const char *mode);

// random

/// out (int64) = num_samples categories per row of `input` (1-d or 2-d, weights that are not negative and not all 0),
/// each drawn once at most unless `replacement`. Element k of the row-major order takes its random numbers from the
/// generator's counters by k alone. The generator's offset moves forward by what was used.
DIOPI_API diopiError_t diopiMultinomial(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                        diopiConstTensorHandle_t input, int64_t num_samples, bool replacement,
                                        diopiGeneratorHandle_t generator);

// normalization

/// out = (input - mean) * rstd * weight + bias over the trailing dimensions `normalized_shape`; weight and bias have
/// that shape and may be NULL. save_mean and save_invstd get mean and 1 / sqrt(var + eps), with those dimensions as 1.
/// Statistics are float32 for half types, else of input's dtype. Floating dtypes.
DIOPI_API diopiError_t diopiLayerNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiTensorHandle_t save_mean, diopiTensorHandle_t save_invstd,
                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                      diopiConstTensorHandle_t bias, diopiSize_t normalized_shape, double eps);

/// Gradients of diopiLayerNorm from grad_output, with its saved `mean` and `rstd`. grad_input, grad_weight and
/// grad_bias may be NULL when they are not wanted.
DIOPI_API diopiError_t diopiLayerNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                              diopiConstTensorHandle_t mean, diopiConstTensorHandle_t rstd,
                                              diopiSize_t normalized_shape);

/// Gradients of diopiLayerNormGB from grad_output; running_mean and running_std are what it gave.
DIOPI_API diopiError_t diopiLayerNormGBBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                diopiTensorHandle_t grad_weight, diopiTensorHandle_t grad_bias,
                                                diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                                diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
                                                diopiConstTensorHandle_t running_mean,
                                                diopiConstTensorHandle_t running_std, const int64_t begin_norm_axis);

/// output = (input - mean) / sqrt(var + eps) * scale + bias over the positions of each channel of each sample; `axis`
/// is the dimension of the channels. scale and bias (C) may be NULL. Floating dtypes.
DIOPI_API diopiError_t diopiInstanceNorm(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                         diopiConstTensorHandle_t input, const int64_t axis,
                                         diopiConstTensorHandle_t scale, diopiConstTensorHandle_t bias,
                                         const double eps);

/// Gradients of diopiInstanceNorm from grad_output; statistics are computed again from `input`.
DIOPI_API diopiError_t diopiInstanceNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                 diopiTensorHandle_t grad_scale, diopiTensorHandle_t grad_bias,
                                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                                 diopiConstTensorHandle_t scale, diopiConstTensorHandle_t bias,
                                                 const int64_t axis, const double eps);

// reduction

/// output = input / max(norm, eps), with the p-norm along `axis`, kept. Shapes and floating dtypes are equal.
DIOPI_API diopiError_t diopiNormalize(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                      diopiConstTensorHandle_t input, const float p, const int64_t axis,
                                      const double eps);

/// Gradient of diopiNormalize with respect to `input`. Shapes and floating dtypes are equal.
DIOPI_API diopiError_t diopiNormalizeBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                              diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                              const float p, const int64_t axis, const double eps);

// copy cast

/// dest[i] = src[i], converted to dest's dtype as PyTorch converts; `src` broadcasts to dest's shape. Mind the order:
/// the source comes first. Every pair of dtypes; any strides.
DIOPI_API diopiError_t diopiCopyInp(diopiContextHandle_t ctx, diopiConstTensorHandle_t src, diopiTensorHandle_t dest);

// vision

/// out = `input` (N, C, ...) enlarged to `size` (1 to 3 values): the element at floor(k * in / out).
DIOPI_API diopiError_t diopiUpsampleNearest(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t input, diopiSize_t size);

/// grad_input, of shape in_size: sums of grad_output, whose spatial size is out_size, at the places that
/// diopiUpsampleNearest took.
DIOPI_API diopiError_t diopiUpsampleNearestBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                    diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                                    diopiSize_t in_size);

/// out = `input` (N, C, ...) enlarged to `size`: `mode` "linear", "bilinear", "trilinear" or "bicubic"; `align_corners`
/// puts the corners on top of each other.
DIOPI_API diopiError_t diopiUpsampleLinear(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                           diopiConstTensorHandle_t input, diopiSize_t size, bool align_corners,
                                           const char *mode);

/// grad_input, of shape in_size: the gradient of diopiUpsampleLinear with the same mode and align_corners.
DIOPI_API diopiError_t diopiUpsampleLinearBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                   diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                                   diopiSize_t in_size, bool align_corners, const char *mode);

// pointwise unary

/// out[i] = the inverse of the error function, infinite at -1 and 1, NaN outside, with x = input[i]. Shapes are equal.
/// Floating dtypes; an integer or bool input computes in out's floating dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiErfinv(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the inverse of the error function, infinite at -1 and 1, NaN outside, with x = input[i], in place.
/// Floating dtypes.
DIOPI_API diopiError_t diopiErfinvInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

// conv

/// Columns of sliding blocks: input (N, C, H, W) or (C, H, W) gives out (N, C * kH * kW, L), L the number of blocks,
/// with zeros as padding. Lists have two values or one for both.
DIOPI_API diopiError_t diopiIm2Col(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiSize_t kernel_size, diopiSize_t dilation, diopiSize_t padding,
                                   diopiSize_t stride);

/// The inverse of diopiIm2Col, with overlapping blocks summed: input (N, C * kH * kW, L) or without N gives out (N, C,
/// H, W), (H, W) = output_size.
DIOPI_API diopiError_t diopiCol2Im(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiSize_t output_size, diopiSize_t kernel_size, diopiSize_t dilation,
                                   diopiSize_t padding, diopiSize_t stride);

// shape layout

/// out = `input` repeated repeats_size[k] times along dimension k; leading dimensions of 1 are added where the list is
/// longer. Every dtype.
DIOPI_API diopiError_t diopiRepeat(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                   diopiSize_t repeats_size);

// copy cast

/// out[i] = input[i], converted to out's dtype as PyTorch converts: floats to integers round towards zero, anything but
/// 0 is true. Shapes are equal.
DIOPI_API diopiError_t diopiCastDtype(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                      diopiConstTensorHandle_t input);

// complex

/// out[i] = abs[i] * (cos(angle[i]) + i sin(angle[i])). `abs` and `angle` broadcast and have one real dtype; `out` has
/// the complex one.
DIOPI_API diopiError_t diopiPolar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t abs,
                                  diopiConstTensorHandle_t angle);

// shape layout

/// out = `input` with everything below the `diagonal` of its last two dimensions 0. Shapes and dtypes are equal. Every
/// dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiTriu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 int64_t diagonal);

/// Everything below the `diagonal` of input's last two dimensions becomes 0, in place. Every dtype.
DIOPI_API diopiError_t diopiTriuInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, int64_t diagonal);

// complex

/// out[i] = real[i] + i imag[i]. The two broadcast and have one real dtype; `out` has the complex one.
DIOPI_API diopiError_t diopiComplex(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t real,
                                    diopiConstTensorHandle_t imag);

/// out[i] = the conjugate of input[i]. Shapes and dtypes are equal; real numbers are copied. `out` may be `input`.
DIOPI_API diopiError_t diopiConj(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// out[i] = the imaginary part of input[i], in the real dtype. Shapes are equal.
DIOPI_API diopiError_t diopiImag(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// out[i] = the real part of input[i], in the real dtype. Shapes are equal; real numbers are copied.
DIOPI_API diopiError_t diopiReal(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// creation fill

/// Every element of `out`, whose shape is `size`, becomes 1. Every dtype.
DIOPI_API diopiError_t diopiOnes(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size);

/// Every element of `out`, whose shape is `size`, becomes 0. Every dtype.
DIOPI_API diopiError_t diopiZeros(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiSize_t size);

/// Every element of `self` becomes 0, in place. Every dtype.
DIOPI_API diopiError_t diopiZeroInp(diopiContextHandle_t ctx, diopiTensorHandle_t self);

// pointwise unary

/// out[i] = the sign of x as diopiSign gives it; x / |x| for complex numbers, 0 at 0, with x = input[i]. Shapes are
/// equal. Every dtype. `out` may be `input`.
DIOPI_API diopiError_t diopiSgn(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

/// input[i] = the sign of x as diopiSign gives it; x / |x| for complex numbers, 0 at 0, with x = input[i], in place.
/// Every dtype.
DIOPI_API diopiError_t diopiSgnInp(diopiContextHandle_t ctx, diopiTensorHandle_t input);

/// out[i] = input[i] is NaN (either part of a complex number). Shapes are equal; `out` is bool. Every dtype; integers
/// and bool give false.
DIOPI_API diopiError_t diopiIsNan(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input);

// linalg

/// Q @ R = A for each matrix of A (..., M, N): `mode` "reduced", "complete" or "r" (Q is empty). R's diagonal has the
/// signs of Householder reflections, as in LAPACK. Mind the order: outputs come last.
DIOPI_API diopiError_t diopiLinalgQR(diopiContextHandle_t ctx, diopiConstTensorHandle_t A, const char *mode,
                                     diopiTensorHandle_t Q, diopiTensorHandle_t R);

// reduction

/// Largest element over `dim`; NaN wins. `keepdim` keeps the reduced dimensions as 1. `dim` lists dimensions, -ndim to
/// ndim - 1, none twice; an empty list means all. Real dtypes. Reduced dimensions must not be empty. Shapes: `out` as
/// PyTorch's amax.
DIOPI_API diopiError_t diopiAmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t self,
                                 diopiSize_t dim, bool keepdim);

// copy cast

/// `out` receives `input` itself when it has the memory format already, else a copy in that format (by memoryFormat)
/// that the library makes.
DIOPI_API diopiError_t diopiContiguous(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                       diopiConstTensorHandle_t input, diopiMemoryFormat_t memoryFormat);

// optimizer

/// Every element of the `num_scaled_grads` tensors is multiplied by inv_scale (one float32 element), in place;
/// found_inf (one float32 element) becomes 1 when an element was not finite, else it stays. Floating dtypes.
DIOPI_API diopiError_t diopiAmpForeachNonFiniteCheckAndUnscaleInp(diopiContextHandle_t ctx,
                                                                  diopiTensorHandle_t *scaled_grads,
                                                                  int64_t num_scaled_grads,
                                                                  diopiTensorHandle_t found_inf,
                                                                  diopiConstTensorHandle_t inv_scale);

/// found_inf not 0: current_scale *= scale_backoff_factor and growth_tracker = 0. Else growth_tracker += 1, and when it
/// reaches growth_interval current_scale *= scale_growth_factor (unless the result is infinite) and growth_tracker = 0.
/// All have one element: float32, int32, float32. In place.
DIOPI_API diopiError_t diopiAmpUpdateScaleInp(diopiContextHandle_t ctx, diopiTensorHandle_t current_scale,
                                              diopiTensorHandle_t growth_tracker, diopiConstTensorHandle_t found_inf,
                                              double scale_growth_factor, double scale_backoff_factor,
                                              int32_t growth_interval);

// device hook

/// `out` receives `in` in a memory format of the device's own, whose number is `format`.
DIOPI_API diopiError_t diopiNativeMemoryFormatCast(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                   diopiTensorHandle_t in, int64_t format);

/// *format = the number of the device's own memory format in which `input` lies.
DIOPI_API diopiError_t diopiGetNativeMemoryFormat(diopiContextHandle_t ctx, diopiConstTensorHandle_t input,
                                                  int64_t *format);

/// The framework is about to free the storage at `ptr`: the library forgets what it kept about it. May be called for
/// storages that it never saw.
DIOPI_API diopiError_t diopiTensorDestructionHook(diopiContextHandle_t ctx, void *ptr);

DIOPI_EXTERN_C_END
// clang-format on

#endif
