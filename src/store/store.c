/// The caller's side of a store: creating, putting, flushing, destroying.
///
/// Invariant: put = accepted + dropped; accepted = written + lost + queued_items. Whatever happens to a put,
/// its blobs are released exactly once: here when it is refused, by the thread otherwise. Depends on queue, files,
/// pack.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dit/alloc.h"
#include "store/queue.h"

enum { DEFAULT_BLOCK_MS = 60000, HURRY_BYTES = 8 << 20 };

/// What is queued goes with it; blobs are released unless this is a forked child, where they are the parent's.
static void free_store(struct dit_background *thread) {
  struct dit_store *store = (struct dit_store *)thread;
  while (store->head) {
    struct dit_store_node *node = store->head;
    store->head = node->next;
    if (!store->thread.forked) {
      dit_item_release(&node->item);
    }
    dit_free(node);
  }
  while (store->spare) {
    struct dit_store_node *node = store->spare;
    store->spare = node->next;
    dit_free(node);
  }
  dit_files_reset(&store->files);
  dit_pack_reset(&store->pack);
  dit_background_reset(thread);
  dit_free(store);
}

static void fork_store(struct dit_background *thread) {
  struct dit_store *store = (struct dit_store *)thread;
  store->waiting = 0;
  dit_pack_forget(&store->pack);
}

static const struct dit_background_class store_class = {
    .owner = "store", .things = "captured items", .run = dit_store_run, .fork = fork_store, .free = free_store};

