/// The unit that runs programs: elements one at a time, in double or int64, rounded to the dtype of the result.
///
/// It has no float64, sine or cosine. See graph_program.h for what the check promises.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/convert.h"
#include "graph_program.h"

// The check

static uint64_t get_sum(const void *bytes, size_t size) {
  uint64_t sum = UINT64_C(0xCBF29CE484222325);
  const unsigned char *at = bytes;
  for (size_t i = offsetof(struct program_head, workspace); i < size; i++) {
    sum = (sum ^ at[i]) * UINT64_C(0x100000001B3);
  }
  return sum;
}

void graph_program_seal(void *bytes) {
  struct program_head *head = bytes;
  head->sum = get_sum(bytes, head->size);
}

struct program_parts graph_program_get_parts(const void *bytes) {
  struct program_parts parts = {.head = bytes};
  parts.buffers = (const struct program_buffer *)(parts.head + 1);
  parts.instructions = (const struct program_instruction *)(parts.buffers + parts.head->nbuffers);
  return parts;
}

/// Do all elements of the first `ndim` dimensions lie in the buffer?
static bool is_inside(const struct program_operand *operand, const struct program_instruction *instruction, int ndim,
                      int64_t bytes) {
  const int64_t width = (int64_t)dit_dtype_get_size(operand->dtype);
  int64_t last = operand->offset, reach;
  for (int d = 0; d < ndim; d++) {
    if (instruction->sizes[d] == 0) {
      return true;
    }
  }
  for (int d = 0; d < ndim; d++) {
    if (operand->strides[d] < 0 || __builtin_mul_overflow(instruction->sizes[d] - 1, operand->strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return operand->offset >= 0 && last < bytes / width;
}

static bool check_operand(const struct program_parts *parts, const struct program_instruction *instruction,
                          const struct program_operand *operand, int ndim, bool is_result) {
  if (!graph_program_has_dtype(operand->dtype) || operand->buffer < -1 || operand->buffer >= parts->head->nbuffers) {
    return false;
  }
  return operand->buffer < 0 ? !is_result
                             : is_inside(operand, instruction, ndim, parts->buffers[operand->buffer].bytes);
}

static bool check_instruction(const struct program_parts *parts, const struct program_instruction *instruction) {
  const int arity = instruction->op == PROGRAM_DOT ? 3 : dit_region_op_get_arity(instruction->op);
  int64_t all = 1;
  if (arity < 1 || instruction->nargs != arity || instruction->ndim < 0 || instruction->ndim > PROGRAM_DIMS ||
      instruction->nfolded < 0 || instruction->nfolded > instruction->ndim) {
    return false;
  }
  for (int d = 0; d < instruction->ndim; d++) {
    if (instruction->sizes[d] < 0 || __builtin_mul_overflow(all, instruction->sizes[d], &all)) {
      return false;
    }
  }
  for (int k = 0; k < arity; k++) {
    if (!check_operand(parts, instruction, &instruction->args[k], instruction->ndim, false)) {
      return false;
    }
  }
  return check_operand(parts, instruction, &instruction->out, instruction->ndim - instruction->nfolded, true);
}

enum dit_status graph_program_check(const void *bytes, size_t size, struct dit_error *err) {
  struct program_head head;
  if (size < sizeof head) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "a program of %zu bytes", size);
  }
  memcpy(&head, bytes, sizeof head);
  if (memcmp(head.mark, PROGRAM_MARK, sizeof head.mark) != 0 || head.size != size || head.nbuffers < 0 ||
      head.ngiven < 0 || head.ngiven > PROGRAM_MAX_GIVEN || head.ngiven > head.nbuffers || head.ninstructions < 0 ||
      head.ninstructions > PROGRAM_MAX_INSTRUCTIONS || head.nbuffers > 4 * PROGRAM_MAX_INSTRUCTIONS ||
      size != sizeof head + (size_t)head.nbuffers * sizeof(struct program_buffer) +
                  (size_t)head.ninstructions * sizeof(struct program_instruction)) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "a program whose head is not of this version, or not of its length");
  }
  if (head.sum != get_sum(bytes, size)) {
    return dit_error_set(err, DIT_ERR_CORRUPT, "a program whose sum is wrong");
  }
  const struct program_parts parts = graph_program_get_parts(bytes);
  for (int32_t i = 0; i < head.nbuffers; i++) {
    const struct program_buffer *buffer = &parts.buffers[i];
    int64_t end;
    if (buffer->bytes < 0 || buffer->at < 0 || buffer->at % 64 ||
        __builtin_add_overflow(buffer->at, buffer->bytes, &end) || (i >= head.ngiven && end > head.workspace)) {
      return dit_error_set(err, DIT_ERR_CORRUPT, "buffer %d of a program lies outside of its memory", (int)i);
    }
  }
  for (int32_t i = 0; i < head.ninstructions; i++) {
    if (!check_instruction(&parts, &parts.instructions[i])) {
      return dit_error_set(err, DIT_ERR_CORRUPT, "instruction %d of a program reaches outside of its memory", (int)i);
    }
  }
  return DIT_OK;
}

