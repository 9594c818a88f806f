/// The grammar of PYTORCH_CUDA_ALLOC_CONF: "key:value,key:value"; spaces do not count.
///
/// Every key of the real allocator is known. Those that change nothing here are still checked, so that a typing error
/// is found on the machine where it was made: expandable_segments (segments never move), release_lock_on_cudamalloc
/// (always so), graph_capture_record_stream_reuse and throw_on_cudamalloc_oom (no graphs; running out of memory is
/// always an error), pinned_* (the pinned pool has its own rules). Invariant: the output is written only after the
/// whole text was accepted. Depends on: core/error.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/allocator.h"

#define TOKEN_SIZE 64

struct parser {
  const char *cursor;
  const char *key;
  struct dit_allocator_config *config;
  struct dit_error *err;
  char token[TOKEN_SIZE];  ///< the last word, or one of , : [ ]; "" at the end
};

struct key_rule {
  const char *name;
  enum dit_status (*parse)(struct parser *parser);
};

void dit_allocator_config_init(struct dit_allocator_config *config) {
  *config = (struct dit_allocator_config){
      .max_split_size = SIZE_MAX,
      .max_non_split_rounding = DIT_LARGE_SEGMENT,
      .large_segment = DIT_LARGE_SEGMENT,
      .max_extend = 1024 * DIT_MIB,
      .min_size = DIT_MIN_BLOCK_SIZE,
      .max_pending = 96,
  };
}

// Tokens

static bool is_mark(char c) {
  return c == ',' || c == ':' || c == '[' || c == ']';
}

/// A word longer than the buffer is cut: it is then no valid key or value, and the message shows its beginning.
static const char *next_token(struct parser *parser) {
  size_t length = 0;
  while (*parser->cursor && (length == 0 || !is_mark(*parser->cursor))) {
    char c = *parser->cursor++;
    if (isspace((unsigned char)c)) {
      continue;
    }
    if (length + 1 < TOKEN_SIZE) {
      parser->token[length++] = c;
    }
    if (is_mark(c)) {
      break;
    }
  }
  parser->token[length] = '\0';
  return parser->token;
}

static enum dit_status expect(struct parser *parser, char mark) {
  const char *token = next_token(parser);
  if (token[0] == mark && !token[1]) {
    return DIT_OK;
  }
  return dit_error_set(
      parser->err, DIT_ERR_INVALID,
      "allocator configuration: expected '%c' after '%s' but found '%s'; the form is key:value,key:value", mark,
      parser->key, token[0] ? token : "the end of the text");
}

static enum dit_status fail(struct parser *parser, const char *valid) {
  return dit_error_set(parser->err, DIT_ERR_INVALID,
                       "allocator configuration: value '%s' of %s is not valid; valid: %s", parser->token, parser->key,
                       valid);
}

static bool read_integer(const char *text, uint64_t *out) {
  char *end;
  if (!isdigit((unsigned char)text[0])) {
    return false;
  }
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  *out = value;
  return errno == 0 && *end == '\0';
}

/// 0 or a power of two. 1 and 0 both mean no rounding.
static bool read_divisions(const char *text, uint64_t *out) {
  return read_integer(text, out) && *out <= UINT32_MAX && (*out & (*out - 1)) == 0;
}

// values: each is called with the cursor after "key:"

static enum dit_status parse_megabytes(struct parser *parser, size_t *out) {
  uint64_t value;
  if (!read_integer(next_token(parser), &value) || value < DIT_LARGE_SEGMENT / DIT_MIB) {
    return fail(parser, "a whole number of MiB, at least 20");
  }
  *out = value > (SIZE_MAX >> 20) ? SIZE_MAX : (size_t)value << 20;
  return DIT_OK;
}

static enum dit_status parse_max_split_size(struct parser *parser) {
  return parse_megabytes(parser, &parser->config->max_split_size);
}

static enum dit_status parse_max_non_split_rounding(struct parser *parser) {
  DIT_RETURN_IF_NOT_OK(parse_megabytes(parser, &parser->config->max_non_split_rounding));
  if (parser->config->max_non_split_rounding > DIT_MAX_REQUEST) {
    parser->config->max_non_split_rounding = DIT_MAX_REQUEST;  // requests are below this: the sum cannot overflow
  }
  return DIT_OK;
}

static enum dit_status parse_large_segment(struct parser *parser) {
  size_t value = 0;
  DIT_RETURN_IF_NOT_OK(parse_megabytes(parser, &value));
  if (value > DIT_MAX_REQUEST) {
    return fail(parser, "a whole number of MiB, at least 20");
  }
  parser->config->large_segment = value;
  return DIT_OK;
}

static bool read_real(const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*out);
}

static enum dit_status parse_gc_threshold(struct parser *parser) {
  double value;
  if (!read_real(next_token(parser), &value) || value <= 0 || value >= 1) {
    return fail(parser, "a number above 0 and below 1");
  }
  parser->config->gc_threshold = value;
  return DIT_OK;
}

static enum dit_status parse_fraction(struct parser *parser) {
  double value;
  if (!read_real(next_token(parser), &value) || value <= 0 || value > 1) {
    return fail(parser, "a number above 0, at most 1");
  }
  parser->config->fraction = value;
  return DIT_OK;
}

