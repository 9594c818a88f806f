// Stand-ins for the c10 and autocast functions that turn device names into numbers and back.
//
// Invariant: every function calls its original exactly once with at most the device type exchanged, and owns nothing,
// so an exception of the original (a bad device string) passes through; the file is compiled with -fexceptions for
// that. Depends on: the calling conventions of the System V x86-64 and AArch64 C++ ABIs; nothing of libdit.
#include "alias_hooks.h"

#include <stdatomic.h>
#include <string.h>

// Never equal to a device type: nothing is renamed.
enum { SHOW_NOTHING = INT8_MIN };

// Read by the assembly below: one byte each.
#define HOOK_STATE __attribute__((visibility("hidden"), used))
HOOK_STATE _Atomic int8_t dit_alias_target = DIT_C10_CUDA;
HOOK_STATE _Atomic int8_t dit_alias_shown = SHOW_NOTHING;
HOOK_STATE void *dit_alias_original_type_name;
HOOK_STATE void *dit_alias_original_text;

static bool (*_Atomic exempt)(void);
static void *original_parse_complete, *original_parse_base;
static void *original_print_type, *original_print_device;
static void *original_parse_key;
static void *original_is_enabled, *original_set_enabled, *original_get_dtype, *original_set_dtype;

void dit_alias_set_target(int8_t type) {
  atomic_store_explicit(&dit_alias_target, type, memory_order_relaxed);
}

void dit_alias_set_show(bool show) {
  int8_t shown = show ? dit_alias_get_target() : (int8_t)SHOW_NOTHING;
  atomic_store_explicit(&dit_alias_shown, shown, memory_order_relaxed);
}

int8_t dit_alias_get_target(void) {
  return atomic_load_explicit(&dit_alias_target, memory_order_relaxed);
}

bool dit_alias_get_show(void) {
  return atomic_load_explicit(&dit_alias_shown, memory_order_relaxed) != (int8_t)SHOW_NOTHING;
}

void dit_alias_set_exempt(bool (*ask)(void)) {
  atomic_store_explicit(&exempt, ask, memory_order_relaxed);
}

// A second text for a device type. Its length is written last and read first: 0 means that there is none.
static struct {
  _Atomic size_t length;
  int8_t type;
  char name[DIT_ALIAS_SECOND_MAX];
} second;

void dit_alias_set_second(const char *name, int8_t type) {
  atomic_store_explicit(&second.length, 0, memory_order_release);
  if (name) {
    second.type = type;
    memcpy(second.name, name, strlen(name));
    atomic_store_explicit(&second.length, strlen(name), memory_order_release);
  }
}

// Nothing, or a colon and a number of up to three digits: what PyTorch takes, so that errors are about the text as
// given.
static bool is_index(const char *text, size_t length) {
  if (length == 0) {
    return true;
  }
  bool valid = length >= 2 && length <= 4 && text[0] == ':' && (text[1] != '0' || length == 2);
  for (size_t i = 1; valid && i < length; i++) {
    valid = text[i] >= '0' && text[i] <= '9';
  }
  return valid;
}

// `text` is the second name: PyTorch reads "cuda" with the same index instead. False: nothing was read.
static bool parse_second(void *original, struct dit_c10_device *self, const struct dit_cxx_string *text) {
  size_t length = atomic_load_explicit(&second.length, memory_order_acquire);
  if (length == 0 || text->length < length || memcmp(text->text, second.name, length) != 0 ||
      !is_index(text->text + length, text->length - length)) {
    return false;
  }
  struct dit_cxx_string cuda = {.length = 4 + text->length - length, .local = "cuda"};
  memcpy(cuda.local + 4, text->text + length, text->length - length);
  cuda.text = cuda.local;
  (*(dit_device_parse **)&original)(self, &cuda);
  self->type = second.type;
  return true;
}

// The type of a device that was read from a text.
static int8_t to_parsed(int8_t type) {
  if (type != DIT_C10_CUDA) {
    return type;
  }
  bool (*ask)(void) = atomic_load_explicit(&exempt, memory_order_relaxed);
  return ask && ask() ? type : dit_alias_get_target();
}

static int8_t to_target(int8_t type) {
  return type == DIT_C10_CUDA ? dit_alias_get_target() : type;
}

static int8_t to_shown(int8_t type) {
  return type == atomic_load_explicit(&dit_alias_shown, memory_order_relaxed) ? (int8_t)DIT_C10_CUDA : type;
}

// ISO C has no conversion between object and function pointers; POSIX (dlsym) guarantees it.
#define CALL(type, pointer) (*(type **)&(pointer))

