/// Plans for sizes that fusion cannot tell from earlier ones repeat what it found (src/graph/known.c): every plan is
/// compared with that of a graph that knows nothing.
#include "check.h"
#include "dit/graph.h"

enum { MAX_WORDS = 4096, ROWS = 0, COLUMNS = 1 };  // symbols: x is [rows, columns]

struct text {
  int64_t words[MAX_WORDS];
  size_t count;
};

static void put(struct text *text, int64_t word) {
  CHECK(text->count < MAX_WORDS);
  text->words[text->count++] = word;
}

static struct text tensors, args, nodes, whole;
static int ntensors, nstorages, nargs, nnodes;

static const struct dit_graph_dim rows = {DIT_DIM_SYMBOL, ROWS}, columns = {DIT_DIM_SYMBOL, COLUMNS};

static struct dit_graph_dim number(int64_t value) {
  return (struct dit_graph_dim){DIT_DIM_CONST, value};
}

/// A tensor of two dimensions on a storage.
static int view(int storage, struct dit_graph_dim m, struct dit_graph_dim n, struct dit_graph_dim over,
                struct dit_graph_dim along) {
  const int64_t head[] = {DIT_DTYPE_F32, 2, storage, 0, DIT_DIM_CONST, 0};
  const struct dit_graph_dim dims[] = {m, n, over, along};
  for (int i = 0; i < 6; i++) {
    put(&tensors, head[i]);
  }
  for (int i = 0; i < 4; i++) {
    put(&tensors, dims[i].kind);
    put(&tensors, dims[i].value);
  }
  return ntensors++;
}

static int dense(struct dit_graph_dim m, struct dit_graph_dim n) {
  return view(nstorages++, m, n, n, number(1));
}

/// A result like a dense [m, n].
static int node(int op, int folded, int a, int b, struct dit_graph_dim m, struct dit_graph_dim n) {
  const int given[] = {a, b}, count = b < 0 ? 1 : 2, out = dense(m, n);
  const int64_t row[] = {folded ? DIT_NODE_REDUCE : DIT_NODE_POINT, op, folded, 0, 0, 0, count, nargs, 1, out};
  for (int i = 0; i < count; i++) {
    put(&args, DIT_ARG_TENSOR);
    put(&args, given[i]);
    nargs++;
  }
  for (int i = 0; i < 10; i++) {
    put(&nodes, row[i]);
  }
  nnodes++;
  return out;
}

/// Regions that are one or two as the sizes are equal, one, a constant, or a long row; walks that are one or two as a
/// dimension is one.
static void write_graph(void) {
  const struct dit_graph_dim one = number(1), four = number(4);
  const int x = dense(rows, columns), y = dense(columns, rows), z = dense(four, columns), w = dense(one, columns);
  const int wide = view(nstorages++, columns, rows, number(64), number(2));  // one walk over rows of 32
  const int turned = view(1, rows, columns, one, rows);                      // y, the other way round
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
  const int outputs[] = {rest, other, few, top, edge, mixed, all};
  const int64_t head[] = {DIT_GRAPH_MAGIC, 0, 2, 0, ntensors, nstorages, nnodes, 5, 7, nargs, 0, 0, 0, 1};
  const struct text *parts[] = {&tensors, &args, &nodes};
  for (int i = 0; i < 14; i++) {
    put(&whole, head[i]);
  }
  for (int i = 0; i < 3; i++) {
    for (size_t k = 0; k < parts[i]->count; k++) {
      put(&whole, parts[i]->words[k]);
    }
  }
  for (int i = 0; i < 5; i++) {  // x, y, z, w and wide are the first tensors
    put(&whole, i);
    put(&whole, -1);
  }
  for (int i = 0; i < 7; i++) {
    const int64_t row[] = {outputs[i], 0, 0, 0};
    for (int k = 0; k < 4; k++) {
      put(&whole, row[k]);
    }
  }
  whole.words[1] = (int64_t)whole.count;
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

static struct dit_graph *load(void) {
  struct dit_graph *graph = NULL;
  struct dit_error err = {0};
  CHECK_OK(dit_graph_load(whole.words, whole.count, &graph, &err));
  return graph;
}

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
  struct dit_graph *graph = load();
  int repeated = 0, regions[16] = {0}, kinds = 0;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < count * count; i++) {
      struct dit_graph *fresh = load();
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
