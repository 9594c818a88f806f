"""The questions of a bisection in their order: as it is, everything away, then the search, then which of the calls."""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Callable
from typing import Any

from .. import _C
from .runner import BAD, GOOD, UNKNOWN, Choice, Outcome, Runner, read_facts
from .search import estimate, find_smallest, look_ahead
from .state import State

LEVELS = ("signature", "module", "call")
"""Below the name, from coarse to fine."""
MOST_KEYS = 2
"""Of a level that are looked for: more cost as many runs again, each."""
NOTHING, ELSEWHERE, FOUND, BLIND = "nothing to find", "not an operator", "found", "no operators"


@dataclasses.dataclass
class Wish:
    """`depth`: name, or a level of LEVELS."""

    how: str = "cpu"
    by: str = "auto"
    depth: str = "call"
    repeat: int = 1
    include: list[str] = dataclasses.field(default_factory=list)
    exclude: list[str] = dataclasses.field(default_factory=list)
    reference_is_cpu: bool = False


@dataclasses.dataclass
class Culprit:
    """`limits`: [level, keys] by which its calls could be narrowed; `call`: facts about the call that is left."""

    name: str
    place: str = ""
    limits: list[list[Any]] = dataclasses.field(default_factory=list)
    kinds: list[dict[str, str]] = dataclasses.field(default_factory=list)
    calls: int = 0
    step: int | None = None


