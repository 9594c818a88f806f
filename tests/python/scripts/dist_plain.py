"""A training as tutorials have it, for `torchrun`: it knows nothing but CUDA and nccl."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl", device_id=torch.device("cuda", local_rank))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "nccl" and torch.cuda.current_device() == local_rank

    torch.manual_seed(0)
    x = torch.randn(64, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
    model = DDP(
        torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).cuda(), [local_rank]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for epoch in range(5):
        sampler.set_epoch(epoch)
        total = torch.zeros(1, device="cuda")
        for inputs, targets in loader:
            inputs, targets = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item() / len(loader))
    dist.barrier()
    if rank == 0:
        assert losses[-1] < losses[0] / 2, losses
        print(f"trained on {world_size} devices: {model.device}, {next(model.parameters()).is_cuda}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
