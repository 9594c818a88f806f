"""List operators over the emulated CUDA driver: positions share launches; results are those of one after another."""

from conftest import run_python
from cuda_emulator import EMULATOR, needs_emulator

LISTS = """
import ditorch, torch
torch.manual_seed(0)
def turned(tensors):  # some of them without neighbours in memory
    return [t.t() if t.dim() == 2 and i % 3 == 0 else t for i, t in enumerate(tensors)]
def in_place(a, b, c, numbers):
    torch._foreach_add_(a, b, alpha=0.5)
    torch._foreach_mul_(a, numbers)
    torch._foreach_addcdiv_(a, b, c, numbers)
    return a
def mixed(a, b, c, numbers):
    torch._foreach_add_(turned(a), [t.contiguous() for t in turned(b)])
    return a
def one_twice(a, b, c, numbers):  # each position needs what the one before it wrote
    torch._foreach_mul_([a[0], a[0], a[0]], [b[0], b[0], b[0]])
    return a
def overlapping(a, b, c, numbers):  # views of one storage, written by one position and read by the next
    whole = torch.cat([t.flatten() for t in a])
    size = len(whole) // 2
    torch._foreach_add_([whole[:size], whole[size : 2 * size]], [whole[size : 2 * size], whole[:size]])
    return [whole]
WAYS = [
    lambda a, b, c, n: torch._foreach_add(a, b, alpha=0.5), lambda a, b, c, n: torch._foreach_addcdiv(a, b, c, n),
    lambda a, b, c, n: torch._foreach_addcmul(a, b, c, value=0.3), lambda a, b, c, n: torch._foreach_sqrt(a),
    lambda a, b, c, n: torch._foreach_div(a, n), lambda a, b, c, n: torch._foreach_lerp(a, b, 0.25),
    lambda a, b, c, n: torch._foreach_mul(a, 2.0), lambda a, b, c, n: torch._foreach_maximum(a, b),
    in_place, mixed, one_twice, overlapping,
]
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    for count in (2, 300):
        shapes = [(7 * i % 13 + 1, 5 * i % 31 + 1) if i % 7 else (70000,) if i == 49 else (8, 8) for i in range(count)]
        lists = [[(torch.rand(shape) + 1).to(dtype) for shape in shapes] for _ in range(3)]
        numbers = [0.5 + 0.01 * i for i in range(count)]
        for number, way in enumerate(WAYS):
            wanted = way(*[[t.clone() for t in tensors] for tensors in lists], numbers)
            got = way(*[[t.cuda() for t in tensors] for tensors in lists], numbers)
            limit = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float64: 1e-14}[dtype]
            for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
                torch.testing.assert_close(one.cpu(), other, rtol=limit, atol=limit, msg=lambda m: f"{number} {i} {m}")
names = {row["operator"] for row in ditorch.operators()}
assert {"aten::_foreach_add_.List", "aten::_foreach_addcdiv.ScalarList"} <= names, names
assert not list(ditorch.fallbacks()), ditorch.fallbacks()
"""


@needs_emulator
def test_positions_of_a_list_share_launches():
    run_python("-c", LISTS, LD_LIBRARY_PATH=str(EMULATOR[-1].parent), DITORCH_BACKEND="nvidia")
