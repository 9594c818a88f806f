/// Finding and opening shared libraries.
///
/// Order of checks: name, file, ELF header, dlopen: dlopen's own words for a bad file are hard to read.
#include "core/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

#define NAME_MAX_LENGTH 64

/// Something of libdit, whose address tells where libdit lies.
static const char anchor;

// Files

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

static enum dit_status check_machine(const char *noun, const char *path, const unsigned char *header,
                                     struct dit_error *err) {
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
                       "%s '%s' is built for %s (%d-bit, %s-endian), this machine is %s (%d-bit, "
                       "%s-endian); install the %s for this machine",
                       noun, path, machine_name(machine, theirs, sizeof theirs), file_wide ? 64 : 32,
                       file_little ? "little" : "big", machine_name(THIS_MACHINE, ours, sizeof ours),
                       (int)sizeof(void *) * 8, little ? "little" : "big", noun);
}

// dlopen's own words for a bad file are hard to read; look at the header first.
static enum dit_status check_file(const char *noun, const char *path, struct dit_error *err) {
  unsigned char header[sizeof(Elf64_Ehdr)] = {0};
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    int code = errno;
    return dit_error_set(err, DIT_ERR_IO, "cannot open %s '%s': %s; give the path of such a library or a name", noun,
                         path, strerror(code));
  }
  ssize_t length = read(file, header, sizeof header);
  int code = length < 0 ? errno : 0;
  close(file);
  if (code != 0) {
    return dit_error_set(err, DIT_ERR_IO, "cannot read %s '%s': %s", noun, path, strerror(code));
  }
  if (length < (ssize_t)sizeof(Elf32_Ehdr) || memcmp(header, ELFMAG, SELFMAG) != 0) {
    return dit_error_set(err, DIT_ERR_IO, "%s '%s' is not an ELF shared library (%zd bytes read, no ELF header)", noun,
                         path, length);
  }
  return check_machine(noun, path, header, err);
}

static enum dit_status check_name(const char *noun, const char *vendor, struct dit_error *err) {
  size_t length = strspn(vendor, "abcdefghijklmnopqrstuvwxyz0123456789_-");
  if (length == 0 || length > NAME_MAX_LENGTH || vendor[length] != '\0') {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "%.*s name '%.64s' is not valid: 1 to %d characters of a-z, 0-9, '_' and '-', such as 'host', or "
        "a path that contains '/'",
        (int)strcspn(noun, " "), noun, vendor, NAME_MAX_LENGTH);
  }
  return DIT_OK;
}

void plugin_get_beside(const struct plugin_kind *kind, const char *name, char *path, size_t size) {
  Dl_info info;
  path[0] = '\0';
  if (!dladdr((const void *)&anchor, &info) || !info.dli_fname) {
    return;
  }
  const char *slash = strrchr(info.dli_fname, '/');
  int folder = slash ? (int)(slash - info.dli_fname) : 1;
  int length = snprintf(path, size, "%.*s/%s%s.so", folder, slash ? info.dli_fname : ".", kind->prefix, name);
  if (length < 0 || (size_t)length >= size) {
    path[0] = '\0';
  }
}

void plugin_publish_self(void) {
  Dl_info info;
  if (dladdr((const void *)&anchor, &info) && info.dli_fname) {
    // the extra reference keeps libdit loaded, as its callers do anyway
    (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

// Opening

static void *open_library(const char *file) {
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

static enum dit_status open_path(const char *noun, const char *path, void **handle, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_file(noun, path, err));
  void *opened = open_library(path);
  if (!opened) {
    const char *text = dlerror();
    return dit_error_set(err, DIT_ERR_IO, "cannot load %s '%s': %s", noun, path, text ? text : "unknown reason");
  }
  *handle = opened;
  return DIT_OK;
}

static enum dit_status open_name(const struct plugin_kind *kind, const char *name, void **handle,
                                 struct dit_error *err) {
  char beside[PATH_MAX], file[NAME_MAX_LENGTH + 64];
  DIT_RETURN_IF_NOT_OK(check_name(kind->noun, name, err));
  plugin_get_beside(kind, name, beside, sizeof beside);
  if (beside[0] && access(beside, F_OK) == 0) {
    return open_path(kind->noun, beside, handle, err);
  }
  snprintf(file, sizeof file, "%s%s.so", kind->prefix, name);
  void *opened = open_library(file);
  if (!opened) {
    const char *text = dlerror();
    return dit_error_set(err, DIT_ERR_IO,
                         "%s '%s' not found; tried '%s' (no such file) and '%s' on the loader's path (%s); install "
                         "the %s or give its path",
                         kind->noun, name, beside, file, text ? text : "unknown reason", kind->noun);
  }
  *handle = opened;
  return DIT_OK;
}

enum dit_status plugin_open(const struct plugin_kind *kind, const char *name, void **handle, struct dit_error *err) {
  return strchr(name, '/') ? open_path(kind->noun, name, handle, err) : open_name(kind, name, handle, err);
}

void plugin_get_path(void *handle, char *path) {
  struct link_map *map = NULL;
  path[0] = '\0';
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && !realpath(map->l_name, path)) {
    snprintf(path, PATH_MAX, "%s", map->l_name);
  }
}
