"""Writes reference values of the families that transformers knows, computed by it in float64.

Needs torch, transformers, safetensors; run: python make_families.py [NAME ...]. Files as those of
make_reference.py: NAME.json, a Hugging Face config, and NAME.safetensors with `weights.<name>`,
`inputs` and `targets` [B, T] (target -1: no loss), `logits` [B, T, V], `loss` (a sum, not a mean)
and `grad.<name>` of it. Of a mixture of experts also `aux_loss`; where output_router_logits is
true the gradient is that of loss + B * T * router_aux_loss_coef * aux_loss.
"""

import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

HERE = pathlib.Path(__file__).parent


def rope(rope_type, **more):
    return dict(rope_type=rope_type, rope_theta=1000.0, **more)


def config(config_type, **changes):
    values = dict(
        vocab_size=37,
        hidden_size=36,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=None,
    )
    values.update(changes)
    return config_type(**values)


def experts(**changes):
    values = dict(output_router_logits=True, router_aux_loss_coef=0.1, intermediate_size=20)
    values.update(changes)
    return config(MixtralConfig, **values)


CASES = {  # name: (type, configuration, B, T)
    "mistral_window": (
        MistralForCausalLM,
        config(MistralConfig, sliding_window=5, head_dim=10, num_key_value_heads=3),
        2,
        13,
    ),
    "mistral_one": (  # a query sees itself only
        MistralForCausalLM,
        config(MistralConfig, sliding_window=1, tie_word_embeddings=True, num_hidden_layers=1),
        1,
        9,
    ),
    "mistral_wide": (  # the window is longer than the sequence, which fills several tiles
        MistralForCausalLM,
        config(MistralConfig, sliding_window=150, tie_word_embeddings=True, num_hidden_layers=1),
        1,
        107,
    ),
    "mistral_tiles": (  # the window spans tiles of queries and keys
        MistralForCausalLM,
        config(MistralConfig, sliding_window=97, num_hidden_layers=1),
        1,
        211,
    ),
    "qwen2_upper": (
        Qwen2ForCausalLM,
        config(
            Qwen2Config,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=2,
            num_hidden_layers=3,
        ),
        2,
        11,
    ),
    "qwen2_types": (
        Qwen2ForCausalLM,
        config(
            Qwen2Config,
            use_sliding_window=True,
            sliding_window=3,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=True,
            hidden_size=30,
            num_attention_heads=5,
            num_key_value_heads=1,
        ),
        3,
        8,
    ),
    "qwen3_biased": (
        Qwen3ForCausalLM,
        config(Qwen3Config, attention_bias=True, head_dim=14, num_attention_heads=4),
        2,
        10,
    ),
    "qwen3_tied": (
        Qwen3ForCausalLM,
        config(
            Qwen3Config,
            tie_word_embeddings=True,
            head_dim=8,
            num_attention_heads=3,
            num_key_value_heads=3,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
        ),
        2,
        12,
    ),
    "qwen3_merged": (  # products of q, k and v lie end to end
        Qwen3ForCausalLM,
        config(Qwen3Config, hidden_size=32, head_dim=16, num_attention_heads=4, vocab_size=33),
        1,
        14,
    ),
    "mixtral_top1": (
        MixtralForCausalLM,
        experts(num_local_experts=3, num_experts_per_tok=1, sliding_window=6),
        2,
        12,
    ),
    "mixtral_top3": (
        MixtralForCausalLM,
        experts(num_local_experts=8, num_experts_per_tok=3, head_dim=8, num_hidden_layers=1),
        2,
        15,
    ),
    "mixtral_plain": (  # the balance is not trained on
        MixtralForCausalLM,
        experts(
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=False,
            tie_word_embeddings=True,
            num_key_value_heads=6,
        ),
        1,
        17,
    ),
    "mixtral_all": (  # each row sees all experts
        MixtralForCausalLM,
        experts(num_local_experts=2, num_experts_per_tok=2, num_hidden_layers=1),
        1,
        70,
    ),
    "llama_yarn": (
        LlamaForCausalLM,
        config(
            LlamaConfig,
            head_dim=16,
            num_attention_heads=2,
            rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16),
        ),
        1,
        64,
    ),
    "mistral_yarn": (  # every setting of yarn
        MistralForCausalLM,
        config(
            MistralConfig,
            head_dim=24,
            num_attention_heads=2,
            num_hidden_layers=1,
            rope_parameters=rope(
                "yarn",
                factor=8.0,
                original_max_position_embeddings=20,
                beta_fast=4.0,
                beta_slow=0.5,
                mscale=1.3,
                mscale_all_dim=0.7,
                truncate=False,
            ),
        ),
        1,
        40,
    ),
    "llama_dynamic": (  # longer than max_position_embeddings
        LlamaForCausalLM,
        config(
            LlamaConfig,
            head_dim=12,
            num_attention_heads=2,
            max_position_embeddings=16,
            rope_parameters=rope("dynamic", factor=3.0),
        ),
        2,
        40,
    ),
    "qwen2_dynamic": (  # not longer
        Qwen2ForCausalLM,
        config(
            Qwen2Config,
            num_hidden_layers=1,
            rope_parameters=rope("dynamic", factor=3.0),
        ),
        1,
        24,
    ),
}


