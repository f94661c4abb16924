"""Does a step of several processes take the time that `ebb plan` says, by a link of known delay and rate?

    python3 bench/link.py --ebb build/release/ebb --ranks 4 --turns 5

Processes of one machine whose exchanges sleep as long as such a link would take (`ebb launch --link`). The plan has the time
of each operator as one process takes it by itself (`ebb bench MODEL --calibrate`), how much longer computing takes
where so many do so at once (`ebb launch -n 4 -- ebb bench --calibrate-comm`, by steps that are none of the model's), and that link
in place of the one that was measured. Nothing of the step itself goes into it.

In turns: the step by a link that takes no time, whose exchanges come before what computes as those of a slow one do, which tells how
far the plan is off in what is computed; and by the link. Prints a line a case, medians over the turns; a share of 1 is what
is planned.
"""
import json
import os
import tempfile

from processes import DIGITS, launched, medians, read_words, samples, step_ns, tell

MODEL = "digits/transformer.onnx"
STEP = ["--loss", "cross-entropy", "--optimizer", "adamw", "--dropout", "off", "--json"]
NO_TIME = "0,1000000"
AT_ONCE = [[], ["--pass", "bucket"], ["--pass", "shard:parameters"]]
BESIDE = [["--pass", "overlap"], ["--pass", "shard", "--pass", "overlap"],
          ["--pass", "shard:parameters", "--pass", "bucket", "--pass", "overlap"]]


def calibrate(given, batch, folder):
    """What one process's operators take, and by how much longer so many at once."""
    file = os.path.join(folder, f"{batch}.json")
    tell([given.ebb, "bench", os.path.join(samples, MODEL), "--dim", f"batch={batch // given.ranks}", *STEP, "--threads", "1",
          "--calibrate", "-o", file])
    seen = tell([given.ebb, *launched(given), "bench", "--calibrate-comm", "-o", file, "--json"])
    print(f"{given.ranks} processes at once compute {seen['together_ns'] / seen['alone_ns']:.3f} times as long as one "
          f"({seen['together_ns'] / 1e6:.2f} and {seen['alone_ns'] / 1e6:.2f} ms)", flush=True)
    return file


def by_link(costs, us, gb):
    """The same machine, whose processes reach each other by this link."""
    with open(costs) as file:
        known = json.load(file)
    known["link"] = {"us": us, "gb": gb}
    with open(costs, "w") as file:
        json.dump(known, file)


def compare(given, batch, passes, link, costs):
    by_link(costs, *(float(x) for x in link.split(",")))
    plan = tell([given.ebb, "plan", os.path.join(samples, MODEL), "--dim", f"batch={batch}", "--ranks", str(given.ranks),
                 "--costs", costs, *STEP, "--threads", "1", *passes])
    said, stood, exchanged = plan["planned_ns"], plan["group"]["exposed_ns"], plan["group"]["exchange_ns"]
    words = DIGITS + ["--dropout", "off", *passes]
    computed, stepped = medians(given, lambda: step_ns(given, MODEL, batch, words, launched(given, "--link", NO_TIME)),
                                lambda: step_ns(given, MODEL, batch, words, launched(given, "--link", link)))
    print(f"{MODEL} batch {batch}, {given.ranks} processes, link {link}, {' '.join(passes) or 'as it is'}: exchanged {exchanged / 1e6:.2f} ms, "
          f"{max(0, 1 - stood / exchanged):.0%} hidden; computed {computed / 1e6:.2f} ms, {computed / (said - stood):.3f} of the plan's; "
          f"planned {said / 1e6:.2f} ms, measured {stepped / 1e6:.2f} ms, share {stepped / said:.3f}", flush=True)


def main():
    given = read_words(ranks=4, steps=30)
    with tempfile.TemporaryDirectory() as folder:
        for batch, cases, link in ((256, AT_ONCE, "1000,0.005"), (1024, BESIDE, "300,0.02")):
            costs = calibrate(given, batch, folder)
            for passes in cases:
                compare(given, batch, passes, link, costs)


if __name__ == "__main__":
    main()
