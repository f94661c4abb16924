/* sweep.c: small models in ONNX text, at several sizes, made into training steps.
 *
 * Gradients and optimizers are measured by what the ordinary passes emit, so that a rule that
 * changes is measured as it is then. The passes that offer (masks instead of saved values, seeds
 * instead of saved masks) run in every second step, so that what they emit is measured too.
 */
#include "api/sweep.h"

#include <stdio.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "rewrite/rewrite.h"

#define HEADER "<ir_version: 10, opset_import: [\"\" : 20]> sweep "

/* $A to $Z stand for the sizes of the case. */
static const char convolutions[] =
    HEADER "(float[$N,$C,$H,$H] x) => (float[$N,10] y) <"
           "float[$C,$C,3,3] w1, float[$C] s1, float[$C] b1, float[$C] m1, float[$C] v1, "
           "float[$C,$C,3,3] w2, float[$C] s2, float[$C] b2, float[$C] m2, float[$C] v2, "
           "float[$C,$C,1,1] w3, float[$C,1,3,3] w4, float[$C,$C,3,3] w5, float[10,$C] w6, "
           "float[10] b6, float low = {0}, float high = {6}> {"
           "c1 = Conv <pads = [1,1,1,1]> (x, w1) n1 = BatchNormalization (c1, s1, b1, m1, v1) "
           "r1 = Relu (n1) c2 = Conv <pads = [1,1,1,1]> (r1, w2) "
           "n2 = BatchNormalization (c2, s2, b2, m2, v2) a2 = Add (n2, r1) r2 = Relu (a2) "
           "c3 = Conv (r2, w3) c4 = Conv <group = $C, pads = [1,1,1,1]> (c3, w4) "
           "k4 = Clip (c4, low, high) c5 = Conv <pads = [1,1,1,1], strides = [2,2]> (k4, w5) "
           "p5 = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (c5) "
           "q5 = AveragePool <kernel_shape = [2,2]> (p5) g5 = GlobalAveragePool (q5) "
           "f5 = Flatten (g5) y = Gemm <transB = 1> (f5, w6, b6) }";

static const char attention[] =
    HEADER "(float[$B,$S,$D] x) => (float[$B,$S,$D] y) <"
           "float[$D] g1, float[$D] o1, float[$D] g2, float[$D] o2, float[$D,$D] wq, float[$D] bq, "
           "float[$D,$D] wk, float[$D] bk, float[$D,$D] wv, float[$D] bv, float[$D,$D] wo, "
           "float[$D] bo, float[$D,$E] wu, float[$E] bu, float[$E,$D] wd, float[$D] bd, "
           "int64[4] heads = {$B,$S,$A,$K}, int64[3] flat = {$B,$S,$D}, float scale = {0.125}, "
           "float ratio = {0.1}> {"
           "n1 = LayerNormalization (x, g1, o1) q0 = MatMul (n1, wq) q1 = Add (q0, bq) "
           "k0 = MatMul (n1, wk) k1 = Add (k0, bk) v0 = MatMul (n1, wv) v1 = Add (v0, bv) "
           "q2 = Reshape (q1, heads) q3 = Transpose <perm = [0,2,1,3]> (q2) "
           "k2 = Reshape (k1, heads) k3 = Transpose <perm = [0,2,3,1]> (k2) "
           "v2 = Reshape (v1, heads) v3 = Transpose <perm = [0,2,1,3]> (v2) "
           "s0 = MatMul (q3, k3) s1 = Mul (s0, scale) p0 = Softmax (s1) p1 = Dropout (p0, ratio) "
           "a0 = MatMul (p1, v3) a1 = Transpose <perm = [0,2,1,3]> (a0) a2 = Reshape (a1, flat) "
           "a3 = MatMul (a2, wo) a4 = Add (a3, bo) h = Add (a4, x) "
           "n2 = LayerNormalization (h, g2, o2) u0 = MatMul (n2, wu) u1 = Add (u0, bu) "
           "u2 = Gelu (u1) d0 = MatMul (u2, wd) d1 = Add (d0, bd) y = Add (d1, h) }";

static const char language[] =
    HEADER "(int64[$B,$S] ids) => (float[$T,$V] y) <float[$V,$D] table, float[$D,$D] w, "
           "float[$D] b, float[$D,$V] head, int64[2] flat = {$T,$D}> {"
           "e = Gather (table, ids) r = Reshape (e, flat) m = Gemm (r, w, b) t = Tanh (m) "
           "y = MatMul (t, head) }";

static const char elements[] =
    HEADER "(float[$R,$C] x) => (float[$R,$C] y) <float[$R,$C] w, float[$C] v, float half = {0.5}, "
           "float two = {2}, int64[1] last = {1}, int64[2] parts = {$P,$P}, int64[1] from = {1}, "
           "int64[1] to = {$C}, int64[1] axis = {1}, int64[4] before = {0,1,0,0}> {"
           "a = Mul (x, w) b = Add (a, v) c = Sigmoid (b) d = Tanh (c) e = Exp (d) f = Sqrt (e) "
           "g = Div (c, f) h = Sub (g, d) i = Abs (h) j = Add (i, half) k = Log (j) "
           "l = Pow (k, two) m = Erf (l) n = LeakyRelu (m) o = Greater (n, half) "
           "p = Where (o, n, c) q = Max (p, d) r = Softmax (q) s = LogSoftmax (q) t = Mul (r, s) "
           "u = ReduceMean (t, last) z = Sub (t, u) aa = Transpose <perm = [1,0]> (z) "
           "bb = Transpose <perm = [1,0]> (aa) c1, c2 = Split <axis = 1> (bb, parts) "
           "dd = Concat <axis = 1> (c2, c1) ee = Slice (dd, from, to, axis) ff = Pad (ee, before) "
           "gg = Neg (ff) hh = Softplus (gg) ii = HardSwish (hh) jj = Elu (ii) kk = Relu (jj) "
           "ll = Reciprocal (j) y = Mul (kk, ll) }";

