// Which argument a function of torch.distributed writes to.
//
// Version counters do not tell: c10d writes behind autograd's back. The operator table does (dit/operator.h).
#include <string.h>

#include "dit/operator.h"
#include "engine/internal.h"

int engine_collective_get_target(const char *name) {
  static const char prefix[] = "torch.distributed.";
  const struct dit_operator *row = strncmp(name, prefix, sizeof prefix - 1) == 0 ? dit_operator_find(name) : NULL;
  return row && row->writes_count > 0 ? row->writes_first : -1;
}
