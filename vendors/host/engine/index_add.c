/// Adding to elements by positions from index tensors (see index.h).
///
/// Sums are taken in the order of the positions. Those of half types are grouped by target: each target is widened
/// once, gets all its terms in order, and is rounded once.
#include "cast.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "index_block.h"
#include "scalar.h"
#include "simd.h"

#define PIECE 512  ///< of a run that is summed in float

#define ADD_LOOP(name, type, expr)                                                                     \
  KERNEL_INLINE void name##_body(void *target, const void *other, int64_t count) {                     \
    type *t = target;                                                                                  \
    const type *o = other;                                                                             \
    for (int64_t i = 0; i < count; i++) {                                                              \
      const type a = t[i], b = o[i];                                                                   \
      t[i] = (type)(expr);                                                                             \
    }                                                                                                  \
  }                                                                                                    \
  KERNEL_MULTI(static, name, (void *restrict target, const void *restrict other, int64_t count),       \
               (target, other, count))                                                                 \
  static void name##_elements(char *target, const int64_t *to, const char *other, const int64_t *from, \
                              int64_t count) {                                                         \
    for (int64_t i = 0; i < count; i++) {                                                              \
      type *t = (type *)(target + to[i]);                                                              \
      const type a = *t, b = *(const type *)(other + from[i]);                                         \
      *t = (type)(expr);                                                                               \
    }                                                                                                  \
  }
struct pair_f32 {
  float re, im;
};
struct pair_f64 {
  double re, im;
};
#define ADD_LIST(X)                          \
  X(U8, uint8_t, a + b)                      \
  X(I8, int8_t, (uint8_t)a + (uint8_t)b)     \
  X(I16, int16_t, (uint16_t)a + (uint16_t)b) \
  X(I32, int32_t, (uint32_t)a + (uint32_t)b) \
  X(I64, int64_t, (uint64_t)a + (uint64_t)b) \
  X(F32, float, a + b)                       \
  X(F64, double, a + b)                      \
  X(BOOL, uint8_t, (a | b) != 0)
#define DEFINE_ADD(suffix, type, expr) ADD_LOOP(add_##suffix, type, expr)
ADD_LIST(DEFINE_ADD)

/// Complex numbers add as pairs.
#define ADD_PAIRS(suffix, pair, part)                                                                          \
  static void add_##suffix(void *restrict target, const void *restrict other, int64_t count) {                 \
    add_##part(target, other, 2 * count);                                                                      \
  }                                                                                                            \
  static void add_##suffix##_elements(char *target, const int64_t *to, const char *other, const int64_t *from, \
                                      int64_t count) {                                                         \
    for (int64_t i = 0; i < count; i++) {                                                                      \
      struct pair *t = (struct pair *)(target + to[i]);                                                        \
      const struct pair *o = (const struct pair *)(other + from[i]);                                           \
      t->re += o->re;                                                                                          \
      t->im += o->im;                                                                                          \
    }                                                                                                          \
  }
ADD_PAIRS(C64, pair_f32, F32)
ADD_PAIRS(C128, pair_f64, F64)

struct adder {
  void (*run)(void *restrict target, const void *restrict other, int64_t count);
  void (*elements)(char *target, const int64_t *to, const char *other, const int64_t *from, int64_t count);
};
static const struct adder adders[] = {
#define ADDER(suffix, type, expr) [DIT_DTYPE_##suffix] = {add_##suffix, add_##suffix##_elements},
    ADD_LIST(ADDER)[DIT_DTYPE_C64] = {add_C64, add_C64_elements},
    [DIT_DTYPE_C128] = {add_C128, add_C128_elements},
};

bool index_can_add(int dtype) {
  return index_is_half(dtype) || (dtype >= 0 && (size_t)dtype < sizeof adders / sizeof adders[0] && adders[dtype].run);
}

void index_add_block(void *context, char *const *data, int64_t count) {
  const struct index_block *block = context;
  const struct index_walk *walk = block->walk;
  const struct adder *adder = &adders[walk->dtype];
  const int64_t target_step = walk->rest.strides[0][0], other_step = walk->rest.strides[1][0];
  for (int64_t i = 0; i < count; i++) {
    char *target = data[0] + i * target_step, *other = data[1] + i * other_step;
    if (walk->run == 1) {
      adder->elements(target, block->target, other, block->other, block->count);
      continue;
    }
    for (int64_t k = 0; k < block->count; k++) {
      if (!walk->spread) {
        adder->run(target + block->target[k], other + block->other[k], block->run);
        continue;
      }
      for (int64_t j = 0; j < block->run; j++) {
        adder->run(target + block->target[k] + j * walk->width, other + block->other[k], 1);
      }
    }
  }
}

// Sums of half types, grouped by target

struct position {
  int64_t target, other;
};

