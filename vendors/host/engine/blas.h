/// A CBLAS found at run time.
#ifndef DIT_HOST_OPS_BLAS_H
#define DIT_HOST_OPS_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/// One matrix as BLAS sees it: row-major, possibly transposed, rows `ld` elements apart.
struct blas_matrix {
  const void *data;
  int64_t ld;
  bool transposed;
};

/// Is a library loaded (looked for on first use)?
bool blas_is_available(void);
/// Its path as it was found; "" when the built-in code is used.
const char *blas_get_path(void);
/// Another function of that library ("spotrf_"), with the prefix its names have. `function` is a pointer to the
/// pointer, NULL where there is none.
void blas_load_symbol(const char *name, void *function);
/// c (m x n, row-major, ldc) = alpha * a @ b + beta * c for float (wide false) or double. One thread; may be called
/// from several.
void blas_gemm(bool wide, int64_t m, int64_t n, int64_t k, double alpha, const struct blas_matrix *a,
               const struct blas_matrix *b, double beta, void *c, int64_t ldc);

#endif
