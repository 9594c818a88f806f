"""The tables of the fault laboratory: shares of scenarios, by level, direction, dtype, kind, model and seed."""

KEYS = ("level", "direction", "dtype", "kind", "model", "plan")


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def split(rows):
    clean = [row for row in rows if "clean" in row]
    faults = [{**row, "plan": "seed " + row["name"].rpartition("-s")[2]} for row in rows if "clean" not in row]
    return clean, faults, [row for row in faults if row.get("counts")]


def make_line(label, rows):
    first, named = sum(row["first"] for row in rows), sum(row["named"] for row in rows)
    innocent = sum(row["innocents"] > 0 for row in rows)
    cells = (label, len(rows), percent(first, len(rows)), percent(named, len(rows)), percent(innocent, len(rows)))
    return "| " + " | ".join(map(str, cells)) + " |"


def count(rows):
    return {
        "counted": len(rows),
        "first": sum(row["first"] for row in rows),
        "named": sum(row["named"] for row in rows),
        "scenarios_with_innocents": sum(row["innocents"] > 0 for row in rows),
        "innocents": sum(row["innocents"] for row in rows),
    }


def make_figures(rows):
    """Every number of the report, for programs."""
    clean, faults, counted = split(rows)
    figures = {"planned": len(faults), "fired": sum(row.get("fired", False) for row in faults), "all": count(counted)}
    for key in KEYS:
        figures[key] = {
            value: count([row for row in counted if row[key] == value])
            for value in sorted({row[key] for row in counted})
        }
    figures["clean"] = {
        dtype: {
            "runs": sum(row["dtype"] == dtype for row in clean),
            "that_accuse": sum(bool(row.get("findings")) for row in clean if row["dtype"] == dtype),
        }
        for dtype in sorted({row["dtype"] for row in clean})
    }
    figures["missed"] = [format_fault(row) for row in counted if not row["first"]]
    figures["with_innocents"] = [f"{format_fault(row)}: {format_findings(row)}" for row in counted if row["innocents"]]
    figures["accused_in_clean_runs"] = [
        f"{row['name']}: {format_findings(row)}" for row in clean if row.get("findings")
    ]
    figures["failed"] = [f"{row['name']}: {row['error']}" for row in rows if row.get("error")]
    return figures


def is_clean(rows):
    """No clean run accused anybody and no scenario failed to run."""
    return not any(row.get("error") or ("clean" in row and row.get("findings")) for row in rows)


def make_summary(rows):
    clean, faults, counted = split(rows)
    fired = sum(row.get("fired", False) for row in faults)
    operators = len({row["operator"] for row in counted})
    accused = sum(bool(row.get("findings")) for row in clean)
    calls = sum(row.get("calls", 0) for row in clean)
    blind = sum(bool(row.get("blind")) for row in faults)
    errors = sum(bool(row.get("error")) for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    return (
        f"{len(faults)} faults planned, {fired} fired, {len(counted)} exceed four times the CPU's own error, over "
        f"{operators} operators; {blind} hit operators that the CPU does not have, which level aten cannot judge. "
        f"{len(clean)} clean runs with {calls:,} operator calls: {accused} accused somebody. "
        f"{errors} scenarios failed. {seconds:.0f} s of computing."
    )


def make_result(rows):
    """What bench/run.py writes into docs/measurements.md."""
    clean, _, counted = split(rows)
    total = max(len(counted), 1)
    first, innocent = (sum(bool(row[key]) for row in counted) for key in ("first", "innocents"))
    accused = sum(bool(row.get("findings")) for row in clean)
    goals = [
        ("culprit named first", first, "at least 98 %", first >= 0.98 * total),
        ("scenarios with an innocent accused", innocent, "at most 1 %", innocent <= 0.01 * total),
    ]
    table = [
        {
            "what": what,
            "figure": f"{percent(n, total)} ({n} of {total})",
            "goal": goal,
            "met": "met" if ok else "missed",
        }
        for what, n, goal, ok in goals
    ]
    met = "met" if not accused else "missed"
    table.append(
        {"what": "clean runs that accuse somebody", "figure": f"{accused} of {len(clean)}", "goal": "0", "met": met}
    )
    for key in KEYS:
        for value in sorted({row[key] for row in counted}):
            some = [row for row in counted if row[key] == value]
            n = sum(row["first"] for row in some)
            table.append(
                {
                    "what": f"{key} {value}",
                    "figure": f"{percent(n, len(some))} ({n} of {len(some)}); with innocents "
                    f"{sum(row['innocents'] > 0 for row in some)}",
                    "goal": "",
                    "met": "",
                }
            )
    return {
        "title": "The fault laboratory: does OpAutoCompare name the broken operator first?",
        "command": "python bench/faultlab/run.py",
        "note": make_summary(rows),
        "rows": table,
    }


def format_report(rows):
    clean, _, counted = split(rows)
    lines = [
        "| scenarios | counted | culprit named first | named at all | innocents accused |",
        "|---|---|---|---|---|",
        make_line("all", counted),
    ]
    for key in KEYS:
        for value in sorted({row[key] for row in counted}):
            lines.append(make_line(f"{key} {value}", [row for row in counted if row[key] == value]))
    lines += ["", make_summary(rows)]
    errors = [row for row in rows if row.get("error")]
    lines += [f"- failed: {row['name']}: {row['error']}" for row in errors]
    lines += [f"- clean run {row['name']} accused {format_findings(row)}" for row in clean if row.get("findings")]
    lines += [f"- missed: {format_fault(row)}: {format_findings(row)}" for row in counted if not row["first"]]
    lines += [f"- innocents: {format_fault(row)}: {format_findings(row)}" for row in counted if row["innocents"]]
    return "\n".join(lines)


def format_fault(row):
    place = f"{row['culprit']} {row['direction']}"
    return f"{row['name']} (culprit {place}, damage {row['damage']:.3g}, CPU's own error {row['own']:.3g})"


def format_findings(row):
    found = [f"{finding['name']} {finding['kind']}" for finding in row["findings"]]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "") if found else "nobody"
