/// Reading recipes, once.
#include "recipe.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  int function;
  char work;
  const char *text;
} sources[] = {
#define RECIPE(name, work, text) {DIT_DIOPI_##name, work, text},
#include "recipes.inc"
#undef RECIPE
};
enum { SOURCE_COUNT = sizeof sources / sizeof sources[0] };

static const char *const words[WORD_COUNT_OF] = {"sum",     "prod",   "max",     "argmax",  "sort",    "argsort",
                                                 "sumall",  "maxall", "scan",    "count",   "reduce",  "share",
                                                 "choose",  "given",  "integer", "truth",   "norm",    "FloorDiv",
                                                 "DivMode", "numel",  "zero",    "product", "tproduct"};

static struct recipe recipes[SOURCE_COUNT];
static struct recipe *by_function[DIT_DIOPI_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct parser {
  struct recipe *recipe;
  const char *at;
};

/// A mistake in recipes.inc, which the tests read whole.
static void fail(const struct parser *p, const char *what) {
  fprintf(stderr, "ditorch: recipe of %s: %s at '%.40s'\n", dit_diopi_get_functions(NULL)[p->recipe->function].name,
          what, p->at);
  abort();
}

static void skip(struct parser *p) {
  while (*p->at == ' ') {
    p->at++;
  }
}

static void expect(struct parser *p, char c) {
  skip(p);
  if (*p->at != c) {
    fail(p, "a sign is missing");
  }
  p->at++;
}

static void take_name(struct parser *p, char *name, size_t size) {
  size_t length = 0;
  skip(p);
  while (isalnum((unsigned char)p->at[length]) || p->at[length] == '_') {
    length++;
  }
  if (length == 0 || length >= size) {
    fail(p, "a name is missing or too long");
  }
  memcpy(name, p->at, length);
  name[length] = 0;
  p->at += length;
}

static int find_word(const char *name) {
  for (int i = 0; i < WORD_COUNT_OF; i++) {
    if (strcmp(words[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

static int add_node(struct parser *p, enum node_kind kind, int number) {
  struct recipe *recipe = p->recipe;
  if (recipe->node_count == RECIPE_NODES) {
    fail(p, "too many nodes");
  }
  recipe->nodes[recipe->node_count] = (struct node){.kind = (uint8_t)kind, .number = (int16_t)number};
  return recipe->node_count++;
}

static int parse_expression(struct parser *p);

static int parse_call(struct parser *p, const char *name) {
  char full[64];
  const int word = find_word(name);
  snprintf(full, sizeof full, "diopi%s", name);
  const int function = dit_diopi_find_function(full);
  if (word < 0 && function < 0) {
    fail(p, "there is no such function");
  }
  const int node = add_node(p, word >= 0 ? NODE_WORD : NODE_CALL, word >= 0 ? word : function);
  if (word >= 0 && word <= WORD_SHARE) {
    p->recipe->folds = true;
  }
  expect(p, '(');
  for (skip(p); *p->at != ')'; skip(p)) {
    struct node *own = &p->recipe->nodes[node];
    if (own->count == RECIPE_ARGUMENTS) {
      fail(p, "too many arguments");
    }
    const int argument = parse_expression(p);
    own->arguments[own->count++] = (int16_t)argument;
    skip(p);
    if (*p->at == ',') {
      p->at++;
    }
  }
  p->at++;
  return node;
}

static int parse_expression(struct parser *p) {
  char name[40];
  skip(p);
  if (isdigit((unsigned char)*p->at) || *p->at == '-') {
    char *end;
    const int node = add_node(p, NODE_NUMBER, 0);
    p->recipe->nodes[node].value = strtod(p->at, &end);
    if (end == p->at) {
      fail(p, "no number");
    }
    p->at = end;
    return node;
  }
  take_name(p, name, sizeof name);
  skip(p);
  if (*p->at == '(') {
    return parse_call(p, name);
  }
  for (int i = 0; i < p->recipe->statement_count; i++) {
    if (strcmp(p->recipe->statements[i].name, name) == 0) {
      return add_node(p, NODE_NAME, i);
    }
  }
  const int parameter = adapt_find_parameter(p->recipe->function, name);
  if (parameter < 0) {
    fail(p, "neither a parameter nor a name from before");
  }
  return add_node(p, NODE_PARAMETER, parameter);
}

static void parse(struct recipe *recipe, const char *text) {
  struct parser p = {recipe, text};
  for (skip(&p); *p.at; skip(&p)) {
    const int number = recipe->statement_count;
    char name[24];
    if (number == RECIPE_STATEMENTS) {
      fail(&p, "too many statements");
    }
    take_name(&p, name, sizeof name);
    expect(&p, '=');
    const int root = parse_expression(&p);
    memcpy(recipe->statements[number].name, name, sizeof name);
    recipe->statements[number].root = (int16_t)root;
    const int parameter = adapt_find_parameter(recipe->function, name);
    const bool output = parameter >= 0 && dit_diopi_get_functions(NULL)[recipe->function].kinds[parameter] == 'o';
    recipe->statements[number].parameter = (int16_t)(output ? parameter : -1);
    recipe->statement_count++;
    skip(&p);
    if (*p.at == ';') {
      p.at++;
    }
  }
}

static void read_all(void) {
  for (int i = 0; i < SOURCE_COUNT; i++) {
    recipes[i].function = sources[i].function;
    recipes[i].work = sources[i].work;
    parse(&recipes[i], sources[i].text);
    by_function[sources[i].function] = &recipes[i];
  }
}

const struct recipe *recipe_get(int function) {
  pthread_once(&once, read_all);
  return by_function[function];
}

static bool is_there(const struct adapt_state *state, int function) {
  return state->functions[function].behind || state->functions[function].composed;
}

/// A word's own functions.
static bool is_word_possible(const struct adapt_state *state, int word) {
  switch (word) {
    case WORD_SUM:
    case WORD_SUMALL:
    case WORD_REDUCE:
      return state->functions[DIT_DIOPI_diopiSum].behind;
    case WORD_PROD:
      return state->functions[DIT_DIOPI_diopiProd].behind;
    case WORD_MAX:
    case WORD_ARGMAX:
    case WORD_MAXALL:
      return state->functions[DIT_DIOPI_diopiMax].behind;
    case WORD_SORT:
    case WORD_ARGSORT:
      return state->functions[DIT_DIOPI_diopiSort].behind;
    case WORD_PRODUCT:
    case WORD_TPRODUCT:
      return state->functions[DIT_DIOPI_diopiBmm].behind;
    case WORD_SCAN:
      return state->functions[DIT_DIOPI_diopiCumsum].behind;
    case WORD_FLOORDIV:
    case WORD_DIVMODE:
    case WORD_SHARE:
      return state->functions[DIT_DIOPI_diopiDiv].behind;
    default:
      return true;
  }
}

bool adapt_recipe_is_possible(const struct adapt_state *state, int function) {
  const struct recipe *recipe = recipe_get(function);
  for (int i = 0; recipe && i < recipe->node_count; i++) {
    const struct node *node = &recipe->nodes[i];
    const bool itself = node->number == function && !state->functions[function].behind;
    if ((node->kind == NODE_CALL && (itself || !is_there(state, node->number))) ||
        (node->kind == NODE_WORD && !is_word_possible(state, node->number))) {
      return false;
    }
  }
  return recipe != NULL;
}
