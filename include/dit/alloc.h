/// The allocation seam: every host allocation of libdit and the host vendor goes through here, so that tests can make
/// the n-th one fail.
#ifndef DIT_ALLOC_H
#define DIT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

DIT_API void *dit_malloc(size_t size);                ///< size 0 gives a unique non-NULL pointer
DIT_API void *dit_calloc(size_t count, size_t size);  ///< NULL when the product overflows
DIT_API void *dit_realloc(void *ptr, size_t size);    ///< on NULL the old block stays
DIT_API char *dit_strdup(const char *text);
DIT_API void dit_free(void *ptr);

/// Failure injection: the `after`-th allocation from now on (0 = the next) and all later ones fail, in every thread; -1
/// turns it off.
DIT_API void dit_alloc_set_failure(int64_t after);
/// Allocations made and blocks still live since process start, for leak tests.
DIT_API int64_t dit_alloc_get_count(void);
DIT_API int64_t dit_alloc_get_live(void);

DIT_EXTERN_C_END

#endif
