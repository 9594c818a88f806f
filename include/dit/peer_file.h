/// Memory that other processes of the same user can map: an anonymous file (memfd) and the handle that leads to it.
///
/// There is no name in any directory, so nothing is left behind by a crash: the file lives as long as a process has it
/// open or mapped. A handle names the owner's process and descriptor and holds a random number that is also in the
/// file's label, so that a descriptor that was closed and used again is noticed. The file can neither shrink nor grow.
#ifndef DIT_PEER_FILE_H
#define DIT_PEER_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

DIT_EXTERN_C_BEGIN

#define DIT_PEER_HANDLE_SIZE 32

/// Plain bytes, to be sent to another process as they are.
struct dit_peer_handle {
  uint8_t bytes[DIT_PEER_HANDLE_SIZE];
};

/// A file of `size` zero bytes (size > 0). The caller owns the descriptor; the handle is valid while it is open.
DIT_API DIT_NODISCARD enum dit_status dit_peer_file_create(size_t size, int *fd, struct dit_peer_handle *handle,
                                                           struct dit_error *err);
/// Open the file behind a handle; the caller owns the descriptor. DIT_ERR_CORRUPT when the bytes are no handle,
/// DIT_ERR_IO when the owner has ended or closed the file, or may not be asked.
DIT_API DIT_NODISCARD enum dit_status dit_peer_file_open(const struct dit_peer_handle *handle, int *fd, size_t *size,
                                                         struct dit_error *err);

DIT_EXTERN_C_END

#endif