// Elements

struct value {
  double real;
  int64_t integer;
};

static bool is_real(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

bool graph_program_has_dtype(int dtype) {
  return is_real(dtype) || dtype == DIT_DTYPE_BOOL || dtype == DIT_DTYPE_U8 || dtype == DIT_DTYPE_I8 ||
         dtype == DIT_DTYPE_I16 || dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

static struct value load(const void *base, int dtype, int64_t index) {
  struct value value = {0, 0};
  switch (dtype) {
    case DIT_DTYPE_F32:
      value.real = ((const float *)base)[index];
      break;
    case DIT_DTYPE_F16:
      value.real = dit_float_from_f16(((const uint16_t *)base)[index]);
      break;
    case DIT_DTYPE_BF16:
      value.real = dit_float_from_bf16(((const uint16_t *)base)[index]);
      break;
    case DIT_DTYPE_I64:
      value.integer = ((const int64_t *)base)[index];
      break;
    case DIT_DTYPE_I32:
      value.integer = ((const int32_t *)base)[index];
      break;
    case DIT_DTYPE_I16:
      value.integer = ((const int16_t *)base)[index];
      break;
    case DIT_DTYPE_I8:
      value.integer = ((const int8_t *)base)[index];
      break;
    default:
      value.integer = ((const uint8_t *)base)[index];
      break;
  }
  return value;
}

static void store(void *base, int dtype, int64_t index, struct value value) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      ((float *)base)[index] = (float)value.real;
      break;
    case DIT_DTYPE_F16:
      ((uint16_t *)base)[index] = dit_float_to_f16((float)value.real);
      break;
    case DIT_DTYPE_BF16:
      ((uint16_t *)base)[index] = dit_float_to_bf16((float)value.real);
      break;
    case DIT_DTYPE_I64:
      ((int64_t *)base)[index] = value.integer;
      break;
    case DIT_DTYPE_I32:
      ((int32_t *)base)[index] = (int32_t)value.integer;
      break;
    case DIT_DTYPE_I16:
      ((int16_t *)base)[index] = (int16_t)value.integer;
      break;
    case DIT_DTYPE_I8:
      ((int8_t *)base)[index] = (int8_t)value.integer;
      break;
    case DIT_DTYPE_BOOL:
      ((uint8_t *)base)[index] = value.integer != 0;
      break;
    default:
      ((uint8_t *)base)[index] = (uint8_t)value.integer;
      break;
  }
}

static int64_t to_integer(double real) {
  return real >= -0x1p63 && real < 0x1p63 ? (int64_t)real : INT64_MIN;
}

