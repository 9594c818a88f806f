/// How the inputs of further runs are moved (contract in include/dit/verdict.h): reproducible by the seed alone.
#include <math.h>

#include "dit/verdict.h"

// splitmix64
static uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

// From -1 to 1.
static double random_unit(uint64_t *state) {
  return (double)(int64_t)(random_next(state) >> 11) * 0x1p-52 - 1.0;
}

// Labels, flags and exact constants rather than roundings of something.
static bool is_simple(double x) {
  return x >= -16 && x <= 16 && x == (double)(int)x;
}

void dit_verdict_move(double *data, int64_t count, double size, uint64_t seed, int place) {
  uint64_t state = seed ^ (uint64_t)(place + 1) * UINT64_C(0xD1B54A32D192ED03);
  for (int64_t i = 0; i < count; i++) {
    double unit = random_unit(&state);
    data[i] *= is_simple(data[i]) ? 1.0 : 1.0 + size * unit;
  }
}

uint64_t dit_verdict_move_begin(uint64_t seed) {
  return seed ^ UINT64_C(0x9E3779B97F4A7C15);
}

double dit_verdict_move_number(double number, double size, uint64_t *state) {
  return is_simple(number) || !isfinite(number) ? number : number * (1.0 + size * random_unit(state));
}
