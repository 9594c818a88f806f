"""What users write, for mypy: every public name is known, and has a type. Checked by `make types`; never run.

What stands under `refuse` is wrong: a comment that mypy does not need is an error there.
"""

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
    casts = {torch.float16: torch.float32}
    OpDtypeCast(dtype_cast_dict=casts, linear_op_dtype_cast_dict="torch.float16->torch.float64")
    OpAutoCompare(steps=range(4), ranks=0, save=0, cap_bytes="1GiB", mul_op_error_tolerance_float16=(1e-3, 1e-3))
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


def refuse() -> None:
    OpAutoCompare(steps=1.5)  # type: ignore[arg-type]
    OpAutoCompare(verdict="maybe")  # type: ignore[arg-type]
    OpCapture(cap_calls="many")  # type: ignore[arg-type]
    OpDtypeCast(dtype_cast_dict=16)  # type: ignore[arg-type]
    OpFallback(lst="torch.mm")  # type: ignore[call-arg]
    OpObserve(stats="yes")  # type: ignore[arg-type]
    OpOverflowCheck(max_findings=None, stop=2)  # type: ignore[arg-type]
    OpTimeMeasure(sort="fast")  # type: ignore[arg-type]
    CompLayerAcc(torch.nn.Linear(2, 2), is_dump_benchmark="no")  # type: ignore[arg-type]
    compare_accuracy(atol="small")  # type: ignore[arg-type]
