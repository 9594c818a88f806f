"""Data parallel training on several processes, each way against one process with the same global batch: losses of every
step and the parameters at the end. `torchrun --nproc_per_node=2 dist_training.py FOLDER [NAME ...]`; rank 0 writes
answers.json: name -> "ok" or what is wrong."""

import contextlib
import copy
import functools
import json
import os
import sys
import traceback
import warnings

import ditorch  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.simplefilter("ignore")
torch.set_num_threads(1)
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
folder, wanted = sys.argv[1], sys.argv[2:]
answers = {}
STEPS, BATCH = 4, 4 * size


def case(function):
    name = function.__name__
    if wanted and name not in wanted:
        return function
    try:
        function()
        answers[name] = "ok"
    except Exception:
        answers[name] = traceback.format_exc()
    problems = [None] * size
    dist.all_gather_object(problems, answers[name])
    answers[name] = next((problem for problem in problems if problem != "ok"), "ok")
    return function


class Net(nn.Module):
    def __init__(self, norm=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU())
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def make_model(**options):
    torch.manual_seed(7)
    return Net(**options).to(device)


def make_batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    x = torch.randn(BATCH, 6, generator=generator)
    y = torch.randint(0, 3, (BATCH,), generator=generator)
    return x.to(device), y.to(device)


def mine(tensor):
    return tensor.chunk(size)[rank]


