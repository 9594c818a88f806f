// Import slots of loaded ELF libraries.
//
// Invariant: a page is writable only inside dit_elf_slot_set; whatever protection /proc/self/maps gave before is put
// back. Depends on: libc (dl_iterate_phdr, mprotect), dit/error.h.
#include "elf_slot.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { RELOCATION_JUMP = R_X86_64_JUMP_SLOT, RELOCATION_DATA = R_X86_64_GLOB_DAT, RELOCATION_WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { RELOCATION_JUMP = R_AARCH64_JUMP_SLOT, RELOCATION_DATA = R_AARCH64_GLOB_DAT, RELOCATION_WORD = R_AARCH64_ABS64 };
#else
enum { RELOCATION_JUMP = -1, RELOCATION_DATA = -1, RELOCATION_WORD = -1 };
#endif

bool dit_elf_is_supported(void) {
  return RELOCATION_JUMP != -1;
}

struct search {
  const char *name;
  struct dit_elf_library *out;
  int found;
};

static bool name_matches(const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  const char *file = slash ? slash + 1 : path;
  size_t length = strlen(name);
  if (strncmp(file, name, length) != 0) {
    return false;
  }
  return file[length] == 0 || (file[length] == '.' && file[length + 1] >= '0' && file[length + 1] <= '9');
}

static int visit_library(struct dl_phdr_info *info, size_t size, void *context) {
  struct search *search = context;
  (void)size;
  if (!info->dlpi_name || !name_matches(info->dlpi_name, search->name) || strlen(info->dlpi_name) >= PATH_MAX) {
    return 0;
  }
  if (search->found++ == 0) {
    memset(search->out, 0, sizeof *search->out);
    memcpy(search->out->path, info->dlpi_name, strlen(info->dlpi_name) + 1);
    search->out->base = info->dlpi_addr;
    search->out->headers = info->dlpi_phdr;
    search->out->header_count = info->dlpi_phnum;
  }
  return 0;
}

// glibc stores absolute addresses in the dynamic section of a loaded library, other loaders leave offsets.
static const void *dynamic_pointer(const struct dit_elf_library *library, ElfW(Addr) value) {
  return (const void *)(value < library->base ? library->base + value : value);
}

static enum dit_status read_dynamic(struct dit_elf_library *library, struct dit_error *err) {
  const ElfW(Dyn) *entry = NULL;
  for (int i = 0; i < library->header_count; i++) {
    if (library->headers[i].p_type == PT_DYNAMIC) {
      entry = (const void *)(library->base + library->headers[i].p_vaddr);
    }
  }
  for (; entry && entry->d_tag != DT_NULL; entry++) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        library->symbols = dynamic_pointer(library, entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        library->strings = dynamic_pointer(library, entry->d_un.d_ptr);
        break;
      case DT_JMPREL:
        library->tables[0].entries = dynamic_pointer(library, entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        library->tables[0].count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELA:
        library->tables[1].entries = dynamic_pointer(library, entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        library->tables[1].count = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELAENT:
        if (entry->d_un.d_val != sizeof(ElfW(Rela))) {
          return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s: relocation entries of %llu bytes, expected %zu",
                               library->path, (unsigned long long)entry->d_un.d_val, sizeof(ElfW(Rela)));
        }
        break;
      case DT_PLTREL:
        if (entry->d_un.d_val != DT_RELA) {
          return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s: PLT relocations are not of the RELA kind", library->path);
        }
        break;
      default:
        break;
    }
  }
  if (!library->symbols || !library->strings || (!library->tables[0].entries && !library->tables[1].entries)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s: no symbol table or no relocations in its dynamic section",
                         library->path);
  }
  return DIT_OK;
}

enum dit_status dit_elf_library_find(const char *name, struct dit_elf_library *out, struct dit_error *err) {
  struct dit_elf_library library;
  struct search search = {.name = name, .out = &library, .found = 0};
  dl_iterate_phdr(visit_library, &search);
  if (search.found == 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "library '%s' is not loaded in this process; import torch first",
                         name);
  }
  if (search.found > 1) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "library '%s' is loaded %d times (first: %s); only one is expected",
                         name, search.found, library.path);
  }
  DIT_RETURN_IF_NOT_OK(read_dynamic(&library, err));
  *out = library;
  return DIT_OK;
}

static int find_name(const char *text, const char *const *names, int count) {
  if (text[0] != '_') {
    return -1;
  }
  for (int i = 0; i < count; i++) {
    if (strcmp(text, names[i]) == 0) {
      return i;
    }
  }
  return -1;
}

