"""GPT-2 (Radford et al. 2019) in plain PyTorch modules, for torch_train.py.

What a user would write without transformers: fused query-key-value, scaled_dot_product_attention,
the head tied to the embedding. Called as transformers' models are.
"""

import types

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        by_head = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = by_head.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, epsilon):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PlainGpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, epsilon = config["n_embd"], config["layer_norm_epsilon"]
        self.tokens = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.Sequential(
            *(Block(width, config["n_head"], epsilon) for _ in range(config["n_layer"]))
        )
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.head = nn.Linear(width, config["vocab_size"], bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=config["initializer_range"])

    def forward(self, input_ids, labels):
        """The last token of a sequence has no successor and does not count."""
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        logits = self.head(self.norm(self.blocks(x))).float()
        targets = functional.pad(labels[:, 1:], (0, 1), value=-100)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        return types.SimpleNamespace(loss=loss)
