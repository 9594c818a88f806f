/// An emulated NVRTC for tests: the source is compiled by the C++ compiler, behind emulator.h, into a shared library,
/// which is the image that the emulated driver loads. Every kernel gets the record by which the driver calls it.
///
/// Options must be those of the caller: an architecture that the emulated device has, products rounded before they are
/// added. In the environment: EMULATED_NVRTC_LOG, a line on stderr for each compilation; EMULATED_NVRTC_SOURCES, a
/// folder where the sources are kept.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator.h"

#define API __attribute__((visibility("default")))
#define OUT_OF_MEMORY 1
#define INVALID 5
#define COMPILATION 6

extern char **environ;

struct program {
  char *source, *image, *log;
  size_t size;
};

API int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 999;  // of no real one: what this one makes stays apart on disk
  return 0;
}
API int nvrtcGetNumSupportedArchs(int *count) {
  *count = 2;
  return 0;
}
API int nvrtcGetSupportedArchs(int *architectures) {
  architectures[0] = 80;
  architectures[1] = 90;
  return 0;
}
API int nvrtcCreateProgram(void **out, const char *source, const char *name, int count, const char *const *headers,
                           const char *const *names) {
  (void)headers, (void)names;
  struct program *program = calloc(1, sizeof *program);
  if (!source || !name || count) {
    free(program);
    return INVALID;
  }
  program->source = strdup(source);
  program->log = strdup("");
  *out = program;
  return 0;
}
API int nvrtcDestroyProgram(void **out) {
  struct program *program = *out;
  free(program->source);
  free(program->image);
  free(program->log);
  free(program);
  *out = NULL;
  return 0;
}

/// The records of all kernels: `... __global__ void ...(N) NAME(const __grid_constant__ TYPE p) {`.
static void write_records(FILE *file, const char *source) {
  static const char mark[] = "(const __grid_constant__ ";
  const char *at = strstr(source, "extern \"C\" __global__");
  while (at) {
    const char *type = strstr(at, mark), *next = strstr(at + 1, "extern \"C\" __global__");
    const char *name = type;
    while (name && name > at && name[-1] != ' ') {
      name--;
    }
    if (!type || (next && type > next)) {
      break;
    }
    const int length = (int)(type - name), type_length = (int)strcspn(type + strlen(mark), " ");
    const char *of = type + strlen(mark);
    const int has_barriers = strstr(source, "fold_row<") != NULL || strstr(source, "fold_column<") != NULL;
    fprintf(file, "static void emulated_call_%.*s(const void *p) {\n%.*s(*(const %.*s *)p);\n}\n", length, name, length,
            name, type_length, of);
    fprintf(
        file,
        "extern \"C\" __attribute__((visibility(\"default\"))) const emulated_kernel emulated_%.*s = {sizeof(%.*s), "
        "emulated_call_%.*s, %d};\n",
        length, name, type_length, of, length, name, has_barriers);
    at = next;
  }
}

static int write_source(const char *path, const char *source) {
  FILE *file = fopen(path, "w");
  if (!file) {
    return 0;
  }
  fprintf(file, "#include \"%s/emulator.h\"\n#define __global__\n#define __grid_constant__\n%s\n", EMULATOR_FOLDER,
          source);
  write_records(file, source);
  return fclose(file) == 0;
}

static char *read_all(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  char *data = NULL;
  *size = 0;
  while (file && !feof(file)) {
    data = realloc(data, *size + 65536 + 1);
    *size += fread(data + *size, 1, 65536, file);
    data[*size] = '\0';
  }
  if (file) {
    fclose(file);
  }
  return data;
}

static int run_compiler(const char *source, const char *library, const char *log) {
  Dl_info driver;
  if (!dladdr((void *)(uintptr_t)emulator_get_lane, &driver)) {
    return 0;
  }
  const char *compiler = getenv("CXX") && !strchr(getenv("CXX"), ' ') ? getenv("CXX") : "c++";
  const char *arguments[] = {compiler,
                             "-std=c++17",
                             "-O1",
                             "-fPIC",
                             "-shared",
                             "-fvisibility=hidden",
                             "-ffp-contract=off",
                             "-w",
                             "-o",
                             library,
                             source,
                             driver.dli_fname,
                             "-lm",
                             NULL};
  posix_spawn_file_actions_t actions;
  pid_t child = 0;
  int status = 0;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int error = posix_spawnp(&child, compiler, &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The source as it is, for a look or for the real compiler.
static void keep_source(const struct program *program) {
  static int count;
  char path[4096];
  snprintf(path, sizeof path, "%s/%ld_%d.cu", getenv("EMULATED_NVRTC_SOURCES"), (long)getpid(), count++);
  FILE *file = fopen(path, "w");
  if (file) {
    fputs(program->source, file);
    fclose(file);
  }
}

API int nvrtcCompileProgram(void *handle, int count, const char *const *options) {
  struct program *program = handle;
  char folder[] = "/tmp/emulated_nvrtc_XXXXXX", source[64], library[64], log[64];
  int known = 0;
  size_t size = 0;
  for (int i = 0; i < count; i++) {
    known += strcmp(options[i], "--gpu-architecture=sm_90") == 0 || strcmp(options[i], "--fmad=false") == 0 ||
             strcmp(options[i], "--std=c++17") == 0 || strcmp(options[i], "--disable-warnings") == 0;
  }
  if (known != 4 || known != count || !mkdtemp(folder)) {
    return INVALID;
  }
  snprintf(source, sizeof source, "%s/region.cpp", folder);
  snprintf(library, sizeof library, "%s/region.so", folder);
  snprintf(log, sizeof log, "%s/log", folder);
  const int good = write_source(source, program->source) && run_compiler(source, library, log);
  if (good) {
    program->image = read_all(library, &program->size);
  } else {
    free(program->log);
    program->log = read_all(log, &size);
  }
  if (getenv("EMULATED_NVRTC_SOURCES")) {
    keep_source(program);
  }
  if (getenv("EMULATED_NVRTC_LOG")) {
    fprintf(stderr, "emulated nvrtc: %s\n", good ? "compiled" : "refused");
  }
  unlink(source);
  unlink(library);
  unlink(log);
  rmdir(folder);
  return good ? 0 : COMPILATION;
}
API int nvrtcGetProgramLogSize(void *handle, size_t *size) {
  const struct program *program = handle;
  *size = (program->log ? strlen(program->log) : 0) + 1;
  return 0;
}
API int nvrtcGetProgramLog(void *handle, char *log) {
  const struct program *program = handle;
  strcpy(log, program->log ? program->log : "");
  return 0;
}
API int nvrtcGetCUBINSize(void *handle, size_t *size) {
  const struct program *program = handle;
  *size = program->size;
  return program->image ? 0 : INVALID;
}
API int nvrtcGetCUBIN(void *handle, char *image) {
  const struct program *program = handle;
  memcpy(image, program->image, program->size);
  return 0;
}
API int nvrtcGetPTXSize(void *handle, size_t *size) {
  (void)handle, (void)size;
  return INVALID;
}
API int nvrtcGetPTX(void *handle, char *image) {
  (void)handle, (void)image;
  return INVALID;
}
