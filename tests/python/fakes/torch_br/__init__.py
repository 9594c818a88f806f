"""A fake of Biren's torch_br: the device is called supa."""

import fake_vendor
import torch

supa = fake_vendor.build("torch_br", "supa", "1.10.0")
torch._register_device_module("supa", supa)
fake_vendor.register_collectives("succl", "supa")
