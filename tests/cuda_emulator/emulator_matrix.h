/// Twins of instructions that kernels write as PTX: copies that come later, and matrices spread over a warp.
///
/// Copies are done when they are waited for, so that a forgotten wait shows. Matrix instructions have the layouts that
/// the PTX manual gives for mma.m16n8k16 and ldmatrix: each lane brings its registers, each computes what it holds.
#ifndef DIT_CUDA_EMULATOR_MATRIX_H
#define DIT_CUDA_EMULATOR_MATRIX_H

#include "emulator.h"

#define EMULATOR_COPIES 512
struct emulator_copies {
  struct {
    void *to;
    const void *from;
    int bytes;
  } list[EMULATOR_COPIES];
  int count, open, last;  ///< the open group begins at `open`, the one before it at `last`
};
inline emulator_copies emulator_copy_lists[1024];

static inline void emulator_copy_later(void *to, const void *from, int bytes) {
  emulator_copies &own = emulator_copy_lists[threadIdx.x];
  if (((uintptr_t)to | (uintptr_t)from) % 16 != 0 || own.count == EMULATOR_COPIES) {
    __builtin_trap();
  }
  own.list[own.count++] = {to, from, bytes};
}
static inline void emulator_copy_close() {
  emulator_copies &own = emulator_copy_lists[threadIdx.x];
  own.last = own.open;
  own.open = own.count;
}
/// All groups but the last closed one; what the open one holds would not be waited for either.
static inline void emulator_copy_wait() {
  emulator_copies &own = emulator_copy_lists[threadIdx.x];
  for (int i = 0; i < own.last; i++) {
    memset(own.list[i].to, 0, 16);
    memcpy(own.list[i].to, own.list[i].from, (size_t)own.list[i].bytes);
  }
  memmove(own.list, own.list + own.last, sizeof own.list[0] * (size_t)(own.count - own.last));
  own.count -= own.last;
  own.open -= own.last;
  own.last = 0;
}

/// What the lanes of a warp bring, of two exchanges: the next one starts while some still read this one.
struct emulator_room {
  uint64_t words[32][4];
};
inline emulator_room emulator_rooms[32][2];
inline unsigned emulator_turns[1024];

static inline const emulator_room &emulator_gather(const uint64_t *words, int count) {
  emulator_room &room = emulator_rooms[threadIdx.x / 32][emulator_turns[threadIdx.x]++ % 2];
  memcpy(room.words[threadIdx.x % 32], words, sizeof words[0] * (size_t)count);
  emulator_wait_warp();
  return room;
}

/// ldmatrix.m8n8.x4.b16: lane i brings the address of row i % 8 of matrix i / 8.
static inline void emulator_load_matrices(uint32_t out[4], const void *row, bool transposed) {
  const uint64_t address = (uint64_t)(uintptr_t)row;
  const int lane = (int)(threadIdx.x % 32);
  if (address % 16 != 0) {
    __builtin_trap();
  }
  const emulator_room &room = emulator_gather(&address, 1);
  for (int matrix = 0; matrix < 4; matrix++) {
    uint16_t pair[2];
    for (int i = 0; i < 2; i++) {
      const int r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
      pair[i] = ((const uint16_t *)(uintptr_t)room.words[matrix * 8 + r][0])[c];
    }
    out[matrix] = pair[0] | (uint32_t)pair[1] << 16;
  }
}

/// mma.m16n8k16.row.col: d += a b. `to_float` reads an element.
template <class ToFloat>
static inline void emulator_multiply_matrices(float d[4], const uint32_t a[4], const uint32_t b[2], ToFloat to_float) {
  const uint64_t words[3] = {a[0] | (uint64_t)a[1] << 32, a[2] | (uint64_t)a[3] << 32, b[0] | (uint64_t)b[1] << 32};
  const int lane = (int)(threadIdx.x % 32);
  const emulator_room &room = emulator_gather(words, 3);
  for (int k = 0; k < 16; k++) {
    const int quad = k % 8 / 2, high = k / 8;  // a2 and a3, b1 have the upper half of k
    float column[2];
    for (int j = 0; j < 2; j++) {
      const uint64_t word = room.words[(lane % 4 * 2 + j) * 4 + quad][2];
      column[j] = to_float((uint16_t)(word >> (32 * high + 16 * (k % 2))));
    }
    for (int i = 0; i < 2; i++) {
      const uint64_t word = room.words[lane / 4 * 4 + quad][high];
      const float x = to_float((uint16_t)(word >> (32 * i + 16 * (k % 2))));
      d[2 * i] += x * column[0];
      d[2 * i + 1] += x * column[1];
    }
  }
}

#endif
