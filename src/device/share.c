/// dit/share.h: storages that were sent to other processes, and mappings of storages that came from them.
///
/// Invariant: a share is in `shares` from create until its release; its tickets are the messages whose receivers may
/// still need the memory. One mapping exists per vendor allocation of another process, counted by the imports in it.
/// One lock guards all of it; release callbacks and the vendor's synchronisation run without it. In a forked child
/// nothing is told to anybody: the counters belong to the parent. Depends on share_slots.c and the runtime.
#include "dit/share.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "device/device_internal.h"
#include "device/share_slots.h"
#include "dit/alloc.h"
#include "dit/log.h"
#include "dit/memory.h"

#define MANY_ENDED 1000  // CUDA's producers warn at this number too

struct dit_share {
  struct dit_share *next;
  int device;
  struct dit_memory_handle memory;
  uint64_t offset, size;
  void (*release)(void *context);
  void *context;
  struct dit_share_slots *slots;
  uint64_t *tickets;
  size_t ticket_count, ticket_capacity;
  bool ended;  // the storage is gone; the memory waits for receivers
};

struct mapping {
  struct mapping *next;
  struct dit_memory_handle memory;
  int device;
  char *base;
  size_t size, references;
};

struct dit_share_import {
  struct mapping *mapping;
  struct dit_share_slots *slots;
  uint64_t ticket;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dit_share *shares;
static struct mapping *mappings;
static size_t ended_count;
static time_t last_asked;  // when the kernel was last asked for dead receivers

static enum dit_status check_vendor(int device, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_check(device, err));
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();
  if (!vtable->memory_export || !vtable->memory_import || !vtable->memory_close) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the vendor '%s' cannot share memory between processes",
                         vtable->name);
  }
  return DIT_OK;
}

// Sending

enum dit_status dit_share_create(int device, void *ptr, size_t size, void (*release)(void *context), void *context,
                                 struct dit_share **out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_vendor(device, err));
  struct dit_share *share = dit_calloc(1, sizeof *share);
  if (!share) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while sharing device memory");
  }
  void *base = NULL;
  dit_memory_access_begin();
  enum dit_status status = dit_runtime_get_vtable()->memory_export(device, ptr, &share->memory, &base, err);
  dit_memory_access_end();
  pthread_mutex_lock(&lock);
  if (status == DIT_OK) {
    status = dit_share_slots_get_own(&share->slots, err);
  }
  if (status == DIT_OK) {
    share->device = device;
    share->offset = (uint64_t)((char *)ptr - (char *)base);
    share->size = size;
    share->release = release;
    share->context = context;
    share->next = shares;
    shares = share;
    *out = share;
  }
  pthread_mutex_unlock(&lock);
  if (status != DIT_OK) {
    dit_free(share);
  }
  return status;
}

static void reclaim(struct dit_share *share, bool ask_kernel) {
  size_t kept = 0;
  for (size_t i = 0; i < share->ticket_count; i++) {
    if (!dit_share_slots_reclaim(share->slots, share->tickets[i], ask_kernel)) {
      share->tickets[kept++] = share->tickets[i];
    }
  }
  share->ticket_count = kept;
}

static enum dit_status add_ticket(struct dit_share *share, uint64_t *ticket, struct dit_error *err) {
  if (share->ticket_count == share->ticket_capacity) {
    reclaim(share, false);
  }
  if (share->ticket_count * 2 >= share->ticket_capacity) {  // half empty afterwards: reclaiming stays cheap on average
    size_t capacity = share->ticket_capacity ? share->ticket_capacity * 2 : 8;
    uint64_t *grown = dit_realloc(share->tickets, capacity * sizeof *grown);
    if (!grown) {
      return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while sharing device memory");
    }
    share->tickets = grown;
    share->ticket_capacity = capacity;
  }
  DIT_RETURN_IF_NOT_OK(dit_share_slots_take(share->slots, ticket, err));
  share->tickets[share->ticket_count++] = *ticket;
  return DIT_OK;
}

