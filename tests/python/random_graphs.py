"""Random programs of tensors, compiled against eager: made from a seed, run at one or two sets of sizes, shrunk when
they differ.

A program is a list of statements of Python. Every statement runs while the program is made and is dropped when it
raises, so what is left is right. A value is *exact* when each of its operators rounds as IEEE 754 says; exact values
must be equal to the bit (NaN is NaN), and only they are compared, rounded to integers or used as indices. How far the
others may be apart is measured: the program runs again with its inexact operators' arguments moved by a few roundings.

    python tests/python/random_graphs.py --count 3000 --seed 7        many programs, in one process
    python tests/python/random_graphs.py --seed 12345 --count 1       one of them again
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import sys
from typing import Any

import torch

FLOATS = ["float32", "float32", "float32", "float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int64", "int32", "int16", "int8", "uint8", "bool"]
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 0.5, 3.0, 1e15, -1e-15]
EXACT_UNARY = [
    "-{a}", "{a}.abs()", "{a}.neg()", "{a}.sqrt()", "{a}.floor()", "{a}.ceil()", "{a}.trunc()", "{a}.round()",
    "{a}.relu()", "{a}.sign()", "{a}.clone()", "{a}.isnan()", "{a}.logical_not()", "{a}.clamp(-1, 2)",
    "{a}.clamp_min(0)", "{a}.clamp_max(1.5)", "{a}.square()", "{a} * 2", "{a} + 1", "1 - {a}", "{a} / 3", "{a} * 0.1",
    "{a} - 0.3", "2 / {a}", "torch.nn.functional.leaky_relu({a}, 0.1)", "torch.nn.functional.hardtanh({a})",
    "{a} > 0", "{a} == {a}", "{a} <= 1", "torch.zeros_like({a})", "torch.ones_like({a})", "torch.full_like({a}, 2)",
    "{a}.isfinite()", "{a}.reciprocal()", "{a}.nan_to_num(0.5)", "{a}.isinf()", "{a}.signbit()", "{a}.tril()",
    "{a}.triu(1)", "{a}.bitwise_not()", "~{a}", "torch.nn.functional.threshold({a}, 0.2, -1.0)", "{a}.contiguous()",
    "{a} // 2", "{a} % 3", "{a}.pow(2)", "{a}.fmod(2)",
]  # fmt: skip
INEXACT_UNARY = [
    "{a}.exp()", "{a}.log()", "{a}.log2()", "{a}.log10()", "{a}.log1p()", "{a}.expm1()", "{a}.sin()", "{a}.cos()",
    "{a}.tanh()", "{a}.erf()", "{a}.sigmoid()", "{a}.rsqrt()", "torch.nn.functional.silu({a})", "{a}.atan()",
    "{a}.pow(3)", "torch.nn.functional.gelu({a})", "torch.nn.functional.gelu({a}, approximate='tanh')",
    "{a}.pow(0.5)", "{a}.pow(-1)", "torch.nn.functional.softplus({a})", "torch.nn.functional.elu({a})",
    "{a}.abs().pow(1.7)", "{a}.abs().pow(-0.5)", "torch.nn.functional.hardswish({a})",
    "torch.nn.functional.mish({a})", "torch.nn.functional.logsigmoid({a})",
]  # fmt: skip
EXACT_BINARY = [
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})",
    "{a} < {b}", "{a} >= {b}", "{a} != {b}", "{a} == {b}", "torch.where({a} > 0, {a}, {b})",
    "torch.where({b}.bool(), {a}, 0)", "{a}.masked_fill({b} > 0, -2)", "{a}.logical_and({b})", "{a}.logical_xor({b})",
    "{a} & {b}", "{a} | {b}", "{a} ^ {b}", "torch.rsub({a}, {b})", "{a}.clamp(min={b})", "{a}.clamp(max={b})",
    "torch.fmax({a}, {b})", "torch.copysign({a}, {b})",
]  # fmt: skip
INEXACT_BINARY = [
    "torch.pow({a}.abs(), {b})", "torch.add({a}, {b}, alpha=0.3)", "torch.sub({a}, {b}, alpha=2)",
    "torch.lerp({a}, {b}, 0.3)", "torch.addcmul({a}, {b}, {c}, value=0.5)", "torch.addcdiv({a}, {b}, {c}, value=2)",
    "torch.atan2({a}, {b})", "torch.lerp({a}, {b}, {c})", "{a} @ {b}", "{a} @ {b}.transpose(-1, -2)",
    "torch.hypot({a}, {b})", "torch.addcmul({a}, {b}, {c})",
]  # fmt: skip
EXACT_REDUCE = [
    "{a}.amax({d})", "{a}.amin({d})", "{a}.any({d})", "{a}.all({d})", "{a}.argmax({d})", "{a}.amax({d}, True)",
    "{a}.max({d}).values", "{a}.max()", "{a}.cummax({d}).values", "{a}.sort({d}).values",
]  # fmt: skip
INEXACT_REDUCE = [
    "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.mean({d})", "{a}.mean({d}, keepdim=True)", "{a}.sum()",
    "{a}.mean()", "{a}.softmax({d})", "{a}.log_softmax({d})", "{a}.var({d})", "{a}.std({d}, keepdim=True)",
    "{a}.logsumexp({d})", "{a}.cumsum({d})", "{a}.norm(dim={d})", "{a}.prod({d})",
    "torch.nn.functional.layer_norm({a}, {a}.shape[-1:])", "{a}.sum({d}, dtype=torch.float64)",
    "{a}.softmax({d}, dtype=torch.float32)", "{a}.sum((0, -1))", "{a}.mean((0, 1), True)",
    "torch.nn.functional.rms_norm({a}, {a}.shape[-1:])",
]  # fmt: skip
VIEWS = [
    "{a}.transpose({d}, {e})", "{a}.unsqueeze({d})", "{a}.squeeze()", "{a}[{i}]", "{a}[:, {i}]", "{a}[..., {i}:]",
    "{a}[{i}:]", "{a}[..., ::2]", "{a}.flatten()", "{a}.flatten({d})", "{a}.reshape(-1)", "{a}.mT", "{a}.flip({d})",
    "{a}.select({d}, {i})", "{a}.unsqueeze({d}).expand(*{a}.shape[:{d}], 3, *{a}.shape[{d}:])", "{a}.diagonal()",
    "{a}.chunk(2, {d})[0]", "{a}.T", "{a}.chunk(2, {d})[-1]", "{a}.narrow({d}, {i}, 2)", "{a}.movedim(0, -1)",
    "{a}.unfold({d}, 2, 1)", "{a}.expand_as({b})", "{a}.view_as({b})", "{a}.reshape({b}.shape)", "{a}.view(-1, 2)",
    "{a}.roll(1, {d})", "{a}.repeat(2, 1)",
]  # fmt: skip
EXACT_OTHER = [
    "torch.cat([{a}, {b}], {d})", "torch.stack([{a}, {b}], {d})", "{a}.to(torch.{t})", "{a}.to(torch.{t})",
    "{a}.to(torch.{t})", "torch.arange({a}.shape[-1], device={a}.device)", "{a}.new_zeros({b}.shape)",
    "torch.nn.functional.pad({a}, (1, 2))", "{a}.index_select({d}, torch.arange(2, device={a}.device))",
    "torch.gather({a}, {d}, torch.zeros_like({b}, dtype=torch.int64))", "{a}[{a} > 0].sum() * 0 + 1",
    "{a}.shape[-1] + {b}", "{a} * {b}.shape[0]", "torch.broadcast_tensors({a}, {b})[0]",
]  # fmt: skip
INPLACE = [
    "{a}.add_({b})", "{a}.mul_({b})", "{a}.copy_({b})", "{a}.sub_(1)", "{a}.clamp_(-1, 1)", "{a}.zero_()",
    "{a}.fill_(3)", "{a}.relu_()", "{a}[{i}] = 2", "{a}[:, {i}] += 1", "{a}.masked_fill_({a} > 0, 5)", "{a}.neg_()",
    "{a}[..., ::2].mul_(3)", "{a}.transpose({d}, {e}).add_(1)", "{a}.sqrt_()", "{a}.flatten().add_(1)", "{a}.div_(3)",
    "{a}[{i}:].copy_({b})",
]  # fmt: skip
ROUNDING = {"floor", "ceil", "trunc", "round", "sign"}
DISCONTINUOUS = re.compile(
    r"floor|ceil|trunc|round|sign|isnan|logical|>|<|==|!=|isfinite|isinf|masked|//|%|fmod|bool|~|not\(|torch\.(u?int|bool)"
    r"|argmax|any|all\(|threshold|clamp|where|nan_to_num|sort|cummax|max|min|&|\||\^|copysign"
)


@dataclasses.dataclass
class Program:
    """`inputs`: name to (list of sizes per run, dtype, layout); statements in order; what it returns."""

    seed: int
    inputs: dict[str, tuple[list[tuple[int, ...]], str, str]]
    statements: list[str]
    inexact: set[str]
    dynamic: bool

    def get_source(self) -> str:
        body = "".join(f"    {line}\n" for line in self.statements)
        written = [line.split(" = ")[0] for line in self.statements if re.match(r"v\d+ = ", line)]
        return f"def program({', '.join(self.inputs)}):\n{body}    return ({', '.join(written)},)\n"

    def print(self) -> str:
        lines = [f"# seed {self.seed}, dynamic={self.dynamic}"]
        lines += [f"# {name}: sizes {sizes}, {dtype}, {layout}" for name, (sizes, dtype, layout) in self.inputs.items()]
        return "\n".join([*lines, self.get_source()])


def make_input(rng: random.Random, sizes: tuple[int, ...], dtype: str, layout: str) -> torch.Tensor:
    """On the CPU; layouts are those that programs meet."""
    count = 1
    for size in sizes:
        count *= size
    kind = getattr(torch, dtype)
    if kind.is_floating_point:
        numbers = [rng.choice(SPECIAL) if rng.random() < 0.06 else rng.gauss(0, 1.5) for _ in range(count)]
    elif kind is torch.bool:
        numbers = [rng.random() < 0.5 for _ in range(count)]
    else:
        numbers = [rng.randrange(0 if dtype == "uint8" else -9, 10) for _ in range(count)]
    return torch.tensor(numbers, dtype=kind).reshape(sizes)


def lay(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers in another layout."""
    if layout == "transposed" and tensor.ndim > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and tensor.ndim:
        wide = torch.zeros((*tensor.shape[:-1], tensor.shape[-1] * 2), dtype=tensor.dtype, device=tensor.device)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "offset":
        return torch.cat([torch.zeros(3, dtype=tensor.dtype, device=tensor.device), tensor.flatten()])[3:].view(
            tensor.shape
        )
    return tensor.clone()


