#!/usr/bin/env python3
"""Does a test fail when one instruction of a kernel is wrong? Changes random places of PTX, one at a time.

    mutate.py --build build/release --ptx FOLDER --count 200 [--seed 1] [--sources norm,packed,...]

FOLDER holds NAME.ptx (cuda/ptx/make.sh makes them). A change: a barrier left out, a predicate turned
round, an immediate of one more. A source's suite has the source's name. Places are drawn among the
instructions that the suite comes to at all (how many of those that could be changed is printed);
what no test tells is printed with the line of its source, and is looked at.
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


def source_of(text, at):
    """The file and the line that an instruction comes from."""
    files = dict(m.groups() for m in (re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', line) for line in text) if m)
    for line in reversed(text[:at]):
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if found and found[2] != "0":
            return f"{pathlib.Path(files.get(found[1], '?')).name}:{found[2]}"
    return "?"


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
        run_lines = {int(n) - 1 for n in re.findall(rf"^at {name}\.c:(\d+)$", whole.stderr, re.M)}
        could = [n for n, line in enumerate(texts[name]) if changed(line)]
        places[name] = [n for n in could if n in run_lines]
        print(f"{name}: {len(places[name])} of {len(could)} places are come to", flush=True)
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
            survived.append(f"{name}.ptx:{at + 1} ({source_of(texts[name], at)}): {how}: {texts[name][at].strip()}")
            print("survives", survived[-1], flush=True)
    print(f"{killed} of {options.count} are told, {len(survived)} are not")


main()
