// Shared stores and the caps; see capture/store.h.
#include "tools/capture/store.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_STORES 4         // kept open without a user
#define CLOSE_MS (60 * 1000)  // to write out what is queued

static struct capture_store *stores;
static uint64_t releases;

static struct usage {
  pid_t pid;
  int64_t calls, bytes;
  int64_t shared;    // of stores that are closed
  int64_t check_at;  // bytes at which the sum is worth computing
} usage;

// Stores

static char *path_make_absolute(const char *root) {
  if (root[0] == '/') {
    return strdup(root);
  }
  char here[PATH_MAX];
  if (!getcwd(here, sizeof here)) {
    return NULL;
  }
  char *path = malloc(strlen(here) + strlen(root) + 2);
  if (path) {
    sprintf(path, "%s/%s", here, root);
  }
  return path;
}

static void store_free(struct capture_store *store) {
  struct dit_store_counts counts = {0};
  struct dit_error err = {0};
  if (store->store) {
    dit_store_get_counts(store->store, &counts);
    Py_BEGIN_ALLOW_THREADS;
    // What was lost is in the counts that the tools describe; the store has said why.
    (void)dit_store_destroy(store->store, CLOSE_MS, &err);
    Py_END_ALLOW_THREADS;
  }
  if (store->pid == getpid()) {
    usage.shared += (int64_t)counts.shared;
  }
  free(store->root);
  free(store);
}

static void store_unlink(struct capture_store *store) {
  struct capture_store **at = &stores;
  while (*at && *at != store) {
    at = &(*at)->next;
  }
  if (*at) {
    *at = store->next;
  }
}

// The parent's stores are closed in a child; those without users can go.
static void child_begin(pid_t pid) {
  if (usage.pid == pid) {
    return;
  }
  usage = (struct usage){.pid = pid};
  for (struct capture_store *store = stores, *next; store; store = next) {
    next = store->next;
    if (store->pid != pid && store->users == 0) {
      store_unlink(store);
      store_free(store);
    }
  }
}

static struct capture_store *store_find(const char *root, enum dit_store_layout layout, pid_t pid) {
  for (struct capture_store *store = stores; store; store = store->next) {
    if (store->pid == pid && store->layout == layout && strcmp(store->root, root) == 0) {
      return store;
    }
  }
  return NULL;
}

static void status_raise(enum dit_status status, const struct dit_error *err) {
  PyObject *kind = status == DIT_ERR_NOMEM ? PyExc_MemoryError
                   : status == DIT_ERR_IO  ? PyExc_OSError
                                           : PyExc_ValueError;
  PyObject *py_text = PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "backslashreplace");
  if (py_text) {
    PyErr_SetObject(kind, py_text);
    Py_DECREF(py_text);
  }
}

struct capture_store *capture_store_open(const char *root, const struct dit_store_options *options) {
  pid_t pid = getpid();
  child_begin(pid);
  char *path = path_make_absolute(root);
  struct capture_store *store = path ? store_find(path, options->layout, pid) : NULL;
  if (store) {
    free(path);
    store->users++;
    return store;
  }
  store = path ? calloc(1, sizeof *store) : NULL;
  if (!store) {
    free(path);
    PyErr_NoMemory();
    return NULL;
  }
  *store = (struct capture_store){.root = path, .layout = options->layout, .users = 1, .pid = pid};
  struct dit_error err = {0};
  enum dit_status status = dit_store_create(path, options, &store->store, &err);
  if (status != DIT_OK) {
    status_raise(status, &err);
    store->store = NULL;
    store_free(store);
    return NULL;
  }
  store->next = stores;
  stores = store;
  return store;
}

static void idle_trim(void) {
  int idle = 0;
  struct capture_store *oldest = NULL;
  for (struct capture_store *store = stores; store; store = store->next) {
    if (store->users == 0) {
      idle++;
      oldest = !oldest || store->age < oldest->age ? store : oldest;
    }
  }
  if (idle > IDLE_STORES) {
    store_unlink(oldest);
    store_free(oldest);
  }
}

void capture_store_close(struct capture_store *store) {
  if (!store || --store->users > 0) {
    return;
  }
  store->age = ++releases;
  if (store->pid != getpid()) {
    store_unlink(store);
    store_free(store);
    return;
  }
  idle_trim();
}

// Caps

static void usage_adopt(void) {
  if (!usage.pid) {
    usage.pid = getpid();
  }
}

bool capture_usage_take_call(int64_t cap) {
  usage_adopt();
  if (cap > 0 && usage.calls >= cap) {
    return false;
  }
  usage.calls++;
  return true;
}

static int64_t usage_get_bytes(void) {
  int64_t shared = usage.shared;
  for (const struct capture_store *store = stores; store; store = store->next) {
    if (store->pid == usage.pid) {
      struct dit_store_counts counts;
      dit_store_get_counts(store->store, &counts);
      shared += (int64_t)counts.shared;
    }
  }
  return usage.bytes - shared;
}

bool capture_usage_has_bytes(int64_t cap) {
  if (cap <= 0 || usage.bytes < cap) {
    return true;
  }
  if (usage.bytes < usage.check_at) {
    return true;
  }
  int64_t used = usage_get_bytes();
  if (used >= cap) {
    return false;
  }
  usage.check_at = usage.bytes + (cap - used);
  return true;
}

void capture_usage_add_bytes(int64_t bytes) {
  usage.bytes += bytes;
}

void capture_usage_get(struct capture_usage *out) {
  *out = (struct capture_usage){.calls = usage.calls, .bytes = usage_get_bytes()};
}
