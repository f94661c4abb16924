"""ebb.h, read: its constants, structs and functions as ctypes has them.

The header is plain: one statement a declaration, no macros in types. What is not understood is an error here and
not a wrong call later; tests/python compares every struct with the recorded binary interface.
"""
import ctypes
import re
from pathlib import Path

SCALARS = {
    "void": None, "char": ctypes.c_char, "bool": ctypes.c_bool, "int": ctypes.c_int, "unsigned": ctypes.c_uint,
    "double": ctypes.c_double, "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "ebb_status": ctypes.c_void_p,
}


def path():
    here = Path(__file__).resolve().parent
    for place in (here / "ebb.h", here.parent.parent / "include" / "ebb.h"):
        if place.is_file():
            return place
    raise ImportError("ebb.h is neither in the package nor in include/ beside it")


def _statements(text):
    """What stands between semicolons that are in no braces; a function's body is dropped."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        ends = letter == ";" or (letter == "}" and text[begin:at].lstrip().startswith("static inline"))
        if depth == 0 and ends:
            yield text[begin:at + (letter == "}")].strip()
            begin = at + 1


def _split(text):
    """By commas that are in no parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


class Header:
    def __init__(self, text):
        self.constants, self.structs, self.functions, self.enums = {}, {}, {}, set()
        number = re.search(r"#define EBB_VERSION_NUMBER (\d+)", text)
        self.version_number = int(number.group(1))
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
        text = text.replace('extern "C" {', "")
        for statement in _statements(text):
            self._read(" ".join(statement.split()))

    def _read(self, statement):
        enum = re.fullmatch(r"typedef enum \w+ { (.*) } (\w+)", statement)
        struct = re.fullmatch(r"typedef struct (\w+) { (.*) } \w+", statement)
        if enum:
            self.enums.add(enum.group(2))
            value = -1
            for entry in _split(enum.group(1)):
                name, _, given = entry.partition("=")
                value = int(given) if given else value + 1
                self.constants[name.strip()] = value
        elif struct:
            fields = [field for line in struct.group(2).split(";") for field in self._fields(line.strip())]
            made = type(struct.group(1), (ctypes.Structure,), {"_fields_": fields})
            self.structs[struct.group(1)] = made
        elif statement.startswith("EBB_API"):
            function = re.fullmatch(r"EBB_API (.*?[ *])(\w+)\((.*)\)", statement)
            arguments = [] if function.group(3) == "void" else _split(function.group(3))
            self.functions[function.group(2)] = (
                self._type(function.group(1)), [self._argument(a) for a in arguments])
        elif not re.match(r"typedef (const )?struct|static inline", statement):
            raise ImportError(f"ebb.h has a line that the binding does not know: {statement}")

    def _type(self, text):
        """In a struct and of a function: texts and lists of texts are such, all other pointers are addresses."""
        stars = text.count("*")
        name = re.sub(r"\b(const|struct)\b|\*", " ", text).strip()
        if name == "char" and stars == 1 and "const" in text:
            return ctypes.c_char_p
        if name == "char" and stars == 2 and text.count("const") == 2:
            return ctypes.POINTER(ctypes.c_char_p)
        if stars:
            return ctypes.c_void_p
        if name in self.enums:
            return ctypes.c_int
        return self.structs[name] if name in self.structs else SCALARS[name]

    def _argument(self, text):
        """name and type"""
        call = re.fullmatch(r"(.*)\(\*(\w+)\)\((.*)\)", text)
        if call:
            return call.group(2), self._callback(call.group(1), call.group(3))
        name = re.search(r"(\w+)$", text).group(1)
        return name, self._type(text[:-len(name)])

    def _callback(self, result, arguments):
        return ctypes.CFUNCTYPE(self._type(result), *(self._argument(a)[1] for a in _split(arguments)))

    def _fields(self, line):
        """Of "const char *a, *b"."""
        if not line:
            return []
        if "(*" in line:
            return [self._argument(line)]
        first, *others = _split(line)
        base = re.match(r"((?:const |struct )*\w+)", first).group(1)
        return [self._argument(part) for part in [first] + [f"{base} {other}" for other in others]]
