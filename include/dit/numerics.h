/// Numbers about tensors: statistics of one, comparison of two, a hash. Plain C on CPU memory, no framework.
///
/// Every function takes borrowed views with any strides (0 included; negative ones do not exist), allocates nothing,
/// and may run on the thread pool of parallel.h. Results do not depend on the number of threads, bit for bit: the work
/// is cut by the number of elements alone and combined in a fixed order. The memory must not change meanwhile.
///
/// Statistics and comparison know bool, the integers of 8 to 64 bits, float16/32/64, bfloat16, all float8 types and the
/// complex types; for the others (quantized, bits, sub-byte integers, float4 pairs) they return DIT_ERR_UNSUPPORTED.
/// The hash takes every type. DIT_ERR_INVALID: a dtype number that does not exist, a negative size, a count of elements
/// that is not the product of the sizes, data NULL though there are elements. DIT_ERR_UNSUPPORTED: more than
/// DIT_MAX_DIMS dimensions. Outputs are untouched on failure.
#ifndef DIT_NUMERICS_H
#define DIT_NUMERICS_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

/// Statistics of one tensor.
///
/// Complex elements: NaN when a part is NaN, else infinite (counted in pos_inf) when a part is; min, max and abs_max
/// are of the magnitude; mean is per part; std is sqrt of the mean of |z - mean|^2, as in PyTorch. Sums run in double,
/// blockwise and compensated; those of 64-bit integers are exact (128 bits) before the division.
struct dit_tensor_stats {
  int64_t numel;
  int64_t finite;  ///< elements that are neither NaN nor infinite
  int64_t zero;    ///< +0 and -0
  int64_t nan;
  int64_t pos_inf;
  int64_t neg_inf;
  double min;  ///< of the values that are not NaN, infinities included; NaN when there is none
  double max;
  double abs_max;
  /// As IEEE would have it over all: NaN when empty, with a NaN, or with both infinities; complex: NaN when any element
  /// is not finite.
  double mean;
  double mean_imag;    ///< imaginary part for complex types, else 0
  double finite_mean;  ///< over the finite values; NaN when there is none
  double finite_mean_imag;
  double std;         ///< population, over all: NaN when empty or when any value is not finite
  double std_sample;  ///< the same with n - 1: NaN below two values
  double finite_std;  ///< over the finite values
  double finite_std_sample;
  double norm;         ///< L2 over all: 0 when empty, NaN with a NaN, else infinite with an infinity
  double finite_norm;  ///< L2 over the finite values
  int64_t min_int;     ///< int64 and uint64 (cast to uint64_t) alone: the exact extrema, which double may round; else 0
  int64_t max_int;
};

DIT_API DIT_NODISCARD enum dit_status dit_tensor_get_stats(const struct dit_tensor_view *view,
                                                           struct dit_tensor_stats *stats, struct dit_error *err);

/// The cheap pass: is there a NaN, is there an infinity? A complex element may set both.
DIT_API DIT_NODISCARD enum dit_status dit_tensor_get_nonfinite(const struct dit_tensor_view *view, bool *has_nan,
                                                               bool *has_inf, struct dit_error *err);

/// Tolerances as in torch.allclose(a, b, rtol, atol, equal_nan). Negative or NaN tolerances are DIT_ERR_INVALID.
struct dit_compare_options {
  double rtol;
  double atol;
  bool equal_nan;
};

