/// A chip in a box, for tests: an accelerator as unfriendly as hardware, made of host memory.
///
/// Tensors carry addresses that the host may not touch; the device works on a second mapping of the same memory. Every
/// stream is a queue, the default one too. Failures are asynchronous and sticky: they appear at the next
/// synchronisation and stay until the device is reset. Files: device.c (vtable, copies), memory.c (mappings, blocks,
/// pinned memory), share.c (memory between processes), work.c (queues, sticky errors), mishap.c (what DITORCH_OPAQUE
/// asks for), missing.c (what DITORCH_OPAQUE_MISSING takes away), kernels.c (the kernel table), graph_*.c (the graph
/// engine, graph_program.h). They are libdit_vendor_opaque; operators.c and forward.c are libdiopi_opaque, which uses
/// the functions that are exported here. Queues, events and the loops are those of vendors/host.
#ifndef DIT_VENDORS_OPAQUE_OPAQUE_H
#define DIT_VENDORS_OPAQUE_OPAQUE_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/device.h"
#include "dit/peer_file.h"
#include "dit/tensor.h"
#include "lend.h"

// memory.c

void opaque_memory_init(uint64_t limit);
enum dit_status opaque_get_memory(int device, struct dit_device_memory *out, struct dit_error *err);
enum dit_status opaque_memory_alloc(int device, size_t size, void **ptr, struct dit_error *err);
enum dit_status opaque_memory_free(int device, void *ptr, struct dit_error *err);
enum dit_status opaque_pinned_alloc(size_t size, void **ptr, struct dit_error *err);
enum dit_status opaque_pinned_free(void *ptr, struct dit_error *err);
enum dit_status opaque_register(void *ptr, size_t size, struct dit_error *err);
enum dit_status opaque_unregister(void *ptr, struct dit_error *err);
/// Are these bytes pinned, so that the device may read them while the host goes on?
bool opaque_is_pinned(const void *ptr, size_t size);
/// Where the device itself finds the bytes behind an address that tensors carry; NULL when they are not all its own.
DIT_API void *dit_opaque_open(const void *ptr, size_t size);
/// The same view over those bytes. False when they are not all the device's.
DIT_API bool dit_opaque_open_view(const struct dit_tensor_view *closed, struct dit_tensor_view *open);
/// Of the block that contains `ptr`: the device's file, the place in it, the block's first address. False: there is
/// none.
bool opaque_find_block(int device, const void *ptr, struct dit_peer_handle *file, uint64_t *offset, void **base,
                       uint64_t *size);
/// Memory of another process: the closed address is known to opaque_open from now on, until it is removed.
enum dit_status opaque_add_mapping(void *closed, void *open, size_t size, struct dit_error *err);
/// The open address of what was added; NULL when it was not.
void *opaque_remove_mapping(void *closed, size_t size);

// share.c

enum dit_status opaque_memory_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                     struct dit_error *err);
enum dit_status opaque_memory_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                     struct dit_error *err);
enum dit_status opaque_memory_close(int device, void *base, size_t size, struct dit_error *err);

// work.c

/// A piece of work on a device. False, with a message, when it failed: asynchronously, as the caller is long gone.
typedef bool opaque_work(void *arguments, struct dit_error *err);

enum dit_status opaque_work_init(int count, struct dit_error *err);
void opaque_work_finalize(void);
/// A queue of the device, whose work is left out once the device has failed.
enum dit_status opaque_queue_create(int device, int priority, void **queue, struct dit_error *err);
/// The queue of a raw stream handle: NULL is the device's default stream.
DIT_API void *dit_opaque_get_queue(int device, void *stream);
/// Work that nothing is done for except what DITORCH_OPAQUE asks for: the mishaps of an operator, under its name.
DIT_API DIT_NODISCARD enum dit_status dit_opaque_strike(int device, void *stream, const char *name,
                                                        struct dit_error *err);
/// Queue work. `name` (static) is what a failure is reported under. An error that the device has already is returned.
enum dit_status opaque_launch(int device, void *stream, const char *name, opaque_work *run, const void *arguments,
                              size_t size, struct dit_error *err);
/// DIT_ERR_DEVICE with the first failure of the device, when there was one.
DIT_API DIT_NODISCARD enum dit_status dit_opaque_check(int device, struct dit_error *err);
/// Forget the device's failure, after its work has ended.
enum dit_status opaque_reset(int device, struct dit_error *err);

// mishap.c

/// Read DITORCH_OPAQUE. DIT_ERR_INVALID when it makes no sense.
enum dit_status opaque_mishap_init(struct dit_error *err);
/// Called before each piece of work: sleeps, or makes it fail, or loses the device, as asked for.
bool opaque_mishap_strike(struct dit_error *err);
/// Does DITORCH_OPAQUE ask for anything that strikes work?
bool opaque_mishap_is_asked(void);
/// DIT_ERR_NOMEM when this allocation is to fail. `used` and `most` are of its device: the bytes in use, and those that
/// may be (UINT64_MAX: any), which a device gets that is full from now on.
enum dit_status opaque_mishap_strike_allocation(size_t size, uint64_t used, uint64_t *most, struct dit_error *err);

// missing.c

/// Read DITORCH_OPAQUE_MISSING. DIT_ERR_INVALID, with the nearest name, for one that nothing has.
enum dit_status opaque_missing_init(struct dit_error *err);
/// Is the function of the standard with this number taken away?
DIT_API bool dit_opaque_is_missing(int function);
/// Bits of the dtypes (1 << enum dit_dtype) and layouts (diopiExtLayout_t) that are taken away.
DIT_API void dit_opaque_get_missing(uint64_t *dtypes, uint32_t *layouts);
/// Is a tensor of a dtype or layout that was taken away?
DIT_API bool dit_opaque_lacks(const struct dit_tensor_view *view, bool *dtype);
/// Is the kernel with this name in dit/kernel.h taken away?
bool opaque_is_kernel_missing(const char *name);

#endif
