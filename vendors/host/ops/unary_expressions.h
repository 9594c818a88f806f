/// The expressions of the elementwise operators of one operand.
///
/// Each is written once: included by unary.c it defines the host's loops, by the kernel file of vendors/cuda CUDA's
/// kernels.
#undef LOOP_FAMILY
#define LOOP_FAMILY unary

/// X(name, float32, float64) of x.
#define FRACTIONAL_LIST(X)                 \
  X(sqrt, sqrtf(x), sqrt(x))               \
  X(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x)) \
  X(reciprocal, 1.0f / x, 1.0 / x)         \
  X(asin, asin_f32(x), asin(x))            \
  X(acos, acos_f32(x), acos(x))            \
  X(sinh, sinh_f32(x), sinh(x))            \
  X(cosh, cosh_f32(x), cosh(x))            \
  X(atan, atan_f32(x), atan(x))            \
  X(asinh, asinh_f32(x), asinh(x))         \
  X(acosh, acosh_f32(x), acosh(x))         \
  X(atanh, atanh_f32(x), atanh(x))         \
  X(exp, exp_f32(x), exp_f64(x))           \
  X(expm1, expm1_f32(x), expm1(x))         \
  X(log, log_f32(x), log_f64(x))           \
  X(log2, log2_f32(x), log2(x))            \
  X(log10, log10_f32(x), log10(x))         \
  X(log1p, log1p_f32(x), log1p(x))         \
  X(erf, erf_f32(x), erf(x))               \
  X(erfinv, erfinv_f32(x), erfinv_f64(x))

/// PyTorch's way, as in mathf.h.
KERNEL_INLINE double erfinv_f64(double x) {
  const double a = fabs(x), z = x * x, scale = 1.12837916709551257390;
  if (!(a < 1)) {
    return a == 1 ? copysign((double)INFINITY, x) : (double)NAN;
  }
  double y;
  if (a <= 0.7) {
    y = x * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899) /
        ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
  } else {
    const double w = sqrt(-log((1.0 - a) * 0.5));
    y = copysign(((1.641345311 * w + 3.429567803) * w - 1.624906493) * w - 1.970840454, x) /
        ((1.637067800 * w + 3.543889200) * w + 1.0);
  }
  y -= (erf(y) - x) / (scale * exp(-y * y));
  return y - (erf(y) - x) / (scale * exp(-y * y));
}

