"""The backward side of the engine: gradients of every call, one event per call and round, nothing left behind.

The truth is torch.autograd.grad: of the whole graph for the gradients of outputs, of each call replayed alone for those
of its inputs.
"""

import gc
import os
import random
import threading
import weakref

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from ditorch import _C
from op_tools import engine_patches


class Recorder:
    """A tool that keeps every event."""

    def __init__(self, callback=None):
        self.calls = {}
        self.begins = []
        self.ends = []
        self.callback = callback
        recorder = weakref.ref(self)  # the tool outlives us where a graph does
        self.tool = _C.backward_probe(lambda kind, event: recorder() and recorder().tell(kind, event))

    def tell(self, kind, event):
        if self.callback:
            self.callback(kind, event)
        if kind == "call":
            self.calls[event["id"]] = event
        else:
            (self.begins if kind == "begin" else self.ends).append(event)

    def __enter__(self):
        engine_patches.install()
        self.tool.start()
        return self

    def __exit__(self, *error):
        self.tool.stop()
        engine_patches.remove()

    def kept(self):
        return self.tool.describe()["kept"]

    def of(self, name):
        """Ends of the calls whose name ends so, in the order they came."""
        return [event for event in self.ends if event["name"].split(".")[-1] == name]

    def one(self, name):
        events = self.of(name)
        assert len(events) == 1, (name, [event["name"] for event in self.ends])
        return events[0]


def assert_same(mine, wanted, what=""):
    assert (mine is None) == (wanted is None), (what, mine, wanted)
    if wanted is not None:
        torch.testing.assert_close(mine, wanted.detach(), rtol=1e-12, atol=1e-12, msg=lambda text: f"{what}: {text}")


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


@pytest.fixture(params=["cpu", "cuda"])
def place(request):
    return request.param


def leaf(*shape, place="cpu"):
    return torch.randn(*shape, dtype=torch.float64, device=place).requires_grad_()


def composite(function):
    """A Python function that a mode sees as one call."""

    def entry(*args):
        if torch.overrides.has_torch_function(args):
            return torch.overrides.handle_torch_function(entry, args, *args)
        return function(*args)

    entry.__name__ = entry.__qualname__ = function.__name__
    return entry


# Random graphs against replay

MHA = {
    "embed_dim_to_check": 4,
    "num_heads": 2,
    "in_proj_bias": None,
    "bias_k": None,
    "bias_v": None,
    "add_zero_attn": False,
    "dropout_p": 0.0,
    "out_proj_bias": None,
    "training": True,
}


def attention(q, k, w, o):
    return F.multi_head_attention_forward(q, k, k, in_proj_weight=w, out_proj_weight=o, need_weights=True, **MHA)


# name -> (number of (3, 4) inputs, function of them and the (4, 4) weights); each is one operator call
OPERATIONS = {
    "add": (2, lambda t, w: torch.add(t[0], t[1], alpha=2)),
    "add_same": (1, lambda t, w: torch.add(t[0], t[0])),
    "mul": (2, lambda t, w: torch.mul(t[0], t[1])),
    "mul_same": (1, lambda t, w: torch.mul(t[0], t[0])),
    "scalar": (1, lambda t, w: torch.sub(t[0], 0.5)),
    "broadcast": (1, lambda t, w: torch.mul(t[0], w[3])),
    "linear": (1, lambda t, w: F.linear(t[0], w[0], w[3])),
    "linear_shared": (1, lambda t, w: F.linear(t[0], w[0])),
    "matmul": (1, lambda t, w: torch.matmul(t[0], w[1])),
    "einsum": (1, lambda t, w: torch.einsum("ij,kj->ik", t[0], w[1])),
    "layer_norm": (1, lambda t, w: F.layer_norm(t[0], (4,), w[3], w[3])),
    "normalize": (1, lambda t, w: F.normalize(t[0], dim=1)),
    "softmax": (1, lambda t, w: F.softmax(t[0], dim=-1)),
    "gelu": (1, lambda t, w: F.gelu(t[0])),
    "cat": (2, lambda t, w: torch.cat([t[0], t[1], t[0]])),
    "stack": (2, lambda t, w: torch.stack((t[0], t[1]), dim=1)),
    "split": (1, lambda t, w: torch.split(t[0], 2, dim=1)),
    "chunk": (1, lambda t, w: torch.chunk(t[0], 3)),
    "unbind": (1, lambda t, w: torch.unbind(t[0])),
    "sort": (1, lambda t, w: torch.sort(t[0], dim=1)),
    "max": (1, lambda t, w: torch.max(t[0], dim=1)),
    "qr": (0, lambda t, w: torch.linalg.qr(w[0])),
    "where": (2, lambda t, w: torch.where(torch.ones(3, 4, dtype=torch.bool, device=t[0].device), t[0], t[1])),
    "expand": (1, lambda t, w: t[0].expand(2, 3, 4)),
    "transpose": (1, lambda t, w: t[0].transpose(0, 1)),
    "index": (1, lambda t, w: torch.index_select(t[0], 0, torch.tensor([0, 2, 0], device=t[0].device))),
    "getitem": (1, lambda t, w: t[0][1:, ::2]),
    "cross_entropy": (1, lambda t, w: F.cross_entropy(t[0], torch.tensor([0, 1, 3], device=t[0].device))),
    "attention": (2, lambda t, w: attention(t[0], t[1], w[2], w[0])),
    "var_mean": (1, lambda t, w: torch.var_mean(t[0], dim=1)),
    "contiguous": (1, lambda t, w: t[0].contiguous()),
    "dropout_eval": (1, lambda t, w: F.dropout(t[0], training=False)),
    "in_place_add": (2, lambda t, w: t[0].add_(t[1])),
    "in_place_mul": (1, lambda t, w: t[0].mul_(w[3])),
    "in_place_relu": (1, lambda t, w: F.relu(t[0], inplace=True)),
    "in_place_set": (2, lambda t, w: t[0].__setitem__(slice(0, 3), t[1])),
    "in_place_copy": (2, lambda t, w: t[0].copy_(t[1])),
}
IN_PLACE = {name for name in OPERATIONS if name.startswith("in_place")}
NO_EVENT = {"contiguous", "dropout_eval"}


