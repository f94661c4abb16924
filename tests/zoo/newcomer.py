"""Exports models as somebody does who never trained from ONNX, and says what ebb trains of them.

    python3 tests/zoo/newcomer.py export [--to DIR] [--again] [NAME ...]
    python3 tests/zoo/newcomer.py check [--ebb build/release/ebb] [--to DIR] [NAME ...]
    python3 tests/zoo/newcomer.py write [--to DIR]          docs/newcomer.md, of what was checked
    python3 tests/zoo/newcomer.py readme [--ebb build/release/ebb]

Needs what export.py needs. DIR (default /tmp/newcomer) gets, of each architecture in `chosen` and of each form:

    NAME-FORM.onnx      the form is WEIGHTS-CALL: fresh or trained weights, and a row of `calls` below; those that
                        are `advised` are read from README.md
    NAME-FORM.json      what PyTorch would train: parameters with shape, size, requires_grad and whether a
                        loss reaches them; buffers; nodes and bytes of the file, or why the exporter refused
    NAME-WEIGHTS.npz    all their values

`check` says what ebb trains of each file: trained.py.

`readme` tries README's calls alone, on three models: all is trained, and batch norm and dropout are in the file.
"""
import argparse
import copy
import itertools
import json
import logging
import pathlib
import re
import sys
import tempfile
import warnings
import zlib

import numpy
import onnx
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import architectures  # noqa: E402
import export  # noqa: E402
import modules  # noqa: E402
from trained import judged, line, table  # noqa: E402

root = pathlib.Path(__file__).resolve().parents[2]

# In the mode of the module, with these arguments beside module, inputs and file; or as README says.
calls = {
    "default": ("eval", {}),
    "dynamo-plain": ("eval", {"dynamo": True, "optimize": False}),
    "ts": ("eval", {"dynamo": False}),
    "ts-unfolded": ("eval", {"dynamo": False, "do_constant_folding": False}),
    "dynamo-advised": None,
    "ts-advised": None,
}
weights = ("fresh", "trained")


# ---- small modules that the zoo does not have ----


