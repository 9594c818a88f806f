/// The CUDA kernels on the CPU: vendors/cuda/helper_kernels.cu is compiled as C, and the threads of a block are fibers
/// that change at every barrier. Blocks are small, so that small tensors have many.
#ifndef DIT_TESTS_CUDA_FIBERS_H
#define DIT_TESTS_CUDA_FIBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#define HELPER_THREADS 32
#define HELPER_BLOCK_BYTES 2048

// What CUDA C++ has and C lacks

typedef struct {
  uint64_t x, y;
} __attribute__((__may_alias__)) ulonglong2;
typedef struct {
  unsigned x, y, z;
} dim3_index;

static dim3_index blockIdx, threadIdx;
static void barrier_wait(void);

#define DEVICE static inline
#define KERNEL static void
#define PARAMETER const
#define __shared__ static
#define __syncthreads() barrier_wait()
#define __threadfence() ((void)0)
#define UNROLL
#define UNROLL_1
#define UNROLL_2
#define UNROLL_4

static inline unsigned atomicAdd(unsigned *target, unsigned value) {
  unsigned old = *target;
  *target += value;
  return old;
}

static inline unsigned atomicOr(unsigned *target, unsigned value) {
  unsigned old = *target;
  *target |= value;
  return old;
}

static inline unsigned atomicExch(unsigned *target, unsigned value) {
  unsigned old = *target;
  *target = value;
  return old;
}

static inline void atomic_raise(uint64_t *target, uint64_t value) {
  *target = value > *target ? value : *target;
}

static inline void atomic_increase(uint64_t *target, uint64_t value) {
  *target += value;
}

#include "../../vendors/cuda/helper_kernels.cu"

// Fibers

#define STACK_SIZE (256 << 10)

struct fiber {
  ucontext_t context;
  bool done;
  char *stack;
};

static struct fiber fibers[HELPER_THREADS];
static ucontext_t scheduler;
static int running;
static void (*kernel_body)(const void *parameters);
static const void *kernel_parameters;

static void barrier_wait(void) {
  int mine = running;
  swapcontext(&fibers[mine].context, &scheduler);
  threadIdx.x = (unsigned)mine;
}

static void fiber_main(void) {
  kernel_body(kernel_parameters);
  fibers[running].done = true;
}

/// Not inlined: getcontext returns twice in the eyes of the compiler.
__attribute__((noinline)) static void start_fiber(struct fiber *fiber) {
  fiber->stack = fiber->stack ? fiber->stack : malloc(STACK_SIZE);
  fiber->done = false;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = STACK_SIZE;
  fiber->context.uc_link = &scheduler;
  makecontext(&fiber->context, fiber_main, 0);
}

/// Every thread up to the next barrier, until all are done.
static void run_block(void) {
  int left = HELPER_THREADS;
  for (int i = 0; i < HELPER_THREADS; i++) {
    start_fiber(&fibers[i]);
  }
  while (left > 0) {
    for (int i = 0; i < HELPER_THREADS; i++) {
      if (!fibers[i].done) {
        running = i;
        threadIdx.x = (unsigned)i;
        swapcontext(&scheduler, &fibers[i].context);
        left -= fibers[i].done;
      }
    }
  }
}

static inline void run_grid(void (*body)(const void *), const void *parameters, unsigned blocks, unsigned tensors) {
  kernel_body = body;
  kernel_parameters = parameters;
  // The last block to end is another one each time.
  static unsigned turn;
  turn++;
  for (unsigned y = 0; y < tensors; y++) {
    for (unsigned x = 0; x < blocks; x++) {
      blockIdx = (dim3_index){(x + turn) % blocks, y, 0};
      run_block();
    }
  }
  kernel_parameters = NULL;
}

static inline void body_nonfinite(const void *p) {
  helper_nonfinite(*(const struct kernel_batch *)p);
}

static inline void body_nonfinite_strided(const void *p) {
  helper_nonfinite_strided(*(const struct kernel_batch_strided *)p);
}

static inline void body_stats(const void *p) {
  helper_stats(*(const struct kernel_batch *)p);
}

static inline void body_stats_strided(const void *p) {
  helper_stats_strided(*(const struct kernel_batch_strided *)p);
}

static inline void body_compare(const void *p) {
  helper_compare(*(const struct kernel_compare *)p);
}

static inline void body_near(const void *p) {
  helper_near(*(const struct kernel_near *)p);
}

static inline void body_checksum(const void *p) {
  helper_checksum(*(const struct kernel_batch *)p);
}

static inline void body_checksum_strided(const void *p) {
  helper_checksum_strided(*(const struct kernel_batch_strided *)p);
}

static inline void body_hash(const void *p) {
  helper_hash(*(const struct kernel_hash *)p);
}

static inline void body_hash_strided(const void *p) {
  helper_hash_strided(*(const struct kernel_hash_strided *)p);
}

#endif
