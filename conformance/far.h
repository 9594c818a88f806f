/// Tensors whose elements lie more than 2^31 elements apart (far.c).
#ifndef DIT_CONFORM_FAR_H
#define DIT_CONFORM_FAR_H

#include "call.h"

/// Move the tensors of a call to mappings of their own, after call_init. far_close undoes it, on errors too.
DIT_NODISCARD enum dit_status far_open(struct call *call, struct dit_error *err);
/// Elements from the machine's piece to the mappings (`out`), or back; `rows` has room for a tensor. Nothing without
/// far_open.
void far_move(struct call *call, unsigned char *piece, unsigned char *rows, bool out);
void far_close(struct call *call);

#endif
