/// Samples of images at given places: out (N, C, Ho, Wo) from input (N, C, H, W) at grid (N, Ho, Wo, 2).
///
/// grid holds x, then y; -1 and 1 are the outer edges of the first and the last pixel (corners are not aligned).
/// Outside the image are zeros. mode: "bilinear" weighs the four pixels around a place, "bicubic" the sixteen with
/// cubic convolution (a = -0.75), "nearest" takes the pixel that is nearest, halves to the even one. Places that are no
/// number lie outside. Floating dtypes, one for all; half types are computed in float, as the places are. Any strides:
/// inputs are read row-major. out overlaps nothing.
#include "grid_sample.h"

#include <string.h>

static diopiError_t read_mode(struct sample_call *call, const char *mode) {
  static const char *const names[] = {"bilinear", "nearest", "bicubic"};
  for (int i = 0; mode && i < 3; i++) {
    if (strcmp(mode, names[i]) == 0) {
      call->mode = (enum sample_mode)i;
      return diopiSuccess;
    }
  }
  return frame_fail(&call->frame, diopiErrorOccurred, "'mode' is %.32s; valid: \"bilinear\", \"nearest\", \"bicubic\"",
                    mode ? mode : "NULL");
}

static diopiError_t check_shapes(struct sample_call *call) {
  const struct dit_tensor_view *out = &call->out, *input = &call->input, *grid = &call->grid;
  FRAME_CHECK(&call->frame, input->ndim == 4, "'input' has %d dimensions; it must have 4", (int)input->ndim);
  FRAME_CHECK(&call->frame, grid->ndim == 4, "'grid' has %d dimensions; it must have 4", (int)grid->ndim);
  FRAME_CHECK(&call->frame, out->ndim == 4, "'out' has %d dimensions; it must have 4", (int)out->ndim);
  FRAME_CHECK(&call->frame, grid->sizes[3] == 2, "'grid' has %lld numbers per place; it must have 2, x and y",
              (long long)grid->sizes[3]);
  FRAME_CHECK(&call->frame, grid->sizes[0] == input->sizes[0], "'grid' is for %lld images; 'input' has %lld",
              (long long)grid->sizes[0], (long long)input->sizes[0]);
  FRAME_CHECK(&call->frame, input->sizes[2] > 0 && input->sizes[3] > 0, "'input' has images of %lld x %lld pixels",
              (long long)input->sizes[2], (long long)input->sizes[3]);
  const int64_t wanted[4] = {input->sizes[0], input->sizes[1], grid->sizes[1], grid->sizes[2]};
  for (int i = 0; i < 4; i++) {
    FRAME_CHECK(&call->frame, out->sizes[i] == wanted[i], "'out' has size %lld in dimension %d; it must have %lld",
                (long long)out->sizes[i], i, (long long)wanted[i]);
  }
  call->channels = input->sizes[1];
  call->height = input->sizes[2];
  call->width = input->sizes[3];
  call->points = grid->sizes[1] * grid->sizes[2];
  return diopiSuccess;
}

diopiError_t diopiGridSample(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t grid, const char *mode) {
  struct sample_call call = {0};
  FRAME_BEGIN(&call.frame, ctx);
  FRAME_TAKE(&call.frame, out, &call.out);
  FRAME_TAKE(&call.frame, input, &call.input);
  FRAME_TAKE(&call.frame, grid, &call.grid);
  FRAME_TRY(read_mode(&call, mode));
  FRAME_TRY(check_shapes(&call));
  if (!frame_has_dtype(DTYPES_FLOAT, call.input.dtype)) {
    return frame_fail_dtype(&call.frame, "input", call.input.dtype);
  }
  FRAME_CHECK(&call.frame, call.grid.dtype == call.input.dtype && call.out.dtype == call.input.dtype,
              "'input' is %s, 'grid' %s, 'out' %s; they must have one dtype", dit_dtype_get_name(call.input.dtype),
              dit_dtype_get_name(call.grid.dtype), dit_dtype_get_name(call.out.dtype));
  const struct dit_tensor_view *inputs[] = {&call.input, &call.grid};
  FRAME_TRY(frame_check_output(&call.frame, "out", &call.out, inputs, 2, false));
  return call.out.numel == 0 ? diopiSuccess : sample_grid(&call);
}