static void hook_parse_complete(struct dit_c10_device *self, const struct dit_cxx_string *text) {
  if (!parse_second(original_parse_complete, self, text)) {
    CALL(dit_device_parse, original_parse_complete)(self, text);
    self->type = to_parsed(self->type);
  }
}

static void hook_parse_base(struct dit_c10_device *self, const struct dit_cxx_string *text) {
  if (!parse_second(original_parse_base, self, text)) {
    CALL(dit_device_parse, original_parse_base)(self, text);
    self->type = to_parsed(self->type);
  }
}

typedef void *print_type(void *stream, int8_t type);
static void *hook_print_type(void *stream, int8_t type) {
  return CALL(print_type, original_print_type)(stream, to_shown(type));
}

typedef void *print_device(void *stream, const struct dit_c10_device *device);
static void *hook_print_device(void *stream, const struct dit_c10_device *device) {
  struct dit_c10_device shown = {to_shown(device->type), device->index};
  return CALL(print_device, original_print_device)(stream, &shown);
}

typedef bool autocast_is_enabled(int8_t type);
static bool hook_is_enabled(int8_t type) {
  return CALL(autocast_is_enabled, original_is_enabled)(to_target(type));
}

typedef void autocast_set_enabled(int8_t type, bool enabled);
static void hook_set_enabled(int8_t type, bool enabled) {
  CALL(autocast_set_enabled, original_set_enabled)(to_target(type), enabled);
}

typedef int8_t autocast_get_dtype(int8_t type);
static int8_t hook_get_dtype(int8_t type) {
  return CALL(autocast_get_dtype, original_get_dtype)(to_target(type));
}

typedef void autocast_set_dtype(int8_t type, int8_t dtype);
static void hook_set_dtype(int8_t type, int8_t dtype) {
  CALL(autocast_set_dtype, original_set_dtype)(to_target(type), dtype);
}

// What the names of a device type's dispatch keys end with; NULL: PyTorch has no keys for it.
static const char *key_suffix(int8_t type) {
  switch (type) {
    case 8:
      return "MAIA";
    case 9:
      return "XLA";
    case 12:
      return "XPU";
    case 13:
      return "MPS";
    case 15:
      return "HPU";
    case 16:
      return "VE";
    case 18:
      return "IPU";
    case 19:
      return "MTIA";
    case DIT_C10_PRIVATEUSE1:
      return "PrivateUse1";
    default:
      return NULL;
  }
}

size_t dit_dispatch_key_translate(const char *text, size_t length, int8_t type, char *out) {
  static const char *const prefixes[] = {"",          "Autograd",  "Autocast",    "Sparse",
                                         "SparseCsr", "Quantized", "NestedTensor"};
  const char *suffix = key_suffix(type);
  size_t prefix = length - 4;
  if (!suffix || length < 4 || memcmp(text + prefix, "CUDA", 4) != 0) {
    return 0;
  }
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
    if (strlen(prefixes[i]) == prefix && memcmp(prefixes[i], text, prefix) == 0) {
      memcpy(out, text, prefix);
      memcpy(out + prefix, suffix, strlen(suffix) + 1);
      return prefix + strlen(suffix);
    }
  }
  return 0;
}

// torch.library and the questions about kernels name dispatch keys: those of CUDA are the target's.
static uint16_t hook_parse_key(const struct dit_cxx_string *text) {
  char name[DIT_DISPATCH_KEY_MAX];
  int8_t type = to_parsed(DIT_C10_CUDA);
  struct dit_cxx_string translated = {.text = name};
  translated.length = dit_dispatch_key_translate(text->text, text->length, type, name);
  return CALL(dit_dispatch_key_parse, original_parse_key)(translated.length ? &translated : text);
}

// The two that return a std::string. The result must be built where the caller asked for it: a short string points into
// itself and cannot be copied by its bytes.
#if defined(__aarch64__)

// The address of the result travels in x8, which C cannot name: these two exchange their argument and jump on, leaving
// x8 alone. The device to print is taken from a constant table, one CUDA device per index byte, so that no stack frame
// is needed.
#define ROW4(i)                                                                                        \
  {DIT_C10_CUDA, (int8_t)(i)}, {DIT_C10_CUDA, (int8_t)((i) + 1)}, {DIT_C10_CUDA, (int8_t)((i) + 2)}, { \
    DIT_C10_CUDA, (int8_t)((i) + 3)                                                                    \
  }
#define ROW16(i) ROW4(i), ROW4((i) + 4), ROW4((i) + 8), ROW4((i) + 12)
#define ROW64(i) ROW16(i), ROW16((i) + 16), ROW16((i) + 32), ROW16((i) + 48)
HOOK_STATE const struct dit_c10_device dit_alias_cuda_devices[256] = {ROW64(0), ROW64(64), ROW64(128), ROW64(192)};

