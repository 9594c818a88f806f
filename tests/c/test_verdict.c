/// The verdict with runs that a test hands out: what is asked for, what is missing, what fails, threads.
///
/// The "operator" of these tests is y = x with an error of the test's choice per run, so that every number of the rule
/// is known: no operator of a framework is needed.
#include <math.h>
#include <pthread.h>

#include "check.h"
#include "dit/alloc.h"
#include "dit/dit.h"
#include "dit/verdict.h"

#define MOST 256
#define RUNS 6

/// The runs of one call and a protocol of what was asked.
struct script {
  struct dit_tensor_view run[RUNS];  ///< by kind
  enum dit_status status[RUNS];      ///< instead of it
  int asked[RUNS];
  struct dit_verdict_arguments arguments;
  enum dit_status arguments_status;
  int arguments_asked;
  bool is_rough;  ///< another device than the embedded one
  uint64_t seeds[32];
  int seed_count;
};

static struct dit_tensor_view view_make(void *data, int dtype, int64_t *count) {
  static const int64_t one = 1;
  return (struct dit_tensor_view){.data = data,
                                  .dtype = dtype,
                                  .ndim = 1,
                                  .numel = *count,
                                  .sizes = count,
                                  .strides = &one,
                                  .flags = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE};
}

static enum dit_status script_run(void *context, const struct dit_verdict_request *request, int index,
                                  struct dit_tensor_view *value, struct dit_error *err) {
  struct script *script = context;
  CHECK(index == 0);
  script->asked[request->kind]++;
  if (request->seed && script->seed_count < 32) {
    script->seeds[script->seed_count++] = request->seed;
  }
  if (script->status[request->kind] != DIT_OK) {
    return dit_error_set(err, script->status[request->kind], "no run of kind %d", (int)request->kind);
  }
  if (!script->run[request->kind].data) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "the test has no run of kind %d", (int)request->kind);
  }
  *value = script->run[request->kind];
  return DIT_OK;
}

static enum dit_status script_run_nothing(void *context, const struct dit_verdict_request *request, int index,
                                          struct dit_tensor_view *value, struct dit_error *err) {
  (void)context, (void)request, (void)index, (void)value;
  return dit_error_set(err, DIT_ERR_UNSUPPORTED, "there is none");
}

static enum dit_status script_arguments(void *context, struct dit_verdict_arguments *arguments, struct dit_error *err) {
  struct script *script = context;
  script->arguments_asked++;
  CHECK(arguments->index == -1 && arguments->input_count == 0 && !arguments->has_dim);
  if (script->arguments_status != DIT_OK) {
    return dit_error_set(err, script->arguments_status, "no arguments");
  }
  *arguments = script->arguments;
  return DIT_OK;
}

/// Numbers of full significand, in float32 and float64.
struct numbers {
  int64_t count;
  float device[MOST], first[MOST], native[MOST];
  double wide[MOST], shaken[MOST];
};

static void numbers_init(struct numbers *numbers, int64_t count) {
  numbers->count = count;
  for (int64_t i = 0; i < count; i++) {
    numbers->wide[i] = numbers->shaken[i] = 1.0 + (double)(2 * i + 1) * 0x1p-12 + 0x1p-30 / 3;
    numbers->device[i] = numbers->first[i] = numbers->native[i] = (float)numbers->wide[i];
  }
}

static void script_init(struct script *script, struct numbers *numbers) {
  *script = (struct script){.arguments = {.index = -1}};
  script->run[DIT_RUN_WIDE] = view_make(numbers->wide, DIT_DTYPE_F64, &numbers->count);
  script->run[DIT_RUN_NATIVE] = view_make(numbers->native, DIT_DTYPE_F32, &numbers->count);
}

static void begin(struct numbers *numbers, struct script *script, int64_t count) {
  numbers_init(numbers, count);
  script_init(script, numbers);
}

