// Installation of the device alias: resolve, verify, plan, write; or undo.
//
// Invariant: state.plan[0 .. state.written) are the slots that hold a replacement. An install either writes the whole
// plan or, on any surprise, nothing. libtorch_cuda and libc10_cuda are never touched: with real CUDA there is nothing
// to alias. Depends on: elf_slot.h (slots), alias_hooks.h (replacements), libdl.
#include "alias.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct patch {
  struct dit_elf_slot slot;
  void *before;
  int library;
  int hook;
};

static struct {
  struct dit_alias_status status;
  struct patch plan[DIT_ALIAS_MAX_SLOTS];
  int planned;
  int written;
  enum dit_alias_stage failure;
} state;

static const char *const default_names[] = {"libtorch_python.so", "libtorch_cpu.so"};

void dit_alias_set_failure(enum dit_alias_stage stage) {
  state.failure = stage;
}

bool dit_alias_take_failure(enum dit_alias_stage stage) {
  if (state.failure != stage || stage == DIT_ALIAS_STAGE_NONE) {
    return false;
  }
  state.failure = DIT_ALIAS_STAGE_NONE;
  return true;
}

const struct dit_alias_status *dit_alias_get_status(void) {
  state.status.show = state.status.installed && dit_alias_get_show();
  return &state.status;
}

// Arguments

// Types whose names the original functions know in both directions, so that asking them about one cannot throw.
static bool is_valid_target(int type) {
  static const int valid[] = {8, 9, 12, 13, 15, 16, 18, 19, DIT_C10_PRIVATEUSE1};  // maia xla xpu mps hpu ve ipu mtia
  for (size_t i = 0; i < sizeof valid / sizeof *valid; i++) {
    if (valid[i] == type) {
      return true;
    }
  }
  return false;
}

static enum dit_status check_arguments(int device_type, const char *const *names, int count, struct dit_error *err) {
  if (!dit_elf_is_supported()) {
    return dit_error_set(
        err, DIT_ERR_UNSUPPORTED,
        "the binary alias knows x86-64 and aarch64 ELF only; use DITORCH_ALIAS=python on this machine");
  }
  if (!is_valid_target(device_type)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "device type %d cannot stand behind 'cuda'; valid: 8 (maia), 9 (xla), 12 (xpu), 13 (mps), 15 "
                         "(hpu), 16 (ve), 18 (ipu), 19 (mtia), 20 (PrivateUse1)",
                         device_type);
  }
  if (count < 1 || count > DIT_ALIAS_MAX_LIBRARIES) {
    return dit_error_set(err, DIT_ERR_INVALID, "%d libraries given; between 1 and %d are possible", count,
                         DIT_ALIAS_MAX_LIBRARIES);
  }
  for (int i = 0; i < count; i++) {
    if (!names[i][0] || strchr(names[i], '/') || strlen(names[i]) >= sizeof state.status.libraries[0].name) {
      return dit_error_set(err, DIT_ERR_INVALID, "'%s' is not the file name of a library such as libtorch_cpu.so",
                           names[i]);
    }
    if (strncmp(names[i], "libtorch_cuda", 13) == 0 || strncmp(names[i], "libc10_cuda", 11) == 0) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s must keep its own idea of CUDA and is never patched", names[i]);
    }
    for (int j = 0; j < i; j++) {
      if (strcmp(names[i], names[j]) == 0) {
        return dit_error_set(err, DIT_ERR_INVALID, "library '%s' is given twice", names[i]);
      }
    }
  }
  return DIT_OK;
}

static enum dit_status update_installed(int device_type, bool show, const char *const *names, int count,
                                        struct dit_error *err) {
  const struct dit_alias_status *status = &state.status;
  if (status->device_type != device_type) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "the alias already stands for device type %d and cannot be changed to %d; call alias_restore() first",
        status->device_type, device_type);
  }
  bool same = count == status->library_count;
  for (int i = 0; same && i < count; i++) {
    same = strcmp(names[i], status->libraries[i].name) == 0;
  }
  if (!same) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "the alias is already installed in %d other libraries; call alias_restore() first",
                         status->library_count);
  }
  dit_alias_set_show(show);
  return DIT_OK;
}

// The originals

