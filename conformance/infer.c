/// What a library says about results before the call (diopiExtInferOutputs) against the results of a case.
///
/// A library without the function, or one that answers diopiNoImplement, is not judged. An answer counts where it says
/// something: a shape that depends on values (ndim -1) and a dtype that the caller chooses are left open. Calls that
/// must fail are asked about too: no answer is right or wrong there, but it must come.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "dit/alloc.h"

/// Room for more results than a case has, so that a wrong number is seen.
#define SPARE 4

static bool is_place(const struct pack_case *item, int argument) {
  return item->arguments[argument].kind == 'O' && !dit_diopi_is_list(item->function, argument + 1);
}

static void make_argument(const struct pack_case *item, int number, const union dit_diopi_value *value,
                          diopiExtArgument_t *out) {
  const struct pack_argument *argument = &item->arguments[number];
  out->given = argument->form == PACK_GIVEN && !is_place(item, number);
  if (!out->given) {
    return;
  }
  switch (argument->kind) {
    case 'o':
    case 't':
      out->tensor = value->tensor;
      out->given = out->tensor != NULL;
      break;
    case 'O':
    case 'T':
      out->tensors = (const diopiConstTensorHandle_t *)value->tensors;
      out->count = argument->count;
      break;
    case 'f':
    case 'd':
      out->fval = value->d;
      break;
    case 'D':
      out->fval = *value->doubles;
      break;
    case 'I':
      out->ival = *value->ints;
      break;
    case 'B':
      out->ival = *value->bools;
      break;
    case 'z':
      out->size = value->size;
      break;
    case 'Z':
      out->size = *value->sizes;
      break;
    case 's':
      out->scalar = value->scalar;
      break;
    case 'C':
      out->string = value->string;
      break;
    case 'g':
    case 'G':
      break;
    default:
      out->ival = value->i;
  }
}

/// Results that an argument stands for: one, or one for each tensor of a list (given, or made by the library); 0 when
/// it is only read.
static int64_t count_results(const struct pack_case *item, int argument) {
  const char kind = item->arguments[argument].kind;
  if (kind == 'O' && item->arguments[argument].form != PACK_ABSENT && item->arguments[argument].count > 1) {
    return item->arguments[argument].count;
  }
  if (kind == 'O' && !is_place(item, argument)) {
    return item->arguments[argument].form == PACK_ABSENT ? 0 : item->arguments[argument].count;
  }
  return kind == 'o' || kind == 'O';
}

static void print_sizes(char *text, size_t size, int64_t ndim, const int64_t *sizes) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (int64_t i = 0; i < ndim && at < size; i++) {
    at += (size_t)snprintf(text + at, size - at, i ? ", %" PRId64 : "%" PRId64, sizes[i]);
  }
  if (at < size) {
    snprintf(text + at, size - at, ")");
  }
}

/// The same sizes; with `kept`, apart from dimensions of size 1 (a reduction keeps them where its output has them).
static bool has_same_sizes(const diopiExtOutput_t *answer, const struct pack_tensor *tensor, bool kept) {
  int i = 0, k = 0;
  for (;;) {
    while (kept && i < answer->ndim && answer->sizes[i] == 1) {
      i++;
    }
    while (kept && k < tensor->ndim && tensor->sizes[k] == 1) {
      k++;
    }
    if (i >= answer->ndim || k >= tensor->ndim || answer->sizes[i] != tensor->sizes[k]) {
      break;
    }
    i++;
    k++;
  }
  return i == answer->ndim && k == tensor->ndim;
}

