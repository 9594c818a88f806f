/// Operators of computer vision, as the library mmcv has them.
///
/// Written by tools/gen_diopi.py from standard/diopi.tsv. Rules that hold for every operator: diopirt.h.
#ifndef DIOPI_FUNCTIONS_MMCV_H
#define DIOPI_FUNCTIONS_MMCV_H

#include "diopi/diopirt.h"

// clang-format off
DIOPI_EXTERN_C_BEGIN

// mmcv pointcloud

/// output (B, O, N, K) = sum over M of scores times (points at knn_idx minus centers); `aggregate` 0 sums.
DIOPI_API diopiError_t diopiAssignScoreWithkMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                 diopiConstTensorHandle_t points, diopiConstTensorHandle_t centers,
                                                 diopiConstTensorHandle_t scores, diopiConstTensorHandle_t knn_idx,
                                                 int64_t B, int64_t N, int64_t npoint, int64_t M, int64_t K,
                                                 int64_t out_dim, int64_t aggregate);

/// Gradients of diopiAssignScoreWithkMmcv with respect to points, centers and scores.
DIOPI_API diopiError_t diopiAssignScoreWithkBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                                         diopiTensorHandle_t grad_centers,
                                                         diopiTensorHandle_t grad_scores,
                                                         diopiConstTensorHandle_t grad_out,
                                                         diopiConstTensorHandle_t points,
                                                         diopiConstTensorHandle_t centers,
                                                         diopiConstTensorHandle_t scores,
                                                         diopiConstTensorHandle_t knn_idx, int64_t B, int64_t N,
                                                         int64_t npoint, int64_t M, int64_t K, int64_t out_dim,
                                                         int64_t aggregate);

/// idx (B, npoint, sample_num) = the first points of xyz (B, N, 3) whose distance to each centre lies in [min_radius,
/// max_radius) or is 0; the first one found fills what is left, 0 where there is none.
DIOPI_API diopiError_t diopiBallQueryMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx,
                                          diopiConstTensorHandle_t center_xyz, diopiConstTensorHandle_t xyz,
                                          int64_t B, int64_t N, int64_t npoint, int64_t sample_num, float min_radius,
                                          float max_radius);

/// diopiBallQueryMmcv over batches of different sizes one after another, with their sizes in the batch_cnt tensors; idx
/// counts within a batch, and begins with -1 where a ball is empty.
DIOPI_API diopiError_t diopiStackBallQueryMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx,
                                               diopiConstTensorHandle_t center_xyz,
                                               diopiConstTensorHandle_t center_xyz_batch_cnt,
                                               diopiConstTensorHandle_t xyz, diopiConstTensorHandle_t xyz_batch_cnt,
                                               float max_radius, int64_t sample_num);

// mmcv box geometry

/// ious = overlap of boxes (x1, y1, x2, y2): of every pair (N, M), or of equal positions (N) when `aligned`. `mode` 0:
/// over the union, 1: over the first box. `offset` is added to widths and heights.
DIOPI_API diopiError_t diopiBboxOverlapsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious,
                                             diopiConstTensorHandle_t bboxes1, diopiConstTensorHandle_t bboxes2,
                                             int64_t mode, int64_t offset, bool aligned);

// mmcv roi pool

/// output (B, C, K, 4) = largest of pool_size + 1 bilinear samples along each border of each box, one quarter of the
/// channels per border; argmax_idx tells which.
DIOPI_API diopiError_t diopiBorderAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                            diopiTensorHandle_t argmax_idx, diopiConstTensorHandle_t input,
                                            diopiConstTensorHandle_t boxes, int64_t pool_size);

/// Gradient of diopiBorderAlignMmcv.
DIOPI_API diopiError_t diopiBorderAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                    diopiConstTensorHandle_t grad_output,
                                                    diopiConstTensorHandle_t boxes,
                                                    diopiConstTensorHandle_t argmax_idx, int64_t pool_size);

// mmcv box geometry

/// ious = overlap of rotated boxes (x, y, w, h, angle), pairs and mode as diopiBboxOverlapsMmcv.
DIOPI_API diopiError_t diopiBoxIouRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious,
                                              diopiConstTensorHandle_t bboxes1, diopiConstTensorHandle_t bboxes2,
                                              int64_t mode, bool aligned);

/// ious = overlap of convex quadrilaterals (four corners), pairs and mode as diopiBboxOverlapsMmcv.
DIOPI_API diopiError_t diopiBoxIouQuadriMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious,
                                             diopiConstTensorHandle_t bboxes1, diopiConstTensorHandle_t bboxes2,
                                             int64_t mode, bool aligned);

// mmcv deform sampling

/// Content-aware upsampling: each output pixel is a weighted sum of a kernel_size^2 neighbourhood of `features`,
/// weights from `masks` by group of channels, enlarged by scale_factor. rfeatures, routput and rmasks get features,
/// output and masks with channels last, which the gradient needs.
DIOPI_API diopiError_t diopiCarafeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t rfeatures,
                                       diopiTensorHandle_t routput, diopiTensorHandle_t rmasks,
                                       diopiTensorHandle_t output, diopiConstTensorHandle_t features,
                                       diopiConstTensorHandle_t masks, int64_t kernel_size, int64_t group_size,
                                       int64_t scale_factor);

