"""How many calls of two runs `ditorch compare` aligns right, where it is known which call is which: runs of
compare_truth.py, whose lines say it. For tests and bench/align_truth.py."""

import re

from ditorch import _C


def list_pairs(a, b):
    """Pairs of calls (dictionaries), None for a side without a partner."""
    pair = _C.RunPair(_C.LogReader(a), _C.LogReader(b))
    calls = [[pair.call(side, index) for index in range(pair.sizes()[side])] for side in (0, 1)]
    return [(calls[0][row[0]] if row[0] >= 0 else None, calls[1][row[1]] if row[1] >= 0 else None) for row in pair]


def count_right(pairs, name):
    """The share of calls, of both runs, that have the partner of the same name, or none where there is none."""
    known = [{name(pair[side]): pair[side] for pair in pairs if pair[side]} for side in (0, 1)]
    right = total = 0
    for pair in pairs:
        for side in (0, 1):
            if pair[side] is None:
                continue
            total += 1
            other = pair[1 - side]
            wanted = name(pair[side]) if name(pair[side]) in known[1 - side] else None
            right += (name(other) if other else None) == wanted
    return right / total


def name_calls(calls):
    """Every call's own name: where it stands, in which module and step, the how-manieth there."""
    seen = {}
    names = {}
    for call in calls:
        line = re.search(r":(\d+) ", call["location"])
        module = re.sub(r"^\w+\.?", "", call["module"].replace("DistributedDataParallel.module", "Model"))
        backward, recompute = call["flags"] & 1, not call["flags"] & 1 and bool(call["flags"] & 2)
        place = (line and line[1], call["name"], module, call["step"], backward, recompute)
        seen[place] = seen.get(place, 0) + 1
        names[call["pid"], call["id"], backward] = (*place, seen[place])
    return names


def measure(a, b):
    """(distinct calls, pairs, share that is right) of the logs of two runs."""
    pairs = list_pairs(a, b)
    names = [name_calls([pair[side] for pair in pairs if pair[side]]) for side in (0, 1)]
    table = names[0] | {("b", *key): value for key, value in names[1].items()}

    def name(call):
        return names[0].get(key := (call["pid"], call["id"], call["flags"] & 1)) or names[1][key]

    return len(table), sum(None not in pair for pair in pairs), count_right(pairs, name)
