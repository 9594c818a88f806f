/// Frees that wait for other streams.
///
/// A block that record_stream saw on other streams is PENDING_FREE until an event recorded on each of them, at the time
/// of the free, has completed. An event that cannot be created or recorded is no reason to fail or to block: the stream
/// itself is polled instead, which is only more careful. Invariant: block->event_count is the number of its uses in
/// slot queues or on the way there. Depends on: allocator_pool.
#include "device/allocator_impl.h"

static bool is_complete(struct dit_allocator *a, const struct dit_allocator_use *use) {
  bool done = false;
  enum dit_status status;
  if (use->recorded) {
    status = a->vtable->event_query(a->context, use->event, &done, NULL);
  } else {
    status = a->vtable->stream_query(a->context, use->slot->stream, &done, NULL);
  }
  return status == DIT_OK && done;
}

static void complete_use(struct dit_allocator *a, struct dit_allocator_use *use) {
  struct dit_allocator_block *block = use->block;
  dit_allocator_use_put(a, use);
  if (--block->event_count == 0) {
    dit_allocator_block_release(a, block);
  }
}

void dit_allocator_event_poll(struct dit_allocator *a, uint64_t synchronized) {
  for (struct dit_allocator_slot *slot = a->slots; slot && a->pending > 0; slot = slot->next) {
    while (slot->queue_head && (slot->queue_head->number <= synchronized || is_complete(a, slot->queue_head))) {
      struct dit_allocator_use *use = slot->queue_head;
      slot->queue_head = use->next;
      if (!slot->queue_head) {
        slot->queue_tail = NULL;
      }
      a->pending--;
      complete_use(a, use);
    }
  }
}

static void enqueue(struct dit_allocator *a, struct dit_allocator_use *use) {
  struct dit_allocator_slot *slot = use->slot;
  use->next = NULL;
  if (slot->queue_tail) {
    slot->queue_tail->next = use;
  } else {
    slot->queue_head = use;
  }
  slot->queue_tail = use;
  use->number = ++a->queued_uses;
  a->pending++;
}

void dit_allocator_event_defer(struct dit_allocator *a, struct dit_allocator_block *block,
                               struct dit_allocator_use *uses) {
  block->event_count = 0;
  for (struct dit_allocator_use *use = uses; use; use = use->next) {
    block->event_count++;
  }
  dit_allocator_leave(a);
  for (struct dit_allocator_use *use = uses; use; use = use->next) {
    use->recorded = (use->event || a->vtable->event_create(a->context, &use->event, NULL) == DIT_OK) &&
                    a->vtable->event_record(a->context, use->event, use->slot->stream, NULL) == DIT_OK;
  }
  dit_allocator_reenter(a);
  while (uses) {
    struct dit_allocator_use *use = uses;
    uses = use->next;
    enqueue(a, use);
  }
}
