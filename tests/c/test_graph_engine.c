/// The contract of engines that take whole subgraphs, with an engine of the test's own on host memory: how a graph is
/// divided, what a refusal leads to, and what is kept on disk.
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/ledger.h"
#include "dit/options.h"
#include "graph_words.h"

enum { SIZE = 8 };

// The engine: a program is the words of its graph, run one node after the other

struct program {
  size_t count;
  int64_t words[];
};

static struct {
  int compiled, refused, loaded, live, refuse_above, largest_region;
  enum dit_status refusal;  ///< 0: INTERNAL
  bool damaged;
  uint8_t version;
} box;

static bool supports_node(const struct dit_graph *graph, int32_t node, int device) {
  (void)device;
  return graph->nodes[node].kind == DIT_NODE_POINT && graph->nodes[node].op != DIT_REGION_EXP;
}

static enum dit_status make_program(const void *words, size_t count, void **out, struct dit_error *err) {
  struct program *made = dit_malloc(sizeof *made + count * sizeof *made->words);
  if (!made) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory");
  }
  made->count = count;
  memcpy(made->words, words, count * sizeof *made->words);
  box.live++;
  *out = made;
  return DIT_OK;
}

static enum dit_status compile_graph(const int64_t *words, size_t count, int device, void **out,
                                     struct dit_error *err) {
  (void)device;
  if (box.refuse_above && words[6] > box.refuse_above) {
    box.refused++;
    return dit_error_set(err, box.refusal ? box.refusal : DIT_ERR_INTERNAL, "the compiler gives up at %d nodes",
                         (int)words[6]);
  }
  box.compiled++;
  return make_program(words, count, out, err);
}

static void release_graph(void *program) {
  box.live -= program != NULL;
  dit_free(program);
}

static enum dit_status measure(void *program, int64_t *workspace, struct dit_error *err) {
  (void)program;
  (void)err;
  *workspace = 100;
  return DIT_OK;
}

static float compute(int op, float a, float b) {
  return op == DIT_REGION_ADD ? a + b : op == DIT_REGION_MUL ? a * b : op == DIT_REGION_NEG ? -a : 77;
}

static enum dit_status run_graph(void *handle, int device, void *stream, void *const *data, void *workspace,
                                 struct dit_error *err) {
  const struct program *program = handle;
  struct dit_graph *graph = NULL;
  float inner[64][SIZE], *at[64];
  (void)device;
  (void)stream;
  CHECK((uintptr_t)workspace % 64 == 0);
  memset(workspace, 0xff, 100);
  DIT_RETURN_IF_NOT_OK(dit_graph_load(program->words, program->count, &graph, err));
  CHECK(graph->nstorages <= 64 && graph->nsymbols == 0);
  for (int i = 0; i < graph->nstorages; i++) {
    at[i] = inner[i];
  }
  for (int i = 0; i < graph->ninputs; i++) {
    at[graph->tensors[graph->inputs[i].tensor].storage] = data[i];
  }
  for (int i = 0; i < graph->noutputs; i++) {
    at[graph->tensors[graph->outputs[i].tensor].storage] = data[graph->ninputs + i];
  }
  for (int n = 0; n < graph->nnodes; n++) {
    const struct dit_graph_node *node = &graph->nodes[n];
    const float *a = at[graph->tensors[graph->args[node->first_arg].dim.value].storage];
    const float *b = at[graph->tensors[graph->args[node->first_arg + node->nargs - 1].dim.value].storage];
    for (int i = 0; i < SIZE; i++) {
      at[graph->tensors[node->outs[0]].storage][i] = compute(node->op, a[i], b[i]);
    }
  }
  dit_graph_destroy(graph);
  return DIT_OK;
}

static enum dit_status fingerprint(int device, uint8_t out[32], struct dit_error *err) {
  (void)device;
  (void)err;
  memset(out, 0, 32);
  out[5] = box.version;
  return DIT_OK;
}

static enum dit_status save(void *handle, dit_graph_write *write, void *context, struct dit_error *err) {
  const struct program *program = handle;
  DIT_RETURN_IF_NOT_OK(write(context, "BOX", 4, err));
  return write(context, program->words, program->count * sizeof *program->words, err);
}