/// Gradients of diopiCarafeMmcv: bottom_grad for features, mask_grad for masks; the r tensors are scratch.
DIOPI_API diopiError_t diopiCarafeBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t rtop_grad,
                                               diopiTensorHandle_t rbottom_grad_hs, diopiTensorHandle_t rbottom_grad,
                                               diopiTensorHandle_t rmask_grad, diopiTensorHandle_t bottom_grad,
                                               diopiTensorHandle_t mask_grad, diopiConstTensorHandle_t top_grad,
                                               diopiConstTensorHandle_t rfeatures, diopiConstTensorHandle_t masks,
                                               int64_t kernel_size, int64_t group_size, int64_t scale_factor);

/// diopiCarafeMmcv without intermediates.
DIOPI_API diopiError_t diopiCarafeNaiveMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                            diopiConstTensorHandle_t features, diopiConstTensorHandle_t masks,
                                            int64_t kernel_size, int64_t group_size, int64_t scale_factor);

/// Gradients of diopiCarafeNaiveMmcv.
DIOPI_API diopiError_t diopiCarafeNaiveBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                    diopiTensorHandle_t mask_grad, diopiConstTensorHandle_t top_grad,
                                                    diopiConstTensorHandle_t features, diopiConstTensorHandle_t masks,
                                                    int64_t kernel_size, int64_t group_size, int64_t scale_factor);

/// output (N, patchH, patchW, H', W') = products of patches of input1 and input2, summed over channels and a kH by kW
/// window, for every shift; strides dH and dW, zeros as padding.
DIOPI_API diopiError_t diopiCorrelationMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                            diopiConstTensorHandle_t input1, diopiConstTensorHandle_t input2,
                                            int64_t kH, int64_t kW, int64_t patchH, int64_t patchW, int64_t padH,
                                            int64_t padW, int64_t dilationH, int64_t dilationW,
                                            int64_t dilation_patchH, int64_t dilation_patchW, int64_t dH, int64_t dW);

/// Gradients of diopiCorrelationMmcv with respect to both inputs.
DIOPI_API diopiError_t diopiCorrelationBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input1,
                                                    diopiTensorHandle_t grad_input2,
                                                    diopiConstTensorHandle_t grad_output,
                                                    diopiConstTensorHandle_t input1, diopiConstTensorHandle_t input2,
                                                    int64_t kH, int64_t kW, int64_t patchH, int64_t patchW,
                                                    int64_t padH, int64_t padW, int64_t dilationH, int64_t dilationW,
                                                    int64_t dilation_patchH, int64_t dilation_patchW, int64_t dH,
                                                    int64_t dW);

/// Deformable convolution: each sampling place of a kernel is moved by `offset` (N, 2 * deform_groups * kH * kW, H',
/// W') and read bilinearly. columns and ones are scratch; im2col_step images are done at once.
DIOPI_API diopiError_t diopiDeformConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                           diopiTensorHandle_t columns, diopiTensorHandle_t ones,
                                           diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                           diopiConstTensorHandle_t offset, int64_t kW, int64_t kH, int64_t dW,
                                           int64_t dH, int64_t padW, int64_t padH, int64_t dilationW,
                                           int64_t dilationH, int64_t groups, int64_t deform_groups,
                                           int64_t im2col_step);

/// gradInput and gradOffset of diopiDeformConvMmcv from gradOutput; columns is scratch.
DIOPI_API diopiError_t diopiDeformConvBackwardInputMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t gradInput,
                                                        diopiTensorHandle_t gradOffset,
                                                        diopiConstTensorHandle_t input,
                                                        diopiConstTensorHandle_t offset,
                                                        diopiConstTensorHandle_t gradOutput,
                                                        diopiConstTensorHandle_t weight,
                                                        diopiConstTensorHandle_t columns, int64_t kW, int64_t kH,
                                                        int64_t dW, int64_t dH, int64_t padW, int64_t padH,
                                                        int64_t dilationW, int64_t dilationH, int64_t groups,
                                                        int64_t deform_groups, int64_t im2col_step);

/// gradWeight of diopiDeformConvMmcv, added with the factor `scale`; gradOutput is only read although it is not const.
/// columns and ones are scratch.
DIOPI_API diopiError_t diopiDeformConvBackwardParametersMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t gradOutput,
                                                             diopiTensorHandle_t gradWeight,
                                                             diopiConstTensorHandle_t input,
                                                             diopiConstTensorHandle_t offset,
                                                             diopiConstTensorHandle_t columns,
                                                             diopiConstTensorHandle_t ones, int64_t kW, int64_t kH,
                                                             int64_t dW, int64_t dH, int64_t padW, int64_t padH,
                                                             int64_t dilationW, int64_t dilationH, int64_t groups,
                                                             int64_t deform_groups, int64_t im2col_step, float scale);

// mmcv roi pool

/// Means of bilinear samples in the bins of rois (K, 5): batch number, x1, y1, x2, y2, times spatial_scale, each bin
/// moved by gamma * offset; `offset` may be empty.
DIOPI_API diopiError_t diopiDeformRoiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                              diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                              diopiConstTensorHandle_t offset, int64_t pooled_height,
                                              int64_t pooled_width, int64_t sampling_ratio, float spatial_scale,
                                              float gamma);

