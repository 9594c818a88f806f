/// The functions that stand in for PyTorch's own while the alias is on, and the list of what they replace.
///
/// c10 is C++; its functions are called here by their C calling convention: a std::string result is memory that the
/// caller lends, a std::string argument is an address. The layouts written down here are checked by dit_alias_install
/// before any slot is written.
#ifndef DIT_EXT_ALIAS_HOOKS_H
#define DIT_EXT_ALIAS_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// c10::DeviceType, as far as the alias needs it.
enum { DIT_C10_CPU = 0, DIT_C10_CUDA = 1, DIT_C10_META = 14, DIT_C10_PRIVATEUSE1 = 20 };

/// c10::Device.
struct dit_c10_device {
  int8_t type, index;
};

/// std::string of libstdc++ (C++11 ABI). A text of up to 15 bytes lies in `local`, a longer one on the heap.
struct dit_cxx_string {
  const char *text;
  size_t length;
  char local[16];
};

/// The originals, by C signature. A 32-byte struct is returned like a std::string: through the address the caller
/// lends.
typedef void dit_device_parse(struct dit_c10_device *self, const struct dit_cxx_string *text);
typedef struct dit_cxx_string dit_device_type_name(int8_t type, bool lower);
typedef struct dit_cxx_string dit_device_text(const struct dit_c10_device *self);
typedef uint16_t dit_dispatch_key_parse(const struct dit_cxx_string *text);

struct dit_alias_hook {
  const char *label;   ///< for people: "Device(string)"
  const char *symbol;  ///< mangled name
  void *replacement;
  void **original;   ///< filled by dit_alias_install
  bool required;     ///< must resolve and be imported at least once
  bool python_only;  ///< replaced in libtorch_python alone
};

#define DIT_ALIAS_HOOKS 11
extern const struct dit_alias_hook dit_alias_hooks[DIT_ALIAS_HOOKS];
/// Indices into dit_alias_hooks of the originals that verification calls.
enum { DIT_HOOK_PARSE = 0, DIT_HOOK_TYPE_NAME = 2, DIT_HOOK_TEXT = 5, DIT_HOOK_PARSE_KEY = 10 };

/// "cuda" parses to this device type, and autocast questions about CUDA are asked of it. Set before the first slot is
/// written.
void dit_alias_set_target(int8_t type);
/// The target type prints as "cuda".
void dit_alias_set_show(bool show);
/// `name`, alone or with an index behind a colon, parses to `type` too; at most DIT_ALIAS_SECOND_MAX bytes. NULL: no
/// such name. It is read as it stands, whatever the target is and whoever asks.
#define DIT_ALIAS_SECOND_MAX 16
void dit_alias_set_second(const char *name, int8_t type);
/// Asked whenever "cuda" was read: true leaves it PyTorch's own CUDA. NULL (the default): never. It must not throw.
void dit_alias_set_exempt(bool (*ask)(void));
int8_t dit_alias_get_target(void);
bool dit_alias_get_show(void);

/// Longest name of a dispatch key that dit_dispatch_key_translate writes.
#define DIT_DISPATCH_KEY_MAX 32
/// The dispatch key that stands for a key of CUDA's on device type `type`: "AutocastCUDA" is "AutocastPrivateUse1" on
/// PrivateUse1. `out` has DIT_DISPATCH_KEY_MAX bytes; returns the length written there, 0 when `text` is no key of
/// CUDA's or the type has no such keys.
size_t dit_dispatch_key_translate(const char *text, size_t length, int8_t type, char *out);

#endif
