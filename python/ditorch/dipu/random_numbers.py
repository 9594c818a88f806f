"""torch_dipu.dipu: random numbers. The generators are the ones that the operators draw from."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

from .. import _C
from .device import DEVICE_NAME, device_count, get_index


def get_generator(device: Any = None) -> torch.Generator:
    """The generator that operators on the device use when they are given none."""
    return torch.ops.ditorch.default_generator(get_index(device, optional=True))


def create_generator(index: int = -1) -> torch.Generator:
    """A generator of its own (torch_dipu._C._create_dipu_generator)."""
    return torch.Generator(torch.device(DEVICE_NAME, get_index(index, optional=True)))


def get_rng_state(device: Any = DEVICE_NAME) -> torch.Tensor:
    """Seed and offset of the device's generator as bytes."""
    return get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Any = DEVICE_NAME) -> None:
    """Go on from a state of get_rng_state."""
    get_generator(device).set_state(new_state.clone(memory_format=torch.contiguous_format))


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    for index in range(device_count()):
        get_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device with a number from the system."""
    get_generator().seed()


def seed_all() -> None:
    """Seed every device with the same number from the system."""
    if device_count():
        manual_seed_all(get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device."""
    return get_generator().initial_seed()


def default_generators() -> tuple[torch.Generator, ...]:
    """The generators of all devices, in order."""
    return tuple(get_generator(index) for index in range(device_count()))


def names() -> dict[str, Any]:
    """What torch_dipu.dipu exports of this file."""
    exported = (get_rng_state, get_rng_state_all, set_rng_state, set_rng_state_all)
    exported += (manual_seed, manual_seed_all, seed, seed_all, initial_seed)
    found = {function.__name__: function for function in exported}
    return {**found, "default_generators": default_generators(), "_is_in_bad_fork": _C.is_bad_fork}


def fill(module: ModuleType) -> None:
    """torch_dipu.dipu.random_dipu and .generator."""
    vars(module).update(names())
    module.Generator = torch.Generator