/// Gradients of diopiDeformRoiPoolMmcv with respect to input and offset.
DIOPI_API diopiError_t diopiDeformRoiPoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                      diopiTensorHandle_t grad_offset,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                                      diopiConstTensorHandle_t offset, int64_t pooled_height,
                                                      int64_t pooled_width, int64_t sampling_ratio,
                                                      float spatial_scale, float gamma);

// mmcv loss norm

/// output[n, c] = focal loss of sigmoid(input[n, c]) with the class target[n] (int64, C is background), times
/// weight[target[n]], 1 for background; `weight` may be empty.
DIOPI_API diopiError_t diopiSigmoidFocalLossMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t target,
                                                 diopiConstTensorHandle_t weight, float gamma, float alpha);

/// Gradient of diopiSigmoidFocalLossMmcv with respect to `input`.
DIOPI_API diopiError_t diopiSigmoidFocalLossBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                         diopiConstTensorHandle_t input,
                                                         diopiConstTensorHandle_t target,
                                                         diopiConstTensorHandle_t weight, float gamma, float alpha);

/// output[n] = focal loss of the probability softmax[n, target[n]], times weight; `weight` may be empty.
DIOPI_API diopiError_t diopiSoftmaxFocalLossMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                 diopiConstTensorHandle_t softmax, diopiConstTensorHandle_t target,
                                                 diopiConstTensorHandle_t weight, float gamma, float alpha);

/// Gradient of diopiSoftmaxFocalLossMmcv with respect to the logits; `buff` (N) is scratch.
DIOPI_API diopiError_t diopiSoftmaxFocalLossBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                         diopiTensorHandle_t buff, diopiConstTensorHandle_t softmax,
                                                         diopiConstTensorHandle_t target,
                                                         diopiConstTensorHandle_t weight, float gamma, float alpha);

// mmcv pointcloud

/// idx_tensor (B, num_points) = points chosen one by one, each the farthest from those before, the first being point 0;
/// temp_tensor (B, N) holds distances, 1e10 at first.
DIOPI_API diopiError_t diopiFurthestPointSamplingMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t temp_tensor,
                                                      diopiTensorHandle_t idx_tensor,
                                                      diopiConstTensorHandle_t points_xyz, int64_t B, int64_t N,
                                                      int64_t num_points);

/// diopiFurthestPointSamplingMmcv on given distances (B, N, N).
DIOPI_API diopiError_t diopiFurthestPointSamplingWithDistMmcv(diopiContextHandle_t ctx,
                                                              diopiTensorHandle_t temp_tensor,
                                                              diopiTensorHandle_t idx_tensor,
                                                              diopiConstTensorHandle_t points_dist, int64_t B,
                                                              int64_t N, int64_t num_points);

// mmcv deform sampling

/// `out` receives leaky_relu(input + bias, alpha) * scale (act 3), or its first or second derivative (`grad` 1, 2) with
/// `refer` as the forward result; absent tensors are empty.
DIOPI_API diopiError_t diopiFusedBiasLeakyreluMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                   diopiConstTensorHandle_t input, diopiConstTensorHandle_t bias,
                                                   diopiConstTensorHandle_t refer, int64_t act, int64_t grad,
                                                   float alpha, float scale);

// mmcv pointcloud

/// out (b, c, npoints) = points (b, c, n) at idx (b, npoints).
DIOPI_API diopiError_t diopiGatherPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                             diopiConstTensorHandle_t points, diopiConstTensorHandle_t idx, int64_t b,
                                             int64_t c, int64_t n, int64_t npoints);

/// grad_points: sums of grad_out at `idx`.
DIOPI_API diopiError_t diopiGatherPointsBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                                     diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t idx,
                                                     int64_t b, int64_t c, int64_t n, int64_t npoints);

/// out (b, c, npoints, nsample) = points (b, c, n) at idx (b, npoints, nsample).
DIOPI_API diopiError_t diopiGroupPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                            diopiConstTensorHandle_t points, diopiConstTensorHandle_t idx, int64_t b,
                                            int64_t c, int64_t n, int64_t npoints, int64_t nsample);

/// grad_points: sums of grad_out at `idx`.
DIOPI_API diopiError_t diopiGroupPointsBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                                    diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t idx,
                                                    int64_t b, int64_t c, int64_t n, int64_t npoints, int64_t nsample);

/// diopiGroupPointsMmcv over batches of different sizes one after another, with their sizes in the batch_cnt tensors.
DIOPI_API diopiError_t diopiStackGroupPointsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out_tensor,
                                                 diopiConstTensorHandle_t features_tensor,
                                                 diopiConstTensorHandle_t features_batch_cnt_tensor,
                                                 diopiConstTensorHandle_t idx_tensor,
                                                 diopiConstTensorHandle_t idx_batch_cnt_tensor, int64_t b, int64_t c,
                                                 int64_t m, int64_t nsample);

