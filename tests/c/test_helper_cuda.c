/// The helper table "cuda" over a made-up driver (vendors/fake_cuda.c): what it asks of the driver, that contexts and
/// memory are given back, that errors leave nothing behind, and that batches give the numbers of src/numerics.
#include <dlfcn.h>
#include <pthread.h>

#include "dit/alloc.h"
#include "dit/helper.h"
#include "numerics_check.h"
#include "vendors/fake_cuda.h"

static const struct dit_helper_vtable *helper;
static struct fake_cuda *fake;
static int (*context_get)(void **context);

static void *find_symbol(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  CHECK(symbol);
  return symbol;
}

/// Every call leaves the thread's contexts as they were: none.
static void check_no_context(void) {
  void *context = NULL;
  CHECK(context_get(&context) == 0 && context == NULL);
}

static void test_lookup(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_helper_get("cuda", &helper, &err));
  CHECK(strcmp(helper->name, "cuda") == 0 && helper->version == DIT_HELPER_VERSION);
}

static void test_events(void) {
  struct dit_error err = {0};
  void *start, *end, *none = NULL;
  bool passed = false;
  double milliseconds = -1;
  CHECK(helper->event_create(3, &none, &err) == DIT_ERR_INVALID && !none);
  CHECK_CONTAINS(err.message, "device 3; valid: 0 to 2");
  CHECK_OK(helper->event_create(1, &start, &err));
  CHECK_OK(helper->event_create(1, &end, &err));
  CHECK_OK(helper->event_query(start, &passed, &err));
  CHECK(passed && helper->event_get_elapsed(start, end, &milliseconds, &err) == DIT_ERR_INVALID);
  CHECK_OK(helper->event_wait(start, &err));
  CHECK_OK(helper->event_record(start, NULL, &err));
  CHECK_OK(helper->event_record(end, (void *)64, &err));
  fake->is_busy = true;
  CHECK_OK(helper->event_query(end, &passed, &err));
  CHECK(!passed && helper->event_get_elapsed(start, end, &milliseconds, &err) == DIT_ERR_UNSUPPORTED);
  CHECK(milliseconds == -1);
  CHECK_OK(helper->event_wait(end, &err));
  CHECK_OK(helper->event_get_elapsed(start, end, &milliseconds, &err));
  CHECK(milliseconds >= 0);
  fake->is_capturing = true;
  CHECK(helper->event_record(end, (void *)64, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "captured");
  fake->is_capturing = false;
  fake->failing = "cuEventCreate";
  fake->error = 999;
  CHECK(helper->event_create(0, &none, &err) == DIT_ERR_DEVICE && !none);
  CHECK_CONTAINS(err.message, "cuEventCreate: CUDA_ERROR_FAKE (999): made up");
  fake->failing = NULL;
  helper->event_destroy(start);
  helper->event_destroy(end);
  helper->event_destroy(NULL);
  CHECK(fake->events == 0);
  check_no_context();
}

static void test_slots_and_copies(void) {
  struct dit_error err = {0};
  void *slots, *none = NULL, *memory, *again;
  char bytes[8] = "abcdefg", zeros[8] = "xxxxxxx";
  int blocks = fake->blocks;
  CHECK_OK(helper->slots_create(0, 2, 4, &slots, &err));
  CHECK_OK(helper->slots_read(slots, 1, 3, NULL, zeros, &err));
  CHECK(memcmp(zeros, "\0\0\0\0\0\0x", 8) == 0);
  CHECK(helper->slots_read(slots, 3, 2, NULL, zeros, &err) == DIT_ERR_INVALID);
  fake->failing = "cuMemAlloc";
  fake->error = 2;
  CHECK(helper->slots_create(0, 2, 4, &none, &err) == DIT_ERR_NOMEM && !none);
  fake->failing = "cuMemsetD8Async";
  CHECK(helper->slots_create(0, 2, 4, &none, &err) == DIT_ERR_NOMEM && !none);
  fake->failing = "cuStreamSynchronize";
  fake->error = 700;
  CHECK(helper->slots_create(0, 2, 4, &none, &err) == DIT_ERR_DEVICE && !none);
  fake->failing = NULL;
  helper->slots_destroy(slots);
  helper->slots_destroy(NULL);
  CHECK(fake->blocks == blocks && fake->capture_mode == 0);
  CHECK_OK(helper->staging_allocate(100, &memory, &err));
  CHECK((uintptr_t)memory % 64 == 0 && fake->pinned == 1);
  fake->pointer_device = 1;
  CHECK_OK(helper->copy_to_host(memory, bytes, 8, NULL, &err));
  CHECK(memcmp(memory, bytes, 8) == 0);
  CHECK_OK(helper->copy_to_host(NULL, NULL, 0, NULL, &err));
  fake->pointer_device = 0;
  helper->staging_free(memory);
  CHECK_OK(helper->staging_allocate(200, &again, &err));
  CHECK(again == memory && fake->pinned == 1);
  fake->failing = "cuMemHostAlloc";
  fake->error = 2;
  CHECK(helper->staging_allocate(1 << 20, &none, &err) == DIT_ERR_NOMEM && !none);
  fake->failing = NULL;
  helper->staging_free(again);
  check_no_context();
}

static struct tensor_case cases[DIT_HELPER_BATCH];

static void check_batch(const struct dit_tensor_view *views, int count, int launches) {
  struct dit_error err = {0};
  struct dit_tensor_stats stats[DIT_HELPER_BATCH], want;
  struct dit_hash hashes[DIT_HELPER_BATCH], hash;
  uint8_t flags[DIT_HELPER_BATCH];
  void *slots[3], *stream = (void *)128;
  CHECK_OK(helper->slots_create(1, sizeof want, 20, &slots[0], &err));
  CHECK_OK(helper->slots_create(1, 1, 20, &slots[1], &err));
  CHECK_OK(helper->slots_create(1, sizeof hash, 20, &slots[2], &err));
  int waits = fake->waits, before = fake->launches;
  CHECK_OK(helper->stats(views, count, stream, slots[0], 3, &err));
  CHECK_OK(helper->nonfinite(views, count, stream, slots[1], 3, &err));
  CHECK_OK(helper->hash(views, count, stream, slots[2], 3, &err));
  CHECK(fake->waits == waits);
  CHECK(launches == 0 || fake->launches - before <= launches);
  CHECK_OK(helper->slots_read(slots[0], 3, (size_t)count, stream, stats, &err));
  CHECK_OK(helper->slots_read(slots[1], 3, (size_t)count, stream, flags, &err));
  CHECK_OK(helper->slots_read(slots[2], 3, (size_t)count, stream, hashes, &err));
  for (int i = 0; i < count; i++) {
    bool nan, inf;
    CHECK_OK(dit_tensor_get_stats(&views[i], &want, &err));
    CHECK_OK(dit_tensor_get_nonfinite(&views[i], &nan, &inf, &err));
    CHECK_OK(dit_tensor_get_hash(&views[i], &hash, &err));
    CHECK(stats[i].numel == want.numel && stats[i].nan == want.nan && stats[i].zero == want.zero);
    CHECK(is_near(stats[i].max, want.max, fabs(want.max), 3e-16) &&
          is_near(stats[i].min, want.min, fabs(want.min), 3e-16));
    CHECK(flags[i] == (nan ? DIT_NONFINITE_NAN : 0) + (inf ? DIT_NONFINITE_INF : 0));
    CHECK(hash.low == hashes[i].low && hash.high == hashes[i].high);
  }
  for (int i = 0; i < 3; i++) {
    helper->slots_destroy(slots[i]);
  }
  check_no_context();
}

/// Flat and strided tensors of all types in one batch: one launch for each kind, and one for all hashes.
static void test_batches(void) {
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  for (uint64_t round = 0; round < 4; round++) {
    for (int i = 0; i < DIT_HELPER_BATCH; i++) {
      case_init(&cases[i], 900 + 100 * round + (uint64_t)i, 400);
      views[i] = cases[i].view;
      views[i].device_index = 1;
    }
    check_batch(views, DIT_HELPER_BATCH, 5);
  }
  check_batch(views, 0, 0);
}

/// Sixteen tensors of 13 dimensions that cannot be fused do not fit into one launch.
static void test_many_dimensions(void) {
  static float values[1 << 17];
  int64_t sizes[20], strides[20], step = 3;
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  for (int i = 0; i < 1 << 17; i++) {
    values[i] = (float)i;
  }
  for (int dim = 0; dim < 20; dim++) {
    sizes[dim] = dim < 13 ? 2 : 1;
    strides[dim] = dim < 13 ? step : 7;
    step = dim < 13 ? 2 * step + 1 : step;
  }
  for (int i = 0; i < DIT_HELPER_BATCH; i++) {
    views[i] = (struct dit_tensor_view){
        .data = values + i, .sizes = sizes, .strides = strides, .numel = 8192, .ndim = 20, .dtype = DIT_DTYPE_F32};
    views[i].device_index = 1;
  }
  int before = fake->launches;
  check_batch(views, DIT_HELPER_BATCH, 0);
  CHECK(fake->launches - before > 3);
}

// Flags that cost little, statistics on demand

static void test_watch_and_stats_if(void) {
  static float values[3][5000];
  static const int64_t one = 1, rows[2] = {50, 100}, columns[2] = {1, 50};
  struct dit_error err = {0};
  struct dit_tensor_stats got[3], want;
  int64_t size = 5000;
  void *slots;
  CHECK_OK(helper->slots_create(1, sizeof want, 8, &slots, &err));
  struct dit_tensor_view views[3];
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 5000; k++) {
      values[i][k] = (float)k - 100;
    }
    views[i] = (struct dit_tensor_view){
        .data = values[i], .sizes = &size, .strides = &one, .numel = size, .ndim = 1, .dtype = DIT_DTYPE_F32};
    views[i].device_index = 1;
  }
  views[2].ndim = 2;  // a transposed matrix
  views[2].sizes = rows;
  views[2].strides = columns;
  CHECK_OK(helper->watch(views, 3, 0, 7, NULL, slots, 2, &err));
  CHECK_OK(helper->stats_if(views, 3, 7, NULL, slots, 5, &err));
  CHECK_OK(helper->slots_read(slots, 5, 3, NULL, got, &err));
  CHECK(got[0].numel == 0 && got[1].numel == 0 && got[2].numel == 0);  // all is finite: nothing was done
  values[1][4999] = NAN;
  values[2][17] = -INFINITY;
  CHECK_OK(helper->watch(views, 3, 0, 0, NULL, slots, 2, &err));  // no mark
  CHECK_OK(helper->stats_if(views, 3, 7, NULL, slots, 5, &err));
  CHECK_OK(helper->slots_read(slots, 5, 3, NULL, got, &err));
  CHECK(got[1].numel == 0);
  CHECK_OK(helper->slots_read(slots, 2, 3, NULL, got, &err));
  for (int i = 0; i < 3; i++) {
    CHECK(got[i].numel == 5000 && got[i].nan == (i == 1) && got[i].pos_inf == (i == 2) && got[i].neg_inf == 0);
    CHECK(got[i].finite == 0 && got[i].mean == 0);
  }
  CHECK_OK(helper->watch(views, 2, 2, 9, NULL, slots, 2, &err));  // the NaN is not among those that mark
  CHECK_OK(helper->stats_if(views, 3, 9, NULL, slots, 5, &err));
  CHECK_OK(helper->slots_read(slots, 5, 3, NULL, got, &err));
  CHECK(got[1].numel == 0);
  CHECK_OK(helper->watch(views, 3, 2, 8, NULL, slots, 2, &err));
  CHECK_OK(helper->stats_if(views, 3, 8 + DIT_HELPER_MARKS, NULL, slots, 5, &err));  // another mark of that place
  CHECK_OK(helper->slots_read(slots, 5, 3, NULL, got, &err));
  CHECK(got[1].numel == 0);
  CHECK_OK(helper->stats_if(views, 3, 8, NULL, slots, 5, &err));
  CHECK_OK(helper->slots_read(slots, 5, 3, NULL, got, &err));
  for (int i = 0; i < 3; i++) {
    CHECK_OK(dit_tensor_get_stats(&views[i], &want, &err));
    CHECK(got[i].numel == 5000 && got[i].nan == want.nan && got[i].neg_inf == want.neg_inf);
    CHECK(got[i].finite == want.finite && got[i].zero == want.zero && got[i].finite_mean == want.finite_mean);
  }
  helper->slots_destroy(slots);
  check_no_context();
}

