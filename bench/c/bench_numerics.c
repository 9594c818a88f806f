/// The numeric passes against the machine's read bandwidth, measured in the same run.
///
/// Large tensors: GB/s of the bytes read, best and median of REPEATS samples, and the best as a share of a plain read
/// (sum of 64-bit words on the same threads), whose samples alternate with those of the pass. Comparison is run with
/// few pairs that differ and, for floats, with nearly all of them differing by a rounding. Small tensors: nanoseconds
/// per call. Compare figures of one run only.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/convert.h"
#include "dit/dit.h"

#define REPEATS 9
#define LARGE_BYTES (INT64_C(256) << 20)

static char *buffers[2];
static volatile uint64_t sink;

struct subject {
  struct dit_tensor_view a, b;
  int64_t sizes[2], strides[2];
};

enum pass { PASS_READ, PASS_STATS, PASS_NONFINITE, PASS_HASH, PASS_COMPARE, PASS_DETAIL, PASS_COUNT };
static const char *const pass_names[PASS_COUNT] = {"plain read", "stats", "nonfinite", "hash", "compare", "detail"};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

typedef uint64_t words __attribute__((vector_size(64)));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static void
read_range(void *context, int64_t begin, int64_t end) {
  const char *data = context;
  words sum[4] = {{0}, {0}, {0}, {0}};
  for (int64_t i = begin; i + 256 <= end; i += 256) {
    words line[4];
    memcpy(line, data + i, sizeof(line));
    for (int k = 0; k < 4; k++) {
      sum[k] += line[k];
    }
  }
  sum[0] += sum[1] + sum[2] + sum[3];
  sink = sum[0][0] + sum[0][3] + sum[0][7];
}

static void run_pass(enum pass pass, struct subject *subject) {
  struct dit_error err = {0};
  enum dit_status status = DIT_OK;
  const struct dit_compare_options options = {1e-2, 1e-3, false};
  struct dit_tensor_stats stats;
  struct dit_compare_result result;
  struct dit_compare_detail detail;
  struct dit_hash hash;
  bool nan, inf;
  if (pass == PASS_READ) {
    int64_t bytes = subject->a.numel * (int64_t)dit_dtype_get_size(subject->a.dtype);
    dit_parallel_for(0, bytes, 1 << 20, read_range, subject->a.data);
  } else if (pass == PASS_STATS) {
    status = dit_tensor_get_stats(&subject->a, &stats, &err);
  } else if (pass == PASS_NONFINITE) {
    status = dit_tensor_get_nonfinite(&subject->a, &nan, &inf, &err);
  } else if (pass == PASS_HASH) {
    status = dit_tensor_get_hash(&subject->a, &hash, &err);
  } else if (pass == PASS_COMPARE) {
    status = dit_tensor_compare(&subject->a, &subject->b, &options, &result, &err);
  } else {
    status = dit_tensor_compare_detail(&subject->a, &subject->b, &options, &detail, &err);
  }
  if (status != DIT_OK) {
    fprintf(stderr, "%s: %s\n", pass_names[pass], err.message);
    exit(1);
  }
}

/// Nanoseconds per call: best and median.
static void measure(enum pass pass, struct subject *subject, double *best, double *median) {
  double samples[REPEATS];
  int64_t loops = 1;
  for (;;) {  // as many calls as take a millisecond
    double start = now();
    for (int64_t i = 0; i < loops; i++) {
      run_pass(pass, subject);
    }
    if (now() - start > 1e6) {
      break;
    }
    loops *= 2;
  }
  for (int sample = 0; sample < REPEATS; sample++) {
    double start = now();
    for (int64_t i = 0; i < loops; i++) {
      run_pass(pass, subject);
    }
    samples[sample] = (now() - start) / (double)loops;
  }
  qsort(samples, REPEATS, sizeof(double), order);
  *best = samples[0];
  *median = samples[REPEATS / 2];
}

static void store(int dtype, char *target, int64_t i, float value, uint64_t noise) {
  switch (dtype) {
    case DIT_DTYPE_BF16:
      ((uint16_t *)(void *)target)[i] = dit_float_to_bf16(value);
      break;
    case DIT_DTYPE_F16:
      ((uint16_t *)(void *)target)[i] = dit_float_to_f16(value);
      break;
    case DIT_DTYPE_F64:
      ((double *)(void *)target)[i] = value;
      break;
    case DIT_DTYPE_F32:
      ((float *)(void *)target)[i] = value;
      break;
    case DIT_DTYPE_I64:
      ((int64_t *)(void *)target)[i] = (int64_t)(noise & 65535);
      break;
    case DIT_DTYPE_I32:
      ((int32_t *)(void *)target)[i] = (int32_t)(noise & 65535);
      break;
    case DIT_DTYPE_F8_E4M3FN:
      target[i] = (char)dit_float_to_f8_e4m3fn(value);
      break;
    default:
      target[i] = (char)(noise & 1);
  }
}

