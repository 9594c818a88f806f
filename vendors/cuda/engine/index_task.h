/// What the operators that follow index tensors share: a kernel's parameters, moving, sorting and adding.
#ifndef DIT_CUDA_ENGINE_INDEX_TASK_H
#define DIT_CUDA_ENGINE_INDEX_TASK_H

#include "engine/index.h"
#include "kernels/index.h"
#include "launch.h"

/// The walk as parameters; false when it has too many dimensions.
bool index_task_set(struct index_kernel *task, const struct index_walk *walk, enum index_mode mode);
/// `vector`: bytes that a thread moves.
DIT_NODISCARD enum dit_status index_task_move(struct index_kernel *task, void *stream, int vector, bool is_take,
                                              struct dit_error *err);
/// Keys and places of the positions, sorted by target.
DIT_NODISCARD enum dit_status index_task_sort(struct index_kernel *task, struct diopiContext *context, void *stream,
                                              struct dit_error *err);
/// target[positions] += other; sorts first.
DIT_NODISCARD enum dit_status index_task_sum(struct index_kernel *task, struct diopiContext *context, void *stream,
                                             int dtype, struct dit_error *err);

#endif