/// Every pattern of the 16-bit types and its neighbours, alone in a vector of finite numbers, at every place.
static void test_flags_of_every_short_code(void) {
  static const int dtypes[] = {DIT_DTYPE_F16, DIT_DTYPE_BF16};
  static _Alignas(16) uint16_t values[16];
  static const int64_t one = 1, size = 16;
  struct dit_error err = {0};
  void *slots;
  CHECK_OK(helper->slots_create(1, 1, 1, &slots, &err));
  for (int type = 0; type < 2; type++) {
    struct dit_tensor_view view = {
        .data = values, .sizes = &size, .strides = &one, .numel = 16, .ndim = 1, .dtype = (int16_t)dtypes[type]};
    view.device_index = 1;
    for (unsigned code = 0; code < 65536; code += code % 128 < 3 || code % 128 > 124 ? 1 : 61) {
      uint8_t flags = 9;
      bool nan, inf;
      memset(values, 0, sizeof values);
      values[code % 13] = (uint16_t)code;
      CHECK_OK(dit_tensor_get_nonfinite(&view, &nan, &inf, &err));
      CHECK_OK(helper->nonfinite(&view, 1, NULL, slots, 0, &err));
      CHECK_OK(helper->slots_read(slots, 0, 1, NULL, &flags, &err));
      CHECK(flags == (nan ? DIT_NONFINITE_NAN : 0) + (inf ? DIT_NONFINITE_INF : 0));
    }
  }
  helper->slots_destroy(slots);
}

