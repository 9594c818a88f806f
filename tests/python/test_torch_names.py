"""What the extension looks up in PyTorch by name: one list, filled when it is needed, with an error that names what is
missing."""

import re

import torch
from ditorch import _C


def get_version() -> tuple[int, int]:
    return tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])


def test_this_torch_has_every_name_that_it_should_have():
    rows = _C.torch_names()
    names = [name for name, _, _ in rows]
    assert len(set(names)) == len(names) > 80
    for name, since, found in rows:
        if since is None:
            assert found, name
        elif re.fullmatch(r"\d+\.\d+", since):  # others depend on how torch was built
            assert found == (get_version() >= tuple(map(int, since.split(".")))), (name, since)


def test_importing_looks_up_next_to_nothing(python):
    python(
        """
        import sys, torch
        before = {name for name in sys.modules if name.startswith("torch.")}
        import ditorch
        late = {"torch.utils._device", "torch.distributed.tensor", "torch._subclasses.fake_tensor", "torch._dynamo"}
        assert not late & ({name for name in sys.modules} - before)
        """
    )


def test_a_missing_name_is_named_with_the_torch_that_lacks_it(python):
    python(
        """
        import torch, ditorch
        from op_tools import OpObserve
        kept = torch._C.DisableTorchFunction
        del torch._C.DisableTorchFunction
        for _ in range(2):
            try:
                OpObserve().start()
            except NotImplementedError as error:
                text = str(error)
                assert f"torch {torch.__version__} has no torch._C.DisableTorchFunction" in text, text
            else:
                raise AssertionError("did not raise")
        torch._C.DisableTorchFunction = kept  # nothing of the failure is left behind
        with OpObserve():
            torch.ones(2, device="cuda") + 1
        """
    )


def test_what_must_be_a_class_is_checked(python):
    python(
        """
        import torch, ditorch
        from op_tools import OpObserve
        torch.nn.Parameter = 3
        try:
            OpObserve().start()
        except NotImplementedError as error:
            assert "torch.nn.Parameter is int, not a class" in str(error), error
        else:
            raise AssertionError("did not raise")
        """
    )


def test_optional_names_may_be_missing(python):
    python(
        """
        import torch, ditorch
        from op_tools import OpAutoCompare, OpTimeMeasure
        del torch.nn.Buffer, torch._C._is_any_autocast_enabled, torch._C._len_torch_dispatch_stack, torch.Event
        del torch._C._dispatch_keys
        del torch._C._autograd._saved_tensors_hooks_set_tracing, torch._C._autograd._get_current_graph_task_keep_graph
        x = torch.ones(3, device="cuda", requires_grad=True)
        with OpAutoCompare() as tool, OpTimeMeasure():
            (x * 2).sum().backward()
        assert x.grad.tolist() == [2, 2, 2]
        """
    )


def test_threads_that_load_at_once(python):
    python(
        """
        import threading, torch, ditorch
        from ditorch import _C
        failed = []
        gate = threading.Barrier(8)
        def work():
            gate.wait()
            try:
                assert _C.tensor_stats(torch.ones(3))["mean"] == 1
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert not failed, failed
        """
    )
