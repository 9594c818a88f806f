"""OpCapture: what is saved of a call and of its backward, where it lies, and that it is what the program computed."""

import gc
import os
import re
import threading
import time

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from captured import get_path, list_parts, load
from ditorch import _C
from op_tools import OpCapture
from op_tools.reader import CaseRef, find_cases, load_case, tagged
from torch import nn


@pytest.fixture
def capture(tmp_path):
    """capture(function, **options): run it under the tool; the captured calls in the order of their ids."""
    runs = []

    def run(function, **options):
        folder = tmp_path / f"results{len(runs)}"
        runs.append(folder)
        options = {"console": "off", "log": False, **options}
        tool = OpCapture(results=str(folder), **options)
        with tool:
            function()
        run.tool, run.folder = tool, folder
        if options.get("layout") == "packed":
            for name in sorted(os.listdir(folder)):
                _C.store_unpack(str(folder / name), str(folder))
        refs = [ref for ref in find_cases(folder) if ref.layout == "files"]
        return sorted(refs, key=lambda ref: ref.id)

    return run


def get(cases, name):
    """The one call of this operator."""
    found = [case for case in cases if f"/{name}/" in case.path]
    assert len(found) == 1, [case.path for case in cases]
    return found[0]


def equal(a, b):
    """A tensor of a file, on the CPU, and the one of the program."""
    assert a.dtype == b.dtype and a.device.type == "cpu" and a.shape == b.shape and a.stride() == b.stride()
    assert torch.equal(a.detach(), b.detach().cpu()) or bool(torch.isnan(b).any())


@pytest.mark.parametrize("compress", ["auto", "zstd", "zlib"])
def test_compressed_captures_are_those_that_are_not(capture, compress):
    torch.manual_seed(1)
    x = torch.randn(200, 300, device="cuda")

    def run():
        mask = (x > 0).to(torch.int64)
        torch.add(mask, mask.t().contiguous().t())
        torch.relu(x)[:, 1:].contiguous()

    plain = capture(run, layout="packed")
    size = sum(os.path.getsize(capture.folder / name) for name in os.listdir(capture.folder) if name.endswith("dpack"))
    try:
        packed = capture(run, layout="packed", compress=compress)
    except ValueError as error:
        pytest.skip(str(error))
    (container,) = (capture.folder / name for name in os.listdir(capture.folder) if name.endswith("dpack"))
    assert compress == "auto" or os.path.getsize(container) < size * 3 // 4
    in_place = sorted(find_cases(container), key=lambda ref: ref.id)
    assert len(plain) == len(packed) == len(in_place) > 3
    for one, two, three in zip(plain, packed, in_place, strict=True):
        assert list_parts(one) == list_parts(two)
        for what in list_parts(one):
            assert str(load(one, what)["args"]) == str(load(two, what)["args"])
        first, third = load_case(one), load_case(three)
        for a, b in zip((*first.args, first.output), (*third.args, third.output), strict=True):
            if isinstance(a, torch.Tensor):
                equal(a, b)


# Layout


def test_golden_paths(capture):
    x = torch.ones(2, device="cuda", requires_grad=True)
    before = time.time()
    cases = capture(lambda: torch.add(x, 1).sum().backward())
    case = get(cases, "torch.add")
    path = os.path.relpath(case.path, capture.folder)
    match = re.fullmatch(r"op_capture_results/torch\.add/(\d+)/(\d+)/(\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d)", path)
    assert match and int(match[1]) == os.getpid()
    stamp = time.mktime(time.strptime(match[3], "%Y-%m-%d-%H-%M-%S"))
    assert before - 2 <= stamp <= time.time()
    assert sorted(os.listdir(case.path)) == [
        f"{what}.pth{more}" for what in ("grad_inputs", "grad_outputs", "input", "output") for more in ("", ".json")
    ]
    for what in list_parts(case):
        assert load(case, what)["identifier"] == f"{match[2]}/{match[3]}/{what}"
        assert load(case, what)["name"] == "torch.add"


def test_every_file_is_read_by_plain_torch_load_and_by_mmap(capture):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36 * 4, 3)).cuda()
    x = torch.randn(2, 2, 8, 8, device="cuda")

    def step():
        F.cross_entropy(model(x), torch.tensor([0, 2], device="cuda")).backward()

    cases = capture(step)
    assert len(cases) >= 6
    for case in cases:
        for what in list_parts(case):
            path = get_path(case, what)
            assert set(torch.load(path, weights_only=True)) == {"name", "args", "kwargs", "identifier"}
            mapped = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            assert str(tagged.restore(mapped["args"])) == str(load(case, what)["args"])


