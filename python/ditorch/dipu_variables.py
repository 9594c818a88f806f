"""DIPU's environment variables: what becomes of each one on the embedded device.

One table, from which docs/dipu.md is generated. A variable either does here what it did there, under the option it is
mapped to, or a warning says that there is nothing to act on and what to use instead. None does silently nothing. The
environment is read, never written.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from . import _C, dipu_names

HONOURED, MAPPED, WARNED, BUILD = "honoured", "mapped", "warning", "build only"
OFF = ("", "0", "false", "off", "no")
ON = ("1", "true", "on", "yes")


class Variable(NamedTuple):
    """One row: the variable, DIPU's default, what happens, the option it sets (MAPPED), and the reason or effect."""

    name: str
    default: str
    action: str
    option: str
    note: str


TABLE: tuple[Variable, ...] = (
    Variable("DIPU_MOCK_CUDA", "true", MAPPED, "alias", "false: `cuda` stays PyTorch's own (alias=off)"),
    Variable("DIPU_PYTHON_DEVICE_AS_CUDA", "true", MAPPED, "show_device_as_cuda", "false: the device prints as `dit`"),
    Variable(
        "DIPU_AUTOLOAD", "0", MAPPED, "autoload", "1: `import torch` loads ditorch and torch_dipu; nothing is edited"
    ),
    Variable(
        "DIPU_LOG_FALLBACK_INFO", "unset", MAPPED, "ledger", "1: every operator that fell back is named, once, at exit"
    ),
    Variable("DIPU_TORCH_ALLOCATOR_CONF", "empty", MAPPED, "alloc_conf", "the grammar of PYTORCH_CUDA_ALLOC_CONF"),
    Variable("DIPU_DEVICE_MEMCACHING_ALGORITHM", "TORCH", MAPPED, "allocator", "TORCH, BF, BS, RAW"),
    Variable("DIPU_HOST_MEMCACHING_ALGORITHM", "TORCH", MAPPED, "host_allocator", "each of the two may be set alone"),
    Variable("DIPU_MAX_EXTEND_SIZE", "1024", MAPPED, "allocator_extend", "in MiB; 2048 and more work"),
    Variable("DIPU_MAX_ASYNC_RESOURCE_POOL_LENGTH", "96", MAPPED, "allocator_pending", ""),
    Variable("DIPU_BS_ALLOCATOR_MIN_ALLOCATE_SIZE", "512", MAPPED, "allocator_min_size", ""),
    Variable(
        "DIPU_BS_MORE_ADAPTABLE", "unset", MAPPED, "allocator_adaptable", "1 turns it on; DIPU looks for presence"
    ),
    Variable("DIPU_DEBUG_ALLOCATOR", "0", MAPPED, "allocator_debug", "bits: 1 malloc, 2 free, 4 cache, 8 trace"),
    Variable("DIPU_MEM_CHECK", "unset", MAPPED, "memory_check", "1 turns it on; DIPU looks for presence"),
    Variable("DIPU_MEM_CHECK_ENABLE_BACKTRACE", "unset", MAPPED, "memory_check_backtrace", "likewise"),
    Variable("DIPU_MEM_CHECK_MAX_BLOCK", "10000", MAPPED, "memory_check_blocks", ""),
    Variable("DIPU_MEM_CHECK_LOG_INTERVAL", "1000", MAPPED, "memory_check_interval", ""),
    Variable("DIPU_CPU_AFFINITY", "0", MAPPED, "cpu_affinity", "unset, nothing is bound; DIPU binds by default"),
    Variable("DIPU_CHECK_TENSOR_DEVICE", "0", HONOURED, "", "operands on different devices are always an error"),
    Variable(
        "DIPU_FORCE_FALLBACK_OPS_LIST",
        "empty",
        MAPPED,
        "force_fallback",
        "together with the file .dipu_force_fallback_op_list.config; changeable while running",
    ),
    Variable(
        "DIPU_AUTOCOMPARE_OPS_LIST",
        "empty",
        MAPPED,
        "autocompare",
        "together with the file .specified_autocompare_op_list.config; changeable while running",
    ),
    Variable(
        "DIPU_KEEP_TORCHOP_DEFAULT_IMPL_OPS",
        "empty",
        WARNED,
        "",
        "there are no hand-written fallbacks here, so PyTorch's own are always in place; "
        "DIPU_FORCE_FALLBACK_OPS_LIST and op_tools.OpFallback run an operator on the CPU",
    ),
    Variable("DIPU_DUMP_OP_ARGS", "unset", MAPPED, "dump_op_args", "0 to 3; changeable while running"),
    Variable("DIPU_SYNC_EXEC_MODE", "unset", MAPPED, "launch_blocking", "1 turns it on; DIPU looks for presence"),
    Variable("DIPU_IMMEDIATE_REGISTER_OP", "false", WARNED, "", "operators are always registered at load"),
    Variable("DICL_BLOCKING_WAIT", "0", HONOURED, "", "0 or 1; work.wait() always blocks the caller here, as with 1"),
    Variable("FORCE_USE_DIPU_PROFILER", "false", WARNED, "", "torch.profiler is the device's profiler"),
    Variable("DIPU_DISABLE_FLUSH_READY_EVENT", "unset", WARNED, "", "a setting of DIPU's own tracer"),
    Variable("DIPU_FLUSH_READY_EVENT_INTERVAL", "1000", WARNED, "", "a setting of DIPU's own tracer"),
    Variable("DIPU_CUDA_EVENT_TIMING", "1", WARNED, "", "of DIPU's cuda vendor; events here time when asked to"),
    Variable("DIPU_PATCH_CUDA_CACHED_ALLOCATOR", "off", WARNED, "", "of DIPU's cuda vendor"),
    Variable("DIPU_FORCE_FALLBACK_ASCEND_P2P_COPY", "off", WARNED, "", "of DIPU's ascend vendor"),
    Variable("DIPU_TRACK_ACL", "off", WARNED, "", "of DIPU's ascend vendor"),
    Variable("DIPU_TRACK_HCCL", "off", WARNED, "", "of DIPU's ascend vendor"),
    Variable("DIPU_DEVICE", "cuda", BUILD, "", "chose the vendor of a build of DIPU"),
    Variable("DIPU_WITH_DIOPI_LIBRARY", "INTERNAL", BUILD, "", "chose the operator library of a build of DIPU"),
)


