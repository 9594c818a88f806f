/// NVRTC as it is used here: CUDA C++ to machine code at run time, by the library's stable C interface, declared in our
/// own words. Looked up at run time; without it there is no graph engine.
#ifndef DIT_CUDA_NVRTC_H
#define DIT_CUDA_NVRTC_H

#include <stdbool.h>
#include <stddef.h>

#include "dit/error.h"

/// Name without nvrtc, parameters; all answer a status.
#define NVRTC_FUNCTIONS(X)                                                                                       \
  X(Version, (int *major, int *minor))                                                                           \
  X(GetNumSupportedArchs, (int *count))                                                                          \
  X(GetSupportedArchs, (int *architectures))                                                                     \
  X(CreateProgram, (void **program, const char *source, const char *name, int count, const char *const *headers, \
                    const char *const *names))                                                                   \
  X(DestroyProgram, (void **program))                                                                            \
  X(CompileProgram, (void *program, int count, const char *const *options))                                      \
  X(GetProgramLogSize, (void *program, size_t *size))                                                            \
  X(GetProgramLog, (void *program, char *log))                                                                   \
  X(GetCUBINSize, (void *program, size_t *size))                                                                 \
  X(GetCUBIN, (void *program, char *image))                                                                      \
  X(GetPTXSize, (void *program, size_t *size))                                                                   \
  X(GetPTX, (void *program, char *image))

/// Is it there? Option cuda_nvrtc names a file ("none": do without), else one of pip or the system is looked for, once.
bool nvrtc_is_available(void);
/// Version (1000 major + minor) and, for a device of compute capability `capability` (90), the architecture that code
/// is made for. 0: this NVRTC is too new for the device.
int nvrtc_get_version(void);
int nvrtc_get_architecture(int capability);

/// An image for the driver, dit_free by the caller: machine code where NVRTC knows the device, else PTX.
DIT_NODISCARD enum dit_status nvrtc_compile(const char *source, int capability, char **image, size_t *size,
                                            struct dit_error *err);

#endif
