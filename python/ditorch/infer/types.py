"""The types that frameworks pass (dlinfer.utils.type_annotation)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class MoECommType(enum.Enum):
    """How experts on several devices exchange tokens."""

    NAIVE = enum.auto()
    ALLGATHER = enum.auto()
    ALLTOALL = enum.auto()
    MC2 = enum.auto()
    TP = enum.auto()
    UNDEFINED = enum.auto()


@dataclass
class MoeMetadata:
    """What a framework knows about a step's mixture of experts."""

    max_tokens_across_dp: int = 1
    pad_size: int = 0
    dp_size: int = 1
    tp_size: int = 1
    ep_size: int = 1
    tp_rank: int = 0
    ep_rank: int = 0
    tp_group: Any = None
    ep_group: Any = None
    moe_comm_type: MoECommType = MoECommType.UNDEFINED
    x_active_mask: Any = None
    moe_group_name: str | None = None
    expert_ids_per_ep_rank: Any = None
    router_n_groups: int = -1
