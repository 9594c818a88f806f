"""The names of `dlinfer` itself."""

from __future__ import annotations

import ditorch

from . import vendors
from .operators import capability
from .transformers_attention import use

__version__ = ditorch.__version__
__all__ = ["__version__", "capability", "use", "use_vendor"]
use_vendor = vendors.use