static enum dit_status load(const void *bytes, size_t size, int device, void **out, struct dit_error *err) {
  (void)device;
  if (box.damaged || size < 4 || memcmp(bytes, "BOX", 4) != 0) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "not a program");
  }
  box.loaded++;
  return make_program((const char *)bytes + 4, (size - 4) / sizeof(int64_t), out, err);
}

// Regions: the same, an operation at a time

static bool supports(const struct dit_region *region) {
  int operations = 0;
  for (int i = 0; i < region->nops; i++) {
    operations += region->ops[i].op != DIT_REGION_LOAD;
  }
  return !box.largest_region || operations <= box.largest_region;
}

static enum dit_status compile(const struct dit_region *region, int device, void **out, struct dit_error *err) {
  (void)device;
  (void)err;
  *out = (void *)(uintptr_t)region;  // the plan's, which outlives its steps
  return DIT_OK;
}

static void release(void *executable) {
  (void)executable;
}

static enum dit_status run(void *executable, int device, void *stream, void *const *data, struct dit_error *err) {
  const struct dit_region *region = executable;
  (void)device;
  (void)stream;
  (void)err;
  for (int e = 0; e < SIZE; e++) {
    float values[DIT_REGION_MAX_OPS];
    for (int i = 0; i < region->nops; i++) {
      const struct dit_region_op *op = &region->ops[i];
      values[i] = op->op == DIT_REGION_LOAD ? ((float *)data[op->operand])[e]
                                            : compute(op->op, values[op->args[0]], values[op->args[1]]);
    }
    for (int k = 0; k < region->noperands; k++) {
      if (region->operands[k].stored >= 0) {
        ((float *)data[k])[e] = values[region->operands[k].stored];
      }
    }
  }
  return DIT_OK;
}

static const struct dit_graph_engine engine = {
    .abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
    .struct_size = sizeof engine,
    .name = "test",
    .version = "1",
    .supports = supports,
    .compile = compile,
    .release = release,
    .run = run,
    .supports_node = supports_node,
    .compile_graph = compile_graph,
    .release_graph = release_graph,
    .measure = measure,
    .run_graph = run_graph,
    .fingerprint = fingerprint,
    .save = save,
    .load = load,
};

// The framework: an operator adds 1

static struct {
  const struct dit_graph *graph;
  float memory[64][SIZE];
} host;

static enum dit_status allocate(void *self, int32_t storage, void **data, struct dit_error *err) {
  (void)self;
  (void)err;
  *data = host.memory[storage];
  return DIT_OK;
}

static enum dit_status call(void *self, int32_t index, void **data, struct dit_error *err) {
  const struct dit_graph_node *node = &host.graph->nodes[index];
  const int32_t in = host.graph->tensors[host.graph->args[node->first_arg].dim.value].storage;
  const int32_t out = host.graph->tensors[node->outs[0]].storage;
  (void)self;
  (void)err;
  if (!node->is_given || !data[out]) {
    data[out] = host.memory[out];
  }
  for (int i = 0; i < SIZE; i++) {
    ((float *)data[out])[i] = ((float *)data[in])[i] + 1;
  }
  return DIT_OK;
}

static void release_storage(void *self, int32_t storage) {
  (void)self;
  (void)storage;
}

/// Runs the plan on inputs of 1, 2, 3 ... and looks for `wanted` in the first output.
static void check_run(const struct dit_graph_plan *plan, float wanted) {
  struct dit_error err = {0};
  const struct dit_graph_host functions = {NULL, allocate, call, release_storage, NULL};
  _Alignas(64) static char arena[4096];
  void *data[64] = {NULL};
  host.graph = plan->graph;
  CHECK(plan->arena <= (int64_t)sizeof arena);
  for (int i = 0; i < plan->graph->ninputs; i++) {
    const int32_t storage = plan->graph->tensors[plan->graph->inputs[i].tensor].storage;
    data[storage] = host.memory[storage];
    for (int k = 0; k < SIZE; k++) {
      host.memory[storage][k] = (float)(i + 1);
    }
  }
  CHECK_OK(dit_graph_plan_run(plan, NULL, arena, data, &functions, &err));
  const float *got = data[plan->graph->tensors[plan->graph->outputs[0].tensor].storage];
  for (int i = 0; i < SIZE; i++) {
    CHECK(got[i] == wanted);
  }
}

