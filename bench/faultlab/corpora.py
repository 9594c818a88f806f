"""Recorded models (python/ditorch/models) in the place of a training: a step makes each distinct call once.

    training = make_training("resnet50", "float32", seed)    # or one of the five of models.py
    training.step()

Calls are shrunk as `conform run --model --scale` shrinks them, and each gets tensors of its own in every step, made
from the seed: floats between 0.25 and 1.75, where every operator is defined, indices 0. A recorded call is a call of
ATen, so these models are judged at that level alone, in the dtype that they were recorded in.
"""

import collections
import math

import torch
from ditorch.models import corpus, measure, run
from models import MODELS, Training

SCALE = 0.02
LIMIT = 1 << 24
"""Bytes of a call's arguments; larger ones are left out."""


def make_training(name, dtype, seed):
    return Training(name, dtype, seed) if name in MODELS else Replay(name, seed)


def list_levels(name):
    return ("torch", "aten") if name in MODELS else ("aten",)


def list_dtypes(name, usual):
    return usual if name in MODELS else (find_dtype(name),)


def find_dtype(name):
    """The floating dtype that most tensors of the model have."""
    tensors = [tensor.dtype for entry in corpus.read(name).entries for tensor in entry.call.tensors()]
    return collections.Counter(dtype for dtype in tensors if "float" in dtype).most_common(1)[0][0]


class Replay:
    """Has the face of Training."""

    def __init__(self, name, seed, device="cuda"):
        self.seed, self.device, self.count = seed, device, 0
        self.calls = list_calls(name)

    def step(self):
        self.count += 1
        generator = torch.Generator().manual_seed(1000 * self.seed + self.count)

        def make(shape, dtype, device):
            if dtype.is_floating_point:
                return (torch.rand(tuple(shape), generator=generator) * 1.5 + 0.25).to(device, dtype)
            return measure.make_values(shape, dtype, "cpu").to(device)

        for call in self.calls:
            run.run(run.materialize(call, self.device, make))


def list_calls(name):
    """Distinct smallest forms that the CPU can run."""
    found = {}
    for call, _ in measure.list_calls(corpus.read(name)):
        form = measure.list_valid_forms(call, SCALE)[0]
        if math.fsum(tensor.nbytes for tensor in form.tensors()) <= LIMIT:
            found.setdefault(str(form), form)
    return [form for form in found.values() if can_run(form)]


def can_run(call):
    try:
        run.run(run.materialize(call, "cpu", measure.make_values))
    except Exception:  # what an operator says of sizes that do not fit is any exception
        return False
    return True
