"""A few of the programs of tests/libraries in the normal run; `make test-libraries` has them all.

Each runs on the CPU in a child process without ditorch and on the device here, and the answers must agree. Programs of
libraries that are not installed are skipped; docs/libraries.md is held against the sources, which needs none.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import ditorch
import pytest
import torch

LIBRARIES = Path(__file__).resolve().parents[1] / "libraries"
SAMPLE = {
    "scripts": [
        "gpt_script_float32",
        "gpt_script_bfloat16",
        "gpt_script_float16",
        "gpt_script_late_cuda",
        "word_model_lstm",
        "word_model_transformer",
        "random_numbers",
        "memory_counters",
    ],
    "trainer": ["trainer_gpt2_float32", "trainer_qwen_moe_float32", "trainer_bert_bf16", "trainer_resume"],
    "generation": ["generate_greedy_llama", "generate_sampling", "pipeline_text_text", "load_pretrained_map_auto"],
    "acceleration": ["accelerator_loop_fp16", "accelerator_state", "safetensors_direct", "big_model_cpu"],
}


@pytest.fixture(scope="module")
def programs():
    """The package of programs, which choose their device when they are imported."""
    sys.path.insert(0, str(LIBRARIES))
    try:
        package = importlib.import_module("programs")
        package.judge = importlib.import_module("judge").judge
        assert package.DEVICE == "cuda"
        yield package
    finally:
        sys.path.remove(str(LIBRARIES))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Function: the CPU's answers of a module's sample, computed once without ditorch."""
    known = {}

    def run(module: str) -> dict:
        if module not in known:
            folder = tmp_path_factory.mktemp(module)
            environment = {name: text for name, text in os.environ.items() if not name.startswith("DITORCH_")}
            environment.pop("PYTHONPATH", None)
            words = [sys.executable, "-W", "ignore", "-m", "programs", module, str(folder), *SAMPLE[module]]
            answer = subprocess.run(words, capture_output=True, text=True, cwd=LIBRARIES, env=environment, timeout=900)
            assert answer.returncode == 0, answer.stderr[-4000:]
            known[module] = json.loads(answer.stdout.strip().splitlines()[-1])
        return known[module]

    return run


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in SAMPLE.items() for name in names])
def test_program(module: str, name: str, programs, reference, tmp_path) -> None:
    missing = [need for need in programs.LIBRARIES[module] if importlib.util.find_spec(need) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (requirements-libraries.txt)")
    importlib.import_module(f"programs.{module}")
    wanted = reference(module)[name]
    assert wanted["device"] == "cpu" and "error" not in wanted, wanted.get("error")
    programs.seed_all()
    mine = programs.CASES[module][name].run(tmp_path)
    assert programs.judge(name, mine, wanted["answer"]) == []


def test_a_broken_operator_is_seen(programs, reference, tmp_path) -> None:
    importlib.import_module("programs.scripts")
    programs.seed_all()
    with ditorch.fault("precision:native_layer_norm,bits=10") as injected:
        mine = programs.CASES["scripts"]["gpt_script_float32"].run(tmp_path)
        assert injected.count > 0
    wanted = reference("scripts")["gpt_script_float32"]["answer"]
    assert programs.judge("gpt_script_float32", mine, wanted) != []


def test_the_judge_sees_every_kind_of_difference(programs) -> None:
    answer = {"losses": [2.0, 1.0], "tokens": [[1, 2]], "tied": True, "weights": {"a": 1.0, "x.key.bias": 0.1}}

    def found(**changes) -> list[str]:
        return programs.judge("some_float32", {**answer, **changes}, answer)

    assert found() == []
    assert found(losses=[2.0 + 1e-6, 1.0]) == []
    assert found(weights={"a": 1.0, "x.key.bias": 0.2}) == []  # noise alone
    for change in (
        {"losses": [2.0, 1.001]},
        {"losses": [2.0, float("nan")]},
        {"losses": [2.0]},
        {"tokens": [[1, 3]]},
        {"tokens": [[1, 2, 2]]},
        {"tied": False},
        {"weights": {"a": 1.1, "x.key.bias": 0.1}},
        {"weights": {"b": 1.0, "x.key.bias": 0.1}},
        {"extra": 1},
    ):
        assert found(**change) != [], change
    assert programs.judge("some_bf16", {"losses": [1.005]}, {"losses": [1.0]}) == []
    assert programs.judge("some_bf16", {"losses": [1.02]}, {"losses": [1.0]}) != []


def test_page_lists_every_feature() -> None:
    spec = importlib.util.spec_from_file_location("libraries_table", LIBRARIES / "table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    declared, listed = table.list_features(), table.listed_features(table.PAGE.read_text())
    assert declared - listed == set(), "not in docs/libraries.md; run make test-libraries and tests/libraries/table.py"
    assert listed - declared == set(), "in docs/libraries.md, but no test declares it"


# What Qwen-MoE asks of the device: histc of integers, which CUDA has and the CPU has not


def count_bins(values: list[int], bins: int, low: int, high: int) -> list[int]:
    found = [0] * bins
    for value in values:
        if low <= value <= high:
            found[min((value - low) * bins // (high - low), bins - 1)] += 1
    return found


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_histc_of_integers(dtype) -> None:
    values = torch.randint(0, 11, (6, 8), generator=torch.Generator().manual_seed(2)).to(dtype)
    mine = values.cuda().t()
    for bins, low, high in ((5, 0, 9), (4, 2, 3), (7, -3, 60), (10, 0.5, 9.7), (3, 0, 0)):
        ends = (int(values.min()), int(values.max())) if low == high else (int(low), int(high))
        wanted = count_bins(values.flatten().tolist(), bins, *ends)
        result = torch.histc(mine, bins=bins, min=low, max=high)
        assert result.dtype is dtype and result.is_cuda and result.tolist() == wanted
        target = torch.empty(0, dtype=dtype, device="cuda")
        assert torch.histc(mine, bins=bins, min=low, max=high, out=target) is target
        assert target.tolist() == wanted


def test_histc_of_integers_refuses_what_cuda_refuses() -> None:
    values = torch.ones(3, dtype=torch.int32, device="cuda")
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(values, bins=0, min=0, max=1)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(values, bins=3, min=5, max=1)
    assert torch.histc(values[:0], bins=2).tolist() == [0, 0]