// Nearness

/// Against src/numerics: with an allowance of the excess all are close, with a little less they are not.
static void check_near(const struct dit_near_pair *pair, const struct dit_near_result *got, double blur) {
  struct dit_error err = {0};
  struct dit_compare_options options = {pair->relative, 0, true};
  struct dit_compare_result want;
  CHECK_OK(dit_tensor_compare(&pair->a, &pair->b, &options, &want, &err));
  if (want.finite_pairs > 0 && !isfinite(want.max_abs_diff)) {
    CHECK(got->mismatch > 0);
    return;
  }
  CHECK(got->mismatch == want.nonfinite_mismatch && got->excess >= 0);
  double largest = want.finite_pairs > 0 ? fmax(fabs(want.min_b), fabs(want.max_b)) : 0;
  double difference = want.finite_pairs > 0 ? want.max_abs_diff : 0;
  CHECK(is_near(got->largest, largest, largest, blur) && is_near(got->difference, difference, difference, blur));
  if (want.nonfinite_mismatch > 0) {
    return;
  }
  double slack = blur * (difference + pair->relative * largest);
  options.atol = got->excess + slack;
  CHECK_OK(dit_tensor_compare(&pair->a, &pair->b, &options, &want, &err));
  CHECK(want.allclose);
  options.atol = got->excess - slack;
  if (options.atol > 0) {
    CHECK_OK(dit_tensor_compare(&pair->a, &pair->b, &options, &want, &err));
    CHECK(!want.allclose);
  }
}

