"""Seeds and generator states of the device."""

import ditorch  # noqa: F401
import pytest
import torch


def draw(count=64):
    return torch.rand(count, device="cuda")


def test_manual_seed_reproduces():
    torch.cuda.manual_seed(7)
    first = draw()
    torch.cuda.manual_seed(7)
    assert torch.equal(first, draw()) and torch.cuda.initial_seed() == 7
    torch.cuda.manual_seed(8)
    assert not torch.equal(first, draw())
    assert not torch.equal(draw(), draw())


def test_torch_manual_seed_seeds_the_device_too():
    torch.manual_seed(11)
    first, cpu = draw(), torch.rand(4)
    torch.manual_seed(11)
    assert torch.equal(first, draw()) and torch.equal(cpu, torch.rand(4))
    assert torch.cuda.initial_seed() == 11


def test_state_round_trip():
    draw()
    state = torch.cuda.get_rng_state()
    assert state.dtype is torch.uint8 and not state.is_cuda
    first = draw()
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, draw())
    states = torch.cuda.get_rng_state_all()
    assert len(states) == torch.cuda.device_count()
    first = draw()
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(first, draw())
    for bad in (state[:3], state.float()):
        with pytest.raises((RuntimeError, TypeError), match="RNG state"):
            torch.cuda.set_rng_state(bad)


def test_fresh_seeds_differ():
    torch.cuda.seed()
    first = torch.cuda.initial_seed()
    torch.cuda.seed_all()
    assert torch.cuda.initial_seed() != first


def test_fork_rng_restores():
    torch.manual_seed(1)
    state = torch.cuda.get_rng_state()
    with torch.random.fork_rng():
        torch.manual_seed(99)
        draw()
    assert torch.equal(state, torch.cuda.get_rng_state())
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        draw()
    assert torch.equal(state, torch.cuda.get_rng_state())


def test_generators():
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.device == torch.device("cuda", 0) and generator.initial_seed() == 3
    first = torch.randn(8, device="cuda", generator=generator)
    assert torch.equal(first, torch.randn(8, device="cuda", generator=torch.Generator("cuda").manual_seed(3)))
    state = torch.cuda.get_rng_state()
    torch.randn(8, device="cuda", generator=generator)
    assert torch.equal(state, torch.cuda.get_rng_state())
    assert torch.cuda.default_generators[0].initial_seed() == torch.cuda.initial_seed()
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(8, device="cuda", generator=torch.Generator())


def test_dropout_uses_the_device_generator():
    x = torch.ones(1000, device="cuda")
    torch.cuda.manual_seed(5)
    first = torch.nn.functional.dropout(x, 0.5)
    torch.cuda.manual_seed(5)
    assert torch.equal(first, torch.nn.functional.dropout(x, 0.5))
    assert not torch.equal(first, torch.nn.functional.dropout(x, 0.5))


def test_seeds_before_the_first_use_are_kept(python):
    answer = python(
        """
        import torch, ditorch
        torch.cuda.manual_seed_all(1)
        torch.manual_seed(42)
        assert not torch.cuda.is_initialized()
        first = torch.rand(4, device="cuda")
        assert torch.cuda.is_initialized() and torch.cuda.initial_seed() == 42
        torch.manual_seed(42)
        assert torch.equal(first, torch.rand(4, device="cuda"))
        print("done")
        """
    )
    assert answer.stdout.strip() == "done"


def test_devices_have_their_own_generators(python):
    answer = python(
        """
        import torch, ditorch
        torch.cuda.manual_seed_all(3)
        a, b = torch.rand(4, device="cuda:0"), torch.rand(4, device="cuda:1")
        assert torch.equal(a.cpu(), b.cpu())
        with torch.cuda.device(1):
            torch.cuda.manual_seed(4)
        assert torch.cuda.default_generators[0].initial_seed() == 3
        assert torch.cuda.default_generators[1].initial_seed() == 4
        assert torch.cuda.get_rng_state(1).tolist() != torch.cuda.get_rng_state(0).tolist()
        print("done")
        """,
        DITORCH_HOST_DEVICES="2",
    )
    assert answer.stdout.strip() == "done"


@pytest.mark.parametrize("n", [0, 3, 30000])
def test_generators_belong_to_their_device(n):
    mine, cpu = torch.Generator("cuda"), torch.Generator()
    room = torch.empty(n, dtype=torch.int64)
    wrong = {
        "on the device": lambda: torch.randperm(n, generator=cpu, device="cuda"),
        "out= on the device": lambda: torch.randperm(n, generator=cpu, out=room.cuda()),
        "on the CPU": lambda: torch.randperm(n, generator=mine, device="cpu"),
        "on the CPU by default": lambda: torch.randperm(n, generator=mine),
        "rand": lambda: torch.rand(n, generator=mine),
        "normal_": lambda: torch.empty(n).normal_(generator=mine),
    }
    for name, call in wrong.items():
        with pytest.raises(RuntimeError, match=r"Expected a '.*' device type for generator but found"):
            call()
            raise AssertionError(name)
    assert torch.randperm(n, generator=mine, device="cuda").is_cuda
