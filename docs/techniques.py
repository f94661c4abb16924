"""Writes docs/techniques.md from the passes' descriptors and what was measured; nothing in it is typed by hand.

    ebb bench --sweep bench/sweep.json -o bench/results/sweep.jsonl
    ebb bench --sweep bench/sweep_models.json -o bench/results/sweep_models.jsonl --steps 5
    python3 bench/convergence.py
    python3 docs/techniques.py [path of the ebb command]

The second needs the full-size models beside the repository; without its lines the document has none of them.
"""
import json
import pathlib
import statistics
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
root = here.parent
ebb = sys.argv[1] if len(sys.argv) > 1 else str(root / "build/release/ebb")
MIB = 1 << 20


def lines(name):
    path = root / "bench/results" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ask(*words):
    return json.loads(subprocess.run([ebb, *words], check=True, capture_output=True).stdout)


def names(passes):
    """The passes in "a:x=1,y=2,b": a word with an equals sign and no colon before it is an option."""
    words = [w for w in passes.split(",") if w]
    return [w.split(":")[0] for w in words if "=" not in w or ":" in w.split("=")[0]]


sweep = lines("sweep.jsonl") + lines("sweep_models.jsonl")
training = lines("convergence.jsonl")
settings = [p if isinstance(p, str) else p["passes"] for p in json.loads((root / "bench/sweep.json").read_text())["passes"]]
known = ask("help", "passes", "--json")
known = {p["name"] for p in known["passes"]} | {p["name"] for p in known.get("presets", [])}
settings = [s for s in settings if all(n in known for n in names(s))]
tasks = list(dict.fromkeys(line["task"] for line in training))


# ---- convergence ----

def results(task, passes, what):
    return [line[what] for line in training
            if (line["task"], line["passes"], line["outcome"]) == (task, passes, "trained")]


def outcome(task, passes):
    return {line["outcome"] for line in training if (line["task"], line["passes"]) == (task, passes)}


def cell(task, passes):
    """Test accuracy, or for text the test loss: mean and spread (largest minus smallest)."""
    text = task == "char"
    found = results(task, passes, "test_loss" if text else "accuracy")
    if not found:
        return "diverged" if "diverged" in outcome(task, passes) else "-"
    scale, digits = (1, 4) if text else (100, 2)
    spread = scale * (max(found) - min(found))
    mark = "" if passes == "" or not worse(task, passes) else " **worse**"
    return f"{scale * statistics.mean(found):.{digits}f} ({spread:.{digits}f}){mark}"


def worse(task, passes):
    """Is the mean worse than the exact one's by more than both spreads together?"""
    text = task == "char"
    what = "test_loss" if text else "accuracy"
    exact, other = results(task, "", what), results(task, passes, what)
    if not exact or not other:
        return False
    lost = statistics.mean(other) - statistics.mean(exact) if text else statistics.mean(exact) - statistics.mean(other)
    return lost > (max(exact) - min(exact)) + (max(other) - min(other))


def convergence(which, exact=True):
    shown = [p for p in which if any("trained" in outcome(t, p) or "diverged" in outcome(t, p) for t in tasks)]
    if not shown:
        return
    yield "\n| training | " + " | ".join(f"{t}, {'test loss' if t == 'char' else 'accuracy %'}" for t in tasks) + " |"
    yield "|---" * (1 + len(tasks)) + "|"
    for p in ([""] if exact else []) + shown:
        yield f"| {f'`{p}`' if p else 'exact'} | " + " | ".join(cell(t, p) for t in tasks) + " |"


# ---- the sweep ----

def mib(size):
    return f"{size / MIB:,.2f}" if size < 100 * MIB else f"{size / MIB:,.0f}"


def share(line, what):
    before, after = line["exact"][what], line["with"][what]
    return f"{mib(after)} ({100 * after / before:.1f} %)" if before else mib(after)


def number(value, form):
    return "not finite" if value is None else format(value, form)


def row(line, label):
    g = line.get("gradients")
    cells = [label, line["model"], share(line, "peak_bytes"), share(line, "saved_bytes"),
             f"{line['time_ratio']:.2f}" if "time_ratio" in line else "-"]
    cells += ["-"] * 4 if g is None else [number(g["cosine"], ".6f"), number(g["relative_l2"], ".2g"),
                                          number(g["least_cosine"], ".4f"), number(g["largest_relative_l2"], ".2g")]
    return "| " + " | ".join(cells) + " |"


