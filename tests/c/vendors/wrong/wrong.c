/// The table of a wrong vendor: which one is asked for, and the functions that it is made of.
#include "wrong.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct dit_device_vtable wrong_table;
const struct dit_device_vtable *wrong_base;
const struct dit_kernel_vtable *wrong_base_kernels;

static const struct wrong_defect *const lists[] = {wrong_start_defects,      wrong_memory_defects, wrong_copy_defects,
                                                   wrong_stream_defects,     wrong_event_defects,  wrong_error_defects,
                                                   wrong_collective_defects, wrong_kernel_defects};

/// The functions of another vendor, which lies beside libdit. By its path: a sanitizer's dlopen knows no RUNPATH.
static const struct dit_device_vtable *open_base(void) {
  const struct dit_device_vtable *(*get)(void);
  enum dit_status (*anchor)(struct dit_error *, enum dit_status, const char *, ...) = dit_error_set;
  const char *name = getenv("WRONG_BASE");
  char path[4096];
  void *address;
  Dl_info info;
  memcpy(&address, &anchor, sizeof address);
  if (!dladdr(address, &info) || !strrchr(info.dli_fname, '/')) {
    return NULL;
  }
  const int folder = (int)(strrchr(info.dli_fname, '/') - info.dli_fname);
  snprintf(path, sizeof path, "%.*s/libdit_vendor_%s.so", folder, info.dli_fname, name ? name : "opaque");
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = handle ? dlsym(handle, DIT_VENDOR_DEVICE_SYMBOL) : NULL;
  memcpy(&get, &symbol, sizeof get);
  const struct dit_kernel_vtable *(*get_kernels)(void);
  symbol = handle ? dlsym(handle, DIT_VENDOR_KERNELS_SYMBOL) : NULL;
  memcpy(&get_kernels, &symbol, sizeof get_kernels);
  wrong_base_kernels = get_kernels ? get_kernels() : NULL;
  return get ? get() : NULL;
}

static const struct wrong_defect *find(const char *name) {
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    for (const struct wrong_defect *defect = lists[i]; defect->name; defect++) {
      if (strcmp(defect->name, name) == 0) {
        return defect;
      }
    }
  }
  return NULL;
}

DIT_API const struct dit_device_vtable *dit_vendor_get_device(void);
const struct dit_device_vtable *dit_vendor_get_device(void) {
  const char *name = getenv("WRONG_DEFECT");
  if (!wrong_base) {
    wrong_base = open_base();
    const struct wrong_defect *defect = name && strcmp(name, "none") != 0 ? find(name) : NULL;
    if (!wrong_base || (name && strcmp(name, "none") != 0 && !defect)) {
      return NULL;
    }
    wrong_table = *wrong_base;
    wrong_table.name = "wrong";
    if (defect) {
      defect->apply();
    }
  }
  return &wrong_table;
}

DIT_API const struct dit_kernel_vtable *dit_vendor_get_kernels(void);
const struct dit_kernel_vtable *dit_vendor_get_kernels(void) {
  static const struct dit_kernel_vtable old = {.abi_version = 1, .struct_size = sizeof old};
  const char *name = getenv("WRONG_DEFECT");
  return name && strcmp(name, "old_kernels") == 0 ? &old : wrong_get_kernels();
}

/// Names of the defects, one per line, for the tests.
DIT_API void dit_wrong_list(char *text, size_t size);
void dit_wrong_list(char *text, size_t size) {
  size_t length = 0;
  text[0] = '\0';
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    for (const struct wrong_defect *defect = lists[i]; defect->name && length < size; defect++) {
      length += (size_t)snprintf(text + length, size - length, "%s\n", defect->name);
    }
  }
}
