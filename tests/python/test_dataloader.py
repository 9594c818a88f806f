"""DataLoader workers, pinned memory, threads and child processes."""

import queue
import threading

import ditorch  # noqa: F401
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((3,), float(index)), {"square": index * index, "pair": (index, [torch.tensor(index)])}


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        yield from (torch.tensor(float(i)) for i in range(info.id if info else 0, 10, info.num_workers if info else 1))


@pytest.mark.parametrize("workers,pin", [(0, False), (0, True), (2, False), (2, True)])
def test_batches_reach_the_device(workers, pin):
    torch.ones(1, device="cuda")  # the device is in use before workers are forked
    loader = DataLoader(Squares(), batch_size=5, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)
    for _ in range(2):
        seen = []
        for x, extra in loader:
            assert (
                x.is_pinned() == pin and extra["square"].is_pinned() == pin and extra["pair"][1][0].is_pinned() == pin
            )
            x = x.to("cuda", non_blocking=pin)
            torch.testing.assert_close((x[:, 0] ** 2).long().cpu(), extra["square"])
            seen += extra["pair"][0].tolist()
        assert seen == list(range(24))


def test_iterable_dataset_and_shuffle():
    assert sorted(
        float(x) for batch in DataLoader(Stream(), num_workers=2, pin_memory=True) for x in batch.cuda()
    ) == list(range(10))
    torch.manual_seed(0)
    first = [x.tolist() for (x,) in DataLoader(TensorDataset(torch.arange(9)), shuffle=True)]
    torch.manual_seed(0)
    assert [x.tolist() for (x,) in DataLoader(TensorDataset(torch.arange(9)), shuffle=True)] == first


def test_a_dataset_on_the_device_without_workers():
    dataset = TensorDataset(torch.arange(6.0, device="cuda"))
    assert all(batch.is_cuda for (batch,) in DataLoader(dataset, batch_size=2))


def test_pinned_memory():
    x = torch.arange(5.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and torch.equal(pinned, x) and pinned.device.type == "cpu"
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert pinned[2:].is_pinned()
    assert not torch.empty(3).is_pinned()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    with pytest.raises(RuntimeError, match=r"(?i)pin"):
        torch.ones(3, device="cuda").pin_memory()
    assert torch.equal(pinned.to("cuda", non_blocking=True).cpu(), x)
    host = torch.empty(5).pin_memory()
    host.copy_(torch.arange(5.0, device="cuda") * 2, non_blocking=True)
    torch.cuda.synchronize()
    assert host.tolist() == [0, 2, 4, 6, 8]


def test_threads_have_their_own_current_device_and_stream():
    outcomes = queue.Queue()

    def work(number):
        try:
            stream = torch.cuda.Stream()
            assert torch.cuda.current_stream() == torch.cuda.default_stream()
            with torch.cuda.stream(stream):
                assert torch.cuda.current_stream() == stream
                x = torch.full((1000,), float(number), device="cuda")
                for _ in range(20):
                    x = x + 1
            stream.synchronize()
            outcomes.put((number, x.sum().item()))
        except BaseException as error:
            outcomes.put((number, error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in threads:
        number, total = outcomes.get()
        assert total == 1000.0 * (number + 20), (number, total)


SPAWN = """
import torch
import torch.multiprocessing as mp


def work(rank, numbers, result):
    assert torch.cuda.is_available()
    x = torch.tensor(numbers, device="cuda")
    result[rank] = float((x * (rank + 1)).sum())


if __name__ == "__main__":
    torch.ones(1).cuda()
    with mp.Manager() as manager:
        result = manager.dict()
        mp.spawn(work, ([1.0, 2.0, 3.0], result), nprocs=2)
        assert dict(result) == {0: 6.0, 1: 12.0}, dict(result)
    print("spawned")
"""


def test_spawned_processes_use_the_device(tmp_path, python):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWN)
    assert "spawned" in python("-m", "ditorch", str(script)).stdout


def test_spawned_loader_workers(tmp_path, python):
    script = tmp_path / "loader.py"
    script.write_text("""
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.ones(1).cuda()
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="spawn", pin_memory=True)
    print(sum(x.cuda().sum().item() for (x,) in loader))
""")
    assert python("-m", "ditorch", str(script)).stdout.strip() == "28.0"
