"""Names of dlinfer.vendor.ascend that a framework's workers call."""

from __future__ import annotations

from typing import Any


def ensure_ascend_runtime() -> None:
    """Nothing to start: the operators need no runtime of the vendor's."""


def build_chunked_moe_storage_layout(num_experts: int) -> tuple[int, None]:
    """Experts are stored as they are: fused_moe has no limit on their number."""
    return num_experts, None


def chunked_moe_storage_expert_id(expert_id: int, layout: Any) -> int:
    """The place of an expert is its number."""
    return expert_id


def zero_chunked_moe_weight_padding(gate_up_weights: Any, down_weights: Any, layout: Any) -> None:
    """There is no padding."""
