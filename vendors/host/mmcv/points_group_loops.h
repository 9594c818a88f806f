/// Features moved by indices (points_group.c), for REAL elements.

/// 0 points (b, c, n), 1 idx (b, p), 2 out (b, c, p). Loops over (b, c).
static void NAME(gather_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), count = call_size(call, 'n');
  const int64_t picks = count_picks(call);
  for (int64_t at = begin; at < end; at++) {
    const REAL *points = (const REAL *)call_data(call, 0) + at * count;
    const int64_t *idx = (const int64_t *)call_data(call, 1) + at / channels * picks;
    REAL *out = (REAL *)call_data(call, 2) + at * picks;
    for (int64_t i = 0; i < picks; i++) {
      out[i] = points[idx[i]];
    }
  }
}

static void NAME(gather_backward_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), count = call_size(call, 'n');
  const int64_t picks = count_picks(call);
  for (int64_t at = begin; at < end; at++) {
    REAL *points = (REAL *)call_data(call, 0) + at * count;
    const int64_t *idx = (const int64_t *)call_data(call, 1) + at / channels * picks;
    const REAL *out = (const REAL *)call_data(call, 2) + at * picks;
    for (int64_t i = 0; i < picks; i++) {
      points[idx[i]] += out[i];
    }
  }
}

/// 0 points (b, c, m), 1 idx (b, n, 3), 2 out (b, c, n), 3 weight (b, n, 3).
static void NAME(interpolate_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), count = call_size(call, 'm'), wanted = call_size(call, 'n');
  for (int64_t at = begin; at < end; at++) {
    const REAL *points = (const REAL *)call_data(call, 0) + at * count;
    const int64_t *idx = (const int64_t *)call_data(call, 1) + at / channels * wanted * 3;
    const REAL *weight = (const REAL *)call_data(call, 3) + at / channels * wanted * 3;
    REAL *out = (REAL *)call_data(call, 2) + at * wanted;
    for (int64_t i = 0; i < wanted; i++) {
      out[i] = weight[3 * i] * points[idx[3 * i]] + weight[3 * i + 1] * points[idx[3 * i + 1]] +
               weight[3 * i + 2] * points[idx[3 * i + 2]];
    }
  }
}

static void NAME(interpolate_backward_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), count = call_size(call, 'm'), wanted = call_size(call, 'n');
  for (int64_t at = begin; at < end; at++) {
    REAL *points = (REAL *)call_data(call, 0) + at * count;
    const int64_t *idx = (const int64_t *)call_data(call, 1) + at / channels * wanted * 3;
    const REAL *weight = (const REAL *)call_data(call, 3) + at / channels * wanted * 3;
    const REAL *out = (const REAL *)call_data(call, 2) + at * wanted;
    for (int64_t i = 0; i < 3 * wanted; i++) {
      points[idx[i]] += weight[i] * out[i / 3];
    }
  }
}

/// 0 features (N, c), 1 idx (m, s) with the batches' beginnings added, 2 out (m, c, s). Loops over m.
static void NAME(stack_rows)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), samples = call_size(call, 's');
  const REAL *features = call_data(call, 0);
  for (int64_t i = begin; i < end; i++) {
    const int64_t *idx = call_data(call, 1), first = find_first(call, i);
    REAL *out = (REAL *)call_data(call, 2) + i * channels * samples;
    for (int64_t at = 0; at < channels * samples; at++) {
      out[at] = features[(first + idx[i * samples + at % samples]) * channels + at / samples];
    }
  }
}

/// The same backwards, for channels begin to end - 1.
static void NAME(stack_backward_channels)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t channels = call_size(call, 'c'), samples = call_size(call, 's');
  REAL *features = call_data(call, 0);
  for (int64_t i = 0; i < call_size(call, 'm'); i++) {
    const int64_t *idx = call_data(call, 1), first = find_first(call, i);
    const REAL *grad = (const REAL *)call_data(call, 2) + i * channels * samples;
    for (int64_t c = begin; c < end; c++) {
      for (int64_t s = 0; s < samples; s++) {
        features[(first + idx[i * samples + s]) * channels + c] += grad[c * samples + s];
      }
    }
  }
}