static enum dit_status resolve_originals(struct dit_error *err) {
  static const char *const providers[] = {"libc10.so", "libtorch_cpu.so"};
  void *handles[2] = {NULL, NULL};
  enum dit_status status = DIT_OK;
  for (int i = 0; i < 2 && status == DIT_OK; i++) {
    struct dit_elf_library library;
    status = dit_elf_library_find(providers[i], &library, err);
    if (status == DIT_OK && !(handles[i] = dlopen(library.path, RTLD_NOW | RTLD_NOLOAD))) {
      status = dit_error_set(err, DIT_ERR_UNSUPPORTED, "cannot get a handle of %s: %s", library.path, dlerror());
    }
  }
  for (int h = 0; h < DIT_ALIAS_HOOKS && status == DIT_OK; h++) {
    const struct dit_alias_hook *hook = &dit_alias_hooks[h];
    void *address = dlsym(handles[0], hook->symbol);
    address = address ? address : dlsym(handles[1], hook->symbol);
    if (dit_alias_take_failure(DIT_ALIAS_STAGE_SYMBOL)) {
      address = NULL;
    }
    if (!address && hook->required) {
      status =
          dit_error_set(err, DIT_ERR_UNSUPPORTED,
                        "%s (%s) is in neither libc10 nor libtorch_cpu: PyTorch 2.7 or newer with the C++11 string "
                        "ABI is needed",
                        hook->label, hook->symbol);
    }
    if (status == DIT_OK) {
      *hook->original = address;
    }
  }
  for (int i = 0; i < 2; i++) {
    if (handles[i]) {
      (void)dlclose(handles[i]);  // drops our count only; PyTorch stays
    }
  }
  return status;
}

// Copy the text of a returned std::string and give its memory back.
static bool take_string(const struct dit_cxx_string *string, char *out, size_t size) {
  if (string->length < sizeof string->local) {
    memcpy(out, string->local, string->length);  // the struct may have been copied: `text` may point to where it was
    out[string->length] = 0;
    return true;
  }
  bool fits = string->length < size;
  if (fits) {
    memcpy(out, string->text, string->length);
    out[string->length] = 0;
  }
  void *release = dlsym(RTLD_DEFAULT, "_ZdlPv");  // operator delete(void *)
  if (release) {
    (*(void (**)(const char *)) & release)(string->text);
  }
  return fits;
}

static enum dit_status check_parse(const char *text, int type, int index, struct dit_error *err) {
  struct dit_cxx_string string = {.length = strlen(text)};
  if (string.length < sizeof string.local) {
    memcpy(string.local, text, string.length + 1);
    string.text = string.local;
  } else {
    string.text = text;
  }
  // The guard bytes tell whether Device is really two bytes wide.
  struct dit_c10_device devices[2] = {{0x55, 0x55}, {0x55, 0x55}};
  (*(dit_device_parse **)dit_alias_hooks[DIT_HOOK_PARSE].original)(&devices[0], &string);
  if (devices[0].type != type || devices[0].index != index || devices[1].type != 0x55 || devices[1].index != 0x55) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "c10::Device(\"%s\") gives type %d index %d (guard %#x %#x), expected type %d index %d", text,
                         devices[0].type, devices[0].index, (unsigned)devices[1].type, (unsigned)devices[1].index, type,
                         index);
  }
  return DIT_OK;
}

static enum dit_status read_type_name(int type, bool lower, char *text, size_t size, struct dit_error *err) {
  struct dit_cxx_string string =
      (*(dit_device_type_name **)dit_alias_hooks[DIT_HOOK_TYPE_NAME].original)((int8_t)type, lower);
  if (!take_string(&string, text, size) || !text[0]) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "c10::DeviceTypeName(%d) gives a text of %zu bytes", type,
                         string.length);
  }
  return DIT_OK;
}

static enum dit_status check_text(const char *what, const char *found, const char *expected, struct dit_error *err) {
  if (strcmp(found, expected) != 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s gives '%s', expected '%s'", what, found, expected);
  }
  return DIT_OK;
}

// The first key is 0, and the two that are exchanged differ.
static enum dit_status check_keys(struct dit_error *err) {
  static const char *const names[3] = {"Undefined", "CUDA", "PrivateUse1"};
  unsigned keys[3];
  for (int i = 0; i < 3; i++) {
    struct dit_cxx_string string = {.text = names[i], .length = strlen(names[i])};
    keys[i] = (*(dit_dispatch_key_parse **)dit_alias_hooks[DIT_HOOK_PARSE_KEY].original)(&string);
  }
  if (keys[0] != 0 || keys[1] == 0 || keys[2] == 0 || keys[1] == keys[2]) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "c10::parseDispatchKey gives %u, %u and %u for Undefined, CUDA and PrivateUse1", keys[0],
                         keys[1], keys[2]);
  }
  return DIT_OK;
}