class Graph:
    """A random graph: what each call got, what it gave, and its event's id."""

    def __init__(self, seed, place, recorder):
        self.random = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)

        def make(*shape):
            return torch.randn(*shape, dtype=torch.float64, generator=generator).to(place).requires_grad_()

        self.weights = [make(4, 4), make(4, 4), make(12, 4), make(4)]
        self.pool = [make(3, 4), make(3, 4)]
        self.leaves = self.weights + self.pool
        self.recorder = recorder
        self.steps = []
        self.loose = []  # outputs of other shapes

    def step(self):
        name = self.random.choice(sorted(OPERATIONS))
        count, function = OPERATIONS[name]
        inputs = [self.random.choice(self.pool) for _ in range(count)]
        if name in IN_PLACE:
            inputs[0] = inputs[0] * 1.0  # what autograd saved elsewhere must not change
        everything = inputs + self.weights
        before = [tensor.detach().clone() for tensor in everything]
        known = set(self.recorder.calls)
        result = function(inputs, self.weights)
        call = max(set(self.recorder.calls) - known)
        outputs = tensors_of(result) if result is not None else [inputs[0]]
        self.steps.append((name, call, everything, before, len(inputs), outputs))
        for output in outputs:
            if not output.is_floating_point():
                continue
            if output.shape == (3, 4):
                self.pool.append(output)
            else:
                self.loose.append(output)

    def loss(self):
        taken = [tensor for tensor in self.pool[2:] + self.loose if self.random.random() < 0.7 and tensor.requires_grad]
        return sum((tensor * tensor).sum() for tensor in taken + self.weights[:1])

    def replay(self, index, grad_outputs):
        """Gradients of this call alone for everything it could see, and the outputs."""
        name, _, everything, before, count, _ = self.steps[index]
        fresh = {}
        for tensor, value in zip(everything, before, strict=True):
            if id(tensor) not in fresh:
                fresh[id(tensor)] = value.clone().requires_grad_(tensor.requires_grad)
        leaves = [fresh[id(tensor)] for tensor in everything]
        used = {id(tensor): tensor.clone() if name in IN_PLACE else tensor for tensor in leaves}
        arguments = [used[id(tensor)] for tensor in leaves]
        result = OPERATIONS[name][1](arguments[:count], arguments[count:])
        outputs = tensors_of(result) if result is not None else [arguments[0]]
        pairs = [(o, g) for o, g in zip(outputs, grad_outputs, strict=False) if g is not None and o.requires_grad]
        wanted = [tensor for tensor in leaves if tensor.requires_grad]
        grads = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
        by_id = dict(zip([id(tensor) for tensor in wanted], grads, strict=True))
        return {id(tensor): by_id.get(id(fresh[id(tensor)])) for tensor in everything}


