"""The names of DIPU (`import torch_dipu`) on the embedded device.

`import torch_dipu` is answered by a finder at the end of sys.meta_path, to which python/torch_dipu hands over, so an
installed torch_dipu always wins. Nothing
of torch changes before a program imports it; what changes then (`activation.py`) is on the installation's undo list.
`support.py` is the account of every name. Depends on: an installation of the host device, with or without the alias.
"""

from __future__ import annotations

import sys

from .. import dipu_variables, settings
from ..dipu_names import is_ours
from ..patches import Patches
from .finder import Finder

__all__ = ["install", "is_ours"]


def install(patches: Patches) -> None:
    """Answer to `import torch_dipu`; with DIPU_AUTOLOAD=1 import it at once."""
    if not settings.get("dipu_names"):
        return
    patches.defer(_forget)
    patches.append(sys.meta_path, Finder(patches))
    if dipu_variables.wants_autoload():
        __import__("torch_dipu")


def _forget() -> None:
    """The modules end with the installation; a later import makes new ones."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_dipu"]:
        if is_ours(sys.modules[name]):
            del sys.modules[name]
