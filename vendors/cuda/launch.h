/// The host side of the CUDA operators: finding kernels and launching them. Start here to add a family.
///
/// How an operator is made of four pieces:
///   1. kernels/thing.h    parameters, a plain C struct of at most 4 KB that both sides include
///   2. kernels/thing.cu   kernels: KERNEL(threads, thing_f32, struct thing) { ... } (kernels/kernel.cuh)
///   3. engine/thing.c     fills the struct and launches: KERNEL_REFERENCE(thing_f32, thing); kernel_launch(...)
///   4. the diopi function: where vendors/host/ops has one that only checks and calls an engine function (softmax.c,
///      reduce.c, copy.c ...), that file is compiled here as it is (CUDA_FRONTS in CMakeLists.txt) and piece 3 defines
///      the same engine function; else ops/thing.c, written with the same frame (vendors/host/ops/frame.h).
/// A pointwise operator needs none of it: its expression in vendors/host/ops/*_expressions.h is enough.
/// Then a row in library.c's list, and `ditorch conform run --library cuda --vendor cuda --function diopiThing`, which
/// the emulated driver of tests/cuda_emulator runs without a GPU.
///
/// Rules: nothing waits for the device unless the result lies on the host; scratch memory comes from the context
/// (scratch_take); DIT_ERR_UNSUPPORTED before anything is written sends the call to the fallback.
#ifndef DIT_CUDA_LAUNCH_H
#define DIT_CUDA_LAUNCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

#define KERNEL_DEVICES 8  ///< devices whose functions are remembered; others are looked up each time

struct kernel {
  const char *module;  ///< stem of the kernel file
  const char *name;
  _Atomic(void *) functions[KERNEL_DEVICES];
  _Atomic size_t shared;  ///< dynamic shared memory that was asked for so far
};
#define KERNEL_REFERENCE(name_, module_) static struct kernel name_ = {.module = #module_, .name = #name_}

struct kernel_grid {
  unsigned x, y, z;
  unsigned threads;
  size_t shared;  ///< bytes of dynamic shared memory
};

/// Launch on the stream of the calling thread's current device. `parameter` is copied.
DIT_NODISCARD enum dit_status kernel_launch(struct kernel *kernel, void *stream, struct kernel_grid grid,
                                            const void *parameter, struct dit_error *err);
/// Blocks of a grid-stride loop over `count` items, `per_block` of them per block: enough to fill the device.
unsigned kernel_get_blocks(int64_t count, int64_t per_block);
int kernel_get_multiprocessors(void);
/// Bytes of shared memory that a block may ask for, its kernel's own among them.
size_t kernel_get_shared_limit(void);
/// Is the driver there? To be asked before the driver's functions are called without one of these; it is looked for
/// once.
DIT_NODISCARD enum dit_status launch_check(struct dit_error *err);

/// Plain driver work in the order of the stream, on the current device.
DIT_NODISCARD enum dit_status launch_copy(void *stream, void *to, const void *from, size_t size, struct dit_error *err);
/// From host memory, which the caller may change at once.
DIT_NODISCARD enum dit_status launch_write(void *stream, void *to, const void *host, size_t size,
                                           struct dit_error *err);
DIT_NODISCARD enum dit_status launch_set(void *stream, void *memory, int value, size_t size, struct dit_error *err);
/// Read device memory now: waits for the stream.
DIT_NODISCARD enum dit_status launch_read(void *stream, void *host, const void *memory, size_t size,
                                          struct dit_error *err);

/// Does the user want wrong values (indices, class numbers) reported by the call itself (option launch_blocking)? Else
/// the kernels that meet one stop the device, as PyTorch's do.
bool launch_is_checked(void);
/// May float32 be multiplied as TF32 (option cuda_tf32)?
bool launch_allows_tf32(void);

/// Memory of a stream for kernels that join parts: what the stream's next kernel leaves there is its own.
struct launch_scratch {
  void *memory;       ///< LAUNCH_SCRATCH bytes
  uint32_t *tickets;  ///< LAUNCH_TICKETS counters, zero between kernels
};
#define LAUNCH_SCRATCH ((size_t)1 << 21)
#define LAUNCH_TICKETS ((size_t)1 << 12)
DIT_NODISCARD enum dit_status launch_get_scratch(void *stream, struct launch_scratch *scratch, struct dit_error *err);
/// Around launches that hand each other something in the scratch of a stream: another thread's may not come in between.
void launch_begin_sequence(void);
void launch_end_sequence(void);

/// Memory of the call's context, freed with it; NULL when there is none. Aligned to 256.
struct diopiContext;
void *scratch_take(struct diopiContext *context, size_t size);

#endif
