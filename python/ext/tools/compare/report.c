// What OpAutoCompare found: rows for the table (CSV) and the log, findings.
//
// A row is one judgement. Rows wait in memory until there are more than max_cache_size of them; the log has each at
// once, so a crash loses nothing. A finding is a wrong operator, direction and signature: the first is told and kept,
// more are counted. Nothing here raises except the report of a finding (stop). Needs the GIL.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dit/log.h"
#include "engine/internal.h"
#include "engine/log.h"
#include "tools/compare/state.h"

static const char *const labels[] = {"input", "output", "grad"};
static const char *const verdicts[] = {"right", "wrong", "unknown"};

// The log

// X(member, key)
#define COMPARE_KEY_LIST(X) \
  X(index)                  \
  X(close)                  \
  X(cosine)                 \
  X(max_abs_diff)           \
  X(max_relative_diff)      \
  X(atol) X(rtol) X(info) X(error_size) X(allowed) X(wrong) X(numel) X(at) X(value) X(reference) X(reason)

static struct {
#define KEY_MEMBER(name) uint32_t name;
  COMPARE_KEY_LIST(KEY_MEMBER)
#undef KEY_MEMBER
} keys;

static void keys_intern(void) {
  if (keys.index) {
    return;
  }
#define KEY_INTERN(name)                                                        \
  if (dit_record_intern(#name, sizeof #name - 1, &keys.name, NULL) != DIT_OK) { \
    return;                                                                     \
  }
  COMPARE_KEY_LIST(KEY_INTERN)
#undef KEY_INTERN
}

static void record_write(const struct compare_event *event, enum compare_what what, int index,
                         const struct compare_judgement *judgement) {
  keys_intern();
  struct dit_record_builder *builder =
      event->call ? engine_log_begin(event->tool, event->call, ENGINE_RECORD_COMPARE)
                  : engine_log_begin_backward(event->tool, event->backward, ENGINE_RECORD_COMPARE);
  if (!builder) {
    return;
  }
  const char *verdict = verdicts[judgement->verdict];
  dit_record_field_string(builder, engine_key_what, labels[what], strlen(labels[what]));
  dit_record_field_i64(builder, keys.index, index);
  if (!judgement->close || judgement->cosine != 1 || judgement->max_abs_diff != 0) {  // left out: close, 1, 0, 0
    dit_record_field_bool(builder, keys.close, judgement->close);
    dit_record_field_f64(builder, keys.cosine, judgement->cosine);
    dit_record_field_f64(builder, keys.max_abs_diff, judgement->max_abs_diff);
    dit_record_field_f64(builder, keys.max_relative_diff, judgement->max_relative_diff);
  }
  dit_record_field_f64(builder, keys.atol, judgement->atol);
  dit_record_field_f64(builder, keys.rtol, judgement->rtol);
  dit_record_field_string(builder, engine_key_verdict, verdict, strlen(verdict));
  if (judgement->info[0]) {
    dit_record_field_string(builder, keys.info, judgement->info, strlen(judgement->info));
  }
  if (judgement->verdict != COMPARE_RIGHT) {
    dit_record_field_f64(builder, keys.error_size, judgement->error);
    dit_record_field_f64(builder, keys.allowed, judgement->allowed);
    dit_record_field_i64(builder, keys.wrong, judgement->wrong);
    dit_record_field_i64(builder, keys.numel, judgement->numel);
    dit_record_field_i64(builder, keys.at, judgement->index);
    dit_record_field_f64(builder, keys.value, judgement->value);
    dit_record_field_f64(builder, keys.reference, judgement->reference);
    dit_record_field_string(builder, keys.reason, judgement->reason, strlen(judgement->reason));
  }
  engine_log_commit(builder);
}

// Rows

static bool row_is_wanted(const struct compare_state *state, const struct compare_judgement *judgement) {
  return state->rows_mode == COMPARE_ROWS_ALL ||
         (state->rows_mode == COMPARE_ROWS_WRONG && (!judgement->close || judgement->verdict == COMPARE_WRONG));
}

static void row_set(struct compare_row *row, const struct compare_event *event, enum compare_what what, int index,
                    const struct compare_judgement *judgement) {
  *row = (struct compare_row){
      .op = event->c->op,
      .id = event->id,
      .what = (uint8_t)what,
      .index = index,
      .close = judgement->close,
      .verdict = (uint8_t)judgement->verdict,
      .cosine = judgement->cosine,
      .max_abs_diff = judgement->max_abs_diff,
      .max_relative_diff = judgement->max_relative_diff,
      .atol = judgement->atol,
      .rtol = judgement->rtol,
  };
  size_t size = strlen(judgement->info) + 1;
  row->info = size > 1 ? PyMem_Malloc(size) : NULL;
  if (row->info) {
    memcpy(row->info, judgement->info, size);
  }
}

static void rows_clear(struct compare_state *state) {
  for (int64_t i = 0; i < state->row_count; i++) {
    PyMem_Free(state->rows[i].info);
  }
  state->row_count = 0;
}

// As Python's format(value, "10.9f").
static void number_print(char out[64], double value, int width) {
  if (value == 0 && !signbit(value)) {
    memcpy(out, "0.000000000", 12);
  } else if (value == 1) {
    memcpy(out, "1.000000000", 12);
  } else if (isnan(value)) {
    snprintf(out, 64, "%*s", width, "nan");
  } else if (isinf(value)) {
    snprintf(out, 64, "%*s", width, value < 0 ? "-inf" : "inf");
  } else if (fabs(value) < 1e40) {
    snprintf(out, 64, "%*.9f", width, value);
  } else {
    snprintf(out, 64, "%*.9e", width, value);  // 300 digits help nobody
  }
}

#define NAME_WIDTH 30

// `width`: at least so many characters; the original's console pads names, a file has them as they are.
static void name_print(char *out, size_t size, const struct compare_row *row, int width) {
  char text[512];
  if (row->index >= 0) {
    snprintf(text, sizeof text, "%.400s %s[%d]", row->op->name, labels[row->what], (int)row->index);
  } else {
    snprintf(text, sizeof text, "%.400s %s", row->op->name, labels[row->what]);
  }
  snprintf(out, size, "%-*s", width, text);
}

// Minimal quoting, as Python's csv.
static void field_write(FILE *file, const char *text, const char *end) {
  if (strpbrk(text, ",\"\r\n")) {
    fputc('"', file);
    for (const char *at = text; *at; at++) {
      if (*at == '"') {
        fputc('"', file);
      }
      fputc(*at, file);
    }
    fputc('"', file);
  } else {
    fputs(text, file);
  }
  fputs(end, file);
}

// Tolerances are the same from row to row: the last texts are kept. Guarded by the GIL.
static const char *tolerance_print(double value) {
  static struct {
    double value;
    char text[64];
  } last[4] = {{NAN, ""}, {NAN, ""}, {NAN, ""}, {NAN, ""}};
  static unsigned next;
  for (int i = 0; i < 4; i++) {
    if (last[i].value == value) {
      return last[i].text;
    }
  }
  unsigned at = next++ % 4;
  last[at].value = value;
  number_print(last[at].text, value, 10);
  return last[at].text;
}

static void row_write(FILE *file, const struct compare_row *row) {
  char name[512], numbers[3][64];
  name_print(name, sizeof name, row, 0);
  number_print(numbers[0], row->cosine, 1);
  number_print(numbers[1], row->max_abs_diff, 10);
  number_print(numbers[2], row->max_relative_diff, 10);
  fprintf(file, "%llu,", (unsigned long long)row->id);
  field_write(file, name, row->close ? ",True," : ",False,");
  for (int i = 0; i < 3; i++) {
    fputs(numbers[i], file);
    fputc(',', file);
  }
  fputs(tolerance_print(row->atol), file);
  fputc(',', file);
  fputs(tolerance_print(row->rtol), file);
  fputc(',', file);
  field_write(file, row->info ? row->info : "", ",");
  fputs(verdicts[row->verdict], file);
  fputs("\r\n", file);
}

static int folder_make(char *path) {
  for (char *at = path + 1; *at; at++) {
    if (*at == '/') {
      *at = 0;
      int status = mkdir(path, 0777);
      *at = '/';
      if (status < 0 && errno != EEXIST) {
        return -1;
      }
    }
  }
  return 0;
}

// The table of this process: its name is fixed when the first rows are written.
static const char *csv_path(struct compare_state *state) {
  if (state->csv && state->csv_pid == getpid()) {
    return state->csv;
  }
  char stamp[32];
  time_t now = time(NULL);
  struct tm local;
  localtime_r(&now, &local);
  strftime(stamp, sizeof stamp, "%Y-%m-%d-%H-%M-%S", &local);
  size_t size = strlen(state->results) + 160;
  PyMem_Free(state->csv);
  state->csv = PyMem_Malloc(size);
  if (!state->csv) {
    return NULL;
  }
  state->csv_pid = getpid();
  snprintf(state->csv, size, "%s/op_autocompare_result/op_autocompare_info_pid%ld_%s.csv", state->results,
           (long)state->csv_pid, stamp);
  return state->csv;
}

static bool csv_append(struct compare_state *state, const char *path) {
  static const char header[] =
      "forward_id,name,allclose,cosine_similarity,max_abs_diff,max_relative_diff,atol,rtol,error_info,verdict\r\n";
  FILE *file = fopen(path, "ab");
  if (!file && folder_make(state->csv) == 0) {
    file = fopen(path, "ab");
  }
  if (!file) {
    return false;
  }
  long before = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  if (before == 0) {
    fputs(header, file);
  }
  for (int64_t i = 0; i < state->row_count; i++) {
    row_write(file, &state->rows[i]);
  }
  bool failed = ferror(file) != 0;
  failed = fclose(file) != 0 || failed;
  if (failed && before >= 0) {  // no half of a row stays
    int error = errno;
    (void)!truncate(path, before);
    errno = error;
  }
  return !failed;
}

static PyObject *row_describe(const struct compare_row *row) {
  char name[512], cosine[64], numbers[4][64];
  const double values[] = {row->max_abs_diff, row->max_relative_diff, row->atol, row->rtol};
  name_print(name, sizeof name, row, NAME_WIDTH);
  number_print(cosine, row->cosine, 1);
  for (int i = 0; i < 4; i++) {
    number_print(numbers[i], values[i], 10);
  }
  return Py_BuildValue("{s:K,s:s,s:O,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "forward_id", (unsigned long long)row->id, "name",
                       name, "allclose", row->close ? Py_True : Py_False, "cosine_similarity", cosine, "max_abs_diff",
                       numbers[0], "max_relative_diff", numbers[1], "atol", numbers[2], "rtol", numbers[3],
                       "error_info", row->info ? row->info : "", "verdict", verdicts[row->verdict]);
}

PyObject *compare_rows_describe(const struct compare_row *rows, int64_t count) {
  PyObject *py_list = PyList_New((Py_ssize_t)count);
  for (int64_t i = 0; py_list && i < count; i++) {
    PyObject *py_row = row_describe(&rows[i]);
    if (!py_row) {
      Py_CLEAR(py_list);
      break;
    }
    PyList_SET_ITEM(py_list, (Py_ssize_t)i, py_row);
  }
  return py_list;
}

static void console_add(const struct compare_event *event, enum compare_what what, int index,
                        const struct compare_judgement *judgement) {
  struct compare_row row;
  row_set(&row, event, what, index, judgement);
  PyObject *py_row = row_describe(&row);
  if (!py_row || PyList_Append(event->py_rows, py_row) < 0) {
    py_error_drop();
  }
  Py_XDECREF(py_row);
  PyMem_Free(row.info);
}

void compare_report_row(const struct compare_event *event, enum compare_what what, int index,
                        const struct compare_judgement *judgement) {
  struct compare_state *state = event->tool->state;
  if (event->py_rows) {
    console_add(event, what, index, judgement);
  }
  if (!row_is_wanted(state, judgement)) {
    return;
  }
  if (state->log) {
    record_write(event, what, index, judgement);
  }
  if (state->csv_pid && state->csv_pid != getpid()) {  // in a forked child: the parent writes its rows itself
    rows_clear(state);
    state->csv_pid = 0;
  }
  if (state->row_count == state->row_capacity) {
    int64_t capacity = state->row_capacity ? 2 * state->row_capacity : 128;
    struct compare_row *grown = PyMem_Realloc(state->rows, (size_t)capacity * sizeof *grown);
    if (!grown) {
      return;  // the log has it
    }
    state->rows = grown;
    state->row_capacity = capacity;
  }
  row_set(&state->rows[state->row_count++], event, what, index, judgement);
}

void compare_report_settle(struct engine_tool *tool) {
  const struct compare_state *state = tool->state;
  if (state->row_count > state->max_cache) {
    compare_report_flush(tool);
  }
}

void compare_report_flush(struct engine_tool *tool) {
  struct compare_state *state = tool->state;
  if (state->row_count == 0) {
    return;
  }
  const char *path = csv_path(state);
  bool done = path && csv_append(state, path);
  if (!done && !state->csv_failed) {
    char text[600];
    state->csv_failed = true;
    snprintf(text, sizeof text,
             "OpAutoCompare: the table %.300s cannot be written: %s; its rows are in the log; choose another folder "
             "with results=... or OP_TOOLS_RESULTS",
             path ? path : "?", strerror(errno));
    dit_log_write(DIT_LOG_WARNING, "%s", text);
    engine_log_note(text);
  }
  state->rows_written += done ? (uint64_t)state->row_count : 0;
  if (state->py_rows && tool->py_console) {
    PyObject *py_rows = compare_rows_describe(state->rows, state->row_count);
    PyObject *py_done = py_rows ? PyObject_CallFunction(state->py_rows, "Oz", py_rows, done ? path : NULL) : NULL;
    Py_XDECREF(py_rows);
    Py_XDECREF(py_done);
    py_error_drop();
  }
  rows_clear(state);
}

// Findings

static PyObject *shape_describe(const int64_t *values, int count) {
  PyObject *py_list = PyList_New(count);
  for (int i = 0; py_list && i < count; i++) {
    PyList_SET_ITEM(py_list, i, PyLong_FromLongLong(values[i]));
  }
  return py_list;
}

// Row-major number to coordinates.
static PyObject *index_describe(const struct compare_finding *finding) {
  int64_t at[COMPARE_DIMS] = {0}, left = finding->judgement.index;
  int ndim = finding->ndim < COMPARE_DIMS ? finding->ndim : COMPARE_DIMS;
  if (left < 0 || finding->ndim > COMPARE_DIMS) {
    return Py_NewRef(Py_None);
  }
  for (int d = ndim - 1; d >= 0; d--) {
    int64_t size = finding->sizes[d] > 0 ? finding->sizes[d] : 1;
    at[d] = left % size;
    left /= size;
  }
  return shape_describe(at, ndim);
}

static PyObject *finding_describe(const struct compare_state *state, const struct compare_finding *finding) {
  const struct compare_judgement *judgement = &finding->judgement;
  PyObject *module = engine_modules_get(&state->modules, finding->module);
  PyObject *py_dict = Py_BuildValue(
      "{s:s,s:s,s:s,s:i,s:K,s:K,s:L,s:L,s:K,s:K,s:K,s:s,s:O,s:i}", "name", finding->op->name, "kind",
      finding->what == COMPARE_GRAD ? "backward" : "forward", "what", labels[finding->what], "index",
      (int)finding->index, "id", (unsigned long long)finding->id, "last_id", (unsigned long long)finding->last_id,
      "step", (long long)finding->step, "last_step", (long long)finding->last_step, "count",
      (unsigned long long)finding->count, "since", (unsigned long long)finding->since, "times",
      (unsigned long long)finding->times, "location", engine_location_get_text(finding->location), "module",
      module ? module : Py_None, "round", (int)finding->round);
  PyObject *py_more = Py_BuildValue(
      "{s:s,s:N,s:N,s:d,s:d,s:d,s:d,s:d,s:L,s:L,s:O,s:s,s:s,s:d,s:d,s:d,s:O,s:z}", "dtype",
      finding->dtype >= 0 ? dit_dtype_get_name(finding->dtype) : "", "shape",
      shape_describe(finding->sizes, finding->ndim < COMPARE_DIMS ? finding->ndim : COMPARE_DIMS), "at",
      index_describe(finding), "error", judgement->error, "allowed", judgement->allowed, "cpu_error",
      judgement->cpu_error, "value", judgement->value, "reference", judgement->reference, "wrong",
      (long long)judgement->wrong, "numel", (long long)judgement->numel, "allclose",
      judgement->close ? Py_True : Py_False, "reason", judgement->reason, "error_info", judgement->info, "cosine",
      judgement->cosine, "max_abs_diff", judgement->max_abs_diff, "max_relative_diff", judgement->max_relative_diff,
      "bad_inputs", finding->has_bad_inputs ? Py_True : Py_False, "folder", finding->folder);
  if (!py_dict || !py_more || PyDict_Update(py_dict, py_more) < 0) {
    Py_CLEAR(py_dict);
  }
  Py_XDECREF(py_more);
  return py_dict;
}

PyObject *compare_findings_describe(struct compare_state *state) {
  PyObject *py_list = PyList_New(0);
  for (struct compare_finding *finding = state->first_finding; py_list && finding; finding = finding->next) {
    PyObject *py_one = finding_describe(state, finding);
    if (!py_one || PyList_Append(py_list, py_one) < 0) {
      Py_CLEAR(py_list);
    }
    Py_XDECREF(py_one);
  }
  return py_list;
}

static struct compare_finding *finding_find(struct compare_state *state, const struct compare_event *event,
                                            enum compare_what what) {
  for (struct compare_finding *finding = state->first_finding; finding; finding = finding->next) {
    if (finding->op == event->c->op && (finding->what == COMPARE_GRAD) == (what == COMPARE_GRAD) &&
        finding->signature == event->c->signature) {
      return finding;
    }
  }
  return NULL;
}

static char *text_copy(const char *text) {
  char *copy = text ? PyMem_Malloc(strlen(text) + 1) : NULL;
  return copy ? strcpy(copy, text) : NULL;
}

static struct compare_finding *finding_create(struct compare_state *state, const struct compare_event *event,
                                              enum compare_what what, int index, const struct engine_tensor *tensor) {
  if (state->finding_count >= COMPARE_FINDINGS) {
    state->dropped++;
    return NULL;
  }
  struct compare_finding *finding = PyMem_Calloc(1, sizeof *finding);
  if (!finding) {
    return NULL;
  }
  const struct compare_case *c = event->c;
  finding->op = c->op;
  finding->what = (uint8_t)what;
  finding->signature = c->signature;
  finding->id = event->id;
  finding->step = event->step;
  finding->round = event->backward ? event->backward->round : 0;
  finding->location = c->location;
  finding->module = c->module;
  finding->index = index;
  finding->dtype = tensor ? tensor->dtype : -1;
  finding->ndim = tensor && tensor->sizes ? tensor->ndim : 0;
  for (int d = 0; d < finding->ndim && d < COMPARE_DIMS; d++) {
    finding->sizes[d] = tensor->sizes[d];
  }
  if (state->last_finding) {
    state->last_finding->next = finding;
  } else {
    state->first_finding = finding;
  }
  state->last_finding = finding;
  state->finding_count++;
  return finding;
}

static void finding_log(const struct compare_event *event, const struct compare_finding *finding) {
  struct dit_record_builder *builder =
      event->call ? engine_log_begin(event->tool, event->call, ENGINE_RECORD_FINDING)
                  : engine_log_begin_backward(event->tool, event->backward, ENGINE_RECORD_FINDING);
  if (!builder) {
    return;
  }
  const struct compare_judgement *judgement = &finding->judgement;
  const char *kind = finding->what == COMPARE_GRAD ? "backward" : "forward";
  dit_record_field_string(builder, engine_key_kind, kind, strlen(kind));
  dit_record_field_string(builder, engine_key_verdict, "wrong", 5);
  dit_record_field_string(builder, engine_key_what, labels[finding->what], strlen(labels[finding->what]));
  dit_record_field_f64(builder, keys.error_size, judgement->error);
  dit_record_field_f64(builder, keys.allowed, judgement->allowed);
  dit_record_field_i64(builder, keys.wrong, judgement->wrong);
  dit_record_field_i64(builder, keys.numel, judgement->numel);
  dit_record_field_i64(builder, keys.at, judgement->index);
  dit_record_field_string(builder, keys.reason, judgement->reason, strlen(judgement->reason));
  if (finding->folder) {
    dit_record_field_string(builder, engine_key_path, finding->folder, strlen(finding->folder));
  }
  engine_log_commit(builder);
}

int compare_report_wrong(const struct compare_event *event, enum compare_what what, int index,
                         const struct engine_tensor *tensor, const struct compare_judgement *judgement,
                         const char *folder) {
  struct compare_state *state = event->tool->state;
  struct compare_finding *finding = finding_find(state, event, what);
  bool known = finding != NULL;
  finding = known ? finding : finding_create(state, event, what, index, tensor);
  if (!finding) {
    return 0;
  }
  finding->count++;
  finding->last_id = event->id;
  finding->last_step = event->step;
  if (known) {
    return 0;
  }
  const struct compare_op *info = compare_op_find(state, event->c->op);
  int direction = what == COMPARE_GRAD;
  finding->judgement = *judgement;
  finding->has_bad_inputs = event->bad_inputs;
  finding->since = info ? info->first_wrong[direction] : event->id;
  finding->times = info ? info->wrong[direction] : 1;
  finding->folder = text_copy(folder);
  keys_intern();
  finding_log(event, finding);
  if (!state->py_report) {
    return 0;
  }
  PyObject *py_finding = finding_describe(state, finding);
  PyObject *py_answer = py_finding ? PyObject_CallOneArg(state->py_report, py_finding) : NULL;
  Py_XDECREF(py_finding);
  Py_XDECREF(py_answer);
  return py_answer ? 0 : -1;
}

void compare_report_reset(struct compare_state *state) {
  rows_clear(state);
  while (state->first_finding) {
    struct compare_finding *finding = state->first_finding;
    state->first_finding = finding->next;
    PyMem_Free(finding->folder);
    PyMem_Free(finding);
  }
  state->last_finding = NULL;
  state->finding_count = state->dropped = 0;
}
