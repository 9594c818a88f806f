/// Attention in tiles (see attention.h).
///
/// Forward, per tile of queries: S = scale Q K^T of one tile of keys after the other; m = max(m, rows of S), P = exp(S
/// - m), the sums and the result so far are rescaled, result += P V. Backward, with delta = rows of (grad . out): P =
/// exp(S - lse), dV += P^T grad, dS = P (grad V^T - delta), dQ += scale dS K, dK += scale dS^T Q. Dropout multiplies P
/// and grad V^T by the same mask.
#include "attention.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dit/parallel.h"
#include "dit/random.h"
#include "engine/scratch.h"
#include "gemm.h"
#include "mathf.h"

#define ATTENTION_LANES 16
#define TILE_QUERIES 64
#define TILE_KEYS 512

struct attention_task {
  const struct attention_shape *shape;
  struct attention_tensor q, k, v, out, grad, grad_q, grad_k, grad_v;
  void *lse;
  int64_t tiles;  ///< of queries, in one sequence
  atomic_bool failed;
};

/// What one step works on. Positions count from the sequence's first row.
struct attention_tile {
  int64_t sequence, head;
  int64_t all_queries, all_keys;
  int64_t query, queries, key, keys;
};

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static bool is_key_side(const struct attention_task *task, const struct attention_tensor *tensor) {
  return tensor == &task->k || tensor == &task->v || tensor == &task->grad_k || tensor == &task->grad_v;
}

/// Address of a row of the tile's sequence and head (keys and values: the head that the query's head shares).
static void *locate(const struct attention_task *task, const struct attention_tensor *tensor,
                    const struct attention_tile *tile, int64_t row) {
  const struct attention_shape *s = task->shape;
  const bool key_side = is_key_side(task, tensor);
  const int64_t *ends = key_side ? s->key_ends : s->query_ends;
  const int64_t head = key_side ? tile->head / (s->heads / s->key_heads) : tile->head;
  const int64_t start = ends        ? ends[tile->sequence] * tensor->row
                        : s->starts ? s->starts[tile->sequence] * tensor->row
                                    : tile->sequence * tensor->sequence;
  return (char *)tensor->data + (start + row * tensor->row + head * tensor->head) * (s->wide ? 8 : 4);
}

/// c (m x n, dense rows of ldc) = alpha * a @ b + beta * c; strides of rows and columns.
static void multiply(const struct attention_task *task, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
                     int64_t a_row, int64_t a_column, const void *b, int64_t b_row, int64_t b_column, double beta,
                     void *c, int64_t ldc) {
  struct gemm_problem problem = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .a_strides = {a_row, a_column},
                                 .b_strides = {b_row, b_column},
                                 .c_strides = {ldc, 1},
                                 .alpha = alpha,
                                 .beta = beta,
                                 .wide = task->shape->wide};
  gemm_multiply(&problem);
}

/// Keys of the tile that a query sees: [first, last), counted from the tile's first key.
static void find_visible(const struct attention_shape *s, const struct attention_tile *tile, int64_t query,
                         int64_t *first, int64_t *last) {
  const int64_t own = query + tile->all_keys - tile->all_queries;
  const int64_t begin = s->left < 0 ? 0 : own - s->left;
  const int64_t end = s->right < 0 ? tile->all_keys : own + s->right + 1;
  *first = begin < tile->key ? 0 : min_of(begin - tile->key, tile->keys);
  *last = end < tile->key ? 0 : min_of(end - tile->key, tile->keys);
  *last = *last < *first ? *first : *last;
}

/// Does any query of the tile see any of its keys?
static bool is_seen(const struct attention_shape *s, const struct attention_tile *tile) {
  const int64_t low = tile->query + tile->all_keys - tile->all_queries, high = low + tile->queries - 1;
  return (s->right < 0 || tile->key <= high + s->right) && (s->left < 0 || tile->key + tile->keys > low - s->left);
}

#define REAL float
#define EXP(x) exp_f32(x)
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "attention_loops.h"
#define REAL double
#define EXP(x) exp(x)
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "attention_loops.h"

