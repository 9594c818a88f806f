/// From a record log to the flat array of calls: records of one call (its arguments, times, judgement, findings) meet
/// in one entry, found by process, id, direction and round.
///
/// Invariant: nothing here trusts a file: fields may be absent, repeated or of another type. Depends on record.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dit/align.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "record/tool_record.h"

enum { SHAPE_BYTES = 512, ASK_EVERY = 65536 };

struct loader {
  struct dit_align_run *run;
  struct dit_align_names *names;
  struct dit_error *err;
  uint32_t *table;  // index + 1 into calls
  size_t table_size, limit;
  const struct dit_record_header *header;  // whose process is `process`
  uint64_t process;
  uint32_t module, plain;  // the last path and what is left of it
};

// Fields

static enum dit_status text_take(struct loader *loader, struct dit_record_text text, uint32_t *number) {
  return dit_align_names_take(loader->names, text.data, text.size, number, loader->err);
}

static int64_t number_of(const struct dit_record *record, const char *key, int64_t fallback) {
  int64_t number = fallback;
  return dit_tool_record_get_number(dit_tool_record_find(record, key), &number) ? number : fallback;
}

static bool key_is(const struct dit_record_field *field, const char *prefix, size_t size) {
  return field->key.size >= size && memcmp(field->key.data, prefix, size) == 0;
}

// Shapes of the tensors that go in, in a few bytes: what tells two calls of one operator in one module apart.
static size_t shape_write(const struct dit_record *record, unsigned char *text) {
  size_t size = 0;
  for (size_t i = 0; i < record->field_count; i++) {
    const struct dit_record_field *field = &record->fields[i];
    bool wanted = key_is(field, "args", 4) || key_is(field, "kwargs", 6) || key_is(field, "grad_out", 8);
    if (field->type != DIT_RECORD_TENSOR || !wanted) {
      continue;
    }
    for (int d = -1; d < field->v.tensor.ndim; d++) {
      int64_t value = d < 0 ? -1 - field->v.tensor.ndim : field->v.tensor.sizes[d];
      if (size + sizeof(value) > SHAPE_BYTES) {
        return size;
      }
      memcpy(text + size, &value, sizeof(value));
      size += sizeof(value);
    }
  }
  return size;
}

static bool is_wrapper(const char *part, size_t size) {
  static const char *const wrappers[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module"};
  static const char *const classes[] = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
                                        "OptimizedModule", "CheckpointWrapper"};
  for (size_t i = 0; i < sizeof(wrappers) / sizeof(*wrappers); i++) {
    if (strlen(wrappers[i]) == size && memcmp(wrappers[i], part, size) == 0) {
      return true;
    }
  }
  for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
    if (strlen(classes[i]) == size && memcmp(classes[i], part, size) == 0) {
      return true;
    }
  }
  return false;
}

// "DistributedDataParallel.module.layers.0" and "Model.layers.0" are both "layers.0": the root's class, which a wrapper
// replaces, and the wrappers' own names are left out.
static enum dit_status module_shorten(struct loader *loader, uint32_t module, uint32_t *plain) {
  if (module != loader->module || module == 0) {
    struct dit_record_text path = dit_align_names_get(loader->names, module);
    char text[1024];
    size_t size = 0;
    const char *end = path.data + path.size;
    for (const char *part = path.data; part < end;) {
      const char *dot = memchr(part, '.', (size_t)(end - part));
      size_t length = (size_t)((dot ? dot : end) - part);
      if (part != path.data && !is_wrapper(part, length) && size + length + 1 < sizeof(text)) {
        text[size++] = '.';
        memcpy(text + size, part, length);
        size += length;
      }
      part += length + 1;
    }
    if (module && size == 0) {
      text[size++] = '.';
    }
    loader->module = module;
    DIT_RETURN_IF_NOT_OK(dit_align_names_take(loader->names, text, size, &loader->plain, loader->err));
  }
  *plain = loader->plain;
  return DIT_OK;
}

// The table of calls