/// How far the sides are apart, relative to the value.
static float get_step(int dtype, bool dense) {
  if (!dense) {
    return 1e-6F;
  }
  return dtype == DIT_DTYPE_BF16 ? 0x1p-10F : dtype == DIT_DTYPE_F16 ? 0x1p-13F : 0x1p-23F;
}

static void fill(int dtype, int64_t count, bool dense) {
  float step = get_step(dtype, dense);
  for (int side = 0; side < 2; side++) {
    for (int64_t i = 0; i < count; i++) {
      uint64_t noise = dit_random_mix(7, (uint64_t)i % 65521);
      float value = (float)(noise >> 40) / (float)(1 << 24) - 0.5F;
      value *= side ? 1.0F : 1.0F + step * (float)(noise & 7);
      store(dtype, buffers[side], i, value, noise);
    }
  }
}

static void subject_init(struct subject *subject, int dtype, int64_t rows, int64_t columns) {
  subject->sizes[0] = rows;
  subject->sizes[1] = columns;
  subject->strides[0] = columns;
  subject->strides[1] = 1;
  subject->a = (struct dit_tensor_view){.data = buffers[0],
                                        .sizes = subject->sizes,
                                        .strides = subject->strides,
                                        .numel = rows * columns,
                                        .ndim = 2,
                                        .dtype = (int16_t)dtype};
  subject->b = subject->a;
  subject->b.data = buffers[1];
}

static double time_once(enum pass pass, struct subject *subject) {
  double start = now();
  run_pass(pass, subject);
  return now() - start;
}

static void run_against_read(enum pass pass, struct subject *subject, const char *what) {
  double samples[REPEATS], read[REPEATS],
      bytes = (double)(subject->a.numel * (int64_t)dit_dtype_get_size(subject->a.dtype));
  for (int sample = 0; sample < REPEATS; sample++) {
    read[sample] = time_once(PASS_READ, subject);
    samples[sample] = time_once(pass, subject);
  }
  qsort(samples, REPEATS, sizeof(double), order);
  qsort(read, REPEATS, sizeof(double), order);
  double sides = pass == PASS_COMPARE ? 2 : 1, best = sides * bytes / samples[0];
  printf("%-13s %-14s threads %d  best %6.2f GB/s  median %6.2f GB/s  plain read %6.2f GB/s  share %5.1f %%\n",
         dit_dtype_get_name(subject->a.dtype), what, dit_parallel_get_threads(), best,
         sides * bytes / samples[REPEATS / 2], bytes / read[0], 100 * best / (bytes / read[0]));
  fflush(stdout);
}

static void run_large(int dtype, bool is_float) {
  int64_t count = LARGE_BYTES / (int64_t)dit_dtype_get_size(dtype);
  struct subject subject;
  fill(dtype, count, false);
  subject_init(&subject, dtype, count / 1024, 1024);
  for (enum pass pass = PASS_STATS; pass < PASS_DETAIL; pass++) {
    if (pass != PASS_NONFINITE || is_float) {
      run_against_read(pass, &subject, pass_names[pass]);
    }
  }
  if (is_float) {
    fill(dtype, count, true);
    run_against_read(PASS_COMPARE, &subject, "compare, dense");
  }
}

static void run_small(int dtype, int64_t count) {
  struct subject subject;
  fill(dtype, count, false);
  subject_init(&subject, dtype, 1, count);
  for (enum pass pass = PASS_STATS; pass < PASS_COUNT; pass++) {
    double best, median;
    measure(pass, &subject, &best, &median);
    printf("%-9s %-10s %5lld elements  best %8.1f ns  median %8.1f ns\n", dit_dtype_get_name(dtype), pass_names[pass],
           (long long)count, best, median);
  }
  fflush(stdout);
}

int main(void) {
  static const int floats[] = {DIT_DTYPE_F32, DIT_DTYPE_BF16, DIT_DTYPE_F16, DIT_DTYPE_F64, DIT_DTYPE_F8_E4M3FN};
  static const int others[] = {DIT_DTYPE_I64, DIT_DTYPE_I32, DIT_DTYPE_BOOL};
  for (int side = 0; side < 2; side++) {
    buffers[side] = aligned_alloc(4096, LARGE_BYTES);
    if (!buffers[side]) {
      fprintf(stderr, "no memory for two buffers of %lld bytes\n", (long long)LARGE_BYTES);
      return 1;
    }
  }
  for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++) {
    run_large(floats[i], true);
  }
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
    run_large(others[i], false);
  }
  for (size_t i = 0; i < 4; i++) {
    run_small(i < 3 ? floats[i] : others[0], 16);
    run_small(i < 3 ? floats[i] : others[0], 999);
  }
  free(buffers[0]);
  free(buffers[1]);
  return 0;
}