static void run_near(const struct dit_near_pair *pairs, int count, double blur) {
  struct dit_error err = {0};
  struct dit_near_result got[DIT_HELPER_BATCH];
  void *slots;
  CHECK_OK(helper->slots_create(1, sizeof got[0], DIT_HELPER_BATCH + 1, &slots, &err));
  for (int again = 0; again < 2; again++) {  // nothing is left over from the first time
    CHECK_OK(helper->near(pairs, count, NULL, slots, 1, &err));
    CHECK_OK(helper->slots_read(slots, 1, (size_t)count, NULL, got, &err));
    for (int i = 0; i < count; i++) {
      check_near(&pairs[i], &got[i], blur);
    }
  }
  helper->slots_destroy(slots);
  check_no_context();
}

/// All dtypes and strides, against themselves and against values nearby.
static void test_near_of_any(void) {
  static struct tensor_case others[DIT_HELPER_BATCH];
  struct dit_near_pair pairs[DIT_HELPER_BATCH];
  for (uint64_t round = 0; round < 6; round++) {
    for (int i = 0; i < DIT_HELPER_BATCH; i++) {
      case_init(&cases[i], 5000 + 100 * round + (uint64_t)i, 400);
      others[i] = cases[i];
      others[i].view.data = others[i].bytes;
      others[i].view.sizes = others[i].sizes;
      others[i].view.strides = others[i].strides;
      if (i % 3 && others[i].view.numel > 0) {
        case_fill(&others[i]);
      }
      pairs[i] = (struct dit_near_pair){cases[i].view, others[i].view, i % 2 ? 1e-3 : 0};
      pairs[i].a.device_index = pairs[i].b.device_index = 1;
    }
    run_near(pairs, DIT_HELPER_BATCH, 1e-12);
  }
}

