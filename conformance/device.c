/// The command device: what a suite of operators does not ask. The device's functions (properties, memory, copies,
/// streams, events, host functions in order), and the library's own: names, versions, error texts per thread.
///
/// One line of JSON per test, as for cases; the ids begin with "device/" and "library/".
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "commands.h"
#include "dit/alloc.h"
#include "dit/memory.h"

struct test_context {
  struct session *session;
  struct outcome *outcome;
  struct dit_error err;
};

/// Leaves the test with a failure that says what was asked.
#define EXPECT(test, condition, ...)                        \
  do {                                                      \
    if (!(condition)) {                                     \
      outcome_fail((test)->outcome, "device", __VA_ARGS__); \
      return;                                               \
    }                                                       \
  } while (0)
#define EXPECT_OK(test, call) EXPECT(test, (call) == DIT_OK, "%s: %s", #call, (test)->err.message)

enum { BYTES = 100000 };

// The device

static void test_properties(struct test_context *t) {
  struct dit_device_properties properties;
  const struct dit_device_vtable *table = dit_runtime_get_vtable();
  EXPECT(t, table->name && table->name[0] && table->version, "the vendor has no name or no version text");
  EXPECT(t, dit_device_get_count() <= DIT_MAX_DEVICES, "it has %d devices", dit_device_get_count());
  for (int device = 0; device < dit_device_get_count(); device++) {
    EXPECT_OK(t, dit_device_get_properties(device, &properties, &t->err));
    EXPECT(t, properties.name[0] && memchr(properties.name, 0, sizeof properties.name), "device %d has no name",
           device);
    EXPECT(t, properties.total_memory > 0, "device %d says that it has no memory", device);
    struct dit_device_memory memory;
    EXPECT_OK(t, table->get_memory(device, &memory, &t->err));
    EXPECT(t, memory.free <= memory.total, "device %d has %llu free bytes of %llu", device,
           (unsigned long long)memory.free, (unsigned long long)memory.total);
  }
  EXPECT(t, dit_device_get_properties(dit_device_get_count(), &properties, &t->err) != DIT_OK,
         "a device beyond the last one has properties");
}

static void test_memory(struct test_context *t) {
  const struct dit_device_vtable *table = dit_runtime_get_vtable();
  void *pointers[8];
  for (int i = 0; i < 8; i++) {
    EXPECT_OK(t, table->memory_alloc(0, (size_t)1 + 1000 * (size_t)i, &pointers[i], &t->err));
    EXPECT(t, (uintptr_t)pointers[i] % 512 == 0, "memory at %p is not aligned to 512 bytes", pointers[i]);
  }
  for (int i = 0; i < 8; i++) {
    EXPECT_OK(t, table->memory_free(0, pointers[i], &t->err));
  }
  void *none = NULL;
  EXPECT(t, table->memory_alloc(0, (size_t)1 << 60, &none, &t->err) == DIT_ERR_NOMEM && !none,
         "2^60 bytes of memory are not refused with DIT_ERR_NOMEM");
}

/// Fills `size` bytes with numbers that follow from `seed`.
static void fill_bytes(unsigned char *bytes, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (unsigned char)(i * 31 + i / 251 + seed);
  }
}

struct buffers {
  unsigned char *host, *back;
  void *a, *b;
};

static bool take_buffers(struct buffers *buffers) {
  *buffers = (struct buffers){dit_malloc(BYTES), dit_malloc(BYTES), NULL, NULL};
  return buffers->host && buffers->back && dit_memory_alloc(0, 0, BYTES, &buffers->a, NULL) == DIT_OK &&
         dit_memory_alloc(0, 0, BYTES, &buffers->b, NULL) == DIT_OK;
}

static void drop_buffers(struct buffers *buffers) {
  dit_free(buffers->host);
  dit_free(buffers->back);
  dit_memory_free(buffers->a);
  dit_memory_free(buffers->b);
}

static void copy_around(struct test_context *t, struct buffers *x, int64_t stream) {
  for (int odd = 0; odd < 2; odd++) {  // also from addresses that are not aligned
    const size_t size = BYTES - 16;
    fill_bytes(x->host, BYTES, 7u + (unsigned)odd);
    memset(x->back, 0, BYTES);
    EXPECT_OK(t, dit_memory_copy((char *)x->a + odd, 0, x->host, -1, size, 0, stream, false, &t->err));
    EXPECT_OK(t, dit_memory_copy((char *)x->b + 3 * odd, 0, (char *)x->a + odd, 0, size, 0, stream, true, &t->err));
    EXPECT_OK(t, dit_memory_copy(x->back, -1, (char *)x->b + 3 * odd, 0, size, 0, stream, false, &t->err));
    EXPECT(t, memcmp(x->back, x->host, size) == 0, "bytes that went to the device and back are not the same");
  }
  EXPECT_OK(t, dit_memory_set(x->a, 0, 0x5C, BYTES, stream, &t->err));
  EXPECT_OK(t, dit_memory_copy(x->back, -1, x->a, 0, BYTES, 0, stream, false, &t->err));
  for (int i = 0; i < BYTES; i++) {
    EXPECT(t, x->back[i] == 0x5C, "byte %d is 0x%02X after memory was set to 0x5C", i, x->back[i]);
  }
}

