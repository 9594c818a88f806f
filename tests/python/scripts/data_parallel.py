"""nn.DataParallel over all devices, with a tensor moved by hand between two of them."""

import argparse
import json

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))
        self.seen = []

    def forward(self, x):
        self.seen.append(str(x.device))
        return self.body(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(13)
    model = Model()
    data, labels = torch.randn(args.steps, 12, 16), torch.randint(0, 5, (args.steps, 12))
    seen = model.seen
    if args.device == "cuda":
        assert torch.cuda.device_count() == 2, torch.cuda.device_count()
        model = nn.DataParallel(model.cuda())
        a = torch.arange(6.0, device="cuda:0").view(2, 3)
        b = a.t().to("cuda:1")
        assert b.device.index == 1 and torch.equal(b.cpu(), a.cpu().t())
        with torch.cuda.device(1):
            assert torch.ones(1).cuda().device.index == 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(data[step].to(args.device)), labels[step].to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    if args.device == "cuda":
        assert sorted(set(seen)) == ["cuda:0", "cuda:1"], seen


if __name__ == "__main__":
    main()
