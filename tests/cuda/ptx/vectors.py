#!/usr/bin/env python3
"""What single opcodes give, by Python's integers and fractions: vectors.txt, for test_opcodes.c.

    vectors.py > vectors.txt

A line: opcode, its inputs, =, the result; all are registers' bits in hexadecimal. Results of
approximations stand as a range. It shares no line with the interpreter: a value is computed as a
fraction, and rounded once.
"""
import random
import struct
from fractions import Fraction

random.seed(7)


def bits32(v):
    return struct.unpack("<I", struct.pack("<f", v))[0]


def bits64(v):
    return struct.unpack("<Q", struct.pack("<d", v))[0]


FORMATS = {16: (11, -24, 15, 0x7FFF), 32: (24, -149, 127, 0x7FFFFFFF), 64: (53, -1074, 1023, None)}


def real(bits, width):
    """A Fraction, 'inf', '-inf' or 'nan', and the sign of a zero."""
    digits, least, most, _ = FORMATS[width]
    sign = -1 if bits >> (width - 1) else 1
    exponent = bits >> (digits - 1) & ((1 << (width - digits)) - 1)
    fraction = bits & ((1 << (digits - 1)) - 1)
    if exponent == (1 << (width - digits)) - 1:
        return ("nan" if fraction else "inf"), sign
    if exponent == 0:
        return Fraction(fraction) * Fraction(2) ** least * sign, sign
    return Fraction(fraction + (1 << (digits - 1))) * Fraction(2) ** (exponent - 1 + least) * sign, sign


