/// Device memory between processes, with the rules programs know from CUDA: the sender's memory stays what it is until
/// every receiver has let go of it; each message can be received once; what was received cannot be sent on.
///
/// Sender: dit_share_create once per storage, dit_share_send per message, dit_share_destroy when the storage ends (the
/// memory is given back then, or as soon as no receiver needs it any more). Receiver: dit_share_receive and
/// dit_share_close. A message takes one slot in a counter file of the sender; a receiver that dies frees its slots, so
/// a crash strands nothing. Works with every vendor that fills the memory_export slots.
#ifndef DIT_SHARE_H
#define DIT_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/device.h"
#include "dit/peer_file.h"

DIT_EXTERN_C_BEGIN

/// What travels: plain bytes.
struct dit_share_message {
  struct dit_memory_handle memory;  ///< the vendor allocation
  uint64_t offset, size;            ///< the storage inside it
  struct dit_peer_handle counters;  ///< the sender's counter file
  uint64_t ticket;                  ///< this message's slot there, and the slot's generation
};

struct dit_share;

/// Prepare the storage of `size` bytes at `ptr` for sending. When the sender is done with it and so are all receivers,
/// `release(context)` is called, exactly once, with no lock held. DIT_ERR_UNSUPPORTED when the vendor or this
/// allocation cannot be shared.
DIT_API DIT_NODISCARD enum dit_status dit_share_create(int device, void *ptr, size_t size,
                                                       void (*release)(void *context), void *context,
                                                       struct dit_share **out, struct dit_error *err);
/// One message for one receiver; waits for the device's queued work first.
DIT_API DIT_NODISCARD enum dit_status dit_share_send(struct dit_share *share, struct dit_share_message *out,
                                                     struct dit_error *err);
DIT_API void dit_share_destroy(struct dit_share *share);  ///< NULL allowed

struct dit_share_import;

/// Map the memory of a message on `device`; `ptr` is where the storage begins. Fails when the sender has ended or taken
/// the memory back, and when the message was received before.
DIT_API DIT_NODISCARD enum dit_status dit_share_receive(const struct dit_share_message *message, int device,
                                                        struct dit_share_import **out, void **ptr,
                                                        struct dit_error *err);
/// Waits for the device's queued work, unmaps, tells the sender. NULL allowed.
DIT_API void dit_share_close(struct dit_share_import *import);
/// The receiver has this storage already: free the message's slot.
DIT_API DIT_NODISCARD enum dit_status dit_share_dismiss(const struct dit_peer_handle *counters, uint64_t ticket,
                                                        struct dit_error *err);

/// Give back the memory of ended storages that no receiver needs any more; returns how many.
DIT_API size_t dit_share_collect(void);
/// Messages that nobody has received yet.
DIT_API size_t dit_share_count_unreceived(void);
/// Is `ptr` inside memory that came from another process? `device` says where it is mapped.
DIT_API bool dit_share_find(const void *ptr, int *device);

DIT_EXTERN_C_END

#endif
