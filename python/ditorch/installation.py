"""Installation: all or nothing, once per process, and reversible.

Order: options, choice of backend, adapter, device runtime, alias, torch.cuda surface, hooks for later imports.
Whatever fails, the undo list of everything before it runs. The adapter library and the vendor stay loaded after an
undo (libraries with registered operators cannot be unloaded); nothing reaches them any more.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from typing import Any

from . import _C, banner, choice, controls, dipu_variables, faults, ledger, library, metrics, settings, visible
from .library import DEVICE_TYPE
from .patches import Patches
from .vendors.probe import Stack


class Installation:
    """What is in place in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.choice: choice.Choice | None = None
        self.patches: Patches | None = None
        self.alias = "off"
        self.alias_note = ""
        self.target: tuple[str, int] | None = None
        """Name and c10 number of the device type that "cuda" stands for."""
        self.config: str | None = None
        self.overrides: dict[str, Any] = {}

    def reset(self) -> None:
        """Nothing is in place."""
        self.patches = self.choice = self.target = None
        self.alias, self.alias_note = "off", ""


state = Installation()


def install(config: str | None = None, **overrides: Any) -> str:
    """Choose the backend and put it in place; returns its name. A second call without arguments does nothing.

    `overrides` are options by keyword (`backend="host"`, `host_devices=2`).
    """
    with state.lock:
        if state.patches is not None:
            if overrides or config:
                raise RuntimeError(
                    "ditorch is installed already; call ditorch.uninstall() first, "
                    "or give the options through the environment, "
                    "a TOML file (DITORCH_CONFIG) or `python -m ditorch --set name=value`"
                )
            return state.choice.backend
        settings.load(config, overrides)
        state.config, state.overrides = config, overrides
        chosen = choice.choose()
        for note in chosen.notes:
            warnings.warn(f"ditorch: passed over {note}", RuntimeWarning, stacklevel=2)
        _put_in_place(chosen)
        return chosen.backend


def _put_in_place(chosen: choice.Choice) -> None:
    patches = Patches()
    try:
        if chosen.backend == "nvidia":
            _C.option_set("vendor", "cuda")
        if chosen.backend in ("host", "nvidia"):
            _install_host(patches)
        elif chosen.stack is not None:
            _install_vendor(patches, chosen.stack)
        if state.target is not None:
            from . import auditing, exemption

            exemption.install(patches, chosen.stack)
            auditing.install(patches)
    except BaseException:
        patches.undo()
        state.reset()
        raise
    state.choice, state.patches = chosen, patches
    if settings.get("banner") and chosen.backend not in ("cuda", "none"):
        banner.tell(chosen)


def uninstall() -> None:
    """Put torch back as it was. Tensors of the device that are alive stay usable under the device's real name
    ("dit")."""
    with state.lock:
        if state.patches is None:
            return
        failures = state.patches.undo()
        state.reset()
        if failures:
            raise RuntimeError(f"ditorch.uninstall() could not take back everything: {failures}") from failures[0]


def _tell_idle() -> None:
    """At the end: what was asked for by name and never met an operator of that name."""
    for text in filter(None, [*controls.list_idle(), faults.describe_idle()]):
        print(f"ditorch: {text}", file=sys.stderr)


def _install_host(patches: Patches) -> None:
    import torch

    taken = choice.find_foreign_name()
    if taken:
        raise RuntimeError(
            f"the embedded device cannot start: PyTorch's one custom device type is {taken!r} in this process, "
            "which another package has taken. Import ditorch without that package, with DITORCH_BACKEND=host "
            "(and TORCH_DEVICE_BACKEND_AUTOLOAD=0 where torch itself imports it)"
        )
    dipu_variables.check()
    library.load_adapter()
    controls.refresh()
    controls.listen(True)
    patches.defer(lambda: controls.listen(False))
    _start_runtime()
    metrics.install(patches)
    mode = settings.get("alias")
    if mode == "off":
        from . import import_patches, torch_dit

        torch_dit.install(patches)
        import_patches.install_compiler(patches, is_ours=True)
    else:
        _install_alias(patches, mode, "dit", DEVICE_TYPE)
        from . import cuda, import_patches

        cuda.install(patches)
        import_patches.install(patches)
    from . import dipu, late_backward, spawn

    dipu.install(patches)
    spawn.install(patches)
    late_backward.install(patches)
    atexit.register(torch.ops.ditorch.drain_at_exit)
    patches.defer(lambda: atexit.unregister(torch.ops.ditorch.drain_at_exit))
    if settings.get("fault"):
        faults.start(settings.get("fault"))
        patches.defer(lambda: faults.start(""))
    atexit.register(_tell_idle)
    patches.defer(lambda: atexit.unregister(_tell_idle))
    if settings.get("ledger"):
        ledger.set_timing(True)
        atexit.register(ledger.print_ledger)
        patches.defer(lambda: atexit.unregister(ledger.print_ledger))


