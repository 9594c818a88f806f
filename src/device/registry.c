/// The registry: loads a vendor library and checks what it promises.
///
/// Order of checks: file (core/plugin.h), symbol, ABI version, struct size, required slots. A library that
/// fails one is closed again. Invariant: what dit_registry_load returns has every required slot. Depends on core and
/// libdl.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin.h"
#include "device/device_internal.h"
#include "dit/graph.h"

static const struct plugin_kind vendor_kind = {"vendor library", "libdit_vendor_"};

// Checking

struct slot {
  const char *name;
  size_t offset;
};
#define SLOT(name) {#name, offsetof(struct dit_device_vtable, name)}
static const struct slot required_slots[] = {
    SLOT(init),
    SLOT(count),
    SLOT(get_properties),
    SLOT(get_memory),
    SLOT(synchronize),
    SLOT(memory_alloc),
    SLOT(memory_free),
    SLOT(memory_set),
    SLOT(host_alloc),
    SLOT(host_free),
    SLOT(copy),
    SLOT(copy_async),
    SLOT(stream_create),
    SLOT(stream_destroy),
    SLOT(stream_synchronize),
    SLOT(stream_query),
    SLOT(stream_wait_event),
    SLOT(stream_launch_host),
    SLOT(event_create),
    SLOT(event_destroy),
    SLOT(event_record),
    SLOT(event_query),
    SLOT(event_synchronize),
    SLOT(event_get_elapsed),
};
#define NAME_MAX_LENGTH 64
#define SMALLEST_TABLE offsetof(struct dit_device_vtable, profiler_start)

static bool slot_is_empty(const struct dit_device_vtable *table, size_t offset) {
  void (*function)(void);
  memcpy(&function, (const char *)table + offset, sizeof function);
  return function == NULL;
}

static enum dit_status check_slots(const char *path, const struct dit_device_vtable *table, struct dit_error *err) {
  char missing[512] = "";
  size_t length = 0;
  for (size_t i = 0; i < sizeof required_slots / sizeof required_slots[0]; i++) {
    if (slot_is_empty(table, required_slots[i].offset)) {
      length += (size_t)snprintf(missing + length, sizeof missing - length, "%s%s", length ? ", " : "",
                                 required_slots[i].name);
    }
  }
  if (length > 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "vendor library '%s' leaves required functions NULL: %s", path, missing);
  }
  if (!table->name || !table->name[0]) {
    return dit_error_set(err, DIT_ERR_INVALID, "vendor library '%s' has no name in its device table", path);
  }
  const size_t name_length = strnlen(table->name, NAME_MAX_LENGTH + 1);
  if (name_length > NAME_MAX_LENGTH || strspn(table->name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != name_length) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "vendor library '%s' has the name '%.*s' in its device table; valid: 1 to %d characters of "
                         "a-z, 0-9, '_' and '-'",
                         path, NAME_MAX_LENGTH, table->name, NAME_MAX_LENGTH);
  }
  return DIT_OK;
}

static enum dit_status check_versions(const char *path, const char *table, uint32_t found, uint32_t wanted,
                                      uint32_t size, size_t smallest, struct dit_error *err) {
  if (found != wanted) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "vendor library '%s': its %s table has ABI version %u, this ditorch wants %u; install matching "
        "versions of both",
        path, table, found, wanted);
  }
  if (size < smallest) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "vendor library '%s': its %s table has struct_size %u, ABI version %u needs at least %zu",
                         path, table, size, wanted, smallest);
  }
  if (size % sizeof(void *) != 0) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "vendor library '%s': its %s table has struct_size %u, which cuts a slot in two", path, table,
                         size);
  }
  return DIT_OK;
}

static enum dit_status take_device(struct dit_vendor *vendor, struct dit_error *err) {
  const struct dit_device_vtable *(*get)(void);
  void *symbol = dlsym(vendor->handle, DIT_VENDOR_DEVICE_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  if (!get) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "'%s' is not a ditorch vendor library: it does not export the symbol " DIT_VENDOR_DEVICE_SYMBOL, vendor->path);
  }
  const struct dit_device_vtable *table = get();
  if (!table) {
    return dit_error_set(err, DIT_ERR_DEVICE, "vendor library '%s': " DIT_VENDOR_DEVICE_SYMBOL "() returned NULL",
                         vendor->path);
  }
  DIT_RETURN_IF_NOT_OK(check_versions(vendor->path, "device", table->abi_version, DIT_DEVICE_ABI_VERSION,
                                      table->struct_size, SMALLEST_TABLE, err));
  size_t size = table->struct_size < sizeof vendor->device ? table->struct_size : sizeof vendor->device;
  memcpy(&vendor->device, table, size);
  vendor->device.version = vendor->device.version ? vendor->device.version : "";
  return check_slots(vendor->path, &vendor->device, err);
}

