/// The caller's side of a store: creating, putting, flushing, destroying.
///
/// Invariant: put = accepted + dropped + capped; accepted = written + lost + queued_items. Whatever happens to a put,
/// its blobs are released exactly once: here when it is refused, by the thread otherwise. Depends on queue, files,
/// pack.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dit/alloc.h"
#include "dit/log.h"
#include "store/queue.h"

enum { DEFAULT_BLOCK_MS = 60000, HURRY_BYTES = 8 << 20 };

struct timespec dit_store_get_deadline(int ms) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += ms / 1000;
  at.tv_nsec += (long)(ms % 1000) * 1000000;
  if (at.tv_nsec >= 1000000000) {
    at.tv_nsec -= 1000000000;
    at.tv_sec++;
  }
  return at;
}

void dit_store_init_conditions(struct dit_store *store) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&store->work, &attributes);
  pthread_cond_init(&store->space, &attributes);
  pthread_cond_init(&store->done, &attributes);
  pthread_condattr_destroy(&attributes);
}

void dit_store_free(struct dit_store *store) {
  while (store->head) {
    struct dit_store_node *node = store->head;
    store->head = node->next;
    if (!store->forked) {
      dit_item_release(&node->item);
    }
    dit_free(node);
  }
  dit_files_reset(&store->files);
  dit_pack_reset(&store->pack);
  pthread_mutex_destroy(&store->mutex);
  pthread_cond_destroy(&store->work);
  pthread_cond_destroy(&store->space);
  pthread_cond_destroy(&store->done);
  dit_free(store);
}

static enum dit_status check_options(const struct dit_store_options *options, struct dit_error *err) {
  if (options->layout != DIT_STORE_FILES && options->layout != DIT_STORE_PACKED) {
    return dit_error_set(err, DIT_ERR_INVALID, "layout is %d; valid: 0 (files), 1 (packed)", (int)options->layout);
  }
  if (options->pressure != DIT_RECORD_BLOCK && options->pressure != DIT_RECORD_DROP) {
    return dit_error_set(err, DIT_ERR_INVALID, "pressure is %d; valid: 0 (block), 1 (drop)", (int)options->pressure);
  }
  if (options->block_ms < 0 || options->rank < 0 || options->queue_bytes < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "block_ms is %d, rank %d, queue_bytes %lld; all must be 0 or more",
                         options->block_ms, (int)options->rank, (long long)options->queue_bytes);
  }
  if (options->cap_bytes < -1 || options->cap_items < -1) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "cap_bytes is %lld, cap_items %lld; valid: -1 (no cap), 0 (default) and more",
                         (long long)options->cap_bytes, (long long)options->cap_items);
  }
  const char *name = options->container;
  if (name && (strchr(name, '/') || dit_path_check(name, strlen(name), err) != DIT_OK || strlen(name) > 200)) {
    return dit_error_set(err, DIT_ERR_INVALID, "container is '%.200s'; valid: the name of a file, without '/'", name);
  }
  return DIT_OK;
}

static void take_options(struct dit_store *store, const struct dit_store_options *options) {
  store->layout = options->layout;
  store->pressure = options->pressure;
  store->block_ms = options->block_ms ? options->block_ms : DEFAULT_BLOCK_MS;
  store->queue_bytes = options->queue_bytes ? options->queue_bytes : DIT_STORE_QUEUE_BYTES;
  store->cap_bytes = options->cap_bytes ? options->cap_bytes : DIT_STORE_CAP_BYTES;
  store->cap_items = options->cap_items ? options->cap_items : DIT_STORE_CAP_ITEMS;
  store->retry_ms = DIT_STORE_FIRST_RETRY_MS;
  store->wanted = UINT64_MAX;
}

static enum dit_status start_thread(struct dit_store *store, struct dit_error *err) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // signals (SIGXFSZ too) are the program's, not this thread's
  int failed = pthread_create(&store->thread, NULL, dit_store_run, store);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (failed) {
    return dit_error_set(err, DIT_ERR_NOMEM, "the thread of a store cannot be started: %s", strerror(failed));
  }
  return DIT_OK;
}

enum dit_status dit_store_create(const char *root, const struct dit_store_options *options, struct dit_store **out,
                                 struct dit_error *err) {
  static const struct dit_store_options defaults;
  options = options ? options : &defaults;
  DIT_RETURN_IF_NOT_OK(check_options(options, err));
  struct dit_store *store = dit_calloc(1, sizeof(*store));
  if (!store) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a store");
  }
  pthread_mutex_init(&store->mutex, NULL);
  dit_store_init_conditions(store);
  take_options(store, options);
  store->tail = &store->head;
  atomic_store(&store->pack.fd, -1);
  enum dit_status status = dit_files_init(&store->files, root, true, err);
  if (status == DIT_OK && store->layout == DIT_STORE_PACKED) {
    status = dit_pack_init(&store->pack, &store->files.folder, options->container, options->rank, err);
  }
  if (status == DIT_OK) {
    memcpy(store->container, store->pack.opened, sizeof(store->container));
    dit_store_register(store);
    status = start_thread(store, err);
    if (status != DIT_OK) {
      dit_store_unregister(store);
      dit_pack_remove(&store->pack);
    }
  }
  if (status != DIT_OK) {
    dit_store_free(store);
    return status;
  }
  *out = store;
  return DIT_OK;
}

