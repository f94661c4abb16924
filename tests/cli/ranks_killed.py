"""One process of a group is ended by kill -9 at random instants, also inside of a checkpoint's write: all are gone soon,
the exit code says so, the checkpoint is whole, and any number of processes goes on from it to the bytes that are due:
as many to those of a run that was left alone, others to those of one process that computes as many parts.

    python3 tests/cli/ranks_killed.py --ebb build/release/ebb --count 100

The test cli.ranks_killed is a short one. Exits with 1 at the first that does not hold.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
digits = os.path.join(here, "..", "..", "samples", "digits")
MODEL, DATA = os.path.join(digits, "mlp.onnx"), os.path.join(digits, "digits.npz")
STEPS = 40
GONE_S = 10
TRAIN = ["train", MODEL, "--data", DATA, "--map", "label=target", "--loss", "cross-entropy", "--seed", "4", "--threads", "1",
         "--batch", "24", "--steps", str(STEPS), "--every", "1"]


class Broken(Exception):
    pass


def together(ebb, ranks, checkpoint, resume=None):
    """Words for so many processes, whose exchanges may go on beside the step: no bit differs."""
    words = ["launch", "-n", str(ranks), "--", ebb] if ranks > 1 else []
    beside = random.choice([[], ["--pass", "overlap"]]) if ranks > 1 else []
    return [ebb] + words + TRAIN + beside + ["--checkpoint", checkpoint] + (["--resume", resume] if resume else [])


def alone(ebb, parts, checkpoint, resume=None):
    more = ["--pass", f"micro-batch:parts={parts},require=1"] if parts > 1 else []
    return together(ebb, 1, checkpoint, resume) + more


def good(words, folder):
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        raise Broken(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")


def same(folder, a, b, what):
    if open(os.path.join(folder, a), "rb").read() != open(os.path.join(folder, b), "rb").read():
        raise Broken(f"{what}: the bytes differ")


def is_rank(pid):
    """Unlike LeakSanitizer's tracer, a child of launch at its end: who kills that lets launch wait for ever."""
    try:
        return b"launch" not in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
    except OSError:
        return False


def children_of(pid):
    try:
        return [int(word) for word in open(f"/proc/{pid}/task/{pid}/children").read().split() if is_rank(word)]
    except OSError:
        return []


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill_one(ebb, ranks, folder, durations):
    """Whether it came before the end, and how long the others went on."""
    began = time.monotonic()
    launch = subprocess.Popen(together(ebb, ranks, "c.st"), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(random.uniform(0, durations[ranks]))
    members = children_of(launch.pid)
    victim = random.choice(members) if members else None
    if victim:
        try:
            os.kill(victim, 9)
        except ProcessLookupError:
            victim = None
    killed = time.monotonic()
    _, said = launch.communicate(timeout=60)
    took = time.monotonic() - killed
    left = [pid for pid in members if is_running(pid)]
    if left:
        raise Broken(f"{len(left)} processes are left")
    if launch.returncode == 0:  # it had ended, but for its exit: a run takes less than was thought
        durations[ranks] = min(durations[ranks], killed + took - began)
        return False, took
    if took > GONE_S:
        raise Broken(f"they were gone after {took:.1f} s")
    if launch.returncode != 137 or b"was ended by signal 9" not in said:
        raise Broken(f"exit {launch.returncode}: {said.decode()[-400:]}")
    return True, took


def one(ebb, scratch, durations, i):
    folder = os.path.join(scratch, "run")
    os.mkdir(folder)
    try:
        ranks = random.choice([2, 3, 4])
        killed, took = kill_one(ebb, ranks, folder, durations)
        begun = os.path.exists(os.path.join(folder, "c.st"))
        others = [random.choice([1, 2, 3, 4])] if begun and i % 4 == 0 else []
        for other in others:
            good(together(ebb, other, "group.st", "c.st"), folder)
            good(alone(ebb, other, "parts.st", "c.st"), folder)
            same(folder, "group.st", "parts.st", f"{other} processes went on from {ranks}")
        now = time.monotonic()
        good(together(ebb, ranks, "c.st", "c.st" if begun else None), folder)
        if not begun:  # a whole run, beside what else the machine does now
            durations[ranks] = time.monotonic() - now
        shutil.copy(os.path.join(scratch, f"never{ranks}.st"), os.path.join(folder, "never.st"))
        same(folder, "c.st", "never.st", f"{ranks} processes went on")
        left = [name for name in os.listdir(folder) if ".ebb-tmp-" in name]
        if left:
            raise Broken(f"left behind: {left}")
        return killed, begun, took
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    ebb = os.path.abspath(options.ebb)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="ebb-ranks-") as scratch:
        durations = {}
        for ranks in (2, 3, 4):
            began = time.monotonic()
            good(together(ebb, ranks, f"never{ranks}.st"), scratch)
            durations[ranks] = time.monotonic() - began
        print(f"seed {options.seed}; runs take " + ", ".join(f"{t:.2f} s" for t in durations.values()))
        killed = begun = 0
        longest = 0.0
        for i in range(20 * options.count):
            if killed == options.count:
                break
            try:
                was_killed, had_begun, took = one(ebb, scratch, durations, i)
            except Broken as broken:
                print(f"instant {i}: {broken}")
                return 1
            killed += was_killed
            begun += had_begun
            longest = max(longest, took)
        print(f"{i} instants: {killed} killed, {begun} resumed; all gone after {longest:.2f} s at most")
    return 0 if killed == options.count else 1


if __name__ == "__main__":
    sys.exit(main())
