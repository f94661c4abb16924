#!/usr/bin/env python3
"""Does a test fail when one instruction of a kernel is wrong? Changes random places of PTX, one at a time.

    mutate.py --build build/release --ptx FOLDER [--count 200] [--seed 1] [--sources norm,packed,...]
    mutate.py ... --barriers              each barrier that a suite comes to, instead of random places

FOLDER keeps NAME.ptx, made there where it is not yet (make.sh). A change: a barrier left out, a predicate
turned round, an immediate one more or one less. Sources take turns; a place of one is drawn among the
instructions that any suite comes to, and those suites run, the shortest first. What none tells is printed
with the line of its source. The exit code is 1 where that is not in survivors.txt, which says of each why
no test can tell it.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BARRIER = re.compile(r"^\s*bar\.sync")
GUARDED = re.compile(r"^(\s*@)(!?)(%p\d+ )")
IMMEDIATE = re.compile(r"^(\s*(?:@!?%p\d+ )?(?:add|setp|shl|shr|mul|mad|and)\S*\s.*, )(-?\d+)(;.*)$", re.S)


def changes(line):
    """How a line can be made wrong: (how, the line)."""
    if BARRIER.match(line):
        return [("no barrier", "// left out\n")]
    found, all_of_it = IMMEDIATE.match(line), []
    if GUARDED.match(line):
        all_of_it.append(("predicate", GUARDED.sub(lambda m: m[1] + ("" if m[2] else "!") + m[3], line)))
    if found and "%SP" not in line:
        all_of_it += [(how, f"{found[1]}{int(found[2]) + by}{found[3]}") for how, by in (("+1", 1), ("-1", -1))]
    return all_of_it


def source_of(text, at):
    """The file and the line that an instruction comes from."""
    files = dict(m.groups() for m in (re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', line) for line in text) if m)
    for line in reversed(text[:at]):
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if found and found[2] != "0":
            return f"{pathlib.Path(files.get(found[1], '?')).name}:{found[2]}"
    return "?"


def start(build, suite, ptx, **more):
    environment = dict(os.environ, EBB_CUDA_PLAYER=str(build / "tests/libebb_ptx.so"), EBB_CUDA_PTX=str(ptx),
                       EBB_PTX_MAKE=str(HERE / "make.sh"), EBB_PTX_BUILD=str(build), OMP_NUM_THREADS="1", **more)
    return subprocess.Popen([build / f"tests/test_cuda_{suite}"], env=environment, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, errors="replace")


def reach(build, folder, suite):
    """{source: lines} that the suite comes to, how long it is and its longest launch, in instructions of threads."""
    kept = folder / f"{suite}.reached"  # holds for these sources and tests: remove it when they change
    if not kept.exists():
        process = start(build, suite, folder, EBB_PTX_TELL="1")
        told = process.communicate()[1]
        if process.returncode not in (0, 77):
            raise SystemExit(f"{suite}: fails before anything is changed")
        kept.write_text("\n".join(line for line in told.splitlines() if re.match(r"at |\d+ instructions", line)))
    lines, told = {}, kept.read_text()
    for source, line in re.findall(r"^at (\S+)\.c:(\d+)$", told, re.M):
        lines.setdefault(source, set()).add(int(line) - 1)
    counts = re.search(r"^(\d+) instructions of threads, (\d+)", told, re.M)
    return suite, lines, *(map(int, counts.groups()) if counts else (0, 0))


def fails(build, suite, ptx, most):
    process = start(build, suite, ptx, EBB_PTX_MOST=str(most))
    for line in process.stderr:
        if "FAILED" in line or "ERROR" in line:  # the rest of the suite need not be waited for
            process.kill()
    return process.wait() not in (0, 77)


def told(build, folder, texts, suites, source, at, line):
    """The suite that fails when this line stands there, or None."""
    with tempfile.TemporaryDirectory() as here:
        for other in folder.glob("*.ptx"):
            (pathlib.Path(here) / other.name).symlink_to(other)
        mine = pathlib.Path(here) / f"{source}.ptx"
        mine.unlink()
        mine.write_text("".join(texts[source][:at] + [line] + texts[source][at + 1:]))
        return next((suite for _, suite, longest in suites if fails(build, suite, here, 4 * longest + 10**7)), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--ptx", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sources", help="all that a suite comes to")
    parser.add_argument("--barriers", action="store_true")
    options = parser.parse_args()
    build, folder = options.build, options.ptx
    random.seed(options.seed)
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    names = sorted(p.stem.removeprefix("test_") for p in HERE.parent.glob("**/test_*.c")
                   if p.parent.name in ("cuda", "fuse") and p.stem not in ("test_libraries", "test_step"))
    suites, places, texts = {}, {}, {}
    for suite, lines, *counts in pool.map(lambda name: reach(build, folder, name), names):
        for source, come_to in lines.items():
            places.setdefault(source, set()).update(come_to)
            suites.setdefault(source, []).append((suite, come_to, *counts))
    for source in sorted(places):
        texts[source] = (folder / f"{source}.ptx").read_text().splitlines(keepends=True)
        could = [n for n, line in enumerate(texts[source]) if changes(line)]
        places[source] = [n for n in could if n in places[source]]
        print(f"{source}: {len(places[source])} of {len(could)} places are come to", flush=True)
    sources = options.sources.split(",") if options.sources else sorted(s for s in places if places[s])
    if options.barriers:
        drawn = [(s, at, *changes(texts[s][at])[0]) for s in sources for at in places[s] if BARRIER.match(texts[s][at])]
    else:
        drawn = []
        for number in range(options.count):
            source = sources[number % len(sources)]
            at = random.choice(places[source])
            drawn.append((source, at, *random.choice(changes(texts[source][at]))))

    def one(mutant):
        source, at, _, line = mutant
        of_it = sorted((whole, suite, longest) for suite, lines, whole, longest in suites[source] if at in lines)
        return told(build, folder, texts, of_it, source, at, line)

    known = [line.split("  ")[0] for line in (HERE / "survivors.txt").read_text().splitlines() if line[:1] not in ("", "#", " ")]
    survived, unknown = 0, 0
    for (source, at, how, _), suite in zip(drawn, pool.map(one, drawn)):
        place = f"{source_of(texts[source], at)}: {how}: {texts[source][at].split('//')[0].strip()}"
        is_new = suite is None and not any(place.startswith(k) for k in known)
        survived, unknown = survived + (suite is None), unknown + is_new
        says = f"told by {suite}" if suite else "SURVIVES, nobody knows why" if is_new else "survives as known"
        print(f"{says}: {source}.ptx:{at + 1}: {place}", flush=True)
    print(f"{len(drawn) - survived} of {len(drawn)} are told, {survived} are not, {unknown} of them unknown")
    raise SystemExit(unknown > 0)


main()
