"""What a report of `ditorch test-device` says about its run, and what the answers in a state file depend on."""

from __future__ import annotations

import argparse
import hashlib
import os
from typing import Any


def describe(kind: str, facts: dict[str, Any], device: str, expect: str, seconds: float) -> dict[str, Any]:
    """The head of a report; `kind` names its format, `expect` is the path of the expectations."""
    from ditorch import _C

    return {
        "format": kind,
        "version": 1,
        "ditorch": _C.version(),
        "torch": facts.get("torch", ""),
        "backend": facts.get("backend"),
        "device": device,
        "expect": expect,
        "seconds": round(seconds, 1),
    }


def make_key(
    about: dict[str, Any],
    options: argparse.Namespace,
    timeout: float,
    environment: dict[str, str],
    variables: tuple[str, ...],
) -> dict[str, Any]:
    """The key of a state file: answers of a run with another one are refused. `variables`: beginnings of the names of
    environment variables that matter; `environment` is what the workers see besides this process's own."""
    with open(about["expect"], "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    seen = {name: value for name, value in {**os.environ, **environment}.items() if name.startswith(variables)}
    seen.pop("DITORCH_BANNER", None)
    return {
        **{name: about[name] for name in ("ditorch", "torch", "backend", "expect")},
        "expect_sha256": digest,
        "device": options.device,
        "load": options.load,
        "compiled": options.compiled,
        "dynamic": options.dynamic,
        "timeout": timeout,
        "environment": seen,
    }