/// Stable: 11 bits of the target's offset per pass. `room` has the same length; returns where the result is.
static struct position *sort_positions(struct position *from, struct position *room, int64_t count) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < count; i++) {
    bits |= (uint64_t)from[i].target;
  }
  for (int shift = 0; shift < 64 && bits >> shift; shift += 11) {
    int64_t starts[2048] = {0}, sum = 0;
    for (int64_t i = 0; i < count; i++) {
      starts[(uint64_t)from[i].target >> shift & 2047]++;
    }
    for (int i = 0; i < 2048; i++) {
      const int64_t n = starts[i];
      starts[i] = sum;
      sum += n;
    }
    for (int64_t i = 0; i < count; i++) {
      room[starts[(uint64_t)from[i].target >> shift & 2047]++] = from[i];
    }
    struct position *swap = from;
    from = room;
    room = swap;
  }
  return from;
}

struct group {
  const struct index_walk *walk;
  const struct position *first;
  int64_t count;
};

static void widen(int dtype, float *dst, const void *src, int64_t count) {
  (dtype == DIT_DTYPE_F16 ? cast_half_to_float : cast_bfloat_to_float)(dst, src, count);
}

/// One term for each target of a run, without a room in between.
KERNEL_INLINE void add_one_bf16_body(uint16_t *target, const uint16_t *other, int64_t count) {
  KERNEL_LANES
  for (int64_t i = 0; i < count; i++) {
    target[i] = bfloat_from_float(bfloat_to_float(target[i]) + bfloat_to_float(other[i]));
  }
}
KERNEL_MULTI(static, add_one_bf16, (uint16_t * target, const uint16_t *other, int64_t count), (target, other, count))

static void add_group(void *context, char *const *data, int64_t count) {
  const struct group *group = context;
  const struct index_walk *walk = group->walk;
  float sum[PIECE], term[PIECE];
  for (int64_t i = 0; i < count; i++) {
    char *target = data[0] + i * walk->rest.strides[0][0] + group->first->target;
    const char *other = data[1] + i * walk->rest.strides[1][0];
    if (group->count == 1 && walk->dtype == DIT_DTYPE_BF16 && !walk->spread) {
      add_one_bf16((uint16_t *)(void *)target, (const uint16_t *)(const void *)(other + group->first->other),
                   walk->run);
      continue;
    }
    for (int64_t begin = 0; begin < walk->run; begin += PIECE) {
      const int64_t n = walk->run - begin < PIECE ? walk->run - begin : PIECE;
      widen(walk->dtype, sum, target + begin * 2, n);
      for (int64_t k = 0; k < group->count; k++) {
        const char *from = other + group->first[k].other;
        widen(walk->dtype, term, walk->spread ? from : from + begin * 2, walk->spread ? 1 : n);
        if (!walk->spread) {
          add_F32(sum, term, n);
          continue;
        }
        for (int64_t j = 0; j < n; j++) {
          sum[j] += term[0];
        }
      }
      cast_block(walk->dtype, target + begin * 2, DIT_DTYPE_F32, sum, n);
    }
  }
}

struct groups {
  const struct index_walk *walk;
  const struct position *positions;
};

/// A group belongs to the range that its first position lies in.
static void add_groups(void *context, int64_t begin, int64_t end) {
  const struct groups *task = context;
  const struct position *all = task->positions;
  int64_t i = begin;
  while (i < end && i > 0 && all[i].target == all[i - 1].target) {
    i++;
  }
  while (i < end) {
    int64_t next = i + 1;
    while (next < task->walk->count && all[next].target == all[i].target) {
      next++;
    }
    struct group group = {task->walk, all + i, next - i};
    nest_walk(&task->walk->rest, 0, task->walk->rest.numel, add_group, &group);
    i = next;
  }
}

enum dit_status index_add_grouped(const struct index_walk *walk, struct dit_error *err) {
  struct position *room = dit_calloc((size_t)walk->count, 2 * sizeof *room);
  if (!room) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for %lld positions", (long long)walk->count);
  }
  for (int64_t begin = 0; begin < walk->count; begin += INDEX_BLOCK) {
    const int64_t n = walk->count - begin < INDEX_BLOCK ? walk->count - begin : INDEX_BLOCK;
    int64_t target[INDEX_BLOCK], other[INDEX_BLOCK];
    index_get_offsets(walk, begin, n, target, other);
    for (int64_t i = 0; i < n; i++) {
      room[begin + i] = (struct position){target[i], other[i]};
    }
  }
  struct groups task = {walk, sort_positions(room, room + walk->count, walk->count)};
  const int64_t grain = NEST_GRAIN / (walk->rest.numel * walk->run) + 1;
  dit_parallel_for(0, walk->count, grain, add_groups, &task);
  dit_free(room);
  return DIT_OK;
}
