/// The work of attention on the host (attention_work.h): tensors as rows of neighbouring elements, sequence ends, and
/// the engine's loops over them.
#include "attention_work.h"

#include <math.h>

#include "dense.h"
#include "dit/alloc.h"

#define MAX_TENSORS 8

struct attention_room {
  struct dense dense[MAX_TENSORS];
  int count;
  int64_t *ends[2];
};

/// A tensor as the engine takes it: in place where its rows allow it, else as a copy.
static bool open_tensor(struct attention_call *call, struct attention_room *room, const struct dit_tensor_view *view,
                        bool write, struct attention_tensor *out) {
  const int lead = call->packed ? 0 : 1;  // dimension of rows
  const bool rows = view->dtype == call->work && (view->strides[lead + 2] == 1 || view->sizes[lead + 2] <= 1);
  if (rows) {
    *out = (struct attention_tensor){view->data, lead ? view->strides[0] : 0, view->strides[lead],
                                     view->strides[lead + 1]};
    return true;
  }
  struct dense *dense = &room->dense[room->count];
  if (!(write ? dense_reserve(dense, view, call->work) : dense_read(dense, view, call->work))) {
    return false;
  }
  room->count++;
  const int64_t *sizes = view->sizes + lead, row = sizes[1] * sizes[2];
  *out = (struct attention_tensor){dense->data, lead ? sizes[0] * row : 0, row, sizes[2]};
  return true;
}

static void close_room(struct attention_room *room) {
  for (int i = 0; i < room->count; i++) {
    dense_close(&room->dense[i]);
  }
  dit_free(room->ends[0]);
  dit_free(room->ends[1]);
}

/// The same from a list on the host.
static diopiError_t copy_ends(struct attention_call *call, const char *name, diopiSize_t list, int64_t rows,
                              int64_t longest, int64_t **out) {
  bool valid = list.data[0] == 0 && list.data[list.len - 1] == rows;
  *out = dit_malloc(sizeof(int64_t) * (size_t)list.len);
  if (!*out) {
    return frame_fail(call->frame, diopiErrorOccurred, "no memory for '%s'", name);
  }
  for (int64_t i = 0; i < list.len; i++) {
    (*out)[i] = list.data[i];
    const int64_t length = i ? list.data[i] - list.data[i - 1] : 0;
    valid = valid && length >= 0 && length <= longest;
  }
  FRAME_CHECK(call->frame, valid, "'%s' must grow from 0 to %lld in steps of at most %lld (the longest sequence)", name,
              (long long)rows, (long long)longest);
  return diopiSuccess;
}

/// Where sequences begin and end, checked: growing from 0 to the number of rows, none longer than the maximum.
static diopiError_t read_ends(struct attention_call *call, const char *name, const struct dit_tensor_view *view,
                              int64_t rows, int64_t longest, int64_t **out) {
  struct dense dense = {0};
  const int64_t count = call->shape.sequences;
  *out = dit_malloc(sizeof(int64_t) * (size_t)(count + 1));
  if (!*out || !dense_read(&dense, view, DIT_DTYPE_I64)) {
    return frame_fail(call->frame, diopiErrorOccurred, "no memory for '%s'", name);
  }
  bool valid = true;
  for (int64_t i = 0; i <= count; i++) {
    (*out)[i] = ((const int64_t *)dense.data)[i];
    const int64_t length = i ? (*out)[i] - (*out)[i - 1] : 0;
    valid = valid && (i || (*out)[0] == 0) && length >= 0 && length <= longest;
  }
  dense_close(&dense);
  FRAME_CHECK(call->frame, valid && (*out)[count] == rows,
              "'%s' must grow from 0 to %lld in steps of at most %lld (the longest sequence)", name, (long long)rows,
              (long long)longest);
  return diopiSuccess;
}

