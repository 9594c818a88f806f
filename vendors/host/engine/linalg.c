/// Factorisations and solutions of one matrix (see linalg.h): LAPACKE and CBLAS with 32-bit integers, looked up once,
/// or the loops of linalg_loops.h.
#include "linalg.h"

#include <complex.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "blas.h"
#include "gemm.h"
#include "scratch.h"

#define BLOCK 64  ///< columns that LAPACK's QR takes at once
#define SMALL 8   ///< matrices below this size are done before LAPACK has looked at its arguments

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112, CONJUGATE = 113 };  // CBLAS's numbers
enum { UPPER = 121, LOWER = 122, NON_UNIT = 131, UNIT = 132, LEFT = 141 };

// Loops

static float root_f32(float x) {
  return sqrtf(x);
}
static double root_f64(double x) {
  return sqrt(x);
}
static float root_c64(float x) {
  return sqrtf(x);
}
static double root_c128(double x) {
  return sqrt(x);
}
static float magnitude_f32(float x) {
  return fabsf(x);
}
static double magnitude_f64(double x) {
  return fabs(x);
}
static float magnitude_c64(float complex x) {
  return cabsf(x);
}
static double magnitude_c128(double complex x) {
  return cabs(x);
}
static bool is_real_f32(float x) {
  (void)x;
  return true;
}
static bool is_real_f64(double x) {
  (void)x;
  return true;
}
static bool is_real_c64(float complex x) {
  return cimagf(x) == 0;
}
static bool is_real_c128(double complex x) {
  return cimag(x) == 0;
}

#define TYPE float
#define REAL float
#define NAME(x) x##_f32
#define CONJ(x) (x)
#define PART(x) (x)
#define SQUARE(x) ((x) * (x))
#include "linalg_loops.h"
#define TYPE double
#define REAL double
#define NAME(x) x##_f64
#define CONJ(x) (x)
#define PART(x) (x)
#define SQUARE(x) ((x) * (x))
#include "linalg_loops.h"
#define WITH_PRODUCT  // real ones are gemm.h's
#define TYPE float complex
#define REAL float
#define NAME(x) x##_c64
#define CONJ(x) conjf(x)
#define PART(x) crealf(x)
#define SQUARE(x) (crealf(x) * crealf(x) + cimagf(x) * cimagf(x))
#include "linalg_loops.h"
#define TYPE double complex
#define REAL double
#define NAME(x) x##_c128
#define CONJ(x) conj(x)
#define PART(x) creal(x)
#define SQUARE(x) (creal(x) * creal(x) + cimag(x) * cimag(x))
#include "linalg_loops.h"

// The library

typedef int potrf_function(int layout, char triangle, int n, void *a, int lda);
typedef int geqrf_function(int layout, int m, int n, void *a, int lda, void *tau, void *work, int room);
typedef int orgqr_function(int layout, int m, int n, int k, void *a, int lda, const void *tau, void *work, int room);
typedef void trsm_float(int, int, int, int, int, int, int, float, const void *, int, void *, int);
typedef void trsm_double(int, int, int, int, int, int, int, double, const void *, int, void *, int);
typedef void trsm_complex(int, int, int, int, int, int, int, const void *, const void *, int, void *, int);
typedef void gemm_complex(int, int, int, int, int, int, const void *, const void *, int, const void *, int,
                          const void *, void *, int);

/// Of one type; NULL where the library has none.
struct functions {
  potrf_function *potrf;
  geqrf_function *geqrf;
  orgqr_function *orgqr;
  trsm_float *trsm_f32;
  trsm_double *trsm_f64;
  trsm_complex *trsm;
  gemm_complex *gemm;
};
static struct functions table[4];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  static const char *const names[4][5] = {
      {"LAPACKE_spotrf_work", "LAPACKE_sgeqrf_work", "LAPACKE_sorgqr_work", "cblas_strsm", ""},
      {"LAPACKE_dpotrf_work", "LAPACKE_dgeqrf_work", "LAPACKE_dorgqr_work", "cblas_dtrsm", ""},
      {"LAPACKE_cpotrf_work", "LAPACKE_cgeqrf_work", "LAPACKE_cungqr_work", "cblas_ctrsm", "cblas_cgemm"},
      {"LAPACKE_zpotrf_work", "LAPACKE_zgeqrf_work", "LAPACKE_zungqr_work", "cblas_ztrsm", "cblas_zgemm"},
  };
  for (int i = 0; i < 4; i++) {
    struct functions *f = &table[i];
    blas_load_symbol(names[i][0], &f->potrf);
    blas_load_symbol(names[i][1], &f->geqrf);
    blas_load_symbol(names[i][2], &f->orgqr);
    if (i == 0) {
      blas_load_symbol(names[i][3], &f->trsm_f32);
    } else if (i == 1) {
      blas_load_symbol(names[i][3], &f->trsm_f64);
    } else {
      blas_load_symbol(names[i][3], &f->trsm);
      blas_load_symbol(names[i][4], &f->gemm);
    }
  }
}

