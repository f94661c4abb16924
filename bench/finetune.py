"""finetune.py: steps of adapters beside full-size decoders in few bits, on random codes: memory and speed.

    python3 bench/finetune.py --ebb build/release/ebb [--models MODEL...] [--tokens 256,...] [--steps 3] [--disk 4GiB] [--peft kept|again]

For each skeleton of ../shared/models_q4/skeletons and each number of tokens: `ebb train` draws the weights,
trains adapters of rank 8 beside all linear layers but the head for a few steps of AdamW, batch 1, within a
budget, and is watched: what the process holds itself (anonymous) and of files, at most, and what a step takes of
the processors (behind the first).
One line of JSON each. --peft: the same by PyTorch and PEFT on the model in float32, by a Python that has them.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKELETONS = os.path.join(os.path.dirname(SOURCE), "shared", "models_q4", "skeletons")
MIB = 1 << 20
# Budgets in MiB by tokens; rows of chunk-loss.
BUDGET = {"qwen25_05b_q4": {256: 136, 512: 200, 1024: 330, 2048: 600},
          "llama32_1b_q4": {256: 220, 512: 350, 1024: 600, 2048: 1100}}
ROWS = {256: 32}


def watch(process, log, seen):
    """The most of each of the process's kinds of pages, every tenth of a second, in MiB."""
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                now = {words[0][:-1]: int(words[1]) / 1024 for words in map(str.split, file) if len(words) == 3}
            with open(f"/proc/{process.pid}/stat") as file:
                ticks = sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
        except (OSError, ProcessLookupError):
            break
        phase = "step" if os.path.exists(log) and os.path.getsize(log) > 0 else "start"
        if phase == "step":
            seen["processor_s"] = ticks / os.sysconf("SC_CLK_TCK") - seen.setdefault("before_s", ticks / os.sysconf("SC_CLK_TCK"))
        for kind in ("Rss", "Anonymous"):
            key = f"{phase}_{kind}"
            seen[key] = max(seen.get(key, 0), now.get(kind, 0))
        time.sleep(0.1)


def run(words, log, environment):
    """(exit code, what it said, most pages)."""
    seen = {}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=os.environ | environment)
    thread = threading.Thread(target=watch, args=(process, log, seen))
    thread.start()
    said = process.stdout.read()
    process.wait()
    thread.join()
    return process.returncode, said, seen


def write_ids(path, count):
    """A stream of tokens drawn at random, as .npy."""
    draw = random.Random(1)
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{count}q", *(draw.randrange(100000) for _ in range(count))))


def by_ebb(given, model, tokens, folder):
    path = os.path.join(given.skeletons, model, "model.onnx")
    ids, log = os.path.join(folder, "ids.npy"), os.path.join(folder, f"{model}_{tokens}.jsonl")
    write_ids(ids, tokens * (given.steps + 1) + 1)
    budget = given.budget or BUDGET[model][tokens]
    words = [given.ebb, "train", path, "--init", "--data", ids, "--sequence", str(tokens), "--batch", "1", "--dim", "batch_size=1",
             "--steps", str(given.steps), "--threads", str(given.threads), "--log", log, "--log-every", "1",
             "--loss", "cross-entropy:output=logits,axis=-1,ignore_index=-100", "--optimizer", "adamw:lr=1e-3",
             "--pass", "lora:rank=8,target=all-linear", "--pass", "attention",
             "--pass", f"chunk-loss:rows={ROWS.get(tokens, 64)}", "--pass", "release",
             "--pass", f"fit:budget={budget}MiB,disk={given.disk}" if given.disk else f"recompute:planner=lower-set,budget={budget}MiB"]
    start = time.time()
    code, said, seen = run(words, log, {"TMPDIR": given.scratch})
    return {"who": "ebb", "model": model, "tokens": tokens, "budget": budget, "code": code, "wall_s": round(time.time() - start, 1),
            "step_processor_s": round(seen.pop("processor_s", 0) / max(1, given.steps - 1), 2),
            **{k: round(v, 1) for k, v in seen.items()}, "said": said[-600:]}


# The same layers as the skeletons, by transformers, in float32: what a model in few bits is when it is decoded.
CONFIGS = {
    "qwen25_05b_q4": dict(model_type="qwen2", hidden_size=896, num_hidden_layers=24, num_attention_heads=14,
                          num_key_value_heads=2, intermediate_size=4864, vocab_size=151936, tie_word_embeddings=True),
    "llama32_1b_q4": dict(model_type="llama", hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
                          num_key_value_heads=8, head_dim=64, intermediate_size=8192, vocab_size=128256,
                          tie_word_embeddings=True)}


def by_peft(model, tokens, steps, threads, checkpoints):
    """To be run by a Python with torch, transformers and peft: one line of JSON."""
    import resource
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = dict(CONFIGS[model])
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config), dtype=torch.float32)
    if checkpoints:
        net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        net.enable_input_require_grads()
    net = get_peft_model(net, LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")).train()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
    ids, times, busy = torch.randint(0, 100000, (1, tokens)), [], []
    for _ in range(steps):
        start, before = time.time(), time.process_time()
        net(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.time() - start)
        busy.append(time.process_time() - before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"who": "peft", "model": model, "tokens": tokens, "checkpoints": checkpoints, "loaded_MiB": round(base),
                      "peak_MiB": round(peak), "step_s": sorted(times)[len(times) // 2], "step_processor_s": sum(busy[1:]) / max(1, len(busy) - 1)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--models", default="qwen25_05b_q4")
    parser.add_argument("--tokens", default="256")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--disk", help="values may wait on it, this much of them at a time")
    parser.add_argument("--skeletons", default=SKELETONS)
    parser.add_argument("--scratch", default="/var/tmp")
    parser.add_argument("--peft", choices=("kept", "again"), help="by PyTorch and PEFT; activations are kept, or made again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models.split(","):
            for tokens in map(int, given.tokens.split(",")):
                if given.peft is not None:
                    by_peft(model, tokens, given.steps, given.threads, given.peft == "again")
                    continue
                print(json.dumps(by_ebb(given, model, tokens, folder)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
