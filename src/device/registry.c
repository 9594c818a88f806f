/// The registry: finds a vendor library, loads it with local scope, checks what it promises.
///
/// Order of checks: name, file, ELF header, dlopen, symbol, ABI version, struct size, required slots. A library that
/// fails one is closed again. Invariant: what dit_registry_load returns has every required slot. Depends on core and
/// libdl.
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device_internal.h"

#ifndef EM_LOONGARCH
#define EM_LOONGARCH 258
#endif

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#elif defined(__riscv)
#define THIS_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define THIS_MACHINE EM_PPC64
#elif defined(__loongarch__)
#define THIS_MACHINE EM_LOONGARCH
#else
#define THIS_MACHINE EM_NONE
#endif

#define LIBRARY_FORMAT "libdit_vendor_%s.so"
#define NAME_MAX_LENGTH 64

// ---- files

static const char *machine_name(unsigned machine, char *buffer, size_t size) {
  static const struct {
    unsigned machine;
    const char *name;
  } names[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"},     {EM_386, "i386"},
               {EM_ARM, "arm"},       {EM_RISCV, "riscv"},         {EM_PPC64, "ppc64"},
               {EM_S390, "s390x"},    {EM_LOONGARCH, "loongarch"}, {EM_MIPS, "mips"}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (names[i].machine == machine) {
      return names[i].name;
    }
  }
  snprintf(buffer, size, "ELF machine %u", machine);
  return buffer;
}

static enum dit_status check_machine(const char *path, const unsigned char *header, struct dit_error *err) {
  const uint16_t probe = 1;
  bool little = *(const unsigned char *)&probe == 1;
  bool file_little = header[EI_DATA] == ELFDATA2LSB;
  const unsigned char *field = header + offsetof(Elf64_Ehdr, e_machine);  // same place in both classes
  unsigned machine = file_little ? field[0] | (unsigned)field[1] << 8 : field[1] | (unsigned)field[0] << 8;
  bool file_wide = header[EI_CLASS] == ELFCLASS64;
  if ((THIS_MACHINE == EM_NONE || machine == THIS_MACHINE) && file_wide == (sizeof(void *) == 8) &&
      file_little == little) {
    return DIT_OK;
  }
  char theirs[32], ours[32];
  return dit_error_set(err, DIT_ERR_IO,
                       "vendor library '%s' is built for %s (%d-bit, %s-endian), this machine is %s (%d-bit, "
                       "%s-endian); install the vendor library for this machine",
                       path, machine_name(machine, theirs, sizeof theirs), file_wide ? 64 : 32,
                       file_little ? "little" : "big", machine_name(THIS_MACHINE, ours, sizeof ours),
                       (int)sizeof(void *) * 8, little ? "little" : "big");
}

// dlopen's own words for a bad file are hard to read; look at the header first.
static enum dit_status check_file(const char *path, struct dit_error *err) {
  unsigned char header[sizeof(Elf64_Ehdr)] = {0};
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    int code = errno;
    return dit_error_set(err, DIT_ERR_IO,
                         "cannot open vendor library '%s': %s; give the path of a vendor library or a name", path,
                         strerror(code));
  }
  ssize_t length = read(file, header, sizeof header);
  int code = length < 0 ? errno : 0;
  close(file);
  if (code != 0) {
    return dit_error_set(err, DIT_ERR_IO, "cannot read vendor library '%s': %s", path, strerror(code));
  }
  if (length < (ssize_t)sizeof(Elf32_Ehdr) || memcmp(header, ELFMAG, SELFMAG) != 0) {
    return dit_error_set(err, DIT_ERR_IO,
                         "vendor library '%s' is not an ELF shared library (%zd bytes read, no ELF header)", path,
                         length);
  }
  return check_machine(path, header, err);
}

