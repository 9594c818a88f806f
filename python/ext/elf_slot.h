/// Import slots of a loaded ELF library: find them by symbol name, tell what they hold, write them.
///
/// Nothing here knows about PyTorch or Python. x86-64 and aarch64 with RELA relocations; dit_elf_is_supported() is
/// false elsewhere.
#ifndef DIT_EXT_ELF_SLOT_H
#define DIT_EXT_ELF_SLOT_H

#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dit/error.h"

struct dit_elf_table {
  const ElfW(Rela) * entries;
  size_t count;
};

/// A library that is mapped into this process. The pointers are borrowed from the dynamic loader and hold until it is
/// unloaded.
struct dit_elf_library {
  char path[PATH_MAX];
  uintptr_t base;
  const ElfW(Phdr) * headers;
  int header_count;
  const ElfW(Sym) * symbols;
  const char *strings;
  struct dit_elf_table tables[2];  ///< DT_JMPREL, DT_RELA
};

struct dit_elf_slot {
  void **address;
  int name;        ///< index into the names that were searched
  bool lazy;       ///< a jump slot: may still point to the library's own PLT
  int protection;  ///< PROT_* of its page, filled by dit_elf_read_protections
};

bool dit_elf_is_supported(void);

/// The loaded library whose file name is `name` or `name` plus a version suffix (".2.13"). DIT_ERR_UNSUPPORTED when
/// none or more than one is loaded, or when it lacks the tables needed.
DIT_NODISCARD enum dit_status dit_elf_library_find(const char *name, struct dit_elf_library *out,
                                                   struct dit_error *err);

/// Every slot through which `library` imports one of `names`. A relocation with an addend or at an unaligned place is
/// refused (DIT_ERR_UNSUPPORTED), as are more than `capacity` slots.
DIT_NODISCARD enum dit_status dit_elf_slots_find(const struct dit_elf_library *library, const char *const *names,
                                                 int name_count, struct dit_elf_slot *slots, int capacity, int *count,
                                                 struct dit_error *err);

/// Is `address` inside an executable segment of `library`?
bool dit_elf_library_has_code(const struct dit_elf_library *library, const void *address);

/// Fill `protection` of every slot from /proc/self/maps.
DIT_NODISCARD enum dit_status dit_elf_read_protections(struct dit_elf_slot *slots, int count, struct dit_error *err);

void *dit_elf_slot_get(const struct dit_elf_slot *slot);
/// Store `value` with one aligned write (other threads see the old or the new value), then give the page its protection
/// back.
DIT_NODISCARD enum dit_status dit_elf_slot_set(const struct dit_elf_slot *slot, void *value, struct dit_error *err);

#endif