/// Take the ended shares that no receiver needs out of the list. The kernel is asked for dead receivers at most once a
/// second, or when the caller insists.
static struct dit_share *take_finished(bool insist) {
  struct dit_share *finished = NULL, **link = &shares;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  bool ask = insist || now.tv_sec != last_asked;
  last_asked = now.tv_sec;
  while (*link) {
    struct dit_share *share = *link;
    if (share->ended) {
      reclaim(share, ask);
    }
    if (share->ended && share->ticket_count == 0) {
      *link = share->next;
      share->next = finished;
      finished = share;
      ended_count--;
    } else {
      link = &share->next;
    }
  }
  return finished;
}

static size_t release_list(struct dit_share *list) {
  size_t count = 0;
  while (list) {
    struct dit_share *share = list;
    list = share->next;
    share->release(share->context);
    dit_free(share->tickets);
    dit_free(share);
    count++;
  }
  return count;
}

static size_t collect(bool insist) {
  pthread_mutex_lock(&lock);
  struct dit_share *finished = ended_count > 0 ? take_finished(insist) : NULL;
  pthread_mutex_unlock(&lock);
  return release_list(finished);
}

size_t dit_share_collect(void) {
  return dit_runtime_is_bad_fork() ? 0 : collect(true);
}

enum dit_status dit_share_send(struct dit_share *share, struct dit_share_message *out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_device_synchronize(share->device, err));
  (void)collect(false);
  uint64_t ticket = 0;
  pthread_mutex_lock(&lock);
  enum dit_status status = add_ticket(share, &ticket, err);
  if (status == DIT_OK) {
    *out = (struct dit_share_message){.memory = share->memory,
                                      .offset = share->offset,
                                      .size = share->size,
                                      .counters = *dit_share_slots_get_handle(share->slots),
                                      .ticket = ticket};
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void dit_share_destroy(struct dit_share *share) {
  if (!share) {
    return;
  }
  if (dit_runtime_is_bad_fork()) {
    share->release(share->context);  // gives nothing back in a forked child; the share itself is the parent's business
    return;
  }
  pthread_mutex_lock(&lock);
  share->ended = true;
  ended_count++;
  bool many = ended_count >= MANY_ENDED;
  struct dit_share *finished = take_finished(false);
  pthread_mutex_unlock(&lock);
  if (many) {
    dit_log_write_once(
        "share.many_ended", DIT_LOG_WARNING,
        "%d and more deleted device tensors wait for processes that received them, or have yet to; their "
        "memory is given back when those have deleted them",
        MANY_ENDED);
  }
  (void)release_list(finished);
}

size_t dit_share_count_unreceived(void) {
  size_t count = 0;
  if (dit_runtime_is_bad_fork()) {
    return 0;
  }
  pthread_mutex_lock(&lock);
  for (const struct dit_share *share = shares; share; share = share->next) {
    for (size_t i = 0; i < share->ticket_count; i++) {
      count += dit_share_slots_is_sent(share->slots, share->tickets[i]);
    }
  }
  pthread_mutex_unlock(&lock);
  return count;
}

// Receiving, with the lock held

static enum dit_status get_mapping(const struct dit_memory_handle *memory, int device, struct mapping **out,
                                   struct dit_error *err) {
  for (struct mapping *mapping = mappings; mapping; mapping = mapping->next) {
    if (mapping->device == device && memcmp(&mapping->memory, memory, sizeof *memory) == 0) {
      mapping->references++;
      *out = mapping;
      return DIT_OK;
    }
  }
  struct mapping *mapping = dit_calloc(1, sizeof *mapping);
  if (!mapping) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while receiving device memory");
  }
  void *base = NULL;
  dit_runtime_note_use();
  enum dit_status status = dit_runtime_get_vtable()->memory_import(device, memory, &base, &mapping->size, err);
  if (status != DIT_OK) {
    dit_free(mapping);
    return status;
  }
  mapping->memory = *memory;
  mapping->device = device;
  mapping->base = base;
  mapping->references = 1;
  mapping->next = mappings;
  mappings = mapping;
  *out = mapping;
  return DIT_OK;
}

