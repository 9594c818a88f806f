/// Drawing the next token on the host (see lmdeploy_sampling.c): a heap finds the largest logits, so that a small k
/// does not sort the whole vocabulary; top-p puts no more in order than it walks over.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dense.h"
#include "dit/random.h"
#include "engine/mathd.h"
#include "engine/scratch.h"
#include "fail.h"
#include "lmdeploy_sampling.h"

struct candidate {
  double logit;
  int64_t id;
};

/// Does a come after b? Falling logits, then growing ids; NaN last.
static bool is_after(struct candidate a, struct candidate b) {
  if (a.logit != b.logit && !(isnan(a.logit) && isnan(b.logit))) {
    return isnan(a.logit) || (!isnan(b.logit) && a.logit < b.logit);
  }
  return a.id > b.id;
}

static int compare(const void *a, const void *b) {
  return is_after(*(const struct candidate *)a, *(const struct candidate *)b) ? 1 : -1;
}

/// The heap's first item is the one that comes last.
static void sink(struct candidate *heap, int64_t count, int64_t at) {
  for (int64_t child = 2 * at + 1; child < count; at = child, child = 2 * at + 1) {
    child += child + 1 < count && is_after(heap[child + 1], heap[child]);
    if (!is_after(heap[child], heap[at])) {
      return;
    }
    const struct candidate moved = heap[at];
    heap[at] = heap[child];
    heap[child] = moved;
  }
}

/// Among SEARCH_BLOCK logits: is any larger? Once the heap is full, nearly no block has one.
#define SEARCH_BLOCK 64
KERNEL_INLINE void find_larger_body(const double *logits, double than, bool *found) {
  uint64_t any = 0;
  for (int i = 0; i < SEARCH_BLOCK; i++) {
    any |= logits[i] > than ? 1 : 0;
  }
  *found = any != 0;
}
KERNEL_MULTI(static, find_larger, (const double *logits, double than, bool *found), (logits, than, found))

/// *sum += the sum of exp(logits[i] - most).
#define SUM_LANES 16
KERNEL_INLINE void add_exponentials_body(const double *logits, int64_t count, double most, double *sum) {
  double lanes[SUM_LANES] = {0};
  int64_t i = 0;
  for (; i + SUM_LANES <= count; i += SUM_LANES) {
    KERNEL_LANES
    for (int j = 0; j < SUM_LANES; j++) {
      lanes[j] += exp_f64(logits[i + j] - most);
    }
  }
  for (; i < count; i++) {
    lanes[i % SUM_LANES] += exp_f64(logits[i] - most);
  }
  for (int j = 0; j < SUM_LANES; j++) {
    *sum += lanes[j];
  }
}
KERNEL_MULTI(static, add_exponentials, (const double *logits, int64_t count, double most, double *sum),
             (logits, count, most, sum))

/// The k largest of `count` logits in order.
static void select_largest(const double *logits, int64_t count, int64_t k, struct candidate *out) {
  for (int64_t i = 0; i < k; i++) {
    out[i] = (struct candidate){logits[i], i};
  }
  for (int64_t at = k / 2; at >= 0; at--) {
    sink(out, k, at);
  }
  for (int64_t i = k, n; i < count; i += n) {
    bool found = true;
    n = count - i < SEARCH_BLOCK ? count - i : SEARCH_BLOCK;
    if (n == SEARCH_BLOCK && !isnan(out[0].logit)) {
      find_larger(logits + i, out[0].logit, &found);
    }
    for (int64_t j = i; found && j < i + n; j++) {
      const struct candidate next = {logits[j], j};
      if (is_after(out[0], next)) {
        out[0] = next;
        sink(out, k, 0);
      }
    }
  }
  qsort(out, (size_t)k, sizeof *out, compare);
}

struct sampling_room {
  struct dense ids, logits, end_ids, finished, lengths, top_k, top_p, skip, cum, own;
  struct candidate *order;
};

/// A number in (0, 1] of the sequence's generator.
static diopiError_t draw(struct sampling_call *call, int64_t b, double *u) {
  uint64_t seed, offset;
  uint32_t words[4];
  diopiGeneratorHandle_t generator = call->generators[b];
  FRAME_CHECK(call->frame,
              generator && diopiGeneratorGetSeedAndOffset(generator, &seed, &offset) == diopiSuccess &&
                  diopiGeneratorSetSeedAndOffset(generator, seed, offset + 1) == diopiSuccess,
              "'generators' has no generator with seed and offset for sequence %lld", (long long)b);
  dit_philox_generate(seed, 0, offset, words);
  *u = ((double)words[0] + 1) / 4294967296.0;
  return diopiSuccess;
}

