"""A newcomer's own script: from a bad loss to the operator and its line, in one command each."""

from __future__ import annotations

import pytest
from conftest import run_python

SCRIPT = """
import sys
import torch

torch.manual_seed(0)
layers = [torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 1)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(9):
    x = torch.rand(8, 16, device="cuda")
    y = model(x)
    if step == 7 and "nan" in sys.argv:
        y = (y - y.max() - 1).log()
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""


@pytest.mark.parametrize(
    ("words", "fault", "status", "texts"),
    [
        (("nan", "mine.py", "nan"), "", 1, ("torch.Tensor.log made NaN or Inf, step 7, mine.py:13",)),
        (
            ("run", "--tool", "autocompare", "--steps", "0-1", "--check", "mine.py"),
            "value:layer_norm,scale=0.5",
            1,
            ("torch.nn.functional.layer_norm is wrong", "mine.py:11", "module Sequential.2", "ditorch replay"),
        ),
        (("run", "--tool", "autocompare", "--steps", "0-1", "--check", "mine.py"), "", 0, ("autocompare",)),
    ],
    ids=["nan at step 7", "a broken operator", "nothing wrong"],
)
def test_one_command(words, fault, status, texts, tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    settings = {"check": False, "cwd": tmp_path, "trains": True}
    done = run_python("-m", "ditorch", *words, **settings, DITORCH_FAULT=fault, COLUMNS=200)
    assert done.returncode == status, done.stderr
    for text in texts:
        assert text in done.stderr