/// 0 points, 1 centers (B, N, M, O), 2 scores (B, P, K, M), 3 idx (B, P, K), 4 out (B, O, P, K). Loops over (b, p).
static void NAME(score_points)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t n = call_size(call, 'n'), m = call_size(call, 'm'), o = call_size(call, 'o');
  const int64_t p = call_size(call, 'p'), k = call_size(call, 'k'), *idx = call_data(call, 3);
  const REAL *points = call_data(call, 0), *centers = call_data(call, 1), *scores = call_data(call, 2);
  REAL *out = call_data(call, 4);
  for (int64_t at = begin; at < end; at++) {
    const int64_t b = at / p;
    for (int64_t i = 0; i < k * o; i++) {
      const int64_t kk = i / o, oo = i % o, from = idx[at * k + kk], centre = idx[at * k];
      double sum = 0;
      for (int64_t mm = 0; is_inside(from, n) && is_inside(centre, n) && mm < m; mm++) {
        const double near = (double)points[((b * n + from) * m + mm) * o + oo];
        sum += (double)scores[(at * k + kk) * m + mm] * (near - (double)centers[((b * n + centre) * m + mm) * o + oo]);
      }
      out[((b * o + oo) * p + at % p) * k + kk] = (REAL)sum;
    }
  }
}

/// 4 gradient of out; 5, 6 gradients of points and centers. Loops over (b, m).
static void NAME(score_backward_points)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t n = call_size(call, 'n'), m = call_size(call, 'm'), o = call_size(call, 'o');
  const int64_t p = call_size(call, 'p'), k = call_size(call, 'k'), *idx = call_data(call, 3);
  const REAL *scores = call_data(call, 2), *grad = call_data(call, 4);
  REAL *grad_points = call_data(call, 5), *grad_centers = call_data(call, 6);
  for (int64_t at = begin; at < end; at++) {
    const int64_t b = at / m, mm = at % m;
    for (int64_t i = 0; i < p * k; i++) {
      const int64_t from = idx[b * p * k + i], centre = idx[b * p * k + i / k * k];
      const REAL score = scores[(b * p * k + i) * m + mm];
      for (int64_t oo = 0; is_inside(from, n) && is_inside(centre, n) && oo < o; oo++) {
        const REAL part = score * grad[(b * o + oo) * p * k + i];
        grad_points[((b * n + from) * m + mm) * o + oo] += part;
        grad_centers[((b * n + centre) * m + mm) * o + oo] -= part;
      }
    }
  }
}

/// 7 gradient of scores. Loops over (b, p, k).
static void NAME(score_backward_scores)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t n = call_size(call, 'n'), m = call_size(call, 'm'), o = call_size(call, 'o');
  const int64_t p = call_size(call, 'p'), k = call_size(call, 'k'), *idx = call_data(call, 3);
  const REAL *points = call_data(call, 0), *centers = call_data(call, 1), *grad = call_data(call, 4);
  REAL *grad_scores = call_data(call, 7);
  for (int64_t at = begin; at < end; at++) {
    const int64_t b = at / (p * k), from = idx[at], centre = idx[at / k * k];
    for (int64_t mm = 0; mm < m; mm++) {
      double sum = 0;
      for (int64_t oo = 0; is_inside(from, n) && is_inside(centre, n) && oo < o; oo++) {
        const double near = (double)points[((b * n + from) * m + mm) * o + oo];
        sum += (near - (double)centers[((b * n + centre) * m + mm) * o + oo]) *
               (double)grad[(b * o + oo) * p * k + at % (p * k)];
      }
      grad_scores[at * m + mm] = (REAL)sum;
    }
  }
}