static void put_mapping(struct mapping *mapping) {
  if (!mapping || --mapping->references > 0) {
    return;
  }
  struct mapping **link = &mappings;
  while (*link != mapping) {
    link = &(*link)->next;
  }
  *link = mapping->next;
  struct dit_error err = {0};
  const struct dit_device_vtable *vtable = dit_runtime_get_vtable();  // NULL after a shutdown: the pages stay mapped
  if (vtable && vtable->memory_close(mapping->device, mapping->base, mapping->size, &err) != DIT_OK) {
    dit_log_write_once("share.close", DIT_LOG_WARNING, "memory of another process was not unmapped: %s", err.message);
  }
  dit_free(mapping);
}

static enum dit_status map_message(const struct dit_share_message *message, int device, struct dit_share_import *import,
                                   struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(get_mapping(&message->memory, device, &import->mapping, err));
  size_t size = import->mapping->size;
  if (message->size == 0 || message->size > size || message->offset > size - message->size) {
    put_mapping(import->mapping);
    return dit_error_set(err, DIT_ERR_CORRUPT,
                         "a shared tensor of %llu bytes at offset %llu does not lie in its memory of %zu bytes",
                         (unsigned long long)message->size, (unsigned long long)message->offset, size);
  }
  return DIT_OK;
}

static enum dit_status receive(const struct dit_share_message *message, int device, struct dit_share_import *import,
                               struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_share_slots_open(&message->counters, &import->slots, err));
  enum dit_status status = dit_share_slots_claim(import->slots, message->ticket, err);
  if (status == DIT_OK) {
    status = map_message(message, device, import, err);
    if (status != DIT_OK) {
      dit_share_slots_finish(import->slots, message->ticket);
    }
  }
  if (status != DIT_OK) {
    dit_share_slots_close(import->slots);
  }
  return status;
}

enum dit_status dit_share_receive(const struct dit_share_message *message, int device, struct dit_share_import **out,
                                  void **ptr, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_vendor(device, err));
  struct dit_share_import *import = dit_calloc(1, sizeof *import);
  if (!import) {
    return dit_error_set(err, DIT_ERR_NOMEM, "host memory exhausted while receiving device memory");
  }
  import->ticket = message->ticket;
  pthread_mutex_lock(&lock);
  enum dit_status status = receive(message, device, import, err);
  pthread_mutex_unlock(&lock);
  if (status != DIT_OK) {
    dit_free(import);
    return status;
  }
  *out = import;
  *ptr = import->mapping->base + message->offset;
  return DIT_OK;
}

void dit_share_close(struct dit_share_import *import) {
  if (!import) {
    return;
  }
  if (!dit_runtime_is_bad_fork()) {
    enum dit_status ignored = dit_device_synchronize(import->mapping->device, NULL);
    (void)ignored;  // a device that failed runs nothing that could still use the memory
    pthread_mutex_lock(&lock);
    dit_share_slots_finish(import->slots, import->ticket);
    put_mapping(import->mapping);
    dit_share_slots_close(import->slots);
    pthread_mutex_unlock(&lock);
  }
  dit_free(import);
}

enum dit_status dit_share_dismiss(const struct dit_peer_handle *counters, uint64_t ticket, struct dit_error *err) {
  struct dit_share_slots *slots = NULL;
  pthread_mutex_lock(&lock);
  enum dit_status status = dit_share_slots_open(counters, &slots, err);
  if (status == DIT_OK) {
    dit_share_slots_skip(slots, ticket);
    dit_share_slots_close(slots);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

bool dit_share_find(const void *ptr, int *device) {
  bool found = false;
  if (dit_runtime_is_bad_fork()) {
    return false;
  }
  pthread_mutex_lock(&lock);
  for (const struct mapping *mapping = mappings; mapping && !found; mapping = mapping->next) {
    if ((uintptr_t)ptr - (uintptr_t)mapping->base < mapping->size) {
      *device = mapping->device;
      found = true;
    }
  }
  pthread_mutex_unlock(&lock);
  return found;
}
