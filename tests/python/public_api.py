"""What users write, for mypy: every public name is known, and has a type. Checked by `make types`; never run."""

import ditorch
import torch
from ditorch import export, report
from ditorch.table import Table
from module_tools import CompLayerAcc, compare_accuracy
from op_tools import (
    OpAutoCompare,
    OpCapture,
    OpDtypeCast,
    OpFallback,
    OpObserve,
    OpOverflowCheck,
    OpTimeMeasure,
    apply_feature,
    step,
)


def use(model: torch.nn.Module) -> list[str]:
    tables: list[Table] = [ditorch.operators(), ditorch.fallbacks(), OpTimeMeasure().table(), OpAutoCompare().table()]
    with ditorch.fault("nan:aten::mm"), OpAutoCompare(steps="0-2") as compare, OpOverflowCheck(stop=True) as check:
        findings = [*compare.findings(), *check.findings()]
    number: int = step()
    for tool in (OpCapture(), OpDtypeCast(), OpFallback(list="torch.mm"), OpObserve()):
        tool.start()
        tool.stop()
    name: str = ditorch.install(backend="host")
    backend: str | None = ditorch.backend
    installed: bool = ditorch.is_installed()
    page, problems = report.make(["run"], None)
    records = export.read("run", types=["time"])
    print(tables, findings, number, name, backend, installed, records, CompLayerAcc, compare_accuracy, apply_feature)
    return [page, *problems]
