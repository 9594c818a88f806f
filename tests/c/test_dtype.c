/// Element types: names, sizes, and promotion against PyTorch's own table.
#include "check.h"
#include "dit/dtype.h"

/// torch.promote_types(row, column) for all types in the order of their numbers: 'A' is 0, 'Z' 25, 'a' 26, 't' 45, '.'
/// where it raises. Written by a loop over torch.promote_types of PyTorch 2.13.
static const char *const promotion[DIT_DTYPE_COUNT] = {
    "ACCDEFGHIJKA...P..............................", "CBCDEFGHIJKB...P..............................",
    "CCCDEFGHIJKC...P..............................", "DDDDEFGHIJKD...P..............................",
    "EEEEEFGHIJKE...P..............................", "FFFFFFGHIJKF...G...........FFFFFFFFFF.........",
    "GGGGGGGHJJKG...G...........GGGGGGGGGG.........", "HHHHHHHHKKKH...H...........HHHHHHHHHH.........",
    "IIIIIIJKIJKI...J..............................", "JJJJJJJKJJKJ...J..............................",
    "KKKKKKKKKKKK...K..............................", "ABCDEFGHIJKL...P..............................",
    "............M.................................", ".............N................................",
    "..............O...............................", "PPPPPGGHJJKP...P...........PPPPPPPPPP.........",
    "................Q.............................", ".................R............................",
    "..................S...........................", "...................T..........................",
    "....................U.........................", ".....................V........................",
    "......................W.......................", ".......................X......................",
    "........................Y.....................", ".........................Z....................",
    "..........................a...................", ".....FGH.......P...........b.................t",
    ".....FGH.......P............c................t", ".....FGH.......P.............d...............t",
    ".....FGH.......P..............e..............t", ".....FGH.......P...............f.............t",
    ".....FGH.......P................g............t", ".....FGH.......P.................h...........t",
    ".....FGH.......P..................i..........t", ".....FGH.......P...................j.........t",
    ".....FGH.......P....................k........t", ".....................................l........",
    "......................................m.......", ".......................................n......",
    "........................................o.....", ".........................................p....",
    "..........................................q...", "...........................................r..",
    "............................................s.", "...........................tttttttttt........t",
};

static int get_expected(char c) {
  if (c == '.') {
    return -1;
  }
  return c >= 'a' ? c - 'a' + 26 : c - 'A';
}

static void test_promotion(void) {
  for (int a = 0; a < DIT_DTYPE_COUNT; a++) {
    CHECK(strlen(promotion[a]) == DIT_DTYPE_COUNT);
    for (int b = 0; b < DIT_DTYPE_COUNT; b++) {
      int result = dit_dtype_promote(a, b);
      if (result != get_expected(promotion[a][b])) {
        fprintf(stderr, "promote(%s, %s) is %s\n", dit_dtype_get_name(a), dit_dtype_get_name(b),
                dit_dtype_get_name(result));
      }
      CHECK(result == get_expected(promotion[a][b]));
    }
  }
  CHECK(dit_dtype_promote(-1, 0) == -1 && dit_dtype_promote(0, DIT_DTYPE_COUNT) == -1);
}

/// torch.dtype.itemsize in the order of the numbers, 'g' for 16.
static void test_sizes(void) {
  static const char sizes[] = "1124824848g11142111111211112481111111111111111";
  CHECK(strlen(sizes) == DIT_DTYPE_COUNT);
  for (int i = 0; i < DIT_DTYPE_COUNT; i++) {
    CHECK(dit_dtype_get_size(i) == (sizes[i] == 'g' ? 16u : (size_t)(sizes[i] - '0')));
  }
}

static void test_names(void) {
  for (int i = 0; i < DIT_DTYPE_COUNT; i++) {
    char full[64];
    snprintf(full, sizeof(full), "torch.%s", dit_dtype_get_name(i));
    CHECK(dit_dtype_is_valid(i) && dit_dtype_find(full) == i && dit_dtype_find(full + 6) == i);
  }
  CHECK(dit_dtype_find("float") == DIT_DTYPE_F32 && dit_dtype_find("torch.half") == DIT_DTYPE_F16);
  CHECK(dit_dtype_find("long") == DIT_DTYPE_I64 && dit_dtype_find("double") == DIT_DTYPE_F64);
  CHECK(dit_dtype_find("int") == DIT_DTYPE_I32 && dit_dtype_find("short") == DIT_DTYPE_I16);
  CHECK(dit_dtype_find("bfloat") == DIT_DTYPE_BF16 && dit_dtype_find("cfloat") == DIT_DTYPE_C64);
  CHECK(dit_dtype_find("cdouble") == DIT_DTYPE_C128 && dit_dtype_find("chalf") == DIT_DTYPE_C32);
  CHECK(dit_dtype_find("float31") == -1 && dit_dtype_find("") == -1 && dit_dtype_find(NULL) == -1);
  CHECK(dit_dtype_find("torch.torch.float32") == -1 && dit_dtype_find("torch.") == -1);
}

static void test_outside(void) {
  CHECK(!dit_dtype_is_valid(-1) && !dit_dtype_is_valid(DIT_DTYPE_COUNT));
  CHECK(dit_dtype_get_size(-1) == 0 && dit_dtype_get_size(DIT_DTYPE_COUNT) == 0);
  CHECK(strcmp(dit_dtype_get_name(99), "?") == 0 && dit_dtype_get_class(99) == DIT_DTYPE_CLASS_BITS);
}

static void test_classes(void) {
  CHECK(dit_dtype_get_class(DIT_DTYPE_BOOL) == DIT_DTYPE_CLASS_BOOL);
  CHECK(dit_dtype_get_class(DIT_DTYPE_U8) == DIT_DTYPE_CLASS_UINT);
  CHECK(dit_dtype_get_class(DIT_DTYPE_I4) == DIT_DTYPE_CLASS_INT);
  CHECK(dit_dtype_get_class(DIT_DTYPE_F8_E8M0FNU) == DIT_DTYPE_CLASS_FLOAT);
  CHECK(dit_dtype_get_class(DIT_DTYPE_C32) == DIT_DTYPE_CLASS_COMPLEX);
  CHECK(dit_dtype_get_class(DIT_DTYPE_QU2X4) == DIT_DTYPE_CLASS_QUANT);
  CHECK(dit_dtype_get_real(DIT_DTYPE_C32) == DIT_DTYPE_F16 && dit_dtype_get_real(DIT_DTYPE_C64) == DIT_DTYPE_F32);
  CHECK(dit_dtype_get_real(DIT_DTYPE_C128) == DIT_DTYPE_F64 && dit_dtype_get_real(DIT_DTYPE_I8) == DIT_DTYPE_I8);
}

int main(void) {
  RUN(test_promotion);
  RUN(test_sizes);
  RUN(test_names);
  RUN(test_outside);
  RUN(test_classes);
  return 0;
}
