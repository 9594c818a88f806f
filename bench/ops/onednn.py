"""oneDNN on the device's side: which one it is, and a switch to measure with and without."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator


class Switch:
    """The oneDNN that the operator library found, if any."""

    def __init__(self) -> None:
        from ditorch import diopi

        self._native = ctypes.CDLL(diopi.Library("host").describe()["library"])
        self._native.dit_host_onednn_describe.restype = ctypes.c_char_p
        self.text = self._native.dit_host_onednn_describe(*[ctypes.byref(ctypes.c_uint64()) for _ in range(2)]).decode()
        """ "oneDNN 3.2.0 (path)", or why there is none."""

    @property
    def found(self) -> bool:
        return self.text.startswith("oneDNN ")

    @contextlib.contextmanager
    def use(self, enabled: bool) -> Iterator[None]:
        """With or without it inside the block."""
        self._native.dit_host_onednn_enable(int(enabled))
        try:
            yield
        finally:
            self._native.dit_host_onednn_enable(1)