@pytest.mark.parametrize("seed", range(12))
def test_random_graph_gradients(seed, place):
    print("seed", seed)
    with Recorder() as recorder:
        graph = Graph(seed, place, recorder)
        for _ in range(25):
            graph.step()
        loss = graph.loss()
        loss.backward(retain_graph=True)
    ends = {event["id"]: event for event in recorder.ends}
    assert len(ends) == len(recorder.ends), "an event came twice"
    checked = 0
    for index, (name, call, everything, _, _, outputs) in enumerate(graph.steps):
        if name in NO_EVENT:
            assert call not in ends, name
            continue
        event = ends.get(call)
        # What autograd itself says about the outputs; a tensor that was changed later has another history now.
        later = {id(o) for step in graph.steps[index + 1 :] if step[0] in IN_PLACE for o in step[5]}
        floats = [o for o in outputs if o.requires_grad and id(o) not in later]
        truth = torch.autograd.grad(loss, floats, retain_graph=True, allow_unused=True) if floats else ()
        if all(grad is None for grad in truth):
            assert event is None or later, name
            continue
        assert event is not None, name
        for output, grad in zip(floats, truth, strict=True):
            position = next(i for i, o in enumerate(outputs) if o is output)
            assert_same(event["grad_outputs"][position], grad, f"{name} grad_outputs[{position}]")
        wanted = graph.replay(index, event["grad_outputs"])
        seen = {
            id(tensor): grad
            for tensor, grad in zip(recorder.calls[call]["tensors"], event["grad_inputs"], strict=False)
        }
        for tensor in everything:
            if id(tensor) in seen:
                assert_same(seen[id(tensor)], wanted[id(tensor)], f"{name} grad_inputs")
                checked += wanted[id(tensor)] is not None
    assert checked >= 8


@pytest.mark.parametrize("seed", range(3))
def test_random_graph_is_not_changed(seed, place):
    """The user's gradients and graph, bit by bit, with and without the tool."""
    print("seed", seed)

    class Nobody:
        calls = {0: None}

    def run(recorder):
        graph = Graph(seed, place, recorder)
        for _ in range(25):
            name = graph.random.choice(sorted(OPERATIONS))
            count, function = OPERATIONS[name]
            inputs = [graph.random.choice(graph.pool) for _ in range(count)]
            if name in IN_PLACE:
                inputs[0] = inputs[0] * 1.0
            result = function(inputs, graph.weights)
            for output in tensors_of(result):
                if output.is_floating_point():
                    (graph.pool if output.shape == (3, 4) else graph.loose).append(output)
        loss = graph.loss()
        loss.backward()
        names = [tensor.grad_fn.name() if tensor.grad_fn else None for tensor in graph.pool + graph.loose]
        return loss.detach(), [tensor.grad for tensor in graph.leaves], names

    plain = run(Nobody())
    with Recorder() as recorder:
        watched = run(recorder)
    assert torch.equal(plain[0], watched[0])
    assert plain[2] == watched[2]
    for left, right in zip(plain[1], watched[1], strict=True):
        assert (left is None and right is None) or torch.equal(left, right)
    assert len(recorder.ends) > 10


# One event per call


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.split(x, 2, dim=1),
        lambda x: torch.chunk(x, 2),
        lambda x: torch.unbind(x),
        lambda x: torch.sort(x, dim=1),
        lambda x: torch.linalg.qr(x),
        lambda x: torch.linalg.svd(x, full_matrices=False),
        lambda x: torch.var_mean(x, dim=0),
        lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    ],
    ids=["split", "chunk", "unbind", "sort", "qr", "svd", "var_mean", "meshgrid"],
)
def test_c5_several_outputs_give_one_event(function, place):
    x = leaf(4, 4, place=place)
    with Recorder() as recorder:
        outputs = [t for t in tensors_of(function(x)) if t.is_floating_point()]
        sum(o.sum() for o in outputs).backward()
    call = max(i for i, c in recorder.calls.items() if len(tensors_of(c["result"])) > 1)
    events = [event for event in recorder.ends if event["id"] == call]
    assert len(events) == 1 and events[0]["complete"]
    assert [g.shape for g in events[0]["grad_outputs"] if g is not None] == [o.shape for o in outputs]


def test_c5_lstm_and_mha_give_one_event(place):
    lstm = torch.nn.LSTM(4, 5, num_layers=2, batch_first=True).to(place)
    x = torch.randn(2, 3, 4, device=place, requires_grad=True)
    mha = torch.nn.MultiheadAttention(4, 2, batch_first=True).to(place)
    with Recorder() as recorder:
        out, (h, _) = lstm(x)
        attended, _ = mha(x, x, x)
        (out.sum() + h.sum() + attended.sum()).backward()
    event = recorder.one("lstm")
    assert event["complete"]
    assert event["grad_outputs"][0] is not None and event["grad_outputs"][2] is None  # c was not used
    for name, parameter in lstm.named_parameters():
        at = [i for i, t in enumerate(recorder.calls[event["id"]]["tensors"]) if t is parameter]
        assert torch.equal(event["grad_inputs"][at[0]], parameter.grad), name
    event = recorder.one("multi_head_attention_forward")
    assert event["complete"] and event["grad_outputs"][1] is None
    assert torch.equal(event["grad_inputs"][0], event["grad_inputs"][1])  # query, key and value are one tensor


def test_c6_result_is_input():
    x = leaf(3, 4)
    with Recorder() as recorder:
        y = x * 2
        before = recorder.kept()
        for same in (y.contiguous(), y.to(torch.float64), F.dropout(y, training=False), torch.broadcast_tensors(y)[0]):
            assert same is y or same.shape == y.shape
        assert recorder.kept() == before
        y.sum().backward()
    assert sorted(event["name"] for event in recorder.ends) == ["torch.Tensor.mul", "torch.Tensor.sum"]


