"""Writes tests/exec/ort_checkpoint.bin: a checkpoint as ONNX Runtime's training writes them, small.

    python3 tests/exec/ort_checkpoint.py        (needs flatbuffers and numpy; the tests need only the file)

Two trained parameters and one frozen, of different data types; an optimizer after seven steps with two
moments for one parameter; and properties, which a reader of weights passes over.
"""
import pathlib

import flatbuffers
import numpy as np

b = flatbuffers.Builder(0)


def vector(offsets):
    b.StartVector(4, len(offsets), 4)
    for o in reversed(offsets):
        b.PrependUOffsetTRelative(o)
    return b.EndVector()


def table(count, fields):
    b.StartObject(count)
    for slot, (kind, value) in fields.items():
        getattr(b, f"Prepend{kind}Slot")(slot, value, 0)
    return b.EndObject()


def reference(value):
    return ("UOffsetTRelative", value)


def tensor(name, data_type, array):
    text = b.CreateString(name)
    raw = b.CreateByteVector(array.tobytes())
    dims = b.CreateNumpyVector(np.array(array.shape, np.int64))
    return table(7, {0: reference(text), 2: reference(dims), 3: ("Int32", data_type), 4: reference(raw)})


FLOAT, INT64, DOUBLE = 1, 7, 11
trained = [tensor("fc.weight", FLOAT, np.arange(6, dtype=np.float32).reshape(2, 3)),
           tensor("fc.bias", DOUBLE, np.array([0.5, -0.25]))]
frozen = [tensor("steps_seen", INT64, np.array(41, np.int64))]
module = table(4, {0: reference(vector(trained)), 1: reference(vector(frozen))})
moments = [tensor("momentum0", FLOAT, np.full((2, 3), 0.125, np.float32)),
           tensor("momentum1", FLOAT, np.full((2, 3), 0.0625, np.float32))]
state = table(2, {0: reference(b.CreateString("fc.weight")), 1: reference(vector(moments))})
group = table(4, {0: reference(b.CreateString("group0")), 1: ("Int64", 7), 2: ("Float32", 0.01),
                  3: reference(vector([state]))})
note = table(2, {0: reference(b.CreateString("epoch")), 1: ("Int64", 3)})
bag = table(3, {0: reference(vector([note]))})
root = table(4, {0: ("Int32", 2), 1: reference(module), 2: reference(vector([group])), 3: reference(bag)})
b.Finish(root, file_identifier=b"ODTC")
pathlib.Path(__file__).with_suffix(".bin").write_bytes(bytes(b.Output()))