void dit_alias_hook_type_name(void);
void dit_alias_hook_text(void);
__asm__(
    ".text\n"
    ".p2align 2\n"
    ".hidden dit_alias_hook_type_name\n"
    ".globl dit_alias_hook_type_name\n"
    ".type dit_alias_hook_type_name, %function\n"
    "dit_alias_hook_type_name:\n"
    "  hint #34\n"  // bti c
    "  adrp x16, dit_alias_shown\n"
    "  ldrsb w16, [x16, :lo12:dit_alias_shown]\n"
    "  cmp w16, w0, sxtb\n"
    "  mov w17, #1\n"
    "  csel w0, w17, w0, eq\n"
    "  adrp x16, dit_alias_original_type_name\n"
    "  ldr x16, [x16, :lo12:dit_alias_original_type_name]\n"
    "  br x16\n"
    ".size dit_alias_hook_type_name, .-dit_alias_hook_type_name\n"
    ".p2align 2\n"
    ".hidden dit_alias_hook_text\n"
    ".globl dit_alias_hook_text\n"
    ".type dit_alias_hook_text, %function\n"
    "dit_alias_hook_text:\n"
    "  hint #34\n"
    "  adrp x16, dit_alias_shown\n"
    "  ldrsb w16, [x16, :lo12:dit_alias_shown]\n"
    "  ldrsb w17, [x0]\n"
    "  cmp w16, w17\n"
    "  b.ne 1f\n"
    "  ldrb w17, [x0, #1]\n"
    "  adrp x16, dit_alias_cuda_devices\n"
    "  add x16, x16, :lo12:dit_alias_cuda_devices\n"
    "  add x0, x16, x17, lsl #1\n"
    "1:\n"
    "  adrp x16, dit_alias_original_text\n"
    "  ldr x16, [x16, :lo12:dit_alias_original_text]\n"
    "  br x16\n"
    ".size dit_alias_hook_text, .-dit_alias_hook_text\n");

#else

// System V x86-64: the address of the result is the first argument and comes back as the value.
typedef void *type_name_into(void *result, int8_t type, bool lower);
static void *dit_alias_hook_type_name(void *result, int8_t type, bool lower) {
  return CALL(type_name_into, dit_alias_original_type_name)(result, to_shown(type), lower);
}

typedef void *text_into(void *result, const struct dit_c10_device *self);
static void *dit_alias_hook_text(void *result, const struct dit_c10_device *self) {
  struct dit_c10_device shown = {to_shown(self->type), self->index};
  return CALL(text_into, dit_alias_original_text)(result, &shown);
}

#endif

#define CXX_STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define FUNCTION(name) (void *)(uintptr_t)(name)

const struct dit_alias_hook dit_alias_hooks[DIT_ALIAS_HOOKS] = {
    {"Device(string)", "_ZN3c106DeviceC1ERK" CXX_STRING, FUNCTION(hook_parse_complete), &original_parse_complete, true,
     false},
    {"Device(string), base", "_ZN3c106DeviceC2ERK" CXX_STRING, FUNCTION(hook_parse_base), &original_parse_base, false,
     false},
    {"DeviceTypeName", "_ZN3c1014DeviceTypeNameB5cxx11ENS_10DeviceTypeEb", FUNCTION(dit_alias_hook_type_name),
     &dit_alias_original_type_name, true, false},
    {"operator<<(DeviceType)", "_ZN3c10lsERSoNS_10DeviceTypeE", FUNCTION(hook_print_type), &original_print_type, true,
     false},
    {"operator<<(Device)", "_ZN3c10lsERSoRKNS_6DeviceE", FUNCTION(hook_print_device), &original_print_device, true,
     false},
    {"Device::str", "_ZNK3c106Device3strB5cxx11Ev", FUNCTION(dit_alias_hook_text), &dit_alias_original_text, true,
     false},
    {"autocast::is_autocast_enabled", "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
     FUNCTION(hook_is_enabled), &original_is_enabled, true, true},
    {"autocast::set_autocast_enabled", "_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb",
     FUNCTION(hook_set_enabled), &original_set_enabled, true, true},
    {"autocast::get_autocast_dtype", "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", FUNCTION(hook_get_dtype),
     &original_get_dtype, true, true},
    {"autocast::set_autocast_dtype", "_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_10ScalarTypeE",
     FUNCTION(hook_set_dtype), &original_set_dtype, true, true},
    {"parseDispatchKey", "_ZN3c1016parseDispatchKeyERK" CXX_STRING, FUNCTION(hook_parse_key), &original_parse_key, true,
     true},
};
