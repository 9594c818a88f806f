"""Is a result right? The rule of docs/verdict.md once more, for the exported repro, which needs torch alone.

The judge itself is C (include/dit/verdict.h, src/judge); this is the same rule, step by step, for the engineer who has
the device and not this package. The text is copied into every repro behind its mark, so it runs on Python 3.8 and torch
2.1 and imports nothing of ours. Its numbers (`case.rule`: _C.judge_constants()) and what is known about the operator
(`case.row`: _C.operator_find()) are written into the repro by export.py. tests/python/test_verdict_corpus.py holds it
to the judge.
"""

from __future__ import annotations

import math
import types

import torch

from .moves import Run, get_roundoff, is_number, mix, widen

# begin
# The verdict
#
# u is the unit roundoff of the result's dtype, r the CPU's result in float64. The CPU's own error, in the dtypes of the
# call, is described by two numbers: |cpu - r| <= alpha * u * |r| + residual. An element is right within
#     4 * min(alpha * u * |r| + residual, max(largest error of the CPU, u * |r|)) + the smallest numbers of the dtype
# and where the CPU provably rounds nothing the device must not either. "Wrong" is said after further runs alone: at
# inputs nearby (the CPU may be exact by luck), and in float64 with every input off by a rounding (sums in another
# order).


def get_same(x, r):
    """Equal elements; two NaN are equal, and so are two complex infinities."""
    if not is_number(x.dtype) and not is_number(r.dtype):
        return x == r
    x, r = to_wide(x, r)
    same = (x == r) | (torch.isnan(x) & torch.isnan(r))
    if x.is_complex():
        same = same | (torch.isinf(x) & torch.isinf(r) & ~torch.isnan(x) & ~torch.isnan(r))
    return same


def to_wide(x, r):
    kind = torch.complex128 if x.is_complex() or r.is_complex() else torch.float64
    return x.to(kind), r.to(kind)


def compare(x, r, relative=0.0, absolute=0.0, cap=0.0, cap_relative=0.0, floor=0.0, limit=math.inf):
    """x against r, where min(relative * |r| + absolute, max(cap, cap_relative * |r|)) + floor is allowed, and an
    infinity where that leaves the range of the dtype."""
    same = get_same(x, r)
    x, r = to_wide(x, r)
    size, error = r.abs(), (x - r).abs()
    allowed = torch.minimum(relative * size + absolute, (cap_relative * size).clamp(min=cap)) + floor
    finite = torch.isfinite(x) & torch.isfinite(r)
    over = torch.isfinite(r) & ~torch.isfinite(x) & (size + allowed >= limit)
    if not x.is_complex():
        over = over & torch.isinf(x) & ((x > 0) == (r > 0))
    odd = ~finite & ~same & ~over
    wrong = odd | (finite & ~same & ~(error <= allowed))
    margin = torch.where(finite & ~same, error / allowed, torch.zeros_like(error))
    margin = torch.where(odd, torch.full_like(error, math.inf), margin).reshape(-1)
    place = int((odd.reshape(-1).to(torch.uint8) if odd.any() else margin).argmax()) if error.numel() else -1
    place = place if place >= 0 and margin[place] != 0 else -1

    def at(values):
        return values.reshape(-1)[place].item() if place >= 0 else 0.0

    return types.SimpleNamespace(
        wrong=int(wrong.sum()), nonfinite=int(odd.sum()), unequal=int((~same).sum()), index=place, allowed=at(allowed),
        error=math.inf if odd.any() else at(error), value=at(x), reference=at(r),
    )  # fmt: skip


def measure(x, r, relative=0.0, floor=0.0):
    """The error of x: its largest one, also relative to |r|, and what is left beyond relative * |r| + floor."""
    same = get_same(x, r)
    x, r = to_wide(x, r)
    finite = torch.isfinite(x) & torch.isfinite(r)
    size, error = r.abs()[finite], (x - r).abs()[finite]
    ratio = torch.where(error > floor, error / size, torch.zeros_like(error))

    def most(values):
        return max(values.max().item(), 0.0) if values.numel() else 0.0

    return types.SimpleNamespace(
        finite=int(finite.sum()), unequal=int((~same).sum()), largest=most(error), ratio=most(ratio),
        residual=most(error - relative * size - floor),
    )  # fmt: skip


