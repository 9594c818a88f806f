/// See region_code.h. A source's hash names its library in the cache directory. One background thread looks there
/// first, and otherwise runs the compiler on the source and what stands in front of it (region_prelude.inc: the host's
/// own expressions). Whatever goes wrong leaves the block machine in charge.
///
/// Files are those of store/disk_cache.h: one that is not complete, or whose directory belongs to somebody else, is not
/// loaded.
#include "region_code.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dit/alloc.h"
#include "dit/options.h"
#include "dit/thread.h"
#include "simd.h"
#include "store/disk_cache.h"

#define VERSION "1"  // of what generated code is called with
#define MAX_CODES 4096
#define BUCKETS 1024
#define ATTEMPTS 3  // of a compiler that is killed

extern char **environ;

static const char prelude[] = {
#include "region_prelude.inc"
    , 0};

enum state { NEW, SEEN, QUEUED, READY, FAILED };

struct region_code {
  struct region_code *next, *next_queued;
  char *source;
  uint64_t hash[2];
  int killed;  // compilers
  atomic_int state;
  _Atomic(region_function *) function;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct region_code *buckets[BUCKETS];
static struct region_code *queue, **queue_end = &queue;
static int ncodes;
static bool has_thread, is_busy;
static pid_t owner;  // of the thread: a forked child has none

static uint64_t hash_bytes(uint64_t hash, const char *data, size_t size) {
  for (size_t i = 0; i < size; i++) {
    hash = (hash ^ (unsigned char)data[i]) * UINT64_C(0x100000001B3);
    hash ^= hash >> 29;
  }
  return hash;
}

static const char *get_option(const char *name) {
  const int option = dit_option_find(name);
  return option >= 0 ? dit_option_get_text(option) : "";
}

/// Words of the command that come before the file names.
static const char *get_target(void) {
  return kernel_level == 4   ? "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mbmi -mbmi2 "
                               "-mprefer-vector-width=512"
         : kernel_level == 3 ? "-mavx2 -mfma -mf16c -mbmi -mbmi2"
                             : "";
}

static const char *get_compiler(void) {
  const char *compiler = get_option("host_compiler");
  if (!compiler[0]) {
    compiler = getenv("CC");
  }
  return compiler && compiler[0] && !strchr(compiler, ' ') ? compiler : "cc";
}

#define MARK "DITREGN2"

// The compiler

static bool write_whole(int file, const char *data, size_t size) {
  while (size > 0) {
    const ssize_t put = write(file, data, size);
    if (put < 0 && errno != EINTR) {
      return false;
    }
    data += put > 0 ? put : 0;
    size -= put > 0 ? (size_t)put : 0;
  }
  return true;
}

/// Everything but includes of our own: the files stand one behind the other.
static bool write_prelude(int file) {
  static const char head[] =
      "#define KERNEL_INLINE static inline __attribute__((always_inline))\n"
      "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n";
  const char *line = prelude;
  bool good = write_whole(file, head, sizeof head - 1);
  while (good && *line) {
    const char *end = strchr(line, '\n');
    const size_t size = end ? (size_t)(end - line) + 1 : strlen(line);
    good = strncmp(line, "#include \"", 10) == 0 || write_whole(file, line, size);
    line += size;
  }
  return good;
}

/// `killed`: it did not say whether the source is good.
static bool wait_for(pid_t child, bool *killed) {
  int status = 0;
  pid_t got;
  do {
    got = waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  *killed = got >= 0 && (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 128));  // 128: a shell's
  return got < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);  // < 0: the program waited for it; the file tells
}

/// Runs the compiler on `source` (a file) into `library`.
static bool run_compiler(const char *source, const char *library, bool *killed) {
  char target[256];
  char *arguments[32] = {(char *)(uintptr_t)get_compiler(),
                         "-O2",
                         "-std=gnu11",
                         "-shared",
                         "-fPIC",
                         "-w",
                         "-fopenmp-simd",
                         "-ffp-contract=fast",
                         "-fno-math-errno",
                         "-fno-trapping-math",
                         "-fvisibility=default"};
  int count = 11;
  snprintf(target, sizeof target, "%s", get_target());
  char *rest = NULL;
  for (char *word = strtok_r(target, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    arguments[count++] = word;
  }
  arguments[count++] = "-o";
  arguments[count++] = (char *)(uintptr_t)library;
  arguments[count++] = (char *)(uintptr_t)source;
  arguments[count++] = "-lm";
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;  // this thread blocks signals; the compiler takes Ctrl-C as everybody
  if (posix_spawn_file_actions_init(&actions) != 0) {
    return false;
  }
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return false;
  }
  pid_t child = 0;
  (void)sigemptyset(&none);
  bool good = posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
              posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0 &&
              posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0 &&
              posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0 &&
              posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0 &&
              posix_spawnp(&child, arguments[0], &actions, &attributes, arguments, environ) == 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return good && wait_for(child, killed);
}

