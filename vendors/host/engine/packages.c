/// Finding site-packages folders, and in them the libraries that are looked up at run time (see packages.h).
#include "packages.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "dit/options.h"

struct packages_list {
  char folders[8][1024];
  int count;
};

/// The site-packages (or dist-packages) folder of any loaded library, torch's for one.
static int collect_folder(struct dl_phdr_info *info, size_t size, void *context) {
  struct packages_list *list = context;
  (void)size;
  const char *name = info->dlpi_name ? info->dlpi_name : "";
  const char *at = strstr(name, "-packages/");
  size_t length = at ? (size_t)(at - name) + strlen("-packages") : 0;
  if (!at || length >= sizeof(list->folders[0]) || list->count == 8) {
    return 0;
  }
  for (int i = 0; i < list->count; i++) {
    if (strncmp(list->folders[i], name, length) == 0 && list->folders[i][length] == '\0') {
      return 0;
    }
  }
  memcpy(list->folders[list->count], name, length);
  list->folders[list->count++][length] = '\0';
  return 0;
}

bool packages_search(bool (*visit)(const char *packages, void *context), void *context) {
  static const char here = 0;
  struct packages_list list = {.count = 0};
  Dl_info self;
  char folder[2048];
  if (dladdr(&here, &self) && self.dli_fname && strchr(self.dli_fname, '/')) {
    snprintf(folder, sizeof(folder), "%.*s/../..", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
             self.dli_fname);
    if (visit(folder, context)) {
      return true;
    }
  }
  dl_iterate_phdr(collect_folder, &list);  // no dlopen inside the callback
  for (int i = 0; i < list.count; i++) {
    if (visit(list.folders[i], context)) {
      return true;
    }
  }
  return false;
}

void packages_load_symbol(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof(symbol));
}

// A library by a list of its functions

struct packages_try {
  const struct packages_library *wanted;
  char *text;
  size_t size;
};

static const char *get_choice(const struct packages_library *wanted) {
  const int option = dit_option_find(wanted->option);
  return option >= 0 ? dit_option_get_text(option) : "";
}

bool packages_is_named(const struct packages_library *wanted) {
  const char *choice = get_choice(wanted);
  return *choice && strcmp(choice, "none") != 0;
}

static bool load_file(const struct packages_try *own, const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  char *address = own->wanted->addresses;
  if (!handle) {
    const char *reason = packages_is_named(own->wanted) ? dlerror() : NULL;
    if (reason) {
      snprintf(own->text, own->size, "%s", reason);
    }
    return false;
  }
  for (const char *const *name = own->wanted->functions; *name; name++, address += sizeof(void *)) {
    void *symbol = dlsym(handle, *name);
    memcpy(address, &symbol, sizeof symbol);
    if (!symbol) {
      snprintf(own->text, own->size, "'%s' lacks %s", path, *name);
      dlclose(handle);
      return false;
    }
  }
  snprintf(own->text, own->size, "%s", path);
  return true;
}

static bool search_places(const char *packages, void *context) {
  const struct packages_try *own = context;
  char path[2048];
  for (const char *const *place = own->wanted->places; *place; place++) {
    snprintf(path, sizeof(path), "%s/%s", packages, *place);
    if (load_file(own, path)) {
      return true;
    }
  }
  return false;
}

static bool search_names(const struct packages_try *own) {
  for (const char *const *name = own->wanted->names; *name; name++) {
    if (load_file(own, *name)) {
      return true;
    }
  }
  return false;
}

bool packages_load_library(const struct packages_library *wanted, char *text, size_t size) {
  struct packages_try own = {wanted, text, size};
  const char *choice = get_choice(wanted);
  snprintf(text, size, "no %s found", wanted->names[0]);
  if (strcmp(choice, "none") == 0) {
    snprintf(text, size, "option %s is \"none\"", wanted->option);
    return false;
  }
  if (!*choice) {
    return packages_search(search_places, &own) || search_names(&own);
  }
  return load_file(&own, choice);
}
