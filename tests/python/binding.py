"""The Python package, by its own words: what ebb.h says of structs and arguments, arrays that are not copied, errors
that carry the sentence, memory that stays flat, and the sample. Its installation by pip: install.py.

    tests/python/binding.py LIBRARY         exits with 77 where there is no numpy
"""
import ctypes
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile

SOURCE = Path(__file__).resolve().parents[2]
ORACLES = SOURCE / ".oracles"
sys.path[:0] = [str(SOURCE / "python"), str(ORACLES / "onnxruntime-1.31.1"), str(ORACLES / "onnx-1.22.0")]
os.environ["EBB_LIBRARY"] = sys.argv[1]
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a second one would wait for a busy machine, step by step
try:
    import numpy
    import onnx
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"SKIP: {missing}: the wheels of tests/oracles.txt are not here")
    sys.exit(77)
import ebb
from ebb.arrays import listed
from ebb.library import header, lib

CNN = SOURCE / "samples/digits/cnn.onnx"
DIGITS = numpy.load(SOURCE / "samples/digits/digits.npz")


def linear():
    """y = x w, of 2 x 4 and 4 x 3."""
    weight = numpy.arange(12, dtype="float32").reshape(4, 3)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
                              [onnx.numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), f"'{error}' has no '{words}'"
        return error
    raise AssertionError(f"nothing was raised; expected: {words}")


def training_program():
    model = ebb.open(CNN, batch=32)
    model.rewrite(loss="cross-entropy", optimizer="adamw:lr=0.003", passes=["sign-mask"])
    return model.compile()


# ---- what the header says ----


def structs_lie_as_the_recorded_interface_has_them():
    recorded = (SOURCE / "tests/interface/libebb.abi").read_text()
    for name, struct in header.structs.items():
        said = re.search(rf"<class-decl name='{name}' size-in-bits='(\d+)'.*?</class-decl>", recorded, re.S)
        assert said, name
        assert ctypes.sizeof(struct) * 8 == int(said.group(1)), name
        fields = re.findall(r"layout-offset-in-bits='(\d+)'>\s*<var-decl name='(\w+)'", said.group(0))
        mine = [(str(getattr(struct, field).offset * 8), field) for field, _ in struct._fields_]
        assert fields == mine, (name, fields, mine)
    assert len(header.functions) == recorded.count("<function-decl ")


# Arguments that may be NULL, as ebb.h says: options, a JSON text that nobody wants, and these.
MAY_BE_NULL = """ebb_open_memory.folder ebb_artifacts_checkpoint.properties ebb_ops_json.model ebb_reduce.path
ebb_calibrate.models ebb_sensitivity.path ebb_pack_csv.out ebb_checkpoint_save.extra ebb_checkpoint_load.extra
ebb_data_open.model ebb_data_shape.map ebb_data_bind.map ebb_data_whole.map ebb_data_rows.map ebb_data_rows.index
ebb_data_ahead.map ebb_data_ahead.index ebb_tensors_save.tensors ebb_tensors_save.metadata_json ebb_metrics_new.names
ebb_evaluator_run.trained ebb_evaluator_run.stop ebb_evaluator_run.context ebb_set_shape.dims ebb_whole_parse.range
ebb_real_parse.range ebb_data_of.arrays ebb_data_open_files.paths ebb_program_step.batch""".split()


def said_of(function, pointers):
    """What it says, in a process of its own, of these pointers, beside others that must not be looked at."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        zeros = ctypes.create_string_buffer(65536)
        values = []
        for i, (_, kind) in enumerate(header.functions[function][1]):
            if kind in (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)):
                values.append(ctypes.cast(pointers.get(i, zeros), kind))
            else:
                values.append(kind())
        status = getattr(lib, function)(*values)
        os.write(write, lib.ebb_status_text(status) if status else b"nothing")
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    return said if os.waitpid(child, 0)[1] == 0 else "it ended by a signal"


def a_null_is_named_by_every_call_that_returns_a_status():
    wrong, checked = [], 0
    sys.stderr.flush()
    for function, (_, arguments) in header.functions.items():
        declared = re.search(rf"EBB_API ([^;]*?)\b{function}\(", (SOURCE / "include/ebb.h").read_text()).group(1)
        if not declared.endswith("ebb_status "):
            continue
        for at, (name, kind) in enumerate(arguments):
            is_pointer = kind in (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p))
            optional = name in ("options", "json") and function not in (
                "ebb_evaluator_new", "ebb_trainer_new", "ebb_trainer_steps") and (
                name == "options" or not function.endswith("_json") and function != "ebb_check")
            if not is_pointer or optional or f"{function}.{name}" in MAY_BE_NULL:
                continue
            checked += 1
            if said_of(function, {at: None}) != f"{function}: {name} is NULL":
                wrong.append(f"{function}.{name}")
    assert not wrong, f"not named: {wrong}"
    assert checked > 100, checked


def counts_below_zero_are_named():
    """By each call whose options have one, with the struct's size and with 0, which stands for version 0.1."""
    wrong, checked = [], 0
    text = (SOURCE / "include/ebb.h").read_text()
    for function, struct in re.findall(r"EBB_API ebb_status (\w+)\([^;]*?const (ebb_\w+_options) \*\s*options", text):
        kind = header.structs[struct]
        at = [name for name, _ in header.functions[function][1]].index("options")
        for field, of in kind._fields_:
            if of not in (ctypes.c_int, ctypes.c_int64) or (struct, field) in (
                    ("ebb_launch_options", "ranks"), ("ebb_plan_options", "steps")):  # a range; of one call alone
                continue
            for size in (ctypes.sizeof(kind), 0):
                checked += 1
                options = kind(size=size, **{field: -7})
                said = said_of(function, {at: ctypes.addressof(options)})
                if said not in (f"{name}: {field} is -7, and must be 0 or more" for name in (function, struct)):
                    wrong.append(f"{function}, {struct}.{field}: {said}")
    assert not wrong, wrong
    assert checked > 60, checked


