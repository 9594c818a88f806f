/// The work of sorting, after sort.c has checked the arguments.
#ifndef DIT_HOST_OPS_SORT_H
#define DIT_HOST_OPS_SORT_H

#include "lines.h"

struct sort_task {
  struct frame *frame;
  struct dit_tensor_view v_values, v_indices, v_in;  ///< `dim` last; values may be absent
  int64_t rows, length, keep;
  bool descending, packed;
  int dtype, width;
  int64_t shares;  ///< pieces of the rows that run at the same time
  char *room;      ///< for each share: two lines of words or items
  size_t room_size;
  const char *in;
  char *values;
  int64_t *indices;
};

struct back_task {
  struct frame frame;
  const struct dit_tensor_view *v_out, *v_grad, *v_indices;
  int64_t rows, length, keep;
};

diopiError_t sort_run(struct sort_task *task);
/// Only the values of `indices` are not checked.
diopiError_t sort_run_back(struct back_task *task);

#endif
