"""Every collective x dtype of the nccl backend, against what it means (computed here in float64 or exactly) and, where
gloo can do it on CPU tensors, against gloo. Run by two processes; each writes answers<rank>.json: name -> "ok" or what
is wrong."""

import json
import os
import sys
import traceback
import warnings
from datetime import timedelta

import ditorch  # noqa: F401
import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
torch.set_num_threads(1)
SEED = 20240517
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = [*FLOATS, *INTEGERS, *COMPLEX, torch.bool, torch.float8_e4m3fn, torch.uint16, torch.uint32]
OPS = dist.ReduceOp
answers = {}


def make(name, rank, shape, dtype):
    """The input of a rank: small numbers, so that no integer overflows."""
    generator = torch.Generator().manual_seed(SEED + 1000 * rank + sum(map(ord, name)))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype in INTEGERS or dtype in (torch.uint16, torch.uint32, torch.uint64):
        low = 0 if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) else -9
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def show(dtype):
    return str(dtype).removeprefix("torch.")


def to_plain(tensor):
    """For comparisons: dtypes with few kernels become bytes."""
    tensor = tensor.detach().cpu().contiguous()
    few = (torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64)
    return tensor.view(torch.uint8) if tensor.dtype in few else tensor


def check_equal(mine, wanted):
    if isinstance(wanted, (list, tuple)):
        assert len(mine) == len(wanted)
        for a, b in zip(mine, wanted, strict=True):
            check_equal(a, b)
        return
    assert mine.device.type == "cuda", mine.device
    assert mine.dtype == wanted.dtype and mine.shape == wanted.shape, (mine.dtype, wanted.dtype, mine.shape)
    assert torch.equal(to_plain(mine), to_plain(wanted)), f"{mine.cpu()}\n!=\n{wanted}"


def check_close(mine, exact, terms):
    """`exact` is in float64 or complex128, or of the dtype itself for integers. One rounding to the dtype is allowed,
    and in float32 and float64 one per term."""
    dtype = mine.dtype
    if not dtype.is_floating_point and not dtype.is_complex:
        return check_equal(mine, exact.to(dtype))
    real = dtype.to_real() if dtype.is_complex else dtype
    roundings = terms if real in (torch.float32, torch.float64) else 1
    error = (mine.cpu().to(exact.dtype) - exact).abs()
    assert (error <= roundings * torch.finfo(real).eps * exact.abs().clamp_min(1)).all(), f"{mine.cpu()}\n!=\n{exact}"