// Ask the originals what we know. None of these questions can throw in a PyTorch that has the symbols.
static enum dit_status verify_originals(int device_type, struct dit_error *err) {
  char text[64];
  DIT_RETURN_IF_NOT_OK(check_parse("cpu", DIT_C10_CPU, -1, err));
  DIT_RETURN_IF_NOT_OK(
      check_parse("cuda:3", dit_alias_take_failure(DIT_ALIAS_STAGE_LAYOUT) ? -2 : DIT_C10_CUDA, 3, err));
  DIT_RETURN_IF_NOT_OK(check_parse("meta", DIT_C10_META, -1, err));
  DIT_RETURN_IF_NOT_OK(read_type_name(DIT_C10_CPU, true, text, sizeof text, err));
  DIT_RETURN_IF_NOT_OK(check_text("c10::DeviceTypeName(CPU, lower)", text, "cpu", err));
  DIT_RETURN_IF_NOT_OK(read_type_name(DIT_C10_CUDA, false, text, sizeof text, err));
  DIT_RETURN_IF_NOT_OK(check_text("c10::DeviceTypeName(CUDA, upper)", text, "CUDA", err));
  const struct dit_c10_device device = {DIT_C10_CUDA, 3};
  struct dit_cxx_string string = (*(dit_device_text **)dit_alias_hooks[DIT_HOOK_TEXT].original)(&device);
  if (!take_string(&string, text, sizeof text)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "c10::Device::str gives a text of %zu bytes", string.length);
  }
  DIT_RETURN_IF_NOT_OK(check_text("c10::Device::str of CUDA 3", text, "cuda:3", err));
  DIT_RETURN_IF_NOT_OK(check_keys(err));
  DIT_RETURN_IF_NOT_OK(read_type_name(device_type, true, text, sizeof text, err));
  if (strcmp(text, "cuda") == 0 || strcmp(text, "cpu") == 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "device type %d is itself named '%s'", device_type, text);
  }
  return check_parse(text, device_type, -1, err);
}

enum dit_status dit_alias_get_real_name(char *text, size_t size, struct dit_error *err) {
  if (!state.status.installed) {
    return dit_error_set(err, DIT_ERR_INVALID, "the alias is not installed; call alias_install() first");
  }
  return read_type_name(state.status.device_type, true, text, size, err);
}

// The slots

// A slot must hold the original or, when it was never called, a stub of the library itself.
static enum dit_status check_slot(const struct dit_elf_library *library, const struct dit_elf_slot *slot, int hook,
                                  struct dit_error *err) {
  void *held = dit_elf_slot_get(slot);
  if (dit_alias_take_failure(DIT_ALIAS_STAGE_SLOT)) {
    held = NULL;
  }
  if (held == *dit_alias_hooks[hook].original || (slot->lazy && dit_elf_library_has_code(library, held))) {
    return DIT_OK;
  }
  Dl_info info = {0};
  const char *owner = held && dladdr(held, &info) && info.dli_fname ? info.dli_fname : "no known library";
  return dit_error_set(
      err, DIT_ERR_UNSUPPORTED,
      "%s: the import slot of %s holds %p (%s) instead of PyTorch's own function: somebody else patched it",
      library->path, dit_alias_hooks[hook].label, held, owner);
}

static enum dit_status plan_library(int index, const char *name, struct dit_error *err) {
  const char *symbols[DIT_ALIAS_HOOKS];
  struct dit_elf_slot slots[DIT_ALIAS_MAX_SLOTS];
  struct dit_elf_library library;
  int found = 0;
  for (int h = 0; h < DIT_ALIAS_HOOKS; h++) {
    symbols[h] = dit_alias_hooks[h].symbol;
  }
  DIT_RETURN_IF_NOT_OK(dit_elf_library_find(name, &library, err));
  DIT_RETURN_IF_NOT_OK(dit_elf_slots_find(&library, symbols, DIT_ALIAS_HOOKS, slots, DIT_ALIAS_MAX_SLOTS, &found, err));
  DIT_RETURN_IF_NOT_OK(dit_elf_read_protections(slots, found, err));
  struct dit_alias_library *out = &state.status.libraries[index];
  memset(out, 0, sizeof *out);
  (void)snprintf(out->name, sizeof out->name, "%s", name);
  memcpy(out->path, library.path, sizeof out->path);
  bool is_python = strncmp(name, "libtorch_python", 15) == 0;
  for (int i = 0; i < found; i++) {
    int hook = slots[i].name;
    if (dit_alias_hooks[hook].python_only && !is_python) {
      continue;
    }
    DIT_RETURN_IF_NOT_OK(check_slot(&library, &slots[i], hook, err));
    if (state.planned == DIT_ALIAS_MAX_SLOTS) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "more than %d import slots in all", DIT_ALIAS_MAX_SLOTS);
    }
    state.plan[state.planned++] = (struct patch){slots[i], dit_elf_slot_get(&slots[i]), index, hook};
    out->counts[hook]++;
  }
  return DIT_OK;
}

