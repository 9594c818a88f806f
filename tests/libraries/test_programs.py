"""Every program of tests/libraries/programs on the device, against the same program on the CPU without ditorch."""

from __future__ import annotations

import gc
import importlib
import importlib.util

import ditorch
import pytest
from judge import judge
from programs import CASES, LIBRARIES, seed_all

MISSING: dict[str, list[str]] = {}


def collect() -> list:
    found = []
    for module, needs in LIBRARIES.items():
        MISSING[module] = [name for name in needs if importlib.util.find_spec(name) is None]
        if MISSING[module]:
            mark = pytest.mark.skip(reason=f"{', '.join(MISSING[module])} not installed")
            found.append(pytest.param(module, "", id=module, marks=mark))
            continue
        importlib.import_module(f"programs.{module}")
        for name, case in CASES[module].items():
            library = name.partition("_")[0] if module == "vision" else (*needs, "torch")[0]
            mark = pytest.mark.feature(library, case.feature, case.variant)
            found.append(pytest.param(module, name, id=name, marks=mark))
    return found


@pytest.fixture(autouse=True)
def clean():
    """No tensors of a failed test count in the next one's memory."""
    yield
    gc.collect()


@pytest.mark.parametrize(("module", "name"), collect())
def test_program(module: str, name: str, reference, tmp_path) -> None:
    wanted = reference(module)[name]
    assert "error" not in wanted, f"the program fails on the CPU too:\n{wanted['error']}"
    assert wanted["device"] == "cpu"
    seed_all()
    mine = CASES[module][name].run(tmp_path)
    assert judge(name, mine, wanted["answer"]) == []


def is_here(module: str) -> bool:
    return not MISSING[module]


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        ("scripts", "gpt_script_bfloat16", "gpt_script_float32"),
        ("scripts", "gpt_script_float16", "gpt_script_float32"),
        ("trainer", "trainer_gpt2_bf16", "trainer_gpt2_float32"),
        ("trainer", "trainer_gpt2_fp16", "trainer_gpt2_float32"),
        ("acceleration", "accelerator_loop_fp16", "accelerator_loop_float32"),
        ("lightning_loop", "lightning_fit_16_mixed", "lightning_fit_32"),
    ],
)
def test_mixed_precision_was_on(module, name, other, tmp_path) -> None:
    """A run that forgot its autocast would agree with the CPU all the better."""
    if not is_here(module):
        pytest.skip(f"{module} needs {', '.join(MISSING[module])}")
    losses = []
    for number, program in enumerate((name, other)):
        (tmp_path / str(number)).mkdir()
        seed_all()
        losses.append(CASES[module][program].run(tmp_path / str(number))["losses"])
    assert losses[0] != losses[1]


BROKEN = [
    ("scripts", "gpt_script_float32", "precision:native_layer_norm,bits=10"),
    ("scripts", "word_model_lstm", "precision:addmm,bits=5"),
    ("trainer", "trainer_bert_float32", "precision:addmm,bits=10"),
    ("trainer", "trainer_qwen_moe_float32", "precision:mm,bits=10"),
    ("trainer", "trainer_resume", "value:native_layer_norm,call=20+,scale=0.01"),
    ("generation", "generate_scores", "precision:addmm,bits=10"),
    ("generation", "generate_greedy_llama", "value:argmax,call=3"),
    ("generation", "load_pretrained_map_device", "precision:native_layer_norm,bits=10"),
    ("acceleration", "big_model_cpu", "precision:addmm,bits=10"),
    ("lightning_loop", "lightning_fit_32", "precision:native_batch_norm,bits=10"),
    ("model_zoo", "x_decoder_plain", "precision:bmm,bits=10"),
]
"""Operators that compute with ten bits of mantissa, as matrix units do that call it float32, and wrong elements."""


@pytest.mark.parametrize(("module", "name", "fault"), BROKEN, ids=[row[1] for row in BROKEN])
def test_a_broken_operator_is_seen(module, name, fault, reference, tmp_path) -> None:
    """The comparison can fail: one operator that is slightly wrong turns a program red."""
    if not is_here(module):
        pytest.skip(f"{module} needs {', '.join(MISSING[module])}")
    seed_all()
    with ditorch.fault(fault) as injected:
        mine = CASES[module][name].run(tmp_path)
        assert injected.count > 0, f"{name} never calls the operator of {fault}"
    assert judge(name, mine, reference(module)[name]["answer"]) != []