static enum dit_status judge(const char *name, enum dit_verdict_what what, struct script *script,
                             struct numbers *numbers, struct dit_verdict_result *result, struct dit_error *err) {
  const struct dit_verdict_source source = {script, script_run, script_arguments};
  const struct dit_verdict_case c = {.op = dit_operator_find(name),
                                     .traits = dit_operator_get_traits(name),
                                     .what = what,
                                     .is_careful = !script->is_rough,
                                     .seed = 7};
  const struct dit_tensor_view device = view_make(numbers->device, DIT_DTYPE_F32, &numbers->count);
  const struct dit_tensor_view first = view_make(numbers->first, DIT_DTYPE_F32, &numbers->count);
  return dit_verdict_judge(&c, &source, &device, &first, result, err);
}

static enum dit_verdict judge_output(const char *name, struct script *script, struct numbers *numbers) {
  struct dit_verdict_result result;
  struct dit_error err = {0};
  CHECK_OK(judge(name, DIT_VERDICT_OUTPUT, script, numbers, &result, &err));
  CHECK(result.numel == numbers->count);
  CHECK((result.verdict == DIT_VERDICT_WRONG) == (result.wrong > 0));
  return result.verdict;
}

static int count_runs(const struct script *script) {
  int count = 0;
  for (int i = 0; i < RUNS; i++) {
    count += script->asked[i];
  }
  return count;
}

// What is asked for

static void test_equal_values_ask_for_nothing(void) {
  struct numbers numbers;
  struct script script;
  begin(&numbers, &script, 100);
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
  CHECK(count_runs(&script) == 0 && script.arguments_asked == 0);
}

static void test_an_error_of_the_cpus_size_is_right_after_two_runs(void) {
  struct numbers numbers;
  struct script script;
  begin(&numbers, &script, 100);
  numbers.native[3] += 0x1p-20F;
  numbers.device[50] += 3 * 0x1p-20F;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
  CHECK(script.asked[DIT_RUN_WIDE] == 1 && script.asked[DIT_RUN_NATIVE] == 1 && count_runs(&script) == 2);
}

static void test_an_error_beyond_it_is_wrong_and_told(void) {
  struct numbers numbers;
  struct script script;
  struct dit_verdict_result result;
  struct dit_error err = {0};
  begin(&numbers, &script, 100);
  numbers.native[3] += 0x1p-20F;
  numbers.device[50] += 6 * 0x1p-20F;
  CHECK_OK(judge("torch.exp", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_WRONG && result.wrong == 1 && result.index == 50 && result.has_wide);
  CHECK(result.error > result.allowed && result.allowed > 0x1p-19 && result.cpu_error < 0x1.2p-20);
  CHECK(result.value == numbers.device[50] && result.reference == numbers.wide[50]);
  CHECK_CONTAINS(result.reason, "the CPU's own error");
}

static void test_the_arguments_are_asked_for_once_and_only_of_the_suspicious(void) {
  struct numbers numbers;
  struct script script;
  begin(&numbers, &script, 100);
  numbers.native[3] += 0x1p-20F;
  numbers.device[50] += 1;
  CHECK(judge_output("torch.sum", &script, &numbers) == DIT_VERDICT_WRONG);
  CHECK(script.arguments_asked == 1);
}

static void test_runs_nearby_have_seeds_of_their_own(void) {
  struct numbers numbers;
  struct script script;
  begin(&numbers, &script, 8);  // thin
  numbers.native[3] += 0x1p-20F;
  script.run[DIT_RUN_JITTER] = script.run[DIT_RUN_NATIVE];
  script.run[DIT_RUN_JITTER_WIDE] = script.run[DIT_RUN_WIDE];
  numbers.device[5] += 1;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_WRONG);
  CHECK(script.asked[DIT_RUN_JITTER] == DIT_VERDICT_ROUNDS && script.asked[DIT_RUN_JITTER_WIDE] == DIT_VERDICT_ROUNDS);
  for (int i = 0; i < script.seed_count; i++) {
    for (int j = 0; j < i; j++) {
      CHECK((script.seeds[i] == script.seeds[j]) == (i / 2 == j / 2));  // both runs of a pair have the same inputs
    }
  }
}

static void test_evidence_of_runs_nearby_acquits(void) {
  struct numbers numbers;
  struct script script;
  float noisy[MOST];
  begin(&numbers, &script, 8);
  memcpy(noisy, numbers.native, sizeof noisy);
  noisy[0] += 0x1p-18F;
  numbers.native[3] += 0x1p-22F;
  numbers.device[5] += 3 * 0x1p-18F;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_WRONG);  // there are no further runs
  script.run[DIT_RUN_JITTER] = view_make(noisy, DIT_DTYPE_F32, &numbers.count);
  script.run[DIT_RUN_JITTER_WIDE] = script.run[DIT_RUN_WIDE];
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
}

