"""dlinfer.framework.lmdeploy_ext: imported by LMDeploy's environment check. Nothing of LMDeploy is changed; what it
needs beyond the operators, and is not there yet, is said in docs/dlinfer.md."""

from __future__ import annotations

import importlib.metadata
import warnings

KNOWN = ((0, 13), (0, 17))
"""First and last version whose calls were read."""


def check_version() -> str:
    """LMDeploy's version; a warning where its calls are not known."""
    try:
        text = importlib.metadata.version("lmdeploy")
    except importlib.metadata.PackageNotFoundError:
        return ""
    version = tuple(int(part) for part in text.split(".")[:2])
    if not KNOWN[0] <= version <= KNOWN[1]:
        warnings.warn(f"dlinfer knows LMDeploy 0.13 to 0.17; this is {text}, whose calls may differ", stacklevel=2)
    return text


check_version()
