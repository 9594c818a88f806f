/// lmdeploy's fused attention on the host (see lmdeploy_attention.c): one product for q, k and v, then sequence by
/// sequence: rotation, caches, attention of its tokens over its part of the caches.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "engine/attention.h"
#include "engine/cast.h"
#include "engine/gemm.h"
#include "engine/scratch.h"
#include "fail.h"
#include "lmdeploy_attention.h"

/// Tokens of one sequence: rows of inoutput, place in the cache, position for the rotation.
struct span {
  int64_t row, count, place, position;
};

struct fused_run {
  struct fused_call *call;
  struct dense x;
  struct span *spans;
  char *qkv;  ///< (tokens, (heads + 2 key_heads) width) in the work type
  int work;
  size_t size;  ///< of an element of the work type
};

static int64_t get(const struct dense *dense, int64_t i) {
  return dense->data ? ((const int64_t *)dense->data)[i] : 0;
}

static diopiError_t set_spans(struct fused_run *run) {
  struct fused_call *call = run->call;
  struct dense lengths = {0}, finished = {0}, padding = {0};
  const bool done = dense_read(&lengths, &call->lengths, DIT_DTYPE_I64) &&
                    dense_read(&finished, &call->finished, DIT_DTYPE_BOOL) &&
                    dense_read(&padding, &call->padding, DIT_DTYPE_I64);
  int64_t row = 0;
  bool valid = done && call->batch <= call->keys.sizes[1] && call->batch <= call->values.sizes[1];
  for (int64_t b = 0; done && b < call->batch; b++) {
    struct span *span = &run->spans[b];
    const bool ended = finished.data && ((const uint8_t *)finished.data)[b];
    if (call->decode) {
      *span = (struct span){b, ended ? 0 : 1, get(&lengths, b), get(&lengths, b) - get(&padding, b)};
    } else if (lengths.data) {
      *span = (struct span){row, get(&lengths, b), get(&lengths, call->batch + b), get(&lengths, call->batch + b)};
    } else {
      *span = (struct span){row, call->max_q, call->max_k - call->max_q, call->max_k - call->max_q};
    }
    row += span->count;
    valid = valid && span->count >= 0 && span->place >= 0 && span->position >= 0 &&
            (call->decode || span->place + span->count <= call->longest);
  }
  dense_close(&lengths);
  dense_close(&finished);
  dense_close(&padding);
  if (!done) {
    return dense_fail(call->frame);
  }
  FRAME_CHECK_RANGE(call->frame, valid && (call->decode || row == call->x.sizes[0]),
                    "the lengths of the sequences do not go with 'inoutput' and the caches");
  return diopiSuccess;
}

/// qkv = x @ weight + bias.
static bool project(struct fused_run *run) {
  struct fused_call *call = run->call;
  const int64_t tokens = call->x.sizes[0], inner = call->x.sizes[1], all = call->weight.sizes[1];
  struct dense weight = {0}, bias = {0};
  const bool done = dense_read(&weight, &call->weight, run->work) && dense_read(&bias, &call->bias, run->work);
  for (int64_t i = 0; done && bias.data && i < tokens; i++) {
    memcpy(run->qkv + (size_t)(i * all) * run->size, bias.data, (size_t)all * run->size);
  }
  if (done) {
    struct gemm_problem problem = {.m = tokens,
                                   .n = all,
                                   .k = inner,
                                   .a = run->x.data,
                                   .b = weight.data,
                                   .c = run->qkv,
                                   .a_strides = {inner, 1},
                                   .b_strides = {all, 1},
                                   .c_strides = {all, 1},
                                   .alpha = 1,
                                   .beta = bias.data ? 1 : 0,
                                   .wide = run->work == DIT_DTYPE_F64};
    gemm_multiply(&problem);
  }
  dense_close(&weight);
  dense_close(&bias);
  return done;
}

/// Neighbouring pairs of one head at a position.
static void rotate(const struct fused_call *call, bool wide, void *head, int64_t position) {
  for (int64_t i = 0; i < call->rotary / 2; i++) {
    const double angle = (double)position / pow(call->theta, 2.0 * (double)i / (double)call->rotary);
    const double c = cos(angle), s = sin(angle);
    if (wide) {
      double *x = (double *)head + 2 * i, a = x[0], b = x[1];
      x[0] = a * c - b * s;
      x[1] = a * s + b * c;
    } else {
      float *x = (float *)head + 2 * i, a = x[0], b = x[1];
      x[0] = a * (float)c - b * (float)s;
      x[1] = a * (float)s + b * (float)c;
    }
  }
}