static bool judge_answer(const struct pack_case *item, const struct pack_tensor *tensor, int argument, int64_t number,
                         const diopiExtOutput_t *answer, struct outcome *outcome) {
  char label[96], said[160], is[160];
  const char *output = pack_get_tag(item, "output");
  const bool chosen = output && strcmp(output, "chosen") == 0, kept = output && strcmp(output, "kept") == 0;
  const diopiDtype_t dtype = dit_diopi_get_dtype(tensor->dtype);
  const bool sane = answer->ndim >= 0 && answer->ndim <= DIT_MAX_DIMS;
  const bool same = sane && has_same_sizes(answer, tensor, kept);
  pack_get_parameter(item, argument, label, sizeof label);
  if (answer->ndim != -1 && !same) {
    print_sizes(said, sizeof said, sane ? answer->ndim : 0, answer->sizes);
    print_sizes(is, sizeof is, tensor->ndim, tensor->sizes);
    return outcome_fail(outcome, "inference",
                        "diopiExtInferOutputs says that result %" PRId64 ", '%s', has %" PRId64
                        " dimensions %s; its shape is %s",
                        number, label, answer->ndim, said, is);
  }
  return chosen || answer->dtype == diopi_dtype_unsupported || answer->dtype == dtype ||
         outcome_fail(outcome, "inference",
                      "diopiExtInferOutputs says that result %" PRId64 ", '%s', has dtype %d; it is %s (%d)", number,
                      label, (int)answer->dtype, dit_dtype_get_name(tensor->dtype), (int)dtype);
}

static bool judge_answers(const struct pack_case *item, const diopiExtOutput_t *answers, int64_t count, int64_t wanted,
                          struct outcome *outcome) {
  int64_t at = 0;
  if (count != wanted) {
    return outcome_fail(outcome, "inference",
                        "diopiExtInferOutputs says that there are %" PRId64 " results; there are %" PRId64, count,
                        wanted);
  }
  for (int i = 0; i < item->argument_count; i++) {
    const struct pack_argument *argument = &item->arguments[i];
    for (int64_t k = 0; k < count_results(item, i); k++, at++) {
      const uint64_t number = argument->form == PACK_ABSENT ? PACK_NONE : argument->words[k];
      if (number != PACK_NONE && !judge_answer(item, &item->tensors[number], i, at, &answers[at], outcome)) {
        return false;
      }
    }
  }
  return true;
}

static void ask(const struct dit_diopi_library *library, const struct pack_case *item,
                const diopiExtArgument_t *arguments, diopiExtOutput_t *answers, int64_t wanted,
                struct outcome *outcome) {
  int64_t count = wanted + SPARE;
  memset(answers, 0x7B, sizeof *answers * (size_t)count);
  const diopiError_t code = library->ext_infer_outputs(item->name, arguments, item->argument_count, answers, &count);
  if (item->expect_error) {
    return;
  }
  outcome->inference = code == diopiNoImplement ? INFERENCE_UNTOLD : INFERENCE_JUDGED;
  if (code == diopiSuccess) {
    (void)judge_answers(item, answers, count, wanted, outcome);
  } else if (code != diopiNoImplement) {
    outcome_fail(outcome, "inference", "diopiExtInferOutputs returned %s (%d): %s", dit_diopi_get_error_name(code),
                 (int)code, dit_diopi_library_get_error(library));
  }
}

enum dit_status judge_inference(struct call *call, const struct dit_diopi_library *library, struct outcome *outcome,
                                struct dit_error *err) {
  const struct pack_case *item = call->item;
  if (!library->ext_infer_outputs || !item->has_context) {
    return DIT_OK;
  }
  int64_t wanted = 0;
  for (int i = 0; i < item->argument_count; i++) {
    wanted += count_results(item, i);
  }
  diopiExtArgument_t *arguments = dit_calloc((size_t)item->argument_count + 1, sizeof *arguments);
  diopiExtOutput_t *answers = dit_calloc((size_t)wanted + SPARE, sizeof *answers);
  if (arguments && answers) {
    call_make_values(call, NULL, 0);
    for (int i = 0; i < item->argument_count; i++) {
      make_argument(item, i, &call->values[i + 1], &arguments[i]);
    }
    ask(library, item, arguments, answers, wanted, outcome);
  }
  const bool done = arguments && answers;
  dit_free(arguments);
  dit_free(answers);
  return done ? DIT_OK : dit_error_set(err, DIT_ERR_NOMEM, "no memory to ask about %s", item->id);
}