static enum dit_status check_plan(const char *const *names, int count, struct dit_error *err) {
  for (int i = 0; i < count; i++) {
    int slots = 0;
    for (int h = 0; h < DIT_ALIAS_HOOKS; h++) {
      slots += state.status.libraries[i].counts[h];
    }
    if (slots == 0) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "%s imports none of the device functions: nothing to alias there",
                           names[i]);
    }
  }
  for (int h = 0; h < DIT_ALIAS_HOOKS; h++) {
    int slots = 0;
    for (int i = 0; i < count; i++) {
      slots += state.status.libraries[i].counts[h];
    }
    bool wanted = dit_alias_hooks[h].required && !dit_alias_hooks[h].python_only;
    for (int i = 0; i < count; i++) {
      wanted |= dit_alias_hooks[h].required && strncmp(names[i], "libtorch_python", 15) == 0;
    }
    if (slots == 0 && wanted) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "no import slot of %s (%s) in the %d libraries searched",
                           dit_alias_hooks[h].label, dit_alias_hooks[h].symbol, count);
    }
  }
  return DIT_OK;
}

static enum dit_status write_plan(struct dit_error *err) {
  for (int i = 0; i < state.planned; i++) {
    const struct patch *patch = &state.plan[i];
    if ((i == 0 && dit_alias_take_failure(DIT_ALIAS_STAGE_PROTECT)) ||
        (i == state.planned - 1 && dit_alias_take_failure(DIT_ALIAS_STAGE_WRITE))) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "cannot write slot %d of %d: injected failure", i, state.planned);
    }
    state.written = i + 1;  // also when the write fails half-way: undoing a slot that holds its old value does nothing
    DIT_RETURN_IF_NOT_OK(dit_elf_slot_set(&patch->slot, dit_alias_hooks[patch->hook].replacement, err));
    if (dit_elf_slot_get(&patch->slot) != dit_alias_hooks[patch->hook].replacement) {
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "import slot %p of %s did not keep its value",
                           (void *)patch->slot.address, dit_alias_hooks[patch->hook].label);
    }
  }
  return DIT_OK;
}

enum dit_status dit_alias_restore(struct dit_error *err) {
  enum dit_status status = DIT_OK;
  for (int i = state.written - 1; i >= 0; i--) {
    const struct patch *patch = &state.plan[i];
    void *held = dit_elf_slot_get(&patch->slot);
    if (held == patch->before) {
      continue;
    }
    if (held != dit_alias_hooks[patch->hook].replacement) {
      status = dit_error_set(err, DIT_ERR_UNSUPPORTED,
                             "import slot of %s in %s was changed to %p by somebody else; left alone",
                             dit_alias_hooks[patch->hook].label, state.status.libraries[patch->library].path, held);
      continue;
    }
    enum dit_status one = dit_elf_slot_set(&patch->slot, patch->before, err);
    status = one == DIT_OK ? status : one;
  }
  dit_alias_set_second(NULL, 0);
  state.planned = state.written = 0;
  memset(&state.status, 0, sizeof state.status);
  return status;
}

enum dit_status dit_alias_install(int device_type, bool show, const char *const *names, int name_count,
                                  struct dit_error *err) {
  if (!names) {
    names = default_names;
    name_count = sizeof default_names / sizeof *default_names;
  }
  DIT_RETURN_IF_NOT_OK(check_arguments(device_type, names, name_count, err));
  if (state.status.installed) {
    return update_installed(device_type, show, names, name_count, err);
  }
  state.planned = state.written = 0;
  enum dit_status status = resolve_originals(err);
  if (status == DIT_OK) {
    status = verify_originals(device_type, err);
  }
  for (int i = 0; i < name_count && status == DIT_OK; i++) {
    status = plan_library(i, names[i], err);
  }
  if (status == DIT_OK) {
    status = check_plan(names, name_count, err);
  }
  if (status == DIT_OK) {
    dit_alias_set_target((int8_t)device_type);
    dit_alias_set_show(show);
    status = write_plan(err);
  }
  if (status != DIT_OK) {
    struct dit_error ignored = {0};
    (void)!dit_alias_restore(&ignored);  // the first error is the one to tell
    return status;
  }
  state.status.installed = true;
  state.status.device_type = device_type;
  state.status.slot_count = state.written;
  state.status.library_count = name_count;
  return DIT_OK;
}
