// The operator table: spellings of names, what words stand for, every word of every row.
#include <math.h>
#include <string.h>

#include "check.h"
#include "dit/operator.h"

#define CHECK_TEXT(text, wanted) CHECK(strcmp((text), (wanted)) == 0)

static const char *find_name(const char *name) {
  const struct dit_operator *row = dit_operator_find(name);
  return row ? row->name : "none";
}

static void test_spellings(void) {
  static const char *const names[] = {
      "torch.Tensor.view",           "torch.view", "aten::view", "aten::view.dtype", "aten.view.default",
      "torch.ops.aten.view.default", "view"};
  char buffer[16];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    CHECK_TEXT(dit_operator_get_word(names[i], buffer, sizeof buffer), "view");
    CHECK_TEXT(find_name(names[i]), "view");
    CHECK(dit_operator_has(names[i], DIT_OPERATOR_VIEW));
  }
  CHECK_TEXT(dit_operator_get_word("", buffer, sizeof buffer), "");
  CHECK_TEXT(dit_operator_get_word("aten::softmax.int", buffer, 5), "soft");
  CHECK_TEXT(find_name("torch.nn.functional.softmax"), "softmax");
}

static void test_nonsense(void) {
  char long_name[1000];
  memset(long_name, 'a', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = '\0';
  const char *const names[] = {
      "",       ".",     "::",  "_",      "__",        "____",       "__r__",  "torch.nonsense",
      "aten::", "aten.", "a.b", "viewer", "_foreach_", "_foreach__", long_name};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    CHECK(!dit_operator_find(names[i]));
    CHECK(dit_operator_get_traits(names[i]) == 0);
    CHECK(!dit_operator_has(names[i], UINT64_MAX));
  }
}

static void test_derived_words(void) {
  CHECK_TEXT(find_name("torch.Tensor.add_"), "add");
  CHECK_TEXT(find_name("torch.Tensor.__add__"), "add");
  CHECK_TEXT(find_name("torch.Tensor.__radd__"), "add");
  CHECK_TEXT(find_name("torch.Tensor.__iadd__"), "add");
  CHECK_TEXT(find_name("torch.Tensor.__imatmul__"), "matmul");
  CHECK_TEXT(find_name("torch.Tensor.__rand__"), "bitwise_and");  // not torch.rand
  CHECK_TEXT(find_name("torch._foreach_add"), "add");
  CHECK_TEXT(find_name("aten::_foreach_add_.List"), "add");
  CHECK_TEXT(find_name("torch._foreach_norm"), "_foreach_norm");
  CHECK_TEXT(find_name("torch.Tensor.addmm_"), "addmm");
  // Numerical traits are shared, others are not.
  CHECK(dit_operator_has("torch.exp", DIT_OPERATOR_AUTOCAST_FLOAT));
  CHECK(!dit_operator_has("torch.exp_", DIT_OPERATOR_AUTOCAST_FLOAT));
  CHECK(dit_operator_get_traits("torch.exp_") == DIT_OPERATOR_POINTWISE);
  CHECK(!dit_operator_has("torch.Tensor.as_strided_", DIT_OPERATOR_VIEW | DIT_OPERATOR_LOOSE));
  CHECK(dit_operator_has("torch.Tensor.random_", DIT_OPERATOR_RANDOM));
  CHECK(!dit_operator_find("torch.resize"));
}

static void test_words_with_two_meanings(void) {
  CHECK_TEXT(find_name("torch.Tensor.unfold"), "unfold");
  CHECK_TEXT(find_name("torch.nn.functional.unfold"), "im2col");
  CHECK(dit_operator_has("torch.Tensor.exponential_", DIT_OPERATOR_RANDOM));
  CHECK(!dit_operator_has("torch.signal.windows.exponential", DIT_OPERATOR_RANDOM));
  CHECK_TEXT(find_name("torch.distributed.scatter"), "distributed.scatter");
  CHECK_TEXT(find_name("torch.scatter"), "scatter");
  CHECK(!dit_operator_find("torch.distributed.view"));
  CHECK(!dit_operator_find("c10d::view"));
}

static void test_details(void) {
  const struct dit_operator *row = dit_operator_find("torch.topk");
  CHECK(row->dim == 2 && row->index == -1 && row->draw == DIT_OPERATOR_DRAW_NONE && isnan(row->low));
  CHECK(dit_operator_find("max_pool2d_with_indices")->dim == DIT_OPERATOR_PLANE);
  CHECK(dit_operator_find("torch.linalg.svd")->loose == 5);
  CHECK(dit_operator_find("pca_lowrank")->loose == DIT_OPERATOR_ALL);
  CHECK(dit_operator_find("scatter_")->index == 2);
  row = dit_operator_find("geometric_");
  CHECK(row->draw == DIT_OPERATOR_DRAW_DISCRETE && row->low == 1 && isinf(row->high));
  CHECK(dit_operator_find("dropout3d")->channels == 5 && dit_operator_find("dropout")->channels == 0);
  row = dit_operator_find("torch.nn.functional.instance_norm");
  CHECK(row->writes_first == 3 && row->writes_count == 2 && row->writes_if == 5 && row->writes_default);
  CHECK(dit_operator_find("torch._fused_adagrad_")->castable == 3);
  CHECK(dit_operator_find("conv2d")->length == DIT_OPERATOR_LENGTH_WINDOW);
  row = dit_operator_find("torch.nn.functional.embedding");
  CHECK_TEXT(row->unless, "max_norm");
  CHECK(row->unless_place == 3);
  CHECK(strstr(dit_operator_find("qr")->reason, "signs") != NULL);
}

static void test_every_word(void) {
  const char *before = "";
  size_t count = 0;
  for (const char *word; (word = dit_operator_get_name(count)); before = word, count++) {
    CHECK(strcmp(before, word) < 0);
    const struct dit_operator *row = dit_operator_find(word);
    CHECK(row && row->traits == dit_operator_get_traits(word));
    CHECK(strcmp(dit_operator_find(row->name)->name, row->name) == 0);
    CHECK(!(row->traits & DIT_OPERATOR_LOOSE) == !row->loose);
  }
  CHECK(count > 1000);
}

static void test_traits(void) {
  int bits = 0;
  while (dit_operator_trait_get_name(bits)) {
    bits++;
  }
  CHECK_TEXT(dit_operator_trait_get_name(0), "view");
  CHECK_TEXT(dit_operator_trait_get_name(bits - 1), "rescales");
  CHECK(DIT_OPERATOR_RESCALES == UINT64_C(1) << (bits - 1));
  CHECK(!dit_operator_trait_get_name(-1));
}

int main(void) {
  RUN(test_spellings);
  RUN(test_nonsense);
  RUN(test_derived_words);
  RUN(test_words_with_two_meanings);
  RUN(test_details);
  RUN(test_every_word);
  RUN(test_traits);
  return 0;
}