/// Gradient of diopiStackGroupPointsMmcv.
DIOPI_API diopiError_t diopiStackGroupPointsBackwardMmcv(diopiContextHandle_t ctx,
                                                         diopiTensorHandle_t grad_features_tensor,
                                                         diopiConstTensorHandle_t grad_out_tensor,
                                                         diopiConstTensorHandle_t idx_tensor,
                                                         diopiConstTensorHandle_t idx_batch_cnt_tensor,
                                                         diopiConstTensorHandle_t features_batch_cnt_tensor,
                                                         int64_t b, int64_t c, int64_t m, int64_t n, int64_t nsample);

// mmcv box geometry

/// ans_overlap (N, M) = overlap area, seen from above, of boxes (x, y, z, dx, dy, dz, heading).
DIOPI_API diopiError_t diopiIou3dBoxesOverlapBevMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ans_overlap,
                                                     diopiConstTensorHandle_t boxes_a,
                                                     diopiConstTensorHandle_t boxes_b);

/// keep gets the int64 positions of the boxes (x, y, z, dx, dy, dz, heading), sorted by score, that stay; keep_num
/// their number (zeros follow them in keep): a box goes when its overlap with one that stays, seen from above, exceeds
/// nms_overlap_thresh.
DIOPI_API diopiError_t diopiIou3dNms3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t keep,
                                           diopiTensorHandle_t keep_num, diopiConstTensorHandle_t boxes,
                                           float nms_overlap_thresh);

/// diopiIou3dNms3dMmcv without regard to headings.
DIOPI_API diopiError_t diopiIou3dNms3dNormalMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t keep,
                                                 diopiTensorHandle_t keep_num, diopiConstTensorHandle_t boxes,
                                                 float nms_overlap_thresh);

// mmcv pointcloud

/// idx_tensor (b, m, nsample) and dist2_tensor = the nearest points of xyz (b, n, 3) to each of new_xyz (b, m, 3),
/// nearest first, and their squared distances.
DIOPI_API diopiError_t diopiKnnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t idx_tensor,
                                    diopiTensorHandle_t dist2_tensor, diopiConstTensorHandle_t xyz_tensor,
                                    diopiConstTensorHandle_t new_xyz_tensor, int64_t b, int64_t n, int64_t m,
                                    int64_t nsample);

// mmcv deform sampling

/// col = columns of a kernel_h by kernel_w window around the places (mask_h_idx, mask_w_idx) of `im`, zeros outside.
DIOPI_API diopiError_t diopiMaskedIm2colMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t col,
                                             diopiConstTensorHandle_t im, diopiConstTensorHandle_t mask_h_idx,
                                             diopiConstTensorHandle_t mask_w_idx, int64_t kernel_h, int64_t kernel_w,
                                             int64_t pad_h, int64_t pad_w);

/// im = zeros with `col` (channels by places) put at the places (mask_h_idx, mask_w_idx).
DIOPI_API diopiError_t diopiMaskedCol2imMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t im,
                                             diopiConstTensorHandle_t col, diopiConstTensorHandle_t mask_h_idx,
                                             diopiConstTensorHandle_t mask_w_idx, int64_t height, int64_t width,
                                             int64_t channels);

/// diopiDeformConvMmcv with every sample multiplied by `mask`; bias is added when with_bias.
DIOPI_API diopiError_t diopiModulatedDeformConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                    diopiTensorHandle_t columns, diopiTensorHandle_t ones,
                                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                                    diopiConstTensorHandle_t bias, diopiConstTensorHandle_t offset,
                                                    diopiConstTensorHandle_t mask, int64_t kernel_h, int64_t kernel_w,
                                                    const int64_t stride_h, const int64_t stride_w,
                                                    const int64_t pad_h, const int64_t pad_w,
                                                    const int64_t dilation_h, const int64_t dilation_w,
                                                    const int64_t group, const int64_t deformable_group,
                                                    const bool with_bias);

/// Gradients of diopiModulatedDeformConvMmcv.
DIOPI_API diopiError_t diopiModulatedDeformConvBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                            diopiTensorHandle_t grad_weight,
                                                            diopiTensorHandle_t grad_bias,
                                                            diopiTensorHandle_t grad_offset,
                                                            diopiTensorHandle_t grad_mask,
                                                            diopiConstTensorHandle_t input,
                                                            diopiConstTensorHandle_t weight,
                                                            diopiConstTensorHandle_t bias,
                                                            diopiConstTensorHandle_t ones,
                                                            diopiConstTensorHandle_t offset,
                                                            diopiConstTensorHandle_t mask,
                                                            diopiConstTensorHandle_t columns,
                                                            diopiConstTensorHandle_t grad_output, int64_t kernel_h,
                                                            int64_t kernel_w, int64_t stride_h, int64_t stride_w,
                                                            int64_t pad_h, int64_t pad_w, int64_t dilation_h,
                                                            int64_t dilation_w, int64_t group,
                                                            int64_t deformable_group, const bool with_bias);

/// `out` receives, per query and head, the sum of attn_weight times bilinear samples of `value` at sampling_loc over
/// all levels; spatial_shapes and level_start_index describe the levels.
DIOPI_API diopiError_t diopiMsDeformAttnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                             diopiConstTensorHandle_t value, diopiConstTensorHandle_t spatial_shapes,
                                             diopiConstTensorHandle_t level_start_index,
                                             diopiConstTensorHandle_t sampling_loc,
                                             diopiConstTensorHandle_t attn_weight, int64_t im2col_step);

