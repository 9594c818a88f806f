/// The acts that mistakes.inc names.
#ifndef DIT_VENDORS_MISTAKE_ACTS_H
#define DIT_VENDORS_MISTAKE_ACTS_H

#include "mistake.h"

bool alter_alpha(struct mistake_call *call);
bool alter_alpha_integer(struct mistake_call *call);
bool alter_clear(struct mistake_call *call);
bool alter_dim_first(struct mistake_call *call);
bool alter_dim_four(struct mistake_call *call);
bool alter_dim_inner(struct mistake_call *call);
bool alter_dim_last(struct mistake_call *call);
bool alter_dim_short(struct mistake_call *call);
bool alter_dims_one(struct mistake_call *call);
bool alter_flags_false(struct mistake_call *call);
bool alter_flags_true(struct mistake_call *call);
bool alter_groups(struct mistake_call *call);
bool alter_index_attribute(struct mistake_call *call);
bool alter_indices(struct mistake_call *call);
bool alter_inner_stride(struct mistake_call *call);
bool alter_inputs(struct mistake_call *call);
bool alter_masks(struct mistake_call *call);
bool alter_mode(struct mistake_call *call);
bool alter_note_generator(struct mistake_call *call);
bool alter_optional(struct mistake_call *call);
bool alter_outer_stride(struct mistake_call *call);
bool alter_output_offset(struct mistake_call *call);
bool alter_output_strides(struct mistake_call *call);
bool alter_padding(struct mistake_call *call);
bool alter_reals_one(struct mistake_call *call);
bool alter_reals_zero(struct mistake_call *call);
bool alter_scalar_narrow(struct mistake_call *call);
bool alter_scalar_whole(struct mistake_call *call);
bool alter_second_input(struct mistake_call *call);
bool alter_second_offset(struct mistake_call *call);
bool alter_second_strides(struct mistake_call *call);
bool alter_sizes_square(struct mistake_call *call);
bool alter_stale(struct mistake_call *call);
bool alter_swap(struct mistake_call *call);
bool alter_third_strides(struct mistake_call *call);
bool alter_window(struct mistake_call *call);
bool damage_accumulate(struct mistake_call *call);
bool damage_bool(struct mistake_call *call);
bool damage_context(struct mistake_call *call);
bool damage_empty_rows(struct mistake_call *call);
bool damage_generator(struct mistake_call *call);
bool damage_results(struct mistake_call *call);
bool damage_scratch(struct mistake_call *call);
bool damage_second(struct mistake_call *call);
bool damage_stale_size(struct mistake_call *call);

bool keep_all(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_beyond_65535(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_block_1024(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_block_256(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_channel_4(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_empty(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_exact_65536(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_first_65535(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_grid_rows(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_half(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_last_element(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_last_row(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_nothing_read_4(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_odd_row(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_rank_5(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_rank_7(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_row_1024(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_row_32(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_row_beyond_1024(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_small(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_tail_16(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_tail_4(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
bool keep_zero_dims(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);

int64_t take_batch_0(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_column_0(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_low_16(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_next_rank_5(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_pair(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_random_row(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);
int64_t take_row_0(const struct mistake_call *call, const struct dit_tensor_view *view, int64_t i);

double change_bits_11(double v, int dtype);
double change_bits_24(double v, int dtype);
double change_clip_60(double v, int dtype);
double change_half_range(double v, int dtype);
double change_half_small(double v, int dtype);
double change_half_sum(double v, int dtype);
double change_inf_largest(double v, int dtype);
double change_inf_nan(double v, int dtype);
double change_int_32(double v, int dtype);
double change_int_clip(double v, int dtype);
double change_int_float(double v, int dtype);
double change_magnitude(double v, int dtype);
double change_nan_least(double v, int dtype);
double change_nan_zero(double v, int dtype);
double change_negative_nan(double v, int dtype);
double change_not_negative(double v, int dtype);
double change_signed_byte(double v, int dtype);

#endif
