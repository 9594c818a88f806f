"""DICP's environment variables: those that turn on the precision check are read by check.py; the others have nothing
to act on here and say so, once, when a graph is compiled. The environment is read, never written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

HONOURED = ("DICP_ASCEND_PRECISION_CHECK", "DICP_TOPS_CHECK_PRECISION")
IGNORED = {
    "SD_FP16": "half precision is what torch.autocast or the model's dtype say",
    "DICP_SD_CLAST": "layouts are the program's: use .to(memory_format=torch.channels_last)",
    "DICP_TOPS_DEBUG": "`ditorch compile --explain` prints what became of the graphs",
    "DICP_TOPS_DIPU": "tensors and streams of the device are always used",
    "DICP_TOPS_DEVICE_ID": "the device is that of the tensors",
    "TEST_DICP_INFER": "shapes, dtypes and strides always have to be those of the trace",
}
OFF = ("", "0", "false", "off", "no")

_said: set[str] = set()


def list_ignored(environment: Mapping[str, str] = os.environ) -> list[str]:
    """One sentence for each variable that is on and has no effect, or that DICP never had."""
    found = []
    for name, value in environment.items():
        if value.lower() in OFF or name in HONOURED:
            continue
        if name in IGNORED:
            found.append(f"{name}={value!r} has no effect on the graph engine: {IGNORED[name]}")
        elif name.startswith("DICP_"):
            found.append(f"{name} is none of DICP's variables; those are {', '.join((*HONOURED, *IGNORED))}")
    return found


def warn() -> None:
    """Say it once in a process."""
    for text in list_ignored():
        if text not in _said:
            _said.add(text)
            warnings.warn(f"ditorch: {text}", RuntimeWarning, stacklevel=2)
