/// The fault hook: grammar, matching, counting, and the damage of every kind on every dtype, on strided views too.
#include "kernel_check.h"

static const int damage_dtypes[] = {
    DIT_DTYPE_U8,   DIT_DTYPE_I8,      DIT_DTYPE_I16,       DIT_DTYPE_I32,         DIT_DTYPE_I64,
    DIT_DTYPE_F16,  DIT_DTYPE_F32,     DIT_DTYPE_F64,       DIT_DTYPE_C32,         DIT_DTYPE_C64,
    DIT_DTYPE_C128, DIT_DTYPE_BOOL,    DIT_DTYPE_BF16,      DIT_DTYPE_U16,         DIT_DTYPE_U32,
    DIT_DTYPE_U64,  DIT_DTYPE_F8_E5M2, DIT_DTYPE_F8_E4M3FN, DIT_DTYPE_F8_E5M2FNUZ, DIT_DTYPE_F8_E4M3FNUZ};
#define DAMAGE_DTYPES (int)(sizeof(damage_dtypes) / sizeof(damage_dtypes[0]))

static void configure(const char *text) {
  struct dit_error err = {0};
  CHECK_OK(dit_fault_configure(text, &err));
}

/// One whole call; returns the status of the first half.
static enum dit_status call(const char *op, const struct dit_tensor_view *in, const struct dit_tensor_view *out,
                            struct dit_error *err) {
  uint64_t token = 99;
  enum dit_status status = dit_fault_before(op, in, in ? 1 : 0, &token, err);
  if (status == DIT_OK && token) {
    dit_fault_after(token, in, in ? 1 : 0, out, out ? 1 : 0);
  }
  return status;
}

static void test_bad_text(void) {
  static const char *const texts[][2] = {{"nan", "kind:operator"},
                                         {"wrong:mm", "unknown kind 'wrong'"},
                                         {"wrong:mm", "unwritten"},
                                         {"nan:", "operator ''"},
                                         {"nan:mm,call=0", "call='0'"},
                                         {"nan:mm,call=5-2", "call='5-2'"},
                                         {"nan:mm,dtype=float33", "dtype='float33'"},
                                         {"nan:mm,probability=2", "probability='2'"},
                                         {"nan:mm,bits=60", "bits='60'"},
                                         {"nan:mm,flavour=1", "unknown key 'flavour'"},
                                         {"nan:mm,call", "key=value"},
                                         {"slow:mm,ms=-1", "ms='-1'"},
                                         {"nan:mm; value:add,index=x", "rule 2"}};
  configure("slow:mm,ms=0");
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
    struct dit_error err = {0};
    CHECK(dit_fault_configure(texts[i][0], &err) == DIT_ERR_INVALID);
    CHECK_CONTAINS(err.message, texts[i][1]);
    CHECK(dit_fault_is_active());  // the old rules stay
  }
  configure(NULL);
  CHECK(!dit_fault_is_active());
  configure("  ;  ");
  CHECK(!dit_fault_is_active());
}

static void test_names(void) {
  static const struct {
    const char *pattern, *op;
    bool match;
  } cases[] = {{"aten::add.Tensor", "aten::add.Tensor", true},
               {"add.Tensor", "aten::add.Tensor", true},
               {"add", "aten::add.Tensor", true},
               {"aten::add", "aten::add.Tensor", true},
               {"add", "aten::add_.Tensor", false},
               {"add", "aten::addmm", false},
               {"*softmax*", "aten::_log_softmax", true},
               {"mm", "aten::mm", true},
               {"mm", "aten::addmm", false},
               {"add.out", "aten::add.Tensor", false},
               {"*", "custom::thing", true}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char text[128];
    struct dit_error err = {0};
    snprintf(text, sizeof(text), "error:%s", cases[i].pattern);
    configure(text);
    enum dit_status status = call(cases[i].op, NULL, NULL, &err);
    CHECK((status == DIT_ERR_DEVICE) == cases[i].match);
    if (cases[i].match) {
      CHECK_CONTAINS(err.message, "injected fault: ");
      CHECK_CONTAINS(err.message, cases[i].op);
    }
    CHECK(dit_fault_get_count() == (cases[i].match ? 1 : 0));
  }
}