/// Comparison of a (the candidate) with b (the reference).
///
/// A pair is close when a == b, or both are NaN and equal_nan is set, or |a - b| is finite and at most atol + rtol *
/// |b|. The arithmetic is double (64-bit integers: long double) whatever the types, so a verdict at the very border may
/// differ from PyTorch's, which rounds in the tensor's own type. Differences, relative differences, cosine and norms
/// are over the pairs of which both are finite; |.| is the magnitude for complex types.
struct dit_compare_result {
  bool allclose;
  int64_t numel;
  int64_t finite_pairs;    ///< both sides finite
  int64_t unequal;         ///< pairs that are not equal; two NaN count as unequal unless equal_nan
  int64_t over_tolerance;  ///< pairs that are not close
  int64_t
      nonfinite_mismatch;   ///< pairs where NaN, +Inf or -Inf (complex: any infinity unlike the other) is on one side
  double max_abs_diff;      ///< 0 without finite pairs
  double max_rel_diff;      ///< |a - b| / |b|; infinite where b is 0 and a is not; 0 / 0 counts as 0
  double max_rel_diff_sym;  ///< |a - b| / max(|a|, |b|)
  double mean_abs_diff;     ///< NaN without finite pairs
  double cosine;  ///< Re(sum a conj b) / (norm_a norm_b) over finite pairs; 1 when both norms are 0, 0 when one is; NaN
                  ///< without any
  double dot;     ///< Re(sum a conj b)
  double sum_abs_diff;
  double min_a, max_a, norm_a;  ///< over the finite pairs; complex: magnitudes; min and max NaN without finite pairs
  double min_b, max_b, norm_b;
};

/// Shapes must be equal (DIT_ERR_INVALID); dtypes and strides may differ.
DIT_API DIT_NODISCARD enum dit_status dit_tensor_compare(const struct dit_tensor_view *a,
                                                         const struct dit_tensor_view *b,
                                                         const struct dit_compare_options *options,
                                                         struct dit_compare_result *result, struct dit_error *err);

/// Bucket 0: equal; 1: one unit; 2: two; k > 2: more than 2^(k-2), at most 2^(k-1) units.
#define DIT_ULP_BUCKETS 66

/// Where and how two tensors differ. Flat indices are row-major; -1 when there is no such pair; the first of equals.
struct dit_compare_detail {
  int64_t worst_abs_index;       ///< largest |a - b| above 0 among the finite pairs
  int64_t worst_rel_index;       ///< largest |a - b| / |b| above 0 among the finite pairs
  int64_t first_mismatch_index;  ///< first pair that is not close
  int64_t worst_abs[DIT_MAX_DIMS];
  int64_t worst_rel[DIT_MAX_DIMS];
  int64_t first_mismatch[DIT_MAX_DIMS];  ///< coordinates of the three; zeros where the index is -1
  int ulp_dtype;  ///< whose unit in the last place is counted: the type of less precision; complex: its real type
  int64_t ulp[DIT_ULP_BUCKETS];  ///< pairs by distance in ulp_dtype (complex: the larger one of the parts)
  int64_t ulp_nan_both;          ///< two NaN; counted apart
  int64_t ulp_nan_one;           ///< one NaN: no distance
};

/// The second pass, for tensors that were found to differ. Slower than dit_tensor_compare: scalar code. Both sides are
/// rounded to ulp_dtype before they are counted; +0 and -0 are the same place; infinity is one unit after the largest
/// number.
DIT_API DIT_NODISCARD enum dit_status dit_tensor_compare_detail(const struct dit_tensor_view *a,
                                                                const struct dit_tensor_view *b,
                                                                const struct dit_compare_options *options,
                                                                struct dit_compare_detail *detail,
                                                                struct dit_error *err);

/// 128 bits.
struct dit_hash {
  uint64_t low;
  uint64_t high;
};

/// Hash of dtype, shape and the elements' bytes in row-major order: a strided view and its contiguous copy have the
/// same hash; -0.0 and 0.0, and NaNs of different payload, do not. Good against accident (about 2^-128 per pair), not
/// against somebody who wants a collision: this is no cryptographic hash. The value is the same on every little-endian
/// machine; src/numerics/hash.c documents the construction.
DIT_API DIT_NODISCARD enum dit_status dit_tensor_get_hash(const struct dit_tensor_view *view, struct dit_hash *hash,
                                                          struct dit_error *err);

DIT_EXTERN_C_END

#endif
