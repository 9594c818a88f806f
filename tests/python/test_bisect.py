"""`ditorch bisect`: conditions, the search, what is remembered, and programs with broken operators."""

import dataclasses
import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import child_environment, run_python, start_nursery
from ditorch import cli
from ditorch.bisect.answer import format_answer, make_json
from ditorch.bisect.hunt import ELSEWHERE, FOUND, NOTHING, Hunt, Wish
from ditorch.bisect.metric import Condition, MetricError, MissingError, compile_pattern, is_near, read_values
from ditorch.bisect.runner import BAD, GOOD, Choice, Outcome, Question, Runner
from ditorch.bisect.search import estimate, find_smallest, look_ahead
from ditorch.bisect.state import State, StateError
from ditorch.command import bisect as command
from ditorch.command.tree import Head

# Conditions


@pytest.mark.parametrize(
    "text, values, expected",
    [
        ("loss<2.5", {"loss": [9.0, 2.4]}, True),
        ("loss<2.5", {"loss": [math.nan]}, False),
        ("2 < loss and not loss > 3 or acc==1", {"loss": [2.5], "acc": [0]}, True),
        ("abs(loss - 2.3) <= 10% * 2", {"loss": [2.45]}, True),
        ("-(loss+1)*2/4 >= -2", {"loss": [3.0]}, True),
        ("finite(loss)", {"loss": [math.inf]}, False),
        ("max(loss)<3", {"loss": [math.nan, 1.0]}, False),
        ("first(loss) > last(loss) and count(loss)==2 and mean(loss)==1.5", {"loss": [2.0, 1.0]}, True),
        ('"val/loss" != 1', {"val/loss": [2.0]}, True),
        ("loss/0 < 1", {"loss": [2.0]}, False),
    ],
)
def test_a_condition(text, values, expected):
    assert Condition(text).test(values) is expected


@pytest.mark.parametrize(
    "text, problem",
    [
        ("loss", "a number and no verdict"),
        ("1<2", "names no number"),
        ("loss<", "missing at the end"),
        ("loss<2 3", "'3' is not expected"),
        ("loss<2 and 3", "join conditions"),
        ("1<loss<3", "one comparison at a time"),
        ("sin(loss)<1", "no function 'sin'; there are first"),
        ("min(2)<1", "over the values of a name"),
        ("(loss<2", "')' is missing"),
        ("loss<2; import os", "';' is not expected"),
        ("__import__('os')", "is not expected"),
        ("(" * 60 + "loss<1", "nested too deeply"),
        ("-" * 5000 + "loss<1", "nested too deeply"),
        ("not " * 5000 + "loss<1", "nested too deeply"),
        ("loss<2 + (loss<3)", "arithmetic"),
    ],
)
def test_a_condition_that_cannot_be_meant(text, problem):
    with pytest.raises(MetricError) as error:
        Condition(text)
    assert problem in str(error.value)


def test_conditions_never_fail_otherwise():
    rng = random.Random(0)
    words = ["loss", "<", "2", "(", ")", "and", "or", "not", "abs", "min", "+", "-", "*", "/", '"a b"', ",", "1e9", "%"]
    for _ in range(3000):
        text = " ".join(rng.choices(words, k=rng.randint(1, 9)))
        try:
            Condition(text).test({"loss": [1.0], "a b": [0.0]})
        except (MetricError, MissingError, ZeroDivisionError):
            pass


def test_numbers_in_an_output():
    text = "loss: 3.5\n{'loss': 1e-3, \"acc\": 7}\nloss=nan xloss=5 loss tensor(2., device='cuda:0')\nloss 3rd"
    values = read_values(text, ["loss", "acc"])
    assert values["acc"] == [7.0] and values["loss"][:2] == [3.5, 1e-3] and math.isnan(values["loss"][2])
    assert values["loss"][3:] == [2.0]
    pattern = compile_pattern(r"epoch \d+: (\S+)", ["loss"])
    assert read_values("epoch 1: 2.5\nepoch 2: what", ["loss"], pattern) == {"loss": [2.5]}
    for text, problem in (("(", "no regular expression"), ("x", "has no group"), ("(?P<a>x)", "no group (?P<loss>")):
        with pytest.raises(MetricError, match=problem.replace("(", r"\(").replace("?", r"\?")):
            compile_pattern(text, ["loss"])


