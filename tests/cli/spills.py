"""A training with values on disk is ended at random instants by kill -9, and its disk fails in every way: full, gone,
read-only, and each n-th call of the system an error. What is resumed ends with the bytes of a run that was left alone,
nothing lies in the folder of the spill, a failure is one sentence and exit 8, and the checkpoint is that of before.

    python3 tests/cli/spills.py --ebb build/release/ebb --shim build/release/tests/libfailing_disk.so --kills 200 --fails 200

The test cli.spills is a short one. Prints what it did, one line a kind; exits with 1 at the first that does not hold.
"""
import argparse
import errno
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from instants import Broken, can_mount, DATA, MODEL

STEPS = 16
RESULTS = ["c.st", "m.onnx"]
MOVES = 40  # calls of a kind that two steps make at least
PASS = "offload:least=1,values=*"


def arguments(ebb, spill, steps=STEPS, resume=None):
    words = [ebb, "train", MODEL, "--data", DATA, "--map", "label=target", "--loss", "cross-entropy", "--optimizer",
             "momentum:lr=0.1", "--seed", "4", "--threads", "1", "--steps", str(steps), "--checkpoint", "c.st",
             "--every", "2", "--save-model", "m.onnx", "--pass", PASS, "--spill", spill]
    return words + (["--resume", resume] if resume else [])


def run(words, folder, fail=None, shim=None):
    environment = dict(os.environ)
    if fail is not None:
        environment["LD_PRELOAD"] = shim
        environment["EBB_FAIL"] = fail
        environment["ASAN_OPTIONS"] = "verify_asan_link_order=0:" + environment.get("ASAN_OPTIONS", "")
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)


def good(words, folder):
    ended = run(words, folder)
    if ended.returncode != 0:
        raise Broken(f"{' '.join(words)}\nexit {ended.returncode}: {ended.stderr[-400:]}")


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def refused(ended, *parts):
    """One sentence, which has these parts, and exit 8."""
    said = [line for line in ended.stderr.splitlines() if line.startswith("ebb: ")]
    if ended.returncode != 8 or len(said) != 1:
        raise Broken(f"exit {ended.returncode}, not 8 and one sentence: {ended.stderr[-600:]}")
    for part in parts:
        if not re.search(part, said[0]):
            raise Broken(f"'{part}' is not in: {said[0]}")


class Trial:
    """A folder with a run of its own, and one for its spill."""

    def __init__(self, ebb, scratch, wanted):
        self.ebb, self.wanted = ebb, wanted
        self.folder, self.spill = os.path.join(scratch, "run"), os.path.join(scratch, "spill")

    def __enter__(self):
        os.mkdir(self.folder)
        os.mkdir(self.spill)
        return self

    def __exit__(self, *why):
        os.chmod(self.spill, 0o700) if os.path.isdir(self.spill) else None
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.spill, ignore_errors=True)

    def words(self, **more):
        return arguments(self.ebb, self.spill, **more)

    def check_end(self):
        """Goes on from what is there, and ends as the run that was left alone."""
        if os.listdir(self.spill):
            raise Broken(f"left behind: {os.listdir(self.spill)}")
        there = os.path.exists(os.path.join(self.folder, "c.st"))
        good(self.words(resume="c.st" if there else None), self.folder)
        for name in RESULTS:
            if read(self.folder, name) != self.wanted[name]:
                raise Broken(f"{name} differs from that of a run that was left alone")
        if os.listdir(self.spill):
            raise Broken(f"left behind: {os.listdir(self.spill)}")
        return "resumed" if there else "begun anew"


def kill(trial, duration):
    child = subprocess.Popen(trial.words(), cwd=trial.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0, duration))
    child.kill()
    child.wait()
    return trial.check_end()


def fail_call(trial, shim, kind, at, code):
    """A call of a training that goes on from step 4 fails: all is as after step 4."""
    good(trial.words(steps=4), trial.folder)
    before = read(trial.folder, "c.st")
    ended = run(trial.words(steps=6, resume="c.st"), trial.folder, fail=f"{kind}:{at}:{code}", shim=shim)
    if ended.returncode == 0:
        raise Broken(f"{kind} {at} with error {code} was not seen")
    node = r"^ebb: .*(Store|Fetch) '.+': could not (read|write) \d+ bytes in "
    refused(ended, trial.spill, os.strerror(code), "the step keeps" if kind == "posix_fallocate" else node)
    if read(trial.folder, "c.st") != before:
        raise Broken("the checkpoint of before is another")
    return trial.check_end()