def reduce_exactly(parts, op):
    """In the widest type. AVG of integers is cut towards zero; booleans know "or" and "and"."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        steps = {"SUM": "logical_or", "MAX": "logical_or", "PRODUCT": "logical_and", "MIN": "logical_and"}
        steps |= {"BAND": "logical_and", "BOR": "logical_or", "BXOR": "logical_xor"}
        total = parts[0]
        for part in parts[1:]:
            total = getattr(torch, steps[op])(total, part)
        return total
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    parts = [part.to(wide) for part in parts]
    steps = {"PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum, "BAND": torch.bitwise_and}
    steps |= {"BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor, "SUM": torch.add, "AVG": torch.add}
    total = parts[0]
    for part in parts[1:]:
        total = steps[op](total, part)
    if op == "AVG":
        total = torch.div(total, len(parts), rounding_mode="trunc" if wide == torch.int64 else None)
    return total


def run(name, function, *args):
    try:
        function(*args)
        answers[name] = "ok"
    except Exception:
        answers[name] = traceback.format_exc(limit=-3)


def case(name):
    def decorate(function):
        run(name, function)
        return function

    return decorate


def on_gloo(function, *tensors):
    """What gloo makes of CPU copies; None when it cannot."""
    try:
        function(*tensors)
        return tensors
    except Exception:
        return None


TIMEOUT = timedelta(seconds=60)  # a case that goes wrong on one rank must not make the other wait for ever
dist.init_process_group("cpu:gloo,cuda:nccl", timeout=TIMEOUT)
rank, size = dist.get_rank(), dist.get_world_size()
local = int(os.environ.get("LOCAL_RANK", 0))
if "DITORCH_HOST_DEVICES" not in os.environ:
    assert torch.cuda.device_count() == int(os.environ["LOCAL_WORLD_SIZE"])
    torch.cuda.set_device(local)
OTHER = (rank + 1) % size
BEFORE = (rank - 1) % size


def ops_of(dtype):
    if dtype == torch.bool:
        return ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
    if dtype.is_complex:
        return ["SUM", "AVG"]
    bits = [] if dtype.is_floating_point else ["BAND", "BOR", "BXOR"]
    return ["SUM", "AVG", "PRODUCT", "MIN", "MAX", *bits]


# Reductions


def check_all_reduce(dtype, op):
    inputs = [make("reduce", r, (3, 5), dtype) for r in range(size)]
    mine = inputs[rank].cuda()
    dist.all_reduce(mine, getattr(OPS, op))
    check_close(mine, reduce_exactly(inputs, op), size)
    gloo = on_gloo(lambda t: dist.all_reduce(t, getattr(OPS, op)), inputs[rank].clone())
    if gloo and dtype not in (torch.float16, torch.bfloat16, torch.bool):
        check_equal(mine, gloo[0])


def check_reduce(dtype, op):
    inputs = [make("reduce", r, (3, 5), dtype) for r in range(size)]
    mine = inputs[rank].cuda()
    dist.reduce(mine, size - 1, getattr(OPS, op))
    if rank == size - 1:
        check_close(mine, reduce_exactly(inputs, op), size)
    else:
        check_equal(mine, inputs[rank])  # only the root gets the result


def check_reduce_scatter(dtype, op):
    parts = [[make(f"part{p}", r, (2, 3), dtype) for p in range(size)] for r in range(size)]
    mine = torch.empty(2, 3, dtype=dtype, device="cuda")
    again = torch.empty(2, 3, dtype=dtype, device="cuda")
    dist.reduce_scatter(mine, [part.cuda() for part in parts[rank]], getattr(OPS, op))
    dist.reduce_scatter_tensor(again, torch.cat(parts[rank]).cuda(), getattr(OPS, op))
    check_close(mine, reduce_exactly([parts[r][rank] for r in range(size)], op), size)
    check_equal(again, mine.cpu())


for dtype in [*FLOATS, *INTEGERS, *COMPLEX, torch.bool]:
    for op in ops_of(dtype):
        run(f"all_reduce {show(dtype)} {op}", check_all_reduce, dtype, op)
        run(f"reduce {show(dtype)} {op}", check_reduce, dtype, op)
        run(f"reduce_scatter {show(dtype)} {op}", check_reduce_scatter, dtype, op)


@case("all_reduce PREMUL_SUM")
def _():
    for factor in (0.25, torch.tensor([0.25], device="cuda")):
        mine = make("premul", rank, (7,), torch.float32).cuda()
        dist.all_reduce(mine, dist._make_nccl_premul_sum(factor))
        check_close(mine, sum(make("premul", r, (7,), torch.float32).double() for r in range(size)) / 4, size + 1)


@case("all_reduce uint64")
def _():
    mine = torch.tensor([2**64 - 1 - rank, rank], dtype=torch.uint64).cuda()
    dist.all_reduce(mine, OPS.MAX)
    assert mine.tolist() == [2**64 - 1, size - 1], mine
    dist.all_reduce(mine, OPS.MIN)
    assert mine.tolist() == [2**64 - 1, size - 1], mine


@case("all_reduce fp16 does not overflow in AVG")
def _():
    mine = torch.full((4,), 60000.0, dtype=torch.float16, device="cuda")
    dist.all_reduce(mine, OPS.AVG)
    check_equal(mine, torch.full((4,), 60000.0, dtype=torch.float16))


@case("same bits on all ranks")
def _():
    mine = make("bits", rank, (1001,), torch.float32).cuda()
    dist.all_reduce(mine)
    others = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(others, mine)
    check_equal(others, [mine.cpu()] * size)


# Movement


def zeros(dtype, *shape):
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def check_broadcast(dtype, inputs):
    mine = inputs[rank].cuda()
    dist.broadcast(mine, size - 1)
    check_equal(mine, inputs[size - 1])


def check_all_gather(dtype, inputs):
    outputs = [zeros(dtype, 2, 3) for _ in range(size)]
    dist.all_gather(outputs, inputs[rank].cuda())
    check_equal(outputs, inputs)


def check_all_gather_into_tensor(dtype, inputs):
    output = zeros(dtype, 2 * size, 3)
    dist.all_gather_into_tensor(output, inputs[rank].cuda())
    check_equal(output, torch.stack(inputs).view(2 * size, 3))


def check_gather(dtype, inputs):
    outputs = [zeros(dtype, 2, 3) for _ in range(size)] if rank == 0 else None
    dist.gather(inputs[rank].cuda(), outputs, dst=0)
    if rank == 0:
        check_equal(outputs, inputs)


def check_scatter(dtype, inputs):
    output = zeros(dtype, 2, 3)
    dist.scatter(output, [part.cuda() for part in inputs] if rank == 0 else None, src=0)
    check_equal(output, inputs[rank])


def check_all_to_all(dtype, inputs):
    parts = [[make(f"to{p}", r, (p + 1, 2), dtype) for p in range(size)] for r in range(size)]
    outputs = [zeros(dtype, rank + 1, 2) for _ in range(size)]
    dist.all_to_all(outputs, [part.cuda() for part in parts[rank]])
    check_equal(outputs, [parts[r][rank] for r in range(size)])


def check_all_to_all_single(dtype, inputs):
    rows = [make("rows", r, (2 * size, 2), dtype) for r in range(size)]
    output = zeros(dtype, 2 * size, 2)
    dist.all_to_all_single(output, rows[rank].cuda())
    check_equal(output, torch.stack([part.chunk(size)[rank] for part in rows]).view(2 * size, 2))


def check_send_recv(dtype, inputs):
    output = zeros(dtype, 2, 3)
    if rank % 2 == 0:
        dist.send(inputs[rank].cuda(), OTHER)
        dist.recv(output, BEFORE)
    else:
        dist.recv(output, BEFORE)
        dist.send(inputs[rank].cuda(), OTHER)
    check_equal(output, inputs[BEFORE])


MOVERS = [check_broadcast, check_all_gather, check_all_gather_into_tensor, check_gather, check_scatter]
MOVERS += [check_all_to_all, check_all_to_all_single, check_send_recv]
for dtype in MOVED:
    for check in MOVERS:
        inputs = [make("move", r, (2, 3), dtype) for r in range(size)]
        run(f"{check.__name__.removeprefix('check_')} {show(dtype)}", check, dtype, inputs)


# Shapes


@case("all_to_all_single with splits, some of them empty")
def _():
    counts = [[(3 * r + p) % 4 * ((r + p) % 2) for p in range(size)] for r in range(size)]
    sent = make("splits", rank, (sum(counts[rank]), 3), torch.float32)
    incoming = [counts[r][rank] for r in range(size)]
    output = torch.empty(sum(incoming), 3, device="cuda")
    dist.all_to_all_single(output, sent.cuda(), incoming, counts[rank])
    wanted = [make("splits", r, (sum(counts[r]), 3), torch.float32).split(counts[r])[rank] for r in range(size)]
    check_equal(output, torch.cat(wanted))


@case("all_gather of unequal sizes")
def _():
    outputs = [torch.zeros(2 * r, 3, device="cuda") for r in range(size)]
    dist.all_gather(outputs, make("uneven", rank, (2 * rank, 3), torch.float32).cuda())
    check_equal(outputs, [make("uneven", r, (2 * r, 3), torch.float32) for r in range(size)])


@case("reduce_scatter of unequal sizes")
def _():
    inputs = [[make(f"piece{p}", r, (p + 1,), torch.float32) for p in range(size)] for r in range(size)]
    output = torch.empty(rank + 1, device="cuda")
    dist.reduce_scatter(output, [piece.cuda() for piece in inputs[rank]])
    check_close(output, sum(inputs[r][rank].double() for r in range(size)), size)


@case("non-contiguous outputs of all_gather and gather")
def _():
    base = torch.zeros(3, 4, 2 * size, device="cuda")
    outputs = [base[:, :, 2 * r] for r in range(size)]
    dist.all_gather(outputs, make("gap", rank, (3, 4), torch.float32).cuda())
    check_equal(outputs, [make("gap", r, (3, 4), torch.float32) for r in range(size)])
    assert base[:, :, 1::2].abs().sum() == 0


@case("non-contiguous input is refused")
def _():
    try:
        dist.all_reduce(torch.zeros(4, 4, device="cuda").t()[:2])
    except ValueError as error:
        assert "Tensors must be contiguous" in str(error) and "strides" in str(error), error
    else:
        raise AssertionError("accepted")


@case("channels_last is contiguous in its own way")
def _():
    mine = make("cl", rank, (2, 3, 4, 5), torch.float32).cuda().to(memory_format=torch.channels_last)
    dist.all_reduce(mine)
    check_close(mine, sum(make("cl", r, (2, 3, 4, 5), torch.float32).double() for r in range(size)), size)
    assert mine.is_contiguous(memory_format=torch.channels_last)


@case("views with an offset, and neighbours that stay")
def _():
    base = torch.arange(12.0, device="cuda")
    dist.all_reduce(base[3:7])
    wanted = torch.arange(12.0)
    wanted[3:7] *= size
    check_equal(base, wanted)


@case("empty tensors")
def _():
    nothing = torch.empty(0, 3, device="cuda")
    dist.all_reduce(nothing)
    dist.broadcast(nothing, 0)
    dist.all_gather([torch.empty(0, 3, device="cuda") for _ in range(size)], nothing)
    dist.all_gather_into_tensor(torch.empty(0, device="cuda"), nothing.view(-1))
    dist.reduce_scatter_tensor(torch.empty(0, device="cuda"), torch.empty(0, device="cuda"))
    dist.all_to_all_single(torch.empty(0, device="cuda"), torch.empty(0, device="cuda"))
    dist.reduce(nothing, 0)


@case("scalars and large tensors")
def _():
    one = torch.tensor(2.0 + rank, device="cuda")
    dist.all_reduce(one)
    assert one.item() == sum(2.0 + r for r in range(size))
    big = torch.full((300_001,), float(rank + 1), device="cuda")
    dist.all_reduce(big)
    assert (big == sum(range(1, size + 1))).all()


@case("messages of non-contiguous tensors")
def _():
    target = torch.zeros(4, 6, device="cuda")
    send = dist.isend(make("msg", rank, (3, 4), torch.float32).cuda().t(), OTHER)
    dist.irecv(target[:, ::2], BEFORE).wait()
    send.wait()
    check_equal(target[:, ::2], make("msg", BEFORE, (3, 4), torch.float32).t())
    assert target[:, 1::2].abs().sum() == 0


# Work handles, streams, order


@case("async work: future, result, is_completed, two waits")
def _():
    mine = torch.full((1000,), float(rank), device="cuda")
    work = dist.all_reduce(mine, async_op=True)
    value = work.get_future().wait()
    assert value[0].data_ptr() == mine.data_ptr()
    assert work.wait() and work.wait() and work.is_completed() and work.is_success()
    assert (mine == sum(range(size))).all()
    assert work._get_duration() >= 0


@case("callback that waits for another collective")
def _():
    first, second = torch.ones(3, device="cuda"), torch.ones(3, device="cuda")

    def then(future):
        return dist.all_reduce(second, async_op=True).get_future().wait()[0] + future.value()[0]

    total = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    check_equal(total, torch.full((3,), 2.0 * size))


@case("dropped handles")
def _():
    mine = torch.ones(50_000, device="cuda")
    kept = [torch.zeros(1000, device="cuda") for _ in range(5)]
    for index, target in enumerate(kept):
        dist.all_reduce(mine, async_op=True)
        dist.isend(torch.full((1000,), float(index), device="cuda"), OTHER)
        dist.irecv(target, BEFORE)
    torch.cuda.synchronize()  # waits for collectives as it does where they have a stream
    assert (mine == float(size**5)).all()
    check_equal(kept, [torch.full((1000,), float(index)) for index in range(5)])


@case("work of a side stream is seen")
def _():
    stream = torch.cuda.Stream()
    mine, sent, target = (torch.zeros(1000, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # keeps the stream busy, so that what follows is still to be done
        mine.add_(1)
        sent.add_(rank + 1)
        work = dist.all_reduce(mine, async_op=True)
        sending = dist.isend(sent, OTHER)
        dist.recv(target, BEFORE)
        sending.wait()
        work.wait()
        mine.mul_(2)
    stream.synchronize()
    check_equal(mine, torch.full((1000,), 2.0 * size))
    check_equal(target, torch.full((1000,), BEFORE + 1.0))


@case("both send first")
def _():
    big = torch.full((500_000,), float(rank), device="cuda")
    target = torch.empty_like(big)
    work = dist.isend(big, OTHER)
    dist.irecv(target, BEFORE).wait()
    work.wait()
    assert (target == BEFORE).all()


@case("batch_isend_irecv")
def _():
    targets = [torch.zeros(4, device="cuda") for _ in range(3)]
    entries = [dist.P2POp(dist.irecv, target, BEFORE) for target in targets]
    entries += [dist.P2POp(dist.isend, torch.full((4,), 10.0 * rank + i, device="cuda"), OTHER) for i in range(3)]
    for work in dist.batch_isend_irecv(entries):
        work.wait()
    check_equal(targets, [torch.full((4,), 10.0 * BEFORE + i) for i in range(3)])


@case("recv from any source")
def _():
    target = torch.zeros(2, device="cuda")
    work = dist.isend(torch.full((2,), float(rank), device="cuda"), OTHER)
    assert dist.recv(target) == BEFORE
    work.wait()
    assert (target == BEFORE).all()


@case("coalescing")
def _():
    tensors = [torch.full((n,), float(rank + n), device="cuda") for n in (1, 2, 3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    check_equal(tensors, [torch.full((n,), float(sum(r + n for r in range(size)))) for n in (1, 2, 3)])
    outputs = [torch.empty(2 * size, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for i, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((2,), float(rank + i), device="cuda"))
    manager.wait()
    check_equal(outputs, [torch.cat([torch.full((2,), float(r + i)) for r in range(size)]) for i in range(2)])
    with dist._coalescing_manager(device=torch.device("cuda"), async_ops=True) as manager:
        dist.broadcast(tensors[0], 0)
        dist.broadcast(tensors[1], 0)
    manager.wait()


@case("barrier")
def _():
    dist.barrier()
    dist.barrier(device_ids=[torch.cuda.current_device()])
    dist.barrier(async_op=True).wait()
    try:
        dist.barrier(device_ids=[99])
    except RuntimeError as error:
        assert "ordinal" in str(error), error
    else:
        raise AssertionError("device 99 accepted")


@case("profiler sees collectives")
def _():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as seen:
        dist.all_reduce(torch.ones(3, device="cuda"))
    assert any("nccl:all_reduce" in event.key for event in seen.key_averages()), seen.key_averages()


# Objects, functional collectives, groups


@case("object collectives")
def _():
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(size)]
    things = [f"thing {rank}", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(things, 0)
    assert things == ["thing 0", 0]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered)
    assert rank or gathered == list(range(size))
    scattered = [None]
    dist.scatter_object_list(scattered, [r * 10 for r in range(size)] if rank == 0 else None)
    assert scattered == [rank * 10]


@case("functional collectives")
def _():
    import torch.distributed._functional_collectives as functional

    x = torch.full((2, 3), float(rank + 1), device="cuda")
    total = float(sum(range(1, size + 1)))
    check_equal(functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD)), torch.full((2, 3), total))
    gathered = functional.wait_tensor(functional.all_gather_tensor(x, 0, dist.group.WORLD))
    check_equal(gathered, torch.cat([torch.full((2, 3), r + 1.0) for r in range(size)]))
    part = functional.wait_tensor(functional.reduce_scatter_tensor(gathered, "avg", 0, dist.group.WORLD))
    check_equal(part, torch.full((2, 3), rank + 1.0))
    moved = functional.wait_tensor(functional.all_to_all_single(gathered, None, None, dist.group.WORLD))
    check_equal(moved, torch.full((2 * size, 3), rank + 1.0))
    check_equal(functional.wait_tensor(functional.broadcast(x, 0, dist.group.WORLD)), torch.ones(2, 3))


@case("autograd through collectives")
def _():
    from torch.distributed.nn import functional

    x = torch.full((3,), rank + 1.0, device="cuda", requires_grad=True)
    functional.all_reduce(x * x).sum().backward()
    check_equal(x.grad, torch.full((3,), 2.0 * (rank + 1) * size))


@case("groups")
def _():
    pairs = [dist.new_group([r]) for r in range(size)]
    alone = torch.full((2,), rank + 1.0, device="cuda")
    dist.all_reduce(alone, group=pairs[rank])
    check_equal(alone, torch.full((2,), rank + 1.0))
    assert pairs[OTHER] == dist.GroupMember.NON_GROUP_MEMBER
    both = dist.new_group(list(range(size)), backend="nccl")
    assert dist.get_backend(both) == "nccl"
    dist.all_reduce(alone, group=both)
    check_equal(alone, torch.full((2,), float(sum(range(1, size + 1)))))
    dist.destroy_process_group(both)
    mine, _ = dist.new_subgroups(group_size=1)
    dist.barrier(group=mine)
    assert dist.get_world_size(mine) == 1


@case("device mesh and DTensor")
def _():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cuda", (size,))
    assert mesh.device_type == "cuda"
    whole = make("mesh", 0, (2 * size, 4), torch.float32)
    sharded = distribute_tensor(whole.cuda(), mesh, [Shard(0)])
    check_equal(sharded.to_local(), whole.chunk(size)[rank])
    product = sharded @ distribute_tensor(whole.t().contiguous().cuda(), mesh, [Replicate()])
    torch.testing.assert_close(product.full_tensor().cpu(), whole @ whole.t())


def get_backend(group, kind):
    backend = group._get_backend(torch.device(kind))
    return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it


@case("names")
def _():
    assert dist.is_nccl_available() and dist.is_gloo_available()
    backend = get_backend(dist.group.WORLD, "cuda")
    assert isinstance(backend, dist.ProcessGroupNCCL) and backend.name() == "nccl"
    assert not isinstance(get_backend(dist.group.WORLD, "cpu"), dist.ProcessGroupNCCL)
    assert backend.options._timeout == TIMEOUT
    backend._set_default_timeout(2 * TIMEOUT)
    assert backend.options._timeout == 2 * TIMEOUT
    assert dist.ProcessGroupNCCL.Options()._timeout == dist.constants.default_pg_nccl_timeout
    assert not hasattr(get_backend(dist.group.WORLD, "cpu"), "perform_nocolor_split")
    high = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    group = dist.new_group(pg_options=high, timeout=high._timeout, backend="nccl")
    assert get_backend(group, "cuda").options.is_high_priority_stream


# refusals: the message names the collective and what is wrong


def check_refused(error_type, text, function):
    try:
        function()
    except error_type as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


@case("refusals")
def _():
    complex_one = torch.ones(2, dtype=torch.complex64, device="cuda")
    flags = torch.ones(2, dtype=torch.bool, device="cuda")
    floats = torch.ones(2 * size, device="cuda")
    check_refused(Exception, "complex", lambda: dist.all_reduce(complex_one, OPS.MAX))
    check_refused(TypeError, "ReduceOp.AVG with Boolean", lambda: dist.all_reduce(flags, OPS.AVG))
    check_refused(ValueError, "BAND", lambda: dist.all_reduce(floats, OPS.BAND))
    check_refused(TypeError, "PREMUL_SUM", lambda: dist.all_reduce(flags, dist._make_nccl_premul_sum(2.0)))
    short = torch.empty(3, device="cuda")
    check_refused(ValueError, "world_size", lambda: dist.all_gather_into_tensor(short, floats))
    check_refused(ValueError, "split sizes", lambda: dist.all_to_all_single(floats, floats.clone(), [1] * size))
    ints = torch.empty(2, dtype=torch.int64, device="cuda")
    check_refused((TypeError, ValueError), "dtype", lambda: dist.reduce_scatter_tensor(ints, floats))


with open(os.path.join(sys.argv[1], f"answers{rank}.json"), "w") as file:
    json.dump(answers, file)
dist.destroy_process_group()
assert not dist.is_initialized()
