/// The folders of Python packages that belong to this process: where pip puts libraries.
#ifndef DIT_HOST_ENGINE_PACKAGES_H
#define DIT_HOST_ENGINE_PACKAGES_H

#include <stdbool.h>
#include <stddef.h>

/// Calls `visit` with each site-packages folder (the one this library is installed in, then those of other loaded
/// libraries) until it returns true. Its result.
bool packages_search(bool (*visit)(const char *packages, void *context), void *context);
/// A symbol as a function pointer: ISO C has no cast for it. `function` is a pointer to the pointer, NULL where the
/// symbol is missing.
void packages_load_symbol(void *library, const char *name, void *function);

/// A library that is looked up at run time, and the functions that are needed of it.
struct packages_library {
  const char *option;            ///< holds the path of a file, "none" (do without) or "" (look for one)
  const char *const *places;     ///< where it may be below a site-packages folder, best first; ends with NULL
  const char *const *names;      ///< what the system may know it by, likewise
  const char *const *functions;  ///< all of them must be there; ends with NULL
  void *addresses;               ///< where they go: as many function pointers, in the same order
};
/// Loads it for the rest of the process. `text` receives the path, or why there is none.
bool packages_load_library(const struct packages_library *wanted, char *text, size_t size);
/// Does the option name a file? Then a library that is not there is worth a warning.
bool packages_is_named(const struct packages_library *wanted);

#endif
