"""Run CUDA-written PyTorch code on any accelerator, unchanged.

`import ditorch` is all a script needs. Where torch has a CUDA device of its own nothing is patched; elsewhere "cuda"
becomes a name of the device of a vendor's package (torch_npu, torch_mlu ...) or of the embedded host device. What was
chosen, and why: `python -m ditorch doctor`.

The import installs, except where somebody else decides when: `python -m ditorch` (after its options are read),
torch's backend autoload (only with DITORCH_AUTOLOAD=1), and children of multiprocessing's spawn (with the parent's
options).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from .auditing import audit as audit
    from .exemption import exempt as exempt
    from .faults import fault as fault
    from .ledger import fallbacks as fallbacks
    from .ledger import operators as operators
    from .ledger import print_ledger as print_ledger
    from .ledger import reset_counters as reset_counters
    from .ledger import set_timing as set_timing
    from .refusal import NotSupportedError as NotSupportedError
    from .settings import options as options

    adapter: _Adapter | None
    backend: str | None

__all__ = [
    "NotSupportedError",
    "adapter",
    "audit",
    "backend",
    "exempt",
    "fallbacks",
    "fault",
    "install",
    "is_installed",
    "operators",
    "options",
    "print_ledger",
    "reset_counters",
    "set_timing",
    "synchronize",
    "uninstall",
]

_busy = False
"""An installation is under way, or will be started by the command line: torch's autoload must not interfere."""


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() in ("1", "true", "on", "yes")


def _autoload() -> None:
    """Entry point "torch.backends": called at the end of `import torch`; acts only with DITORCH_AUTOLOAD=1, or with
    DIPU_AUTOLOAD=1 where no real torch_dipu is installed, which would come by itself."""
    if _busy:
        return
    from . import dipu_names

    if _is_on("DITORCH_AUTOLOAD") or (_is_on("DIPU_AUTOLOAD") and dipu_names.find_real() is None):
        install()
        return
    for name in [name for name in sys.modules if name == "ditorch" or name.startswith("ditorch.")]:
        del sys.modules[name]  # so that a later `import ditorch` runs this file again, and installs


def _torch_is_loading() -> bool:
    """Inside `import torch`, which is where the autoload entry point is resolved."""
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def _is_launcher() -> bool:
    """This import belongs to `python -m ditorch` or to the `ditorch` command, which install after reading their
    options."""
    if sys.argv and sys.argv[0] == "-m":
        return _find_module(sys.orig_argv[1:]) in ("ditorch", "ditorch.__main__")
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return os.path.basename(main) in ("ditorch", "ditorch.exe")


def _find_module(words: list[str]) -> str:
    """What follows -m on python's command line (`-m name`, `-mname`, `-Im name`)."""
    rest = iter(words)
    for word in rest:
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(rest, "")
        elif word.startswith("-") and not word.startswith(("-X", "-W", "--")) and "m" in word:
            return word.partition("m")[2] or next(rest, "")
    return ""


def _is_spawn_child() -> bool:
    """Being imported by the unpickling of multiprocessing's preparation data (see spawn.py)."""
    if "multiprocessing.spawn" not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_main" and code.co_filename == sys.modules["multiprocessing.spawn"].__file__:
            return "preparation_data" not in frame.f_locals
        frame = frame.f_back
    return False


def install(config: str | None = None, **options: Any) -> str:
    """Choose the backend, put it in place and return its name. Called by the import; a second call does nothing.

    After `uninstall()` it may be called again, with options by keyword: `ditorch.install(backend="host")`.
    """
    global _busy
    before, _busy = _busy, True
    try:
        try:
            from . import _C
        except ImportError as error:
            raise ImportError(
                f"ditorch's C extension does not load: {error}. "
                "Build it for this Python: pip install --no-build-isolation ., "
                "or cmake --build build/dev in a source tree"
            ) from error
        _C.helper_set_answer(_answer)
        from . import installation

        name = installation.install(config, **options)
        from . import settings

        if settings.get("tools") or settings.get("run") or "ditorch.command.session" in sys.modules:
            from .command import session

            session.begin(settings.get("run"), settings.get("tools"))
        return name
    finally:
        _busy = before


def _answer(*question: Any) -> Any:
    """Numbers of tensors that ditorch._C does not read by itself."""
    from .helper_torch import answer

    return answer(*question)


def uninstall() -> None:
    """Take every patch back; torch is as it was before the import."""
    from . import installation

    installation.uninstall()


def is_installed() -> bool:
    """True while "cuda" is a name of the device."""
    return __getattr__("backend") not in (None, "cuda", "none")


def synchronize(device: Any = None) -> None:
    """Wait for all work on the device."""
    import torch

    torch.cuda.synchronize(device)


class _Adapter:
    """What was installed: `arch`, `framework` and `version` as the banner has them, `device` (its real name),
    `backend`, `reason`, `alias`."""

    def __init__(self, state: Any) -> None:
        from . import _C

        stack = state.choice.stack
        self.arch = stack.arch if stack else "host"
        self.framework = stack.row.package if stack else "ditorch"
        self.version = stack.version if stack else _C.version()
        self.device = stack.device if stack else "dit"
        self.backend = state.choice.backend
        self.reason = state.choice.reason
        self.alias = state.alias

    def __repr__(self) -> str:
        return f"<ditorch adapter {self.arch} {self.framework}:{self.version}, alias {self.alias}: {self.reason}>"


_EXPORTS = {
    "fallbacks": "ledger",
    "operators": "ledger",
    "reset_counters": "ledger",
    "set_timing": "ledger",
    "print_ledger": "ledger",
    "fault": "faults",
    "exempt": "exemption",
    "audit": "auditing",
    "options": "settings",
    "NotSupportedError": "refusal",
}


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _EXPORTS:
        value = getattr(import_module(f".{_EXPORTS[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in ("backend", "adapter"):
        state = import_module(".installation", __name__).state
        if state.choice is None:
            return None
        if name == "backend":
            return state.choice.backend
        return None if state.choice.backend in ("cuda", "none") else _Adapter(state)
    if name == "__version__":
        return import_module("._C", __name__).version()
    raise AttributeError(f"module 'ditorch' has no attribute {name!r}")


if _is_launcher():
    _busy = True
elif not (_torch_is_loading() or _is_spawn_child()):
    install()
