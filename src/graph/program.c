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

static void *load(const struct dit_graph_plan *plan, const struct sink *key, const char *path) {
  size_t size = 0;
  void *program = NULL;
  char *bytes = dit_disk_cache_read(path, MARK, &size);
  if (bytes && size > key->size && memcmp(bytes, key->bytes, key->size) == 0 &&
      plan->engine->load(bytes + key->size, size - key->size, plan->device, &program, NULL) != DIT_OK) {
    program = NULL;
  }
  dit_free(bytes);
  return program;
}

static void save(const struct dit_graph_plan *plan, const struct sink *key, const char *path, void *program) {
  struct sink bytes = {NULL, 0, 0};
  if (plan->engine->save(program, take_bytes, &bytes, NULL) == DIT_OK && bytes.size > 0) {
    const struct dit_disk_cache_part parts[] = {{key->bytes, key->size}, {bytes.bytes, bytes.size}};
    (void)dit_disk_cache_write(path, MARK, parts, 2);
  }
  dit_free(bytes.bytes);
}

static enum dit_status make(const struct dit_graph_plan *plan, const struct graph_subgraph *subgraph,
                            struct graph_program *made, struct dit_error *err) {
  char path[MAX_PATH];
  struct sink key = {NULL, 0, 0};
  const bool keeps = find_file(plan, subgraph, &key, path, sizeof path);
  made->program = keeps ? load(plan, &key, path) : NULL;
  made->is_kept = made->program != NULL;
  enum dit_status status = DIT_OK;
  if (!made->program) {
    status = plan->engine->compile_graph(subgraph->words, subgraph->count, plan->device, &made->program, err);
    if (status == DIT_OK && keeps) {
      save(plan, &key, path, made->program);
    }
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
