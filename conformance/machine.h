/// The memory that cases run in: a piece on the device, its image on the host before the call, and the one after it.
///
/// All storages of a case lie in one piece, each between guard zones, so that a run is one copy in and one copy out,
/// and a single comparison of the two images finds every byte that was written where none should be. Without a vendor's
/// device functions the device is plain host memory. Depends on libdit.
#ifndef DIT_CONFORM_MACHINE_H
#define DIT_CONFORM_MACHINE_H

#include <pthread.h>

#include "dit/diopi.h"
#include "dit/runtime.h"

#define MACHINE_GUARD 512  ///< bytes before and after each storage; also its alignment

struct machine {
  bool has_device;  ///< a vendor's device functions are loaded
  int64_t side_stream;
  void *side_raw;
  size_t capacity;
  unsigned char *device;          ///< what the library works on
  unsigned char *before, *after;  ///< its images on the host
  unsigned char *host;            ///< for tensors that lie on the host; the same layout
};

/// `vendor` NULL: host memory, no streams.
DIT_NODISCARD enum dit_status machine_init(struct machine *machine, const char *vendor, struct dit_error *err);
void machine_reset(struct machine *machine);
/// Memory of its own on the device of another machine, for one more thread; machine_release frees it.
void machine_fork(const struct machine *machine, struct machine *out);
void machine_release(struct machine *machine);
/// Room for `size` bytes; what was in it is lost.
DIT_NODISCARD enum dit_status machine_reserve(struct machine *machine, size_t size, struct dit_error *err);
/// Copy the first `size` bytes: `before` to the device and `host`, or the device to `after`.
DIT_NODISCARD enum dit_status machine_copy_in(struct machine *machine, size_t size, struct dit_error *err);
DIT_NODISCARD enum dit_status machine_copy_out(struct machine *machine, size_t size, struct dit_error *err);
/// Where the library finds the byte at `offset`.
unsigned char *machine_get_address(const struct machine *machine, bool on_host, size_t offset);
/// In a build with AddressSanitizer: close `size` bytes at `address` to everybody, or open them again, so that code
/// that only reads there is found as well. Does nothing in other builds.
void machine_close(const void *address, size_t size);
void machine_open(const void *address, size_t size);
/// Copy from any device address to the host.
DIT_NODISCARD enum dit_status machine_read(struct machine *machine, void *to, const void *from, size_t size,
                                           struct dit_error *err);
DIT_NODISCARD enum dit_status machine_synchronize(struct machine *machine, bool side, struct dit_error *err);
/// Make the side stream, or the default one, the current stream of the thread.
DIT_NODISCARD enum dit_status machine_set_stream(struct machine *machine, bool side, struct dit_error *err);

/// Scratch tensors of a call, between guard zones and filled with a pattern: the context's `allocate`. Threads may
/// share it.
struct scratch_block;
struct scratch {
  struct machine *machine;
  struct scratch_block *blocks;
  unsigned char pattern;
  pthread_mutex_t mutex;
};
void scratch_attach(struct scratch *scratch, struct machine *machine, struct diopiContext *context,
                    unsigned char pattern);
/// Are the guard zones as they were? `reason` says which byte is not. Call it when the stream is idle.
bool scratch_is_intact(const struct scratch *scratch, char *reason, size_t size);
void scratch_reset(struct scratch *scratch);

#endif