static uint64_t call_hash(uint64_t process, uint64_t id, unsigned direction) {
  uint64_t value = (process ^ id * 4 ^ direction) * UINT64_C(0x9E3779B97F4A7C15);
  return value ^ value >> 31;
}

static unsigned direction_of(const struct dit_align_call *call) {
  return (call->flags & DIT_ALIGN_BACKWARD) | (unsigned)call->round << 1;
}

static size_t slot_find(const struct loader *loader, uint64_t process, uint64_t id, unsigned direction) {
  size_t at = call_hash(process, id, direction) & (loader->table_size - 1);
  for (; loader->table[at]; at = (at + 1) & (loader->table_size - 1)) {
    const struct dit_align_call *call = &loader->run->calls[loader->table[at] - 1];
    if (call->id == id && call->process == process && direction_of(call) == direction) {
      break;
    }
  }
  return at;
}

static enum dit_status limit_check(const struct loader *loader, size_t more) {
  const struct dit_align_run *run = loader->run;
  size_t used = run->capacity * sizeof(*run->calls) + run->stats_capacity * sizeof(*run->stats) +
                loader->table_size * sizeof(*loader->table);
  if (used + more > loader->limit || run->count >= INT32_MAX / 2) {
    return dit_error_set(loader->err, DIT_ERR_NOMEM,
                         "a run of more than %zu calls does not fit into %zu KiB; choose fewer steps", run->count,
                         loader->limit >> 10);
  }
  return DIT_OK;
}

static enum dit_status table_grow(struct loader *loader) {
  size_t size = loader->table_size ? loader->table_size * 2 : 4096;
  DIT_RETURN_IF_NOT_OK(limit_check(loader, size * sizeof(*loader->table)));
  uint32_t *grown = dit_calloc(size, sizeof(*grown));
  if (!grown) {
    return dit_error_set(loader->err, DIT_ERR_NOMEM, "no memory for a run of %zu calls", loader->run->count);
  }
  dit_free(loader->table);
  loader->table = grown;
  loader->table_size = size;
  for (size_t i = 0; i < loader->run->count; i++) {
    const struct dit_align_call *call = &loader->run->calls[i];
    grown[slot_find(loader, call->process, call->id, direction_of(call))] = (uint32_t)i + 1;
  }
  return DIT_OK;
}

static enum dit_status array_grow(struct loader *loader, void **array, size_t *capacity, size_t item) {
  size_t count = *capacity ? *capacity + *capacity / 2 : 1024;
  DIT_RETURN_IF_NOT_OK(limit_check(loader, (count - *capacity) * item));
  void *grown = dit_realloc(*array, count * item);
  if (!grown) {
    return dit_error_set(loader->err, DIT_ERR_NOMEM, "no memory for a run of %zu calls", loader->run->count);
  }
  *array = grown;
  *capacity = count;
  return DIT_OK;
}

static enum dit_status call_make(struct loader *loader, const struct dit_record *record, uint64_t id,
                                 unsigned direction, struct dit_align_call *call) {
  *call = (struct dit_align_call){.time_ns = record->wall_ns, .id = id, .process = loader->process};
  call->host_ns = call->device_ns = -1;
  call->pid = record->header->pid;
  call->step = number_of(record, "step", -1);
  call->flags = (uint16_t)(direction & DIT_ALIGN_BACKWARD);
  call->round = (uint16_t)(direction >> 1);
  return text_take(loader, dit_tool_record_get_text(record, "name"), &call->name);
}

// The entry of this record's call, made when it is new; its address holds until the next one.
static enum dit_status call_find(struct loader *loader, const struct dit_record *record, bool backward,
                                 struct dit_align_call **call) {
  struct dit_align_run *run = loader->run;
  int64_t id = number_of(record, "id", 0), round = backward ? number_of(record, "round", 0) : 0;
  unsigned direction = (backward ? 1u : 0u) | (unsigned)(round & 0x7FFF) << 1;
  if ((run->count + 1) * 2 > loader->table_size) {
    DIT_RETURN_IF_NOT_OK(table_grow(loader));
  }
  size_t at = slot_find(loader, loader->process, (uint64_t)id, direction);
  if (loader->table[at] == 0) {
    if (run->count == run->capacity) {
      void *array = run->calls;
      enum dit_status status = array_grow(loader, &array, &run->capacity, sizeof(*run->calls));
      run->calls = array;
      DIT_RETURN_IF_NOT_OK(status);
    }
    DIT_RETURN_IF_NOT_OK(call_make(loader, record, (uint64_t)id, direction, &run->calls[run->count]));
    loader->table[at] = (uint32_t)++run->count;
  }
  *call = &run->calls[loader->table[at] - 1];
  if (record->wall_ns < (*call)->time_ns) {
    (*call)->time_ns = record->wall_ns;
  }
  return DIT_OK;
}

