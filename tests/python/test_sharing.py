"""Device tensors between processes: one memory, kept while somebody needs it; every misuse a clear error.

Most tests send a tensor to the process they run in: the path is the same as between two (the handles are opened through
/proc), and it is quick. The real processes are at the end.
"""

import gc
import os
import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import ditorch  # noqa: F401
import pytest
import torch
from conftest import child_environment


def send(value):
    return bytes(ForkingPickler.dumps(value))


def receive(message):
    return pickle.loads(message)


@pytest.fixture(autouse=True)
def nothing_left():
    """Every message that a test sends is received or given up by the end of it."""
    yield
    gc.collect()
    torch.cuda.ipc_collect()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_one_memory_two_tensors(dtype):
    mine = torch.arange(12, device="cuda").reshape(3, 4).to(dtype)
    address = mine.data_ptr()
    other = receive(send(mine))
    assert other.is_cuda and other.device == mine.device and other.dtype == dtype and other.shape == mine.shape
    assert other.data_ptr() != mine.data_ptr() == address
    assert torch.equal(other, mine)
    other[1, 2] = 0
    mine[0, 1] = 0
    assert torch.equal(other, mine) and mine[1, 2].item() == 0 and other[0, 1].item() == 0


def test_views_offsets_and_strides():
    base = torch.arange(60.0, device="cuda").reshape(3, 4, 5)
    views = [base[1:, ::2], base.transpose(0, 2), base[2, 3, 4], base.expand(2, 3, 4, 5), base[:, 1:1], base]
    got = receive(send(views))
    for mine, other in zip(views, got, strict=True):
        assert other.stride() == mine.stride() and other.storage_offset() == mine.storage_offset()
        assert torch.equal(other, mine)
    assert len({other.untyped_storage().data_ptr() for other in got}) == 1  # they still share one storage
    got[0].fill_(-1)
    assert (base[1:, ::2] == -1).all() and torch.equal(got[-1], base)


def test_requires_grad_parameters_and_refusal_of_graphs():
    leaf = torch.ones(3, device="cuda", requires_grad=True)
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    frozen = torch.nn.Parameter(torch.ones(2, device="cuda", dtype=torch.int64), requires_grad=False)
    a, b, c = receive(send((leaf, parameter, frozen)))
    assert a.requires_grad and a.is_leaf
    assert isinstance(b, torch.nn.Parameter) and b.requires_grad and not c.requires_grad
    (a * 2).sum().backward()
    assert a.grad.tolist() == [2, 2, 2] and leaf.grad is None
    with pytest.raises(RuntimeError, match="Cowardly refusing"):
        send(leaf * 2)


def test_empty_tensors_and_modules():
    empty, scalar = receive(send((torch.empty(0, 5, device="cuda", dtype=torch.int32), torch.tensor(3, device="cuda"))))
    assert empty.shape == (0, 5) and empty.is_cuda and empty.dtype == torch.int32 and scalar.item() == 3
    layer = torch.nn.Linear(3, 2).cuda()
    copy = receive(send(layer))
    with torch.no_grad():
        layer.weight.fill_(0.5)
    assert torch.equal(copy.weight, layer.weight) and copy.weight.is_cuda
    assert layer.share_memory().weight.is_shared()  # as with CUDA: nothing to do


def test_the_same_storage_sent_twice_is_one_storage_there():
    mine = torch.zeros(4, device="cuda")
    first, second = receive(send(mine)), receive(send(mine[2:]))
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    second.fill_(5)
    assert mine.tolist() == [0, 0, 5, 5] == first.tolist()


def test_memory_is_kept_until_the_receiver_lets_go():
    torch.cuda.ipc_collect()
    before = torch.cuda.memory_allocated()
    mine = torch.full((1000,), 7.0, device="cuda")
    address = mine.data_ptr()
    message = send(mine)
    del mine
    gc.collect()
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() == before + 4096  # on its way
    other = receive(message)
    torch.cuda.ipc_collect()
    fresh = [torch.zeros(1000, device="cuda") for _ in range(4)]
    assert torch.cuda.memory_allocated() == before + 5 * 4096 and address not in [x.data_ptr() for x in fresh]
    assert (other == 7).all()
    del other
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() == before + 4 * 4096


def test_a_message_counts_once():
    mine = torch.ones(3, device="cuda")
    message = send(mine)
    other = receive(message)
    again = receive(message)  # the storage is here already: allowed, as with CUDA
    assert again.data_ptr() == other.data_ptr()
    del other, again
    gc.collect()
    with pytest.raises(RuntimeError, match="received before"):
        receive(message)


