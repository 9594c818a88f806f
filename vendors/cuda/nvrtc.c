/// Finding NVRTC and asking it for code (see nvrtc.h).
#include "nvrtc.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/log.h"
#include "engine/packages.h"

struct nvrtc {
#define NVRTC_MEMBER(name, parameters) int(*name) parameters;
  NVRTC_FUNCTIONS(NVRTC_MEMBER)
#undef NVRTC_MEMBER
};

#define MAX_ARCHITECTURES 64

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nvrtc nvrtc;
static bool is_available;
static int architectures[MAX_ARCHITECTURES], architecture_count, version;

static void find(void) {
  static const char *const places[] = {"nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", NULL};
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
#define NVRTC_NAME(name, parameters) "nvrtc" #name,
  static const char *const functions[] = {NVRTC_FUNCTIONS(NVRTC_NAME) NULL};
#undef NVRTC_NAME
  const struct packages_library wanted = {"cuda_nvrtc", places, names, functions, &nvrtc};
  char text[2048];
  int major = 0, minor = 0;
  is_available = packages_load_library(&wanted, text, sizeof text) && nvrtc.Version(&major, &minor) == 0 &&
                 nvrtc.GetNumSupportedArchs(&architecture_count) == 0 && architecture_count <= MAX_ARCHITECTURES &&
                 nvrtc.GetSupportedArchs(architectures) == 0;
  version = 1000 * major + minor;
  if (is_available) {
    dit_log_write(DIT_LOG_INFO, "cuda: fused operators by NVRTC %d.%d, %s", major, minor, text);
  } else {
    dit_log_write(packages_is_named(&wanted) ? DIT_LOG_WARNING : DIT_LOG_INFO,
                  "cuda_nvrtc: %s; torch.compile fuses nothing. Give the path of a libnvrtc.so.13 or .12 (pip install "
                  "nvidia-cuda-nvrtc), \"none\", or nothing.",
                  text);
  }
}

bool nvrtc_is_available(void) {
  pthread_once(&once, find);
  return is_available;
}

int nvrtc_get_version(void) {
  return version;
}

int nvrtc_get_architecture(int capability) {
  int best = 0;
  for (int i = 0; i < architecture_count; i++) {
    best = architectures[i] <= capability && architectures[i] > best ? architectures[i] : best;
  }
  return best;
}

static enum dit_status check(int error, const char *what, struct dit_error *err) {
  return error == 0 ? DIT_OK : dit_error_set(err, DIT_ERR_INTERNAL, "NVRTC: %s failed (%d)", what, error);
}

/// The compiler's words, as far as they fit.
static enum dit_status fail(void *program, int error, struct dit_error *err) {
  size_t size = 0;
  char *log = nvrtc.GetProgramLogSize(program, &size) == 0 ? dit_calloc(size + 1, 1) : NULL;
  if (log && nvrtc.GetProgramLog(program, log) != 0) {
    log[0] = '\0';
  }
  const enum dit_status status =
      dit_error_set(err, DIT_ERR_INTERNAL, "NVRTC refuses a kernel (%d): %.400s", error, log ? log : "");
  dit_free(log);
  return status;
}

static enum dit_status compile(void *program, int capability, char **image, size_t *size, struct dit_error *err) {
  const int architecture = nvrtc_get_architecture(capability);
  const bool is_exact = architecture == capability;
  char target[64];
  snprintf(target, sizeof target, "--gpu-architecture=%s_%d", is_exact ? "sm" : "compute", architecture);
  const char *const options[] = {target, "--std=c++17", "--fmad=false", "--disable-warnings"};
  const int error = nvrtc.CompileProgram(program, (int)(sizeof options / sizeof options[0]), options);
  if (error != 0) {
    return fail(program, error, err);
  }
  DIT_RETURN_IF_NOT_OK(check(is_exact ? nvrtc.GetCUBINSize(program, size) : nvrtc.GetPTXSize(program, size),
                             "the size of an image", err));
  char *made = dit_malloc(*size + 1);
  if (!made) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a kernel of %zu bytes", *size);
  }
  const enum dit_status status =
      check(is_exact ? nvrtc.GetCUBIN(program, made) : nvrtc.GetPTX(program, made), "an image", err);
  if (status != DIT_OK) {
    dit_free(made);
    return status;
  }
  made[*size] = '\0';
  *image = made;
  return DIT_OK;
}

enum dit_status nvrtc_compile(const char *source, int capability, char **image, size_t *size, struct dit_error *err) {
  void *program = NULL;
  if (nvrtc_get_architecture(capability) == 0) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "NVRTC %d.%d makes no code for compute capability %d.%d",
                         version / 1000, version % 1000, capability / 10, capability % 10);
  }
  DIT_RETURN_IF_NOT_OK(
      check(nvrtc.CreateProgram(&program, source, "region.cu", 0, NULL, NULL), "nvrtcCreateProgram", err));
  const enum dit_status status = compile(program, capability, image, size, err);
  (void)nvrtc.DestroyProgram(&program);
  return status;
}
