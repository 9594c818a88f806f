"""The words of a graph are what docs/graph-engine.md says: a reader that is written from that page alone."""

import struct

import ditorch  # noqa: F401
import torch
from ditorch import graph

ROW, ISLAND, POINT, REDUCE = 0, 3, 4, 5
NONE, TENSOR, INT, DOUBLE, BOOL, STRING, LIST, DTYPE, DEVICE = range(9)


class Reader:
    def __init__(self, data):
        self.words = struct.unpack(f"<{len(data) // 8}q", data)
        self.at = 0

    def take(self, count):
        self.at += count
        return self.words[self.at - count : self.at]

    def text(self):
        (size,) = self.take(1)
        return struct.pack(f"<{(size + 7) // 8}q", *self.take((size + 7) // 8))[:size].decode()

    def argument(self, place):
        (tag,) = self.take(1)
        if tag in (NONE, DEVICE):
            return (tag,)
        if tag == STRING:
            return tag, self.text()
        found = self.take(2 if tag in (INT, LIST) else 1)
        if tag == LIST:
            assert found[1] + found[0] <= place
        return (tag, *(struct.unpack("<d", struct.pack("<q", *found)) if tag == DOUBLE else found))

    def tensor(self):
        dtype, ndim, storage, flags, *offset = self.take(6)
        sizes, strides = ([self.take(2) for _ in range(ndim)] for _ in range(2))
        return {"dtype": dtype, "storage": storage, "flags": flags, "offset": tuple(offset), "sizes": sizes,
                "strides": strides}  # fmt: skip

    def node(self):
        kind, op, folded = self.take(3)
        texts = [self.text() for _ in range(3)]
        nargs, first, nouts = self.take(3)
        return {"kind": kind, "op": op, "folded": folded, "texts": texts, "args": (first, nargs),
                "outs": self.take(nouts)}  # fmt: skip


def read(data):
    reader = Reader(data)
    magic, total, nsymbols, nexprs, ntensors, nstorages, nnodes, ninputs, noutputs, nargs = reader.take(10)
    assert magic == int.from_bytes(b"DITG1", "little") and total == len(reader.words)
    found = {"symbols": [reader.take(2) for _ in range(nsymbols)], "exprs": [reader.take(5) for _ in range(nexprs)]}
    found["tensors"] = [reader.tensor() for _ in range(ntensors)]
    found["args"] = [reader.argument(place) for place in range(nargs)]
    found["nodes"] = [reader.node() for _ in range(nnodes)]
    found["inputs"] = [reader.take(2) for _ in range(ninputs)]
    found["outputs"] = [reader.take(4) for _ in range(noutputs)]
    assert reader.at == total and all(row["storage"] < nstorages for row in found["tensors"])
    return found


def test_a_reader_of_the_page_understands_them():
    def function(x, k):
        x.add_(1)
        part = torch.nn.functional.dropout(x[:, 1:].T.contiguous() * 0.25, 0.5)
        ends = torch.cummax(part, 0).values.sum(-1, keepdim=True)
        return part + ends, torch.cat([x, x]), x.shape[0] * 3 + k

    torch._dynamo.reset()
    kept = graph.keep()
    x = torch.randn(5, 8).cuda()
    torch._dynamo.mark_dynamic(x, 0)
    torch.compile(function, dynamic=True)(x, 2)
    (made,) = kept
    graph.keep(False)
    found = read(made.data["words"])
    names = torch.ops.ditorch.graph_operations()
    assert found["symbols"] and all(place < len(found["inputs"]) for place, _ in found["symbols"])
    fused = [(names[node["op"]], node["kind"]) for node in found["nodes"] if node["kind"] in (POINT, REDUCE)]
    assert ("ADD", POINT) in fused and ("SUM", REDUCE) in fused
    for node in found["nodes"]:
        first, count = node["args"]
        mine = found["args"][first : first + count]
        if node["kind"] in (POINT, REDUCE):
            assert node["texts"] == ["", "", ""] and len(node["outs"]) == 1
            assert all(each[0] in (TENSOR, INT, DOUBLE, BOOL) for each in mine)
            assert (node["folded"] != 0) == (node["kind"] == REDUCE)
        else:
            name, overload, reason = node["texts"]
            schema = getattr(getattr(torch.ops.aten, name.removeprefix("aten::")), overload or "default")._schema
            assert name.startswith("aten::") and len(schema.arguments) == count
            assert bool(reason) == (node["kind"] == ISLAND) or node["kind"] == ROW
            assert (node["folded"] == 1) == (name in ("aten::native_dropout", "aten::rand", "aten::rand_like"))
    assert any(each == (DOUBLE, 0.25) for each in found["args"])
    assert [row[1] for row in found["outputs"]].count(1) == 1, "one result is an integer"
    written = [found["tensors"][tensor] for tensor, _ in found["inputs"] if tensor >= 0]
    assert any(row["flags"] & 4 for row in written) and all(row["flags"] & 1 for row in written)