static void test_another_way_of_the_cpu_counts(void) {
  struct numbers numbers;
  struct script script;
  float other[MOST];
  begin(&numbers, &script, 100);
  memcpy(other, numbers.native, sizeof other);
  other[9] += 0x1p-12F;
  numbers.native[3] += 0x1p-22F;
  numbers.device[50] += 3 * 0x1p-12F;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_WRONG);
  script.run[DIT_RUN_OTHER] = view_make(other, DIT_DTYPE_F32, &numbers.count);
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
}

static void test_conditioning_acquits_sums(void) {
  struct numbers numbers;
  struct script script;
  int64_t many = 100 * 64;
  const struct dit_tensor_view input = view_make(numbers.wide, DIT_DTYPE_F32, &many);
  begin(&numbers, &script, 100);
  numbers.native[3] += 0x1p-22F;
  numbers.shaken[20] += 0x1p-14;
  numbers.device[50] += 3 * 0x1p-14F;
  CHECK(judge_output("torch.sum", &script, &numbers) == DIT_VERDICT_WRONG);
  script.run[DIT_RUN_SHAKEN] = view_make(numbers.shaken, DIT_DTYPE_F64, &numbers.count);
  script.arguments = (struct dit_verdict_arguments){.inputs = &input, .input_count = 1, .index = -1};
  CHECK(judge_output("torch.sum", &script, &numbers) == DIT_VERDICT_RIGHT);
}

// What is missing or fails

static void test_without_a_reference_nothing_is_decided(void) {
  struct numbers numbers;
  struct script script;
  struct dit_verdict_result result;
  struct dit_error err = {0};
  begin(&numbers, &script, 100);
  script.status[DIT_RUN_WIDE] = DIT_ERR_UNSUPPORTED;
  numbers.device[0] = 7;
  CHECK_OK(judge("torch.exp", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_UNKNOWN && !result.has_wide && result.wrong == 0);
  CHECK_CONTAINS(result.reason, "no float64 reference: no run of kind 0");
}

static void test_without_the_cpus_error_roundings_are_all_there_is(void) {
  struct numbers numbers;
  struct script script;
  begin(&numbers, &script, 100);
  script.status[DIT_RUN_NATIVE] = DIT_ERR_UNSUPPORTED;
  numbers.device[50] += 0x1p-22F;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
  numbers.device[50] += 0x1p-18F;
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_WRONG);
}

static void test_a_run_of_another_shape_is_none(void) {
  struct numbers numbers;
  struct script script;
  int64_t fewer = 50;
  begin(&numbers, &script, 100);
  numbers.device[50] += 1;
  script.run[DIT_RUN_WIDE] = view_make(numbers.wide, DIT_DTYPE_F64, &fewer);
  CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_UNKNOWN);
}

static void test_errors_of_the_caller_end_the_judgement(void) {
  static const enum dit_verdict_run kinds[] = {DIT_RUN_WIDE,        DIT_RUN_NATIVE, DIT_RUN_OTHER,
                                               DIT_RUN_JITTER_WIDE, DIT_RUN_JITTER, DIT_RUN_SHAKEN};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    struct numbers numbers;
    struct script script;
    struct dit_verdict_result result;
    struct dit_error err = {0};
    begin(&numbers, &script, 8);
    numbers.native[3] += 0x1p-20F;
    numbers.device[5] += 1;
    script.run[DIT_RUN_JITTER] = script.run[DIT_RUN_NATIVE];
    script.run[DIT_RUN_JITTER_WIDE] = script.run[DIT_RUN_WIDE];
    script.status[kinds[i]] = DIT_ERR_IO;
    CHECK(judge("torch.mm", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err) == DIT_ERR_IO);
    CHECK_CONTAINS(err.message, "no run of kind");
    CHECK(judge("torch.mm", DIT_VERDICT_OUTPUT, &script, &numbers, &result, NULL) == DIT_ERR_IO);
    script.status[kinds[i]] = DIT_OK;
    script.arguments_status = DIT_ERR_NOMEM;
    CHECK(judge("torch.mm", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err) == DIT_ERR_NOMEM);
  }
}

