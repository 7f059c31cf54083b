"""Reads and writes safetensors with struct, json and numpy: the independent side of the tests."""
import json
import pathlib
import struct
import sys

import numpy as np

TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}


def pattern(count):
    """Multiples of 1/8 that fp32, fp16 and bf16 all hold exactly."""
    return ((np.arange(count) % 255) - 127).astype(np.float32) / 8


def to_file(values, kind):
    values = np.asarray(values)
    if kind == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype(TYPES[kind]).tobytes()


def write(path, tensors):
    """tensors: (name, kind, shape, values), laid out in this order."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, kind, shape, values in tensors:
        raw = to_file(values, kind)
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    data, end, tensors = raw[8 + length:], 0, {}
    assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}, "header"
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{name} begins at {begin}, not at {end}"
        kind = np.dtype(TYPES[entry["dtype"]])
        assert (8 + length + begin) % kind.itemsize == 0, f"{name} is not aligned"
        values = np.frombuffer(data[begin:stop], kind).reshape(entry["shape"])
        tensors[name] = (entry["dtype"], values)
        end = stop
    assert end == len(data), "bytes after the last tensor"
    return tensors


def as_float(kind, values):
    if kind == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    return values.astype("<f4")


def write_all_types(folder):
    half = np.arange(65536, dtype="<u2").view("<f2")
    write(folder / "model.safetensors", [
        ("f32", "F32", (5, 7, 11), pattern(385)), ("odd", "BOOL", (3,), [1, 0, 1]),
        ("f16", "F16", (300,), pattern(300)), ("bf16", "BF16", (20, 20), pattern(400)),
        ("scalar", "F32", (), [4.5]), ("empty", "F32", (0, 9), []), ("ids", "I64", (2,), [1, 2]),
        ("all_halves", "F16", (256, 256), half),
        ("all_halves_wide", "F32", (65536,), half.astype("<f4"))])


def check_written(folder):
    """One file or shards as our writer makes them: names, order and values."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    assert single.exists() != index.exists(), "one form of weights"
    assert not list(folder.glob("*.tmp")), "leftovers"
    tensors, total = {}, 0
    if single.exists():
        tensors = read(single)
    else:
        stated = json.loads(index.read_text())
        for shard in sorted(set(stated["weight_map"].values())):
            found = read(folder / shard)
            assert all(stated["weight_map"][name] == shard for name in found), shard
            tensors.update(found)
            total += sum(values.nbytes for _, values in found.values())
        assert set(tensors) == set(stated["weight_map"]), "index and shards"
        assert stated["metadata"]["total_size"] == total, "total_size"
    for name, (kind, values) in tensors.items():
        expected = pattern(values.size).reshape(values.shape)
        assert np.array_equal(as_float(kind, values), expected), f"values of {name}"
        print(name, kind, "x".join(map(str, values.shape)))


def check_rounding(folder):
    """wide is fp32; half and brain are what our writer made of it."""
    tensors = read(folder / "model.safetensors")
    wide = tensors["wide"][1]
    with np.errstate(over="ignore"):
        half = wide.astype("<f2")
    bits = wide.view("<u4").astype("<u8")
    brain = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    for name, mine, theirs in (("half", tensors["half"][1].view("<u2"), half.view("<u2")),
                               ("brain", tensors["brain"][1], brain)):
        differs = np.nonzero(mine != theirs)[0]
        first = differs[:5]
        assert first.size == 0, f"{name}: {wide[first]} is {mine[first]}, not {theirs[first]}"
    print("equal", wide.size)


def dump_bits(folder):
    """Name and bits of the last element of every tensor of a model's file."""
    for name, (kind, values) in sorted(read(folder / "model.safetensors").items()):
        assert kind == "F32"
        print(name, values.view("<u4").flat[-1])


if __name__ == "__main__":
    actions = {"write": write_all_types, "check": check_written, "rounding": check_rounding,
               "bits": dump_bits}
    actions[sys.argv[1]](pathlib.Path(sys.argv[2]))
