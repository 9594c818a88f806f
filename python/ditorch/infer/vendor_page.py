"""dlinfer.vendor: whose conventions the calls follow."""

from __future__ import annotations

from . import vendors

vendor_name = vendors.get().name
"""As at the import: DLINFER_VENDOR, or what `dlinfer.use_vendor` chose before."""