/// Gradients of diopiMsDeformAttnMmcv with respect to value, sampling_loc and attn_weight.
DIOPI_API diopiError_t diopiMsDeformAttnBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_value,
                                                     diopiTensorHandle_t grad_sampling_loc,
                                                     diopiTensorHandle_t grad_attn_weight,
                                                     diopiConstTensorHandle_t value,
                                                     diopiConstTensorHandle_t spatial_shapes,
                                                     diopiConstTensorHandle_t level_start_index,
                                                     diopiConstTensorHandle_t sampling_loc,
                                                     diopiConstTensorHandle_t attn_weight,
                                                     diopiConstTensorHandle_t grad_output, int64_t im2col_step);

// mmcv box geometry

/// As diopiNms; `offset` is added to widths and heights.
DIOPI_API diopiError_t diopiNmsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t dets,
                                    diopiConstTensorHandle_t scores, double iou_threshold, int64_t offset);

/// Non-maximum suppression of rotated boxes (x, y, w, h, angle): `order` sorts the scores, dets_sorted are the boxes in
/// that order; with multi_label boxes of different `labels` do not suppress each other. `out` receives the positions
/// that stay.
DIOPI_API diopiError_t diopiNmsRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                           diopiConstTensorHandle_t dets, diopiConstTensorHandle_t scores,
                                           diopiConstTensorHandle_t order, diopiConstTensorHandle_t dets_sorted,
                                           diopiConstTensorHandle_t labels, float iou_threshold, bool multi_label);

// mmcv pointcloud

/// box_idx_of_points[b, p] = the number of the box (x, y, z, dx, dy, dz, heading) that holds point p, -1 for none; z is
/// the box's bottom.
DIOPI_API diopiError_t diopiPointsInBoxesPartMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t box_idx_of_points,
                                                  diopiConstTensorHandle_t boxes, diopiConstTensorHandle_t pts);

/// box_idx_of_points[b, p, k] = 1 when box k holds point p, else 0.
DIOPI_API diopiError_t diopiPointsInBoxesAllMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t box_idx_of_points,
                                                 diopiConstTensorHandle_t boxes, diopiConstTensorHandle_t pts);

// mmcv deform sampling

/// Point-wise spatial attention: psa_type 0 (collect) or 1 (distribute) rearranges the masks h_mask by w_mask of each
/// place into the full h_feature by w_feature plane.
DIOPI_API diopiError_t diopiPsamaskMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                        diopiConstTensorHandle_t input, int64_t psa_type, int64_t num_,
                                        int64_t h_feature, int64_t w_feature, int64_t h_mask, int64_t w_mask,
                                        int64_t half_h_mask, int64_t half_w_mask);

/// Gradient of diopiPsamaskMmcv.
DIOPI_API diopiError_t diopiPsamaskBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                diopiConstTensorHandle_t grad_output, int64_t psa_type, int64_t num_,
                                                int64_t h_feature, int64_t w_feature, int64_t h_mask, int64_t w_mask,
                                                int64_t half_h_mask, int64_t half_w_mask);

// mmcv roi pool

/// As diopiRoiAlign: rois (K, 5): batch number, x1, y1, x2, y2, times spatial_scale; pool_mode 0 takes the largest
/// sample and keeps its place in argmax_y and argmax_x, 1 the mean.
DIOPI_API diopiError_t diopiRoiAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                         diopiTensorHandle_t argmax_y, diopiTensorHandle_t argmax_x,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                         int64_t aligned_height, int64_t aligned_width, int64_t sampling_ratio,
                                         int64_t pool_mode, float spatial_scale, bool aligned);

/// Gradient of diopiRoiAlignMmcv with respect to `input`.
DIOPI_API diopiError_t diopiRoiAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                                 diopiConstTensorHandle_t argmax_y, diopiConstTensorHandle_t argmax_x,
                                                 int64_t aligned_height, int64_t aligned_width,
                                                 int64_t sampling_ratio, int64_t pool_mode, float spatial_scale,
                                                 bool aligned);

/// As diopiRoiAlign with rotated boxes (batch, x, y, w, h, angle); `clockwise` tells the direction of angles.
DIOPI_API diopiError_t diopiRoiAlignRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                                int64_t aligned_height, int64_t aligned_width, int64_t sampling_ratio,
                                                float spatial_scale, bool aligned, bool clockwise);

/// Gradient of diopiRoiAlignRotatedMmcv.
DIOPI_API diopiError_t diopiRoiAlignRotatedBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                        diopiConstTensorHandle_t top_grad,
                                                        diopiConstTensorHandle_t rois, int64_t aligned_height,
                                                        int64_t aligned_width, int64_t sampling_ratio,
                                                        float spatial_scale, bool aligned, bool clockwise);

/// diopiRoiAlignRotatedMmcv that also moves and interpolates the num_orientations channels of each feature by the box's
/// angle.
DIOPI_API diopiError_t diopiRiroiAlignRotatedMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                  diopiConstTensorHandle_t features, diopiConstTensorHandle_t rois,
                                                  int64_t pooled_height, int64_t pooled_width, int64_t num_samples,
                                                  int64_t num_orientations, float spatial_scale, bool clockwise);

