"""Writes and reads token files with struct and numpy: the independent side of the tests."""
import pathlib
import struct
import sys

import numpy as np


def tokens(count, vocab):
    return (np.arange(count, dtype=np.int64) * 7919 + 13) % vocab


def write(folder):
    """One file of each kind: 5000 tokens of a vocabulary of 50257, or 128256 for the wide ones."""
    tokens(5000, 50257).astype("<u2").tofile(folder / "bare.bin")
    for name, magic, version, kind, vocab in (("narrow.llmc", 20240520, 1, "<u2", 50257),
                                              ("wide.llmc", 20240801, 7, "<u4", 128256)):
        header = np.zeros(256, "<i4")
        header[:3] = magic, version, 5000
        (folder / name).write_bytes(header.tobytes() + tokens(5000, vocab).astype(kind).tobytes())


def read(path):
    """Header fields and tokens of our own format, one number a line."""
    raw = path.read_bytes()
    magic, version, width, vocab, count, tokenizer, source = struct.unpack("<8sIIQQQQ", raw[:48])
    (header_hash,) = struct.unpack("<Q", raw[248:256])
    assert magic == b"\x93SPWTOK\n" and version == 1 and raw[48:248] == bytes(200)
    values = np.frombuffer(raw[256:], {2: "<u2", 4: "<u4"}[width])
    assert values.size == count
    print(width, vocab, count, f"{tokenizer:x} {source:x} {header_hash:x}")
    print(*values)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](pathlib.Path(sys.argv[2]))
