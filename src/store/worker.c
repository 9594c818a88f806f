/// The store's thread: takes what is queued, waits for its bytes, writes it, releases it, counts.
///
/// Invariant: accepted = written + lost + queued_items whenever the mutex is free; every blob is released once its
/// bytes are in the file or given up; no lock is held during input, output, `wait` and `release`. An item counts as
/// written when its bytes are with the kernel: in a container that is when the batch is. Depends on files, pack, core's
/// log.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "dit/alloc.h"
#include "dit/log.h"
#include "store/queue.h"

/// Nodes whose bytes were taken but are not with the kernel yet.
struct batch {
  struct dit_store_node *first, **last;
  uint64_t bytes, shared;
};

enum { BATCH_BYTES = 4 << 20, NOT_TRIED = -1 };
/// Waiting bytes from which writing past the page cache pays: each time costs a round trip to the disk.
enum { DIRECT_BYTES = 1 << 20 };

/// Problems of one path; all others, and a root that is gone, are problems of the disk.
static bool is_item_error(const struct dit_store *store, int error) {
  if (store->files.folder.lost) {
    return false;
  }
  return error == ENAMETOOLONG || error == EISDIR || error == ENOTDIR || error == ELOOP || error == EEXIST ||
         error == ENOTEMPTY || error == EILSEQ || error == EINVAL || error == EOVERFLOW;
}

/// Said once per store; called without the mutex.
static void say_failure(struct dit_store *store, const char *problem, bool of_item) {
  bool say = false;
  pthread_mutex_lock(&store->thread.mutex);
  bool *said = of_item ? &store->said_item : &store->said_failure;
  say = !*said;
  *said = true;
  pthread_mutex_unlock(&store->thread.mutex);
  if (say) {
    dit_log_write(DIT_LOG_WARNING, "capture store: %s; the program goes on, %s", problem,
                  of_item ? "such items are counted but not kept"
                          : "items are counted but not kept until it can be written again (free some space, or make "
                            "the folder writable)");
  }
}

/// The outcome of one item into the counts and its ticket; the mutex is held.
static void count_outcome(struct dit_store *store, struct dit_store_node *node, bool kept) {
  struct dit_store_counts *counts = &store->counts;
  counts->written += kept;
  counts->lost += !kept;
  store->thread.finished++;
  if (node->ticket) {
    store->wanted = 0;
    node->ticket->done = true;
    node->ticket->kept = kept;
    if (node->ticket->abandoned) {
      dit_free(node->ticket);
    }
  }
}

/// What follows from an attempt; the mutex is held.
static void take_success(struct dit_store *store, const struct batch *batch) {
  store->counts.bytes += batch->bytes;
  store->counts.shared += batch->shared;
  store->counts.failing = false;
  store->retry_ms = DIT_STORE_FIRST_RETRY_MS;
  if (store->layout == DIT_STORE_PACKED) {
    memcpy(store->container, store->pack.opened, sizeof(store->container));
  }
}

static void take_failure(struct dit_store *store, const char *problem, bool of_item) {
  size_t size = strnlen(problem, sizeof(store->counts.problem) - 1);
  memcpy(store->counts.problem, problem, size);
  store->counts.problem[size] = '\0';
  if (of_item) {
    return;
  }
  store->retry_at = dit_record_get_time() + (int64_t)store->retry_ms * 1000000;
  int longer = store->retry_ms * 2;
  store->retry_ms = longer > DIT_STORE_LAST_RETRY_MS ? DIT_STORE_LAST_RETRY_MS : longer;
  store->counts.failing = true;
}

/// Keeps blocks for the next nodes; those that are too many or too large are returned. The mutex is held.
static struct dit_store_node *keep_blocks(struct dit_store *store, struct dit_store_node *node) {
  struct dit_store_node *rest = NULL;
  while (node) {
    struct dit_store_node *next = node->next;
    bool keep = node->common && store->spare_count < DIT_STORE_SPARE_NODES;
    struct dit_store_node **list = keep ? &store->spare : &rest;
    store->spare_count += keep;
    node->next = *list;
    *list = node;
    node = next;
  }
  return rest;
}

/// The batch's outcome; frees its nodes. `error` is errno, `problem` its text; NOT_TRIED: lost without an attempt.
static void finish_batch(struct dit_store *store, struct batch *batch, int error, const char *problem) {
  bool of_item = is_item_error(store, error);
  if (error > 0) {
    say_failure(store, problem, of_item);
  }
  pthread_mutex_lock(&store->thread.mutex);
  for (struct dit_store_node *node = batch->first; node; node = node->next) {
    count_outcome(store, node, error == 0);
  }
  struct dit_store_node *rest = keep_blocks(store, batch->first);
  if (error == 0) {
    take_success(store, batch);
  } else if (error > 0) {
    take_failure(store, problem, of_item);
  }
  if (store->thread.finished >= store->wanted) {
    store->wanted = UINT64_MAX;
    pthread_cond_broadcast(&store->thread.done);
  }
  pthread_mutex_unlock(&store->thread.mutex);
  while (rest) {
    struct dit_store_node *node = rest;
    rest = node->next;
    dit_free(node);
  }
  *batch = (struct batch){.last = &batch->first};
}

