/// Overlap of strided tensors against counting: every byte of every element is marked in a table.
#include "check.h"
#include "dit/tensor.h"
#include "kernel_check.h"

#define ROOM 4096

struct strided {
  struct dit_tensor_view view;
  int64_t sizes[4], strides[4];
};

static void make_layout(struct strided *layout, char *memory) {
  static const int dtypes[] = {DIT_DTYPE_U8, DIT_DTYPE_F16, DIT_DTYPE_F32, DIT_DTYPE_F64};
  const int ndim = (int)random_below(4);
  int64_t numel = 1;
  const int dtype = dtypes[random_below(4)];
  for (int i = 0; i < ndim; i++) {
    layout->sizes[i] = random_below(12) == 0 ? 0 : 1 + random_below(5);
    layout->strides[i] = random_below(20);
    numel *= layout->sizes[i];
  }
  const int64_t width = (int64_t)dit_dtype_get_size(dtype);
  layout->view = (struct dit_tensor_view){.data = memory + width * random_below(24),
                                          .sizes = layout->sizes,
                                          .strides = layout->strides,
                                          .numel = numel,
                                          .ndim = ndim,
                                          .dtype = (int16_t)dtype,
                                          .storage = memory};
}

/// Mark all bytes; false when one was marked before.
static bool mark(const struct dit_tensor_view *view, const char *memory, uint8_t *table) {
  const size_t width = dit_dtype_get_size(view->dtype);
  int64_t index[4] = {0};
  bool fresh = true;
  for (int64_t left = view->numel; left > 0; left--) {
    int64_t offset = (const char *)view->data - memory;
    for (int i = 0; i < view->ndim; i++) {
      offset += index[i] * view->strides[i] * (int64_t)width;
    }
    for (size_t k = 0; k < width; k++) {
      CHECK(offset + (int64_t)k < ROOM);
      fresh = fresh && !table[offset + (int64_t)k];
      table[offset + (int64_t)k] = 1;
    }
    for (int i = view->ndim - 1; i >= 0 && ++index[i] == view->sizes[i]; i--) {
      index[i] = 0;
    }
  }
  return fresh;
}

static void test_random(void) {
  static char memory[ROOM];
  int yes = 0, no = 0;
  for (int round = 0; round < 20000; round++) {
    uint8_t tables[2][ROOM] = {{0}};
    struct strided a, b;
    make_layout(&a, memory);
    make_layout(&b, memory);
    CHECK(dit_tensor_get_repeated(&a.view) == (mark(&a.view, memory, tables[0]) ? DIT_OVERLAP_NO : DIT_OVERLAP_YES));
    (void)mark(&b.view, memory, tables[1]);
    bool shared = false;
    for (int i = 0; i < ROOM; i++) {
      shared = shared || (tables[0][i] && tables[1][i]);
    }
    CHECK(dit_tensor_get_shared(&a.view, &b.view) == (shared ? DIT_OVERLAP_YES : DIT_OVERLAP_NO));
    yes += shared;
    no += !shared;
  }
  CHECK(yes > 1000 && no > 1000);
}

/// Halves of rows, real and imaginary parts, diagonals: what programs write.
static void test_views(void) {
  static float memory[64];
  const int64_t sizes[] = {4, 8}, strides[] = {16, 1}, pairs[] = {32}, two[] = {2};
  struct dit_tensor_view left = {.data = memory, .sizes = sizes, .strides = strides, .numel = 32, .ndim = 2};
  left.dtype = DIT_DTYPE_F32;
  struct dit_tensor_view right = left, even = left, odd;
  right.data = memory + 8;
  CHECK(dit_tensor_get_shared(&left, &right) == DIT_OVERLAP_NO);
  right.data = memory + 7;
  CHECK(dit_tensor_get_shared(&left, &right) == DIT_OVERLAP_YES);
  even.ndim = 1;
  even.sizes = pairs;
  even.strides = two;
  odd = even;
  odd.data = memory + 1;
  CHECK(dit_tensor_get_shared(&even, &odd) == DIT_OVERLAP_NO);
  CHECK(dit_tensor_get_shared(&even, &left) == DIT_OVERLAP_YES);
  CHECK(dit_tensor_get_repeated(&left) == DIT_OVERLAP_NO);
}

int main(void) {
  random_init();
  RUN(test_random);
  RUN(test_views);
  return 0;
}