// Records

static double float_of(const struct dit_record_field *field) {
  int64_t number = 0;
  return field->type == DIT_RECORD_F64 ? field->v.f64 : dit_tool_record_get_number(field, &number) ? (double)number : 0;
}

static enum dit_status stats_field_take(struct loader *loader, const struct dit_record_field *field,
                                        struct dit_align_stats *stats) {
  struct dit_record_text name = {field->key.data + 6, field->key.size - 6};
  int64_t number = 0;
  bool is_number = dit_tool_record_get_number(field, &number);
  if (dit_tool_record_text_is(name, "hash")) {
    stats->hash = field->type == DIT_RECORD_U64 ? field->v.u64 : (uint64_t)number;
    stats->hashed = is_number;
  } else if (dit_tool_record_text_is(name, "norm")) {
    stats->norm = float_of(field);
  } else if (dit_tool_record_text_is(name, "mean")) {
    stats->mean = float_of(field);
  } else if (dit_tool_record_text_is(name, "min")) {
    stats->min = float_of(field);
  } else if (dit_tool_record_text_is(name, "max")) {
    stats->max = float_of(field);
  } else if (dit_tool_record_text_is(name, "numel")) {
    stats->numel = number;
  } else if (dit_tool_record_text_is(name, "nan")) {
    stats->nan = number;
  } else if (dit_tool_record_text_is(name, "inf")) {
    stats->inf = number;
  } else if (dit_tool_record_text_is(name, "dtype") && field->type == DIT_RECORD_STRING) {
    return text_take(loader, field->v.text, &stats->dtype);
  }
  return DIT_OK;
}

static enum dit_status stats_take(struct loader *loader, const struct dit_record *record, struct dit_align_call *call) {
  struct dit_align_run *run = loader->run;
  struct dit_align_stats stats = {0};
  bool found = false;
  for (size_t i = 0; i < record->field_count; i++) {
    if (key_is(&record->fields[i], "stats.", 6)) {
      found = true;
      DIT_RETURN_IF_NOT_OK(stats_field_take(loader, &record->fields[i], &stats));
    }
  }
  if (!found || call->stats) {
    return DIT_OK;
  }
  if (run->stats_count == run->stats_capacity) {
    void *array = run->stats;
    enum dit_status status = array_grow(loader, &array, &run->stats_capacity, sizeof(*run->stats));
    run->stats = array;
    DIT_RETURN_IF_NOT_OK(status);
  }
  run->stats[run->stats_count++] = stats;
  call->stats = (uint32_t)run->stats_count;
  return DIT_OK;
}

static enum dit_status place_take(struct loader *loader, const struct dit_record *record, struct dit_align_call *call) {
  if (!call->location) {
    DIT_RETURN_IF_NOT_OK(text_take(loader, dit_tool_record_get_text(record, "location"), &call->location));
  }
  if (!call->module) {
    DIT_RETURN_IF_NOT_OK(text_take(loader, dit_tool_record_get_text(record, "module"), &call->module));
    DIT_RETURN_IF_NOT_OK(module_shorten(loader, call->module, &call->plain_module));
  }
  if (!call->shape) {
    unsigned char text[SHAPE_BYTES];
    size_t size = shape_write(record, text);
    DIT_RETURN_IF_NOT_OK(dit_align_names_take(loader->names, text, size, &call->shape, loader->err));
  }
  call->flags |= dit_tool_record_find(record, "recompute") ? DIT_ALIGN_RECOMPUTE : 0;
  call->flags |= dit_tool_record_find(record, "error") ? DIT_ALIGN_FAILED : 0;
  return DIT_OK;
}

