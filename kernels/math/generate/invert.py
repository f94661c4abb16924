"""Fits the derivative of GELU, SiLU and Mish as a function of the output, and writes what was found.

    python3 kernels/math/generate/invert.py

writes kernels/math/invert_fit.h (for the kernels), onnx/tables/bodies_invert.def (the same numbers in standard
operators) and docs/invert.md (the errors). Plain Python, no packages; some ten seconds.

Each of these functions falls to its minimum y0 at x0 and rises from there, so y and the bit x > x0 tell
x. Near the minimum x - x0 goes like r = sqrt(y - y0), and so does the derivative d: in r it is smooth.

    left     x <= x0     d = s q P(2 v - 1)      s = y / y0, q = sqrt(1 - s), v = (1 - q)^(1/4)
    middle   r <  r1     d = r P(2 r / r1 - 1)
    far      r <  r2     d = P of r, likewise scaled from r1..r2 to -1..1
    beyond               d = 1

s makes the left tail end in 0 with y, q and r make d vanish at the minimum. On the left x grows like a
logarithm of y where y nears 0, which no polynomial in q follows; in v, where s is about 2 v^4, what is left
of it is small. Each P is the best polynomial of its degree (Remez' exchange on a grid), its coefficients
rounded to float.
"""
import math
import pathlib
import struct

root = pathlib.Path(__file__).resolve().parents[3]
DEGREE = 9
KNOTS = 1500  # of the grid of a fit


# ---- the functions: f(x) and f'(x) in double, without cancellation in the tails ----

def sigmoid(u):
    return 1 / (1 + math.exp(-u)) if u > 0 else math.exp(u) / (1 + math.exp(u))


def cdf(x):
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


def gelu(x):
    return x * cdf(x), cdf(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x):
    k = 2 * math.sqrt(2 / math.pi)
    u = k * (x + 0.044715 * x ** 3)
    s = sigmoid(u)
    return x * s, s + x * s * sigmoid(-u) * k * (1 + 0.134145 * x * x)


def silu(x):
    s = sigmoid(x)
    return x * s, s + x * s * sigmoid(-x)


def mish(x):
    # tanh(log(1 + e)) = n / (n + 2) with e = exp(x), n = e (e + 2)
    e = math.exp(min(x, 20))
    n = e * (e + 2)
    return x * n / (n + 2), n / (n + 2) + min(x, 20) * 4 * e * (e + 1) / (n + 2) ** 2


# name: the function, below which x everything is the tail's last float, from where on d counts as 1
FUNCTIONS = {
    "gelu": (gelu, -13.0, 5.45, "GELU (erf)"),
    "gelu_tanh": (gelu_tanh, -7.5, 5.05, "GELU (tanh)"),
    "silu": (silu, -90.0, 16.5, "SiLU; quick-GELU with y times alpha"),
    "mish": (mish, -90.0, 9.0, "Mish"),
}


# ---- the best polynomial ----

def solve(a, b):
    n = len(b)
    a = [row[:] + [b[i]] for i, row in enumerate(a)]
    for k in range(n):
        p = max(range(k, n), key=lambda i: abs(a[i][k]))
        a[k], a[p] = a[p], a[k]
        for i in range(k + 1, n):
            f = a[i][k] / a[k][k]
            for j in range(k, n + 1):
                a[i][j] -= f * a[k][j]
    x = [0.0] * n
    for k in reversed(range(n)):
        x[k] = (a[k][n] - sum(a[k][j] * x[j] for j in range(k + 1, n))) / a[k][k]
    return x


def chebyshev(t, n):
    row = [1.0, t]
    while len(row) <= n:
        row.append(2 * t * row[-1] - row[-2])
    return row[:n + 1]


