"""A small network, trained on the device: written for CUDA, runs on mychip."""

import torch

torch.manual_seed(0)
print("device:", torch.cuda.get_device_name())
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(256, 16).cuda()
y = x[:, :4].prod(1, keepdim=True)
first = last = float("nan")
for step in range(100):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    last = loss.item()
    first = last if step == 0 else first
print(f"loss: {first:.4f} -> {last:.4f}")
assert last < 0.5 * first, "the network did not learn"
