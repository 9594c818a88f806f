/// Shapes, strides, broadcasting and overlap.
#include "check.h"
#include "dit/tensor.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

static void test_numel(void) {
  struct dit_error err = {0};
  int64_t numel = -1;
  CHECK_OK(dit_shape_get_numel(0, NULL, &numel, &err));
  CHECK(numel == 1);
  CHECK_OK(dit_shape_get_numel(3, SIZES(2, 3, 4), &numel, &err));
  CHECK(numel == 24);
  CHECK_OK(dit_shape_get_numel(3, SIZES(INT64_MAX, 0, INT64_MAX), &numel, &err));
  CHECK(numel == 0);
  CHECK_OK(dit_shape_get_numel(3, SIZES(INT64_MAX, INT64_MAX, 0), &numel, &err));
  CHECK(numel == 0);
  CHECK_OK(dit_shape_get_numel(2, SIZES(INT64_MAX, 1), &numel, &err));
  CHECK(numel == INT64_MAX);
  numel = 77;
  CHECK(dit_shape_get_numel(2, SIZES(INT64_MAX, 2), &numel, &err) == DIT_ERR_INVALID && numel == 77);
  CHECK(dit_shape_get_numel(2, SIZES(3, -1), &numel, &err) == DIT_ERR_INVALID && numel == 77);
  CHECK_CONTAINS(err.message, "size -1 of dimension 1");
  CHECK(dit_shape_get_numel(2, SIZES(0, -5), &numel, NULL) == DIT_ERR_INVALID);
}

static void test_contiguous(void) {
  int64_t strides[3] = {0};
  dit_shape_set_contiguous(3, SIZES(2, 3, 4), strides);
  CHECK(strides[0] == 12 && strides[1] == 4 && strides[2] == 1);
  dit_shape_set_contiguous(3, SIZES(2, 0, 4), strides);
  CHECK(strides[0] == 4 && strides[1] == 4 && strides[2] == 1);
  dit_shape_set_contiguous(3, SIZES(0, INT64_MAX, INT64_MAX), strides);  // wraps, no undefined behaviour
  CHECK(strides[2] == 1);
  CHECK(dit_shape_is_contiguous(0, NULL, NULL));
  CHECK(dit_shape_is_contiguous(2, SIZES(2, 3), SIZES(3, 1)));
  CHECK(!dit_shape_is_contiguous(2, SIZES(2, 3), SIZES(1, 2)));
  CHECK(dit_shape_is_contiguous(3, SIZES(2, 1, 3), SIZES(3, 99, 1)));
  CHECK(dit_shape_is_contiguous(2, SIZES(5, 0), SIZES(7, 9)));
  CHECK(dit_shape_is_contiguous(2, SIZES(0, 5), SIZES(7, 9)));
  CHECK(!dit_shape_is_contiguous(1, SIZES(3), SIZES(0)));
  CHECK(!dit_shape_is_contiguous(1, SIZES(3), SIZES(2)));
}

static void test_dense(void) {
  CHECK(dit_shape_is_dense(2, SIZES(2, 3), SIZES(3, 1)) && dit_shape_is_dense(2, SIZES(2, 3), SIZES(1, 2)));
  CHECK(dit_shape_is_dense(4, SIZES(2, 3, 4, 5), SIZES(60, 1, 15, 3)));  // channels last
  CHECK(dit_shape_is_dense(3, SIZES(2, 1, 3), SIZES(1, 0, 2)));
  CHECK(dit_shape_is_dense(2, SIZES(0, 3), SIZES(1, 7)));
  CHECK(!dit_shape_is_dense(2, SIZES(2, 3), SIZES(4, 1)));
  CHECK(!dit_shape_is_dense(2, SIZES(2, 3), SIZES(0, 1)));
  CHECK(!dit_shape_is_dense(1, SIZES(3), SIZES(2)));
  CHECK(!dit_shape_is_dense(2, SIZES(2, 2), SIZES(1, 1)));
  CHECK(!dit_shape_is_dense(1, SIZES(3), SIZES(-1)));
}

/// Dense means: the elements fill a gapless range exactly once. Checked by visiting them.
static void check_dense(int ndim, const int64_t *sizes, const int64_t *strides) {
  char seen[512] = {0};
  int64_t index[4] = {0}, count = 0, highest = 0;
  bool dense = true;
  for (;;) {
    int64_t place = 0;
    for (int i = 0; i < ndim; i++) {
      place += index[i] * strides[i];
    }
    dense = dense && !seen[place]++;
    highest = place > highest ? place : highest;
    count++;
    int i = ndim - 1;
    while (i >= 0 && ++index[i] == sizes[i]) {
      index[i--] = 0;
    }
    if (i < 0) {
      break;
    }
  }
  CHECK(dit_shape_is_dense(ndim, sizes, strides) == (dense && highest == count - 1));
}

