"""Trains small models on real data with every technique and without, over seeds; one line of JSON a training.

    python3 bench/convergence.py [--ebb build/release/ebb] [-o bench/results/convergence.jsonl] [--jobs 2]

Settings are those of bench/sweep.json. Where a technique finds nothing, that is a line too. What has a line is not
trained again; delete a line, or the file, to have it again. docs/techniques.py puts means and spread into
docs/techniques.md. A seed decides the order of the data, dropout and the draws of a technique; the first weights are
those of the file.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = (1, 2, 3)
DIGITS = ["--data", "samples/digits/digits.npz", "--map", "label=target", "--eval", "samples/digits/digits.npz",
          "--eval-map", "test_image=image", "--eval-map", "test_label=target", "--batch", "64",
          "--loss", "cross-entropy", "--optimizer", "adamw:lr=3e-3"]
TEXT = ["--data", "samples/text/text.npz", "--eval", "samples/text/text.npz", "--eval-map", "test_ids=ids",
        "--eval-map", "test_target=target", "--batch", "16", "--loss", "cross-entropy:axis=-1",
        "--optimizer", "adamw:lr=3e-3"]
TASKS = {
    "digits-cnn": ["samples/digits/cnn.onnx", *DIGITS, "--epochs", "6"],
    "digits-mlp": ["samples/digits/mlp.onnx", *DIGITS, "--epochs", "6"],
    "digits-transformer": ["samples/digits/transformer.onnx", *DIGITS, "--epochs", "40"],
    "char": ["samples/text/char.onnx", *TEXT, "--epochs", "12"],
}


def machine():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} processors"


def known_passes(ebb):
    text = subprocess.run([ebb, "help", "passes", "--json"], check=True, capture_output=True).stdout
    tables = json.loads(text)
    return {p["name"] for p in tables["passes"] + tables.get("presets", [])}


def names(passes):
    """The passes in "a:x=1,y=2,b": a word with an equals sign and no colon before it is an option."""
    words = [w for w in passes.split(",") if w]
    return [w.split(":")[0] for w in words if "=" not in w or ":" in w.split("=")[0]]


def sites(ebb, task, passes):
    """How many sites the passes changed in the step of this task."""
    words = TASKS[task]
    take = {w: words[words.index(w) + 1] for w in ("--loss", "--optimizer", "--batch")}
    made = subprocess.run([ebb, "grad", words[0], "--dim", f"batch={take['--batch']}", "--loss", take["--loss"],
                           "--optimizer", take["--optimizer"], "--pass", passes, "--dry-run", "--json"],
                          cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(f"{task} with {passes}: {made.stderr.strip()}")
    reports = json.loads(made.stdout)["passes"]
    last = max(i for i, r in enumerate(reports) if r["name"] == "optimizer")
    return sum(r["applied"] for i, r in enumerate(reports)
               if (r["primal"] != "nothing" if i <= last else not r["tidies"]))


def train(ebb, task, passes, seed):
    line = {"task": task, "passes": passes, "seed": seed, "settings": " ".join(TASKS[task][1:]),
            "date": datetime.date.today().isoformat(), "machine": machine()}
    if passes and sites(ebb, task, passes) == 0:
        return line | {"outcome": "found nothing"}
    more = ["--pass", passes] if passes else []
    made = subprocess.run([ebb, "train", *TASKS[task], *more, "--seed", str(seed), "--threads", "1", "--json"],
                          cwd=ROOT, capture_output=True, text=True)
    if made.returncode == 1 and "the loss" in made.stderr:
        return line | {"outcome": "diverged"}
    if made.returncode != 0:
        raise RuntimeError(f"{task} with {passes or 'no pass'}: {made.stderr.strip()}")
    result = json.loads(made.stdout)
    assert result["arena_bytes"] == result["measured_arena_bytes"], (task, passes)
    return line | {"outcome": "trained", "steps": result["steps"], "train_loss": result["loss"],
                   "test_loss": result["eval"]["loss"], "accuracy": result["eval"]["accuracy"],
                   "peak_bytes": result["peak_bytes"]}


def key(line):
    return line["task"], line["passes"], line["seed"], line["settings"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", default=str(ROOT / "build/release/ebb"))
    parser.add_argument("-o", default=str(ROOT / "bench/results/convergence.jsonl"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default=",".join(TASKS), help="tasks, with commas")
    options = parser.parse_args()
    ebb = str(pathlib.Path(options.ebb).resolve())
    path = pathlib.Path(options.o)
    done = {key(json.loads(line)) for line in path.read_text().splitlines()} if path.exists() else set()
    known = known_passes(ebb)
    settings = [""] + [p if isinstance(p, str) else p["passes"]
                       for p in json.loads((ROOT / "bench/sweep.json").read_text())["passes"]]
    wanted = []
    for passes in settings:
        unknown = [n for n in names(passes) if n not in known]
        if unknown:
            print(f"left out, no such pass: {passes}")
            continue
        wanted += [(task, passes, seed) for task in options.only.split(",") for seed in SEEDS
                   if (task, passes, seed, " ".join(TASKS[task][1:])) not in done]
    print(f"{len(wanted)} trainings")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, open(path, "a") as out:
        for future in concurrent.futures.as_completed([pool.submit(train, ebb, *w) for w in wanted]):
            try:
                line = future.result()
            except RuntimeError as error:
                print(error)
                failed += 1
                continue
            out.write(json.dumps(line) + "\n")
            out.flush()
            if line["outcome"] == "trained":
                print(f"{line['task']:20} {line['passes'] or 'exact':60} seed {line['seed']}  "
                      f"loss {line['test_loss']:.4f}  accuracy {100 * line['accuracy']:.2f} %")
    if failed:
        raise SystemExit(f"{failed} trainings failed")


if __name__ == "__main__":
    main()