def test_near():
    assert is_near([1.0, math.nan, math.inf], [1.005, math.nan, math.inf], 0.01)
    assert not is_near([1.0], [1.1], 0.01) and not is_near([1.0], [1.0, 1.0], 0.01) and is_near([0.0], [0.0], 0.0)


# The search


@pytest.mark.parametrize("count", [1, 2, 3, 13, 40, 100])
def test_any_one_and_any_two_are_found_in_few_questions(count):
    rng = random.Random(count)
    for number in (1, 2):
        for _ in range(20 if count > 1 else 1):
            wanted = set(rng.sample(range(count), min(number, count)))
            asked = {}

            def is_enough(chosen, asked=asked, wanted=wanted):
                return asked.setdefault(tuple(chosen), wanted <= set(chosen))

            assert find_smallest(range(count), is_enough) == sorted(wanted)
            assert len(asked) <= number * math.log2(count) + 4
            if number == 1:
                assert 2 + len(asked) <= max(estimate(count), 4)


def test_most_pairs_are_found_within_the_limit_and_more_than_two_are_found_too():
    rng = random.Random(3)
    for count in (14, 24, 32, 40, 64):
        in_time = 0
        for trial in range(50):
            wanted = set(rng.sample(range(count), 2 if trial < 40 else 3 + trial % 4))
            asked = []

            def is_enough(chosen, asked=asked, wanted=wanted):
                asked.append(tuple(chosen))
                return wanted <= set(chosen)

            assert find_smallest(range(count), is_enough) == sorted(wanted)
            assert len(asked) == len(set(asked))
            in_time += trial < 40 and 2 + len(asked) <= 3 + 2 * math.log2(count)
        assert in_time >= 0.75 * 40, (count, in_time)


def test_a_run_that_is_wrong_for_another_reason_rarely_makes_an_innocent_operator_a_culprit():
    rng = random.Random(5)
    right = 0
    for _ in range(200):
        wanted = set(rng.sample(range(30), 2))
        found = find_smallest(range(30), lambda chosen, wanted=wanted: wanted <= set(chosen) and rng.random() > 0.03)
        right += found == sorted(wanted)
    assert right >= 0.9 * 200, right  # 0.85 when it was halved, 0.88 when what is wrong was never asked again


def test_what_is_asked_next_is_known_before():
    """Whatever the answers are, the questions of the next levels are among those that are looked ahead."""
    for wanted in ({3}, {0, 7}, {1, 2, 8}):
        answers, asked, rounds = {}, [], 0

        def is_enough(chosen, wanted=wanted, answers=answers, asked=asked):
            nonlocal rounds
            asked.append(tuple(chosen))
            if tuple(chosen) not in answers:
                rounds += 1
                ahead = look_ahead(range(9), {q: wanted <= set(q) for q in asked[:-1]}, 7)
                assert ahead[0] == chosen and len(ahead) <= 7
                answers.update({tuple(q): wanted <= set(q) for q in ahead})
            return answers[tuple(chosen)]

        assert set(find_smallest(range(9), is_enough)) == wanted
        assert asked == list(dict.fromkeys(asked)) and rounds <= math.ceil(len(asked) / 3) + 1


def test_more_than_wanted_is_none():
    assert find_smallest(range(9), lambda chosen: {2, 5} <= set(chosen), most=1) is None


# The hunt, with a program that is played


class Play:
    """Runs take no time: wrong unless all of `culprits` are away; every operator has two calls."""

    width = 1

    def __init__(self, *culprits, names=tuple("abcdefghij"), flaky=0.0):
        self.culprits, self.names, self.rng, self.flaky, self.runs = set(culprits), names, random.Random(1), flaky, 0
        self.question = Question(names=["loss"])

    def run(self, choice):
        self.runs += 1
        away = set(self.names if choice.all else choice.names) | set(choice.limits)
        good = self.culprits <= away and all(
            key == 2 for limits in choice.limits.values() for level, keys in limits if level == "call" for key in keys
        )
        if self.rng.random() < self.flaky:
            good = not good
        kind = {"signature": "float32[4]", "module": "M.0", "node": "", "place": "/x/train.py:3 f: y = f(x)"}
        noted = {name: {"kinds": [kind], "calls": [[0, 0], [0, 1]]} for name in choice.limits}
        facts = [{"embedded": True, "ran": {name: [name] for name in self.names}, "culprits": noted}]
        return Outcome(GOOD if good else BAD, "loss 1", 0.1, {"loss": [1.0]}, 0, "", facts)


