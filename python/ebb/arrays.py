"""numpy arrays and the named arrays of ebb.h, neither of which is copied."""
import ctypes

import numpy

from .library import header, lib

# numpy has no floats of 16 bits with the exponent of float32, none of 8, and no integers of 4 and 2: such arrays
# are read as the bytes that they are.
_NUMPY = {
    "F32": "float32", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "I32": "int32", "I64": "int64",
    "BOOL": "bool", "F16": "float16", "F64": "float64", "U32": "uint32", "U64": "uint64", "C64": "complex64",
    "C128": "complex128", "BF16": "uint16", "F8E4M3FN": "uint8", "F8E4M3FNUZ": "uint8", "F8E5M2": "uint8",
    "F8E5M2FNUZ": "uint8", "F8E8M0": "uint8",
}
_TO_NUMPY = {header.constants["EBB_" + name]: numpy.dtype(dtype) for name, dtype in _NUMPY.items()}
_FROM_NUMPY = {}
for _number, _dtype in _TO_NUMPY.items():
    _FROM_NUMPY.setdefault(_dtype, _number)
Named = header.structs["ebb_named"]
Batch = header.structs["ebb_batch"]


def dims_of(named):
    return tuple((ctypes.c_int64 * max(named.rank, 0)).from_address(named.dims)) if named.rank > 0 else ()


def view(named, owner):
    """The array where it lies. `owner` lives as long."""
    if named.dtype not in _TO_NUMPY:
        raise TypeError(f"'{named.name.decode()}' is {lib.ebb_dtype_text(named.dtype).decode()}, which numpy has not")
    dtype, shape = _TO_NUMPY[named.dtype], dims_of(named)
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return numpy.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(named.data)
    memory.owner = owner
    return numpy.frombuffer(memory, dtype).reshape(shape)


def listed(arrays):
    """An ebb_named[] of {name: array}, with what it points to. Arrays that are in C's order are not copied."""
    kept, rows = [], (Named * len(arrays))()
    for row, (name, array) in zip(rows, arrays.items()):
        array = numpy.asarray(array, order="C")
        if array.dtype not in _FROM_NUMPY:
            raise TypeError(f"'{name}' is of {array.dtype}, which no model takes")
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        row.name, row.dtype, row.rank = name.encode(), _FROM_NUMPY[array.dtype], array.ndim
        row.dims, row.data = ctypes.addressof(dims), array.ctypes.data
        kept += [array, dims]
    return rows, kept