class Sequence(nn.Module):
    """A recurrent layer between an embedding and a head."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.cell = kind(12, 16, batch_first=True, **options)
        self.head = nn.LazyLinear(5)

    def forward(self, ids):
        y, _ = self.cell(self.embed(ids))
        return self.head(y[:, -1])


def initialised(module, *shape, below=None):
    module(torch.randint(0, below, shape) if below else torch.randn(shape))
    return module


def recurrent(kind, **options):
    return lambda: initialised(Sequence(kind, **options), 2, 7, below=50)


def normalised(norm):
    return nn.Sequential(norm(nn.Conv2d(3, 8, 3)), nn.ReLU(), nn.Flatten(), norm(nn.Linear(8 * 36, 5)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4, 3))

    def forward(self, x):
        return self.layers(x)


def mlp():
    return nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 12),
                         nn.ReLU(), nn.Linear(12, 3))


def vision(name):
    return lambda: __import__("torchvision").models.get_model(name, num_classes=10)


class Auxiliary(nn.Module):
    """In training it has two more outputs, behind layers of their own."""

    def __init__(self):
        super().__init__()
        self.inner = __import__("torchvision").models.GoogLeNet(10, aux_logits=True, init_weights=False)

    def forward(self, x):
        y = self.inner(x)
        return y.logits if self.training else y


class Pyramid(nn.Module):
    """The features of a detector at three scales, added; batch norms are frozen. All layers are trained: which of them an
    author holds fixed (by default the first four) is of his training, and no file says so."""

    def __init__(self):
        super().__init__()
        from torchvision.models.detection import backbone_utils

        self.body = backbone_utils.mobilenet_backbone(backbone_name="mobilenet_v3_small", weights=None, fpn=True,
                                                         trainable_layers=6)

    def forward(self, x):
        return sum(nn.functional.interpolate(y, size=(4, 4)) for y in self.body(x).values())


class SingleShot(nn.Module):
    """A detector up to its scores and boxes."""

    def __init__(self):
        super().__init__()
        detection = __import__("torchvision").models.detection
        self.inner = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)

    def forward(self, x):
        y = self.inner.head(list(self.inner.backbone(x).values()))
        return torch.cat([y["cls_logits"], y["bbox_regression"]], 2)


def film():
    from torchvision.models.video import resnet

    return resnet.VideoResNet(resnet.BasicBlock, [resnet.Conv2Plus1D] * 4, [1] * 4, resnet.R2Plus1dStem, 10)


def small_vit():
    return __import__("torchvision").models.VisionTransformer(64, 16, 2, 3, 48, 96, dropout=0.1, num_classes=10)


extra = [
    ("googlenet_aux", "torchvision", Auxiliary, ("float", 3, 64, 64)),
    ("feature_pyramid", "torchvision", Pyramid, ("float", 3, 64, 64)),
    ("single_shot", "torchvision", SingleShot, ("float", 3, 64, 64)),
    ("r2plus1d", "torchvision", film, ("float", 3, 4, 32, 32)),
    ("vit_torchvision", "torchvision", small_vit, ("float", 3, 64, 64)),
    ("resnet18", "torchvision", vision("resnet18"), ("float", 3, 64, 64)),
    ("mobilenet_v2", "torchvision", vision("mobilenet_v2"), ("float", 3, 64, 64)),
    ("convolutions", "torch", Convolutions, ("float", 2, 8, 8)),
    ("lstm", "torch", recurrent(nn.LSTM, bidirectional=True, num_layers=2), ("int", 50, 7)),
    ("gru", "torch", recurrent(nn.GRU), ("int", 50, 7)),
    ("linear_3d", "torch", mlp, ("float", 6, 12)),
    ("weight_norm", "torch", lambda: normalised(nn.utils.parametrizations.weight_norm), ("float", 3, 8, 8)),
    ("spectral_norm", "torch", lambda: normalised(nn.utils.parametrizations.spectral_norm), ("float", 3, 8, 8)),
]
for name, package, make, shape in extra:
    if name not in architectures.rows:
        architectures.add(architectures.Row(name, package, make, {"x": shape}, axis=2 if name == "linear_3d" else 1,
                                            positional=True))

chosen = [
    # the first ten: one of each kind
    "resnet18", "mobilenet_v3_small", "densenet121", "vit_tiny_patch16_224", "convnext_atto",
    "swin_tiny_patch4_window7_224", "bert_sdpa", "gpt2_sdpa", "t5", "lstm", "gru", "linear_3d", "weight_norm",
    "spectral_norm",
    # torchvision
    "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_x_400mf", "mnasnet0_5", "googlenet",
    # timm
    "efficientnet_b0", "regnety_002", "nf_regnet_b0", "beit_base_patch16_224", "convit_tiny", "mixer_s32_224",
    "levit_128s", "poolformer_s12", "coat_lite_tiny", "mobilevit_xxs", "xcit_nano_12_p16_224", "fastvit_t8",
    "ghostnet_050",
    "swinv2_tiny_window8_256", "edgenext_xx_small",
    # transformers
    "distilbert", "roberta", "albert", "deberta_v2", "electra", "mobilebert", "llama_sdpa", "gemma", "bloom", "opt",
    "qwen3", "gpt_neo", "mamba", "bart", "marian", "whisper", "wav2vec2", "hubert", "clip", "segformer", "dinov2",
    # tables of places, Fourier transforms, parallel norms, biases drawn above 0
    "mpnet", "squeezebert", "gpt_neox", "convbert", "fnet", "funnel", "rembert", "roformer", "siglip",
    "mobilevitv2_050",
    # convolutions, attention and both, of more families; pictures taken apart; parts of detectors; films
    "hgnetv2_b0", "maxvit_pico_rw_256", "tf_efficientnetv2_b0", "deit_tiny_distilled_patch16_224", "inception_v3",
    "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "feature_pyramid", "single_shot", "r2plus1d",
    "convnextv2_atto", "repvgg_a0", "gmlp_s16_224", "cait_xxs24_224", "resmlp_12_224", "efficientvit_b0", "tnt_s_patch16_224",
    "volo_d1_224", "sequencer2d_s", "mvitv2_tiny", "coatnet_pico_rw_224", "hiera_tiny_224", "vit_torchvision",
    "googlenet_aux",
    *modules.names,
]


# ---- export ----


def made(row, state):
    torch.manual_seed(zlib.crc32(row.name.encode()))
    module = export.Zoo(row)
    if state == "fresh":
        return module
    trained = export.prepared(row)
    with torch.no_grad():  # what its author holds fixed is never trained
        for p, fresh in zip(trained.parameters(), module.parameters()):
            if not p.requires_grad:
                p.copy_(fresh)
    return trained


def reached(row, module, tensors):
    """Names of what a loss changes: the file cannot have the others."""
    module = export.certain(copy.deepcopy(module)).train()
    with export.without_dropout():
        y = module(*tensors.values())
    y.float().square().sum().backward()
    return {n for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}


def described(row, module, tensors):
    names, facts = {}, {"parameters": [], "buffers": []}
    for name, p in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    used = reached(row, module, tensors)
    for name, p in module.named_parameters():
        facts["parameters"].append({
            "name": name, "shape": list(p.shape), "elements": p.numel(), "requires_grad": p.requires_grad,
            "reached": name in used, "also": [n for n in names[id(p)] if n != name]})
    for name, b in module.named_buffers():
        facts["buffers"].append({"name": name, "shape": list(b.shape), "elements": b.numel(),
                                 "dtype": str(b.dtype).removeprefix("torch.")})
    return facts


def advised(call):
    """README's call of this exporter, as text."""
    found = re.findall(r"^torch\.onnx\.export\(.*\)$", (root / "README.md").read_text(), re.MULTILINE)
    return next(c for c in found if ("dynamo=False" in c) == (call == "ts-advised"))


