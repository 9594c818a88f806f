/// Rows of sparse convolution (sparse_conv.c), for REAL elements.

static void NAME(take_rows)(const REAL *from, const int64_t *rows, int64_t count, int64_t width, REAL *to) {
  for (int64_t i = 0; i < count * width; i++) {
    to[i] = from[rows[i / width] * width + i % width];
  }
}

static void NAME(add_rows)(const REAL *from, const int64_t *rows, int64_t count, int64_t width, REAL *to) {
  for (int64_t i = 0; i < count * width; i++) {
    to[rows[i / width] * width + i % width] += from[i];
  }
}

/// 3 result (n, o) and 4 bias (o).
static void NAME(add_bias)(const struct call *call) {
  const REAL *bias = call_data(call, 4);
  REAL *out = call_data(call, 3);
  for (int64_t i = 0; bias && i < call_numel(call, 3); i++) {
    out[i] += bias[i % call_size(call, 'o')];
  }
}

/// 0 features (n, c), 3 result (r, c).
static void NAME(pool_rows)(const struct call *call, const int64_t *in, const int64_t *to, int64_t count) {
  const int64_t channels = call_size(call, 'c');
  const REAL *features = call_data(call, 0);
  REAL *out = call_data(call, 3);
  for (int64_t i = 0; i < count * channels; i++) {
    const REAL value = features[in[i / channels] * channels + i % channels];
    REAL *largest = out + to[i / channels] * channels + i % channels;
    *largest = call_goes_before((double)value, (double)*largest) ? value : *largest;
  }
}

/// 0 features, 3 the forward result, 4 its gradient, 5 the result.
static void NAME(pool_backward_rows)(const struct call *call, const int64_t *in, const int64_t *to, int64_t count) {
  const int64_t channels = call_size(call, 'c');
  const REAL *features = call_data(call, 0), *largest = call_data(call, 3), *grad = call_data(call, 4);
  REAL *out = call_data(call, 5);
  for (int64_t i = 0; i < count * channels; i++) {
    const int64_t from = in[i / channels] * channels + i % channels, at = to[i / channels] * channels + i % channels;
    out[from] += features[from] == largest[at] ? grad[at] : 0;
  }
}
