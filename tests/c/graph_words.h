/// Words of small graphs (dit/graph.h) for tests: float32 tensors of one dimension, dense, where nothing else is said.
#ifndef DIT_TESTS_GRAPH_WORDS_H
#define DIT_TESTS_GRAPH_WORDS_H

#include "check.h"
#include "dit/graph.h"

struct graph_words {
  int64_t symbols[16], exprs[40], tensors[768], args[512], nodes[1024], inputs[32], outputs[32], all[2500];
  int nsymbols, nexprs, ntensors, nargs, nnodes, ninputs, noutputs;
  int tensor_words, arg_words, node_words;
};

/// A tensor with a storage of its own.
static inline int words_tensor(struct graph_words *words, int64_t size) {
  const int64_t row[] = {DIT_DTYPE_F32, 1, words->ntensors, 0, 0, 0, 0, size, 0, 1};
  memcpy(words->tensors + words->tensor_words, row, sizeof row);
  words->tensor_words += 10;
  return words->ntensors++;
}

/// A tensor of any shape, dense from `offset` on; `storage` < 0: its own.
static inline int words_shaped(struct graph_words *words, int dtype, int storage, int64_t offset, int ndim,
                               const int64_t *sizes) {
  int64_t *row = words->tensors + words->tensor_words, stride = 1;
  const int64_t head[] = {dtype, ndim, storage < 0 ? words->ntensors : storage, 0, DIT_DIM_CONST, offset};
  memcpy(row, head, sizeof head);
  for (int d = ndim - 1; d >= 0; d--) {
    const int64_t dims[] = {DIT_DIM_CONST, sizes[d]}, strides[] = {DIT_DIM_CONST, stride};
    memcpy(row + 6 + 2 * d, dims, sizeof dims);
    memcpy(row + 6 + 2 * ndim + 2 * d, strides, sizeof strides);
    stride *= sizes[d];
  }
  words->tensor_words += 6 + 4 * ndim;
  return words->ntensors++;
}

static inline int words_add_input(struct graph_words *words, int tensor) {
  words->inputs[2 * words->ninputs] = tensor;
  words->inputs[2 * words->ninputs++ + 1] = -1;
  return tensor;
}

static inline int words_input(struct graph_words *words, int64_t size) {
  return words_add_input(words, words_tensor(words, size));
}

static inline void words_output(struct graph_words *words, int tensor) {
  memset(words->outputs + 4 * words->noutputs, 0, 4 * sizeof *words->outputs);
  words->outputs[4 * words->noutputs++] = tensor;
}

/// A node of tensors that writes `out`; `name` NULL: an operation.
static inline int words_call(struct graph_words *words, int kind, int op, int folded, const char *name,
                             const int *tensors, int count, int out) {
  const int first = words->nargs;
  for (int i = 0; i < count; i++) {
    words->args[words->arg_words++] = DIT_ARG_TENSOR;
    words->args[words->arg_words++] = tensors[i];
    words->nargs++;
  }
  int64_t *node = words->nodes + words->node_words, *at = node;
  *at++ = kind;
  *at++ = op;
  *at++ = folded;
  const size_t length = name ? strlen(name) : 0;
  *at++ = (int64_t)length;
  memset(at, 0, (length + 7) / 8 * 8);
  memcpy(at, name ? name : "", length);
  at += (length + 7) / 8;
  const int64_t rest[] = {0, 0, count, first, 1, out};
  memcpy(at, rest, sizeof rest);
  at += 6;
  words->node_words += (int)(at - node);
  words->nnodes++;
  return out;
}

static inline int words_point_to(struct graph_words *words, int op, int a, int b, int out) {
  const int tensors[] = {a, b};
  return words_call(words, DIT_NODE_POINT, op, 0, NULL, tensors, b < 0 ? 1 : 2, out);
}

static inline int words_fold_to(struct graph_words *words, int op, int folded, int a, int out) {
  return words_call(words, DIT_NODE_REDUCE, op, folded, NULL, &a, 1, out);
}

/// A node of one or two tensors with a result of its own, of one dimension; `b` is left out below 0.
static inline int words_node(struct graph_words *words, int kind, int op, int folded, const char *name, int a, int b,
                             int64_t size) {
  const int tensors[] = {a, b};
  return words_call(words, kind, op, folded, name, tensors, b < 0 ? 1 : 2, words_tensor(words, size));
}

static inline int words_point(struct graph_words *words, int op, int a, int b, int64_t size) {
  return words_node(words, DIT_NODE_POINT, op, 0, NULL, a, b, size);
}

/// A dense float32 tensor of two dimensions.
static inline int words_matrix(struct graph_words *words, int64_t rows, int64_t columns) {
  return words_shaped(words, DIT_DTYPE_F32, -1, 0, 2, (const int64_t[]){rows, columns});
}

/// softmax over the rows of x [rows, columns].
static inline int words_softmax(struct graph_words *words, int x, int64_t rows, int64_t columns) {
  const int most = words_fold_to(words, DIT_REGION_MAX, 1, x, words_matrix(words, rows, 1));
  const int less = words_point_to(words, DIT_REGION_SUB, x, most, words_matrix(words, rows, columns));
  const int power = words_point_to(words, DIT_REGION_EXP, less, -1, words_matrix(words, rows, columns));
  const int sum = words_fold_to(words, DIT_REGION_SUM, 1, power, words_matrix(words, rows, 1));
  return words_point_to(words, DIT_REGION_DIV, power, sum, words_matrix(words, rows, columns));
}

/// The number of words in `all`.
static inline size_t words_join(struct graph_words *words) {
  const int parts[] = {2 * words->nsymbols, 5 * words->nexprs,  words->tensor_words, words->arg_words,
                       words->node_words,   2 * words->ninputs, 4 * words->noutputs};
  const int64_t *from[] = {words->symbols, words->exprs,  words->tensors, words->args,
                           words->nodes,   words->inputs, words->outputs};
  size_t at = 10;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    memcpy(words->all + at, from[i], (size_t)parts[i] * sizeof *words->all);
    at += (size_t)parts[i];
  }
  const int64_t head[] = {DIT_GRAPH_MAGIC, (int64_t)at,   words->nsymbols, words->nexprs,   words->ntensors,
                          words->ntensors, words->nnodes, words->ninputs,  words->noutputs, words->nargs};
  memcpy(words->all, head, sizeof head);
  return at;
}

static inline struct dit_graph *words_load(struct graph_words *words) {
  struct dit_error err = {0};
  struct dit_graph *graph = NULL;
  CHECK_OK(dit_graph_load(words->all, words_join(words), &graph, &err));
  return graph;
}

#endif