static bool make_library(const struct region_code *code, const char *directory, const char *library, bool *killed) {
  char source[4200], made[4300];
  snprintf(source, sizeof source, "%s/%016llx%016llx-%ld.c", directory, (unsigned long long)code->hash[0],
           (unsigned long long)code->hash[1], (long)getpid());
  snprintf(made, sizeof made, "%s.tmp", source);
  const int file = open(source, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) {
    return false;
  }
  bool good = write_prelude(file) && write_whole(file, code->source, strlen(code->source));
  good = close(file) == 0 && good;
  if (good && run_compiler(source, made, killed)) {
    good = dit_disk_cache_seal(made, library, MARK);
  } else {
    good = false;
    (void)unlink(made);
  }
  (void)unlink(source);
  return good;
}

static region_function *load(const char *library) {
  region_function *function = NULL;
  size_t size;
  void *bytes = dit_disk_cache_read(library, MARK, &size);
  void *handle = bytes ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *symbol = handle ? dlsym(handle, "region") : NULL;
  memcpy(&function, &symbol, sizeof function);
  dit_free(bytes);
  return function;  // the library stays
}

static void make(struct region_code *code) {
  char directory[4000], library[4100];
  region_function *function = NULL;
  bool killed = false;
  if (dit_disk_cache_find(get_option("host_cache"), "ditorch-regions", directory, sizeof directory)) {
    snprintf(library, sizeof library, "%s/%016llx%016llx.so", directory, (unsigned long long)code->hash[0],
             (unsigned long long)code->hash[1]);
    function = load(library);
    if (!function && make_library(code, directory, library, &killed)) {
      function = load(library);
    }
  }
  atomic_store_explicit(&code->function, function, memory_order_release);
  const bool again = killed && ++code->killed < ATTEMPTS;  // Ctrl-C reaches compilers too
  atomic_store(&code->state, function ? READY : again ? SEEN : FAILED);
}

static void *work(void *context) {
  (void)pthread_mutex_lock(&mutex);
  for (;;) {
    while (!queue) {
      is_busy = false;
      (void)pthread_cond_broadcast(&changed);
      (void)pthread_cond_wait(&changed, &mutex);
    }
    struct region_code *code = queue;
    queue = code->next_queued;
    queue_end = queue ? queue_end : &queue;
    is_busy = true;
    (void)pthread_mutex_unlock(&mutex);
    make(code);
    (void)pthread_mutex_lock(&mutex);
  }
  return context;
}

static bool start_thread(void) {
  if (has_thread && owner == getpid()) {
    return true;
  }
  pthread_t thread;
  if (has_thread || dit_thread_create(&thread, work, NULL) != 0) {
    return false;
  }
  (void)pthread_detach(thread);
  has_thread = true;
  owner = getpid();
  return true;
}

static void enqueue(struct region_code *code) {
  (void)pthread_mutex_lock(&mutex);
  if (atomic_load(&code->state) == SEEN) {
    if (start_thread()) {
      atomic_store(&code->state, QUEUED);
      code->next_queued = NULL;
      *queue_end = code;
      queue_end = &code->next_queued;
      (void)pthread_cond_broadcast(&changed);
    } else {
      atomic_store(&code->state, FAILED);
    }
  }
  (void)pthread_mutex_unlock(&mutex);
}

static uint64_t prelude_hash;

static void hash_prelude(void) {
  prelude_hash = hash_bytes(UINT64_C(0xCBF29CE484222325), prelude, sizeof prelude);
  prelude_hash = hash_bytes(prelude_hash, VERSION, strlen(VERSION));
}

struct region_code *region_code_get(struct region_text *source) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  (void)pthread_once(&once, hash_prelude);
  const char *target = get_target(), *compiler = get_compiler();
  struct region_code *code = NULL;
  uint64_t hash[2];
  for (int i = 0; i < 2; i++) {
    hash[i] = hash_bytes(prelude_hash + (uint64_t)i, target, strlen(target) + 1);
    hash[i] = hash_bytes(hash[i], compiler, strlen(compiler) + 1);
    hash[i] = hash_bytes(hash[i], source->data, source->size);
  }
  (void)pthread_mutex_lock(&mutex);
  struct region_code **bucket = &buckets[hash[0] % BUCKETS];
  for (code = *bucket; code && strcmp(code->source, source->data) != 0; code = code->next) {
  }
  if (!code && ncodes < MAX_CODES && (code = dit_calloc(1, sizeof *code))) {
    code->source = source->data;
    source->data = NULL;
    memcpy(code->hash, hash, sizeof hash);
    code->next = *bucket;
    *bucket = code;
    ncodes++;
  }
  (void)pthread_mutex_unlock(&mutex);
  dit_free(source->data);
  source->data = NULL;
  return code;
}

