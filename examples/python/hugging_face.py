# SPDX-License-Identifier: MIT
"""Swaps the norms of a Hugging Face model, compares the bits of its logits and the time of a forward, and swaps back.

    pip install . torch transformers && python examples/python/hugging_face.py [model type or name]

Without an argument the model is a small Llama with random weights, so that nothing is downloaded.
"""
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import rmsnorm

name = sys.argv[1] if len(sys.argv) > 1 else "llama"
torch.manual_seed(0)
if "/" in name:
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
else:
    small = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **small)).to(torch.bfloat16)
model.eval()
ids = torch.randint(3, 1000, (1, 64))


def run():
    with torch.no_grad():
        return model(ids).logits


def seconds():
    times = []
    for _ in range(20):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


before, own_time = run(), seconds()
report = rmsnorm.patch(model)
print(report)
after, our_time = run(), seconds()
print(f"logits that differ: {(before != after).float().mean():.4%}   forward: {own_time * 1e3:.2f} ms, now {our_time * 1e3:.2f} ms")
report.undo()
assert torch.equal(run(), before)
print("undone: the logits are the old ones")
