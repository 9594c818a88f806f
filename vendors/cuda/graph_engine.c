/// The graph engine of NVIDIA devices: regions as kernels that NVRTC makes (region.h). A launch copies its words, so an
/// executable may go before its work has run; kernels stay for the life of the process.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "dit/alloc.h"
#include "nvrtc.h"
#include "region.h"

#define MAX_WORDS (DIT_REGION_MAX_OPERANDS * (1 + DIT_GRAPH_MAX_DIMS) + DIT_GRAPH_MAX_DIMS + DIT_REGION_MAX_OPS)
#define MAX_BLOCKS 0x7FFFFFFF

struct executable {
  const struct region_kernel *kernel;
  int noperands, nwords, threads, parts;
  bool is_empty;                                // nothing to write
  uint16_t alignment[DIT_REGION_MAX_OPERANDS];  // that vectors need; 1: none
  int64_t blocks[REGION_VARIANTS];
  uint64_t words[];  // the kernel's parameter; addresses first
};

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t count_blocks(const struct region_plan *plan, int lanes) {
  switch (plan->region->kind) {
    case DIT_REGION_POINTWISE:
      return divide_up(plan->outer * (plan->length / lanes), REGION_POINT_THREADS);
    case DIT_REGION_ROWS:
      return divide_up(plan->outer, plan->block / plan->threads);
    default:
      return divide_up(plan->length, REGION_WARP);
  }
}

static uint64_t get_number(const struct dit_region_op *op) {
  uint64_t word;
  const int klass = region_get_class(op->dtype);
  const int64_t integer = klass == CLASS_BOOL ? op->integer != 0 : op->integer;
  if (klass == CLASS_F32 || klass == CLASS_F64) {
    memcpy(&word, &op->number, sizeof word);
  } else {
    memcpy(&word, &integer, sizeof word);
  }
  return word;
}

/// As `struct call` of the source (region_source.c) has them.
static void set_words(struct executable *made, const struct region_plan *plan) {
  const struct dit_region *region = plan->region;
  const int ndim = region->ndim ? region->ndim : 1;
  int at = region->noperands + 1;
  made->words[at++] = (uint64_t)plan->parts;
  for (int d = 0; d < ndim; d++) {
    made->words[at++] = region->ndim ? (uint64_t)region->sizes[d] : 1;
  }
  for (int k = 0; k < region->noperands; k++) {
    for (int d = 0; d < ndim; d++) {
      made->words[at++] = region->ndim ? (uint64_t)region->operands[k].strides[d] : 0;
    }
  }
  for (int n = 0; n < plan->nnumbers; n++) {
    made->words[at++] = get_number(&region->ops[plan->numbers[n]]);
  }
}

static void set_launch(struct executable *made, const struct region_plan *plan) {
  const struct dit_region *region = plan->region;
  const int64_t writes = region->kind == DIT_REGION_ROWS      ? plan->outer
                         : region->kind == DIT_REGION_COLUMNS ? plan->length
                                                              : plan->outer * plan->length;
  made->is_empty = writes == 0;
  made->threads = plan->block;
  made->parts = plan->parts;
  made->blocks[REGION_MAIN] = count_blocks(plan, plan->lanes);
  made->blocks[REGION_SCALAR] = count_blocks(plan, 1);
  made->blocks[REGION_JOIN] = region->kind == DIT_REGION_COLUMNS ? divide_up(plan->length, REGION_WARP) : plan->outer;
  for (int k = 0; k < region->noperands; k++) {
    made->alignment[k] =
        (uint16_t)(plan->is_vector[k] ? (size_t)plan->lanes * dit_dtype_get_size(region->operands[k].dtype) : 1);
  }
}

static enum dit_status compile(const struct dit_region *region, int device, void **out, struct dit_error *err) {
  struct region_plan plan;
  struct region_text source = {0};
  const struct region_kernel *kernel = NULL;
  if (!region_supports(region)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "a region with an operation or dtype that this engine lacks");
  }
  region_plan_init(&plan, region);
  const int ndim = region->ndim ? region->ndim : 1;
  const int nwords = region->noperands * (1 + ndim) + 2 + ndim + (plan.nnumbers ? plan.nnumbers : 1);
  struct executable *made = dit_calloc(1, sizeof *made + (size_t)nwords * sizeof made->words[0]);
  region_write_source(&plan, &source);
  if (!made || source.failed) {
    dit_free(source.data);
    dit_free(made);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a region");
  }
  const enum dit_status status = region_kernel_get(&source, device, (struct region_kernel **)&kernel, err);
  dit_free(source.data);
  if (status != DIT_OK) {
    dit_free(made);
    return status;
  }
  made->kernel = kernel;
  made->noperands = region->noperands;
  made->nwords = nwords;
  set_words(made, &plan);
  set_launch(made, &plan);
  *out = made;
  return DIT_OK;
}