def hunt(play, folder, **wish):
    said = []
    return Hunt(play, State(str(folder), {"command": "x"}), Wish(**wish), said.append).find(), said


def test_a_hunt_finds_the_operator_and_its_call(tmp_path):
    answer, said = hunt(Play("g"), tmp_path)
    assert answer.kind == FOUND and [culprit.name for culprit in answer.culprits] == ["g"]
    assert answer.culprits[0].limits == [["call", [2]]] and answer.culprits[0].step == 1
    assert answer.runs <= estimate(10) and "at most about" in said[1]
    text = format_answer(answer, "train.py", "cpu", "there")
    assert text.startswith("ditorch bisect: g is the culprit\n  place  /x/train.py:3 (y = f(x))\n  module M.0\n")
    assert "only call 2 of 2, step 1" in text and "DIPU_FORCE_FALLBACK_OPS_LIST=g ditorch run train.py" in text
    value = json.loads(json.dumps(make_json(answer, "train.py", "cpu", "there"), allow_nan=False))
    assert value["culprits"][0]["limits"] == [{"level": "call", "keys": [2]}] and value["answer"] == "found"


def test_two_that_act_together(tmp_path):
    answer, _ = hunt(Play("b", "h"), tmp_path, depth="name")
    assert [culprit.name for culprit in answer.culprits] == ["b", "h"]


class PlayCalls(Play):
    """Ten calls of each operator; some of one must be away."""

    def __init__(self, *needed):
        super().__init__("d")
        self.needed = set(needed)

    def run(self, choice):
        outcome = super().run(dataclasses.replace(choice, limits={name: [] for name in choice.limits}))
        for facts in outcome.facts:
            for noted in facts["culprits"].values():
                noted["calls"] = [[0, step] for step in range(10)]
        for level, keys in choice.limits.get("d", ()):
            if level == "call" and not self.needed <= set(keys):
                outcome.verdict = BAD
        return outcome


def test_two_calls_of_an_operator_are_found_and_more_are_not_looked_for(tmp_path):
    answer, _ = hunt(PlayCalls(3, 8), tmp_path / "two")
    assert answer.culprits[0].limits == [["call", [3, 8]]] and answer.culprits[0].step is None
    assert "only call 3 or 8 of 10" in format_answer(answer, "train.py", "cpu", "there")
    assert answer.detail_runs <= 1 + 2 * (math.ceil(math.log2(10)) + 1)
    answer, _ = hunt(PlayCalls(2, 5, 9), tmp_path / "three")
    assert answer.culprits[0].limits == [] and "10 calls: float32[4]" in format_answer(answer, "t", "cpu", "f")


def test_nothing_to_find_and_nothing_of_the_device(tmp_path):
    answer, _ = hunt(Play(), tmp_path / "1")
    assert answer.kind == NOTHING and answer.runs == 1
    assert "nothing to find: the run is good" in format_answer(answer, "t", "cpu", "f")
    answer, _ = hunt(Play("of another kind"), tmp_path / "2")
    assert answer.kind == ELSEWHERE and answer.runs == 3, "the control, then the tools"
    text = " ".join(format_answer(answer, "t", "cpu", "f").split())
    assert "still wrong with every operator on the CPU: not an operator of this device" in text


def test_what_was_done_is_remembered(tmp_path):
    first = Play("d")
    hunt(first, tmp_path, depth="name")
    with open(tmp_path / "runs.jsonl", "rb+") as file:  # a kill in the middle of the last line
        file.truncate(os.path.getsize(tmp_path / "runs.jsonl") - 20)
    second = Play("d")
    answer, said = hunt(second, tmp_path, depth="name")
    assert second.runs == 1 and answer.remembered == first.runs - 1 and [c.name for c in answer.culprits] == ["d"]
    assert any("remembered" in text for text in said)
    third = Play("d")
    hunt(third, tmp_path, depth="name")
    assert third.runs == 0


