"""`import dlinfer`, and transformers with attn_implementation="dlinfer"."""

import subprocess
import sys

import ditorch  # noqa: F401
import pytest
import torch

pytestmark = pytest.mark.usefixtures("warm_children")


def test_import_names():
    code = """
import dlinfer, dlinfer.ops as ext_ops
from dlinfer.utils.type_annotation import MoECommType, MoeMetadata
import dlinfer.framework.lmdeploy_ext, dlinfer.vendor
from dlinfer.vendor.ascend.version import ensure_ascend_runtime
import inspect, torch
assert list(inspect.signature(ext_ops.add_rms_norm).parameters) == ["hidden_states", "residual", "weight", "epsilon"]
assert MoeMetadata().moe_comm_type is MoECommType.UNDEFINED and MoeMetadata().router_n_groups == -1
assert dlinfer.vendor.vendor_name == "camb" and dlinfer.capability()["rms_norm"].runs == "c"
x = torch.ones(2, 4, device="cuda")
assert torch.allclose(ext_ops.rms_norm(x, x[0], 0.0), x)
try:
    import dlinfer.nonsense
except ModuleNotFoundError:
    print("fine")
"""
    import os

    environment = {**os.environ, "DLINFER_VENDOR": "camb", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0 and done.stdout.strip().endswith("fine"), done.stderr


def test_an_unknown_vendor_is_named():
    from ditorch.infer import vendors

    with pytest.raises(ValueError, match="no vendor 'ppu'; valid: ascend, maca, camb"):
        vendors.use("ppu")


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_transformers_generates_the_same_tokens(kind):
    transformers = pytest.importorskip("transformers")
    from ditorch.infer import transformers_attention

    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    torch.manual_seed(1)
    if kind == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    else:
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=None)).eval()
    prompt = torch.randint(0, 64, (2, 9))
    with torch.no_grad():
        expected = model(prompt).logits
        tokens = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
        device = transformers_attention.use(model.cuda())
        from ditorch import ledger

        def count():
            rows = ledger.operators()
            return next((row["calls"] for row in rows if row["operator"] == "dlinfer::paged_prefill_attention"), 0)

        before = count()
        logits = device(prompt.cuda()).logits
        assert count() == before + 2
        torch.testing.assert_close(logits.cpu(), expected, rtol=1e-4, atol=1e-4)
        result = device.generate(prompt.cuda(), max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(result.cpu(), tokens)