static char folder[128];

static void start(void) {
  struct dit_error err = {0};
  memset(&box, 0, sizeof box);
  CHECK_OK(dit_option_set("graph_cache", "none", &err));
}

/// (x + y) * y -> island -> that + (x + y), negated; nine times 2.
static struct dit_graph *make_graph(void) {
  struct graph_words words = {0};
  const int x = words_input(&words, SIZE), y = words_input(&words, SIZE);
  const int sum = words_point(&words, DIT_REGION_ADD, x, y, SIZE);
  const int product = words_point(&words, DIT_REGION_MUL, sum, y, SIZE);
  const int far = words_node(&words, DIT_NODE_ISLAND, 0, 0, "aten::far", product, -1, SIZE);
  const int total = words_point(&words, DIT_REGION_ADD, far, sum, SIZE);
  const int less = words_point(&words, DIT_REGION_NEG, total, -1, SIZE);
  words_output(&words, less);
  return words_load(&words);
}
static const float made_wanted = -10;  // ((1 + 2) * 2 + 1) + (1 + 2), negated

static struct dit_graph_plan *make_plan(const struct dit_graph *graph) {
  struct dit_error err = {0};
  struct dit_graph_plan *plan = NULL;
  CHECK_OK(dit_graph_plan_create(graph, NULL, &engine, 0, &plan, &err));
  return plan;
}

static void test_a_graph_is_divided_without_cycles(void) {
  start();
  struct dit_graph *graph = make_graph();
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nsteps == 3 && plan->nopaques == 2 && plan->nislands == 1 && plan->nregions == 0);
  CHECK(plan->steps[0].nodes == 2 && plan->steps[1].kind == DIT_NODE_ISLAND && plan->steps[2].nodes == 2);
  CHECK(plan->steps[0].nreads == 2 && plan->steps[0].noperands == 4);  // the sum is needed later
  CHECK(plan->steps[2].nreads == 2 && plan->steps[2].noperands == 3);
  CHECK(box.compiled == 2 && plan->refusals == NULL && plan->steps[0].workspace == 100);
  check_run(plan, made_wanted);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
  CHECK(box.live == 0);
}

static void test_a_node_that_is_not_supported_splits(void) {
  start();
  struct graph_words words = {0};
  const int x = words_input(&words, SIZE);
  const int a = words_point(&words, DIT_REGION_NEG, x, -1, SIZE);
  const int b = words_point(&words, DIT_REGION_EXP, a, -1, SIZE);  // a region: 77
  const int c = words_point(&words, DIT_REGION_ADD, a, b, SIZE);
  words_output(&words, c);
  struct dit_graph *graph = words_load(&words);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nopaques == 2 && plan->nregions == 1);
  check_run(plan, 76);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_equal_subgraphs_share_a_program(void) {
  start();
  struct graph_words words = {0};
  int x = words_input(&words, SIZE);
  for (int i = 0; i < 3; i++) {
    x = words_point(&words, DIT_REGION_ADD, x, x, SIZE);
    x = words_node(&words, DIT_NODE_ISLAND, 0, 0, "aten::far", x, -1, SIZE);
  }
  words_output(&words, x);
  struct dit_graph *graph = words_load(&words);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nopaques == 3 && box.compiled == 1 && box.live == 1);
  check_run(plan, 15);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
  CHECK(box.live == 0);
}

static uint64_t count_refusals(void) {
  struct dit_ledger_row rows[64];
  const int count = dit_ledger_read(rows, 64);
  for (int i = 0; i < count; i++) {
    if (strstr(rows[i].name, "graph engine test refuses a subgraph: the compiler gives up at 2 nodes")) {
      return rows[i].calls[DIT_LEDGER_C];
    }
  }
  return 0;
}

