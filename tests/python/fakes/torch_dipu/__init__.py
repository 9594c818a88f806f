"""A fake of torch_dipu: no version of its own, a vendor_type, and no torch.dipu. With FAKE_DIPU_MOCK_CUDA=1 it presents
itself as CUDA on import, as the real one does by default."""

import os

import fake_vendor
import torch

vendor_type = "FAKECHIP"
dipu = fake_vendor.build("torch_dipu", "dipu", None, capability=(9, 1))
torch._register_device_module("dipu", dipu)
fake_vendor.register_collectives("dicl", "dipu")
if os.environ.get("FAKE_DIPU_MOCK_CUDA") == "1":
    for _name in ("is_available", "device_count", "current_device", "set_device", "synchronize"):
        setattr(torch.cuda, _name, getattr(dipu, _name))
