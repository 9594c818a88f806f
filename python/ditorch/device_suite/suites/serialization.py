"""Saving and loading on the device: every dtype, views that share memory, map_location, safe loading, copies."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_utils import TestCase, parametrize

DTYPES = tuple(
    all_types_and_complex_and(torch.half, torch.bfloat16, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2)
)


def save_and_load(value, **kwargs):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **kwargs)


def as_bytes(value):
    return value.detach().cpu().contiguous().view(torch.uint8) if value.dim() else value.detach().cpu()


class TestSerialization(TestCase):
    def _make(self, device, dtype, shape=(3, 4)):
        wide = dtype if not str(dtype).startswith("torch.float8") else torch.float32
        return make_tensor(shape, device="cpu", dtype=wide, low=-2, high=2).to(dtype).to(device)

    @dtypes(*DTYPES)
    @parametrize("kind", ["dense", "transposed", "sliced", "expanded", "empty", "scalar"])
    def test_round_trip(self, device, dtype, kind):
        shape = {"empty": (0, 3), "scalar": ()}.get(kind, (3, 4))
        value = self._make(device, dtype, shape)
        change = {
            "transposed": lambda v: v.t(),
            "sliced": lambda v: v[1:, ::2],
            "expanded": lambda v: v[:1].expand(3, 4),
        }
        value = change.get(kind, lambda v: v)(value)
        got = save_and_load(value)
        self.assertEqual(
            (got.device, got.dtype, got.shape, got.stride()), (value.device, dtype, value.shape, value.stride())
        )
        self.assertEqual(as_bytes(got), as_bytes(value))
        if dtype.itemsize > 1 or not dtype.is_floating_point:  # plain pickle has no storage type for float8
            self.assertEqual(as_bytes(pickle.loads(pickle.dumps(value))), as_bytes(value))
        self.assertEqual(as_bytes(copy.deepcopy(value)), as_bytes(value))

    @dtypes(*DTYPES)
    def test_map_location(self, device, dtype):
        value = self._make(device, dtype)
        places = ("cpu", torch.device("cpu"), {device: "cpu"}, lambda storage, place: storage.cpu())
        for place in places[: 3 if torch.device(device).type == "cpu" else 4]:
            got = save_and_load(value, map_location=place)
            self.assertEqual(got.device.type, "cpu")
            self.assertEqual(as_bytes(got), as_bytes(value))
        back = save_and_load(value.cpu(), map_location=device)
        self.assertEqual(back.device, value.device)
        self.assertEqual(as_bytes(back), as_bytes(value))

    @dtypes(torch.float32)
    def test_shared_memory_is_kept(self, device, dtype):
        base = self._make(device, dtype)
        rows = save_and_load([base, base[1:], base.t()])
        rows[0].fill_(5)
        self.assertEqual(rows[1], torch.full((2, 4), 5, dtype=dtype, device=device))
        self.assertEqual(rows[2].untyped_storage().data_ptr(), rows[0].untyped_storage().data_ptr())

    @dtypes(torch.float32)
    def test_parameters_and_gradients(self, device, dtype):
        value = torch.nn.Parameter(self._make(device, dtype))
        value.sum().backward()
        got = save_and_load(value)
        self.assertIsInstance(got, torch.nn.Parameter)
        self.assertTrue(got.requires_grad)
        leaf = self._make(device, dtype).requires_grad_()
        leaf.sum().backward()
        self.assertEqual(copy.deepcopy(leaf).grad, leaf.grad)

    @dtypes(torch.float32)
    def test_generator_state(self, device, dtype):
        generator = torch.Generator(device).manual_seed(5)
        state = save_and_load(generator.get_state())
        wanted = torch.rand(4, device=device, generator=generator)
        generator.set_state(state)
        self.assertEqual(torch.rand(4, device=device, generator=generator), wanted)

    @dtypes(torch.float32)
    def test_storages_and_old_format(self, device, dtype):
        value = self._make(device, dtype)
        file = io.BytesIO()
        torch.save(value, file, _use_new_zipfile_serialization=False)
        file.seek(0)
        self.assertEqual(torch.load(file, weights_only=True), value)
        storage = value.untyped_storage()
        again = copy.deepcopy(storage)
        self.assertEqual(again.device, storage.device)
        self.assertEqual(again.tolist(), storage.tolist())


instantiate_device_type_tests(TestSerialization, globals())
