/// Names of operators as people write them: spellings, patterns, parts, and what exists.
#include <string.h>

#include "check.h"
#include "dit/fault.h"
#include "dit/operator_name.h"

#define CHECK_TEXT(text, wanted) CHECK(strcmp((text), (wanted)) == 0)

static const struct {
  const char *name;
  bool seen;
} operators[] = {{"aten::add.Tensor", true},   {"aten::add.out", true},     {"aten::add_.Tensor", true},
                 {"aten::softmax.int", false}, {"aten::_softmax", true},    {"aten::conv2d", false},
                 {"aten::convolution", true},  {"aten::mm", true},          {"aten::square_", false},
                 {"aten::pow_.Scalar", true},  {"aten::is_complex", false}, {"quantized::conv2d", true},
                 {"quantized::softmax", true}, {"mylib::attend", true}};

static void list(dit_operator_visitor visit, void *context) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    visit(context, operators[i].name, operators[i].seen);
  }
}

static void test_spellings(void) {
  static const char *const cases[][2] = {{"torch.ops.aten.add.Tensor", "add.Tensor"},
                                         {"torch.nn.functional.softmax", "softmax"},
                                         {"F.softmax", "softmax"},
                                         {"Tensor.add_", "add_"},
                                         {"aten::add.default", "aten::add"},
                                         {"aten.mm.default", "mm"},
                                         {"mm", "mm"}};
  char buffer[64];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dit_operator_name_simplify(cases[i][0], buffer, sizeof buffer);
    CHECK_TEXT(buffer, cases[i][1]);
  }
  dit_operator_name_simplify("torch.softmax", buffer, 5);
  CHECK_TEXT(buffer, "soft");
  CHECK(dit_operator_name_is_plain("aten::add.out") && !dit_operator_name_is_plain("add*"));
  CHECK(!dit_operator_name_is_plain(""));
}

static void test_patterns(void) {
  CHECK(dit_operator_name_matches("add", "aten::add.Tensor"));
  CHECK(dit_operator_name_matches("mm|add.T*", "aten::add.Tensor"));
  CHECK(dit_operator_name_matches("mylib::f", "mylib::f.default"));
  CHECK(!dit_operator_name_matches("mm|bmm", "aten::add.Tensor"));
  CHECK(!dit_operator_name_matches("", "aten::add.Tensor"));
}

static void test_meanings(void) {
  static const struct {
    const char *text, *pattern;
    enum dit_operator_meaning meaning;
  } cases[] = {{"torch.softmax", "_softmax", DIT_OPERATOR_MEANS_SEEN},
               {"softmax", "_softmax", DIT_OPERATOR_MEANS_SEEN},
               {"F.conv2d", "convolution", DIT_OPERATOR_MEANS_SEEN},
               {"add.out", "add.out", DIT_OPERATOR_MEANS_SEEN},
               {"Tensor.square_", "pow_", DIT_OPERATOR_MEANS_SEEN},
               {"*mm*", "*mm*", DIT_OPERATOR_MEANS_SEEN},
               {"attend", "attend", DIT_OPERATOR_MEANS_SEEN},
               {"mylib::attend", "mylib::attend", DIT_OPERATOR_MEANS_SEEN},
               {"is_complex", "is_complex", DIT_OPERATOR_MEANS_OTHERS},
               {"sofmax", "sofmax", DIT_OPERATOR_MEANS_NOTHING},
               {"*nothing*", "*nothing*", DIT_OPERATOR_MEANS_NOTHING}};
  char buffer[128];
  CHECK(dit_operator_name_resolve("sofmax", buffer, sizeof buffer) == DIT_OPERATOR_MEANS_SEEN);  // nobody knows better
  dit_operator_lister_set(list);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK(dit_operator_name_resolve(cases[i].text, buffer, sizeof buffer) == cases[i].meaning);
    CHECK_TEXT(buffer, cases[i].pattern);
  }
  dit_operator_name_list_nearest("torch.sofmax", buffer, sizeof buffer);
  CHECK(strncmp(buffer, "softmax, _softmax", 17) == 0);
  dit_operator_name_list_nearest("aten::ad.out", buffer, sizeof buffer);
  CHECK(strncmp(buffer, "add.out", 7) == 0);
}

static void test_rules(void) {
  struct dit_error err = {0};
  char warning[512];
  uint64_t token = 0;
  CHECK_OK(dit_fault_configure("slow:torch.softmax|mm,ms=0", &err));
  dit_fault_get_warning(warning, sizeof warning);
  CHECK_TEXT(warning, "");
  CHECK_OK(dit_fault_before("aten::_softmax", NULL, 0, &token, &err));
  CHECK_OK(dit_fault_before("aten::mm", NULL, 0, &token, &err));
  CHECK(dit_fault_get_count() == 2);
  CHECK_OK(dit_fault_configure("nan:mm; nan:sofmax; nan:is_complex", &err));
  dit_fault_get_warning(warning, sizeof warning);
  CHECK_CONTAINS(warning, "fault rule 2: 'sofmax' matches no operator; the nearest are softmax");
  CHECK_CONTAINS(warning, "fault rule 3: 'is_complex' never comes to the device itself");
  CHECK_OK(dit_fault_configure(NULL, &err));
  dit_fault_get_warning(warning, sizeof warning);
  CHECK_TEXT(warning, "");
  dit_operator_lister_set(NULL);
}

int main(void) {
  RUN(test_spellings);
  RUN(test_patterns);
  RUN(test_meanings);
  RUN(test_rules);
  return 0;
}