/// The ways of their own: 16 bits against float32, float32 against float64, aligned and not, with odd ends.
static void test_near_of_widened(void) {
  enum { COUNT = 4099 };
  static _Alignas(16) char first[COUNT * 4 + 16], second[COUNT * 8 + 16];
  static const int from[] = {DIT_DTYPE_BF16, DIT_DTYPE_F16, DIT_DTYPE_F32},
                   to[] = {DIT_DTYPE_F32, DIT_DTYPE_F32, DIT_DTYPE_F64};
  static const int64_t one = 1;
  for (int type = 0; type < 3; type++) {
    int64_t narrow = (int64_t)dit_dtype_get_size(from[type]), wide = (int64_t)dit_dtype_get_size(to[type]);
    for (int round = 0; round < 8; round++) {
      int64_t size = round % 2 ? COUNT : 513, offset = round / 2 % 2;
      char *a = first + offset * narrow, *b = second + offset * wide;
      for (int64_t i = 0; i < size; i++) {
        double value = sin((double)i * 1.7) * (i % 17 ? 1 : 300);
        case_store(from[type], a + i * narrow, value, 0);
        double rounded = (double)decode_real(from[type], a + i * narrow);
        case_store(to[type], b + i * wide, rounded * (1 + (i % 5) * 1e-4) + (i == 77 ? 0.5 : 0), 0);
      }
      if (round >= 4) {
        case_store(from[type], a + 3 * narrow, (double)NAN, 0);
        case_store(to[type], b + 3 * wide, (double)NAN, 0);
        case_store(from[type], a + 40 * narrow, (double)INFINITY, 0);
        case_store(to[type], b + 40 * wide, round == 7 ? -(double)INFINITY : (double)INFINITY, 0);
      }
      struct dit_near_pair pair = {.relative = round % 3 ? 2e-3 : 0};
      pair.a = (struct dit_tensor_view){
          .data = a, .sizes = &size, .strides = &one, .numel = size, .ndim = 1, .dtype = (int16_t)from[type]};
      pair.b = pair.a;
      pair.b.data = b;
      pair.b.dtype = (int16_t)to[type];
      pair.a.device_index = pair.b.device_index = 1;
      run_near(&pair, 1, 1e-6);
    }
  }
}

// Checksums

static struct dit_hash checksum_get(const struct dit_tensor_view *view) {
  struct dit_error err = {0};
  struct dit_hash sum;
  void *slots;
  CHECK_OK(helper->slots_create(1, sizeof sum, 1, &slots, &err));
  CHECK_OK(helper->checksum(view, 1, NULL, slots, 0, &err));
  CHECK_OK(helper->slots_read(slots, 0, 1, NULL, &sum, &err));
  helper->slots_destroy(slots);
  return sum;
}