static int get_number(int dtype) {
  return dtype == DIT_DTYPE_F32 ? 0 : dtype == DIT_DTYPE_F64 ? 1 : dtype == DIT_DTYPE_C64 ? 2 : 3;
}

/// NULL where the sizes are too small or too large for the library.
static const struct functions *find(int dtype, int64_t m, int64_t n) {
  const int64_t most = m > n ? m : n;
  pthread_once(&once, load);
  return most < SMALL || most > INT_MAX / 128 ? NULL : &table[get_number(dtype)];
}

// Cholesky

static void clear_above(int64_t n, size_t size, char *a) {
  for (int64_t i = 0; i < n; i++) {
    memset(a + (size_t)(i * n + i + 1) * size, 0, (size_t)(n - i - 1) * size);
  }
}

int linalg_cholesky(int dtype, int64_t n, void *a) {
  const struct functions *f = find(dtype, n, n);
  if (f && f->potrf) {
    const int code = f->potrf(ROW_MAJOR, 'L', (int)n, a, (int)n);
    if (code >= 0) {
      clear_above(n, dit_dtype_get_size(dtype), a);
      return code;
    }
  }
  switch (get_number(dtype)) {
    case 0:
      return cholesky_f32(n, a);
    case 1:
      return cholesky_f64(n, a);
    case 2:
      return cholesky_c64(n, a);
    default:
      return cholesky_c128(n, a);
  }
}

// Triangular systems

static void conjugate(int dtype, int64_t count, void *data) {
  for (int64_t i = 0; i < count; i++) {
    if (dtype == DIT_DTYPE_C64) {
      ((float complex *)data)[i] = conjf(((float complex *)data)[i]);
    } else if (dtype == DIT_DTYPE_C128) {
      ((double complex *)data)[i] = conj(((double complex *)data)[i]);
    }
  }
}

static bool call_trsm(const struct functions *f, int dtype, const struct linalg_triangle *how, int n, int m,
                      const void *a, void *b) {
  static const float one_c64[2] = {1, 0};
  static const double one_c128[2] = {1, 0};
  const int triangle = how->upper ? UPPER : LOWER, diagonal = how->unit ? UNIT : NON_UNIT;
  const int trans = !how->transposed ? NO_TRANSPOSE : how->conjugated ? CONJUGATE : TRANSPOSE;
  if (f->trsm_f32) {
    f->trsm_f32(ROW_MAJOR, LEFT, triangle, trans, diagonal, n, m, 1, a, n, b, m);
  } else if (f->trsm_f64) {
    f->trsm_f64(ROW_MAJOR, LEFT, triangle, trans, diagonal, n, m, 1, a, n, b, m);
  } else if (f->trsm) {
    const void *one = dtype == DIT_DTYPE_C64 ? (const void *)one_c64 : one_c128;
    f->trsm(ROW_MAJOR, LEFT, triangle, trans, diagonal, n, m, one, a, n, b, m);
  } else {
    return false;
  }
  return true;
}

void linalg_solve(int dtype, const struct linalg_triangle *how, int64_t n, int64_t m, const void *a, void *b) {
  const struct functions *f = m > 0 ? find(dtype, n, m) : NULL;
  const bool turns = how->conjugated && !how->transposed && dit_dtype_get_size(dtype) > 4;  // CBLAS has no such form
  if (f && turns) {
    conjugate(dtype, n * m, b);
  }
  const bool done = f && call_trsm(f, dtype, how, (int)n, (int)m, a, b);
  if (f && turns) {
    conjugate(dtype, n * m, b);
  }
  if (done) {
    return;
  }
  switch (get_number(dtype)) {
    case 0:
      solve_f32(how, n, m, a, b);
      break;
    case 1:
      solve_f64(how, n, m, a, b);
      break;
    case 2:
      solve_c64(how, n, m, a, b);
      break;
    default:
      solve_c128(how, n, m, a, b);
  }
}

// QR

/// Rows of `from` (rows apart by from_width) into those of `to`.
static void copy_rows(size_t size, int64_t rows, int64_t columns, const char *from, int64_t from_width, char *to,
                      int64_t to_width) {
  for (int64_t i = 0; i < rows; i++) {
    memcpy(to + (size_t)(i * to_width) * size, from + (size_t)(i * from_width) * size, (size_t)columns * size);
  }
}