/// Let go of the item's bytes and of its place in the queue.
static void release_node(struct dit_store *store, struct dit_store_node *node) {
  dit_item_release(&node->item);
  pthread_mutex_lock(&store->thread.mutex);
  store->queued -= node->cost;
  store->queued_items--;
  // not for every little room: waking costs more than writing a small item
  if (store->waiting > 0 && (store->queued_items == 0 || store->queued <= (uint64_t)store->queue_bytes / 2)) {
    pthread_cond_broadcast(&store->thread.space);
  }
  pthread_mutex_unlock(&store->thread.mutex);
}

static void commit_batch(struct dit_store *store, struct batch *batch) {
  if (!batch->first) {
    return;
  }
  int error = dit_pack_commit(&store->pack);
  char problem[sizeof(store->counts.problem)];
  dit_pack_describe(&store->pack, error, problem, sizeof(problem));
  finish_batch(store, batch, error, problem);
}

static void lose_node(struct dit_store *store, struct dit_store_node *node, int error, const char *problem) {
  struct batch one = {.first = node, .last = &node->next};
  node->next = NULL;
  release_node(store, node);
  finish_batch(store, &one, error, problem);
}

/// Past the page cache while the disk keeps up; when the queue fills, the page cache takes what the disk cannot. The
/// caller of a write-ahead item waits, and the page cache is quicker to take it.
static void choose_way(struct dit_store *store, const struct dit_store_node *node) {
  pthread_mutex_lock(&store->thread.mutex);
  bool direct = !node->ticket && store->queued >= DIRECT_BYTES && store->queued <= (uint64_t)store->queue_bytes / 2;
  pthread_mutex_unlock(&store->thread.mutex);
  dit_pack_choose(&store->pack, direct);
}

static void write_packed(struct dit_store *store, struct dit_store_node *node, struct batch *batch) {
  uint64_t bytes = 0, shared = 0;
  if (!batch->first) {
    choose_way(store, node);
  }
  int error = dit_pack_append(&store->pack, &node->item, &bytes, &shared);
  if (error == ENOMEM) {
    lose_node(store, node, error, "no memory to write an item");
    return;
  }
  release_node(store, node);
  node->next = NULL;
  *batch->last = node;
  batch->last = &node->next;
  batch->bytes += bytes;
  batch->shared += shared;
  if (error || node->ticket || batch->bytes >= BATCH_BYTES) {
    commit_batch(store, batch);
  }
}

static void write_files(struct dit_store *store, struct dit_store_node *node) {
  struct dit_error err = {0};
  struct batch one = {.first = node, .last = &node->next};
  int error = 0;
  node->next = NULL;
  enum dit_status status = dit_files_write(&store->files, node->item.path, &node->item, &one.bytes, &error, &err);
  release_node(store, node);
  finish_batch(store, &one, status == DIT_OK ? 0 : error, err.message);
}

/// While failing, nothing is tried before its time.
static bool may_try(struct dit_store *store) {
  pthread_mutex_lock(&store->thread.mutex);
  bool may = !store->thread.abandoned && (!store->counts.failing || dit_record_get_time() >= store->retry_at);
  pthread_mutex_unlock(&store->thread.mutex);
  return may;
}

static void write_list(struct dit_store *store, struct dit_store_node *list) {
  struct batch batch = {.last = &batch.first};
  while (list) {
    struct dit_store_node *node = list;
    list = node->next;
    if (!may_try(store)) {
      lose_node(store, node, NOT_TRIED, "");
    } else if (!dit_item_wait(&node->item)) {
      lose_node(store, node, EINVAL, "the bytes of an item did not arrive from the device");
    } else if (store->layout == DIT_STORE_PACKED) {
      write_packed(store, node, &batch);
    } else {
      write_files(store, node);
    }
  }
  commit_batch(store, &batch);
}

/// Sleeps until there is something to do, then a little for company. The mutex is held.
static void wait_for_work(struct dit_store *store) {
  store->thread.idle = true;
  while (!store->thread.closing && !store->head) {
    pthread_cond_wait(&store->thread.work, &store->thread.mutex);
  }
  store->thread.idle = false;
  struct timespec deadline = dit_background_get_deadline(DIT_STORE_LINGER_MS);
  while (!store->thread.closing && !store->thread.hurry && !store->thread.exiting) {
    if (pthread_cond_timedwait(&store->thread.work, &store->thread.mutex, &deadline) == ETIMEDOUT) {
      break;
    }
  }
}

void dit_store_run(struct dit_background *thread) {
  struct dit_store *store = (struct dit_store *)thread;
  while (!thread->closing || store->head) {
    wait_for_work(store);
    struct dit_store_node *list = store->head;
    store->head = NULL;
    store->tail = &store->head;
    thread->hurry = false;
    pthread_mutex_unlock(&thread->mutex);
    write_list(store, list);
    pthread_mutex_lock(&thread->mutex);
  }
}
