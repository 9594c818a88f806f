"""fork(): a child may use the device if, and only if, its parent had not used it yet, as with CUDA.

The runtime must be active from the import on (autograd counts its devices at the first backward, on whatever device
that is), and libdit takes any fork of an active runtime as one after use. So an unused runtime is put to rest around
the fork and started again on both sides. One that was used stays active, and the child gets torch's "Cannot
re-initialize CUDA in forked subprocess".
"""

from __future__ import annotations

import os

import torch

from . import _C, installation

_registered = False
_resting = False


def _is_unused() -> bool:
    """No tensor, stream, event or pinned memory was ever asked for."""
    return (
        installation.state.patches is not None
        and _C.is_active()
        and not torch.cuda._initialized
        and installation.is_untouched()
    )


def _before() -> None:
    global _resting
    if _is_unused():
        _C.shutdown()
        _resting = True


def _after() -> None:
    global _resting
    if _resting:
        _resting = False
        installation.start_vendor()


def install() -> None:
    """Register the handlers once; they do nothing while ditorch is not installed."""
    global _registered
    if not _registered:
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
        _registered = True
