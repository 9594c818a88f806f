/// The store object and its queue: shared by the caller's side (store.c) and the thread's (worker.c). Internal to
/// store.
#ifndef DIT_STORE_QUEUE_H
#define DIT_STORE_QUEUE_H

#include "core/background.h"
#include "store/files.h"
#include "store/pack.h"

enum { DIT_STORE_FIRST_RETRY_MS = 100, DIT_STORE_LAST_RETRY_MS = 5000, DIT_STORE_LINGER_MS = 5 };
/// Blocks of nodes are kept for reuse: memory that one thread takes and another frees is what malloc does worst.
enum { DIT_STORE_NODE_BYTES = 2048, DIT_STORE_SPARE_NODES = 4096 };

/// The wait of a write-ahead put. Freed by whoever is second: the thread, or the caller who stopped waiting.
struct dit_store_ticket {
  bool done, kept, abandoned;
};

/// A queued item. Path, pickle, JSON and the array of blobs lie behind it in the same block.
struct dit_store_node {
  struct dit_store_node *next;
  struct dit_store_ticket *ticket;  ///< NULL for most
  uint64_t cost;                    ///< in the queue
  bool common;                      ///< the block has DIT_STORE_NODE_BYTES
  struct dit_store_item item;
};

/// All members but `files` and `pack` belong to the thread's mutex; those two belong to the thread (to the creator
/// before it starts and after it ends).
struct dit_store {
  struct dit_background thread;  ///< `finished`: items written or lost; `done` also for write-ahead puts
  struct dit_store_node *head, **tail;
  struct dit_store_node *spare;  ///< blocks that wait for reuse, `common` all of them
  int spare_count;
  uint64_t queued;  ///< cost of the items that wait or are being written
  uint64_t queued_items;
  uint64_t wanted;  ///< the smallest `finished` somebody waits for at `done`; UINT64_MAX: nobody
  int waiting;      ///< producers
  struct dit_store_counts counts;
  uint64_t lost_seen;  ///< by flush
  bool said_failure, said_item;
  int64_t retry_at;  ///< monotonic ns: no attempt before, while failing
  int retry_ms;
  enum dit_store_layout layout;
  enum dit_record_pressure pressure;
  int block_ms;
  int64_t queue_bytes;
  char container[DIT_PACK_NAME_SIZE];  ///< the file in use, for get_path
  struct dit_files files;
  struct dit_pack pack;
};

/// The body of the store's thread.
void dit_store_run(struct dit_background *thread);

#endif
