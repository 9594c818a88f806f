/// The words of a graph, read and checked. Nothing behind the last word is looked at, every number is compared with
/// what it counts or names, and every storage has one origin before it is used.
#include <string.h>

#include "graph_internal.h"

#define MAX_COUNT (1 << 20)
#define MAX_TEXT 4096

struct graph_piece {
  struct graph_piece *next;
};

void *graph_pool_take(struct graph_piece **list, size_t count, size_t size) {
  const size_t head = (sizeof(struct graph_piece) + 15) & ~(size_t)15;
  if (size && count > (SIZE_MAX - head) / size) {
    return NULL;
  }
  struct graph_piece *piece = dit_calloc(1, head + count * size + 1);
  if (!piece) {
    return NULL;
  }
  piece->next = *list;
  *list = piece;
  return (char *)piece + head;
}

void graph_pool_free(struct graph_piece *list) {
  while (list) {
    struct graph_piece *next = list->next;
    dit_free(list);
    list = next;
  }
}

static const struct {
  const char *name;
  int arity;
} operations[] = {
#define ROW(name, arity) {#name, arity},
    DIT_REGION_OP_LIST(ROW)
#undef ROW
};

const char *dit_region_op_get_name(int op) {
  return op >= 0 && op < DIT_REGION_OP_COUNT ? operations[op].name : NULL;
}

int dit_region_op_get_arity(int op) {
  return op >= 0 && op < DIT_REGION_OP_COUNT ? operations[op].arity : -1;
}

struct reader {
  const int64_t *words;
  size_t count, at;
  struct graph_piece *list;
  struct dit_graph *graph;
  struct dit_error *err;
  enum dit_status status;  ///< the first failure; reading goes on with zeros
};

static void fail(struct reader *reader, const char *what) {
  if (reader->status == DIT_OK) {
    reader->status =
        dit_error_set(reader->err, DIT_ERR_CORRUPT, "graph: %s (word %zu of %zu)", what, reader->at, reader->count);
  }
}

static void *take(struct reader *reader, size_t count, size_t size) {
  void *memory = graph_pool_take(&reader->list, count, size);
  if (!memory && reader->status == DIT_OK) {
    reader->status = dit_error_set(reader->err, DIT_ERR_NOMEM, "graph: no memory");
  }
  return memory;
}

static int64_t read_word(struct reader *reader) {
  if (reader->status != DIT_OK || reader->at >= reader->count) {
    fail(reader, "it ends too early");
    return 0;
  }
  return reader->words[reader->at++];
}

static int64_t read_within(struct reader *reader, int64_t low, int64_t high, const char *what) {
  const int64_t word = read_word(reader);
  if (reader->status == DIT_OK && (word < low || word >= high)) {
    fail(reader, what);
  }
  return reader->status == DIT_OK ? word : low;
}

static const char *read_text(struct reader *reader) {
  const int64_t size = read_within(reader, 0, MAX_TEXT, "a text is too long");
  const size_t words = ((size_t)size + 7) / 8;
  if (reader->status == DIT_OK && reader->count - reader->at < words) {
    fail(reader, "a text ends too early");
  }
  char *text = reader->status == DIT_OK ? take(reader, (size_t)size + 1, 1) : NULL;
  if (!text || reader->status != DIT_OK) {
    return "";
  }
  memcpy(text, reader->words + reader->at, (size_t)size);
  reader->at += words;
  return text;
}

static struct dit_graph_dim read_dim(struct reader *reader, int32_t nexprs) {
  struct dit_graph_dim dim;
  dim.kind = (uint8_t)read_within(reader, 0, DIT_DIM_EXPR + 1, "a dimension of no kind");
  dim.value = read_word(reader);
  const int64_t limit = dim.kind == DIT_DIM_SYMBOL ? reader->graph->nsymbols : nexprs;
  if (dim.kind != DIT_DIM_CONST && (dim.value < 0 || dim.value >= limit)) {
    fail(reader, "a dimension names a symbol or an expression that is not there");
    dim = (struct dit_graph_dim){DIT_DIM_CONST, 0};
  }
  return dim;
}

