/// "cuda" as another name of one device type: install, restore, describe. Process-wide; the caller holds the GIL (no
/// other lock).
#ifndef DIT_EXT_ALIAS_H
#define DIT_EXT_ALIAS_H

#include "alias_hooks.h"
#include "elf_slot.h"

#define DIT_ALIAS_MAX_LIBRARIES 8
#define DIT_ALIAS_MAX_SLOTS 128

/// Where an injected failure strikes; the order is the order of installation.
enum dit_alias_stage {
  DIT_ALIAS_STAGE_NONE,
  DIT_ALIAS_STAGE_SYMBOL,   ///< a symbol does not resolve
  DIT_ALIAS_STAGE_LAYOUT,   ///< an original answers something unexpected
  DIT_ALIAS_STAGE_SLOT,     ///< a slot holds a foreign address
  DIT_ALIAS_STAGE_PROTECT,  ///< the first write fails
  DIT_ALIAS_STAGE_WRITE,    ///< the last write fails, the others are done
  DIT_ALIAS_STAGE_PROBE,    ///< the result, asked through PyTorch, is wrong
  DIT_ALIAS_STAGES
};

struct dit_alias_library {
  char name[64];  ///< as asked for: "libtorch_cpu.so"
  char path[PATH_MAX];
  int counts[DIT_ALIAS_HOOKS];  ///< slots written, by hook
};

struct dit_alias_status {
  bool installed;
  int device_type;
  bool show;
  int slot_count;
  int library_count;
  struct dit_alias_library libraries[DIT_ALIAS_MAX_LIBRARIES];
};

/// Verify everything, then write every slot; after an error no slot is changed. DIT_ERR_INVALID: bad argument, or
/// already installed for another device type or other libraries; DIT_ERR_UNSUPPORTED: this PyTorch is not as expected,
/// the message says where. `names` NULL: libtorch_python.so and libtorch_cpu.so. Installed already with the same
/// arguments: only `show` is updated.
DIT_NODISCARD enum dit_status dit_alias_install(int device_type, bool show, const char *const *names, int name_count,
                                                struct dit_error *err);
/// Put every slot back; nothing when not installed. A slot that somebody else overwrote since is left alone and
/// reported.
DIT_NODISCARD enum dit_status dit_alias_restore(struct dit_error *err);
/// Borrowed; changes with the next install or restore.
const struct dit_alias_status *dit_alias_get_status(void);
/// The real name of the target type ("privateuseone", "dit"), asked of the original function.
DIT_NODISCARD enum dit_status dit_alias_get_real_name(char *text, size_t size, struct dit_error *err);

/// For tests: the next install fails at this stage.
void dit_alias_set_failure(enum dit_alias_stage stage);
bool dit_alias_take_failure(enum dit_alias_stage stage);

#endif
