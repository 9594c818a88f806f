/// The embedded accelerator's graph engine: regions by the block machine or generated code (engine/region.h), counted
/// references because queued work outlives the plan that queued it.
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "engine/region.h"
#include "host.h"

struct executable {
  struct region_program *program;
  atomic_int references;
  int noperands;
};

struct queued {
  struct executable *executable;
  void *data[DIT_REGION_MAX_OPERANDS];
};

static enum dit_status compile(const struct dit_region *region, int device, void **out, struct dit_error *err) {
  (void)device;
  struct executable *made = dit_calloc(1, sizeof *made);
  if (!made) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a region");
  }
  const enum dit_status status = region_create(region, &made->program, err);
  if (status != DIT_OK) {
    dit_free(made);
    return status;
  }
  atomic_init(&made->references, 1);
  made->noperands = region->noperands;
  *out = made;
  return DIT_OK;
}

static void release(void *executable) {
  struct executable *made = executable;
  if (made && atomic_fetch_sub(&made->references, 1) == 1) {
    region_destroy(made->program);
    dit_free(made);
  }
}

static void run_queued(void *arguments) {
  struct queued *queued = arguments;
  if (!region_run(queued->executable->program, queued->data)) {
    dit_host_stream_fail("no memory to run a fused region in");
  }
  release(queued->executable);
}

static enum dit_status run(void *executable, int device, void *stream, void *const *data, struct dit_error *err) {
  struct executable *made = executable;
  (void)device;
  if (!stream) {
    return region_run(made->program, data) ? DIT_OK
                                           : dit_error_set(err, DIT_ERR_NOMEM, "no memory to run a fused region in");
  }
  struct queued queued = {made, {NULL}};
  for (int i = 0; i < made->noperands; i++) {
    queued.data[i] = data[i];
  }
  atomic_fetch_add(&made->references, 1);
  const enum dit_status status = dit_host_stream_enqueue(stream, run_queued, &queued, sizeof queued, err);
  if (status != DIT_OK) {
    release(made);
  }
  return status;
}

static void describe(void *executable, char *text, size_t size) {
  snprintf(text, size, "%s", region_describe(((struct executable *)executable)->program));
}

static enum dit_status describe_source(void *executable, dit_graph_write *write, void *context, struct dit_error *err) {
  const char *source = region_get_source(((struct executable *)executable)->program);
  return source ? write(context, source, strlen(source), err)
                : dit_error_set(err, DIT_ERR_UNSUPPORTED, "the block machine runs the region; there is no code");
}

static const struct dit_graph_engine engine = {
    .abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
    .struct_size = sizeof(struct dit_graph_engine),
    .name = "host",
    .version = DIT_VERSION_TEXT,
    .supports = region_supports,
    .compile = compile,
    .release = release,
    .run = run,
    .describe = describe,
    .settle = region_code_settle,
    .describe_source = describe_source,
};

DIT_API const struct dit_graph_engine *dit_vendor_get_graph_engine(void);

const struct dit_graph_engine *dit_vendor_get_graph_engine(void) {
  return &engine;
}