def alternating(e, count):
    """Where |e| is largest in each run of one sign; `count` of them, the largest that still alternate."""
    peaks = []
    for i, x in enumerate(e):
        if peaks and (e[peaks[-1]] > 0) == (x > 0):
            if abs(x) > abs(e[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        if len(peaks) == count + 1:
            peaks.pop(0 if abs(e[peaks[0]]) < abs(e[peaks[-1]]) else -1)
        else:
            i = min(range(len(peaks) - 1), key=lambda i: max(abs(e[peaks[i]]), abs(e[peaks[i + 1]])))
            del peaks[i:i + 2]
    return peaks


def remez(points, n):
    """points: (t, value, weight) with t in -1..1. Coefficients of t^0 .. t^n, and the largest weighed error."""
    points = sorted(points)
    basis = [chebyshev(t, n) for t, _, _ in points]
    wanted = [-math.cos(math.pi * i / (n + 1)) for i in range(n + 2)]
    at, chosen = 0, []
    for w in wanted:
        while at < len(points) - 1 and points[at][0] < w:
            at += 1
        chosen.append(at)
        at = min(at + 1, len(points) - 1)
    best = (math.inf, None)
    for _ in range(60):
        system = [basis[i] + [(-1) ** k / points[i][2]] for k, i in enumerate(chosen)]
        c = solve(system, [points[i][1] for i in chosen])
        e = [(v - sum(x * y for x, y in zip(c, b))) * w for (t, v, w), b in zip(points, basis)]
        worst = max(map(abs, e))
        best = min(best, (worst, c[:-1]))
        if worst <= abs(c[-1]) * 1.001:
            break
        chosen = alternating(e, n + 2)
        if len(chosen) < n + 2:
            break
    monomial, before, now = [0.0] * (n + 1), [1.0] + [0.0] * n, [0.0, 1.0] + [0.0] * (n - 1)
    for c in best[1]:  # T(k+1) = 2 t T(k) - T(k-1)
        monomial = [m + c * b for m, b in zip(monomial, before)]
        before, now = now, [2 * x - y for x, y in zip([0.0] + now[:-1], before)]
    return monomial, best[0]


# ---- a fit ----

def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def minimum(f):
    low, high = -2.0, -0.5
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle)[1] < 0 else (low, middle)
    return low, f(low)[0]


def spaced(a, b, n, power=1.5):
    return [a + (b - a) * (i / n) ** power for i in range(1, n + 1)]


def fit(f, lowest, highest):
    x0, y0 = minimum(f)
    r = lambda y: math.sqrt(max(y - y0, 0))
    left = []
    for x in spaced(x0, -8, KNOTS) + spaced(-8, lowest, KNOTS // 3, 1):
        y, d = f(x)
        s = min(y / y0, 1)
        q = math.sqrt(max(1 - s, 0))
        if s * q > 1e-8:  # less than that cannot show
            left.append((2 * (s / (1 + q)) ** 0.25 - 1, d / (s * q), s * q))
    right = [(r(y), d) for y, d in map(f, spaced(x0, highest, 2 * KNOTS))]
    r2 = right[-1][0]
    best = None
    for share in (0.5, 0.52, 0.54, 0.56, 0.58, 0.6, 0.62):
        r1 = single(share * r2)
        middle = remez([(2 * x / r1 - 1, d / x, x) for x, d in right if x <= r1], DEGREE)
        far = remez([((2 * x - r1 - r2) / (r2 - r1), d, 1.0) for x, d in right if x >= r1], DEGREE)
        if best is None or max(middle[1], far[1]) < best[0]:
            best = (max(middle[1], far[1]), r1, middle, far)
    _, r1, middle, far = best
    return {"x0": x0, "y0": y0, "r1": r1, "r2": single(r2), "end": 1 - f(highest)[1],
            "pieces": [remez(left, DEGREE), middle, far],
            "scale": [2.0, 2 / r1, 2 / (r2 - r1)], "shift": [-1.0, -1.0, -(r1 + r2) / (r2 - r1)]}


# ---- measured again: in double, and as the kernel has it, with every step rounded to float ----

def evaluate(k, y, right, rnd):
    high = rnd(k["y0"])
    t = rnd(rnd(y - high) - rnd(k["y0"] - high))
    r = rnd(math.sqrt(max(t, 0.0)))
    s = min(max(rnd(y * rnd(1 / k["y0"])), 0.0), 1.0)
    q = rnd(r * rnd(1 / math.sqrt(-k["y0"])))
    v = rnd(math.sqrt(rnd(math.sqrt(max(rnd(1 - q), 0.0)))))
    piece = 0 if not right else 1 if r < k["r1"] else 2
    u = rnd(rnd(rnd(k["scale"][piece]) * (v if piece == 0 else r)) + rnd(k["shift"][piece]))
    p = 0.0
    for c in reversed(k["pieces"][piece][0]):
        p = rnd(rnd(p * u) + single(c))
    if right and r >= k["r2"]:
        return 1.0
    return rnd(p * (rnd(s * q), r, 1.0)[piece])


def shortened(bits):
    """Rounding of a float to `bits` bits of fraction, to nearest and ties to even."""
    def rounded(y):
        n = struct.unpack("I", struct.pack("f", y))[0]
        drop = 23 - bits
        n = (n + (1 << (drop - 1)) - 1 + (n >> drop & 1)) >> drop << drop
        return struct.unpack("f", struct.pack("I", n))[0]
    return rounded


def errors(k, f, lowest, highest, store, rnd):
    worst = [0.0, 0.0]
    for x in spaced(k["x0"], lowest, 20000, 2) + spaced(k["x0"], highest + 2, 20000, 2) + [k["x0"]]:
        y, d = f(x)
        side = x > k["x0"]
        worst[side] = max(worst[side], abs(evaluate(k, store(y), side, rnd) - d))
    return worst


# ---- writing ----

def number(x):
    return repr(single(x))


def c_float(x):
    text = "%.9g" % single(x)
    return text + ("" if "." in text or "e" in text else ".0")


def header(fits):
    yield """/* invert_fit.h: written by kernels/math/generate/invert.py, which says what the numbers are;
 * docs/invert.md has their errors. Rows of `c`: the coefficients of u^0, u^1, ...; columns: left,
 * middle, far. */
#pragma once

// clang-format off
enum { EBB_INVERT_DEGREE = %d };

typedef struct ebb_invert_fit {
    double x0, y0;             /* the minimum */
    float r1, r2;              /* where far begins and ends, in r = sqrt(y - y0) */
    float scale[3], shift[3];  /* u = scale v + shift, and scale r + shift */
    float c[EBB_INVERT_DEGREE + 1][3];
} ebb_invert_fit;
""" % DEGREE
    for name, k in fits.items():
        yield f"static const ebb_invert_fit ebb_invert_{name} = {{"
        yield f"    .x0 = {k['x0']!r}, .y0 = {k['y0']!r},"
        yield f"    .r1 = {c_float(k['r1'])}f, .r2 = {c_float(k['r2'])}f,"
        for row in ("scale", "shift"):
            yield f"    .{row} = {{{', '.join(c_float(x) + 'f' for x in k[row])}}},"
        yield "    .c = {"
        for i in range(DEGREE + 1):
            yield "        {" + ", ".join(c_float(p[0][i]) + "f" for p in k["pieces"]) + "},"
        yield "    },\n};\n"
    yield "// clang-format on"


OPERATORS = {"gelu": "GELU", "gelu_tanh": "FAST_GELU", "silu": "QUICK_GELU", "mish": "MISH"}


def body(name, k):
    scaled = name == "silu"
    yield (f'EBB_BODY( {OPERATORS[name]}_GRAD_FROM_OUTPUT, '
           f'"{"<alpha: float = 1.702> " if scaled else ""}(dY, Y, bits) => (dX)",')
    yield "    SCALED_Y" if scaled else '    "y = Identity (Y)\\n"'
    yield f'    PIECE(INVERT_SIDES) DOUBLE("high", "{k["y0"]!r}") PIECE(INVERT_ROOT)'
    yield f'    DOUBLE("per_y0", "{1 / k["y0"]!r}") DOUBLE("per_root", "{1 / math.sqrt(-k["y0"])!r}")'
    yield f'    PIECE(INVERT_LEFT) FLOAT("r1", "{c_float(k["r1"])}") FLOAT("r2", "{c_float(k["r2"])}") PIECE(INVERT_PIECE)'
    for row in ("scale", "shift"):
        yield f'    COLUMN("{row}", "{", ".join(map(c_float, k[row]))}")'
    yield "    INVERT_ALONG"
    last = ""
    for i in reversed(range(DEGREE + 1)):
        row = ", ".join(c_float(p[0][i]) for p in k["pieces"])
        yield f'    TERM("{i}", "{last}", "{row}")' if last else f'    COLUMN("c{i}", "{row}")'
        last = f"p{i}" if last else f"c{i}"
    yield "    PIECE(INVERT_END) )\n"


def bodies(fits):
    yield r"""/* bodies_invert.def: written by kernels/math/generate/invert.py, which says what is computed. Included by
 * bodies_bits.def.
 *
 * GeluGradFromOutput(dY, Y, bits), FastGeluGradFromOutput, QuickGeluGradFromOutput {alpha},
 * MishGradFromOutput -> dX
 * dX = dY f'(x) for Y = f(x), where bit i of bits (as PackSign makes them) says whether x_i lies right of
 * the minimum of f. An approximation: docs/invert.md has its errors. */
// clang-format off

/* Of Y's type: a number, and of the three of a column the one of x's piece; a further term of the polynomial. */
#define OF_TYPE(y, value) CONSTANT(y "_w", "value = " value) y " = CastLike (" y "_w, Y)\n"
#define DOUBLE(y, n) OF_TYPE(y, "double {" n "}")
#define FLOAT(y, n) OF_TYPE(y, "float {" n "}")
#define COLUMN(y, row) CONSTANT(y "_w", "value = float[3] {" row "}") \
    y "_t = CastLike (" y "_w, Y)\n" y " = Gather (" y "_t, piece)\n"
#define TERM(i, sum, row) COLUMN("c" i, row) "m" i " = Mul (" sum ", u)\np" i " = Add (m" i ", c" i ")\n"

#define SCALED_Y \
    "alpha_w = Constant <value_float: float = @alpha> ()\n" \
    "alpha = CastLike (alpha_w, Y)\n" \
    "y = Mul (Y, alpha)\n"

EBB_PIECE( INVERT_SIDES,
    INTS("b_unit", "1")
    "b_count = Size (Y)\n"
    "b_end = Reshape (b_count, b_unit)\n"
    DIGITS_OF("bits", "b_end", "digits")
    "shape = Shape (Y)\n"
    "digit = Reshape (digits, shape)\n"
    "right = Cast <to = 9> (digit)\n"
    DOUBLE("zero", "0") DOUBLE("one", "1") )

EBB_PIECE( INVERT_ROOT,
    "high_back = Cast <to = 11> (high)\n"
    "low_w = Sub (high_w, high_back)\n"
    "low = CastLike (low_w, Y)\n"
    "t_high = Sub (y, high)\n"
    "t_low = Sub (t_high, low)\n"
    "t_under = Less (t_low, zero)\n"
    "t = Where (t_under, zero, t_low)\n"
    "r = Sqrt (t)\n" )

EBB_PIECE( INVERT_LEFT,
    "s_raw = Mul (y, per_y0)\n"
    "s_under = Less (s_raw, zero)\n"
    "s_pos = Where (s_under, zero, s_raw)\n"
    "s_over = Greater (s_pos, one)\n"
    "s = Where (s_over, one, s_pos)\n"
    "q = Mul (r, per_root)\n"
    "w_raw = Sub (one, q)\n"
    "w_under = Less (w_raw, zero)\n"
    "w = Where (w_under, zero, w_raw)\n"
    "w_root = Sqrt (w)\n"
    "v = Sqrt (w_root)\n"
    "along = Where (right, r, v)\n" )

EBB_PIECE( INVERT_PIECE,
    "is_far = GreaterOrEqual (r, r1)\n"
    INT("number_0", "0") INT("number_1", "1") INT("number_2", "2")
    "side = Where (is_far, number_2, number_1)\n"
    "piece = Where (right, side, number_0)\n" )

#define INVERT_ALONG \
    "scaled = Mul (along, scale)\n" \
    "u = Add (scaled, shift)\n"

EBB_PIECE( INVERT_END,
    "sq = Mul (s, q)\n"
    "near = Where (is_far, one, r)\n"
    "factor = Where (right, near, sq)\n"
    "inner = Mul (p0, factor)\n"
    "over = GreaterOrEqual (r, r2)\n"
    "beyond = And (right, over)\n"
    "slope = Where (beyond, one, inner)\n"
    "dX = Mul (dY, slope)\n" )
"""
    for name, k in fits.items():
        yield from body(name, k)
    yield "// clang-format on"


def report(fits):
    yield """# The derivative from the output

Written by `kernels/math/generate/invert.py`, which also says how it is done. `GeluGradFromOutput`,
`FastGeluGradFromOutput`, `QuickGeluGradFromOutput` and `MishGradFromOutput` take y and one bit (x > x0) where
`GeluGrad` and its kin take x. Errors are the largest of |d - f'(x)| over the real line; the largest f' is
about 1.13.

| function | x0 | y0 | exact y | y as float | y as fp16 | y as bf16 | beyond r2 |
|---|---|---|---|---|---|---|---|"""
    for name, k in fits.items():
        f, lowest, highest, title = FUNCTIONS[name]
        row = [f"{title}", f"{k['x0']:.12f}", f"{k['y0']:.12f}"]
        for store, rnd in ((float, float), (single, single), (shortened(10), single), (shortened(7), single)):
            row.append("%.1e" % max(errors(k, f, lowest, highest, store, rnd)))
        yield "| " + " | ".join(row + ["%.0e" % abs(k["end"])]) + " |"
    yield f"""
"exact y": arithmetic in double, so what the polynomials (degree {DEGREE}) leave. "y as float": every step rounded to
float, as the kernel computes. What it adds is no error of the fit: near the minimum f' goes like
sqrt(2 f''(x0) (y - y0)), so half a unit in the last place of y0 alone is worth 8e-5 in float, 7e-3 in fp16 and 2e-2
in bf16, whoever inverts. `beyond r2`: the step where f' is set to 1.

| function | left | middle | far | r1 | r2 |
|---|---|---|---|---|---|"""
    for name, k in fits.items():
        yield "| " + " | ".join([FUNCTIONS[name][3]] + ["%.1e" % p[1] for p in k["pieces"]]
                                + ["%.4f" % k["r1"], "%.4f" % k["r2"]]) + " |"


def main():
    fits = {name: fit(f, low, high) for name, (f, low, high, _) in FUNCTIONS.items()}
    for path, lines in (("kernels/math/invert_fit.h", header(fits)), ("onnx/tables/bodies_invert.def", bodies(fits)),
                        ("docs/invert.md", report(fits))):
        (root / path).write_text("\n".join(lines) + "\n")


main()