static enum dit_status check_name(const char *vendor, struct dit_error *err) {
  size_t length = strspn(vendor, "abcdefghijklmnopqrstuvwxyz0123456789_-");
  if (length == 0 || length > NAME_MAX_LENGTH || vendor[length] != '\0') {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "vendor name '%.64s' is not valid: 1 to %d characters of a-z, 0-9, '_' and '-', such as 'host', or "
        "a path that contains '/'",
        vendor, NAME_MAX_LENGTH);
  }
  return DIT_OK;
}

// "<folder of libdit>/libdit_vendor_<name>.so"; "" when libdit's own place is unknown or too long.
static void path_beside_libdit(const char *name, char *path, size_t size) {
  Dl_info info;
  path[0] = '\0';
  if (!dladdr((const void *)&dit_generation, &info) || !info.dli_fname) {
    return;
  }
  const char *slash = strrchr(info.dli_fname, '/');
  int folder = slash ? (int)(slash - info.dli_fname) : 1;
  int length = snprintf(path, size, "%.*s/" LIBRARY_FORMAT, folder, slash ? info.dli_fname : ".", name);
  if (length < 0 || (size_t)length >= size) {
    path[0] = '\0';
  }
}

// ---- opening

static void *open_library(const char *file) {
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static enum dit_status open_path(const char *path, void **handle, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_file(path, err));
  void *opened = open_library(path);
  if (!opened) {
    const char *text = dlerror();
    return dit_error_set(err, DIT_ERR_IO, "cannot load vendor library '%s': %s", path, text ? text : "unknown reason");
  }
  *handle = opened;
  return DIT_OK;
}

static enum dit_status open_name(const char *name, void **handle, struct dit_error *err) {
  char beside[PATH_MAX], file[NAME_MAX_LENGTH + sizeof LIBRARY_FORMAT];
  DIT_RETURN_IF_NOT_OK(check_name(name, err));
  path_beside_libdit(name, beside, sizeof beside);
  if (beside[0] && access(beside, F_OK) == 0) {
    return open_path(beside, handle, err);
  }
  snprintf(file, sizeof file, LIBRARY_FORMAT, name);
  void *opened = open_library(file);
  if (!opened) {
    const char *text = dlerror();
    return dit_error_set(
        err, DIT_ERR_IO,
        "vendor '%s' not found; tried '%s' (no such file) and '%s' on the loader's path (%s); install the "
        "vendor library or give its path",
        name, beside, file, text ? text : "unknown reason");
  }
  *handle = opened;
  return DIT_OK;
}

static void find_path(void *handle, char *path) {
  struct link_map *map = NULL;
  path[0] = '\0';
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && !realpath(map->l_name, path)) {
    snprintf(path, PATH_MAX, "%s", map->l_name);
  }
}

// ---- checking

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
                                      table->struct_size, offsetof(struct dit_kernel_vtable, binary), err));
  size_t size = table->struct_size < sizeof vendor->kernels ? table->struct_size : sizeof vendor->kernels;
  memcpy(&vendor->kernels, table, size);
  vendor->has_kernels = true;
  return DIT_OK;
}

enum dit_status dit_registry_load(const char *name, struct dit_vendor *out, struct dit_error *err) {
  if (!name || !name[0]) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "no vendor given; valid: a name such as 'host' or a path that contains '/'");
  }
  struct dit_vendor vendor;
  memset(&vendor, 0, sizeof vendor);
  DIT_RETURN_IF_NOT_OK(strchr(name, '/') ? open_path(name, &vendor.handle, err) : open_name(name, &vendor.handle, err));
  find_path(vendor.handle, vendor.path);
  enum dit_status status = take_device(&vendor, err);
  if (status == DIT_OK) {
    status = take_kernels(&vendor, err);
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
  path_beside_libdit(vendor, path, sizeof path);
  if (path[0] && realpath(path, resolved)) {
    return strcmp(resolved, loaded->path) == 0;
  }
  return strcmp(loaded->device.name, vendor) == 0;
}
