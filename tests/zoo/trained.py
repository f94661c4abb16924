"""What ebb trains of a file that newcomer.py exported, beside what PyTorch would train; the table of docs/newcomer.md.

This makes the training graph of each file with `ebb grad --optimizer none` and finds for each tensor that is
trained what it is in PyTorch, by value: a parameter as it is, transposed, reshaped, repeated, in parts or several in
one (`pieces`), multiplied by what was folded into it (`scaled`), made of parameters (`computed`: it differs between two
sets of weights), a parameter that its author holds fixed, a buffer, a constant, or parameters with something beside them
(`untold`). The verdict on a file:

    all         what PyTorch trains; batch norm inside a convolution counts with the convolution
    tied        all, but equal parameters that the exporter made one are trained as one
    parted      all, but one parameter that the exporter stored twice is trained as two
    part        less some parameters
    wrong       something that is no parameter is trained
    refused     nothing is trained, and the export call that helps is named
    failed      nothing is trained, and it is not named
"""
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402

KINDS = ("all", "refused", "tied", "parted", "part", "wrong", "failed")
PARAMETERS = ("same", "transposed", "reshaped", "repeated", "pieces", "scaled")


class Known:
    """PyTorch's tensors, to be found again by value."""

    def __init__(self, values, facts):
        self.parameters = {p["name"]: p for p in facts["parameters"]}
        self.buffers = {b["name"]: b for b in facts["buffers"]}
        self.values = {n: values[n] for n in [*self.parameters, *self.buffers]}
        self.alike = {}  # by size and range: those that a tensor could be
        for n, v in self.values.items():
            self.alike.setdefault(self.range_of(v), []).append(n)
        flat = [(n, self.values[n].ravel()) for n in self.parameters]
        everything = numpy.concatenate([v for _, v in flat])
        owner = numpy.repeat(numpy.arange(len(flat)), [v.size for _, v in flat])
        order = numpy.argsort(everything, kind="stable")
        self.sorted, self.owner, self.names = everything[order], owner[order], [n for n, _ in flat]
        # of equal neighbours the first stands for all; numbers that many parameters hold tell nothing
        self.alone = numpy.ones(order.size, bool)
        self.alone[1:] &= self.sorted[1:] != self.sorted[:-1]
        self.alone[:-1] &= self.sorted[1:] != self.sorted[:-1]

    @staticmethod
    def range_of(v):
        return (v.size, v.dtype.str, float(v.min()), float(v.max())) if v.size else (0,)

    def same(self, name, t, taken):
        """Parameter or buffer with these values as it is, transposed or reshaped: the one of that name, or one that is
        not taken (fresh parameters have equal values), or any."""
        alike = sorted(self.alike.get(self.range_of(t), ()), key=lambda n: n not in self.parameters)
        own = [n for n in alike if n == name]
        free = [n for n in alike if n != name and n not in taken]
        for names, kind in itertools.product((own, free, alike), ("same", "transposed", "reshaped")):
            for n in names:
                v = self.values[n]
                if kind == "same" and v.shape == t.shape and numpy.array_equal(v, t):
                    return kind, n
                if kind == "transposed" and 1 < t.ndim < 5 and v.ndim == t.ndim and any(
                        v.transpose(p).shape == t.shape and numpy.array_equal(v.transpose(p), t)
                        for p in itertools.permutations(range(t.ndim))):
                    return kind, n
                if kind == "reshaped" and numpy.array_equal(v.ravel(), t.ravel()):
                    return kind, n
        return None

    def repeated(self, t):
        """The parameter that it is several times over, along axes where that has one element."""
        for n in self.parameters:
            v = self.values[n]
            if 1 < v.size < t.size and v.ndim == t.ndim and all(a in (1, b) for a, b in zip(v.shape, t.shape)) and (
                    numpy.array_equal(numpy.broadcast_to(v, t.shape), t)):
                return n
        return None

    def places(self, t):
        """Where its elements stand among those of all parameters, as far as one number is in one place."""
        values = numpy.unique(t)  # in order they are found ten times as fast
        at = numpy.minimum(numpy.searchsorted(self.sorted, values), self.sorted.size - 1)
        return at[(self.sorted[at] == values) & self.alone[at]]

    def pieces(self, t):
        """Parameters that its elements are taken from, unless any of them says nothing (zeros, ones)."""
        flat = t.ravel()
        telling = numpy.sort(flat[(flat != 0) & (flat != 1)])
        if telling.size == 0:
            return []
        at = numpy.minimum(numpy.searchsorted(self.sorted, telling), self.sorted.size - 1)
        hit = self.sorted[at] == telling
        if hit.mean() < 0.999:
            return []
        counts = numpy.bincount(self.owner[at], minlength=len(self.names))
        return [self.names[i] for i in numpy.flatnonzero(counts > max(1, telling.size // 1000))]

    def beside(self, t, pieces):
        """Whether it has more zeros and ones than those parameters: something was put beside them."""
        plain = sum(int(((v == 0) | (v == 1)).sum()) for v in (self.values[n] for n in pieces))
        return int(((t == 0) | (t == 1)).sum()) > plain

    def untaken(self, n, taken):
        """That parameter, or one with the same values that no other tensor was found to be made of."""
        same = [m for m in self.parameters if m not in taken and self.values[m].tobytes() == self.values[n].tobytes()]
        return n if n not in taken or not same else same[0]

    def scaled(self, t):
        """The parameter that it is a multiple of, one factor for each first or last index, or in all."""
        for n, p in self.parameters.items():
            v = self.values[n]
            if v.size != t.size or v.ndim < 2 or t.ndim < 2:
                continue
            for p in itertools.permutations(range(v.ndim)) if v.ndim < 5 else ():
                w = v.transpose(p)
                if w.shape != t.shape:
                    continue
                for axis in {0, w.ndim - 1}:
                    a = numpy.moveaxis(w, axis, 0).reshape(w.shape[axis], -1).astype(float)
                    b = numpy.moveaxis(t, axis, 0).reshape(w.shape[axis], -1).astype(float)
                    dots = (a * b).sum(1) ** 2
                    lengths = (a * a).sum(1) * (b * b).sum(1)
                    if a.shape[1] > 1 and numpy.all(dots >= (1 - 1e-6) * lengths):
                        return n
        return None

    def told(self, name, t, taken, constants):
        """What the tensor is. constants: bytes of what depends on no weight."""
        kind, of = self.same(name, t, taken) or (None, None)
        repeated = self.repeated(t) if kind is None else None
        pieces = self.pieces(t) if kind is None else []
        multiple = self.scaled(t) if kind is None and not pieces else None
        if kind is not None:
            fixed = of not in self.buffers and not self.parameters[of]["requires_grad"]
            kind, of = "buffer" if of in self.buffers else "fixed" if fixed else kind, [of]
        elif repeated is not None:
            kind, of = "repeated", [repeated]
        elif pieces:
            kind = "pieces" if any(self.parameters[n]["requires_grad"] for n in pieces) else "fixed"
            kind = "untold" if self.beside(t, pieces) else kind
            of = [self.untaken(n, taken) for n in pieces]
        elif name in self.buffers:  # the trace of a module in training mode steps running statistics
            kind, of = "buffer", [name]
        elif multiple is not None:
            kind, of = "scaled", [multiple]
        elif t.size > 1 and t.min() == t.max() and all(v.size != t.size for v in self.values.values()):
            kind, of = "untold", []  # of fresh ones joined, or of a constant among them
        else:
            kind, of = "constant" if t.tobytes() in constants else "computed", []
        return {"is": kind, "of": of, "elements": int(t.size), "shape": list(t.shape)}


def trained_names(ebb, facts, path, row, folder):
    """Initializers that have a gradient, or what ebb says."""
    step = folder / "step.onnx"
    kind = "cross-entropy:axis=%d" % row.axis if row.loss == "cross-entropy" else row.loss
    done = subprocess.run([str(ebb), "grad", str(path), "-o", str(step), "--loss", kind, "--optimizer", "none",
                           "--dropout", "off"], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None, done.stderr.strip()
    model = onnx.load(step)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    outputs = {o.name for o in model.graph.output}
    return {n: t for n, t in tensors.items() if n + "_grad" in outputs}, done.stderr.strip()


def constants_of(other):
    """Bytes of all tensors of the same export with other weights: what is in both depends on none."""
    if not other.exists():
        return set()
    return {numpy_helper.to_array(t).tobytes() for t in onnx.load(other).graph.initializer}


def judged(ebb, facts, path, to):
    row = architectures.rows[facts["architecture"]]
    values = dict(numpy.load(to / f"{row.name}-{facts['weights']}.npz"))
    known = Known(values, facts)
    with tempfile.TemporaryDirectory() as folder:
        trained, said = trained_names(ebb, facts, path, row, pathlib.Path(folder))
    wanted = {n: p["elements"] for n, p in known.parameters.items() if p["requires_grad"] and p["reached"]}
    if trained is None:
        helps = re.search(r"optimize=False|TrainingMode|do_constant_folding=False", said)
        return {"result": "refused" if helps else "failed", "why": said}
    other = "fresh" if facts["weights"] == "trained" else "trained"
    fixed_bytes = constants_of(to / f"{row.name}-{other}-{facts['call']}.onnx")
    tensors, covered = {}, set()
    for name, t in sorted(trained.items(), key=lambda item: item[0] not in known.parameters):
        tensors[name] = known.told(name, t, covered, fixed_bytes)
        if tensors[name]["is"] in PARAMETERS:
            covered |= set(tensors[name]["of"])
    model = onnx.load(path)
    lost = absorbed(model, tensors, known, wanted, covered, trained)
    kept = {v.tobytes() for n, v in known.values.items() if n in covered} | {t.tobytes() for t in trained.values()}
    tied = [n for n in wanted if n not in covered | lost and known.values[n].tobytes() in kept]
    missing = {n: e for n, e in wanted.items() if n not in covered | lost and n not in tied}
    whole = [t["of"][0] for t in tensors.values() if t["is"] in ("same", "transposed", "reshaped")]
    parted = sorted({n for n in whole if whole.count(n) > 1} | overlapping(known, trained, tensors))
    wrong = [n for n, t in tensors.items() if t["is"] not in (*PARAMETERS, "computed")]
    share = 1 - sum(missing.values()) / max(1, sum(wanted.values()))
    result = "wrong" if wrong else "part" if missing else "tied" if tied else "parted" if parted else "all"
    return {"result": result, "share": share, "said": said, "tensors": tensors, "tied": tied, "parted": parted,
            "missing": list(missing), "absorbed": sorted(lost), "wrong": wrong}


def overlapping(known, trained, tensors):
    """Parts of parameters that are trained for the most part in another tensor, too. Of millions of numbers some are
    alike by chance."""
    if not any(t["is"] in ("pieces", "repeated") for t in tensors.values()):
        return set()
    place = {n: known.places(trained[n]) for n, t in tensors.items() if t["is"] in PARAMETERS}
    owners = numpy.zeros(known.sorted.size, numpy.int32)
    for at in place.values():
        owners[at] += 1
    return {n for n, at in place.items()
            if tensors[n]["is"] in ("pieces", "repeated") and 2 * (owners[at] > 1).sum() > at.size > 4}


def multiplied(known, n, wanted, trained):
    """Whether a tensor that is trained is a parameter times that one, in whatever order of elements."""
    v = known.values[n]
    for other in wanted:
        w = known.values[other]
        shapes = [(1,) * i + v.shape + (1,) * (w.ndim - v.ndim - i) for i in range(w.ndim - v.ndim + 1)]
        for shape in shapes if other != n and v.size > 1 else ():
            if any(a not in (1, b) for a, b in zip(shape, w.shape)):
                continue
            product = numpy.sort((w * v.reshape(shape)).ravel())
            if product[0] == product[-1]:  # fresh ones or zeros: says nothing
                continue
            if any(t.size == product.size and numpy.allclose(numpy.sort(t.ravel()), product, 1e-6, 1e-8)
                   for t in trained.values()):
                return True
    return False


def biases_in(known, t):
    """Biases of a batch norm and of the layer before it that a tensor was folded of, by value."""
    found = set()
    for n in known.values:
        norm, _, last = n.rpartition(".")
        parts = [known.values.get(f"{norm}.{k}") for k in ("weight", "bias", "running_mean")]
        if last != "running_var" or known.values[n].size != t.size or any(p is None for p in parts):
            continue
        weight, bias, mean = parts
        for epsilon in (1e-5, 1e-3):
            scale = weight / numpy.sqrt(known.values[n] + epsilon)
            for c in (None, *known.parameters):
                before = 0 if c is None else known.values[c]
                if (c is None or before.shape == bias.shape) and numpy.allclose(
                        (before - mean) * scale + bias, t.ravel(), 1e-4, 1e-6):
                    found |= {f"{norm}.bias"} | ({c} if c else set())
    return found


def absorbed(model, tensors, known, wanted, covered, trained):
    """Of what is not trained by itself: what lies in a tensor that is, and nowhere else in the file."""
    present = {numpy_helper.to_array(t).tobytes() for t in model.graph.initializer}
    by_computation = sum(t["elements"] for t in tensors.values() if t["is"] == "computed")
    scaled = [t["shape"] for t in tensors.values() if t["is"] == "scaled"]
    instead = [sorted(t["shape"]) for t in tensors.values() if t["is"] == "computed"]
    lost = set()
    both = set().union(*(biases_in(known, trained[name]) for name, t in tensors.items()
                         if t["is"] == "computed" and sum(d > 1 for d in t["shape"]) <= 1))
    for n in wanted:  # a weight that was standardised or normalised is trained as it is now
        shape = sorted(known.values[n].shape)
        if n not in covered and sum(d > 1 for d in shape) > 1 and shape in instead:
            instead.remove(shape)
            lost.add(n)
    for n in wanted:  # fresh weight norm: the weight has the values of its direction, and holds its length as well
        direction = n.removesuffix("original0") + "original1"
        if n.endswith(".parametrizations.weight.original0") and any(
                direction in t["of"] and name != direction for name, t in tensors.items()):
            lost.add(n)
    for n in wanted:
        size = known.values[n].size
        if n in lost:
            continue
        line = sum(d > 1 for d in known.values[n].shape) <= 1
        if n not in covered and n in both:  # of a norm, and of the layer before it
            lost.add(n)
            continue
        taken_in = next((shape for shape in scaled if size in shape), None) if line and n not in covered else None
        if taken_in is not None:  # the scale of a norm, one in each
            scaled.remove(taken_in)
            lost.add(n)
            continue
        if n in covered or known.values[n].tobytes() in present:
            continue
        beside = any(t["is"] in ("scaled", "computed") and size in t["shape"] for t in tensors.values())
        if line and beside:
            lost.add(n)  # the bias of a norm, in that of its neighbour
        elif size <= by_computation and beside:
            lost.add(n)  # normalised, interpolated, shifted
            by_computation -= size
        elif multiplied(known, n, wanted, trained):
            lost.add(n)
    return lost


# ---- report ----


def line(facts, v):
    counts = {}
    for t in v.get("tensors", {}).values():
        counts[t["is"]] = counts.get(t["is"], 0) + 1
    what = ", ".join(f"{n} {k}" for k, n in sorted(counts.items(), key=lambda i: -i[1]))
    if v.get("absorbed"):
        what += f"; {len(v['absorbed'])} parameters inside them"
    if v["result"] in ("failed", "refused"):
        what = re.sub(r"^ebb: \S*: ", "", v["why"].splitlines()[0] if v["why"] else "")[:160]
    if v.get("tied"):
        what += f"; {len(v['tied'])} tied to others"
    if v.get("parted"):
        what += f"; twice: {', '.join(v['parted'][:2])}"
    if v.get("missing"):
        what += f"; not {len(v['missing'])}: {', '.join(v['missing'][:2])}"
    if v.get("wrong"):
        what += f"; no parameter: {', '.join(v['wrong'][:3])}"
    share = f"{100 * v['share']:.1f} %" if "share" in v else ""
    return (f"| {facts['architecture']} | {facts['package']} | {facts['weights']} | {facts['call']} | {v['result']} | "
            f"{share} | {what.replace('|', chr(92) + '|')} |")


def cell(verdicts):
    """Of one call: of fresh and of trained weights."""
    words = []
    for v in verdicts:
        share = f" {100 * v['share']:.0f} %" if v["result"] == "part" else ""
        words.append(v["result"] + share)
    return words[0] if len(set(words)) == 1 else " / ".join(words)


def reason(v):
    """Why a file is refused: what is said of the first weight that is left out."""
    first = v["why"].splitlines()[0]
    found = re.search(r"; not: '[^']*' \(((?:[^()]|\([^()]*\))*)\)", first)
    return found.group(1) if found else re.sub(r"^ebb: \S*: ", "", first)[:160]


def refusals(calls, results):
    """A row for each reason: the architectures, with the calls of both weights, or of those alone."""
    rows = {}
    for f, v in results:
        if v["result"] == "refused":
            of = rows.setdefault(reason(v), {}).setdefault(f["architecture"], {})
            of.setdefault(f["call"], []).append(f["weights"])
    for why, found in sorted(rows.items(), key=lambda row: -len(row[1])):
        names = []
        for name, by_call in found.items():
            said = [c + ("" if len(by_call[c]) == 2 else f" {by_call[c][0]}") for c in calls if c in by_call]
            names.append(f"{name} ({', '.join(said)})")
        yield f"| {why} | {'; '.join(names)} |"


def table(calls, results):
    found = {}
    for f, v in results:
        found.setdefault((f["architecture"], f["package"]), {}).setdefault(f["call"], []).append(v)
    rows = "\n".join(
        f"| {name} | {package} | " + " | ".join(cell(by_call[c]) if c in by_call else "-" for c in calls) + " |"
        for (name, package), by_call in found.items())
    refused = "\n".join(refusals(calls, results))
    others = "\n".join(line(f, v) for f, v in results if v["result"] in KINDS and v["result"] not in ("all", "refused"))
    count = {r: sum(v["result"] == r for _, v in results) for r in KINDS}
    packages = {p: len({n for n, q in found if q == p}) for _, p in found}
    unrun = sum(v["result"] == "not run" for _, v in results)
    return f"""# Exports of newcomers

Made by `tests/zoo/newcomer.py`, which says how: {len(found)} architectures ({", ".join(f"{n} of {p}" for p, n in packages.items())}),
with fresh and with trained (perturbed) weights, exported as somebody does who does not think of training, and as README
says (`advised`). What ebb trains of each file by itself is compared with PyTorch's parameters by value. Suite
`zoo.newcomer` holds small ones of each kind (`tests/zoo/newcomer`), with PyTorch's gradients.

Of {sum(count.values())} files ebb trains all that PyTorch would of {count['all']} and refuses {count['refused']}, naming the
export call that helps. It ties parameters of {count['tied']}, parts one parameter into two in {count['parted']}, trains
{count['part']} in part and something that is no parameter in {count['wrong']}, and fails at {count['failed']}.

- `default`: `torch.onnx.export(model.eval(), inputs, "model.onnx")`; `dynamo-plain`: with `optimize=False`;
  `ts`: with `dynamo=False`; `ts-unfolded`: that with `do_constant_folding=False`
- `all`: all that PyTorch would train; a batch norm that was folded into a convolution is trained with its weight
- `tied`: all, but equal parameters that the exporter made one stay one; `parted`: all, but a parameter that it stored
  twice is trained as two; `part`: less, with the share of elements; `wrong`: a constant, a buffer, or a parameter that
  its author holds fixed is trained, too
- two words: with fresh / with trained weights; `-`: the exporter refuses; `not run`: {unrun} files

| architecture | package | {' | '.join(calls)} |
|---|---|{'---|' * len(calls)}
{rows}

## What no file tells

- `requires_grad=False`: neither exporter writes it down, so what its author holds fixed is trained. `--freeze 'PATTERN'` takes the
  names that `print(";".join(n for n, p in model.named_parameters() if not p.requires_grad))` prints; README's calls keep them all.
- `detach()`: files made with `optimize=False` hold it. The default call of the dynamo exporter drops it; it is put back
  where the note at the node that read it tells which operand it was, and `ebb check` warns where not, or where the
  exporter made one of two values that it told apart. The TorchScript exporter leaves nothing: the difference in
  `x + (q - x)`, and the second `x` of `q + x - x`, is taken to have been detached, with a warning, and gradients pass everywhere else.
- `no_grad()` leaves nothing in any file, nor does the backward of a `torch.autograd.Function` of its author's own (YOSO). Spectral norm exported in training mode iterates under it: its vectors are known by
  their names, and no gradient passes them. In eval mode they stay as they are.
- A number of at most 1e-8 that is added, as in `sqrt(x + 1e-8)`: the default call of the dynamo exporter drops the sum, and
  at 0 the root has no gradient. `ebb check` and `train` name the node; `optimize=False` keeps it.
- A drawn tensor of a file of the TorchScript exporter that neither name nor place tells a parameter from a buffer: as a matrix that
  something is multiplied by (the frequencies of `waves_of_place`, a buffer; the vectors of attention in `graph_dense`, parameters) it is
  refused, with what to say; so is a codebook that the nearest is looked up in. Otherwise it is a token, a table of places, a scale: trained, and named.
- A weight that a TorchScript file computed of a parameter before the run, by a sum or a product with a number (`1 + w`, `w / 2`), in the
  place of a layer's weight: it is trained as it is. That is said where the layer would have left its weight the name (a linear layer
  of rows, a convolution); in a product of more axes every weight loses it. Files of the dynamo exporter note the calls: a sum is trained in the parameter's place, and
  said; what any other call made of a scale, a bias or a table is refused.
- A parameter that does nothing yet, as a scale of 1, and goes with its node: where the dynamo exporter's notes still read
  the product, it is refused. Else `ebb check` and `train` name what the exporter lists and the file does not have: what is
  tied, and what the model never uses, is in that list, too.
- A bias of zeros without a name, in a file of the TorchScript exporter: one of a query and a value with zeros for the key,
  which are no parameter (BEiT, Swin V2), looks like a part of one bias for all. It is refused; so are trained ones with
  zeros among them.
- What the exporter gets wrong: `index_add` by TorchScript (`graph_edges`) adds one of equal indices alone, in ONNX
  Runtime as here.

## What is refused

By what is said of the first weight that is left out; `fresh`, `trained`: of these weights alone.

| why | architecture (calls) |
|---|---|
{refused}
""" + (f"""
## What is neither

| architecture | package | weights | call | verdict | % | what is trained |
|---|---|---|---|---|---|---|
{others}
""" if others else "")
