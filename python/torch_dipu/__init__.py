"""`import torch_dipu` where ditorch is installed: DIPU's names on the embedded device (docs/dipu.md).

A real torch_dipu wins: one that is installed into the same folder takes the place of this file, one further down the
path is imported instead, without ditorch. Otherwise ditorch is imported, and its tree of modules (ditorch/dipu) becomes
torch_dipu.
"""

import importlib.util as _util
import os as _os

_folder = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
_spec = _util.spec_from_file_location("_ditorch_dipu_names", _os.path.join(_folder, "ditorch", "dipu_names.py"))
assert _spec is not None and _spec.loader is not None
_names = _util.module_from_spec(_spec)  # by its file: `import ditorch` would install the device
_spec.loader.exec_module(_names)
_names.become(__name__)