def test_the_packed_layout_unpacks_to_the_same_files(capture):
    x = torch.arange(12.0, device="cuda").view(3, 4).requires_grad_()

    def run():
        y = torch.sort(x.t()[1:], dim=1).values * x[0, 0]
        y.sum().backward()

    plain, packed = capture(run), capture(run, layout="packed")
    assert [n for n in os.listdir(capture.folder) if n.endswith(".dpack")] == [f"capture-r0-p{os.getpid()}.dpack"]
    assert len(plain) == len(packed) > 4
    for a, b in zip(plain, packed, strict=True):
        assert list_parts(a) == list_parts(b) and a.operator == b.operator
        for what in list_parts(a):
            assert str(load(a, what)["args"]) == str(load(b, what)["args"])


def test_one_container_for_many_starts(capture, tmp_path):
    x = torch.ones(2, device="cuda")
    tool = OpCapture(results=str(tmp_path / "r"), layout="packed", console="off", log=False)
    for _ in range(3):
        with tool:
            torch.add(x, 1)
        with OpCapture(results=str(tmp_path / "r"), layout="packed", console="off", log=False):
            torch.mul(x, 1)
    assert len([n for n in os.listdir(tmp_path / "r") if n.endswith(".dpack")]) == 1


# What is saved


def test_an_in_place_operator_keeps_its_inputs_as_they_were(capture):
    x = torch.arange(4.0, device="cuda")
    cases = capture(lambda: (x.add_(1), torch.exp(x, out=x), x.__setitem__(0, 7.0)))
    add, exp, item = (get(cases, f"torch.{n}") for n in ("Tensor.add_", "exp", "Tensor.__setitem__"))
    assert load(add, "input")["args"][0].tolist() == [0, 1, 2, 3]
    assert load(add, "output")["args"][0].tolist() == [1, 2, 3, 4]
    assert load(exp, "input")["kwargs"]["out"].tolist() == [1, 2, 3, 4]
    assert load(exp, "input")["args"][0] is not None
    assert load(exp, "output")["args"][0].tolist() == torch.arange(1, 5).float().exp().tolist()
    assert load(item, "input")["args"][1:] == (0, 7.0) and load(item, "output")["args"] == (None,)


def test_an_alias_between_an_argument_and_out_survives(capture):
    x = torch.arange(4.0, device="cuda")
    item = load(get(capture(lambda: torch.exp(x, out=x)), "torch.exp"), "input")
    assert item["args"][0] is item["kwargs"]["out"]


def test_tensors_by_keyword_and_in_containers(capture):
    x = torch.arange(4.0, device="cuda")
    cases = capture(
        lambda: (torch.add(input=x, other=x, alpha=2), torch.cat([x, x[1:]], dim=0), x[[0, 2]], x[..., None])
    )
    add = load(get(cases, "torch.add"), "input")
    assert add["args"] == () and add["kwargs"]["input"] is add["kwargs"]["other"] and add["kwargs"]["alpha"] == 2
    cat = load(get(cases, "torch.cat"), "input")
    assert [t.tolist() for t in cat["args"][0]] == [[0, 1, 2, 3], [1, 2, 3]] and cat["kwargs"] == {"dim": 0}
    keys = [load(c, "input")["args"][1] for c in cases if c.operator.endswith("__getitem__")]
    assert keys[0] == slice(1, None) and keys[1] == [0, 2] and keys[2] == (..., None)


def test_factories_and_views(capture):
    x = torch.arange(12.0, device="cuda").view(3, 4)
    cases = capture(lambda: (torch.ones(2, 3, device="cuda"), x.T, x[1:, ::2]))
    assert load(get(cases, "torch.ones"), "input")["args"] == (2, 3)
    equal(load(get(cases, "torch.ones"), "output")["args"][0], torch.ones(2, 3, device="cuda"))
    equal(load(get(cases, "torch.Tensor.__getitem__"), "output")["args"][0], x[1:, ::2])


def test_as_strided_can_be_run_again(capture):
    """It reads memory beyond the tensor that it is given."""
    x = torch.arange(20.0, device="cuda")
    item = load(get(capture(lambda: torch.as_strided(x[15:17], (3, 2), (4, 1), 2)), "torch.as_strided"), "input")
    assert torch.as_strided(*item["args"], **item["kwargs"]).tolist() == [[2, 3], [6, 7], [10, 11]]


