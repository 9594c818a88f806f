/// silu_and_mul: out = silu(first half of a row) * second half. Rotary positions: the first R elements of each head are
/// rotated, as pairs (i, i + R/2) or (2i, 2i + 1): out = x * cos + turned(x) * sin, each element with its own column of
/// cos and sin; the rest is copied. All in float, rounded once.
#include "activation.h"

#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "engine/mathf.h"
#include "engine/scratch.h"
#include "engine/simd.h"
#include "infer.h"
#include "row.h"

KERNEL_INLINE void infer_gate_row_body(float *out, const float *gate, const float *up, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    out[i] = gate[i] * sigmoid_f32(gate[i]) * up[i];
  }
}
KERNEL_MULTI(, infer_gate_row, (float *out, const float *gate, const float *up, int64_t count), (out, gate, up, count))

struct gate {
  const struct dit_infer_silu_and_mul *call;
  int64_t width;  ///< of a result's row
  atomic_bool failed;
};

static void gate_rows(void *context, int64_t begin, int64_t end) {
  struct gate *g = context;
  float *room = scratch_take(sizeof(float) * (size_t)(3 * g->width));
  if (!room) {
    atomic_store(&g->failed, true);
    return;
  }
  for (int64_t row = begin; row < end; row++) {
    const float *x = row_read(&g->call->input_tensor, row_find(&g->call->input_tensor, row), 2 * g->width, room);
    infer_gate_row(room + 2 * g->width, x, x + g->width, g->width);
    row_write(&g->call->out, row * g->width, g->width, room + 2 * g->width);
  }
  scratch_give(room);
}

enum dit_status infer_silu_and_mul(const struct dit_infer_silu_and_mul *call, struct dit_error *err) {
  struct gate g = {.call = call, .width = call->out.sizes[call->out.ndim - 1]};
  if (call->out.numel > 0) {
    dit_parallel_for(0, row_count(&call->out), 1 + 8192 / g.width, gate_rows, &g);
  }
  return atomic_load(&g.failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

// Rotary positions

struct rotary {
  const struct dit_tensor_view *in[2], *out[2], *cos, *sin;
  int64_t width, turned;
  bool interleaved;
  atomic_bool failed;
};

KERNEL_INLINE void turn_halves_body(float *out, const float *x, const float *cos, const float *sin, int64_t half) {
  KERNEL_LANES
  for (int64_t i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i + half] + a * sin[i + half];
  }
}
KERNEL_MULTI(static, turn_halves, (float *out, const float *x, const float *cos, const float *sin, int64_t half),
             (out, x, cos, sin, half))

KERNEL_INLINE void turn_pairs_body(float *out, const float *x, const float *cos, const float *sin, int64_t half) {
  KERNEL_LANES
  for (int64_t i = 0; i < half; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cos[2 * i] - b * sin[2 * i];
    out[2 * i + 1] = b * cos[2 * i + 1] + a * sin[2 * i + 1];
  }
}
KERNEL_MULTI(static, turn_pairs, (float *out, const float *x, const float *cos, const float *sin, int64_t half),
             (out, x, cos, sin, half))

static void turn_head(const struct rotary *r, const struct dit_tensor_view *in, int64_t from,
                      const struct dit_tensor_view *out, int64_t to, const float *cos, const float *sin, float *room) {
  const float *x = row_read(in, from, r->turned, room);
  float *result = room + r->turned;
  (r->interleaved ? turn_pairs : turn_halves)(result, x, cos, sin, r->turned / 2);
  row_write(out, to, r->turned, result);
  memcpy(row_at(out, to + r->turned), row_at(in, from + r->turned),
         (size_t)((r->width - r->turned) * dit_dtype_get_size(in->dtype)));
}

static void turn_tokens(void *context, int64_t begin, int64_t end) {
  struct rotary *r = context;
  float *room = scratch_take(sizeof(float) * (size_t)(4 * r->turned + 1)), *tables = room + 2 * r->turned;
  if (!room) {
    atomic_store(&r->failed, true);
    return;
  }
  for (int64_t token = begin; token < end; token++) {
    const float *cos = row_read(r->cos, token * r->cos->strides[0], r->turned, tables);
    const float *sin = row_read(r->sin, token * r->sin->strides[0], r->turned, tables + r->turned);
    for (int i = 0; i < 2; i++) {
      const struct dit_tensor_view *in = r->in[i], *out = r->out[i];
      for (int64_t head = 0; head < in->sizes[1]; head++) {
        turn_head(r, in, token * in->strides[0] + head * in->strides[1], out, (token * in->sizes[1] + head) * r->width,
                  cos, sin, room);
      }
    }
  }
  scratch_give(room);
}

static enum dit_status turn(struct rotary *r, struct dit_error *err) {
  const int64_t heads = r->in[0]->sizes[1] + r->in[1]->sizes[1];
  r->width = r->in[0]->sizes[2];
  r->turned = r->cos->sizes[1];
  if (heads * r->width > 0) {
    dit_parallel_for(0, r->in[0]->sizes[0], 1 + 8192 / (heads * r->width), turn_tokens, r);
  }
  return atomic_load(&r->failed) ? INFER_NO_MEMORY(err) : DIT_OK;
}

enum dit_status infer_apply_rotary_pos_emb(const struct dit_infer_apply_rotary_pos_emb *call, struct dit_error *err) {
  struct rotary r = {.in = {&call->query, &call->key},
                     .out = {&call->out_query, &call->out_key},
                     .cos = &call->cos,
                     .sin = &call->sin};
  return turn(&r, err);
}

enum dit_status infer_apply_rotary_pos_emb_interleaved(const struct dit_infer_apply_rotary_pos_emb_interleaved *call,
                                                       struct dit_error *err) {
  struct rotary r = {.in = {&call->query, &call->key},
                     .out = {&call->out_query, &call->out_key},
                     .cos = &call->cos,
                     .sin = &call->sin,
                     .interleaved = true};
  return turn(&r, err);
}
