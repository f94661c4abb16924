"""A training is ended at random instants, by kill -9, SIGTERM, a full disk and a file that may grow no further:
the checkpoint always loads, what is resumed ends with the bytes of a run that was left alone, and no file is half.

    python3 tests/cli/instants.py --ebb build/release/ebb --count 300

The test cli.instants is a short one. Prints what it did, one line a kind; exits with 1 at the first that does not hold.
"""
import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
digits = os.path.join(here, "..", "..", "samples", "digits")
MODEL, DATA = os.path.join(digits, "cnn.onnx"), os.path.join(digits, "digits.npz")
STEPS = 60
RESULTS = ["c.st", "c-best.st", "m.onnx"]
more = []  # words of each training


class Broken(Exception):
    pass


def arguments(ebb, resume=None):
    words = [ebb, "train", MODEL, "--data", DATA, "--map", "label=target", "--loss", "cross-entropy", "--optimizer",
             "momentum:lr=0.1", "--seed", "4", "--threads", "1", "--steps", str(STEPS), "--checkpoint", "c.st",
             "--every", "2", "--keep", "best,3", "--save-model", "m.onnx", "--eval-split", "0.05", "--eval-every", "7",
             "--log", "l.jsonl"]
    return words + more + (["--resume", resume] if resume else [])


def fill(folder):
    """Leaves no room on the small disk but a random rest."""
    room = random.choice([0, 4096, 65536, 200000])
    free = os.statvfs(folder)
    try:
        with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
            file.write(bytes(max(0, free.f_bavail * free.f_frsize - room)))
    except OSError:
        pass  # the training has taken some meanwhile


def run(words, folder):
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)


def good(words, folder):
    ended = run(words, folder)
    if ended.returncode != 0:
        raise Broken(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")


def bytes_of(folder):
    return [open(os.path.join(folder, name), "rb").read() for name in RESULTS]


def check_whole(ebb, folder):
    """Every file that is there under a name of its own."""
    for name in sorted(os.listdir(folder)):
        if ".ebb-tmp-" in name:
            continue
        if name.endswith(".st"):
            good([ebb, "eval", MODEL, "--data", DATA, "--map", "test_image=image", "--map", "test_label=target", "--loss",
                  "cross-entropy", "--weights", name, "--batch", "360", "--threads", "1"], folder)
        elif name.endswith(".onnx"):
            good([ebb, "inspect", name], folder)
        elif name.endswith(".jsonl"):
            text = open(os.path.join(folder, name)).read()
            if text and not text.endswith("\n"):
                raise Broken(f"{name} ends in half a line: {text[-80:]!r}")
            for line in text.splitlines():
                json.loads(line)


def end_one(ebb, kind, folder, duration, sizes):
    """What the exit code was."""
    child = subprocess.Popen(arguments(ebb), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(random.uniform(0, duration))
    if kind == "kill -9":
        child.kill()
    elif kind == "SIGTERM":
        child.terminate()
    elif kind == "full disk":
        fill(folder)
    elif child.poll() is None:
        most = random.randrange(1, sizes)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    _, said = child.communicate(timeout=120)
    allowed = {"kill -9": (0, -9), "SIGTERM": (0, 143, -15), "full disk": (0, 8), "file size": (0, 8)}[kind]
    if child.returncode not in allowed:
        raise Broken(f"{kind}: exit {child.returncode}: {said.decode()[-400:]}")
    return child.returncode


def one(ebb, kind, scratch, duration, sizes, wanted):
    folder = os.path.join(scratch, "run")
    os.mkdir(folder)
    mounted = kind == "full disk"
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    try:
        code = end_one(ebb, kind, folder, duration, sizes)
        if mounted:
            os.remove(os.path.join(folder, "filler"))
        check_whole(ebb, folder)
        resumed = os.path.exists(os.path.join(folder, "c.st"))
        good(arguments(ebb, "c.st" if resumed else None), folder)
        for name, ours, theirs in zip(RESULTS, bytes_of(folder), wanted):
            if ours != theirs:
                raise Broken(f"{name} differs from that of a run that was left alone")
        lines = [json.loads(line)["step"] for line in open(os.path.join(folder, "l.jsonl"))]
        if sorted(set(lines)) != list(range(1, STEPS + 1)):
            raise Broken(f"the log has steps {lines}")
        left = [name for name in os.listdir(folder) if ".ebb-tmp-" in name]
        if left:
            raise Broken(f"left behind: {left}")
        return code, resumed
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def can_mount(scratch):
    place = os.path.join(scratch, "try")
    os.mkdir(place)
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True).returncode != 0:
        return False
    subprocess.run(["umount", place], check=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--also", default="", help="more words for the trainings")
    options = parser.parse_args()
    more.extend(options.also.split())
    ebb = os.path.abspath(options.ebb)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="ebb-instants-") as scratch:
        alone = os.path.join(scratch, "alone")
        os.mkdir(alone)
        began = time.monotonic()
        good(arguments(ebb), alone)
        duration = time.monotonic() - began
        wanted = bytes_of(alone)
        sizes = max(len(b) for b in wanted) + 4096
        kinds = ["kill -9", "SIGTERM", "file size"] + (["full disk"] if can_mount(scratch) else [])
        print(f"seed {options.seed}; a run takes {duration:.2f} s; largest file {sizes - 4096} bytes")
        tally = {kind: {} for kind in kinds}
        for i in range(options.count):
            kind = kinds[i % len(kinds)]
            try:
                outcome = one(ebb, kind, scratch, duration, sizes, wanted)
            except Broken as broken:
                print(f"instant {i}, {kind}: {broken}")
                return 1
            tally[kind][outcome] = tally[kind].get(outcome, 0) + 1
        for kind, outcomes in tally.items():
            print(f"{kind}: {sum(outcomes.values())}; " + ", ".join(
                f"exit {code}, {'resumed' if resumed else 'begun anew'}: {count}"
                for (code, resumed), count in sorted(outcomes.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
