"""What one call cannot show: memory that threads share, and what calls leave behind. Each is seen, and named."""

import pytest
import torch
from ditorch.conform import pack, runner
from ditorch.conform.case import Case, RequiredArgument, TensorArgument
from test_conform_runner import compile_library, make_abs, run

pytestmark = pytest.mark.skipif(not runner.os.path.exists(runner.PROGRAM), reason="dit_conform is not built")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("odd") / "libdiopi_odd.so")


def make_threads(name, how):
    case = make_abs(name, torch.randn(5000, generator=torch.Generator().manual_seed(1)))
    case.tags["threads"] = how
    return case


@pytest.mark.parametrize("vendor", [None, "host"])
@pytest.mark.parametrize("how", ["threads", "shared"])
def test_memory_that_threads_share(tmp_path, library, how, vendor):
    path = tmp_path / "threads.pack"
    pack.write(path, [make_threads("threads", how)])
    assert run(path, library, vendor=vendor)["diopiAbs/threads"]["verdict"] == "pass"
    row = run(path, library, "shared", vendor=vendor)["diopiAbs/threads"]
    assert (row["verdict"], row["kind"]) == ("fail", "value") and "with 4 threads at once: out[" in row["reason"]


def test_alone_such_a_library_passes(tmp_path, library):
    path = tmp_path / "alone.pack"
    pack.write(path, [make_abs("alone", torch.randn(5000))])
    assert run(path, library, "shared")["diopiAbs/alone"]["verdict"] == "pass"


def test_threads_that_share_a_context_each_get_their_results(tmp_path):
    """diopiNonzero makes its result in the context: threads add to one list of scratch tensors."""
    x = torch.zeros(4000)
    x[::3] = 1.0
    case = Case("diopiNonzero/shared", "diopiNonzero", [RequiredArgument(torch.int64, x.nonzero()), TensorArgument(x)])
    case.tags.update(threads="shared", dtype="float32")
    path = tmp_path / "context.pack"
    pack.write(path, [case])
    assert run(path, "host")["diopiNonzero/shared"]["verdict"] == "pass"


def test_what_a_call_leaves_behind(tmp_path, library):
    path = tmp_path / "stale.pack"
    pack.write(path, [make_abs("long", torch.randn(8)), make_abs("longer", torch.randn(9))])
    rows = run(path, library, "stale")
    assert rows["diopiAbs/long"]["verdict"] == "pass" and rows["diopiAbs/longer"]["kind"] == "value"


def test_the_call_before_is_repeated(tmp_path, library):
    """A defect of calls with 12 elements after one with 12: the next case tells that the case before fails now."""
    path = tmp_path / "again.pack"
    pack.write(path, [make_abs("first", torch.randn(12)), make_abs("second", torch.randn(7))])
    rows = run(path, library, "third")
    row = rows["diopiAbs/second"]
    assert rows["diopiAbs/first"]["verdict"] == "pass" and (row["verdict"], row["kind"]) == ("fail", "state")
    assert "after this call diopiAbs/first, which passed before, fails: out[" in row["reason"]


def test_a_run_can_stop_at_the_first_failure(tmp_path, library):
    path = tmp_path / "stop.pack"
    pack.write(path, [make_abs(str(n), torch.randn(n)) for n in (3, 4, 5)])
    answer = runner.subprocess.run(
        [runner.PROGRAM, "run", "--library", library, "--pack", path, "--until-fail"],
        env={**runner.os.environ, "ODD_DEFECT": "value", "ODD_NUMEL": "4"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 1 and len(answer.stdout.splitlines()) == 2