static enum dit_status take_kernels(struct dit_vendor *vendor, struct dit_error *err) {
  const struct dit_kernel_vtable *(*get)(void);
  void *symbol = dlsym(vendor->handle, DIT_VENDOR_KERNELS_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const struct dit_kernel_vtable *table = get ? get() : NULL;
  if (!table) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(check_versions(vendor->path, "kernel", table->abi_version, DIT_KERNEL_ABI_VERSION,
                                      table->struct_size, offsetof(struct dit_kernel_vtable, copy), err));
  size_t size = table->struct_size < sizeof vendor->kernels ? table->struct_size : sizeof vendor->kernels;
  memcpy(&vendor->kernels, table, size);
  vendor->has_kernels = true;
  return DIT_OK;
}

/// Slots that only make sense together: all are there, or none.
static enum dit_status check_graph_engine(const char *path, const struct dit_graph_engine *engine,
                                          struct dit_error *err) {
  const bool makes_regions = engine->compile || engine->run || engine->release;
  const bool takes_graphs =
      engine->supports_node || engine->compile_graph || engine->release_graph || engine->measure || engine->run_graph;
  const bool keeps = engine->fingerprint || engine->save || engine->load;
  const char *lacks = NULL;
  if (!engine->name || !(makes_regions || takes_graphs)) {
    lacks = "a name, regions or subgraphs";
  } else if (makes_regions && !(engine->compile && engine->run && engine->release)) {
    lacks = "compile, run or release";
  } else if (takes_graphs && !(engine->supports_node && engine->compile_graph && engine->release_graph &&
                               engine->measure && engine->run_graph)) {
    lacks = "supports_node, compile_graph, release_graph, measure or run_graph";
  } else if (keeps && !(takes_graphs && engine->fingerprint && engine->save && engine->load)) {
    lacks = "fingerprint, save, load, or the subgraphs that they are for";
  }
  return lacks ? dit_error_set(err, DIT_ERR_INVALID, "vendor library '%s': its graph engine lacks %s", path, lacks)
               : DIT_OK;
}

static enum dit_status take_graph_engine(struct dit_vendor *vendor, struct dit_error *err) {
  const struct dit_graph_engine *(*get)(void);
  void *symbol = dlsym(vendor->handle, DIT_VENDOR_GRAPH_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const struct dit_graph_engine *engine = get ? get() : NULL;
  if (!engine) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(check_versions(vendor->path, "graph", engine->abi_version, DIT_GRAPH_ENGINE_ABI_VERSION,
                                      engine->struct_size, offsetof(struct dit_graph_engine, supports_node), err));
  const size_t known = sizeof vendor->graph_engine;
  memcpy(&vendor->graph_engine, engine, engine->struct_size < known ? engine->struct_size : known);
  DIT_RETURN_IF_NOT_OK(check_graph_engine(vendor->path, &vendor->graph_engine, err));
  vendor->has_graph_engine = true;
  return DIT_OK;
}

enum dit_status dit_registry_load(const char *name, struct dit_vendor *out, struct dit_error *err) {
  if (!name || !name[0]) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "no vendor given; valid: a name such as 'host' or a path that contains '/'");
  }
  struct dit_vendor vendor;
  memset(&vendor, 0, sizeof vendor);
  DIT_RETURN_IF_NOT_OK(plugin_open(&vendor_kind, name, &vendor.handle, err));
  plugin_get_path(vendor.handle, vendor.path);
  enum dit_status status = take_device(&vendor, err);
  if (status == DIT_OK) {
    status = take_kernels(&vendor, err);
  }
  if (status == DIT_OK) {
    status = take_graph_engine(&vendor, err);
  }
  if (status != DIT_OK) {
    dit_registry_unload(&vendor);
    return status;
  }
  *out = vendor;
  return DIT_OK;
}

void dit_registry_unload(struct dit_vendor *vendor) {
  if (vendor->handle) {
    dlclose(vendor->handle);
  }
  memset(vendor, 0, sizeof *vendor);
}

bool dit_registry_matches(const struct dit_vendor *loaded, const char *vendor) {
  char path[PATH_MAX], resolved[PATH_MAX];
  if (!vendor || !loaded->handle) {
    return false;
  }
  if (strchr(vendor, '/')) {
    return realpath(vendor, resolved) && strcmp(resolved, loaded->path) == 0;
  }
  // A bare name means the file beside libdit when there is one, else whatever the loader found under that file name.
  plugin_get_beside(&vendor_kind, vendor, path, sizeof path);
  if (path[0] && realpath(path, resolved)) {
    return strcmp(resolved, loaded->path) == 0;
  }
  return strcmp(loaded->device.name, vendor) == 0;
}