def number_as_other_thread(tensor):
    """Sequence numbers are per thread: the nodes of another thread may have any number, here one of the future."""
    tensor.grad_fn._set_sequence_nr(torch._C._autograd._get_sequence_nr() + 1_000_000)


@pytest.mark.parametrize("foreign", [False, True], ids=["own_thread", "other_thread"])
def test_c6_composite_that_returns_its_input(foreign):
    x = leaf(3)
    y = x + 0
    if foreign:
        number_as_other_thread(y)

    @composite
    def both(a):
        return a, torch.mul(a, 2)

    with Recorder() as recorder:
        same, other = both(y)
        assert same is y
        same.sum().backward(retain_graph=True)
        assert not recorder.of("both")
        (same.sum() + other.sum()).backward()
    event = recorder.one("both")
    assert event["grad_outputs"][0] is None and event["grad_outputs"][1].tolist() == [1.0] * 3
    assert event["grad_inputs"][0].tolist() == [2.0] * 3
    assert event["complete"]


def test_c6_composite_that_returns_an_older_tensor():
    x = leaf(3)
    old = x + 0

    @composite
    def both(a):
        return old, torch.mul(a, 2)

    with Recorder() as recorder:
        (sum(both(x)) * 3).sum().backward()
    event = recorder.one("both")
    assert event["grad_outputs"][0] is None and event["grad_inputs"][0].tolist() == [6.0] * 3


def test_hidden_tensors_are_not_ours():
    x = leaf(4)
    a, b = torch.split(x, 2)
    number_as_other_thread(a)

    @composite
    def mixed(first, whole):
        hidden = torch.sin(b)
        return hidden, torch.mul(first, b) + whole[:2]

    with Recorder() as recorder:
        left, right = mixed(a, x)
        (left.sum() + right.sum()).backward()
    event = recorder.one("mixed")  # once, although the node of `hidden` runs after those of the inputs
    assert_same(event["grad_inputs"][0], b)
    assert event["grad_inputs"][1].tolist() == [1.0, 1.0, 0.0, 0.0]  # nothing that went through a or b


def test_c7_hooks_are_guarded():
    x = leaf(3)
    counts = []

    def callback(kind, event):
        if kind != "call":
            counts.append(event["grad_outputs"][0].abs().sum().item())  # torch calls of a tool at work
            with torch.enable_grad():
                (torch.ones(2, requires_grad=True) * 2).sum().backward()

    with Recorder(callback) as recorder:
        (x * 2).sum().backward()
    assert len(counts) == 4
    assert [c["name"] for c in recorder.calls.values()] == ["torch.Tensor.mul", "torch.Tensor.sum"]
    assert len(recorder.ends) == 2


def test_t1_retain_graph_counts_rounds():
    x = leaf(3)
    with Recorder() as recorder:
        y = torch.split(x * 2, 1)
        loss = y[0].sum() + y[1].sum()
        for _ in range(3):
            loss.backward(retain_graph=True)
    for name in ("mul", "split"):
        assert [event["round"] for event in recorder.of(name)] == [0, 1, 2]
        assert [e["round"] for e in recorder.begins if e["name"].endswith(name)] == [0, 1, 2]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.normalize(x, dim=1),
        lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2], device=x.device)),
        lambda x: F.mse_loss(x, x.detach() + 1),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: F.group_norm(x, 2),
        lambda x: F.cosine_similarity(x, x * x, dim=1),
    ],
    ids=["normalize", "cross_entropy", "mse_loss", "sdpa", "group_norm", "cosine"],
)
def test_trap_gradient_of_composite_at_last_node(function, place):
    x = leaf(3, 4, place=place)
    with Recorder() as recorder:
        y = function(x)
        y.backward(torch.ones_like(y))
    total = torch.zeros_like(x)
    for event in recorder.ends:  # everything that reached the leaf came through a call that had it as an argument
        for i, tensor in enumerate(recorder.calls[event["id"]]["tensors"]):
            if tensor is x and event["grad_inputs"][i] is not None:
                total = total + event["grad_inputs"][i]
                break
    assert_same(total, x.grad)


def test_trap_one_tensor_feeding_several_ops(place):
    x, y, z = leaf(3, place=place), leaf(3, place=place), leaf(3, place=place)
    with Recorder() as recorder:
        h = x * 3
        (torch.mul(h, y).sum() + torch.sub(h, z).sum() + torch.div(h, 2).sum()).backward()
    assert_same(recorder.one("sub")["grad_inputs"][0], torch.ones_like(x))
    assert_same(recorder.one("div")["grad_inputs"][0], torch.full_like(x, 0.5))
    own = [e for e in recorder.of("mul") if recorder.calls[e["id"]]["tensors"][0] is h]
    assert len(own) == 1
    assert_same(own[0]["grad_inputs"][0], y)
    assert_same(own[0]["grad_inputs"][1], h)


