"""A finding of the precision check as a folder: repro.py, which needs torch and ditorch alone, and data.pt, which
torch.load(weights_only=True) reads. For a wrong step its operators with what they were given; else the whole graph."""

from __future__ import annotations

import os
from typing import Any

import torch

SCRIPT = '''"""{title}"""

import os
import sys

import ditorch
import torch
from torch import device, inf, nan


{code}

def main():
    here = os.path.dirname(os.path.abspath(__file__))
    inputs = torch.load(os.path.join(here, "data.pt"), weights_only=True)["inputs"]
    place = lambda: [x.to("cuda", copy=True) if isinstance(x, torch.Tensor) else x for x in inputs]
    wanted = forward(None, *place())
    got = torch.compile(lambda *args: forward(None, *args), backend="dit", dynamic=False)(*place())
    wrong = 0
    for number, (a, b) in enumerate(zip(got, wanted)):
        if not isinstance(a, torch.Tensor):
            continue
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
            print(f"result {{number}}: equal")
        except AssertionError as error:
            wrong += 1
            print(f"result {{number}}: {{error}}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
'''


def write_repro(finding: Any, module: torch.fx.GraphModule, inputs: list[Any], folder: str) -> str:
    """The folder; empty when it cannot be written (the reason is part of the finding)."""
    graph, values = module.graph, inputs
    if finding.cause == "value":
        graph, values = finding.part.graph, finding.inputs
    constants = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    if constants:
        finding.why += "; no repro: the graph has constants of its own"
        return ""
    title = f"Graph {finding.graph}: {finding.node or 'its result'} differs from eager mode ({finding.cause})."
    code = graph.python_code("self").src
    data = [x.detach().cpu().contiguous() if isinstance(x, torch.Tensor) else int(x) for x in values]
    path = os.path.join(folder, f"graph-{os.getpid()}-{finding.graph}")
    try:
        os.makedirs(path, exist_ok=True)
        torch.save({"inputs": data}, os.path.join(path, "data.pt"))
        with open(os.path.join(path, "repro.py"), "w", encoding="utf-8") as file:
            file.write(SCRIPT.format(title=title, code=code))
    except OSError as error:
        finding.why += f"; not saved: {error}"
        return ""
    return path
