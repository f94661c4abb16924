#!/usr/bin/env python3
"""Does a test fail when one instruction of a kernel is wrong? Changes random places of PTX, one at a time.

    mutate.py --build build/release --ptx FOLDER --count 200 [--seed 1] [--sources norm,packed,...]

FOLDER holds NAME.ptx (cuda/ptx/make.sh makes them). A change: a barrier left out, a predicate turned
round, an immediate of one more. A source's suite has the source's name. Places are drawn among the
instructions of entries that the suite runs at all; what no test tells is printed, and is looked at.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import tempfile

BARRIER = re.compile(r"^\s*bar\.sync")
GUARDED = re.compile(r"^(\s*@)(!?)(%p\d+ )")
IMMEDIATE = re.compile(r"^(\s*(?:@!?%p\d+ )?(?:add|setp|shl|shr|mul|mad|and)\S*\s.*, )(-?\d+)(;.*)$", re.S)


def changed(line):
    """The line made wrong, and how; None: it has nothing to change."""
    if BARRIER.match(line):
        return "// left out\n", "no barrier"
    found = GUARDED.match(line)
    if found:
        return GUARDED.sub(lambda m: m[1] + ("" if m[2] else "!") + m[3], line), "predicate"
    found = IMMEDIATE.match(line)
    if found and "%SP" not in line:
        return f"{found[1]}{int(found[2]) + 1}{found[3]}", "off by one"
    return None


def places_of(text, entries):
    """Numbers of lines that can be changed, in the entries that are run."""
    inside, found = False, []
    for number, line in enumerate(text):
        if line.startswith(".entry") or line.startswith(".visible .entry"):
            inside = any(line.split(".entry ")[1].startswith(e) for e in entries)
        elif line.startswith(".func"):
            inside = False
        elif inside and changed(line):
            found.append(number)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--ptx", required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=120, help="seconds a run; a kernel that does not end is told")
    parser.add_argument("--sources", default="norm,packed,norm_group,few_bit,place,roi,grid_sample,cast,codes,move")
    options = parser.parse_args()
    random.seed(options.seed)
    build, folder = pathlib.Path(options.build).resolve(), pathlib.Path(options.ptx).resolve()
    sources = options.sources.split(",")
    killed, survived = 0, []

    def run(name, ptx, **more):
        environment = dict(os.environ, EBB_CUDA_PLAYER=str(build / "tests/libebb_ptx.so"), EBB_CUDA_PTX=str(ptx), **more)
        try:
            return subprocess.run([build / f"tests/test_cuda_{name}"], env=environment, capture_output=True,
                                  text=True, timeout=options.limit)
        except subprocess.TimeoutExpired:
            return None

    texts, places = {}, {}
    for name in sources:
        texts[name] = (folder / f"{name}.ptx").read_text().splitlines(keepends=True)
        whole = run(name, folder, EBB_PTX_TELL="1")
        if whole is None or whole.returncode != 0:
            raise SystemExit(f"{name}: its suite fails, or is too long, before anything is changed")
        entries = re.findall(r"^ran (\S+)$", whole.stderr, re.M)
        places[name] = places_of(texts[name], entries)
    for number in range(options.count):
        name = sources[number % len(sources)]
        at = random.choice(places[name])
        line, how = changed(texts[name][at])
        with tempfile.TemporaryDirectory() as here:
            for other in folder.glob("*.ptx"):
                (pathlib.Path(here) / other.name).symlink_to(other)
            mine = pathlib.Path(here) / f"{name}.ptx"
            mine.unlink()
            mine.write_text("".join(texts[name][:at] + [line] + texts[name][at + 1:]))
            done = run(name, here)
        if done is None or done.returncode != 0:
            killed += 1
        else:
            survived.append(f"{name}.ptx:{at + 1}: {how}: {texts[name][at].strip()}")
            print("survives", survived[-1], flush=True)
    print(f"{killed} of {options.count} are told, {len(survived)} are not")


main()
