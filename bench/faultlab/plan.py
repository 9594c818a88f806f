"""Scenarios of the fault laboratory: seeded, the same on every machine that runs the same operators.

A scenario is a model, a dtype, an operator of the ledger of a clean run, the number of its call, and a kind of fault.
Operators take turns, so that rare ones come as often as matrix products.
"""

import random

HOOK_KINDS = ("value", "precision", "nan", "stride", "input", "unwritten")
"""Every kind of the fault hook that changes values."""
DTYPES = ("float32", "bfloat16", "float16")
LEFT_OUT = ("aten::_copy_from", "aten::fill_.Scalar", "aten::zero_", "aten::empty")
"""Copies are the tools' own means; fills have no input to be wrong about."""


def list_operators(model, dtype, seed=0):
    """{kind: {operator: numbers of calls that it may hit}} of two steps. Kinds of the hook may hit any call; the others
    those whose result they change."""
    import ditorch
    from corpora import make_training
    from injector import Counter

    training = make_training(model, dtype, seed)
    with Counter() as counter:
        training.step(), training.step()
    calls = counter.calls
    if ditorch.is_installed():  # the hook's own names: those of the ledger
        training = make_training(model, dtype, seed)
        ditorch.reset_counters()
        training.step(), training.step()
        rows = [*ditorch.operators(), *ditorch.fallbacks()]
        calls = {row["operator"]: row["calls"] for row in rows if not row["operator"].startswith(LEFT_OUT)}
    hook = {name: range(1, number + 1) for name, number in calls.items()}
    return {**dict.fromkeys(HOOK_KINDS, hook), **counter.open}


def make_queues(rng, models):
    """{(model, dtype): {kind: shuffled list of (operator, numbers of calls)}}"""
    from corpora import list_dtypes

    queues = {}
    for model in models:
        for dtype in list_dtypes(model, DTYPES):
            found = {kind: sorted(operators.items()) for kind, operators in list_operators(model, dtype).items()}
            for operators in found.values():
                rng.shuffle(operators)
            queues[model, dtype] = found
    return queues


def choose_models(names=()):
    """The five of models.py, or recorded ones by name (`ditorch conform list --models`)."""
    from ditorch.models import corpus
    from models import MODELS

    for name in names:
        if name not in MODELS:
            corpus.read(name)  # says which are near
    return tuple(names) or tuple(MODELS)


def make_faults(count, seed, reference=None, models=()):
    """`count` scenarios as dictionaries with the key `name`, which identifies one for ever."""
    from corpora import list_levels
    from injector import CHIP_KINDS

    rng = random.Random(seed)
    queues = make_queues(rng, choose_models(models))
    if not any(operators for place in queues.values() for operators in place.values()):
        raise SystemExit(f"no fault can be put into {', '.join(models)}: their steps run no operator on the device")
    places, kinds = sorted(queues), (*HOOK_KINDS, *CHIP_KINDS)
    taken = {(place, kind): 0 for place in places for kind in kinds}
    scenarios, turn = [], 0
    while len(scenarios) < count:
        place, kind = places[turn % len(places)], kinds[(turn + turn // len(places)) % len(kinds)]
        operators = queues[place][kind]
        turn += 1
        if not operators:
            continue
        operator, calls = operators[taken[place, kind] % len(operators)]
        taken[place, kind] += 1
        level = LEVELS[turn % len(LEVELS)] if "torch" in list_levels(place[0]) else "aten"
        call = rng.choice(calls)
        scenarios.append(
            {
                "name": f"{'-'.join(place)}-{kind}-{operator}-{call}-{level}-s{seed}{name_reference(reference)}",
                "level": level,
                "model": place[0],
                "dtype": place[1],
                "kind": kind,
                "operator": operator,
                "call": call,
                "seed": rng.randint(0, 999),
                "text": f"{kind}:{operator},call={call}",
                "reference": reference,
            }
        )
    return scenarios


LEVELS = ("torch", "aten", "torch")


def name_reference(reference):
    return f"-{reference}" if reference else ""


def make_clean(count, seed, reference=None, models=()):
    from corpora import list_dtypes, list_levels

    rng = random.Random(seed + 1)
    places = [
        (model, dtype, level)
        for level in ("torch", "aten")
        for model in sorted(choose_models(models))
        if level in list_levels(model)
        for dtype in list_dtypes(model, DTYPES)
    ]
    return [
        {
            "clean": True,
            "name": f"clean-{model}-{dtype}-{level}-{i}-s{seed}{name_reference(reference)}",
            "model": model,
            "dtype": dtype,
            "level": level,
            "seed": rng.randint(0, 9999),
            "reference": reference,
        }
        for i, (model, dtype, level) in ((i, places[i % len(places)]) for i in range(count))
    ]
