"""ebb: train exported ONNX models in less memory. Five verbs and a loop; ebb.h is the manual.

    model = ebb.open("model.onnx", batch=32)
    model.rewrite(loss="cross-entropy", passes=["sign-mask"])
    model.save("step.onnx")
    program = model.compile()
    program.step(image=x, target=y)

Keywords are the fields of the structs of ebb.h: of ebb_step_options for rewrite, ebb_compile_options for compile,
ebb_trainer_options for Trainer, ebb_plan_options for plan. An unknown one names those that there are. A call that
does not succeed raises Error, with the sentence of the library.
"""
import ctypes
from ctypes import byref, c_size_t, c_void_p
import json
import os
from types import SimpleNamespace
import weakref

from .arrays import Batch, Named, dims_of, listed, view
from .library import Error, check, header, lib, options, texts

__all__ = ["Error", "Model", "Program", "Trainer", "open", "version"]


def version():
    return lib.ebb_version().decode()


def _text(address):
    """A text that the library made, and what it was read into is given back."""
    try:
        return ctypes.string_at(address).decode()
    finally:
        lib.ebb_release(address)


def _facts(struct):
    """Numbers and texts of a struct, as a namespace."""
    plain = (int, float, bool, bytes, type(None))
    fields = {name: getattr(struct, name) for name, kind in struct._fields_ if kind is not c_void_p}
    return SimpleNamespace(**{name: value.decode() if isinstance(value, bytes) else value
                              for name, value in fields.items() if isinstance(value, plain) and name != "size"})


class _Owned:
    """What lib made, and `free` takes back with the last reference: nothing that is still read is ever freed."""

    def _own(self, pointer, free):
        self.pointer = pointer
        weakref.finalize(self, free, pointer)


class Model(_Owned):
    """A model, or the training step that it has become. What reads it (programs, arrays) keeps it."""

    def __init__(self, source, folder=None, **dims):
        pointer = c_void_p()
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._bytes = bytes(source)  # of bytes this is no copy
            folder = os.fsencode(folder) if folder is not None else None
            check(lib.ebb_open_memory(byref(pointer), self._bytes, len(self._bytes), folder))
        else:
            check(lib.ebb_open(byref(pointer), os.fsencode(source)))
        self._own(pointer, lib.ebb_close)
        for name, size in dims.items():
            check(lib.ebb_set_dim(self.pointer, name.encode(), size))

    def rewrite(self, pipeline=None, **step):
        """Runs a pipeline, by default that of a training step; gives the report of its passes."""
        report, text = c_void_p(), c_void_p()
        if pipeline is None:
            check(lib.ebb_step_pipeline(byref(text), byref(options("ebb_step_options", step))))
            pipeline = _text(text.value)
        elif step:
            raise TypeError("a pipeline says all: no options beside it")
        check(lib.ebb_rewrite(self.pointer, pipeline.encode(), None, byref(report)))
        return json.loads(_text(report.value))

    def save(self, path):
        check(lib.ebb_save(self.pointer, os.fsencode(path)))

    def compile(self, **how):
        return Program(self, how)

    def plan(self, **how):
        """Bytes at the peak, of the arena and so on: the fields of ebb_plan_facts."""
        facts = c_void_p()
        check(lib.ebb_plan_facts_of(byref(facts), self.pointer, byref(options("ebb_plan_options", how))))
        try:
            return _facts(header.structs["ebb_plan_facts"].from_address(facts.value))
        finally:
            lib.ebb_release(facts)

    def facts(self):
        """inputs and outputs as {name: (dtype, dims)}, and the other fields of ebb_model_facts."""
        address = c_void_p()
        check(lib.ebb_facts_of(byref(address), self.pointer))
        try:
            raw = header.structs["ebb_model_facts"].from_address(address.value)
            facts = _facts(raw)
            for side, count in (("inputs", raw.input_count), ("outputs", raw.output_count)):
                list_ = (Named * count).from_address(getattr(raw, side)) if count else []
                setattr(facts, side, {n.name.decode(): (lib.ebb_dtype_text(n.dtype).decode(), dims_of(n))
                                      for n in list_})
            return facts
        finally:
            lib.ebb_release(address)


def open(source, folder=None, **dims):
    """A model from its file, or from bytes: folder is then where its external data lie. dims: sizes, batch=32."""
    return Model(source, folder, **dims)