/// One operator that goes by two names is one call to every rule.
static void test_two_names(void) {
  static const char both[] = "aten::_to_copy|aten::copy_";
  static const char *const patterns[] = {"error:_to_copy", "error:copy_", "error:_to_copy|copy_", "error:*copy*"};
  for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
    struct dit_error err = {0};
    configure(patterns[i]);
    CHECK(call(both, NULL, NULL, &err) == DIT_ERR_DEVICE);
    CHECK_CONTAINS(err.message, "aten::_to_copy failed");
    CHECK(dit_fault_get_count() == 1);
  }
  struct dit_error err = {0};
  configure("error:to_copy; error:copy; error:aten::_to_copy|x,call=2");
  CHECK_OK(call(both, NULL, NULL, &err));
  CHECK(call(both, NULL, NULL, &err) == DIT_ERR_DEVICE);
}

static void count_calls(const char *text, const char *expected) {
  configure(text);
  for (int i = 0; expected[i]; i++) {
    struct dit_error err = {0};
    CHECK(call("aten::mm", NULL, NULL, &err) == (expected[i] == 'x' ? DIT_ERR_DEVICE : DIT_OK));
    CHECK(call("aten::other", NULL, NULL, &err) == DIT_OK);
  }
}

static void test_calls(void) {
  count_calls("error:mm,call=3", "..x...");
  count_calls("error:mm,call=2-4", ".xxx..");
  count_calls("error:mm,call=4+", "...xxx");
  count_calls("error:mm , call = 1 ; error:mm,call=5", "x...x.");
  count_calls("error:mm,probability=0", "......");
}

static void check_idle(const char *expected) {
  char text[512];
  dit_fault_list_idle(text, sizeof text);
  CHECK(strcmp(text, expected) == 0);
}

static void test_idle(void) {
  struct dit_error err = {0};
  configure("slow:mm,ms=0;slow:mul,ms=0,call=3;slow:sub,ms=0");
  check_idle("");  // nothing has run
  CHECK_OK(call("aten::mm", NULL, NULL, &err));
  CHECK_OK(call("aten::mul", NULL, NULL, &err));
  check_idle("rule 2 did not act on any of the 1 calls that it matched; rule 3 matched none of 2 operator calls");
  char cut[8];
  dit_fault_list_idle(cut, sizeof cut);
  CHECK(strcmp(cut, "rule 2 ") == 0);
  configure("");
  check_idle("");
}

static void test_probability(void) {
  int hits[2] = {0, 0};
  char first[400], second[400];
  for (int run = 0; run < 2; run++) {
    configure("error:mm,probability=0.25,seed=7");
    for (int i = 0; i < 400; i++) {
      struct dit_error err = {0};
      bool hit = call("aten::mm", NULL, NULL, &err) != DIT_OK;
      (run ? second : first)[i] = (char)hit;
      hits[run] += hit;
    }
  }
  CHECK(memcmp(first, second, sizeof(first)) == 0);
  CHECK(hits[0] > 60 && hits[0] < 140);
}

static void test_dtype(void) {
  struct sample in;
  const int64_t sizes[1] = {4};
  struct dit_error err = {0};
  sample_init(&in, DIT_DTYPE_F16, 1, sizes, LAYOUT_CONTIGUOUS);
  configure("error:mm,dtype=float32");
  CHECK(call("aten::mm", &in.view, NULL, &err) == DIT_OK);
  configure("error:mm,dtype=half");
  CHECK(call("aten::mm", &in.view, NULL, &err) == DIT_ERR_DEVICE);
  sample_destroy(&in);
}

