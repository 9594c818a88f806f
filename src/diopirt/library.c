/// Operator libraries: opening, looking up, and the one the process's device uses.
///
/// A library that was opened as active stays loaded for the life of the process, because calls of other threads may be
/// inside it. Depends on src/core and, for what memory the active device has, on src/device.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/plugin.h"
#include "dit/alloc.h"
#include "dit/diopi.h"
#include "dit/gate.h"
#include "dit/infer.h"
#include "dit/stage.h"

static const struct plugin_kind library_kind = {"operator library", "libdiopi_"};

static const size_t offsets[DIT_DIOPI_COUNT] = {
#define DIOPI_QUERY(name, header, family) offsetof(struct dit_diopi_vtable, name),
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) \
  offsetof(struct dit_diopi_vtable, name),
#include "diopi/functions.inc"
};

/// POSIX lets a function's address travel in a void *; C wants the copy.
static void take_symbol(void *handle, const char *name, void *slot) {
  void *symbol = dlsym(handle, name);
  memcpy(slot, &symbol, sizeof symbol);
}

static void take_extension(struct dit_diopi_library *library) {
  take_symbol(library->handle, "diopiExtGetVersion", &library->ext_get_version);
  if (!library->ext_get_version) {
    return;
  }
  const uint32_t version = library->ext_get_version();
  if (version / 65536 != DIOPI_EXT_MAJOR) {
    snprintf(library->refused, sizeof library->refused,
             "its extension functions have version %u.%u, this ditorch knows %d.%d", version / 65536, version % 65536,
             DIOPI_EXT_MAJOR, DIOPI_EXT_MINOR);
    library->ext_get_version = NULL;
    return;
  }
  take_symbol(library->handle, "diopiExtGetSupport", &library->ext_get_support);
  take_symbol(library->handle, "diopiExtInferOutputs", &library->ext_infer_outputs);
  take_symbol(library->handle, "diopiExtGetLastErrorString", &library->ext_get_last_error);
  take_symbol(library->handle, "diopiExtListBegin", &library->ext_list_begin);
  take_symbol(library->handle, "diopiExtListEnd", &library->ext_list_end);
  if (!library->ext_list_begin || !library->ext_list_end) {
    library->ext_list_begin = library->ext_list_end = NULL;
  }
}

static void take_infer(struct dit_diopi_library *library) {
  dit_infer_get_table_function *get = NULL;
  take_symbol(library->handle, "dit_infer_get_table", &get);
  const struct dit_infer_table *table = get ? get() : NULL;
  library->infer = table && table->version == DIT_INFER_VERSION ? table : NULL;
}

/// The address of a function that this very library, or one it was linked with for it, defines.
static int take_functions(struct dit_diopi_library *library) {
  const struct dit_diopi_info *infos = dit_diopi_get_functions(NULL);
  int found = 0;
  for (int i = 0; i < DIT_DIOPI_COUNT; i++) {
    char *slot = (char *)&library->functions + offsets[i];
    take_symbol(library->handle, infos[i].name, slot);
    void *address;
    memcpy(&address, slot, sizeof address);
    found += address != NULL;
  }
  return found;
}

/// A function that the library exports but says not to have (it forwards to another one, or was told to lack it) is
/// left out: callers then choose another way from the start.
static int drop_missing(struct dit_diopi_library *library) {
  const struct dit_diopi_info *infos = dit_diopi_get_functions(NULL);
  int dropped = 0;
  for (int i = 0; i < DIT_DIOPI_COUNT && library->ext_get_support; i++) {
    diopiExtSupport_t support = {.struct_size = sizeof support};
    if (infos[i].kinds[0] && dit_diopi_library_get(library, i) &&
        library->ext_get_support(infos[i].name, &support) == diopiNoImplement) {
      memset((char *)&library->functions + offsets[i], 0, sizeof(void *));
      dropped++;
    }
  }
  return dropped;
}

