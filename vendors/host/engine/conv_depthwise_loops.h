/// The loops of depthwise convolution for one type; included once for float and once for double.
///
/// The including file defines REAL, NAME(x) and BODY(x).

/// out = bias + sum over taps of weight[k] * padded[position + offsets[k]]. Reads up to CONV_LANES positions
/// behind a line.
KERNEL_INLINE void BODY(depthwise)(const struct conv_plane *s, REAL *out, const REAL *padded, const REAL *weight,
                                   REAL bias) {
  typedef REAL vector __attribute__((vector_size(CONV_LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
  for (int64_t line = 0; line < s->out[0] * s->out[1]; line++) {
    const REAL *base = padded + line / s->out[1] * s->steps[0] + line % s->out[1] * s->steps[1];
    for (int64_t x = 0; x < s->out[2]; x += CONV_LANES) {
      const int64_t count = s->out[2] - x < CONV_LANES ? s->out[2] - x : CONV_LANES;
      vector sum = bias - (vector){0};
      for (int64_t k = 0; k < s->taps; k++) {
        sum += weight[k] * *(const vector *)(base + x + s->offsets[k]);
      }
      if (count == CONV_LANES && !s->adds) {
        *(vector *)out = sum;
      } else {
        for (int64_t j = 0; j < count; j++) {
          out[j] = s->adds ? out[j] + sum[j] : sum[j];
        }
      }
      out += count;
    }
  }
}
KERNEL_MULTI(static, NAME(depthwise),
             (const struct conv_plane *s, REAL *out, const REAL *padded, const REAL *weight, REAL bias),
             (s, out, padded, weight, bias))

/// sums[k] += sum over positions of grad_out * padded[position + offsets[k]]; `room` holds CONV_LANES numbers
/// per tap.
KERNEL_INLINE void BODY(depthwise_weight)(const struct conv_plane *s, double *sums, const REAL *grad_out,
                                          const REAL *padded, REAL *room) {
  typedef REAL vector __attribute__((vector_size(CONV_LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
  memset(room, 0, sizeof(REAL) * (size_t)(s->taps * CONV_LANES));
  for (int64_t line = 0; line < s->out[0] * s->out[1]; line++) {
    const REAL *base = padded + line / s->out[1] * s->steps[0] + line % s->out[1] * s->steps[1];
    for (int64_t x = 0; x < s->out[2]; x += CONV_LANES) {
      const int64_t count = s->out[2] - x < CONV_LANES ? s->out[2] - x : CONV_LANES;
      vector grad = {0};
      if (count == CONV_LANES) {
        grad = *(const vector *)grad_out;
      } else {
        memcpy(&grad, grad_out, sizeof(REAL) * (size_t)count);
      }
      grad_out += count;
      for (int64_t k = 0; k < s->taps; k++) {
        *(vector *)(room + k * CONV_LANES) += grad * *(const vector *)(base + x + s->offsets[k]);
      }
    }
  }
  for (int64_t k = 0; k < s->taps; k++) {
    for (int j = 0; j < CONV_LANES; j++) {
      sums[k] += (double)room[k * CONV_LANES + j];
    }
  }
}
KERNEL_MULTI(static, NAME(depthwise_weight),
             (const struct conv_plane *s, double *sums, const REAL *grad_out, const REAL *padded, REAL *room),
             (s, sums, grad_out, padded, room))

/// One plane into the zeros that are there already.
static void NAME(set_middle)(const struct conv_plane *s, REAL *padded, const REAL *plane) {
  for (int64_t z = s->first[0]; z < s->last[0]; z++) {
    for (int64_t y = s->first[1]; y < s->last[1]; y++) {
      const REAL *from = plane + (z * s->in[1] + y) * s->in[2];
      const int64_t line = s->origin + z * s->in_steps[0] + y * s->in_steps[1];
      if (s->phases == 1) {
        for (int64_t x = s->first[2]; x < s->last[2]; x++) {
          padded[line + s->begin + x * s->in_steps[2]] = from[x];
        }
        continue;
      }
      for (int64_t x = s->first[2]; x < s->last[2] && x < s->first[2] + s->phases; x++) {
        const int64_t at = line + (x + s->begin) % s->phases * s->phase + (x + s->begin) / s->phases;
        for (int64_t i = 0; x + i * s->phases < s->last[2]; i++) {
          padded[at + i] = from[x + i * s->phases];
        }
      }
    }
  }
}

#undef REAL
#undef NAME
#undef BODY