def move(value: torch.Tensor, seed: int) -> torch.Tensor:
    """By a few roundings."""
    if not value.is_floating_point():
        return value
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return value * (1 + 4 * torch.finfo(value.dtype).eps * noise).to(value.dtype).to(value.device)


class Maker:
    """Makes a program; `spaces` has its values for each set of sizes."""

    def __init__(self, seed: int, length: int = 14) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed, {}, [], set(), self.rng.random() < 0.3)
        self.spaces: list[dict[str, Any]] = []
        self.length = length
        self.inexact: set[str] = set()  # names that hold an inexact value at this point
        self.owner: dict[str, str] = {}  # whose memory a name shows

    def make(self) -> Program:
        rng = self.rng
        runs = 2 if self.program.dynamic else 1
        base = [rng.choice([2, 3, 4, 5, 8, 17]) for _ in range(3)]
        other = [rng.choice([4, 6, 7, 9, 16]) for _ in range(3)]
        self.spaces = [{"torch": torch} for _ in range(runs)]
        for k in range(rng.randint(1, 3)):
            dims = [rng.choice([0, 1, 2, -1]) for _ in range(rng.choice([0, 1, 2, 2, 2, 3, 3]))]
            sizes = [tuple(1 if d < 0 else chosen[d] for d in dims) for chosen in (base, other)[:runs]]
            dtype = rng.choice(FLOATS if rng.random() < 0.8 else INTEGERS)
            layout = rng.choice(["plain", "plain", "transposed", "strided", "offset"])
            name = f"x{k}"
            self.program.inputs[name] = (sizes, dtype, layout)
            for space, values in zip(self.spaces, make_values(self.program, name), strict=True):
                space[name] = lay(values, layout)
            self.owner[name] = name
        for _ in range(self.length * 4):
            if len(self.program.statements) >= self.length:
                break
            self.add()
        self.program.inexact = {line for line in self.program.inexact if line in self.program.statements}
        return self.program

    def add(self) -> None:
        rng = self.rng
        names = [name for name, value in self.spaces[0].items() if isinstance(value, torch.Tensor)]
        groups = [
            (EXACT_UNARY, 0, 3), (INEXACT_UNARY, 1, 2), (EXACT_BINARY, 0, 4), (INEXACT_BINARY, 1, 1),
            (EXACT_REDUCE, 0, 1), (INEXACT_REDUCE, 1, 2), (VIEWS, 0, 3), (EXACT_OTHER, 0, 2), (INPLACE, 0, 1.5),
        ]  # fmt: skip
        group, inexact, _ = rng.choices(groups, [weight for _, _, weight in groups])[0]
        a, b, c = (rng.choice(names[-5:] if rng.random() < 0.6 else names) for _ in range(3))
        ndim = self.spaces[0][a].ndim
        template = rng.choice(group)
        text = template.format(
            a=a, b=b, c=c, d=rng.randrange(-1, max(ndim, 1)), e=rng.randrange(max(ndim, 1)), i=rng.randrange(2),
            t=rng.choice([*FLOATS, *INTEGERS])
        )  # fmt: skip
        used = {name for name in (a, b, c) if re.search(rf"\b{name}\b", text)}
        moved = any(self.owner[name] in self.inexact for name in used)
        if moved and DISCONTINUOUS.search(text):
            return
        target = a if group is INPLACE else f"v{len(self.program.statements)}"
        line = text if group is INPLACE else f"{target} = {text}"
        self.try_statement(line, target, a, group, bool(inexact or moved), inexact)

    def try_statement(self, line: str, target: str, a: str, group: list[str], moved: bool, inexact: int) -> None:
        trial = [copy_space(space) for space in self.spaces]
        for space in trial:
            try:
                exec(line, space)
            except Exception:
                return
            made = space[target]
            if not isinstance(made, torch.Tensor) or made.numel() > 4096 or made.ndim > 5 or made.is_complex():
                return
            if not is_defined(line, made, space[a]):
                return
            space.pop("__builtins__", None)
        self.spaces = trial
        self.program.statements.append(line)
        if inexact:
            self.program.inexact.add(line)
        shared = trial[0][a].untyped_storage().data_ptr() == trial[0][target].untyped_storage().data_ptr()
        self.owner[target] = self.owner[a] if shared or group is VIEWS else target
        if moved:
            self.inexact.add(self.owner[target])