def test_trap_hooks_keep_identity_and_in_place():
    x = leaf(3)
    with Recorder():
        y = torch.split(x * 2, 1)
        assert type(y[0].grad_fn).__name__.startswith("SplitBackward")
        z = x * 2
        z.add_(1)  # a module's full backward hook forbids this
        same = z
        z += 1
        assert z is same
        (z.sum() + y[0].sum()).backward()
    assert x.grad.tolist() == [4, 2, 2]


# In place, views, bases


def test_in_place_on_view_tells_the_base(place):
    x, w = leaf(3, 4, place=place), leaf(4, place=place)
    with Recorder() as recorder:
        h = x * 1
        v = h[0]
        v.mul_(w)
        (h * h).sum().backward()
    event = recorder.one("mul_")
    tensors = recorder.calls[event["id"]]["tensors"]
    assert [t is v or t is w for t in tensors] == [True, True]
    assert len(event["grad_inputs"]) == 3 and len(event["grad_outputs"]) == 2
    assert_same(event["grad_outputs"][1], 2 * h)
    assert_same(event["grad_inputs"][1], (2 * h[0] * x[0]))
    base = 2 * h.detach().clone()
    base[0] *= w.detach()
    assert_same(event["grad_inputs"][2], base)
    assert_same(event["grad_inputs"][2], x.grad)


def test_in_place_view_of_constant_base():
    w = leaf(4)
    buffer = torch.zeros(3, 4, dtype=torch.float64)
    with Recorder() as recorder:
        buffer[1].add_(w)
        buffer[2] = w * 2
        buffer.sum().backward()
    assert_same(recorder.one("add_")["grad_inputs"][1], torch.ones(4, dtype=torch.float64))
    event = recorder.one("__setitem__")
    at = [i for i, t in enumerate(recorder.calls[event["id"]]["tensors"]) if t is not buffer]
    assert_same(event["grad_inputs"][at[0]], torch.ones(4, dtype=torch.float64))
    assert w.grad.tolist() == [3.0] * 4


def test_in_place_functions_without_a_result():
    x, y = leaf(3), leaf(3)
    with Recorder() as recorder:
        a, b = x * 1, y * 1
        torch._foreach_mul_([a, b], [a.detach() * 0 + 2, b.detach() * 0 + 3])
        (a.sum() + b.sum()).backward()
    event = recorder.one("_foreach_mul_")
    assert event["complete"]
    assert event["grad_inputs"][0].tolist() == [2] * 3 and event["grad_inputs"][1].tolist() == [3] * 3


def test_trap_out_aliasing_an_input():
    x = leaf(3)
    with Recorder() as recorder:
        with torch.no_grad():
            torch.add(x, 1, out=x)
        y = torch.empty(3, dtype=torch.float64)
        with pytest.raises(RuntimeError, match="out="):
            torch.add(x, 1, out=y)
        (x * 1).sum().backward()
    assert [event["name"].split(".")[-1] for event in recorder.ends] == ["sum", "mul"]
    assert any(call["failed"] for call in recorder.calls.values())


def test_many_inputs_and_twins():
    tensors = [leaf(2) for _ in range(150)]
    arguments = tensors + tensors[:50]
    with Recorder() as recorder:
        (torch.cat(arguments) * torch.arange(400, dtype=torch.float64)).sum().backward()
    event = recorder.one("cat")
    assert len(event["grad_inputs"]) == 200
    for i, tensor in enumerate(arguments):
        assert_same(event["grad_inputs"][i], tensor.grad)


def test_outputs_of_one_node_as_inputs_of_one_call():
    x = leaf(4)
    with Recorder() as recorder:
        a, b = torch.split(x * 1, 2)
        torch.dot(b, torch.sub(a, b)).backward()
    event = recorder.one("sub")
    assert_same(event["grad_inputs"][0], b)
    assert_same(event["grad_inputs"][1], -b)


# Kinds of runs


def test_incomplete_run_is_told_at_its_end():
    x, w = leaf(2, 3, 4), leaf(5, 4)
    with Recorder() as recorder:
        y = F.linear(x * 2, w)
        loss = y.sum()
        told = []
        (grad,) = torch.autograd.grad(loss, w, retain_graph=True)
        told = list(recorder.ends)
        loss.backward()
    linear = [event for event in told if event["name"].endswith("linear")]
    assert len(linear) == 1 and not linear[0]["complete"]
    assert_same(linear[0]["grad_inputs"][1], grad)
    assert linear[0]["grad_inputs"][0] is None
    assert [e["complete"] for e in recorder.of("linear")] == [False, True]
    assert [e["round"] for e in recorder.of("linear")] == [0, 1]
    assert not [e for e in told if e["name"].endswith("mul")]


