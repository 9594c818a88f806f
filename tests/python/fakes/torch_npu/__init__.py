"""A fake of Ascend's torch_npu."""

import fake_vendor
import torch

npu = fake_vendor.build("torch_npu", "npu", "2.1.0.post3")
npu.get_device_capability = lambda device=None: None  # as the real one says it
torch._register_device_module("npu", npu)
fake_vendor.register_collectives("hccl", "npu")
