/// The version of libdit, from the file VERSION at the root of the tree.
#ifndef DIT_VERSION_H
#define DIT_VERSION_H

#include "dit/export.h"

DIT_EXTERN_C_BEGIN

/// "0.1.0".
DIT_API const char *dit_version_get(void);

DIT_EXTERN_C_END

#endif
