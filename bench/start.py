"""From the command to the first step: seconds and memory of `ebb train` on the steps of against_pytorch.py.

    python bench/start.py [--only resnet18:16,gpt2] [--rounds 3] [--threads 2] [-o FILE]

Exports each model as against_pytorch.py does. A round runs one step of every form, after each other; what is told is
the least and the most of the rounds behind the first, which brings the weights into the page cache. The first step
begins when it is over less what it took. Memory is the most that was resident, and the arena of it.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import tempfile
import time

from against_pytorch import MODELS, ROOT, Ebb, export, processor

CASES = "resnet18:16,resnet50:8,mobilenet_v2:16,vit_b16:4,bert_base:1,gpt2:1"


def start(form):
    """(seconds to the first step, facts)"""
    begin = time.perf_counter()
    with subprocess.Popen([str(c) for c in form.command + ["--steps", 1]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as run:
        said = []
        for line in run.stderr:
            said.append(line)
            if line.startswith("step 1:"):
                over = time.perf_counter()
                break
        else:
            raise SystemExit("".join(said))
        facts = json.loads(run.communicate()[0].splitlines()[0])
    return over - begin - facts["step_ns"][0] / 1e9, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=CASES, help="NAME:BATCH, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("-o", dest="output", help="the table goes to this file, too")
    arguments = parser.parse_args()
    lines = [f"{datetime.date.today()}, {processor()}, {arguments.threads} threads", "",
             "| step | precision | seconds to the first step | arena MiB | resident MiB |", "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for case in arguments.only.split(","):
        name, batch = case.split(":")
        with tempfile.TemporaryDirectory() as folder:
            path, data, *_ = export(name, int(batch), folder)
            forms = {precision: Ebb(arguments.ebb, path, data, batch, MODELS[name][1], arguments.threads, words)
                     for precision, words in (("float32", []), ("bf16", ["--precision", "bf16"]))}
            seen = {precision: [] for precision in forms}
            for _ in range(arguments.rounds + 1):
                for precision, form in forms.items():
                    seen[precision].append(start(form))
        for precision, runs in seen.items():
            seconds, facts = [s for s, _ in runs[1:]], runs[-1][1]
            lines.append(f"| {name} b{batch} | {precision} | {min(seconds):.2f} to {max(seconds):.2f} | "
                         f"{facts['arena_bytes'] / 2**20:.0f} | {facts['resident_bytes'] / 2**20:.0f} |")
            print(lines[-1], flush=True)
            if arguments.output:
                pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
