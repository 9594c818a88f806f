/// cuBLASLt as it is used here: numbers and functions of its stable C interface, declared in our own words, and where
/// the library was found. Handles (descriptors, layouts, preferences) are pointers to structs of the library.
#ifndef DIT_CUDA_ENGINE_CUBLASLT_LIBRARY_H
#define DIT_CUDA_ENGINE_CUBLASLT_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

enum { CUBLASLT_SUCCESS = 0 };
enum { CUBLASLT_R_32F = 0, CUBLASLT_R_64F = 1, CUBLASLT_R_16F = 2, CUBLASLT_R_16BF = 14 };
enum { CUBLASLT_COMPUTE_32F = 68, CUBLASLT_COMPUTE_64F = 70, CUBLASLT_COMPUTE_32F_TF32 = 77 };
enum {
  CUBLASLT_DESC_TRANSPOSE_A = 3,
  CUBLASLT_DESC_TRANSPOSE_B = 4,
  CUBLASLT_DESC_EPILOGUE = 7,
  CUBLASLT_DESC_BIAS = 8
};
enum { CUBLASLT_EPILOGUE_NONE = 1, CUBLASLT_EPILOGUE_ADD_BIAS = 4 };
enum { CUBLASLT_LAYOUT_BATCH = 5, CUBLASLT_LAYOUT_BATCH_STRIDE = 6 };
enum { CUBLASLT_LIMIT_WORKSPACE = 1, CUBLASLT_LIMIT_REDUCTION = 3, CUBLASLT_LIMIT_ALIGNMENT = 5 };  ///< of a, b, c, d
enum { CUBLASLT_REDUCTION_COMPUTE = 2 };  ///< parts of a sum are joined in the type of the computation

struct cublaslt_algorithm {
  uint64_t data[8];
};
struct cublaslt_choice {
  struct cublaslt_algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

/// Name without cublasLt, parameters; all answer a status.
#define CUBLASLT_FUNCTIONS(X)                                                                                       \
  X(Create, (void **handle))                                                                                        \
  X(MatmulDescCreate, (void **description, int compute, int scale))                                                 \
  X(MatmulDescDestroy, (void *description))                                                                         \
  X(MatmulDescSetAttribute, (void *description, int attribute, const void *value, size_t size))                     \
  X(MatrixLayoutCreate, (void **layout, int dtype, uint64_t rows, uint64_t columns, int64_t leading))               \
  X(MatrixLayoutDestroy, (void *layout))                                                                            \
  X(MatrixLayoutSetAttribute, (void *layout, int attribute, const void *value, size_t size))                        \
  X(MatmulPreferenceCreate, (void **preference))                                                                    \
  X(MatmulPreferenceDestroy, (void *preference))                                                                    \
  X(MatmulPreferenceSetAttribute, (void *preference, int attribute, const void *value, size_t size))                \
  X(MatmulAlgoGetHeuristic, (void *handle, void *description, void *a, void *b, void *c, void *d, void *preference, \
                             int wanted, struct cublaslt_choice *choices, int *found))                              \
  X(Matmul, (void *handle, void *description, const void *alpha, const void *a, void *a_layout, const void *b,      \
             void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,              \
             const struct cublaslt_algorithm *algorithm, void *workspace, size_t workspace_size, void *stream))

struct cublaslt_library {
#define CUBLASLT_MEMBER(name, parameters) int(*name) parameters;
  CUBLASLT_FUNCTIONS(CUBLASLT_MEMBER)
#undef CUBLASLT_MEMBER
};

/// The library, or NULL: option cuda_blas names one ("none": do without), else one of pip or the system is looked for.
const struct cublaslt_library *cublaslt_library_get(void);

#endif
