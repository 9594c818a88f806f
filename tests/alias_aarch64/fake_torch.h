/// The functions of c10 that the alias replaces, by their mangled names, callable from C. Shared by the fake libraries.
///
/// c10's texts are std::string: a result is built where the caller says, in x8 on aarch64 and as a hidden first
/// argument on x86-64. C cannot name x8, so on aarch64 small assembly shims carry it to and from an ordinary argument.
#ifndef FAKE_TORCH_H
#define FAKE_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
#ifdef FAKE_WIDE_DEVICE
  int16_t type, index;  // a layout that the alias does not know
#else
  int8_t type, index;
#endif
};

struct string {
  const char *text;
  size_t length;
  char local[16];
};

/// Stands in for std::ostream.
struct stream {
  char text[64];
};

#define STRING_NAME "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define NAME_PARSE "_ZN3c106DeviceC1ERK" STRING_NAME
#define NAME_PARSE_BASE "_ZN3c106DeviceC2ERK" STRING_NAME
#define NAME_TYPE_NAME "_ZN3c1014DeviceTypeNameB5cxx11ENS_10DeviceTypeEb"
#define NAME_PRINT_TYPE "_ZN3c10lsERSoNS_10DeviceTypeE"
#define NAME_PRINT_DEVICE "_ZN3c10lsERSoRKNS_6DeviceE"
#define NAME_TEXT "_ZNK3c106Device3strB5cxx11Ev"
#define NAME_IS_ENABLED "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"
#define NAME_SET_ENABLED "_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb"
#define NAME_GET_DTYPE "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"
#define NAME_SET_DTYPE "_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_10ScalarTypeE"

#define EXPORT __attribute__((visibility("default")))
#define NAMED(name) __asm__(name)

EXPORT void device_parse(struct device *self, const struct string *text) NAMED(NAME_PARSE);
EXPORT void device_parse_base(struct device *self, const struct string *text) NAMED(NAME_PARSE_BASE);
EXPORT struct stream *print_type(struct stream *stream, int8_t type) NAMED(NAME_PRINT_TYPE);
EXPORT struct stream *print_device(struct stream *stream, const struct device *device) NAMED(NAME_PRINT_DEVICE);
EXPORT bool autocast_is_enabled(int8_t type) NAMED(NAME_IS_ENABLED);
EXPORT void autocast_set_enabled(int8_t type, bool enabled) NAMED(NAME_SET_ENABLED);
EXPORT int8_t autocast_get_dtype(int8_t type) NAMED(NAME_GET_DTYPE);
EXPORT void autocast_set_dtype(int8_t type, int8_t dtype) NAMED(NAME_SET_DTYPE);

#endif
