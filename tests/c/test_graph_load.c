/// Words of graphs that are wrong: every word of small graphs is replaced and cut, and many are replaced at random (by
/// a seed). What is refused says why; what is taken is planned and, where it is small, run on the host's engine with
/// memory of exactly the size that the plan asks for, so that AddressSanitizer sees the first byte beyond.
#include "dit/alloc.h"
#include "dit/options.h"
#include "dit/runtime.h"
#include "graph_words.h"

enum { MAX_STORAGES = 64, MAX_BYTES = 1 << 16, MAX_SYMBOLS = 32 };

static struct {
  int refused, planned, ran;
} counts;

// Graphs to begin with

/// softmax over the rows, and the sum of the columns; a number as an argument; views of an input.
static void make_rows(struct graph_words *words) {
  const int64_t part[] = {4, 33};
  const int x = words_add_input(words, words_matrix(words, 5, 33));
  const int soft = words_softmax(words, x, 5, 33);
  words_output(words, soft);
  words_output(words, words_fold_to(words, DIT_REGION_SUM, -1, soft, words_matrix(words, 1, 33)));
  const int late = words_shaped(words, DIT_DTYPE_F32, 0, 33, 2, part),
            early = words_shaped(words, DIT_DTYPE_F32, 0, 0, 2, part);
  words_output(words,
               words_point_to(words, DIT_REGION_SUB, late, early, words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, part)));
  const int last = words->arg_words - 2;  // the second argument becomes the number 2.5
  const double number = 2.5;
  words->args[last] = DIT_ARG_DOUBLE;
  memcpy(words->args + last + 1, &number, sizeof number);
}

/// Dtypes of every kind, where, an island between regions, and an input that is written.
static void make_mixed(struct graph_words *words) {
  const int64_t sizes[] = {3, 1, 7}, wide[] = {3, 4, 7};
  const int half = words_add_input(words, words_shaped(words, DIT_DTYPE_F16, -1, 0, 3, sizes));
  const int count = words_add_input(words, words_shaped(words, DIT_DTYPE_I64, -1, 0, 3, wide));
  const int real = words_add_input(words, words_shaped(words, DIT_DTYPE_F64, -1, 0, 3, wide));
  const int cast =
      words_point_to(words, DIT_REGION_CAST, half, -1, words_shaped(words, DIT_DTYPE_F64, -1, 0, 3, sizes));
  const int more =
      words_point_to(words, DIT_REGION_ADD, cast, real, words_shaped(words, DIT_DTYPE_F64, -1, 0, 3, wide));
  const int test =
      words_point_to(words, DIT_REGION_GT, more, real, words_shaped(words, DIT_DTYPE_BOOL, -1, 0, 3, wide));
  const int far = words_call(words, DIT_NODE_ISLAND, 0, 0, "aten::far", &more, 1,
                             words_shaped(words, DIT_DTYPE_F64, -1, 0, 3, wide));
  const int three[] = {test, far, more};
  words_output(words, words_call(words, DIT_NODE_POINT, DIT_REGION_WHERE, 0, NULL, three, 3,
                                 words_shaped(words, DIT_DTYPE_F64, -1, 0, 3, wide)));
  words_point_to(words, DIT_REGION_ADD, count, count, count);
  words_output(words, words_fold_to(words, DIT_REGION_SUM, 3, count,
                                    words_shaped(words, DIT_DTYPE_I64, -1, 0, 3, (const int64_t[]){1, 1, 1})));
  const int row =
      words_call(words, DIT_NODE_ROW, 0, 1, "aten::draw", &far, 1, words_shaped(words, DIT_DTYPE_F32, -1, 0, 3, sizes));
  words_output(words,
               words_point_to(words, DIT_REGION_GELU, row, -1, words_shaped(words, DIT_DTYPE_F32, -1, 0, 3, sizes)));
}