static void fill_bytes(struct sample *sample) {
  size_t width = dit_dtype_get_size(sample->view.dtype);
  for (int64_t i = 0; i < sample->view.numel; i++) {
    memset(view_at(&sample->view, i), 0, width);
    char byte = (char)(sample->view.dtype == DIT_DTYPE_BOOL ? i & 1 : 0x31 + i % 9);
    view_at(&sample->view, i)[width - 1] = byte;
    if (width > 1 && sample->view.dtype != DIT_DTYPE_BOOL) {
      view_at(&sample->view, i)[0] = (char)(0x55 + i);  // low mantissa bits
    }
  }
}

static int count_changed(const struct sample *a, const struct sample *b) {
  int changed = 0;
  for (int64_t i = 0; i < a->view.numel; i++) {
    changed += memcmp(view_at(&a->view, i), view_at(&b->view, i), dit_dtype_get_size(a->view.dtype)) != 0;
  }
  return changed;
}

/// Every kind on every dtype and layout: exactly the elements that should change do.
static void test_damage(void) {
  static const char *const kinds[] = {"value", "precision", "nan", "input", "unwritten"};
  const int64_t sizes[2] = {3, 7};
  for (int d = 0; d < DAMAGE_DTYPES; d++) {
    for (int kind = 0; kind < 5; kind++) {
      for (int layout = 0; layout < LAYOUT_EXPANDED; layout++) {
        struct sample out, in, reference;
        struct dit_error err = {0};
        char text[64];
        int dtype = damage_dtypes[d];
        sample_init(&out, dtype, 2, sizes, (enum layout)layout);
        sample_init(&in, dtype, 2, sizes, (enum layout)layout);
        sample_init(&reference, dtype, 2, sizes, LAYOUT_CONTIGUOUS);
        fill_bytes(&out);
        fill_bytes(&in);
        fill_bytes(&reference);
        bool tiny = dtype == DIT_DTYPE_BOOL || dit_dtype_get_size(dtype) == 1;
        snprintf(text, sizeof(text), "%s:*%s", kinds[kind],
                 kind == 1   ? (tiny ? ",bits=1" : ",bits=3")
                 : kind == 4 ? ""
                             : ",index=11");
        configure(text);
        CHECK_OK(call("aten::add.Tensor", &in.view, &out.view, &err));
        int out_changed = count_changed(&out, &reference), in_changed = count_changed(&in, &reference);
        bool spared = kind == 1 && dtype == DIT_DTYPE_BOOL;
        CHECK(in_changed == (kind == 3 ? 1 : 0));
        CHECK(kind == 3 ? out_changed == 0 : spared ? out_changed == 0 : out_changed >= 1);
        CHECK(kind == 0 || kind == 2 ? out_changed == 1 : true);
        if (kind == 4) {
          CHECK((unsigned char)view_at(&out.view, 5)[0] == (dtype == DIT_DTYPE_BOOL ? 1 : 0x5A));
        }
        CHECK(dit_fault_get_count() == (spared ? 0 : 1));
        sample_destroy(&out);
        sample_destroy(&in);
        sample_destroy(&reference);
      }
    }
  }
}

