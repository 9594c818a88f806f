"""torch.cuda.MemPool, use_mem_pool and the pools of graphs: segments of their own, given back with the pool."""

import gc
import threading

import ditorch
import pytest
import torch

MIB = 1 << 20


def make(mebibytes, device="cuda"):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device=device)


@pytest.fixture(autouse=True)
def clean():
    """What earlier tests left in the cache is no business of these."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def find_pool(tensor):
    """The pool of the segment that the tensor lies in."""
    place = tensor.data_ptr()
    return next(
        tuple(segment["segment_pool_id"])
        for segment in torch.cuda.memory_snapshot()
        if segment["address"] <= place < segment["address"] + segment["total_size"]
    )


def test_blocks_come_from_the_pool_alone():
    pool = torch.cuda.MemPool()
    before = torch.cuda.memory_reserved()
    outside = make(4)
    with torch.cuda.use_mem_pool(pool):
        inside, small = make(4), torch.empty(3, device="cuda")
        product = inside[:9] + 1  # what an operator makes, too
    assert find_pool(outside) == (0, 0) and pool.id != (0, 0)
    assert {find_pool(x) for x in (inside, small, product)} == {pool.id}
    segments = pool.snapshot()
    assert segments and {tuple(s["segment_pool_id"]) for s in segments} == {pool.id}
    assert sum(s["allocated_size"] for s in segments) >= 4 * MIB
    place = inside.data_ptr()
    del inside
    assert make(4).data_ptr() != place  # it is free, and not for others
    with torch.cuda.use_mem_pool(pool):
        assert make(4).data_ptr() == place
    del small, product, outside
    torch.cuda.empty_cache()
    assert pool.snapshot() and torch.cuda.memory_reserved() > before  # it stays with its pool
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_a_pool_gives_its_memory_back_at_once():
    before, pool = torch.cuda.memory_reserved(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        make(30)
    assert torch.cuda.memory_reserved() >= before + 30 * MIB
    del pool
    gc.collect()
    assert torch.cuda.memory_reserved() == before


def test_a_tensor_may_outlive_its_pool():
    before, pool = torch.cuda.memory_reserved(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.arange(5 * MIB, dtype=torch.int32, device="cuda")
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    assert kept[-1].item() == 5 * MIB - 1 and torch.cuda.memory_reserved() > before
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_who_holds_a_pool():
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    assert pool.use_count() == 1 and pool.id != other.id
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        with torch.cuda.use_mem_pool(other):
            inner = make(1)
        outer = make(1)
        with pytest.raises(ZeroDivisionError), torch.cuda.use_mem_pool(other):
            1 / 0  # noqa: B018
        again = make(1)
    assert [find_pool(x) for x in (inner, outer, again)] == [other.id, pool.id, pool.id]
    assert pool.use_count() == 1 and find_pool(make(1)) == (0, 0)


def test_only_the_thread_that_asked():
    pool, found = torch.cuda.MemPool(), []
    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: found.append(make(2)))
        thread.start()
        thread.join()
    assert find_pool(found[0]) == (0, 0)


def test_streams_have_their_own_blocks():
    pool, stream = torch.cuda.MemPool(), torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        first = make(2)
        place = first.data_ptr()
        del first
        with torch.cuda.stream(stream):
            second = make(2)
    assert second.data_ptr() != place and find_pool(second) == pool.id


def test_many_pools_in_many_threads():
    """Pools that come and go while others allocate."""
    before, errors = torch.cuda.memory_reserved(), []

    def work(number):
        try:
            for round_ in range(25):
                pool = torch.cuda.MemPool()
                with torch.cuda.use_mem_pool(pool):
                    kept = torch.full((1000 * (number + 1),), round_, device="cuda")
                plain = torch.full((5000,), number, device="cuda")
                del pool
                assert kept.eq(round_).all() and plain.eq(number).all()
        except Exception as error:  # told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_graphs_keep_their_pool():
    before, x = torch.cuda.memory_reserved(), torch.ones(MIB, device="cuda")
    pool = torch.cuda.MemPool()
    graphs, results = [], []
    for factor in (2, 3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            results.append(x * factor)
        graphs.append(graph)
    assert graphs[0].pool() == pool.id and pool.use_count() == 3
    assert {find_pool(y) for y in results} == {pool.id} and find_pool(x) == (0, 0)
    x.fill_(5)
    for graph in graphs:
        graph.replay()
    assert [y[7].item() for y in results] == [10, 15]
    graphs[0].reset()
    assert pool.use_count() == 2
    token = torch.cuda.graph_pool_handle()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph(), pool=token):
        y = x + 1
    assert find_pool(y) == tuple(token)
    del graph, graphs, pool, results, x, y
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before


def test_what_a_pool_does_not_do():
    for options in ({"use_on_oom": True}, {"no_split": True}):
        with pytest.raises(ditorch.NotSupportedError, match=f"MemPool with {next(iter(options))}=True"):
            torch.cuda.MemPool(**options)
    with pytest.raises(ValueError, match="was not chosen by this thread"):
        torch._C._cuda_endAllocateToPool(0, (0, 999999))