enum dit_status dit_diopi_library_open(const char *name, struct dit_diopi_library **out, struct dit_error *err) {
  if (!name || !name[0]) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "no operator library given; valid: a name such as 'host' or a path that contains '/'");
  }
  struct dit_diopi_library *library = dit_calloc(1, sizeof *library);
  if (!library) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory to open operator library '%s'", name);
  }
  plugin_publish_self();
  enum dit_status status = plugin_open(&library_kind, name, &library->handle, err);
  if (status == DIT_OK) {
    plugin_get_path(library->handle, library->path);
    library->implemented = take_functions(library);
    take_extension(library);
    take_infer(library);
    take_symbol(library->handle, "dit_adapt_take", &library->take_conversions);
    library->implemented -= drop_missing(library);
    if (library->implemented == 0) {
      status = dit_error_set(err, DIT_ERR_INVALID,
                             "'%s' is not an operator library: it exports none of the %d functions of the DIOPI "
                             "standard (were its symbols hidden, or given C++ names?)",
                             library->path, DIT_DIOPI_COUNT);
    }
  }
  if (status != DIT_OK) {
    dit_diopi_library_close(library);
    return status;
  }
  *out = library;
  return DIT_OK;
}

void dit_diopi_library_close(struct dit_diopi_library *library) {
  if (!library) {
    return;
  }
  if (library->handle) {
    dlclose(library->handle);
  }
  dit_free(library);
}

enum dit_status dit_diopi_library_check_memory(const struct dit_diopi_library *library, struct dit_error *err) {
  const char *(*get_name)(void) = library->functions.diopiGetVendorName;
  if (!get_name || strcmp(get_name(), "host") != 0 || dit_stage_is_host_accessible()) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_INVALID,
                       "the operators of '%s' work on memory of the host and cannot read that of the vendor's device; "
                       "name the vendor's own operator library, or take the vendor 'host'",
                       library->path);
}

void (*dit_diopi_library_get(const struct dit_diopi_library *library, int function))(void) {
  void (*address)(void) = NULL;
  if (library && function >= 0 && function < DIT_DIOPI_COUNT) {
    memcpy(&address, (const char *)&library->functions + offsets[function], sizeof address);
  }
  return address;
}

const char *dit_diopi_library_get_error(const struct dit_diopi_library *library) {
  const char *text = NULL;
  if (library && library->ext_get_last_error) {
    text = library->ext_get_last_error();
  } else if (library && library->functions.diopiGetLastErrorString) {
    text = library->functions.diopiGetLastErrorString();
  }
  return text ? text : "";
}

diopiExtFailure_t dit_diopi_library_get_failure(const struct dit_diopi_library *library) {
  diopiExtFailure_t (*get)(void) = NULL;
  if (library && library->ext_get_version) {
    take_symbol(library->handle, "diopiExtGetLastFailure", &get);
  }
  return get ? get() : diopiExtFailureOther;
}

enum dit_status dit_diopi_library_check(const struct dit_diopi_library *library, const char *function,
                                        diopiError_t code, struct dit_error *err) {
  if (code == diopiSuccess) {
    return DIT_OK;
  }
  if (dit_diopi_is_refusal(code)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const char *text = dit_diopi_library_get_error(library);
  const diopiExtFailure_t failure =
      code == diopiErrorOccurred ? dit_diopi_library_get_failure(library) : diopiExtFailureOther;
  if (failure != diopiExtFailureOther) {
    return dit_error_set(err, failure == diopiExtFailureRange ? DIT_ERR_RANGE : DIT_ERR_INVALID, "%s", text);
  }
  return dit_error_set(err, DIT_ERR_DEVICE, "%s failed: %s%s%s", function, dit_diopi_get_error_name(code),
                       text[0] ? ": " : "", text);
}

// The active library

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct dit_diopi_library *) active;
static struct dit_diopi_library *known;  ///< every library that was active, guarded by the lock

const struct dit_diopi_library *dit_diopi_get_active(void) {
  return atomic_load_explicit(&active, memory_order_acquire);
}

/// The library that was active before under this path; NULL when none was.
static struct dit_diopi_library *find_known(const char *path) {
  struct dit_diopi_library *library = known;
  while (library && strcmp(library->path, path) != 0) {
    library = library->next;
  }
  return library;
}

enum dit_status dit_diopi_activate(const char *name, struct dit_error *err) {
  struct dit_diopi_library *opened;
  pthread_mutex_lock(&lock);
  enum dit_status status = dit_diopi_library_open(name, &opened, err);
  if (status == DIT_OK && (status = dit_diopi_library_check_memory(opened, err)) != DIT_OK) {
    dit_diopi_library_close(opened);
  }
  if (status == DIT_OK) {
    struct dit_diopi_library *before = find_known(opened->path);
    if (before) {
      dit_diopi_library_close(opened);
      opened = before;
    } else {
      opened->next = known;
      known = opened;
    }
    atomic_store_explicit(&active, opened, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return status;
}
