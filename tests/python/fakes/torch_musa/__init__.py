"""A fake of Moore Threads' torch_musa: it knows its own capability."""

import fake_vendor
import torch

musa = fake_vendor.build("torch_musa", "musa", "2.0.0", capability=(3, 1), native_module="_MUSAC")
torch._register_device_module("musa", musa)
fake_vendor.register_collectives("mccl", "musa")
