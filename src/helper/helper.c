/// Finding the table of a kind of device.
///
/// "cuda" lives in a library of its own beside libdit, which in turn looks for the CUDA driver: this library needs
/// neither. The answer, good or bad, is found once and kept. Depends on libdl, pthread.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "helper/helper_internal.h"

/// The answer for "cuda".
static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
static const struct dit_helper_vtable *cuda_table;
static enum dit_status cuda_status;
static struct dit_error cuda_error;

/// The folder of this library; "" when it is unknown.
static void get_folder(char *path, size_t size) {
  Dl_info info;
  path[0] = '\0';
  if (!dladdr((const void *)&helper_host, &info) || !info.dli_fname) {
    return;
  }
  const char *slash = strrchr(info.dli_fname, '/');
  int length = slash ? (int)(slash - info.dli_fname) : 1;
  if ((size_t)length < size) {
    snprintf(path, size, "%.*s", length, slash ? info.dli_fname : ".");
  }
}

static enum dit_status open_cuda(void **handle, struct dit_error *err) {
  char folder[PATH_MAX - sizeof DIT_HELPER_CUDA_LIBRARY], path[PATH_MAX];
  get_folder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/" DIT_HELPER_CUDA_LIBRARY, folder);
  *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!*handle) {
    const char *text = dlerror();
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "no helper library for CUDA: %s", text ? text : path);
  }
  return DIT_OK;
}

static enum dit_status check_table(const struct dit_helper_vtable *table, struct dit_error *err) {
  if (table->version != DIT_HELPER_VERSION || table->struct_size < sizeof *table) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         DIT_HELPER_CUDA_LIBRARY
                         " has a helper table of version %u and %zu bytes, this libdit wants "
                         "version %d and %zu bytes; install matching versions of both",
                         table->version, table->struct_size, DIT_HELPER_VERSION, sizeof *table);
  }
  return DIT_OK;
}

static enum dit_status load_cuda(const struct dit_helper_vtable **table, struct dit_error *err) {
  enum dit_status (*get)(const struct dit_helper_vtable **, struct dit_error *);
  const struct dit_helper_vtable *found = NULL;
  void *handle;
  DIT_RETURN_IF_NOT_OK(open_cuda(&handle, err));
  void *symbol = dlsym(handle, DIT_HELPER_CUDA_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  if (!get) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         DIT_HELPER_CUDA_LIBRARY " does not export " DIT_HELPER_CUDA_SYMBOL "; reinstall ditorch");
  }
  DIT_RETURN_IF_NOT_OK(get(&found, err));
  DIT_RETURN_IF_NOT_OK(check_table(found, err));
  *table = found;
  return DIT_OK;
}

static void find_cuda(void) {
  cuda_status = load_cuda(&cuda_table, &cuda_error);
}

enum dit_status dit_helper_get(const char *name, const struct dit_helper_vtable **helper, struct dit_error *err) {
  if (name && strcmp(name, "host") == 0) {
    *helper = &helper_host;
    return DIT_OK;
  }
  if (!name || strcmp(name, "cuda") != 0) {
    return dit_error_set(err, DIT_ERR_INVALID, "no device helper is called '%.64s'; valid: host, cuda",
                         name ? name : "(NULL)");
  }
  pthread_once(&cuda_once, find_cuda);
  if (cuda_status != DIT_OK) {
    return dit_error_set(err, cuda_status, "%s", cuda_error.message);
  }
  *helper = cuda_table;
  return DIT_OK;
}