static void *copy_bytes(unsigned char **at, const void *data, size_t size) {
  unsigned char *copy = *at;
  if (size > 0) {
    memcpy(copy, data, size);
  }
  copy[size] = '\0';
  *at += size + 1;
  return copy;
}

/// NULL when memory is exhausted.
static struct dit_store_node *make_node(const struct dit_store_item *item, size_t path_size) {
  size_t blobs = item->blob_count * sizeof(struct dit_store_blob);
  size_t json = item->json ? item->json_size : 0;
  size_t size = sizeof(struct dit_store_node) + blobs + path_size + item->pickle_size + json + 3;
  struct dit_store_node *node = size > item->pickle_size ? dit_malloc(size) : NULL;
  if (!node) {
    return NULL;
  }
  *node = (struct dit_store_node){.item = *item};
  unsigned char *at = (unsigned char *)(node + 1);
  node->item.blobs = (struct dit_store_blob *)(void *)at;
  if (blobs > 0) {
    memcpy(at, item->blobs, blobs);
  }
  at += blobs;
  node->item.path = copy_bytes(&at, item->path, path_size);
  node->item.pickle = copy_bytes(&at, item->pickle, item->pickle_size);
  node->item.json = item->json ? copy_bytes(&at, item->json, json) : NULL;
  node->bytes = item->pickle_size + json;
  node->cost = size;
  for (size_t i = 0; i < item->blob_count; i++) {
    node->bytes += item->blobs[i].size;
    node->cost += item->blobs[i].size;
  }
  return node;
}

static bool is_capped(const struct dit_store *store, uint64_t bytes) {
  uint64_t kept = store->counts.accepted - store->counts.lost;
  return (store->cap_items >= 0 && kept >= (uint64_t)store->cap_items) ||
         (store->cap_bytes >= 0 && store->cap_used + bytes > (uint64_t)store->cap_bytes);
}

static bool is_closed(const struct dit_store *store) {
  return store->forked || store->closing || (store->counts.failing && dit_record_get_time() < store->retry_at);
}

static bool is_full(const struct dit_store *store, uint64_t cost) {
  return store->queued_items > 0 && store->queued + cost > (uint64_t)store->queue_bytes;
}

/// Waits for room in the queue; false: drop.
static bool wait_for_space(struct dit_store *store, uint64_t cost) {
  if (store->pressure == DIT_RECORD_DROP) {
    return false;
  }
  struct timespec deadline = dit_store_get_deadline(store->block_ms);
  bool late = false;
  store->waiting++;
  while (!late && is_full(store, cost) && !is_closed(store)) {
    store->hurry = true;
    pthread_cond_signal(&store->work);
    late = pthread_cond_timedwait(&store->space, &store->mutex, &deadline) == ETIMEDOUT;
  }
  store->waiting--;
  return !is_full(store, cost) && !is_closed(store);
}

static void enqueue(struct dit_store *store, struct dit_store_node *node) {
  *store->tail = node;
  store->tail = &node->next;
  store->queued += node->cost;
  store->queued_items++;
  store->counts.accepted++;
  store->cap_used += node->bytes;
  bool hurry = node->ticket || store->queued >= HURRY_BYTES || store->queued > (uint64_t)store->queue_bytes / 2;
  if (store->idle || (hurry && !store->hurry)) {
    store->hurry = store->hurry || hurry;
    pthread_cond_signal(&store->work);
  }
}

/// Takes the node or counts why not; `*say_cap` when the cap is met for the first time. The mutex is held.
static bool accept(struct dit_store *store, struct dit_store_node *node, bool *say_cap) {
  if (!node || is_closed(store)) {
    store->counts.dropped++;
    return false;
  }
  if (is_capped(store, node->bytes)) {
    store->counts.capped++;
    *say_cap = !store->said_cap;
    store->said_cap = true;
    return false;
  }
  if (is_full(store, node->cost) && !wait_for_space(store, node->cost)) {
    store->counts.dropped++;
    return false;
  }
  enqueue(store, node);
  return true;
}

/// Waits until the item is written or lost, or the time is over. The mutex is held.
static bool wait_for_ticket(struct dit_store *store, struct dit_store_ticket *ticket) {
  struct timespec deadline = dit_store_get_deadline(store->block_ms);
  while (!ticket->done && pthread_cond_timedwait(&store->done, &store->mutex, &deadline) == 0) {
  }
  bool kept = ticket->done && ticket->kept;
  ticket->abandoned = !ticket->done;
  if (ticket->done) {
    dit_free(ticket);
  }
  return kept;
}

static void say_cap(const struct dit_store *store, const struct dit_store_item *item) {
  dit_log_write(
      DIT_LOG_WARNING,
      "capture store '%s': '%s' and what follows is not kept, the cap is reached (%lld bytes, %lld items); the "
      "program goes on; raise the cap to keep more",
      store->files.folder.root, item->path, (long long)store->cap_bytes, (long long)store->cap_items);
}

