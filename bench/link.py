"""Does a step of several processes take the time that `ebb plan --link` says, by a link of known delay and rate?

    python3 bench/link.py --ebb build/release/ebb --ranks 4 --turns 5

Processes of one machine whose exchanges sleep as long as such a link would take (`ebb launch --link`). The plan knows what each
operator takes, measured by as many calibrations beside each other as there will be processes; what they compute in is measured by a
link that takes no time, since processes that share cores wait for each other, and the plan is asked for what the step waits
for beside it. Where exchanges go on beside the step (pass overlap), how much of them is hidden depends on the computation
between: its planned times are stretched to the measured ones, which is asking for a link that is as much faster.
In turns: without the link, with it. Prints a line a case, medians over the turns; a share of 1 is what is planned.
"""
import os
import subprocess
import tempfile

from processes import DIGITS, launched, medians, read_words, samples, step_ns, tell

MODEL = "digits/transformer.onnx"
STEP = ["--loss", "cross-entropy", "--optimizer", "adamw", "--dropout", "off", "--threads", "1", "--json"]
NO_TIME = "0,1000000"  # its exchanges come before what computes as those of a slow link do, but are over at once
AT_ONCE = [[], ["--pass", "bucket"], ["--pass", "shard:parameters"]]
BESIDE = [["--pass", "overlap"], ["--pass", "shard:parameters", "--pass", "bucket", "--pass", "overlap"]]


def calibrate(given, batch, folder):
    """What a process's rows take while the others compute theirs."""
    files = [os.path.join(folder, f"{batch}.{rank}.json") for rank in range(given.ranks)]
    words = [given.ebb, "bench", os.path.join(samples, MODEL), "--dim", f"batch={batch // given.ranks}", *STEP, "--calibrate", "-o"]
    for process in [subprocess.Popen([*words, file], stdout=subprocess.DEVNULL) for file in files]:
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(words)}: exit {process.returncode}")
    return files[0]


def compare(given, batch, passes, link, costs):
    us, gb = (float(x) for x in link.split(","))

    def planned(stretch):
        """Of a step whose computation takes `stretch` times what is planned, by a link that is as much faster."""
        plan = tell([given.ebb, "plan", os.path.join(samples, MODEL), "--dim", f"batch={batch}", "--ranks", str(given.ranks), "--link",
                     f"{us / stretch},{gb * stretch}", "--costs", costs, *STEP, *passes])
        return plan["planned_ns"], plan["group"]["exposed_ns"], plan["group"]["exchange_ns"]

    words = DIGITS + ["--dropout", "off", *passes]
    computed, stepped = medians(given, lambda: step_ns(given, MODEL, batch, words, launched(given, "--link", NO_TIME)),
                                lambda: step_ns(given, MODEL, batch, words, launched(given, "--link", link)))
    step, stood, exchanged = planned(1)
    stretch = computed / (step - stood)
    stood = planned(stretch)[1] * stretch
    said = computed + stood
    print(f"{MODEL} batch {batch}, {given.ranks} processes, link {link}, {' '.join(passes) or 'as it is'}: computed {computed / 1e6:.2f} ms "
          f"({stretch:.2f} of the plan's), exchanged {exchanged / 1e6:.2f} ms, {max(0, 1 - stood / exchanged):.0%} hidden; planned {said / 1e6:.2f} ms, "
          f"measured {stepped / 1e6:.2f} ms, share {stepped / said:.3f}", flush=True)


def main():
    given = read_words(ranks=4, steps=30)
    with tempfile.TemporaryDirectory() as folder:
        for batch, cases, link in ((256, AT_ONCE, "1000,0.005"), (1024, BESIDE, "300,0.02")):
            costs = calibrate(given, batch, folder)
            for passes in cases:
                compare(given, batch, passes, link, costs)


if __name__ == "__main__":
    main()
