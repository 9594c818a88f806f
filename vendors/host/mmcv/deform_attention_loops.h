/// Deformable attention (deform_attention.c), for REAL elements. 0 value (b, s, h, d), 1 shapes (l, 2), 2 starts (l),
/// 3 places (b, q, h, l, p, 2), 4 weights (b, q, h, l, p), 5 result (b, q, h d) or its gradient; 6 to 8 gradients.

/// The tap of place `at` of level `level`: of (b, q, h, l, p), and the first element of its level.
static bool NAME(find_place)(const struct call *call, int64_t at, int64_t level, struct tap *tap, int64_t *height,
                             int64_t *width) {
  const int64_t *shapes = call_data(call, 1);
  const REAL *place = (const REAL *)call_data(call, 3) + 2 * at;
  *height = shapes[2 * level];
  *width = shapes[2 * level + 1];
  return tap_find(tap, *height, *width, (double)place[1] * (double)*height - 0.5,
                  (double)place[0] * (double)*width - 0.5);
}

static void NAME(attend)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t heads = call_size(call, 'h'), size = call_size(call, 'd'), points = call_size(call, 'p');
  const int64_t levels = call_size(call, 'l'), *starts = call_data(call, 2);
  const REAL *weights = call_data(call, 4);
  for (int64_t at = begin; at < end; at++) {  // (b, q, h)
    const int64_t b = at / (heads * call_size(call, 'q')), head = at % heads;
    const REAL *value = (const REAL *)call_data(call, 0) + b * call_size(call, 's') * heads * size + head * size;
    REAL *out = (REAL *)call_data(call, 5) + at * size;
    for (int64_t d = 0; d < size; d++) {
      out[d] = 0;
    }
    for (int64_t i = at * levels * points; i < (at + 1) * levels * points; i++) {
      struct tap tap;
      int64_t height, width;
      const int64_t level = i / points % levels;
      if (!NAME(find_place)(call, i, level, &tap, &height, &width)) {
        continue;
      }
      for (int k = 0; k < 4; k++) {
        const REAL factor = (REAL)(tap.weight[k] * (double)weights[i]);
        const REAL *from = value + (starts[level] + tap.at[k]) * heads * size;
        for (int64_t d = 0; d < size; d++) {
          out[d] += factor * from[d];
        }
      }
    }
  }
}

/// Loops over (b, h): all queries of a head.
static void NAME(attend_backward)(void *argument, int64_t begin, int64_t end) {
  const struct call *call = argument;
  const int64_t heads = call_size(call, 'h'), size = call_size(call, 'd'), points = call_size(call, 'p');
  const int64_t levels = call_size(call, 'l'), queries = call_size(call, 'q'), *starts = call_data(call, 2);
  const REAL *weights = call_data(call, 4);
  for (int64_t at = begin * queries; at < end * queries; at++) {  // (b, h, q)
    const int64_t b = at / queries / heads, head = at / queries % heads,
                  row = (b * queries + at % queries) * heads + head;
    const int64_t lead = b * call_size(call, 's') * heads * size + head * size;
    const REAL *value = (const REAL *)call_data(call, 0) + lead, *grad = (const REAL *)call_data(call, 5) + row * size;
    for (int64_t i = row * levels * points; i < (row + 1) * levels * points; i++) {
      struct tap tap = {.at = {0}};
      int64_t height, width;
      double by_y = 0, by_x = 0, by_weight = 0;
      const int64_t level = i / points % levels;
      const bool inside = NAME(find_place)(call, i, level, &tap, &height, &width);
      for (int k = 0; inside && k < 4; k++) {
        const int64_t from = (starts[level] + tap.at[k]) * heads * size;
        REAL *to = (REAL *)call_data(call, 6) + lead + from;
        double dot = 0;
        for (int64_t d = 0; d < size; d++) {
          dot += (double)grad[d] * (double)value[from + d];
          to[d] += (REAL)(tap.weight[k] * (double)weights[i] * (double)grad[d]);
        }
        by_y += tap.by_y[k] * dot;
        by_x += tap.by_x[k] * dot;
        by_weight += tap.weight[k] * dot;
      }
      ((REAL *)call_data(call, 7))[2 * i] = (REAL)(by_x * (double)width * (double)weights[i]);
      ((REAL *)call_data(call, 7))[2 * i + 1] = (REAL)(by_y * (double)height * (double)weights[i]);
      ((REAL *)call_data(call, 8))[i] = (REAL)by_weight;
    }
  }
}
