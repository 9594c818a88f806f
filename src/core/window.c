/// How many windows fit (see window.h). Depends on libc only.
#include "dit/window.h"

int64_t dit_window_count(const struct dit_window *window) {
  const int64_t room = window->size + 2 * window->padding - window->dilation * (window->kernel - 1) - 1;
  const int64_t reach = room + (window->ceil ? window->stride - 1 : 0);
  if (reach < 0) {
    return 0;
  }
  const int64_t count = reach / window->stride + 1;
  return count - (window->ceil && (count - 1) * window->stride >= window->size + window->padding);
}

int64_t dit_window_get_transposed(const struct dit_window *window, int64_t extra) {
  const int64_t size =
      (window->size - 1) * window->stride - 2 * window->padding + window->dilation * (window->kernel - 1) + extra + 1;
  return size > 0 ? size : 0;
}
