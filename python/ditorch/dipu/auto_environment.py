"""torch_dipu.utils.distutis.auto_env: torch.distributed's variables from those of SLURM or Open MPI.

The one function of ditorch that writes the environment: that is what it is for. It never runs a command; the first host
of SLURM's node list is read from the list itself.
"""

from __future__ import annotations

import os
import re
from types import ModuleType
from typing import Any

DEFAULT_PORT = "29500"
"""torch.distributed's own."""


def _read_number(name: str) -> str:
    text = os.environ.get(name)
    if text is None or not text.isdecimal():
        raise RuntimeError(f"auto_env: {name} is {'not set' if text is None else repr(text)}; a whole number is needed")
    return text


def find_first_host(nodes: str) -> str:
    """First host of a node list: `gpu[007-009,12],login1` gives gpu007, `a[1-2]b[3,5]` gives a1b3."""
    depth, end = 0, len(nodes)
    for place, letter in enumerate(nodes):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            end = place
            break
    first = re.sub(r"\[(\w+)[^\[\]]*\]", r"\1", nodes[:end])
    if depth != 0 or not re.fullmatch(r"[\w.-]+", first):
        raise RuntimeError(f"auto_env: the node list {nodes!r} names no host; expected something like node[01-04]")
    return first


def _find_mpi_host(uri: str) -> str:
    """First address of the daemon's URI: `1810366464.0;usock;tcp://10.148.7.30,172.17.0.1:34499`."""
    match = re.search(r"tcp://(\d{1,3}(?:\.\d{1,3}){3})[:,]", uri)
    if match is None:
        raise RuntimeError(f"auto_env: OMPI_MCA_orte_hnp_uri is {uri!r}, which has no tcp address; give addr= yourself")
    return match[1]


def _set(rank: str, size: str, addr: Any, find: Any) -> None:
    os.environ.setdefault("RANK", rank)
    os.environ.setdefault("WORLD_SIZE", size)
    if addr is not None:
        os.environ["MASTER_ADDR"] = str(addr)
    elif "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"] = find()


def _get(name: str) -> str:
    text = os.environ.get(name)
    if not text:
        raise RuntimeError(
            f"auto_env: {name} is not set, so the master's address is unknown; give addr= or MASTER_ADDR"
        )
    return text


def auto_env(addr: Any = None, port: Any = None) -> None:
    """Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT where they are not set; `addr` and `port` win."""
    if "SLURM_PROCID" in os.environ:
        _set(
            _read_number("SLURM_PROCID"),
            _read_number("SLURM_NTASKS"),
            addr,
            lambda: find_first_host(_get("SLURM_NODELIST")),
        )
    elif "OMPI_COMM_WORLD_RANK" in os.environ:
        _set(
            _read_number("OMPI_COMM_WORLD_RANK"),
            _read_number("OMPI_COMM_WORLD_SIZE"),
            addr,
            lambda: _find_mpi_host(_get("OMPI_MCA_orte_hnp_uri")),
        )
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    os.environ.setdefault("MASTER_PORT", DEFAULT_PORT)


def fill(module: ModuleType) -> None:
    """torch_dipu.utils.distutis, as DIPU spells it, and distutils."""
    module.auto_env = auto_env
