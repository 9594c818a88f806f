/// Finding oneDNN: option host_onednn names a library ("none": do without), else one of pip, conda or the system is
/// looked for. Version 3 is needed: 2 has another interface.
///
/// Its OpenMP threads are held to one around every call, so that results do not depend on the number of threads and the
/// process has one pool. A library on TBB or SYCL offers no such hold through its C interface, and is refused.
#include "onednn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dit/log.h"
#include "dit/options.h"
#include "onednn.h"
#include "packages.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct onednn_library library;
static bool available;
static char description[4608];
static int (*get_threads)(void);
static void (*set_threads)(int);

static void refuse(const char *path, const char *reason) {
  snprintf(description, sizeof(description), "no oneDNN: '%s' %s", path, reason);
}

static bool load_symbols(void *handle, const char *path) {
  char missing[128];
#define X(result, name, parameters)                             \
  packages_load_symbol(handle, "dnnl_" #name, &library.name);   \
  if (!library.name) {                                          \
    snprintf(missing, sizeof(missing), "lacks dnnl_%s", #name); \
    refuse(path, missing);                                      \
    return false;                                               \
  }
  ONEDNN_FUNCTIONS(X)
#undef X
  return true;
}

/// Version and threads; false with the reason written.
static bool check_version(void *handle, const char *path) {
  const struct onednn_version *(*get_version)(void);
  char reason[256];
  packages_load_symbol(handle, "dnnl_version", &get_version);
  const struct onednn_version *version = get_version ? get_version() : NULL;
  if (!version) {
    refuse(path, "is no oneDNN (dnnl_version is missing)");
    return false;
  }
  if (version->major != 3) {
    snprintf(reason, sizeof(reason), "is version %d.%d; version 3 is needed", version->major, version->minor);
    refuse(path, reason);
    return false;
  }
  if (version->cpu_runtime == ONEDNN_RUNTIME_OPENMP) {
    packages_load_symbol(handle, "omp_get_max_threads", &get_threads);
    packages_load_symbol(handle, "omp_set_num_threads", &set_threads);
  }
  const bool held = version->cpu_runtime == ONEDNN_RUNTIME_SEQUENTIAL || version->cpu_runtime == ONEDNN_RUNTIME_POOL ||
                    (get_threads && set_threads);
  if (!held) {
    snprintf(reason, sizeof(reason), "runs on threads (runtime %u) that cannot be held; valid: sequential or OpenMP",
             version->cpu_runtime);
    refuse(path, reason);
  }
  return held;
}

/// A file that is not there is worth a word only when it was `named`.
static bool load_library(const char *path, bool named) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *text = dlerror();
    char absent[4224];
    snprintf(absent, sizeof(absent), "%s: cannot open shared object file: No such file", path);
    if (named || !text || strncmp(text, absent, strlen(absent)) != 0) {
      refuse(path, text ? text : "cannot be loaded");
    }
    return false;
  }
  if (!check_version(handle, path) || !load_symbols(handle, path)) {
    dlclose(handle);
    return false;
  }
  const int before = onednn_threads_hold();
  const int status = library.engine_create(&library.engine, ONEDNN_CPU, 0);
  onednn_threads_release(before);
  if (status != ONEDNN_SUCCESS) {
    refuse(path, "offers no CPU engine");
    dlclose(handle);
    return false;
  }
  const struct onednn_version *version = library.version();
  snprintf(description, sizeof(description), "oneDNN %d.%d.%d (%s)", version->major, version->minor, version->patch,
           path);
  return true;
}

/// pip and conda put it into <prefix>/lib, two folders above site-packages.
static bool search_prefix(const char *packages, void *context) {
  (void)context;
  char path[4096];
  snprintf(path, sizeof(path), "%s/../../libdnnl.so.3", packages);
  return load_library(path, false);
}

static bool search_all(void) {
  // version 2 is asked for its reason alone
  if (packages_search(search_prefix, NULL) || load_library("libdnnl.so.3", false) ||
      load_library("libdnnl.so.2", false)) {
    return true;
  }
  if (!*description) {
    snprintf(description, sizeof(description), "no oneDNN found");
  }
  return false;
}

static void find_library(void) {
  int option = dit_option_find("host_onednn");
  const char *choice = option >= 0 ? dit_option_get_text(option) : "";
  if (strcmp(choice, "none") == 0) {
    snprintf(description, sizeof(description), "no oneDNN: host_onednn is \"none\"");
    return;
  }
  available = *choice ? load_library(choice, true) : search_all();
  if (*choice && !available) {
    dit_log_write(DIT_LOG_WARNING,
                  "host_onednn: %s; convolutions and half types use other code. Give the path of a libdnnl.so.3, "
                  "\"none\", or nothing.",
                  description);
  } else {
    dit_log_write(DIT_LOG_INFO, "host device: %s", description);
  }
}

const struct onednn_library *onednn_library_get(void) {
  pthread_once(&once, find_library);
  return available ? &library : NULL;
}

const char *onednn_describe(void) {
  pthread_once(&once, find_library);
  return description;
}

int onednn_threads_hold(void) {
  const int before = get_threads ? get_threads() : 1;
  if (before != 1) {
    set_threads(1);
  }
  return before;
}

void onednn_threads_release(int before) {
  if (before != 1) {
    set_threads(before);
  }
}
