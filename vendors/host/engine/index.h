/// Loops that follow index tensors: rows or elements of one tensor, chosen by positions that are values of others.
///
/// A walk has a target (the tensor that is indexed), up to DIT_MAX_DIMS index columns (one per indexed dimension, all
/// of one broadcast shape: the positions) and another tensor that holds the same elements in plain order. The
/// dimensions that are not indexed form the rest; a stretch of them that is contiguous on both sides moves as a whole.
/// Positions are read in their row-major order, and one element of the target is always worked on by one thread, so
/// that results do not depend on the number of threads: of several writes to one element the last one stays, and sums
/// are taken in order.
#ifndef DIT_HOST_ENGINE_INDEX_H
#define DIT_HOST_ENGINE_INDEX_H

#include "dit/error.h"
#include "dit/tensor.h"
#include "nest.h"

/// Is this a dtype for positions?
static inline bool index_is_position(int dtype) {
  return dtype == DIT_DTYPE_I64 || dtype == DIT_DTYPE_I32;
}
/// Position number in an int32 or int64 tensor.
static inline int64_t index_read(const char *data, bool wide) {
  return wide ? *(const int64_t *)data : *(const int32_t *)data;
}
/// Smallest and largest value of an int32 or int64 tensor; 0 and -1 for an empty one. A device whose kernels look after
/// positions themselves may answer 0 and -1 always.
void index_get_range(void *stream, const struct dit_tensor_view *index, int64_t *low, int64_t *high);
/// Memory of one call where tensors lie; NULL when there is none. Given back after the work (NULL is allowed).
struct diopiContext;
void *index_take_room(struct diopiContext *context, size_t size);
void index_give_room(void *room);

struct index_column {
  const char *data;
  int64_t strides[DIT_MAX_DIMS];  ///< in bytes, per dimension of the positions
  int64_t size;                   ///< of the indexed dimension: negative values count from its end
  int64_t step;                   ///< of it in the target, in bytes
  bool wide;
};

struct index_walk {
  int columns, ndim;
  int64_t count;                        ///< positions
  int64_t sizes[DIT_MAX_DIMS];          ///< of the positions
  int64_t other_strides[DIT_MAX_DIMS];  ///< in bytes, per dimension of the positions
  struct index_column column[DIT_MAX_DIMS];
  struct nest rest;    ///< operand 0 the target, 1 the other tensor; without the run
  int64_t run;         ///< elements
  bool spread;         ///< one value of the other tensor stands for the whole run
  bool strict;         ///< negative positions do not count from the end (they were found invalid)
  const void *number;  ///< the other tensor is this element in the host's memory; NULL: it is a tensor
  int dtype, width;
};

enum index_mode {
  INDEX_TAKE,  ///< other = target[positions]
  INDEX_PUT,   ///< target[positions] = other
  INDEX_ADD,   ///< target[positions] += other
};

/// `indices` has an entry per dimension of the target, NULL where it is not indexed; all of them have one shape. The
/// other tensor has that shape from its dimension `at` on, between the dimensions that are not indexed. Values are in
/// range (index_get_range), negative ones count from the end. `number` is NULL and `strict` false afterwards.
void index_walk_init(struct index_walk *walk, const struct dit_tensor_view *target,
                     const struct dit_tensor_view *const *indices, const struct dit_tensor_view *other, int at);
/// DIT_ERR_UNSUPPORTED for INDEX_ADD on a dtype without addition (before anything is written), DIT_ERR_NOMEM. Half
/// types are summed in float and rounded once.
enum dit_status index_walk_run(struct diopiContext *context, void *stream, const struct index_walk *walk,
                               enum index_mode mode, struct dit_error *err);
/// Does INDEX_ADD have this dtype?
bool index_can_add(int dtype);

/// flags[i] = 1 when element i of a strided row is not zero (NaN is not), else 0. `stride` in bytes.
void index_test_nonzero(int dtype, const char *data, int64_t stride, int64_t count, uint8_t *flags);
/// Number of elements that are not zero, in all (`total`) and before each block of them in row-major order (`starts`,
/// where tensors lie: index_give_room, also after an error). Waits for the stream. DIT_ERR_NOMEM.
enum dit_status index_count_blocks(struct diopiContext *context, void *stream, const struct dit_tensor_view *view,
                                   int64_t **starts, int64_t *total, struct dit_error *err);
/// Their coordinates, row-major: coordinate d of the r-th one goes to out[r * row_step + d * dim_step].
enum dit_status index_list_nonzero(void *stream, const struct dit_tensor_view *view, const int64_t *starts,
                                   int64_t *out, int64_t row_step, int64_t dim_step, struct dit_error *err);

#endif
