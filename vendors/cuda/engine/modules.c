/// The kernel files (see modules.h): what the build made, as read-only data. cuda_modules.inc is written by CMake.
#include "modules.h"

#include <stddef.h>

#ifdef DIT_CUDA_KERNELS
#define MODULE(name, path)     \
  __asm__(                     \
      ".pushsection .rodata\n" \
      ".balign 64\n"           \
      "cuda_module_" #name     \
      ":\n"                    \
      ".incbin \"" path        \
      "\"\n"                   \
      ".byte 0\n"              \
      ".popsection\n");        \
  extern const char cuda_module_##name[] __attribute__((visibility("hidden")));
#include "cuda_modules.inc"
#undef MODULE
#define MODULE(name, path) {#name, cuda_module_##name},
const int cuda_modules_built = 1;
#else
#define MODULE(name, path) {#name, ""},
const int cuda_modules_built = 0;
#endif

const struct cuda_module cuda_modules[] = {
#include "cuda_modules.inc"
    {NULL, NULL}};
