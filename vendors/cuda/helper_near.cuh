/// Nearness of pairs: one pass at the speed of memory where both are packed in the same order.
///
/// Part of helper_kernels.cu. 16-bit numbers against float32 are subtracted in float32 (the difference is off by a
/// rounding of itself, and 0 when they are equal); everything else in double.
#ifndef DIT_CUDA_HELPER_NEAR_CUH
#define DIT_CUDA_HELPER_NEAR_CUH

#include "helper_compare.cuh"

struct near_state {
  double excess, largest, difference;
  uint32_t mismatch;
};

/// The same while all numbers are float32.
struct near_short {
  float excess, largest, difference;
  uint32_t mismatch;
};

DEVICE float short_float_from_bits(uint32_t bits, int dtype) {
  uint32_t word = dtype == DIT_DTYPE_BF16 ? bits << 16 : bits;
  float value;
  if (dtype == DIT_DTYPE_F16) {  // the exponent moved into place; float32 has another bias
    word = (bits & 0x7FFF) << 13;
    memcpy(&value, &word, sizeof(value));
    value *= 0x1p112f;
    if ((bits & 0x7FFF) >= 0x7C00) {
      word |= 0x7F800000;
      memcpy(&value, &word, sizeof(value));
    }
    return bits & 0x8000 ? -value : value;
  }
  memcpy(&value, &word, sizeof(value));
  return value;
}

DEVICE void near_add_short(struct near_short *state, float a, float b, float relative) {
  float difference = fabsf(a - b), size = fabsf(b);
  if (difference <= 3.4028234663852886e38f && size <= 3.4028234663852886e38f) {  // false for NaN
    state->excess = fmaxf(state->excess, difference - relative * size);
    state->largest = fmaxf(state->largest, size);
    state->difference = fmaxf(state->difference, difference);
  } else if (!(a == b || (a != a && b != b))) {
    state->mismatch++;  // a difference beyond the range is one, too
  }
}

DEVICE void near_add(struct near_state *state, struct bits128 bits_a, struct bits128 bits_b, int dtype_a, int dtype_b,
                     double relative) {
  struct pair_number a = number_get(bits_a, dtype_a), b = number_get(bits_b, dtype_b);
  bool is_complex = dtype_is_complex(dtype_a) || dtype_is_complex(dtype_b);
  bool wide = dtype_is_wide(dtype_a) || dtype_is_wide(dtype_b);
  if (is_finite(a.re) && is_finite(a.im) && is_finite(b.re) && is_finite(b.im)) {
    double difference = number_get_diff(a, b, 1, is_complex, wide), size = number_get_size(b, is_complex, wide);
    if (!is_finite(difference) || !is_finite(size)) {
      state->mismatch++;
      return;
    }
    state->excess = larger_get(state->excess, difference - relative * size);
    state->largest = larger_get(state->largest, size);
    state->difference = larger_get(state->difference, difference);
    return;
  }
  bool equal = a.re == b.re && a.im == b.im;
  state->mismatch += !(equal || (number_is_nan(a) && number_is_nan(b)));
}

DEVICE bool pair_is_aligned(const struct kernel_near_pair *pair) {
  return ((uintptr_t)pair->a | (uintptr_t)pair->b) % VECTOR == 0;
}

/// Both packed, `a` of 16 bits: eight numbers at once against two vectors of float32.
DEVICE void near_of_halves(struct near_short *state, const struct kernel_near_pair *pair, int dtype) {
  int64_t vectors = pair_is_aligned(pair) ? pair->numel / 8 : 0, step = (int64_t)pair->blocks * HELPER_THREADS;
  int64_t thread = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x;
  float relative = (float)pair->relative;
  UNROLL_2 for (int64_t at = thread; at < vectors; at += step) {
    struct bits128 a = load_vector(pair->a + at * VECTOR);
    struct bits128 low = load_vector(pair->b + at * 2 * VECTOR), high = load_vector(pair->b + (at * 2 + 1) * VECTOR);
    UNROLL for (int i = 0; i < 8; i++) {
      uint32_t bits_a = (uint32_t)take_element(a, i, 2).low;
      uint32_t bits_b = (uint32_t)take_element(i < 4 ? low : high, i % 4, 4).low;
      near_add_short(state, short_float_from_bits(bits_a, dtype), short_float_from_bits(bits_b, DIT_DTYPE_F32),
                     relative);
    }
  }
  for (int64_t at = vectors * 8 + thread; at < pair->numel; at += step) {
    uint32_t bits_a = (uint32_t)load_element(pair->a + at * 2, 2).low;
    uint32_t bits_b = (uint32_t)load_element(pair->b + at * 4, 4).low;
    near_add_short(state, short_float_from_bits(bits_a, dtype), short_float_from_bits(bits_b, DIT_DTYPE_F32), relative);
  }
}

