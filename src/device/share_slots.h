/// The counter file of a sender: one slot per message, seen by the sender and by all its receivers.
///
/// A slot is one word, generation * 4 + state. The sender takes a FREE slot and makes it SENT; a receiver locks the
/// slot's byte of the file (the kernel drops the lock when the process ends) and makes it OPEN; when it is done it
/// makes it DONE and unlocks. A slot that is OPEN without a lock belonged to a receiver that died.
#ifndef DIT_DEVICE_SHARE_SLOTS_H
#define DIT_DEVICE_SHARE_SLOTS_H

#include <stdbool.h>

#include "dit/peer_file.h"

struct dit_share_slots;

/// This process's own counter file, made at the first call. Callers serialise the functions of this header.
enum dit_status dit_share_slots_get_own(struct dit_share_slots **out, struct dit_error *err);
/// Another process's (or one's own) counter file, counted.
enum dit_status dit_share_slots_open(const struct dit_peer_handle *handle, struct dit_share_slots **out,
                                     struct dit_error *err);
void dit_share_slots_close(struct dit_share_slots *slots);
const struct dit_peer_handle *dit_share_slots_get_handle(const struct dit_share_slots *slots);

// The sender
enum dit_status dit_share_slots_take(struct dit_share_slots *slots, uint64_t *ticket, struct dit_error *err);
bool dit_share_slots_is_sent(const struct dit_share_slots *slots, uint64_t ticket);
/// Does the receiver need the memory no more? The slot is free then. `ask_kernel`: look for dead receivers too.
bool dit_share_slots_reclaim(struct dit_share_slots *slots, uint64_t ticket, bool ask_kernel);

// The receiver
enum dit_status dit_share_slots_claim(struct dit_share_slots *slots, uint64_t ticket, struct dit_error *err);
void dit_share_slots_finish(struct dit_share_slots *slots, uint64_t ticket);  ///< claimed
void dit_share_slots_skip(struct dit_share_slots *slots, uint64_t ticket);    ///< never claimed

#endif
