"""Children started by multiprocessing's spawn and forkserver methods get ditorch before their main module is imported.

multiprocessing sends each such child a pickled dictionary of preparation data. One more entry is added to it, an
object whose unpickling installs ditorch with the parent's keyword options. Nothing is written to the environment. Where
the program itself put ditorch's folder on sys.path, an entry before that does so in the child, which gets the parent's
sys.path too late for the import.
"""

from __future__ import annotations

import multiprocessing.spawn
import os
import site
from typing import Any

from . import installation
from .patches import Patches

_KEY, _PATH_KEY = "ditorch", "ditorch_path"


class Bootstrap:
    """Installs ditorch in the process that unpickles it."""

    def __init__(self, config: str | None, options: dict[str, Any]):
        self.config, self.options = config, options

    def __reduce__(self):
        return (start, (self.config, self.options))


class SearchPath:
    """Adds a folder to sys.path in the process that unpickles it, by the standard library alone."""

    def __init__(self, folder: str):
        self.folder = folder

    def __reduce__(self):
        return (site.addsitedir, (self.folder,))


def _is_found(folder: str) -> bool:
    """Does every new interpreter look there?"""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return folder in [*site.getsitepackages(), site.getusersitepackages(), *map(os.path.abspath, filter(None, named))]


def start(config: str | None, options: dict[str, Any]) -> Bootstrap:
    """Called by unpickling in the child; `import ditorch` has deferred the installation to this call (see
    ditorch/__init__.py)."""
    from . import install as install_ditorch

    install_ditorch(config, **options)
    return Bootstrap(config, options)


def install(patches: Patches) -> None:
    """Add the entry to the preparation data of every child started from now on."""
    native = multiprocessing.spawn.get_preparation_data
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def get_preparation_data(name):
        data = native(name)
        if not _is_found(home):
            data[_PATH_KEY] = SearchPath(home)  # dictionaries are unpickled in order
        data[_KEY] = Bootstrap(installation.state.config, installation.state.overrides)
        return data

    patches.set(multiprocessing.spawn, "get_preparation_data", get_preparation_data)
