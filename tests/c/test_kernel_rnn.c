/// The recurrent cells against their definition.
#include "kernel_check.h"

static const struct dit_kernel_vtable *kernels;

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
      struct sample hy, cy, workspace, input, recurrent, cx, bias, grad_gates, grad_cx, grad_bias;
      int dtype = float_dtypes[d];
      struct sample *all[] = {&hy, &cy, &cx, &grad_cx}, *gates[] = {&workspace, &input, &recurrent, &grad_gates};
      for (int i = 0; i < 4; i++) {
        sample_init(all[i], dtype, 2, state, LAYOUT_CONTIGUOUS);
        sample_init(gates[i], dtype, 2, four, LAYOUT_CONTIGUOUS);
        sample_fill(all[i], false);
        sample_fill(gates[i], false);
      }
      sample_init(&bias, dtype, 1, bias_size, LAYOUT_CONTIGUOUS);
      sample_init(&grad_bias, dtype, 1, bias_size, LAYOUT_CONTIGUOUS);
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
      CHECK_OK(kernels->lstm_cell_backward(NULL, &grad_gates.view, &grad_cx.view, &grad_bias.view, NULL, &hy.view,
                                           &cx.view, &cy.view, &workspace.view, &err));
      for (int64_t i = 0; i < n * hidden; i++) {
        int64_t forget = i / hidden * 4 * hidden + hidden + i % hidden;
        long double want = view_get(&hy.view, i) * view_get(&workspace.view, forget);
        CHECK(is_close(view_get(&grad_cx.view, i), want, tolerance));
        CHECK(view_get(&grad_gates.view, forget + 2 * hidden) == 0);  // no grad_hy: the output gate has no gradient
      }
      for (int64_t column = 0; column < 4 * hidden; column++) {
        long double want = 0;
        for (int64_t row = 0; row < n; row++) {
          want += view_get(&grad_gates.view, row * 4 * hidden + column);
        }
        CHECK(is_close(view_get(&grad_bias.view, column), want, tolerance));
      }
      for (int i = 0; i < 4; i++) {
        sample_destroy(all[i]);
        sample_destroy(gates[i]);
      }
      sample_destroy(&bias);
      sample_destroy(&grad_bias);
    }
  }
}

int main(void) {
  kernels = load_kernels();
  random_init();
  RUN(test_cells);
  dit_runtime_shutdown();
  return 0;
}