def _install_vendor(patches: Patches, stack: Stack) -> None:
    """The alias and torch.cuda over a vendor's package, or the vendor's own shim; collectives in both cases."""
    from . import import_patches, spawn, vendors
    from .vendors import collectives

    if settings.get("alias") == "off":
        import_patches.install_backends(patches)
        spawn.install(patches)
        return
    if stack.presents_cuda:
        state.alias = f"made by {stack.row.package}"
        import_patches.install_backends(patches)
    elif settings.get("use_vendor_shim"):
        name = vendors.find_shim(stack)
        vendors.use_shim(name)
        state.alias = f"made by {name}"
        vendors.install_extras(patches, stack)
        import_patches.install_backends(patches)
    else:
        from .vendors import surface

        _install_alias(patches, settings.get("alias"), stack.device, stack.number)
        surface.install(patches, stack)
        import_patches.install_compiler(patches, is_ours=False)
        import torch

        _C.is_cuda_install(torch._C.TensorBase, stack.number)
        patches.defer(_C.is_cuda_restore)
    collectives.install(patches, stack)
    spawn.install(patches)


def start_vendor() -> None:
    """Start the vendor with the devices that CUDA_VISIBLE_DEVICES leaves. With none left it has one, which torch.cuda
    denies."""
    count = str(max(len(visible.ordinals), 1))
    wanted = str(settings.get("host_devices"))
    if count != wanted:
        _C.option_set("host_devices", count)
    try:
        _C.init(settings.get("vendor"))
        _activate_operators()
    finally:
        if count != wanted:
            settings.load(state.config, state.overrides)


def _activate_operators() -> None:
    """The operator library that was asked for, or the vendor's own where it has one."""
    name = settings.get("diopi_lib")
    if name:
        _C.diopi_activate(name)
        return
    vendor = settings.get("vendor")
    if os.path.exists(os.path.join(library.DIRECTORY, f"libdiopi_{vendor}.so")):
        _C.diopi_activate(vendor)


def is_untouched() -> bool:
    """No memory of the device, and no pinned memory, was ever asked for."""
    allocations = sum(_C.memory_stats(index)["num_device_alloc"] for index in range(_C.device_count()))
    return allocations == 0 and _C.host_stats()["vendor_allocations"] == 0


def _start_runtime() -> None:
    wanted = max(len(visible.select()), 1)
    if _C.is_active() and visible.is_ours() and _C.device_count() != wanted:
        if not is_untouched():
            raise RuntimeError(
                f"host_devices cannot change from {_C.device_count()} to {wanted}: this process has used the device "
                "already; set it before the first import of ditorch"
            )
        _C.shutdown()
    if not _C.is_active():
        start_vendor()
    visible.take()
    _C.memory_apply_options()
    text = settings.get("alloc_conf") or os.environ.get("PYTORCH_ALLOC_CONF", "")
    if text:
        _C.memory_configure(text)


def restart() -> None:
    """Start the runtime again, with the devices that the environment names now. Nothing may have used them yet."""
    _start_runtime()


def _install_alias(patches: Patches, mode: str, name: str, number: int) -> None:
    """The binary alias where it can be, else, with one warning, the Python redirect."""
    show = bool(settings.get("show_device_as_cuda"))
    if mode == "binary":
        try:
            _C.alias_install(number, show, None)
        except (RuntimeError, OSError, NotImplementedError) as error:
            state.alias_note = str(error)
            warnings.warn(
                f"ditorch: the binary alias cannot be installed ({error}); "
                "using the slower Python redirect (DITORCH_ALIAS=python)",
                RuntimeWarning,
                stacklevel=2,
            )
            mode = "python"
        else:
            patches.defer(_C.alias_restore)
    if mode == "python":
        from . import redirect

        redirect.install(name, number)
        patches.defer(redirect.uninstall)
    state.alias, state.target = mode, (name, number)