def written(row, module, tensors, path, call):
    module = copy.deepcopy(module)
    names = {"input_names": list(row.inputs), "output_names": ["y"], "verbose": False}
    if calls[call] is None:
        text = advised(call).replace('"model.onnx"', "path").removesuffix(")") + ", **names)"
        inputs = tuple(tensors.values())
        eval(text, {"torch": torch, "model": module, "inputs": inputs, "path": str(path), "names": names})
        return
    mode, options = calls[call]
    module.train(mode == "train")
    with torch.no_grad():
        torch.onnx.export(module, tuple(tensors.values()), str(path), **names, **options)


def export_row(row, to, again, which=tuple(calls)):
    for state in weights:
        files = {call: to / f"{row.name}-{state}-{call}.json" for call in which}
        if all(f.exists() for f in files.values()) and not again:
            continue
        module = made(row, state)
        tensors = export.drawn(row)
        known = described(row, module, tensors)
        numpy.savez(to / f"{row.name}-{state}.npz", **{
            n: t.detach().numpy() for n, t in [*module.named_parameters(), *module.named_buffers()]})
        for call, file in files.items():
            if file.exists() and not again:
                continue
            facts = {"architecture": row.name, "package": row.package, "weights": state, "call": call}
            path = file.with_suffix(".onnx")
            try:
                written(row, module, tensors, path, call)
                facts["nodes"] = len(onnx.load(path, load_external_data=False).graph.node)
            except Exception as error:  # noqa: BLE001: any of an exporter's many; it is recorded
                while error.__cause__ is not None:
                    error = error.__cause__
                facts["error"] = f"{type(error).__name__}: {error}"[:1000]
                path.unlink(missing_ok=True)
            file.write_text(json.dumps(facts | known, indent=1))
            print(f"{file.stem:50}", facts.get("error", f"{facts.get('nodes')} nodes")[:100], flush=True)


# ---- README ----


def readme(ebb):
    """Whether README's calls keep their promise."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        to = pathlib.Path(folder)
        for name in ("convolutions", "linear_3d", "lstm"):
            row = architectures.rows[name]
            export_row(row, to, False, ("dynamo-advised", "ts-advised"))
            kinds = [type(m).__name__ for m in row.make().modules()]
            for state, call in itertools.product(weights, ("dynamo-advised", "ts-advised")):
                path = to / f"{name}-{state}-{call}.onnx"
                ops = [n.op_type for n in onnx.load(path).graph.node]
                v = judged(ebb, json.loads(path.with_suffix(".json").read_text()), path, to)
                whole = (v["result"] == "all" and ops.count("BatchNormalization") == kinds.count("BatchNorm2d") and
                         ops.count("Dropout") == kinds.count("Dropout"))
                print(path.stem, v["result"], "" if whole else f"LOST: {v.get('why')} {ops}")
                good = good and whole
    return good


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", choices=("export", "check", "write", "readme"))
    arguments.add_argument("--to", type=pathlib.Path, default=pathlib.Path("/tmp/newcomer"))
    arguments.add_argument("--ebb", type=pathlib.Path, default=root / "build" / "dev" / "ebb")
    arguments.add_argument("--again", action="store_true", help="export although it is there")
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_intermixed_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if given.what == "readme":
        return not readme(given.ebb)
    given.to.mkdir(parents=True, exist_ok=True)
    results = []
    for name in given.names or chosen:
        row = architectures.rows[name]
        try:
            if given.what == "export":
                export_row(row, given.to, given.again)
                continue
        except Exception as error:  # noqa: BLE001: the other rows are still to be made
            print(f"{name:50} no model: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        for state, call in itertools.product(weights, calls):
            file = given.to / f"{name}-{state}-{call}.json"
            path, verdict = file.with_suffix(".onnx"), file.with_suffix(".verdict.json")
            if not path.exists():
                continue
            facts = json.loads(file.read_text())
            if given.what == "check":
                v = judged(given.ebb, facts, path, given.to)
            else:
                v = json.loads(verdict.read_text()) if verdict.exists() else {"result": "not run"}
            results.append((facts, v))
            if given.what == "check":
                verdict.write_text(json.dumps(v, indent=1))
                print(line(facts, v), flush=True)
    for result, group in itertools.groupby(sorted(v["result"] for _, v in results)):
        print(f"{result}: {len(list(group))}")
    if given.what == "write":
        (root / "docs" / "newcomer.md").write_text(table(calls, results))
        return False
    return any(v["result"] not in ("all", "refused") for _, v in results)


if __name__ == "__main__":
    sys.exit(main())
