"""Writes reference values of GPT-2 and Llama variants, computed in float64 by plain numpy.

Run: /usr/bin/python3 make_reference.py (numpy only; about a minute). Each NAME gets NAME.json, a Hugging Face
config, and NAME.safetensors: `weights.<name>`; `inputs` and `targets` [B, T] (target -1: no loss); `logits` [B, T, V];
`loss` (a sum, not a mean) and `grad.<name>` of it by central differences, so that no backward formula is shared
with the code under test. Cases called *_long have only the logits of their last positions.
"""
import json
import pathlib
import struct
import numpy as np

HERE = pathlib.Path(__file__).parent
STEP = 1e-5  # of the central differences; their error is about 1e-10


def save(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, value in tensors.items():
        kind = "I64" if value.dtype == np.int64 else "F32"
        blob = np.ascontiguousarray(value, dtype="<i8" if kind == "I64" else "<f4").tobytes()
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def layer_norm(x, w, b, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w + b


def rms_norm(x, w, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w


def attention(q, k, v, heads, kv_heads, scale):
    """q [B, Tq, heads*D] are the last Tq positions of k, v [B, T, kv_heads*D]."""
    B, Tq, _ = q.shape
    T = k.shape[1]
    D = q.shape[2] // heads
    hidden = np.arange(T)[None, :] > np.arange(T - Tq, T)[:, None]
    out = np.empty((B, Tq, heads, D))
    for h in range(heads):
        g = h // (heads // kv_heads)
        scores = np.einsum("bqd,bkd->bqk", q[:, :, h * D:(h + 1) * D], k[:, :, g * D:(g + 1) * D]) * scale
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out[:, :, h] = weights @ v[:, :, g * D:(g + 1) * D]
    return out.reshape(B, Tq, heads * D)


def frequencies(c):
    """In float32 like transformers: at large positions that rounding is part of the model."""
    D = c["head_dim"]
    rope = c.get("rope_scaling") or {}
    inverse = np.float32(1) / np.power(np.float64(c["rope_theta"]),
                                       np.float32(np.arange(0, D, 2)) / np.float32(D)).astype(np.float32)
    if rope.get("rope_type") == "linear":
        return (inverse / np.float32(rope["factor"])).astype(np.float32)
    if rope.get("rope_type") == "llama3":
        low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
        high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        result = []
        for f in inverse.astype(np.float64):
            wave = 2 * np.pi / f
            if wave < high:
                result.append(f)
            elif wave > low:
                result.append(f / rope["factor"])
            else:
                s = ((rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) /
                     (rope["high_freq_factor"] - rope["low_freq_factor"]))
                result.append((1 - s) * f / rope["factor"] + s * f)
        return np.array(result, dtype=np.float32)
    return inverse


def rotate(x, D, c):
    B, T, width = x.shape
    angle = (np.arange(T, dtype=np.float32)[:, None] * frequencies(c)[None, :]).astype(np.float64)
    cos, sin = np.cos(angle)[None, :, None, :], np.sin(angle)[None, :, None, :]
    x = x.reshape(B, T, width // D, D)
    first, second = x[..., :D // 2], x[..., D // 2:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1).reshape(B, T, width)


def gpt2(c, w, inputs, last=None):
    T = inputs.shape[1]
    x = w["transformer.wte.weight"][inputs] + w["transformer.wpe.weight"][:T]
    D = c["n_embd"] // c["n_head"]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        h = layer_norm(x, w[p + "ln_1.weight"], w[p + "ln_1.bias"], c["layer_norm_epsilon"])
        q, k, v = np.split(h @ w[p + "attn.c_attn.weight"] + w[p + "attn.c_attn.bias"], 3, -1)
        scale = (D**-0.5 if c.get("scale_attn_weights", True) else 1.0)
        scale /= (i + 1) if c.get("scale_attn_by_inverse_layer_idx") else 1
        a = attention(q, k, v, c["n_head"], c["n_head"], scale)
        x = x + a @ w[p + "attn.c_proj.weight"] + w[p + "attn.c_proj.bias"]
        h = layer_norm(x, w[p + "ln_2.weight"], w[p + "ln_2.bias"], c["layer_norm_epsilon"])
        h = h @ w[p + "mlp.c_fc.weight"] + w[p + "mlp.c_fc.bias"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ w[p + "mlp.c_proj.weight"] + w[p + "mlp.c_proj.bias"]
    x = layer_norm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], c["layer_norm_epsilon"])
    return x @ w.get("lm_head.weight", w["transformer.wte.weight"]).T


def llama(c, w, inputs, last=None):
    """`last`: with one layer, only the logits of so many last positions."""
    x = w["model.embed_tokens.weight"][inputs]
    D = c["head_dim"]

    def linear(name, x):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        q, k, v = (linear(p + f"self_attn.{n}_proj", h) for n in "qkv")
        q, k = rotate(q, D, c), rotate(k, D, c)
        if last:
            q, x = q[:, -last:], x[:, -last:]
        a = attention(q, k, v, c["num_attention_heads"], c["num_key_value_heads"], D**-0.5)
        x = x + linear(p + "self_attn.o_proj", a)
        h = rms_norm(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate = linear(p + "mlp.gate_proj", h)
        x = x + linear(p + "mlp.down_proj", gate / (1 + np.exp(-gate)) * linear(p + "mlp.up_proj", h))
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def loss_sum(logits, targets):
    top = logits.max(-1, keepdims=True)
    logsumexp = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    picked = np.take_along_axis(logits, np.maximum(targets, 0)[..., None], -1)[..., 0]
    return np.where(targets >= 0, logsumexp - picked, 0.0).sum()


def gpt2_shapes(c):
    C, inner = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
    shapes = {"transformer.wte.weight": (c["vocab_size"], C), "transformer.wpe.weight": (c["n_positions"], C)}
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        shapes.update({p + "ln_1.weight": (C,), p + "ln_1.bias": (C,), p + "attn.c_attn.weight": (C, 3 * C),
                       p + "attn.c_attn.bias": (3 * C,), p + "attn.c_proj.weight": (C, C),
                       p + "attn.c_proj.bias": (C,), p + "ln_2.weight": (C,), p + "ln_2.bias": (C,),
                       p + "mlp.c_fc.weight": (C, inner), p + "mlp.c_fc.bias": (inner,),
                       p + "mlp.c_proj.weight": (inner, C), p + "mlp.c_proj.bias": (C,)})
    shapes.update({"transformer.ln_f.weight": (C,), "transformer.ln_f.bias": (C,)})
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], C)
    return shapes


def llama_shapes(c):
    C, inner = c["hidden_size"], c["intermediate_size"]
    Q, K = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], C)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = (C,)
        for name, out, into in (("q", Q, C), ("k", K, C), ("v", K, C), ("o", C, Q)):
            shapes[p + f"self_attn.{name}_proj.weight"] = (out, into)
            if c["attention_bias"]:
                shapes[p + f"self_attn.{name}_proj.bias"] = (out,)
        shapes[p + "post_attention_layernorm.weight"] = (C,)
        for name, out, into in (("gate", inner, C), ("up", inner, C), ("down", C, inner)):
            shapes[p + f"mlp.{name}_proj.weight"] = (out, into)
            if c["mlp_bias"]:
                shapes[p + f"mlp.{name}_proj.bias"] = (out,)
    shapes["model.norm.weight"] = (C,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], C)
    return shapes


