/// The ledger: counts, order, capacity, reset, threads, and a failing allocation.
#include <pthread.h>

#include "check.h"
#include "dit/conversion.h"
#include "dit/dit.h"
#include "dit/gate.h"

static void test_counts(void) {
  struct dit_ledger_row rows[8];
  struct dit_ledger_entry *add = dit_ledger_get("aten::add.Tensor"), *mm = dit_ledger_get("aten::mm");
  CHECK(add && mm && add != mm && dit_ledger_get("aten::add.Tensor") == add);
  CHECK(dit_ledger_read(rows, 8) == 0);
  dit_ledger_add(mm, DIT_LEDGER_FALLBACK, 100, 7);
  for (int i = 0; i < 3; i++) {
    dit_ledger_add(add, DIT_LEDGER_C, 10, 0);
  }
  CHECK(dit_ledger_read(rows, 8) == 2);
  CHECK(strcmp(rows[0].name, "aten::add.Tensor") == 0 && rows[0].calls[DIT_LEDGER_C] == 3);
  CHECK(rows[0].bytes[DIT_LEDGER_C] == 30 && rows[0].calls[DIT_LEDGER_FALLBACK] == 0);
  CHECK(strcmp(rows[1].name, "aten::mm") == 0 && rows[1].nanoseconds[DIT_LEDGER_FALLBACK] == 7);
  CHECK(rows[1].bytes[DIT_LEDGER_FALLBACK] == 100);
}

static void test_name_is_copied(void) {
  char name[] = "aten::temporary";
  struct dit_ledger_entry *entry = dit_ledger_get(name);
  memset(name, 'x', sizeof(name) - 1);
  CHECK(dit_ledger_get("aten::temporary") == entry);
}

static void test_capacity(void) {
  struct dit_ledger_row rows[4];
  dit_ledger_reset();
  for (int i = 0; i < 50; i++) {
    char name[32];
    snprintf(name, sizeof(name), "op%d", i);
    for (int calls = 0; calls <= (i * 7) % 50; calls++) {
      dit_ledger_add(dit_ledger_get(name), DIT_LEDGER_C, 0, 0);
    }
  }
  CHECK(dit_ledger_read(rows, 4) == 50);
  CHECK(rows[0].calls[0] == 50 && rows[1].calls[0] == 49 && rows[3].calls[0] == 47);
  CHECK(dit_ledger_read(NULL, 0) == 50);
}

static void test_reset(void) {
  struct dit_ledger_row row;
  dit_ledger_reset();
  CHECK(dit_ledger_read(&row, 1) == 0);
  dit_ledger_set_timing(true);
  CHECK(dit_ledger_get_timing());
  dit_ledger_set_timing(false);
  CHECK(!dit_ledger_get_timing());
}

static void *count(void *argument) {
  for (int i = 0; i < 20000; i++) {
    dit_ledger_add(argument, DIT_LEDGER_C, 1, 1);
  }
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  struct dit_ledger_row row;
  dit_ledger_reset();
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, count, dit_ledger_get("aten::add.Tensor")) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK(dit_ledger_read(&row, 1) == 1 && row.calls[0] == 80000 && row.bytes[0] == 80000);
}

// Two adaptors and a library that is none: a call is asked of its own library, whatever other threads call.

static _Thread_local int asked;  ///< the library that the thread's call has

static bool take_one(struct dit_conversions *out) {
  CHECK(asked == 1);
  return memset(out, 0, sizeof *out), out->converted = 1;
}
static bool take_two(struct dit_conversions *out) {
  CHECK(asked == 2);
  return memset(out, 0, sizeof *out), out->converted = 1;
}

static enum dit_status run_nothing(struct dit_call *call) {
  (void)call;
  return DIT_OK;
}

enum { SWITCHES = 120000 };
static struct dit_diopi_library libraries[3] = {{.implemented = 1}, {.implemented = 1}, {.implemented = 1}};

static void *switch_libraries(void *argument) {
  static const struct dit_op ops[3] = {{.name = "aten::plain", .overload = "", .run = run_nothing},
                                       {.name = "aten::one", .overload = "", .run = run_nothing},
                                       {.name = "aten::two", .overload = "", .run = run_nothing}};
  const struct dit_gate gate = {0};
  pthread_barrier_wait(argument);
  for (int i = 0; i < SWITCHES; i++) {
    asked = i % 3;
    struct dit_call call = {.op = &ops[asked], .diopi = &libraries[asked]};
    CHECK(dit_op_run(&call, &gate) == DIT_OK);
  }
  return NULL;
}

static void test_conversions_of_several_libraries(void) {
  pthread_t threads[4];
  pthread_barrier_t start;
  struct dit_conversion_row rows[4];
  CHECK(pthread_barrier_init(&start, NULL, 4) == 0);
  libraries[1].take_conversions = take_one;
  libraries[2].take_conversions = take_two;
  dit_ledger_reset();
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, switch_libraries, &start) == 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
  pthread_barrier_destroy(&start);
  CHECK(dit_conversion_read(rows, 4) == 2);
  for (int i = 0; i < 2; i++) {
    CHECK(strcmp(rows[i].name, "aten::plain") != 0 && rows[i].did.converted == 4 * SWITCHES / 3);
  }
}

static void test_no_memory(void) {
  dit_alloc_set_failure(0);
  CHECK(dit_ledger_get("aten::never_seen_before") == NULL);
  dit_ledger_add(NULL, DIT_LEDGER_C, 1, 1);
  dit_alloc_set_failure(-1);
  CHECK(dit_ledger_get("aten::never_seen_before") != NULL);
}

int main(void) {
  RUN(test_counts);
  RUN(test_name_is_copied);
  RUN(test_capacity);
  RUN(test_reset);
  RUN(test_threads);
  RUN(test_conversions_of_several_libraries);
  RUN(test_no_memory);
  return 0;
}