static void compare_take(const struct dit_record *record, struct dit_align_call *call) {
  struct dit_record_text verdict = dit_tool_record_get_text(record, "verdict");
  call->flags |= dit_tool_record_text_is(verdict, "unknown") ? 0 : DIT_ALIGN_JUDGED;
  call->flags |= dit_tool_record_text_is(verdict, "wrong") ? DIT_ALIGN_WRONG : 0;
}

static bool is_backward(const struct dit_record *record, const char *type) {
  if (strcmp(type, "compare") == 0) {
    return dit_tool_record_text_is(dit_tool_record_get_text(record, "what"), "grad");
  }
  return strcmp(type, "backward") == 0 || dit_tool_record_text_is(dit_tool_record_get_text(record, "kind"), "backward");
}

static enum dit_status record_take(struct loader *loader, const struct dit_record *record) {
  static const char *const wanted[] = {"call", "backward", "time", "compare", "finding", "capture"};
  const char *type = dit_record_get_type_name(record);
  size_t kind = 0;
  while (type && kind < sizeof(wanted) / sizeof(*wanted) && strcmp(type, wanted[kind]) != 0) {
    kind++;
  }
  if (!type || kind == sizeof(wanted) / sizeof(*wanted) || !dit_tool_record_find(record, "id") ||
      !dit_tool_record_find(record, "name")) {
    return DIT_OK;
  }
  if (record->header != loader->header) {
    loader->header = record->header;
    loader->process = dit_tool_record_get_process(record->header);
  }
  struct dit_align_call *call = NULL;
  DIT_RETURN_IF_NOT_OK(call_find(loader, record, is_backward(record, type), &call));
  if (kind == 2) {
    call->host_ns = number_of(record, "duration_ns", call->host_ns);
    call->device_ns = number_of(record, "device_ns", call->device_ns);
  } else if (kind < 2 && call->host_ns < 0) {
    call->host_ns = number_of(record, "host_ns", -1);
  } else if (kind == 3) {
    compare_take(record, call);
  } else if (kind == 4) {
    bool allowed = dit_tool_record_text_is(dit_tool_record_get_text(record, "verdict"), "allowed");
    call->flags |= allowed ? 0 : DIT_ALIGN_FINDING;
  }
  DIT_RETURN_IF_NOT_OK(place_take(loader, record, call));
  return stats_take(loader, record, call);
}

static int by_order(const void *left, const void *right) {
  const struct dit_align_call *a = left, *b = right;
  if (a->step != b->step) {
    return a->step < b->step ? -1 : 1;
  }
  if (a->time_ns != b->time_ns) {
    return a->time_ns < b->time_ns ? -1 : 1;
  }
  return (a->id > b->id) - (a->id < b->id);
}

enum dit_status dit_align_run_load(struct dit_record_reader *reader, struct dit_align_names *names, size_t limit,
                                   bool (*go_on)(void *context), void *context, struct dit_align_run *run,
                                   struct dit_error *err) {
  struct loader loader = {.run = run, .names = names, .err = err, .limit = limit};
  const struct dit_record *record = NULL;
  enum dit_status status = dit_record_reader_next(reader, &record, err);
  for (; status == DIT_OK && record;
       status = status == DIT_OK ? dit_record_reader_next(reader, &record, err) : status) {
    status = record_take(&loader, record);
    if (++run->records % ASK_EVERY == 0 && go_on && !go_on(context)) {
      status = dit_error_set(err, DIT_ERR_INTERNAL, "interrupted");
    }
  }
  dit_free(loader.table);
  if (status == DIT_OK && run->count > 1) {
    qsort(run->calls, run->count, sizeof(*run->calls), by_order);
  }
  return status;
}

void dit_align_run_reset(struct dit_align_run *run) {
  dit_free(run->calls);
  dit_free(run->stats);
  *run = (struct dit_align_run){0};
}
