/// The arithmetic of the recurrent cells for one work type; included once for float and once for double.
///
/// The including file defines REAL, SIGMOID, TANH and BODY(x) / NAME(x). Arrays hold one block of hidden units: g[gate]
/// points to the block of one gate.

KERNEL_INLINE void BODY(lstm_forward)(REAL *const *g, const REAL *cx, REAL *cy, REAL *hy, int64_t count) {
  REAL *restrict i = g[0], *restrict f = g[1], *restrict c = g[2], *restrict o = g[3];
  KERNEL_LANES
  for (int64_t j = 0; j < count; j++) {
    i[j] = SIGMOID(i[j]);
    f[j] = SIGMOID(f[j]);
    c[j] = TANH(c[j]);
    o[j] = SIGMOID(o[j]);
    cy[j] = f[j] * cx[j] + i[j] * c[j];
    hy[j] = o[j] * TANH(cy[j]);
  }
}
KERNEL_MULTI(static, NAME(lstm_forward), (REAL *const *g, const REAL *cx, REAL *cy, REAL *hy, int64_t count),
             (g, cx, cy, hy, count))

/// g holds the activated gates and becomes their gradients.
KERNEL_INLINE void BODY(lstm_backward)(REAL *const *g, const REAL *cx, const REAL *cy, const REAL *grad_hy,
                                       const REAL *grad_cy, REAL *grad_cx, int64_t count) {
  REAL *restrict i = g[0], *restrict f = g[1], *restrict c = g[2], *restrict o = g[3];
  KERNEL_LANES
  for (int64_t j = 0; j < count; j++) {
    const REAL t = TANH(cy[j]), gi = i[j], gf = f[j], gc = c[j], go = o[j];
    const REAL d = grad_hy[j] * go * (1 - t * t) + grad_cy[j];
    i[j] = d * gc * gi * (1 - gi);
    f[j] = d * cx[j] * gf * (1 - gf);
    c[j] = d * gi * (1 - gc * gc);
    o[j] = grad_hy[j] * t * go * (1 - go);
    grad_cx[j] = d * gf;
  }
}
KERNEL_MULTI(static, NAME(lstm_backward),
             (REAL *const *g, const REAL *cx, const REAL *cy, const REAL *grad_hy, const REAL *grad_cy, REAL *grad_cx,
              int64_t count),
             (g, cx, cy, grad_hy, grad_cy, grad_cx, count))

/// a: input gates, b: hidden gates; a becomes the activated gates.
KERNEL_INLINE void BODY(gru_forward)(REAL *const *a, REAL *const *b, const REAL *hx, REAL *hy, int64_t count) {
  REAL *restrict r = a[0], *restrict z = a[1], *restrict n = a[2];
  KERNEL_LANES
  for (int64_t j = 0; j < count; j++) {
    r[j] = SIGMOID(r[j] + b[0][j]);
    z[j] = SIGMOID(z[j] + b[1][j]);
    n[j] = TANH(n[j] + r[j] * b[2][j]);
    hy[j] = n[j] + z[j] * (hx[j] - n[j]);
  }
}
KERNEL_MULTI(static, NAME(gru_forward), (REAL *const *a, REAL *const *b, const REAL *hx, REAL *hy, int64_t count),
             (a, b, hx, hy, count))

/// w: the five parts of the workspace; a and b become the gradients of the input and hidden gates.
KERNEL_INLINE void BODY(gru_backward)(REAL *const *w, REAL *const *a, REAL *const *b, const REAL *grad_hy,
                                      REAL *grad_hx, int64_t count) {
  KERNEL_LANES
  for (int64_t j = 0; j < count; j++) {
    const REAL r = w[0][j], z = w[1][j], n = w[2][j], hx = w[3][j], hn = w[4][j], g = grad_hy[j];
    const REAL gz = g * (hx - n) * z * (1 - z), gn = g * (1 - z) * (1 - n * n), gr = gn * hn * r * (1 - r);
    a[0][j] = gr;
    a[1][j] = gz;
    a[2][j] = gn;
    b[0][j] = gr;
    b[1][j] = gz;
    b[2][j] = gn * r;
    grad_hx[j] = g * z;
  }
}
KERNEL_MULTI(static, NAME(gru_backward),
             (REAL *const *w, REAL *const *a, REAL *const *b, const REAL *grad_hy, REAL *grad_hx, int64_t count),
             (w, a, b, grad_hy, grad_hx, count))
