/// The opaque device's graph engine: programs run in its queue on memory that the host cannot read; bytes that are not
/// a program are refused, whatever is wrong with them.
#include <stddef.h>

#include "device_test.h"
#include "dit/graph.h"
#include "dit/memory.h"
#include "graph_words.h"
#include "opaque/graph_program.h"

enum { SIZE = 100 };

static const struct dit_graph_engine *start(const char *refused, const char *mishaps) {
  struct dit_error err = {0};
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_option_set("host_memory", "64MiB", &err));
  CHECK_OK(dit_option_set("opaque", mishaps, &err));
  CHECK_OK(dit_option_set("opaque_graph", refused, &err));
  CHECK_OK(dit_runtime_init("opaque", &err));
  return dit_runtime_get_graph_engine();
}

/// -(x * x) and the sum of x.
static size_t make_words(struct graph_words *words) {
  memset(words, 0, sizeof *words);
  const int x = words_input(words, SIZE);
  const int square = words_point(words, DIT_REGION_MUL, x, x, SIZE);
  words_output(words, words_point(words, DIT_REGION_NEG, square, -1, SIZE));
  words_output(words, words_node(words, DIT_NODE_REDUCE, DIT_REGION_SUM, 1, NULL, x, -1, 1));
  return words_join(words);
}

static void *compile(const struct dit_graph_engine *engine) {
  struct dit_error err = {0};
  struct graph_words words;
  void *program = NULL;
  const size_t count = make_words(&words);
  CHECK_OK(engine->compile_graph(words.all, count, 0, &program, &err));
  return program;
}

static void *take(size_t size) {
  struct dit_error err = {0};
  void *memory = NULL;
  CHECK_OK(dit_memory_alloc(0, 0, size, &memory, &err));
  return memory;
}

static enum dit_status run(const struct dit_graph_engine *engine, void *program, float *out, float *sum,
                           struct dit_error *err) {
  float numbers[SIZE];
  int64_t workspace = -1;
  for (int i = 0; i < SIZE; i++) {
    numbers[i] = (float)i;
  }
  CHECK(engine->measure(program, &workspace, err) == DIT_OK);
  void *data[] = {take(sizeof numbers), take(sizeof numbers), take(sizeof *sum)};
  void *extra = workspace ? take((size_t)workspace) : NULL;
  enum dit_status status = dit_memory_copy(data[0], 0, numbers, -1, sizeof numbers, 0, 0, false, err);
  if (status == DIT_OK) {
    status = engine->run_graph(program, 0, NULL, data, extra, err);
  }
  if (status == DIT_OK) {
    status = dit_memory_copy(out, -1, data[1], 0, sizeof numbers, 0, 0, false, err);
  }
  if (status == DIT_OK) {
    status = dit_memory_copy(sum, -1, data[2], 0, sizeof *sum, 0, 0, false, err);
  }
  for (int i = 0; i < 3; i++) {
    dit_memory_free(data[i]);
  }
  dit_memory_free(extra);
  return status;
}

static void check_program(const struct dit_graph_engine *engine, void *program) {
  struct dit_error err = {0};
  float out[SIZE], sum = 0;
  CHECK(run(engine, program, out, &sum, &err) == DIT_OK);
  for (int i = 0; i < SIZE; i++) {
    CHECK(out[i] == (float)(-i * i));
  }
  CHECK(sum == SIZE * (SIZE - 1) / 2);
}

struct bytes {
  _Alignas(16) char data[8192];
  size_t size;
};

static enum dit_status keep(void *context, const void *data, size_t size, struct dit_error *err) {
  struct bytes *bytes = context;
  (void)err;
  CHECK(bytes->size + size <= sizeof bytes->data);
  memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
  return DIT_OK;
}

static struct bytes save(const struct dit_graph_engine *engine, void *program) {
  struct dit_error err = {0};
  struct bytes bytes = {.size = 0};
  CHECK_OK(engine->save(program, keep, &bytes, &err));
  return bytes;
}

static void test_a_program_runs_and_comes_back(void) {
  struct dit_error err = {0};
  const struct dit_graph_engine *engine = start("", "");
  void *program = compile(engine), *again = NULL;
  check_program(engine, program);
  const struct bytes bytes = save(engine, program);
  engine->release_graph(program);
  CHECK_OK(engine->load(bytes.data, bytes.size, 0, &again, &err));
  check_program(engine, again);
  engine->release_graph(again);
  engine->release_graph(NULL);
}

