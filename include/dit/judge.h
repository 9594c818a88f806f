/// Is a result right? The arithmetic of the auto verdict: errors against a reference of higher precision, and whether
/// they are within what a rule allows. docs/verdict.md derives the rule; this is its inner loop.
///
/// Everything here takes borrowed views with any strides and allocates nothing; types, status codes and the
/// independence of the number of threads are those of include/dit/numerics.h. |.| is the magnitude for complex types.
/// The arithmetic is double (64-bit integers beyond 2^53, complex numbers and pairs with NaN or infinities: long
/// double, pair by pair).
#ifndef DIT_JUDGE_H
#define DIT_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

/// What is known of a floating (or complex: of its parts) type.
struct dit_judge_type {
  double roundoff;  ///< unit roundoff: half the distance from 1 to the next number
  double floor;     ///< absolute error of results near zero: flush to zero, gradual underflow
  double limit;     ///< largest finite number
};

/// DIT_ERR_UNSUPPORTED for types that are not floating or complex (and for those that numerics.h does not know).
DIT_API DIT_NODISCARD enum dit_status dit_judge_type_get(int dtype, struct dit_judge_type *type, struct dit_error *err);

/// The error that a candidate may have where the reference is r:
///   min(relative * |r| + absolute, max(cap, cap_relative * |r|)) + floor
/// `cap` may be infinite. Where |r| plus that is beyond `limit` the candidate may be infinite, of r's sign.
struct dit_judge_rule {
  double relative, absolute;
  double cap, cap_relative;
  double floor;
  double limit;  ///< infinite: an infinity is right only where the reference has the same
};

struct dit_judge_result {
  int64_t numel;
  int64_t wrong;      ///< elements with a larger error than allowed, those of `nonfinite` included
  int64_t nonfinite;  ///< NaN or infinite on one side, and not allowed
  int64_t unequal;    ///< two NaN are equal here
  int64_t index;  ///< row-major: the first of `nonfinite`, else the largest error beyond what is allowed; -1 for none
  double error, allowed, value, reference;  ///< there; complex: the real parts of value and reference
  double margin;  ///< largest error / allowed over the finite pairs of which the error is not 0; 0 without any
};

/// The candidate x against the reference r, element by element. Shapes must be equal.
DIT_API DIT_NODISCARD enum dit_status dit_judge_compare(const struct dit_tensor_view *x,
                                                        const struct dit_tensor_view *r,
                                                        const struct dit_judge_rule *rule,
                                                        struct dit_judge_result *result, struct dit_error *err);

/// The error of x against r, as the two numbers of the model |x - r| <= relative * |r| + residual.
struct dit_judge_error {
  int64_t numel;
  int64_t finite;   ///< pairs of which both sides are finite: what follows is over them
  int64_t unequal;  ///< of all pairs; two NaN are equal
  double largest;   ///< max |x - r|
  double ratio;     ///< max |x - r| / |r| where |x - r| is above `floor`; infinite where r is 0
  double residual;  ///< max(|x - r| - relative * |r| - floor, 0)
  double scale;     ///< max |r|
};

DIT_API DIT_NODISCARD enum dit_status dit_judge_measure(const struct dit_tensor_view *x,
                                                        const struct dit_tensor_view *r, double relative, double floor,
                                                        struct dit_judge_error *error, struct dit_error *err);

/// Elements (complex: parts) whose last bit of the significand is one: results that a rounding to this type would
/// hardly have left exact. Floating and complex types of 16 to 64 bits; DIT_ERR_UNSUPPORTED for others.
DIT_API DIT_NODISCARD enum dit_status dit_judge_count_odd(const struct dit_tensor_view *x, int64_t *odd,
                                                          struct dit_error *err);

/// max |a - b| and max |a - b| / (|a| + offset), as the legacy columns have them: equal pairs, two NaN and equal
/// infinities differ by 0; a NaN on one side makes both NaN; any other infinity makes both infinite.
DIT_API DIT_NODISCARD enum dit_status dit_judge_relative(const struct dit_tensor_view *a,
                                                         const struct dit_tensor_view *b, double offset,
                                                         double *difference, double *relative, struct dit_error *err);

/// The tolerances of the legacy columns, and the yardstick: errors are counted beyond relative * |r|.
struct dit_judge_near_rule {
  double atol, rtol;
  double relative;
};

/// b is the reference rounded to float32, which is what the legacy columns compare x with.
struct dit_judge_near {
  double difference, relative;  ///< largest |x - b| and |x - b| / (|x| + 1e-6)
  double beyond;                ///< largest |x - b| - (atol + rtol * |b|)
  double excess;                ///< largest |x - r| - rule.relative * |r|
  double scale;                 ///< largest |b|
  double dot, norm_x, norm_r;   ///< sums of x * b, x * x and b * b
  double poison;                ///< 0, or NaN when something was not finite: then the rest is void
};

/// All of them in one pass over float32 results and a reference of float64 or float32, both dense with the same
/// strides. False, and nothing done, for anything else and for empty tensors.
DIT_API bool dit_judge_near(const struct dit_tensor_view *x, const struct dit_tensor_view *r,
                            const struct dit_judge_near_rule *rule, struct dit_judge_near *near);

DIT_EXTERN_C_END

#endif
