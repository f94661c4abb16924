"""Every command line of README.md and docs/tutorial.md, run as it is written, and what it says compared.

    tests/cli/documents.py --ebb EBB [DOCUMENT...]      EBB_GOLDEN=update writes what was said into the documents

A command stands behind "$ " in a block between ``` lines, goes on behind a backslash at the end of a line, and what it
says stands below it. Numbers, amounts and times are compared as such, whatever they are; a line "..." stands for any
lines, and "..." in a line for any words. An update leaves what agrees as it is. Commands of one document run in one folder, in order, with the samples
in it. A block that has command lines of ebb without "$ " is an error: nobody would know whether they run. And every link
from one document to another, or to a heading in it, leads there.
"""
import argparse
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile

SOURCE = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/tutorial.md")
# What runs all tests cannot be one of them.
ELSEWHERE = {"tests/run.sh": "is what runs the tests", "samples/quickstart.sh": "is run by tests/run.sh"}
EXIT = re.compile(r"\s+# exits with (\d+)$")


def blocks(text):
    """(line, lines) of each block between ``` lines."""
    inside, begin, lines = False, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if inside:
                yield begin, lines
            inside, begin, lines = not inside, number + 1, []
        elif inside:
            lines.append(line)


def commands(lines):
    """[command, first line of it, first line of what it says, end] by index into lines."""
    found, at = [], 0
    while at < len(lines):
        if lines[at].startswith("$ "):
            begin, words = at, lines[at][2:]
            while words.endswith("\\"):
                at += 1
                words = words[:-1].rstrip() + " " + lines[at].strip()
            found.append([words, begin, at + 1, len(lines)])
            if len(found) > 1:
                found[-2][3] = begin
        at += 1
    return found


def plain(line):
    """Without what differs between machines: times and threads, and what is drawn of them."""
    line = re.sub(r"\d+(\.\d+)? (B|KiB|MiB|GiB)\b", "BYTES", line)
    line = re.sub(r"\d+(\.\d+)?(e[+-]?\d+)? (ns|us|ms|s|min|h)\b", "TIME", line)
    line = re.sub(r"-?\b\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "N", line)
    line = re.sub(r"#[# ]*#|#", "#", line)
    return " ".join(line.split())


def agrees(expected, said):
    """Whether what was said is what was expected, "..." standing for any lines."""
    if not expected:
        return not said
    if expected[0] == "...":
        return any(agrees(expected[1:], said[i:]) for i in range(len(said) + 1))
    line = re.escape(plain(expected[0])).replace(r"\.\.\.", ".*")
    return bool(said) and re.fullmatch(line, plain(said[0])) is not None and agrees(expected[1:], said[1:])


def shown(expected, said):
    """What was said, in as many lines as were expected."""
    if "..." not in expected:
        return said
    before, after = expected.index("..."), len(expected) - 1 - expected.index("...")
    return said[:before] + ["..."] + (said[len(said) - after:] if after else [])


def run(command, folder, ebb):
    elsewhere = next((why for start, why in ELSEWHERE.items() if command.startswith(start)), None)
    if elsewhere:
        return None
    code = EXIT.search(command)
    result = subprocess.run(["stdbuf", "-oL", "bash", "-c", EXIT.sub("", command)], cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                            env={**os.environ, "PATH": f"{ebb.parent}:{os.environ['PATH']}"})
    if result.returncode != int(code.group(1) if code else 0):
        raise SystemExit(f"{command}\n{result.stdout}exits with {result.returncode}")
    return result.stdout.splitlines()


def check(document, folder, ebb, update):
    (folder / "samples").symlink_to(SOURCE / "samples")
    path = SOURCE / document
    lines, wrong, count = path.read_text().splitlines(), [], 0
    changes = []
    for begin, block in blocks(path.read_text()):
        found = commands(block)
        loose = [line for line in block if line.startswith("ebb ")]
        if loose and not found:
            wrong.append(f"{document}:{begin}: commands stand behind '$ ': {loose[0]}")
        for command, _, first, end in found:
            said = run(command, folder, ebb)
            count += said is not None
            expected = [line.rstrip() for line in block[first:end] if line.strip()]
            if said is None:
                continue
            said = [line.rstrip() for line in said if line.strip()]
            if update and not agrees(expected, said):
                changes.append((begin - 1 + first, begin - 1 + end, shown(expected, said)))
            elif not update and not agrees(expected, said):
                wrong.append(f"{document}:{begin + first}: $ {command}\n" + "\n".join(said) +
                             "\n--- is not what the document says. EBB_GOLDEN=update writes it")
    for first, end, now in reversed(changes):
        lines[first:end] = now
    if update:
        path.write_text("\n".join(lines) + "\n")
    print(f"{document}: {count} commands")
    return wrong


def anchors(path):
    """What a link may name in a document: its headings, as they are written there and as links have them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def links():
    """A sentence for each link that leads nowhere."""
    for path in (SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))):
        for to in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            name, _, heading = to.partition("#")
            target = path.parent / name if name else path
            if "://" in to:
                continue
            if not target.exists() or heading and heading not in anchors(target):
                yield f"{path.relative_to(SOURCE)}: nothing is at {to}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--ebb", type=Path, required=True)
    arguments.add_argument("documents", nargs="*", default=DOCUMENTS)
    given = arguments.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    wrong = list(links())
    for document in given.documents:
        with tempfile.TemporaryDirectory() as folder:
            wrong += check(document, Path(folder), given.ebb.resolve(), os.environ.get("EBB_GOLDEN") == "update")
    for what in wrong:
        print(what, end="\n\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