static void test_copies(struct test_context *t) {
  struct buffers buffers;
  if (take_buffers(&buffers)) {
    copy_around(t, &buffers, 0);
    copy_around(t, &buffers, t->session->machine.side_stream);
  } else {
    outcome_fail(t->outcome, "device", "there is no memory for the test");
  }
  drop_buffers(&buffers);
}

struct sequence {
  atomic_int next, wrong;
};
struct step {
  struct sequence *sequence;
  int number;
};

static void take_step(void *argument) {
  struct step *step = argument;
  if (atomic_fetch_add(&step->sequence->next, 1) != step->number) {
    atomic_fetch_add(&step->sequence->wrong, 1);
  }
}

static void test_streams(struct test_context *t) {
  enum { STEPS = 200 };
  static struct step steps[STEPS];
  static struct sequence sequence;
  const int64_t stream = t->session->machine.side_stream;
  atomic_store(&sequence.next, 0);
  atomic_store(&sequence.wrong, 0);
  for (int i = 0; i < STEPS; i++) {
    steps[i] = (struct step){&sequence, i};
    EXPECT_OK(t, dit_stream_launch_host(0, stream, take_step, &steps[i], &t->err));
  }
  EXPECT_OK(t, dit_stream_synchronize(0, stream, &t->err));
  EXPECT(t, atomic_load(&sequence.next) == STEPS, "%d of %d host functions ran before the stream was synchronised",
         atomic_load(&sequence.next), STEPS);
  EXPECT(t, atomic_load(&sequence.wrong) == 0, "host functions of one stream ran out of order");
  bool idle = false;
  EXPECT_OK(t, dit_stream_query(0, stream, &idle, &t->err));
  EXPECT(t, idle, "a synchronised stream says that it is busy");
}

static void use_events(struct test_context *t, struct dit_event *first, struct dit_event *second) {
  const int64_t stream = t->session->machine.side_stream;
  double milliseconds = -1;
  bool done = false;
  EXPECT_OK(t, dit_event_record(first, 0, stream, &t->err));
  EXPECT_OK(t, dit_event_record(second, 0, stream, &t->err));
  EXPECT_OK(t, dit_event_block(second, 0, 0, &t->err));
  EXPECT_OK(t, dit_event_synchronize(second, &t->err));
  EXPECT_OK(t, dit_event_query(second, &done, &t->err));
  EXPECT(t, done, "an event that was waited for is not done");
  EXPECT_OK(t, dit_event_get_elapsed(first, second, &milliseconds, &t->err));
  EXPECT(t, milliseconds >= 0 && milliseconds < 60000, "the time between two events is %g ms", milliseconds);
}

static void test_events(struct test_context *t) {
  struct dit_event *first = NULL, *second = NULL;
  if (dit_event_create(0, DIT_EVENT_TIMING, &first, &t->err) == DIT_OK &&
      dit_event_create(0, DIT_EVENT_TIMING, &second, &t->err) == DIT_OK) {
    use_events(t, first, second);
  } else {
    outcome_fail(t->outcome, "device", "an event cannot be made: %s", t->err.message);
  }
  dit_event_destroy(first);
  dit_event_destroy(second);
}

// The library

static void test_names(struct test_context *t) {
  const struct dit_diopi_library *library = t->session->library;
  const struct dit_diopi_vtable *table = &library->functions;
  const char *name = table->diopiGetVendorName ? table->diopiGetVendorName() : NULL;
  const char *version = table->diopiGetImplVersion ? table->diopiGetImplVersion() : NULL;
  EXPECT(t, name && name[0], "diopiGetVendorName is missing or gives no name");
  EXPECT(t, version && version[0], "diopiGetImplVersion is missing or gives no version");
  EXPECT(t, table->diopiGetLastErrorString, "diopiGetLastErrorString is missing");
  EXPECT(t, !library->refused[0], "%s", library->refused);
}

/// What the library says that it has, it exports.
static void test_support(struct test_context *t) {
  const struct dit_diopi_library *library = t->session->library;
  const struct dit_diopi_info *infos = dit_diopi_get_functions(NULL);
  for (int i = 0; library->ext_get_support && i < DIT_DIOPI_COUNT; i++) {
    diopiExtSupport_t support = {.struct_size = sizeof support};
    const bool told = library->ext_get_support(infos[i].name, &support) == diopiSuccess;
    EXPECT(t, !told || dit_diopi_library_get(library, i), "%s is in its table of support, but not exported",
           infos[i].name);
    EXPECT(t, !told || (support.dtypes && support.layouts), "%s is supported for no dtype or no layout", infos[i].name);
  }
}

