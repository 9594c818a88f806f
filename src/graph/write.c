/// A group of nodes as the words of a graph of its own, for an engine that takes whole subgraphs.
///
/// Every size is a number, and everything is counted in the order in which the nodes meet it: the same subgraph has the
/// same words wherever it stands, in whatever process. Memory that comes from outside is an input, by the tensor that
/// defines it; memory that somebody outside sees is an output.
#include <string.h>

#include "graph_internal.h"

struct words {
  int64_t *data;
  size_t count, capacity;
};

struct writer {
  const struct dit_graph_plan *plan;
  const struct dit_graph *graph;
  const struct graph_fusion *fusion;
  int32_t group;
  int32_t *tensor_of, *storage_of;  ///< numbers in the words; -1: not met
  int32_t ntensors, nstorages, nargs, nnodes, ninputs, noutputs;
  int32_t *inputs, *outputs;  ///< tensors of the plan
  struct words tensors, args, nodes;
  bool failed;
};

static void put(struct writer *writer, struct words *words, int64_t word) {
  if (words->count == words->capacity) {
    const size_t capacity = words->capacity ? words->capacity * 2 : 256;
    int64_t *data = writer->failed ? NULL : dit_realloc(words->data, capacity * sizeof *data);
    if (!data) {
      writer->failed = true;
      return;
    }
    words->data = data;
    words->capacity = capacity;
  }
  words->data[words->count++] = word;
}

static void put_dim(struct writer *writer, struct words *words, int64_t value) {
  put(writer, words, DIT_DIM_CONST);
  put(writer, words, value);
}

static void put_text(struct writer *writer, struct words *words, const char *text) {
  const size_t size = strlen(text);
  put(writer, words, (int64_t)size);
  for (size_t at = 0; at < size; at += sizeof(int64_t)) {
    int64_t word = 0;
    memcpy(&word, text + at, size - at < sizeof word ? size - at : sizeof word);
    put(writer, words, word);
  }
}

static int32_t add_tensor(struct writer *writer, int32_t index) {
  const struct dit_graph_tensor *tensor = &writer->graph->tensors[index];
  const struct dit_graph_layout *layout = &writer->plan->layouts[index];
  if (writer->tensor_of[index] >= 0) {
    return writer->tensor_of[index];
  }
  if (writer->storage_of[tensor->storage] < 0) {
    writer->storage_of[tensor->storage] = writer->nstorages++;
  }
  put(writer, &writer->tensors, tensor->dtype);
  put(writer, &writer->tensors, tensor->ndim);
  put(writer, &writer->tensors, writer->storage_of[tensor->storage]);
  put(writer, &writer->tensors, 0);
  put_dim(writer, &writer->tensors, layout->offset);
  for (int d = 0; d < tensor->ndim; d++) {
    put_dim(writer, &writer->tensors, layout->sizes[d]);
  }
  for (int d = 0; d < tensor->ndim; d++) {
    put_dim(writer, &writer->tensors, layout->strides[d]);
  }
  return writer->tensor_of[index] = writer->ntensors++;
}

static bool is_made_here(const struct writer *writer, int32_t storage) {
  const int32_t producer = writer->fusion->producer[storage];
  return producer >= 0 && writer->fusion->group_of[producer] == writer->group;
}

static int32_t meet_tensor(struct writer *writer, int32_t index) {
  const int32_t storage = writer->graph->tensors[index].storage;
  if (writer->storage_of[storage] < 0 && !is_made_here(writer, storage)) {
    const int32_t definer = writer->plan->storages[storage].tensor;
    (void)add_tensor(writer, definer);
    writer->inputs[writer->ninputs++] = definer;
  }
  return add_tensor(writer, index);
}

static void put_arg(struct writer *writer, const struct dit_graph_arg *arg, int32_t first) {
  struct words *words = &writer->args;
  int64_t bits;
  writer->nargs++;
  put(writer, words, arg->tag);
  switch (arg->tag) {
    case DIT_ARG_TENSOR:
      put(writer, words, meet_tensor(writer, (int32_t)arg->dim.value));
      break;
    case DIT_ARG_INT:
      put_dim(writer, words, dit_graph_plan_get_dim(writer->plan, arg->dim));
      break;
    case DIT_ARG_DOUBLE:
      memcpy(&bits, &arg->number, sizeof bits);
      put(writer, words, bits);
      break;
    case DIT_ARG_BOOL:
    case DIT_ARG_DTYPE:
      put(writer, words, arg->dim.value);
      break;
    case DIT_ARG_STRING:
      put_text(writer, words, arg->text);
      break;
    case DIT_ARG_LIST:
      put(writer, words, arg->count);
      put(writer, words, first);
      break;
    default:
      break;
  }
}

