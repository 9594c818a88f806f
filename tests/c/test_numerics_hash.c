/// The hash: strides do not matter, everything else does; bits are spread and the value is pinned.
#include "numerics_check.h"

static struct tensor_case subject;
static _Alignas(64) char packed[CASE_BYTES];

static struct dit_hash get_hash(const struct dit_tensor_view *view) {
  struct dit_error err = {0};
  struct dit_hash hash;
  CHECK_OK(dit_tensor_get_hash(view, &hash, &err));
  return hash;
}

static bool is_same(struct dit_hash a, struct dit_hash b) {
  return a.low == b.low && a.high == b.high;
}

static const char *check_copy(uint64_t seed, int64_t limit) {
  case_init(&subject, seed, limit);
  int64_t width = (int64_t)dit_dtype_get_size(subject.view.dtype), strides[CASE_DIMS], numel = subject.view.numel;
  for (int64_t i = 0; i < numel; i++) {
    memcpy(packed + i * width, case_get(&subject.view, i), (size_t)width);
  }
  struct dit_tensor_view copy = subject.view;
  copy.data = packed;
  copy.strides = strides;
  dit_shape_set_contiguous(copy.ndim, copy.sizes, strides);
  struct dit_hash hash = get_hash(&subject.view);
  static const int threads[] = {1, 2, 5};
  for (int i = 0; i < 3; i++) {
    dit_parallel_set_threads(threads[i]);
    if (!is_same(hash, get_hash(&subject.view)) || !is_same(hash, get_hash(&copy))) {
      case_print(&subject);
      return "a copy, or other threads, have another hash";
    }
  }
  dit_parallel_set_threads(0);
  if (numel == 0) {
    return NULL;
  }
  int64_t byte = case_below(&subject, numel * width);
  packed[byte] = (char)(packed[byte] ^ 1 << case_below(&subject, 8));
  if (is_same(hash, get_hash(&copy))) {
    case_print(&subject);
    return "one changed bit has the same hash";
  }
  return NULL;
}

static void test_random_tensors(void) {
  run_cases(check_copy, 5000, 600);
}

static struct dit_tensor_view make_view(void *data, int dtype, int64_t *shape, int64_t count) {
  shape[0] = count;
  shape[1] = 1;
  return (struct dit_tensor_view){
      .data = data, .sizes = shape, .strides = shape + 1, .numel = count, .ndim = 1, .dtype = (int16_t)dtype};
}

static void test_dtype_shape_order_and_zero_signs_matter(void) {
  float values[6] = {1, 2, 3, 4, 5, 6}, swapped[6] = {1, 3, 2, 4, 5, 6}, zeros[2] = {0.0F, -0.0F};
  int64_t shape[2], square[2][4] = {{2, 3, 3, 1}, {3, 2, 2, 1}};
  struct dit_tensor_view view = make_view(values, DIT_DTYPE_F32, shape, 6);
  struct dit_hash hash = get_hash(&view);
  view.dtype = DIT_DTYPE_I32;
  CHECK(!is_same(hash, get_hash(&view)));
  view.dtype = DIT_DTYPE_F32;
  view.data = swapped;
  CHECK(!is_same(hash, get_hash(&view)));
  view.data = values;
  view.ndim = 2;
  view.sizes = square[0];
  view.strides = square[0] + 2;
  struct dit_hash wide = get_hash(&view);
  view.sizes = square[1];
  view.strides = square[1] + 2;
  CHECK(!is_same(hash, wide) && !is_same(wide, get_hash(&view)));
  view = make_view(zeros, DIT_DTYPE_F32, shape, 1);
  hash = get_hash(&view);
  view.data = zeros + 1;
  CHECK(!is_same(hash, get_hash(&view)));
  view = make_view(NULL, DIT_DTYPE_F32, shape, 0);
  hash = get_hash(&view);
  view.dtype = DIT_DTYPE_F64;
  CHECK(!is_same(hash, get_hash(&view)));
}

static int order(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/// Swapped blocks, counters, single bits: low-entropy inputs must neither collide in 64 bits nor flip few bits.
static void test_low_entropy_inputs_spread(void) {
  enum { COUNT = 60000, WORDS = 40 };
  static uint64_t low[COUNT], high[COUNT];
  uint64_t data[WORDS];
  int64_t shape[2], flips = 0;
  int least = 128;
  struct dit_tensor_view view = make_view(data, DIT_DTYPE_I64, shape, WORDS);
  memset(data, 0, sizeof(data));
  struct dit_hash zero = get_hash(&view);
  for (int i = 0; i < COUNT; i++) {
    memset(data, 0, sizeof(data));
    if (i < WORDS * 64) {
      data[i / 64] = UINT64_C(1) << i % 64;
    } else {
      data[i % WORDS] = (UINT64_C(3) << 50) + (uint64_t)i;
      data[i % 7] += UINT64_C(0x0101010101010101) * (uint64_t)(i & 1);
    }
    struct dit_hash hash = get_hash(&view);
    low[i] = hash.low;
    high[i] = hash.high;
    int flipped = __builtin_popcountll(hash.low ^ zero.low) + __builtin_popcountll(hash.high ^ zero.high);
    least = flipped < least ? flipped : least;
    flips += flipped;
  }
  qsort(low, COUNT, sizeof(low[0]), order);
  qsort(high, COUNT, sizeof(high[0]), order);
  for (int i = 1; i < COUNT; i++) {
    CHECK(low[i] != low[i - 1] && high[i] != high[i - 1]);
  }
  CHECK(least > 30 && fabs((double)flips / COUNT - 64) < 0.25);
}

static void test_swapped_blocks_differ(void) {
  static uint8_t bytes[1 << 17];
  int64_t shape[2];
  for (int i = 0; i < 1 << 17; i++) {
    bytes[i] = (uint8_t)(i >> 10);
  }
  struct dit_tensor_view view = make_view(bytes, DIT_DTYPE_U8, shape, 1 << 17);
  struct dit_hash hash = get_hash(&view);
  for (int far = 1; far < 128; far *= 2) {
    memset(bytes, far, 1024);
    memset(bytes + far * 1024, 0, 1024);
    CHECK(!is_same(hash, get_hash(&view)));
    memset(bytes, 0, 1024);
    memset(bytes + far * 1024, far, 1024);
  }
  CHECK(is_same(hash, get_hash(&view)));
}

/// Stored hashes must stay comparable between versions and machines: a change here is a change of the format.
static void test_value_is_pinned(void) {
  uint8_t bytes[70];
  int64_t shape[2];
  for (int i = 0; i < 70; i++) {
    bytes[i] = (uint8_t)(i * 7);
  }
  struct dit_tensor_view view = make_view(bytes, DIT_DTYPE_U8, shape, 70);
  struct dit_hash hash = get_hash(&view);
  if (hash.low != UINT64_C(0x9E50615B91B6E0DF) || hash.high != UINT64_C(0xAB6598E630C77E4E)) {
    fprintf(stderr, "hash is %016llx %016llx\n", (unsigned long long)hash.low, (unsigned long long)hash.high);
    exit(1);
  }
}

int main(void) {
  RUN(test_dtype_shape_order_and_zero_signs_matter);
  RUN(test_low_entropy_inputs_spread);
  RUN(test_swapped_blocks_differ);
  RUN(test_random_tensors);
  RUN(test_value_is_pinned);
  return 0;
}