/// The size of the damage, where numbers can be read.
static void test_values(void) {
  for (int d = 0; d < 4; d++) {
    struct sample out;
    struct dit_error err = {0};
    const int64_t sizes[1] = {5};
    sample_init(&out, float_dtypes[d], 1, sizes, LAYOUT_GAPS);
    for (int64_t i = 0; i < 5; i++) {
      view_set(&out.view, i, (long double)(i - 3));  // largest magnitude 3
    }
    configure("value:mm,scale=0.5,index=4");
    CHECK_OK(call("aten::mm", NULL, &out.view, &err));
    CHECK(view_get(&out.view, 4) == 2.5L && view_get(&out.view, 3) == 0);
    configure("value:mm,scale=1e-12,index=4");
    CHECK_OK(call("aten::mm", NULL, &out.view, &err));
    CHECK(view_get(&out.view, 4) != 2.5L);
    configure("nan:mm,index=1");
    CHECK_OK(call("aten::mm", NULL, &out.view, &err));
    CHECK(isnan(view_get(&out.view, 1)) && !isnan(view_get(&out.view, 0)));
    sample_destroy(&out);
  }
  struct sample out;
  struct dit_error err = {0};
  const int64_t sizes[1] = {3};
  sample_init(&out, DIT_DTYPE_F32, 1, sizes, LAYOUT_CONTIGUOUS);
  view_set(&out.view, 0, 1.0078125L + 0x1p-20L);
  view_set(&out.view, 1, -1.99999988L);
  view_set(&out.view, 2, INFINITY);
  configure("precision:mm");
  CHECK_OK(call("aten::mm", NULL, &out.view, &err));
  CHECK(view_get(&out.view, 0) == 1.0078125L && view_get(&out.view, 1) == -2 && isinf(view_get(&out.view, 2)));
  sample_destroy(&out);
}

/// A transposed input read as contiguous: the result comes in the input's memory order. Contiguous inputs are spared.
static void test_stride(void) {
  struct sample in, out;
  struct dit_error err = {0};
  const int64_t sizes[2] = {2, 3}, turned[2] = {1, 2};
  sample_init(&in, DIT_DTYPE_I32, 2, sizes, LAYOUT_CONTIGUOUS);
  sample_init(&out, DIT_DTYPE_I32, 2, sizes, LAYOUT_CONTIGUOUS);
  for (int64_t i = 0; i < 6; i++) {
    view_set(&out.view, i, (long double)i);
  }
  configure("stride:*");
  CHECK_OK(call("aten::relu", &in.view, &out.view, &err));
  CHECK(view_get(&out.view, 1) == 1 && dit_fault_get_count() == 0);
  struct dit_tensor_view view = in.view;
  view.strides = turned;
  view.flags = DIT_TENSOR_ON_DEVICE | DIT_TENSOR_DENSE;
  CHECK_OK(call("aten::relu", &view, &out.view, &err));
  static const int want[] = {0, 3, 1, 4, 2, 5};
  for (int64_t i = 0; i < 6; i++) {
    CHECK(view_get(&out.view, i) == want[i]);
  }
  CHECK(dit_fault_get_count() == 1);
  sample_destroy(&in);
  sample_destroy(&out);
}

static void test_token(void) {
  struct sample out;
  struct dit_error err = {0};
  const int64_t sizes[1] = {1};
  uint64_t token;
  sample_init(&out, DIT_DTYPE_F32, 1, sizes, LAYOUT_CONTIGUOUS);
  view_set(&out.view, 0, 1);
  configure("nan:mm");
  CHECK_OK(dit_fault_before("aten::mm", NULL, 0, &token, &err));
  CHECK(token != 0);
  configure("nan:mm");
  dit_fault_after(token, NULL, 0, &out.view, 1);
  CHECK(view_get(&out.view, 0) == 1);  // a token of older rules does nothing
  CHECK_OK(dit_fault_before("aten::add", NULL, 0, &token, &err));
  CHECK(token == 0);
  configure("slow:mm,ms=1");
  CHECK_OK(call("aten::mm", NULL, NULL, &err));
  CHECK(dit_fault_get_count() == 1);
  struct dit_tensor_view empty = {.dtype = DIT_DTYPE_F32};
  configure("nan:*; value:*; precision:*; unwritten:*; input:*; stride:*");
  CHECK_OK(call("aten::mm", &empty, &empty, &err));
  CHECK(dit_fault_get_count() == 0);
  sample_destroy(&out);
}

int main(void) {
  random_init();
  RUN(test_bad_text);
  RUN(test_names);
  RUN(test_two_names);
  RUN(test_calls);
  RUN(test_idle);
  RUN(test_probability);
  RUN(test_dtype);
  RUN(test_damage);
  RUN(test_values);
  RUN(test_stride);
  RUN(test_token);
  configure(NULL);
  return 0;
}
