/// Factorisations and solutions of one matrix: Cholesky, triangular systems, QR.
///
/// Matrices are dense and row-major, float, double or their complex types (enum dit_dtype F32, F64, C64, C128). LAPACK
/// of the BLAS that was found (blas.h) does the work where it has the function and the matrix is large enough to be
/// worth the call; else the loops of linalg_loops.h. One thread; may be called from several.
#ifndef DIT_HOST_ENGINE_LINALG_H
#define DIT_HOST_ENGINE_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/dtype.h"

/// a (n x n), whose lower triangle is read, becomes L with a = L L^H; what is above the diagonal becomes 0. The order
/// of the first minor that is not positive, 0 when all are: then `a` holds L as far as it was computed.
int linalg_cholesky(int dtype, int64_t n, void *a);

/// A triangular system: which triangle of a (n x n) counts, and what is done to it.
struct linalg_triangle {
  bool upper, transposed, conjugated, unit;  ///< conjugated: a's elements, beside the transposition
};
/// b (n x m) becomes the solution x of op(a) x = b.
void linalg_solve(int dtype, const struct linalg_triangle *how, int64_t n, int64_t m, const void *a, void *b);

/// a (m x n) = q r by Householder reflections: r's diagonal has the signs that they give (as in LAPACK). `a` becomes
/// scratch. r (rows x n) and q (m x rows, or NULL) with rows = min(m, n), or m when `complete`. False without memory.
bool linalg_qr(int dtype, int64_t m, int64_t n, bool complete, void *a, void *q, void *r);

/// c (m x n) = alpha op(a) op(b): `a_trans`, `b_trans` 0 as it is, 1 transposed, 2 conjugated and transposed. a is m x
/// k after op, b k x n.
void linalg_multiply(int dtype, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int a_trans,
                     const void *b, int b_trans, void *c);

#endif
