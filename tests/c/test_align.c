/// Alignment of two runs: sequences against a plain longest common subsequence, names, judgement, memory that fails.
#include <math.h>

#include "check.h"
#include "dit/align.h"
#include "dit/alloc.h"

static uint64_t seed = 1;

static uint32_t draw(uint32_t below) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(seed >> 33) % below;
}

// The plain table.
static size_t common(const uint32_t *a, size_t rows, const uint32_t *b, size_t columns) {
  static size_t cells[130][130];
  for (size_t i = rows + 1; i-- > 0;) {
    for (size_t j = columns + 1; j-- > 0;) {
      size_t best = 0;
      if (i < rows && j < columns) {
        best = cells[i + 1][j] > cells[i][j + 1] ? cells[i + 1][j] : cells[i][j + 1];
        best = a[i] == b[j] ? cells[i + 1][j + 1] + 1 : best;
      }
      cells[i][j] = best;
    }
  }
  return cells[0][0];
}

static size_t check_matches(const uint32_t *a, size_t rows, const uint32_t *b, size_t columns, const int32_t *match) {
  size_t found = 0;
  int32_t last = -1;
  for (size_t i = 0; i < rows; i++) {
    if (match[i] >= 0) {
      CHECK(match[i] > last && (size_t)match[i] < columns && a[i] == b[match[i]]);
      last = match[i];
      found++;
    }
  }
  return found;
}

static void test_small_sequences_are_aligned_exactly(void) {
  struct dit_error err = {0};
  for (int round = 0; round < 2000; round++) {
    uint32_t a[60], b[60], keys = 1 + draw(9);
    int32_t match[60];
    size_t rows = draw(60), columns = draw(60);
    for (size_t i = 0; i < 60; i++) {
      a[i] = draw(keys);
      b[i] = draw(keys);
    }
    CHECK_OK(dit_align_sequences(a, rows, b, columns, keys, match, &err));
    CHECK(check_matches(a, rows, b, columns, match) == common(a, rows, b, columns));
  }
}

// A long sequence with known changes: what stayed must be found again.
static void test_long_sequences_keep_what_stayed(void) {
  enum { LENGTH = 40000, KEYS = 300 };
  struct dit_error err = {0};
  uint32_t *a = dit_malloc(LENGTH * sizeof(*a)), *b = dit_malloc(2 * (size_t)LENGTH * sizeof(*b));
  int32_t *match = dit_malloc(LENGTH * sizeof(*match)), *truth = dit_malloc(LENGTH * sizeof(*truth));
  CHECK(a && b && match && truth);
  size_t columns = 0, kept = 0, right = 0;
  for (size_t i = 0; i < LENGTH; i++) {
    a[i] = (uint32_t)(i % 7 == 0 ? 0 : i % KEYS);
    truth[i] = -1;
    if (draw(100) < 3) {
      continue;
    }
    while (draw(100) < 3) {
      b[columns++] = draw(KEYS);
    }
    kept++;
    truth[i] = (int32_t)columns;
    b[columns++] = a[i];
  }
  CHECK_OK(dit_align_sequences(a, LENGTH, b, columns, KEYS, match, &err));
  CHECK(check_matches(a, LENGTH, b, columns, match) >= kept * 99 / 100);
  for (size_t i = 0; i < LENGTH; i++) {
    right += match[i] == truth[i];
  }
  CHECK(right >= LENGTH * (size_t)97 / 100);
  dit_free(a);
  dit_free(b);
  dit_free(match);
  dit_free(truth);
}

// Nothing in common, or nothing but one key: time and memory stay bounded.
static void test_hopeless_sequences_end(void) {
  enum { LENGTH = 100000 };
  struct dit_error err = {0};
  uint32_t *a = dit_malloc(LENGTH * sizeof(*a)), *b = dit_malloc(LENGTH * sizeof(*b));
  int32_t *match = dit_malloc(LENGTH * sizeof(*match));
  CHECK(a && b && match);
  for (int kind = 0; kind < 3; kind++) {
    for (size_t i = 0; i < LENGTH; i++) {
      a[i] = kind == 0 ? 0 : draw(50);
      b[i] = kind == 0 ? 1 : kind == 1 ? draw(50) : 50 + draw(50);
    }
    CHECK_OK(dit_align_sequences(a, LENGTH, b, LENGTH - 1, 100, match, &err));
    (void)check_matches(a, LENGTH, b, LENGTH - 1, match);
  }
  dit_free(a);
  dit_free(b);
  dit_free(match);
}

static void test_names(void) {
  struct dit_error err = {0};
  struct dit_align_names *names = NULL;
  CHECK_OK(dit_align_names_create(&names, &err));
  for (int round = 0; round < 2; round++) {
    for (uint32_t i = 1; i <= 5000; i++) {
      char text[32];
      uint32_t number = 0;
      snprintf(text, sizeof(text), "name %u", i);
      CHECK_OK(dit_align_names_take(names, text, strlen(text), &number, &err));
      CHECK(number == i && dit_align_names_get(names, i).size == strlen(text));
      CHECK(memcmp(dit_align_names_get(names, i).data, text, strlen(text)) == 0);
    }
  }
  CHECK(dit_align_names_get_count(names) == 5000);
  CHECK(dit_align_names_get(names, 0).size == 0 && dit_align_names_get(names, 5001).size == 0);
  uint32_t number = 7;
  CHECK_OK(dit_align_names_take(names, "", 0, &number, &err));
  CHECK(number == 0);
  dit_align_names_destroy(names);
  dit_align_names_destroy(NULL);
}

static void test_judgement(void) {
  struct dit_align_stats a = {.hash = 1, .norm = 10, .mean = 0.5, .min = -2, .max = 4, .numel = 100, .hashed = true};
  struct dit_align_stats b = a;
  double error = 1;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_EQUAL && error == 0);
  b.hash = 2;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_CLOSE && error == DIT_ALIGN_BITS);
  b.hashed = false;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_CLOSE && error == 0);
  b.max = 4.4;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_CLOSE && fabs(error - 0.4 / 4.4) < 1e-12);
  b.nan = 1;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_CLOSE && isinf(error));
  b.numel = 99;
  CHECK(dit_align_judge(&a, &b, &error) == DIT_ALIGN_SHAPES);
  struct dit_align_stats zero = {.numel = 5}, same = {.numel = 5, .hash = 3};
  CHECK(dit_align_judge(&zero, &same, &error) == DIT_ALIGN_CLOSE && error == 0);
}

static void test_memory_that_fails(void) {
  uint32_t a[] = {1, 2, 3, 4}, b[] = {4, 3, 2, 1};
  int32_t match[4];
  for (int64_t after = 0;; after++) {
    struct dit_error err = {0};
    int64_t live = dit_alloc_get_live();
    struct dit_align_names *names = NULL;
    dit_alloc_set_failure(after);
    enum dit_status status = dit_align_names_create(&names, &err);
    if (status == DIT_OK) {
      status = dit_align_sequences(a, 4, b, 4, 5, match, &err);
    }
    dit_alloc_set_failure(-1);
    dit_align_names_destroy(names);
    CHECK(dit_alloc_get_live() == live);
    if (status == DIT_OK) {
      CHECK(after > 5);
      return;
    }
    CHECK(status == DIT_ERR_NOMEM);
  }
}

int main(void) {
  RUN(test_small_sequences_are_aligned_exactly);
  RUN(test_long_sequences_keep_what_stayed);
  RUN(test_hopeless_sequences_end);
  RUN(test_names);
  RUN(test_judgement);
  RUN(test_memory_that_fails);
  return 0;
}
