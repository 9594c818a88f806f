/// Finding cuBLASLt (see cublaslt_library.h): in PyTorch's packages, then where the system looks for libraries.
#include "cublaslt_library.h"

#include <pthread.h>
#include <stdbool.h>

#include "dit/log.h"
#include "engine/packages.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cublaslt_library library;
static bool is_available;

static void find_library(void) {
  static const char *const places[] = {"nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12",
                                       NULL};
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
#define X(name, parameters) "cublasLt" #name,
  static const char *const functions[] = {CUBLASLT_FUNCTIONS(X) NULL};
#undef X
  const struct packages_library wanted = {"cuda_blas", places, names, functions, &library};
  char text[2048];
  is_available = packages_load_library(&wanted, text, sizeof(text));
  if (is_available) {
    dit_log_write(DIT_LOG_INFO, "cuda: matrix products by %s", text);
  } else if (packages_is_named(&wanted)) {
    dit_log_write(DIT_LOG_WARNING,
                  "cuda_blas: %s; matrix products use the built-in kernel. Give the path of a libcublasLt.so, "
                  "\"none\", or nothing.",
                  text);
  } else {
    dit_log_write(DIT_LOG_INFO, "cuda: %s, matrix products use the built-in kernel", text);
  }
}

const struct cublaslt_library *cublaslt_library_get(void) {
  pthread_once(&once, find_library);
  return is_available ? &library : NULL;
}
