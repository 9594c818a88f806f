"""Writes record logs byte by byte after docs/record-format.md, independent of libdit: input for tests of readers."""

import struct

TYPES = {"call": 16, "backward": 17, "time": 18, "finding": 19, "capture": 20, "tool": 21, "note": 22}
DTYPES = {"float16": 5, "float32": 6, "float64": 7, "int64": 4, "bool": 11, "bfloat16": 15}


def _make_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()


def crc32c(seed, data):
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value):
    return varint((value << 1 ^ (-1 if value < 0 else 0)) & (1 << 64) - 1)


class Unsigned(int):
    """An int that is written as u64."""


class Tensor:
    def __init__(self, dtype, shape, device="cuda", index=0, stride=None, data=0, grad=False):
        self.dtype, self.shape, self.device, self.index = DTYPES[dtype], shape, device, index
        self.data, self.grad, self.stride = data, grad, stride
        if stride is None:
            self.stride, step = [], 1
            for size in reversed(shape):
                self.stride.insert(0, step)
                step *= size


class Log:
    """One file, built in memory."""

    def __init__(self, rank=0, pid=100, wall=1_700_000_000_000_000_000, monotonic=1_000_000_000, salt=7, **metadata):
        self.salt, self.sequence, self.strings = salt, 0, {}
        pairs = {f"type.{number}": name for name, number in TYPES.items()} | metadata
        body = b"".join(
            struct.pack("<II", len(k.encode()), len(v.encode())) + k.encode() + v.encode() for k, v in pairs.items()
        )
        length = 56 + len(body) + 4
        header = b"\x8aDLOG\r\n\x1a" + struct.pack("<HHIqqIiiII", 1, 0, length, wall, monotonic, pid, rank, 2, 0, salt)
        header += struct.pack("<I", len(pairs)) + body
        self.data = bytearray(header + struct.pack("<I", crc32c(0, header)))

    def frame(self, kind, payload, time=0, thread=0, sequence=0, flags=0):
        head = struct.pack("<IIHHIQq", 0xA5C31EDB, 36 + len(payload), kind, flags, thread, sequence, time)
        self.data += head + payload + struct.pack("<I", crc32c(self.salt, head + payload))

    def string(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        if raw not in self.strings:
            self.strings[raw] = len(self.strings) + 1
            self.frame(2, varint(self.strings[raw]) + raw)
        return varint(self.strings[raw])

    def value(self, value):
        """(type, wire, bytes) of a field."""
        if isinstance(value, bool):
            return 4, 0, varint(value)
        if isinstance(value, Unsigned):
            return 2, 0, varint(value)
        if isinstance(value, int):
            return 1, 0, signed(value)
        if isinstance(value, float):
            return 3, 1, struct.pack("<d", value)
        if isinstance(value, str):
            return 5, 0, self.string(value)
        if isinstance(value, bytes):
            return 6, 2, value
        if isinstance(value, Tensor):
            body = varint(value.grad | (2 if value.stride is not None else 0)) + signed(value.dtype)
            body += self.string(value.device) + signed(value.index) + varint(len(value.shape))
            body += b"".join(map(signed, list(value.shape) + list(value.stride or [])))
            return 9, 2, body + varint(value.data) + signed(0) + signed(0)
        return 8, 2, b"".join(map(signed, value))

    def add(self, kind, time, fields, thread=100, flags=0):
        """A record; `kind` is a name or a number, `fields` a dict or pairs. Returns its place in the file."""
        payload = b""
        for key, value in fields.items() if isinstance(fields, dict) else fields:
            number, wire, body = self.value(value)
            key = self.string(key)
            payload += bytes([number | wire << 5]) + key + (varint(len(body)) if wire == 2 else b"") + body
        self.sequence += 1
        place = len(self.data)
        self.frame(TYPES.get(kind, kind), payload, time, thread, self.sequence, flags)
        return place

    def drops(self, count):
        self.sequence += count
        self.frame(3, varint(count))

    def write(self, path):
        path.write_bytes(bytes(self.data))
        return str(path)