/// Sizes that are symbols and expressions: x [n, m], its first columns, n * m as a result, and a list.
static void make_symbols(struct graph_words *words) {
  const int64_t sizes[] = {6, 8};
  const int64_t exprs[] = {DIT_EXPR_MUL,      DIT_DIM_SYMBOL, 0, DIT_DIM_SYMBOL, 1,
                           DIT_EXPR_FLOORDIV, DIT_DIM_EXPR,   0, DIT_DIM_CONST,  2,
                           DIT_EXPR_MIN,      DIT_DIM_EXPR,   1, DIT_DIM_SYMBOL, 0};
  const int64_t symbols[] = {0, 0, 0, 1};
  memcpy(words->symbols, symbols, sizeof symbols);
  memcpy(words->exprs, exprs, sizeof exprs);
  words->nsymbols = 2;
  words->nexprs = 3;
  int tensors[4];
  for (int i = 0; i < 4; i++) {
    tensors[i] = words_shaped(words, DIT_DTYPE_F32, i == 1 ? 0 : -1, 0, 2, sizes);
    int64_t *row = words->tensors + words->tensor_words - 8;
    const int64_t dims[] = {
        i == 1 ? DIT_DIM_EXPR : DIT_DIM_SYMBOL, i == 1 ? 2 : 0, DIT_DIM_SYMBOL, 1, DIT_DIM_SYMBOL, 1, DIT_DIM_CONST, 1};
    memcpy(row, dims, sizeof dims);
  }
  words_add_input(words, tensors[0]);
  words_point_to(words, DIT_REGION_RELU, tensors[0], -1, tensors[2]);
  words_point_to(words, DIT_REGION_MUL, tensors[0], tensors[2], tensors[3]);
  words_output(words, tensors[3]);
  const int64_t counted[] = {-1, 1, DIT_DIM_EXPR, 0};
  memcpy(words->outputs + 4 * words->noutputs++, counted, sizeof counted);
  const int64_t list[] = {DIT_ARG_LIST, 2, 0};  // of the two tensors in front of it
  memcpy(words->args + words->arg_words, list, sizeof list);
  words->arg_words += 3;
  words->nargs++;
  int64_t *node = words->nodes + words->node_words;
  const int made = words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, sizes);
  words_call(words, DIT_NODE_ROW, 0, 0, "aten::cat", NULL, 0, made);
  node[8] = 1;  // behind the name (a word of size, two of text), the overload and the reason
  node[9] = words->nargs - 1;
  words_output(words, made);
}

static void (*const makers[])(struct graph_words *) = {make_rows, make_mixed, make_symbols};

// What is done with words

struct run {
  const struct dit_graph_plan *plan;
  void *memory[MAX_STORAGES];
};

static enum dit_status allocate(void *self, int32_t storage, void **data, struct dit_error *err) {
  struct run *run = self;
  (void)err;
  if (!run->memory[storage]) {
    run->memory[storage] = calloc(1, (size_t)run->plan->storages[storage].bytes + !run->plan->storages[storage].bytes);
  }
  *data = run->memory[storage];
  return DIT_OK;
}

/// Every result is zeros.
static enum dit_status call(void *self, int32_t index, void **data, struct dit_error *err) {
  const struct run *run = self;
  const struct dit_graph_node *node = &run->plan->graph->nodes[index];
  for (int k = 0; k < node->nouts; k++) {
    if (node->outs[k] >= 0) {
      const int32_t storage = run->plan->graph->tensors[node->outs[k]].storage;
      CHECK(allocate(self, storage, &data[storage], err) == DIT_OK);
    }
  }
  return DIT_OK;
}

static void release(void *self, int32_t storage) {
  struct run *run = self;
  if (run->plan->storages[storage].place != DIT_PLACE_INPUT) {
    free(run->memory[storage]);
    run->memory[storage] = NULL;
  }
}

static bool is_small(const struct dit_graph_plan *plan) {
  const struct dit_graph *graph = plan->graph;
  bool good = graph->nstorages <= MAX_STORAGES && plan->arena <= MAX_BYTES;
  for (int32_t i = 0; good && i < graph->nstorages; i++) {
    good = plan->storages[i].bytes <= MAX_BYTES;
  }
  for (int32_t i = 0; good && i < graph->ntensors; i++) {
    good = plan->layouts[i].numel <= MAX_BYTES;
  }
  return good;
}