// One relocation of interest: -1 when it is none.
static int match_relocation(const struct dit_elf_library *library, const ElfW(Rela) * entry, const char *const *names,
                            int name_count) {
  int type = (int)ELF64_R_TYPE(entry->r_info);
  if (type != RELOCATION_JUMP && type != RELOCATION_DATA && type != RELOCATION_WORD) {
    return -1;
  }
  const ElfW(Sym) *symbol = &library->symbols[ELF64_R_SYM(entry->r_info)];
  // Imports only: this also keeps the walk over 300,000 relocations out of most pages of the string table.
  if (symbol->st_shndx != SHN_UNDEF) {
    return -1;
  }
  return find_name(library->strings + symbol->st_name, names, name_count);
}

enum dit_status dit_elf_slots_find(const struct dit_elf_library *library, const char *const *names, int name_count,
                                   struct dit_elf_slot *slots, int capacity, int *count, struct dit_error *err) {
  int found = 0;
  for (int t = 0; t < 2; t++) {
    const struct dit_elf_table *table = &library->tables[t];
    for (size_t i = 0; table->entries && i < table->count; i++) {
      const ElfW(Rela) *entry = &table->entries[i];
      int name = match_relocation(library, entry, names, name_count);
      if (name < 0) {
        continue;
      }
      uintptr_t address = library->base + entry->r_offset;
      if (entry->r_addend != 0 || address % sizeof(void *) != 0) {
        return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s: the import of %s has addend %lld at address %#llx",
                             library->path, names[name], (long long)entry->r_addend, (unsigned long long)address);
      }
      if (found == capacity) {
        return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s: more than %d import slots", library->path, capacity);
      }
      bool lazy = (int)ELF64_R_TYPE(entry->r_info) == RELOCATION_JUMP;
      slots[found++] = (struct dit_elf_slot){.address = (void **)address, .name = name, .lazy = lazy};
    }
  }
  *count = found;
  return DIT_OK;
}

bool dit_elf_library_has_code(const struct dit_elf_library *library, const void *address) {
  uintptr_t offset = (uintptr_t)address - library->base;
  for (int i = 0; i < library->header_count; i++) {
    const ElfW(Phdr) *header = &library->headers[i];
    if (header->p_type == PT_LOAD && (header->p_flags & PF_X) && offset >= header->p_vaddr &&
        offset - header->p_vaddr < header->p_memsz) {
      return true;
    }
  }
  return false;
}

enum dit_status dit_elf_read_protections(struct dit_elf_slot *slots, int count, struct dit_error *err) {
  FILE *file = fopen("/proc/self/maps", "re");
  if (!file) {
    return dit_error_set(err, DIT_ERR_IO, "cannot open /proc/self/maps: %s", strerror(errno));
  }
  for (int i = 0; i < count; i++) {
    slots[i].protection = PROT_NONE;
  }
  char line[PATH_MAX + 128];
  while (fgets(line, sizeof line, file)) {
    unsigned long long low = 0, high = 0;
    char flags[5] = "";
    if (sscanf(line, "%llx-%llx %4s", &low, &high, flags) != 3) {
      continue;
    }
    for (int i = 0; i < count; i++) {
      unsigned long long address = (uintptr_t)slots[i].address;
      if (address >= low && address < high) {
        slots[i].protection =
            (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) | (flags[2] == 'x' ? PROT_EXEC : 0);
      }
    }
  }
  (void)fclose(file);
  for (int i = 0; i < count; i++) {
    if (!(slots[i].protection & PROT_READ)) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "import slot %p is not in readable memory",
                           (void *)slots[i].address);
    }
  }
  return DIT_OK;
}

void *dit_elf_slot_get(const struct dit_elf_slot *slot) {
  return __atomic_load_n(slot->address, __ATOMIC_ACQUIRE);
}

enum dit_status dit_elf_slot_set(const struct dit_elf_slot *slot, void *value, struct dit_error *err) {
  if (slot->protection & PROT_WRITE) {
    __atomic_store_n(slot->address, value, __ATOMIC_RELEASE);
    return DIT_OK;
  }
  size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)slot->address & ~(uintptr_t)(page_size - 1));
  if (mprotect(page, page_size, slot->protection | PROT_WRITE) != 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "cannot make the import slot %p writable: %s", (void *)slot->address,
                         strerror(errno));
  }
  __atomic_store_n(slot->address, value, __ATOMIC_RELEASE);
  if (mprotect(page, page_size, slot->protection) != 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "cannot write-protect the import slot %p again: %s",
                         (void *)slot->address, strerror(errno));
  }
  return DIT_OK;
}
