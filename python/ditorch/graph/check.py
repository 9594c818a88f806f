"""The precision check of compiled graphs: every result against the same graph run operator by operator, by the judge;
a wrong one is traced to the step, and in a region to the operator (locate.py), and told in one finding.

DITORCH_COMPILE_CHECK=1 turns it on (and the original's names, see VARIABLES). It changes no result: what the program
goes on with is what was compiled. Depends on torch, ditorch.judge and the C trace of a run.
"""

from __future__ import annotations

import itertools
import os
import sys
import textwrap
from typing import Any

import torch

from .. import settings
from . import reference
from .locate import Finding, locate
from .repro import write_repro

VARIABLES = ("DITORCH_COMPILE_CHECK", "DICP_ASCEND_PRECISION_CHECK", "DICP_TOPS_CHECK_PRECISION")
OFF = ("", "0", "false", "off", "no")

_numbers = itertools.count()
_findings: list[Finding] = []
_said: set[str] = set()


def is_on() -> bool:
    given = [os.environ[name].lower() not in OFF for name in VARIABLES if name in os.environ]
    return any(given) if given else settings.get("compile_check")


def findings() -> list[Finding]:
    """What the check has found in this process so far."""
    return _findings


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _tell(f"ditorch compile check: {text}")


def _get_random_state() -> Any:
    return torch.get_rng_state(), torch.cuda.get_rng_state()


def _set_random_state(state: Any) -> None:
    torch.set_rng_state(state[0])
    torch.cuda.set_rng_state(state[1])


class Eager(torch.fx.Interpreter):
    """The graph on the device, operator by operator; `drawn` keeps what random operators gave."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.drawn: dict[str, Any] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        value = super().run_node(node)
        if node.op == "call_function" and reference.draws(node):
            self.drawn[node.name] = value
        return value


class Checked:
    """A compiled graph that is compared with eager mode at every call."""

    def __init__(self, module: torch.fx.GraphModule, made: Any) -> None:
        self._boxed_call = True
        self.module, self.made = module, made
        self.number = next(_numbers)
        self.is_told = False
        _say_once("on; every graph runs once more operator by operator")

    def __call__(self, args: list[Any]) -> Any:
        given = list(args)
        before = [reference.copy_input(value) for value in given]
        state = _get_random_state()
        results = self.made(args)
        if not self.is_told:
            after = _get_random_state()
            _set_random_state(state)
            try:
                with torch.no_grad():
                    self._compare(before, given, results, state)
            except Exception as error:  # the check must not end the program
                _say_once(f"graph {self.number} cannot be checked: {type(error).__name__}: {str(error)[:300]}")
            finally:
                _set_random_state(after)
        return results

    def _compare(self, before: list[Any], given: list[Any], results: Any, state: Any) -> None:
        eager = Eager(self.module)
        changed = [reference.copy_input(value) for value in before]
        wanted = eager.run(*changed)
        mine = [value for value in [*results, *given] if isinstance(value, torch.Tensor)]
        other = [value for value in [*wanted, *changed] if isinstance(value, torch.Tensor)]
        if all(_is_same(a, b) for a, b in zip(mine, other, strict=True)):
            return
        verdicts = reference.judge_graph(self.module, before, mine, eager.drawn)
        wrong = [place for place, found in enumerate(verdicts) if found.is_wrong]
        for place, found in enumerate(verdicts):
            if found.verdict == "unknown" and _is_far(mine[place], other[place]):
                _say_once(f"graph {self.number}: result {place} cannot be judged: {found.reason}")
        if not wrong:
            return
        self.is_told = True
        count = len([value for value in results if isinstance(value, torch.Tensor)])
        _set_random_state(state)
        finding = locate(self.module, self.made, before, eager.drawn)
        finding.graph, finding.result, finding.results = self.number, wrong[0], count
        finding.judgement = verdicts[wrong[0]]
        finding.folder = write_repro(finding, self.module, before, get_folder())
        _findings.append(finding)
        _tell(format_finding(finding))


def get_folder() -> str:
    return os.environ.get("DITORCH_COMPILE_CHECK_DIR") or settings.get("compile_check_dir")


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    same = a == b
    return bool((same | (a != a) & (b != b)).all()) if a.numel() else True


def _is_far(a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(a, b, equal_nan=True)
    except AssertionError:
        return True
    return False


def format_finding(finding: Finding) -> str:
    """The block that is printed."""
    what = f"result {finding.result} of {finding.results}"
    if finding.result >= finding.results:
        what = f"an argument that it changes (number {finding.result - finding.results})"
    judged = finding.judgement
    rows = [
        ("wrong", what if judged is None else f"{what}: {judged.reason}; {judged.wrong} of {judged.numel} elements")
    ]
    if finding.step >= 0:
        which = ", ".join(map(str, finding.spans or [finding.step]))
        rows.append(("step", f"{which} of {finding.steps}: {finding.kind} of {', '.join(finding.nodes)}"))
    if finding.node:
        rows.append(("node", f"{finding.node} = {finding.operator}"))
    if finding.place:
        rows.append(("place", finding.place))
    rows.append(("why", finding.why))
    if finding.folder:
        rows += [("saved", finding.folder), ("next", f"python {os.path.join(finding.folder, 'repro.py')}")]
    lines = [f"ditorch compile check: graph {finding.graph} computes something else than eager mode"]
    for name, text in rows:
        lines += textwrap.wrap(f"  {name:<6} {text}", 100, subsequent_indent=" " * 9, break_on_hyphens=False)
    return "\n".join(lines)
