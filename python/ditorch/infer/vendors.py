"""How frameworks call the operators for each vendor's chip: rows of data."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple


class Vendor(NamedTuple):
    """Conventions of one vendor's calls."""

    name: str
    heads_first: bool  # cache blocks are (heads, tokens, elements), else (tokens, heads, elements)
    cumulative_paged: bool  # q_seq_len of paged prefill and decode holds ends, not lengths
    causal_by_mask: bool  # a mask that is not empty means causal; else q_start_loc with one number per sequence more


VENDORS = {
    row.name: row
    for row in (
        Vendor("ascend", heads_first=False, cumulative_paged=True, causal_by_mask=True),
        Vendor("maca", heads_first=False, cumulative_paged=False, causal_by_mask=False),
        Vendor("camb", heads_first=True, cumulative_paged=False, causal_by_mask=False),
    )
}
_chosen: list[Vendor] = []


def use(name: str) -> None:
    """Take this vendor's conventions from now on."""
    if name not in VENDORS:
        raise ValueError(f"dlinfer knows no vendor {name!r}; valid: {', '.join(VENDORS)}")
    _chosen[:] = [VENDORS[name]]
    page = sys.modules.get("dlinfer.vendor")
    if page is not None:
        page.vendor_name = name


def get() -> Vendor:
    """The vendor in use: the one chosen by `use`, else DLINFER_VENDOR, else ascend."""
    if not _chosen:
        use(os.environ.get("DLINFER_VENDOR", "ascend"))
    return _chosen[0]
