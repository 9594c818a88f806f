"""dlinfer.framework.lmdeploy_ext: imported by LMDeploy's environment check. Nothing of LMDeploy is changed. On
maca and camb its engine asks for the handle of a graph pool even where it captures nothing: it gets a token."""

from __future__ import annotations

import importlib.metadata
import warnings

import torch

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


def _graph_pool_handle() -> tuple[int, int]:
    """A token: eager engines keep it and never use it."""
    return (0, 1)


def install() -> None:
    """What an eager engine asks torch for."""
    from .operators import is_ours

    if is_ours():
        torch.cuda.graph_pool_handle = _graph_pool_handle


check_version()
install()
