#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of a Llama with random weights, with its own norms and with this library's: time, memory, equality of logits.

usage: python python/bench_model.py [--device cpu|cuda] [--compile] [--steps N]     with the package, torch and transformers
On the CPU a small model in float32, on a GPU one of the shape of Llama 3.2 1B in bfloat16.
"""
import argparse
import gc
import statistics
import sys
import time

sys.path.pop(0)  # this folder has the sources of the package; the installed one is meant

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

import rmsnorm  # noqa: E402

SHAPES = {
    "cpu": dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4,
                vocab_size=8192),
    "cuda": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                 vocab_size=128256, tie_word_embeddings=True),
}  # fmt: skip
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}
TOKENS = {"cpu": (4, 256), "cuda": (2, 2048)}


def make(device):
    torch.manual_seed(1)
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**SHAPES[device], use_cache=False)).to(dtype=DTYPES[device])
    ids = torch.randint(SHAPES[device]["vocab_size"], TOKENS[device], device=device)
    return model, ids


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


def reset_peak(device):
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def peak(device):
    """MiB since the reset: of torch's allocator on the GPU, of the whole process on the CPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def train(model, ids, device, steps):
    """Median milliseconds of a step, and the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(steps + 2):  # the first two compile and warm up
        finish(device)
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        finish(device)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[2:]), loss.item()


def variant(patched, compiled, device, steps):
    """One line of the table, on a fresh model."""
    gc.collect()
    torch._dynamo.reset()
    reset_peak(device)
    model, ids = make(device)
    report = rmsnorm.patch(model) if patched else None
    name = ("rmsnorm" if patched else "own norms") + (", compiled" if compiled else ", eager")
    milliseconds, loss = train(torch.compile(model) if compiled else model, ids, device, steps)
    swapped = f"{len(report.patched)} of {len(report.entries)}" if report else "0"
    print(f"| {name} | {milliseconds:.1f} | {peak(device):.0f} | {loss:.5f} | {swapped} |", flush=True)


def compare_logits(device):
    model, ids = make(device)
    with torch.no_grad():
        own = model(ids[:, :256]).logits
        rmsnorm.patch(model)
        patched = model(ids[:, :256]).logits
    differing = (own != patched).float().mean().item()
    largest = (own.float() - patched.float()).abs().max().item()
    print(f"\nlogits that differ after patch: {differing:.2%}, by at most {largest:.3g}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true", help="compiled models alone")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    device = options.device
    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"Llama {SHAPES[device]}, {DTYPES[device]}, {TOKENS[device]} tokens, torch {torch.__version__}, {where}\n")
    print("| norms | ms a step | peak MiB | loss | swapped |\n|---|--:|--:|--:|--:|")
    for patched in (False, True) if options.compile else (False, True, False, True):
        variant(patched, options.compile, device, options.steps)
    if not options.compile:
        compare_logits(device)


if __name__ == "__main__":
    main()
