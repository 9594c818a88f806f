/// The options that steer memory, put in force: algorithms and their parameters, the allocator's configuration, the
/// checker, the protection of pages, metrics, debug lines, CPU affinity.
///
/// Invariant: a value that is refused names the variable or option it came from; options before it are in force
/// already. Depends on core/options and every file it configures.
#include <stdio.h>

#include "device/memory_watch.h"
#include "dit/metrics.h"
#include "dit/options.h"

static int64_t get(const char *name) {
  return dit_option_get_int(dit_option_find(name));
}

/// "environment variable DIPU_TORCH_ALLOCATOR_CONF", "option 'alloc_conf'".
static void describe_origin(const char *name, char *text, size_t size) {
  const char *variable = dit_option_get_variable(dit_option_find(name));
  if (variable) {
    snprintf(text, size, "environment variable %s", variable);
  } else {
    snprintf(text, size, "option '%s'", name);
  }
}

static void read_parameters(struct dit_allocator_config *config, const char *algorithm) {
  dit_allocator_config_init(config);
  config->algorithm = (enum dit_memory_algorithm)get(algorithm);
  config->max_extend = (size_t)get("allocator_extend");
  config->min_size = (size_t)get("allocator_min_size");
  config->max_pending = (size_t)get("allocator_pending");
  config->adaptable = get("allocator_adaptable") != 0;
}

static enum dit_status apply_allocators(struct dit_error *err) {
  struct dit_allocator_config config;
  read_parameters(&config, "host_allocator");
  dit_host_pool_configure(&config);
  read_parameters(&config, "allocator");
  dit_memory_set_default(&config);
  const char *text = dit_option_get_text(dit_option_find("alloc_conf"));
  if (!*text) {
    return DIT_OK;
  }
  enum dit_status status = dit_memory_configure(text, err);
  if (status != DIT_OK && err) {
    char origin[128];
    describe_origin("alloc_conf", origin, sizeof(origin));
    (void)dit_error_prefix(err, "%s is '%.200s'", origin, text);
  }
  return status;
}

static enum dit_status apply_checker(struct dit_error *err) {
  size_t guard = (size_t)get("memory_check_guard");
  if (!get("memory_check")) {
    dit_memory_check_stop();
    return DIT_OK;
  }
  struct dit_memory_check_options options = {
      .backtrace = get("memory_check_backtrace") != 0,
      .max_blocks = (uint64_t)get("memory_check_blocks"),
      .interval = (uint64_t)get("memory_check_interval"),
      .guard = (guard + DIT_MIN_BLOCK_SIZE - 1) / DIT_MIN_BLOCK_SIZE * DIT_MIN_BLOCK_SIZE,
  };
  return dit_memory_check_start(&options, err);
}

enum dit_status dit_memory_apply_options(struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(apply_allocators(err));
  DIT_RETURN_IF_NOT_OK(apply_checker(err));
  DIT_RETURN_IF_NOT_OK(dit_protect_set((enum dit_protect_mode)get("memory_protect"), err));
  dit_watch_set_debug((unsigned)get("allocator_debug"));
  dit_metrics_enable(get("metrics") != 0 || *dit_option_get_text(dit_option_find("metrics_file")));
  dit_affinity_configure(get("cpu_affinity"));
  return DIT_OK;
}
