"""Does a step of several processes take the time that `ebb plan --link` says, by a link of known delay and rate?

    python3 bench/link.py --ebb build/release/ebb --ranks 4 --turns 5

Processes of one machine whose exchanges sleep as long as such a link would take (`ebb launch --link`). What they compute shares the
machine's cores, which the plan knows nothing of: so the time of the computation is measured, by a link that takes none, and
the plan is asked for what the step waits for beside it. Where exchanges go on beside the step (pass overlap), how much of
them is hidden depends on the computation between: its planned times are stretched to the measured ones, which is
asking for a link that is as much faster. In turns:
without the link, with it. Prints a line a case, medians over the turns; a share of 1 is what is planned.
"""
import argparse
import json
import os
import statistics
import subprocess

here = os.path.dirname(os.path.abspath(__file__))
digits = os.path.join(here, "..", "samples", "digits")
STEP = ["--loss", "cross-entropy", "--optimizer", "adamw", "--dropout", "off", "--threads", "1", "--json"]


def tell(words):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")
    return json.loads(ended.stdout)


def run(given, model, batch, passes, link):
    words = [given.ebb, "launch", "-n", str(given.ranks), *(["--link", link] if link else []), "--", given.ebb, "train", model, "--data",
             os.path.join(digits, "digits.npz"), "--map", "label=target", "--batch", str(batch), "--steps", str(given.steps), *STEP, *passes]
    return tell(words)["median_step_ns"]


def compare(given, name, batch, passes, link):
    model = os.path.join(digits, name)
    us, gb = (float(x) for x in link.split(","))

    def planned(stretch):
        """Of a step whose computation takes `stretch` times what is planned, by a link that is as much faster."""
        plan = tell([given.ebb, "plan", model, "--dim", f"batch={batch}", "--ranks", str(given.ranks), "--link", f"{us / stretch},{gb * stretch}",
                     *STEP, *passes])
        return plan["planned_ns"], plan["group"]["exposed_ns"], plan["group"]["exchange_ns"]

    turns = [(run(given, model, batch, passes, None), run(given, model, batch, passes, link)) for _ in range(given.turns)]
    computed, stepped = (statistics.median(t[k] for t in turns) for k in (0, 1))
    step, stood, exchanged = planned(1)
    stretch = computed / (step - stood)
    stood = planned(stretch)[1] * stretch
    said = computed + stood
    print(f"{name} batch {batch}, {given.ranks} processes, link {link}, {' '.join(passes) or 'as it is'}: computed {computed / 1e6:.2f} ms, "
          f"exchanged {exchanged / 1e6:.2f} ms, {1 - stood / exchanged:.0%} hidden; planned {said / 1e6:.2f} ms, measured {stepped / 1e6:.2f} ms, "
          f"share {stepped / said:.3f}")


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--ebb", default="build/release/ebb")
    words.add_argument("--ranks", type=int, default=4)
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--steps", type=int, default=30)
    given = words.parse_args()
    given.ebb = os.path.abspath(given.ebb)
    for passes in ([], ["--pass", "bucket"], ["--pass", "shard:parameters"]):
        compare(given, "transformer.onnx", 256, passes, "1000,0.005")
    for passes in (["--pass", "overlap"], ["--pass", "shard:parameters", "--pass", "bucket", "--pass", "overlap"]):
        compare(given, "transformer.onnx", 1024, passes, "300,0.02")


if __name__ == "__main__":
    main()
