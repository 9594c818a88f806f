"""Children started by multiprocessing's spawn and forkserver methods get ditorch before their main module is imported.

multiprocessing sends each such child a pickled dictionary of preparation data. One more entry is added to it, an
object whose unpickling installs ditorch with the parent's keyword options. Nothing is written to the environment.
"""

from __future__ import annotations

import multiprocessing.spawn
from typing import Any

from . import installation
from .patches import Patches

_KEY = "ditorch"


class Bootstrap:
    """Installs ditorch in the process that unpickles it."""

    def __init__(self, config: str | None, options: dict[str, Any]):
        self.config, self.options = config, options

    def __reduce__(self):
        return (start, (self.config, self.options))


def start(config: str | None, options: dict[str, Any]) -> Bootstrap:
    """Called by unpickling in the child; `import ditorch` has deferred the installation to this call (see
    ditorch/__init__.py)."""
    from . import install as install_ditorch

    install_ditorch(config, **options)
    return Bootstrap(config, options)


def install(patches: Patches) -> None:
    """Add the entry to the preparation data of every child started from now on."""
    native = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name):
        data = native(name)
        data[_KEY] = Bootstrap(installation.state.config, installation.state.overrides)
        return data

    patches.set(multiprocessing.spawn, "get_preparation_data", get_preparation_data)
