"""The operator table (standard/operators.tsv) against PyTorch's own schemas, tags and operator database."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C

ROOT = Path(__file__).parents[2]
NOT_TENSORS = {"get", "keys", "pop", "setdefault", "local_value", "to_here", "as_tensor", "_unwrap_optional"}
"""Of TorchScript: containers and remote references; as_tensor builds one of Python data."""
DATABASE = """
import json
from torch.testing._internal.common_methods_invocations import op_db
print(json.dumps(sorted({name for op in op_db for name in (op.name, *(alias.name for alias in op.aliases))})))
"""


def get_traits(name):
    row = _C.operator_find(name)
    return row["traits"] if row else frozenset()


def list_overloads():
    """(schema, tags) of everything in aten."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        if schema.name.startswith("aten::") and packet is not None:
            overload = getattr(packet, schema.overload_name or "default", None)
            found.append((schema, overload.tags if overload is not None else []))
    return found


@pytest.fixture(scope="module")
def overloads():
    return list_overloads()


def list_untold(overloads, condition, *traits):
    """Operators of which the condition holds, but which have none of the traits."""
    names = {schema.name for schema, tags in overloads if condition(schema, tags)}
    assert len(names) > 20
    return {name for name in names if not get_traits(name) & set(traits)}


def test_every_pointwise_tag_is_a_trait(overloads):
    assert list_untold(overloads, lambda _, tags: torch.Tag.pointwise in tags, "pointwise") == set()


def returns_a_view(schema):
    return any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns)


def test_every_view_of_the_schemas_is_a_trait(overloads):
    untold = list_untold(overloads, lambda schema, _: returns_a_view(schema), "view", "transfer", "indexing")
    rest = {name for name in untold if name.removeprefix("aten::") not in NOT_TENSORS}
    without = {name for name in rest if "the result tells" not in ((_C.operator_find(name) or {}).get("reason") or "")}
    assert without == set()


def test_every_random_tag_is_a_trait(overloads):
    seeded = torch.Tag.nondeterministic_seeded
    assert list_untold(overloads, lambda _, tags: seeded in tags, "random", "may_draw") == set()


def test_what_takes_a_generator_is_random(overloads):
    """An operator that takes a generator draws."""
    takes = {schema.name for schema, _ in overloads if any(value.name == "generator" for value in schema.arguments)}
    assert {name for name in takes if not get_traits(name) & {"random", "may_draw"}} == set()


def test_every_entry_of_the_operator_database_has_a_row():
    """In a process of its own: torch's tests have to be imported before the device."""
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DATABASE], capture_output=True, text=True, check=True
    )
    names = json.loads(output.stdout.splitlines()[-1])
    assert len(names) > 500
    assert [name for name in names if _C.operator_find(name) is None] == []


def is_written(schema, place):
    value = schema.arguments[place]
    return value.alias_info is not None and value.alias_info.is_write


def test_undeclared_writes_are_tensors_that_the_schema_says_nothing_about(overloads):
    """At the places that the table names there are tensors, of which at least one overload does not say that they are
    written; and the argument that tells whether they are is a bool."""
    seen, bad, hidden = set(), set(), set()
    for schema, _ in overloads:
        row = _C.operator_find(schema.name)
        if not row or not row["writes"] or schema.overload_name.startswith("no_stats"):
            continue
        first, count = row["writes"]
        places = range(first, first + count)
        seen.add(row["name"])
        kinds = {str(schema.arguments[place].type) for place in places if place < len(schema.arguments)}
        if not kinds <= {"Tensor", "Optional[Tensor]"} or places[-1] >= len(schema.arguments):
            bad.add(str(schema))
        flag = row["writes_if"]
        if flag is not None and str(schema.arguments[flag].type) != "bool":
            bad.add(str(schema))
        if not all(is_written(schema, place) for place in places):
            hidden.add(row["name"])
    assert bad == set()
    wanted = {_C.operator_find(word)["name"] for word in _C.operator_list() if not word.startswith("distributed.")}
    assert {name for name in wanted if _C.operator_find(name)["writes"]} == seen
    assert len(hidden) > 5


def test_private_and_loose_results_exist(overloads):
    """The results that the table names are results of the schema."""
    bad = set()
    for schema, _ in overloads:
        row = _C.operator_find(schema.name)
        if row is None or schema.overload_name.endswith("out") or len(schema.returns) < 2:
            continue
        for key in ("private", "loose"):
            places = row[key] or ()
            bad |= {(schema.name, key)} if places and max(places) >= len(schema.returns) else set()
    assert bad == set()


