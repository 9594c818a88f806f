/// The host's regions through plans: the block machine and generated code give the same results, on one thread and on
/// several that plan and run at once. Under a sanitizer the generated code is compiled with it, too.
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/options.h"
#include "dit/runtime.h"
#include "graph_words.h"

enum { OUTER = 6, LONG = DIT_REGION_MAX_ROW + 100, THREADS = 4, ROUNDS = 12 };

#if defined(__SANITIZE_THREAD__)
#define FLAGS "-fsanitize=thread"
#elif CHECK_SANITIZED
#define FLAGS "-fsanitize=address,undefined -fno-sanitize-recover=all"
#else
#define FLAGS ""
#endif

// Graphs of one float32 input [OUTER, length]; every output is float32

/// A chain with a cast to `dtype` and back.
static void make_chain(struct graph_words *words, int64_t length) {
  const int64_t sizes[] = {OUTER, length};
  const int x = words_add_input(words, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes));
  const int less = words_point_to(words, DIT_REGION_TANH, x, -1, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes));
  const int half =
      words_point_to(words, DIT_REGION_CAST, less, -1, words_shaped(words, DIT_DTYPE_BF16, -1, 0, 2, sizes));
  const int whole =
      words_point_to(words, DIT_REGION_CAST, half, -1, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes));
  words_output(
      words, words_point_to(words, DIT_REGION_MAXIMUM, whole, x, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes)));
}

static void make_softmax(struct graph_words *words, int64_t length) {
  const int x = words_add_input(words, words_matrix(words, OUTER, length));
  words_output(words, words_softmax(words, x, OUTER, length));
}

static void make_columns(struct graph_words *words, int64_t length) {
  const int64_t sizes[] = {OUTER, length}, column[] = {1, length};
  const int x = words_add_input(words, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes));
  const int bent = words_point_to(words, DIT_REGION_SILU, x, -1, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes));
  words_output(words,
               words_fold_to(words, DIT_REGION_SUM, -1, bent, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, column)));
}

static const struct {
  void (*make)(struct graph_words *, int64_t);
  int64_t length;
} graphs[] = {{make_chain, 1}, {make_chain, 1000}, {make_softmax, 77}, {make_softmax, LONG}, {make_columns, 300}};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

// A run

static enum dit_status allocate(void *self, int32_t storage, void **data, struct dit_error *err) {
  const struct dit_graph_plan *plan = self;
  *data = calloc(1, (size_t)plan->storages[storage].bytes);
  return *data ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no memory");
}

static enum dit_status call(void *self, int32_t index, void **data, struct dit_error *err) {
  (void)self;
  (void)data;
  return dit_error_set(err, DIT_ERR_INTERNAL, "node %d is no region", index);
}

static void release(void *self, int32_t storage) {
  (void)self;
  (void)storage;
}

/// The output of a run, for free; its number of elements.
static float *run_plan(const struct dit_graph_plan *plan, int64_t *count) {
  struct dit_error err = {0};
  void *data[32] = {NULL};
  const struct dit_graph_host host = {(void *)(uintptr_t)plan, allocate, call, release, NULL};
  const struct dit_graph *graph = plan->graph;
  const int32_t in = graph->inputs[0].tensor, out = graph->outputs[0].tensor;
  void *arena = malloc((size_t)plan->arena + 1);
  CHECK(graph->nstorages <= 32);
  float *x = data[graph->tensors[in].storage] = malloc((size_t)plan->layouts[in].numel * sizeof *x);
  for (int64_t i = 0; i < plan->layouts[in].numel; i++) {
    x[i] = (float)((i * 37) % 101) / 50 - 1;
  }
  CHECK_OK(dit_graph_plan_run(plan, NULL, arena, data, &host, &err));
  free(x);
  free(arena);
  *count = plan->layouts[out].numel;
  return data[graph->tensors[out].storage];
}

static struct dit_graph *load_graph(int index) {
  struct graph_words words = {0};
  graphs[index].make(&words, graphs[index].length);
  return words_load(&words);
}

static struct dit_graph_plan *make_plan(const struct dit_graph *graph) {
  struct dit_error err = {0};
  struct dit_graph_plan *plan = NULL;
  CHECK_OK(dit_graph_plan_create(graph, NULL, dit_runtime_get_graph_engine(), 0, &plan, &err));
  CHECK(plan->nregions == plan->nsteps);
  return plan;
}

/// By the same expressions; only where a compiler joins a product and a sum may the last bits be others.
static void check_same(const float *left, const float *right, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    CHECK(fabsf(left[i] - right[i]) <= 4e-6f * fmaxf(1, fabsf(right[i])));
  }
}

static int count_code(const struct dit_graph_plan *plan) {
  int found = 0;
  for (int32_t i = 0; i < plan->nsteps; i++) {
    char text[64];
    plan->engine->describe(plan->steps[i].executable, text, sizeof text);
    found += strcmp(text, "c") == 0;
  }
  return found;
}

/// Bytes and a zero behind them.
struct text {
  char data[16384];
  size_t size;
};

static enum dit_status append(void *context, const void *bytes, size_t size, struct dit_error *err) {
  struct text *text = context;
  (void)err;
  CHECK(text->size + size < sizeof text->data);
  memcpy(text->data + text->size, bytes, size);
  text->size += size;
  return DIT_OK;
}

