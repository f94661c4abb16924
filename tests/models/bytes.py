"""bytes.py: the bytes of every step that ebb writes, so that two builds can be compared.

    python3 tests/models/bytes.py --ebb build/release/ebb [MODEL.onnx...] > before.txt
    python3 tests/models/bytes.py --ebb build/release/ebb --beside before.txt [MODEL.onnx...]

Every pass and preset that `ebb help passes` lists, each with its defaults, alone in a step; the optimizers;
16 bits; budgets that are searched for. A line is: model, options, and the hash of the step or the exit code
of the refusal. With --beside the lines that changed are printed, and the exit code is 1 where there are any.
Without MODEL: the samples, the sample of the zoo, and the recorded models beside the repository, of both
exporters. What other files are written into a step (a budget's plan, say) is in its bytes too.
"""
import argparse
import glob
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOSSES = ["cross-entropy:axis=-1", "cross-entropy:axis=1", "mse"]
STEPS = [["--optimizer", "none"], ["--optimizer", "sgd:lr=0.1"], ["--optimizer", "momentum"],
         ["--optimizer", "adamw:order=transformers"], ["--precision", "bf16"], ["--precision", "fp16"],
         ["--dropout", "off"], ["--batch-norm", "frozen"], ["--budget", "90%"],
         ["--budget", "70%", "--allow", "rounding"], ["--budget", "60%", "--allow", "lossy"]]
# What a pass cannot do without, and passes that only mean something behind another.
NEEDS = {"micro-batch": ":parts=2", "recompute": ":budget=80%", "fit": ":budget=80%,time=0.5",
         "chunk-loss": ":rows=1", "stream": ":tile=1KiB", "lora": ":rank=2"}
AFTER = {"stream": "quantise", "dropout-recompute": "dropout-mask", "relu-epilogue": "layout"}
CANNOT = {"cost", "gradient", "optimizer", "loss"} # files of measured times; and what every step has


def run(ebb, *words):
    """By two threads, whoever asks: a planned step says for how many it was planned."""
    return subprocess.run([ebb, *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": "2"})


def default_models():
    patterns = ["samples/*/*.onnx", "tests/zoo/sample/*.onnx"]
    recorded = os.path.join(os.path.dirname(SOURCE), "shared", "models", "*", "*.onnx")
    return sorted(p for q in patterns for p in glob.glob(os.path.join(SOURCE, q))) + sorted(glob.glob(recorded))


def dims_of(ebb, path):
    """Every symbolic dim gets a size: a small batch."""
    found = run(ebb, "inspect", path, "--json")
    if found.returncode != 0:
        return []
    names = {d for i in json.loads(found.stdout)["inputs"] for d in i["dims"] if isinstance(d, str)}
    return [w for n in sorted(names) for w in ("--dim", f"{n}=4")]


def recipes(ebb):
    yield from STEPS
    known = json.loads(run(ebb, "help", "passes", "--json").stdout)
    for name in [p["name"] for p in known["passes"] + known["presets"]]:
        if name not in CANNOT:
            before = ["--pass", AFTER[name]] if name in AFTER else []
            yield before + ["--pass", name + NEEDS.get(name, "")]


def lines_of(job):
    ebb, path, options = job
    dims, lines = dims_of(ebb, path), []
    name = "/".join(path.split(os.sep)[-2:])
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "step.onnx")
        loss = next((l for l in LOSSES if run(ebb, "grad", path, "-o", out, *dims, "--loss", l).returncode == 0),
                    LOSSES[0])
        for recipe in options:
            done = run(ebb, "grad", path, "-o", out, *dims, "--loss", loss, *recipe)
            if done.returncode != 0:
                result = f"exit {done.returncode}"
            else:
                with open(out, "rb") as file:
                    result = hashlib.sha256(file.read()).hexdigest()[:16]
            lines.append(f"{name}\t{' '.join(['--loss', loss, *recipe])}\t{result}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--beside", help="a file of lines of another build")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    jobs = [(options.ebb, path, list(recipes(options.ebb))) for path in options.models or default_models()]
    before = {}
    if options.beside:
        with open(options.beside, encoding="utf-8") as file:
            before = dict(line.rstrip("\n").rsplit("\t", 1) for line in file)
    changed = count = 0
    with multiprocessing.Pool() as pool:
        for lines in pool.imap(lines_of, jobs):
            for line in lines:
                key, result = line.rsplit("\t", 1)
                count += 1
                if not options.beside:
                    print(line, flush=True)
                elif before.get(key) != result:
                    changed += 1
                    print(f"{key}\t{before.get(key, 'not there')} -> {result}", flush=True)
    if options.beside:
        print(f"{count} steps, {changed} changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