def is_defined(line: str, made: torch.Tensor, a: torch.Tensor) -> bool:
    """Has C, and PyTorch, one answer? A number that the integers do not have has none; uint8 has no -1."""
    narrows = a.is_floating_point() and not made.is_floating_point() and re.search(r"\.to\(|copy_", line)
    if narrows and not bool((a.isfinite() & (a.abs() < 100)).all()):
        return False
    return not (a.dtype is torch.uint8 and "-" in line)


def copy_space(space: dict[str, Any]) -> dict[str, Any]:
    """Its tensors anew, sharing memory as they did."""
    storages: dict[int, Any] = {}
    made: dict[str, Any] = {}
    for name, value in space.items():
        if not isinstance(value, torch.Tensor):
            made[name] = value
            continue
        key = value.untyped_storage().data_ptr() if value.numel() else id(value)
        if key not in storages:
            storages[key] = value.untyped_storage().clone()
        fresh = torch.empty(0, dtype=value.dtype, device=value.device)
        made[name] = fresh.set_(storages[key], value.storage_offset(), value.shape, value.stride())
    return made


def make_values(program: Program, name: str) -> list[torch.Tensor]:
    sizes, dtype, layout = program.inputs[name]
    return [
        make_input(random.Random(f"{program.seed} {name} {k}"), size, dtype, layout) for k, size in enumerate(sizes)
    ]