def rounded(value, width, way="rn", zero_sign=1):
    """The bits of a Fraction, rounded."""
    digits, least, most, _ = FORMATS[width]
    if value == 0:
        return (1 << (width - 1)) if zero_sign < 0 else 0
    sign, size = (-1, -value) if value < 0 else (1, value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    whole, rest = divmod(size, unit)
    up = {"rn": rest * 2 > unit or (rest * 2 == unit and whole % 2), "rz": False,
          "rm": rest > 0 and sign < 0, "rp": rest > 0 and sign > 0}[way]
    size = (whole + (1 if up else 0)) * unit
    top = 1 << (width - 1) if sign < 0 else 0
    if size >= Fraction(2) ** (most + 1):
        infinite = ((1 << (width - digits)) - 1) << (digits - 1)
        stays = way == "rz" or (way == "rm" and sign > 0) or (way == "rp" and sign < 0)
        return top | (infinite - 1 if stays else infinite)
    if size == 0:
        return top
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    if size < Fraction(2) ** (least + digits - 1):
        return top | int(size / Fraction(2) ** least)
    return top | (exponent - (least + digits - 2)) << (digits - 1) | int(size / Fraction(2) ** (exponent - digits + 1)) - (1 << (digits - 1))


def show(name, inputs, result, high=None):
    tail = f"{result:x}" if high is None else f"{result:x}..{high:x}"
    print(name, *(f"{i:x}" for i in inputs), "=", tail)


def signed(v, n):
    v &= (1 << n) - 1
    return v - (1 << n) if v >> (n - 1) else v


def edges(n):
    m = (1 << n) - 1
    return [0, 1, 2, 7, m, m - 1, 1 << (n - 1), (1 << (n - 1)) - 1, 0x5A5A5A5A5A5A5A5A & m, random.getrandbits(n)]


def integers(name, n, sign, f, count=2, out=None, widths=None):
    m = (1 << (out or n)) - 1
    for _ in range(8):
        widths_here = widths or [n] * count
        raw = [random.choice(edges(w)) for w in widths_here]
        args = [signed(v, w) if sign else v for v, w in zip(raw, widths_here)]
        got = f(*args)
        if got is not None:
            show(name, raw, got & m)


def quotient(a, b):
    return None if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return None if b == 0 else a - b * quotient(a, b)


for n in (16, 32, 64):
    for s in "su":
        t = f"{s}{n}"
        g = s == "s"
        integers(f"add.{t}", n, g, lambda a, b: a + b)
        integers(f"mul.lo.{t}", n, g, lambda a, b: a * b)
        for name, f in (("lt", int.__lt__), ("gt", int.__gt__), ("eq", int.__eq__), ("ne", int.__ne__)):
            integers(f"setp.{name}.{t}", n, g, lambda a, b, f=f: int(f(a, b)))
        if n > 16:
            integers(f"sub.{t}", n, g, lambda a, b: a - b)
            integers(f"div.{t}", n, g, quotient)
            integers(f"rem.{t}", n, g, remainder)
            integers(f"max.{t}", n, g, max)
            for name, f in (("le", int.__le__), ("ge", int.__ge__)):
                integers(f"setp.{name}.{t}", n, g, lambda a, b, f=f: int(f(a, b)))
        if t not in ("s16", "u16", "u32"):
            integers(f"min.{t}", n, g, min)
        if n == 32:
            integers(f"mad.lo.{t}", n, g, lambda a, b, c: a * b + c, 3)
        if t in ("u16", "u32", "s32"):
            integers(f"mul.wide.{t}", n, g, lambda a, b: a * b, out=2 * n)
        if t != "s16":
            integers(f"shr.{t}", n, False, lambda a, b, g=g, n=n: (signed(a, n) if g else a) >> min(b, n), widths=[n, 32])
    integers(f"selp.u{n}", n, False, lambda a, b, c: a if c else b, widths=[n, n, 1])
    integers(f"and.b{n}", n, False, lambda a, b: a & b)
    integers(f"or.b{n}", n, False, lambda a, b: a | b)
    integers(f"xor.b{n}", n, False, lambda a, b: a ^ b)
    integers(f"mov.u{n}", n, False, lambda a: a, 1)
    if n > 16:
        integers(f"neg.s{n}", n, True, lambda a: -a, 1)
        integers(f"abs.s{n}", n, True, abs, 1)
        integers(f"not.b{n}", n, False, lambda a: ~a, 1)
        integers(f"shl.b{n}", n, False, lambda a, b, n=n: a << b if b < n else 0, widths=[n, 32])
integers("mul.hi.u32", 32, False, lambda a, b: a * b >> 32)
integers("mad.wide.u32", 32, False, lambda a, b, c: a * b + c, out=64, widths=[32, 32, 64])
integers("cvta.to.global.u64", 64, False, lambda a: a, 1)
for name, f in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
    integers(f"{name}.pred", 1, False, f, widths=[1, 1])
integers("not.pred", 1, False, lambda a: 1 - a, widths=[1])
integers("mov.pred", 1, False, lambda a: a, widths=[1])
integers("popc.b32", 32, False, lambda a: bin(a).count("1"), 1)
integers("clz.b64", 64, False, lambda a: 64 - a.bit_length(), 1)
for n in (32, 64):
    for _ in range(8):
        a, b = random.getrandbits(n), random.getrandbits(n)
        at, count = random.choice([0, 3, 17, n - 1, n]), random.choice([0, 1, 5, 31, n])
        mask = ((1 << count) - 1) << at & (1 << n) - 1
        show(f"bfi.b{n}", [a, b, at, count], (b & ~mask) | (a << at & mask))
for _ in range(8):
    a, b, c = (random.getrandbits(32) for _ in range(3))
    parts = [(b << 32 | a) >> 8 * k & 255 for k in range(8)]
    picks = [c >> 4 * k & 15 for k in range(4)]
    show("prmt.b32", [a, b, c], sum((parts[p & 7] if p < 8 else 255 * (parts[p & 7] >> 7)) << 8 * k
                                    for k, p in enumerate(picks)))
    show("dp4a.s32.s32", [a, b, c], (signed(c, 32) + sum(signed(a >> 8 * k, 8) * signed(b >> 8 * k, 8)
                                                         for k in range(4))) & 0xFFFFFFFF)
# Carries: a pair of instructions each; test_opcodes.c runs the first of the two before.
for _ in range(4):
    a, b, c, d = (random.choice(edges(32)) for _ in range(4))
    carry, borrow = a + b >> 32, int(a < b)
    m = 0xFFFFFFFF
    show("add.cc.u32", [a, b], a + b & m)
    show("sub.cc.u32", [a, b], a - b & m)
    show("add.cc.u32+addc.u32", [a, b, c, d], c + d + carry & m)
    show("add.cc.u32+addc.cc.u32", [a, b, c, d], c + d + carry & m)
    show("sub.cc.u32+subc.u32", [a, b, c, d], c - d - borrow & m)
    show("sub.cc.u32+subc.cc.u32", [a, b, c, d], c - d - borrow & m)
    show("mad.lo.cc.u32", [a, b, c], a * b + c & m)
    for name, f in (("madc.lo.cc", lambda: (c * d & m) + a), ("madc.hi.cc", lambda: (c * d >> 32) + a),
                    ("madc.hi", lambda: (c * d >> 32) + a)):
        show(f"add.cc.u32+{name}.u32", [a, b, c, d, a], f() + carry & m)

# ---- floats ----
F32 = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x40490FDB, 0x7F7FFFFF,
       0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x33800000, 0x4B800001, 0xC2F6E979, 0x3EAAAAAB, 0x4F000000]
F64 = [bits64(v) for v in (0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.0, -1.0, 1 + 2**-52, 3.141592653589793,
                           1.7976931348623157e308, float("inf"), -float("inf"), float("nan"), 2.0**-53,
                           9007199254740993.0, -123.456, 1 / 3, 2.0**31, 2.0**63)]
