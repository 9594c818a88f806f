/// Vectorisable double functions, written as those of mathf.h.
///
/// Errors against the exact value (tested against libm in long double): exp, log <= 1.5 ulp, tanh <= 2, sigmoid <= 2.5.
/// Overflow gives infinity, underflow goes through subnormals to 0, NaN stays NaN.
#ifndef DIT_HOST_ENGINE_MATHD_H
#define DIT_HOST_ENGINE_MATHD_H

#include <math.h>

#include "scalar.h"

KERNEL_INLINE double double_from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
KERNEL_INLINE uint64_t double_to_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

KERNEL_INLINE double exp_f64(double x) {
  x = x > 720.0 ? 720.0 : x;
  x = x < -750.0 ? -750.0 : x;
  const double shifted = x * 1.44269504088896340736 + 6755399441055744.0;  // 1.5 * 2^52, as in exp_f32
  const double n = shifted - 6755399441055744.0;
  double r = n * -6.93147180369123816490e-1 + x;
  r = n * -1.90821492927058770002e-10 + r;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t whole = double_to_bits(shifted) - 0x4338000000000000u + 4096u;  // n + 4096, positive
  const uint64_t half = whole >> 1;
  const double scale1 = double_from_bits((half - 2048u + 1023u) << 52);
  const double scale2 = double_from_bits((whole - half - 2048u + 1023u) << 52);
  return p * scale1 * scale2;
}

KERNEL_INLINE double log_f64(double x) {
  const double tiny = x < 0x1p-1022 ? 1.0 : 0.0;
  const uint64_t bits = double_to_bits(tiny != 0 ? x * 0x1p54 : x);
  const uint64_t shifted = bits - 0x3FE6A09E667F3BCDu;
  // the exponent, made positive to become a double by its bits
  const double biased = double_from_bits(((shifted + (UINT64_C(2048) << 52)) >> 52 & 0xFFFu) | 0x4330000000000000u);
  const double e = biased - 0x1p52 - 2048.0 - tiny * 54.0;
  const double f = double_from_bits((shifted & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu) - 1.0;
  const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = 1.479819860511658591e-01;
  p = p * z + 1.531383769920937332e-01;
  p = p * z + 1.818357216161805012e-01;
  p = p * z + 2.222219843214978396e-01;
  p = p * z + 2.857142874366239149e-01;
  p = p * z + 3.999999999940941908e-01;
  p = p * z + 6.666666666666735130e-01;
  const double rest = s * (half + p * z) + e * 1.90821492927058770002e-10;
  double value = e * 6.93147180369123816490e-1 - ((half - rest) - f);
  value = x == 0 ? -(double)INFINITY : value;
  value = x < 0 ? (double)NAN : value;
  return x < (double)INFINITY ? value : x;
}

KERNEL_INLINE double tanh_f64(double x) {
  const double s = x * x, magnitude = fabs(x);
  double p = -9.64399179425052238628e-1;
  p = p * s - 9.92877231001918586564e1;
  p = p * s - 1.61468768441708447952e3;
  double q = s + 1.12811678491632931402e2;
  q = q * s + 2.23548839060100448583e3;
  q = q * s + 4.84406305325125486048e3;
  const double small = copysign(p / q * s * x + x, x);
  const double large = copysign(1.0 - 2.0 / (exp_f64(2.0 * magnitude) + 1.0), x);
  return magnitude < 0.625 ? small : large;
}

KERNEL_INLINE double sigmoid_f64(double x) {
  return 1.0 / (1.0 + exp_f64(-x));
}

#endif
