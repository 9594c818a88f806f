"""A fake of the vendor's transfer shim: it makes torch.cuda the vendor's module, and "cuda" arguments "npu"."""

import torch

import torch_npu

USED = True

for _name in ("is_available", "device_count", "current_device", "set_device", "synchronize", "memory_allocated"):
    setattr(torch.cuda, _name, getattr(torch_npu.npu, _name))

_to = torch.Tensor.to


def _translate(value):
    return value.replace("cuda", "npu") if isinstance(value, str) and value.startswith("cuda") else value


def to(self, *args, **kwargs):
    return _to(self, *map(_translate, args), **{key: _translate(value) for key, value in kwargs.items()})


torch.Tensor.to = to
torch.Tensor.cuda = lambda self, device=None: _to(self, "npu")