def test_unused_output_leaves_the_event_incomplete():
    x, y = leaf(3), leaf(4)
    with Recorder() as recorder:
        a, _ = torch.broadcast_tensors(x[None], y[:, None])
        a.sum().backward()
    event = recorder.one("broadcast_tensors")
    assert not event["complete"]
    assert event["grad_outputs"][1] is None and event["grad_inputs"][1] is None
    assert event["grad_inputs"][0].tolist() == [[4.0] * 3]


def test_double_backward():
    x = leaf(3)
    with Recorder() as recorder:
        y = torch.mul(x, x)
        z = torch.mul(y, x)
        (g,) = torch.autograd.grad(z.sum(), x, create_graph=True)
        first = len(recorder.ends)
        g.sum().backward()
    assert first == 3
    assert_same(x.grad, 6 * x)
    rounds = [(event["name"].split(".")[-1], event["round"]) for event in recorder.ends]
    # Of the first-order nodes only that of y runs again; nodes that the backward pass made belong to no call.
    assert rounds == [("sum", 0), ("mul", 0), ("mul", 0), ("sum", 0), ("mul", 1)]
    assert_same(recorder.ends[-1]["grad_inputs"][0], 2 * x)


def test_exception_in_backward_tells_what_was_begun():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError("in the middle")

    @composite
    def middle(a, b):
        return torch.mul(Broken.apply(torch.mul(a, 2)), b)

    x, w = leaf(3), leaf(3)
    with Recorder() as recorder:
        loss = middle(x, w).sum()
        with pytest.raises(ZeroDivisionError):
            loss.backward(retain_graph=True)
        event = recorder.one("middle")
        assert not event["complete"]
        assert event["grad_inputs"][0] is None
        assert_same(event["grad_inputs"][1], 4 * x)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        assert [event["round"] for event in recorder.of("middle")] == [0, 1]
        recorder.calls.clear()  # they hold the results
        assert recorder.kept() == 2
        loss = None
        assert recorder.kept() == 0
        (x * 2).sum().backward()
    assert len(recorder.of("mul")) == 1


def test_exception_of_a_tool_reaches_the_user():
    x = leaf(3)

    def callback(kind, event):
        if kind == "end" and event["name"].endswith("exp"):
            raise FloatingPointError("overflow in exp")

    with Recorder(callback) as recorder:
        loss = torch.exp(x * 2).sum()
        with pytest.raises(FloatingPointError, match="overflow in exp"):
            loss.backward()
        assert x.grad is None
        recorder.calls.clear()  # they hold the results
        loss = None
        assert recorder.kept() == 0


def test_stopped_tool_still_reports():
    x = leaf(3)
    seen = []
    tool = _C.backward_probe(lambda kind, event: seen.append((kind, event["name"])) if kind == "end" else None)
    engine_patches.install()
    tool.start()
    y = (x * 2).sum()
    tool.stop()
    engine_patches.remove()
    del tool  # the window keeps it
    gc.collect()
    y.backward()
    assert seen == [("end", "torch.Tensor.sum"), ("end", "torch.Tensor.mul")]


def test_two_tools_have_their_own_windows():
    x = leaf(3)
    with Recorder() as outer:
        y = x * 2
        with Recorder() as inner:
            z = torch.exp(y)
        z.sum().backward()
    assert len(outer.ends) == 3
    assert [event["name"] for event in inner.ends] == ["torch.exp"]
    assert inner.ends[0]["id"] == outer.of("exp")[0]["id"]


def test_users_hooks_on_our_nodes():
    x = leaf(3)
    seen = []
    with Recorder() as recorder:
        y = x * 2
        before = y.grad_fn.register_prehook(lambda grads: seen.append(("pre", len(grads))))
        after = y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("post", len(inputs))))
        doubled = y.grad_fn.register_hook(lambda inputs, outputs: tuple(i if i is None else i * 2 for i in inputs))
        loss = y.sum()
        loss.backward(retain_graph=True)
        assert seen == [("pre", 1), ("post", 2)] or seen == [("pre", 1), ("post", 1)]
        assert x.grad.tolist() == [4.0] * 3
        before.remove()
        after.remove()
    later = y.grad_fn.register_hook(lambda inputs, outputs: seen.append("later"))
    doubled.remove()
    seen.clear()
    loss.backward(retain_graph=True)
    assert seen == ["later"]
    later.remove()
    loss.backward()
    assert seen == ["later"]
    assert x.grad.tolist() == [8.0] * 3
    assert [event["round"] for event in recorder.of("mul")] == [0, 1, 2]


def test_our_hooks_after_users_hooks():
    x = leaf(3)

    class Hooked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    @composite
    def hooked(a):
        y = Hooked.apply(a)
        y.grad_fn.register_hook(lambda inputs, outputs: None)
        y.grad_fn.register_prehook(lambda outputs: None)
        return y

    with Recorder() as recorder:
        hooked(x).sum().backward()
    event = recorder.one("hooked")
    assert event["grad_inputs"][0].tolist() == [2.0] * 3 and event["complete"]