/// Gradient of diopiRiroiAlignRotatedMmcv.
DIOPI_API diopiError_t diopiRiroiAlignRotatedBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                          diopiConstTensorHandle_t top_grad,
                                                          diopiConstTensorHandle_t rois, int64_t pooled_height,
                                                          int64_t pooled_width, int64_t num_samples,
                                                          int64_t num_orientations, float spatial_scale,
                                                          bool clockwise);

// mmcv pointcloud

/// pooled_features = largest (pool_method 0) or mean (1) features of the points in each voxel of each box; argmax and
/// pts_idx_of_voxels are kept for the gradient.
DIOPI_API diopiError_t diopiRoiawarePool3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t argmax,
                                               diopiTensorHandle_t pts_idx_of_voxels,
                                               diopiTensorHandle_t pooled_features, diopiConstTensorHandle_t rois,
                                               diopiConstTensorHandle_t pts, diopiConstTensorHandle_t pts_feature,
                                               int64_t pool_method);

/// grad_in of diopiRoiawarePool3dMmcv from grad_out, with what it kept.
DIOPI_API diopiError_t diopiRoiawarePool3dBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_in,
                                                       diopiConstTensorHandle_t pts_idx_of_voxels,
                                                       diopiConstTensorHandle_t argmax,
                                                       diopiConstTensorHandle_t grad_out, int64_t pool_method);

/// pooled_features (B, M, S, 3 + C) = places and features of up to S points in each box, repeated when there are fewer;
/// pooled_empty_flag is 1 for a box without points.
DIOPI_API diopiError_t diopiRoipointPool3dMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t pooled_features,
                                               diopiTensorHandle_t pooled_empty_flag, diopiConstTensorHandle_t xyz,
                                               diopiConstTensorHandle_t boxes3d, diopiConstTensorHandle_t pts_feature);

// mmcv roi pool

/// Largest element in each bin of rois (K, 5): batch number, x1, y1, x2, y2, times spatial_scale; argmax keeps its
/// place, -1 for an empty bin.
DIOPI_API diopiError_t diopiRoiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                        diopiTensorHandle_t argmax, diopiConstTensorHandle_t input,
                                        diopiConstTensorHandle_t rois, int64_t pooled_height, int64_t pooled_width,
                                        float spatial_scale);

/// Gradient of diopiRoiPoolMmcv with respect to `input`.
DIOPI_API diopiError_t diopiRoiPoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                                diopiConstTensorHandle_t argmax, int64_t pooled_height,
                                                int64_t pooled_width, float spatial_scale);

// mmcv pointcloud

/// `outlist` receives the features reduced per voxel (reduce_type 0 sum, 1 mean, 2 max), the voxels' coordinates, each
/// point's voxel, and the counts.
DIOPI_API diopiError_t diopiDynamicPointToVoxelMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *outlist,
                                                    diopiConstTensorHandle_t feats, diopiConstTensorHandle_t coors,
                                                    int64_t reduce_type);

/// grad_feats of diopiDynamicPointToVoxelMmcv, with what it gave.
DIOPI_API diopiError_t diopiDynamicPointToVoxelBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_feats,
                                                            diopiConstTensorHandle_t grad_reduced_feats,
                                                            diopiConstTensorHandle_t feats,
                                                            diopiConstTensorHandle_t reduced_feats,
                                                            diopiConstTensorHandle_t coors_idx,
                                                            diopiConstTensorHandle_t reduce_count, int64_t reduce_type);

// mmcv loss norm

/// mean[c] = the mean of `input` (N, C, L) per channel. float32.
DIOPI_API diopiError_t diopiSyncBnMeanMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t mean,
                                           diopiConstTensorHandle_t input);

/// var[c] = the biased variance of `input` (N, C, L) per channel around `mean`. float32.
DIOPI_API diopiError_t diopiSyncBnVarMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t var,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t mean);

/// norm = (input - mean) / std, output = norm * weight + bias, std = sqrt(var + eps); running statistics are updated
/// with `momentum`, the variance unbiased over group_size ranks. norm and the running statistics may be empty.
DIOPI_API diopiError_t diopiSyncBnOutputMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t running_mean,
                                             diopiTensorHandle_t running_var, diopiTensorHandle_t norm,
                                             diopiTensorHandle_t std, diopiTensorHandle_t output,
                                             diopiConstTensorHandle_t input, diopiConstTensorHandle_t mean,
                                             diopiConstTensorHandle_t var, diopiConstTensorHandle_t weight,
                                             diopiConstTensorHandle_t bias, float eps, float momentum,
                                             int64_t group_size);

/// grad_weight = sum grad_output * norm, grad_bias = sum grad_output per channel.
DIOPI_API diopiError_t diopiSyncBnBackwardParamMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_weight,
                                                    diopiTensorHandle_t grad_bias,
                                                    diopiConstTensorHandle_t grad_output,
                                                    diopiConstTensorHandle_t norm);

/// grad_input of the normalisation from grad_output and the gradients of weight and bias of all ranks.
DIOPI_API diopiError_t diopiSyncBnBackwardDataMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                   diopiConstTensorHandle_t grad_output,
                                                   diopiConstTensorHandle_t weight,
                                                   diopiConstTensorHandle_t grad_weight,
                                                   diopiConstTensorHandle_t grad_bias, diopiConstTensorHandle_t norm,
                                                   diopiConstTensorHandle_t std);

