"""tested.py: which operators have a kernel for CUDA, and which suites exercise which operators, read from
the tables and cases themselves: tables of kernels, calls in ONNX text, ids of operators, models of tests.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r'^EBB_OP\(\s*(\w+),\s*(\w+),\s*"(\w+)",\s*(\d+)', re.MULTILINE)
DOMAIN = re.compile(r'^#define EBB_DOMAIN_(\w+) "(.*)"', re.MULTILINE)
# What a suite counts: cases that begin with an operator's id; lines `case CALL`; mentions by id or in a call.
CASE = r"\{\s*EBB_OP_(\w+)"
LINE = r"^case \w+ = ([\w.]+)"
NAMED = r"\bEBB_OP_(\w+)|[\w)] = ((?:[a-z][\w.]*\.)?[A-Z]\w*) ?[<(]"
SUITES = [("gradient draws", r"onnx/(grad_.*\.def|test_grad.*\.c)", CASE),
          ("gradients of PyTorch", r"gradients/recorded.*\.txt", LINE),
          ("function bodies", r"kernels/body_cases\.h", CASE),
          ("kernels", r"kernels/(?!body_cases).*\.[ch]", NAMED),
          ("CUDA on the host", r"cuda/.*\.[ch]", NAMED),
          ("passes", r"passes/.*\.txt", NAMED)]


class Operators:
    """id -> (domain, name, since), and back from a call in text."""

    def __init__(self):
        self.rows = {}
        domains = dict(DOMAIN.findall((root / "onnx/tables/op.h").read_text()))
        for identifier, domain, name, since in ROW.findall((root / "onnx/tables/ops.def").read_text()):
            self.rows[identifier] = (domains[domain], name, int(since))

    def called(self, text, opset=None):
        """Newest row of what a call names, or the newest that an opset has."""
        domain, _, name = text.rpartition(".")
        rows = [r for r in self.rows.values() if r[:2] == (domain, name) and (opset is None or r[2] <= opset)]
        return max(rows, key=lambda r: r[2], default=None)


def text_of(folder, pattern):
    """What is in the files below the folder whose path there matches."""
    paths = sorted(p for p in (root / folder).rglob("*")
                   if p.is_file() and re.fullmatch(pattern, str(p.relative_to(root / folder))))
    return "\n".join(p.read_text() for p in paths)


def counted(operators, files, pattern):
    count = collections.Counter()
    for found in re.finditer(pattern, text_of("tests", files), re.MULTILINE):
        word = next(g for g in found.groups() if g)
        row = operators.rows.get(word) or operators.called(word)
        if row is not None:
            count[row] += 1
    return count


def fields(message):
    """(number, value) of each field of a protobuf message: bytes, or an int."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        yield tag >> 3, message[at:at + size]
        at += size


def node_tests(operators):
    """In how many of ONNX's own tests of nodes an operator occurs, subgraphs and functions left out."""
    folder = root / ".oracles/onnx-1.22.0/onnx/backend/test/data/node"
    if not folder.is_dir():
        sys.exit("ONNX's own tests are not here: tests/run.sh fetches them")
    count = collections.Counter()
    for path in sorted(folder.glob("*/model.onnx")):
        model = list(fields(path.read_bytes()))
        imports = [dict(fields(v)) for n, v in model if n == 8]
        opset = next((i.get(2, 0) for i in imports if i.get(1, b"") == b""), None)
        graph = next(v for n, v in model if n == 7)
        rows = set()
        for number, node in fields(graph):
            if number != 1:
                continue
            facts = dict(fields(node))
            domain, name = facts.get(7, b"").decode(), facts[4].decode()
            rows.add(operators.called((domain + "." if domain else "") + name, None if domain else opset))
        count.update(rows - {None})
    return count


def on_cuda(operators):
    """Rows that a table of kernels for the GPU names: by id, or as a macro of the table makes one."""
    rows = set()
    tables = re.findall(r"const ebb_kernel ebb_cuda_\w+\[\] = \{(.*?)\n\};",
                        text_of("kernels/cuda", r"\w+\.cu?"), re.S)
    words = re.findall(r"\b[A-Z][A-Z0-9_]+\b", "\n".join(tables))
    for file in re.findall(r'#include "(.*\.def)"', "\n".join(tables)):
        words += re.findall(r"^\w+\((\w+),", (root / file).read_text(), re.MULTILINE)
    for word in words:
        name = word.removeprefix("EBB_OP_")
        for identifier in (name, name + "_GRAD_FROM_OUTPUT") if word == name else (name,):
            if identifier in operators.rows:
                rows.add(operators.rows[identifier])
    return rows


def tested_by():
    """row -> 'suite number, ...', and the rows with a kernel for CUDA."""
    operators = Operators()
    suites = [("ONNX", node_tests(operators))]
    suites += [(name, counted(operators, files, pattern)) for name, files, pattern in SUITES]
    words = {row: ", ".join(f"{name} {count[row]}" for name, count in suites if count[row])
             for row in operators.rows.values()}
    return words, on_cuda(operators)
