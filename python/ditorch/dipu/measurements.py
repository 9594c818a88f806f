"""torch_dipu._C: metrics, under DIPU's names, over ditorch.metrics. Off until enable_metrics(True) or
DITORCH_METRICS=1; DIPU counts by default."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .. import metrics as source


@dataclass
class MetricsGroup:
    """All series of one name: `values` is a list of (labels, value)."""

    name: str = ""
    type: str = ""
    info: str = ""
    values: list[tuple[dict[str, str], Any]] = field(default_factory=list)

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def metrics() -> list[MetricsGroup]:
    """Every group that has counted something."""
    return [MetricsGroup(group.name, group.type, group.info, group.values) for group in source.metrics()]


def names() -> dict[str, Any]:
    """The metrics' part of torch_dipu._C."""
    return {
        "MetricsGroup": MetricsGroup,
        "metrics": metrics,
        "enable_metrics": source.enable_metrics,
        "is_metrics_enabled": source.is_metrics_enabled,
    }
