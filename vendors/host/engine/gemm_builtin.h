/// The matrix products that need no library.
#ifndef DIT_HOST_OPS_GEMM_BUILTIN_H
#define DIT_HOST_OPS_GEMM_BUILTIN_H

#include <stdbool.h>
#include <stdint.h>

/// Option host_batch_invariant: a row of a product has the same bits whatever rows stand beside it, so that the choice
/// of the code must not depend on the number of rows. gemm_blocked holds to that: each row of a tile is summed alone,
/// in the order of k.
bool gemm_is_batch_invariant(void);

/// c = alpha * a @ b + beta * c, one float (or double, `wide`) matrix of any strides; beta 0 ignores what c holds.
/// `strides` are row and column stride in elements of a, b and c.
struct gemm_problem {
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  int64_t a_strides[2], b_strides[2], c_strides[2];
  double alpha, beta;
  bool wide;
};

/// For a few hundred multiplications: no packing of a, no allocation. Only when gemm_is_tiny.
bool gemm_is_tiny(int64_t m, int64_t n, int64_t k);
void gemm_tiny(const struct gemm_problem *problem);
/// Blocked and packed, spread over the threads; the result does not depend on their number. False (nothing written)
/// without memory.
bool gemm_blocked(const struct gemm_problem *problem);
/// The same where row i of b begins `rows[i]` elements behind problem->b, with neighbouring columns; rows may overlap.
bool gemm_blocked_rows(const struct gemm_problem *problem, const int64_t *rows);
/// A few rows against many columns of b that lie contiguous each: dot products at the speed of reading b. Only when
/// gemm_is_thin; false (nothing written) without memory.
bool gemm_is_thin(const struct gemm_problem *problem);
bool gemm_thin(const struct gemm_problem *problem);

/// c = alpha * a @ b + beta * c for dense matrices of 32-bit (or 64-bit, `wide`) integers that wrap.
struct gemm_integers {
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  uint64_t alpha, beta;
  bool wide;
};
void gemm_multiply_integers(struct gemm_integers *product);

#endif