def compute_loss(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def train_alone(model, make_optimizer):
    """One process, whole batches."""
    optimizer, losses = make_optimizer(model.parameters()), []
    for step in range(STEPS):
        loss = compute_loss(model, *make_batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def train_together(model, optimizer, accumulate=None, autocast=contextlib.nullcontext):
    """All processes, each its part. With `accumulate` it is fed in two halves, the first without synchronising."""
    losses = []
    for step in range(STEPS):
        x, y = (mine(t) for t in make_batch(step))
        optimizer.zero_grad()
        if accumulate is None:
            with autocast():
                loss = compute_loss(model, x, y)
            loss.backward()
        else:
            halves = list(zip(x.chunk(2), y.chunk(2), strict=True))
            with accumulate():
                (compute_loss(model, *halves[0]) / 2).backward()
            (compute_loss(model, *halves[1]) / 2).backward()
            loss = compute_loss(model, x, y)
        optimizer.step()
        mean = loss.detach().float().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean)
    return torch.stack(losses)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def check(losses, model, alone_losses, alone, tolerance=2e-5):
    """Sums of float32 in another order differ by a few of its roundings."""
    torch.testing.assert_close(losses, alone_losses, rtol=tolerance, atol=tolerance)
    theirs = alone.state_dict()
    for name, value in model.state_dict().items():
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        torch.testing.assert_close(value.float(), theirs[name].float(), rtol=tolerance, atol=tolerance, msg=name)
    assert losses[-1] != losses[0]


def run_ddp(optimizer=sgd, tolerance=2e-5, hook=None, **options):
    alone, model = make_model(), make_model()
    alone_losses = train_alone(alone, optimizer)
    together = DDP(model, device_ids=[local_rank], output_device=local_rank, **options)
    if hook is not None:
        together.register_comm_hook(None, hook)
    losses = train_together(together, optimizer(together.parameters()))
    check(losses, model, alone_losses, alone, tolerance)


@case
def ddp():
    run_ddp()


@case
def ddp_many_buckets_as_views():
    run_ddp(adam, gradient_as_bucket_view=True, bucket_cap_mb=0.0005)


@case
def ddp_static_graph():
    run_ddp(static_graph=True)


@case
def ddp_no_sync():
    alone, model = make_model(), make_model()
    alone_losses = train_alone(alone, sgd)
    together = DDP(model, device_ids=[local_rank])
    check(train_together(together, sgd(model.parameters()), accumulate=together.no_sync), model, alone_losses, alone)


@case
def ddp_find_unused_parameters():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.ways = nn.ModuleList(nn.Linear(4, 2) for _ in range(size))

        def forward(self, x, way):
            return self.ways[way](x)

    torch.manual_seed(3)
    model = Branches().to(device)
    together = DDP(model, device_ids=[local_rank], find_unused_parameters=True)
    together(torch.ones(2, 4, device=device), rank).sum().backward()
    for way in model.ways:  # each was used by one rank alone: the mean over all ranks
        torch.testing.assert_close(way.weight.grad, torch.full((2, 4), 2.0 / size, device=device))


@case
def ddp_uneven_inputs():
    together = DDP(nn.Linear(2, 1).to(device), device_ids=[local_rank])
    count = 0
    with together.join():
        for _ in range(1 + rank):
            together(torch.ones(1, 2, device=device)).sum().backward()
            count += 1
    assert count == 1 + rank


@case
def ddp_comm_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    run_ddp(hook=default_hooks.allreduce_hook)
    run_ddp(hook=default_hooks.fp16_compress_hook, tolerance=2e-3)
    run_ddp(hook=default_hooks.bf16_compress_hook, tolerance=2e-2)


@case
def ddp_power_sgd():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = make_model()
    together = DDP(model, device_ids=[local_rank])
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    together.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = train_together(together, sgd(model.parameters()))
    assert losses.isfinite().all()


@case
def ddp_autocast():
    alone, model = make_model(), make_model()
    alone_losses = train_alone(alone, sgd)
    together = DDP(model, device_ids=[local_rank])
    half = functools.partial(torch.autocast, "cuda", torch.bfloat16)
    check(train_together(together, sgd(model.parameters()), autocast=half), model, alone_losses, alone, 3e-2)


@case
def zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    alone, model = make_model(), make_model()
    alone_losses = train_alone(alone, adam)
    together = DDP(model, device_ids=[local_rank])
    optimizer = ZeroRedundancyOptimizer(together.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    check(train_together(together, optimizer), model, alone_losses, alone)
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


@case
def sync_batch_norm():
    alone = make_model(norm=True)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(make_model(norm=True))
    assert isinstance(model.norm, nn.SyncBatchNorm)
    alone_losses = train_alone(alone, sgd)
    together = DDP(model, device_ids=[local_rank])
    check(train_together(together, sgd(model.parameters())), model, alone_losses, alone, 5e-5)
    alone.eval(), model.eval()
    x, _ = make_batch(99)
    torch.testing.assert_close(model(x), alone(x), rtol=5e-5, atol=5e-5)


@case
def sync_batch_norm_images():
    """Unequal batches, channels last, half precision, no affine parameters."""
    for dtype, affine, limit in ((torch.float32, True, 1e-5), (torch.float16, False, 5e-3)):
        torch.manual_seed(1)
        plain = nn.BatchNorm2d(5, affine=affine).to(device)
        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))) if affine else None
        synced = model.module if affine else nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
        sizes = [r + 1 for r in range(size)]
        whole = torch.randn(sum(sizes), 5, 4, 4, generator=torch.Generator().manual_seed(5)).to(device, dtype)
        whole = whole.to(memory_format=torch.channels_last)
        x = whole.split(sizes)[rank].clone(memory_format=torch.preserve_format).requires_grad_()
        reference = whole.clone(memory_format=torch.preserve_format).requires_grad_()
        y, wanted = synced(x), plain(reference)
        scale = torch.linspace(0.5, 2, y[0].numel(), device=device, dtype=dtype).view(y.shape[1:])
        (y * scale).square().sum().backward()
        (wanted * scale).square().sum().backward()
        torch.testing.assert_close(y, wanted.split(sizes)[rank], rtol=limit, atol=limit)
        torch.testing.assert_close(x.grad, reference.grad.split(sizes)[rank], rtol=10 * limit, atol=10 * limit)
        torch.testing.assert_close(synced.running_mean, plain.running_mean, rtol=limit, atol=limit)
        torch.testing.assert_close(synced.running_var, plain.running_var, rtol=limit, atol=limit)