def measured(which):
    found = [(p, line) for p in which for line in sweep if line["passes"] == p and "with" in line]
    if found:
        yield ("\n| passes | model | peak MiB | saved MiB | step time | cosine | relative L2 | least cosine "
               "| largest L2 |\n" + "|---" * 9 + "|")
        yield from (row(line, f"`{p}`") for p, line in found)
    nothing = {}
    for p in which:
        for line in sweep:
            if line["passes"] == p and line["outcome"] == "found nothing":
                reasons = [s["reason"] for site in line["sites"] for s in site["skipped"]]
                nothing.setdefault("; ".join(dict.fromkeys(reasons)) or "no site", []).append(line["model"])
    for reason, models in nothing.items():
        yield f"\nNothing to do on {', '.join(dict.fromkeys(models))}: {reason}."
    for p in which:
        for line in sweep:
            if line["passes"] == p and line["outcome"] == "failed":
                yield f"\nFailed on {line['model']} (`{p}`): {line['error']}"


def options(p):
    if not p["options"]:
        return
    yield "\n| option | default | choices | |\n|---|---|---|---|"
    for o in p["options"]:
        yield f"| `{o['name']}` | {o['default']} | {o['choices'].replace('|', ', ')} | {o['doc']} |"


def slower():
    """Goals of the step's time: cheap techniques within 3 %, 4-bit codes within 15 %; on the full-size models."""
    goals = {"invert": 1.03, "sign-mask": 1.03, "dropout-mask": 1.03, "pool-index": 1.03, "norm-from-output": 1.03,
             "inplace-abn": 1.03, "quantise:bits=4": 1.15}
    timed = [line for line in lines("sweep_models.jsonl") if line["passes"] in goals and "time_ratio" in line]
    if not timed:
        return
    yield "\n| goal of the step's time | model | measured | |\n|---|---|---|---|"
    for line in timed:
        goal, ratio = goals[line["passes"]], line["time_ratio"]
        yield (f"| `{line['passes']}` at most {goal:.2f} | {line['model']} | {ratio:.3f} "
               f"| {'met' if ratio <= goal else '**missed**'} |")


def document():
    when = sorted({line["date"] for line in sweep + training})
    where = sorted({line["machine"] for line in sweep + training})
    yield "# Techniques\n"
    yield ("Generated by `docs/techniques.py` from the passes' descriptors and from `bench/results/`: do not edit. "
           f"Measured {' to '.join(dict.fromkeys([when[0], when[-1]])) if when else 'never'} on {'; '.join(where)}.\n")
    yield ("- **peak, saved**: of one step with the technique, and in brackets as a share of the exact step's. Saved is "
           "what the forward leaves for the backward. The measured arena was the planned one in every run.\n"
           "- **step time**: the technique's step by the exact one's, timed in turns in one run (lower quartiles).\n"
           "- **cosine, relative L2**: the gradient of one step beside the exact one from the same weights, batch and "
           "draws: of all parameters together, then of the worst one (without those whose gradient is next to zero).\n"
           "- **training**: mean over 3 seeds and, in brackets, largest minus smallest. **worse**: farther from exact "
           "than both spreads together.")
    yield "\n## Training, all together"
    yield from convergence(settings)
    yield "\n## Time, against its goals"
    yield from slower()
    exactness = {"exact": "exact: every bit stays", "rounding": "rounding: the same mathematics, rounded elsewhere",
                 "lossy": "lossy: an error, stated and measured"}
    for p in ask("help", "passes", "--json")["passes"]:
        mine = [s for s in settings if names(s) == [p["name"]]]
        if not mine:
            continue
        yield f"\n## {p['name']}\n\n{p['doc'][0].upper() + p['doc'][1:]}. {exactness[p['exactness']]}." + (f" {p['paper']}." if p["paper"] else "")
        yield from options(p)
        yield from measured(mine)
        yield from convergence(mine)
    single = {p["name"] for p in ask("help", "passes", "--json")["passes"]}
    rest = [s for s in settings if len(names(s)) > 1 or names(s)[0] not in single]
    yield "\n## Combinations and presets"
    yield from measured(rest)
    yield from convergence(rest)


(here / "techniques.md").write_text("\n".join(document()) + "\n")
