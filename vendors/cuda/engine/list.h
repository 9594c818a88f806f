/// The positions of a list operator (_foreach_add and its kind): their pointwise runs wait for each other and go to the
/// device in one launch.
///
/// Between list_begin and list_end, runs of the calling thread over memory without gaps are collected while they are
/// of one kernel; anything else that is launched goes after what was collected. The caller sees to it that no run
/// reads what another one writes.
#ifndef DIT_CUDA_ENGINE_LIST_H
#define DIT_CUDA_ENGINE_LIST_H

#include "kernels/pointwise.h"
#include "launch.h"

void list_begin(void);
DIT_NODISCARD enum dit_status list_end(struct dit_error *err);
/// Launch what was collected. Every launch calls it first.
DIT_NODISCARD enum dit_status list_flush(struct dit_error *err);
/// Launch what was collected and collect no more: memory that is about to be used lives only as long as its call.
void list_suspend(void);
/// Collect a run of so many blocks: true, or false when the caller must launch it.
bool list_take(struct kernel *kernel, void *stream, const struct pointwise_flat *run, unsigned blocks);

#endif
