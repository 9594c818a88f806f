/// What a test sees of the made-up CUDA driver (fake_cuda.c).
#ifndef DIT_TESTS_FAKE_CUDA_H
#define DIT_TESTS_FAKE_CUDA_H

#include <stdbool.h>

#define FAKE_DEVICES 4

struct fake_cuda {
  int devices;
  const char *failing;  ///< this function answers `error`
  bool prefix;          ///< and all whose names begin with it
  int error;
  bool is_busy;  ///< events have not passed
  bool is_capturing;
  int pointer_device;  ///< of every pointer
  int calls, launches, waits, events, blocks, pinned, text_loads, capture_mode;
};

#endif