def test_a_folder_of_something_else(tmp_path):
    State(str(tmp_path), {"command": "a"})
    with pytest.raises(StateError, match="belongs to another bisection"):
        State(str(tmp_path), {"command": "b"})
    State(str(tmp_path), {"command": "b"}, fresh=True)
    for text in ("{}\n", "junk\n", "[1]\n"):
        (tmp_path / "runs.jsonl").write_text(text)
        with pytest.raises(StateError, match="is not of"):
            State(str(tmp_path), {"command": "b"})


def test_flaky_runs_are_decided_by_majority_and_told(tmp_path):
    answer, said = hunt(Play("e", flaky=0.1), tmp_path, depth="name", repeat=7)
    assert [culprit.name for culprit in answer.culprits] == ["e"] and answer.flaky
    assert any("FLAKY" in text for text in said) and "FLAKY" in format_answer(answer, "t", "cpu", "f")


def test_a_reference_that_fails_says_so(tmp_path):
    play = Play("a")
    run = play.run
    play.run = lambda choice: Outcome(BAD, "exit status 1", status=1) if choice.all else run(choice)
    with pytest.raises(ValueError, match="no reference: with every operator on the CPU, exit status 1"):
        hunt(play, tmp_path, reference_is_cpu=True)


def test_the_last_words_of_a_run_that_fails_are_told(tmp_path):
    (tmp_path / "stderr.txt").write_text("first\nImportError: no module\n")
    play = Play("another")
    run = play.run

    def fail(choice):
        outcome = run(choice)
        outcome.status, outcome.folder, outcome.reason = 2, str(tmp_path), "exit status 2"
        return outcome

    play.run = fail
    answer, _ = hunt(play, tmp_path / "state")
    assert "  said   ImportError: no module" in format_answer(answer, "t", "cpu", "f")


def test_only_suspects(tmp_path):
    answer, _ = hunt(Play("e"), tmp_path, depth="name", include=["c", "d", "e"], exclude=["d"])
    assert answer.operators == ["c", "e"] and [culprit.name for culprit in answer.culprits] == ["e"]


# Real programs

TRAIN = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 8), torch.nn.Tanh())
model = model.cuda()
x = torch.randn(16, 4).cuda()
for step in range(3):
    y = model(x)
    if "crash" in sys.argv and torch.sigmoid(y[:1]).sum().item() > 1e6:
        os.kill(os.getpid(), 9)
    loss = (y - 1).square().mean() + torch.tanh(x.t()).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.5 * p.grad
            p.grad = None
    print(f"step {step} loss {loss.item():.6f}")