# ---- models and arrays ----


def a_step_computes_what_numpy_does():
    program = ebb.open(linear()).compile()
    x = numpy.random.default_rng(1).standard_normal((2, 4)).astype("float32")
    y = program.step(x=x)["y"]
    assert y.dtype == numpy.float32 and numpy.allclose(y, x @ program["w"], rtol=1e-6)


def arrays_are_not_copied():
    x = numpy.ones((2, 4), "float32")
    rows, _ = listed({"x": x})
    assert rows[0].data == x.ctypes.data
    program = ebb.open(linear()).compile()
    first = program.step(x=x)["y"]
    before = first.copy()
    second = program.step(x=2 * x)["y"]
    assert first.ctypes.data == second.ctypes.data  # where the program has it
    assert (first == 2 * before).all()
    del program
    assert (first == 2 * before).all()  # the array keeps the program


def weights_are_set():
    program = ebb.open(linear()).compile()
    program["w"] = numpy.full((4, 3), 2, "float32")
    assert (program.step(x=numpy.ones((2, 4), "float32"))["y"] == 8).all()


def a_model_tells_its_facts():
    facts = ebb.open(CNN, batch=16).facts()
    assert facts.inputs == {"image": ("float32", (16, 1, 8, 8))}, facts.inputs
    program = training_program()
    assert program.model.plan().arena_bytes == program.facts().planned_arena_bytes > 0


def an_exception_carries_the_sentence():
    error = raises(ebb.Error, "nowhere.onnx", lambda: ebb.open("nowhere.onnx"))
    assert error.code == "EBB_IO"
    assert raises(ebb.Error, "no ONNX model", lambda: ebb.open(b"no model")).code == "EBB_REJECTED"
    program = ebb.open(linear()).compile()
    error = raises(ebb.Error, "'x' is float32[2,5], the program wants float32[2,4]",
                   lambda: program.step(x=numpy.ones((2, 5), "float32")))
    assert error.code == "EBB_USAGE"
    raises(ebb.Error, "no output and no initializer 'z'", lambda: program["z"])
    raises(TypeError, "'los' is no option of ebb_step_options: accumulate, adapters", lambda: program.model.rewrite(los="mse"))


# ---- training ----


def a_trainer_tells_and_learns():
    program, seen = training_program(), []
    data = {"image": DIGITS["image"], "label": DIGITS["label"]}
    trainer = ebb.Trainer(program, data, map={"label": "target"}, batch=32, epochs=2,
                          tell=lambda t, event: seen.append((event, t.facts().loss)))
    facts = trainer.run()
    steps = [loss for event, loss in seen if event == "step"]
    assert len(steps) == facts.steps == 2 * (len(DIGITS["image"]) // 32)
    assert steps[-1] < steps[0] / 2 and facts.epoch == 2
    assert [event for event, _ in seen].count("epoch") == 2


def what_a_callback_raises_is_raised_by_run():
    def tell(trainer, event):
        if trainer.facts().steps == 3:
            raise KeyError("enough")

    trainer = ebb.Trainer(training_program(), {"image": DIGITS["image"], "target": DIGITS["label"]}, batch=32, tell=tell)
    raises(KeyError, "enough", trainer.run)
    assert trainer.facts().steps == 3


def memory_stays_flat_over_a_thousand_steps():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    program = training_program()
    target = DIGITS["label"].astype("int64")
    held = []

    def steps(count):
        for i in range(count):
            at = i * 32 % 1280
            held[:] = [program.step(image=DIGITS["image"][at:at + 32], target=target[at:at + 32])]
            assert program.facts().steps > 0 and program.model.plan

    steps(200)
    before = resident()
    steps(1000)
    grown = resident() - before
    print(f"  resident bytes after 1000 more steps: {grown:+d}")
    assert grown < 512 * 1024, grown


# ---- as it is used ----


def the_sample_is_fifteen_lines_and_learns():
    sample = SOURCE / "samples/python/digits.py"
    lines = [line for line in sample.read_text().split('"""')[2].splitlines() if line.strip()]
    assert len(lines) <= 15, len(lines)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "samples").symlink_to(SOURCE / "samples")
        said = subprocess.run([sys.executable, sample], cwd=folder, capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:3])}).stdout
        before, after = (onnx.load(path).graph.initializer for path in (CNN, Path(folder) / "trained.onnx"))
        changed = [a.name for a, b in zip(before, after) if a.raw_data != b.raw_data]
        assert len(changed) > 11, changed  # also running statistics
    losses = [float(x) for x in re.findall(r"epoch \d: loss ([\d.]+)", said)]
    assert len(losses) == 3 and losses[2] < losses[0], said


if __name__ == "__main__":
    for test in (structs_lie_as_the_recorded_interface_has_them, a_null_is_named_by_every_call_that_returns_a_status,
                 counts_below_zero_are_named,
                 a_step_computes_what_numpy_does, arrays_are_not_copied, weights_are_set,
                 a_model_tells_its_facts, an_exception_carries_the_sentence, a_trainer_tells_and_learns,
                 what_a_callback_raises_is_raised_by_run, memory_stays_flat_over_a_thousand_steps,
                 the_sample_is_fifteen_lines_and_learns):
        print(test.__name__, flush=True)
        test()
