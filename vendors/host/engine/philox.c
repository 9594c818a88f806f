/// Philox 4x32-10 over many counters at once (see philox.h), and normal numbers from it.
#include "philox.h"

#include <math.h>

#include "mathf.h"
#include "simd.h"

#define PHILOX_LANES 64  // long enough that compilers vectorise the loops instead of unrolling them

/// PHILOX_LANES counters from `offset` on.
KERNEL_INLINE void philox_round_body(uint64_t seed, uint64_t offset, uint32_t *restrict out) {
  uint32_t a[PHILOX_LANES], b[PHILOX_LANES], c[PHILOX_LANES], d[PHILOX_LANES];
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < PHILOX_LANES; i++) {
    const uint64_t counter = offset + (uint64_t)i;
    a[i] = (uint32_t)counter;
    b[i] = (uint32_t)(counter >> 32);
    c[i] = d[i] = 0;
  }
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < PHILOX_LANES; i++) {
      const uint64_t p = (uint64_t)a[i] * 0xD2511F53u, q = (uint64_t)c[i] * 0xCD9E8D57u;
      a[i] = (uint32_t)(q >> 32) ^ b[i] ^ key0;
      b[i] = (uint32_t)q;
      c[i] = (uint32_t)(p >> 32) ^ d[i] ^ key1;
      d[i] = (uint32_t)p;
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int i = 0; i < PHILOX_LANES; i++) {
    out[4 * i] = a[i];
    out[4 * i + 1] = b[i];
    out[4 * i + 2] = c[i];
    out[4 * i + 3] = d[i];
  }
}

KERNEL_INLINE void philox_fill_body(uint64_t seed, uint64_t offset, int64_t counters, uint32_t *out) {
  int64_t i = 0;
  for (; i + PHILOX_LANES <= counters; i += PHILOX_LANES) {
    philox_round_body(seed, offset + (uint64_t)i, out + 4 * i);
  }
  if (i < counters) {
    uint32_t rest[4 * PHILOX_LANES];
    philox_round_body(seed, offset + (uint64_t)i, rest);
    for (int64_t j = 0; j < 4 * (counters - i); j++) {
      out[4 * i + j] = rest[j];
    }
  }
}
KERNEL_MULTI(, philox_fill, (uint64_t seed, uint64_t offset, int64_t counters, uint32_t *out),
             (seed, offset, counters, out))

/// sin and cos of 2 pi u for u in [0, 1): a quarter turn by polynomials, then the quadrant.
KERNEL_INLINE void turn(float u, float *sine, float *cosine) {
  const float quarter = floorf(u * 4.0f + 0.5f);
  const float x = (u - quarter * 0.25f) * 6.28318530718f, s = x * x;
  const float sin_x = x + x * s * (-1.66666597e-1f + s * (8.33292939e-3f + s * -1.95152959e-4f));
  const float cos_x = 1.0f + s * (-0.5f + s * (4.16666456e-2f + s * (-1.38873162e-3f + s * 2.44331571e-5f)));
  const int q = (int)quarter & 3;
  const float a = q & 1 ? cos_x : sin_x, b = q & 1 ? sin_x : cos_x;
  *sine = q & 2 ? -a : a;
  *cosine = (q + 1) & 2 ? -b : b;
}

KERNEL_INLINE void philox_normal_body(const uint32_t *restrict words, float *restrict out, int64_t count) {
  for (int64_t i = 0; i + 2 <= count; i += 2) {
    const float u = ((float)(words[i] >> 8) + 1.0f) * 0x1.0p-24f, v = (float)(words[i + 1] >> 8) * 0x1.0p-24f;
    const float radius = sqrtf(-2.0f * log_f32(u));
    float sine, cosine;
    turn(v, &sine, &cosine);
    out[i] = radius * cosine;
    out[i + 1] = radius * sine;
  }
}
KERNEL_MULTI(, philox_normal, (const uint32_t *words, float *out, int64_t count), (words, out, count))

void philox_normal_double(const uint32_t *words, double *out, int64_t count) {
  for (int64_t i = 0; i + 2 <= count; i += 2) {
    const uint32_t *w = words + 2 * i;
    const uint64_t first = (uint64_t)w[0] << 32 | w[1], second = (uint64_t)w[2] << 32 | w[3];
    const double u = ((double)(first >> 11) + 1) * 0x1.0p-53, v = (double)(second >> 11) * 0x1.0p-53;
    const double radius = sqrt(-2 * log(u)), angle = 6.283185307179586 * v;
    out[i] = radius * cos(angle);
    out[i + 1] = radius * sin(angle);
  }
}
