/// Windows of convolution and pooling.
#include "check.h"
#include "dit/window.h"

/// Sizes that torch.nn.functional.max_pool1d, conv1d and conv_transpose1d give.
static void test_windows(void) {
  const struct dit_window plain = {.size = 10, .kernel = 3, .stride = 2, .padding = 1, .dilation = 1};
  struct dit_window window = plain;
  CHECK(dit_window_count(&window) == 5);
  window.ceil = true;
  CHECK(dit_window_count(&window) == 6);
  window = (struct dit_window){.size = 4, .kernel = 2, .stride = 3, .padding = 1, .dilation = 1, .ceil = true};
  CHECK(dit_window_count(&window) == 2);  // a third window would begin in the padding
  window = (struct dit_window){.size = 4, .kernel = 3, .stride = 1, .dilation = 2};
  CHECK(dit_window_count(&window) == 0);
  window.padding = 1;
  CHECK(dit_window_count(&window) == 2);
  CHECK(dit_window_get_transposed(&plain, 1) == 20);
  window = (struct dit_window){.size = 1, .kernel = 1, .stride = 1, .padding = 3, .dilation = 1};
  CHECK(dit_window_get_transposed(&window, 0) == 0);
}

int main(void) {
  RUN(test_windows);
  return 0;
}