static void seal(struct bytes *bytes) {
  struct program_head head;
  memcpy(&head, bytes->data, sizeof head);
  head.sum = UINT64_C(0xCBF29CE484222325);
  for (size_t i = offsetof(struct program_head, workspace); i < bytes->size; i++) {
    head.sum = (head.sum ^ (unsigned char)bytes->data[i]) * UINT64_C(0x100000001B3);
  }
  memcpy(bytes->data, &head, sizeof head);
}

/// Every word of a program changed in several ways, with a sum that is right: it is refused, or it stays inside of its
/// memory (which AddressSanitizer watches).
static void test_programs_that_are_wrong(void) {
  const uint64_t changes[] = {1, 0x40, 0xff00, UINT64_C(1) << 31, UINT64_C(1) << 33, UINT64_C(1) << 63, UINT64_MAX};
  const struct dit_graph_engine *engine = start("", "");
  void *program = compile(engine);
  const struct bytes good = save(engine, program);
  engine->release_graph(program);
  int refused = 0, taken = 0;
  for (size_t at = 0; at + 8 <= good.size; at += 8) {
    for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
      struct dit_error err = {0};
      struct bytes bad = good;
      uint64_t word;
      memcpy(&word, bad.data + at, sizeof word);
      word ^= changes[c];
      memcpy(bad.data + at, &word, sizeof word);
      CHECK(engine->load(bad.data, bad.size, 0, &program, &err) == DIT_ERR_CORRUPT);
      seal(&bad);
      if (engine->load(bad.data, bad.size, 0, &program, &err) != DIT_OK) {
        CHECK(err.status == DIT_ERR_CORRUPT && err.message[0]);
        refused++;
        continue;
      }
      float out[SIZE], sum;
      int64_t workspace = 0;
      CHECK_OK(engine->measure(program, &workspace, &err));
      if (workspace < 1 << 20) {
        CHECK(run(engine, program, out, &sum, &err) == DIT_OK || dit_runtime_get_vtable()->reset(0, &err) == DIT_OK);
      }
      engine->release_graph(program);
      taken++;
    }
  }
  CHECK(refused > 100 && taken > 10);
  struct dit_error err = {0};
  for (size_t size = 0; size < good.size; size += 13) {
    CHECK(engine->load(good.data, size, 0, &program, &err) == DIT_ERR_CORRUPT);
  }
}

static void test_what_it_refuses(void) {
  struct dit_error err = {0};
  struct graph_words words;
  void *program = NULL;
  const int floats[] = {DIT_DTYPE_F32, DIT_DTYPE_F32, DIT_DTYPE_F32}, doubles[] = {DIT_DTYPE_F64, DIT_DTYPE_F64};
  const struct dit_graph_engine *engine = start("GELU,compile:3", "");
  const size_t count = make_words(&words);
  CHECK(dit_graph_engine_supports(engine, 0, DIT_REGION_ADD, 0, 3, floats));
  CHECK(!dit_graph_engine_supports(engine, 0, DIT_REGION_GELU, 0, 3, floats));
  CHECK(!dit_graph_engine_supports(engine, 0, DIT_REGION_SIN, 0, 3, floats));
  CHECK(!dit_graph_engine_supports(engine, 0, DIT_REGION_NEG, 0, 3, doubles));
  CHECK(engine->compile_graph(words.all, count, 0, &program, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "compile:3");
  uint8_t before[32], after[32];
  CHECK_OK(engine->fingerprint(0, before, &err));
  engine = start("compile:4", "");
  CHECK_OK(engine->fingerprint(0, after, &err));
  CHECK(memcmp(before, after, sizeof before) != 0);
  program = compile(engine);
  engine->release_graph(program);
  CHECK(start("none", "") == NULL);
}

static void test_a_failure_comes_late(void) {
  struct dit_error err = {0};
  const struct dit_graph_engine *engine = start("", "fail:2");  // the copy is the first piece of work
  void *program = compile(engine);
  float out[SIZE], sum;
  CHECK(run(engine, program, out, &sum, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "a program failed");
  engine->release_graph(program);
}

int main(void) {
  RUN(test_a_program_runs_and_comes_back);
  RUN(test_programs_that_are_wrong);
  RUN(test_what_it_refuses);
  RUN(test_a_failure_comes_late);
  dit_runtime_shutdown();
  return 0;
}
