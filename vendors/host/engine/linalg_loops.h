/// The loops of linalg.c for one type; included once for each. Rows lie one behind the other.
///
/// The including file defines TYPE, REAL, NAME(x), CONJ(x), PART(x) (the real part) and SQUARE(x) (|x|^2). Both QR and
/// Cholesky go along rows, which are contiguous.

static int NAME(cholesky)(int64_t n, TYPE *a) {
  int bad = 0;
  for (int64_t i = 0; i < n; i++) {
    TYPE *row = a + i * n;
    for (int64_t j = 0; j <= i; j++) {
      const TYPE *other = a + j * n;
      TYPE sum = row[j];
      for (int64_t k = 0; k < j; k++) {
        sum -= row[k] * CONJ(other[k]);
      }
      if (j < i) {
        row[j] = sum / other[j];
      } else if (!(PART(sum) > 0)) {
        bad = bad ? bad : (int)i + 1;
        row[j] = sum;
      } else {
        row[j] = NAME(root)(PART(sum));
      }
    }
    if (bad) {
      break;
    }
  }
  for (int64_t i = 0; i < n; i++) {
    memset(a + i * n + i + 1, 0, sizeof(TYPE) * (size_t)(n - i - 1));
  }
  return bad;
}

/// Element (i, j) of op(a).
static TYPE NAME(get)(const struct linalg_triangle *how, int64_t n, const TYPE *a, int64_t i, int64_t j) {
  const TYPE x = how->transposed ? a[j * n + i] : a[i * n + j];
  return how->conjugated ? CONJ(x) : x;
}

static void NAME(solve)(const struct linalg_triangle *how, int64_t n, int64_t m, const TYPE *a, TYPE *b) {
  const bool from_last = how->upper != how->transposed;
  for (int64_t step = 0; step < n; step++) {
    const int64_t i = from_last ? n - 1 - step : step;
    TYPE *row = b + i * m;
    for (int64_t k = from_last ? i + 1 : 0; k < (from_last ? n : i); k++) {
      const TYPE factor = NAME(get)(how, n, a, i, k);
      const TYPE *other = b + k * m;
      for (int64_t j = 0; j < m; j++) {
        row[j] -= factor * other[j];
      }
    }
    if (!how->unit) {
      const TYPE own = NAME(get)(how, n, a, i, i);
      for (int64_t j = 0; j < m; j++) {
        row[j] /= own;
      }
    }
  }
}

/// The reflection 1 - tau v v^H that makes column j of a zero below the diagonal: v below it (its first element is 1,
/// not stored), the result on it.
static TYPE NAME(reflect)(int64_t m, int64_t n, int64_t j, TYPE *a) {
  const TYPE alpha = a[j * n + j];
  REAL most = 0, sum = 0;
  for (int64_t i = j + 1; i < m; i++) {
    const REAL size = NAME(magnitude)(a[i * n + j]);
    most = size > most || size != size ? size : most;
  }
  if (most == 0 && NAME(is_real)(alpha)) {
    return 0;
  }
  most = NAME(magnitude)(alpha) > most ? NAME(magnitude)(alpha) : most;
  for (int64_t i = j; i < m; i++) {
    sum += SQUARE(a[i * n + j] / most);
  }
  const REAL norm = most * NAME(root)(sum), beta = PART(alpha) < 0 ? norm : -norm;
  const TYPE below = alpha - beta;
  for (int64_t i = j + 1; i < m; i++) {
    a[i * n + j] /= below;
  }
  a[j * n + j] = beta;
  return (beta - alpha) / beta;
}

/// Columns [from, n) of b (m rows of n) become (1 - tau v v^H) b, v from column j of a on. `room` has n elements.
static void NAME(apply)(int64_t m, int64_t width, int64_t j, const TYPE *a, TYPE tau, int64_t n, int64_t from, TYPE *b,
                        TYPE *room) {
  memcpy(room + from, b + j * n + from, sizeof(TYPE) * (size_t)(n - from));
  for (int64_t i = j + 1; i < m; i++) {
    const TYPE factor = CONJ(a[i * width + j]);
    for (int64_t k = from; k < n; k++) {
      room[k] += factor * b[i * n + k];
    }
  }
  for (int64_t k = from; k < n; k++) {
    room[k] *= tau;
    b[j * n + k] -= room[k];
  }
  for (int64_t i = j + 1; i < m; i++) {
    const TYPE factor = a[i * width + j];
    for (int64_t k = from; k < n; k++) {
      b[i * n + k] -= factor * room[k];
    }
  }
}

/// `room` has space for min(m, n) + max(n, rows) elements.
static void NAME(qr)(int64_t m, int64_t n, int64_t rows, TYPE *a, TYPE *q, TYPE *r, TYPE *room) {
  const int64_t steps = m < n ? m : n;
  TYPE *taus = room, *line = room + steps;
  for (int64_t j = 0; j < steps; j++) {
    taus[j] = NAME(reflect)(m, n, j, a);
    NAME(apply)(m, n, j, a, CONJ(taus[j]), n, j + 1, a, line);
  }
  memset(r, 0, sizeof(TYPE) * (size_t)(rows * n));
  for (int64_t i = 0; i < steps; i++) {
    memcpy(r + i * n + i, a + i * n + i, sizeof(TYPE) * (size_t)(n - i));
  }
  if (!q) {
    return;
  }
  memset(q, 0, sizeof(TYPE) * (size_t)(m * rows));
  for (int64_t i = 0; i < rows; i++) {
    q[i * rows + i] = 1;
  }
  for (int64_t j = steps - 1; j >= 0; j--) {
    NAME(apply)(m, n, j, a, taus[j], rows, j, q, line);
  }
}

#ifdef WITH_PRODUCT
static TYPE NAME(pick)(const TYPE *a, int64_t i, int64_t j, int64_t rows, int64_t columns, int trans) {
  const TYPE x = trans ? a[j * rows + i] : a[i * columns + j];
  return trans == 2 ? CONJ(x) : x;
}

static void NAME(multiply)(int64_t m, int64_t n, int64_t k, double alpha, const TYPE *a, int a_trans, const TYPE *b,
                           int b_trans, TYPE *c) {
  memset(c, 0, sizeof(TYPE) * (size_t)(m * n));
  for (int64_t i = 0; i < m; i++) {
    for (int64_t l = 0; l < k; l++) {
      const TYPE factor = (REAL)alpha * NAME(pick)(a, i, l, m, k, a_trans);
      for (int64_t j = 0; j < n; j++) {
        c[i * n + j] += factor * NAME(pick)(b, l, j, k, n, b_trans);
      }
    }
  }
}

#endif

#undef TYPE
#undef REAL
#undef NAME
#undef CONJ
#undef PART
#undef SQUARE
