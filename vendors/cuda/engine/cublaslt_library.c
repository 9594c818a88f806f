/// Finding cuBLASLt (see cublaslt_library.h): in PyTorch's packages, then where the system looks for libraries.
#include "cublaslt_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dit/log.h"
#include "dit/options.h"
#include "engine/packages.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cublaslt_library library;
static bool is_available;
static char reason[512] = "no libcublasLt.so.13 or libcublasLt.so.12 found";

static bool load_library(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char *missing = NULL;
  if (!handle) {
    return false;
  }
#define X(name, parameters)                                      \
  packages_load_symbol(handle, "cublasLt" #name, &library.name); \
  missing = library.name ? missing : "cublasLt" #name;
  CUBLASLT_FUNCTIONS(X)
#undef X
  if (missing) {
    snprintf(reason, sizeof(reason), "'%s' lacks %s", path, missing);
    dlclose(handle);
    return false;
  }
  dit_log_write(DIT_LOG_INFO, "cuda: matrix products by %s", path);
  return true;
}

static bool search_packages(const char *packages) {
  static const char *const places[] = {"nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cublas/lib/libcublasLt.so.12"};
  char path[2048];
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof(path), "%s/%s", packages, places[i]);
    if (load_library(path)) {
      return true;
    }
  }
  return false;
}

static void find_library(void) {
  const int option = dit_option_find("cuda_blas");
  const char *choice = option >= 0 ? dit_option_get_text(option) : "";
  if (strcmp(choice, "none") == 0) {
    return;
  }
  if (*choice) {
    is_available = load_library(choice);
    if (!is_available) {
      const char *text = dlerror();
      dit_log_write(
          DIT_LOG_WARNING,
          "cuda_blas: '%s' is no usable cuBLASLt (%s); matrix products use the built-in kernel. Give the path "
          "of a libcublasLt.so, \"none\", or nothing.",
          choice, text ? text : reason);
    }
    return;
  }
  is_available =
      packages_search(search_packages) || load_library("libcublasLt.so.13") || load_library("libcublasLt.so.12");
  if (!is_available) {
    dit_log_write(DIT_LOG_INFO, "cuda: %s, matrix products use the built-in kernel", reason);
  }
}

const struct cublaslt_library *cublaslt_library_get(void) {
  pthread_once(&once, find_library);
  return is_available ? &library : NULL;
}