def count_odd(x):
    """Elements with the last bit of the significand set: a rounding would hardly have left them exact."""
    x = torch.view_as_real(x.contiguous()) if x.is_complex() else x.contiguous()
    kinds = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return int((x.view(kinds[x.element_size()]) & 1).sum()) if x.element_size() in kinds else None


# Floating results


class Judge:
    """One floating value. `run(Run)` gives the CPU's value of a further run, or a text that says why there is none."""

    def __init__(self, case, got, run):
        self.case, self.got, self.ask = case, got, run
        facts = torch.finfo(got.dtype)
        self.u, self.limit = facts.eps / 2, facts.max
        # Numbers below the smallest normal one may be flushed to zero; narrow types have their subnormals everywhere.
        self.floor = facts.tiny if facts.tiny < 1e-30 else facts.tiny * facts.eps
        self.is_narrow = self.u >= 2.0**-20
        self.most = 1 if self.is_narrow else 4  # alpha at most: functions of vendors are good to 16 roundings
        self.alpha, self.residual, self.largest, self.cpu_error = 1.0, 0.0, 0.0, math.nan
        self.exact = self.blind = False
        self.moves = None
        self.between = getattr(case, "between", 0.0)  # roundoff of the dtype of autocast, 0 without

    def has(self, *traits):
        return any(trait in self.case.row.get("traits", ()) for trait in traits)

    def run(self, kind, **facts):
        value = self.ask(Run(kind, **facts))
        if isinstance(value, torch.Tensor) and value.shape == self.got.shape:
            return value
        return "the run has another shape" if isinstance(value, torch.Tensor) else value or "no such run"

    def run_nearby(self, number, narrow=False):
        """At inputs a few roundings away: in the call's dtypes and in float64; (None, None) when it cannot be."""
        facts = {"size": self.case.rule["jitter"], "narrow": narrow, "seed": mix(self.case.seed, 0x1000 + number)}
        pair = [self.run(kind, **facts) for kind in ("jitter", "jitter_wide")]
        return pair if not any(isinstance(value, str) for value in pair) else (None, None)

    def open(self):
        """Why there is no reference; nothing when there is one."""
        self.wide = self.run("wide")
        if isinstance(self.wide, str):
            return self.wide
        if not is_number(self.wide.dtype):
            return "the float64 reference is no floating tensor"
        native = self.run("native")
        self.native = None if isinstance(native, str) else native
        own = get_roundoff(self.wide.dtype)
        self.reference_u = own if own > 2.0**-53 or self.u <= 2.0**-53 else 0.0
        return ""

    # The rule

    def get_rule(self):
        factor = self.case.rule["factor"]
        alpha, own = self.most if self.thin else self.alpha, self.reference_u
        return {
            "relative": 0.0 if self.exact else factor * alpha * self.u + own,
            "absolute": factor * self.residual,
            "cap": math.inf if self.thin else factor * self.largest,
            "cap_relative": 0.0 if self.exact else factor * self.u + own,
            "floor": self.floor,
            "limit": self.limit,
        }

    def apply(self):
        self.result = compare(self.got, self.wide, **self.get_rule())

    def is_suspicious(self):
        return self.result.wrong > 0 and self.result.nonfinite == 0

    # The CPU's own error

    def measure(self):
        error = None
        self.blind = self.reference_u >= self.u  # nothing is better than the result itself
        if self.native is not None:
            error = measure(self.native, self.wide, self.most * self.u, self.floor)
            by_table = self.has("exact", "view") and self.case.what != "grad" and not self.case.inexact
            self.exact = error.unequal == 0 and by_table
            self.blind = self.blind and not self.exact
            self.residual = error.residual  # float64 of narrower arguments: what is rounded before it is computed
        if error and not self.blind:
            self.cpu_error = error.largest
            self.learn(error)
            if error.unequal == 0 and not self.exact and self.reference_u == 0:
                self.prove_exactness()
        # Without the CPU's error each element is judged by what moves it; under autocast all by the largest move.
        known = error.finite if error else self.got.numel() if self.between else 0
        self.thin = not self.exact and (self.blind or known < self.case.rule["thin"])

    def learn(self, error):
        self.largest = max(self.largest, error.largest)
        self.alpha = min(self.most, max(self.alpha, error.ratio / self.u))
        self.residual = max(self.residual, error.residual)

    def prove_exactness(self):
        """The CPU rounded nothing. With enough full significands, here and nearby, that is no accident."""
        total = count_odd(self.native)
        for number in range(self.case.rule["rounds"]):
            if total is None or total >= self.case.rule["odd"]:
                break
            native, wide = self.run_nearby(number)
            if native is None or measure(native, wide).unequal:
                return
            total += count_odd(native)
        self.exact = total is not None and total >= self.case.rule["odd"]

    def ask_other(self):
        if self.case.careful and self.has("scan"):
            return  # such a device adds up as the CPU does
        other = self.run("other")
        if not isinstance(other, str):
            self.learn(measure(other, self.wide, self.most * self.u, self.floor))
            self.apply()

    def jitter(self, narrow, scale):
        relative = 4 * 2.0**-24 if narrow else self.most * self.u
        rounds = self.case.rule["rounds"]
        if narrow and self.got.numel() >= self.case.rule["thin"]:
            rounds = 1
        for number in range(rounds if self.native is not None else 0):
            native, wide = self.run_nearby(number, narrow)
            if native is None:
                break
            self.residual = max(self.residual, scale * measure(native, wide, relative, self.floor).residual)
        self.apply()

    def excuse(self):
        """NaN and infinities that the CPU makes in the call's dtypes, too, are right."""
        parts = [value.to(widen(self.got.dtype)) for value in (self.got, self.native, self.wide)]
        mine, native, wide = (torch.view_as_real(part) if part.is_complex() else part for part in parts)
        wide = torch.where(get_same(mine, native) & ~torch.isfinite(native), mine, wide)
        self.wide = torch.view_as_complex(wide) if self.got.is_complex() else wide
        self.apply()

    def get_reach(self, wide):
        """Is an argument or the reference not finite, and how large may a partial sum of the call get?"""
        inputs = [tensor for tensor in self.case.inputs if is_number(tensor.dtype) and tensor.numel()]
        sizes = [tensor.to(widen(tensor.dtype)).abs() for tensor in [*inputs, wide] if tensor.numel()]
        most = [float(size[torch.isfinite(size)].max()) if torch.isfinite(size).any() else 0.0 for size in sizes]
        terms = max([1, *(tensor.numel() for tensor in inputs)])
        first, second = ([*sorted(most[: len(inputs)], reverse=True), 0.0, 0.0])[:2]
        reach = max(first * second * terms, (most[-1] if wide.numel() else 0.0) * terms)
        return any(not bool(torch.isfinite(size).all()) for size in sizes), reach

    def excuse_sums(self):
        """Devices keep sums in float32 in an order of their own: a partial sum beyond its range is an infinity.
        Convolutions of other devices than the embedded one may spread a NaN, or leave it out where it only meets
        padding."""
        if self.blind or self.has("pointwise") or not self.has("contraction", "mixes"):
            return
        parts = [value.to(widen(self.got.dtype)) for value in (self.got, self.wide)]
        mine, wide = (torch.view_as_real(part) if part.is_complex() else part for part in parts)
        has_bad, reach = self.get_reach(wide)
        spreads = has_bad and not self.case.careful and self.case.row.get("length") == "window"
        range_end = torch.finfo(torch.float64 if self.u <= 2.0**-53 else torch.float32).max
        if not spreads and (has_bad or reach <= range_end):
            return
        excused = ~torch.isfinite(mine)
        wide = torch.where(excused | ~torch.isfinite(wide) if spreads else excused, mine, wide)
        self.wide = torch.view_as_complex(wide) if self.got.is_complex() else wide
        self.apply()

    # How far the result moves when the inputs are off by a rounding

    def is_derivative(self):
        return self.case.what == "grad" or self.case.row.get("name", "").endswith("_backward")

    def is_mixing(self):
        """May a rounding on the way to the result grow?"""
        cancels = self.is_derivative() and self.has("cancels")
        return not self.case.careful and (cancels or not self.has("pointwise"))

    def get_length(self):
        """Terms that an element of the result sums up, from the numbers of elements alone."""
        counts = [*sorted((tensor.numel() for tensor in self.case.inputs), reverse=True), 0, 0]
        longest = 1.0
        for tensor in self.case.inputs:
            last = tensor.shape[-1] if tensor.dim() else 1
            longest = max(longest, last, tensor.numel() / last if last else 0)
        out = max(self.got.numel(), 1)
        length = counts[0] / out
        if self.has("contraction"):
            length = max(length, longest if self.case.what == "grad" else math.sqrt(counts[0] * counts[1] / out))
        return max(1, length, longest if self.is_mixing() else 1)

    def get_growth(self):
        """How much more than one rounding of all inputs the roundings of a sum move the result."""
        contracts = self.has("contraction")
        if self.is_narrow and not (self.is_mixing() and (self.has("scan") or self.thin) and not contracts):
            return 1.0  # sums run in float32 at least, but for scans
        length = self.get_length()
        levels = math.sqrt(1 + math.log2(length))
        return max(levels, math.sqrt(length) / 2) if contracts or self.has("scan") else levels

    def get_chain(self):
        """Products of products round each time what goes into the next one: attention twice, its backward four
        times."""
        return 1.0 if not self.has("chained") else 2.0 if self.is_derivative() else math.sqrt(2)

    def shake(self):
        careful, contracts = self.case.careful, self.has("contraction")
        lost = self.native is None and self.between > 0  # the CPU cannot say what autocast costs
        if not self.blind and not lost:
            if self.exact or (self.is_narrow and careful):
                return
            if not (contracts or self.is_mixing() or self.get_length() >= 2):
                return
        rounds = contracts and not careful and self.u == 2.0**-24  # a device may round float32 inputs to TF32
        size = self.u if self.blind else self.case.input_roundoff if rounds else 0.0
        size = max(self.u, self.between) if lost and not self.blind else size
        growth = self.get_chain() if size > self.u else self.get_growth()
        times = self.case.rule["rounds"] if self.thin else self.case.rule["rounds"] // 2 if self.is_mixing() else 1
        for number in range(times):
            shaken = self.run("shaken", size=size, seed=mix(self.case.seed, number + 1)) if self.result.wrong else ""
            if isinstance(shaken, str):
                break
            self.take_shaken(shaken, growth)

    def take_shaken(self, shaken, growth):
        if not self.thin:
            self.residual = max(self.residual, growth * measure(shaken, self.wide).largest)
            self.largest = max(self.largest, self.residual)
            self.apply()
            return
        # Few elements: each may be off by as much as it moved, so it is brought nearer by that.
        x, r = to_wide(shaken, self.wide)
        move = self.case.rule["factor"] * growth * (x - r).abs()
        move = torch.where(torch.isfinite(move), move, torch.zeros_like(move))
        self.moves = move if self.moves is None else torch.maximum(self.moves, move)
        mine = self.got.to(r.dtype)
        size = (mine - r).abs()
        left = torch.where(size > self.moves, 1 - self.moves / size, torch.zeros_like(size))
        nearer = torch.where(torch.isfinite(size), r + (mine - r) * left, mine)
        if not compare(nearer, r, **self.get_rule()).wrong:
            self.result.wrong = 0

    def decide(self):
        self.measure()
        self.apply()
        if self.result.nonfinite:
            self.excuse_sums()  # looks at the reference as it was
        if self.result.nonfinite and self.native is not None:
            self.excuse()
        if self.is_suspicious() and not self.exact and not self.blind:
            self.ask_other()
        near = self.result.error <= self.case.rule["factor"] * self.largest
        if self.is_suspicious() and not self.exact and not self.blind and (self.thin or near):
            self.jitter(False, 1)
        # Sums of narrow types run in float32, and their errors show there. float64 errs as float32 does, on its scale.
        widest = self.blind and self.u <= 2.0**-53
        if self.is_suspicious() and not self.exact and (self.is_narrow or widest):
            self.jitter(True, 2.0**-27 if widest else 1)
        if self.is_suspicious():
            self.shake()