static void read_symbols(struct reader *reader) {
  struct dit_graph *graph = reader->graph;
  struct dit_graph_symbol *symbols = take(reader, (size_t)graph->nsymbols, sizeof *symbols);
  for (int i = 0; i < graph->nsymbols && reader->status == DIT_OK; i++) {
    symbols[i].input = (int32_t)read_within(reader, 0, graph->ninputs, "a symbol names an input that is not there");
    symbols[i].dim = (int32_t)read_within(reader, -1, DIT_GRAPH_MAX_DIMS, "a symbol names no dimension");
  }
  graph->symbols = symbols;
  struct dit_graph_expr *exprs = take(reader, (size_t)graph->nexprs, sizeof *exprs);
  for (int i = 0; i < graph->nexprs && reader->status == DIT_OK; i++) {
    exprs[i].op = (uint8_t)read_within(reader, 0, DIT_EXPR_COUNT, "an expression of no kind");
    exprs[i].a = read_dim(reader, i);
    exprs[i].b = read_dim(reader, i);
  }
  graph->exprs = exprs;
}

static void read_tensors(struct reader *reader) {
  struct dit_graph *graph = reader->graph;
  struct dit_graph_tensor *tensors = take(reader, (size_t)graph->ntensors, sizeof *tensors);
  for (int i = 0; i < graph->ntensors && reader->status == DIT_OK; i++) {
    struct dit_graph_tensor *tensor = &tensors[i];
    tensor->dtype = (int16_t)read_within(reader, 0, DIT_DTYPE_COUNT, "a tensor of no dtype");
    tensor->ndim = (int16_t)read_within(reader, 0, DIT_GRAPH_MAX_DIMS + 1, "a tensor with too many dimensions");
    tensor->storage = (int32_t)read_within(reader, 0, graph->nstorages, "a tensor of no storage");
    tensor->flags = (uint32_t)read_within(reader, 0, 16, "a tensor with flags that are none");
    tensor->offset = read_dim(reader, graph->nexprs);
    struct dit_graph_dim *dims = take(reader, (size_t)tensor->ndim * 2, sizeof *dims);
    for (int d = 0; d < 2 * tensor->ndim && reader->status == DIT_OK; d++) {
      dims[d] = read_dim(reader, graph->nexprs);
    }
    tensor->sizes = dims;
    tensor->strides = dims ? dims + tensor->ndim : NULL;
    if (dit_dtype_get_size(tensor->dtype) == 0) {
      fail(reader, "a tensor of no dtype");
    }
  }
  graph->tensors = tensors;
}

static void read_arg(struct reader *reader, struct dit_graph_arg *arg, int32_t index) {
  const struct dit_graph *graph = reader->graph;
  arg->tag = (uint8_t)read_within(reader, 0, DIT_ARG_TAGS, "an argument of no kind");
  switch (arg->tag) {
    case DIT_ARG_TENSOR:
      arg->dim.value = read_within(reader, 0, graph->ntensors, "an argument names a tensor that is not there");
      break;
    case DIT_ARG_INT:
      arg->dim = read_dim(reader, graph->nexprs);
      break;
    case DIT_ARG_DOUBLE: {
      const int64_t bits = read_word(reader);
      memcpy(&arg->number, &bits, sizeof bits);
      break;
    }
    case DIT_ARG_BOOL:
      arg->dim.value = read_within(reader, 0, 2, "a bool that is none");
      break;
    case DIT_ARG_DTYPE:
      arg->dim.value = read_within(reader, 0, DIT_DTYPE_COUNT, "an argument of no dtype");
      break;
    case DIT_ARG_STRING:
      arg->text = read_text(reader);
      break;
    case DIT_ARG_LIST:  // of earlier arguments: a list cannot hold itself
      arg->count = (int32_t)read_within(reader, 0, index + 1, "a list is too long");
      arg->first = (int32_t)read_within(reader, 0, index - arg->count + 1, "a list names arguments behind itself");
      break;
    default:
      break;
  }
}

static void read_args(struct reader *reader) {
  struct dit_graph *graph = reader->graph;
  struct dit_graph_arg *args = take(reader, (size_t)graph->nargs, sizeof *args);
  for (int32_t i = 0; i < graph->nargs && reader->status == DIT_OK; i++) {
    read_arg(reader, &args[i], i);
  }
  graph->args = args;
}