/// The elements of lists stand in front of a node's arguments.
static int32_t put_args(struct writer *writer, const struct dit_graph_node *node) {
  const struct dit_graph_arg *args = &writer->graph->args[node->first_arg];
  int32_t first = writer->nargs;
  for (int k = 0; k < node->nargs; k++) {
    for (int i = 0; args[k].tag == DIT_ARG_LIST && i < args[k].count; i++) {
      put_arg(writer, &writer->graph->args[args[k].first + i], 0);
    }
  }
  const int32_t begin = writer->nargs;
  for (int k = 0; k < node->nargs; k++) {
    put_arg(writer, &args[k], first);
    first += args[k].tag == DIT_ARG_LIST ? args[k].count : 0;
  }
  return begin;
}

static void put_node(struct writer *writer, int32_t index) {
  const struct dit_graph_node *node = &writer->graph->nodes[index];
  struct words *words = &writer->nodes;
  const int32_t first = put_args(writer, node);
  writer->nnodes++;
  put(writer, words, node->kind == DIT_NODE_ISLAND ? DIT_NODE_ROW : node->kind);
  put(writer, words, node->op);
  put(writer, words, node->folded);
  put_text(writer, words, node->name);
  put_text(writer, words, node->overload);
  put_text(writer, words, "");
  put(writer, words, node->nargs);
  put(writer, words, first);
  put(writer, words, node->nouts);
  for (int k = 0; k < node->nouts; k++) {
    const int32_t out = node->outs[k];
    put(writer, words, out < 0 ? -1 : meet_tensor(writer, out));
    const int32_t storage = out < 0 ? -1 : writer->graph->tensors[out].storage;
    if (storage >= 0 && is_made_here(writer, storage) && graph_is_seen(writer->plan, writer->fusion, storage)) {
      writer->outputs[writer->noutputs++] = out;
    }
  }
}

static void copy(int64_t **at, const struct words *words) {
  if (words->count) {
    memcpy(*at, words->data, words->count * sizeof *words->data);
    *at += words->count;
  }
}

static bool join(struct writer *writer, struct graph_piece **list, struct graph_subgraph *out) {
  enum { HEAD = 10, INPUT = 2, OUTPUT = 4 };
  const size_t count = HEAD + writer->tensors.count + writer->args.count + writer->nodes.count +
                       (size_t)writer->ninputs * INPUT + (size_t)writer->noutputs * OUTPUT;
  int64_t *words = graph_pool_take(list, count, sizeof *words);
  int32_t *tensors = graph_pool_take(list, (size_t)writer->ninputs + (size_t)writer->noutputs, sizeof *tensors);
  if (!words || !tensors) {
    return false;
  }
  const int64_t head[HEAD] = {
      DIT_GRAPH_MAGIC,  (int64_t)count, 0, 0, writer->ntensors, writer->nstorages, writer->nnodes, writer->ninputs,
      writer->noutputs, writer->nargs};
  memcpy(words, head, sizeof head);
  int64_t *at = words + HEAD;
  copy(&at, &writer->tensors);
  copy(&at, &writer->args);
  copy(&at, &writer->nodes);
  for (int32_t i = 0; i < writer->ninputs; i++) {
    tensors[i] = writer->inputs[i];
    *at++ = writer->tensor_of[writer->inputs[i]];
    *at++ = -1;
  }
  for (int32_t i = 0; i < writer->noutputs; i++) {
    tensors[writer->ninputs + i] = writer->outputs[i];
    *at = writer->tensor_of[writer->outputs[i]];
    at += OUTPUT;
  }
  *out = (struct graph_subgraph){words, count, writer->ninputs, writer->ninputs + writer->noutputs, tensors};
  return true;
}

enum dit_status graph_write_subgraph(const struct dit_graph_plan *plan, struct graph_piece **list,
                                     const struct graph_fusion *fusion, int32_t group, struct graph_subgraph *out,
                                     struct dit_error *err) {
  const struct dit_graph *graph = plan->graph;
  const size_t storages = (size_t)graph->nstorages, tensors = (size_t)graph->ntensors;
  struct writer writer = {.plan = plan, .graph = graph, .fusion = fusion, .group = group};
  writer.tensor_of = graph_pool_take(list, tensors, sizeof *writer.tensor_of);
  writer.storage_of = graph_pool_take(list, storages, sizeof *writer.storage_of);
  writer.inputs = graph_pool_take(list, storages, sizeof *writer.inputs);
  writer.outputs = graph_pool_take(list, storages, sizeof *writer.outputs);
  bool done = writer.tensor_of && writer.storage_of && writer.inputs && writer.outputs;
  if (done) {
    memset(writer.tensor_of, -1, tensors * sizeof *writer.tensor_of);
    memset(writer.storage_of, -1, storages * sizeof *writer.storage_of);
    for (int32_t n = fusion->groups[group].first; n <= fusion->groups[group].last; n++) {
      if (fusion->group_of[n] == group) {
        put_node(&writer, n);
      }
    }
    done = !writer.failed && join(&writer, list, out);
  }
  dit_free(writer.tensors.data);
  dit_free(writer.args.data);
  dit_free(writer.nodes.data);
  return done ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory to write a subgraph");
}
