"""What every installation asks: are tools wanted in this process (`ditorch run`, DITORCH_RUN, DITORCH_TOOLS)?"""

from __future__ import annotations

from .spec import Spec, read_wish

wanted: Spec | None = None
"""Set by the command line, which knows better than the environment."""


def begin(path: str, tools: str) -> None:
    """Start them, by the options `run` and `tools`. ValueError or OSError say what is wrong."""
    spec = wanted or read_wish(path, tools)
    if spec is not None and (spec.tools or spec.probe):
        from op_tools import program

        program.begin(spec)
