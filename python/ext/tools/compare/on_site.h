/// What the files of reference=device share: pairs measured where they are, and the precision of the device's own runs.
#ifndef DIT_EXT_COMPARE_ON_SITE_H
#define DIT_EXT_COMPARE_ON_SITE_H

#include "tools/compare/state.h"

// compare/site_measure.c

/// One question: is |a - b| <= relative * |b| + absolute + residual * max |b| everywhere?
struct site_measure {
  PyObject *a, *b;  ///< borrowed; two tensors
  double relative, residual, absolute;
  bool known;  ///< they could be measured; else nothing below means anything
  bool near;
  double largest;     ///< max |b|
  double difference;  ///< max |a - b|
};

/// Answer all of them with one wait for the device. Never leaves an exception.
void site_measure_all(struct site_measure *measures, int count);

// compare/site_precision.c

/// Is float32 wide enough as the reference of this call, which has been made?
bool site_is_single(const struct compare_case *c, const struct engine_call *call);
/// Around a wide run in float32 on the device: products of what has 11 bits at most are exact in TF32 and made there,
/// all other products are not rounded to it. Returns what to give to site_precision_leave: a new reference, or NULL.
PyObject *site_precision_enter(const struct compare_case *c);
void site_precision_leave(PyObject *py_before);

#endif