// Kinds of operators and values

static void test_exact_operators_must_be_exact(void) {
  static const int64_t counts[] = {100, 1};  // also where few numbers prove nothing: the table says it
  for (int i = 0; i < 2; i++) {
    struct numbers numbers;
    struct script script;
    numbers_init(&numbers, counts[i]);
    for (int64_t k = 0; k < counts[i]; k++) {
      numbers.wide[k] = numbers.native[k] = numbers.device[k];
    }
    script_init(&script, &numbers);
    numbers.device[0] = nextafterf(numbers.device[0], 9);
    CHECK(judge_output("torch.relu", &script, &numbers) == DIT_VERDICT_WRONG);
  }
}

static void test_exactness_is_proved_by_full_significands(void) {
  struct numbers numbers;
  struct script script;
  numbers_init(&numbers, 100);
  for (int i = 0; i < 100; i++) {
    numbers.first[i] = numbers.native[i] = numbers.device[i] = 1 + (float)(2 * i + 1) * 0x1p-23F;
    numbers.wide[i] = numbers.native[i];
  }
  script_init(&script, &numbers);
  numbers.device[7] += 0x1p-23F;
  CHECK(judge_output("no_such_operator", &script, &numbers) == DIT_VERDICT_WRONG);
  for (int i = 0; i < 100; i++) {
    numbers.first[i] = numbers.native[i] = numbers.device[i] = 1 + (float)i * 0x1p-8F;  // rounding could hide here
    numbers.wide[i] = numbers.native[i];
  }
  numbers.device[7] += 0x1p-23F;
  CHECK(judge_output("no_such_operator", &script, &numbers) == DIT_VERDICT_RIGHT);
}

static void test_nan_and_infinities(void) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    struct numbers numbers;
    struct script script;
    struct dit_verdict_result result;
    struct dit_error err = {0};
    begin(&numbers, &script, 100);
    numbers.device[4] = bad[i];
    CHECK_OK(judge("torch.linalg.eigh", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err));
    CHECK(result.verdict == DIT_VERDICT_WRONG && result.index == 4);
    CHECK_CONTAINS(result.reason, "where the CPU has");
    numbers.native[4] = bad[i];  // the CPU makes it, too
    CHECK(judge_output("torch.exp", &script, &numbers) == DIT_VERDICT_RIGHT);
  }
}

/// Sums of products whose arguments are not finite, or too large for the sums on the way.
static void test_infinities_of_sums(void) {
  struct numbers numbers;
  struct script script;
  float large[2] = {1e25F, -2e20F}, bad[2] = {1, NAN}, modest[2] = {1e15F, 1};
  int64_t two = 2;
  const struct dit_tensor_view inputs[3] = {view_make(large, DIT_DTYPE_F32, &two), view_make(bad, DIT_DTYPE_F32, &two),
                                            view_make(modest, DIT_DTYPE_F32, &two)};
  static const struct {
    const char *name;
    int input;
    enum dit_verdict embedded, other;  ///< device
  } rows[] = {
      {"torch.mm", 0, DIT_VERDICT_RIGHT, DIT_VERDICT_RIGHT},
      {"torch.mm", 1, DIT_VERDICT_WRONG, DIT_VERDICT_WRONG},
      {"torch.mm", 2, DIT_VERDICT_WRONG, DIT_VERDICT_WRONG},
      {"torch.conv2d", 1, DIT_VERDICT_WRONG, DIT_VERDICT_RIGHT},
      {"torch.conv2d", 2, DIT_VERDICT_WRONG, DIT_VERDICT_WRONG},
      {"torch.nn.functional.layer_norm", 0, DIT_VERDICT_RIGHT, DIT_VERDICT_RIGHT},
      {"torch.exp", 0, DIT_VERDICT_WRONG, DIT_VERDICT_WRONG},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct dit_tensor_view pair[2] = {inputs[rows[i].input], inputs[rows[i].input]};
    numbers_init(&numbers, 100);
    script_init(&script, &numbers);
    numbers.device[4] = -INFINITY;
    numbers.device[9] = NAN;
    script.arguments = (struct dit_verdict_arguments){.inputs = pair, .input_count = 2, .index = -1};
    CHECK(judge_output(rows[i].name, &script, &numbers) == rows[i].embedded);
    numbers.native[9] = NAN;  // a NaN that the CPU makes, too, does not close the eyes to the infinity beside it
    CHECK(judge_output(rows[i].name, &script, &numbers) == rows[i].embedded);
    script.is_rough = true;
    CHECK(judge_output(rows[i].name, &script, &numbers) == rows[i].other);
    numbers.device[50] += 1;  // the others are judged as ever
    CHECK(judge_output(rows[i].name, &script, &numbers) == DIT_VERDICT_WRONG);
  }
  numbers_init(&numbers, 100);  // the gradient of a convolution: where the CPU multiplies a NaN by the padding
  script_init(&script, &numbers);
  script.is_rough = true;
  script.arguments = (struct dit_verdict_arguments){.inputs = inputs + 2, .input_count = 1, .index = -1};
  numbers.wide[3] = numbers.first[3] = numbers.native[3] = NAN;
  CHECK(judge_output("torch.conv2d", &script, &numbers) == DIT_VERDICT_RIGHT);
  CHECK(judge_output("torch.mm", &script, &numbers) == DIT_VERDICT_WRONG);
}

