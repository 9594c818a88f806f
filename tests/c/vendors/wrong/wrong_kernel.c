/// Wrong copies of the kernel table.
#include "dit/kernel.h"
#include "wrong.h"

static struct dit_kernel_vtable table;  ///< empty: there is no kernel table

const struct dit_kernel_vtable *wrong_get_kernels(void) {
  return table.copy ? &table : NULL;
}

static void use(enum dit_status (*copy)(void *, const struct dit_tensor_view *, const struct dit_tensor_view *,
                                        struct dit_error *)) {
  table = *wrong_base_kernels;
  table.copy = copy ? copy : table.copy;
}

static enum dit_status call(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err) {
  return wrong_base_kernels->copy(stream, out, in, err);
}

static void right_kernels(void) {
  use(NULL);
}

static enum dit_status ignore_strides(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                      struct dit_error *err) {
  struct dit_tensor_view packed = *in;
  int64_t strides[DIT_MAX_DIMS];
  dit_shape_set_contiguous(in->ndim, in->sizes, strides);
  packed.strides = strides;
  return call(stream, out, &packed, err);
}
static void kernel_strides_ignored(void) {
  use(ignore_strides);
}

static enum dit_status move_bytes(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                                  struct dit_error *err) {
  struct dit_tensor_view same = *in;
  same.dtype = out->dtype;
  return call(stream, out, &same, err);
}
static void kernel_moves_bytes(void) {
  use(move_bytes);
}

static enum dit_status use_default_stream(void *stream, const struct dit_tensor_view *out,
                                          const struct dit_tensor_view *in, struct dit_error *err) {
  (void)stream;
  DIT_RETURN_IF_NOT_OK(call(NULL, out, in, err));
  return wrong_base->stream_synchronize(0, NULL, err);
}
static void kernel_default_stream(void) {
  use(use_default_stream);
}

static enum dit_status write_and_refuse(void *stream, const struct dit_tensor_view *out,
                                        const struct dit_tensor_view *in, struct dit_error *err) {
  const enum dit_status status = call(stream, out, in, err);
  return in->dtype == DIT_DTYPE_BF16 ? dit_error_set(err, DIT_ERR_UNSUPPORTED, "bfloat16") : status;
}
static void kernel_writes_and_refuses(void) {
  use(write_and_refuse);
}

static enum dit_status fail_on_nothing(void *stream, const struct dit_tensor_view *out,
                                       const struct dit_tensor_view *in, struct dit_error *err) {
  return out->numel == 0 ? dit_error_set(err, DIT_ERR_DEVICE, "a grid of 0 blocks") : call(stream, out, in, err);
}
static void kernel_fails_on_nothing(void) {
  use(fail_on_nothing);
}

const struct wrong_defect wrong_kernel_defects[] = {
    {"right_kernels", right_kernels},
    {"kernel_strides_ignored", kernel_strides_ignored},
    {"kernel_moves_bytes", kernel_moves_bytes},
    {"kernel_default_stream", kernel_default_stream},
    {"kernel_writes_and_refuses", kernel_writes_and_refuses},
    {"kernel_fails_on_nothing", kernel_fails_on_nothing},
    {NULL, NULL},
};