static void set_sequence(const struct attention_shape *s, struct attention_tile *tile, int64_t sequence, int64_t head) {
  tile->sequence = sequence;
  tile->head = head;
  tile->all_queries = s->query_ends ? s->query_ends[sequence + 1] - s->query_ends[sequence]
                      : s->lengths  ? s->lengths[sequence]
                                    : s->queries;
  tile->all_keys = s->key_ends  ? s->key_ends[sequence + 1] - s->key_ends[sequence]
                   : s->lengths ? s->lengths[sequence]
                                : s->keys;
}

static void *reserve(struct attention_task *task, int64_t elements) {
  void *room = scratch_take((size_t)elements * (task->shape->wide ? 8 : 4));
  if (!room) {
    atomic_store(&task->failed, true);
  }
  return room;
}

/// One number per (sequence, head, tile of queries).
static void run_forward(void *context, int64_t begin, int64_t end) {
  struct attention_task *task = context;
  const struct attention_shape *s = task->shape;
  void *room = reserve(task, TILE_QUERIES * (TILE_KEYS + 2 + s->width));
  for (int64_t i = begin; room && i < end; i++) {
    struct attention_tile tile = {0};
    set_sequence(s, &tile, i / task->tiles / s->heads, i / task->tiles % s->heads);
    tile.query = i % task->tiles * TILE_QUERIES;
    tile.queries = min_of(tile.all_queries - tile.query, TILE_QUERIES);
    if (tile.queries > 0 && s->wide) {
      forward_queries_f64(task, &tile, room);
    } else if (tile.queries > 0) {
      forward_queries_f32(task, &tile, room);
    }
  }
  scratch_give(room);
}

bool attention_forward(const struct attention_shape *shape, const struct attention_tensor *out, void *lse,
                       const struct attention_tensor *q, const struct attention_tensor *k,
                       const struct attention_tensor *v) {
  struct attention_task task = {.shape = shape, .q = *q, .k = *k, .v = *v, .out = *out, .lse = lse};
  task.tiles = (shape->queries + TILE_QUERIES - 1) / TILE_QUERIES;
  dit_parallel_for(0, shape->sequences * shape->heads * task.tiles, 1, run_forward, &task);
  return !atomic_load(&task.failed);
}

/// One number per (sequence, key head).
static void run_backward(void *context, int64_t begin, int64_t end) {
  struct attention_task *task = context;
  const struct attention_shape *s = task->shape;
  const int64_t group = s->heads / s->key_heads;
  void *room = reserve(task, s->queries + 3 * TILE_QUERIES * TILE_KEYS);
  for (int64_t i = begin; room && i < end; i++) {
    struct attention_tile tile = {0};
    const int64_t head = i % s->key_heads * group;
    set_sequence(s, &tile, i / s->key_heads, head);
    for (int64_t row = 0; row < tile.all_keys; row++) {
      memset(locate(task, &task->grad_k, &tile, row), 0, (size_t)s->width * (s->wide ? 8 : 4));
      memset(locate(task, &task->grad_v, &tile, row), 0, (size_t)s->width * (s->wide ? 8 : 4));
    }
    for (tile.head = head; tile.head < head + group; tile.head++) {
      if (s->wide) {
        backward_head_f64(task, &tile, room);
      } else {
        backward_head_f32(task, &tile, room);
      }
    }
  }
  scratch_give(room);
}

bool attention_backward(const struct attention_shape *shape, const struct attention_tensor *grad_q,
                        const struct attention_tensor *grad_k, const struct attention_tensor *grad_v,
                        const struct attention_tensor *grad, const struct attention_tensor *q,
                        const struct attention_tensor *k, const struct attention_tensor *v,
                        const struct attention_tensor *out, const void *lse) {
  struct attention_task task = {.shape = shape,
                                .q = *q,
                                .k = *k,
                                .v = *v,
                                .out = *out,
                                .grad = *grad,
                                .grad_q = *grad_q,
                                .grad_k = *grad_k,
                                .grad_v = *grad_v,
                                .lse = (void *)lse};
  dit_parallel_for(0, shape->sequences * shape->key_heads, 1, run_backward, &task);
  return !atomic_load(&task.failed);
}