static void read_nodes(struct reader *reader) {
  struct dit_graph *graph = reader->graph;
  struct dit_graph_node *nodes = take(reader, (size_t)graph->nnodes, sizeof *nodes);
  for (int i = 0; i < graph->nnodes && reader->status == DIT_OK; i++) {
    struct dit_graph_node *node = &nodes[i];
    node->kind = (uint8_t)read_within(reader, 0, DIT_NODE_KINDS, "a node of no kind");
    node->op = (int32_t)read_within(reader, 0, DIT_REGION_OP_COUNT, "an operation that is not there");
    node->folded = (int32_t)read_within(reader, -DIT_GRAPH_MAX_DIMS, DIT_GRAPH_MAX_DIMS + 1, "a fold of no dimension");
    node->name = read_text(reader);
    node->overload = read_text(reader);
    node->reason = read_text(reader);
    node->nargs = (int32_t)read_within(reader, 0, graph->nargs + 1, "a node with too many arguments");
    node->first_arg = (int32_t)read_within(reader, 0, graph->nargs - node->nargs + 1, "a node without its arguments");
    node->nouts =
        (int32_t)read_within(reader, 0, (int64_t)(reader->count - reader->at) + 1, "a node with too many results");
    int32_t *outs = take(reader, (size_t)node->nouts, sizeof *outs);
    for (int k = 0; k < node->nouts && reader->status == DIT_OK; k++) {
      outs[k] = (int32_t)read_within(reader, -1, graph->ntensors, "a result names a tensor that is not there");
    }
    node->outs = outs;
  }
  graph->nodes = nodes;
}

static void read_borders(struct reader *reader) {
  struct dit_graph *graph = reader->graph;
  struct dit_graph_input *inputs = take(reader, (size_t)graph->ninputs, sizeof *inputs);
  for (int i = 0; i < graph->ninputs && reader->status == DIT_OK; i++) {
    inputs[i].tensor = (int32_t)read_within(reader, -1, graph->ntensors, "an input names a tensor that is not there");
    inputs[i].symbol = (int32_t)read_within(reader, -1, graph->nsymbols, "an input names a symbol that is not there");
  }
  graph->inputs = inputs;
  struct dit_graph_output *outputs = take(reader, (size_t)graph->noutputs, sizeof *outputs);
  for (int i = 0; i < graph->noutputs && reader->status == DIT_OK; i++) {
    outputs[i].tensor = (int32_t)read_within(reader, -1, graph->ntensors, "an output names a tensor that is not there");
    outputs[i].is_int = read_within(reader, 0, 2, "an output of no kind") != 0;
    outputs[i].dim = read_dim(reader, graph->nexprs);
  }
  graph->outputs = outputs;
}

// What the words mean together

static void check_arg(struct reader *reader, const struct dit_graph_arg *arg, const uint8_t *origin) {
  if (arg->tag == DIT_ARG_TENSOR && !origin[reader->graph->tensors[arg->dim.value].storage]) {
    fail(reader, "a tensor is used before anything made it");
  }
  for (int i = 0; arg->tag == DIT_ARG_LIST && i < arg->count; i++) {
    if (reader->graph->args[arg->first + i].tag == DIT_ARG_LIST) {
      fail(reader, "a list in a list");
      return;
    }
    check_arg(reader, &reader->graph->args[arg->first + i], origin);
  }
}

static void check_fused(struct reader *reader, const struct dit_graph_node *node, const uint8_t *origin) {
  const struct dit_graph *graph = reader->graph;
  const bool folds = graph_is_fold(node->op);
  if (node->nouts != 1 || node->outs[0] < 0 || node->nargs != dit_region_op_get_arity(node->op) || node->nargs == 0 ||
      folds != (node->kind == DIT_NODE_REDUCE) || folds != (node->folded != 0)) {
    fail(reader, "an operation with the wrong number of arguments or results");
    return;
  }
  for (int i = 0; i < node->nargs; i++) {
    const uint8_t tag = graph->args[node->first_arg + i].tag;
    if (tag != DIT_ARG_TENSOR && (folds || (tag != DIT_ARG_INT && tag != DIT_ARG_DOUBLE && tag != DIT_ARG_BOOL))) {
      fail(reader, "an operation with an argument that is no tensor and no number");
    }
  }
  const struct dit_graph_tensor *out = &graph->tensors[node->outs[0]];
  if (folds) {
    const struct dit_graph_tensor *in = &graph->tensors[graph->args[node->first_arg].dim.value];
    const int folded = node->folded < 0 ? -node->folded : node->folded;
    if (in->ndim != out->ndim || folded > in->ndim) {
      fail(reader, "a fold of more dimensions than there are");
    }
  }
  if (origin[out->storage] && (origin[out->storage] != 1 || folds)) {
    fail(reader, "an operation writes to a tensor that was made before, and that is no input");
  }
}