/// Both packed, float32 against float64: four numbers at once.
DEVICE void near_of_floats(struct near_state *state, const struct kernel_near_pair *pair) {
  int64_t vectors = pair_is_aligned(pair) ? pair->numel / 4 : 0, step = (int64_t)pair->blocks * HELPER_THREADS;
  int64_t thread = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x;
  UNROLL_2 for (int64_t at = thread; at < vectors; at += step) {
    struct bits128 a = load_vector(pair->a + at * VECTOR);
    struct bits128 low = load_vector(pair->b + at * 2 * VECTOR), high = load_vector(pair->b + (at * 2 + 1) * VECTOR);
    UNROLL for (int i = 0; i < 4; i++) {
      near_add(state, take_element(a, i, 4), take_element(i < 2 ? low : high, i % 2, 8), DIT_DTYPE_F32, DIT_DTYPE_F64,
               pair->relative);
    }
  }
  for (int64_t at = vectors * 4 + thread; at < pair->numel; at += step) {
    near_add(state, load_element(pair->a + at * 4, 4), load_element(pair->b + at * 8, 8), DIT_DTYPE_F32, DIT_DTYPE_F64,
             pair->relative);
  }
}

/// Any strides (no dimensions: packed), any two dtypes.
DEVICE void near_of_any(struct near_state *state, const struct kernel_near_pair *pair,
                        const struct kernel_pair_dim *dims) {
  int dtype_a = pair->dtype_a, dtype_b = pair->dtype_b;
  int width_a = dtype_get_width(dtype_a), width_b = dtype_get_width(dtype_b);
  int64_t step = (int64_t)pair->blocks * HELPER_THREADS;
  for (int64_t at = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x; at < pair->numel; at += step) {
    int64_t offset_a = pair->ndim ? 0 : at * width_a, offset_b = pair->ndim ? 0 : at * width_b, rest = at;
    UNROLL_1 for (int dim = 0; dim < pair->ndim; dim++) {
      int64_t size = dims[dim].size, next = 0;
      if (dim < pair->ndim - 1) {
        next = (rest | size) <= INT32_MAX ? (int64_t)((uint32_t)rest / (uint32_t)size) : rest / size;
      }
      offset_a += (rest - next * size) * dims[dim].stride[0];
      offset_b += (rest - next * size) * dims[dim].stride[1];
      rest = next;
    }
    near_add(state, load_element(pair->a + offset_a, width_a), load_element(pair->b + offset_b, width_b), dtype_a,
             dtype_b, pair->relative);
  }
}

DEVICE uint64_t bits_from_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Numbers that are not negative are in the order of their bits.
DEVICE void near_finish(const struct kernel_near *task, int index, const struct near_state *mine) {
  const struct kernel_near_pair *pair = &task->pair[index];
  __shared__ struct near_state room[HELPER_THREADS];
  room[threadIdx.x] = *mine;
  UNROLL_1 for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      struct near_state *a = &room[threadIdx.x];
      const struct near_state *b = &room[threadIdx.x + width];
      a->excess = larger_get(a->excess, b->excess);
      a->largest = larger_get(a->largest, b->largest);
      a->difference = larger_get(a->difference, b->difference);
      a->mismatch += b->mismatch;
    }
  }
  __syncthreads();
  uint64_t *sums = task->scratch->near[index];
  if (threadIdx.x == 0) {
    atomic_raise(&sums[0], bits_from_double(room[0].excess));
    atomic_raise(&sums[1], bits_from_double(room[0].largest));
    atomic_raise(&sums[2], bits_from_double(room[0].difference));
    atomic_increase(&sums[3], room[0].mismatch);
  }
  if (!block_is_last(task->scratch, index, pair->blocks) || threadIdx.x != 0) {
    return;
  }
  uint64_t all[4];
  fetch_words(all, sums, 4);
  struct dit_near_result result;
  result.excess = double_from_bits(all[0]);
  result.largest = double_from_bits(all[1]);
  result.difference = double_from_bits(all[2]);
  result.mismatch = (int64_t)all[3];
  task->out[index] = result;
  sums[0] = sums[1] = sums[2] = sums[3] = 0;
}

KERNEL helper_near(PARAMETER struct kernel_near task) {
  int index = (int)blockIdx.y;
  const struct kernel_near_pair *pair = &task.pair[index];
  if (blockIdx.x >= pair->blocks) {
    return;
  }
  struct near_state state;
  memset(&state, 0, sizeof(state));
  bool halves = pair->ndim == 0 && pair->dtype_b == DIT_DTYPE_F32 &&
                (pair->dtype_a == DIT_DTYPE_BF16 || pair->dtype_a == DIT_DTYPE_F16);
  if (halves) {
    struct near_short few;
    memset(&few, 0, sizeof(few));
    if (pair->dtype_a == DIT_DTYPE_BF16) {
      near_of_halves(&few, pair, DIT_DTYPE_BF16);
    } else {
      near_of_halves(&few, pair, DIT_DTYPE_F16);
    }
    state.excess = few.excess;
    state.largest = few.largest;
    state.difference = few.difference;
    state.mismatch = few.mismatch;
  } else if (pair->ndim == 0 && pair->dtype_a == DIT_DTYPE_F32 && pair->dtype_b == DIT_DTYPE_F64) {
    near_of_floats(&state, pair);
  } else {
    near_of_any(&state, pair, task.dims + pair->first_dim);
  }
  near_finish(&task, index, &state);
}

#endif
