"""The classes of operators (views, transfers, random numbers ...) against what PyTorch's own schemas and tags say."""

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import _C

NOT_TENSORS = {"get", "keys", "pop", "setdefault", "local_value", "to_here", "as_tensor"}
"""Of TorchScript: containers and remote references."""
MAY_COMPUTE = {"contiguous", "coalesce"}
"""Return their argument or compute: the result tells."""
DROPOUT_INSIDE = {"lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention"}
"""Draw random numbers only when a dropout probability says so."""


def list_schemas():
    return [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]


def is_class(name, word):
    return _C.engine_classify(name)[word]


def test_views_of_the_schemas_are_known():
    missing = set()
    for schema in list_schemas():
        name = schema.name.removeprefix("aten::")
        views = any(value.alias_info is not None and not value.alias_info.is_write for value in schema.returns)
        if views and not name.startswith("_") and not name.endswith("_copy"):
            known = is_class(schema.name, "view") or is_class(schema.name, "transfer")
            missing |= set() if known else {name}
    assert missing - NOT_TENSORS - MAY_COMPUTE == set()


def test_random_operators_of_the_tags_are_known():
    missing = set()
    for schema in list_schemas():
        name = schema.name.removeprefix("aten::")
        packet = getattr(torch.ops.aten, name, None)
        overload = getattr(packet, schema.overload_name or "default", None) if packet is not None else None
        seeded = overload is not None and torch.Tag.nondeterministic_seeded in overload.tags
        if seeded and not name.startswith("_") and not is_class(schema.name, "random"):
            missing.add(name)
    vendors = {name for name in missing if name.startswith(("miopen", "cudnn"))}
    assert missing - vendors - DROPOUT_INSIDE == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch.Tensor.view", {"view"}),
        ("torch.transpose", {"view"}),
        ("aten::view", {"view"}),
        ("torch.Tensor.to", {"transfer"}),
        ("torch.Tensor.cpu", {"transfer"}),
        ("torch.nn.functional.dropout", {"random"}),
        ("torch.Tensor.normal_", {"random"}),
        ("torch.nn.init.xavier_uniform_", {"random"}),
        ("torch.empty_like", {"uninitialised"}),
        ("torch.Tensor.resize_", {"uninitialised"}),
        ("torch.distributed.all_reduce", {"collective"}),
        ("c10d::allreduce_", {"collective"}),
        ("aten.view.default", {"view"}),
        ("aten.new_empty_strided.default", {"uninitialised"}),
        ("aten.add.Tensor", set()),
        ("torch.add", set()),
        ("view", {"view"}),
        ("", set()),
    ],
)
def test_names_of_both_levels(name, words):
    assert {word for word, yes in _C.engine_classify(name).items() if yes} == words


def test_every_word_of_the_table_is_classified():
    words = ("view", "transfer", "random", "uninitialised")
    counts = dict.fromkeys(words, 0)
    for name in _C.operator_list():
        traits, classes = _C.operator_find(name)["traits"], _C.engine_classify(name)
        for word in words:
            assert classes[word] == (word in traits), name
            counts[word] += classes[word]
    assert all(counts.values())


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="name is a str, not int"):
        _C.engine_classify(3)