def test_custom_function_as_producer_and_inside_a_call():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * 2, b * 3

        @staticmethod
        def backward(ctx, g, h):
            return (None if g is None else g * 2), (None if h is None else h * 3)

    x, y = leaf(3), leaf(3)
    with Recorder() as recorder:
        a, b = Twice.apply(x * 1, y * 1)
        torch.mul(a, b).sum().backward()
    event = next(e for e in recorder.of("mul") if len(recorder.calls[e["id"]]["tensors"]) == 2)
    assert_same(event["grad_inputs"][0], b)
    assert_same(event["grad_inputs"][1], a)


# Threads


def test_backward_in_another_thread():
    x = leaf(3)
    with Recorder() as recorder:
        loss = torch.exp(x * 2).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    assert len(recorder.ends) == 3 and all(event["complete"] for event in recorder.ends)


def test_nodes_of_other_threads_are_not_ours():
    x = leaf(3)
    y = torch.exp(x)
    number_as_other_thread(y)
    with Recorder() as recorder:
        torch.mul(y, 2).sum().backward()
    assert [event["name"] for event in recorder.ends] == ["torch.Tensor.sum", "torch.mul"]
    assert recorder.one("mul")["grad_inputs"][0].tolist() == [2.0] * 3


def test_two_runs_of_one_graph_at_once():
    class Slow(torch.autograd.Function):
        barrier = threading.Barrier(2, timeout=600)

        @staticmethod
        def forward(ctx, a):
            return a * 1

        @staticmethod
        def backward(ctx, g):
            Slow.barrier.wait()
            return g

    @composite
    def meeting(a, b):
        return torch.mul(Slow.apply(torch.mul(a, 2)), b)

    x, w = leaf(3), leaf(3)
    with Recorder() as recorder:
        y = meeting(x, w)  # both runs are in the middle of it

        def run(scale):
            torch.autograd.grad(y, (x, w), torch.full_like(y, scale), retain_graph=True)

        threads = [threading.Thread(target=run, args=(s,)) for s in (1.0, 10.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = recorder.of("meeting")
    assert sorted(event["round"] for event in events) == [0, 1]
    assert sorted(event["grad_outputs"][0].mean().item() for event in events) == [1.0, 10.0]
    for event in events:
        scale = event["grad_outputs"][0].mean()
        assert_same(event["grad_inputs"][0], scale * 2 * w)
        assert_same(event["grad_inputs"][1], scale * 2 * x)


def test_graph_over_two_devices():
    """Hooks fire on the threads of both devices."""
    x, w = leaf(3), leaf(3, place="cuda")
    threads = set()
    with Recorder(lambda kind, event: threads.add(threading.get_ident())) as recorder:
        y = torch.mul((x * 2).cuda(), w)
        torch.sub(y.cpu(), x).sum().backward()
    assert len(threads) == 2
    assert all(event["complete"] for event in recorder.ends) and len(recorder.ends) == 6
    event = next(e for e in recorder.of("mul") if len(recorder.calls[e["id"]]["tensors"]) == 2)
    assert_same(event["grad_inputs"][0], w)
    assert_same(event["grad_inputs"][1].cpu(), 2 * x)
    assert_same(recorder.one("sub")["grad_inputs"][1], torch.full_like(x, -1.0))


# Company


def test_function_transforms_are_not_disturbed():
    x = torch.randn(3, 4)

    def function(x):
        return (torch.exp(x) * x * x).sum()

    def run():
        return [
            torch.func.grad(function)(x),
            torch.vmap(torch.func.grad(function))(x),
            torch.func.jacrev(lambda x: torch.exp(x) * x)(x),
            torch.func.hessian(function)(x[0]),
            torch.autograd.functional.jacobian(lambda x: torch.exp(x) * x * x, x, vectorize=True),
        ]

    plain = run()
    with Recorder() as recorder:
        recorder.tell = lambda kind, event: None
        watched = run()
        assert recorder.kept() == 0
    for left, right in zip(plain, watched, strict=True):
        assert torch.equal(left, right)


def test_subclass_does_not_see_us():
    seen = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(getattr(function, "__name__", str(function)))
            return super().__torch_function__(function, types, args, kwargs or {})

    def run():
        seen.clear()
        x = torch.randn(3).as_subclass(Logged).requires_grad_()
        y = torch.mul(x, x) + torch.mul(x, 2)
        y.sum().backward()
        return list(seen), x.grad

    torch.manual_seed(1)
    plain, grad = run()
    with Recorder() as recorder:
        recorder.tell = lambda kind, event: None
        torch.manual_seed(1)
        watched, same = run()
    assert watched == plain
    assert torch.equal(grad, same)


def test_module_hooks_beside_ours(place):
    def run():
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(place)
        seen = []
        for module in model:
            module.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].sum()))
        x = torch.randn(3, 4, device=place, requires_grad=True)
        model(x).sum().backward()
        return [x.grad, *seen, *(p.grad for p in model.parameters())]

    plain = run()
    with Recorder() as recorder:
        watched = run()
    assert len(plain) == len(watched) == 8
    assert all(torch.equal(left, right) for left, right in zip(plain, watched, strict=True))
    assert all(event["complete"] for event in recorder.of("linear")) and len(recorder.of("linear")) == 2


