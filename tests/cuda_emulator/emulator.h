/// What a kernel file sees in place of CUDA when the C++ compiler builds it for the emulated driver.
///
/// The threads of a block run one after another. A kernel that has barriers or shuffles runs on fibers, each with a
/// stack of its own (fiber.c); the others are plain loops. Results are proved, not speed and not races: a missing
/// barrier shows only when it changes the order that is used here.
#ifndef DIT_CUDA_EMULATOR_H
#define DIT_CUDA_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// what the libraries that the emulated NVRTC makes need of this one
#pragma GCC visibility push(default)
struct emulator_dim {
  unsigned x, y, z;
};
extern struct emulator_dim threadIdx, blockIdx, blockDim, gridDim;

/// A kernel as libcuda.so.1 finds it: the symbol "emulated_" and its name.
struct emulated_kernel {
  size_t size;  ///< of its one parameter
  void (*run)(const void *parameter);
  int has_barriers;
};

/// All threads of the block, or all lanes of the warp, get here before one goes on.
void emulator_wait_block(void);
void emulator_wait_warp(void);
/// The memory of `extern __shared__`.
void *emulator_get_shared(void);
/// One slot of 8 bytes per lane of the calling thread's warp, of the thread's current exchange.
uint64_t *emulator_get_slots(void);
unsigned emulator_get_lane(void);
unsigned emulator_get_lanes(void);  ///< of this warp
/// The kernel fails: the grid is run to its end, then the device answers with the failure.
void emulator_trap(void);

/// Run a grid now. False when threads wait for each other forever.
int emulator_run(const struct emulated_kernel *kernel, struct emulator_dim grid, struct emulator_dim block,
                 size_t shared, const void *parameter);
#pragma GCC visibility pop

#ifdef __cplusplus
}

#include <math.h>
#include <string.h>

#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() emulator_wait_block()
#define __syncwarp(...) emulator_wait_warp()
#define __threadfence()
#define __trap() emulator_trap()

template <class T>
static inline T emulator_exchange(T value, unsigned from) {
  static_assert(sizeof(T) <= 8, "one slot");
  uint64_t *slots = emulator_get_slots();
  memcpy(&slots[emulator_get_lane()], &value, sizeof value);
  emulator_wait_warp();
  if (from < emulator_get_lanes()) {
    memcpy(&value, &slots[from], sizeof value);
  }
  return value;
}
template <class T>
static inline T __shfl_xor_sync(unsigned, T value, int lanes) {
  return emulator_exchange(value, emulator_get_lane() ^ (unsigned)lanes);
}
template <class T>
static inline T __shfl_down_sync(unsigned, T value, unsigned lanes) {
  const unsigned from = emulator_get_lane() + lanes;
  return emulator_exchange(value, from < 32 ? from : emulator_get_lane());
}
template <class T>
static inline T __shfl_up_sync(unsigned, T value, unsigned lanes) {
  const unsigned lane = emulator_get_lane();
  return emulator_exchange(value, lane >= lanes ? lane - lanes : lane);
}
template <class T>
static inline T __shfl_sync(unsigned, T value, int lane) {
  return emulator_exchange(value, (unsigned)lane & 31);
}

/// Lanes that hold the same value.
template <class T>
static inline unsigned __match_any_sync(unsigned, T value) {
  uint64_t *slots = emulator_get_slots();
  const unsigned lanes = emulator_get_lanes();
  unsigned same = 0;
  slots[emulator_get_lane()] = (uint64_t)value;
  emulator_wait_warp();
  for (unsigned lane = 0; lane < lanes; lane++) {
    same |= (unsigned)(slots[lane] == (uint64_t)value) << lane;
  }
  return same;
}
static inline unsigned __ballot_sync(unsigned, int value) {
  uint64_t *slots = emulator_get_slots();
  const unsigned lanes = emulator_get_lanes();
  unsigned set = 0;
  slots[emulator_get_lane()] = value != 0;
  emulator_wait_warp();
  for (unsigned lane = 0; lane < lanes; lane++) {
    set |= (unsigned)slots[lane] << lane;
  }
  return set;
}
static inline int __popc(unsigned value) {
  return __builtin_popcount(value);
}

// One thread runs at a time, so that atomic operations are plain ones.
template <class T, class U>
static inline T atomicAdd(T *place, U value) {
  const T before = *place;
  *place = before + (T)value;
  return before;
}
template <class T, class U>
static inline T atomicMax(T *place, U value) {
  const T before = *place;
  *place = before < (T)value ? (T)value : before;
  return before;
}
template <class T, class U>
static inline T atomicOr(T *place, U value) {
  const T before = *place;
  *place = before | (T)value;
  return before;
}
template <class T, class U>
static inline T atomicExch(T *place, U value) {
  const T before = *place;
  *place = (T)value;
  return before;
}
template <class T, class U, class V>
static inline T atomicCAS(T *place, U expected, V value) {
  const T before = *place;
  *place = before == (T)expected ? (T)value : before;
  return before;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
#endif
#endif
