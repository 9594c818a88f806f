/// The operators through their table rows: dtypes, shapes, strides and messages as PyTorch gives them (expected values
/// recorded from PyTorch's CPU operators), and what is left to the fallback.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;
static const struct dit_diopi_library *library;  ///< what the calls see; NULL: the vendor has none

#define MADE 8
static struct sample made[MADE];
static int made_count;
static int resized;

static enum dit_status new_tensor(struct dit_call *call, int ndim, const int64_t *sizes, const int64_t *strides,
                                  int dtype, struct dit_tensor_view *out) {
  (void)call;
  CHECK(made_count < MADE);
  struct sample *sample = &made[made_count++];
  sample_init(sample, dtype, ndim, sizes, LAYOUT_CONTIGUOUS);
  if (strides) {  // all tests use dense strides: the same memory in another order
    memcpy(sample->strides, strides, sizeof(int64_t) * (size_t)ndim);
    bool contiguous = dit_shape_is_contiguous(ndim, sizes, strides);
    sample->view.flags = (uint8_t)(DIT_TENSOR_ON_DEVICE | DIT_TENSOR_DENSE | (contiguous ? DIT_TENSOR_CONTIGUOUS : 0));
  }
  *out = sample->view;
  return DIT_OK;
}

static enum dit_status resize(struct dit_call *call, struct dit_tensor_view *io, int ndim, const int64_t *sizes) {
  resized++;
  return new_tensor(call, ndim, sizes, NULL, io->dtype, io);
}

static enum dit_status reserve(struct dit_call *call, void *generator, uint64_t count, uint64_t *seed,
                               uint64_t *offset) {
  (void)call, (void)generator, (void)count;
  *seed = 1;
  *offset = 0;
  return DIT_OK;
}

static void get_storage(const struct dit_tensor_view *view, void **base, size_t *size) {
  *base = view->data;
  *size = (size_t)view->numel * dit_dtype_get_size(view->dtype);
}

static const struct dit_call_services services = {
    .new_tensor = new_tensor, .resize = resize, .random_reserve = reserve, .get_storage = get_storage};

static struct dit_value tensor(const struct sample *sample) {
  struct dit_value value = {.tag = DIT_VALUE_TENSOR};
  value.v.tensor = sample->view;
  return value;
}
static struct dit_value integer(int64_t number) {
  return (struct dit_value){.tag = DIT_VALUE_INT, .v = {.i = number}};
}
static struct dit_value real(double number) {
  return (struct dit_value){.tag = DIT_VALUE_DOUBLE, .v = {.d = number}};
}
static struct dit_value boolean(bool on) {
  return (struct dit_value){.tag = DIT_VALUE_BOOL, .v = {.i = on}};
}

static struct dit_error err;
static struct dit_value rets[DIT_MAX_RETS];

static int default_dtype = DIT_DTYPE_F32;

static enum dit_status run_many(const char *name, const char *overload, struct dit_value *args, int nargs, int nrets) {
  int count;
  const struct dit_op *table = dit_op_get_table(&count);
  memset(&err, 0, sizeof(err));
  for (int i = 0; i < count; i++) {
    if (strcmp(table[i].name, name) == 0 && strcmp(table[i].overload, overload) == 0) {
      struct dit_call call = {.op = &table[i],
                              .nargs = nargs,
                              .nrets = nrets,
                              .args = args,
                              .rets = rets,
                              .default_dtype = default_dtype,
                              .kernels = kernels,
                              .diopi = library,
                              .services = &services,
                              .err = &err};
      return table[i].run(&call);
    }
  }
  CHECK(!"operator is in the table");
  return DIT_ERR_INTERNAL;
}

static enum dit_status run(const char *name, const char *overload, struct dit_value *args, int nargs) {
  return run_many(name, overload, args, nargs, 1);
}

static void release(void) {
  while (made_count > 0) {
    sample_destroy(&made[--made_count]);
  }
  resized = 0;
}