static void test_a_refusal_leads_to_regions(void) {
  start();
  box.refuse_above = 1;
  const uint64_t before = count_refusals();
  struct dit_graph *graph = make_graph();
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nopaques == 0 && plan->nregions == 2 && plan->nislands == 1);
  CHECK(plan->refusals && plan->refusals->next && !plan->refusals->next->next && plan->refusals->nodes == 2);
  CHECK_CONTAINS(plan->refusals->reason, "gives up at 2 nodes");
  CHECK(count_refusals() == before + 2);
  check_run(plan, made_wanted);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_a_region_that_is_refused_becomes_smaller(void) {
  start();
  box.refuse_above = 1;
  box.largest_region = 1;
  struct dit_graph *graph = make_graph();
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nregions == 4 && plan->nopaques == 0);
  check_run(plan, made_wanted);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_what_nothing_runs_is_unsupported(void) {
  start();
  struct dit_error err = {0};
  struct dit_graph_plan *plan = NULL;
  struct dit_graph_engine small = engine;
  small.compile = NULL;
  box.refuse_above = 1;
  struct dit_graph *graph = make_graph();
  CHECK(dit_graph_plan_create(graph, NULL, &small, 0, &plan, &err) == DIT_ERR_UNSUPPORTED && !plan);
  CHECK_CONTAINS(err.message, "engine 'test'");
  const int dtypes[] = {DIT_DTYPE_F32, DIT_DTYPE_F32};
  CHECK(dit_graph_engine_supports(&small, 0, DIT_REGION_NEG, 0, 2, dtypes));
  CHECK(!dit_graph_engine_supports(&small, 0, DIT_REGION_EXP, 0, 2, dtypes));
  CHECK(dit_graph_engine_supports(&engine, 0, DIT_REGION_EXP, 0, 2, dtypes));  // by a region
  CHECK(!dit_graph_engine_supports(&small, 0, DIT_REGION_SUM, 1, 2, dtypes));
  CHECK(dit_graph_engine_supports(&engine, 0, DIT_REGION_SUM, 1, 2, dtypes));
  CHECK(!dit_graph_engine_supports(NULL, 0, DIT_REGION_NEG, 0, 2, dtypes));
  dit_graph_destroy(graph);
  CHECK(box.live == 0);
}

// On disk

static void make_and_run(int compiled, int loaded) {
  box.compiled = box.loaded = 0;
  struct dit_graph *graph = make_graph();
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(box.compiled == compiled && box.loaded == loaded);
  CHECK(plan->steps[0].is_kept == (loaded > 0));
  check_run(plan, made_wanted);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
  CHECK(box.live == 0);
}

static void start_cache(void) {
  struct dit_error err = {0};
  start();
  snprintf(folder, sizeof folder, "/tmp/dit-graph-XXXXXX");
  CHECK(mkdtemp(folder));
  CHECK_OK(dit_option_set("graph_cache", folder, &err));
}