static void run_plan(const struct dit_graph_plan *plan) {
  struct dit_error err = {0};
  struct run run = {.plan = plan};
  const struct dit_graph_host host = {&run, allocate, call, release, NULL};
  void *data[MAX_STORAGES] = {NULL};
  void *arena = calloc(1, (size_t)plan->arena + 1);
  for (int32_t i = 0; i < plan->graph->ninputs; i++) {
    const int32_t tensor = plan->graph->inputs[i].tensor;
    if (tensor >= 0) {
      CHECK_OK(allocate(&run, plan->graph->tensors[tensor].storage, &data[plan->graph->tensors[tensor].storage], &err));
    }
  }
  CHECK_OK(dit_graph_plan_run(plan, NULL, arena, data, &host, &err));
  for (int i = 0; i < MAX_STORAGES; i++) {
    free(run.memory[i]);
  }
  free(arena);
  counts.ran++;
}

static void plan_and_run(const struct dit_graph *graph, const int64_t *symbols, const struct dit_graph_engine *engine) {
  struct dit_error err = {0};
  struct dit_graph_plan *plan = NULL;
  const enum dit_status status = dit_graph_plan_create(graph, symbols, engine, 0, &plan, &err);
  if (status != DIT_OK) {
    CHECK(plan == NULL && err.message[0]);
    if (status == DIT_ERR_INTERNAL) {
      fprintf(stderr, "%s\n", err.message);
    }
    CHECK(status != DIT_ERR_INTERNAL);
    return;
  }
  counts.planned++;
  if (!plan->nopaques && is_small(plan)) {
    run_plan(plan);
  }
  dit_graph_plan_destroy(plan);
}

// An engine beside the host's own, that takes every node: what is written for it can be read

static bool takes_node(const struct dit_graph *graph, int32_t node, int device) {
  (void)device;
  return graph->nodes[node].kind != DIT_NODE_ISLAND;
}

static enum dit_status read_subgraph(const int64_t *words, size_t count, int device, void **program,
                                     struct dit_error *err) {
  struct dit_graph *graph = NULL;
  (void)device;
  DIT_RETURN_IF_NOT_OK(dit_graph_load(words, count, &graph, err));
  *program = graph;
  return DIT_OK;
}

static void forget_subgraph(void *program) {
  dit_graph_destroy(program);
}

static enum dit_status measure(void *program, int64_t *workspace, struct dit_error *err) {
  (void)program;
  (void)err;
  *workspace = 64;
  return DIT_OK;
}

static enum dit_status run_graph(void *program, int device, void *stream, void *const *data, void *workspace,
                                 struct dit_error *err) {
  (void)program;
  (void)device;
  (void)stream;
  (void)data;
  (void)workspace;
  return dit_error_set(err, DIT_ERR_INTERNAL, "not run");
}

static struct dit_graph_engine whole;

static void try_words(const int64_t *words, size_t count) {
  static const int64_t values[][MAX_SYMBOLS] = {{6, 8}, {0, 3}, {1, 1}, {INT64_MAX, 2}, {-1, 7}, {1 << 20, 1 << 20}};
  struct dit_error err = {0};
  struct dit_graph *graph = NULL;
  int64_t *exact = malloc(count * sizeof *exact + !count);  // a word behind its end is seen
  memcpy(exact, words, count * sizeof *exact);
  const enum dit_status status = dit_graph_load(exact, count, &graph, &err);
  free(exact);
  if (status != DIT_OK) {
    CHECK(status == DIT_ERR_CORRUPT && graph == NULL);
    CHECK_CONTAINS(err.message, "graph: ");
    counts.refused++;
    return;
  }
  const size_t nvalues = graph->nsymbols ? sizeof values / sizeof *values : 1;
  for (size_t i = 0; i < nvalues && graph->nsymbols <= MAX_SYMBOLS; i++) {
    plan_and_run(graph, values[i], dit_runtime_get_graph_engine());
    plan_and_run(graph, values[i], &whole);
  }
  dit_graph_destroy(graph);
}

static uint64_t state = 1;

