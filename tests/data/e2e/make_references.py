"""Writes the reference runs that tests/e2e/oracle.py holds the program against.

Needs torch, transformers, safetensors; run: python make_references.py [NAME ...] (files go
beside this script). Not part of the tests. Each folder holds config.json, model.safetensors
(fp32), tokens.bin (uint16 without a header) and expected.json: ten AdamW steps in float64 over the
contiguous token stream, read in order and from the start again.
  losses, grad_norms   of each step, over all targets of the global batch; norms before clipping
  aux_losses           of a mixture of experts: load_balancing_loss_func over the step's tokens; times
                       router_aux_loss_coef it is trained on where output_router_logits is true
  halves               aux_loss and grad_norm of the first step where each half of the batch has a
                       balance of its own, and the step their mean
  final                per tensor after ten steps: L2 norm, and 16 elements evenly spaced
Sequence i is tokens[i*T : i*T+T], its targets lie one further. AdamW: lr 1e-3, betas (0.9, 0.95),
eps 1e-8, decoupled weight decay 0.1 on tensors of two or more dimensions, global norm clipped to 1,
tied weights counted once.
"""

import json
import pathlib
import sys

import numpy
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
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

STEPS, BATCH = 10, 4
# Weights larger than usual, so that routers decide clearly and every part of a model shows.
TOKENS = dict(
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=None,
    max_position_embeddings=64,
    initializer_range=0.1,
)
QUIET = dict(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, bos_token_id=0, eos_token_id=1)
CASES = {
    # name: (type, configuration, sequence length, sequences in the file)
    "gpt2-odd": (
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=131,
            n_positions=40,
            n_embd=60,
            n_layer=2,
            n_head=4,
            n_inner=100,
            layer_norm_epsilon=1e-6,
            **QUIET,
        ),
        24,
        10,
    ),
    "gpt2-deep": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=97, n_positions=32, n_embd=32, n_layer=5, n_head=2, **QUIET),
        32,
        7,
    ),
    "llama-grouped": (
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=160,
            hidden_size=48,
            intermediate_size=100,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            rope_theta=5000.0,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            rms_norm_eps=1e-6,
            max_position_embeddings=64,
            bos_token_id=0,
            eos_token_id=1,
        ),
        33,
        9,
    ),
    "llama-tied": (
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=101,
            hidden_size=40,
            intermediate_size=72,
            num_hidden_layers=3,
            num_attention_heads=5,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=True,
            rms_norm_eps=1e-5,
            max_position_embeddings=64,
            bos_token_id=0,
            eos_token_id=1,
        ),
        20,
        13,
    ),
    # a window shorter than the sequence
    "mistral-window": (
        MistralForCausalLM,
        MistralConfig(
            vocab_size=109,
            hidden_size=40,
            intermediate_size=84,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=11,
            **TOKENS,
        ),
        28,
        9,
    ),
    # a window in the upper layers only
    "qwen2-upper": (
        Qwen2ForCausalLM,
        Qwen2Config(
            vocab_size=113,
            hidden_size=36,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=3,
            tie_word_embeddings=True,
            use_sliding_window=True,
            sliding_window=7,
            max_window_layers=1,
            **TOKENS,
        ),
        21,
        11,
    ),
    "qwen3-biased": (
        Qwen3ForCausalLM,
        Qwen3Config(
            vocab_size=97,
            hidden_size=28,
            intermediate_size=60,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=18,
            attention_bias=True,
            **TOKENS,
        ),
        26,
        9,
    ),
    "mixtral-three": (
        MixtralForCausalLM,
        MixtralConfig(
            vocab_size=89,
            hidden_size=36,
            intermediate_size=44,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            num_local_experts=3,
            num_experts_per_tok=2,
            output_router_logits=True,
            router_aux_loss_coef=0.05,
            sliding_window=13,
            **TOKENS,
        ),
        25,
        10,
    ),
    # the balance is reported and not trained on
    "mixtral-eight": (
        MixtralForCausalLM,
        MixtralConfig(
            vocab_size=83,
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_local_experts=8,
            num_experts_per_tok=3,
            tie_word_embeddings=True,
            **TOKENS,
        ),
        24,
        9,
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


def losses_of(model, config, inputs, targets):
    """Cross entropy, and of a mixture of experts the load-balancing loss, else None."""
    experts = getattr(config, "num_local_experts", None)
    result = model(input_ids=inputs, **({"output_router_logits": True} if experts else {}))
    loss = torch.nn.functional.cross_entropy(result.logits.flatten(0, 1), targets.flatten())
    if not experts:
        return loss, None
    balance = load_balancing_loss_func(result.router_logits, experts, config.num_experts_per_tok)
    return loss, balance


def batches(tokens, length, sequences):
    """Inputs and targets of each step."""
    for step in range(STEPS):
        rows = [(step * BATCH + i) % sequences for i in range(BATCH)]
        take = lambda shift: torch.stack(
            [tokens[r * length + shift : (r + 1) * length + shift] for r in rows]
        )
        yield take(0), take(1)


def step_of_halves(model, config, inputs, targets):
    loss, _ = losses_of(model, config, inputs, targets)
    half = BATCH // 2
    parts = [
        losses_of(model, config, inputs[rows], targets[rows])[1]
        for rows in (slice(half), slice(half, None))
    ]
    balance = sum(parts) / 2
    (loss + config.router_aux_loss_coef * balance).backward()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    model.zero_grad()
    return dict(aux_loss=balance.item(), grad_norm=norm.item())


def sample(tensor):
    flat = tensor.detach().flatten()
    places = [round(i * (flat.numel() - 1) / 15) for i in range(16)]
    return {
        "norm": flat.norm().item(),
        "places": places,
        "values": [flat[p].item() for p in places],
    }


def run(folder, model_type, config, length, sequences, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    if hasattr(config, "num_local_experts"):
        config._experts_implementation = "eager"
    model = model_type(config).float()
    with torch.no_grad():  # biases and norms away from 0 and 1, so that errors in them show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = model.double().eval()
    tokens = torch.randint(0, config.vocab_size, (sequences * length + 1,))
    numpy.array(tokens.tolist(), dtype="<u2").tofile(folder / "tokens.bin")

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, norms, balances, halves = [], [], [], None
    if getattr(config, "output_router_logits", False):
        inputs, targets = next(batches(tokens, length, sequences))
        halves = step_of_halves(model, config, inputs, targets)
    for inputs, targets in batches(tokens, length, sequences):
        loss, balance = losses_of(model, config, inputs, targets)
        trained = getattr(config, "output_router_logits", False)
        (loss + config.router_aux_loss_coef * balance if trained else loss).backward()
        if balance is not None:
            balances.append(balance.item())
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in parameters])).item()
        losses.append(loss.item())
        norms.append(norm)
        for parameter in parameters:
            parameter.grad.mul_(min(1.0, 1.0 / (norm + 1e-6)))
        optimizer.step()
        optimizer.zero_grad()
    final = {
        saved: sample(tensor)
        for name, parameter in model.named_parameters()
        for saved, tensor in as_saved(name, parameter)
    }
    expected = dict(
        seq_len=length,
        global_batch=BATCH,
        steps=STEPS,
        losses=losses,
        grad_norms=norms,
        final=final,
    )
    if balances:
        expected["aux_losses"] = balances
    if halves:
        expected["halves"] = halves
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(
        folder.name,
        losses[0],
        "->",
        losses[-1],
        "norm",
        norms[0],
        (folder / "model.safetensors").stat().st_size,
    )


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    wanted = sys.argv[1:] or list(CASES)
    for index, (name, (model_type, config, length, sequences)) in enumerate(CASES.items()):
        if name not in wanted:
            continue
        run(here / name, model_type, config, length, sequences, 4000 + index)
