/// Linkage and compiler marks shared by every public header.
///
/// Every public function is declared DIT_API; everything else is hidden (the build sets -fvisibility=hidden).
#ifndef DIT_EXPORT_H
#define DIT_EXPORT_H

#if defined(__GNUC__)
#define DIT_API __attribute__((visibility("default")))
#define DIT_NODISCARD __attribute__((warn_unused_result))
#define DIT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define DIT_LIKELY(x) __builtin_expect(!!(x), 1)
#define DIT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define DIT_API
#define DIT_NODISCARD
#define DIT_PRINTF(fmt, args)
#define DIT_LIKELY(x) (x)
#define DIT_UNLIKELY(x) (x)
#endif

#ifdef __cplusplus
#define DIT_EXTERN_C_BEGIN extern "C" {
#define DIT_EXTERN_C_END }
#else
#define DIT_EXTERN_C_BEGIN
#define DIT_EXTERN_C_END
#endif

#endif
