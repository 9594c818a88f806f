"""Scenarios of the fault laboratory: seeded, the same on every machine that runs the same operators.

A scenario is a model, a dtype, an operator of the ledger of a clean run, the number of its call, and a kind of fault.
Operators take turns, so that rare ones come as often as matrix products.
"""

import random

KINDS = ("value", "precision", "nan", "stride", "input", "unwritten")
"""Every kind that changes values."""
DTYPES = ("float32", "bfloat16")
LEFT_OUT = ("aten::_copy_from", "aten::fill_.Scalar", "aten::zero_", "aten::empty")
"""Copies are the tools' own means; fills have no input to be wrong about."""


def list_operators(model, dtype, seed=0):
    """{operator: calls} of two steps."""
    import ditorch
    from models import Training

    training = Training(model, dtype, seed)
    if not ditorch.is_installed():  # a real CUDA device: no ledger
        from injector import Counter

        with Counter() as counter:
            training.step(), training.step()
        return counter.calls
    ditorch.reset_counters()
    training.step(), training.step()
    rows = [*ditorch.operators(), *ditorch.fallbacks()]
    return {row["operator"]: row["calls"] for row in rows if not row["operator"].startswith(LEFT_OUT)}


def make_faults(count, seed):
    """`count` scenarios as dictionaries with the key `name`, which identifies one for ever."""
    from models import MODELS

    rng = random.Random(seed)
    queues = {}
    for model in MODELS:
        for dtype in DTYPES:
            operators = sorted(list_operators(model, dtype).items())
            rng.shuffle(operators)
            queues[model, dtype] = operators
    places = sorted(queues)
    scenarios, turn = [], 0
    while len(scenarios) < count:
        model, dtype = places[turn % len(places)]
        operators = queues[model, dtype]
        operator, calls = operators[(turn // len(places)) % len(operators)]
        kind = KINDS[(turn + turn // len(places)) % len(KINDS)]
        level = "aten" if turn % 3 == 2 else "torch"
        call = rng.randint(1, calls)
        scenarios.append(
            {
                "name": f"{model}-{dtype}-{kind}-{operator}-{call}-{level}-s{seed}",
                "level": level,
                "model": model,
                "dtype": dtype,
                "kind": kind,
                "operator": operator,
                "call": call,
                "seed": rng.randint(0, 999),
                "text": f"{kind}:{operator},call={call}",
            }
        )
        turn += 1
    return scenarios


def make_clean(count, seed):
    from models import MODELS

    rng = random.Random(seed + 1)
    places = [(model, dtype, level) for level in ("torch", "aten") for model in sorted(MODELS) for dtype in DTYPES]
    return [
        {
            "clean": True,
            "name": f"clean-{model}-{dtype}-{level}-{i}-s{seed}",
            "model": model,
            "dtype": dtype,
            "level": level,
            "seed": rng.randint(0, 9999),
        }
        for i, (model, dtype, level) in ((i, places[i % len(places)]) for i in range(count))
    ]