def test_places_of_dim_and_index_are_those_of_the_schemas(overloads):
    wrong, seen = set(), set()
    for schema, _ in overloads:
        row = _C.operator_find(schema.name)
        names = [value.name for value in schema.arguments]
        for key in ("dim", "index"):
            place = row[key] if row else None
            if isinstance(place, int) and key in names:
                seen.add(row["name"])
                wrong |= set() if names[place] == key else {f"{schema.name}.{schema.overload_name}"}
    # With `stable` in front, dim is given by name.
    assert wrong <= {
        "aten::sort.stable",
        "aten::argsort.stable",
        "aten::sort.values_stable",
        "aten::argsort.stable_out",
    }
    assert len(seen) > 10


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("clone", lambda x: x.clone()),
        ("cat", lambda x: torch.cat([x, x])),
        ("flip", lambda x: x.flip(0)),
        ("relu", torch.relu),
        ("tril", torch.tril),
        ("frac", torch.frac),
        ("where", lambda x: torch.where(x > 0, x, -x)),
        ("sort", lambda x: x.sort().values),
        ("max_pool1d", lambda x: torch.nn.functional.max_pool1d(x, 2)),
        ("pad", lambda x: torch.nn.functional.pad(x, (1, 1))),
        ("embedding", lambda x: torch.nn.functional.embedding(torch.tensor([1, 0]), x)),
    ],
)
def test_exact_operators_round_nothing(name, call):
    assert "exact" in get_traits(name)
    wide = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16):
        x = wide.to(dtype)
        assert torch.equal(call(x).double(), call(x.double()))


def test_rounding_operators_are_not_exact():
    for name in ("add", "mul", "softmax", "sum", "matmul", "sgn", "lerp", "index_add", "conv2d", "leaky_relu", "mean"):
        assert "exact" not in get_traits(name), name
    assert _C.operator_find("torch.round")["unless"] == "decimals"


# Names


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("torch.Tensor.add_", "add"),
        ("aten::add_.Tensor", "add"),
        ("torch.Tensor.__radd__", "add"),
        ("torch._foreach_mul_", "mul"),
        ("torch.nn.functional.unfold", "im2col"),
        ("torch.signal.windows.exponential", "windows.exponential"),
        ("torch.distributed.gather", "distributed.gather"),
        ("torch.gather", "gather"),
        ("torch.nonsense", None),
        ("", None),
    ],
)
def test_names(name, row):
    found = _C.operator_find(name)
    assert (found["name"] if found else None) == row


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="name is a str, not int"):
        _C.operator_find(3)


# The generator


@pytest.fixture
def folder(tmp_path):
    """A copy of what the generator reads and writes."""
    for part in (
        "tools/gen_operators.py",
        "standard/operators.tsv",
        "include/dit/operator.h",
        "src/judge/operators.inc",
    ):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    return tmp_path


def generate(folder, *words):
    command = [sys.executable, str(folder / "tools/gen_operators.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_generated_file_is_current(folder):
    assert generate(folder, "--check").returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "\nclone\t\tpointwise exact carries\n",
            "\nclone\t\tpointwize exact\n",
            "unknown trait 'pointwize'; the nearest valid one is 'pointwise'",
        ),
        (
            "\nargmax\t\texact ties\tdim=1 places=0\n",
            "\nargmax\t\texact ties\tdin=1\n",
            "unknown key 'din'; the nearest valid one is 'dim'",
        ),
        (
            "\nargmax\t\texact ties\tdim=1 places=0\n",
            "\nargmax\t\texact ties\tdim=x\n",
            "dim: 'x' is neither a place nor one of first, plane, volume",
        ),
        ("\nabs\tabsolute\t", "\nabs\tabsolute acos\t", "'acos' stands in line"),
        ("\nabs\tabsolute\t", "\nzabs\tabsolute\t", "rows are sorted by name"),
        ("\nclone\t\tpointwise exact carries\n", "\nclone\t\tmixes exact\n", "exact and mixes exclude each other"),
        ("\nclone\t\tpointwise exact carries\n", "\nclone\t\t\n", "no traits"),
        ("loose=0,1\t", "", "loose without loose="),
        ("draw=alpha", "draw=alfa", "'alfa' is no value; the nearest valid one is 'alpha'"),
    ],
)
def test_mistakes_are_named(folder, old, new, message):
    table = folder / "standard/operators.tsv"
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new, 1))
    result = generate(folder, "--check")
    assert result.returncode == 1
    assert message in result.stderr


def test_a_changed_row_makes_the_file_stale(folder):
    table = folder / "standard/operators.tsv"
    table.write_text(table.read_text().replace("\nclone\t\tpointwise exact carries\n", "\nclone\t\texact\n"))
    result = generate(folder, "--check")
    assert result.returncode == 1
    assert "operators.inc is not current" in result.stderr
    assert generate(folder).returncode == 0
    assert generate(folder, "--check").returncode == 0