def make_arguments(program: Program, run: int) -> dict[str, torch.Tensor]:
    return {
        name: lay(make_values(program, name)[run].to("cuda"), layout) for name, (_, _, layout) in program.inputs.items()
    }


def run_moved(program: Program, run: int, seed: int) -> list[torch.Tensor]:
    """Results with the inexact statements' arguments and results moved by a few roundings."""
    space: dict[str, Any] = {"torch": torch, **make_arguments(program, run)}
    results = []
    for number, line in enumerate(program.statements):
        inplace = not re.match(r"v\d+ = ", line)
        target = re.match(r"(v\d+) = ", line).group(1) if not inplace else ""
        if line in program.inexact:
            near = {k: move(v, seed + number) if isinstance(v, torch.Tensor) else v for k, v in space.items()}
            exec(line, near)
            space[target] = move(near[target], seed - number)
        else:
            exec(line, space)
        if not inplace:
            results.append(target)
    return [space[name] for name in [*results, *program.inputs]]


def find_difference(program: Program, backend: str = "dit") -> str:
    """What differs, in one line; empty: nothing. Raises what only the compiled program raises."""
    space: dict[str, Any] = {"torch": torch}
    exec(program.get_source(), space)
    function = space["program"]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=program.dynamic)
    runs = len(next(iter(program.inputs.values()))[0])
    for run in range(runs):
        mine, wanted = make_arguments(program, run), make_arguments(program, run)
        want = [*function(**wanted), *wanted.values()]
        try:
            got = [*compiled(**mine), *mine.values()]
        except Exception as error:
            return f"run {run}: raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        names = [line.split(" = ")[0] for line in program.statements if re.match(r"v\d+ = ", line)]
        names += list(program.inputs)
        moved: list[list[torch.Tensor]] = []
        for place, (name, a, b) in enumerate(zip(names, got, want, strict=True)):
            text = compare(a, b)
            if not text:
                continue
            if not moved:
                moved = [run_moved(program, run, seed) for seed in (1000, 2000, 3000)]
            text = compare(a, b, [values[place] for values in moved])
            if text:
                return f"run {run}: {name}: {text}"
    return ""