/// Of the files in the folder: how many there are; `act` is done to each.
static size_t each_file(void (*act)(const char *path)) {
  char pattern[160];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/*", folder);
  if (glob(pattern, 0, NULL, &found) != 0) {
    return 0;
  }
  for (size_t i = 0; i < found.gl_pathc; i++) {
    act(found.gl_pathv[i]);
  }
  const size_t count = found.gl_pathc;
  globfree(&found);
  return count;
}

static void check_mode(const char *path) {
  struct stat status;
  CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
  CHECK_CONTAINS(path, ".graph");
}

static void remove_file(const char *path) {
  CHECK(unlink(path) == 0);
}

static void cut_file(const char *path) {
  CHECK(truncate(path, 200) == 0);
}

static long damage_at;

static void damage_file(const char *path) {
  FILE *file = fopen(path, "r+b");
  CHECK(file && fseek(file, damage_at, damage_at < 0 ? SEEK_END : SEEK_SET) == 0);
  const int byte = fgetc(file);
  CHECK(byte != EOF && fseek(file, -1, SEEK_CUR) == 0 && fputc(byte ^ 0x10, file) != EOF && fclose(file) == 0);
}

static void test_programs_are_kept(void) {
  start_cache();
  make_and_run(2, 0);
  CHECK(each_file(check_mode) == 2);  // and no temporary one
  make_and_run(0, 2);
  box.version = 1;  // another chip
  make_and_run(2, 0);
  make_and_run(0, 2);
  box.version = 0;
  make_and_run(0, 2);
  CHECK(each_file(remove_file) == 4);
  CHECK(rmdir(folder) == 0);
}

static void test_files_that_are_damaged_are_misses(void) {
  const long places[] = {0, 8, 100, 300, -1, -20, -40};
  start_cache();
  make_and_run(2, 0);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    damage_at = places[i];
    CHECK(each_file(damage_file) == 2);
    make_and_run(2, 0);
    make_and_run(0, 2);  // they were made again
  }
  each_file(cut_file);
  make_and_run(2, 0);
  box.damaged = true;  // the engine's own check
  make_and_run(2, 0);
  box.damaged = false;
  make_and_run(0, 2);
  each_file(remove_file);
  CHECK(rmdir(folder) == 0);
}

/// x + x; the only file in the folder.
static void make_small(char *file, size_t size, int compiled) {
  char pattern[160];
  glob_t found;
  struct graph_words words = {0};
  const int x = words_input(&words, SIZE);
  words_output(&words, words_point(&words, DIT_REGION_ADD, x, x, SIZE));
  box.compiled = 0;
  struct dit_graph *graph = words_load(&words);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(box.compiled == compiled);
  check_run(plan, 2);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
  snprintf(pattern, sizeof pattern, "%s/*.graph", folder);
  CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
  snprintf(file, size, "%s", found.gl_pathv[0]);
  globfree(&found);
}

static void test_a_file_with_another_key_is_a_miss(void) {
  char first[200], second[200], aside[160];
  start_cache();
  snprintf(aside, sizeof aside, "%s/aside", folder);
  make_small(first, sizeof first, 1);
  CHECK(rename(first, aside) == 0);
  box.version = 1;
  make_small(second, sizeof second, 1);
  CHECK(strcmp(first, second) != 0 && rename(aside, second) == 0);  // complete, of the same length, another chip's
  make_small(second, sizeof second, 1);
  make_small(second, sizeof second, 0);
  each_file(remove_file);
  CHECK(rmdir(folder) == 0);
}

static void run_anyway(const char *directory) {
  struct dit_error err = {0};
  CHECK_OK(dit_option_set("graph_cache", directory, &err));
  struct dit_graph *graph = make_graph();
  struct dit_graph_plan *plan = make_plan(graph);
  check_run(plan, made_wanted);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_refusals_are_kept(void) {
  start_cache();
  box.refuse_above = 1;
  for (int i = 0; i < 4; i++) {  // a failure is not kept, what is not supported is
    box.refusal = i < 2 ? DIT_ERR_INTERNAL : DIT_ERR_UNSUPPORTED;
    struct dit_graph *graph = make_graph();
    struct dit_graph_plan *plan = make_plan(graph);
    CHECK(plan->nopaques == 0 && plan->nregions == 2);
    CHECK_CONTAINS(plan->refusals->reason, "gives up at 2 nodes");
    check_run(plan, made_wanted);
    dit_graph_plan_destroy(plan);
    dit_graph_destroy(graph);
    CHECK(box.refused == (i < 3 ? 2 * (i + 1) : 6));
  }
  CHECK(each_file(remove_file) == 2);
  CHECK(rmdir(folder) == 0);
}

static void test_directories_that_cannot_be_used(void) {
  char none[160];
  start_cache();
  CHECK(chmod(folder, 0755) == 0);  // others can look into it
  run_anyway(folder);
  CHECK(each_file(remove_file) == 0);
  snprintf(none, sizeof none, "%s/not/there/at/all", folder);
  run_anyway(none);
  CHECK(rmdir(folder) == 0);
  run_anyway("/dev/null");
}

static void test_tensors_of_the_cpu_are_not_taken(void) {
  start();
  struct graph_words words = {0};
  const int x = words_input(&words, SIZE);
  words_output(&words, words_point(&words, DIT_REGION_NEG, x, -1, SIZE));
  words.tensors[3] = DIT_GRAPH_HOST;
  struct dit_graph *graph = words_load(&words);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nopaques == 0);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

/// Five rows, one after the other; what the third makes leaves the graph too, what the fourth makes an island reads.
static void test_rows_write_to_the_arena(void) {
  start();
  struct graph_words words = {0};
  int made[6];
  made[0] = words_input(&words, SIZE);
  for (int i = 1; i < 6; i++) {
    made[i] = words_node(&words, i == 5 ? DIT_NODE_ISLAND : DIT_NODE_ROW, 0, 0, "aten::near", made[i - 1], -1, SIZE);
  }
  words_output(&words, made[5]);
  words_output(&words, made[3]);
  struct dit_graph *graph = words_load(&words);
  struct dit_graph_plan *plan = make_plan(graph);
  CHECK(plan->nrows == 4 && plan->arena == 0 && plan->storages[made[1]].place == DIT_PLACE_CALL);
  check_run(plan, 6);
  dit_graph_plan_destroy(plan);
  for (int i = 0; i < 4; i++) {
    dit_graph_give_memory(graph, i, true);
  }
  plan = make_plan(graph);
  const int places[] = {DIT_PLACE_INPUT, DIT_PLACE_ARENA, DIT_PLACE_ARENA,
                        DIT_PLACE_OWN,   DIT_PLACE_OWN,   DIT_PLACE_CALL};
  for (int i = 0; i < 6; i++) {
    CHECK(plan->storages[made[i]].place == places[i]);
  }
  CHECK(plan->arena == plan->unplanned && plan->arena == 2 * ((SIZE * 4 + 63) / 64 * 64));
  CHECK(plan->storages[made[1]].at != plan->storages[made[2]].at);  // a row does not write to what it reads
  check_run(plan, 6);
  dit_graph_plan_destroy(plan);
  dit_graph_give_memory(graph, 0, false);
  plan = make_plan(graph);
  CHECK(plan->storages[made[1]].place == DIT_PLACE_CALL && plan->storages[made[2]].place == DIT_PLACE_ARENA);
  check_run(plan, 6);
  dit_graph_plan_destroy(plan);
  dit_graph_destroy(graph);
}

static void test_memory_that_is_not_there(void) {
  start();
  struct dit_graph *graph = make_graph();
  const int64_t live = dit_alloc_get_live();
  bool done = false;
  for (int64_t after = 0; !done; after++) {
    struct dit_error err = {0};
    struct dit_graph_plan *plan = NULL;
    dit_alloc_set_failure(after);
    const enum dit_status status = dit_graph_plan_create(graph, NULL, &engine, 0, &plan, &err);
    dit_alloc_set_failure(-1);
    CHECK(status == DIT_OK || (status == DIT_ERR_NOMEM && !plan));
    done = status == DIT_OK && !plan->refusals;
    if (status == DIT_OK) {  // a program without memory is a refusal
      check_run(plan, made_wanted);
      dit_graph_plan_destroy(plan);
    }
    CHECK(box.live == 0);
  }
  CHECK(dit_alloc_get_live() <= live + 1);  // the ledger's entry of the refusal
  dit_graph_destroy(graph);
}

int main(void) {
  RUN(test_a_graph_is_divided_without_cycles);
  RUN(test_a_node_that_is_not_supported_splits);
  RUN(test_equal_subgraphs_share_a_program);
  RUN(test_a_refusal_leads_to_regions);
  RUN(test_a_region_that_is_refused_becomes_smaller);
  RUN(test_what_nothing_runs_is_unsupported);
  RUN(test_programs_are_kept);
  RUN(test_files_that_are_damaged_are_misses);
  RUN(test_a_file_with_another_key_is_a_miss);
  RUN(test_refusals_are_kept);
  RUN(test_directories_that_cannot_be_used);
  RUN(test_tensors_of_the_cpu_are_not_taken);
  RUN(test_rows_write_to_the_arena);
  RUN(test_memory_that_is_not_there);
  return 0;
}
