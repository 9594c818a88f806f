"""Write docs/diopi-support.md: what the host library has, and which operators of PyTorch run on it."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from ditorch import _C, diopi_report

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "diopi-support.md"
HEAD = """# What the host library has

The functions of [the standard](diopi.md) that the library of the embedded device implements, the dtypes of their
first input, and the operators of PyTorch that run on them (the row of the operator table; forms for numbers and
in-place forms may be used by the same operators). Where no operator has a row, it says what calls the function or why
PyTorch does not reach it. Written by `make docs`.
"""
VIEW = "a view in PyTorch: no memory moves"
ONE_DIMENSION = "PyTorch makes it of the two-dimensional form"
NO_INDICES = "PyTorch asks for the indices always, because its gradient needs them"
POOL = "one function for all kinds of pooling: PyTorch has an operator for each, which have rows"
PYTHON = "a function of other operators in torch, not an operator"
COMPOSED = "PyTorch composes it of other operators, with their gradients"
OWN = "no operator of PyTorch"
NOT_YET = "no row yet: PyTorch's operator runs on the CPU"
INFERENCE = "no operator of PyTorch: inference engines call it"
NO_ROW = {
    "diopiLayerNormGB*": "groups of the first dimensions: PyTorch's layer norm has the last ones",
    "diopiInstanceNorm*": "PyTorch makes it of batch norm",
    "diopi*Pool1d*": ONE_DIMENSION,
    "diopiMaxPool[23]d": NO_INDICES,
    "diopiAdaptiveMaxPool[23]d": NO_INDICES,
    "diopiPool[23]d*": POOL,
    "diopiDropoutInp": "dropout_ is composed of bernoulli_ and mul_",
    "diopiBernoulliInp": "probabilities in the tensor itself: bernoulli_ of PyTorch has them in an argument",
    "diopiNormal": "torch.normal of two numbers is empty and normal_",
    "diopiSigmoidFocalLoss*": OWN,
    "diopiCrossEntropyLoss*": "composed of _log_softmax and nll_loss",
    "diopiNLLLoss*": "PyTorch keeps the total weight too: the V2 forms have rows",
    "diopiBCEWithLogitsBackward": "PyTorch differentiates its own formula",
    "diopiMatmulBackward": COMPOSED,
    "diopiLinear*": COMPOSED,
    "diopiOnes": "empty and fill_",
    "diopiZeros": "empty and zero_",
    "diopiNormBackward": COMPOSED,
    "diopiNormalize*": PYTHON,
    "diopiIndexBackward": "new_zeros and _index_put_impl_",
    "diopiIndexSelectBackward": "new_zeros and index_add_",
    "diopiMaskedSelectBackward": "zeros_like and masked_scatter_",
    "diopiGatherBackward": "new_zeros and scatter_add_",
    "diopiIndexPut": "clone and _index_put_impl_",
    "diopiClipGradNorm": PYTHON,
    "diopiAdamW": "one parameter at a time: torch.optim's fused form has lists, as diopiFusedAdamW",
    "diopiAdam": "one parameter at a time: torch.optim's fused form has lists, as diopiFusedAdamW",
    "diopiAdadelta": PYTHON,
    "diopiRmsprop": PYTHON,
    "diopiSplitWithSizes": "split_with_sizes_copy is composed of one copy per piece",
    "diopiOneHot": "composed of zeros and scatter_",
    "diopiMeshGrid": VIEW,
    "diopiSortBackward": "new_zeros and scatter_",
    "diopiArgsort": "the indices of sort",
    "diopiCumsumBackward": "flip and cumsum",
    "diopiContiguous": "clone",
    "diopiImag": VIEW,
    "diopiReal": VIEW,
    "diopiRotaryEmbedding*": OWN,
    "diopiMultiHeadAttention*": "the forms of attention that have rows do the same",
    "diopiFlashAttentionVarLen*": "packed sequences are composed (adapter/torch/AttentionFused.cpp)",
    "diopiScaledMaskedSoftmax*": OWN,
    "diopi*Mmcv": "an operator of the library mmcv",
    "diopiCholeskyBackward": COMPOSED,
    "diopiTriangularSolveBackward": COMPOSED,
    "diopiSpMM": NOT_YET,
    "diopiCustomizedFlashAttention*": "the forms of attention that have rows do the same",
    "diopiMatmulAllReduce": "one process alone: a library has no way to the process group and answers "
    "diopiNoImplement to more of them",
    "diopi*MemoryFormat*": "the host has one memory format, whose number is 0",
    "diopiTensorDestructionHook": "the host keeps nothing about storages",
    "diopi*Attention": INFERENCE,
    "diopi*Inference": INFERENCE,
    "diopi*AttentionInp": INFERENCE,
    "diopiApplyPenalty*": INFERENCE,
    "diopiBatchApply*": INFERENCE,
    "diopiDestIndexCopyKV": INFERENCE,
    "diopiFusedSiluFfnInp": INFERENCE,
    "diopi*RootMeanSquareNormInp": INFERENCE,
    "diopiSetupTop*": INFERENCE,
    "diopiTop?Sampling": INFERENCE,
    "diopiGatherOutput": INFERENCE,
    "diopiPlusScalarInp": INFERENCE,
    "diopiUpdatePaddingCount": INFERENCE,
    "diopiTransposeAxis01": INFERENCE,
    "diopi*LookupPosEncoding": INFERENCE,
    "diopiBanBadWordsInp": INFERENCE,
    "diopi*Criterion": INFERENCE,
}
"""Why PyTorch does not call a function: names or patterns, the first that fits."""
SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    **{f"{sign}int{bits}": f"{sign[:1] or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def find_callers() -> dict[str, set[str]]:
    """The functions that the operators' code calls, and the operators whose code it is, by their files' rows."""
    rows: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "ops").glob("rows_*.inc"):
        for name, run in re.findall(r'OP\("\w+::(\w+)", "\w*", (\w+)', path.read_text(encoding="utf-8")):
            rows.setdefault(run, set()).add(name)
    callers: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "ops").glob("*.c"):
        text = path.read_text(encoding="utf-8")
        here = {
            name for run, names in rows.items() if re.search(rf"^enum dit_status {run}\(", text, re.M) for name in names
        }
        for function in set(re.findall(r"\bdiopi[A-Z]\w+", text)):
            callers.setdefault(function, set()).update(here)
    return callers


def explain(function: str, callers: dict[str, set[str]]) -> str:
    """What the page says of a function that no row names."""
    if callers.get(function):
        names = sorted(callers[function])
        return "called by " + ", ".join(f"`{name}`" for name in names[:4]) + (" ..." if len(names) > 4 else "")
    reasons = [reason for pattern, reason in NO_ROW.items() if fnmatchcase(function, pattern)]
    if not reasons:
        raise SystemExit(f"{function} has no row in src/ops/rows_*.inc, no caller and no reason in NO_ROW")
    return reasons[0]


def check_reasons(functions: list[str], behind: dict[str, list[str]], callers: dict[str, set[str]]) -> None:
    """A reason that is not needed any more is wrong."""
    bare = [name for name in functions if name not in behind and not callers.get(name)]
    stale = [pattern for pattern in NO_ROW if not any(fnmatchcase(name, pattern) for name in bare)]
    if stale:
        raise SystemExit(f"NO_ROW explains what has a row now, or does not exist: {', '.join(stale)}")


def write_page() -> str:
    """Text of the page."""
    callers = find_callers()
    functions = diopi_report.collect("host")["functions"]
    behind: dict[str, list[str]] = {}
    for operator, function in _C.operators_diopi().items():
        behind.setdefault(function, []).append(operator.removeprefix("aten::"))
    have = [row for row in functions if row["state"] == "implemented"]
    operators = _C.operators_c()
    implemented = [row["name"] for row in have if row["family"] != "library_info"]
    check_reasons(implemented, behind, callers)
    alone = [name for name in implemented if name not in behind and not callers.get(name)]
    lines = [
        HEAD,
        f"{len(have)} of {len(functions)} functions; {len(operators)} overloads of PyTorch's operators run in C, "
        f"{len(_C.operators_diopi())} of them by a row of the table below. {len(alone)} functions are not called by "
        "PyTorch's operators, for the reasons beside them.",
        "",
        f"{sum(bool(row['inference']) for row in have)} of them tell shapes and dtypes of their results before a call "
        "(`diopiExtInferOutputs`).",
        "",
        "| family | functions | here |",
        "|---|---:|---:|",
    ]
    families = list(dict.fromkeys(row["family"] for row in functions))
    for family in families:
        own = [row for row in functions if row["family"] == family]
        lines.append(f"| {family} | {len(own)} | {sum(row['state'] == 'implemented' for row in own)} |")
    for family in families:
        own = [row for row in have if row["family"] == family]
        if not own or family == "library_info":
            continue
        lines += ["", f"## {family.replace('_', ' ')}", "", "| function | dtypes | operators |", "|---|---|---|"]
        for row in own:
            dtypes = " ".join(SHORT.get(name, name) for name in row["dtypes"])
            names = ", ".join(f"`{name}`" for name in behind.get(row["name"], [])) or explain(row["name"], callers)
            lines.append(f"| `{row['name']}` | {dtypes} | {names} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    text = write_page()
    if "--check" in sys.argv:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE.name} is not current; run make docs", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
