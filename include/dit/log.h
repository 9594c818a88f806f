/// Messages to the person at the terminal: stderr by default, one line each, "ditorch: <level>: <text>".
#ifndef DIT_LOG_H
#define DIT_LOG_H

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

enum dit_log_level { DIT_LOG_DEBUG, DIT_LOG_INFO, DIT_LOG_WARNING, DIT_LOG_ERROR, DIT_LOG_OFF };

/// Messages below `level` are dropped (default WARNING; DITORCH_LOG_LEVEL sets it).
DIT_API void dit_log_set_level(enum dit_log_level level);
DIT_API enum dit_log_level dit_log_get_level(void);
/// Replace the sink; NULL restores stderr. The sink may be called from any thread, never concurrently with itself.
DIT_API void dit_log_set_sink(void (*sink)(void *context, enum dit_log_level level, const char *text), void *context);
DIT_API void dit_log_write(enum dit_log_level level, const char *format, ...) DIT_PRINTF(2, 3);
/// Like dit_log_write, but the same `key` (a string literal) is written at most once per process.
DIT_API void dit_log_write_once(const char *key, enum dit_log_level level, const char *format, ...) DIT_PRINTF(3, 4);

DIT_EXTERN_C_END

#endif
