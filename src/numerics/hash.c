/// The 128-bit hash of a tensor (contract in include/dit/numerics.h).
///
/// Construction. The elements in row-major order are cut into blocks of WALK_CHUNK. A block's bytes are read as
/// little-endian 64-bit words, padded with zeros to 64 bytes, and taken in turn by four states of two words, seeded
/// with the block's number and its length. A step takes two words (u, v) into a state (s, t):
///   x = s ^ u, y = t ^ v, (lo, hi) = (x ^ K0) * (y ^ K1) in 128 bits, s = lo + rotl(y, 32), t = hi ^ rotl(x, 23).
/// The feed-forward of x and y keeps a zero factor from swallowing the other word. The four states are folded with the
/// same step and finished with the avalanche of MurmurHash3. Block hashes are taken in order into one state per slot,
/// slots in order into the result, which begins with dtype and shape. The cut depends on the number of elements alone.
#include <string.h>

#include "dit/numerics.h"
#include "numerics/walk.h"

__extension__ typedef unsigned __int128 wide_uint;

/// Fraction bits of sqrt(2), sqrt(3), sqrt(5), sqrt(7) ..., made odd.
static const uint64_t keys[10] = {
    UINT64_C(0x6A09E667F3BCC909), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),
    UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),
    UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179), UINT64_C(0xCBBB9D5DC1059ED9),
    UINT64_C(0x629A292A367CD507),
};

struct state {
  uint64_t s, t;
};

static inline uint64_t rotate(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static inline void state_take(struct state *state, uint64_t u, uint64_t v) {
  uint64_t x = state->s ^ u, y = state->t ^ v;
  wide_uint product = (wide_uint)(x ^ keys[8]) * (y ^ keys[9]);
  state->s = (uint64_t)product + rotate(y, 32);
  state->t = (uint64_t)(product >> 64) ^ rotate(x, 23);
}

static uint64_t avalanche(uint64_t x) {
  x ^= x >> 33;
  x *= UINT64_C(0xFF51AFD7ED558CCD);
  x ^= x >> 33;
  x *= UINT64_C(0xC4CEB9FE1A85EC53);
  return x ^ x >> 33;
}

/// Both words depend on all of the state.
static void state_finish(struct state *state) {
  state_take(state, keys[2], keys[5]);
  uint64_t s = avalanche(state->s + state->t), t = avalanche(state->t ^ rotate(state->s, 17));
  state->s = s + t;
  state->t = t ^ rotate(s, 41);
  state_take(state, keys[6], keys[3]);
}

static inline uint64_t load_word(const char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

static inline void take_line(struct state lanes[4], const char *line) {
  for (int lane = 0; lane < 4; lane++) {
    state_take(&lanes[lane], load_word(line + 16 * lane), load_word(line + 16 * lane + 8));
  }
}

static struct state hash_block(const char *bytes, int64_t size, int64_t number) {
  struct state lanes[4];
  for (int lane = 0; lane < 4; lane++) {
    lanes[lane].s = keys[2 * lane] ^ (uint64_t)number * keys[8];
    lanes[lane].t = keys[2 * lane + 1] + (uint64_t)size;
  }
  int64_t done = 0;
  for (; done + 64 <= size; done += 64) {
    take_line(lanes, bytes + done);
  }
  if (done < size) {
    char last[64] = {0};
    memcpy(last, bytes + done, (size_t)(size - done));
    take_line(lanes, last);
  }
  for (int lane = 1; lane < 4; lane++) {
    state_take(&lanes[0], lanes[lane].s, lanes[lane].t);
  }
  state_finish(&lanes[0]);
  return lanes[0];
}

struct hash_task {
  const struct walk *walk;
  struct state *states;
};

struct slot_state {
  const struct walk *walk;
  struct state *state;
};

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  const struct slot_state *slot = context;
  struct state block = hash_block(data[0], count * slot->walk->width[0], begin / WALK_CHUNK);
  state_take(slot->state, block.s, block.t);
}

static void run_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct hash_task *task = context;
  struct slot_state slot = {task->walk, &task->states[index]};
  *slot.state = (struct state){keys[0], keys[1] + (uint64_t)index};
  walk_range(task->walk, begin, end, run_chunk, &slot);
}

enum dit_status dit_tensor_get_hash(const struct dit_tensor_view *view, struct dit_hash *hash, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(walk_check(view, "the tensor", err));
  struct state states[WALK_SLOTS];
  struct walk walk;
  struct hash_task task = {&walk, states};
  walk_init(&walk, 1, &view, WALK_ROW_MAJOR);
  int slots = walk_run(&walk, run_slot, &task);
  struct state all = {keys[4], keys[7]};
  state_take(&all, (uint64_t)view->dtype, (uint64_t)view->ndim);
  for (int dim = 0; dim < view->ndim; dim++) {
    state_take(&all, (uint64_t)view->sizes[dim], (uint64_t)dim);
  }
  for (int slot = 0; slot < slots; slot++) {
    state_take(&all, states[slot].s, states[slot].t);
  }
  state_finish(&all);
  hash->low = all.s;
  hash->high = all.t;
  return DIT_OK;
}
