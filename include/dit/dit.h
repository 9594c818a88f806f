/// Umbrella header: all of libdit's public API.
#ifndef DIT_DIT_H
#define DIT_DIT_H

#include "dit/alloc.h"
#include "dit/device.h"
#include "dit/diopi.h"
#include "dit/dtype.h"
#include "dit/error.h"
#include "dit/export.h"
#include "dit/fault.h"
#include "dit/judge.h"
#include "dit/kernel.h"
#include "dit/ledger.h"
#include "dit/log.h"
#include "dit/memory.h"
#include "dit/memory_check.h"
#include "dit/metrics.h"
#include "dit/numerics.h"
#include "dit/op.h"
#include "dit/operator.h"
#include "dit/options.h"
#include "dit/parallel.h"
#include "dit/peer_file.h"
#include "dit/random.h"
#include "dit/record.h"
#include "dit/runtime.h"
#include "dit/share.h"
#include "dit/status.h"
#include "dit/tensor.h"
#include "dit/verdict.h"
#include "dit/version.h"

#endif