static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static int64_t draw_word(int64_t old) {
  switch (draw() % 6) {
    case 0:
      return old ^ (int64_t)(UINT64_C(1) << draw() % 64);
    case 1:
      return (int64_t)draw();
    case 2:
      return (int64_t)(draw() % 64) - 2;
    case 3:
      return old + 1 - 2 * (int64_t)(draw() % 2);
    default:
      return (int64_t)(draw() % 12);
  }
}

static void test_every_graph_is_taken(void) {
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    struct graph_words words = {0};
    makers[i](&words);
    const int before = counts.ran, refused = counts.refused;
    try_words(words.all, words_join(&words));
    CHECK(counts.ran > before && counts.refused == refused);
  }
}

static void test_every_word_is_replaced(void) {
  const int64_t values[] = {0, 1, 2, 3, -1, -2, 7, 1 << 20, INT64_C(1) << 31, INT64_C(1) << 62, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    struct graph_words words = {0};
    makers[i](&words);
    const size_t count = words_join(&words);
    for (size_t at = 0; at < count; at++) {
      const int64_t kept = words.all[at];
      for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        words.all[at] = values[k];
        try_words(words.all, count);
      }
      for (int k = -1; k <= 1; k += 2) {
        words.all[at] = (int64_t)((uint64_t)kept + (uint64_t)k);
        try_words(words.all, count);
      }
      words.all[at] = kept;
    }
  }
}

static void test_every_cut(void) {
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    struct graph_words words = {0};
    makers[i](&words);
    const size_t count = words_join(&words);
    for (size_t at = 0; at < count; at++) {
      const int refused = counts.refused;
      try_words(words.all, at);
      words.all[1] = (int64_t)at;  // also where the length is what it says
      try_words(words.all, at);
      words.all[1] = (int64_t)count;
      CHECK(counts.refused == refused + 2);
      const int64_t dropped = words.all[at];
      memmove(words.all + at, words.all + at + 1, (count - at - 1) * sizeof *words.all);
      words.all[1] = at == 1 ? words.all[1] : (int64_t)count - 1;
      try_words(words.all, count - 1);
      memmove(words.all + at + 1, words.all + at, (count - at - 1) * sizeof *words.all);
      words.all[at] = dropped;
      words.all[1] = (int64_t)count;
    }
  }
}

static void test_words_at_random(void) {
  enum { ROUNDS = 20000 };
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    struct graph_words words = {0}, changed;
    makers[i](&words);
    const size_t count = words_join(&words);
    for (int round = 0; round < ROUNDS; round++) {
      changed = words;
      for (uint64_t k = 1 + draw() % 4; k > 0; k--) {
        const size_t at = draw() % count;
        changed.all[at] = at < 2 ? changed.all[at] : draw_word(changed.all[at]);
      }
      try_words(changed.all, count);
    }
  }
  int64_t noise[64];
  for (int round = 0; round < ROUNDS; round++) {
    const size_t count = 2 + draw() % 62;
    for (size_t k = 0; k < count; k++) {
      noise[k] = k == 0 ? DIT_GRAPH_MAGIC : k == 1 ? (int64_t)count : draw_word(0);
    }
    try_words(noise, count);
  }
}

int main(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_option_set("graph_cache", "none", &err));
  CHECK_OK(dit_option_set("host_compiler", "none", &err));
  CHECK_OK(dit_runtime_init("host", &err));
  whole = *dit_runtime_get_graph_engine();
  whole.supports_node = takes_node;
  whole.compile_graph = read_subgraph;
  whole.release_graph = forget_subgraph;
  whole.measure = measure;
  whole.run_graph = run_graph;
  const int64_t live = dit_alloc_get_live();
  RUN(test_every_graph_is_taken);
  RUN(test_every_word_is_replaced);
  RUN(test_every_cut);
  RUN(test_words_at_random);
  CHECK(counts.refused > 1000 && counts.planned > 1000 && counts.ran > 1000);
  printf("%d refused, %d plans, %d runs, %lld pieces of memory left\n", counts.refused, counts.planned, counts.ran,
         (long long)(dit_alloc_get_live() - live));
  dit_runtime_shutdown();
  return 0;
}