static void test_dense_everywhere(void) {
  int64_t sizes[3], strides[3];
  for (int code = 0; code < 27; code++) {
    for (int shape = 0; shape < 3; shape++) {
      sizes[shape] = 1 + code / (shape == 0 ? 1 : shape == 1 ? 3 : 9) % 3;
    }
    for (int s = 0; s < 1000; s++) {
      strides[0] = s % 10;
      strides[1] = s / 10 % 10;
      strides[2] = s / 100;
      // A zero or repeated stride over a size-1 dimension is harmless; all others are compared with the visit.
      check_dense(3, sizes, strides);
    }
  }
}

static void test_broadcast(void) {
  struct dit_error err = {0};
  int64_t out[DIT_MAX_DIMS];
  int ndim = 0;
  CHECK_OK(dit_shape_broadcast(0, NULL, &ndim, out, &err));
  CHECK(ndim == 0);
  CHECK_OK(dit_shape_broadcast(2, SIZES(3, 1), &ndim, out, &err));
  CHECK(ndim == 2 && out[0] == 3 && out[1] == 1);
  CHECK_OK(dit_shape_broadcast(1, SIZES(4), &ndim, out, &err));
  CHECK(ndim == 2 && out[0] == 3 && out[1] == 4);
  CHECK_OK(dit_shape_broadcast(4, SIZES(5, 1, 1, 1), &ndim, out, &err));
  CHECK(ndim == 4 && out[0] == 5 && out[1] == 1 && out[2] == 3 && out[3] == 4);
  CHECK(dit_shape_broadcast(2, SIZES(2, 4), &ndim, out, &err) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message,
               "The size of tensor a (3) must match the size of tensor b (2) at non-singleton dimension 2") == 0);
  CHECK(ndim == 4 && out[2] == 3);
  ndim = 0;
  CHECK_OK(dit_shape_broadcast(1, SIZES(3), &ndim, out, &err));
  CHECK(dit_shape_broadcast(1, SIZES(4), &ndim, out, &err) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message,
               "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0") == 0);
}

static void test_broadcast_limits(void) {
  struct dit_error err = {0};
  int64_t out[DIT_MAX_DIMS], many[DIT_MAX_DIMS + 1];
  int ndim = 0;
  CHECK_OK(dit_shape_broadcast(1, SIZES(0), &ndim, out, &err));  // empty with 1 is empty; with 2 a mismatch
  CHECK_OK(dit_shape_broadcast(1, SIZES(1), &ndim, out, &err));
  CHECK(out[0] == 0);
  CHECK(dit_shape_broadcast(1, SIZES(2), &ndim, out, &err) == DIT_ERR_INVALID);
  for (int i = 0; i <= DIT_MAX_DIMS; i++) {
    many[i] = 1;
  }
  ndim = 0;
  CHECK_OK(dit_shape_broadcast(DIT_MAX_DIMS, many, &ndim, out, &err));
  CHECK(ndim == DIT_MAX_DIMS);
  CHECK(dit_shape_broadcast(DIT_MAX_DIMS + 1, many, &ndim, out, &err) == DIT_ERR_UNSUPPORTED);
  CHECK(ndim == DIT_MAX_DIMS);
}

static struct dit_tensor_view make_view(char *data, int ndim, const int64_t *sizes, const int64_t *strides,
                                        const void *storage) {
  struct dit_tensor_view view = {
      .data = data, .sizes = sizes, .strides = strides, .storage = storage, .ndim = ndim, .dtype = DIT_DTYPE_F32};
  CHECK(dit_shape_get_numel(ndim, sizes, &view.numel, NULL) == DIT_OK);
  return view;
}

static void test_span(void) {
  static char data[400];
  int64_t low = 1, high = 1;
  struct dit_tensor_view view = make_view(data, 2, SIZES(2, 3), SIZES(10, 2), data);
  dit_tensor_get_span(&view, &low, &high);
  CHECK(low == 0 && high == 4 * (10 + 4 + 1));
  view = make_view(data + 200, 2, SIZES(2, 3), SIZES(-10, 2), data);
  dit_tensor_get_span(&view, &low, &high);
  CHECK(low == -40 && high == 4 * (4 + 1));
  view = make_view(NULL, 2, SIZES(2, 0), SIZES(10, 2), data);
  dit_tensor_get_span(&view, &low, &high);
  CHECK(low == 0 && high == 0);
  view = make_view(data, 0, NULL, NULL, data);
  dit_tensor_get_span(&view, &low, &high);
  CHECK(low == 0 && high == 4);
}

