"""Record logs of made-up trainings, as OpObserve with stats=1 would write them: for the benches of compare and query.

Written through libdit by ctypes: about ten microseconds a record. Further ranks are copies of one, as fast as the disk:
only what says the rank is another (docs/record-format.md).
"""

import ctypes
import glob
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

from ditorch import library

TYPES = {"call": 16, "backward": 17, "time": 18, "finding": 19}
PLAIN = ["layer_norm", "linear", "view", "transpose", "linear", "view", "transpose", "linear", "view", "transpose"]
ATTENTION = {
    "eager": ["matmul", "mul", "add", "softmax", "dropout", "matmul"],
    "sdpa": ["scaled_dot_product_attention"],
}
REST = ["transpose", "reshape", "linear", "add", "layer_norm", "linear", "gelu", "linear", "dropout", "add"]


class _Text(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _Options(ctypes.Structure):
    _fields_ = [
        ("queue_bytes", ctypes.c_size_t), ("pressure", ctypes.c_int), ("sync", ctypes.c_int),
        ("block_ms", ctypes.c_int), ("linger_ms", ctypes.c_int), ("rotate_bytes", ctypes.c_uint64),
        ("rank", ctypes.c_int32), ("world_size", ctypes.c_int32), ("metadata", ctypes.POINTER(_Text)),
        ("metadata_count", ctypes.c_size_t),
    ]  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int32), ("device", ctypes.c_uint32), ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("storage_id", ctypes.c_uint64),
        ("storage_offset", ctypes.c_int64), ("version", ctypes.c_int64), ("requires_grad", ctypes.c_bool),
    ]  # fmt: skip


class Writer:
    """One rank's log in `folder`."""

    def __init__(self, folder, rank=0, world=1):
        os.makedirs(folder, exist_ok=True)
        self.lib = lib = ctypes.CDLL(os.path.join(library.DIRECTORY, "libdit.so"))
        lib.dit_record_builder_get_local.restype = ctypes.c_void_p
        self.builder = ctypes.c_void_p(lib.dit_record_builder_get_local())
        names = [_Text(f"type.{number}".encode(), name.encode()) for name, number in TYPES.items()]
        self.pairs = (_Text * len(names))(*names)
        options = _Options(rank=rank, world_size=world, metadata=self.pairs, metadata_count=len(names))
        self.writer = ctypes.c_void_p()
        self.check(
            lib.dit_record_writer_create(folder.encode(), ctypes.byref(options), ctypes.byref(self.writer), None)
        )
        self.numbers, self.time, self.id = {}, 1_000_000_000, 0
        self.sizes = (ctypes.c_int64 * 3)(8, 128, 512)

    @staticmethod
    def check(status):
        if status:
            raise OSError(f"libdit: status {status}")

    def intern(self, text):
        number = self.numbers.get(text)
        if number is None:
            found = ctypes.c_uint32()
            self.check(
                self.lib.dit_record_intern(
                    text.encode(), ctypes.c_size_t(len(text.encode())), ctypes.byref(found), None
                )
            )
            number = self.numbers[text] = ctypes.c_uint32(found.value)
        return number

    def call(
        self, name, module, step, value, *, kind="call", recompute=False, call_id=None, location="model.py:1 f: x"
    ):
        """One record; `value` makes the statistics."""
        lib, builder = self.lib, self.builder
        if call_id is None:
            self.id += 1
            call_id = self.id
        self.time += 1000
        lib.dit_record_begin(builder, ctypes.c_uint16(TYPES[kind]), ctypes.c_uint16(0), ctypes.c_int64(self.time))
        lib.dit_record_field_u64(builder, self.intern("id"), ctypes.c_uint64(call_id))
        lib.dit_record_field_interned(builder, self.intern("name"), self.intern(f"torch.nn.functional.{name}"))
        lib.dit_record_field_i64(builder, self.intern("step"), ctypes.c_int64(step))
        lib.dit_record_field_interned(builder, self.intern("location"), self.intern(location))
        if module:
            lib.dit_record_field_interned(builder, self.intern("module"), self.intern(module))
        if recompute:
            lib.dit_record_field_bool(builder, self.intern("recompute"), ctypes.c_bool(True))
        lib.dit_record_field_i64(builder, self.intern("host_ns"), ctypes.c_int64(1000 + int(value * 100)))
        tensor = _Tensor(dtype=6, ndim=3, sizes=self.sizes, storage_id=call_id)
        lib.dit_record_field_tensor(
            builder, self.intern("out" if kind == "call" else "grad_in.0"), ctypes.byref(tensor)
        )
        lib.dit_record_field_i64(builder, self.intern("stats.numel"), ctypes.c_int64(524288))
        lib.dit_record_field_u64(builder, self.intern("stats.hash"), ctypes.c_uint64(hash(value) & (1 << 64) - 1))
        for key, factor in (("norm", 700.0), ("mean", 0.01), ("min", -4.0), ("max", 4.0)):
            lib.dit_record_field_f64(builder, self.intern(f"stats.{key}"), ctypes.c_double(value * factor))
        lib.dit_record_field_string(builder, self.intern("stats.dtype"), b"float32", ctypes.c_size_t(7))
        lib.dit_record_commit(builder, self.writer, None)
        return call_id

    def close(self):
        self.check(self.lib.dit_record_writer_destroy(self.writer, 60000, None))


def write_training(folder, records, *, layers=24, attention="eager", checkpoint=False, error=0.0, rank=0, world=1):
    """A transformer's steps until `records` records are written; `error` grows by layer. Returns their number."""
    writer = Writer(folder, rank, world)
    block = PLAIN + ATTENTION[attention] + REST
    done = step = 0
    while done < records:
        calls = []
        for layer in range(layers):
            for i, name in enumerate(block):
                module = f"Model.layers.{layer}.{'attn' if i < len(block) - 7 else 'mlp'}"
                value = (1 + i + layer / 7) * (1 + error * (layer + 1) * (step + 1))
                calls.append((name, module, value, writer.call(name, module, step, value)))
        done += len(calls)
        for layer in reversed(range(layers)):
            part = calls[layer * len(block) : (layer + 1) * len(block)]
            if checkpoint:
                again = [(n, m, v, writer.call(n, m, step, v, recompute=True)) for n, m, v, _ in part]
                done += len(again)
                part = again
            for name, module, value, call_id in reversed(part):
                writer.call(name, module, step, value * 0.5, kind="backward", recompute=checkpoint, call_id=call_id)
            done += len(part)
        step += 1
    writer.close()
    return done


def sum_crc(data, seed=0):
    """CRC-32C."""
    value = seed ^ 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def copy_for_rank(folder, target, rank):
    """The log in `folder` once more, as that of another rank: in its header, and in the sync records that repeat it."""
    (path,) = glob.glob(os.path.join(folder, "*.dlog"))
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<I", data, 12)
    old = data[:length]
    new = old[:36] + struct.pack("<i", rank) + old[40:-4]
    new += sum_crc(new)
    frame, place = 32, data.find(old, length)
    before = data[place - frame : place]
    data = data.replace(before + old + sum_crc(before + old), before + new + sum_crc(before + new))
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, f"ops-r{rank}-p1.dlog"), "wb") as file:
        file.write(new + data[length:])
