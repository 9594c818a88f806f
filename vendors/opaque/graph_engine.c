/// The opaque device's graph engine (dit/graph.h): it takes whole subgraphs and makes no regions, as chips with a graph
/// compiler do. Programs run in the device's queues, over open addresses; the host never looks at what they compute.
///
/// DITORCH_OPAQUE_GRAPH names what it refuses beyond that: operations (GELU) and operators (aten::mm) that it does not
/// support, dtype:NAME, `compile` (it supports everything and makes no program), compile:9 (programs of 9 nodes and
/// more), or `none`: no engine. wrong:GELU miscompiles an operation: it gives its first argument. Depends on work.c and
/// memory.c.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/numerics.h"
#include "dit/options.h"
#include "graph_program.h"
#include "opaque.h"

#define VERSION "1"  // of what a program's bytes mean

/// Counted: work that is queued outlives the plan that queued it.
struct program {
  atomic_int references;
  size_t size;
  void *bytes;
};

static const char *get_refused(void) {
  const int index = dit_option_find("opaque_graph");
  return index >= 0 ? dit_option_get_text(index) : "";
}

/// Is `prefix` and `name` one of the words?
static bool is_refused(const char *prefix, const char *name) {
  const char *text = get_refused();
  const size_t front = strlen(prefix), back = strlen(name);
  while (*text) {
    const size_t length = strcspn(text, ",");
    if (length == front + back && strncmp(text, prefix, front) == 0 && strncmp(text + front, name, back) == 0) {
      return true;
    }
    text += length + (text[length] == ',');
  }
  return false;
}

static bool lacks_dtype(int dtype) {
  uint64_t dtypes;
  uint32_t layouts;
  dit_opaque_get_missing(&dtypes, &layouts);
  return (dtype < 64 && dtypes >> dtype & 1) || is_refused("dtype:", dit_dtype_get_name(dtype));
}

static bool supports_node(const struct dit_graph *graph, int32_t index, int device) {
  (void)device;
  const struct dit_graph_node *node = &graph->nodes[index];
  const bool is_operation = node->kind == DIT_NODE_POINT || node->kind == DIT_NODE_REDUCE;
  if (!graph_program_supports(graph, index) ||
      is_refused("", is_operation ? dit_region_op_get_name(node->op) : node->name)) {
    return false;
  }
  for (int k = 0; k < node->nargs; k++) {
    const struct dit_graph_arg *arg = &graph->args[node->first_arg + k];
    if (arg->tag == DIT_ARG_TENSOR && lacks_dtype(graph->tensors[arg->dim.value].dtype)) {
      return false;
    }
  }
  return !lacks_dtype(graph->tensors[node->outs[0]].dtype);
}

static enum dit_status check_refusal(const struct dit_graph *graph, struct dit_error *err) {
  const char *limit = strstr(get_refused(), "compile:");
  if (is_refused("", "compile") || (limit && graph->nnodes >= atoi(limit + strlen("compile:")))) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "DITORCH_OPAQUE_GRAPH refuses programs (%s)", get_refused());
  }
  return DIT_OK;
}

/// A compiler with a mistake, for the tests of what finds one.
static void miscompile(void *bytes) {
  const struct program_parts parts = graph_program_get_parts(bytes);
  struct program_instruction *instructions = (struct program_instruction *)(uintptr_t)parts.instructions;
  for (int32_t i = 0; i < parts.head->ninstructions; i++) {
    const char *name = dit_region_op_get_name(instructions[i].op);
    if (name && instructions[i].nfolded == 0 && is_refused("wrong:", name)) {
      instructions[i].op = DIT_REGION_COPY;
      instructions[i].nargs = 1;
    }
  }
  graph_program_seal(bytes);
}

/// Takes the bytes.
static enum dit_status make_program(void *bytes, size_t size, void **out, struct dit_error *err) {
  struct program *program = dit_malloc(sizeof *program);
  if (!program) {
    dit_free(bytes);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a program");
  }
  atomic_init(&program->references, 1);
  program->bytes = bytes;
  program->size = size;
  *out = program;
  return DIT_OK;
}

static enum dit_status compile_graph(const int64_t *words, size_t count, int device, void **out,
                                     struct dit_error *err) {
  (void)device;
  struct dit_graph *graph = NULL;
  void *bytes = NULL;
  size_t size = 0;
  DIT_RETURN_IF_NOT_OK(dit_graph_load(words, count, &graph, err));
  enum dit_status status = check_refusal(graph, err);
  if (status == DIT_OK) {
    status = graph_program_compile(graph, &bytes, &size, err);
  }
  dit_graph_destroy(graph);
  if (status == DIT_OK) {
    miscompile(bytes);
    status = make_program(bytes, size, out, err);
  }
  return status;
}

static void release_graph(void *handle) {
  struct program *program = handle;
  if (program && atomic_fetch_sub(&program->references, 1) == 1) {
    dit_free(program->bytes);
    dit_free(program);
  }
}

static enum dit_status measure(void *handle, int64_t *workspace, struct dit_error *err) {
  (void)err;
  *workspace = graph_program_get_parts(((struct program *)handle)->bytes).head->workspace;
  return DIT_OK;
}

// Runs