static void check_sources(const struct dit_graph_plan *machine, const struct dit_graph_plan *code) {
  struct dit_error err = {0};
  static struct text text;
  memset(&text, 0, sizeof text);
  CHECK(machine->engine->describe_source(machine->steps[0].executable, append, &text, &err) == DIT_ERR_UNSUPPORTED);
  CHECK_CONTAINS(err.message, "there is no code");
  CHECK(text.size == 0);
  CHECK_OK(code->engine->describe_source(code->steps[0].executable, append, &text, &err));
  CHECK_CONTAINS(text.data, "void region(");
}

/// Times are summed while they are asked for, and at no other time.
static void check_times(const struct dit_graph_plan *plan) {
  int64_t count;
  CHECK(plan->step_runs[0] == 0 && plan->step_ns[0] == 0);
  dit_graph_set_timing(true);
  free(run_plan(plan, &count));
  free(run_plan(plan, &count));
  dit_graph_set_timing(false);
  free(run_plan(plan, &count));
  for (int32_t i = 0; i < plan->nsteps; i++) {
    CHECK(plan->step_runs[i] == 2 && plan->step_ns[i] > 0);
  }
}

// Code is kept in a folder of the test's own

static char folder[64], compiler[96];

static void start(void) {
  struct dit_error err = {0};
  snprintf(folder, sizeof folder, "/tmp/dit_test_region_XXXXXX");
  CHECK(mkdtemp(folder));
  snprintf(compiler, sizeof compiler, "%s/cc", folder);
  FILE *file = fopen(compiler, "w");
  CHECK(file && fprintf(file, "#!/bin/sh\nexec cc %s \"$@\"\n", FLAGS) > 0 && fclose(file) == 0);
  CHECK(chmod(compiler, 0700) == 0);
  CHECK_OK(dit_option_set("host_cache", folder, &err));
  CHECK_OK(dit_option_set("host_compiler", compiler, &err));
}

static void finish(void) {
  DIR *directory = opendir(folder);
  CHECK(directory);
  for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.') {
      CHECK(unlink(path) == 0);
    }
  }
  closedir(directory);
  CHECK(rmdir(folder) == 0);
}

static void test_bytes_of_a_step(void) {
  struct dit_graph *graph = load_graph(1);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nsteps == 1 && dit_graph_plan_get_step_bytes(plan, 0) == 2 * 4 * OUTER * graphs[1].length);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_the_machine_and_the_code_agree(void) {
  struct dit_error err = {0};
  start();
  for (int i = 0; i < GRAPHS; i++) {
    int64_t count;
    struct dit_graph *graph = load_graph(i);
    CHECK_OK(dit_option_set("host_compiler", "none", &err));
    struct dit_graph_plan *machine = make_plan(graph);
    CHECK_OK(dit_option_set("host_compiler", compiler, &err));
    struct dit_graph_plan *code = make_plan(graph);
    float *by_machine = run_plan(machine, &count);
    free(run_plan(code, &count));
    free(run_plan(code, &count));  // the second run asks for code
    code->engine->settle();
    CHECK(count_code(machine) == 0 && count_code(code) == code->nregions);
    check_sources(machine, code);
    check_times(machine);
    float *by_code = run_plan(code, &count);
    check_same(by_code, by_machine, count);
    free(by_machine);
    free(by_code);
    dit_graph_plan_destroy(machine);
    dit_graph_plan_destroy(code);
    dit_graph_destroy(graph);
  }
  finish();
}

static struct dit_graph_plan *shared[GRAPHS];
static float *wanted[GRAPHS];

static void check_run(const struct dit_graph_plan *plan, int index) {
  int64_t count;
  float *got = run_plan(plan, &count);
  check_same(got, wanted[index], count);
  free(got);
}

static void *plan_and_run(void *context) {
  const int first = (int)(uintptr_t)context;
  for (int round = 0; round < ROUNDS; round++) {
    const int index = (first + round) % GRAPHS;
    struct dit_graph *graph = load_graph(index);
    struct dit_graph_plan *plan = make_plan(graph);
    check_run(plan, index);
    check_run(shared[(index + 1) % GRAPHS], (index + 1) % GRAPHS);
    dit_graph_plan_destroy(plan);
    dit_graph_destroy(graph);
  }
  return NULL;
}

static void test_threads_plan_and_run_at_once(void) {
  struct dit_graph *loaded[GRAPHS];
  pthread_t threads[THREADS];
  int64_t count;
  start();  // another compiler: other code, which appears while the threads run
  for (int i = 0; i < GRAPHS; i++) {
    loaded[i] = load_graph(i);
    shared[i] = make_plan(loaded[i]);
    wanted[i] = run_plan(shared[i], &count);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&threads[i], NULL, plan_and_run, (void *)(uintptr_t)i) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  shared[0]->engine->settle();
  for (int i = 0; i < GRAPHS; i++) {
    check_run(shared[i], i);
    dit_graph_plan_destroy(shared[i]);
    dit_graph_destroy(loaded[i]);
    free(wanted[i]);
  }
  finish();
}

int main(void) {
  struct dit_error err = {0};
  if (system("cc --version >/dev/null 2>&1") != 0) {
    printf("skip: there is no command cc\n");
    return 0;
  }
  CHECK_OK(dit_option_set("graph_cache", "none", &err));
  CHECK_OK(dit_runtime_init("host", &err));
  RUN(test_bytes_of_a_step);
  RUN(test_the_machine_and_the_code_agree);
  RUN(test_threads_plan_and_run_at_once);
  dit_runtime_shutdown();
  return 0;
}
