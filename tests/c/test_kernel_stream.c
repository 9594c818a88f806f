/// Kernels on a side stream: arguments are copied, the work comes in order, results equal the default stream's. Dropout
/// and the recurrent cells against their definition.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;

static void *acquire(int64_t *stream) {
  struct dit_error err = {0};
  void *raw = NULL;
  CHECK_OK(dit_stream_acquire(0, 0, stream, &err));
  CHECK_OK(dit_stream_get_raw(0, *stream, &raw, &err));
  CHECK(raw);
  return raw;
}

/// Views, sizes, strides and the host number are overwritten right after each launch.
static void test_order(void) {
  struct dit_error err = {0};
  struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}}, start = {DIT_SCALAR_DOUBLE, {.d = 3}};
  int64_t stream;
  void *raw = acquire(&stream);
  struct sample a;
  const int64_t sizes[2] = {40, 50};
  sample_init(&a, DIT_DTYPE_F32, 2, sizes, LAYOUT_PERMUTED);
  CHECK_OK(kernels->fill(raw, &a.view, start, &err));
  for (int i = 0; i < 100; i++) {
    double number = i;
    int64_t zeros[2] = {0, 0}, room_sizes[2] = {40, 50}, room_strides[2] = {a.strides[0], a.strides[1]};
    struct dit_tensor_view view = a.view, scalar = {.data = &number,
                                                    .sizes = room_sizes,
                                                    .strides = zeros,
                                                    .numel = 2000,
                                                    .ndim = 2,
                                                    .dtype = DIT_DTYPE_F64};
    view.sizes = room_sizes;
    view.strides = room_strides;
    CHECK_OK(kernels->binary(raw, DIT_BINARY_ADD, &view, &view, &scalar, one, DIT_DTYPE_F32, &err));
    number = 1e9;
    memset(room_sizes, 0x7F, sizeof(room_sizes));
    memset(room_strides, 0x7F, sizeof(room_strides));
    memset(&view, 0, sizeof(view));
  }
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
  for (int64_t i = 0; i < a.view.numel; i++) {
    CHECK(view_get(&a.view, i) == 3 + 99 * 50);
  }
  sample_destroy(&a);
}

/// Every slot once on the stream and once inline.
static void test_same(void) {
  struct dit_error err = {0};
  struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  int64_t stream;
  void *streams[2] = {NULL, acquire(&stream)};
  struct sample a, b, out[2], sum[2], mask[2];
  const int64_t sizes[3] = {2, 30, 30}, kept[3] = {2, 1, 30};
  sample_init(&a, DIT_DTYPE_F32, 3, sizes, LAYOUT_GAPS);
  sample_init(&b, DIT_DTYPE_F32, 3, sizes, LAYOUT_PERMUTED);
  sample_fill(&a, false);
  sample_fill(&b, false);
  for (int i = 0; i < 2; i++) {
    sample_init(&out[i], DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&sum[i], DIT_DTYPE_F32, 3, kept, LAYOUT_CONTIGUOUS);
    sample_init(&mask[i], DIT_DTYPE_BOOL, 3, sizes, LAYOUT_CONTIGUOUS);
  }
  for (int slot = 0; slot < 7; slot++) {
    for (int i = 0; i < 2; i++) {
      void *s = streams[i];
      struct dit_tensor_view *o = &out[i].view;
      enum dit_status status = slot == 0
                                   ? kernels->binary(s, DIT_BINARY_MUL, o, &a.view, &b.view, one, DIT_DTYPE_F32, &err)
                               : slot == 1 ? kernels->unary(s, DIT_UNARY_GELU, o, &a.view, &err)
                               : slot == 2 ? kernels->gemm(s, o, &a.view, &b.view, &b.view, 1, 1, &err)
                               : slot == 3 ? kernels->softmax(s, o, &a.view, 1, false, &err)
                               : slot == 4 ? kernels->reduce(s, DIT_REDUCE_SUM, &sum[i].view, &a.view, 2, &err)
                               : slot == 5 ? kernels->copy(s, o, &a.view, &err)
                                           : kernels->dropout(s, o, &mask[i].view, &a.view, 0.5, 2, 11, 5, &err);
      CHECK_OK(status);
    }
    CHECK_OK(dit_stream_synchronize(0, stream, &err));
    CHECK(memcmp(out[0].view.data, out[1].view.data, (size_t)out[0].view.numel * 4) == 0);
    CHECK(memcmp(sum[0].view.data, sum[1].view.data, (size_t)sum[0].view.numel * 4) == 0);
    CHECK(memcmp(mask[0].view.data, mask[1].view.data, (size_t)mask[0].view.numel) == 0);
  }
  for (int i = 0; i < 2; i++) {
    sample_destroy(&out[i]);
    sample_destroy(&sum[i]);
    sample_destroy(&mask[i]);
  }
  sample_destroy(&a);
  sample_destroy(&b);
}