static double normal(double x) {
  return 0.5 * erfc(-x * M_SQRT1_2);
}

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double gelu_tanh(double x, bool gradient) {
  const double inner = M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x), t = tanh(inner);
  return gradient ? 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x)
                  : 0.5 * x * (1 + t);
}

/// A NaN wins.
static double pick(double a, double b, bool larger) {
  return isnan(a) ? a : isnan(b) ? b : (a > b) == larger ? a : b;
}

/// The three lists are the operations that the unit has: X(name, value).
#define REAL_OPS(X)                                                                   \
  X(COPY, a)                                                                          \
  X(NEG, -a)                                                                          \
  X(ABS, fabs(a))                                                                     \
  X(SIGN, isnan(a) ? 0 : (a > 0) - (a < 0))                                           \
  X(SQRT, sqrt(a))                                                                    \
  X(RSQRT, 1 / sqrt(a))                                                               \
  X(RECIPROCAL, 1 / a)                                                                \
  X(EXP, exp(a))                                                                      \
  X(EXPM1, expm1(a))                                                                  \
  X(LOG, log(a))                                                                      \
  X(LOG2, log2(a))                                                                    \
  X(LOG10, log10(a))                                                                  \
  X(LOG1P, log1p(a))                                                                  \
  X(TANH, tanh(a))                                                                    \
  X(ERF, erf(a))                                                                      \
  X(FLOOR, floor(a))                                                                  \
  X(CEIL, ceil(a))                                                                    \
  X(ROUND, rint(a))                                                                   \
  X(TRUNC, trunc(a))                                                                  \
  X(RELU, a < 0 ? 0 : a)                                                              \
  X(SIGMOID, sigmoid(a))                                                              \
  X(SILU, a *sigmoid(a))                                                              \
  X(GELU, a *normal(a))                                                               \
  X(GELU_TANH, gelu_tanh(a, false))                                                   \
  X(ADD, a + b)                                                                       \
  X(SUB, a - b)                                                                       \
  X(MUL, a *b)                                                                        \
  X(DIV, a / b)                                                                       \
  X(MAXIMUM, pick(a, b, true))                                                        \
  X(MINIMUM, pick(a, b, false))                                                       \
  X(POW, pow(a, b))                                                                   \
  X(CLAMP_MIN, pick(a, b, true))                                                      \
  X(CLAMP_MAX, pick(a, b, false))                                                     \
  X(TANH_GRAD, a * (1 - b * b))                                                       \
  X(SIGMOID_GRAD, a * (1 - b) * b)                                                    \
  X(SILU_GRAD, a *sigmoid(b) * (1 + b * (1 - sigmoid(b))))                            \
  X(GELU_GRAD, a *(normal(b) + b * exp(-0.5 * b * b) * 0.5 * M_2_SQRTPI * M_SQRT1_2)) \
  X(GELU_TANH_GRAD, a *gelu_tanh(b, true))                                            \
  X(ADD_SCALED, a + b * c)                                                            \
  X(LERP, fabs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1 - c))                    \
  X(SUM, a + b)                                                                       \
  X(MAX, pick(a, b, true))                                                            \
  X(MIN, pick(a, b, false))
#define INTEGER_OPS(X)                          \
  X(COPY, a)                                    \
  X(NEG, 0 - a)                                 \
  X(ABS, (int64_t)a < 0 ? 0 - a : a)            \
  X(SIGN, ((int64_t)a > 0) - ((int64_t)a < 0))  \
  X(RELU, (int64_t)a < 0 ? 0 : a)               \
  X(ADD, a + b)                                 \
  X(SUB, a - b)                                 \
  X(MUL, a *b)                                  \
  X(AND, a &b)                                  \
  X(OR, a | b)                                  \
  X(XOR, a ^ b)                                 \
  X(MAXIMUM, (int64_t)a > (int64_t)b ? a : b)   \
  X(MINIMUM, (int64_t)a < (int64_t)b ? a : b)   \
  X(CLAMP_MIN, (int64_t)a > (int64_t)b ? a : b) \
  X(CLAMP_MAX, (int64_t)a < (int64_t)b ? a : b) \
  X(SUM, a + b)                                 \
  X(MAX, (int64_t)a > (int64_t)b ? a : b)       \
  X(MIN, (int64_t)a < (int64_t)b ? a : b)