/// A row of a cache: `count` heads of `width` elements, between the work type and the cache.
static void move_row(const struct fused_call *call, const struct dit_tensor_view *cache, int64_t b, int64_t head,
                     int64_t place, int work, void *row, bool store) {
  const size_t size = dit_dtype_get_size(cache->dtype), wide = dit_dtype_get_size(work);
  const int64_t *s = cache->strides;
  char *at = (char *)cache->data + (size_t)(call->layer * s[0] + b * s[1] + head * s[2] + place * s[3]) * size;
  const int64_t block = s[4] == 1 ? call->width : 1;
  for (int64_t i = 0; i < call->width; i += block) {
    char *own = (char *)row + (size_t)i * wide, *far = at + (size_t)(i * s[4]) * size;
    if (store) {
      cast_block(cache->dtype, far, work, own, block);
    } else {
      cast_block(work, own, cache->dtype, far, block);
    }
  }
}

/// Rotates q and k of a sequence's tokens and puts k and v into the caches.
static void fill_caches(struct fused_run *run, int64_t b, const struct span *span) {
  const struct fused_call *call = run->call;
  const int64_t all = call->weight.sizes[1];
  for (int64_t i = 0; i < span->count; i++) {
    char *token = run->qkv + (size_t)((span->row + i) * all) * run->size;
    const size_t step = (size_t)call->width * run->size;
    for (int64_t head = 0; head < call->heads + call->key_heads; head++) {
      rotate(call, run->work == DIT_DTYPE_F64, token + (size_t)head * step, span->position + i);
    }
    for (int64_t head = 0; head < call->key_heads; head++) {
      const int64_t place = (span->place + i) % call->longest;
      move_row(call, &call->keys, b, head, place, run->work, token + (size_t)(call->heads + head) * step, true);
      move_row(call, &call->values, b, head, place, run->work,
               token + (size_t)(call->heads + call->key_heads + head) * step, true);
    }
  }
}

/// Attention of a sequence's tokens over the first `keys` places of its caches, into x.
static bool attend(struct fused_run *run, int64_t b, const struct span *span) {
  const struct fused_call *call = run->call;
  const int64_t seen = span->place + span->count, keys = seen < call->longest ? seen : call->longest;
  const int64_t narrow = call->key_heads * call->width, all = call->weight.sizes[1];
  const size_t part = (size_t)(keys * narrow) * run->size;
  char *room = scratch_take(2 * part + (size_t)(call->heads * span->count) * 8 + 64);
  if (!room) {
    return false;
  }
  for (int64_t j = 0; j < keys * call->key_heads; j++) {
    const int64_t place = j / call->key_heads, head = j % call->key_heads;
    char *to = room + (size_t)(place * narrow + head * call->width) * run->size;
    move_row(call, &call->keys, b, head, place, run->work, to, false);
    move_row(call, &call->values, b, head, place, run->work, to + part, false);
  }
  const struct attention_shape shape = {.sequences = 1,
                                        .heads = call->heads,
                                        .key_heads = call->key_heads,
                                        .width = call->width,
                                        .queries = span->count,
                                        .keys = keys,
                                        .scale = 1 / sqrt((double)call->width),
                                        .left = -1,
                                        .right = call->decode ? -1 : 0,
                                        .wide = run->work == DIT_DTYPE_F64};
  char *x = (char *)run->x.data + (size_t)(span->row * call->x.sizes[1]) * run->size;
  const struct attention_tensor q = {run->qkv + (size_t)(span->row * all) * run->size, 0, all, call->width};
  const struct attention_tensor out = {x, 0, call->x.sizes[1], call->width};
  const struct attention_tensor k = {room, 0, narrow, call->width}, v = {room + part, 0, narrow, call->width};
  const bool done = attention_forward(&shape, &out, room + (2 * part + 63) / 64 * 64, &q, &k, &v);
  scratch_give(room);
  return done;
}

static diopiError_t work(void *context) {
  struct fused_call *call = context;
  struct fused_run run = {.call = call, .work = dense_get_work(call->x.dtype)};
  run.size = dit_dtype_get_size(run.work);
  run.spans = dit_malloc(sizeof *run.spans * (size_t)(call->batch + 1));
  run.qkv = scratch_take((size_t)(call->x.sizes[0] * call->weight.sizes[1]) * run.size + 1);
  bool done = run.spans && run.qkv && dense_read(&run.x, &call->x, run.work);
  diopiError_t code = done ? set_spans(&run) : dense_fail(call->frame);
  if (code == diopiSuccess && call->x.numel > 0) {
    done = project(&run);
    for (int64_t b = 0; done && b < call->batch; b++) {
      if (run.spans[b].count > 0) {
        fill_caches(&run, b, &run.spans[b]);
        done = attend(&run, b, &run.spans[b]);
      }
    }
    if (done) {
      dense_store(&run.x);
    }
    code = done ? diopiSuccess : dense_fail(call->frame);
  }
  dense_close(&run.x);
  dit_free(run.spans);
  scratch_give(run.qkv);
  return code;
}

diopiError_t fused_attention_run(struct fused_call *call) {
  return frame_run(call->frame, work, call);
}