def test_forked_child_is_off(python):
    answer = python(
        """
        import os, torch, ditorch
        from ditorch import _C
        seen = []
        tool = _C.backward_probe(lambda kind, event: seen.append(kind))
        tool.start()
        y = (torch.ones(3, requires_grad=True) * 2).sum()
        tool.stop()
        pid = os.fork()
        if pid == 0:
            count = len(seen)
            y.backward()
            os._exit(0 if len(seen) == count else 1)
        print("child", os.waitpid(pid, 0)[1])
        y.backward()
        print("parent", seen.count("end"))
        """
    )
    assert "child 0" in answer.stdout and "parent 2" in answer.stdout


def test_graph_alive_at_exit(python):
    answer = python(
        """
        import torch, ditorch
        from ditorch import _C
        from op_tools import engine_patches
        engine_patches.install()
        tool = _C.backward_probe(lambda kind, event: None)
        tool.start()
        x = torch.ones(3, requires_grad=True)
        y = (x * 2).sum()
        z = (x.cuda() * 2).sum()
        z.backward(retain_graph=True)
        torch.keep = y
        """
    )
    assert answer.returncode == 0 and "Error" not in answer.stderr and "Traceback" not in answer.stderr


# Nothing is left behind


def test_a14_graph_that_never_runs_is_released_without_gc():
    x = leaf(3)
    gc.collect()
    gc.disable()
    try:
        with Recorder() as recorder:
            recorder.tell = lambda kind, event: None  # holds arguments otherwise
            y = torch.exp(x * 2)
            z = torch.split(y, 1)
            references = [weakref.ref(y), *(weakref.ref(t) for t in z)]
            assert recorder.kept() == 3
            del y, z
            assert recorder.kept() == 0
            assert all(reference() is None for reference in references)
    finally:
        gc.enable()


def test_a14_outputs_die_while_the_graph_lives():
    x = leaf(3)
    with Recorder() as recorder:
        recorder.tell = lambda kind, event: None
        y = x + 2  # saves nothing
        reference = weakref.ref(y)
        loss = y.sum()
        del y
        assert reference() is None
        assert recorder.kept() == 2
        loss.backward()
        del loss
        assert recorder.kept() == 0


def test_create_graph_is_released():
    x = leaf(3)
    gc.collect()
    gc.disable()
    try:
        with Recorder() as recorder:
            recorder.tell = lambda kind, event: None
            (g,) = torch.autograd.grad(torch.exp(x * x).sum(), x, create_graph=True)
            del g
            assert recorder.kept() == 0
    finally:
        gc.enable()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_thousand_repetitions_stay_flat(place):
    lstm = torch.nn.LSTM(4, 4).to(place)
    x = torch.randn(3, 2, 4, device=place, requires_grad=True)

    def work():
        y, _ = lstm(x)
        v = y * 1
        v[0].mul_(2)
        loss = F.normalize(v, dim=-1).sum() + torch.cat([x, x]).sum()
        loss.backward(retain_graph=True)
        torch.autograd.grad(loss, x)
        torch.exp(y)  # never run

    with Recorder() as recorder:
        recorder.tell = lambda kind, event: None
        for _ in range(100):
            work()
        gc.collect()
        objects, memory = len(gc.get_objects()), resident()
        for _ in range(1000):
            work()
        assert recorder.kept() == 0
        gc.collect()
        assert abs(len(gc.get_objects()) - objects) < 50
        assert resident() - memory < 4 << 20


# Installation


def test_patches_are_taken_back():
    original = torch.autograd.graph._engine_run_backward
    register = torch.autograd.Function._register_hook
    engine_patches.install()
    engine_patches.install()
    assert torch.autograd.graph._engine_run_backward is not original
    assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward
    engine_patches.remove()
    assert torch.autograd.graph._engine_run_backward is not original
    engine_patches.remove()
    engine_patches.remove()
    assert torch.autograd.graph._engine_run_backward is original
    assert torch.autograd._engine_run_backward is original
    assert torch.autograd.Function._register_hook is register
    assert "_register_hook" not in vars(torch.autograd.Function)


def test_without_patches_windows_work():
    x = leaf(3)
    seen = []
    tool = _C.backward_probe(lambda kind, event: seen.append(event["name"]) if kind == "end" else None)
    tool.start()
    torch.exp(x * 2).sum().backward()
    tool.stop()
    assert len(seen) == 3


def test_no_grad_makes_no_window():
    x = leaf(3)
    with Recorder() as recorder, torch.no_grad():
        y = x * 2
        assert recorder.kept() == 0
        assert not y.requires_grad
    with Recorder() as recorder, torch.inference_mode():
        y = torch.exp(x)
        assert recorder.kept() == 0