def _read_switch(name: str, text: str) -> bool:
    if text.lower() in OFF or text.lower() in ON:
        return text.lower() in ON
    raise ValueError(f"environment variable {name}: {text!r} is no switch; valid: {', '.join((*ON, *OFF[1:]))}")


def apply(environment: Mapping[str, str] = os.environ) -> None:
    """Options from variables whose values need a translation (the others are read with the options, in C). An option
    that was given under its own name wins."""
    text = environment.get("DIPU_MOCK_CUDA", "")
    if text and not _read_switch("DIPU_MOCK_CUDA", text):
        given = next(row["source"] for row in _C.options() if row["name"] == "alias")
        if given == "default":
            _C.option_set("alias", "off")


def wants_autoload(environment: Mapping[str, str] = os.environ) -> bool:
    """DIPU_AUTOLOAD asks for torch_dipu at the import of torch, and no real one is there to answer."""
    text = environment.get("DIPU_AUTOLOAD", "")
    if not text or not _read_switch("DIPU_AUTOLOAD", text):
        return False
    return dipu_names.find_real() is None


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Warn about what asks for something that is not there, and about a name that DIPU never had."""
    known = {row.name: row for row in TABLE}
    for name, text in environment.items():
        row = known.get(name)
        if row is None:
            if name.startswith("DIPU_"):
                _warn_unknown(name, known)
        elif name == "DICL_BLOCKING_WAIT" and text not in ("", "0", "1"):
            raise ValueError(f"environment variable {name}: {text!r} is not valid; valid: 0, 1")
        elif row.action == WARNED and text.lower() not in OFF:
            _warn(f"{name}={text!r} has no effect on the ditorch host device: {row.note}")


def _warn_unknown(name: str, known: Mapping[str, Variable]) -> None:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    meant = f"did you mean {close[0]}?" if close else "docs/dipu.md lists those that are"
    _warn(f"environment variable {name} is none of DIPU's; {meant}")


def _warn(text: str) -> None:
    warnings.warn(f"ditorch: {text}", RuntimeWarning, stacklevel=2)