def test_what_was_received_cannot_be_sent_on():
    other = receive(send(torch.ones(3, device="cuda")))
    with pytest.raises(RuntimeError, match="received from another process"):
        send(other)
    assert torch.equal(receive(send(other.clone())), other)
    with pytest.raises(RuntimeError, match="not resizable"):
        other.resize_(100)


def test_a_received_tensor_is_a_tensor_like_any_other():
    other = receive(send(torch.arange(1000.0, device="cuda")))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        doubled = other * 2
        other.record_stream(stream)
    other.add_(0)
    pinned = torch.empty(1000).pin_memory()
    pinned.copy_(other, non_blocking=True)
    stream.synchronize()
    torch.cuda.synchronize()
    assert torch.equal(doubled, other + other) and torch.equal(pinned, other.cpu())
    with torch.cuda.stream(stream):
        for _ in range(50):
            other.add_(1)
    del other  # waits for the stream
    gc.collect()


def test_a_sent_tensor_goes_on_as_before():
    mine = torch.arange(6.0, device="cuda")
    alias = mine[2:]
    exported = torch.from_dlpack(mine)
    other = receive(send(mine))
    alias.add_(10)
    assert exported[2].item() == 12 and other[2].item() == 12
    mine.untyped_storage().resize_(4096 * 4)  # leaves the shared memory, as with CUDA
    assert mine[2].item() == 12 and other[2].item() == 12
    mine.fill_(0)
    assert other[2].item() == 12


def test_queued_work_is_done_before_the_message_leaves():
    for _ in range(20):  # each time in memory that was never shared, which moves while the kernels write to it
        torch.cuda.empty_cache()
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.zeros(1 << 16, device="cuda")
            for _ in range(100):
                x += 1
        assert (receive(send(x)) == 100).all()
        del x
        torch.cuda.ipc_collect()


def test_bad_handles_are_refused():
    storage = torch.ones(3, device="cuda").untyped_storage()
    _, memory, size, offset, counters, ticket, *_ = storage._share_cuda_()
    new = torch.UntypedStorage._new_shared_cuda
    for change in [
        (0, b"", size, offset, counters, ticket),
        (0, b"zz" * 64, size, offset, counters, ticket),
        (0, memory, 0, offset, counters, ticket),
        (0, memory, size, -1, counters, ticket),
        (0, memory, 1 << 40, offset, counters, ticket),
        (0, memory, size, offset, counters[:-1], ticket),
        (0, memory, size, offset, memory[:64], ticket),
        (0, memory, size, offset, counters, 1 << 50),
        (99, memory, size, offset, counters, ticket),
    ]:
        with pytest.raises(RuntimeError):
            new(*change)
    with pytest.raises(TypeError, match="bytes"):
        new(0, "text", size, offset, counters, ticket)
    with pytest.raises(RuntimeError, match="only available on CUDA"):
        torch.ones(3).untyped_storage()._share_cuda_()


def test_a_full_device_asks_receivers_first_and_uninstall_takes_the_methods_back(python):
    answer = python(
        """
        import pickle, torch
        from multiprocessing.reduction import ForkingPickler
        before = {name: getattr(torch.UntypedStorage, name) for name in ("_share_cuda_", "_new_shared_cuda")}
        reducers = dict(ForkingPickler._extra_reducers)
        import ditorch
        assert torch.UntypedStorage._share_cuda_ is not before["_share_cuda_"]
        for step in range(20):
            x = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
            got = pickle.loads(ForkingPickler.dumps(x))
            del x
            del got  # nobody says ipc_collect
        ditorch.uninstall()
        assert before == {name: getattr(torch.UntypedStorage, name) for name in before}
        assert reducers == ForkingPickler._extra_reducers
        print("same")
        """,
        DITORCH_HOST_MEMORY="32MiB",
    )
    assert "same" in answer.stdout


@pytest.mark.parametrize("options", [{"DITORCH_ALIAS": "python"}, {"DITORCH_SHOW_DEVICE_AS_CUDA": "0"}])
def test_other_ways_to_name_the_device(python, options):
    answer = python(
        """
        import pickle, torch, ditorch
        from multiprocessing.reduction import ForkingPickler
        x = torch.arange(6.0, device="cuda")
        y, p, e = pickle.loads(ForkingPickler.dumps((x[2:], torch.nn.Parameter(x), torch.empty(0, device="cuda"))))
        y += 1
        assert x.tolist() == [0, 1, 3, 4, 5, 6] == p.tolist() and p.requires_grad and y.is_cuda and e.shape == (0,)
        print(pickle.loads(ForkingPickler.dumps(torch.ones(2))).tolist())
        """,
        **options,
    )
    assert answer.stdout.strip() == "[1.0, 1.0]"


