# SPDX-License-Identifier: MIT
"""Trains a small character model on the CPU twice: with torch.nn.RMSNorm and with rmsnorm.nn.RMSNorm.

    pip install . torch && python examples/python/train.py [steps]

The text is this file's own source. Both runs start from the same parameters; the losses agree to a few digits.
"""
import sys
import time

import torch
import torch.nn.functional as F

import rmsnorm.nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
WIDTH, CONTEXT = 128, 64
text = torch.tensor(list(open(__file__, "rb").read()))


class Block(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.second = norm(WIDTH, eps=1e-6), norm(WIDTH, eps=1e-6)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.silu(self.up(self.second(x))))


def train(norm):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(256, WIDTH), Block(norm), Block(norm), norm(WIDTH, eps=1e-6),
                                torch.nn.Linear(WIDTH, 256))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    start = time.perf_counter()
    for _ in range(STEPS):
        at = torch.randint(0, len(text) - CONTEXT - 1, (16,))
        batch = torch.stack([text[i : i + CONTEXT + 1] for i in at])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), time.perf_counter() - start


theirs, ours = train(torch.nn.RMSNorm), train(rmsnorm.nn.RMSNorm)
print(f"torch.nn.RMSNorm    loss {theirs[0]:.5f}  {theirs[1]:.2f} s for {STEPS} steps")
print(f"rmsnorm.nn.RMSNorm  loss {ours[0]:.5f}  {ours[1]:.2f} s")
assert abs(theirs[0] - ours[0]) < 0.05 * theirs[0]