/// Equal as long as nothing changes; a bit anywhere, or two elements that change places, are seen.
static void test_checksums(void) {
  for (uint64_t seed = 7000; seed < 7060; seed++) {
    case_init(&cases[0], seed, 3000);
    struct dit_tensor_view view = cases[0].view;
    view.device_index = 1;
    struct dit_hash before = checksum_get(&view), again = checksum_get(&view);
    CHECK(before.low == again.low && before.high == again.high);
    if (view.numel == 0) {
      continue;
    }
    int64_t low, high, width = (int64_t)dit_dtype_get_size(view.dtype), offset = 0, rest = (int64_t)(seed * 977);
    for (int dim = 0; dim < view.ndim; dim++) {
      offset += rest % view.sizes[dim] * view.strides[dim];
      rest /= view.sizes[dim];
    }
    dit_tensor_get_span(&view, &low, &high);
    char *at = (char *)view.data + offset * width + (int64_t)(seed % (uint64_t)width);
    *at = (char)(*at ^ 1 << seed % 8);
    again = checksum_get(&view);
    CHECK(before.low != again.low || before.high != again.high);
  }
  static _Alignas(16) float values[4096];
  static const int64_t one = 1, size = 4096, zero[2] = {0, 1}, sizes[2] = {1000, 4096};
  for (int i = 0; i < 4096; i++) {
    values[i] = (float)i;
  }
  struct dit_tensor_view view = {
      .data = values, .sizes = &size, .strides = &one, .numel = 4096, .ndim = 1, .dtype = DIT_DTYPE_F32};
  view.device_index = 1;
  struct dit_tensor_view expanded = view;
  expanded.ndim = 2;
  expanded.sizes = sizes;
  expanded.strides = zero;
  expanded.numel = 1000 * 4096;
  struct dit_hash before = checksum_get(&view), wide = checksum_get(&expanded), after;
  for (int i = 4; i < 4096; i += 511) {
    float kept = values[i];
    values[i] = values[i - 4];
    values[i - 4] = kept;
    after = checksum_get(&view);
    CHECK(before.low != after.low || before.high != after.high);
    after = checksum_get(&expanded);
    CHECK(wide.low != after.low || wide.high != after.high);
    values[i - 4] = values[i];
    values[i] = kept;
  }
  after = checksum_get(&view);
  CHECK(before.low == after.low && before.high == after.high);
}

static void test_compare(void) {
  struct dit_error err = {0};
  struct dit_compare_result got, want;
  struct dit_compare_options options = {1e-5, 1e-8, true};
  void *slots;
  case_init(&cases[0], 4711, 300);
  struct dit_tensor_view a = cases[0].view;
  a.device_index = 1;
  CHECK_OK(helper->slots_create(1, sizeof got, 2, &slots, &err));
  CHECK_OK(helper->compare(&a, &a, &options, NULL, slots, 1, &err));
  CHECK_OK(helper->slots_read(slots, 1, 1, NULL, &got, &err));
  CHECK_OK(dit_tensor_compare(&a, &a, &options, &want, &err));
  CHECK(got.allclose == want.allclose && got.numel == want.numel && got.finite_pairs == want.finite_pairs);
  options.rtol = -1;
  CHECK(helper->compare(&a, &a, &options, NULL, slots, 1, &err) == DIT_ERR_INVALID);
  helper->slots_destroy(slots);
  check_no_context();
}