static void test_loose_results_are_undecided(void) {
  struct numbers numbers;
  struct script script;
  struct dit_verdict_result result;
  struct dit_error err = {0};
  begin(&numbers, &script, 100);
  numbers.device[4] = -numbers.device[4];
  CHECK_OK(judge("torch.linalg.qr", DIT_VERDICT_OUTPUT, &script, &numbers, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_UNKNOWN && result.reason[0] && count_runs(&script) == 0);
}

static void test_integers_are_equal_or_wrong(void) {
  int64_t count = 3, device[] = {1, 2, 4}, first[] = {1, 2, 3};
  struct script script = {.arguments = {.index = -1}};
  const struct dit_verdict_source source = {&script, script_run, script_arguments};
  const struct dit_verdict_case c = {.op = dit_operator_find("torch.add")};
  const struct dit_tensor_view mine = view_make(device, DIT_DTYPE_I64, &count);
  const struct dit_tensor_view theirs = view_make(first, DIT_DTYPE_I64, &count);
  struct dit_verdict_result result;
  struct dit_error err = {0};
  CHECK_OK(dit_verdict_judge(&c, &source, &mine, &theirs, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_WRONG && result.index == 2 && result.value == 4 && result.reference == 3);
  script.run[DIT_RUN_NATIVE] = mine;  // float64 and the program's dtypes may disagree about an integer
  CHECK_OK(dit_verdict_judge(&c, &source, &mine, &theirs, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_RIGHT);
  int64_t fewer = 2;
  const struct dit_tensor_view shorter = view_make(first, DIT_DTYPE_I64, &fewer);
  CHECK_OK(dit_verdict_judge(&c, &source, &mine, &shorter, &result, &err));
  CHECK(result.verdict == DIT_VERDICT_WRONG);
  CHECK_CONTAINS(result.reason, "another shape");
}

static enum dit_verdict choice_judge(const char *name, int index, struct dit_verdict_arguments arguments,
                                     const struct dit_tensor_view *device, const struct dit_tensor_view *first) {
  struct script script = {.arguments = arguments};
  const struct dit_verdict_source source = {&script, script_run_nothing, script_arguments};
  const struct dit_verdict_case c = {.op = dit_operator_find(name),
                                     .traits = dit_operator_get_traits(name),
                                     .what = DIT_VERDICT_OUTPUT,
                                     .index = index};
  struct dit_verdict_result result;
  struct dit_error err = {0};
  CHECK_OK(dit_verdict_judge(&c, &source, device, first, &result, &err));
  return result.verdict;
}

static void test_other_choices_may_be_as_good(void) {
  int64_t four = 4, two = 2, one = 1;
  float numbers[] = {2, 5, 2, 5}, up[] = {2, 5}, down[] = {5, 2}, odd[] = {5, 3}, low[] = {2}, high[] = {5},
        none[] = {3};
  int64_t places[] = {1, 0}, others[] = {2, 3}, twice[] = {2, 2}, beyond[] = {2, 4};
  const struct dit_tensor_view values = view_make(numbers, DIT_DTYPE_F32, &four);
  struct dit_verdict_arguments sorted = {.inputs = &values, .input_count = 1, .index = -1}, any = sorted;
  any.is_unsorted = true;
#define PAIR(data) (&(struct dit_tensor_view[]){view_make(data, DIT_DTYPE_F32, &two)}[0])
#define PLACES(data) (&(struct dit_tensor_view[]){view_make(data, DIT_DTYPE_I64, &two)}[0])
#define ONE(data) (&(struct dit_tensor_view[]){view_make(data, DIT_DTYPE_F32, &one)}[0])
  CHECK(choice_judge("topk", 0, any, PAIR(up), PAIR(down)) == DIT_VERDICT_RIGHT);
  CHECK(choice_judge("topk", 0, sorted, PAIR(up), PAIR(down)) != DIT_VERDICT_RIGHT);
  CHECK(choice_judge("topk", 0, any, PAIR(odd), PAIR(down)) != DIT_VERDICT_RIGHT);
  CHECK(choice_judge("topk", 1, any, PLACES(others), PLACES(places)) == DIT_VERDICT_RIGHT);
  CHECK(choice_judge("topk", 1, sorted, PLACES(others), PLACES(places)) == DIT_VERDICT_WRONG);
  CHECK(choice_judge("topk", 1, any, PLACES(twice), PLACES(places)) == DIT_VERDICT_WRONG);
  CHECK(choice_judge("topk", 1, any, PLACES(beyond), PLACES(places)) == DIT_VERDICT_WRONG);
  CHECK(choice_judge("mode", 0, sorted, ONE(high), ONE(low)) == DIT_VERDICT_RIGHT);
  CHECK(choice_judge("mode", 0, sorted, ONE(none), ONE(low)) != DIT_VERDICT_RIGHT);
  numbers[1] = 7;  // 2 is the most frequent one now
  CHECK(choice_judge("mode", 0, sorted, ONE(high), ONE(low)) != DIT_VERDICT_RIGHT);
}

static void test_what_the_cpu_rounds_on_the_way_to_float64_counts(void) {
  int64_t count = 100;
  double device[100], first[100], wide[100];
  for (int i = 0; i < 100; i++) {
    device[i] = first[i] = wide[i] = 1 + i * 0x1p-20;
  }
  first[3] += 0x1p-26;
  device[50] += 3 * 0x1p-26;
  struct script script = {.arguments = {.index = -1}};
  const struct dit_verdict_source source = {&script, script_run, script_arguments};
  const struct dit_verdict_case c = {.is_careful = true};
  const struct dit_tensor_view mine = view_make(device, DIT_DTYPE_F64, &count);
  script.run[DIT_RUN_NATIVE] = view_make(first, DIT_DTYPE_F64, &count);
  script.run[DIT_RUN_WIDE] = view_make(wide, DIT_DTYPE_F64, &count);
  struct dit_verdict_result result;
  struct dit_error err = {0};
  CHECK_OK(dit_verdict_judge(&c, &source, &mine, &script.run[DIT_RUN_NATIVE], &result, &err));
  CHECK(result.verdict == DIT_VERDICT_RIGHT);
  device[50] += 2 * 0x1p-26;
  CHECK_OK(dit_verdict_judge(&c, &source, &mine, &script.run[DIT_RUN_NATIVE], &result, &err));
  CHECK(result.verdict == DIT_VERDICT_WRONG);
}

// Yardsticks

static enum dit_verdict judge_remembered(struct script *script, struct numbers *numbers,
                                         struct dit_verdict_memory *memory, uint64_t key) {
  const struct dit_verdict_source source = {script, script_run, script_arguments};
  const struct dit_verdict_case c = {.is_careful = true, .memory = memory, .key = key};
  const struct dit_tensor_view device = view_make(numbers->device, DIT_DTYPE_F32, &numbers->count);
  const struct dit_tensor_view first = view_make(numbers->first, DIT_DTYPE_F32, &numbers->count);
  struct dit_verdict_result result;
  struct dit_error err = {0};
  CHECK_OK(dit_verdict_judge(&c, &source, &device, &first, &result, &err));
  return result.verdict;
}

static void test_yardsticks_save_runs_and_excuse_nothing_new(void) {
  struct dit_verdict_memory *memory;
  struct dit_error err = {0};
  struct numbers numbers;
  struct script script;
  double relative, residual;
  CHECK_OK(dit_verdict_memory_create(&memory, &err));
  CHECK(!dit_verdict_memory_get(memory, 5, &relative, &residual));
  CHECK(!dit_verdict_memory_get(NULL, 5, &relative, &residual));
  begin(&numbers, &script, 100);
  numbers.native[3] += 0x1p-16F;
  numbers.device[50] += 0x1p-17F;
  CHECK(judge_remembered(&script, &numbers, memory, 5) == DIT_VERDICT_RIGHT && count_runs(&script) == 2);
  CHECK(dit_verdict_memory_get(memory, 5, &relative, &residual) && residual > 0);
  CHECK(judge_remembered(&script, &numbers, memory, 5) == DIT_VERDICT_RIGHT && count_runs(&script) == 2);
  CHECK(judge_remembered(&script, &numbers, memory, 6) == DIT_VERDICT_RIGHT && count_runs(&script) == 4);
  CHECK(judge_remembered(&script, &numbers, memory, 0) == DIT_VERDICT_RIGHT && count_runs(&script) == 6);
  CHECK(judge_remembered(&script, &numbers, memory, 0) == DIT_VERDICT_RIGHT && count_runs(&script) == 8);
  numbers.device[50] += 1;
  CHECK(judge_remembered(&script, &numbers, memory, 5) == DIT_VERDICT_WRONG);
  dit_verdict_memory_destroy(memory);
  dit_verdict_memory_destroy(NULL);
}

static void test_yardsticks_stay_below_the_cap(void) {
  struct dit_verdict_memory *memory;
  struct dit_error err = {0};
  struct numbers numbers;
  struct script script;
  CHECK_OK(dit_verdict_memory_create(&memory, &err));
  begin(&numbers, &script, 100);
  numbers.wide[0] = 0x1p-20;  // small, and off by a few roundings of its own
  numbers.device[0] = numbers.first[0] = numbers.native[0] = 0x1.000004p-20F;
  numbers.device[50] += 0x1p-23F;
  CHECK(judge_remembered(&script, &numbers, memory, 5) == DIT_VERDICT_RIGHT);
  numbers.device[50] += 2 * 0x1p-23F;
  CHECK(judge_remembered(&script, &numbers, NULL, 0) == DIT_VERDICT_WRONG);
  CHECK(judge_remembered(&script, &numbers, memory, 5) == DIT_VERDICT_WRONG);
  dit_verdict_memory_destroy(memory);
}

static void *judge_in_thread(void *memory) {
  for (int i = 0; i < 300; i++) {
    struct numbers numbers;
    struct script script;
    begin(&numbers, &script, 80);
    numbers.native[3] += 0x1p-16F;
    numbers.device[50] += i % 2 ? 0x1p-17F : 1;
    enum dit_verdict found = judge_remembered(&script, &numbers, memory, (uint64_t)(i % 5) + 1);
    CHECK(found == (i % 2 ? DIT_VERDICT_RIGHT : DIT_VERDICT_WRONG));
  }
  return NULL;
}

static void test_threads_share_yardsticks(void) {
  struct dit_verdict_memory *memory;
  struct dit_error err = {0};
  pthread_t threads[4];
  CHECK_OK(dit_verdict_memory_create(&memory, &err));
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, judge_in_thread, memory) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  dit_verdict_memory_destroy(memory);
}

// Memory

// Thin, conditioned, with a NaN that the CPU makes too: everything that allocates.
static enum dit_status judge_everything(struct script *script, struct numbers *numbers, struct dit_error *err) {
  struct dit_verdict_result result;
  return judge("torch.sum", DIT_VERDICT_OUTPUT, script, numbers, &result, err);
}

static void test_every_failed_allocation_is_an_error_and_nothing_leaks(void) {
  struct dit_verdict_memory *memory = NULL;
  struct dit_error err = {0};
  struct numbers numbers;
  struct script script;
  int64_t many = 8 * 64, live = dit_alloc_get_live();
  const struct dit_tensor_view input = view_make(numbers.wide, DIT_DTYPE_F32, &many);
  begin(&numbers, &script, 8);
  script.run[DIT_RUN_SHAKEN] = view_make(numbers.shaken, DIT_DTYPE_F64, &numbers.count);
  script.arguments = (struct dit_verdict_arguments){.inputs = &input, .input_count = 1, .index = -1};
  numbers.native[3] = numbers.device[3] = NAN;
  numbers.device[5] += 0x1p-14F;
  int failed = 0;
  enum dit_status status = DIT_ERR_NOMEM;
  for (int64_t after = 0; status == DIT_ERR_NOMEM && after < 1000; after++) {
    dit_alloc_set_failure(after);
    status = judge_everything(&script, &numbers, &err);
    dit_alloc_set_failure(-1);
    failed += status == DIT_ERR_NOMEM;
    CHECK(dit_alloc_get_live() == live);
  }
  CHECK(status == DIT_OK && failed >= 6);
  dit_alloc_set_failure(0);
  CHECK(dit_verdict_memory_create(&memory, &err) == DIT_ERR_NOMEM && !memory);
  dit_alloc_set_failure(-1);
}

// Moves

static void test_moves_are_small_reproducible_and_leave_labels_alone(void) {
  double data[64], again[64], other[64];
  for (int i = 0; i < 64; i++) {
    data[i] = again[i] = other[i] = i < 32 ? i - 16 : 1.0 / i;
  }
  dit_verdict_move(data, 64, 0x1p-10, 3, 1);
  dit_verdict_move(again, 64, 0x1p-10, 3, 1);
  dit_verdict_move(other, 64, 0x1p-10, 3, 2);
  CHECK(memcmp(data, again, sizeof data) == 0 && memcmp(data, other, sizeof data) != 0);
  for (int i = 0; i < 64; i++) {
    double before = i < 32 ? i - 16 : 1.0 / i;
    CHECK(i < 32 ? data[i] == before : fabs(data[i] - before) <= 0x1.001p-10 * before && data[i] != before);
  }
  uint64_t state = dit_verdict_move_begin(9);
  CHECK(dit_verdict_move_number(2, 0.5, &state) == 2 && isinf(dit_verdict_move_number(INFINITY, 0.5, &state)));
  CHECK(state == dit_verdict_move_begin(9));
  double first = dit_verdict_move_number(0.3, 0x1p-10, &state), second = dit_verdict_move_number(0.3, 0x1p-10, &state);
  CHECK(first != 0.3 && first != second && fabs(first - 0.3) <= 0x1p-10);
}

int main(void) {
  RUN(test_equal_values_ask_for_nothing);
  RUN(test_an_error_of_the_cpus_size_is_right_after_two_runs);
  RUN(test_an_error_beyond_it_is_wrong_and_told);
  RUN(test_the_arguments_are_asked_for_once_and_only_of_the_suspicious);
  RUN(test_runs_nearby_have_seeds_of_their_own);
  RUN(test_evidence_of_runs_nearby_acquits);
  RUN(test_another_way_of_the_cpu_counts);
  RUN(test_conditioning_acquits_sums);
  RUN(test_without_a_reference_nothing_is_decided);
  RUN(test_without_the_cpus_error_roundings_are_all_there_is);
  RUN(test_a_run_of_another_shape_is_none);
  RUN(test_errors_of_the_caller_end_the_judgement);
  RUN(test_exact_operators_must_be_exact);
  RUN(test_exactness_is_proved_by_full_significands);
  RUN(test_nan_and_infinities);
  RUN(test_infinities_of_sums);
  RUN(test_loose_results_are_undecided);
  RUN(test_integers_are_equal_or_wrong);
  RUN(test_other_choices_may_be_as_good);
  RUN(test_what_the_cpu_rounds_on_the_way_to_float64_counts);
  RUN(test_yardsticks_save_runs_and_excuse_nothing_new);
  RUN(test_yardsticks_stay_below_the_cap);
  RUN(test_threads_share_yardsticks);
  RUN(test_every_failed_allocation_is_an_error_and_nothing_leaks);
  RUN(test_moves_are_small_reproducible_and_leave_labels_alone);
  return 0;
}