static bool call_qr(const struct functions *f, size_t size, int64_t m, int64_t n, int64_t rows, char *a, char *q,
                    char *r, char *room) {
  const int64_t steps = m < n ? m : n;
  char *work = room + (size_t)steps * size;
  const int count = (int)((n > rows ? n : rows) * BLOCK);
  if (f->geqrf(ROW_MAJOR, (int)m, (int)n, a, (int)n, room, work, count) != 0) {
    return false;
  }
  memset(r, 0, (size_t)(rows * n) * size);
  for (int64_t i = 0; i < steps; i++) {
    memcpy(r + (size_t)(i * n + i) * size, a + (size_t)(i * n + i) * size, (size_t)(n - i) * size);
  }
  if (q) {
    copy_rows(size, m, steps, a, n, q, rows);
    return f->orgqr(ROW_MAJOR, (int)m, (int)rows, (int)steps, q, (int)rows, room, work, count) == 0;
  }
  return true;
}

bool linalg_qr(int dtype, int64_t m, int64_t n, bool complete, void *a, void *q, void *r) {
  const size_t size = dit_dtype_get_size(dtype);
  const int64_t steps = m < n ? m : n, rows = complete ? m : steps, widest = n > rows ? n : rows;
  if (steps == 0) {  // q is a part of the identity
    for (int64_t i = 0; q && i < m * rows; i++) {
      memset((char *)q + (size_t)i * size, 0, size);
    }
    for (int64_t i = 0; q && i < rows; i++) {
      const float one = 1;
      const double wide = 1;
      const bool narrow = dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_C64;
      memcpy((char *)q + (size_t)(i * rows + i) * size, narrow ? (const void *)&one : &wide, narrow ? 4 : 8);
    }
    return true;
  }
  char *room = scratch_take((size_t)(steps + widest * BLOCK) * size);
  const struct functions *f = find(dtype, m, n);
  bool done = room != NULL;
  if (done && f && f->geqrf && f->orgqr) {
    done = call_qr(f, size, m, n, rows, a, q, r, room);
  } else if (done) {
    switch (get_number(dtype)) {
      case 0:
        qr_f32(m, n, rows, a, q, r, (float *)(void *)room);
        break;
      case 1:
        qr_f64(m, n, rows, a, q, r, (double *)(void *)room);
        break;
      case 2:
        qr_c64(m, n, rows, a, q, r, (float complex *)(void *)room);
        break;
      default:
        qr_c128(m, n, rows, a, q, r, (double complex *)(void *)room);
    }
  }
  scratch_give(room);
  return done;
}

// Products

static int get_transposition(int trans) {
  return trans == 0 ? NO_TRANSPOSE : trans == 1 ? TRANSPOSE : CONJUGATE;
}

static void multiply_real(bool wide, int64_t m, int64_t n, int64_t k, double alpha, const void *a, bool a_trans,
                          const void *b, bool b_trans, void *c) {
  struct gemm_problem problem = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .a_strides = {a_trans ? 1 : k, a_trans ? m : 1},
                                 .b_strides = {b_trans ? 1 : n, b_trans ? k : 1},
                                 .c_strides = {n, 1},
                                 .alpha = alpha,
                                 .wide = wide};
  gemm_multiply(&problem);
}

void linalg_multiply(int dtype, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int a_trans,
                     const void *b, int b_trans, void *c) {
  const struct functions *f = find(dtype, m > k ? m : k, n);
  if (k == 0 || m == 0 || n == 0) {
    memset(c, 0, (size_t)(m * n) * dit_dtype_get_size(dtype));
  } else if (dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64) {
    multiply_real(dtype == DIT_DTYPE_F64, m, n, k, alpha, a, a_trans != 0, b, b_trans != 0, c);
  } else if (f && f->gemm) {
    const float factor[2] = {(float)alpha, 0}, zero[2] = {0, 0};
    const double wide_factor[2] = {alpha, 0}, wide_zero[2] = {0, 0};
    const bool wide = dtype == DIT_DTYPE_C128;
    f->gemm(ROW_MAJOR, get_transposition(a_trans), get_transposition(b_trans), (int)m, (int)n, (int)k,
            wide ? (const void *)wide_factor : factor, a, (int)(a_trans ? m : k), b, (int)(b_trans ? k : n),
            wide ? (const void *)wide_zero : zero, c, (int)n);
  } else if (dtype == DIT_DTYPE_C64) {
    multiply_c64(m, n, k, alpha, a, a_trans, b, b_trans, c);
  } else {
    multiply_c128(m, n, k, alpha, a, a_trans, b, b_trans, c);
  }
}
