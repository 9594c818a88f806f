/// What the block machine finds its loops by.
#ifndef DIT_HOST_ENGINE_REGION_TABLE_H
#define DIT_HOST_ENGINE_REGION_TABLE_H

#include "dit/graph.h"
#include "region_loops.h"

typedef void region_move(void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t count);

/// Of a register; -1: a dtype that has none.
int region_get_class(int dtype);
/// From the class of the arguments (the last one); NULL where the operation has none.
region_loop *region_find_loop(int op, int from, int to);
/// In place; NULL: nothing to round.
region_loop *region_find_rounding(int dtype);
region_move *region_find_load(int dtype);
region_move *region_find_store(int dtype);
/// Of a row into one number, or of one row into the columns' accumulators (double for sums of floats).
region_loop *region_find_fold(int op, int klass, bool is_column);

#endif
