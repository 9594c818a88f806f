/// The kernel files as data in the library, by their stems; the last row has no name.
#ifndef DIT_CUDA_MODULES_H
#define DIT_CUDA_MODULES_H

struct cuda_module {
  const char *name;
  const void *image;  ///< a fat binary: machine code and PTX; "" when the library was built without nvcc
};
extern const struct cuda_module cuda_modules[];
extern const int cuda_modules_built;
#define CUDA_MODULES_BUILT cuda_modules_built

#endif