static void test_bad_calls(void) {
  struct dit_error err = {0};
  float value = 1;
  void *bytes;
  struct dit_tensor_view view = {.data = &value, .numel = 1, .dtype = DIT_DTYPE_F32, .device_index = 0};
  CHECK_OK(helper->slots_create(1, 1, 2, &bytes, &err));
  CHECK(helper->nonfinite(&view, 1, NULL, bytes, 0, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "the tensor is on device 0, the slots are on device 1");
  view.device_index = 1;
  CHECK(helper->nonfinite(&view, 1, NULL, bytes, 2, &err) == DIT_ERR_INVALID);
  CHECK(helper->nonfinite(&view, 17, NULL, bytes, 0, &err) == DIT_ERR_INVALID);
  CHECK(helper->stats(&view, 1, NULL, bytes, 0, &err) == DIT_ERR_INVALID);
  fake->is_capturing = true;
  CHECK(helper->nonfinite(&view, 1, NULL, bytes, 0, &err) == DIT_ERR_UNSUPPORTED);
  fake->is_capturing = false;
  fake->failing = "cuLaunchKernel";
  fake->error = 719;
  CHECK(helper->nonfinite(&view, 1, NULL, bytes, 0, &err) == DIT_ERR_DEVICE);
  fake->failing = NULL;
  view.dtype = DIT_DTYPE_QI8;
  CHECK(helper->nonfinite(&view, 1, NULL, bytes, 0, &err) == DIT_ERR_UNSUPPORTED);
  helper->slots_destroy(bytes);
  check_no_context();
}

static enum dit_status ask(int device, struct dit_error *err) {
  float value = INFINITY;
  uint8_t flags = 0;
  void *bytes;
  struct dit_tensor_view view = {.data = &value, .numel = 1, .dtype = DIT_DTYPE_F32, .device_index = (int8_t)device};
  if (helper->slots_create(device, 1, 1, &bytes, err) != DIT_OK) {
    return DIT_ERR_INTERNAL;
  }
  enum dit_status status = helper->nonfinite(&view, 1, NULL, bytes, 0, err);
  if (status == DIT_OK) {
    status = helper->slots_read(bytes, 0, 1, NULL, &flags, err);
    CHECK(flags == DIT_NONFINITE_INF);
  }
  helper->slots_destroy(bytes);
  return status;
}

/// Machine code for another architecture is refused: the PTX stands in. When the driver does not take that either, the
/// device has no numbers, says why, and is not asked again.
static void test_kernels_refused(void) {
  struct dit_error err = {0};
  fake->failing = "cuModuleLoadData";
  fake->error = 209;
  CHECK_OK(ask(2, &err));
  CHECK(fake->text_loads == 1);
  fake->prefix = true;
  CHECK(ask(0, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "neither the kernels' machine code nor their PTX");
  fake->failing = NULL;
  fake->prefix = false;
  struct dit_error again = {0};
  CHECK(ask(0, &again) == DIT_ERR_UNSUPPORTED && strcmp(err.message, again.message) == 0);
  CHECK(fake->capture_mode == 0);
  check_no_context();
}

static void *run_thread(void *context) {
  struct dit_error err = {0};
  float values[3] = {1, NAN, 2};
  int64_t sizes[1] = {3}, strides[1] = {1};
  uint8_t flags = 0;
  void *bytes;
  struct dit_tensor_view view = {.data = values, .sizes = sizes, .strides = strides, .numel = 3, .ndim = 1};
  view.dtype = DIT_DTYPE_F32;
  view.device_index = 1;
  CHECK_OK(helper->slots_create(1, 1, 1, &bytes, &err));
  for (int i = 0; i < 20; i++) {
    CHECK_OK(helper->nonfinite(&view, 1, context, bytes, 0, &err));
    CHECK_OK(helper->slots_read(bytes, 0, 1, context, &flags, &err));
    CHECK(flags == DIT_NONFINITE_NAN);
  }
  helper->slots_destroy(bytes);
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)(i * 64)) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
}

int main(void) {
  void *library = dlopen(DIT_TEST_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  fake = find_symbol(library, "fake_cuda");
  void *symbol = find_symbol(library, "cuCtxGetCurrent");
  memcpy(&context_get, &symbol, sizeof context_get);
  RUN(test_lookup);
  RUN(test_events);
  RUN(test_slots_and_copies);
  if (!helper->stats) {
    printf("skip the numbers: built without nvcc\n");
    return 0;
  }
  RUN(test_threads);
  RUN(test_batches);
  RUN(test_many_dimensions);
  RUN(test_compare);
  RUN(test_watch_and_stats_if);
  RUN(test_flags_of_every_short_code);
  RUN(test_near_of_any);
  RUN(test_near_of_widened);
  RUN(test_checksums);
  RUN(test_bad_calls);
  RUN(test_kernels_refused);
  return 0;
}
