/// A source's kernels: compiled once, loaded once for each device (region.h).
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/options.h"
#include "nvrtc.h"
#include "region.h"
#include "store/disk_cache.h"

#define BUCKETS 256
#define MARK "DITNVRC1"

static const char prelude_bytes[] = {
#include "cuda_region_prelude.inc"
    , 0};

struct region_kernel {
  struct region_kernel *next;
  char *source;
  char name[32];
  uint64_t hash;
  pthread_mutex_t lock;
  void *functions[DRIVER_MAX_DEVICES][REGION_VARIANTS];
};

static const char *const variants[REGION_VARIANTS] = {"region", "region_scalar", "region_join"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region_kernel *buckets[BUCKETS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *prelude;  // without includes: the files stand one behind the other

static void make_prelude(void) {
  char *out = prelude = dit_malloc(sizeof prelude_bytes);
  for (const char *line = prelude_bytes; out && *line;) {
    const char *end = strchr(line, '\n');
    const size_t size = end ? (size_t)(end - line) + 1 : strlen(line);
    if (strncmp(line, "#include \"", 10) != 0) {
      memcpy(out, line, size);
      out += size;
    }
    line += size;
  }
  if (out) {
    *out = '\0';
  }
}

static struct region_kernel *create(const struct region_text *source, uint64_t hash) {
  struct region_kernel *kernel = dit_calloc(1, sizeof *kernel);
  char *copy = dit_malloc(source->size + 1);
  if (!kernel || !copy) {
    dit_free(kernel);
    dit_free(copy);
    return NULL;
  }
  memcpy(copy, source->data, source->size + 1);
  kernel->source = copy;
  kernel->hash = hash;
  (void)pthread_mutex_init(&kernel->lock, NULL);
  snprintf(kernel->name, sizeof kernel->name, "nvrtc %016llx", (unsigned long long)hash);
  return kernel;
}

static struct region_kernel *find(const struct region_text *source) {
  const uint64_t hash = dit_disk_cache_hash(source->data, source->size).low;
  (void)pthread_mutex_lock(&lock);
  struct region_kernel **bucket = &buckets[hash % BUCKETS], *kernel = *bucket;
  while (kernel && (kernel->hash != hash || strcmp(kernel->source, source->data) != 0)) {
    kernel = kernel->next;
  }
  if (!kernel && (kernel = create(source, hash))) {
    kernel->next = *bucket;
    *bucket = kernel;
  }
  (void)pthread_mutex_unlock(&lock);
  return kernel;
}

static enum dit_status get_capability(int device, int *capability, struct dit_error *err) {
  int handle = 0, major = 0, minor = 0;
  DIT_RETURN_IF_NOT_OK(driver_check(driver.device_get(&handle, device), "cuDeviceGet", err));
  DIT_RETURN_IF_NOT_OK(
      driver_check(driver.device_get_attribute(&major, DRIVER_MAJOR, handle), "cuDeviceGetAttribute", err));
  DIT_RETURN_IF_NOT_OK(
      driver_check(driver.device_get_attribute(&minor, DRIVER_MINOR, handle), "cuDeviceGetAttribute", err));
  *capability = 10 * major + minor;
  return DIT_OK;
}

/// Where the image of `text` lies on disk: named by all that makes it.
static bool find_path(const char *text, int capability, char *path, size_t size) {
  const int option = dit_option_find("cuda_cache");
  char directory[4000];
  if (!dit_disk_cache_find(option >= 0 ? dit_option_get_text(option) : "", "ditorch-regions", directory,
                           sizeof directory)) {
    return false;
  }
  const struct dit_hash hash = dit_disk_cache_hash(text, strlen(text));
  const int length =
      snprintf(path, size, "%s/%016llx%016llx-nvrtc%d-sm%d.cubin", directory, (unsigned long long)hash.high,
               (unsigned long long)hash.low, nvrtc_get_version(), capability);
  return length > 0 && (size_t)length < size;
}

/// `image` from disk, or made and kept there.
static enum dit_status make_image(const char *text, int capability, char **image, struct dit_error *err) {
  char path[4100];
  size_t size = 0;
  const bool has_path = find_path(text, capability, path, sizeof path);
  *image = has_path ? dit_disk_cache_read(path, MARK, &size) : NULL;
  if (*image) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(nvrtc_compile(text, capability, image, &size, err));
  if (has_path) {
    const struct dit_disk_cache_part part = {*image, size};
    (void)dit_disk_cache_write(path, MARK, &part, 1);
  }
  return DIT_OK;
}

static enum dit_status compile(const struct region_kernel *kernel, int device, char **image, struct dit_error *err) {
  int capability = 0;
  (void)pthread_once(&once, make_prelude);
  char *text = prelude ? dit_malloc(strlen(prelude) + strlen(kernel->source) + 1) : NULL;
  if (!text) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the source of a region");
  }
  strcpy(text, prelude);
  strcat(text, kernel->source);
  enum dit_status status = get_capability(device, &capability, err);
  if (status == DIT_OK) {
    status = make_image(text, capability, image, err);
  }
  dit_free(text);
  return status;
}

static enum dit_status load(struct region_kernel *kernel, int device, const char *image, struct dit_error *err) {
  void *module = NULL;
  struct context_guard guard;
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, device, err));
  int error = driver.module_load(&module, image);
  for (int i = REGION_VARIANTS - 1; i >= 0 && error == DRIVER_SUCCESS; i--) {  // the main one last: it tells of all
    if (strstr(kernel->source, variants[i])) {
      error = driver.module_get_function(&kernel->functions[device][i], module, variants[i]);
    }
  }
  context_leave(&guard);
  return driver_check(error, "a fused kernel cannot be loaded", err);
}

enum dit_status region_kernel_get(const struct region_text *source, int device, struct region_kernel **out,
                                  struct dit_error *err) {
  struct region_kernel *kernel = find(source);
  if (!kernel) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a fused kernel");
  }
  if (device < 0 || device >= DRIVER_MAX_DEVICES) {
    return dit_error_set(err, DIT_ERR_INVALID, "CUDA device %d; valid: 0 to %d", device, DRIVER_MAX_DEVICES - 1);
  }
  (void)pthread_mutex_lock(&kernel->lock);
  enum dit_status status = DIT_OK;
  if (!kernel->functions[device][0]) {
    char *image = NULL;
    status = compile(kernel, device, &image, err);
    if (status == DIT_OK) {
      status = load(kernel, device, image, err);
    }
    dit_free(image);
  }
  (void)pthread_mutex_unlock(&kernel->lock);
  *out = kernel;
  return status;
}

void *region_kernel_get_function(const struct region_kernel *kernel, int device, enum region_variant variant) {
  return kernel->functions[device][variant];
}

const char *region_kernel_get_source(const struct region_kernel *kernel) {
  return kernel->source;
}

const char *region_kernel_get_name(const struct region_kernel *kernel) {
  return kernel->name;
}
