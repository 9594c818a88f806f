/// The allocation seam: sizes, counters, failure injection.
#include <pthread.h>

#include "check.h"
#include "dit/alloc.h"

static void test_blocks(void) {
  int64_t live = dit_alloc_get_live(), count = dit_alloc_get_count();
  void *a = dit_malloc(0), *b = dit_malloc(0);
  CHECK(a && b && a != b);
  unsigned char *c = dit_calloc(7, 3);
  CHECK(c);
  for (int i = 0; i < 21; i++) {
    CHECK(c[i] == 0);
  }
  char *text = dit_strdup("hello");
  CHECK(text && strcmp(text, "hello") == 0);
  CHECK(dit_alloc_get_live() == live + 4 && dit_alloc_get_count() == count + 4);
  text = dit_realloc(text, 1000);
  CHECK(text && strcmp(text, "hello") == 0 && dit_alloc_get_live() == live + 4);
  void *grown = dit_realloc(NULL, 10);
  CHECK(grown && dit_alloc_get_live() == live + 5);
  void *zero = dit_calloc(0, 8);
  CHECK(zero);
  dit_free(a);
  dit_free(b);
  dit_free(c);
  dit_free(text);
  dit_free(grown);
  dit_free(zero);
  dit_free(NULL);
  CHECK(dit_alloc_get_live() == live);
}

static void test_overflow(void) {
  volatile size_t half = SIZE_MAX / 2;  // volatile: the compiler would refuse the constant
  CHECK(dit_calloc(half, 4) == NULL);
}

static void test_failure(void) {
  int64_t live = dit_alloc_get_live();
  dit_alloc_set_failure(2);
  void *a = dit_malloc(8), *b = dit_malloc(8);
  CHECK(a && b);
  CHECK(!dit_malloc(8) && !dit_calloc(1, 8) && !dit_strdup("x"));
  char *old = a;
  old[0] = 'k';
  CHECK(!dit_realloc(a, 100) && old[0] == 'k');
  dit_alloc_set_failure(-1);
  void *c = dit_malloc(8);
  CHECK(c);
  dit_alloc_set_failure(0);
  CHECK(!dit_malloc(1));
  dit_alloc_set_failure(-1);
  dit_free(a);
  dit_free(b);
  dit_free(c);
  CHECK(dit_alloc_get_live() == live);
}

static void *allocate_many(void *unused) {
  (void)unused;
  for (int i = 0; i < 20000; i++) {
    dit_free(dit_malloc((size_t)(i % 100)));
  }
  return NULL;
}

static void test_threads(void) {
  int64_t live = dit_alloc_get_live(), count = dit_alloc_get_count();
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, allocate_many, NULL) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
  CHECK(dit_alloc_get_live() == live && dit_alloc_get_count() == count + 80000);
}

int main(void) {
  RUN(test_blocks);
  RUN(test_overflow);
  RUN(test_failure);
  RUN(test_threads);
  return 0;
}
