"""A fake of Cambricon's torch_mlu."""

import fake_vendor
import torch

mlu = fake_vendor.build("torch_mlu", "mlu", "1.17.0", native_module="_MLUC")
torch._register_device_module("mlu", mlu)
fake_vendor.register_collectives("cncl", "mlu")
