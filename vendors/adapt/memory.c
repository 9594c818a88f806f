/// Tensors on the device: copies in the order of a stream, scratch tensors, small reads and writes.
///
/// Memory that the host can read is converted where it lies, after a wait for the stream. Else a kernel of the vendor
/// copies (where it has one and nothing must be checked), or the bytes travel to the host and back.
#include "dit/memory.h"

#include <stdio.h>
#include <string.h>

#include "adapt.h"
#include "dit/alloc.h"
#include "dit/kernel.h"
#include "dit/runtime.h"
#include "dit/stage.h"

void adapt_wait(diopiContextHandle_t ctx) {
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (vtable && ctx && (ctx->stream || !dit_stage_is_host_accessible())) {
    (void)!vtable->stream_synchronize(ctx->device, ctx->stream, NULL);
  }
}

void adapt_child_init(struct diopiContext *child, const struct diopiContext *parent) {
  dit_diopi_context_init(child, parent->device, parent->stream);
}

static void set_flags(struct dit_tensor_view *view) {
  view->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  view->flags |=
      dit_shape_is_contiguous(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE : 0;
}

diopiTensorHandle_t adapt_create(diopiContextHandle_t ctx, int ndim, const int64_t *sizes, int dtype) {
  const diopiSize_t size = {sizes, ndim};
  diopiTensorHandle_t out = NULL;
  if (diopiRequireTensor(ctx, &out, &size, NULL, dit_diopi_get_dtype(dtype), diopi_device) != diopiSuccess) {
    adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for a tensor of dtype %s that the adaptor needs",
               dit_dtype_get_name(dtype));
    return NULL;
  }
  return out;
}

void adapt_set_channels_last(int ndim, const int64_t *sizes, int64_t *strides) {
  int64_t step = 1;
  strides[1] = step;
  step *= sizes[1] > 1 ? sizes[1] : 1;
  for (int d = ndim - 1; d > 1; d--) {
    strides[d] = step;
    step *= sizes[d] > 1 ? sizes[d] : 1;
  }
  strides[0] = step;
}

// Copies

/// `in` with the shape of `out`: sizes of 1 and missing dimensions get stride 0.
static bool broadcast(const struct dit_tensor_view *out, const struct dit_tensor_view *in, int64_t *strides,
                      struct dit_tensor_view *wide) {
  const int grow = out->ndim - in->ndim;
  if (grow < 0) {
    return false;
  }
  for (int d = 0; d < out->ndim; d++) {
    const int64_t size = d < grow ? 1 : in->sizes[d - grow];
    if (size != out->sizes[d] && size != 1) {
      return false;
    }
    strides[d] = d < grow || size != out->sizes[d] ? 0 : in->strides[d - grow];
  }
  *wide = *in;
  wide->ndim = out->ndim;
  wide->sizes = out->sizes;
  wide->strides = strides;
  wide->numel = out->numel;
  set_flags(wide);
  return true;
}

/// The bytes that a view covers, on the host; `data` of the result is where its first element lies there.
static bool fetch(const struct dit_tensor_view *view, struct dit_tensor_view *here, char **memory, int64_t *low,
                  int64_t *high) {
  dit_tensor_get_span(view, low, high);
  *memory = dit_malloc((size_t)(*high - *low) + 1);
  const struct dit_copy copy = {.dst = *memory,
                                .src = (char *)view->data + *low,
                                .size = (size_t)(*high - *low),
                                .kind = DIT_COPY_DEVICE_TO_HOST,
                                .src_device = view->device_index};
  if (!*memory || dit_runtime_get_vtable()->copy(&copy, NULL) != DIT_OK) {
    dit_free(*memory);
    *memory = NULL;
    return false;
  }
  *here = *view;
  here->data = *memory - *low;
  return true;
}

static diopiError_t copy_staged(const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                enum adapt_mode mode, char *problem, size_t size) {
  struct dit_tensor_view there, here;
  char *from = NULL, *to = NULL;
  int64_t low, high, begin, end;
  diopiError_t code = diopiErrorOccurred;
  snprintf(problem, size, "the adaptor cannot read the device's memory");
  if (fetch(in, &there, &from, &low, &high) && fetch(out, &here, &to, &begin, &end) &&
      adapt_elements_copy(&here, &there, mode, problem, size)) {
    const struct dit_copy copy = {.dst = (char *)out->data + begin,
                                  .src = to,
                                  .size = (size_t)(end - begin),
                                  .kind = DIT_COPY_HOST_TO_DEVICE,
                                  .dst_device = out->device_index};
    code = dit_runtime_get_vtable()->copy(&copy, NULL) == DIT_OK ? diopiSuccess : diopiErrorOccurred;
  }
  dit_free(from);
  dit_free(to);
  return code;
}

static bool is_reachable(const struct dit_tensor_view *view) {
  return !(view->flags & DIT_TENSOR_ON_DEVICE) || dit_stage_is_host_accessible();
}