def as_saved(name, tensor):
    """Names and tensors of a parameter in the file: Mixtral's experts are fused in memory only."""
    if ".mlp.experts." not in name:
        yield name.replace(".mlp.gate.", ".block_sparse_moe.gate."), tensor
        return
    stem = name.split(".mlp.experts.")[0] + ".block_sparse_moe.experts"
    for expert in range(tensor.shape[0]):
        if name.endswith("down_proj"):
            yield f"{stem}.{expert}.w2.weight", tensor[expert]
        else:
            gate, up = tensor[expert].chunk(2, dim=0)
            yield f"{stem}.{expert}.w1.weight", gate
            yield f"{stem}.{expert}.w3.weight", up


def start(model):
    """Weights that make every part show, as fp32 holds them."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            spread = 0.2 if parameter.dim() == 1 else 0.7 / parameter.shape[-1] ** 0.5
            parameter.copy_((mean + spread * torch.randn_like(parameter)).float())


def run(name, model_type, settings, B, T, seed):
    torch.manual_seed(seed)
    settings._attn_implementation = "eager"
    if hasattr(settings, "num_local_experts"):
        settings._experts_implementation = "eager"
    model = model_type(settings).double().eval()
    start(model)
    inputs = torch.randint(0, settings.vocab_size, (B, T))
    targets = torch.randint(0, settings.vocab_size, (B, T))
    targets[0, [1, T - 1]] = -1
    out = {"inputs": inputs, "targets": targets}
    mixture = hasattr(settings, "num_local_experts")
    result = model(input_ids=inputs, **({"output_router_logits": True} if mixture else {}))
    loss = torch.nn.functional.cross_entropy(
        result.logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum"
    )
    total = loss
    if mixture:
        balance = load_balancing_loss_func(
            result.router_logits, settings.num_local_experts, settings.num_experts_per_tok
        )
        out["aux_loss"] = balance
        if settings.output_router_logits:
            total = loss + B * T * settings.router_aux_loss_coef * balance
    total.backward()
    out.update(logits=result.logits, loss=loss)
    for parameter_name, parameter in model.named_parameters():
        for saved, tensor in as_saved(parameter_name, parameter):
            out["weights." + saved] = tensor
        for saved, tensor in as_saved(parameter_name, parameter.grad):
            out["grad." + saved] = tensor
    narrow = lambda t: t if t.dtype == torch.int64 else t.detach().float().contiguous().clone()
    save_file({key: narrow(value) for key, value in out.items()}, HERE / f"{name}.safetensors")
    with tempfile.TemporaryDirectory() as folder:
        settings.save_pretrained(folder)
        (HERE / f"{name}.json").write_text((pathlib.Path(folder) / "config.json").read_text())
    print(name, "loss", loss.item() / (B * T - 2), out.get("aux_loss"))


if __name__ == "__main__":
    for number, (case, (model_type, settings, B, T)) in enumerate(CASES.items()):
        if not sys.argv[1:] or case in sys.argv[1:]:
            run(case, model_type, settings, B, T, 6000 + number)
