/// The graph engine of NVIDIA devices: regions as kernels that NVRTC makes (region.h). A launch copies its words, so an
/// executable may go before its work has run; kernels stay for the life of the process.
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
  int device, noperands, nwords, threads;
  bool is_empty;                                // nothing to write
  uint16_t alignment[DIT_REGION_MAX_OPERANDS];  // that vectors need; 1: none
  int64_t blocks[2];                            // with vectors, without
  uint64_t words[];                             // the kernel's parameter; addresses first
};

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t count_blocks(const struct region_plan *plan, int lanes) {
  switch (plan->region->kind) {
    case DIT_REGION_POINTWISE:
      return divide_up(plan->outer * (plan->length / lanes), REGION_POINT_THREADS);
    case DIT_REGION_ROWS:
      return plan->threads == REGION_WARP ? divide_up(plan->outer, 8) : plan->outer;
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
  int at = region->noperands;
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
  made->threads = plan->threads == REGION_WARP ? 8 * REGION_WARP : plan->threads;
  for (int k = 0; k < 2; k++) {
    const int64_t wanted = count_blocks(plan, k ? 1 : plan->lanes);
    made->blocks[k] = wanted > MAX_BLOCKS ? MAX_BLOCKS : wanted;
  }
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
  const int nwords = region->noperands * (1 + ndim) + ndim + (plan.nnumbers ? plan.nnumbers : 1);
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
  made->device = device;
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

static enum dit_status run(void *executable, int device, void *stream, void *const *data, struct dit_error *err) {
  const struct executable *made = executable;
  uint64_t words[MAX_WORDS];
  void *parameters[1] = {words};
  bool is_scalar = false;
  if (made->is_empty) {
    return DIT_OK;
  }
  memcpy(words + made->noperands, made->words + made->noperands,
         (size_t)(made->nwords - made->noperands) * sizeof words[0]);
  for (int k = 0; k < made->noperands; k++) {
    words[k] = (uintptr_t)data[k];
    is_scalar |= words[k] % made->alignment[k] != 0;
  }
  void *function = region_kernel_get_function(made->kernel, device, is_scalar);
  DEVICE_ENTER(device);
  DEVICE_LEAVE(driver.launch(function, (unsigned)made->blocks[is_scalar], 1, 1, (unsigned)made->threads, 1, 1, 0,
                             stream, parameters, NULL),
               "a fused kernel");
}

static void describe(void *executable, char *text, size_t size) {
  snprintf(text, size, "%s", region_kernel_get_name(((struct executable *)executable)->kernel));
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
};

DIT_API const struct dit_graph_engine *dit_vendor_get_graph_engine(void);

const struct dit_graph_engine *dit_vendor_get_graph_engine(void) {
  return nvrtc_is_available() ? &engine : NULL;
}
