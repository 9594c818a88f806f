/// Plans for sizes that fusion cannot tell from earlier ones repeat what it found (src/graph/known.c): every plan is
/// compared with that of a graph that knows nothing.
#include "graph_words.h"

enum { ROWS = 0, COLUMNS = 1 };  // symbols: x is [rows, columns]

static struct graph_words words;

static const struct dit_graph_dim rows = {DIT_DIM_SYMBOL, ROWS}, columns = {DIT_DIM_SYMBOL, COLUMNS};

static struct dit_graph_dim number(int64_t value) {
  return (struct dit_graph_dim){DIT_DIM_CONST, value};
}

/// A tensor of two dimensions on a storage; below 0: its own.
static int view(int storage, struct dit_graph_dim m, struct dit_graph_dim n, struct dit_graph_dim over,
                struct dit_graph_dim along) {
  const int made = words_shaped(&words, DIT_DTYPE_F32, storage, 0, 2, (const int64_t[]){1, 1});
  const struct dit_graph_dim dims[] = {m, n, over, along};
  int64_t *row = words.tensors + words.tensor_words - 8;
  for (int i = 0; i < 4; i++) {
    row[2 * i] = dims[i].kind;
    row[2 * i + 1] = dims[i].value;
  }
  return made;
}

static int dense(struct dit_graph_dim m, struct dit_graph_dim n) {
  return view(-1, m, n, n, number(1));
}

/// A result like a dense [m, n].
static int node(int op, int folded, int a, int b, struct dit_graph_dim m, struct dit_graph_dim n) {
  const int out = dense(m, n);
  return folded ? words_fold_to(&words, op, folded, a, out) : words_point_to(&words, op, a, b, out);
}

/// Regions that are one or two as the sizes are equal, one, a constant, or a long row; walks that are one or two as a
/// dimension is one.
static void write_graph(void) {
  const struct dit_graph_dim one = number(1), four = number(4);
  const int x = dense(rows, columns), y = dense(columns, rows), z = dense(four, columns), w = dense(one, columns);
  const int wide = view(-1, columns, rows, number(64), number(2));  // one walk over rows of 32
  const int turned = view(1, rows, columns, one, rows);             // y, the other way round
  const int sum = node(DIT_REGION_ADD, 0, x, turned, rows, columns);
  const int scaled = node(DIT_REGION_MUL, 0, sum, w, rows, columns);
  const int folded = node(DIT_REGION_SUM, 1, scaled, -1, rows, one);
  const int rest = node(DIT_REGION_SUB, 0, scaled, folded, rows, columns);
  const int other = node(DIT_REGION_EXP, 0, y, -1, columns, rows);
  const int few = node(DIT_REGION_NEG, 0, z, -1, four, columns);
  const int top = node(DIT_REGION_MAX, -1, rest, -1, one, columns);
  const int square = node(DIT_REGION_MUL, 0, turned, turned, rows, columns);
  const int edge = node(DIT_REGION_SUM, 1, square, -1, rows, one);
  const int mixed = node(DIT_REGION_NEG, 0, wide, -1, columns, rows);
  const int all = node(DIT_REGION_SUM, 2, mixed, -1, one, one);
  const int inputs[] = {x, y, z, w, wide}, outputs[] = {rest, other, few, top, edge, mixed, all};
  const int64_t symbols[] = {0, 0, 0, 1};
  memcpy(words.symbols, symbols, sizeof symbols);
  words.nsymbols = 2;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    words_add_input(&words, inputs[i]);
  }
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    words_output(&words, outputs[i]);
  }
}

static enum dit_status compile(const struct dit_region *region, int device, void **out, struct dit_error *err) {
  static int made;
  (void)region;
  (void)device;
  (void)err;
  *out = &made;
  return DIT_OK;
}

static void release(void *executable) {
  (void)executable;
}

static enum dit_status run(void *executable, int device, void *stream, void *const *data, struct dit_error *err) {
  (void)executable;
  (void)device;
  (void)stream;
  (void)data;
  (void)err;
  return DIT_OK;
}

static const struct dit_graph_engine engine = {.abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
                                               .struct_size = sizeof(struct dit_graph_engine),
                                               .name = "none",
                                               .compile = compile,
                                               .release = release,
                                               .run = run};

static struct dit_graph_plan *plan_for(const struct dit_graph *graph, int64_t m, int64_t n) {
  struct dit_graph_plan *plan = NULL;
  struct dit_error err = {0};
  CHECK_OK(dit_graph_plan_create(graph, (const int64_t[]){m, n}, &engine, 0, &plan, &err));
  return plan;
}

static void check_region(const struct dit_region *a, const struct dit_region *b) {
  CHECK(a->kind == b->kind && a->ndim == b->ndim && a->nops == b->nops && a->noperands == b->noperands);
  CHECK(memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0);
  CHECK(memcmp(a->ops, b->ops, (size_t)a->nops * sizeof *a->ops) == 0);
  CHECK(memcmp(a->operands, b->operands, (size_t)a->noperands * sizeof *a->operands) == 0);
}

static void check_same(const struct dit_graph_plan *a, const struct dit_graph_plan *b) {
  CHECK(a->nsteps == b->nsteps && a->nregions == b->nregions && a->arena == b->arena && a->unplanned == b->unplanned);
  CHECK(memcmp(a->step_of, b->step_of, (size_t)a->graph->nnodes * sizeof *a->step_of) == 0);
  for (int i = 0; i < a->nsteps; i++) {
    CHECK(a->steps[i].kind == b->steps[i].kind && a->steps[i].noperands == b->steps[i].noperands);
    CHECK(memcmp(a->steps[i].tensors, b->steps[i].tensors, (size_t)a->steps[i].noperands * sizeof(int32_t)) == 0);
    check_region(a->steps[i].region, b->steps[i].region);
  }
  for (int i = 0; i < a->graph->nstorages; i++) {
    const struct dit_graph_storage *mine = &a->storages[i], *other = &b->storages[i];
    CHECK(mine->place == other->place && mine->first == other->first && mine->last == other->last);
    CHECK(mine->bytes == other->bytes && mine->at == other->at);
  }
}

int main(void) {
  static const int64_t sizes[] = {7, 9, 1, 2, 3, 4, 5, 32, 64, 8192, 8193, 20000};
  const int count = sizeof sizes / sizeof *sizes;
  write_graph();
  struct dit_graph *graph = words_load(&words);
  int repeated = 0, regions[16] = {0}, kinds = 0;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < count * count; i++) {
      struct dit_graph *fresh = words_load(&words);
      struct dit_graph_plan *mine = plan_for(graph, sizes[i / count], sizes[i % count]);
      struct dit_graph_plan *other = plan_for(fresh, sizes[i / count], sizes[i % count]);
      CHECK(!other->is_repeated && (round == 0 || mine->is_repeated));
      check_same(mine, other);
      repeated += round == 0 && mine->is_repeated;
      regions[mine->nregions]++;
      dit_graph_plan_destroy(mine);
      dit_graph_plan_destroy(other);
      dit_graph_destroy(fresh);
    }
  }
  for (int i = 0; i < 16; i++) {
    kinds += regions[i] > 0;
  }
  CHECK(kinds >= 3);      // the sizes do matter,
  CHECK(repeated >= 80);  // and seldom
  dit_graph_destroy(graph);
  return 0;
}