static void check_node(struct reader *reader, const struct dit_graph_node *node, uint8_t *origin) {
  const struct dit_graph *graph = reader->graph;
  for (int i = 0; i < node->nargs; i++) {
    check_arg(reader, &graph->args[node->first_arg + i], origin);
  }
  if (reader->status != DIT_OK) {
    return;
  }
  if (node->kind == DIT_NODE_POINT || node->kind == DIT_NODE_REDUCE) {
    check_fused(reader, node, origin);
  } else if (node->kind != DIT_NODE_ROW && node->kind != DIT_NODE_ISLAND) {
    fail(reader, "a node of a kind that no graph is written with");
  } else if (!node->name[0]) {
    fail(reader, "a call without a name");
  }
  for (int i = 0; i < node->nouts && reader->status == DIT_OK; i++) {
    if (node->outs[i] < 0) {
      continue;
    }
    uint8_t *made = &origin[graph->tensors[node->outs[i]].storage];
    if (*made && node->kind != DIT_NODE_POINT) {
      fail(reader, "a result lies in memory that was made before");
    }
    *made = *made ? *made : 2;
  }
}

static void check_graph(struct reader *reader) {
  const struct dit_graph *graph = reader->graph;
  uint8_t *origin = take(reader, (size_t)graph->nstorages, 1);
  for (int i = 0; i < graph->ninputs && reader->status == DIT_OK; i++) {
    const int32_t tensor = graph->inputs[i].tensor;
    if (tensor >= 0 && origin[graph->tensors[tensor].storage]++) {
      fail(reader, "two inputs with one storage");
    }
  }
  for (int i = 0; i < graph->nsymbols && reader->status == DIT_OK; i++) {
    const int32_t tensor = graph->inputs[graph->symbols[i].input].tensor;
    if (tensor < 0 ? graph->symbols[i].dim >= 0
                   : graph->symbols[i].dim < 0 || graph->symbols[i].dim >= graph->tensors[tensor].ndim) {
      fail(reader, "a symbol whose value stands nowhere");
    }
  }
  for (int i = 0; i < graph->nnodes && reader->status == DIT_OK; i++) {
    check_node(reader, &graph->nodes[i], origin);
  }
  for (int i = 0; i < graph->noutputs && reader->status == DIT_OK; i++) {
    if (graph->outputs[i].tensor >= 0 && !origin[graph->tensors[graph->outputs[i].tensor].storage]) {
      fail(reader, "an output that nothing made");
    }
  }
}

enum dit_status dit_graph_load(const int64_t *words, size_t count, struct dit_graph **out, struct dit_error *err) {
  struct reader reader = {words, count, 0, NULL, NULL, err, DIT_OK};
  struct dit_graph *graph = take(&reader, 1, sizeof *graph);
  if (!graph) {
    return reader.status;
  }
  reader.graph = graph;
  if (read_word(&reader) != DIT_GRAPH_MAGIC) {
    fail(&reader, "it does not begin with the word of this version");
  }
  if (read_word(&reader) != (int64_t)count) {
    fail(&reader, "its length is not what it says");
  }
  int32_t *const counts[] = {&graph->nsymbols, &graph->nexprs,  &graph->ntensors, &graph->nstorages,
                             &graph->nnodes,   &graph->ninputs, &graph->noutputs, &graph->nargs};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const int64_t most = (int64_t)count < MAX_COUNT ? (int64_t)count : MAX_COUNT;
    *counts[i] = (int32_t)read_within(&reader, 0, most, "a count that the words cannot hold");
  }
  void (*const sections[])(struct reader *) = {read_symbols, read_tensors, read_args,
                                               read_nodes,   read_borders, check_graph};
  for (size_t i = 0; i < sizeof sections / sizeof *sections && reader.status == DIT_OK; i++) {
    sections[i](&reader);
  }
  if (reader.status == DIT_OK && reader.at != count) {
    fail(&reader, "words behind its end");
  }
  if (reader.status != DIT_OK) {
    graph_pool_free(reader.list);
    return reader.status;
  }
  graph->memory = reader.list;
  graph->known = graph->nsymbols ? graph_known_create(graph) : NULL;
  *out = graph;
  return DIT_OK;
}

void dit_graph_destroy(struct dit_graph *graph) {
  if (graph) {
    graph_known_destroy(graph->known);
    graph_pool_free(graph->memory);  // the graph itself is in there
  }
}

void dit_graph_give_memory(struct dit_graph *graph, int32_t node, bool is_given) {
  struct dit_graph_node *nodes = (struct dit_graph_node *)graph->nodes;  // the graph's own memory
  nodes[node].is_given = is_given;
}
