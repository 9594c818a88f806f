/// The grammar of PYTORCH_CUDA_ALLOC_CONF: what is accepted, what is refused and how.
#include <stdint.h>

#include "check.h"
#include "device/allocator.h"

static struct dit_error err;

static struct dit_allocator_config parse(const char *text) {
  struct dit_allocator_config config;
  CHECK_OK(dit_allocator_config_parse(text, &config, &err));
  return config;
}

static void test_defaults(void) {
  const char *texts[] = {NULL, "", "  "};
  for (int i = 0; i < 3; i++) {
    struct dit_allocator_config config = parse(texts[i]);
    CHECK(config.max_split_size == SIZE_MAX && config.max_non_split_rounding == 20 * DIT_MIB &&
          config.algorithm == DIT_ALGORITHM_TORCH);
    CHECK(config.gc_threshold == 0 && config.fraction == 0 && config.divisions[0] == 0 && config.divisions[15] == 0);
  }
}

static void test_values(void) {
  struct dit_allocator_config config =
      parse(" max_split_size_mb : 128 , garbage_collection_threshold:0.8,backend:raw,max_non_split_rounding_mb:40");
  CHECK(config.max_split_size == 128 * DIT_MIB && config.gc_threshold == 0.8 && config.algorithm == DIT_ALGORITHM_RAW);
  CHECK(config.max_non_split_rounding == 40 * DIT_MIB);
  config = parse("per_process_memory_fraction:0.5,backend:native,large_segment_size_mb:64,");
  CHECK(config.fraction == 0.5 && config.algorithm == DIT_ALGORITHM_TORCH && config.large_segment == 64 * DIT_MIB);
  config = parse("max_split_size_mb:18446744073709551615");
  CHECK(config.max_split_size == SIZE_MAX);
  CHECK(parse("backend:cudaMallocAsync").algorithm == DIT_ALGORITHM_TORCH);
  CHECK(parse("backend:bf").algorithm == DIT_ALGORITHM_BF && parse("backend:bs").algorithm == DIT_ALGORITHM_BS);
  CHECK(parse("backend:bf").algorithm_chosen && !parse("").algorithm_chosen);
}

static void test_keys_without_effect(void) {
  parse(
      "expandable_segments:True,release_lock_on_cudamalloc:False,pinned_use_cuda_host_register:True,"
      "pinned_num_register_threads:8,pinned_use_background_threads:True,graph_capture_record_stream_reuse:False,"
      "throw_on_cudamalloc_oom:True,pinned_reserve_segment_size_mb:0,pinned_max_round_threshold_mb:1,"
      "pinned_max_cached_size_mb:2,pinned_free_catch_all:False");
}

static void test_divisions(void) {
  struct dit_allocator_config config = parse("roundup_power2_divisions:8");
  for (int i = 0; i < DIT_DIVISION_INTERVALS; i++) {
    CHECK(config.divisions[i] == 8);
  }
  config = parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  for (int i = 0; i < DIT_DIVISION_INTERVALS; i++) {
    CHECK(config.divisions[i] == (i <= 8 ? 1u : i == 9 ? 2u : 8u));  // '>' starts with the last interval, as in PyTorch
  }
  config = parse("roundup_power2_divisions:[4:2,16:4],max_split_size_mb:20");
  for (int i = 0; i < DIT_DIVISION_INTERVALS; i++) {
    CHECK(config.divisions[i] == (i <= 2 ? 2u : i == 4 ? 4u : 0u));
  }
  config = parse("roundup_power2_divisions:[>:4]");
  CHECK(config.divisions[0] == 4 && config.divisions[15] == 4);
  config = parse("roundup_power2_divisions:[1048576:4]");
  CHECK(config.divisions[15] == 4);
}

static void test_refusals(void) {
  static const struct {
    const char *text, *part;
  } cases[] = {
      {"max_split_size:128",
       "unknown key 'max_split_size'; valid keys: max_split_size_mb, garbage_collection_threshold"},
      {"nonsense", "unknown key 'nonsense'"},
      {"max_split_size_mb", "expected ':' after 'max_split_size_mb' but found 'the end of the text'"},
      {"max_split_size_mb:", "value '' of max_split_size_mb is not valid; valid: a whole number of MiB, at least 20"},
      {"max_split_size_mb:19", "value '19'"},
      {"max_split_size_mb:-1", "value '-1'"},
      {"max_split_size_mb:1e3", "value '1e3'"},
      {"max_split_size_mb:99999999999999999999999", "value '99999999999999999999999'"},
      {"max_split_size_mb:20 garbage_collection_threshold:0.5", "value '20garbage_collection_threshold'"},
      {"max_split_size_mb:20:5", "expected ',' after max_split_size_mb but found ':'"},
      {"garbage_collection_threshold:1.0", "above 0 and below 1"},
      {"garbage_collection_threshold:nan", "value 'nan'"},
      {"garbage_collection_threshold:0.5x", "value '0.5x'"},
      {"per_process_memory_fraction:0", "above 0, at most 1"},
      {"per_process_memory_fraction:1.5", "value '1.5'"},
      {"backend:fast", "valid: native, bf"},
      {"expandable_segments:yes", "value 'yes' of expandable_segments is not valid; valid: True, False"},
      {"pinned_num_register_threads:3", "a power of two from 1 to 128"},
      {"pinned_max_cached_size_mb:x", "a whole number"},
      {"roundup_power2_divisions:3", "value '3'"},
      {"roundup_power2_divisions:[]", "a list that is not empty"},
      {"roundup_power2_divisions:[256:3]", "a power of two, or 0 for none"},
      {"roundup_power2_divisions:[300:1]", "sizes that are a power of two"},
      {"roundup_power2_divisions:[256:1", "a list such as"},
      {"roundup_power2_divisions:[256:1,", "sizes that are a power of two"},
      {"roundup_power2_divisions:[256]", "expected ':'"},
      {"roundup_power2_divisions:[256:1 512:2]", "value '1512'"},
      {",", "unknown key ','"},
      {"[", "unknown key '['"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    struct dit_allocator_config config = {.max_split_size = 77};
    err.message[0] = '\0';
    CHECK(dit_allocator_config_parse(cases[i].text, &config, &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, cases[i].part);
    CHECK(config.max_split_size == 77);
  }
}

/// Random texts made of the grammar's own pieces: never a crash, never a hang.
static void test_random_texts(void) {
  static const char *pieces[] = {"max_split_size_mb",
                                 ":",
                                 ",",
                                 "[",
                                 "]",
                                 ">",
                                 "256",
                                 "1",
                                 "0.5",
                                 "True",
                                 " ",
                                 "backend",
                                 "raw",
                                 "roundup_power2_divisions",
                                 "garbage_collection_threshold",
                                 "\xff",
                                 "-",
                                 "expandable_segments"};
  uint64_t state = 12345;
  int accepted = 0;
  for (int round = 0; round < 20000; round++) {
    char text[512] = "";
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    for (int n = (int)(state >> 60); n >= 0; n--) {
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
      strcat(text, pieces[(state >> 33) % (sizeof(pieces) / sizeof(pieces[0]))]);
    }
    struct dit_allocator_config config;
    accepted += dit_allocator_config_parse(text, &config, NULL) == DIT_OK;
  }
  CHECK(accepted > 0 && accepted < 20000);
}

int main(void) {
  RUN(test_defaults);
  RUN(test_values);
  RUN(test_keys_without_effect);
  RUN(test_divisions);
  RUN(test_refusals);
  RUN(test_random_texts);
  return 0;
}
