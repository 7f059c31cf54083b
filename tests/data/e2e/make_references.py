"""Writes the reference runs that tests/e2e/oracle.py holds the program against.

Needs torch, transformers, safetensors; run: python make_references.py (files go beside this
script). Not part of the tests. Each folder holds config.json, model.safetensors (fp32), tokens.bin
(uint16 without a header) and expected.json: ten AdamW steps in float64 over the contiguous token
stream, read in order and from the start again.
  losses, grad_norms   of each step, over all targets of the global batch; norms before clipping
  final                per tensor after ten steps: L2 norm, and 16 elements evenly spaced
Sequence i is tokens[i*T : i*T+T], its targets lie one further. AdamW: lr 1e-3, betas (0.9, 0.95),
eps 1e-8, decoupled weight decay 0.1 on tensors of two or more dimensions, global norm clipped to 1,
tied weights counted once.
"""

import json
import pathlib

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

STEPS, BATCH = 10, 4
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
            **QUIET
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
}


def batches(tokens, length, sequences):
    """Inputs and targets of each step."""
    for step in range(STEPS):
        rows = [(step * BATCH + i) % sequences for i in range(BATCH)]
        take = lambda shift: torch.stack(
            [tokens[r * length + shift : (r + 1) * length + shift] for r in rows]
        )
        yield take(0), take(1)


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
    losses, norms = [], []
    for inputs, targets in batches(tokens, length, sequences):
        logits = model(input_ids=inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in parameters])).item()
        losses.append(loss.item())
        norms.append(norm)
        for parameter in parameters:
            parameter.grad.mul_(min(1.0, 1.0 / (norm + 1e-6)))
        optimizer.step()
        optimizer.zero_grad()
    final = {name: sample(parameter) for name, parameter in model.named_parameters()}
    expected = dict(
        seq_len=length,
        global_batch=BATCH,
        steps=STEPS,
        losses=losses,
        grad_norms=norms,
        final=final,
    )
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
    for index, (name, (model_type, config, length, sequences)) in enumerate(CASES.items()):
        run(here / name, model_type, config, length, sequences, 4000 + index)