static void check_result(int dtype, int ndim, const int64_t *sizes, const int64_t *strides) {
  const struct dit_tensor_view *view = &rets[0].v.tensor;
  CHECK(rets[0].tag == DIT_VALUE_TENSOR && view->dtype == dtype && view->ndim == ndim);
  for (int i = 0; i < ndim; i++) {
    CHECK(view->sizes[i] == sizes[i] && view->strides[i] == strides[i]);
  }
}

/// result_type: dimensioned > 0-d > wrapped number, by category.
static void test_promotion(void) {
  static const struct {
    int self, other;
    bool zero_dim;
    int result;
  } cases[] = {
      {DIT_DTYPE_F32, DIT_DTYPE_F64, false, DIT_DTYPE_F64},  {DIT_DTYPE_F32, DIT_DTYPE_F64, true, DIT_DTYPE_F32},
      {DIT_DTYPE_F16, DIT_DTYPE_BF16, false, DIT_DTYPE_F32}, {DIT_DTYPE_I32, DIT_DTYPE_F16, true, DIT_DTYPE_F16},
      {DIT_DTYPE_I32, DIT_DTYPE_I64, true, DIT_DTYPE_I32},   {DIT_DTYPE_BOOL, DIT_DTYPE_U8, true, DIT_DTYPE_U8},
      {DIT_DTYPE_U8, DIT_DTYPE_I8, false, DIT_DTYPE_I16},    {DIT_DTYPE_BF16, DIT_DTYPE_F32, true, DIT_DTYPE_BF16}};
  const int64_t sizes[1] = {3}, strides[1] = {1};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct sample a, b;
    sample_init(&a, cases[i].self, 1, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&b, cases[i].other, cases[i].zero_dim ? 0 : 1, sizes, LAYOUT_CONTIGUOUS);
    sample_fill(&a, false);
    sample_fill(&b, false);
    struct dit_value args[3] = {tensor(&a), tensor(&b), integer(1)};
    CHECK_OK(run("aten::add", "Tensor", args, 3));
    check_result(cases[i].result, 1, sizes, strides);
    release();
    sample_destroy(&a);
    sample_destroy(&b);
  }
}