static enum dit_status check_options(const struct dit_store_options *options, struct dit_error *err) {
  if (options->layout != DIT_STORE_FILES && options->layout != DIT_STORE_PACKED) {
    return dit_error_set(err, DIT_ERR_INVALID, "layout is %d; valid: 0 (files), 1 (packed)", (int)options->layout);
  }
  if (options->pressure != DIT_RECORD_BLOCK && options->pressure != DIT_RECORD_DROP) {
    return dit_error_set(err, DIT_ERR_INVALID, "pressure is %d; valid: 0 (block), 1 (drop)", (int)options->pressure);
  }
  if (options->compress < DIT_STORE_COMPRESS_OFF || options->compress > DIT_STORE_COMPRESS_ZLIB) {
    return dit_error_set(err, DIT_ERR_INVALID, "compress is %d; valid: 0 (off), 1 (auto), 2 (zstd), 3 (zlib)",
                         (int)options->compress);
  }
  if (options->block_ms < 0 || options->rank < 0 || options->queue_bytes < 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "block_ms is %d, rank %d, queue_bytes %lld; all must be 0 or more",
                         options->block_ms, (int)options->rank, (long long)options->queue_bytes);
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
  store->retry_ms = DIT_STORE_FIRST_RETRY_MS;
  store->wanted = UINT64_MAX;
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
  dit_background_init(&store->thread, &store_class);
  take_options(store, options);
  store->tail = &store->head;
  atomic_store(&store->pack.fd, -1);
  store->pack.direct_fd = -1;
  enum dit_status status = dit_files_init(&store->files, root, true, err);
  if (status == DIT_OK && store->layout == DIT_STORE_PACKED) {
    status =
        dit_pack_init(&store->pack, &store->files.folder, options->container, options->rank, options->compress, err);
  }
  if (status == DIT_OK) {
    memcpy(store->container, store->pack.opened, sizeof(store->container));
    status = dit_background_start(&store->thread, err);
    if (status != DIT_OK) {
      dit_pack_remove(&store->pack);
    }
  }
  if (status != DIT_OK) {
    free_store(&store->thread);
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

/// A block for a node of `size` bytes; NULL when memory is exhausted.
static struct dit_store_node *take_block(struct dit_store *store, size_t size, bool *common) {
  *common = size <= DIT_STORE_NODE_BYTES;
  if (!*common) {
    return dit_malloc(size);
  }
  pthread_mutex_lock(&store->thread.mutex);
  struct dit_store_node *node = store->spare;
  if (node) {
    store->spare = node->next;
    store->spare_count--;
  }
  pthread_mutex_unlock(&store->thread.mutex);
  return node ? node : dit_malloc(DIT_STORE_NODE_BYTES);
}

/// NULL when memory is exhausted.
static struct dit_store_node *make_node(struct dit_store *store, const struct dit_store_item *item, size_t path_size) {
  size_t blobs = item->blob_count * sizeof(struct dit_store_blob);
  size_t json = item->json ? item->json_size : 0;
  size_t size = sizeof(struct dit_store_node) + blobs + path_size + item->pickle_size + json + 3;
  bool common = false;
  struct dit_store_node *node = size > item->pickle_size ? take_block(store, size, &common) : NULL;
  if (!node) {
    return NULL;
  }
  *node = (struct dit_store_node){.item = *item, .common = common};
  unsigned char *at = (unsigned char *)(node + 1);
  node->item.blobs = (struct dit_store_blob *)(void *)at;
  if (blobs > 0) {
    memcpy(at, item->blobs, blobs);
  }
  at += blobs;
  node->item.path = copy_bytes(&at, item->path, path_size);
  node->item.pickle = copy_bytes(&at, item->pickle, item->pickle_size);
  node->item.json = item->json ? copy_bytes(&at, item->json, json) : NULL;
  node->cost = size;
  for (size_t i = 0; i < item->blob_count; i++) {
    node->cost += item->blobs[i].size;
  }
  return node;
}

static bool is_closed(const struct dit_store *store) {
  return store->thread.forked || store->thread.closing ||
         (store->counts.failing && dit_record_get_time() < store->retry_at);
}

static bool is_full(const struct dit_store *store, uint64_t cost) {
  return store->queued_items > 0 && store->queued + cost > (uint64_t)store->queue_bytes;
}

/// Waits for room in the queue; false: drop.
static bool wait_for_space(struct dit_store *store, uint64_t cost) {
  if (store->pressure == DIT_RECORD_DROP) {
    return false;
  }
  struct timespec deadline = dit_background_get_deadline(store->block_ms);
  bool late = false;
  store->waiting++;
  while (!late && is_full(store, cost) && !is_closed(store)) {
    dit_background_hurry(&store->thread);
    late = pthread_cond_timedwait(&store->thread.space, &store->thread.mutex, &deadline) == ETIMEDOUT;
  }
  store->waiting--;
  return !is_full(store, cost) && !is_closed(store);
}

static void enqueue(struct dit_store *store, struct dit_store_node *node) {
  *store->tail = node;
  store->tail = &node->next;
  store->queued += node->cost;
  store->queued_items++;
  store->thread.accepted = ++store->counts.accepted;
  bool hurry = node->ticket || store->queued >= HURRY_BYTES || store->queued > (uint64_t)store->queue_bytes / 2;
  if (store->thread.idle || (hurry && !store->thread.hurry)) {
    store->thread.hurry = store->thread.hurry || hurry;
    pthread_cond_signal(&store->thread.work);
  }
}

/// Takes the node or counts that it was dropped. The mutex is held.
static bool accept(struct dit_store *store, struct dit_store_node *node) {
  if (!node || is_closed(store) || (is_full(store, node->cost) && !wait_for_space(store, node->cost))) {
    store->counts.dropped++;
    return false;
  }
  enqueue(store, node);
  return true;
}

/// Waits until the item is written or lost, or the time is over. The mutex is held.
static bool wait_for_ticket(struct dit_store *store, struct dit_store_ticket *ticket) {
  struct timespec deadline = dit_background_get_deadline(store->block_ms);
  while (!ticket->done && pthread_cond_timedwait(&store->thread.done, &store->thread.mutex, &deadline) == 0) {
  }
  bool kept = ticket->done && ticket->kept;
  ticket->abandoned = !ticket->done;
  if (ticket->done) {
    dit_free(ticket);
  }
  return kept;
}

/// The blobs are the thread's when true.
static bool put(struct dit_store *store, const struct dit_store_item *item, size_t path_size, bool now, bool *kept) {
  struct dit_store_node *node = make_node(store, item, path_size);
  struct dit_store_ticket *ticket = now && node ? dit_calloc(1, sizeof(*ticket)) : NULL;
  if (now && !ticket) {
    dit_free(node);
    node = NULL;
  }
  if (node) {
    node->ticket = ticket;
  }
  pthread_mutex_lock(&store->thread.mutex);
  store->counts.put++;
  bool accepted = accept(store, node);
  *kept = accepted && (!ticket || wait_for_ticket(store, ticket));
  pthread_mutex_unlock(&store->thread.mutex);
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
  struct timespec deadline = dit_background_get_deadline(timeout_ms);
  enum dit_status status = DIT_OK;
  pthread_mutex_lock(&store->thread.mutex);
  const struct dit_store_counts *counts = &store->counts;
  uint64_t target = counts->accepted;
  const char *root = store->files.folder.root;
  while (!store->thread.forked && store->thread.finished < target) {
    store->wanted = store->wanted < target ? store->wanted : target;
    dit_background_hurry(&store->thread);
    if (pthread_cond_timedwait(&store->thread.done, &store->thread.mutex, &deadline) == ETIMEDOUT) {
      break;
    }
  }
  if (store->thread.forked) {
    status = dit_error_set(err, DIT_ERR_INVALID, "store '%s' belongs to the parent process; create a new one", root);
  } else if (store->thread.finished < target) {
    status = dit_error_set(err, DIT_ERR_IO, "store '%s': %llu items are not written after %d ms", root,
                           (unsigned long long)(target - store->thread.finished), timeout_ms);
  } else if (counts->lost > store->lost_seen) {
    status = dit_error_set(err, DIT_ERR_IO, "store '%s' did not keep %llu items: %s", root,
                           (unsigned long long)(counts->lost - store->lost_seen), counts->problem);
  }
  store->lost_seen = counts->lost;
  pthread_mutex_unlock(&store->thread.mutex);
  return status;
}

enum dit_status dit_store_destroy(struct dit_store *store, int timeout_ms, struct dit_error *err) {
  if (!store) {
    return DIT_OK;
  }
  dit_background_close(&store->thread, timeout_ms);
  uint64_t kept = store->counts.written, accepted = store->counts.accepted;
  enum dit_status status = DIT_OK;
  if (!store->thread.forked && kept < accepted) {
    status =
        dit_error_set(err, DIT_ERR_IO, "store '%s' was closed without %llu of %llu items", store->files.folder.root,
                      (unsigned long long)(accepted - kept), (unsigned long long)accepted);
  }
  dit_background_release(&store->thread);
  return status;
}

void dit_store_get_counts(struct dit_store *store, struct dit_store_counts *counts) {
  pthread_mutex_lock(&store->thread.mutex);
  *counts = store->counts;
  pthread_mutex_unlock(&store->thread.mutex);
}

bool dit_store_is_open(struct dit_store *store) {
  pthread_mutex_lock(&store->thread.mutex);
  bool open = !is_closed(store);
  pthread_mutex_unlock(&store->thread.mutex);
  return open;
}

void dit_store_get_path(struct dit_store *store, char *path, size_t size) {
  pthread_mutex_lock(&store->thread.mutex);
  const char *between = store->layout == DIT_STORE_PACKED ? "/" : "";
  snprintf(path, size, "%s%s%s", store->files.folder.root, between, store->container);
  pthread_mutex_unlock(&store->thread.mutex);
}