static void release(void *executable) {
  dit_free(executable);
}

// Scratch memory for folds in parts: a piece for each stream, made when it is first needed and never given back

struct scratch {
  struct scratch *next;
  int device;
  void *stream;
  driver_pointer memory;
};

static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scratch *scratches;

/// In the device's context, with the lock held.
static enum dit_status find_scratch(int device, void *stream, uint64_t *memory, struct dit_error *err) {
  struct scratch *found = scratches;
  while (found && (found->device != device || found->stream != stream)) {
    found = found->next;
  }
  if (!found) {
    found = dit_calloc(1, sizeof *found);
    if (!found) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory to fold in parts");
    }
    const int error = driver.memory_allocate(&found->memory, REGION_SCRATCH);
    if (error != DRIVER_SUCCESS) {
      dit_free(found);
      return driver_check(error, "cuMemAlloc", err);
    }
    *found = (struct scratch){scratches, device, stream, found->memory};
    scratches = found;
  }
  *memory = found->memory;
  return DIT_OK;
}

/// In the device's context.
static enum dit_status launch(const struct executable *made, int device, void *stream, enum region_variant variant,
                              uint64_t *words, struct dit_error *err) {
  void *function = region_kernel_get_function(made->kernel, device, variant), *parameters[1] = {words};
  const int64_t blocks = made->blocks[variant] > MAX_BLOCKS ? MAX_BLOCKS : made->blocks[variant];
  const bool joins = variant == REGION_JOIN;
  return driver_check(driver.launch(function, (unsigned)blocks, joins ? 1 : (unsigned)made->parts, 1,
                                    joins ? REGION_WARP : (unsigned)made->threads, 1, 1, 0, stream, parameters, NULL),
                      "a fused kernel", err);
}

/// The lock keeps another thread's parts out of the scratch memory until these are joined.
static enum dit_status launch_parts(const struct executable *made, int device, void *stream,
                                    enum region_variant variant, uint64_t *words, struct dit_error *err) {
  (void)pthread_mutex_lock(&scratch_lock);
  enum dit_status status = find_scratch(device, stream, &words[made->noperands], err);
  if (status == DIT_OK) {
    status = launch(made, device, stream, variant, words, err);
  }
  if (status == DIT_OK) {
    status = launch(made, device, stream, REGION_JOIN, words, err);
  }
  (void)pthread_mutex_unlock(&scratch_lock);
  return status;
}

static enum dit_status run(void *executable, int device, void *stream, void *const *data, struct dit_error *err) {
  const struct executable *made = executable;
  uint64_t words[MAX_WORDS];
  enum region_variant variant = REGION_MAIN;
  if (made->is_empty) {
    return DIT_OK;
  }
  memcpy(words, made->words, (size_t)made->nwords * sizeof words[0]);
  for (int k = 0; k < made->noperands; k++) {
    words[k] = (uintptr_t)data[k];
    variant = words[k] % made->alignment[k] != 0 ? REGION_SCALAR : variant;
  }
  DEVICE_ENTER(device);
  const enum dit_status status = made->parts > 1 ? launch_parts(made, device, stream, variant, words, err)
                                                 : launch(made, device, stream, variant, words, err);
  context_leave(&guard);
  return status;
}

static void describe(void *executable, char *text, size_t size) {
  snprintf(text, size, "%s", region_kernel_get_name(((struct executable *)executable)->kernel));
}

static enum dit_status describe_source(void *executable, dit_graph_write *write, void *context, struct dit_error *err) {
  const char *source = region_kernel_get_source(((struct executable *)executable)->kernel);
  return write(context, source, strlen(source), err);
}

static const struct dit_graph_engine engine = {
    .abi_version = DIT_GRAPH_ENGINE_ABI_VERSION,
    .struct_size = sizeof(struct dit_graph_engine),
    .name = "cuda",
    .version = DIT_VERSION_TEXT,
    .supports = region_supports,
    .compile = compile,
    .release = release,
    .run = run,
    .describe = describe,
    .describe_source = describe_source,
};

DIT_API const struct dit_graph_engine *dit_vendor_get_graph_engine(void);

const struct dit_graph_engine *dit_vendor_get_graph_engine(void) {
  return nvrtc_is_available() ? &engine : NULL;
}