# Where more than one answer is right


def cut_rows(tensor, dim, flat=False):
    """[outer, size, inner]: along one dimension, or from it to the end."""
    shape = list(tensor.shape)
    inner = 1 if flat else math.prod(shape[dim + 1 :])
    return math.prod(shape[:dim]), math.prod(shape[dim:]) if flat else math.prod(shape[dim : dim + 1]), inner


def find_rows(case, values):
    """What the operator chooses from."""
    known, last = case.row.get("dim"), values.dim()
    if known in ("plane", "volume"):
        return cut_rows(values, max(last - (2 if known == "plane" else 3), 0), True)
    dim = -1
    if case.dim is not None:
        dim = case.dim + last if case.dim < 0 else case.dim
    elif known == "first":
        dim = 0
    elif "last" in case.row.get("traits", ()):
        dim = last - 1
    return cut_rows(values, dim) if 0 <= dim < last else (1, values.numel(), 1)


def has_twice(rows):
    """Is a number twice in a row?"""
    ordered = rows.sort(1)[0]
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())


def has_repeats(case):
    """Does the index of a scatter name one place more than once? True when it is not known."""
    if case.place is None or (case.dim is None and not case.row["name"].startswith("index_")):
        return True
    index = case.inputs[case.place]
    if index.numel() < 2:
        return False
    dim = (case.dim or 0) if index.dim() > 1 else 0  # index_copy has one index for all rows, scatter one per element
    dim = dim + index.dim() if dim < 0 else dim
    return not 0 <= dim < index.dim() or has_twice(index.to(torch.float64).reshape(cut_rows(index, dim)))