def compare(a: torch.Tensor, b: torch.Tensor, moved: list[torch.Tensor] = ()) -> str:
    """`moved`: the wanted value a few roundings away, which says how far the other may be."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {tuple(a.shape)}, eager {b.dtype} {tuple(b.shape)}"
    strides = [(x, y) for x, y, n in zip(a.stride(), b.stride(), b.shape, strict=True) if n > 1 and b.numel()]
    if any(x != y for x, y in strides):
        return f"strides {a.stride()}, eager {b.stride()}"
    x, y = a.detach().cpu().double(), b.detach().cpu().double()
    bad = ~((x == y) & (x.signbit() == y.signbit()) | x.isnan() & y.isnan())
    for value in moved:
        near = value.detach().cpu().double()
        bad &= near.isfinite() == y.isfinite()  # whether it is a number at all hangs on a rounding
    if moved and bad.any():
        finite = y.isfinite()
        width = torch.zeros_like(y)
        for value in moved:
            width = torch.maximum(width, (value.detach().cpu().double() - y).abs().nan_to_num(0, 0, 0))
        scale = width[finite].max() if finite.any() else torch.zeros(())
        within = (x - y).abs() <= 8 * torch.maximum(width, (y.abs() * 0 + scale) if width.any() else width)
        bad &= ~(within & finite & width.any())
    if not bad.any():
        return ""
    at = tuple(int(i) for i in bad.nonzero()[0])
    return f"{int(bad.sum())} of {bad.numel()} differ, at {at} {x[at].item()!r} instead of {y[at].item()!r}"


def is_failing(program: Program, backend: str) -> bool:
    try:
        return bool(find_difference(program, backend)) and not find_difference(program, "aot_eager")
    except Exception:  # the shorter program is none
        return False


def shrink(program: Program, backend: str = "dit") -> Program:
    """Without the statements and inputs that the difference does not need."""
    best = program
    at = len(best.statements) - 1
    while at >= 0:
        statements = best.statements[:at] + best.statements[at + 1 :]
        trial = dataclasses.replace(best, statements=statements)
        if statements and is_failing(trial, backend):
            best = trial
        at = min(at, len(best.statements)) - 1
    for name in list(best.inputs):
        if len(best.inputs) > 1 and not re.search(rf"\b{name}\b", "".join(best.statements)):
            trial = dataclasses.replace(best, inputs={k: v for k, v in best.inputs.items() if k != name})
            best = trial if is_failing(trial, backend) else best
    for name in best.inputs:
        sizes, dtype, _ = best.inputs[name]
        trial = dataclasses.replace(best, inputs={**best.inputs, name: (sizes, dtype, "plain")})
        best = trial if is_failing(trial, backend) else best
    return best


def check(seed: int, backend: str = "dit") -> str:
    """The report of one seed; empty: equal."""
    program = Maker(seed).make()
    text = find_difference(program, backend) if program.statements else ""
    if not text or (backend != "aot_eager" and find_difference(program, "aot_eager")):
        return ""  # what PyTorch's own tracing changes is not the engine's
    small = shrink(program, backend)
    return f"{find_difference(small, backend)}\n{small.print()}"


def main(words: list[str]) -> int:
    import logging
    import warnings

    import ditorch  # noqa: F401

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="dit")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        text = check(seed, options.backend)
        if text:
            wrong += 1
            print(f"--- seed {seed}: {text}", flush=True)
    print(f"{options.count} programs from seed {options.seed}: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
