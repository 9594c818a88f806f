"""`ditorch doctor`: what is installed, what was chosen and why, what is aliased, and whether the device computes."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from typing import Any

from . import _C, library
from .command.parser import wrap
from .terminal import is_terminal, paint, strip


def collect(config: str | None, options: dict[str, str]) -> dict[str, Any]:
    """Everything the report says, as plain data. A failed installation is part of the report, not an exception."""
    report: dict[str, Any] = {
        "ditorch": _C.version(),
        "python": f"{platform.python_version()} ({sys.executable})",
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        "torch": _describe_torch(),
        "libraries": _describe_libraries(),
        "problems": [],
    }
    try:
        _describe_installation(report, config, options)
    except Exception as error:
        report["problems"].append(f"installation failed: {error}")
    report["problems"] += _probe_processor()
    report["problems"] = report.pop("problems")  # last, where it is read
    return report


def _probe_processor() -> list[str]:
    """Virtual machines may announce instructions (AMX) that they cannot run: PyTorch then dies without a word."""
    program = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
    try:
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if found.returncode != -signal.SIGILL:
        return []
    return [
        "PyTorch itself dies here in a bfloat16 product (illegal instruction): the processor announces AMX and cannot "
        "run it; export ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
    ]


def _describe_torch() -> str:
    try:
        import torch
    except Exception as error:
        return f"cannot be imported: {error}"
    return f"{torch.__version__} ({os.path.dirname(torch.__file__)}), built with CUDA: {torch.version.cuda or 'no'}"


def _describe_libraries() -> dict[str, str]:
    try:
        names = sorted(name for name in os.listdir(library.DIRECTORY) if ".so" in name)
    except OSError:
        names = []
    found = {name: f"{os.path.getsize(os.path.join(library.DIRECTORY, name)) // 1024} KiB" for name in names}
    for name in ("libdit.so", "libdit_vendor_host.so"):
        found.setdefault(name, f"missing from {library.DIRECTORY}")
    for minor in library.list_minors():
        build = library.read_build(minor)
        text = ", ".join(f"{key} {value}" for key, value in build.items()) or "no record (build.json)"
        found[f"torch-{minor}/{library.ADAPTER}"] = text
    if not library.list_minors():
        found[library.ADAPTER] = f"missing from {library.DIRECTORY}"
    return found


def _describe_installation(report: dict[str, Any], config: str | None, options: dict[str, str]) -> None:
    from . import install, installation, settings

    install(config, **options)
    state = installation.state
    report["backend"] = state.choice.backend
    report["reason"] = state.choice.reason
    report["vendor_stacks"] = _describe_stacks(state.choice)
    report["problems"] += [f"passed over {note}" for note in state.choice.notes]
    report["alias"] = state.alias
    if state.alias_note:
        report["problems"].append(f"binary alias: {state.alias_note}")
    report["alias_slots"] = _describe_alias()
    report["options"] = {row["name"]: f"{row['value']} ({row['source']})" for row in settings.changed()}
    if state.choice.backend in ("host", "nvidia"):
        report["vendor"] = _C.vendor_info()
        report["devices"] = [_describe_device(index) for index in range(_C.device_count())]
    elif state.choice.stack is not None:
        report["devices"] = [
            f"{state.choice.stack.device}:{i}" for i in range(state.choice.stack.module.device_count())
        ]
    else:
        return
    own = "dit" if state.choice.stack is None else state.choice.stack.device
    report["self_check"] = self_check() if state.alias != "off" else self_check(own)
    for name, outcome in report["self_check"].items():
        if outcome != "ok":
            report["problems"].append(f"self-check {name}: {outcome}")


def _describe_stacks(chosen: Any) -> dict[str, str]:
    """Vendor packages that are installed, and what became of them. None is imported for the report."""
    from .vendors import probe, rows

    notes = dict(note.removeprefix("backend ").split(": ", 1) for note in chosen.notes)
    found = {}
    for row in rows.ROWS:
        if chosen.stack is not None and chosen.stack.row is row:
            found[row.backend] = f"{chosen.stack.message} (chosen)"
        elif row.backend in notes:
            found[row.backend] = notes[row.backend]
        elif probe.is_installed(row):
            found[row.backend] = f"{row.package} is installed, and was not tried"
    return found


def _describe_alias() -> dict[str, str]:
    """Import slots rewritten per library: which functions, how many of each."""
    libraries = _C.alias_status().get("libraries") or {}
    return {
        name: f"{sum(slots.values())} ({', '.join(f'{label} x{count}' for label, count in slots.items())})"
        for name, slots in libraries.items()
    }


def _describe_device(index: int) -> str:
    properties = _C.device_properties(index)
    free, total = _C.memory_info(index)
    return (
        f"{properties['name']}, capability {properties['major']}.{properties['minor']}, "
        f"{total / (1 << 30):.1f} GiB, {free / (1 << 30):.1f} GiB free"
    )


def self_check(name: str = "cuda") -> dict[str, str]:
    """A few operators on the device against the CPU: "ok" or what went wrong."""
    import torch

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(33, 17, generator=generator), torch.randn(17, 9, generator=generator)
    cases = {
        "copy": lambda a, b: a.clone(),
        "add": lambda a, b: a + 1,
        "mm": lambda a, b: a @ b,
        "softmax": lambda a, b: torch.softmax(a, -1),
        "strided sum": lambda a, b: a.t()[::2].sum(0),
    }
    outcome = {}
    for case, function in cases.items():
        try:
            result = function(x.to(name), y.to(name))
            difference = (result.cpu() - function(x, y)).abs().max().item()
            outcome[case] = "ok" if difference <= 1e-4 else f"differs from the CPU by {difference}"
        except Exception as error:
            outcome[case] = f"{type(error).__name__}: {error}"
    return outcome


def format_report(report: dict[str, Any]) -> str:
    """The report as text, one fact per line, wrapped to the terminal."""
    lines = []
    for key, value in report.items():
        title = paint(key.replace("_", " "), "head")
        if isinstance(value, dict):
            lines.append(f"{title}:")
            lines += [_format_fact(f"  {name}: ", str(entry)) for name, entry in value.items()] or ["  none"]
        elif isinstance(value, list):
            style = "bad" if key == "problems" else ""
            lines.append(f"{title}:")
            lines += [_format_fact("  ", str(entry), style) for entry in value] or ["  none"]
        else:
            lines.append(_format_fact(f"{title}: ", str(value)))
    return "\n".join(lines)


def _format_fact(begin: str, text: str, style: str = "") -> str:
    """A pipe gets one line, which is searched; a terminal gets lines that fit."""
    style = "good" if text == "ok" else style
    if is_terminal():
        text = wrap(text, " " * 6, strip(begin)).removeprefix(strip(begin))
    return begin + (paint(text, style) if style else text)


def main(config: str | None, options: dict[str, str], as_json: bool) -> int:
    """Print the report; status 1 when something is wrong."""
    report = collect(config, options)
    print(json.dumps(report, indent=2, default=str) if as_json else format_report(report))
    return 1 if report["problems"] else 0