def is_place(case, got):
    """Of arguments that are written to (out=) the dtype alone tells which they are."""
    places = case.row.get("places")
    if case.what == "output" or places is None:
        return case.index == places
    return got.dtype == torch.int64 and case.index > 0


def chose_as_well(case, got, first):
    """Is what the device chose as good as the CPU's choice? Places must point at equal values, those of sorts must be
    distinct; any of the most frequent values will do (mode); topk(sorted=False) comes in any order."""
    traits, places = case.row.get("traits", ()), is_place(case, got)
    if not (places or "frequent" in traits or case.unsorted):
        return False
    if not case.inputs or case.inputs[0].is_complex() or not case.inputs[0].numel():
        return False
    values = case.inputs[0].to(torch.float64)
    outer, size, inner = find_rows(case, values)
    count = got.numel() // (outer * inner)
    if outer * count * inner != got.numel():
        return False
    rows, both = values.reshape(outer, size, inner), [chosen.reshape(outer, count, inner) for chosen in (got, first)]
    if places:
        both = [chosen.to(torch.int64) for chosen in both]
        if any(bool(((chosen < 0) | (chosen >= size)).any()) for chosen in both):
            return False
        if "distinct" in traits and has_twice(both[0]):
            return False
        both = [rows.gather(1, chosen) for chosen in both]
    both = [chosen.to(torch.float64) for chosen in both]
    if "frequent" in traits:
        both = [get_same(*torch.broadcast_tensors(rows.unsqueeze(1), c.unsqueeze(2))).sum(2) for c in both]
        if any(bool((counts == 0).any()) for counts in both):
            return False
    both = [chosen.sort(1)[0] for chosen in both] if case.unsorted else both
    return bool(get_same(*both).all())


