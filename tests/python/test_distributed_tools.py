"""The questions of test_collectives.py (functions of torch.distributed under the tools) to device tensors and nccl."""

from __future__ import annotations

import pytest
import test_collectives as plain
import torch.distributed as dist

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")

CHANGES = {
    'dist.init_process_group("gloo")': 'dist.init_process_group("nccl")\ntorch.set_default_device("cuda")',
    "torch.randn(*shape, ": 'torch.randn(*shape, device="cpu", ',
    "torch.Generator()": 'torch.Generator("cpu")',
    ".to(dtype)": '.to("cuda", dtype)',
    "dist.all_reduce(mine(3, 3, 4).T)": "dist.all_reduce(mine(3, 4, 3))",  # refused, as by NCCL
}


def run_ranks(folder, text):
    prelude = plain.PRELUDE
    for old, new in CHANGES.items():
        assert old in plain.PRELUDE + plain.COMPARE, old
        prelude, text = prelude.replace(old, new), text.replace(old, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "PRELUDE", prelude)
        return plain.run_ranks(folder, text)


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("watch"), plain.WATCH)[0]


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("compare"), plain.COMPARE)


test_sync_calls_are_captured = plain.test_c8_sync_calls_are_captured
test_nothing_is_looked_at_before_wait = plain.test_trap_collective_before_wait
test_other_ways_to_wait = plain.test_other_ways_to_wait
test_every_function_gives_the_same_and_is_seen = plain.test_every_function_gives_the_same_and_is_seen
test_originals_come_back = plain.test_originals_come_back
test_tools_do_not_wait_for_others = plain.test_tools_do_not_wait_for_others
test_coalesced_calls_are_left_alone = plain.test_coalesced_calls_are_left_alone
test_overflow_and_exceptions = plain.test_overflow_and_exceptions
test_clean_collectives_are_compared_and_not_accused = plain.test_clean_collectives_are_compared_and_not_accused
test_a_broken_collective_is_named = plain.test_a_broken_collective_is_named_by_the_rank_that_saw_it
test_one_rank_alone_does_not_hang = plain.test_one_rank_alone_does_not_hang
test_ranks_at_different_calls_notice = plain.test_ranks_at_different_calls_notice


def test_started_tools_see_collectives(watch):
    for answer in watch:
        assert answer["started"].count("torch.distributed.all_reduce") == 2
        assert answer["started aten"].count("torch.distributed.all_reduce") == 2