static diopiError_t open_ends(struct attention_call *call, struct attention_room *room) {
  struct attention_shape *s = &call->shape;
  if (call->packed && call->list_q.data) {
    FRAME_TRY(copy_ends(call, "cum_seq_q", call->list_q, call->q.sizes[0], s->queries, &room->ends[0]));
    FRAME_TRY(copy_ends(call, call->names->key_ends, call->list_k, call->k.sizes[0], s->keys, &room->ends[1]));
    s->query_ends = room->ends[0];
    s->key_ends = room->ends[1];
  } else if (call->packed) {
    FRAME_TRY(read_ends(call, "cum_seq_q", &call->cum_q, call->q.sizes[0], s->queries, &room->ends[0]));
    FRAME_TRY(read_ends(call, call->names->key_ends, &call->cum_k, call->k.sizes[0], s->keys, &room->ends[1]));
    s->query_ends = room->ends[0];
    s->key_ends = room->ends[1];
  }
  return diopiSuccess;
}

static diopiError_t fail_memory(struct attention_call *call) {
  return frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

// Forward

static diopiError_t work_forward(void *context) {
  struct attention_call *call = context;
  struct attention_room room = {.count = 0};
  struct attention_tensor q, k, v, out;
  struct dense lse = {0};
  diopiError_t code = open_ends(call, &room);
  if (code == diopiSuccess) {
    const bool done = open_tensor(call, &room, &call->q, false, &q) && open_tensor(call, &room, &call->k, false, &k) &&
                      open_tensor(call, &room, &call->v, false, &v) && dense_reserve(&lse, &call->lse, call->work);
    const int inputs = room.count;
    code = done && open_tensor(call, &room, &call->out, true, &out) ? attention_read_generator(call, true)
                                                                    : fail_memory(call);
    for (int64_t i = 0; call->packed && code == diopiSuccess && i < call->lse.numel; i++) {
      if (call->work == DIT_DTYPE_F64) {
        ((double *)lse.data)[i] = -(double)INFINITY;
      } else {
        ((float *)lse.data)[i] = -INFINITY;
      }
    }
    if (code == diopiSuccess && !attention_forward(&call->shape, &out, lse.data, &q, &k, &v)) {
      code = fail_memory(call);
    }
    for (int i = inputs; i < room.count && code == diopiSuccess; i++) {
      dense_store(&room.dense[i]);
    }
    if (code == diopiSuccess) {
      dense_store(&lse);
    }
  }
  dense_close(&lse);
  close_room(&room);
  return code;
}

/// Numbers of the generator and ends of sequences are read in the caller.
static diopiError_t queue(struct attention_call *call, frame_work *work) {
  if (call->packed || call->shape.dropout != 0) {
    return frame_run(call->frame, work, call);
  }
  return FRAME_QUEUE(call->frame, work, call, &call->frame, &call->q, &call->k, &call->v, &call->out, &call->lse,
                     &call->slopes, &call->cum_q, &call->cum_k, &call->grad, &call->grad_q, &call->grad_k,
                     &call->grad_v);
}

diopiError_t attention_run_forward(struct attention_call *call) {
  return queue(call, work_forward);
}

// Backward

static diopiError_t work_backward(void *context) {
  struct attention_call *call = context;
  struct attention_room room = {.count = 0};
  struct attention_tensor q, k, v, out, grad, grad_q, grad_k, grad_v;
  struct dense lse = {0};
  diopiError_t code = open_ends(call, &room);
  if (code == diopiSuccess) {
    const bool done = open_tensor(call, &room, &call->q, false, &q) && open_tensor(call, &room, &call->k, false, &k) &&
                      open_tensor(call, &room, &call->v, false, &v) &&
                      open_tensor(call, &room, &call->out, false, &out) &&
                      open_tensor(call, &room, &call->grad, false, &grad) && dense_read(&lse, &call->lse, call->work);
    const int inputs = room.count;
    code = done && open_tensor(call, &room, &call->grad_q, true, &grad_q) &&
                   open_tensor(call, &room, &call->grad_k, true, &grad_k) &&
                   open_tensor(call, &room, &call->grad_v, true, &grad_v)
               ? attention_read_generator(call, false)
               : fail_memory(call);
    if (code == diopiSuccess &&
        !attention_backward(&call->shape, &grad_q, &grad_k, &grad_v, &grad, &q, &k, &v, &out, lse.data)) {
      code = fail_memory(call);
    }
    for (int i = inputs; i < room.count && code == diopiSuccess; i++) {
      dense_store(&room.dense[i]);
    }
  }
  dense_close(&lse);
  close_room(&room);
  return code;
}

diopiError_t attention_run_backward(struct attention_call *call) {
  return queue(call, work_backward);
}