diopiError_t adapt_copy(diopiContextHandle_t ctx, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                        enum adapt_mode mode) {
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view wide;
  char problem[160] = "";
  ADAPT_CHECK_ARGUMENT(broadcast(out, in, strides, &wide), "a tensor does not have the shape that it must have");
  if (out->numel == 0) {
    return diopiSuccess;
  }
  const struct dit_kernel_vtable *kernels = dit_runtime_get_kernels();
  if (!is_reachable(out) && !is_reachable(in) && mode == ADAPT_WRAP && kernels && kernels->copy &&
      kernels->copy(ctx->stream, out, &wide, NULL) == DIT_OK) {
    return diopiSuccess;
  }
  adapt_wait(ctx);
  bool done;
  if (is_reachable(out) && is_reachable(in)) {
    dit_memory_access_begin();
    done = adapt_elements_copy(out, &wide, mode, problem, sizeof problem);
    dit_memory_access_end();
  } else {
    done = copy_staged(out, &wide, mode, problem, sizeof problem) == diopiSuccess;
  }
  return done ? diopiSuccess : adapt_fail(diopiErrorOccurred, diopiExtFailureRange, "%s", problem);
}

// Small things

static void init_host_view(struct dit_tensor_view *view, void *data, const int64_t *count, int dtype) {
  static const int64_t one = 1;
  *view = (struct dit_tensor_view){.data = data,
                                   .sizes = count,
                                   .strides = &one,
                                   .numel = *count,
                                   .ndim = 1,
                                   .dtype = (int16_t)dtype,
                                   .device_index = -1,
                                   .flags = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE};
}

diopiError_t adapt_read_ints(diopiContextHandle_t ctx, const struct dit_tensor_view *view, int64_t **out) {
  struct dit_tensor_view host, packed;
  int64_t strides[DIT_MAX_DIMS];
  int64_t *memory = dit_malloc(sizeof(int64_t) * (size_t)(view->numel + 1));
  if (!memory) {
    return adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for %lld indices", (long long)view->numel);
  }
  init_host_view(&host, memory, &view->numel, DIT_DTYPE_I64);
  packed = host;
  packed.ndim = view->ndim;
  packed.sizes = view->sizes;
  packed.strides = strides;
  dit_shape_set_contiguous(view->ndim, view->sizes, strides);
  adapt_wait(ctx);
  char problem[160] = "", *bytes = NULL;
  bool done;
  if (is_reachable(view)) {
    dit_memory_access_begin();
    done = adapt_elements_copy(&packed, view, ADAPT_WRAP, problem, sizeof problem);
    dit_memory_access_end();
  } else {
    struct dit_tensor_view there;
    int64_t low, high;
    done = view->numel == 0 || (fetch(view, &there, &bytes, &low, &high) &&
                                adapt_elements_copy(&packed, &there, ADAPT_WRAP, problem, sizeof problem));
    dit_free(bytes);
  }
  if (!done) {
    dit_free(memory);
    return adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "the adaptor cannot read the device's memory");
  }
  *out = memory;
  return diopiSuccess;
}

diopiError_t adapt_write(diopiContextHandle_t ctx, const struct dit_tensor_view *out, const void *values, int dtype,
                         int64_t count) {
  struct dit_tensor_view host;
  void *room;
  memcpy(&room, &values, sizeof room);  // read only
  init_host_view(&host, room, &count, dtype);
  if (count == 1) {
    host.ndim = 0;
    host.numel = 1;
  }
  if (out->numel == 0) {
    return diopiSuccess;
  }
  if (is_reachable(out)) {
    return adapt_copy(ctx, out, &host, ADAPT_WRAP);
  }
  // one packed tensor travels, then the device's own copy spreads it
  char *bytes = dit_malloc((size_t)count * dit_dtype_get_size(out->dtype));
  diopiTensorHandle_t packed = adapt_create(ctx, host.ndim, host.sizes, out->dtype);
  diopiError_t code = diopiErrorOccurred;
  if (bytes && packed) {
    struct dit_tensor_view ready;
    init_host_view(&ready, bytes, &count, out->dtype);
    ready.ndim = host.ndim;
    (void)adapt_elements_copy(&ready, &host, ADAPT_WRAP, NULL, 0);
    const struct dit_copy copy = {.dst = packed->view.data,
                                  .src = bytes,
                                  .size = (size_t)count * dit_dtype_get_size(out->dtype),
                                  .kind = DIT_COPY_HOST_TO_DEVICE,
                                  .dst_device = out->device_index};
    adapt_wait(ctx);
    code = dit_runtime_get_vtable()->copy(&copy, NULL) == DIT_OK ? adapt_copy(ctx, out, &packed->view, ADAPT_WRAP)
                                                                 : diopiErrorOccurred;
  }
  dit_free(bytes);
  return code;
}
