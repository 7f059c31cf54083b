"""Reads a checkpoint's index.h5 as any h5py user would and compares it with its own values."""
import sys
import numpy as np
import h5py


def expected(name, kind, count, narrow):
    h = 0xcbf29ce484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001b3) % 2**64
    with np.errstate(over="ignore"):
        index = np.arange(count, dtype=np.uint64)
        z = np.uint64((h + kind * 0x1000003) % 2**64) + index * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    if narrow:
        return (z % np.uint64(511)).astype(np.int64) - 255
    return ((z % np.uint64(2000003)).astype(np.int64) - 1000001) / 1024.0


SHAPES = {
    "model.embed_tokens.weight": (61, 131),
    "model.layers.0.self_attn.q_proj.weight": (509, 521),
    "model.layers.0.experts.weight": (7, 11, 13),
    "model.layers.0.input_layernorm.weight": (509,),
    "model.norm.weight": (13,),
    "scale": (1,),
}


def check_values(f, weight_type):
    # the fp32 weight is its own master, which bf16 runs keep beside it
    master = 1 if weight_type == "bf16" else 0
    kinds = {"model": 0, "optimizer/master": master, "optimizer/m": 2, "optimizer/v": 3}
    for group, kind in kinds.items():
        assert sorted(f[group]) == sorted(SHAPES), (group, sorted(f[group]))
        for name, shape in SHAPES.items():
            data = f[group][name]
            narrow = kind == 0 and weight_type == "bf16"
            assert data.shape == shape, (name, data.shape)
            assert data.dtype == np.float32, data.dtype
            assert data.id.get_type().get_size() == (2 if narrow else 4)
            assert data.is_virtual
            want = expected(name, kind, int(np.prod(shape)), narrow).reshape(shape)
            assert np.array_equal(data[...].astype(np.float64), want), (group, name)


def check_attributes(f, weight_type, ranks, step):
    a = f.attrs
    numbers = dict(format_version=1, ranks=ranks, step=step, tokens=step * 4096,
                   next_position=step * 8 + 3)
    for name, value in numbers.items():
        assert a[name] == value and a[name].shape == () and a[name].dtype == np.int64, name
    text = {name: a[name] for name in ("program", "created", "weight_type")}
    text = {name: t.decode() if isinstance(t, bytes) else t for name, t in text.items()}
    assert text["program"].startswith("spillway "), text
    assert text["weight_type"] == weight_type, text
    assert len(text["created"]) == 20 and text["created"].endswith("Z"), text
    for name in ("program", "created", "weight_type"):
        kind = a.get_id(name).get_type()
        assert not kind.is_variable_str() and kind.get_cset() == h5py.h5t.CSET_UTF8
    assert f["config_json"][()].decode() == '{"model_type": "llama", "name": "Größe"}'
    assert f["state_json"][()].decode() == '{"sampler": {"seed": 5}, "loss_scale": 1}'
    assert f["spillway/manifest"].dtype == np.uint8
    assert bytes(f["spillway/manifest"][()]).startswith(b"{")


def check_hole(f, part):
    """The elements of a missing shard (a slice of the flat) are NaN, all others are there."""
    name = "model.layers.0.self_attn.q_proj.weight"
    data = f["model"][name][...].ravel()
    begin, end = (int(x) for x in part.split(":"))
    assert np.isnan(data[begin:end]).all()
    rest = np.concatenate([data[:begin], data[end:]])
    assert not np.isnan(rest).any() and len(rest) > 0


if __name__ == "__main__":
    path, what = sys.argv[1], sys.argv[2]
    with h5py.File(path, "r") as file:
        if what == "hole":
            check_hole(file, sys.argv[3])
        else:
            check_values(file, what)
            check_attributes(file, what, int(sys.argv[3]), int(sys.argv[4]))
    print("as expected")
