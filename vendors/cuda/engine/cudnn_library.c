/// Finding cuDNN (see cudnn.h): option cuda_cudnn names a file ("none": do without), else libcudnn.so.9, then .8, in
/// PyTorch's packages, then where the system looks for libraries.
#include <pthread.h>

#include "cudnn.h"
#include "dit/log.h"
#include "driver.h"
#include "engine/packages.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cudnn functions;
static bool is_found;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *handle, *stream;
} devices[DRIVER_MAX_DEVICES];

static void find(void) {
  static const char *const places[] = {"nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn.so.8", NULL};
  static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8", NULL};
#define CUDNN_NAME(name, parameters) #name,
  static const char *const wanted_functions[] = {CUDNN_FUNCTIONS(CUDNN_NAME) NULL};
#undef CUDNN_NAME
  const struct packages_library wanted = {"cuda_cudnn", places, names, wanted_functions, &functions};
  char text[2048];
  is_found = packages_load_library(&wanted, text, sizeof(text));
  if (is_found) {
    dit_log_write(DIT_LOG_INFO, "cuda: convolutions by %s", text);
  } else if (packages_is_named(&wanted)) {
    dit_log_write(DIT_LOG_WARNING,
                  "cuda_cudnn: %s; convolutions use the built-in kernels. Give the path of libcudnn.so.9, \"none\", or "
                  "nothing.",
                  text);
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