#define TEST_OPS(X) \
  X(EQ, ==)         \
  X(NE, !=)         \
  X(LT, <)          \
  X(LE, <=)         \
  X(GT, >)          \
  X(GE, >=)

static double compute_real(int op, double a, double b, double c) {
  switch (op) {
#define CASE(name, value) \
  case DIT_REGION_##name: \
    return value;
    REAL_OPS(CASE)
#undef CASE
    default:
      return a;
  }
}

static int64_t compute_integer(int op, uint64_t a, uint64_t b) {
  switch (op) {
#define CASE(name, value) \
  case DIT_REGION_##name: \
    return (int64_t)(value);
    INTEGER_OPS(CASE)
#undef CASE
    default:
      return (int64_t)a;
  }
}

static bool is_test(int op) {
  switch (op) {
#define CASE(name, value) case DIT_REGION_##name:
    TEST_OPS(CASE)
#undef CASE
    return true;
    default:
      return op == DIT_REGION_ISNAN;
  }
}

static bool test(int op, bool real, const struct value *x) {
  switch (op) {
#define CASE(name, sign)  \
  case DIT_REGION_##name: \
    return real ? x[0].real sign x[1].real : x[0].integer sign x[1].integer;
    TEST_OPS(CASE)
#undef CASE
    default:
      return isnan(x[0].real);
  }
}

bool graph_program_has(int op, int dtype) {
  if (op == DIT_REGION_CAST || op == DIT_REGION_WHERE || (is_test(op) && op != DIT_REGION_ISNAN)) {
    return graph_program_has_dtype(dtype);
  }
  if (op == DIT_REGION_NOT || op == DIT_REGION_ISNAN) {
    return graph_program_has_dtype(dtype) && is_real(dtype) == (op == DIT_REGION_ISNAN);
  }
  switch (op) {
#define CASE(name, value) case DIT_REGION_##name:
    REAL_OPS(CASE)
    if (is_real(dtype)) {
      return true;
    }
    break;
    default:
      break;
  }
  switch (op) {
    INTEGER_OPS(CASE)
#undef CASE
    return graph_program_has_dtype(dtype) && !is_real(dtype);
    default:
      return false;
  }
}

/// In the dtype of the last tensor among the arguments; what picks one of them needs none.
static int get_work(const struct program_instruction *instruction) {
  for (int k = instruction->nargs - 1; k >= 0 && instruction->op != DIT_REGION_WHERE; k--) {
    if (instruction->args[k].buffer >= 0) {
      return instruction->args[k].dtype;
    }
  }
  return instruction->out.dtype;
}

static struct value compute(const struct program_instruction *instruction, int work, const struct value *x) {
  const bool real = is_real(work), to_real = is_real(instruction->out.dtype);
  struct value value = {0, 0};
  if (instruction->op == DIT_REGION_WHERE) {
    value = x[x[0].integer ? 1 : 2];
  } else if (is_test(instruction->op)) {
    value.integer = test(instruction->op, real, x);
    value.real = (double)value.integer;
    return value;
  } else if (instruction->op == DIT_REGION_NOT) {
    value.integer = work == DIT_DTYPE_BOOL ? !x[0].integer : ~x[0].integer;
  } else if (real) {
    value.real = compute_real(instruction->op, x[0].real, x[1].real, x[2].real);
  } else {
    value.integer = compute_integer(instruction->op, (uint64_t)x[0].integer, (uint64_t)x[1].integer);
  }
  if (real && !to_real) {
    value.integer = instruction->out.dtype == DIT_DTYPE_BOOL ? value.real != 0 : to_integer(value.real);
  } else if (!real && to_real) {
    value.real = (double)value.integer;
  }
  return value;
}