// Keys: the source of a region is written once, whatever sizes it comes in

struct memory {
  struct memory *next;
  struct region_code *code;
  int nscratch, nphases;
  bool has_trig;
  uint64_t hash;
  size_t size;
  uint8_t key[];
};

static struct memory *memories[BUCKETS];
static int nmemories;

static void put_bytes(struct region_key *key, const void *data, size_t size) {
  memcpy(key->bytes + key->size, data, size);
  key->size += size;
}

void region_key_make(struct region_key *key, const struct region_program *program) {
  key->size = 0;
  const uint8_t head[] = {(uint8_t)program->kind,      (uint8_t)program->ndim,   (uint8_t)program->nvalues,
                          (uint8_t)program->noperands, (uint8_t)program->nfolds, program->is_long};
  put_bytes(key, head, sizeof head);
  for (int i = 0; i < program->nvalues; i++) {
    const struct value *value = &program->values[i];
    const uint8_t what[] = {value->op, value->klass, value->level, value->arity};
    const int16_t numbers[] = {value->dtype, value->operand, value->args[0], value->args[1], value->args[2]};
    put_bytes(key, what, sizeof what);
    put_bytes(key, numbers, sizeof numbers);
  }
  for (int i = 0; i < program->noperands; i++) {
    const struct dit_region_operand *layout = &program->operands[i].layout;
    const int16_t numbers[] = {layout->dtype, layout->stored};
    put_bytes(key, numbers, sizeof numbers);
    for (int d = 0; d < program->ndim; d++) {  // broadcast, side by side, or further apart
      const uint8_t class = layout->strides[d] > 1 ? 2 : (uint8_t)layout->strides[d];
      put_bytes(key, &class, 1);
    }
  }
  key->hash = hash_bytes(UINT64_C(0xCBF29CE484222325), (const char *)key->bytes, key->size);
}

static struct memory *find_memory(const struct region_key *key) {
  struct memory *found = memories[key->hash % BUCKETS];
  while (found &&
         (found->hash != key->hash || found->size != key->size || memcmp(found->key, key->bytes, key->size) != 0)) {
    found = found->next;
  }
  return found;
}

bool region_code_is_off(void) {
  return strcmp(get_compiler(), "none") == 0;
}

bool region_code_recall(const struct region_key *key, struct region_program *program) {
  (void)pthread_mutex_lock(&mutex);
  const struct memory *found = find_memory(key);
  (void)pthread_mutex_unlock(&mutex);
  if (found) {
    program->code = found->code;
    program->nscratch = found->nscratch;
    program->nphases = found->nphases;
    program->has_trig = found->has_trig;
  }
  return found != NULL;
}

void region_code_remember(const struct region_key *key, const struct region_program *program) {
  (void)pthread_mutex_lock(&mutex);
  struct memory *made = NULL;
  if (program->code && nmemories < MAX_CODES && !find_memory(key) && (made = dit_calloc(1, sizeof *made + key->size))) {
    made->code = program->code;
    made->nscratch = program->nscratch;
    made->nphases = program->nphases;
    made->has_trig = program->has_trig;
    made->hash = key->hash;
    made->size = key->size;
    memcpy(made->key, key->bytes, key->size);
    made->next = memories[key->hash % BUCKETS];
    memories[key->hash % BUCKETS] = made;
    nmemories++;
  }
  (void)pthread_mutex_unlock(&mutex);
}

region_function *region_code_find(struct region_code *code) {
  const int state = atomic_load_explicit(&code->state, memory_order_acquire);
  if (state == NEW) {
    int expected = NEW;
    (void)atomic_compare_exchange_strong(&code->state, &expected, SEEN);
  } else if (state == SEEN) {
    enqueue(code);
  }
  return state == READY ? atomic_load_explicit(&code->function, memory_order_acquire) : NULL;
}

const char *region_code_get_source(const struct region_code *code) {
  return code->source;
}

int region_code_get_state(const struct region_code *code) {
  const int state = atomic_load(&((struct region_code *)(uintptr_t)code)->state);
  return state == READY ? 1 : state == FAILED ? 2 : 0;
}

void region_code_settle(void) {
  (void)pthread_mutex_lock(&mutex);
  while (has_thread && owner == getpid() && (queue || is_busy)) {
    (void)pthread_cond_wait(&changed, &mutex);
  }
  (void)pthread_mutex_unlock(&mutex);
}
