/// Lists of window parameters and shapes of images (see window.h).
#include "window.h"

diopiError_t window_read(struct frame *frame, const char *name, diopiSize_t list, int ndim, int64_t least,
                         int64_t other, const int64_t *fallback, int64_t values[3]) {
  const int lead = 3 - ndim;
  const bool absent = !list.data || list.len == 0;
  FRAME_CHECK(frame, (absent && fallback) || (!absent && (list.len == 1 || list.len == ndim)),
              "'%s' has %lld entries; valid: 1 or %d", name, absent ? 0 : (long long)list.len, ndim);
  for (int i = 0; i < 3; i++) {
    values[i] = i < lead ? other : absent ? fallback[i] : list.data[list.len == 1 ? 0 : i - lead];
    FRAME_CHECK(frame, i < lead || (values[i] >= least && values[i] <= INT32_MAX),
                "'%s' has the entry %lld; valid: %lld to 2147483647", name, (long long)values[i], (long long)least);
  }
  return diopiSuccess;
}

diopiError_t window_split(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                          int64_t *batch, int64_t *channels, int64_t spatial[3]) {
  FRAME_CHECK(frame, view->ndim == ndim + 1 || view->ndim == ndim + 2, "'%s' has %d dimensions; valid: %d or %d", name,
              (int)view->ndim, ndim + 1, ndim + 2);
  const int64_t *sizes = view->sizes + view->ndim - ndim;
  *batch = view->ndim == ndim + 2 ? view->sizes[0] : 1;
  *channels = sizes[-1];
  for (int i = 0; i < 3; i++) {
    spatial[i] = i < 3 - ndim ? 1 : sizes[i - 3 + ndim];
  }
  return diopiSuccess;
}

diopiError_t window_check(struct frame *frame, const char *name, const struct dit_tensor_view *view, int ndim,
                          bool has_batch, int64_t batch, int64_t channels, const int64_t spatial[3]) {
  const int count = ndim + 1 + has_batch;
  FRAME_CHECK(frame, view->ndim == count, "'%s' has %d dimensions; valid: %d", name, (int)view->ndim, count);
  for (int dim = 0; dim < count; dim++) {
    const int part = dim - count + ndim + 2;  // 0 batch, 1 channels, 2.. spatial
    const int64_t size = part == 0 ? batch : part == 1 ? channels : spatial[part - 2 + 3 - ndim];
    FRAME_CHECK(frame, view->sizes[dim] == size, "'%s' has size %lld in dimension %d; it must be %lld", name,
                (long long)view->sizes[dim], dim, (long long)size);
  }
  return diopiSuccess;
}