def exchange(case, got, wide, rule):
    """A gradient of the first argument: "" where no values are equal; "right" by the rule, once equal values
    (sorted=False: all of a row) exchange their gradients; else "tied"."""
    if not case.inputs or case.index != 0 or case.inputs[0].is_complex() or case.inputs[0].shape != got.shape:
        return ""
    values = case.inputs[0].to(torch.float64)
    rows = values.reshape(find_rows(case, values))
    if not case.unsorted and not has_twice(rows):
        return ""
    both = []
    for gradient in (got, wide):
        gradient = gradient.to(torch.float64).reshape(rows.shape).sort(1)
        order = rows.gather(1, gradient[1]).argsort(dim=1, stable=True)
        both.append(gradient[0] if case.unsorted else gradient[0].gather(1, order))
    return "tied" if compare(*both, **rule).wrong else "right"


# One value


def is_loose(case):
    traits = case.row.get("traits", ())
    if "loose" in traits:
        return case.what == "grad" or case.row["loose"] is None or case.index in case.row["loose"]
    return "scatter" in traits and has_repeats(case)


def answer(verdict, reason="", result=None, cpu_error=math.nan):
    """`verdict`: PASS, FAIL, or none where nothing can be said; `result` tells where it is worst."""
    return types.SimpleNamespace(verdict=verdict, reason=reason, result=result, cpu_error=cpu_error)