struct launch {
  struct program *program;
  void *workspace;
  void *data[PROGRAM_MAX_GIVEN];
};

static bool open_buffers(const struct launch *launch, void **buffers, struct dit_error *err) {
  const struct program_parts parts = graph_program_get_parts(launch->program->bytes);
  char *workspace = NULL;
  if (parts.head->workspace > 0) {
    workspace = dit_opaque_open(launch->workspace, (size_t)parts.head->workspace);
  }
  for (int32_t i = 0; i < parts.head->nbuffers; i++) {
    const struct program_buffer *buffer = &parts.buffers[i];
    buffers[i] = NULL;
    if (buffer->bytes > 0) {
      buffers[i] = i < parts.head->ngiven ? dit_opaque_open(launch->data[i], (size_t)buffer->bytes)
                   : workspace            ? workspace + buffer->at
                                          : NULL;
      if (!buffers[i]) {
        (void)dit_error_set(err, DIT_ERR_DEVICE, "an illegal address: buffer %d of a program", (int)i);
        return false;
      }
    }
  }
  return true;
}

static bool run_program(void *arguments, struct dit_error *err) {
  struct launch *launch = arguments;
  const struct program_parts parts = graph_program_get_parts(launch->program->bytes);
  void **buffers = dit_malloc((size_t)parts.head->nbuffers * sizeof *buffers);
  bool done = false;
  if (!buffers) {
    (void)dit_error_set(err, DIT_ERR_NOMEM, "no memory in the box for a program");
  } else if (open_buffers(launch, buffers, err)) {
    graph_program_run(launch->program->bytes, buffers);
    done = true;
  }
  dit_free(buffers);
  return done;
}

static enum dit_status run_graph(void *handle, int device, void *stream, void *const *data, void *workspace,
                                 struct dit_error *err) {
  struct launch launch = {.program = handle, .workspace = workspace};
  const size_t given = (size_t)graph_program_get_parts(launch.program->bytes).head->ngiven;
  if (given) {
    memcpy(launch.data, data, given * sizeof *data);
  }
  atomic_fetch_add(&launch.program->references, 1);
  enum dit_status status = opaque_launch(device, stream, "a program", run_program, &launch,
                                         offsetof(struct launch, data) + given * sizeof *data, err);
  if (status != DIT_OK) {
    release_graph(handle);
    return status;
  }
  // Behind the program, and also when the device has failed and leaves the program out.
  void *queue = dit_opaque_get_queue(device, stream);
  status = dit_host_get_device()->stream_launch_host(device, queue, release_graph, handle, err);
  if (status != DIT_OK) {
    const enum dit_status ended = dit_host_get_device()->stream_synchronize(device, queue, NULL);
    (void)ended;  // it has, in whatever way
    release_graph(handle);
  }
  return status;
}

static void describe_graph(void *handle, char *text, size_t size) {
  const struct program_head *head = graph_program_get_parts(((struct program *)handle)->bytes).head;
  snprintf(text, size, "%d instructions, %lld bytes of workspace", (int)head->ninstructions,
           (long long)head->workspace);
}

// Programs on disk

/// A refusal is part of it: what the engine was told to refuse must not come from disk.
static enum dit_status fingerprint(int device, uint8_t out[32], struct dit_error *err) {
  (void)device;
  char text[1200];
  const int64_t size = snprintf(text, sizeof text, "box " VERSION " " DIT_VERSION_TEXT " %s", get_refused());
  const int64_t length = size < (int64_t)sizeof text ? size : (int64_t)sizeof text - 1, stride = 1;
  const struct dit_tensor_view view = {
      .data = text, .sizes = &length, .strides = &stride, .numel = length, .ndim = 1, .dtype = DIT_DTYPE_U8};
  struct dit_hash hash;
  DIT_RETURN_IF_NOT_OK(dit_tensor_get_hash(&view, &hash, err));
  memset(out, 0, 32);
  memcpy(out, &hash, sizeof hash);
  return DIT_OK;
}

static enum dit_status save(void *handle, dit_graph_write *write, void *context, struct dit_error *err) {
  const struct program *program = handle;
  return write(context, program->bytes, program->size, err);
}

static enum dit_status load(const void *bytes, size_t size, int device, void **out, struct dit_error *err) {
  (void)device;
  void *copy = dit_malloc(size);  // aligned
  if (!copy) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a program");
  }
  memcpy(copy, bytes, size);
  const enum dit_status status = graph_program_check(copy, size, err);
  if (status != DIT_OK) {
    dit_free(copy);
    return status;
  }
  return make_program(copy, size, out, err);
}

static const struct dit_graph_engine engine = {
    .abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
    .struct_size = sizeof(struct dit_graph_engine),
    .name = "box",
    .version = DIT_VERSION_TEXT,
    .supports_node = supports_node,
    .compile_graph = compile_graph,
    .release_graph = release_graph,
    .measure = measure,
    .run_graph = run_graph,
    .describe_graph = describe_graph,
    .fingerprint = fingerprint,
    .save = save,
    .load = load,
};

DIT_API const struct dit_graph_engine *dit_vendor_get_graph_engine(void);

const struct dit_graph_engine *dit_vendor_get_graph_engine(void) {
  return is_refused("", "none") ? NULL : &engine;
}