NAN = {32: 0x7FFFFFFF, 64: None}


def arithmetic(name, op, width, way):
    values = F32 if width == 32 else F64
    for _ in range(16):
        raw = [random.choice(values) for _ in range(3 if op == "fma" else 2)]
        parts = [real(v, width) for v in raw]
        if any(isinstance(p[0], str) for p in parts):
            if any(p[0] == "nan" for p in parts) and width == 32:
                show(name, raw, 0x7FFFFFFF)
            continue
        (a, sa), (b, sb) = parts[:2]
        down = -1 if way == "rm" else 1
        if op == "add":
            v, zero = a + b, sa if sa == sb and a == 0 else down
        elif op == "sub":
            v, zero = a - b, sa if sa != sb and a == 0 else down
        elif op == "mul":
            v, zero = a * b, sa * sb
        elif op == "div":
            if b == 0:
                continue
            v, zero = a / b, sa * sb
        else:
            c, sc = parts[2]
            v, zero = a * b + c, sa * sb if a * b == 0 and c == 0 and sa * sb == sc else down
            if a * b == 0 and c == 0 and sa * sb != sc:
                zero = down
        show(name, raw, rounded(v, width, way, zero))


arithmetic("add.rz.f32", "add", 32, "rz")
arithmetic("fma.rm.f32", "fma", 32, "rm")
for width in (32, 64):
    for op in ("add", "sub", "mul", "fma", "div"):
        arithmetic(f"{op}.rn.f{width}", op, width, "rn")
    values = F32 if width == 32 else F64
    top = 1 << (width - 1)
    for v in values:
        part, sign = real(v, width)
        show(f"neg.f{width}", [v], v ^ top)
        show(f"abs.f{width}", [v], v & ~top)
        w = random.choice(values)
        show(f"copysign.f{width}", [v, w], (v & top) | (w & ~top))
        if not isinstance(part, str) and part > 0:
            show(f"rcp.rn.f{width}", [v], rounded(1 / part, width))
            scale = 2 ** 2200
            from math import isqrt
            root = Fraction(isqrt(int(part * scale * scale)), scale) if part >= Fraction(1, 2 ** 1100) else None
            if root is not None:
                if root * root != part:
                    root += Fraction(1, 2 * scale)
                show(f"sqrt.rn.f{width}", [v], rounded(root, width))
        other, _ = real(w, width)
        lows = [x for x in (part, other)]
        unordered = "nan" in lows
        key = lambda p, s: float("inf") * s if p == "inf" else p
        if unordered:
            less = equal = False
        else:
            x, y = key(part, sign), key(other, real(w, width)[1])
            less, equal = x < y, x == y
        more = not unordered and not less and not equal
        tests = {"lt": less, "le": less or equal, "gt": more, "ge": more or equal, "eq": equal, "ne": less or more}
        for name, yes in tests.items():
            if name != "ne" or width == 64:
                show(f"setp.{name}.f{width}", [v, w], int(yes))
            if name != "eq":
                show(f"setp.{name}u.f{width}", [v, w], int(yes or unordered))
        show(f"setp.nan.f{width}", [v, w], int(unordered))
        show(f"setp.num.f{width}", [v, w], int(not unordered))
        if not unordered and not equal:
            smaller, larger = (v, w) if less else (w, v)
        elif unordered and (part == "nan") != (other == "nan"):
            smaller = larger = w if part == "nan" else v
        else:
            smaller = larger = None
        if smaller is not None:
            show(f"max.f{width}", [v, w], larger)
            if width == 64:
                show("min.f64", [v, w], smaller)
        if part != "nan":
            x = 0 if sign < 0 else 1 if part == "inf" else min(part, 1)
            show(f"cvt.sat.f{width}.f{width}", [v], rounded(Fraction(x), width))
        for way, f in (("rzi", lambda x: int(x)), ("rmi", lambda x: x.__floor__()), ("rpi", lambda x: x.__ceil__()),
                       ("rni", lambda x: round(x))):
            if not isinstance(part, str):
                whole = f(part)
                show(f"cvt.{way}.f{width}.f{width}", [v], rounded(Fraction(whole), width, "rn", sign))
            for n, s in ((32, "s"), (32, "u"), (64, "s"), (64, "u")):
                if way in ("rmi", "rpi") or (way == "rni" and (n, s) != (32, "s")) or (n, width) == (64, 32):
                    continue
                low, high = (-(1 << n - 1), (1 << n - 1) - 1) if s == "s" else (0, (1 << n) - 1)
                if part == "nan":
                    got = 0 if width == 32 else 1 << n - 1
                elif part == "inf":
                    got = high if sign > 0 else low
                else:
                    got = min(max(f(part), low), high)
                show(f"cvt.{way}.{s}{n}.f{width}", [v], got & (1 << n) - 1)

