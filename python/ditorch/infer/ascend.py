"""Names of dlinfer.vendor.ascend that a framework's workers call."""

from __future__ import annotations


def ensure_ascend_runtime() -> None:
    """Nothing to start: the operators need no runtime of the vendor's."""