def judge(case, got, first, run):
    """The verdict on one tensor. `first` is what the CPU has at hand. `case`: rule, row, what (input, output or grad),
    index (among the values of its kind), careful (the device takes its inputs as they are and sums in float32 at
    least), seed, inputs (tensors among the arguments), dim and place (which of the inputs is `index`), where the call
    has them, unsorted (sorted=False), inexact (the argument with which an exact operator rounds is given), and
    input_roundoff (to which the device rounds float32 inputs of products on purpose, or 0)."""
    traits = case.row.get("traits", ())
    picks = "ties" in traits and case.row.get("dim") is not None  # chooses along a dimension that is known
    private = case.what == "output" and case.index in (case.row.get("private") or ())  # for its own backward alone
    if got.shape != first.shape:
        unneeded = "private" in traits and case.index > 0 and case.what == "output"
        unneeded = unneeded and (private or 0 in (got.numel(), first.numel()))
        return answer("none" if unneeded else "FAIL", f"shape {list(got.shape)}, the CPU's {list(first.shape)}")
    compared = compare(got, first)
    if compared.unequal == 0:
        return answer("PASS", "equal to the CPU's", compared)
    if picks and case.what != "grad" and chose_as_well(case, got, first):
        return answer("PASS", "another choice, as good as the CPU's", compared)
    if is_loose(case) and compared.nonfinite == 0:
        return answer("none", case.row["reason"] or "the result is not unique")
    if not is_number(got.dtype):
        others = (run(Run(kind)) for kind in ("native", "wide"))
        right = compared.wrong == 0 or any(
            isinstance(other, torch.Tensor) and other.shape == got.shape and bool(get_same(got, other).all())
            for other in others
        )
        return answer("PASS" if right else "none" if private else "FAIL", "", compared)
    judgement = Judge(case, got, run)
    why = judgement.open()
    if why:
        return answer("none", f"no float64 reference: {why}", compared)
    judgement.decide()
    result = judgement.result
    if result.wrong and result.nonfinite == 0 and picks and case.what == "grad":
        tied = exchange(case, got, judgement.wide, judgement.get_rule())
        if tied == "right":
            return answer("PASS", "equal values exchange their gradients")
        if tied and "distinct" not in traits:
            return answer("none", "several values are equal: any of them may get the gradient", result)
    wrong = "none" if private else "FAIL"
    return answer(wrong if result.wrong else "PASS", "", result, judgement.cpu_error)
