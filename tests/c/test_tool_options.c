/// Options of the operator tools: schema, every source and its precedence, per-tool defaults, patterns, old names,
/// refusals that name the remedy, and failure without a leak.
#include <unistd.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/options.h"

extern char **environ;

static void start_clean(void) {
  for (char **entry = environ; entry && *entry;) {
    char name[256];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
    if (dit_tool_variable_is_ours(name)) {
      unsetenv(name);
      entry = environ;
    } else {
      entry++;
    }
  }
}

static char toml_path[] = "/tmp/dit_tool_options_XXXXXX";

static const char *put_toml(const char *text) {
  FILE *file = fopen(toml_path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
  return toml_path;
}

static struct dit_tool_options *resolve(enum dit_tool tool, const char *toml) {
  struct dit_tool_options *options = NULL;
  struct dit_error err = {0};
  enum dit_status status = dit_tool_options_create(tool, toml ? put_toml(toml) : NULL, NULL, 0, &options, &err);
  if (status != DIT_OK) {
    fprintf(stderr, "%s\n", err.message);
  }
  CHECK(status == DIT_OK);
  return options;
}

static const struct dit_tool_value *find_value(const struct dit_tool_options *options, const char *name,
                                               const char *key) {
  const struct dit_tool_value *value = NULL;
  for (size_t i = 0; (value = dit_tool_options_get(options, i)); i++) {
    if (strcmp(dit_tool_option_get_info(value->option)->option.name, name) == 0 &&
        (!key || strcmp(value->key, key) == 0)) {
      return value;
    }
  }
  return NULL;
}

/// The option of the tool has this text and this source when resolved from `toml` and the environment.
static void check_value(enum dit_tool tool, const char *toml, const char *name, const char *text,
                        enum dit_option_source source) {
  struct dit_tool_options *options = resolve(tool, toml);
  const struct dit_tool_value *value = find_value(options, name, NULL);
  CHECK(value);
  if (strcmp(value->text, text) != 0 || value->source != source) {
    fprintf(stderr, "%s is '%s' from %d (%s), not '%s'\n", name, value->text, (int)value->source, value->origin, text);
  }
  CHECK(strcmp(value->text, text) == 0 && value->source == source);
  dit_tool_options_destroy(options);
}

static void check_refused(enum dit_tool tool, const char *toml, const char *argument, const char *text,
                          const char *part) {
  struct dit_tool_options *options = NULL;
  struct dit_error err = {0};
  struct dit_tool_argument arguments[] = {{argument, text}};
  enum dit_status status =
      dit_tool_options_create(tool, toml ? put_toml(toml) : NULL, arguments, argument ? 1 : 0, &options, &err);
  CHECK(status == DIT_ERR_INVALID && !options);
  CHECK_CONTAINS(err.message, part);
}

static bool has_earlier(int index, int tool) {
  const char *name = dit_tool_option_get_info(index)->option.name;
  for (int i = 0; i < index; i++) {
    const struct dit_tool_option_info *info = dit_tool_option_get_info(i);
    if (strcmp(info->option.name, name) == 0 && info->tools & 1u << tool) {
      return true;
    }
  }
  return false;
}

static void test_schema(void) {
  start_clean();
  int tools = 0;
  for (; dit_tool_get_name(tools); tools++) {
    CHECK(dit_tool_find(dit_tool_get_name(tools)) == tools);
  }
  CHECK(tools == DIT_TOOL_COUNT && dit_tool_find("nonsense") == -1 && dit_tool_find(NULL) == -1);
  CHECK(!dit_tool_option_get_info(-1) && !dit_tool_option_get_info(dit_tool_option_get_count()));
  for (int i = 0; i < dit_tool_option_get_count(); i++) {
    const struct dit_tool_option_info *info = dit_tool_option_get_info(i);
    const struct dit_option_info *option = &info->option;
    CHECK(info->tools && (option->type == DIT_OPTION_CHOICE) == (option->choices != NULL));
    CHECK(option->help[0] && option->help[strlen(option->help) - 1] == '.');
    CHECK((info->scope >= DIT_SCOPE_NAMED) == (option->environment != NULL));
    for (int tool = 0; tool < DIT_TOOL_COUNT; tool++) {
      CHECK(!(info->tools & 1u << tool) || !has_earlier(i, tool));
    }
  }
  for (int tool = 0; tool < DIT_TOOL_COUNT; tool++) {  // every default is a valid value
    struct dit_tool_options *options = resolve((enum dit_tool)tool, NULL);
    const struct dit_tool_value *value = NULL;
    for (size_t i = 0; (value = dit_tool_options_get(options, i)); i++) {
      CHECK(value->source == DIT_SOURCE_DEFAULT && dit_tool_option_get_info(value->option)->tools & 1u << tool);
    }
    CHECK((find_value(options, "console", NULL) != NULL) == (tool != DIT_TOOL_PROCESS_MONITOR));
    dit_tool_options_destroy(options);
  }
}

/// Every variable of the original is known, with its name and its default.
static void test_reference_variables(void) {
  start_clean();
  static const char *const tools[] = {"CAPTURE",      "FALLBACK",   "AUTOCOMPARE",   "OBSERVE",
                                      "TIME_MEASURE", "DTYPE_CAST", "OVERFLOW_CHECK"};
  for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
    char name[64];
    snprintf(name, sizeof(name), "OP_%s_LIST", tools[i]);
    CHECK(setenv(name, "torch.add", 1) == 0);
    snprintf(name, sizeof(name), "OP_%s_DISABLE_LIST", tools[i]);
    CHECK(setenv(name, "torch.mul", 1) == 0);
  }
  static const char *const others[][2] = {{"OP_TOOLS_PRINT_STACK", "1"},
                                          {"OP_TOOLS_MAX_CACHE_SIZE", "1000"},
                                          {"OP_TOOLS_GARBAGE_COLLECTION_CYCLE", "50"},
                                          {"OP_DISPATCH_WATCH_LIST", "x"},
                                          {"OP_DISPATCH_WATCH_DISABLE_LIST", "x"},
                                          {"OP_DTYPE_CAST_DICT", "torch.half -> torch.float32"},
                                          {"STD_OP_DTYPE_CAST_DICT", "torch.float16->torch.float64"},
                                          {"AUTOCOMPARE_ERROR_TOLERANCE", "1e-3,1e-3"},
                                          {"AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "0.1, 2"},
                                          {"LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "1e-2,1e-2"},
                                          {"label", "night"}};
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
    CHECK(dit_tool_variable_is_ours(others[i][0]) && setenv(others[i][0], others[i][1], 1) == 0);
  }
  check_value(DIT_TOOL_OBSERVE, NULL, "list", "torch.add", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_DTYPE_CAST, NULL, "dtype_cast_dict", "torch.half -> torch.float32", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_AUTOCOMPARE, NULL, "error_tolerance_bfloat16", "0.1, 2", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_PROCESS_MONITOR, NULL, "label", "night", DIT_SOURCE_ENVIRONMENT);
  struct dit_tool_options *options = resolve(DIT_TOOL_AUTOCOMPARE, NULL);
  const struct dit_tool_value *value = find_value(options, "op_dtype_cast_dict", "STD");
  CHECK(value && strcmp(value->text, "torch.float16->torch.float64") == 0);
  value = find_value(options, "op_dtype_cast_dict", "CROSS_ENTROPY");
  CHECK(value && value->source == DIT_SOURCE_DEFAULT);
  value = find_value(options, "op_error_tolerance_bfloat16", "LINEAR");
  CHECK(value && strcmp(value->text, "1e-2,1e-2") == 0);
  dit_tool_options_destroy(options);
  CHECK(!dit_tool_variable_is_ours("PATH") && !dit_tool_variable_is_ours("OP_OTHER") &&
        !dit_tool_variable_is_ours("DITORCH_BACKEND"));
}

/// I15: one variable, three defaults; the first tool that asks does not decide for the others.
static void test_i15_defaults_per_tool(void) {
  start_clean();
  check_value(DIT_TOOL_AUTOCOMPARE, NULL, "max_cache_size", "100", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_TIME_MEASURE, NULL, "max_cache_size", "5000", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_PROCESS_MONITOR, NULL, "max_cache_size", "1", DIT_SOURCE_DEFAULT);
  CHECK(!getenv("OP_TOOLS_MAX_CACHE_SIZE"));
  CHECK(setenv("OP_TOOLS_MAX_CACHE_SIZE", "7", 1) == 0);
  check_value(DIT_TOOL_AUTOCOMPARE, NULL, "max_cache_size", "7", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_TIME_MEASURE, NULL, "max_cache_size", "7", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_PROCESS_MONITOR, NULL, "max_cache_size", "7", DIT_SOURCE_ENVIRONMENT);
}

static void test_precedence(void) {
  start_clean();
  const char *common = "[op_tools]\nconsole = 'off'\n";
  const char *both = "[op_tools]\nconsole = 'off'\n[op_tools.capture]\nconsole = 'full'\nlayout = 'packed'\n";
  check_value(DIT_TOOL_CAPTURE, NULL, "console", "short", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_CAPTURE, common, "console", "off", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_CAPTURE, both, "console", "full", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_CAPTURE, both, "layout", "packed", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_OBSERVE, both, "console", "off", DIT_SOURCE_FILE);
  CHECK(setenv("OP_TOOLS_CONSOLE", "short", 1) == 0);
  check_value(DIT_TOOL_CAPTURE, both, "console", "short", DIT_SOURCE_ENVIRONMENT);
  CHECK(setenv("OP_CAPTURE_CONSOLE", "OFF", 1) == 0);
  check_value(DIT_TOOL_CAPTURE, both, "console", "off", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_OBSERVE, both, "console", "short", DIT_SOURCE_ENVIRONMENT);
  struct dit_tool_options *options = NULL;
  struct dit_tool_argument arguments[] = {{"console", "full"}, {"every", "3"}};
  struct dit_error err = {0};
  CHECK_OK(dit_tool_options_create(DIT_TOOL_CAPTURE, toml_path, arguments, 2, &options, &err));
  const struct dit_tool_value *value = find_value(options, "console", NULL);
  CHECK(strcmp(value->text, "full") == 0 && value->source == DIT_SOURCE_ARGUMENT && value->number == 1);
  CHECK(strcmp(value->origin, "option 'console'") == 0 && find_value(options, "every", NULL)->number == 3);
  dit_tool_options_destroy(options);
}

static void test_old_names(void) {
  start_clean();
  CHECK(setenv("OP_DISPATCH_WATCH_LIST", "torch.old", 1) == 0);
  check_value(DIT_TOOL_OBSERVE, NULL, "list", "torch.old", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_CAPTURE, NULL, "list", ".*", DIT_SOURCE_DEFAULT);
  CHECK(setenv("OP_OBSERVE_LIST", "torch.new", 1) == 0);
  check_value(DIT_TOOL_OBSERVE, NULL, "list", "torch.new", DIT_SOURCE_ENVIRONMENT);
}

/// An empty enable list disables the tool; other empty variables are unset ones.
static void test_empty(void) {
  start_clean();
  CHECK(setenv("OP_OBSERVE_LIST", "", 1) == 0 && setenv("OP_OBSERVE_INCLUDE", "", 1) == 0);
  CHECK(setenv("OP_OBSERVE_EVERY", "", 1) == 0 && setenv("OP_OBSERVE_NONSENSE", "", 1) == 0);
  check_value(DIT_TOOL_OBSERVE, NULL, "list", "", DIT_SOURCE_ENVIRONMENT);
  check_value(DIT_TOOL_OBSERVE, NULL, "include", "", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_OBSERVE, NULL, "every", "1", DIT_SOURCE_DEFAULT);
}

static void test_unknown_variables(void) {
  static const char *const cases[][2] = {
      {"OP_TOOLS_CONSOL", "did you mean OP_TOOLS_CONSOLE?"},
      {"OP_OBSERVE_LISTS", "did you mean OP_OBSERVE_LIST?"},
      {"OP_OBSERVE_LAYOUT", "is not an option of the operator tools"},
      {"OP_TOOLS_LAYOUT", "is not an option of the operator tools"},
      {"OP_PROCESS_MONITOR_CONSOLE", "is not an option of the operator tools"},
      {"OP_CAPTURE_SYNC", "is not an option of the operator tools"},
      {"OP_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", "did you mean AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16?"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    start_clean();
    CHECK(setenv(cases[i][0], "1", 1) == 0);
    check_refused(DIT_TOOL_OBSERVE, NULL, NULL, NULL, cases[i][0]);
    check_refused(DIT_TOOL_OBSERVE, NULL, NULL, NULL, cases[i][1]);
  }
  start_clean();
  CHECK(setenv("OPERATOR_OPTION", "1", 1) == 0 && setenv("OP_SOMETHING", "1", 1) == 0);
  dit_tool_options_destroy(resolve(DIT_TOOL_OBSERVE, NULL));  // foreign variables are not ours to judge
}

static void test_bad_values(void) {
  start_clean();
  CHECK(setenv("OP_OBSERVE_CONSOLE", "loud", 1) == 0);
  check_refused(DIT_TOOL_OBSERVE, NULL, NULL, NULL,
                "environment variable OP_OBSERVE_CONSOLE is 'loud'; valid values are short|full|off");
  dit_tool_options_destroy(resolve(DIT_TOOL_CAPTURE, NULL));
  start_clean();
  check_refused(DIT_TOOL_OBSERVE, NULL, "every", "0", "option 'every' is '0'; valid values are from 1 to");
  check_refused(DIT_TOOL_OBSERVE, NULL, "stps", "1", "'stps' is not an option of observe; did you mean 'steps'?");
  check_refused(DIT_TOOL_OBSERVE, NULL, "layout", "files", "'layout' is an option of capture, not of observe");
  check_refused(DIT_TOOL_OBSERVE, NULL, "level", NULL, "option 'level' has no value");
}

static void test_syntax(void) {
  static const struct {
    const char *name;
    const char *good[8], *bad[12];
  } cases[] = {
      {"steps",
       {"", "0", "4-6,9", " 4-6 , 9 ", "20-", "7-7", "100000000000000000"},
       {"a", "6-4", "-3", "4-6,", ",", "4--6", "1.5", "4 - 6", "9999999999999999999", "4-6-8"}},
      {"dtype_cast_dict",
       {"", "torch.float16->torch.float32", "torch.half -> torch.float , a->b"},
       {"torch.float16", "->torch.float32", "torch.float16->", "torch..x->y", "a->b,", "a b->c", "a->b->c", ".a->b"}},
      {"error_tolerance",
       {"", "1e-3,1e-3", "0.1, 2", "1.,.5", "1E+2,0"},
       {"1e-3", "1,2,3", "-1,1", "nan,1", "1e,1", "1,", "1e9999,1", "0x1,1"}},
  };
  start_clean();
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    for (const char *const *text = cases[i].good; *text; text++) {
      struct dit_tool_options *options = NULL;
      struct dit_tool_argument arguments[] = {{cases[i].name, *text}};
      struct dit_error err = {0};
      CHECK_OK(dit_tool_options_create(DIT_TOOL_AUTOCOMPARE, NULL, arguments, 1, &options, &err));
      dit_tool_options_destroy(options);
    }
    for (const char *const *text = cases[i].bad; *text; text++) {
      check_refused(DIT_TOOL_AUTOCOMPARE, NULL, cases[i].name, *text, cases[i].name);
      check_refused(DIT_TOOL_AUTOCOMPARE, NULL, cases[i].name, *text, "such as");
    }
  }
}

static void test_file(void) {
  start_clean();
  check_value(DIT_TOOL_OBSERVE, "[op_tools.observe]\nlist = ['torch.add', 'a{1,2}']\n", "list", "torch.add,a{1,2}",
              DIT_SOURCE_FILE);
  check_value(DIT_TOOL_OBSERVE, "[op_tools]\nsteps = [4, '6-7']\n", "steps", "4,6-7", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_OBSERVE, "[op_tools]\nsteps = 4\n", "steps", "4", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_OBSERVE, "[op_tools]\nlog_queue = '1MiB'\ncpu = true\n", "log_queue", "1MiB", DIT_SOURCE_FILE);
  check_value(DIT_TOOL_CAPTURE, "[op_tools.observe]\nevery = 5\n", "every", "1", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_OBSERVE, "[ditorch]\nbackend = 'host'\n[other]\nx = 1\n", "every", "1", DIT_SOURCE_DEFAULT);
  check_value(DIT_TOOL_AUTOCOMPARE, "[op_tools.autocompare]\nstd_op_dtype_cast_dict = 'a->b'\n", "list", ".*",
              DIT_SOURCE_DEFAULT);
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\neveryy = 3\n", NULL, NULL,
                ":2:1: 'everyy' is not an option of the operator tools; did you mean 'every'?");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\nlayout = 'files'\n", NULL, NULL,
                "'layout' is an option of capture alone");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools.capture]\nsync = true\n", NULL, NULL,
                "'sync' is an option of time_measure, not of capture");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools.captur]\nlayout = 'files'\n", NULL, NULL,
                "'captur.layout' is not an option");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools.process_monitor]\nlabel = 'x'\n", NULL, NULL,
                "'process_monitor.label' is not");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\ncpu = 'maybe'\n", NULL, NULL, ":2:1: option 'cpu' is 'maybe'");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\nlevel = 3\n", NULL, NULL, "is an integer; it must be a string");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\nlevel = ['torch']\n", NULL, NULL, "is an array; it must be a string");
  check_refused(DIT_TOOL_OBSERVE, "[op_tools]\ninclude = ['a', 3]\n", NULL, NULL, "has an integer in its array");
  check_refused(DIT_TOOL_OBSERVE, "op_tools = 3\n", NULL, NULL, "'op_tools' must be a table");
  struct dit_tool_options *options = resolve(DIT_TOOL_AUTOCOMPARE, "[op_tools]\nstd_op_dtype_cast_dict = 'a->b'\n");
  const struct dit_tool_value *value = find_value(options, "op_dtype_cast_dict", "STD");
  CHECK(value && value->source == DIT_SOURCE_FILE && strcmp(value->text, "a->b") == 0);
  dit_tool_options_destroy(options);
  struct dit_error err = {0};
  CHECK(dit_tool_options_create(DIT_TOOL_OBSERVE, "/nonexistent/x.toml", NULL, 0, &options, &err) == DIT_ERR_IO);
  CHECK(dit_tool_options_create(DIT_TOOL_COUNT, NULL, NULL, 0, &options, &err) == DIT_ERR_INVALID);
}