/// Numbers follow philox by the row-major number of the element, whatever the strides and threads.
static void test_dropout(void) {
  struct dit_error err = {0};
  const int64_t sizes[2] = {37, 1001};
  for (int layout = 0; layout < LAYOUT_EXPANDED; layout++) {
    for (int d = 0; d < 4; d++) {
      struct sample in, out, mask;
      int64_t kept = 0;
      sample_init(&in, float_dtypes[d], 2, sizes, (enum layout)layout);
      sample_init(&out, float_dtypes[d], 2, sizes, LAYOUT_CONTIGUOUS);
      sample_init(&mask, DIT_DTYPE_BOOL, 2, sizes, (enum layout)layout);
      sample_fill(&in, false);
      dit_parallel_set_threads(1 + d);
      CHECK_OK(kernels->dropout(NULL, &out.view, &mask.view, &in.view, 0.75, 4, 123, 1000, &err));
      for (int64_t i = 0; i < in.view.numel; i++) {
        uint32_t random[4];
        dit_philox_generate(123, 0, 1000 + (uint64_t)i / 4, random);
        bool keep = (double)random[i % 4] < 0.75 * 4294967296.0;
        CHECK((view_get(&mask.view, i) != 0) == keep);
        CHECK(view_get(&out.view, i) == (keep ? 4 * view_get(&in.view, i) : 0));
        kept += keep;
      }
      CHECK(fabs((double)kept / (double)in.view.numel - 0.75) < 0.01);
      sample_destroy(&in);
      sample_destroy(&out);
      sample_destroy(&mask);
    }
  }
  dit_parallel_set_threads(0);
}

static long double sigmoid(long double x) {
  return 1 / (1 + expl(-x));
}

static void test_cells(void) {
  struct dit_error err = {0};
  static const int64_t hiddens[] = {1, 5, 130};
  for (int d = 0; d < 4; d++) {
    for (int h = 0; h < 3; h++) {
      const int64_t n = 3, hidden = hiddens[h];
      const int64_t state[2] = {n, hidden}, four[2] = {n, 4 * hidden}, bias_size[1] = {4 * hidden};
      struct sample hy, cy, workspace, input, recurrent, cx, bias, grad_gates, grad_cx;
      int dtype = float_dtypes[d];
      struct sample *all[] = {&hy, &cy, &cx, &grad_cx}, *gates[] = {&workspace, &input, &recurrent, &grad_gates};
      for (int i = 0; i < 4; i++) {
        sample_init(all[i], dtype, 2, state, LAYOUT_CONTIGUOUS);
        sample_init(gates[i], dtype, 2, four, LAYOUT_CONTIGUOUS);
        sample_fill(all[i], false);
        sample_fill(gates[i], false);
      }
      sample_init(&bias, dtype, 1, bias_size, LAYOUT_CONTIGUOUS);
      sample_fill(&bias, false);
      CHECK_OK(kernels->lstm_cell(NULL, &hy.view, &cy.view, &workspace.view, &input.view, &recurrent.view, &cx.view,
                                  &bias.view, &bias.view, &err));
      double tolerance = 12 * get_epsilon(dtype);
      for (int64_t i = 0; i < n * hidden; i++) {
        long double g[4];
        for (int part = 0; part < 4; part++) {
          int64_t at = i / hidden * 4 * hidden + part * hidden + i % hidden;
          long double sum = view_get(&input.view, at) + view_get(&recurrent.view, at) +
                            2 * view_get(&bias.view, part * hidden + i % hidden);
          g[part] = part == 2 ? tanhl(sum) : sigmoid(sum);
          CHECK(is_close(view_get(&workspace.view, at), g[part], tolerance));
        }
        long double c = g[1] * view_get(&cx.view, i) + g[0] * g[2];
        CHECK(is_close(view_get(&cy.view, i), c, tolerance * (1 + (double)fabsl(c))));
        CHECK(is_close(view_get(&hy.view, i), g[3] * tanhl(c), tolerance));
      }
      // cx has an own gradient: f * (d cy); with grad_cy alone d cy is grad_cy
      CHECK_OK(kernels->lstm_cell_backward(NULL, &grad_gates.view, &grad_cx.view, NULL, &hy.view, &cx.view, &cy.view,
                                           &workspace.view, &err));
      for (int64_t i = 0; i < n * hidden; i++) {
        int64_t forget = i / hidden * 4 * hidden + hidden + i % hidden;
        long double want = view_get(&hy.view, i) * view_get(&workspace.view, forget);
        CHECK(is_close(view_get(&grad_cx.view, i), want, tolerance));
        CHECK(view_get(&grad_gates.view, forget + 2 * hidden) == 0);  // no grad_hy: the output gate has no gradient
      }
      for (int i = 0; i < 4; i++) {
        sample_destroy(all[i]);
        sample_destroy(gates[i]);
      }
      sample_destroy(&bias);
    }
  }
}

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_order);
  RUN(test_same);
  RUN(test_dropout);
  RUN(test_cells);
  dit_runtime_shutdown();
  return 0;
}
