"""`import dlinfer` where ditorch is installed: LLM inference operators for any device (docs/dlinfer.md).

A real dlinfer wins: one that is installed into the same folder takes the place of this file, one further down the path
is imported instead. Otherwise the finder of ditorch/infer makes the tree of modules.
"""

import importlib.util as _util
import os as _os

_folder = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
_spec = _util.spec_from_file_location("_ditorch_infer_names", _os.path.join(_folder, "ditorch", "infer_names.py"))
assert _spec is not None and _spec.loader is not None
_names = _util.module_from_spec(_spec)  # by its file: `import ditorch` would install the device
_spec.loader.exec_module(_names)
_names.become(__name__)
