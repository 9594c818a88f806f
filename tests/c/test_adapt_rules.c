/// Rules files of the adaptor: what is accepted, what every mistake says, and that no text can harm the reader.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dit/adapt.h"
#include "dit/diopi.h"

static struct dit_diopi_library *adapt;
static enum dit_status (*configure)(const char *, const char *, struct dit_error *);
static struct dit_error err;
static const char *const narrow = DIT_TEST_VENDORS "/diopi_narrow.so";

static const char sample[] =
    "---\n"
    "# what the device lacks\n"
    "- common_config:\n"
    "    dtype: (int64)->int32, (float64)->float32, (complex128)->complex64\n"
    "    layout: NCHW\n"
    "\n"
    "- diopiSoftmax:\n"
    "    dtype: (float64)->float32\n"
    "    layout: ND\n"
    "- diopiSoftmax:      # a second entry adds to the first\n"
    "    supportComposite: true\n"
    "- diopiAny:\n"
    "    dtype: (float16, float32, float64,\n"
    "      int16, int32, bfloat16)->bool\n"
    "- diopiRMSNorm:\n"
    "    dtype: '(float64)->float32'\n"
    "    tensor_dtype:\n"
    "        inv_rms: (float16, float64)->float32\n"
    "        input:\n"
    "            (float64)->float32\n"
    "- diopiUpsampleLinear:\n"
    "    layout: NLC, NHWC(input), NDHWC\n"
    "- diopiConvolution2d:\n"
    "    layout: [NHWC]\n"
    "    contiguous: false\n";

static void test_accepted(void) {
  CHECK_OK(configure(narrow, sample, &err));
  CHECK_OK(configure(narrow, "", &err));
  CHECK_OK(configure(narrow, "[]\n", &err));
  CHECK_OK(configure(narrow, "- diopiAdd:\n", &err));
  CHECK_OK(configure(narrow, "- diopiAdd:\r\n    dtype: (int64)->int32\r\n", &err));
  CHECK_OK(configure(narrow, "  - diopiAdd:\n      dtype: (int64)->int32", &err));
}

static void test_mistakes(void) {
  static const char *const mistakes[][2] = {
      {"- diopiSoftMaxx:\n    layout: ND\n",
       "line 1: the standard has no function 'diopiSoftMaxx'; did you mean "
       "'diopiSoftmax'?"},
      {"- diopiAdd:\n    dtype: (int644)->int32\n", "there is no dtype 'int644'; did you mean 'int64'?"},
      {"- diopiAdd:\n    layout: NHCW\n", "there is no layout 'NHCW'; did you mean 'NCHW'?"},
      {"- diopiAdd:\n    dtyp: (int64)->int32\n", "there is no key 'dtyp'; did you mean 'dtype'?"},
      {"- diopiAdd:\n    tensor_dtype:\n      inputs: (int64)->int32\n",
       "diopiAdd has no tensor 'inputs'; did you mean 'input'?"},
      {"- diopiAdd:\n    layout: NHWC(weight)\n", "diopiAdd has no tensor 'weight'"},
      {"- common_config:\n    layout: NHWC(input)\n", "belong to a function"},
      {"- diopiAdd:\n    dtype: int64->int32\n", "is no rule; the form is (int64, uint8)->int32"},
      {"- diopiAdd:\n    dtype: (int64)int32\n", "has no '->dtype'"},
      {"- diopiAdd:\n    dtype: (int64\n", "is no rule"},
      {"- diopiAdd:\n    supportComposite: maybe\n", "neither true nor false"},
      {"- diopiAdd:\n    dtype:\n      input: (int64)->int32\n", "'dtype' has no keys below it"},
      {"- diopiAdd:\n    tensor_dtype: (int64)->int32\n", "has a line for each tensor"},
      {"- diopiAdd: ND\n", "belongs to a key"},
      {"diopiAdd:\n    layout: ND\n", "line 1: rules are a list"},
      {"- diopiAdd:\n\tlayout: ND\n", "line 2: a tab"},
      {"- diopiAdd:\n    layout: ND\n   dtype: (int64)->int32\n", "different indents"},
      {"- diopiAdd:\n    layout: &anchor ND\n", "anchors, tags"},
      {"- diopiAdd\n", "an entry has the form"},
      {"- diopiAdd:\n    nothing\n", "neither '- name:' nor 'key: value'"},
      {"- diopiAdd:\n    layout: ND\n      dtype: (int64)->int32\n", "a key below a value"},
  };
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
    err.message[0] = 0;
    CHECK(configure(narrow, mistakes[i][0], &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, mistakes[i][1]);
    CHECK_CONTAINS(err.message, "line ");
  }
}

static void test_limits(void) {
  static char text[8192];
  memset(text, 'a', sizeof text - 1);
  memcpy(text, "- diopiAdd:\n    ", 16);
  CHECK(configure(narrow, text, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "longer than");
  memset(text, 0, sizeof text);
  strcpy(text, "- diopiAdd:\n    dtype: (int64)->int32,\n");
  for (int i = 0; i < 200; i++) {
    strcat(text, "      (int64)->int32,\n");
  }
  CHECK(configure(narrow, text, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "longer than 2047");
}

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/// The sample with bytes changed, dropped, doubled and lines exchanged.
static void test_random_damage(void) {
  static const char signs[] = "-:,()>[]{}#'\" \n\t\r&*|0aN\xC3\xFF";
  static char text[4 * sizeof sample];
  uint64_t state = 0x9E3779B97F4A7C15;
  int accepted = 0, refused = 0;
  const double end = check_get_seconds() + 5;
  for (int round = 0; round < 3000 && check_get_seconds() < end; round++) {
    size_t size = sizeof sample - 1;
    memcpy(text, sample, size);
    for (uint64_t times = next_random(&state) % 6; times > 0 && size > 2; times--) {
      const size_t at = next_random(&state) % size, length = next_random(&state) % (size - at) % 40;
      switch (next_random(&state) % 4) {
        case 0:
          text[at] = signs[next_random(&state) % (sizeof signs - 1)];
          break;
        case 1:
          memmove(text + at, text + at + length, size - at - length);
          size -= length;
          break;
        case 2:
          memmove(text + at + length, text + at, size - at);
          size += length;
          break;
        default:
          size = at;
      }
      size = size > 3 * sizeof sample ? 3 * sizeof sample : size;
    }
    text[size] = 0;
    err.message[0] = 0;
    const enum dit_status status = configure(narrow, text, &err);
    CHECK(status == DIT_OK || (status == DIT_ERR_INVALID && strstr(err.message, "line ")));
    *(status == DIT_OK ? &accepted : &refused) += 1;
  }
  CHECK(accepted > 10 && refused > 10);
}

int main(void) {
  CHECK_OK(dit_diopi_library_open("adapt", &adapt, &err));
  void *symbol = dlsym(adapt->handle, "dit_adapt_configure");
  CHECK(symbol);
  memcpy(&configure, &symbol, sizeof symbol);
  RUN(test_accepted);
  RUN(test_mistakes);
  RUN(test_limits);
  RUN(test_random_damage);
  dit_diopi_library_close(adapt);
  return 0;
}
