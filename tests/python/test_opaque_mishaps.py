"""Mishaps of the closed test device in the middle of a training step: memory that is used up, a device that is lost.

The program of this file starts one child per mishap; torch is imported once, the device starts in the child.
"""

import json

import pytest

CLOSED = {"DITORCH_VENDOR": "opaque"}
DRIVER = """
import gc, io, json, os, sys, torch, torch._dynamo  # which an optimizer imports: once for all children
from torch import nn

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
}

def count_allocations():
    return torch.cuda.memory_stats()["num_device_alloc"]

class Training:
    # One step has been made, so that gradients and the optimizer's state exist; the next one meets the mishap.
    def __init__(self, optimizer):
        import ditorch
        torch.manual_seed(0)
        self.ballast = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        self.net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).cuda()
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())
        self.x, self.y = torch.randn(8, 4).cuda(), torch.randint(3, (8,)).cuda()
        self.step()
        self.optimizer.zero_grad()
        gc.collect()
        torch.cuda.synchronize()

    def step(self):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        torch.cuda.synchronize()
        first, before = not self.optimizer.state, count_allocations()
        self.optimizer.step()
        assert first or count_allocations() == before, "the optimizer allocates: its step may be cut"
        return loss.item()

    def save(self):
        file = io.BytesIO()
        torch.save([self.net.state_dict(), self.optimizer.state_dict()], file)
        return file.getvalue()

def load(saved):
    found = []
    def walk(value):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for one in value.values():
                walk(one)
        elif isinstance(value, (list, tuple)):
            for one in value:
                walk(one)
    walk(torch.load(io.BytesIO(saved), map_location="cpu"))
    return found

def is_same(saved, other):
    a, b = load(saved), load(other)
    return len(a) == len(b) > 8 and all(torch.equal(x, y) for x, y in zip(a, b))

def count(optimizer):
    "How many allocations come before the step, and how many are made with it; what the step gives."
    training = Training(optimizer)
    training.save()
    first = count_allocations()
    loss = training.step()
    return {"first": first, "last": count_allocations(), "loss": loss}

def exhaust(optimizer):
    training = Training(optimizer)
    answer, saved, held = {}, training.save(), torch.cuda.memory_allocated()
    for attempt in range(2):  # it stays so
        try:
            return answer | {"text": "", "loss": training.step()}
        except torch.OutOfMemoryError as error:
            answer["text"] = str(error)
    training.optimizer.zero_grad()
    gc.collect()
    torch.cuda.synchronize()
    answer["leaked"] = torch.cuda.memory_allocated() - held
    answer["intact"] = is_same(saved, training.save())
    training.ballast = None
    answer["loss"] = training.step()
    return answer

def lose(optimizer):
    try:
        training = Training(optimizer)
        saved = training.save()
    except RuntimeError as error:
        return {"early": str(error).splitlines()[0]}
    wanted = load(saved)
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    answer = {}
    def attempt(name, work):
        try:
            work()
            answer[name] = ""
        except RuntimeError as error:
            answer[name] = str(error).splitlines()[0]
    def use_side_stream():
        with torch.cuda.stream(side):
            training.x + 1
        side.synchronize()
    def record():
        event.record()
        event.synchronize()
    attempt("step", training.step)
    attempt("again", training.step)
    attempt("item", lambda: training.x.sum().item())
    attempt("copy", lambda: training.x.cpu())
    attempt("print", lambda: repr(training.x))
    attempt("new", lambda: torch.ones(3, device="cuda").sum().item())
    attempt("fallback", lambda: torch.linalg.inv(torch.eye(3, device="cuda")).cpu())
    attempt("save", training.save)
    attempt("synchronize", torch.cuda.synchronize)
    attempt("side", use_side_stream)
    attempt("event", record)
    torch.cuda.memory_allocated()
    answer["intact"] = all(torch.equal(a, b) for a, b in zip(wanted, load(saved)))
    return answer

for word in sys.argv[1:]:
    work, optimizer, mishap = word.split("/")
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ["DITORCH_OPAQUE"] = mishap
        print(json.dumps({"word": word, **globals()[work](optimizer)}))
        sys.exit(0)
    print(json.dumps({"word": word, "status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}))
"""


def run(python, words, **environment):
    """What the child of each word answered; all must have ended in order."""
    answer = python("-c", DRIVER, *words, timeout=1800, **CLOSED, **environment)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    status = {row["word"]: row["status"] for row in rows if "status" in row}
    assert status == dict.fromkeys(words, 0), (status, answer.stdout[-2000:], answer.stderr[-2000:])
    return {row["word"]: row for row in rows if "status" not in row}


def exhaust(python, optimizers, share):
    """The device is full from each allocation of a step on: an error, nothing lost, and on with what is freed."""
    raw = {"DITORCH_ALLOCATOR": "raw"}  # without a cache each tensor is an allocation of the device
    counted = run(python, [f"count/{name}/" for name in optimizers], **raw)
    counted = {word.split("/")[1]: row for word, row in counted.items()}
    numbers = {name: range(row["first"] + 1, row["last"] + 1)[::share] for name, row in counted.items()}
    assert all(len(row) > 20 // share for row in numbers.values()), counted
    words = [f"exhaust/{name}/nomem:{number}+" for name, row in numbers.items() for number in row]
    said = run(python, words, **raw)
    for word, row in said.items():
        assert row["loss"] == counted[word.split("/")[1]]["loss"], (word, row)
        if row["text"]:
            assert row["text"].startswith("CUDA out of memory. Tried to allocate "), (word, row)
            assert "GPU 0 has a total capacity of 4.00 GiB" in row["text"], (word, row)
            assert row["leaked"] == 0 and row["intact"], (word, row)
    # Memory that is freed at that very moment may suffice for what is left of the step.
    assert sum(row["text"] != "" for row in said.values()) > len(words) / 2


def test_a_full_device_leaves_training_intact(python):
    exhaust(python, ["adamw"], 20)


@pytest.mark.full
def test_a_full_device_at_every_allocation_of_a_step(python):
    exhaust(python, ["sgd", "adamw"], 1)


def lose(python, numbers):
    """Everything after it says what happened, the process ends, and what was saved before is as it was."""
    said = run(python, [f"lose/adamw/lose:{number}" for number in numbers])
    early = [row for row in said.values() if "early" in row]
    assert all("fell off the bus" in row["early"] for row in early)
    for word, row in said.items():
        answers = [(name, text) for name, text in row.items() if name not in ("word", "intact")]
        while answers and answers[0][1] == "":
            answers.pop(0)  # the device was not lost yet
        assert all("fell off the bus" in text for _, text in answers), (word, answers)
        assert "early" in row or row["intact"], word
    return len(early), said


def test_a_device_lost_within_a_step(python):
    early, said = lose(python, [20, 120])
    assert early == 1 and all("fell off the bus" in row["again"] for row in said.values() if "again" in row)


@pytest.mark.full
def test_a_device_lost_at_every_piece_of_work(python):
    lose(python, range(1, 220, 2))
