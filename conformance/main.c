/// dit_conform: runs packs of conformance cases on a DIOPI library, without a framework.
///
///   dit_conform run --library host --pack FILE [--vendor host] [--only PATTERN] ... : one line of JSON per case
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "dit/options.h"

static const char usage[] =
    "dit_conform run    --library NAME|PATH --pack FILE [options]   run cases, one line of JSON each\n"
    "dit_conform perf   --library NAME|PATH --pack FILE [--against NAME|PATH] [options]   time them\n"
    "dit_conform device --library NAME|PATH [--vendor NAME|PATH] [--out FILE]   test device, streams and error texts\n"
    "dit_conform list   --pack FILE [options]   print id and tags of the cases\n"
    "\n"
    "  --library L     operator library: a name (host) or a path with a '/'\n"
    "  --vendor V      device functions; without it the device is host memory\n"
    "  --only P        cases whose id or function matches a pattern of the shell, or TAG=P; may be repeated\n"
    "  --skip P        leave these out\n"
    "  --rules FILE    lines 'skip PATTERN' and 'tolerance PATTERN FACTOR'\n"
    "  --from N --to M cases N to M - 1 of the pack\n"
    "  --repeat N      runs per case (run: 2, perf: 15)\n"
    "  --side-stream   one more run on another stream than the default\n"
    "  --tolerance F   multiply every tolerance\n"
    "  --until-fail    stop after the first case that fails\n"
    "  --kinds A,B     mutate: faults to try\n"
    "  --announce      write a line before each case\n"
    "  --out FILE      instead of standard output\n"
    "\n"
    "Exit status: 0 no case failed, 1 one did, 2 wrong use, a damaged pack, or no library.\n";

static bool parse_integer(const char *text, int64_t least, int64_t *out) {
  char *end;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (errno || end == text || *end || value < least) {
    return false;
  }
  *out = value;
  return true;
}

static bool parse_factor(const char *text, double *out) {
  char *end;
  const double value = strtod(text, &end);
  if (end == text || *end || !(value > 0) || !isfinite(value)) {
    return false;
  }
  *out = value;
  return true;
}

/// 1: the option and its value were taken, 0: the value is bad, -1: no such option.
static int take_option(struct command_options *o, const char *name, const char *value, struct dit_error *err) {
  const struct {
    const char *name, **place;
  } texts[] = {{"--library", &o->library}, {"--against", &o->against}, {"--vendor", &o->vendor},
               {"--pack", &o->pack},       {"--kinds", &o->kinds},     {"--out", &o->out}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    if (strcmp(name, texts[i].name) == 0) {
      *texts[i].place = value;
      return 1;
    }
  }
  if (strcmp(name, "--only") == 0 || strcmp(name, "--skip") == 0) {
    return rules_add(&o->rules, name[2] == 'o' ? RULE_ONLY : RULE_SKIP, value, 1, err) == DIT_OK;
  }
  if (strcmp(name, "--rules") == 0) {
    return !o->rules.text && rules_read(&o->rules, value, err) == DIT_OK;
  }
  if (strcmp(name, "--from") == 0) {
    return parse_integer(value, 0, &o->from);
  }
  if (strcmp(name, "--to") == 0) {
    return parse_integer(value, 0, &o->to);
  }
  if (strcmp(name, "--repeat") == 0) {
    return parse_integer(value, 1, &o->repeat) && o->repeat <= 1000000;
  }
  return strcmp(name, "--tolerance") == 0 ? parse_factor(value, &o->tolerance) : -1;
}

static bool parse(struct command_options *o, int count, char **words) {
  for (int i = 0; i < count; i++) {
    if (strcmp(words[i], "--side-stream") == 0) {
      o->side_stream = true;
      continue;
    }
    if (strcmp(words[i], "--until-fail") == 0) {
      o->until_fail = true;
      continue;
    }
    if (strcmp(words[i], "--announce") == 0) {
      o->announce = true;
      continue;
    }
    struct dit_error err = {.message = ""};
    const char *value = i + 1 < count ? words[i + 1] : NULL;
    const int taken = take_option(o, words[i], value ? value : "", &err);
    if (taken < 0) {
      fprintf(stderr, "dit_conform: there is no option '%s'; `dit_conform --help` lists them\n", words[i]);
      return false;
    }
    if (!value || taken == 0) {
      fprintf(stderr, "dit_conform: option %s cannot be '%s'%s%s\n", words[i], value ? value : "",
              err.message[0] ? ": " : "", err.message);
      return false;
    }
    i++;
  }
  return true;
}

static const struct {
  const char *name;
  int (*run)(const struct command_options *options);
  bool needs_library, needs_pack;
} commands[] = {{"run", command_run, true, true},
                {"perf", command_perf, true, true},
                {"mutate", command_mutate, true, true},
                {"device", command_device, true, false},
                {"list", command_list, false, true}};

int main(int argc, char **argv) {
  struct command_options options = {.to = -1, .tolerance = 1};
  struct dit_error err = {0};
  if (argc < 2 || strcmp(argv[1], "--help") == 0) {
    fputs(usage, argc < 2 ? stderr : stdout);
    return argc < 2 ? EXIT_USAGE : EXIT_PASS;
  }
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(argv[1], commands[i].name) != 0) {
      continue;
    }
    int status = EXIT_USAGE;
    if (!parse(&options, argc - 2, argv + 2)) {
      // said already
    } else if (dit_options_load(NULL, &err) != DIT_OK) {  // some libraries have options: DITORCH_CUDA_BLAS
      fprintf(stderr, "dit_conform: %s\n", err.message);
    } else if ((commands[i].needs_library && !options.library) || (commands[i].needs_pack && !options.pack)) {
      fprintf(stderr, "dit_conform %s needs %s\n", argv[1],
              commands[i].needs_pack && !options.pack ? "--pack" : "--library");
    } else {
      status = commands[i].run(&options);
    }
    rules_reset(&options.rules);
    return status;
  }
  fprintf(stderr, "dit_conform: there is no command '%s'; valid: run, perf, mutate, device, list\n", argv[1]);
  return EXIT_USAGE;
}