"""


def start_warm(words, environment, folder, timeout):
    """A process that has imported torch already."""
    answer = start_nursery().run(*words[1:], environment=environment, cwd=os.getcwd(), timeout=300)
    for name in ("stdout", "stderr"):
        with open(os.path.join(folder, f"{name}.txt"), "w") as file:
            file.write(getattr(answer, name))
    return answer.returncode, False


DRAWS = """
import torch
torch.manual_seed(0)
layer, x = torch.nn.Linear(8, 8).cuda(), torch.rand(32, 8, device="cuda")
print("loss", torch.nn.functional.gelu(layer(x)).tanh().mean().item())
"""


def test_random_numbers_are_no_culprit(tmp_path, monkeypatch):
    """Those of the CPU are other ones, whatever is broken."""
    wish = Wish(reference_is_cpu=True, depth="name")
    fault = "value:aten::gelu,scale=9"
    answer = bisect(tmp_path, [], Question(names=["loss"], within=1e-4), fault, wish, monkeypatch, DRAWS)
    assert [culprit.name for culprit in answer.culprits] == ["aten::gelu"], answer
    assert any("aten::uniform" in note and "stayed on the device" in note for note in answer.notes)


def bisect(folder, words, question, fault, wish, monkeypatch, program=TRAIN):
    for name in [name for name in os.environ if name.startswith("DITORCH_") and name != "DITORCH_VENDOR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DITORCH_FAULT", fault)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(program)
    runner = Runner(["train.py", *words], False, question, Head(), str(folder / "state"))
    runner.start = start_warm
    return Hunt(runner, State(str(folder / "state"), {}), wish, print).find()


def test_a_broken_operator_is_found_and_its_signature(tmp_path, monkeypatch):
    fault = "value:aten::tanh,when=strided,scale=30"
    answer = bisect(tmp_path, [], Question(names=["loss"]), fault, Wish(reference_is_cpu=True), monkeypatch)
    (culprit,) = answer.culprits
    assert culprit.name == "aten::tanh" and culprit.limits == [["signature", ["float32[4, 16]/(1, 4)"]]]
    assert "train.py:11 <module>: loss = (y - 1)" in culprit.place and answer.by == "control"


def test_an_operator_behind_a_crash_is_a_suspect(tmp_path):
    play = Play("b", "h")
    run = play.run

    def run_and_crash(choice):
        outcome = run(choice)
        if "b" not in choice.names and not choice.all and not choice.limits:
            outcome.status, outcome.verdict = 1, BAD
            outcome.facts[0]["ran"] = {name: [name] for name in "abc"}
        return outcome

    play.run = run_and_crash
    answer, _ = hunt(play, tmp_path, depth="name")
    assert [culprit.name for culprit in answer.culprits] == ["b", "h"] and answer.after.is_good


def test_a_set_that_is_not_enough_says_so(tmp_path):
    play = Play("b", names=tuple("ab"))
    run = play.run
    play.run = lambda choice: run(choice) if choice.all else Outcome(BAD, "loss 9", facts=run(choice).facts)
    answer, _ = hunt(play, tmp_path, depth="name")
    assert not answer.after.is_good and "seen in no run before" in format_answer(answer, "t", "cpu", "f")


@pytest.mark.full
def test_by_the_tools_and_a_backward(tmp_path, monkeypatch):
    fault = "value:aten::gelu_backward,scale=30"
    question, wish = Question(names=["loss"], within=1e-4), Wish(reference_is_cpu=True, by="tool", depth="module")
    answer = bisect(tmp_path, [], question, fault, wish, monkeypatch)
    (culprit,) = answer.culprits
    assert culprit.name == "aten::gelu_backward" and culprit.kinds[0]["module"] == "Sequential.1"
    assert "in the backward (GeluBackward0)" in format_answer(answer, "train.py", "cpu", "f")


@pytest.mark.full
def test_a_crash_names_the_operator(tmp_path, monkeypatch):
    fault = "value:aten::sigmoid,scale=1e9"
    answer = bisect(tmp_path, ["crash"], Question(), fault, Wish(depth="name"), monkeypatch)
    assert answer.before.reason == "ended by SIGKILL"
    assert [culprit.name for culprit in answer.culprits] == ["aten::sigmoid"]


def test_a_spared_operator_is_not_broken_by_a_fault(python):
    python("""
        import torch, ditorch
        from ditorch import controls
        x = torch.ones(4, device="cuda")
        with ditorch.fault("value:exp,scale=9") as fault:
            with controls.use(force_fallback="exp"):
                assert torch.equal(x.exp().cpu(), x.cpu().exp()) and fault.count == 0
            assert not torch.equal(x.exp().cpu(), x.cpu().exp()) and fault.count == 1
    """)


# Ways that are rarer


@pytest.mark.full
def test_in_float32(tmp_path, monkeypatch):
    program = TRAIN.replace("model = model.cuda()", "model = model.cuda().bfloat16()")
    program = program.replace("randn(16, 4).cuda()", "randn(16, 4).cuda().bfloat16()")
    wish = Wish(how="float32", depth="name", include=["gelu", "tanh", "mean"])
    question = Question(condition=Condition("max(loss)<9"), names=["loss"])
    answer = bisect(tmp_path, [], question, "value:aten::tanh,dtype=bfloat16,scale=30", wish, monkeypatch, program)
    assert [culprit.name for culprit in answer.culprits] == ["aten::tanh"] and answer.by == "tool", answer
    assert "cast.list" in format_answer(answer, "train.py", "float32", "f")


@pytest.mark.full
def test_a_slow_operator(tmp_path, monkeypatch):
    program = """
