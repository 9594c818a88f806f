"""How often does OpAutoCompare accuse an operator that is right?

Clean runs on the device (the embedded one, or a real GPU): PyTorch's operator database (forward and backward), training
steps of small models, and training as it is done (autocast, checkpointing, losses, attention, norms, optimizers,
initialisation, ties). Nothing is broken on purpose, so every accusation is a false alarm (or a defect of the device, or
of PyTorch's CPU kernels). Prints comparisons, accusations and the rate with an upper 95 % bound; with --details each
accusation. The exit status is 1 when there is one.

    python bench/false_alarms.py --samples 4 --seeds 2
    python bench/false_alarms.py --only models
    python bench/false_alarms.py --only training --filter cross_entropy_28/float16 --details
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

from false_alarms.tally import Tally, bound

PARTS = ("database", "models", "training")
DTYPES = ("float32", "bfloat16", "float16")
KEYS = ("name", "kind", "error", "allowed", "cpu_error", "value", "reference", "wrong", "numel", "dtype", "reason")
COLUMNS = ("comparisons", "accusations", "not_compared", "undecided")


def run_parts(options, tally, op_db):
    parts = (options.only,) if options.only else PARTS
    if "database" in parts:
        from false_alarms.database import run_database

        run_database(options, tally, op_db)
    if "models" in parts:
        from false_alarms.models import run_models

        run_models(options, tally)
    if "training" in parts:
        from false_alarms.training import run_training

        run_training(options, tally)


# The report


def get_ratio(finding):
    """Error over what was allowed; infinite for what no error allows: NaN, integers."""
    error, allowed = finding.get("error"), finding.get("allowed")
    return error / allowed if error is not None and allowed else float("inf")


def describe(where, finding):
    ratio = f"ratio={get_ratio(finding):.4g}"
    return f"{where}: {ratio}, " + ", ".join(f"{key}={finding.get(key)}" for key in KEYS)


def shorten(finding):
    """The accused operator on one line."""
    count = f" x{finding['count']}" if finding["count"] > 1 else ""
    return f"{finding['name']} {finding['kind']} {finding.get('dtype')} ratio {get_ratio(finding):.3g}{count}"


def format_rows(rows, details):
    """The scenarios that accuse or could not be run; with details all of them."""
    shown = [row for row in rows if details or row["accusations"] or row["problem"]]
    if not shown:
        return []
    lines = [f"{'scenario':<52}" + "".join(f"{column.replace('_', ' '):>14}" for column in COLUMNS)]
    for row in shown:
        lines.append(f"{row['scenario']:<52}" + "".join(f"{row[column]:>14}" for column in COLUMNS))
        lines += [f"    {shorten(finding)}" for _, finding in row["accused"]]
        if row["problem"]:
            lines.append(f"    not run to its end: {row['problem']}")
    return lines


def make_answer(options, tally, seconds):
    accused = tally.accusations
    rows = [{**row, "accused": [shorten(finding) for _, finding in row["accused"]]} for row in options.rows]
    return {
        "comparisons": tally.compared,
        "further_runs": tally.further,
        "accusations": accused,
        "rate": accused / max(1, tally.compared),
        "bound95": bound(accused, max(1, tally.compared)),
        "seconds": round(seconds, 1),
        "torch": __import__("torch").__version__,
        "accused": [describe(*item) for item in tally.accused],
        "not_compared": tally.not_compared,
        "undecided": tally.undecided,
        "scenarios": rows,
        "notes": options.notes,
    }


def make_rows(rows, tally):
    """For bench/run.py: all of it, then by group of scenarios, then those that accuse."""
    table = [("all", tally.compared, tally.accusations)]
    for group in dict.fromkeys(row["group"] for row in rows):
        some = [row for row in rows if row["group"] == group]
        table.append((group, sum(row["comparisons"] for row in some), sum(row["accusations"] for row in some)))
    table += [(row["scenario"], row["comparisons"], row["accusations"]) for row in rows if row["accusations"]]
    return [
        {
            "what": what,
            "figure": f"{accused} of {compared} comparisons (at most {bound(accused, max(1, compared)):.2g})",
            "goal": "0",
            "met": common.verdict(not accused),
        }
        for what, compared, accused in table
    ]


def print_result(options, tally, answer):
    part = options.only or "all parts"
    note = (
        f"{answer['accusations']} accusations in {answer['comparisons']} comparisons of {len(options.rows)} scenarios, "
        f"{options.seeds} seeds from {options.first_seed}: rate {answer['rate']:.2g}, at most {answer['bound95']:.2g} "
        f"with 95 % confidence. {answer['not_compared']} calls not compared, {answer['undecided']} results undecided, "
        f"{sum(bool(row['problem']) for row in options.rows)} scenarios not run to their end; {answer['seconds']} s."
    )
    common.report(
        f"False alarms of OpAutoCompare: {part}",
        f"python bench/false_alarms.py{f' --only {options.only}' if options.only else ''}",
        make_rows(options.rows, tally),
        note,
    )


def print_report(options, tally, answer):
    print("\n".join(format_rows(options.rows, options.details)))
    if options.details:
        print("\n".join(answer["accused"]))
        for (name, reason), count in sorted(tally.unknown.items(), key=lambda item: -item[1]):
            print(f"not compared {count} x {name}: {reason}")
    if options.details or options.only == "training":
        print("\n".join(options.notes))
    ran = f"{len(options.rows)} scenarios of training; " if options.rows else ""
    print(
        f"{answer['comparisons']} comparisons, {answer['accusations']} accusations: rate {answer['rate']:.2g}, at most "
        f"{answer['bound95']:.2g} with 95 % confidence; {answer['further_runs']} further CPU runs to decide; {ran}"
        f"{answer['not_compared']} calls not compared; {answer['seconds']} s"
    )


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of the database")
    parser.add_argument("--ops", default="", help="entries of the database, by name, with commas")
    parser.add_argument("--samples", type=int, default=4, help="of each entry and dtype of the database")
    parser.add_argument("--filter", default="", help="scenarios of training that have this text in their name")
    parser.add_argument("--seeds", type=int, help="default 2; of training 4")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="training steps of each model (3) and scenario (2)")
    parser.add_argument("--level", choices=["torch", "aten"], default="torch", help="of database and models")
    parser.add_argument("--reference", choices=["cpu", "device"], help="the tool's option of this name")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--time", type=float, default=0, help="seconds after which no scenario of training is begun")
    parser.add_argument("--details", action="store_true", help="every scenario, accusation and call not compared")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--report", action="store_true", help="one line of JSON for bench/run.py")
    return parser


def main():
    options = make_parser().parse_args()
    training = options.only == "training"
    options.seeds = options.seeds or (4 if training else 2)
    options.steps = options.steps or (2 if training else 3)
    op_db = None
    if options.only in (None, "database"):  # before the device is loaded: the tables of dtypes then describe the CPU
        op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    importlib.import_module("ditorch")

    options.notes, options.rows = [], []
    tally, begin = Tally(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        options.tool = {"results": folder, "save": False, "rows": "none", "console": "off", "level": options.level}
        if options.reference:
            options.tool["reference"] = options.reference
        with contextlib.redirect_stdout(io.StringIO()):
            run_parts(options, tally, op_db)
    answer = make_answer(options, tally, time.time() - begin)
    if options.report:
        print_result(options, tally, answer)
    elif options.json:
        print(json.dumps(answer, indent=1))
    else:
        print_report(options, tally, answer)
    return 1 if answer["accusations"] else 0


if __name__ == "__main__":
    sys.exit(main())