#define FRACTIONAL(name, single, precise)                \
  LOOP_1(loop_##name##_f32, float, float, float, single) \
  LOOP_1(loop_##name##_f64, double, double, double, precise)
FRACTIONAL_LIST(FRACTIONAL)

// bfloat16 in one pass, where the conversions would cost as much as the function
LOOP_BF16_1(loop_sqrt_bf16, sqrtf(x))
LOOP_BF16_1(loop_rsqrt_bf16, 1.0f / sqrtf(x))
LOOP_BF16_1(loop_reciprocal_bf16, 1.0f / x)
LOOP_BF16_1(loop_exp_bf16, exp_f32(x))
LOOP_BF16_1(loop_log_bf16, log_f32(x))

#ifdef LOOP_PARAMS
/// Blocks with arguments beyond the reduction's range (or none at all: NaN, infinity) take libm.
#define TRIG_BLOCK 256
#define TRIG(name)                                                                                                   \
  LOOP_1(name##_block, float, float, float, name##_f32(x))                                                           \
  LOOP_PLAIN_1(name##_large, float, float, float, name##f(x))                                                        \
  static void name##_loop LOOP_PARAMS {                                                                              \
    for (int64_t i = 0; i < count; i += TRIG_BLOCK) {                                                                \
      const float *block = (const float *)in[0] + i;                                                                 \
      const int64_t n = count - i < TRIG_BLOCK ? count - i : TRIG_BLOCK;                                             \
      int is_large = 0;                                                                                              \
      for (int64_t k = 0; k < n; k++) {                                                                              \
        is_large |= !(fabsf(block[k]) <= MATHF_TRIG_MAX);                                                            \
      }                                                                                                              \
      (is_large ? name##_large : name##_block)(parameters, (void *[]){(float *)out[0] + i}, (const void *[]){block}, \
                                               n);                                                                   \
    }                                                                                                                \
  }                                                                                                                  \
  LOOP_PLAIN_1(name##_f64, double, double, double, name(x))
#else
#define TRIG(name)                                     \
  LOOP_1(name##_loop, float, float, float, name##f(x)) \
  LOOP_1(name##_f64, double, double, double, name(x))
#endif
TRIG(sin)
TRIG(cos)
TRIG(tan)

#ifdef LOOP_COMPLEX
/// Complex functions that C lacks.
#define COMPLEX_PARTS(tag, type, cexp_, clog_, expm1_, log1p_, sin_, cos_, exp_, hypot_, atan2_, cabs_, csqrt_)      \
  static type _Complex expm1_of_##tag(type _Complex z) {                                                             \
    const type re = ((type *)&z)[0], im = ((type *)&z)[1], half = sin_(im / 2);                                      \
    return make_##tag(expm1_(re) * cos_(im) - 2 * half * half, exp_(re) * sin_(im));                                 \
  }                                                                                                                  \
  static type _Complex log1p_of_##tag(type _Complex z) {                                                             \
    const type re = ((type *)&z)[0], im = ((type *)&z)[1];                                                           \
    const type size = re * (2 + re) + im * im;                                                                       \
    return make_##tag(re > (type) - 0.5 && size < 1 ? log1p_(size) / 2 : __real__ clog_(1 + z), atan2_(im, re + 1)); \
  }                                                                                                                  \
  static type _Complex log_base_##tag(type _Complex z, type scale) {                                                 \
    const type _Complex value = clog_(z);                                                                            \
    return make_##tag(__real__ value * scale, __imag__ value * scale);                                               \
  }
COMPLEX_PARTS(c64, float, cexpf, clogf, expm1f, log1pf, sinf, cosf, expf, hypotf, atan2f, cabsf, csqrtf)
COMPLEX_PARTS(c128, double, cexp, clog, expm1, log1p, sin, cos, exp, hypot, atan2, cabs, csqrt)

/// X(name, complex64, complex128) of x.
#define COMPLEX_LIST(X)                                                               \
  X(sqrt, csqrtf(x), csqrt(x))                                                        \
  X(rsqrt, 1 / csqrtf(x), 1 / csqrt(x))                                               \
  X(sin, csinf(x), csin(x))                                                           \
  X(cos, ccosf(x), ccos(x))                                                           \
  X(tan, ctanf(x), ctan(x))                                                           \
  X(asin, casinf(x), casin(x))                                                        \
  X(acos, cacosf(x), cacos(x))                                                        \
  X(sinh, csinhf(x), csinh(x))                                                        \
  X(cosh, ccoshf(x), ccosh(x))                                                        \
  X(atan, catanf(x), catan(x))                                                        \
  X(asinh, casinhf(x), casinh(x))                                                     \
  X(acosh, cacoshf(x), cacosh(x))                                                     \
  X(atanh, catanhf(x), catanh(x))                                                     \
  X(exp, cexpf(x), cexp(x))                                                           \
  X(expm1, expm1_of_c64(x), expm1_of_c128(x))                                         \
  X(log, clogf(x), clog(x))                                                           \
  X(log2, log_base_c64(x, 1.44269504089f), log_base_c128(x, 1.44269504088896340736))  \
  X(log10, log_base_c64(x, 0.43429448190f), log_base_c128(x, 0.43429448190325182765)) \
  X(log1p, log1p_of_c64(x), log1p_of_c128(x))                                         \
  X(neg, -x, -x)
#define COMPLEX_LOOPS(name, single, precise)                                       \
  LOOP_PLAIN_1(name##_c64, float _Complex, float _Complex, float _Complex, single) \
  LOOP_PLAIN_1(name##_c128, double _Complex, double _Complex, double _Complex, precise)
COMPLEX_LIST(COMPLEX_LOOPS)
LOOP_1(reciprocal_c64, float _Complex, float _Complex, float _Complex, over_c64(1, x))
LOOP_1(reciprocal_c128, double _Complex, double _Complex, double _Complex, over_c128(1, x))
/// Squares of floats neither overflow nor vanish in double.
KERNEL_INLINE float size_of_c64(float _Complex x) {
  const double re = (double)__real__ x, im = (double)__imag__ x, size = sqrt(re * re + im * im);
  const bool infinite = (fabs(re) == (double)INFINITY) | (fabs(im) == (double)INFINITY);
  return infinite ? INFINITY : (float)size;
}
#define SGN(x, size, make) ((size) == 0 ? make(0, 0) : make(__real__(x) / (size), __imag__(x) / (size)))
LOOP_1(sgn_c64, float _Complex, float _Complex, float _Complex, SGN(x, size_of_c64(x), make_c64))
LOOP_PLAIN_1(sgn_c128, double _Complex, double _Complex, double _Complex, SGN(x, cabs(x), make_c128))
LOOP_1(abs_c64, float, float _Complex, float _Complex, size_of_c64(x))
LOOP_PLAIN_1(abs_c128, double, double _Complex, double _Complex, cabs(x))
LOOP_PLAIN_1(isnan_c64, uint8_t, float _Complex, float _Complex,
             (__real__ x != __real__ x) | (__imag__ x != __imag__ x))
LOOP_PLAIN_1(isnan_c128, uint8_t, double _Complex, double _Complex,
             (__real__ x != __real__ x) | (__imag__ x != __imag__ x))
#endif

// operators that keep the dtype
#define NEG(tag, type, arith) LOOP_1(neg_##tag, type, type, arith, 0 - x)
LOOP_LIST_BITS(NEG)
LOOP_1(neg_f32, float, float, float, -x)
LOOP_1(neg_f64, double, double, double, -x)
// half types: the sign is a bit
LOOP_HALF_1(neg_half, x ^ 0x8000u)
LOOP_HALF_1(abs_half, x & 0x7FFFu)
#define SIGNS(tag, type, arith)                            \
  LOOP_1(sign_##tag, type, type, arith, (x > 0) - (x < 0)) \
  LOOP_1(abs_##tag, type, type, arith, x < 0 ? 0 - (uint64_t)(int64_t)x : (uint64_t)x)
LOOP_LIST_INT(SIGNS)
LOOP_1(sign_f32, float, float, float, (float)((x > 0) - (x < 0)))
LOOP_1(sign_f64, double, double, double, (double)((x > 0) - (x < 0)))
LOOP_1(abs_f32, float, float, float, fabsf(x))
LOOP_1(abs_f64, double, double, double, fabs(x))
LOOP_1(floor_f32, float, float, float, floorf(x))
LOOP_1(floor_f64, double, double, double, floor(x))
LOOP_1(ceil_f32, float, float, float, ceilf(x))
LOOP_1(ceil_f64, double, double, double, ceil(x))
#define SAME(tag, type, arith) LOOP_PLAIN_1(same_##tag, type, type, type, x)
LOOP_LIST_BITS(SAME)
LOOP_1(isnan_f32, uint8_t, float, float, x != x)
LOOP_1(isnan_f64, uint8_t, double, double, x != x)
#define NEVER(tag, type, arith) LOOP_PLAIN_1(never_##tag, uint8_t, type, type, 0)
LOOP_LIST_BITS(NEVER)
