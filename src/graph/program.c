/// Programs of subgraphs: from the plan's own list, from disk, or from the engine's compiler.
///
/// A file on disk holds its whole key in front of the program: the versions of the contract and of the engine, the
/// engine's fingerprint and the words. A file is a hit when the key is the same to the byte, so that its name, a hash,
/// need only be unlikely to be shared. Depends on store/disk_cache.h, which knows what a complete file is.
#include <stdio.h>
#include <string.h>

#include "dit/numerics.h"
#include "dit/options.h"
#include "dit/version.h"
#include "graph_internal.h"
#include "store/disk_cache.h"

#define MARK "DITPROG1"
#define MAX_PATH 4200

struct key {
  uint64_t size;  ///< of the whole
  uint32_t abi, operations;
  char ditorch[32], engine[64], version[64];
  uint8_t fingerprint[32];
};

struct sink {
  char *bytes;
  size_t size, capacity;
};

static enum dit_status take_bytes(void *context, const void *bytes, size_t size, struct dit_error *err) {
  struct sink *sink = context;
  if (size > DIT_DISK_CACHE_MAX - sink->size) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "a program that is too long to keep");
  }
  if (sink->size + size > sink->capacity) {
    const size_t capacity = (sink->size + size) * 2;
    char *grown = dit_realloc(sink->bytes, capacity);
    if (!grown) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no memory to keep a program in");
    }
    sink->bytes = grown;
    sink->capacity = capacity;
  }
  if (size) {
    memcpy(sink->bytes + sink->size, bytes, size);
  }
  sink->size += size;
  return DIT_OK;
}

/// The key, and the file that it names. False: nothing is kept.
static bool find_file(const struct dit_graph_plan *plan, const struct graph_subgraph *subgraph, struct sink *key,
                      char *path, size_t size) {
  const struct dit_graph_engine *engine = plan->engine;
  const int option = dit_option_find("graph_cache");
  const char *chosen = option >= 0 ? dit_option_get_text(option) : "";
  struct key head;
  memset(&head, 0, sizeof head);
  char folder[MAX_PATH - 64];
  if (!engine->save || strcmp(chosen, "none") == 0 || engine->fingerprint(plan->device, head.fingerprint, NULL) ||
      !dit_disk_cache_find(chosen, "ditorch-graphs", folder, sizeof folder)) {
    return false;
  }
  const size_t words = subgraph->count * sizeof *subgraph->words;
  head.size = sizeof head + words;
  head.abi = DIT_GRAPH_ENGINE_ABI_VERSION;
  head.operations = DIT_REGION_OP_COUNT;
  snprintf(head.ditorch, sizeof head.ditorch, "%s", dit_version_get());
  snprintf(head.engine, sizeof head.engine, "%s", engine->name);
  snprintf(head.version, sizeof head.version, "%s", engine->version ? engine->version : "");
  if (take_bytes(key, &head, sizeof head, NULL) != DIT_OK || take_bytes(key, subgraph->words, words, NULL) != DIT_OK) {
    return false;
  }
  const struct dit_hash hash = dit_disk_cache_hash(key->bytes, key->size);
  const int written = snprintf(path, size, "%s/%016llx%016llx.graph", folder, (unsigned long long)hash.high,
                               (unsigned long long)hash.low);
  return written > 0 && (size_t)written < size;
}

/// What stands behind the key: a program's bytes, or why the engine does not make one.
enum kind { MISS, PROGRAM, REFUSAL };

static enum kind load(const struct dit_graph_plan *plan, const struct sink *key, const char *path, void **program,
                      struct dit_error *err) {
  size_t size = 0;
  enum kind kind = MISS;
  uint64_t said = MISS;
  char *bytes = dit_disk_cache_read(path, MARK, &size);
  if (bytes && size > key->size + sizeof said && memcmp(bytes, key->bytes, key->size) == 0) {
    const char *rest = bytes + key->size + sizeof said;
    size -= key->size + sizeof said;
    memcpy(&said, bytes + key->size, sizeof said);
    if (said == PROGRAM && plan->engine->load(rest, size, plan->device, program, NULL) == DIT_OK) {
      kind = PROGRAM;
    } else if (said == REFUSAL) {
      (void)dit_error_set(err, DIT_ERR_UNSUPPORTED, "%.*s", (int)size, rest);
      kind = REFUSAL;
    }
  }
  dit_free(bytes);
  return kind;
}