static void store_probabilities(const struct sampling_room *room, int64_t b, double all, double among) {
  if (room->cum.data) {
    ((float *)room->cum.data)[b] += (float)all;
  }
  if (room->own.data) {
    ((float *)room->own.data)[b] = (float)among;
  }
}

/// How many of the largest are put in order at first where any could be drawn.
#define FIRST_FEW 64

/// One sequence that is neither finished nor passed over: its token.
static diopiError_t sample(struct sampling_call *call, struct sampling_room *room, int64_t b, int64_t *id) {
  const double *logits = (const double *)room->logits.data + b * call->logits.sizes[1];
  const double p = (double)((const float *)room->top_p.data)[b];
  int64_t k = call->by_k ? ((const int64_t *)room->top_k.data)[b] : call->vocab;
  double u = 1, total = 0, chosen = 0;
  k = k < 1 ? 1 : k > call->vocab ? call->vocab : k;
  int64_t known = call->by_k || k < FIRST_FEW ? k : FIRST_FEW, at = 0;
  select_largest(logits, call->vocab, known, room->order);
  const double most = room->order[0].logit;
  if (!call->by_k || room->cum.data) {
    add_exponentials(logits, call->vocab, most, &total);
  }
  for (int64_t i = 0; call->by_k && i < k; i++) {
    chosen += exp(room->order[i].logit - most);
  }
  chosen = call->by_k ? chosen : total;
  FRAME_TRY(draw(call, b, &u));
  const double wanted = u * p * chosen;
  if (call->by_k || 1 / chosen < p) {
    for (double sum = 1; at + 1 < k && sum < wanted; sum += exp(room->order[at].logit - most)) {
      at++;
      if (at == known) {
        known = known * 8 < k ? known * 8 : k;
        select_largest(logits, call->vocab, known, room->order);
      }
    }
  }
  *id = room->order[at].id;
  const double own = room->order[at].logit - most;
  store_probabilities(room, b, own - log(total), own - log(chosen));
  return diopiSuccess;
}

static diopiError_t sample_all(struct sampling_call *call, struct sampling_room *room) {
  int64_t *ids = (int64_t *)room->ids.data + call->step * call->batch, *lengths = room->lengths.data;
  const int64_t *ends = room->end_ids.data;
  const uint8_t *skip = room->skip.data;
  uint8_t *finished = room->finished.data;
  for (int64_t b = 0; b < call->batch; b++) {
    if (skip && skip[b]) {
      continue;
    }
    if (finished[b]) {
      ids[b] = ends[b];
      continue;
    }
    FRAME_TRY(sample(call, room, b, &ids[b]));
    lengths[b]++;
    finished[b] = ids[b] == ends[b];
  }
  return diopiSuccess;
}

static diopiError_t work(void *context) {
  struct sampling_call *call = context;
  struct sampling_room room = {0};
  diopiError_t code;
  room.order = scratch_take(sizeof *room.order * (size_t)call->vocab);
  if (room.order && dense_read(&room.ids, &call->ids, DIT_DTYPE_I64) &&
      dense_read(&room.logits, &call->logits, DIT_DTYPE_F64) &&
      dense_read(&room.end_ids, &call->end_ids, DIT_DTYPE_I64) &&
      dense_read(&room.finished, &call->finished, DIT_DTYPE_BOOL) &&
      dense_read(&room.lengths, &call->lengths, DIT_DTYPE_I64) &&
      dense_read(&room.top_k, &call->top_k, DIT_DTYPE_I64) && dense_read(&room.top_p, &call->top_p, DIT_DTYPE_F32) &&
      dense_read(&room.skip, &call->skip, DIT_DTYPE_BOOL) && dense_read(&room.cum, &call->cum, DIT_DTYPE_F32) &&
      dense_read(&room.own, &call->own, DIT_DTYPE_F32)) {
    code = sample_all(call, &room);
  } else {
    code = dense_fail(call->frame);
  }
  struct dense *const written[] = {&room.ids, &room.finished, &room.lengths, &room.cum, &room.own};
  struct dense *const read[] = {&room.logits, &room.end_ids, &room.top_k, &room.top_p, &room.skip};
  for (int i = 0; i < 5; i++) {
    if (code == diopiSuccess) {
      dense_store(written[i]);
    }
    dense_close(written[i]);
    dense_close(read[i]);
  }
  scratch_give(room.order);
  return code;
}

diopiError_t sampling_run(struct sampling_call *call) {
  return frame_run(call->frame, work, call);
}
