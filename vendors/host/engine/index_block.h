/// What the parts of the index engine share: one block of positions. Private to index.c and index_add.c.
#ifndef DIT_HOST_ENGINE_INDEX_BLOCK_H
#define DIT_HOST_ENGINE_INDEX_BLOCK_H

#include "index.h"

/// Positions whose offsets are computed at a time.
#define INDEX_BLOCK 2048

/// One block of positions, and the part of the run that is worked on.
struct index_block {
  const struct index_walk *walk;
  enum index_mode mode;
  int64_t count, run;
  bool dense;  ///< positions are neighbours in the other tensor
  int64_t target[INDEX_BLOCK], other[INDEX_BLOCK];
};

/// Byte offsets of the positions [begin, begin + count) in the target and in the other tensor.
void index_get_offsets(const struct index_walk *walk, int64_t begin, int64_t count, int64_t *target, int64_t *other);
/// target += other for a block (a nest_body over the rest); not for half types.
void index_add_block(void *context, char *const *data, int64_t count);
/// target += other for a walk over half types. DIT_ERR_NOMEM.
enum dit_status index_add_grouped(const struct index_walk *walk, struct dit_error *err);

static inline bool index_is_half(int dtype) {
  return dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

#endif