# ---- conversions ----
for d, a in ("s64", "s8"), ("u32", "u16"), ("u64", "u16"), ("u64", "u32"), ("s64", "s32"), ("u16", "u32"), ("u16", "u64"), ("u32", "u64"):
    n = int(a[1:])
    for v in edges(n)[3:8]:
        show(f"cvt.{d}.{a}", [v], (signed(v, n) if a[0] == "s" else v) & (1 << int(d[1:])) - 1)
for a in ("u16", "s16", "u32", "s32", "u64", "s64"):
    n = int(a[1:])
    for v in edges(n)[3:8]:
        value = Fraction(signed(v, n) if a[0] == "s" else v)
        show(f"cvt.rn.f32.{a}", [v], rounded(value, 32))
        show(f"cvt.rn.f64.{a}", [v], rounded(value, 64))
for v in F32:
    part, sign = real(v, 32)
    if not isinstance(part, str):
        show("cvt.f64.f32", [v], rounded(part, 64, "rn", sign))
for v in F64:
    part, sign = real(v, 64)
    if not isinstance(part, str):
        show("cvt.rn.f32.f64", [v], rounded(part, 32, "rn", sign))
for v in (0, 0x8000, 1, 0x8003, 0x03FF, 0x0400, 0x3C00, 0xBC01, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00):
    part, sign = real(v, 16)
    wide = {"nan": NAN[32], "inf": 0x7F800000 | (v & 0x8000) << 16}.get(part) if isinstance(part, str) else rounded(part, 32, "rn", sign)
    show("cvt.f32.f16", [v], wide)
# On both sides of each middle, and of what is rounded to an infinity; bfloat16 is float32's upper half.
HALVES = [0x33000000, 0x33000001, 0xB3C00000, 0x387FC000, 0x387FE000, 0x387FF000, 0x38801000, 0x38803000, 0x38803001, 0x477FEFFF, 0x477FF000,
          0x3F808000, 0x3F808001, 0xBF818000, 0x00008000, 0x00018000, 0x007F8000, 0x7F7F7FFF, 0x7F7F8000]
for v in F32 + HALVES:
    part, sign = real(v, 32)
    if isinstance(part, str):
        small = brain = 0x7FFF
        if part == "inf":
            small, brain = (v >> 16 & 0x8000) | 0x7C00, v >> 16
    else:
        small = rounded(part, 16, "rn", sign)
        low, rest = v >> 16, v & 0xFFFF
        brain = low + (rest > 0x8000 or (rest == 0x8000 and low % 2))
    show("cvt.rn.f16.f32", [v], small)
    show("cvt.rn.bf16.f32", [v], brain)

# ---- approximations: a range, of the error that PTX ISA 9.0 allows ----
import math


def ranged(name, raw, exact, bound, width=32):
    low, high = sorted((exact - abs(exact) * bound, exact + abs(exact) * bound))
    a, b = rounded(low, width, "rm"), rounded(high, width, "rp")
    show(name, raw, min(a, b), max(a, b))


for v in (0.5, -0.75, 3.3, -20.25, 100.125):
    for ftz in ("", ".ftz"):
        ranged(f"ex2.approx{ftz}.f32", [bits32(v)], Fraction(2.0 ** struct.unpack("<f", struct.pack("<f", v))[0]), Fraction(1, 2 ** 22))
for v in (0.3, 1.7, 5.0, 1e20):
    x = Fraction(struct.unpack("<f", struct.pack("<f", v))[0])
    y = Fraction(struct.unpack("<f", struct.pack("<f", 0.7))[0])
    ranged("rsqrt.approx.ftz.f32", [bits32(v)], Fraction(1 / math.sqrt(float(x))), Fraction(1, 2 ** 22))
    ranged("div.approx.ftz.f32", [bits32(v), bits32(0.7)], x / y, Fraction(1, 2 ** 22))
    ranged("rcp.approx.ftz.f32", [bits32(v)], 1 / x, Fraction(1, 2 ** 23))
    ranged("rcp.approx.ftz.f64", [bits64(v)], 1 / Fraction(v), Fraction(1, 2 ** 19), 64)
    ranged("rsqrt.approx.ftz.f64", [bits64(v)], Fraction(1 / math.sqrt(v)), Fraction(1, 2 ** 19), 64)
show("ex2.approx.ftz.f32", [0], 0x3F800000)
show("rcp.approx.ftz.f32", [0x00000001], 0x7F800000)
