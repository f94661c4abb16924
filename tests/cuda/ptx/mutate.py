#!/usr/bin/env python3
"""Does a test fail when one instruction of a kernel is wrong? Changes random places of PTX, one at a time.

    mutate.py --build build/release --ptx FOLDER [--count 200] [--seed 1] [--sources norm,packed,...]
    mutate.py ... --barriers              each barrier that a suite comes to, instead of random places

FOLDER keeps NAME.ptx, made there where it is not yet (make.sh), what each case comes to (reached/) and what
became of each change (mutants.txt), so that a run goes on where the last one ended. Remove what a stronger
test is to be tried on; all of it when the kernels change.

A change: a barrier left out, a predicate turned round, an immediate one more or one less. Sources take turns; a
place of one is drawn among the instructions that any suite comes to, and those cases of suites that come to it run,
the shortest first, until one fails. What none tells is printed with the line of its source, and before all that the
kernels that no case comes to. The exit code is 1 where one of these is not in survivors.txt, which says of each why.

Not drawn, as no program can tell it: how the compiler chooses between a division of 64 bits and one of 32 (the
long one is right for all numbers, and the short one is wrong for those above 2^32 alone: elements that no test has
the memory for); what it adds to a dividend below 0 where it divides by a power of two (no size or place is);
a sign, taken by a shift of all bits but one, which a shift of one less gives too.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import typing
import zlib

HERE = pathlib.Path(__file__).resolve().parent
BARRIER = re.compile(r"^\s*bar\.sync")
GUARDED = re.compile(r"^(\s*@)(!?)(%p\d+ )")
SIGN = re.compile(r"^\s*shr\.s(?:32\s.*, 31|64\s.*, 63);")
IMMEDIATE = re.compile(r"^(\s*(?:@!?%p\d+ )?(?:add|setp|shl|shr|mul|mad|and)\S*\s.*, )(-?\d+)(;.*)$", re.S)


def before(text, at, pattern, most=200):
    """The nearest line above that has the pattern: its match and its number."""
    for n in range(at - 1, max(-1, at - most), -1):
        found = re.search(pattern, text[n])
        if found:
            return found, n
    return None, None


def chooses_division(text, at):
    """and.b64 %rd2, %rd1, -4294967296; setp.ne.s64 %p1, %rd2, 0; @%p1 bra ...: do both fit in 32 bits?"""
    if "-4294967296" in text[at]:
        return True
    taken = re.match(r"\s*@!?(%p\d+) bra", text[at])
    test, n = before(text, at, rf"setp\.\w+\.s64\s+{taken[1]}, (%rd\d+), 0") if taken else \
        (re.search(r"setp\.\w+\.s64\s+%p\d+, (%rd\d+), 0", text[at]), at)
    found, _ = before(text, n, rf"\s{test[1]}, ", 20) if test else (None, None)
    return found is not None and "-4294967296" in found.string


def corrects_division(text, at):
    """shr.s64 %rd2, %rd1, 63; shr.u64 %rd3, %rd2, 58; add.s64 ...: of a dividend below 0, by a power of two."""
    sign = re.search(r"shr\.s(?:32|64)\s+(%r\w*\d+), %r\w*\d+, (?:31|63);", text[at])
    if sign:
        return any(re.search(rf"shr\.u\d+\s+%r\w*\d+, {sign[1]}, ", line) for line in text[at + 1:at + 4])
    found = re.search(r"shr\.u(?:32|64)\s+%r\w*\d+, (%r\w*\d+), ", text[at])
    return found is not None and before(text, at, rf"shr\.s(32|64)\s+{found[1]}, %r\w*\d+, (31|63);", 4)[0] is not None


def changes(text, at):
    """How a line can be made wrong: (how, the line)."""
    line, all_of_it = text[at], []
    if BARRIER.match(line):
        return [("no barrier", "// left out\n")]
    if chooses_division(text, at) or corrects_division(text, at) or SIGN.match(line):
        return []
    found = IMMEDIATE.match(line)
    if GUARDED.match(line):
        all_of_it.append(("predicate", GUARDED.sub(lambda m: m[1] + ("" if m[2] else "!") + m[3], line)))
    if found and "%SP" not in line:
        all_of_it += [(how, f"{found[1]}{int(found[2]) + by}{found[3]}") for how, by in (("+1", 1), ("-1", -1))]
    return all_of_it


def source_of(text, at):
    """The file and the line that an instruction comes from, and those that they are inlined at."""
    files = dict(m.groups() for m in (re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', line) for line in text) if m)
    for line in reversed(text[:at]):
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at (\d+) (\d+))?", line)
        if found and found[2] != "0":
            named = [f"{pathlib.Path(files.get(file, '?')).name}:{n}" for file, n in (found.groups()[:2], found.groups()[2:]) if n]
            return named[0], named[-1]
    return "?", "?"


class Case(typing.NamedTuple):
    """A case of a suite: {source: lines} that it comes to; instructions of threads, of all and of the longest launch."""
    whole: int
    longest: int
    suite: str
    name: str
    lines: dict


def start(build, suite, case, ptx, **more):
    environment = dict(os.environ, EBB_CUDA_PLAYER=str(build / "tests/libebb_ptx.so"), EBB_CUDA_PTX=str(ptx),
                       EBB_PTX_MAKE=str(HERE / "make.sh"), EBB_PTX_BUILD=str(build), OMP_NUM_THREADS="1",
                       EBB_TEST_CASE=case, **more)
    return subprocess.Popen([build / f"tests/test_cuda_{suite}"], env=environment, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, errors="replace")


def reach(build, folder, suite, case):
    kept = folder / "reached" / f"{suite}.{case}"
    if not kept.exists():
        process = start(build, suite, case, folder, EBB_PTX_TELL="1")
        told = process.communicate()[1]
        if process.returncode not in (0, 77):
            raise SystemExit(f"{suite}: {case} fails before anything is changed")
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("\n".join(line for line in told.splitlines() if re.match(r"at |\d+ instructions", line)))
    lines, told = {}, kept.read_text()
    for source, line in re.findall(r"^at (\S+)\.c:(\d+)$", told, re.M):
        lines.setdefault(source, set()).add(int(line) - 1)
    counts = re.search(r"^(\d+) instructions of threads, (\d+)", told, re.M)
    return Case(*(map(int, counts.groups()) if counts else (0, 0)), suite, case, lines)


def fails(build, case, ptx):
    """What the case says then, or None."""
    process = start(build, case.suite, case.name, ptx, EBB_PTX_MOST=str(4 * case.longest + 10**7))
    said = None
    for line in process.stderr:
        if "FAILED" in line or "ERROR" in line:
            said = said or line.split("]")[-1].strip()
            process.kill()  # the rest need not be waited for
    code = process.wait()
    return said or f"exit code {code}" if code not in (0, 77) else None


def cases_of(pool, build, folder):
    named = [(path.stem.removeprefix("test_"), case) for path in sorted(HERE.parent.glob("**/test_*.c"))
             if (path.parent.name in ("cuda", "fuse") and path.stem not in ("test_libraries", "test_step"))
             or path.stem in ("test_attention_mask", "test_cudnn_calls", "test_lt_products")
             for case in re.findall(r"\b(?:TEST|cmocka_unit_test(?:_setup)?)\((\w+)", path.read_text())]
    return sorted(pool.map(lambda one: reach(build, folder, *one), named), key=lambda case: case.whole)


def left_alone(folder, cases):
    """SOURCE.cu: KERNEL, of those that no case comes to."""
    for path in sorted(folder.glob("*.ptx")):
        come_to, first = set().union(*(case.lines.get(path.stem, ()) for case in cases)), None
        for n, line in enumerate(path.read_text().splitlines()):
            found = re.search(r"\.entry _Z(\d+)(\w+)", line)
            if found:
                first, name = n, found[2][:int(found[1])]
            elif line == "}" and first is not None:
                if come_to.isdisjoint(range(first, n)):
                    yield f"{path.stem}.cu: {name}"
                first = None


class Mutant(typing.NamedTuple):
    source: str
    at: int
    how: str
    line: str


def draw(texts, places, count, seed):
    """The same ones for a seed, but where the places of a source are others."""
    drawn = []
    for number in range(count):
        source = sorted(places)[number % len(places)]
        left = [at for at in places[source] if (source, at) not in {(m.source, m.at) for m in drawn}]
        lot = {at: zlib.crc32(f"{seed} {number} {at}".encode()) for at in left}
        if left:
            at = min(left, key=lot.get)
            could = changes(texts[source], at)
            drawn.append(Mutant(source, at, *could[lot[at] % len(could)]))
    return drawn


def told(build, folder, text, cases, mutant):
    """Which case fails, and what it says; or "nobody"."""
    with tempfile.TemporaryDirectory() as here:
        for other in folder.glob("*.ptx"):
            (pathlib.Path(here) / other.name).symlink_to(other)
        mine = pathlib.Path(here) / f"{mutant.source}.ptx"
        mine.unlink()
        mine.write_text("".join(text[:mutant.at] + [mutant.line] + text[mutant.at + 1:]))
        for case in cases:
            if mutant.at in case.lines.get(mutant.source, ()):
                said = fails(build, case, here)
                if said is not None:
                    return f"{case.suite}.{case.name}: {said}"
    return "nobody"


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
    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    cases, texts, places = cases_of(pool, build, folder), {}, {}
    known = [line.split("  ")[0] for line in (HERE / "survivors.txt").read_text().splitlines() if line[:1] not in ("", "#", " ")]
    alone = [kernel for kernel in left_alone(folder, cases) if not any(kernel.startswith(k) for k in known)]
    print("".join(f"{kernel}: NO CASE comes to it\n" for kernel in alone), end="", flush=True)
    for source in options.sources.split(",") if options.sources else sorted({s for case in cases for s in case.lines}):
        text = texts[source] = (folder / f"{source}.ptx").read_text().splitlines(keepends=True)
        could = {at for at in range(len(text)) if changes(text, at)}
        come_to = could & set().union(*(case.lines.get(source, ()) for case in cases))
        print(f"{source}: {len(come_to)} of {len(could)} places are come to", flush=True)
        if come_to:
            places[source] = sorted(come_to)
    drawn = draw(texts, places, options.count, options.seed)
    if options.barriers:
        drawn = [Mutant(s, at, *changes(texts[s], at)[0]) for s in places for at in places[s] if BARRIER.match(texts[s][at])]

    ends = folder / "mutants.txt"
    became = dict(line.split("\t", 1) for line in ends.read_text().splitlines()) if ends.exists() else {}

    def one(mutant):
        text = texts[mutant.source]
        line, at = source_of(text, mutant.at)
        change = f"{mutant.how}: {' '.join(text[mutant.at].split('//')[0].split())}"
        places = f"{line}: {change}", f"{line} in {at}: {change}"
        key = f"{mutant.source}.ptx:{mutant.at + 1}: {places[1]}"
        if key not in became:
            became[key] = told(build, folder, text, cases, mutant)
            with ends.open("a") as file:
                file.write(f"{key}\t{became[key]}\n")
        return places, key

    survived, unknown = 0, 0
    for places_of_it, key in pool.map(one, drawn):
        is_new = became[key] == "nobody" and not any(place.startswith(k) for k in known for place in places_of_it)
        survived, unknown = survived + (became[key] == "nobody"), unknown + is_new
        says = "SURVIVES, nobody knows why" if is_new else "survives as known" if became[key] == "nobody" else f"told by {became[key]}"
        print(f"{key}: {says}", flush=True)
    print(f"{len(drawn) - survived} of {len(drawn)} are told, {survived} are not, {unknown} of them unknown")
    raise SystemExit(unknown > 0 or alone != [])


main()
