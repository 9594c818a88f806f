/// The stores of this process and its caps.
///
/// A store belongs to a folder and a layout; tools that write to the same one share it, and it stays open for a while
/// after the last of them, so that a program that starts and stops a tool many times has one container, not many. The
/// caps count what all tools of the process have saved. Guarded by the GIL. After a fork the child begins anew.
#ifndef DIT_EXT_CAPTURE_STORE_H
#define DIT_EXT_CAPTURE_STORE_H

#include "dit/store.h"
#include "module.h"

struct capture_store {
  struct dit_store *store;
  char *root;  ///< absolute
  enum dit_store_layout layout;
  int users;
  pid_t pid;
  uint64_t age;  ///< of its last release
  struct capture_store *next;
};

/// One reference to the store below `root` (made absolute now); NULL with an exception: OSError where the folder cannot
/// be written. The options count for the first user.
struct capture_store *capture_store_open(const char *root, const struct dit_store_options *options);
/// Give the reference back; accepts NULL. What is queued is written out.
void capture_store_close(struct capture_store *store);

/// What the process saved so far. `shared` is what containers did not have to write again.
struct capture_usage {
  int64_t calls;
  int64_t bytes;
};
/// Count a call; false when `cap` (0: none) is reached.
bool capture_usage_take_call(int64_t cap);
/// Whether `cap` bytes (0: none) are not reached yet.
bool capture_usage_has_bytes(int64_t cap);
void capture_usage_add_bytes(int64_t bytes);
void capture_usage_get(struct capture_usage *usage);

#endif