/// A call that cannot be right: every handle NULL, every number 0. The context is given, so that the arguments are what
/// is wrong.
static diopiError_t call_wrongly(const struct dit_diopi_library *library, int function) {
  union dit_diopi_value values[64] = {0};
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  values[0].context = &context;
  diopiError_t code = dit_diopi_invoke(&library->functions, function, values);
  dit_diopi_context_reset(&context);
  return code;
}

struct error_job {
  const struct dit_diopi_library *library;
  int function;
  pthread_barrier_t *barrier;
  bool wrong_code, wrong_text;
  char text[512];
};

/// Two threads fail in turns; each must then still find its own text.
static void *fail_often(void *argument) {
  struct error_job *job = argument;
  const char *name = dit_diopi_get_functions(NULL)[job->function].name;
  for (int i = 0; i < 50; i++) {
    job->wrong_code = job->wrong_code || call_wrongly(job->library, job->function) == diopiSuccess;
    pthread_barrier_wait(job->barrier);
    snprintf(job->text, sizeof job->text, "%s", dit_diopi_library_get_error(job->library));
    job->wrong_text = job->wrong_text || !strstr(job->text, name);
    pthread_barrier_wait(job->barrier);
  }
  return NULL;
}

/// Two functions of the library that take tensors; false when it has fewer.
static bool find_functions(const struct dit_diopi_library *library, int *found) {
  const struct dit_diopi_info *infos = dit_diopi_get_functions(NULL);
  int count = 0;
  for (int i = 0; i < DIT_DIOPI_COUNT && count < 2; i++) {
    if (strncmp(infos[i].kinds, "cot", 3) == 0 && dit_diopi_library_get(library, i)) {
      found[count++] = i;
    }
  }
  return count == 2;
}

static void test_error_text(struct test_context *t) {
  const struct dit_diopi_library *library = t->session->library;
  int functions[2];
  pthread_t threads[2];
  pthread_barrier_t barrier;
  if (!find_functions(library, functions)) {
    t->outcome->verdict = VERDICT_UNSUPPORTED;
    return;
  }
  EXPECT(t, library->ext_get_last_error || library->functions.diopiGetLastErrorString,
         "the library has no function that gives the text of an error");
  struct error_job jobs[2] = {{library, functions[0], &barrier, false, false, ""},
                              {library, functions[1], &barrier, false, false, ""}};
  pthread_barrier_init(&barrier, NULL, 2);
  EXPECT(t, pthread_create(&threads[0], NULL, fail_often, &jobs[0]) == 0, "a thread cannot be made");
  fail_often(&jobs[1]);
  pthread_join(threads[0], NULL);
  pthread_barrier_destroy(&barrier);
  for (int i = 0; i < 2; i++) {
    const char *name = dit_diopi_get_functions(NULL)[functions[i]].name;
    EXPECT(t, !jobs[i].wrong_code, "%s accepted NULL for every tensor", name);
    EXPECT(t, jobs[i].text[0], "%s failed without an error text", name);
    EXPECT(t, !jobs[i].wrong_text || !library->ext_get_last_error,
           "a thread whose call of %s failed found another text: '%s'", name, jobs[i].text);
  }
}

static const struct {
  const char *id;
  void (*run)(struct test_context *t);
  bool needs_device;
} tests[] = {{"device/properties", test_properties, true}, {"device/memory", test_memory, true},
             {"device/copies", test_copies, true},         {"device/streams", test_streams, true},
             {"device/events", test_events, true},         {"library/names", test_names, false},
             {"library/support", test_support, false},     {"library/error_text", test_error_text, false}};

int command_device(const struct command_options *options) {
  struct session session;
  int status = session_open(&session, options) ? EXIT_PASS : EXIT_USAGE;
  for (size_t i = 0; status != EXIT_USAGE && i < sizeof tests / sizeof tests[0]; i++) {
    struct outcome outcome = {.kind = ""};
    struct test_context context = {&session, &outcome, {.message = ""}};
    if (tests[i].needs_device && !session.machine.has_device) {
      continue;
    }
    if (options->announce) {
      report_start(session.out, (int64_t)i, tests[i].id, "");
      fflush(session.out);
    }
    tests[i].run(&context);
    report_outcome(session.out, (int64_t)i, tests[i].id, "", &outcome);
    status = outcome.verdict == VERDICT_FAIL ? EXIT_FAIL : status;
  }
  session_close(&session);
  return status;
}
