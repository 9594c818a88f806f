/// Tensors of images as the kernels of windows take them (see image.h).
#include "image.h"

#include "plan.h"

bool image_set_data(struct image_data *data, const struct dit_tensor_view *view, int ndim) {
  const int64_t width = (int64_t)dit_dtype_get_size(view->dtype);
  const int channels = view->ndim - ndim - 1;
  *data = (struct image_data){.data = view->data};
  for (int dim = 0; dim < view->ndim; dim++) {
    if (view->sizes[dim] > INT32_MAX) {
      return false;
    }
  }
  data->strides[0] = channels > 0 ? view->strides[0] * width : 0;
  data->strides[1] = view->strides[channels] * width;
  for (int i = 0; i < ndim; i++) {
    data->strides[5 - ndim + i] = view->strides[channels + 1 + i] * width;
  }
  return true;
}

bool image_is_last(const struct dit_tensor_view *view, int ndim) {
  const int channels = view->ndim - ndim - 1;
  return view->sizes[channels] > 1 && view->strides[channels] == 1 && view->sizes[view->ndim - 1] > 1 &&
         view->strides[view->ndim - 1] != 1;
}

void image_set_walk(struct image_walk *walk, const struct dit_tensor_view *view, int ndim) {
  const int channels = view->ndim - ndim - 1;
  int64_t sizes[3] = {1, 1, 1};
  for (int i = 0; i < ndim; i++) {
    sizes[i] = view->sizes[view->ndim - 1 - i];
  }
  *walk = (struct image_walk){
      .numel = view->numel, .is_last = image_is_last(view, ndim), .is_wide = view->numel > INT32_MAX};
  const int first = walk->is_last ? 1 : 0;
  for (int i = 0; i < 3; i++) {
    walk->sizes[first + i] = sizes[i];
  }
  walk->sizes[walk->is_last ? 0 : 3] = view->sizes[channels];
  for (int i = 0; i < 4 && view->numel > 0; i++) {
    walk->divisors[i] = plan_get_divisor(walk->sizes[i]);
  }
}

struct kernel_grid image_get_grid(const struct image_walk *walk) {
  return (struct kernel_grid){.x = kernel_get_blocks(walk->numel, IMAGE_KERNEL_THREADS),
                              .threads = IMAGE_KERNEL_THREADS};
}