/// One "size:divisions" of the list; sizes below the first one get its divisions, '>' means all larger ones. `last` is
/// the interval set last, -1 at the start.
static enum dit_status parse_interval(struct parser *parser, int *last) {
  uint32_t *divisions = parser->config->divisions;
  uint64_t megabytes = 0, value;
  bool rest = strcmp(parser->token, ">") == 0;
  if (!rest && (!read_integer(parser->token, &megabytes) || megabytes == 0 || (megabytes & (megabytes - 1)) != 0)) {
    return fail(parser, "sizes that are a power of two of MiB, or >, as in [256:1,512:2,>:8]");
  }
  DIT_RETURN_IF_NOT_OK(expect(parser, ':'));
  if (!read_divisions(next_token(parser), &value)) {
    return fail(parser, "a power of two, or 0 for none");
  }
  int index = rest ? DIT_DIVISION_INTERVALS - 1 : 63 - __builtin_clzll(megabytes);
  if (index >= DIT_DIVISION_INTERVALS) {
    index = DIT_DIVISION_INTERVALS - 1;
  }
  int from = rest ? (*last < 0 ? 0 : *last) : *last < 0 ? 0 : index;
  for (int i = from; i <= index; i++) {
    divisions[i] = (uint32_t)value;
  }
  *last = index;
  return DIT_OK;
}

static enum dit_status parse_divisions(struct parser *parser) {
  uint64_t value;
  int last = -1;
  if (strcmp(next_token(parser), "[") != 0) {
    if (!read_divisions(parser->token, &value) || value == 0) {
      return fail(parser, "a power of two, or a list such as [256:1,512:2,>:8]");
    }
    for (int i = 0; i < DIT_DIVISION_INTERVALS; i++) {
      parser->config->divisions[i] = (uint32_t)value;
    }
    return DIT_OK;
  }
  while (strcmp(next_token(parser), "]") != 0) {
    if (last >= 0) {
      if (strcmp(parser->token, ",") != 0) {
        return fail(parser, "a list such as [256:1,512:2,>:8]");
      }
      next_token(parser);
    }
    DIT_RETURN_IF_NOT_OK(parse_interval(parser, &last));
  }
  return last < 0 ? fail(parser, "a list that is not empty, such as [256:1,512:2,>:8]") : DIT_OK;
}

static enum dit_status parse_backend(struct parser *parser) {
  static const char *const names[] = {"native", "bf", "bs", "raw", "cudaMallocAsync"};
  const char *name = next_token(parser);
  for (int i = 0; i <= DIT_ALGORITHM_COUNT; i++) {
    if (strcmp(name, names[i]) == 0) {
      parser->config->algorithm = i == DIT_ALGORITHM_COUNT ? DIT_ALGORITHM_TORCH : (enum dit_memory_algorithm)i;
      parser->config->algorithm_chosen = true;
      return DIT_OK;
    }
  }
  return fail(parser, "native, bf (best fit), bs (equal sizes), raw (no caching), cudaMallocAsync (as native here)");
}

static enum dit_status check_bool(struct parser *parser) {
  const char *value = next_token(parser);
  return strcmp(value, "True") == 0 || strcmp(value, "False") == 0 ? DIT_OK : fail(parser, "True, False");
}

static enum dit_status check_integer(struct parser *parser) {
  uint64_t value;
  return read_integer(next_token(parser), &value) ? DIT_OK : fail(parser, "a whole number");
}

static enum dit_status check_threads(struct parser *parser) {
  uint64_t value;
  bool valid = read_divisions(next_token(parser), &value) && value >= 1 && value <= 128;
  return valid ? DIT_OK : fail(parser, "a power of two from 1 to 128");
}

static const struct key_rule rules[] = {
    {"max_split_size_mb", parse_max_split_size},
    {"garbage_collection_threshold", parse_gc_threshold},
    {"roundup_power2_divisions", parse_divisions},
    {"expandable_segments", check_bool},
    {"backend", parse_backend},
    {"max_non_split_rounding_mb", parse_max_non_split_rounding},
    {"large_segment_size_mb", parse_large_segment},
    {"per_process_memory_fraction", parse_fraction},
    {"release_lock_on_cudamalloc", check_bool},
    {"graph_capture_record_stream_reuse", check_bool},
    {"throw_on_cudamalloc_oom", check_bool},
    {"pinned_use_cuda_host_register", check_bool},
    {"pinned_num_register_threads", check_threads},
    {"pinned_use_background_threads", check_bool},
    {"pinned_reserve_segment_size_mb", check_integer},
    {"pinned_max_round_threshold_mb", check_integer},
    {"pinned_max_cached_size_mb", check_integer},
    {"pinned_free_catch_all", check_bool},
};

// The whole text

static enum dit_status fail_unknown(const struct parser *parser) {
  char list[640] = "";
  for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
    strncat(list, i ? ", " : "", sizeof(list) - strlen(list) - 1);
    strncat(list, rules[i].name, sizeof(list) - strlen(list) - 1);
  }
  return dit_error_set(parser->err, DIT_ERR_INVALID, "allocator configuration: unknown key '%s'; valid keys: %s",
                       parser->token, list);
}

static enum dit_status parse_item(struct parser *parser) {
  for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
    if (strcmp(parser->token, rules[i].name) == 0) {
      parser->key = rules[i].name;
      DIT_RETURN_IF_NOT_OK(expect(parser, ':'));
      return rules[i].parse(parser);
    }
  }
  return fail_unknown(parser);
}

enum dit_status dit_allocator_config_parse(const char *text, struct dit_allocator_config *out, struct dit_error *err) {
  struct dit_allocator_config config;
  dit_allocator_config_init(&config);
  struct parser parser = {.cursor = text ? text : "", .key = "", .config = &config, .err = err};
  while (*next_token(&parser)) {
    DIT_RETURN_IF_NOT_OK(parse_item(&parser));
    if (!*next_token(&parser)) {
      break;
    }
    if (strcmp(parser.token, ",") != 0) {
      return dit_error_set(
          err, DIT_ERR_INVALID,
          "allocator configuration: expected ',' after %s but found '%s'; the form is key:value,key:value", parser.key,
          parser.token);
    }
  }
  *out = config;
  return DIT_OK;
}
