/// The folders of Python packages that belong to this process: where pip puts libraries.
#ifndef DIT_HOST_ENGINE_PACKAGES_H
#define DIT_HOST_ENGINE_PACKAGES_H

#include <stdbool.h>

/// Calls `visit` with each site-packages folder (the one this library is installed in, then those of other loaded
/// libraries) until it returns true. Its result.
bool packages_search(bool (*visit)(const char *packages));
/// A symbol as a function pointer: ISO C has no cast for it. `function` is a pointer to the pointer, NULL where the
/// symbol is missing.
void packages_load_symbol(void *library, const char *name, void *function);

#endif
