/// Finding a BLAS: option host_blas names one ("none": the built-in code), else a pip or system OpenBLAS is looked for.
///
/// Only cblas_sgemm and cblas_dgemm with 32-bit integers are used. An OpenBLAS is told to run in the calling thread:
/// the work is cut and spread by dit_parallel_for, so there is one thread pool in the process and no oversubscription.
#include "blas.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dit/log.h"
#include "dit/options.h"
#include "packages.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };  // CBLAS's numbers
typedef void sgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void dgemm_function(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double *a,
                            int lda, const double *b, int ldb, double beta, double *c, int ldc);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_function *sgemm;
static dgemm_function *dgemm;
static char loaded_path[4096];
static void *loaded;  ///< for other functions of the same library
static const char *loaded_prefix;

static bool load_library(const char *path) {
  static const char *const prefixes[] = {"", "scipy_"};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return false;
  }
  for (int i = 0; i < 2 && !(sgemm && dgemm); i++) {
    char name[64];
    void (*set_threads)(int);
    snprintf(name, sizeof(name), "%scblas_sgemm", prefixes[i]);
    packages_load_symbol(library, name, &sgemm);
    snprintf(name, sizeof(name), "%scblas_dgemm", prefixes[i]);
    packages_load_symbol(library, name, &dgemm);
    snprintf(name, sizeof(name), "%sopenblas_set_num_threads", prefixes[i]);
    packages_load_symbol(library, name, &set_threads);
    if (sgemm && dgemm && set_threads) {
      set_threads(1);
    }
    loaded_prefix = prefixes[i];
  }
  if (sgemm && dgemm) {
    loaded = library;
    snprintf(loaded_path, sizeof(loaded_path), "%s", path);
    dit_log_write(DIT_LOG_INFO, "host device: BLAS %s", path);
    return true;
  }
  sgemm = NULL;
  dgemm = NULL;
  dlclose(library);
  return false;
}

/// Try every libscipy_openblas*.so in <packages>/scipy_openblas32/lib.
static bool search_packages(const char *packages, void *context) {
  (void)context;
  char folder[2048], path[4096];
  snprintf(folder, sizeof(folder), "%s/scipy_openblas32/lib", packages);
  DIR *entries = opendir(folder);
  bool found = false;
  if (!entries) {
    return false;
  }
  for (struct dirent *entry = readdir(entries); entry && !found; entry = readdir(entries)) {
    if (strncmp(entry->d_name, "libscipy_openblas", 17) == 0 && strstr(entry->d_name, ".so")) {
      snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
      found = load_library(path);
    }
  }
  closedir(entries);
  return found;
}

static bool search_all(void) {
  return packages_search(search_packages, NULL) || load_library("libopenblas.so.0") || load_library("libblas.so.3");
}

static void find_blas(void) {
  int option = dit_option_find("host_blas");
  const char *choice = option >= 0 ? dit_option_get_text(option) : "";
  if (strcmp(choice, "none") == 0) {
    return;
  }
  if (*choice) {
    if (!load_library(choice)) {
      const char *reason = dlerror();
      dit_log_write(
          DIT_LOG_WARNING,
          "host_blas: '%s' is no usable CBLAS (%s); matrix products use the built-in code. Give the path of a "
          "library with cblas_sgemm and cblas_dgemm, \"none\", or nothing.",
          choice, reason ? reason : "cblas_sgemm or cblas_dgemm is missing");
    }
    return;
  }
  if (!search_all()) {
    dit_log_write(DIT_LOG_INFO, "host device: no BLAS found, matrix products use the built-in code");
  }
}

bool blas_is_available(void) {
  pthread_once(&once, find_blas);
  return sgemm != NULL;
}

const char *blas_get_path(void) {
  return blas_is_available() ? loaded_path : "";
}

void blas_load_symbol(const char *name, void *function) {
  char full[64];
  memset(function, 0, sizeof(void *));
  if (blas_is_available()) {
    snprintf(full, sizeof(full), "%s%s", loaded_prefix, name);
    packages_load_symbol(loaded, full, function);
  }
}

void blas_gemm(bool wide, int64_t m, int64_t n, int64_t k, double alpha, const struct blas_matrix *a,
               const struct blas_matrix *b, double beta, void *c, int64_t ldc) {
  int trans_a = a->transposed ? TRANSPOSE : NO_TRANSPOSE, trans_b = b->transposed ? TRANSPOSE : NO_TRANSPOSE;
  if (wide) {
    dgemm(ROW_MAJOR, trans_a, trans_b, (int)m, (int)n, (int)k, alpha, a->data, (int)a->ld, b->data, (int)b->ld, beta, c,
          (int)ldc);
  } else {
    sgemm(ROW_MAJOR, trans_a, trans_b, (int)m, (int)n, (int)k, (float)alpha, a->data, (int)a->ld, b->data, (int)b->ld,
          (float)beta, c, (int)ldc);
  }
}
