/// The opaque device's graph compiler: a graph whose sizes are numbers becomes a program, an instruction for each node.
///
/// Memory that nobody outside sees lies in the workspace, each piece at its own place. Matrix products (mm, addmm, bmm)
/// are the operators that it knows; it knows no others, and no node that reads other elements of what it writes.
#include <math.h>
#include <string.h>

#include "dit/alloc.h"
#include "graph_program.h"

enum { ALIGNMENT = 64 };

static const struct {
  const char *name;
  int first;  ///< the two factors, among the arguments
  int ndim;
} products[] = {{"aten::mm", 0, 2}, {"aten::addmm", 1, 2}, {"aten::bmm", 0, 3}};
enum { PRODUCTS = sizeof products / sizeof products[0] };

static int find_product(const struct dit_graph_node *node) {
  for (int i = 0; i < PRODUCTS; i++) {
    if (strcmp(node->name, products[i].name) == 0 && !node->overload[0] && node->nargs > products[i].first + 1) {
      return i;
    }
  }
  return -1;
}

static const struct dit_graph_tensor *get_tensor(const struct dit_graph *graph, const struct dit_graph_node *node,
                                                 int k) {
  const struct dit_graph_arg *arg = &graph->args[node->first_arg + k];
  return arg->tag == DIT_ARG_TENSOR ? &graph->tensors[arg->dim.value] : NULL;
}

static bool supports_product(const struct dit_graph *graph, const struct dit_graph_node *node) {
  const int product = find_product(node);
  if (product < 0 || node->nouts != 1 || node->outs[0] < 0 || (products[product].first && node->nargs != 5)) {
    return false;
  }
  const int dtype = graph->tensors[node->outs[0]].dtype;
  for (int k = 0; k < products[product].first + 2; k++) {
    const struct dit_graph_tensor *tensor = get_tensor(graph, node, k);
    if (!tensor || tensor->dtype != dtype || !graph_program_has(DIT_REGION_EXP, dtype) ||  // of floating dtypes alone
        (k >= products[product].first && tensor->ndim != products[product].ndim)) {
      return false;
    }
  }
  for (int k = products[product].first + 2; k < node->nargs; k++) {
    const uint8_t tag = graph->args[node->first_arg + k].tag;
    if (tag != DIT_ARG_INT && tag != DIT_ARG_DOUBLE) {
      return false;
    }
  }
  return true;
}

bool graph_program_supports(const struct dit_graph *graph, int32_t index) {
  const struct dit_graph_node *node = &graph->nodes[index];
  if (node->kind != DIT_NODE_POINT && node->kind != DIT_NODE_REDUCE) {
    return supports_product(graph, node);
  }
  int work = node->op == DIT_REGION_WHERE ? graph->tensors[node->outs[0]].dtype : -1;
  for (int k = 0; k < node->nargs; k++) {
    const struct dit_graph_tensor *tensor = get_tensor(graph, node, k);
    if (tensor && !graph_program_has_dtype(tensor->dtype)) {
      return false;
    }
    work = tensor && node->op != DIT_REGION_WHERE ? tensor->dtype : work;
  }
  const int dtype = graph->tensors[node->outs[0]].dtype;
  return graph_program_has_dtype(dtype) && graph_program_has(node->op, work < 0 ? dtype : work);
}

// Programs

struct maker {
  const struct dit_graph *graph;
  int32_t *buffer_of;  ///< per storage; -1: none yet
  struct program_buffer *buffers;
  struct program_instruction *instructions;
  struct program_head head;
  struct dit_error *err;
};

static int64_t get_number(struct dit_graph_dim dim) {
  return dim.value;  // the words of a subgraph have no other sizes
}

static int64_t get_bytes(const struct dit_graph_tensor *tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor->ndim; d++) {
    if (get_number(tensor->sizes[d]) == 0) {
      return 0;
    }
    last += (get_number(tensor->sizes[d]) - 1) * get_number(tensor->strides[d]);
  }
  return (last + 1) * (int64_t)dit_dtype_get_size(tensor->dtype);
}