def run_fully_shard(mesh=None):
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for layer in (model.body[0], model.body[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@case
def fsdp2():
    alone = make_model()
    alone_losses = train_alone(alone, adam)
    model = run_fully_shard()
    local = sum(p.to_local().numel() for p in model.parameters())
    assert local < sum(p.numel() for p in alone.parameters())
    losses = train_together(model, adam(model.parameters()))
    check(losses, model, alone_losses, alone)


@case
def fsdp2_accumulation_and_clipping():
    model, alone = run_fully_shard(), make_model()
    x, y = make_batch(0)
    model.set_requires_gradient_sync(False)
    compute_loss(model, mine(x), mine(y)).backward()
    model.set_requires_gradient_sync(True)
    compute_loss(model, mine(x), mine(y)).backward()
    (2 * compute_loss(alone, x, y)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(alone.parameters(), 0.1), rtol=2e-5, atol=2e-5)
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad, rtol=2e-5, atol=2e-5)


@case
def fsdp2_mixed_precision():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    alone = make_model()
    alone_losses = train_alone(alone, sgd)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = make_model()
    fully_shard(model.body, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    check(train_together(model, sgd(model.parameters())), model, alone_losses, alone, 3e-2)
    assert all(p.dtype == torch.float32 for p in model.parameters())


@case
def fsdp2_state_dict():
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
    )

    model = run_fully_shard()
    optimizer = adam(model.parameters())
    train_together(model, optimizer)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    moments = get_optimizer_state_dict(model, optimizer, options=options)
    if rank == 0:
        assert all(value.device.type == "cpu" for value in state.values()) and moments["state"]
        alone = make_model()
        alone.load_state_dict(state)
    other = run_fully_shard()
    broadcast = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, state if rank == 0 else {}, options=broadcast)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p.to_local(), q.to_local())


@case
def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    alone, model = make_model(), make_model()
    alone_losses = train_alone(alone, adam)
    together = FSDP(model, use_orig_params=True, device_id=device)
    losses = train_together(together, adam(together.parameters()))
    torch.testing.assert_close(losses, alone_losses, rtol=2e-5, atol=2e-5)
    with FSDP.summon_full_params(together):
        for (name, p), q in zip(together.named_parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(p.detach(), q.detach(), rtol=2e-5, atol=2e-5, msg=name)


@case
def checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = run_fully_shard()
    optimizer = adam(model.parameters())
    train_together(model, optimizer)
    state, moments = get_state_dict(model, optimizer)
    path = os.path.join(folder, "checkpoint")
    dcp.save({"model": state, "optimizer": moments}, checkpoint_id=path)
    other = run_fully_shard()
    other_optimizer = adam(other.parameters())
    state, moments = get_state_dict(other, other_optimizer)
    loaded = {"model": state, "optimizer": moments}
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    x, y = (mine(t) for t in make_batch(50))
    assert torch.equal(compute_loss(model, x, y), compute_loss(other, x, y))


@case
def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    alone, model = make_model(), make_model()
    mesh = init_device_mesh("cuda", (size,))
    parallelize_module(model.body, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x, y = make_batch(0)
    loss, wanted_loss = compute_loss(model, x, y), compute_loss(alone, x, y)
    loss.backward(), wanted_loss.backward()
    torch.testing.assert_close(loss, wanted_loss)
    torch.testing.assert_close(model.body[0].weight.grad.full_tensor(), alone.body[0].weight.grad, rtol=2e-5, atol=2e-5)


def restart_bound_to_a_device():
    """The same once more in a second life, with device_id: groups are then split from their parent."""
    from torch.distributed.device_mesh import init_device_mesh

    dist.destroy_process_group()
    dist.init_process_group(device_id=device)
    assert dist.get_backend() in ("nccl", "undefined") and dist.get_backend_config().find("cuda:nccl") >= 0

    @case
    def bound_to_a_device():
        mesh = init_device_mesh("cuda", (1, size), mesh_dim_names=("replicate", "shard"))
        alone = make_model()
        alone_losses = train_alone(alone, adam)
        model = run_fully_shard(mesh)
        check(train_together(model, adam(model.parameters())), model, alone_losses, alone)
        half = dist.split_group(split_ranks=[[r] for r in range(size)])
        one = torch.ones(2, device=device)
        dist.all_reduce(one, group=half)
        assert one.tolist() == [1.0, 1.0] and dist.get_world_size(half) == 1
        some = dist.new_group([0])
        if rank == 0:
            dist.all_reduce(one, group=some)
        dist.barrier()


restart_bound_to_a_device()
if rank == 0:
    with open(os.path.join(folder, "answers.json"), "w") as file:
        json.dump(answers, file)
dist.destroy_process_group()
