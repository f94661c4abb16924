"""libebb, found and made callable as ebb.h says."""
import ctypes
import ctypes.util
import os
from pathlib import Path

from .header import Header, path

header = Header(path().read_text())


class Error(Exception):
    """A call that did not succeed: the sentence of libebb, and `code`, as "EBB_REJECTED"."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


def _find():
    built = Path(__file__).resolve().parents[2] / "build" / "release" / "libebb.so"
    named = os.environ.get("EBB_LIBRARY")
    for place in [named] if named else [built if built.exists() else None, "libebb.so.0", ctypes.util.find_library("ebb")]:
        try:
            if place:
                return ctypes.CDLL(str(place))
        except OSError as error:
            reason = error
    raise ImportError(f"libebb is not found: install it, or name it in EBB_LIBRARY ({reason})")


lib = _find()
for _name, (_result, _arguments) in header.functions.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, [kind for _, kind in _arguments]
if lib.ebb_version_number() // 100 != header.version_number // 100:
    raise ImportError(f"libebb is {lib.ebb_version().decode()}, and this package is of another version")

_codes = {value: name for name, value in header.constants.items()
          if name in ("EBB_RUNTIME", "EBB_USAGE", "EBB_NO_PLAN", "EBB_VERIFY", "EBB_UNSUPPORTED", "EBB_REJECTED",
                      "EBB_DEVICE", "EBB_IO")}


def check(status):
    """Raises what a status says."""
    if status:
        raise Error(lib.ebb_status_text(status).decode(errors="replace"), _codes.get(lib.ebb_status_code(status)))


def texts(words):
    """A NULL-terminated list."""
    return (ctypes.c_char_p * (len(words) + 1))(*(str(word).encode() for word in words), None)


def options(kind, given):
    """A struct of ebb.h from keywords. What its pointers lead to lives as long as it does."""
    struct = header.structs[kind]()
    struct.size = ctypes.sizeof(struct)
    fields = dict(struct._fields_)
    for name, value in given.items():
        if name not in fields or name == "size":
            known = ", ".join(sorted(set(fields) - {"size", "context"}))
            raise TypeError(f"'{name}' is no option of {kind}: {known}")
        if value is None:
            continue
        if fields[name] is ctypes.c_char_p:
            value = os.fspath(value).encode()
        elif fields[name] is ctypes.POINTER(ctypes.c_char_p):
            words = [value] if isinstance(value, str) else list(value)
            value = ctypes.cast(texts(words), fields[name])
        setattr(struct, name, value)  # ctypes keeps what is assigned
    return struct
