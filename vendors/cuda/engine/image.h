/// Tensors of images as the kernels of windows take them (kernels/image.h).
#ifndef DIT_CUDA_ENGINE_IMAGE_H
#define DIT_CUDA_ENGINE_IMAGE_H

#include <stdbool.h>

#include "dit/tensor.h"
#include "kernels/image.h"
#include "launch.h"

/// A tensor (N, C, `ndim` spatial sizes) or without N. False when a size does not fit 31 bits.
bool image_set_data(struct image_data *data, const struct dit_tensor_view *view, int ndim);
/// One thread per element of the tensor, in the order in which it lies.
void image_set_walk(struct image_walk *walk, const struct dit_tensor_view *view, int ndim);
/// Do neighbouring channels lie side by side?
bool image_is_last(const struct dit_tensor_view *view, int ndim);
struct kernel_grid image_get_grid(const struct image_walk *walk);

#endif
