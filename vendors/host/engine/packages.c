/// Finding site-packages folders (see packages.h), for the libraries that are looked up at run time.
#include "packages.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

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

bool packages_search(bool (*visit)(const char *packages)) {
  static const char here = 0;
  struct packages_list list = {.count = 0};
  Dl_info self;
  char folder[2048];
  if (dladdr(&here, &self) && self.dli_fname && strchr(self.dli_fname, '/')) {
    snprintf(folder, sizeof(folder), "%.*s/../..", (int)(strrchr(self.dli_fname, '/') - self.dli_fname),
             self.dli_fname);
    if (visit(folder)) {
      return true;
    }
  }
  dl_iterate_phdr(collect_folder, &list);  // no dlopen inside the callback
  for (int i = 0; i < list.count; i++) {
    if (visit(list.folders[i])) {
      return true;
    }
  }
  return false;
}

void packages_load_symbol(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof(symbol));
}