// mmcv pointcloud

/// out (b, c, n) = the sum of three points (b, c, m) at idx (b, n, 3), weighted.
DIOPI_API diopiError_t diopiThreeInterpolateMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                                 diopiConstTensorHandle_t points, diopiConstTensorHandle_t idx,
                                                 diopiConstTensorHandle_t weight, int64_t b, int64_t c, int64_t m,
                                                 int64_t n);

/// Gradient of diopiThreeInterpolateMmcv with respect to the points.
DIOPI_API diopiError_t diopiThreeInterpolateBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_points,
                                                         diopiConstTensorHandle_t grad_out,
                                                         diopiConstTensorHandle_t idx,
                                                         diopiConstTensorHandle_t weight, int64_t b, int64_t c,
                                                         int64_t n, int64_t m);

/// dist2 and idx (b, n, 3) = the three points of known (b, m, 3) nearest to each of unknown (b, n, 3), nearest first,
/// with squared distances.
DIOPI_API diopiError_t diopiThreeNnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t dist2, diopiTensorHandle_t idx,
                                        diopiConstTensorHandle_t unknown, diopiConstTensorHandle_t known, int64_t b,
                                        int64_t n, int64_t m);

// mmcv deform sampling

/// output[n, t, c] = input[n, t - shift[n, group of c], c] along time, zeros outside.
DIOPI_API diopiError_t diopiTinShiftMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t shift);

/// Gradient of diopiTinShiftMmcv.
DIOPI_API diopiError_t diopiTinShiftBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                 diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t shift);

/// `out` receives `input` enlarged by up_x and up_y with zeros, padded (negative values cut), filtered with `kernel`,
/// and thinned out by down_x and down_y.
DIOPI_API diopiError_t diopiUpfirdn2dOpMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                            diopiConstTensorHandle_t input, diopiConstTensorHandle_t kernel,
                                            int64_t up_x, int64_t up_y, int64_t down_x, int64_t down_y,
                                            int64_t pad_x0, int64_t pad_x1, int64_t pad_y0, int64_t pad_y1);

// mmcv pointcloud

/// Sorts points into voxels of voxel_size within coors_range: voxels, their coors, num_points_per_voxel and voxel_num,
/// at most max_points points and max_voxels voxels; `deterministic` keeps the points' order.
DIOPI_API diopiError_t diopiHardVoxelizeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t voxels,
                                             diopiTensorHandle_t coors, diopiTensorHandle_t num_points_per_voxel,
                                             diopiTensorHandle_t voxel_num, diopiConstTensorHandle_t points,
                                             diopiConstTensorHandle_t voxel_size,
                                             diopiConstTensorHandle_t coors_range, const int64_t max_points,
                                             const int64_t max_voxels, const int64_t NDim, const bool deterministic);

/// coors (N, 3) = the voxel of every point, -1 for points outside coors_range.
DIOPI_API diopiError_t diopiDynamicVoxelizeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t coors,
                                                diopiConstTensorHandle_t points, diopiConstTensorHandle_t voxel_size,
                                                diopiConstTensorHandle_t coors_range, const int64_t NDim);

// mmcv roi pool

/// output = features plus bilinear samples at the centre (points 1) or at centre and corners (points 5) of each place's
/// rotated box (y, x, w, h, angle) in best_bboxes.
DIOPI_API diopiError_t diopiRotatedFeatureAlignMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                    diopiConstTensorHandle_t features,
                                                    diopiConstTensorHandle_t best_bboxes, float spatial_scale,
                                                    int64_t points);

/// Gradient of diopiRotatedFeatureAlignMmcv.
DIOPI_API diopiError_t diopiRotatedFeatureAlignBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                                            diopiConstTensorHandle_t top_grad,
                                                            diopiConstTensorHandle_t best_bboxes, float spatial_scale,
                                                            int64_t points);

// mmcv box geometry

/// output[i, j] = 1 when point i (x, y) lies in the quadrilateral polygons[j], else 0.
DIOPI_API diopiError_t diopiPointsInPolygonsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                 diopiConstTensorHandle_t points, diopiConstTensorHandle_t polygons);

// mmcv sparse conv

/// `out` receives (numAct, C): the largest of the rows that meet, at least 0. indicePairs (volume, 2, N) and indiceNum
/// tell which input row meets which output row for each place of the kernel.
DIOPI_API diopiError_t diopiIndiceMaxpoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                              diopiConstTensorHandle_t features, diopiConstTensorHandle_t indicePairs,
                                              diopiConstTensorHandle_t indiceNum, int64_t numAct);

/// `out` receives the gradient of diopiIndiceMaxpoolMmcv: outGrad where the input was the largest.
DIOPI_API diopiError_t diopiIndiceMaxpoolBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                      diopiConstTensorHandle_t features,
                                                      diopiConstTensorHandle_t outFeatures,
                                                      diopiConstTensorHandle_t outGrad,
                                                      diopiConstTensorHandle_t indicePairs,
                                                      diopiConstTensorHandle_t indiceNum);

