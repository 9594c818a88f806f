/// The helper table "host": events on inline and side streams, slots, numbers, staging; and where to find tables.
#include "device_test.h"
#include "dit/helper.h"
#include "numerics_check.h"

static const struct dit_helper_vtable *helper;

static void test_lookup(void) {
  struct dit_error err = {0};
  const struct dit_helper_vtable *found = NULL;
  CHECK_OK(dit_helper_get("host", &helper, &err));
  CHECK(helper->version == DIT_HELPER_VERSION && helper->struct_size == sizeof *helper);
  CHECK(strcmp(helper->name, "host") == 0);
  CHECK(dit_helper_get("tpu", &found, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "'tpu'");
  CHECK_CONTAINS(err.message, "host, cuda");
  CHECK(dit_helper_get(NULL, &found, &err) == DIT_ERR_INVALID && found == NULL);
  // With or without the driver: a table, or a reason; the same one each time.
  struct dit_error again = {0};
  enum dit_status status = dit_helper_get("cuda", &found, &err);
  CHECK(status == DIT_OK || (status == DIT_ERR_UNSUPPORTED && strlen(err.message) > 10 && found == NULL));
  CHECK(dit_helper_get("cuda", &found, &again) == status);
  CHECK(status == DIT_OK || strcmp(err.message, again.message) == 0);
}

static void test_events_inline(void) {
  struct dit_error err = {0};
  void *start, *end;
  bool passed = false;
  double milliseconds = -1;
  CHECK_OK(helper->event_create(0, &start, &err));
  CHECK_OK(helper->event_create(0, &end, &err));
  CHECK_OK(helper->event_query(start, &passed, &err));
  CHECK(passed);
  CHECK_OK(helper->event_wait(start, &err));
  CHECK(helper->event_get_elapsed(start, end, &milliseconds, &err) == DIT_ERR_INVALID && milliseconds == -1);
  CHECK_CONTAINS(err.message, "start event was never recorded");
  CHECK_OK(helper->event_record(start, NULL, &err));
  CHECK(helper->event_get_elapsed(start, end, &milliseconds, &err) == DIT_ERR_INVALID);
  struct timespec pause = {0, 3000000};
  nanosleep(&pause, NULL);
  CHECK_OK(helper->event_record(end, NULL, &err));
  CHECK_OK(helper->event_get_elapsed(start, end, &milliseconds, &err));
  CHECK(milliseconds >= 3);
  CHECK_OK(helper->event_record(start, NULL, &err));
  CHECK_OK(helper->event_get_elapsed(end, start, &milliseconds, &err));
  CHECK(milliseconds >= 0);
  helper->event_destroy(start);
  helper->event_destroy(end);
  helper->event_destroy(NULL);
}

static void *get_side_stream(void) {
  struct dit_error err = {0};
  int64_t id;
  void *raw;
  CHECK_OK(dit_stream_acquire(0, 0, &id, &err));
  CHECK_OK(dit_stream_get_raw(0, id, &raw, &err));
  return raw;
}

static void test_events_on_a_side_stream(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  void *start, *end, *dropped, *stream = get_side_stream();
  bool passed = true;
  double milliseconds;
  CHECK_OK(helper->event_create(0, &start, &err));
  CHECK_OK(helper->event_create(0, &end, &err));
  CHECK_OK(helper->event_create(0, &dropped, &err));
  CHECK_OK(helper->event_record(start, stream, &err));
  CHECK_OK(helper->event_wait(start, &err));
  CHECK_OK(dit_runtime_get_vtable()->stream_launch_host(0, stream, gate_wait, &gate, &err));
  CHECK_OK(helper->event_record(end, stream, &err));
  CHECK_OK(helper->event_record(dropped, stream, &err));
  helper->event_destroy(dropped);  // while pending
  CHECK_OK(helper->event_query(end, &passed, &err));
  CHECK(!passed);
  CHECK(helper->event_get_elapsed(start, end, &milliseconds, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "end event has not passed");
  struct timespec pause = {0, 2000000};
  nanosleep(&pause, NULL);
  gate_open(&gate);
  CHECK_OK(helper->event_wait(end, &err));
  CHECK_OK(helper->event_get_elapsed(start, end, &milliseconds, &err));
  CHECK(milliseconds >= 2);
  helper->event_destroy(start);
  helper->event_destroy(end);
}

/// The last recording counts: one on the default stream replaces one that still waits in a queue.
static void test_recorded_again_while_pending(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  void *start, *event, *stream = get_side_stream();
  bool passed = false;
  double before, after;
  CHECK_OK(helper->event_create(0, &start, &err));
  CHECK_OK(helper->event_create(0, &event, &err));
  CHECK_OK(helper->event_record(start, NULL, &err));
  CHECK_OK(dit_runtime_get_vtable()->stream_launch_host(0, stream, gate_wait, &gate, &err));
  CHECK_OK(helper->event_record(event, stream, &err));
  CHECK_OK(helper->event_record(event, NULL, &err));
  CHECK_OK(helper->event_query(event, &passed, &err));
  CHECK(passed);
  CHECK_OK(helper->event_get_elapsed(start, event, &before, &err));
  gate_open(&gate);
  CHECK_OK(dit_runtime_get_vtable()->stream_synchronize(0, stream, &err));
  CHECK_OK(helper->event_query(event, &passed, &err));
  CHECK_OK(helper->event_get_elapsed(start, event, &after, &err));
  CHECK(passed && before == after);
  helper->event_destroy(start);
  helper->event_destroy(event);
}

static struct tensor_case cases[DIT_HELPER_BATCH];

static void test_numbers_are_those_of_numerics(void) {
  struct dit_error err = {0};
  struct dit_tensor_view views[DIT_HELPER_BATCH];
  struct dit_tensor_stats want, got[DIT_HELPER_BATCH];
  struct dit_hash hash, hashes[DIT_HELPER_BATCH];
  struct dit_compare_result result, wanted;
  struct dit_compare_options options = {1e-5, 1e-8, true};
  uint8_t flags[DIT_HELPER_BATCH];
  void *stats, *bytes, *sums, *pairs;
  for (int i = 0; i < DIT_HELPER_BATCH; i++) {
    case_init(&cases[i], 700 + (uint64_t)i, 64);
    views[i] = cases[i].view;
  }
  CHECK_OK(helper->slots_create(0, sizeof want, 20, &stats, &err));
  CHECK_OK(helper->slots_create(0, 1, 20, &bytes, &err));
  CHECK_OK(helper->slots_create(0, sizeof hash, 20, &sums, &err));
  CHECK_OK(helper->slots_create(0, sizeof result, 2, &pairs, &err));
  CHECK_OK(helper->stats(views, DIT_HELPER_BATCH, NULL, stats, 3, &err));
  CHECK_OK(helper->nonfinite(views, DIT_HELPER_BATCH, NULL, bytes, 4, &err));
  CHECK_OK(helper->hash(views, DIT_HELPER_BATCH, NULL, sums, 1, &err));
  CHECK_OK(helper->slots_read(stats, 3, DIT_HELPER_BATCH, NULL, got, &err));
  CHECK_OK(helper->slots_read(bytes, 4, DIT_HELPER_BATCH, NULL, flags, &err));
  CHECK_OK(helper->slots_read(sums, 1, DIT_HELPER_BATCH, NULL, hashes, &err));
  for (int i = 0; i < DIT_HELPER_BATCH; i++) {
    bool nan, inf;
    CHECK_OK(dit_tensor_get_stats(&views[i], &want, &err));
    CHECK_OK(dit_tensor_get_nonfinite(&views[i], &nan, &inf, &err));
    CHECK_OK(dit_tensor_get_hash(&views[i], &hash, &err));
    CHECK(memcmp(&want, &got[i], sizeof want) == 0);
    CHECK(flags[i] == (nan ? DIT_NONFINITE_NAN : 0) + (inf ? DIT_NONFINITE_INF : 0));
    CHECK(hash.low == hashes[i].low && hash.high == hashes[i].high);
  }
  CHECK_OK(helper->compare(&views[0], &views[0], &options, NULL, pairs, 1, &err));
  CHECK_OK(helper->slots_read(pairs, 1, 1, NULL, &result, &err));
  CHECK_OK(dit_tensor_compare(&views[0], &views[0], &options, &wanted, &err));
  CHECK(result.allclose == wanted.allclose && result.numel == wanted.numel && result.unequal == wanted.unequal);
  helper->slots_destroy(stats);
  helper->slots_destroy(bytes);
  helper->slots_destroy(sums);
  helper->slots_destroy(pairs);
  helper->slots_destroy(NULL);
}

static void test_bad_calls_change_nothing(void) {
  struct dit_error err = {0};
  struct dit_tensor_view views[2] = {{0}, {0}};
  float value = 1;
  uint8_t flags[2] = {7, 7};
  void *bytes, *stats, *none = NULL;
  views[0] = (struct dit_tensor_view){.data = &value, .numel = 1, .dtype = DIT_DTYPE_F32};
  views[1] = (struct dit_tensor_view){.data = &value, .numel = 1, .dtype = DIT_DTYPE_QI8};
  CHECK(helper->slots_create(0, 0, 4, &none, &err) == DIT_ERR_INVALID && none == NULL);
  CHECK(helper->slots_create(0, 16, SIZE_MAX / 8, &none, &err) == DIT_ERR_INVALID);
  CHECK_OK(helper->slots_create(0, 1, 2, &bytes, &err));
  CHECK_OK(helper->slots_create(0, sizeof(struct dit_tensor_stats), 2, &stats, &err));
  CHECK(helper->nonfinite(views, 2, NULL, bytes, 0, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "qint8");
  CHECK(helper->nonfinite(views, 1, NULL, bytes, 2, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "the block has 2");
  CHECK(helper->nonfinite(views, 1, NULL, bytes, SIZE_MAX, &err) == DIT_ERR_INVALID);
  CHECK(helper->nonfinite(views, DIT_HELPER_BATCH + 1, NULL, bytes, 0, &err) == DIT_ERR_INVALID);
  CHECK(helper->stats(views, 1, NULL, bytes, 0, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "this result needs 168");
  CHECK(helper->slots_read(bytes, 1, 2, NULL, flags, &err) == DIT_ERR_INVALID && flags[0] == 7);
  CHECK_OK(helper->slots_read(bytes, 0, 2, NULL, flags, &err));
  CHECK(flags[0] == 0 && flags[1] == 0);
  helper->slots_destroy(bytes);
  helper->slots_destroy(stats);
}

static void test_staging_is_pooled(void) {
  struct dit_error err = {0};
  void *first, *second, *again;
  char text[5000];
  memset(text, 'x', sizeof text);
  CHECK_OK(helper->staging_allocate(sizeof text, &first, &err));
  CHECK_OK(helper->staging_allocate(0, &second, &err));
  CHECK((uintptr_t)first % 64 == 0 && (uintptr_t)second % 64 == 0);
  CHECK_OK(helper->copy_to_host(first, text, sizeof text, NULL, &err));
  CHECK_OK(helper->copy_to_host(first, NULL, 0, NULL, &err));
  CHECK(memcmp(first, text, sizeof text) == 0);
  helper->staging_free(first);
  CHECK_OK(helper->staging_allocate(sizeof text + 100, &again, &err));
  CHECK(again == first);
  helper->staging_free(again);
  helper->staging_free(second);
  helper->staging_free(NULL);
  CHECK(helper->staging_allocate(SIZE_MAX - 10, &again, &err) == DIT_ERR_NOMEM);
}

static void test_every_allocation_may_fail(void) {
  struct dit_error err = {0};
  void *out = NULL, *event, *stream = get_side_stream();
  CHECK_OK(helper->event_create(0, &event, &err));
  int64_t live = dit_alloc_get_live();
  dit_alloc_set_failure(0);
  CHECK(helper->event_create(0, &out, &err) == DIT_ERR_NOMEM && out == NULL);
  CHECK(helper->slots_create(0, 8, 8, &out, &err) == DIT_ERR_NOMEM && out == NULL);
  CHECK(helper->staging_allocate((size_t)1 << 27, &out, &err) == DIT_ERR_NOMEM && out == NULL);
  for (int after = 0; after < 2; after++) {
    dit_alloc_set_failure(after);
    CHECK(helper->event_record(event, stream, &err) == DIT_ERR_NOMEM);
  }
  dit_alloc_set_failure(-1);
  bool passed = false;
  CHECK_OK(helper->event_query(event, &passed, &err));
  CHECK(passed && dit_alloc_get_live() <= live);
  helper->event_destroy(event);
}

int main(void) {
  start_host(NULL);
  RUN(test_lookup);
  RUN(test_events_inline);
  RUN(test_events_on_a_side_stream);
  RUN(test_recorded_again_while_pending);
  RUN(test_numbers_are_those_of_numerics);
  RUN(test_bad_calls_change_nothing);
  RUN(test_staging_is_pooled);
  RUN(test_every_allocation_may_fail);
  dit_runtime_shutdown();
  return 0;
}