static const char recurrent[] =
    HEADER "(float[$S,$B,$D] x) => (float[$S,1,$B,$H] y) <float[1,$G,$D] w, float[1,$G,$H] r, "
           "float[1,$K] b> { y = LSTM <hidden_size = $H> (x, w, r, b) }";

typedef struct family {
    const char *name, *text, *letters, *loss, *optimizer;
    int count;
    int64_t sizes[6][8]; /* in the order of the letters */
} family;

// clang-format off
static const family families[] = {
    {"convolutions", convolutions, "NCH", "cross-entropy", "momentum", 6,
     {{2, 16, 16}, {4, 32, 32}, {2, 64, 56}, {4, 128, 28}, {4, 256, 14}, {4, 512, 7}}},
    {"attention", attention, "BSDAKE", "mse", "adamw", 4,
     {{1, 16, 32, 2, 16, 128}, {2, 64, 128, 4, 32, 512}, {1, 256, 256, 4, 64, 1024}, {1, 256, 768, 12, 64, 3072}}},
    {"language", language, "BSTDV", "cross-entropy", "sgd", 2,
     {{2, 32, 64, 64, 500}, {2, 128, 256, 256, 8000}}},
    {"elements", elements, "RCP", "mse", "sgd", 4,
     {{16, 64, 32}, {128, 256, 128}, {512, 1024, 512}, {512, 4096, 2048}}},
    {"recurrent", recurrent, "SBDHGK", "mse", "adamw", 2,
     {{8, 4, 16, 16, 64, 128}, {32, 8, 64, 128, 512, 1024}}},
};
// clang-format on

enum { FAMILIES = sizeof families / sizeof *families };

/* Every size twice: without and with the passes that offer. */
static const family *family_of(size_t i, int *size, bool *offers)
{
    for (size_t f = 0; f < FAMILIES; f++) {
        size_t count = (size_t)families[f].count * 2;
        if (i < count) {
            *size = (int)(i / 2);
            *offers = i % 2 == 1;
            return &families[f];
        }
        i -= count;
    }
    return NULL;
}

size_t ebb_sweep_count(void)
{
    size_t count = 0;
    for (size_t f = 0; f < FAMILIES; f++)
        count += (size_t)families[f].count * 2;
    return count;
}

ebb_status ebb_sweep_make_mix(ebb_model **model, size_t i)
{
    static const size_t steps[EBB_SWEEP_MIX] = {2, 14, 26}; // of each kind the second size
    return ebb_sweep_make(model, steps[i]);
}

const char *ebb_sweep_name(size_t i)
{
    int size;
    bool offers;
    const family *f = family_of(i, &size, &offers);
    return f != NULL ? f->name : "";
}

/* The text with its sizes in place of the letters. */
static const char *fill_in(const family *f, int size, ebb_arena *scratch)
{
    size_t room = strlen(f->text) * 2 + 1, length = 0;
    char *out = ebb_arena_alloc(scratch, room);
    for (const char *c = f->text; out != NULL && *c != '\0' && length + 24 < room; c++) {
        const char *letter = *c == '$' ? strchr(f->letters, c[1]) : NULL;
        if (letter == NULL) {
            out[length++] = *c;
            continue;
        }
        length += (size_t)snprintf(out + length, room - length, "%lld",
                                   (long long)f->sizes[size][letter - f->letters]);
        c++;
    }
    if (out != NULL)
        out[length] = '\0';
    return out;
}

/* Can it run without an option from the user? */
static bool runs_alone(const ebb_pass *pass)
{
    bool alone = ebb_pass_offers(pass);
    for (const ebb_option *o = pass->options; alone && o != NULL && o->name != NULL; o++)
        alone = o->otherwise != NULL;
    return alone;
}

static ebb_status make(ebb_model **model, const family *f, int size, bool offers,
                       ebb_arena *scratch)
{
    size_t count, taken = 0;
    const ebb_pass *const *roll = ebb_passes(&count);
    const char *text = fill_in(f, size, scratch);
    const char **passes = EBB_NEW(scratch, const char *, count + 1);
    EBB_GOT(text && passes);
    for (size_t i = 0; offers && i < count; i++)
        if (runs_alone(roll[i]))
            passes[taken++] = roll[i]->name;
    passes[taken] = NULL;
    const ebb_step_options step = {.loss = f->loss, .optimizer = f->optimizer, .passes = passes};
    char *pipeline;
    EBB_TRY(ebb_text_parse_model(model, text));
    EBB_TRY(ebb_infer_graph((*model)->graph));
    EBB_TRY(ebb_step_pipeline(&pipeline, &step));
    ebb_status status = ebb_rewrite(*model, pipeline, NULL, NULL);
    ebb_release(pipeline);
    return status;
}

ebb_status ebb_sweep_make(ebb_model **model, size_t i)
{
    int size = 0;
    bool offers = false;
    EBB_LOCAL_ARENA(scratch);
    const family *f = family_of(i, &size, &offers);
    *model = NULL;
    ebb_status status = make(model, f, size, offers, scratch);
    if (status != NULL) {
        ebb_model_free(*model);
        *model = NULL;
    }
    return ebb_while(status, "making the step '%s' to measure", f->name);
}