import torch
x = torch.ones(4, requires_grad=True, device="cuda")
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(3):
    (torch.tanh(x).sum() + torch.nn.functional.gelu(x).sum()).backward()
    optimizer.step()
"""
    question = Question(condition=Condition("step_time<1"), names=["step_time"])
    wish = Wish(depth="name", include=["tanh", "gelu", "sum"])
    answer = bisect(tmp_path, [], question, "slow:aten::tanh,ms=2000", wish, monkeypatch, program)
    assert [culprit.name for culprit in answer.culprits] == ["aten::tanh"], answer
    assert answer.before.values["step_time"][0] > 1 > answer.after.values["step_time"][0]


@pytest.mark.full
def test_the_result_of_a_function(tmp_path, monkeypatch):
    (tmp_path / "score.py").write_text("def judge(model, x):\n    return model(x).abs().max().item()\n")
    program = TRAIN + "import score\nscore.judge(model, x)\n"
    question = Question(condition=Condition("score<2"), names=["score"], result="score:judge")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wish = Wish(depth="name", include=["tanh", "gelu"])
    answer = bisect(tmp_path, [], question, "value:aten::tanh,scale=30", wish, monkeypatch, program)
    assert [culprit.name for culprit in answer.culprits] == ["aten::tanh"], answer
    assert len(answer.before.values["score"]) == 1


@pytest.mark.full
def test_the_losses_of_a_run_are_a_reference(tmp_path, monkeypatch):
    """What the program prints is something else."""
    program = TRAIN.replace("loss {loss.item():.6f}", "loss 0.0")
    (tmp_path / "train.py").write_text(program)
    words = ["-m", "ditorch", "run", "--tool", "time", "--out", "right", "train.py"]
    run_python(*words, cwd=tmp_path, warm=True)
    monkeypatch.chdir(tmp_path)
    plan = command.parse(["--ref", "right", "--metric", "loss"], ["train.py"])
    question = plan.options.question
    assert question.is_noted and len(question.reference["loss"]) == 3
    wish = Wish(depth="name", include=["tanh", "gelu"])
    answer = bisect(tmp_path, [], question, "value:aten::gelu,scale=9", wish, monkeypatch, program)
    assert [culprit.name for culprit in answer.culprits] == ["aten::gelu"], answer
    assert "the reference has" in answer.before.reason


@pytest.mark.parametrize(
    ("files", "more", "expected"),
    [
        ({}, [], "has no output of a right run in it; accepted: a file with the output of a right run, a folder of "),
        ({"run-r0-p1.json": '{"format": "ditorch-run", "rank": 0, "pid": 1, "losses": []}'}, [], "has no loss: "),
        ({"run-r0-p1.json": '{"format": "ditorch-run", "rank": 0, "pid": 1, "losses": ["x"]}'}, [], "cannot be read"),
        ({"run-r0-p1.json": '{"format": "ditorch-run", "rank": 0, "pid": 1, "losses": ["3ff0000000000000"]}'},
         ["--metric", "accuracy"], "has the losses of a run alone: leave out --pattern and --result"),
    ],
)  # fmt: skip
def test_a_reference_that_is_none(files, more, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right").mkdir()
    for name, text in files.items():
        (tmp_path / "right" / name).write_text(text)
    assert cli.main(["bisect", "--ref", "right", *more, "x.py"]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.full
def test_a_run_that_takes_too_long_is_wrong_and_ends_with_its_children(tmp_path):
    (tmp_path / "train.py").write_text("import subprocess\nsubprocess.run(['sleep', '600.5'])\n")
    words = ["-m", "ditorch", "bisect", "--timeout", "20", "--out", "o", "train.py"]
    answer = run_python(*words, cwd=tmp_path, check=False)
    assert answer.returncode == 3 and "stopped after 20 s (--timeout)" in answer.stdout, answer.stderr
    assert not [line for line in read_commands() if "sleep\x00600.5" in line]


def read_commands():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline") as file:
                yield file.read()
        except OSError:
            continue


@pytest.mark.full
def test_a_launcher(tmp_path):
    program = TRAIN.replace(
        "import os, sys, torch\n", "import os, sys, torch\nassert os.environ['WORLD_SIZE'] == '2'\n"
    )
    (tmp_path / "train.py").write_text(program)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    words = ["--metric", "max(loss)<9", "--include", "tanh,gelu", "--depth", "name", "--json", "--", *launcher]
    answer = run_python("-m", "ditorch", "bisect", *words, cwd=tmp_path, check=False, timeout=1500,
                        DITORCH_FAULT="value:aten::tanh,scale=30")  # fmt: skip
    assert answer.returncode == 1, answer.stderr
    assert [culprit["name"] for culprit in json.loads(answer.stdout)["culprits"]] == ["aten::tanh"]


@pytest.mark.full
def test_a_kill_in_the_middle_and_finished_runs(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    environment = child_environment(DITORCH_BANNER="0", DITORCH_FAULT="value:aten::tanh,scale=30")
    words = ["--metric", "max(loss)<9", "--include", "tanh,gelu", "--depth", "name", "--out", "o", "--json", "train.py"]
    line = [sys.executable, "-m", "ditorch", "bisect", *words]
    with subprocess.Popen(line, cwd=tmp_path, env=environment, start_new_session=True) as child:
        runs = tmp_path / "o" / "runs.jsonl"
        end = time.monotonic() + 600
        while (not runs.exists() or runs.read_bytes().count(b"\n") < 3) and time.monotonic() < end:
            time.sleep(0.2)
        child.kill()
    finished = runs.read_bytes().count(b"\n") - 1
    assert finished >= 2
    answer = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    found = json.loads(answer.stdout)
    assert answer.returncode == 1 and [culprit["name"] for culprit in found["culprits"]] == ["aten::tanh"]
    assert found["remembered"] == finished and f"{finished} finished runs are remembered" in answer.stderr


# The command


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--metric", "loss<", "x.py"], "something is missing at the end"),
        (["--metric", "loss", "x.py"], "is a number and no verdict"),
        (["--repeat", "0", "x.py"], "at least 1"),
        (["--check", "x", "--metric", "loss<1", "x.py"], "--check judges alone"),
        (["--pattern", "(x)", "x.py"], "--metric says what is right"),
        (["--ref", "missing.txt", "x.py"], "cannot be read"),
        (["--within", "much", "x.py"], "expected a part"),
        (["--metric", "loss<1", "no_such_file.py"], "can't open file"),
        (["--how", "float3", "x.py"], "did you mean 'float32'"),
        (["--metric", "loss<1"], "nothing to run"),
    ],
)
def test_wrong_use(words, expected, capsys):
    assert cli.main(["bisect", *words]) == 2
    assert expected in capsys.readouterr().err


def test_the_command_says_when_there_is_nothing_and_goes_on_after_ctrl_c(tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('loss 1.0', flush=True)\ntime.sleep(0 if READY else 60)\n")
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("READY", "__import__('os').path.exists('ready')"))
    environment = child_environment(DITORCH_BANNER="0", COLUMNS="80")
    command = [sys.executable, "-m", "ditorch", "bisect", "--metric", "loss<2", "--out", "o", "train.py"]
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    out = tmp_path / "o" / "probes" / "001" / "stdout.txt"
    end = time.monotonic() + 240
    while (not out.exists() or b"loss" not in out.read_bytes()) and time.monotonic() < end:
        time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert "interrupted" in child.communicate(timeout=120)[1] and child.returncode == 130
    (tmp_path / "ready").write_text("")
    answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0 and "nothing to find: the run is good (loss 1)" in answer.stdout, answer.stderr


def test_a_check_judges(tmp_path):
    (tmp_path / "stdout.txt").write_text("score 7\n")
    ask = lambda command: Question(check=command).judge(0, {}, str(tmp_path))[0]  # noqa: E731
    assert [ask("grep -q 'score 7'"), ask("grep -q 'score 8'"), ask("exit 125")] == ["right", "wrong", "unknown"]


def test_a_choice_is_the_same_in_any_order():
    assert Choice(names=["b", "a"]).to_key() == Choice(names=["a", "b"]).to_key()