/// Every allocation fails once: no leak.
static void test_no_memory(void) {
  start_clean();
  CHECK(setenv("STD_OP_DTYPE_CAST_DICT", "a->b", 1) == 0 && setenv("OP_TOOLS_STEPS", "1-3", 1) == 0);
  const char *path = put_toml("[op_tools]\nsteps = [1, 2]\nevery = 2\n[op_tools.autocompare]\nlist = ['a', 'b']\n");
  struct dit_tool_argument arguments[] = {{"cpu", "1"}};
  int64_t live = dit_alloc_get_live();
  struct dit_tool_options *options = NULL;
  struct dit_error err = {0};
  int failures = 0;
  for (enum dit_status status = DIT_ERR_NOMEM; status != DIT_OK;) {
    dit_alloc_set_failure(failures);
    status = dit_tool_options_create(DIT_TOOL_AUTOCOMPARE, path, arguments, 1, &options, &err);
    dit_alloc_set_failure(-1);
    if (status != DIT_OK) {
      CHECK(status == DIT_ERR_NOMEM && !options && dit_alloc_get_live() == live);
      CHECK(++failures < 10000);
    }
  }
  CHECK(failures > 50);
  dit_tool_options_destroy(options);
  dit_tool_options_destroy(NULL);
  CHECK(dit_alloc_get_live() == live);
}

int main(void) {
  int file = mkstemp(toml_path);
  CHECK(file >= 0);
  close(file);
  RUN(test_schema);
  RUN(test_reference_variables);
  RUN(test_i15_defaults_per_tool);
  RUN(test_precedence);
  RUN(test_old_names);
  RUN(test_empty);
  RUN(test_unknown_variables);
  RUN(test_bad_values);
  RUN(test_syntax);
  RUN(test_file);
  RUN(test_no_memory);
  start_clean();
  CHECK(unlink(toml_path) == 0);
  return 0;
}