static void test_scalars(void) {
  struct sample ints, halves;
  const int64_t sizes[1] = {3}, strides[1] = {1};
  sample_init(&ints, DIT_DTYPE_I64, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&halves, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&ints, false);
  sample_fill(&halves, false);
  struct dit_value args[3] = {tensor(&ints), real(0.5), integer(1)};
  CHECK_OK(run("aten::add", "Scalar", args, 3));
  check_result(DIT_DTYPE_F32, 1, sizes, strides);
  CHECK(view_get(&rets[0].v.tensor, 1) == view_get(&ints.view, 1) + 0.5L);
  default_dtype = DIT_DTYPE_F64;
  CHECK_OK(run("aten::div", "Tensor", (struct dit_value[]){tensor(&ints), tensor(&ints)}, 2));
  check_result(DIT_DTYPE_F64, 1, sizes, strides);
  default_dtype = DIT_DTYPE_F32;
  struct dit_value half_args[3] = {tensor(&halves), real(0.5), integer(1)};
  CHECK_OK(run("aten::mul", "Scalar", half_args, 2));
  check_result(DIT_DTYPE_F16, 1, sizes, strides);
  CHECK(run("aten::add_", "Scalar", args, 3) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message, "result type Float can't be cast to the desired output type Long") == 0);
  args[1] = integer(1);
  args[2] = real(0.5);
  CHECK(run("aten::add", "Scalar", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "For integral input tensors, argument alpha must not be a floating point number.");
  args[2] = boolean(true);
  CHECK(run("aten::add", "Scalar", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "Boolean alpha only supported for Boolean results.");
  release();
  sample_destroy(&ints);
  sample_destroy(&halves);
}

/// Strides of results: torch.add(a, b).stride() for views made by set strides.
static void test_strides(void) {
  static const struct {
    int ndim;
    int64_t sizes[4], a[4], b[4], want[4];
  } cases[] = {
      {2, {3, 4}, {1, 3}, {1, 3}, {1, 3}},  // two transposed inputs keep their layout
      {2, {3, 4}, {1, 3}, {4, 1}, {1, 3}},  // the first input decides
      {2, {3, 4}, {4, 1}, {1, 3}, {4, 1}},
      {4, {2, 3, 4, 5}, {60, 1, 15, 3}, {60, 1, 15, 3}, {60, 1, 15, 3}},  // channels_last
      {4, {2, 3, 4, 5}, {60, 1, 15, 3}, {60, 20, 5, 1}, {60, 1, 15, 3}},
      {2, {3, 4}, {0, 1}, {0, 1}, {4, 1}},  // expanded
      {3, {2, 3, 4}, {1, 8, 2}, {12, 4, 1}, {1, 8, 2}},
      {2, {3, 4}, {16, 2}, {16, 2}, {4, 1}},  // gaps are closed
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct sample a, b;
    const int64_t big[1] = {200};
    sample_init(&a, DIT_DTYPE_F32, 1, big, LAYOUT_CONTIGUOUS);
    sample_init(&b, DIT_DTYPE_F32, 1, big, LAYOUT_CONTIGUOUS);
    sample_fill(&a, false);
    sample_fill(&b, false);
    struct dit_value args[3] = {tensor(&a), tensor(&b), integer(1)};
    for (int side = 0; side < 2; side++) {
      struct dit_tensor_view *view = &args[side].v.tensor;
      view->ndim = cases[i].ndim;
      view->sizes = cases[i].sizes;
      view->strides = side ? cases[i].b : cases[i].a;
      CHECK_OK(dit_shape_get_numel(view->ndim, view->sizes, &view->numel, &err));
      view->flags = DIT_TENSOR_ON_DEVICE;
      view->flags |= dit_shape_is_contiguous(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_CONTIGUOUS : 0;
      view->flags |= dit_shape_is_dense(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_DENSE : 0;
    }
    CHECK_OK(run("aten::add", "Tensor", args, 3));
    check_result(DIT_DTYPE_F32, cases[i].ndim, cases[i].sizes, cases[i].want);
    for (int64_t j = 0; j < args[0].v.tensor.numel; j++) {
      long double want = (long double)((float)view_get(&args[0].v.tensor, j) + (float)view_get(&args[1].v.tensor, j));
      CHECK(view_get(&rets[0].v.tensor, j) == want);
    }
    release();
    sample_destroy(&a);
    sample_destroy(&b);
  }
}

static void test_messages(void) {
  struct sample small, large, bools;
  const int64_t three[1] = {3}, matrix[2] = {2, 3}, four[1] = {4};
  sample_init(&small, DIT_DTYPE_F32, 1, three, LAYOUT_CONTIGUOUS);
  sample_init(&large, DIT_DTYPE_F32, 2, matrix, LAYOUT_CONTIGUOUS);
  sample_init(&bools, DIT_DTYPE_BOOL, 1, three, LAYOUT_CONTIGUOUS);
  sample_fill(&bools, false);
  struct dit_value args[4] = {tensor(&small), tensor(&large), integer(1), tensor(&small)};
  CHECK(run("aten::add_", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message, "output with shape [3] doesn't match the broadcast shape [2, 3]") == 0);
  args[0] = args[1] = tensor(&bools);
  CHECK(run("aten::sub", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "with two bool tensors is not supported. Use the `^` or `logical_xor()`");
  args[1] = tensor(&small);
  CHECK(run("aten::sub", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "with a bool tensor is not supported. If you are trying to invert a mask");
  struct sample odd;
  sample_init(&odd, DIT_DTYPE_F32, 1, four, LAYOUT_CONTIGUOUS);
  args[0] = tensor(&small);
  args[1] = tensor(&odd);
  CHECK(run("aten::add", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK(strcmp(err.message,
               "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0") == 0);
  sample_destroy(&odd);
  sample_destroy(&small);
  sample_destroy(&large);
  sample_destroy(&bools);
}

static void test_overlap(void) {
  struct sample a;
  const int64_t ten[1] = {10};
  static const int64_t five[1] = {5}, zero[1] = {0}, unit[1] = {1};
  sample_init(&a, DIT_DTYPE_F32, 1, ten, LAYOUT_CONTIGUOUS);
  sample_fill(&a, false);
  struct dit_value args[3] = {tensor(&a), tensor(&a), integer(1)};
  args[0].v.tensor.strides = zero;
  args[0].v.tensor.flags = DIT_TENSOR_ON_DEVICE;
  CHECK(run("aten::add_", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "more than one element of the written-to tensor refers to a single memory location.");
  args[0] = args[1] = tensor(&a);
  for (int i = 0; i < 2; i++) {
    struct dit_tensor_view *view = &args[i].v.tensor;
    view->sizes = five;
    view->strides = unit;
    view->numel = 5;
    view->data = (char *)a.view.data + 8 * i;
    view->handle = view;
  }
  CHECK(run("aten::add_", "Tensor", args, 3) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "some elements of the input tensor and the written-to tensor refer to a single memory");
  args[1].v.tensor.data = a.view.data;
  CHECK_OK(run("aten::add_", "Tensor", args, 3));  // the very same elements
  sample_destroy(&a);
}

/// An out= tensor of the wrong size is resized; one of a wrong dtype is refused or filled by conversion.
static void test_out(void) {
  struct sample a, empty, longs;
  const int64_t sizes[2] = {2, 3}, none[1] = {0}, strides[2] = {3, 1};
  sample_init(&a, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&empty, DIT_DTYPE_F64, 1, none, LAYOUT_CONTIGUOUS);
  sample_init(&longs, DIT_DTYPE_I64, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&a, false);
  struct dit_value args[4] = {tensor(&a), tensor(&a), integer(2), tensor(&empty)};
  CHECK_OK(run("aten::add", "out", args, 4));
  CHECK(resized == 1);
  check_result(DIT_DTYPE_F64, 2, sizes, strides);
  CHECK(is_close(view_get(&rets[0].v.tensor, 4), 3 * view_get(&a.view, 4), 1e-6));
  args[3] = tensor(&longs);
  CHECK(run("aten::add", "out", args, 4) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "result type Float can't be cast to the desired output type Long");
  args[2] = tensor(&longs);
  CHECK(run("aten::mm", "out", args, 3) == DIT_ERR_UNSUPPORTED);
  release();
  sample_destroy(&a);
  sample_destroy(&empty);
  sample_destroy(&longs);
}

/// Whatever is not covered says so before anything is made or written.
static void test_unsupported(void) {
  struct sample complex, deep, cpu;
  int64_t sizes[DIT_MAX_DIMS + 1];
  const int64_t two[1] = {2};
  for (int i = 0; i <= DIT_MAX_DIMS; i++) {
    sizes[i] = 1;
  }
  sample_init(&complex, DIT_DTYPE_C32, 1, two, LAYOUT_CONTIGUOUS);
  sample_init(&deep, DIT_DTYPE_F32, DIT_MAX_DIMS, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&cpu, DIT_DTYPE_F32, 1, two, LAYOUT_CONTIGUOUS);
  struct dit_value args[3] = {tensor(&complex), tensor(&complex), integer(1)};
  CHECK(run("aten::add", "Tensor", args, 3) == DIT_ERR_UNSUPPORTED);
  CHECK(run("aten::relu", "", args, 1) == DIT_ERR_UNSUPPORTED);
  args[0] = args[1] = tensor(&deep);
  args[0].v.tensor.ndim = args[1].v.tensor.ndim = DIT_MAX_DIMS + 1;
  args[0].v.tensor.sizes = args[1].v.tensor.sizes = args[0].v.tensor.strides = args[1].v.tensor.strides = sizes;
  CHECK(run("aten::add", "Tensor", args, 3) == DIT_ERR_UNSUPPORTED);
  args[0] = args[1] = tensor(&cpu);
  args[1].v.tensor.flags &= (uint8_t)~DIT_TENSOR_ON_DEVICE;
  CHECK(run("aten::add", "Tensor", args, 3) == DIT_ERR_UNSUPPORTED);
  CHECK(made_count == 0);
  sample_destroy(&complex);
  sample_destroy(&deep);
  sample_destroy(&cpu);
}

/// Reductions, softmax, products and cat: shapes and dtypes.
static void test_families(void) {
  struct sample a, ints;
  const int64_t sizes[2] = {3, 4}, four[1] = {4}, unit[1] = {1}, row[2] = {1, 4}, wide[2] = {3, 8}, ten[2] = {4, 1};
  const int64_t dims[1] = {0};
  sample_init(&a, DIT_DTYPE_F32, 2, sizes, LAYOUT_PERMUTED);
  sample_init(&ints, DIT_DTYPE_I32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&a, false);
  sample_fill(&ints, false);
  struct dit_value list = {.tag = DIT_VALUE_INTS};
  list.v.ints.data = dims;
  list.v.ints.size = 1;
  struct dit_value none = {.tag = DIT_VALUE_NONE};
  CHECK_OK(run("aten::sum", "", (struct dit_value[]){tensor(&ints), none}, 2));
  check_result(DIT_DTYPE_I64, 0, NULL, NULL);
  CHECK_OK(run("aten::sum", "dim_IntList", (struct dit_value[]){tensor(&a), list, boolean(false), none}, 4));
  check_result(DIT_DTYPE_F32, 1, four, unit);
  CHECK_OK(run("aten::mean", "dim", (struct dit_value[]){tensor(&a), list, boolean(true), none}, 4));
  check_result(DIT_DTYPE_F32, 2, row, ten);
  CHECK(run("aten::mean", "", (struct dit_value[]){tensor(&ints), none}, 2) == DIT_ERR_UNSUPPORTED);
  CHECK_OK(run("aten::_softmax", "", (struct dit_value[]){tensor(&a), integer(-1), boolean(false)}, 3));
  check_result(DIT_DTYPE_F32, 2, sizes, ten);
  CHECK(run("aten::mm", "", (struct dit_value[]){tensor(&a), tensor(&a)}, 2) == DIT_ERR_UNSUPPORTED);
  struct dit_tensor_view views[2] = {a.view, ints.view};
  struct dit_value tensors = {.tag = DIT_VALUE_TENSORS};
  tensors.v.tensors.data = views;
  tensors.v.tensors.size = 2;
  CHECK_OK(run("aten::cat", "", (struct dit_value[]){tensors, integer(1)}, 2));
  const int64_t wide_strides[2] = {8, 1};
  check_result(DIT_DTYPE_F32, 2, wide, wide_strides);
  CHECK(view_get(&rets[0].v.tensor, 1) == view_get(&a.view, 1));
  CHECK(view_get(&rets[0].v.tensor, 13) == view_get(&ints.view, 5));
  release();
  sample_destroy(&a);
  sample_destroy(&ints);
}

/// Elementwise rows: dtype rules, in-place forms, what a library without a function leaves to the fallback.
static void test_elementwise(void) {
  struct sample ints, floats, doubles;
  const int64_t sizes[2] = {2, 3}, strides[2] = {3, 1};
  sample_init(&ints, DIT_DTYPE_I64, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&floats, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&doubles, DIT_DTYPE_F64, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&ints, false);
  sample_fill(&floats, false);
  CHECK_OK(run("aten::sin", "", (struct dit_value[]){tensor(&ints)}, 1));
  check_result(DIT_DTYPE_F32, 2, sizes, strides);
  CHECK_OK(run("aten::neg", "", (struct dit_value[]){tensor(&ints)}, 1));
  check_result(DIT_DTYPE_I64, 2, sizes, strides);
  CHECK(view_get(&rets[0].v.tensor, 2) == -view_get(&ints.view, 2));
  CHECK_OK(run("aten::lt", "Scalar", (struct dit_value[]){tensor(&ints), real(0.5)}, 2));
  check_result(DIT_DTYPE_BOOL, 2, sizes, strides);
  CHECK(run("aten::sin_", "", (struct dit_value[]){tensor(&ints)}, 1) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "result type Float can't be cast to the desired output type Long");
  CHECK_OK(run("aten::exp", "out", (struct dit_value[]){tensor(&floats), tensor(&doubles)}, 2));
  CHECK(rets[0].v.tensor.data == doubles.view.data);
  CHECK(is_close(view_get(&doubles.view, 1), expl(view_get(&floats.view, 1)), 1e-6));
  CHECK(run("aten::neg", "out", (struct dit_value[]){tensor(&floats), tensor(&doubles)}, 2) == DIT_ERR_UNSUPPORTED);
  CHECK(run("aten::pow", "Tensor_Scalar", (struct dit_value[]){tensor(&ints), integer(-1)}, 2) == DIT_ERR_UNSUPPORTED);
  release();
  const struct dit_diopi_library *whole = library;
  static struct dit_diopi_library poor;
  poor = *whole;
  poor.functions.diopiAbsInp = NULL;
  poor.functions.diopiSinInp = NULL;
  poor.functions.diopiSin = NULL;
  library = &poor;
  const long double before = view_get(&floats.view, 3);
  CHECK_OK(run("aten::abs_", "", (struct dit_value[]){tensor(&floats)}, 1));  // diopiAbs with out == self
  CHECK(view_get(&floats.view, 3) == fabsl(before));
  CHECK(run("aten::sin_", "", (struct dit_value[]){tensor(&floats)}, 1) == DIT_ERR_UNSUPPORTED);
  CHECK(run("aten::sin", "", (struct dit_value[]){tensor(&floats)}, 1) == DIT_ERR_UNSUPPORTED);
  library = NULL;
  CHECK(run("aten::neg", "", (struct dit_value[]){tensor(&floats)}, 1) == DIT_ERR_UNSUPPORTED);
  CHECK(made_count == 0);
  library = whole;
  sample_destroy(&ints);
  sample_destroy(&floats);
  sample_destroy(&doubles);
}

/// Lists: in place, results in the places of the inputs, and lists that do not belong together.
static void test_lists(void) {
  struct sample a, b;
  const int64_t sizes[1] = {3}, other[1] = {2}, strides[1] = {1};
  sample_init(&a, DIT_DTYPE_F32, 1, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&b, DIT_DTYPE_F32, 1, other, LAYOUT_CONTIGUOUS);
  sample_fill(&a, false);
  sample_fill(&b, false);
  struct dit_tensor_view views[2] = {a.view, b.view}, single[1] = {a.view};
  struct dit_value list = {.tag = DIT_VALUE_TENSORS}, shorter = {.tag = DIT_VALUE_TENSORS};
  list.v.tensors.data = views;
  list.v.tensors.size = 2;
  shorter.v.tensors.data = single;
  shorter.v.tensors.size = 1;
  const long double before = view_get(&b.view, 1);
  CHECK_OK(run_many("aten::_foreach_neg_", "", (struct dit_value[]){list}, 1, 0));
  CHECK(view_get(&b.view, 1) == -before);
  CHECK(run_many("aten::_foreach_add_", "List", (struct dit_value[]){list, shorter, integer(1)}, 3, 0) ==
        DIT_ERR_UNSUPPORTED);
  CHECK_OK(run("aten::_foreach_sqrt", "", (struct dit_value[]){list}, 1));
  CHECK(rets[0].tag == DIT_VALUE_TENSORS && rets[0].v.tensors.size == 2 && made_count == 2);
  CHECK(views[1].data != b.view.data && views[1].ndim == 1 && views[1].sizes[0] == 2 &&
        views[1].strides[0] == strides[0]);
  views[1] = b.view;
  views[1].dtype = DIT_DTYPE_I32;
  release();
  CHECK(run_many("aten::_foreach_neg_", "", (struct dit_value[]){list}, 1, 0) == DIT_ERR_UNSUPPORTED);
  sample_destroy(&a);
  sample_destroy(&b);
}

/// A vendor without an operator library: arithmetic goes to the fallback before anything is made or written; what the
/// kernel table has is there.
static void test_no_library(void) {
  struct sample a, ints, gates, state;
  const int64_t sizes[2] = {3, 3}, rows[2] = {3, 1}, wide[2] = {3, 12}, bins[1] = {2}, unit[1] = {1};
  sample_init(&a, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&ints, DIT_DTYPE_I32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&gates, DIT_DTYPE_F32, 2, wide, LAYOUT_CONTIGUOUS);
  sample_init(&state, DIT_DTYPE_F32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_fill(&ints, false);
  sample_fill(&gates, false);
  sample_fill(&state, false);
  const struct dit_value x = tensor(&a), none = {.tag = DIT_VALUE_NONE},
                         none_text = {.tag = DIT_VALUE_STRING, .v.string = "none"};
  const struct {
    const char *name, *overload;
    int nargs;
    struct dit_value args[5];
  } calls[] = {{"aten::add", "Tensor", 3, {x, x, integer(1)}},
               {"aten::add", "Scalar", 3, {x, real(2), integer(1)}},
               {"aten::mul_", "Tensor", 2, {x, x}},
               {"aten::relu", "", 1, {x}},
               {"aten::gelu", "", 2, {x, none_text}},
               {"aten::mm", "", 2, {x, x}},
               {"aten::addmm", "", 5, {x, x, x, integer(1), integer(1)}},
               {"aten::_softmax", "", 3, {x, integer(0), boolean(false)}},
               {"aten::sum", "", 2, {x, none}},
               {"aten::native_dropout", "", 3, {x, real(0.5), boolean(true)}},
               {"aten::fill_", "Scalar", 2, {x, integer(1)}}};
  const struct dit_diopi_library *whole = library;
  library = NULL;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    struct dit_value args[5];
    memcpy(args, calls[i].args, sizeof args);
    CHECK(run_many(calls[i].name, calls[i].overload, args, calls[i].nargs, 2) == DIT_ERR_UNSUPPORTED);
    CHECK(made_count == 0 && (unsigned char)a.buffer[GUARD] == GUARD_BYTE);
  }
  CHECK_OK(run("aten::histc", "", (struct dit_value[]){tensor(&ints), integer(2), integer(-200), integer(200)}, 4));
  check_result(DIT_DTYPE_I32, 1, bins, unit);
  struct dit_value cell[5] = {tensor(&gates), tensor(&gates), tensor(&state), none, none};
  CHECK_OK(run_many("aten::_thnn_fused_lstm_cell", "", cell, 5, 3));
  check_result(DIT_DTYPE_F32, 2, sizes, rows);
  release();
  library = whole;
  sample_destroy(&a);
  sample_destroy(&ints);
  sample_destroy(&gates);
  sample_destroy(&state);
}

static void test_table(void) {
  int count;
  const struct dit_op *table = dit_op_get_table(&count);
  CHECK(count >= 400);
  for (int i = 0; i < count; i++) {
    CHECK(strncmp(table[i].name, "aten::", 6) == 0 || strncmp(table[i].name, "torchvision::", 13) == 0 ||
          strncmp(table[i].name, "dlinfer::", 9) == 0);
    CHECK(table[i].overload && table[i].run);
    for (int j = 0; j < i; j++) {
      CHECK(strcmp(table[i].name, table[j].name) != 0 || strcmp(table[i].overload, table[j].overload) != 0);
    }
  }
}

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_table);
  library = dit_diopi_get_active();
  CHECK(library);
  RUN(test_promotion);
  RUN(test_scalars);
  RUN(test_strides);
  RUN(test_messages);
  RUN(test_overlap);
  RUN(test_out);
  RUN(test_unsupported);
  RUN(test_families);
  RUN(test_elementwise);
  RUN(test_lists);
  RUN(test_no_library);
  dit_runtime_shutdown();
  return 0;
}