@dataclasses.dataclass
class Answer:
    """`runs` and `detail_runs`: runs that names and details took, remembered ones included."""

    kind: str
    culprits: list[Culprit] = dataclasses.field(default_factory=list)
    before: Outcome | None = None
    after: Outcome | None = None
    operators: list[str] = dataclasses.field(default_factory=list)
    forms: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Names under which an operator was called: aten::add_ and aten::add of aten::add."""
    by: str = ""
    runs: int = 0
    detail_runs: int = 0
    remembered: int = 0
    flaky: int = 0
    unknown: int = 0
    seconds: float = 0.0
    notes: list[str] = dataclasses.field(default_factory=list)


class Hunt:
    """`say(text)` tells the progress."""

    def __init__(self, runner: Runner, state: State, wish: Wish, say: Callable[[str], None]):
        self.runner, self.state, self.wish, self.say = runner, state, wish, say
        self.answer = Answer(NOTHING)
        self.expected = 0
        self.detailing = False
        self.is_embedded = False
        self._longest = 0.0
        self._random: list[str] = []
        """Suspects that --ref cpu cannot judge."""
        self._ahead: dict[str, list[Outcome]] = {}

    # One question

    def ask(self, choice: Choice, label: str) -> Outcome:
        known = self.state.find(choice)
        outcome = known or self._run(choice)
        if known is None:
            self.state.keep(choice, outcome)
        answer = self.answer
        if self.detailing:
            answer.detail_runs += 1
        else:
            answer.runs += 1
        answer.remembered += known is not None
        answer.seconds += outcome.seconds
        answer.flaky += outcome.is_flaky
        answer.unknown += outcome.verdict == UNKNOWN
        self._tell(outcome, label, known is not None)
        return outcome

    def _run(self, choice: Choice) -> Outcome:
        """The majority of --repeat runs; no more of them than can change it."""
        outcomes: list[Outcome] = []
        while True:
            ahead = self._ahead.get(choice.to_key())
            outcomes.append(ahead.pop(0) if ahead else self.runner.run(choice))
            votes = [outcome.verdict for outcome in outcomes]
            winner = max(dict.fromkeys(votes), key=votes.count)
            if votes.count(winner) * 2 > self.wish.repeat or len(outcomes) >= self.wish.repeat:
                break
        chosen = next(outcome for outcome in reversed(outcomes) if outcome.verdict == winner)
        seconds = sum(outcome.seconds for outcome in outcomes)
        return dataclasses.replace(chosen, votes=votes, seconds=seconds)

    def _search(
        self, items: list[Any], choose: Callable[[list[Any]], Choice], ask: Callable[[list[Any]], bool], most: int = 0
    ) -> list[Any] | None:
        """find_smallest. Where several programs can run at once, the questions that may come next are run beside the
        one that is asked; what is not asked afterwards is as if it had not been run."""
        answers: dict[tuple[Any, ...], bool] = {}

        def is_enough(chosen: list[Any]) -> bool:
            if self.runner.width > 1:
                votes = self.wish.repeat // 2 + 1
                self._run_ahead(
                    [choose(next_one) for next_one in look_ahead(items, answers, self.runner.width // votes or 1, most)]
                )
            answers[tuple(chosen)] = ask(chosen)
            return answers[tuple(chosen)]

        return find_smallest(items, is_enough, most)

    def _run_ahead(self, choices: list[Choice]) -> None:
        """The first one is asked now: as long as it is known, nothing runs."""
        unknown = [choice for choice in choices if not self.state.find(choice) and choice.to_key() not in self._ahead]
        if unknown[:1] != choices[:1]:
            return
        wanted = [choice for choice in unknown for _ in range(self.wish.repeat // 2 + 1)]
        for choice, outcome in zip(wanted, self.runner.run_many(wanted), strict=True):
            self._ahead.setdefault(choice.to_key(), []).append(outcome)

    def _tell(self, outcome: Outcome, label: str, is_known: bool) -> None:
        done = self.answer.runs + self.answer.detail_runs
        self._longest = max(self._longest, outcome.seconds)
        more = max(self.expected - (self.answer.detail_runs if self.detailing else self.answer.runs), 0)
        rest = f"; at most about {more} more" if more else ""
        rest += f", {more * self._longest:.0f} s" if more and more * self._longest >= 10 else ""
        time_text = "remembered" if is_known else f"{outcome.seconds:.1f} s"
        flaky = f", FLAKY: {' '.join(outcome.votes)}" if outcome.is_flaky else ""
        reason = f" ({outcome.reason})" if outcome.reason else ""
        is_open = self.wish.reference_is_cpu and self.runner.question.reference is None
        verdict = "to be compared" if is_open and outcome.is_good else outcome.verdict
        self.say(f"[{done}] {label}: {verdict}{reason}{flaky}, {time_text}{rest}")

    # The hunt

    def find(self) -> Answer:
        begin = time.monotonic()
        answer = self._find()
        answer.seconds = max(answer.seconds, time.monotonic() - begin)
        return answer

    def _find(self) -> Answer:
        answer = self.answer
        self.expected = estimate(1)
        before = self.ask(Choice(observe=True, how=self.wish.how), "as it is")
        answer.before = before
        operators = self._list_operators(before)
        if before.is_good and not self.wish.reference_is_cpu:
            return answer
        if not operators and not before.status:
            answer.kind = BLIND
            return answer
        self.expected = estimate(len(operators))
        after = self._ask_all(operators)
        if before.status and after.is_good:  # what would have come behind its end was not seen before
            operators = {**self._list_operators(after), **operators}
            self.answer.operators = list(operators)
            self.expected = estimate(len(operators))
        if self.wish.reference_is_cpu:
            if after.status:
                raise ValueError(f"there is no reference: with every operator on the CPU, {after.reason}")
            before = self._compare_with(before, after)
        if before.is_good or not after.is_good:
            answer.kind = NOTHING if before.is_good else ELSEWHERE
            return answer
        if not operators:
            answer.kind = BLIND
            return answer
        names = self._search(list(operators), self._choose, lambda chosen: self._ask_names(chosen, operators)) or []
        answer.kind = FOUND
        answer.culprits = [Culprit(name, operators[name]) for name in names]
        answer.after = self.state.find(self._choose(names))
        if answer.after is None:  # no question had this set: all but the first half of the list was needed
            answer.after = self.ask(self._choose(names), f"{', '.join(names)} {self._where()}")
        if not answer.after.is_good:
            answer.notes.append("not enough alone: something is needed that was seen in no run before")
            return answer
        if self.wish.depth != "name":
            self._find_calls(answer)
        return answer

    def _list_operators(self, outcome: Outcome) -> dict[str, str]:
        """Suspects by first appearance, with places. What the embedded device's door has counted is what ran there;
        of a program that crashed there is only what was called."""
        places: dict[str, str] = {}
        for row in read_facts(outcome.folder, "names-") if outcome.folder else ():
            if not places.get(row.get("name", "")):
                places[str(row.get("name"))] = str(row.get("place", ""))
        ran: dict[str, list[str]] = {}
        for fact in outcome.facts:
            ran.update(fact.get("ran", {}))
        self.is_embedded = any(fact.get("embedded") for fact in outcome.facts) or not outcome.facts
        if ran and self.wish.how == "cpu" and self.wish.by != "tool":
            self.answer.forms = ran
            places = {name: places.get(name, "") for name in (*places, *ran) if name in ran}
        found = {name: place for name, place in places.items() if self._is_suspect(name)}
        if self.wish.reference_is_cpu:
            self._random = [name for name in found if _C.engine_classify(name)["random"]]
            found = {name: place for name, place in found.items() if name not in self._random}
        if self._random:
            self.answer.notes.append(
                f"{', '.join(self._random)} stayed on the device: their numbers are other ones on the CPU"
            )
        self.answer.operators = list(found)
        return found

    def _is_suspect(self, name: str) -> bool:
        def is_named(patterns: list[str]) -> bool:
            short = name.partition("::")[2]
            return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in (name, short))

        return (not self.wish.include or is_named(self.wish.include)) and not is_named(self.wish.exclude)

    def _ask_all(self, operators: dict[str, str]) -> Outcome:
        """By the embedded device's control where that is there; by the tools where it is not, or does not help."""
        answer = self.answer
        everything = not self.wish.include and not self.wish.exclude and not self._random
        kinds = ["control", "tool"] if self.is_embedded else ["tool"]
        if self.wish.how != "cpu" or self.wish.by == "tool":
            kinds = ["tool"]
        elif self.wish.by == "control":
            kinds = ["control"]
        outcome = None
        for kind in kinds:
            answer.by = kind
            names = [] if everything else list(operators)
            observe = bool(self.answer.before.status)
            choice = Choice(names=names, all=everything, by=kind, how=self.wish.how, observe=observe)
            all_of_them = "every operator" if everything or self._random else "every suspect"
            outcome = self.ask(choice, f"{all_of_them} {self._where()}")
            if outcome.is_good:
                break
        return outcome

    def _where(self) -> str:
        return "in float32" if self.wish.how == "float32" else "on the CPU"

    def _compare_with(self, before: Outcome, after: Outcome) -> Outcome:
        """--ref cpu: what the CPU gives is right, and the first run is judged by it."""
        question = self.runner.question
        question.reference = {name: after.values.get(name, []) for name in question.names}
        missing = [name for name, values in question.reference.items() if not values]
        if missing:
            raise ValueError(f"no value of {missing[0]!r} in the output of the run on the CPU")
        verdict, reason = question.judge(before.status, before.values, before.folder)
        self.say(f"    as it is, beside that: {verdict} ({reason})")
        after.verdict = GOOD
        self.answer.before = dataclasses.replace(before, verdict=verdict, reason=reason)
        return self.answer.before

    def _choose(self, names: list[str]) -> Choice:
        return Choice(names=names, by=self.answer.by, how=self.wish.how)

    def _ask_names(self, names: list[str], operators: dict[str, str]) -> bool:
        if len(names) == len(operators) and not self.wish.include and not self.wish.exclude:
            return True
        shown = ", ".join(names) if len(names) <= 2 else f"{len(names)} of {len(operators)} operators"
        return self.ask(self._choose(names), f"{shown} {self._where()}").is_good

    # Which calls of the culprits

    def _find_calls(self, answer: Answer) -> None:
        self.detailing, self.expected = True, 0
        names = [culprit.name for culprit in answer.culprits]
        choice = Choice(by="tool", how=self.wish.how, notes=True, limits={name: [] for name in names})
        outcome = self.ask(choice, f"the calls of {', '.join(names)}, by the tools")
        if not outcome.is_good:
            answer.notes.append(
                "the tools of op_tools do not reach every call of it: inside of other operators, or in other threads"
            )
            return
        facts = outcome.facts[0]["culprits"] if outcome.facts else {}
        for culprit in answer.culprits:
            noted = facts.get(culprit.name)
            if noted and noted["calls"]:
                self._narrow(culprit, noted, choice)

    def _narrow(self, culprit: Culprit, noted: dict[str, Any], full: Choice) -> None:
        """By one level after another, as long as a few keys of it are enough."""
        rows = [
            {**noted["kinds"][kind], "call": number, "step": step}
            for number, (kind, step) in enumerate(noted["calls"], 1)
        ]
        culprit.calls = len(rows)
        for level in LEVELS[: LEVELS.index(self.wish.depth) + 1]:
            keys = list(dict.fromkeys(row[level] for row in rows))
            if len(keys) > 1:
                self.expected = self.answer.detail_runs + len(keys).bit_length() + 1

                def choose(chosen: list[Any], level: str = level) -> Choice:
                    limits = {**full.limits, culprit.name: [*culprit.limits, [level, chosen]]}
                    return Choice(by="tool", how=full.how, limits=limits)

                def is_enough(chosen: list[Any], level: str = level) -> bool:
                    shown = f"{level} {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} {level}s"
                    return self.ask(choose(chosen), f"{culprit.name}, {shown} {self._where()}").is_good

                found = self._search(keys, choose, is_enough, most=MOST_KEYS)
                if found is None:
                    break
                culprit.limits.append([level, found])
                rows = [row for row in rows if row[level] in found]
        culprit.kinds = [dict(kind) for kind in dict.fromkeys(tuple(_drop(row).items()) for row in rows)]
        culprit.place = rows[0]["place"] or culprit.place
        culprit.step = rows[0]["step"] if len(rows) == 1 else None


def _drop(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("call", "step")}


__all__ = ["BAD", "BLIND", "ELSEWHERE", "FOUND", "NOTHING", "Answer", "Culprit", "Hunt", "Wish"]