/// `out` receives (numActOut, O): sums of features times filters. indicePairs (volume, 2, N) and indiceNum tell which
/// input row meets which output row for each place of the kernel; _inverse exchanges the two, _subM keeps the active
/// places.
DIOPI_API diopiError_t diopiIndiceConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                           diopiConstTensorHandle_t features, diopiConstTensorHandle_t filters,
                                           diopiConstTensorHandle_t indicePairs, diopiConstTensorHandle_t indiceNum,
                                           int64_t numActOut, int64_t _inverse, int64_t _subM);

/// `outlist` receives the gradients of diopiIndiceConvMmcv with respect to features and filters.
DIOPI_API diopiError_t diopiIndiceConvBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *outlist,
                                                   diopiConstTensorHandle_t features,
                                                   diopiConstTensorHandle_t filters, diopiConstTensorHandle_t outGrad,
                                                   diopiConstTensorHandle_t indicePairs,
                                                   diopiConstTensorHandle_t indiceNum, int64_t _inverse, int64_t _subM);

/// `out` receives diopiIndiceConvMmcv with `bias` added.
DIOPI_API diopiError_t diopiFusedIndiceConvBatchnormMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                         diopiConstTensorHandle_t features,
                                                         diopiConstTensorHandle_t filters,
                                                         diopiConstTensorHandle_t bias,
                                                         diopiConstTensorHandle_t indicePairs,
                                                         diopiConstTensorHandle_t indiceNum, int64_t numActOut,
                                                         int64_t _inverse, int64_t _subM);

// mmcv box geometry

/// polygons (N, 8) = corners of the smallest rectangle around each set of nine points (N, 18).
DIOPI_API diopiError_t diopiMinAreaPolygonsMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t polygons,
                                                diopiConstTensorHandle_t pointsets);

// mmcv deform sampling

/// output = the filters of `input` rotated to every orientation; `indices` tells where each weight goes.
DIOPI_API diopiError_t diopiActiveRotatedFilterMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                                    diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices);

/// Gradient of diopiActiveRotatedFilterMmcv: sums over the orientations.
DIOPI_API diopiError_t diopiActiveRotatedFilterBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_in,
                                                            diopiConstTensorHandle_t grad_out,
                                                            diopiConstTensorHandle_t indices);

// mmcv box geometry

/// ious (N, M) = overlap of the convex hull of each set of nine points (N, 18) with each quadrilateral (M, 8).
DIOPI_API diopiError_t diopiConvexIouMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t ious,
                                          diopiConstTensorHandle_t pointsets, diopiConstTensorHandle_t polygons);

/// output (N, 19) = the generalised overlap of the convex hull of nine points with its quadrilateral, preceded by its
/// gradient with respect to the points.
DIOPI_API diopiError_t diopiConvexGiouMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                           diopiConstTensorHandle_t pointsets, diopiConstTensorHandle_t polygons);

/// `out` receives the order (B, N, 9) of the vertices of each overlap polygon around its centre; `mask` says which of
/// the 24 vertices exist, num_valid how many.
DIOPI_API diopiError_t diopiDiffIouRotatedSortVerticesMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                                           diopiConstTensorHandle_t vertices,
                                                           diopiConstTensorHandle_t mask,
                                                           diopiConstTensorHandle_t num_valid);

// mmcv pointcloud

/// dist1, idx1 = squared distance and position of the point of xyz2 nearest to each of xyz1; dist2, idx2 the other way
/// round.
DIOPI_API diopiError_t diopiChamferDistanceMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t dist1,
                                                diopiTensorHandle_t dist2, diopiTensorHandle_t idx1,
                                                diopiTensorHandle_t idx2, diopiConstTensorHandle_t xyz1,
                                                diopiConstTensorHandle_t xyz2);

/// Gradients of diopiChamferDistanceMmcv with respect to both sets of points.
DIOPI_API diopiError_t diopiChamferDistanceBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_xyz1,
                                                        diopiTensorHandle_t grad_xyz2, diopiConstTensorHandle_t xyz1,
                                                        diopiConstTensorHandle_t xyz2, diopiConstTensorHandle_t idx1,
                                                        diopiConstTensorHandle_t idx2,
                                                        diopiConstTensorHandle_t grad_dist1,
                                                        diopiConstTensorHandle_t grad_dist2);

// mmcv roi pool

/// Exact integral means of the bilinear surface over each bin of rois (K, 5): batch number, x1, y1, x2, y2, times
/// spatial_scale.
DIOPI_API diopiError_t diopiPrroiPoolMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                          int64_t pooled_height, int64_t pooled_width, float spatial_scale);

/// Gradient of diopiPrroiPoolMmcv with respect to `input`. The name's spelling is the standard's own.
DIOPI_API diopiError_t diopiPrroiPoolbackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                                  diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t rois,
                                                  int64_t pooled_height, int64_t pooled_width, float spatial_scale);

/// Gradient of diopiPrroiPoolMmcv with respect to the boxes' coordinates.
DIOPI_API diopiError_t diopiPrroiPoolCoorBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_rois,
                                                      diopiConstTensorHandle_t output,
                                                      diopiConstTensorHandle_t grad_output,
                                                      diopiConstTensorHandle_t input, diopiConstTensorHandle_t rois,
                                                      int64_t pooled_height, int64_t pooled_width, float spatial_scale);

DIOPI_EXTERN_C_END
// clang-format on

#endif