PROGRAM = """
import sys, torch
import torch.multiprocessing as multiprocessing


def child(x, requests, answers, pipe):
    x += 1                                        # came with the arguments
    while (value := requests.get()) is not None:
        tensor, other = value
        tensor.mul_(2)
        other.fill_(7)
        answers.put((tensor.sum().item(), str(other.device), other.is_contiguous()))
    own = torch.arange(4.0, device="cuda:1")
    pipe.send(own)                                # the parent's side of the memory outlives nothing here
    pipe.recv()
    answers.put(own.tolist())
    answers.put(torch.full((3,), 9.0, device="cuda"))   # never received: this process ends first
    pipe.recv()


def square(x):
    return x * x


def main(method):
    context = multiprocessing.get_context(method)
    x = torch.zeros(3, device="cuda")
    a, b = torch.arange(12.0, device="cuda").reshape(3, 4), torch.zeros(4, 4, device="cuda:1")
    requests, answers = context.Queue(), context.Queue()
    here, there = context.Pipe()
    process = context.Process(target=child, args=(x, requests, answers, there))
    process.start()
    there.close()
    requests.put((a[1:], b[:, 1]))
    print(answers.get(timeout=600))
    requests.put((a, b.t()))
    print(answers.get(timeout=600))
    requests.put(None)
    own = here.recv()
    own += 100
    here.send("go on")
    print(answers.get(timeout=600), own.device)
    print(x.tolist(), a.tolist(), b.sum().item())
    here.send("end")
    process.join(600)
    try:
        answers.get(timeout=600)
    except RuntimeError as error:
        print("ended" if "has ended" in str(error) else error)
    print(process.exitcode)
    print(own.tolist())                           # received memory outlives its producer
    if method == "forkserver":
        return
    with context.Pool(1) as pool:
        print([y.tolist() for y in pool.map(square, [a[0], a[1]])], pool.apply(square, (b[0],)).device)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(6.0, device="cuda")), batch_size=2, num_workers=1,
        multiprocessing_context=method)
    print([(batch.tolist(), str(batch.device)) for (batch,) in loader])


if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.full)])
def test_processes(python, tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    answer = python("-m", "ditorch", "--set", "banner=0", "--set", "host_devices=2", str(script), method)
    wanted = [
        "(120.0, 'cuda:1', False)",
        "(252.0, 'cuda:1', False)",
        "[100.0, 101.0, 102.0, 103.0] cuda:1",
        "[1.0, 1.0, 1.0] [[0.0, 2.0, 4.0, 6.0], [16.0, 20.0, 24.0, 28.0], [32.0, 36.0, 40.0, 44.0]] 112.0",
        "ended",
        "0",
        "[100.0, 101.0, 102.0, 103.0]",
        "[[0.0, 4.0, 16.0, 36.0], [256.0, 400.0, 576.0, 784.0]] cuda:1",
        "[([0.0, 1.0], 'cuda:0'), ([2.0, 3.0], 'cuda:0'), ([4.0, 5.0], 'cuda:0')]",
    ]
    assert answer.stdout.splitlines() == (wanted if method == "spawn" else wanted[:7])
    # children of a fork server end without their exit functions, as CUDA's do
    assert ("ends before 1 device tensor" in answer.stderr) == (method == "spawn")


def test_a_forked_child_is_refused_in_torchs_words(python):
    answer = python(
        """
        import torch, ditorch
        import torch.multiprocessing as multiprocessing

        def child(queue, answers):
            try:
                queue.get()
            except RuntimeError as error:
                answers.put(str(error))

        context = multiprocessing.get_context("fork")
        queue, answers = context.Queue(), context.Queue()
        x = torch.ones(3, device="cuda")
        process = context.Process(target=child, args=(queue, answers))
        process.start()
        queue.put(x)
        print(answers.get(timeout=600))
        process.join()
        print(x.sum().item(), process.exitcode)
        """
    )
    first, second = answer.stdout.splitlines()
    assert "Cannot re-initialize CUDA in forked subprocess" in first and second == "3.0 0"


def test_a_killed_process_leaves_nothing_behind():
    program = """
import os, sys, torch, ditorch
from multiprocessing.reduction import ForkingPickler
x = torch.ones(1000, device="cuda")
sys.stdout.buffer.write(bytes(ForkingPickler.dumps(x)).hex().encode() + b"\\n")
sys.stdout.flush()
sys.stdin.read()
"""
    before = set(os.listdir("/dev/shm"))
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment()
    )
    message = bytes.fromhex(child.stdout.readline().decode())
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    with pytest.raises(RuntimeError, match=f"process {child.pid}, which shared this memory, has ended"):
        receive(message)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if str(child.pid) in name]
