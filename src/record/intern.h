/// The process's interned strings. Internal to record; the public half is dit_record_intern.
#ifndef DIT_RECORD_INTERN_H
#define DIT_RECORD_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The string of a number; false for a number that was never given out. The text lives for ever.
bool dit_intern_get(uint32_t id, const char **text, size_t *size);
/// Around fork: hold the table still, let it go on in the parent and in the child.
void dit_intern_lock(void);
void dit_intern_unlock(void);

#endif