static void add_buffer(struct maker *maker, int32_t tensor, bool is_given) {
  const int32_t storage = maker->graph->tensors[tensor].storage;
  if (maker->buffer_of[storage] >= 0) {
    return;
  }
  const int32_t at = maker->head.nbuffers++;
  struct program_buffer *buffer = &maker->buffers[at];
  maker->buffer_of[storage] = at;
  buffer->bytes = get_bytes(&maker->graph->tensors[tensor]);
  maker->head.ngiven += is_given;
  if (!is_given) {
    buffer->at = maker->head.workspace;
    maker->head.workspace += (buffer->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}

/// Inputs and outputs in their order, then what the nodes make between them.
static void add_buffers(struct maker *maker) {
  const struct dit_graph *graph = maker->graph;
  memset(maker->buffer_of, -1, (size_t)graph->nstorages * sizeof *maker->buffer_of);
  for (int32_t i = 0; i < graph->ninputs; i++) {
    add_buffer(maker, graph->inputs[i].tensor, true);
  }
  for (int32_t i = 0; i < graph->noutputs; i++) {
    add_buffer(maker, graph->outputs[i].tensor, true);
  }
  for (int32_t n = 0; n < graph->nnodes; n++) {
    add_buffer(maker, graph->nodes[n].outs[0], false);
  }
}

static struct program_operand make_operand(const struct maker *maker, int32_t index) {
  const struct dit_graph_tensor *tensor = &maker->graph->tensors[index];
  return (struct program_operand){
      .buffer = maker->buffer_of[tensor->storage], .dtype = tensor->dtype, .offset = get_number(tensor->offset)};
}

/// Over the shape of `shape`, which the tensor is broadcast to. False: it is not.
static bool set_strides(const struct maker *maker, struct program_operand *operand, int32_t index, int32_t shape) {
  const struct dit_graph_tensor *tensor = &maker->graph->tensors[index], *whole = &maker->graph->tensors[shape];
  const int skip = whole->ndim - tensor->ndim;
  for (int d = 0; d < tensor->ndim && skip >= 0; d++) {
    const int64_t size = get_number(tensor->sizes[d]);
    if (size != 1 && size != get_number(whole->sizes[d + skip])) {
      return false;
    }
    operand->strides[d + skip] = size == 1 ? 0 : get_number(tensor->strides[d]);
  }
  return skip >= 0;
}

static struct program_operand make_constant(const struct dit_graph_arg *arg, int dtype) {
  struct program_operand operand = {.buffer = -1, .dtype = dtype, .number = arg->number};
  if (arg->tag == DIT_ARG_DOUBLE) {
    operand.integer = fabs(arg->number) < 9e18 ? (int64_t)arg->number : 0;
  } else {
    operand.integer = arg->dim.value;
    operand.number = (double)operand.integer;
  }
  operand.number = (double)(float)operand.number;  // as of a tensor beside it, the widest of which is float32
  return operand;
}

static bool make_operation(struct maker *maker, const struct dit_graph_node *node,
                           struct program_instruction *instruction) {
  const struct dit_graph *graph = maker->graph;
  const struct dit_graph_arg *args = &graph->args[node->first_arg];
  const int32_t out = node->outs[0], shape = node->kind == DIT_NODE_REDUCE ? (int32_t)args[0].dim.value : out;
  instruction->op = node->op;
  instruction->nargs = node->nargs;
  instruction->ndim = graph->tensors[shape].ndim;
  for (int d = 0; d < instruction->ndim; d++) {
    instruction->sizes[d] = get_number(graph->tensors[shape].sizes[d]);
  }
  instruction->out = make_operand(maker, out);
  bool fits = set_strides(maker, &instruction->out, out, shape);
  for (int k = 0; k < node->nargs && fits; k++) {
    if (args[k].tag != DIT_ARG_TENSOR) {
      instruction->args[k] = make_constant(&args[k], graph->tensors[out].dtype);
      continue;
    }
    instruction->args[k] = make_operand(maker, (int32_t)args[k].dim.value);
    fits = set_strides(maker, &instruction->args[k], (int32_t)args[k].dim.value, shape);
    fits = fits &&
           (instruction->args[k].buffer != instruction->out.buffer ||
            (instruction->args[k].offset == instruction->out.offset &&
             memcmp(instruction->args[k].strides, instruction->out.strides, sizeof instruction->out.strides) == 0));
  }
  return fits;
}

static void turn(int64_t *row, int ndim, int front) {
  int64_t kept[PROGRAM_DIMS];
  memcpy(kept, row, sizeof kept);
  for (int d = 0; d < ndim; d++) {
    row[d] = kept[(d + front) % ndim];
  }
}

/// Folded dimensions are the last ones of an instruction.
static void set_fold(struct program_instruction *instruction, int folded) {
  instruction->nfolded = folded < 0 ? -folded : folded;
  if (folded < 0) {
    turn(instruction->sizes, instruction->ndim, -folded);
    turn(instruction->out.strides, instruction->ndim, -folded);
    turn(instruction->args[0].strides, instruction->ndim, -folded);
  }
}

/// Dimensions: batch, row, column, and the folded one.
static bool make_product(struct maker *maker, const struct dit_graph_node *node,
                         struct program_instruction *instruction) {
  enum { BATCH, ROW, COLUMN, INNER };
  const struct dit_graph *graph = maker->graph;
  const struct dit_graph_arg *args = &graph->args[node->first_arg];
  const int product = find_product(node), first = products[product].first, from = 4 - 1 - products[product].ndim;
  const int32_t left = (int32_t)args[first].dim.value, right = (int32_t)args[first + 1].dim.value, out = node->outs[0];
  const struct dit_graph_tensor *a = &graph->tensors[left], *b = &graph->tensors[right], *c = &graph->tensors[out];
  const int last = products[product].ndim - 1;
  *instruction = (struct program_instruction){.op = PROGRAM_DOT, .ndim = 4, .nfolded = 1, .nargs = 3, .alpha = 1};
  instruction->args[0] = make_operand(maker, left);
  instruction->args[1] = make_operand(maker, right);
  instruction->out = make_operand(maker, out);
  instruction->sizes[BATCH] = 1;
  for (int d = 0; d <= last; d++) {
    instruction->sizes[from + d] = get_number(c->sizes[d]);
    instruction->out.strides[from + d] = get_number(c->strides[d]);
  }
  instruction->sizes[INNER] = get_number(a->sizes[last]);
  if (last == 2) {
    instruction->args[0].strides[BATCH] = get_number(a->strides[0]);
    instruction->args[1].strides[BATCH] = get_number(b->strides[0]);
  }
  instruction->args[0].strides[ROW] = get_number(a->strides[last - 1]);
  instruction->args[0].strides[INNER] = get_number(a->strides[last]);
  instruction->args[1].strides[COLUMN] = get_number(b->strides[last]);
  instruction->args[1].strides[INNER] = get_number(b->strides[last - 1]);
  instruction->args[2] = (struct program_operand){.buffer = -1, .dtype = c->dtype};
  if (first) {
    instruction->args[2] = make_operand(maker, (int32_t)args[0].dim.value);
    struct program_operand base = instruction->args[2];
    if (!set_strides(maker, &base, (int32_t)args[0].dim.value, out)) {
      return false;
    }
    memcpy(instruction->args[2].strides + ROW, base.strides, 2 * sizeof *base.strides);
    instruction->beta = make_constant(&args[3], c->dtype).number;
    instruction->alpha = make_constant(&args[4], c->dtype).number;
  }
  return instruction->sizes[INNER] > 0 && get_number(b->sizes[last - 1]) == instruction->sizes[INNER];
}

static enum dit_status make_instructions(struct maker *maker) {
  const struct dit_graph *graph = maker->graph;
  for (int32_t n = 0; n < graph->nnodes; n++) {
    const struct dit_graph_node *node = &graph->nodes[n];
    const bool is_operation = node->kind == DIT_NODE_POINT || node->kind == DIT_NODE_REDUCE;
    const char *name = is_operation ? dit_region_op_get_name(node->op) : node->name;
    struct program_instruction *instruction = &maker->instructions[maker->head.ninstructions++];
    bool fits = graph_program_supports(graph, n);
    fits = fits && (is_operation ? make_operation(maker, node, instruction) : make_product(maker, node, instruction));
    if (!fits) {
      return dit_error_set(maker->err, DIT_ERR_UNSUPPORTED, "the box has no instruction for %s as it is here", name);
    }
    if (node->kind == DIT_NODE_REDUCE) {
      set_fold(instruction, node->folded);
    }
  }
  return DIT_OK;
}

static enum dit_status join(struct maker *maker, void **bytes, size_t *size) {
  const size_t buffers = (size_t)maker->head.nbuffers * sizeof *maker->buffers;
  const size_t instructions = (size_t)maker->head.ninstructions * sizeof *maker->instructions;
  maker->head.size = sizeof maker->head + buffers + instructions;
  memcpy(maker->head.mark, PROGRAM_MARK, sizeof maker->head.mark);
  char *made = dit_malloc(maker->head.size);
  if (!made) {
    return dit_error_set(maker->err, DIT_ERR_NOMEM, "no memory for a program");
  }
  memcpy(made, &maker->head, sizeof maker->head);
  memcpy(made + sizeof maker->head, maker->buffers, buffers);
  memcpy(made + sizeof maker->head + buffers, maker->instructions, instructions);
  graph_program_seal(made);
  const enum dit_status status = graph_program_check(made, maker->head.size, maker->err);
  if (status != DIT_OK) {
    dit_free(made);
    return status;
  }
  *bytes = made;
  *size = maker->head.size;
  return DIT_OK;
}

enum dit_status graph_program_compile(const struct dit_graph *graph, void **bytes, size_t *size,
                                      struct dit_error *err) {
  if (graph->ninputs + graph->noutputs > PROGRAM_MAX_GIVEN || graph->nnodes > PROGRAM_MAX_INSTRUCTIONS) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the box takes %d inputs and outputs, and %d nodes",
                         PROGRAM_MAX_GIVEN, PROGRAM_MAX_INSTRUCTIONS);
  }
  struct maker maker = {.graph = graph, .err = err};
  maker.buffer_of = dit_calloc((size_t)graph->nstorages + 1, sizeof *maker.buffer_of);
  maker.buffers = dit_calloc((size_t)graph->nstorages + 1, sizeof *maker.buffers);
  maker.instructions = dit_calloc((size_t)graph->nnodes + 1, sizeof *maker.instructions);
  enum dit_status status = DIT_OK;
  if (!maker.buffer_of || !maker.buffers || !maker.instructions) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory for a program");
  } else {
    add_buffers(&maker);
    status = make_instructions(&maker);
  }
  if (status == DIT_OK) {
    status = join(&maker, bytes, size);
  }
  dit_free(maker.buffer_of);
  dit_free(maker.buffers);
  dit_free(maker.instructions);
  return status;
}
