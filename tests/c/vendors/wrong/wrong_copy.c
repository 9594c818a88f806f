/// Defects of copies and fills.
#include "wrong.h"

/// A slot `copy` that changes what is asked for.
#define CHANGED_COPY(name, change)                                                         \
  static enum dit_status name##_run(const struct dit_copy *asked, struct dit_error *err) { \
    struct dit_copy copy = *asked;                                                         \
    change;                                                                                \
    return wrong_base->copy(&copy, err);                                                   \
  }                                                                                        \
  static void name(void) {                                                                 \
    REPLACE(copy, name##_run);                                                             \
  }

CHANGED_COPY(copy_short, copy.size -= copy.size > 4096 && copy.size % 2 ? 1 : 0)
CHANGED_COPY(copy_rounds_up, copy.size = copy.kind == DIT_COPY_DEVICE_TO_HOST ? (copy.size + 7) / 8 * 8 : copy.size)
CHANGED_COPY(copy_aligned_only, copy.dst = (void *)((uintptr_t)copy.dst & ~(uintptr_t)7))
CHANGED_COPY(copy_not_to_peers,
             copy.size = copy.kind == DIT_COPY_DEVICE_TO_DEVICE && copy.dst_device != copy.src_device ? 0 : copy.size)
CHANGED_COPY(copy_not_on_device, copy.size = copy.kind == DIT_COPY_DEVICE_TO_DEVICE ? 0 : copy.size)
CHANGED_COPY(copy_at_most_4mib, copy.size = copy.size > (4 << 20) ? 4 << 20 : copy.size)

/// On a stream of its own: right, but not behind the default stream's work.
static enum dit_status copy_beside(const struct dit_copy *copy, struct dit_error *err) {
  const int device = copy->kind == DIT_COPY_DEVICE_TO_HOST ? copy->src_device : copy->dst_device;
  void *stream = NULL;
  DIT_RETURN_IF_NOT_OK(wrong_base->stream_create(device, 0, &stream, err));
  DIT_RETURN_IF_NOT_OK(wrong_base->copy_async(copy, device, stream, err));
  return wrong_base->stream_destroy(device, stream, err);
}

static void copy_out_of_order(void) {
  REPLACE(copy, copy_beside);
}

static enum dit_status copy_at_once(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  (void)device;
  (void)stream;
  return wrong_base->copy(copy, err);
}

static void async_at_once(void) {
  REPLACE(copy_async, copy_at_once);
}

static enum dit_status drop_on_side(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  return stream ? DIT_OK : wrong_base->copy_async(copy, device, stream, err);
}

static void async_drops(void) {
  REPLACE(copy_async, drop_on_side);
}

static enum dit_status own_device_only(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  if (copy->kind == DIT_COPY_DEVICE_TO_DEVICE && copy->dst_device != copy->src_device) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "peers");
  }
  return wrong_base->copy_async(copy, device, stream, err);
}

static void async_not_to_peers(void) {
  REPLACE(copy_async, own_device_only);
}

static enum dit_status refuse_empty(const struct dit_copy *copy, int device, void *stream, struct dit_error *err) {
  return copy->size == 0 ? dit_error_set(err, DIT_ERR_INVALID, "a copy of 0 bytes")
                         : wrong_base->copy_async(copy, device, stream, err);
}

static void async_refuses_empty(void) {
  REPLACE(copy_async, refuse_empty);
}

// Fills

static enum dit_status set_words_only(int device, void *stream, void *ptr, int value, size_t size,
                                      struct dit_error *err) {
  return wrong_base->memory_set(device, stream, ptr, value, size / 4 * 4, err);
}

static void set_words(void) {
  REPLACE(memory_set, set_words_only);
}

static enum dit_status set_one_more(int device, void *stream, void *ptr, int value, size_t size,
                                    struct dit_error *err) {
  return wrong_base->memory_set(device, stream, ptr, value, size + 1, err);
}

static void set_too_far(void) {
  REPLACE(memory_set, set_one_more);
}

static enum dit_status set_nothing(int device, void *stream, void *ptr, int value, size_t size, struct dit_error *err) {
  return wrong_base->memory_set(device, stream, ptr, value < 0 || value > 255 ? 0 : value, size, err);
}

static void set_value_cut(void) {
  REPLACE(memory_set, set_nothing);
}

const struct wrong_defect wrong_copy_defects[] = {
    {"copy_short", copy_short},
    {"copy_rounds_up", copy_rounds_up},
    {"copy_aligned_only", copy_aligned_only},
    {"copy_not_to_peers", copy_not_to_peers},
    {"copy_not_on_device", copy_not_on_device},
    {"copy_at_most_4mib", copy_at_most_4mib},
    {"copy_out_of_order", copy_out_of_order},
    {"async_at_once", async_at_once},
    {"async_drops", async_drops},
    {"async_not_to_peers", async_not_to_peers},
    {"async_refuses_empty", async_refuses_empty},
    {"set_words", set_words},
    {"set_too_far", set_too_far},
    {"set_value_cut", set_value_cut},
    {NULL, NULL},
};