def llama_config(**changes):
    base = dict(model_type="llama", vocab_size=37, hidden_size=40, num_hidden_layers=2, num_attention_heads=3,
                num_key_value_heads=1, head_dim=10, intermediate_size=36, max_position_embeddings=64,
                rms_norm_eps=1e-6, rope_theta=500.0, hidden_act="silu", attention_bias=True, mlp_bias=True,
                tie_word_embeddings=False)
    base.update(changes)
    return base


CASES = {  # name: (config, B, T, last positions or None)
    # products and biases of q, k, v that do not lie end to end; heads * head_dim differs from hidden_size
    "llama_odd": (llama_config(), 2, 7, None),
    "llama_wide_heads": (llama_config(vocab_size=41, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                      head_dim=80, intermediate_size=48, tie_word_embeddings=True), 2, 9, None),
    "llama_plain": (llama_config(attention_bias=False, mlp_bias=False, hidden_size=24, num_attention_heads=4,
                                 num_key_value_heads=2, head_dim=6, rope_theta=10000.0,
                                 rope_scaling=dict(rope_type="linear", factor=4.0)), 1, 11, None),
    "gpt2_odd": (dict(model_type="gpt2", vocab_size=37, n_embd=30, n_layer=2, n_head=3, n_inner=44, n_positions=9,
                      layer_norm_epsilon=1e-5, scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False),
                 2, 8, None),
    "gpt2_unscaled": (dict(model_type="gpt2", vocab_size=29, n_embd=20, n_layer=1, n_head=2, n_inner=None,
                           n_positions=8, layer_norm_epsilon=1e-3, scale_attn_weights=False,
                           tie_word_embeddings=True), 3, 8, None),
    "llama_long": (llama_config(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                                head_dim=8, rope_theta=10000.0, max_position_embeddings=600), 1, 512, 12),
    "llama3_long": (llama_config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                                 head_dim=16, rope_theta=500000.0, max_position_embeddings=8192,
                                 rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                                   high_freq_factor=4.0, original_max_position_embeddings=1024)),
                    1, 8192, 3),
    # q, k, v and their biases lie end to end
    "llama_merged": (llama_config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, head_dim=32,
                                  intermediate_size=32), 2, 6, None),
}


