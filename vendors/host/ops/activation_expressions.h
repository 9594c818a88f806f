/// The expressions of the activations and their gradients.
///
/// Each is written once: included by activation.c it defines the host's loops, by the kernel file of vendors/cuda
/// CUDA's kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY activation

KERNEL_INLINE double cdf_f64(double x) {
  return 0.5 * (1 + erf(x * 0.70710678118654752440));
}

/// X(tag, type, exp, tanh, cdf, sigmoid) for the two working precisions.
#define PRECISIONS(X)                                    \
  X(f32, float, exp_f32, tanh_f32, cdf_f32, sigmoid_f32) \
  X(f64, double, exp_f64, tanh_f64, cdf_f64, sigmoid_f64)
#define ONE(name, tag, type, expression) LOOP_1(name##_##tag, type, type, type, expression)
#define TWO(name, tag, type, expression) LOOP_2(name##_##tag, type, type, type, expression)

#define INNER(type, x) ((type)0.79788456080286535588 * ((x) + (type)0.044715 * ((x) * (x) * (x))))
#define INNER_SLOPE(type, x) ((type)0.79788456080286535588 * (1 + 3 * (type)0.044715 * (x) * (x)))

/// Of gelu with tanh: left + right parts of the derivative, t = tanh(inner).
#define GELU_TANH_SLOPE(type, x, t) ((type)0.5 * (1 + (t)) + (type)0.5 * (x) * (1 - (t) * (t)) * INNER_SLOPE(type, x))

/// A limit that is NaN makes everything NaN; the upper one wins over the lower.
#define ABOVE(x) ((x) < k0 ? k0 : (x))
#define HARDTANH(x) (k0 != k0 ? k0 : k1 != k1 ? k1 : ABOVE(x) > k1 ? k1 : ABOVE(x))
#define FORWARD(tag, type, exp_, tanh_, cdf_, sigmoid_)                       \
  ONE(relu_loop, tag, type, x < 0 ? 0 : x)                                    \
  ONE(hardtanh, tag, type, HARDTANH(x))                                       \
  ONE(hardswish, tag, type, x *(x + 3 < 0 ? 0 : x + 3 > 6 ? 6 : x + 3) / 6)   \
  ONE(threshold, tag, type, x <= k0 ? k1 : x)                                 \
  ONE(gelu_loop, tag, type, x *cdf_(x))                                       \
  ONE(gelu_tanh_loop, tag, type, (type)0.5 * x * (1 + tanh_(INNER(type, x)))) \
  ONE(leaky, tag, type, x > 0 ? x : x * k0)                                   \
  ONE(tanh_loop, tag, type, tanh_(x))                                         \
  ONE(sigmoid_loop, tag, type, sigmoid_(x))                                   \
  ONE(silu, tag, type, x / (1 + exp_(-x)))
PRECISIONS(FORWARD)
/// Of bfloat16's bits: what is between -0 (0x8000) and the negative infinity (0xFF80) becomes 0; NaN stays.
LOOP_HALF_1(relu_loop_bf16, ((x > 0x8000u) & (x <= 0xFF80u)) ? 0 : x)
LOOP_BF16_1(hardtanh_bf16, HARDTANH(x))
LOOP_BF16_1(gelu_loop_bf16, x *cdf_f32(x))
LOOP_BF16_1(gelu_tanh_loop_bf16, 0.5f * x * (1 + tanh_f32(INNER(float, x))))
LOOP_BF16_1(leaky_bf16, x > 0 ? x : x * k0)
LOOP_BF16_1(tanh_loop_bf16, tanh_f32(x))
LOOP_BF16_1(sigmoid_loop_bf16, sigmoid_f32(x))
LOOP_BF16_1(silu_bf16, x / (1 + exp_f32(-x)))

// inputs of gradients: x = grad_output, y = input or output
#define BACKWARD(tag, type, exp_, tanh_, cdf_, sigmoid_)                                                  \
  TWO(hardtanh_grad, tag, type, ((y <= k0) | (y >= k1)) ? 0 : x)                                          \
  TWO(hardswish_grad, tag, type, y <= -3 ? 0 : y < 3 ? x * (y / 3 + (type)0.5) : x)                       \
  TWO(threshold_grad, tag, type, y <= k0 ? 0 : x)                                                         \
  TWO(gelu_grad, tag, type, x *(cdf_(y) + y * (type)0.39894228040143267794 * exp_((type) - 0.5 * y * y))) \
  TWO(gelu_tanh_grad, tag, type, x *GELU_TANH_SLOPE(type, y, tanh_(INNER(type, y))))                      \
  TWO(leaky_grad, tag, type, y > 0 ? x : x * k0)                                                          \
  TWO(tanh_grad, tag, type, x * (1 - y * y))                                                              \
  TWO(sigmoid_grad, tag, type, x * (1 - y) * y)                                                           \
  TWO(silu_grad, tag, type, x *sigmoid_(y) * (1 + y * (1 - sigmoid_(y))))
PRECISIONS(BACKWARD)

#define INTEGER(tag, type, arith)                                             \
  LOOP_1(relu_loop_##tag, type, type, arith, x < 0 ? 0 : x)                   \
  LOOP_PLAIN_1(hardtanh_##tag, type, type, arith, x<k0 ? k0 : x> k1 ? k1 : x) \
  LOOP_PLAIN_1(threshold_##tag, type, type, arith, x <= k0 ? k1 : x)          \
  LOOP_PLAIN_2(threshold_grad_##tag, type, type, arith, y <= k0 ? 0 : x)
LOOP_LIST_INT(INTEGER)

#ifdef LOOP_COMPLEX
#define COMPLEX(tag, type, cexp_, ctanh_, conj_)                            \
  LOOP_PLAIN_1(tanh_loop_##tag, type, type, type, ctanh_(x))                \
  LOOP_PLAIN_1(sigmoid_loop_##tag, type, type, type, 1 / (1 + cexp_(-x)))   \
  LOOP_PLAIN_1(silu_##tag, type, type, type, x / (1 + cexp_(-x)))           \
  LOOP_PLAIN_2(tanh_grad_##tag, type, type, type, x *conj_(1 - y * y))      \
  LOOP_PLAIN_2(sigmoid_grad_##tag, type, type, type, x *conj_((1 - y) * y)) \
  LOOP_PLAIN_2(silu_grad_##tag, type, type, type, x / (1 + cexp_(-y)) * (1 + y * (1 - 1 / (1 + cexp_(-y)))))
COMPLEX(c64, float _Complex, cexpf, ctanhf, conjf)
COMPLEX(c128, double _Complex, cexp, ctanh, conj)
#endif