def refuse_folder(trial, break_it, mend_it, part):
    good(trial.words(steps=4), trial.folder)
    before = read(trial.folder, "c.st")
    break_it(trial.spill)
    try:
        refused(run(trial.words(steps=6, resume="c.st"), trial.folder), part, trial.spill)
    finally:
        mend_it(trial.spill)
    if read(trial.folder, "c.st") != before:
        raise Broken("the checkpoint of before is another")
    return trial.check_end()


def replace(make):
    """In place of the folder stands another thing; and the folder again."""
    def back(folder):
        os.unlink(folder)
        os.mkdir(folder)
    return lambda folder: (os.rmdir(folder), make(folder)), back


def beside_another(trial):
    """Two trainings keep values in one folder, which is gone before they end: neither sees the other, or that."""
    folders = [trial.folder, os.path.join(trial.folder, "other")]
    os.mkdir(folders[1])
    both = [subprocess.Popen(trial.words(), cwd=f, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for f in folders]
    while any(child.poll() is None for child in both) and not all(os.path.exists(os.path.join(f, "c.st")) for f in folders):
        time.sleep(0.01)
    shutil.rmtree(trial.spill)
    if [child.wait() for child in both] != [0, 0]:
        raise Broken("of two trainings with one folder, one has failed")
    for name in RESULTS:
        for folder in folders:
            if read(folder, name) != trial.wanted[name]:
                raise Broken(f"{name} differs from that of a run that was left alone")
    return "as if alone"


def mount(size, *options):
    def at(folder):
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", folder], check=True)
    return at


def unmount(folder):
    subprocess.run(["umount", "-l", folder], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ebb", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--fails", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    ebb, shim = os.path.abspath(options.ebb), os.path.abspath(options.shim)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="ebb-spills-") as scratch:
        with Trial(ebb, scratch, {}) as trial:
            began = time.monotonic()
            good(trial.words(), trial.folder)
            duration = time.monotonic() - began
            wanted = {name: read(trial.folder, name) for name in RESULTS}
            kept = arguments(ebb, trial.spill)
            del kept[kept.index("--pass"):kept.index("--pass") + 2]
            good(kept, trial.folder)
            if read(trial.folder, "m.onnx") != wanted["m.onnx"]:
                raise Broken("with values on disk other weights are learned than without")
        print(f"seed {options.seed}; a run takes {duration:.2f} s")
        folders = [("the folder is gone", os.rmdir, os.mkdir, "No such file"),
                   ("it is a file", *replace(lambda f: open(f, "x").close()), "Not a directory"),
                   ("it is a link to nothing", *replace(lambda f: os.symlink("nothing", f)), "No such file")]
        if os.geteuid() != 0:
            folders.append(("a folder for reading alone", lambda f: os.chmod(f, 0o500), lambda f: os.chmod(f, 0o700), "ermission"))
        if can_mount(scratch):
            folders += [("a full disk", mount("64k"), unmount, "No space left"),
                        ("a disk for reading alone", mount("64m", "ro"), unmount, "Read-only")]
        jobs = [("kill -9", lambda t: kill(t, duration))] * options.kills
        jobs += [(name, lambda t, b=b, m=m, p=p: refuse_folder(t, b, m, p)) for name, b, m, p in folders]
        jobs.append(("two in one folder, which is removed", beside_another))
        kinds = [("pwrite", errno.EIO), ("pread", errno.EIO), ("pwrite", errno.ENOSPC)]
        for i in range(options.fails):
            kind, code = kinds[i % len(kinds)]
            at = 1 + i // len(kinds) % MOVES if options.fails >= len(kinds) * MOVES else random.randint(1, MOVES)
            jobs.append((f"{kind} fails with {errno.errorcode[code]}",
                         lambda t, k=kind, c=code, at=at: fail_call(t, shim, k, at, c)))
        jobs.append(("no room is given", lambda t: fail_call(t, shim, "posix_fallocate", 1, errno.ENOSPC)))
        tally = {}
        for i, (name, job) in enumerate(jobs):
            try:
                with Trial(ebb, scratch, wanted) as trial:
                    outcome = job(trial)
            except Broken as broken:
                print(f"instant {i}, {name}: {broken}")
                return 1
            tally.setdefault(name, {}).setdefault(outcome, 0)
            tally[name][outcome] += 1
        for name, outcomes in tally.items():
            print(f"{name}: {sum(outcomes.values())}; " + ", ".join(f"{k}: {n}" for k, n in sorted(outcomes.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