def central_differences(value, weights):
    gradients = {}
    for name, tensor in weights.items():
        flat, result = tensor.reshape(-1), np.empty(tensor.size)
        for i in range(tensor.size):
            kept = flat[i]
            flat[i] = kept + STEP
            above = value()
            flat[i] = kept - STEP
            below = value()
            flat[i] = kept
            result[i] = (above - below) / (2 * STEP)
        gradients[name] = result.reshape(tensor.shape)
    return gradients


def main():
    for seed, (name, (config, B, T, last)) in enumerate(CASES.items()):
        rng = np.random.default_rng(seed)
        model, shapes = (gpt2, gpt2_shapes) if config["model_type"] == "gpt2" else (llama, llama_shapes)
        weights = {}
        for tensor, shape in shapes(config).items():
            mean = 1.0 if "norm" in tensor or ".ln_" in tensor and tensor.endswith("weight") else 0.0
            spread = 0.2 if len(shape) == 1 else 0.7 / np.sqrt(shape[-1])
            weights[tensor] = (mean + spread * rng.standard_normal(shape)).astype(np.float32).astype(np.float64)
        inputs = rng.integers(0, config["vocab_size"], (B, T))
        targets = rng.integers(0, config["vocab_size"], (B, T))
        targets[0, [1, T - 1]] = -1
        out = {"weights." + key: value.copy() for key, value in weights.items()}
        out["inputs"], out["targets"] = inputs, targets
        out["logits"] = model(config, weights, inputs, last)
        if last is None:
            value = lambda: loss_sum(model(config, weights, inputs), targets)
            out["loss"] = np.array(value())
            out.update({"grad." + key: g for key, g in central_differences(value, weights).items()})
        save(HERE / (name + ".safetensors"), out)
        (HERE / (name + ".json")).write_text(json.dumps(config, indent=1) + "\n")
        print(name, {key: value.shape for key, value in out.items() if "." not in key})


if __name__ == "__main__":
    main()
