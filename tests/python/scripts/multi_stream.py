"""Copy and compute on two streams: pinned memory, asynchronous copies, events, record_stream, double buffering."""

import argparse
import json

import torch
import torch.nn as nn


class Prefetcher:
    """Copies the next batch on a side stream while the current one is in use."""

    def __init__(self, batches, device):
        self.batches, self.device = iter(batches), device
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        batch = next(self.batches, None)
        if batch is None:
            self.ready = None
            return
        with torch.cuda.stream(self.stream):
            self.ready = [t.to(self.device, non_blocking=True) for t in batch]
            self.ready[0] = self.ready[0] * 2 - 1
        self.event = self.stream.record_event()

    def __iter__(self):
        while self.ready is not None:
            torch.cuda.current_stream().wait_event(self.event)
            batch = self.ready
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
            self.preload()
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.rand(256, 64), torch.randint(0, 4, (256,))) for _ in range(args.steps)]
    if cuda:
        batches = [tuple(t.pin_memory() for t in batch) for batch in batches]
        assert all(t.is_pinned() for batch in batches for t in batch)
        feed = Prefetcher(batches, args.device)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
    else:
        feed = ((x * 2 - 1, y) for x, y in batches)
    losses = []
    for x, y in feed:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if cuda:
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) > 0
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            host = torch.empty(len(losses)).pin_memory()
            host.copy_(torch.stack(losses), non_blocking=True)
        side.synchronize()
        assert side.query()
        torch.cuda.synchronize()
    else:
        host = torch.stack(losses)
    for step, loss in enumerate(host.tolist()):
        print(json.dumps({"step": step, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