class Program(_Owned):
    """A model that runs. program["name"]: an output or a weight, where it lies: it changes with the next step."""

    def __init__(self, model, how):
        self.model = model
        pointer = c_void_p()
        check(lib.ebb_program_compile(byref(pointer), model.pointer, byref(options("ebb_compile_options", how))))
        self._own(pointer, lib.ebb_program_free)
        names = (lib.ebb_program_output_name(pointer, i) for i in range(lib.ebb_program_output_count(pointer)))
        self.outputs = [name.decode() for name in names]

    def step(self, inputs=None, **more):
        """One walk over the program with {name: array}, or with keywords. Gives the outputs, as program[name]."""
        arrays, kept = listed({**(inputs or {}), **more})
        check(lib.ebb_program_step(self.pointer, byref(Batch(ctypes.addressof(arrays), len(arrays)))))
        del kept
        return {name: self[name] for name in self.outputs}

    def __getitem__(self, name):
        named = Named()
        check(lib.ebb_program_get(self.pointer, name.encode(), byref(named)))
        return view(named, self)

    def __setitem__(self, name, array):
        arrays, kept = listed({name: array})
        check(lib.ebb_program_set(self.pointer, byref(arrays[0])))
        del kept

    def facts(self):
        """Bytes and times, as they were measured: the fields of ebb_program_facts."""
        facts = header.structs["ebb_program_facts"]()
        lib.ebb_program_measure_to(self.pointer, byref(facts), ctypes.sizeof(facts))
        return _facts(facts)

    def store(self, target=None):
        """Trained values into a model, by default the program's own; then target.save()."""
        check(lib.ebb_program_store(self.pointer, (target or self.model).pointer))


class _Data(_Owned):
    """Arrays by name, or a path to them, as rows that the inputs of a model take."""

    def __init__(self, source, model, map, how):
        pointer, self._kept = c_void_p(), None
        how = options("ebb_data_options", {**how, "model": model.pointer.value})
        if isinstance(source, dict):
            self._kept = listed(source)
            check(lib.ebb_data_of(byref(pointer), self._kept[0], len(source), byref(how)))
        else:
            paths = [source] if isinstance(source, (str, os.PathLike)) else source
            check(lib.ebb_data_open_files(byref(pointer), texts([os.fspath(path) for path in paths]), byref(how)))
        self._own(pointer, lib.ebb_data_close)
        pairs = [word for pair in map.items() for word in pair] if map else None
        check(lib.ebb_data_bind(pointer, model.pointer, texts(pairs) if pairs else None))

    def rows(self, model):
        for i in range(lib.ebb_data_count(self.pointer)):
            named = Named.from_address(lib.ebb_data_at(self.pointer, i))
            if named.rank > 0:
                return dims_of(named)[0]
        return 0


class Trainer(_Owned):
    """The loop of `ebb train`. data: {name: array} or files; map: {array: input}, where names differ;
    tell(trainer, event) is called with "step", "epoch", "evaluated" and "saved"; data_options: as ebb_data_options.
    """

    def __init__(self, program, data, map=None, tell=None, data_options=None, **how):
        self.program, self._raised = program, None
        self._data = _Data(data, program.model, map, data_options or {})
        events = {value: name[len("EBB_TRAINER_"):].lower() for name, value in header.constants.items()
                  if name.startswith("EBB_TRAINER_")}
        me = weakref.ref(self)

        def told(_context, _trainer, event):
            trainer = me()
            try:
                if tell is not None:
                    tell(trainer, events[event])
            except BaseException as raised:  # also Ctrl-C: it cannot pass through C, and is raised by run()
                trainer._raised = raised
                trainer.stop()

        kind = dict(header.structs["ebb_trainer_options"]._fields_)["tell"]
        self._told = kind(told)
        how.setdefault("row_count", self._data.rows(program.model))
        self._options = options("ebb_trainer_options", {**how, "tell": self._told})
        pointer = c_void_p()
        check(lib.ebb_trainer_new(byref(pointer), program.pointer, self._data.pointer, byref(self._options)))
        self._own(pointer, lib.ebb_trainer_free)

    def run(self):
        """Until the last step, or until it is stopped; what `tell` raised is raised here. Gives the facts."""
        status = lib.ebb_trainer_run(self.pointer)
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        check(status)
        return self.facts()

    def stop(self):
        """It ends after the step that is being computed."""
        lib.ebb_trainer_stop(self.pointer)

    def facts(self):
        """Steps, losses and times: the fields of ebb_trainer_facts."""
        facts = header.structs["ebb_trainer_facts"]()
        lib.ebb_trainer_measure_to(self.pointer, byref(facts), ctypes.sizeof(facts))
        return _facts(facts)