// Instructions

static struct value fetch(const struct program_operand *operand, void *const *buffers, int64_t index) {
  return operand->buffer < 0 ? (struct value){operand->number, operand->integer}
                             : load(buffers[operand->buffer], operand->dtype, index);
}

/// What an index space of `ndim` dimensions reaches after `at` elements.
static int64_t locate(const struct program_operand *operand, const int64_t *index, int ndim) {
  int64_t at = operand->offset;
  for (int d = 0; d < ndim; d++) {
    at += index[d] * operand->strides[d];
  }
  return at;
}

static bool advance(int64_t *index, const int64_t *sizes, int from, int to) {
  for (int d = to - 1; d >= from; d--) {
    if (++index[d] < sizes[d]) {
      return true;
    }
    index[d] = 0;
  }
  return false;
}

/// One element of the result: of a fold or a product, over the last dimensions.
static struct value reduce(const struct program_instruction *instruction, int work, void *const *buffers,
                           int64_t *index) {
  const int outer = instruction->ndim - instruction->nfolded;
  struct value total = {0, 0}, x[3] = {{0, 0}};
  bool is_first = true;
  do {
    const struct value one =
        fetch(&instruction->args[0], buffers, locate(&instruction->args[0], index, instruction->ndim));
    if (instruction->op == PROGRAM_DOT) {
      const struct value two =
          fetch(&instruction->args[1], buffers, locate(&instruction->args[1], index, instruction->ndim));
      total.real += one.real * two.real;
    } else if (is_first) {
      total = one;
    } else {
      x[0] = total;
      x[1] = one;
      if (is_real(work)) {
        total.real = compute_real(instruction->op, x[0].real, x[1].real, 0);
      } else {
        total.integer = compute_integer(instruction->op, (uint64_t)x[0].integer, (uint64_t)x[1].integer);
      }
    }
    is_first = false;
  } while (advance(index, instruction->sizes, outer, instruction->ndim));
  if (instruction->op == PROGRAM_DOT) {
    const struct value base = fetch(&instruction->args[2], buffers, locate(&instruction->args[2], index, outer));
    total.real = instruction->alpha * total.real + (instruction->beta != 0 ? instruction->beta * base.real : 0);
  }
  return total;
}

static void run_instruction(const struct program_instruction *instruction, void *const *buffers) {
  const int outer = instruction->ndim - instruction->nfolded, work = get_work(instruction);
  const bool folds = instruction->nfolded > 0 || instruction->op == PROGRAM_DOT;
  int64_t index[PROGRAM_DIMS] = {0}, folded = 1;
  for (int d = 0; d < instruction->ndim; d++) {
    if (instruction->sizes[d] == 0 && d < outer) {
      return;
    }
    folded *= d < outer ? 1 : instruction->sizes[d];
  }
  do {
    struct value value = {0, 0}, x[3] = {{0, 0}};
    if (folds) {
      value = folded ? reduce(instruction, work, buffers, index) : value;
    } else {
      for (int k = 0; k < instruction->nargs; k++) {
        const struct program_operand *operand = &instruction->args[k];
        x[k] = fetch(operand, buffers, locate(operand, index, instruction->ndim));
      }
      value = compute(instruction, work, x);
    }
    store(buffers[instruction->out.buffer], instruction->out.dtype, locate(&instruction->out, index, outer), value);
  } while (advance(index, instruction->sizes, 0, outer));
}

void graph_program_run(const void *bytes, void *const *buffers) {
  const struct program_parts parts = graph_program_get_parts(bytes);
  for (int32_t i = 0; i < parts.head->ninstructions; i++) {
    run_instruction(&parts.instructions[i], buffers);
  }
}