def test_return_types_come_back(capture):
    x = torch.randn(3, 4, device="cuda")
    cases = capture(lambda: (torch.max(x, dim=1), torch.topk(x, 2)))
    got = load(get(cases, "torch.max"), "output")["args"][0]
    assert type(got) is torch.return_types.max and torch.equal(got.values, x.max(dim=1).values.cpu())


def test_a_failing_operator_keeps_its_inputs_and_the_error(capture):
    x = torch.arange(6.0, device="cuda").view(2, 3)

    def run():
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            torch.mm(x, x)

    case = get(capture(run), "torch.mm")
    assert list_parts(case) == ("error", "input")
    kind, text = load(case, "error")["args"]
    assert kind == "RuntimeError" and "cannot be multiplied" in text
    equal(load(case, "input")["args"][1], x)
    assert capture.tool.describe()["errors"] == 1


def test_outputs_and_gradients_can_be_left_out(capture):
    x = torch.ones(2, device="cuda", requires_grad=True)
    assert list_parts(get(capture(lambda: torch.exp(x).sum().backward(), backward=False), "torch.exp")) == (
        "input",
        "output",
    )
    assert list_parts(get(capture(lambda: torch.exp(x), outputs=False), "torch.exp")) == ("input",)


def test_lists_choose_operators(capture):
    x = torch.ones(2, device="cuda")
    cases = capture(
        lambda: (torch.add(x, x), torch.mul(x, x), torch.sub(x, x)), list="torch.(add|mul)", disable_list="torch.mul"
    )
    assert [case.operator for case in cases] == ["torch.add"]


@pytest.mark.parametrize("level", ["torch", "aten"])
def test_both_levels(capture, level):
    x = torch.ones(2, 3, device="cuda")
    cases = capture(lambda: F.linear(x, x), level=level)
    assert any("linear" in case.operator or "mm" in case.operator for case in cases)
    for case in cases:
        for what in list_parts(case):
            load(case, what)


# The snapshot


def test_snapshot_taken_by_reference_storage_reused_before_async_write(capture):
    """Inputs change, and memory is used again, while earlier items wait for the writer."""
    x = torch.zeros(5000, device="cuda")

    def run():
        for i in range(120):
            y = torch.mul(x, 2)
            x.fill_(i + 1)
            y.fill_(-1)
            del y

    for layout in ("files", "packed"):
        x.zero_()
        cases = capture(run, list="torch.mul", layout=layout)
        assert len(cases) == 120
        for i, case in enumerate(cases):
            a, y = load(case, "input")["args"][0], load(case, "output")["args"][0]
            assert bool((a == i).all()) and bool((y == 2 * i).all()), i


def test_a_change_of_one_byte_is_seen(capture):
    """Snapshots of unchanged memory are shared; what differs in the last element is not unchanged."""
    x = torch.zeros(4096, device="cuda")

    def run():
        for i in range(6):
            torch.neg(x)
            if i % 2:
                x[-1] = i

    cases = capture(run, list="torch.neg")
    assert [load(c, "input")["args"][0][-1].item() for c in cases] == [0, 0, 1, 1, 3, 3]