static void save(const struct sink *key, const char *path, enum kind kind, const void *bytes, size_t size) {
  const uint64_t said = kind;
  const struct dit_disk_cache_part parts[] = {{key->bytes, key->size}, {&said, sizeof said}, {bytes, size}};
  (void)dit_disk_cache_write(path, MARK, parts, 3);
}

static void save_program(const struct dit_graph_plan *plan, const struct sink *key, const char *path, void *program) {
  struct sink bytes = {NULL, 0, 0};
  if (plan->engine->save(program, take_bytes, &bytes, NULL) == DIT_OK && bytes.size > 0) {
    save(key, path, PROGRAM, bytes.bytes, bytes.size);
  }
  dit_free(bytes.bytes);
}

/// A refusal that will be the same next time is kept too; one for want of memory, say, is not.
static enum dit_status compile(const struct dit_graph_plan *plan, const struct graph_subgraph *subgraph,
                               const struct sink *key, const char *path, struct graph_program *made,
                               struct dit_error *err) {
  struct dit_error why = {.message = ""};
  const enum dit_status status =
      plan->engine->compile_graph(subgraph->words, subgraph->count, plan->device, &made->program, &why);
  if (status == DIT_OK && path[0]) {
    save_program(plan, key, path, made->program);
  } else if (status == DIT_ERR_UNSUPPORTED && path[0] && why.message[0]) {
    save(key, path, REFUSAL, why.message, strlen(why.message));
  }
  return status == DIT_OK ? DIT_OK : dit_error_set(err, status, "%s", why.message);
}

static enum dit_status make(const struct dit_graph_plan *plan, const struct graph_subgraph *subgraph,
                            struct graph_program *made, struct dit_error *err) {
  char path[MAX_PATH];
  struct sink key = {NULL, 0, 0};
  if (!find_file(plan, subgraph, &key, path, sizeof path)) {
    path[0] = '\0';
  }
  const enum kind kind = path[0] ? load(plan, &key, path, &made->program, err) : MISS;
  made->is_kept = kind == PROGRAM;
  enum dit_status status = kind == REFUSAL ? DIT_ERR_UNSUPPORTED : DIT_OK;
  if (kind == MISS) {
    status = compile(plan, subgraph, &key, path, made, err);
  }
  dit_free(key.bytes);
  return status;
}

enum dit_status graph_find_program(const struct dit_graph_plan *plan, struct graph_piece **list,
                                   const struct graph_subgraph *subgraph, struct graph_program **programs,
                                   struct graph_program **out, struct dit_error *err) {
  for (struct graph_program *known = *programs; known; known = known->next) {
    if (known->count == subgraph->count &&
        memcmp(known->words, subgraph->words, known->count * sizeof *known->words) == 0) {
      *out = known;
      return DIT_OK;
    }
  }
  struct graph_program *made = graph_pool_take(list, 1, sizeof *made);
  if (!made) {
    return dit_error_set(err, DIT_ERR_NOMEM, "graph: no memory for a program");
  }
  DIT_RETURN_IF_NOT_OK(make(plan, subgraph, made, err));
  const enum dit_status status = plan->engine->measure(made->program, &made->workspace, err);
  if (status != DIT_OK || made->workspace < 0) {
    plan->engine->release_graph(made->program);
    return status != DIT_OK ? status : dit_error_set(err, DIT_ERR_INVALID, "a workspace of a negative size");
  }
  made->words = subgraph->words;
  made->count = subgraph->count;
  made->next = *programs;
  *programs = *out = made;
  return DIT_OK;
}
