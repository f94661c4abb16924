#!/usr/bin/env python3
"""Memory of the steps of gpu.py beside PyTorch's, without a GPU: planned arenas, fake tensors.

    bench/peaks.py --models DIR --work STEPS [--device h100] [--only gpt2,resnet50] [--largest]

PyTorch's peak is that of torch_peak.py, which leaves out workspaces; ebb's arena has everything. The
ways: "fused", the step before any memory pass, attention in one kernel as PyTorch has it; "exact", and
with the exact memory passes; budgets, shares of PyTorch's peak. Time is planned time over that of
"fused", by the device's data sheet. --largest tells what stands at PyTorch's peak.
"""
import argparse
import pathlib
import sys
import warnings

import gpu
from gpu_cases import FULL

BUDGETS = (50, 30)


def theirs(case):
    import numpy
    import torch_peak

    warnings.simplefilter("ignore")
    return torch_peak.peak_of(lambda: gpu.Torch(case, case.arrays(numpy), "cuda"))


def ours(case, peak, options):
    """By way: the plan, or why there is none."""
    ebb = gpu.Ebb(case, options, gpu.folder_of(case, options))
    fused = ["attention"] if case.tiled else []
    ebb.ways = {"fused": ebb.passes(fused), "exact": ebb.passes([*fused, *gpu.EXACT])}
    for share in BUDGETS:
        ebb.ways[f"{share} %"] = ["--budget", int(peak * share / 100), "--allow", "rounding"]
    plans = {}
    for way in ebb.ways:
        try:
            plans[way] = ebb.make(way)
        except gpu.Refused as refused:
            plans[way] = str(refused)
    return plans


def row(case, peak, plans):
    cells, before = [f"{peak / gpu.MIB:,.0f}"], plans["fused"]
    for way, plan in plans.items():
        if isinstance(plan, str):
            cells += ["none"] * 3
            print(f"{case.name}, {way}: {plan}", file=sys.stderr)
            continue
        cells += [f"{plan['arena_bytes'] / gpu.MIB:,.0f}", f"{plan['arena_bytes'] / peak:.2f}"]
        if way != "fused":
            cells.append(f"{plan['planned_ns'] / before['planned_ns']:.3f}")
        else:
            cells.append(f"{plan['planned_ns'] / 1e6:.1f} ms")
    return f"| {case.name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--models", required=True, help="a folder of exports, as for gpu.py")
    parser.add_argument("--work", required=True, help="a folder for steps")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--largest", action="store_true", help="what stands at PyTorch's peak")
    parser.add_argument("--ebb", default=str(gpu.ROOT / "build/release/ebb"))
    options = parser.parse_args()
    options.dry_run, options.costs, options.backend = False, None, "cuda"
    options.clock = gpu.Clock(0)
    ways = ["fused", "exact", *(f"{share} %" for share in BUDGETS)]
    print("| step | PyTorch MiB | " + " | ".join(f"{way} MiB | of it | time" for way in ways) + " |")
    print("|---" * (2 + 3 * len(ways)) + "|")
    for case in FULL:
        if options.only and case.model not in options.only.split(","):
            continue
        there = pathlib.Path(options.models) / case.model / "ts.onnx"
        if not there.exists():
            gpu.export(case, there)
        found = theirs(case)
        print(row(case, found["peak_bytes"], ours(case, found["peak_bytes"], options)), flush=True)
        for size, count, *what in found["largest"] if options.largest else []:
            print(f"    {size / gpu.MIB:,.0f} MiB in {count}:", *what, file=sys.stderr)


if __name__ == "__main__":
    main()