static void test_internal_overlap(void) {
  static char data[400];
  struct dit_tensor_view view = make_view(data, 2, SIZES(2, 3), SIZES(3, 1), data);
  CHECK(dit_tensor_get_internal_overlap(&view) == DIT_OVERLAP_NO);
  view = make_view(data, 2, SIZES(2, 3), SIZES(0, 1), data);
  CHECK(dit_tensor_get_internal_overlap(&view) == DIT_OVERLAP_YES);
  view = make_view(data, 2, SIZES(1, 3), SIZES(0, 1), data);
  CHECK(dit_tensor_get_internal_overlap(&view) == DIT_OVERLAP_NO);
  view = make_view(data, 2, SIZES(2, 3), SIZES(4, 1), data);
  CHECK(dit_tensor_get_internal_overlap(&view) == DIT_OVERLAP_UNKNOWN);
  view.flags = DIT_TENSOR_DENSE;  // the framework's word is taken
  CHECK(dit_tensor_get_internal_overlap(&view) == DIT_OVERLAP_NO);
}

static void test_alias(void) {
  static char data[400], other[400];
  struct dit_tensor_view a = make_view(data, 2, SIZES(2, 3), SIZES(3, 1), data);
  struct dit_tensor_view b = a;
  CHECK(dit_tensor_get_alias(&a, &a) == DIT_ALIAS_FULL && dit_tensor_get_alias(&a, &b) == DIT_ALIAS_FULL);
  b = make_view(data, 2, SIZES(2, 3), SIZES(1, 2), data);  // the same bytes in another order
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_PARTIAL);
  b = make_view(data + 4, 2, SIZES(2, 3), SIZES(3, 1), data);
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_PARTIAL && dit_tensor_get_alias(&b, &a) == DIT_ALIAS_PARTIAL);
  b = make_view(data + 24, 2, SIZES(2, 3), SIZES(3, 1), data);
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_NO && dit_tensor_get_alias(&b, &a) == DIT_ALIAS_NO);
  b = make_view(other, 2, SIZES(2, 3), SIZES(3, 1), other);
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_NO);
  b = make_view(data, 2, SIZES(2, 3), SIZES(4, 1), data);
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_UNKNOWN);
  b = make_view(data, 2, SIZES(0, 3), SIZES(4, 1), data);
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_NO);
  b = make_view(data, 2, SIZES(2, 3), SIZES(4, 1), data);
  a.handle = b.handle = &a;  // one framework object
  CHECK(dit_tensor_get_alias(&a, &b) == DIT_ALIAS_FULL);
}

/// Transposed, expanded, 0-d and empty tensors, out and back.
static void test_gather(void) {
  float data[6] = {0, 1, 2, 3, 4, 5}, packed[12] = {0}, back[6] = {9, 9, 9, 9, 9, 9};
  static const float turned[6] = {0, 3, 1, 4, 2, 5};
  struct dit_tensor_view view = make_view((char *)data, 2, SIZES(3, 2), SIZES(1, 3), data);
  dit_tensor_gather(&view, packed);
  CHECK(memcmp(packed, turned, sizeof turned) == 0);
  view.data = back;
  dit_tensor_scatter(&view, packed);
  CHECK(memcmp(back, data, sizeof data) == 0);
  view = make_view((char *)data, 3, SIZES(2, 2, 3), SIZES(3, 0, 1), data);
  dit_tensor_gather(&view, packed);
  CHECK(packed[2] == 2 && packed[3] == 0 && packed[5] == 2 && packed[6] == 3 && packed[11] == 5);
  view = make_view((char *)data, 3, SIZES(2, 3, 1), SIZES(1, 2, 9), data);
  dit_tensor_gather(&view, packed);
  CHECK(packed[1] == 2 && packed[2] == 4 && packed[3] == 1 && packed[5] == 5);
  view = make_view((char *)(data + 4), 0, SIZES(1), SIZES(1), data);
  dit_tensor_gather(&view, packed);
  CHECK(packed[0] == 4 && packed[1] == 2);
  view = make_view((char *)data, 2, SIZES(2, 0), SIZES(1, 1), data);
  dit_tensor_scatter(&view, packed);
  CHECK(data[0] == 0);
}

int main(void) {
  RUN(test_numel);
  RUN(test_contiguous);
  RUN(test_dense);
  RUN(test_dense_everywhere);
  RUN(test_broadcast);
  RUN(test_broadcast_limits);
  RUN(test_span);
  RUN(test_internal_overlap);
  RUN(test_alias);
  RUN(test_gather);
  return 0;
}
