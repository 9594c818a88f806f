/// Finding cuDNN (see cudnn.h): option cuda_cudnn names a file ("none": do without), else libcudnn.so.9, then .8.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "cudnn.h"
#include "dit/log.h"
#include "dit/options.h"
#include "driver.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cudnn functions;
static bool is_found;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *handle, *stream;
} devices[DRIVER_MAX_DEVICES];

static bool load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  bool complete = library != NULL;
#define CUDNN_LOOK_UP(name, parameters)              \
  if (complete) {                                    \
    void *symbol = dlsym(library, #name);            \
    memcpy(&functions.name, &symbol, sizeof symbol); \
    complete = symbol != NULL;                       \
  }
  CUDNN_FUNCTIONS(CUDNN_LOOK_UP)
#undef CUDNN_LOOK_UP
  if (library && !complete) {
    dlclose(library);
  }
  return complete;
}

static void find(void) {
  const int option = dit_option_find("cuda_cudnn");
  const char *choice = option >= 0 ? dit_option_get_text(option) : "";
  if (strcmp(choice, "none") == 0) {
    return;
  }
  is_found = *choice ? load(choice) : load("libcudnn.so.9") || load("libcudnn.so.8");
  if (!is_found && *choice) {
    dit_log_write(DIT_LOG_WARNING,
                  "cuda_cudnn: '%s' is no usable cuDNN; convolutions use the built-in kernels. Give "
                  "the path of libcudnn.so.9, \"none\", or nothing.",
                  choice);
  }
}

const struct cudnn *cudnn_get(void) {
  pthread_once(&once, find);
  return is_found ? &functions : NULL;
}

void *cudnn_lock(int device, void *stream) {
  pthread_mutex_lock(&lock);
  if (device < 0 || device >= DRIVER_MAX_DEVICES) {
    return NULL;
  }
  void **handle = &devices[device].handle;
  const bool is_new = !*handle;
  if (is_new && functions.cudnnCreate(handle) != CUDNN_SUCCESS) {
    *handle = NULL;
    return NULL;
  }
  if (is_new || devices[device].stream != stream) {
    if (functions.cudnnSetStream(*handle, stream) != CUDNN_SUCCESS) {
      return NULL;
    }
    devices[device].stream = stream;
  }
  return *handle;
}

void cudnn_unlock(void) {
  pthread_mutex_unlock(&lock);
}