/// The blobs are the thread's when true.
static bool put(struct dit_store *store, const struct dit_store_item *item, size_t path_size, bool now, bool *kept) {
  struct dit_store_node *node = make_node(item, path_size);
  struct dit_store_ticket *ticket = now && node ? dit_calloc(1, sizeof(*ticket)) : NULL;
  if (now && !ticket) {
    dit_free(node);
    node = NULL;
  }
  if (node) {
    node->ticket = ticket;
  }
  bool cap = false;
  pthread_mutex_lock(&store->mutex);
  store->counts.put++;
  bool accepted = accept(store, node, &cap);
  *kept = accepted && (!ticket || wait_for_ticket(store, ticket));
  pthread_mutex_unlock(&store->mutex);
  if (cap) {
    say_cap(store, item);
  }
  if (!accepted) {
    dit_free(ticket);
    dit_free(node);
  }
  return accepted;
}

enum dit_status dit_store_put(struct dit_store *store, const struct dit_store_item *item, bool now, bool *kept,
                              struct dit_error *err) {
  size_t path_size = item->path ? strlen(item->path) : 0;
  enum dit_status status = dit_path_check(item->path ? item->path : "", path_size, err);
  status = status == DIT_OK ? dit_item_check(item, err) : status;
  bool was_kept = false;
  if (status != DIT_OK || !put(store, item, path_size, now, &was_kept)) {
    dit_item_release(item);
  }
  if (kept) {
    *kept = was_kept;
  }
  return status;
}

enum dit_status dit_store_flush(struct dit_store *store, int timeout_ms, struct dit_error *err) {
  struct timespec deadline = dit_store_get_deadline(timeout_ms);
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&store->mutex);
  const struct dit_store_counts *counts = &store->counts;
  uint64_t target = counts->accepted;
  const char *root = store->files.folder.root;
  while (!store->forked && store->finished < target) {
    store->wanted = store->wanted < target ? store->wanted : target;
    store->hurry = true;
    pthread_cond_signal(&store->work);
    if (pthread_cond_timedwait(&store->done, &store->mutex, &deadline) == ETIMEDOUT) {
      break;
    }
  }
  if (store->forked) {
    status = dit_error_set(err, DIT_ERR_INVALID, "store '%s' belongs to the parent process; create a new one", root);
  } else if (store->finished < target) {
    status = dit_error_set(err, DIT_ERR_IO, "store '%s': %llu items are not written after %d ms", root,
                           (unsigned long long)(target - store->finished), timeout_ms);
  } else if (counts->lost > store->lost_seen) {
    status = dit_error_set(err, DIT_ERR_IO, "store '%s' did not keep %llu items: %s", root,
                           (unsigned long long)(counts->lost - store->lost_seen), counts->problem);
  }
  store->lost_seen = counts->lost;
  pthread_mutex_unlock(&store->mutex);
  return status;
}

enum dit_status dit_store_destroy(struct dit_store *store, int timeout_ms, struct dit_error *err) {
  if (!store) {
    return DIT_OK;
  }
  dit_store_unregister(store);
  pthread_mutex_lock(&store->mutex);
  if (store->forked) {
    pthread_mutex_unlock(&store->mutex);
    dit_store_free(store);
    return DIT_OK;
  }
  struct timespec deadline = dit_store_get_deadline(timeout_ms);
  store->closing = true;
  pthread_cond_signal(&store->work);
  pthread_cond_broadcast(&store->space);
  while (!store->ended && pthread_cond_timedwait(&store->done, &store->mutex, &deadline) == 0) {
  }
  bool ended = store->ended;
  store->abandoned = !ended;  // the thread then frees the store when its system call returns
  uint64_t kept = store->counts.written, accepted = store->counts.accepted;
  pthread_t thread = store->thread;
  enum dit_status status = DIT_OK;
  if (kept < accepted) {
    status =
        dit_error_set(err, DIT_ERR_IO, "store '%s' was closed without %llu of %llu items", store->files.folder.root,
                      (unsigned long long)(accepted - kept), (unsigned long long)accepted);
  }
  pthread_mutex_unlock(&store->mutex);
  if (ended) {
    pthread_join(thread, NULL);
    dit_store_free(store);
  } else {
    pthread_detach(thread);
  }
  return status;
}

void dit_store_get_counts(struct dit_store *store, struct dit_store_counts *counts) {
  pthread_mutex_lock(&store->mutex);
  *counts = store->counts;
  pthread_mutex_unlock(&store->mutex);
}

bool dit_store_is_open(struct dit_store *store) {
  pthread_mutex_lock(&store->mutex);
  bool open = !is_closed(store) && !is_capped(store, 1);
  pthread_mutex_unlock(&store->mutex);
  return open;
}

void dit_store_get_path(struct dit_store *store, char *path, size_t size) {
  pthread_mutex_lock(&store->mutex);
  const char *between = store->layout == DIT_STORE_PACKED ? "/" : "";
  snprintf(path, size, "%s%s%s", store->files.folder.root, between, store->container);
  pthread_mutex_unlock(&store->mutex);
}
