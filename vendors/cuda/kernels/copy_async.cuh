/// Copies of 16 bytes from device to shared memory that go on while the block computes.
#ifndef DIT_CUDA_COPY_ASYNC_CUH
#define DIT_CUDA_COPY_ASYNC_CUH

#include "kernel.cuh"
#ifndef __CUDACC__
#include "emulator_matrix.h"
#endif

/// `bytes` of 16 are read, the others become 0. Both addresses are multiples of 16.
KERNEL_INLINE void copy_async(void *to, const void *from, int bytes) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
               "r"(bytes)
               : "memory");
#else
  emulator_copy_later(to, from, bytes);
#endif
}
/// End the group of copies that were asked for.
KERNEL_INLINE void copy_async_close() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator_copy_close();
#endif
}
/// Until all groups but the last one are there, for this thread: a barrier follows.
KERNEL_INLINE void copy_async_wait() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#else
  emulator_copy_wait();
#endif
}
/// Until all are there.
KERNEL_INLINE void copy_async_finish() {
  copy_async_close();
  copy_async_close();
  copy_async_wait();
}

#endif