@pytest.mark.parametrize("numel", [0, 1, 511, 512, 513, 70000, 300000])
@pytest.mark.parametrize("staging", [True, False])
def test_sizes_and_ways_of_copying(tmp_path, numel, staging):
    """Small, large, and by torch's own operators (as on devices that only torch can read)."""
    tool = _C.Tool("capture", {"results": str(tmp_path), "staging": staging})
    tool.set_matcher(lambda name: name == "torch.mul")
    base = torch.arange(2 * numel + 4, dtype=torch.float32, device="cuda")
    x = base[3 : 3 + 2 * numel : 2]
    tool.start()
    torch.mul(x, x[: numel // 2].sum())
    tool.stop()
    (case,) = find_cases(tmp_path)
    equal(load(case, "input")["args"][0], x)
    size = os.path.getsize(get_path(case, "input"))
    assert size < max(2 * numel - 1, 0) * 4 + 4096


def test_work_queued_on_a_stream_is_waited_for(capture):
    x = torch.randn(256, 256, device="cuda")
    stream = torch.cuda.Stream()

    def run():
        with torch.cuda.stream(stream):
            y = x
            for _ in range(10):
                y = y @ x / 16
            torch.neg(y)

    cases = capture(run, list="torch.neg")
    torch.cuda.synchronize()
    a, b = (load(cases[0], what)["args"][0] for what in ("input", "output"))
    assert torch.equal(-a, b) and bool(a.isfinite().all())


# Backward


def test_gradients_are_those_of_autograd(capture):
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    w = torch.randn(5, 4, device="cuda", requires_grad=True)
    seed = torch.randn(3, 5, device="cuda")
    case = get(capture(lambda: F.linear(x, w).backward(seed)), "torch.nn.functional.linear")
    inputs, outputs = load(case, "grad_inputs")["args"], load(case, "grad_outputs")["args"]
    equal(outputs[0], seed)
    equal(inputs[0], x.grad)
    equal(inputs[1].contiguous(), w.grad.contiguous())


def test_gradient_of_composite_op_taken_at_last_node(capture):
    """The whole operator's gradient, not that of its last autograd node."""
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    case = get(capture(lambda: F.normalize(x, dim=1).pow(3).sum().backward()), "torch.nn.functional.normalize")
    (gradient,) = load(case, "grad_inputs")["args"]
    torch.testing.assert_close(gradient, x.grad.cpu())


def test_one_tensor_feeding_several_ops_gave_wrong_gradients(capture):
    x = torch.randn(4, device="cuda", requires_grad=True)
    cases = capture(lambda: (torch.exp(x) + torch.sin(x)).sum().backward())
    torch.testing.assert_close(load(get(cases, "torch.exp"), "grad_inputs")["args"][0], x.detach().exp().cpu())
    torch.testing.assert_close(load(get(cases, "torch.sin"), "grad_inputs")["args"][0], x.detach().cos().cpu())


@pytest.mark.parametrize(
    "name,function,outputs",
    [
        ("torch.functional.split", lambda x: torch.split(x, 2), 2),
        ("torch.chunk", lambda x: torch.chunk(x, 2), 2),
        ("torch.unbind", lambda x: torch.unbind(x), 4),
        ("torch.sort", lambda x: torch.sort(x, dim=0), 2),
        ("torch.max", lambda x: torch.max(x, dim=0), 2),
    ],
)
def test_c5_several_outputs_save_their_gradients_once(capture, name, function, outputs):
    x = torch.randn(4, 3, device="cuda", requires_grad=True)

    def run():
        parts = [part for part in function(x) if part.requires_grad]
        sum((i + 1) * part.sum() for i, part in enumerate(parts)).backward()

    case = get(capture(run), name)
    assert list_parts(case) == ("grad_inputs", "grad_outputs", "input", "output")
    assert len(load(case, "grad_outputs")["args"]) == outputs
    torch.testing.assert_close(load(case, "grad_inputs")["args"][0], x.grad.cpu())


def test_c6_calls_that_return_their_input_have_no_gradients(capture):
    x = torch.randn(4, device="cuda", requires_grad=True)

    def run():
        y = torch.exp(x)
        z = F.dropout(y.contiguous().to(torch.float32), training=False)
        z.sum().backward()

    cases = capture(run)
    assert list_parts(get(cases, "torch.Tensor.contiguous")) == ("input", "output")
    assert list_parts(get(cases, "torch.Tensor.to")) == ("input", "output")
    assert list_parts(get(cases, "torch.exp")) == ("grad_inputs", "grad_outputs", "input", "output")


def test_retain_graph_saves_each_round(capture):
    x = torch.ones(2, device="cuda", requires_grad=True)

    def run():
        y = torch.mul(x, 3)
        y.backward(torch.ones(2, device="cuda"), retain_graph=True)
        y.backward(torch.full((2,), 2.0, device="cuda"))

    case = get(capture(run), "torch.mul")
    assert list_parts(case) == ("grad_inputs", "grad_inputs_1", "grad_outputs", "grad_outputs_1", "input", "output")
    assert load(case, "grad_inputs")["args"][0].tolist() == [3, 3]
    assert load(case, "grad_inputs_1")["args"][0].tolist() == [6, 6]
    assert load(case, "grad_outputs_1")["identifier"].endswith("/grad_outputs_1")


def test_backward_after_the_block_is_saved(capture, tmp_path):
    x = torch.ones(2, device="cuda", requires_grad=True)
    tool = OpCapture(results=str(tmp_path / "r"), console="off", log=False)
    with tool:
        y = torch.exp(x)
    y.sum().backward()
    tool.flush()
    case = get(list(find_cases(tmp_path / "r")), "torch.exp")
    torch.testing.assert_close(load(case, "grad_inputs")["args"][0], x.grad.cpu())


def test_recompute_runs_ops_twice_under_the_same_name(capture):
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, device="cuda", requires_grad=True)
    cases = capture(lambda: checkpoint(torch.tanh, x, use_reentrant=False).sum().backward())
    tanh = [case for case in cases if case.operator == "torch.tanh"]
    assert len(tanh) == 2 and len({case.path for case in tanh}) == 2


# The program is not disturbed


def test_losses_are_the_same_with_and_without(tmp_path):
    def train():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        x, losses = torch.randn(4, 8, device="cuda"), []
        for _ in range(5):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    bare = train()
    for layout in ("files", "packed"):
        with OpCapture(results=str(tmp_path), layout=layout, console="off", log=False):
            assert train() == bare


def test_threads(tmp_path):
    """Calls of several threads at once, each with its own values."""
    problems = []

    def work(number):
        try:
            x = torch.full((700,), float(number), device="cuda")
            for _ in range(20):
                torch.mul(x, number)
        except Exception as error:
            problems.append(error)

    tool = OpCapture(results=str(tmp_path), threads="all", list="torch.mul", console="off", log=False)
    with tool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems
    seen = []
    for case in find_cases(tmp_path):
        x, number = load(case, "input")["args"]
        assert bool((x == number).all()) and bool((load(case, "output")["args"][0] == number * number).all())
        seen.append(number)
    assert sorted(seen) == sorted(list(range(6)) * 20)


def test_starting_and_stopping_leaves_nothing_behind(tmp_path):
    x = torch.ones(3, device="cuda", requires_grad=True)

    def once():
        with OpCapture(results=str(tmp_path), layout="packed", console="off", log=False):
            torch.mul(x, 2).sum().backward()

    def state():
        gc.collect()
        return len(gc.get_objects()), threading.active_count(), len(os.listdir("/proc/self/task"))

    for _ in range(20):
        once()
    before = state()
    for _ in range(100):
        once()
    after = state()
    assert after[0] - before[0] < 50 and after[1:] == before[1:]


def test_bad_options_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        OpCapture(results=str(tmp_path / "file"), log=False).start()
    with pytest.raises(ValueError, match="layout"):
        OpCapture(results=str(tmp_path), layout="zip").start()
    for options, words in (
        ({"layout": "zip"}, "'files', 'packed'"),
        ({"cap_bytes": -1}, "0 or more"),
        ({"results": ""}, "path of a folder"),
        ({"pressure": 3}, "'block', 'drop'"),
    ):
        with pytest.raises(ValueError, match=words):
            _C.Tool("capture", options)


def test_cases_are_sorted_by_number(tmp_path):
    for number in (10, 9, 100):
        os.makedirs(tmp_path / "torch.add" / str(number))
        (tmp_path / "torch.add" / str(number) / "input.pth").write_bytes(b"")
    found = list(find_cases(tmp_path))
    assert [os.path.basename(case.path) for case in found] == ["9", "10", "100"]
    assert isinstance(found[0], CaseRef) and list_parts(found[0]) == ("input",)


def test_what_decides_a_result_besides_the_arguments_is_kept(tmp_path):
    """Autocast, deterministic algorithms and the generator of an operator that draws; a plain call has none of it."""
    x = torch.randn(3, 4, device="cuda")
    state = torch.cuda.get_rng_state()
    with OpCapture(results=str(tmp_path), console="off", log=False):
        torch.exp(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            torch.mm(x, x.t())
        torch.use_deterministic_algorithms(True)
        try:
            F.dropout(x, 0.5)
        finally:
            torch.use_deterministic_algorithms(False)
    found = {case.name: case.meta for case in map(load_case, find_cases(tmp_path))}
    keys = ("autocast", "deterministic", "random")
    assert not any(key in found["torch.exp"] for key in keys)
    assert found["torch.mm"]["autocast"] == {"cuda": {"enabled": True, "dtype": "bfloat16"}}
    assert found["torch.nn.functional.dropout"]["deterministic"] is True
    assert torch.equal(found["torch.nn.functional.dropout"]["random"]["cuda:0"], state)
    assert "random" not in found["torch.mm"]
