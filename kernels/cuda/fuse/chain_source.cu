/* chain_source.cu: the source of a chain's kernel.
 *
 *     #include ...
 *     functions and formulas, for each float type that the chain computes in
 *     kernel: loop over packs   { load packs; for each lane { x0 = ...; y0 = ...; } store packs }
 *             loop over the rest, one by one, the same steps
 */
#include "kernels/cuda/fuse/chain_source.h"

#include "onnx/words/print.h"

#include <chain_headers.h>
#include <stdarg.h>
#include <stdio.h>

const char *const ebb_chain_header_names[EBB_CHAIN_HEADERS] = {
    "kernels/cuda/gpu.h", "kernels/cuda/floats.h", "kernels/math/words.h"};
const char *const ebb_chain_header_texts[EBB_CHAIN_HEADERS] = {ebb_text_of_gpu, ebb_text_of_floats,
                                                               ebb_text_of_words};

/* ---- pointwise.def as text ---- */

static const char functions[] =
#define FUNCTION(name, parameters, ...) \
    "EBB_GPU_INLINE REAL NAMED(" #name ")" #parameters "\n" #__VA_ARGS__ "\n"
#include "kernels/math/pointwise.def"
    ;

static const struct {
    const char *name, *real, *whole;
} texts[EBB_FORMULA_COUNT] = {
#define POINTWISE(op, name, kind, inputs, dtypes, result, p, q, real, whole) {#op, #real, #whole},
#include "kernels/math/pointwise.def"
};

/* ---- text ---- */

typedef struct text {
    char *bytes;
    size_t length, room;
    bool failed;
} text;

EBB_PRINTF(2, 3) static void put(text *t, const char *format, ...)
{
    for (int attempt = 0; attempt < 2 && !t->failed; attempt++) {
        va_list list;
        va_start(list, format);
        int length = ebb_vsnprintf(t->bytes != NULL ? t->bytes + t->length : NULL,
                                   t->room - t->length, format, list);
        va_end(list);
        if (length < 0) {
            t->failed = true;
        } else if (t->length + (size_t)length < t->room) {
            t->length += (size_t)length;
            return;
        } else {
            size_t room = 2 * t->room + (size_t)length + 4096;
            char *grown = (char *)ebb_realloc(t->bytes, room);
            t->failed = grown == NULL;
            if (grown != NULL) {
                t->bytes = grown;
                t->room = room;
            }
        }
    }
}

/* A constant exactly: hexadecimal, as C and C++17 read it. */
static void put_number(text *t, const char *type, double v)
{
    if (v != v)
        put(t, "(%s)(INFINITY - INFINITY)", type);
    else if (v > 1e308 && v * 0.5 == v)
        put(t, "(%s)INFINITY", type);
    else if (v < -1e308 && v * 0.5 == v)
        put(t, "-(%s)INFINITY", type);
    else
        put(t, "(%s)%a", type, v);
}

/* ---- types ---- */

static const char *stored(uint8_t dtype)
{
    return dtype == EBB_F32    ? "float"
           : dtype == EBB_F64  ? "double"
           : dtype == EBB_F16  ? "ebb_f16"
           : dtype == EBB_BF16 ? "ebb_bf16"
                               : "uint8_t";
}

static const char *computed(uint8_t dtype)
{
    return dtype == EBB_F64 ? "double" : dtype == EBB_BOOL ? "uint8_t" : "float";
}

static const char *reader(uint8_t dtype)
{
    return dtype == EBB_F16 ? "ebb_from_f16" : dtype == EBB_BF16 ? "ebb_from_bf16" : "";
}

static const char *writer(uint8_t dtype)
{
    return dtype == EBB_F16 ? "ebb_to_f16" : dtype == EBB_BF16 ? "ebb_to_bf16" : "";
}

static int bytes_of(uint8_t dtype)
{
    return (int)ebb_dtype_bits((ebb_dtype)dtype) / 8;
}

/* ---- how inputs are read ---- */

static void least_size(int *size, uint8_t dtype)
{
    if (dtype != EBB_BOOL && bytes_of(dtype) < *size)
        *size = bytes_of(dtype);
}

void ebb_chain_walk_make(const ebb_chain *chain, ebb_chain_walk *w, int64_t *dims,
                         int64_t (*stride)[EBB_MAX_RANK])
{
    const ebb_type *in[EBB_CHAIN_INPUTS];
    int size = 16;
    memset(w, 0, sizeof *w);
    for (int k = 0; k < chain->input_count; k++) {
        in[k] = &chain->input[k];
        least_size(&size, chain->input[k].dtype);
    }
    for (int k = 0; k < chain->output_count; k++)
        least_size(&size, ebb_chain_dtype(chain, chain->output[k]));
    w->lanes = size == 16 ? 16 : 16 / size; // bools alone: 16 of them
    w->narrow = ebb_elements(&chain->shape) <= INT32_MAX;
    w->rank = ebb_cuda_walk_merge(&chain->shape, in, chain->input_count, dims, stride);
    for (int k = 0; k < chain->input_count; k++) {
        bool dense = true, one = true;
        int64_t step = 1;
        for (int d = 0; d < w->rank; step *= dims[d++]) {
            dense = dense && stride[k][d] == step;
            one = one && stride[k][d] == 0;
        }
        w->way[k] = one                 ? EBB_CHAIN_ONE
                    : dense             ? EBB_CHAIN_DENSE
                    : stride[k][0] == 0 ? EBB_CHAIN_SPLAT
                                        : EBB_CHAIN_ROWS;
    }
}

/* ---- formulas ---- */

/* What is computed in `dtype`: bool, float64, or float32 as all other floats are. */
static const char *suffix_of(uint8_t dtype)
{
    return dtype == EBB_BOOL ? "flag" : dtype == EBB_F64 ? "f64" : "f32";
}

static void put_formulas(text *t, const ebb_chain *chain, uint8_t dtype)
{
    const char *type = computed(dtype), *suffix = suffix_of(dtype);
    bool used[EBB_FORMULA_COUNT] = {false}, any = false;
    for (int s = 0; s < chain->step_count; s++)
        if (chain->step[s].formula && suffix_of(chain->step[s].of) == suffix)
            used[chain->step[s].use.formula] = any = true;
    if (!any)
        return;
    if (dtype != EBB_BOOL)
        put(t, "#define REAL_BITS %d\n#include \"%s\"\n%s", dtype == EBB_F64 ? 64 : 32,
            ebb_chain_header_names[2], functions);
    for (int f = 0; f < EBB_FORMULA_COUNT; f++) {
        const char *result = ebb_formula_rows[f].flag ? "uint8_t" : type;
        if (used[f])
            put(t,
                "EBB_GPU_INLINE %s %s_of_%s(%s x, %s y, %s z, %s w, %s p, %s q)\n"
                "{\n    (void)x, (void)y, (void)z, (void)w, (void)p, (void)q;\n"
                "    return (%s)(%s);\n}\n",
                result, texts[f].name, suffix, type, type, type, type, type, type, result,
                dtype == EBB_BOOL ? texts[f].whole : texts[f].real);
    }
}

/* ---- steps ---- */

static void put_value(text *t, int value)
{
    if (value < EBB_CHAIN_INPUTS)
        put(t, "x%d", value);
    else
        put(t, "y%d", value - EBB_CHAIN_INPUTS);
}

static void put_cast(text *t, const ebb_chain_part *p)
{
    if (p->dtype == EBB_BOOL) {
        put_value(t, p->operand[0]);
        put(t, " != 0");
    } else if (p->dtype == p->of) {
        put_value(t, p->operand[0]);
    } else { // rounded to 16 bits and back
        put(t, "%s(%s((%s)", reader(p->dtype), writer(p->dtype), computed(p->dtype));
        put_value(t, p->operand[0]);
        put(t, "))");
    }
}

static void put_formula(text *t, const ebb_chain_part *p)
{
    const char *type = computed(p->of);
    put(t, "%s_of_%s(", texts[p->use.formula].name, suffix_of(p->of));
    for (int k = 0; k < EBB_CUDA_INPUTS; k++) {
        if (k < p->count && p->operand[k] >= 0) {
            put_value(t, p->operand[k]);
            put(t, p->of == EBB_BOOL ? " != 0" : "");
        } else {
            put_number(t, type, p->use.absent[k]);
        }
        put(t, ", ");
    }
    put_number(t, type, p->use.p);
    put(t, ", ");
    put_number(t, type, p->use.q);
    put(t, ")");
}

/* A step of 16 bits is rounded as if it had been stored, so that a chain gives the bits that its
 * operators give one by one: what is chained with what must not show in a result. */
static void put_steps(text *t, const ebb_chain *chain)
{
    for (int s = 0; s < chain->step_count; s++) {
        const ebb_chain_part *p = &chain->step[s];
        const char *type = computed(p->dtype);
        put(t, "            const %s y%d = %s(%s((%s)(", type, s, reader(p->dtype),
            writer(p->dtype), type);
        if (p->formula) {
            put_formula(t, p);
        } else if (p->op == EBB_OP_WHERE) {
            put_value(t, p->operand[0]);
            put(t, " != 0 ? ");
            put_value(t, p->operand[1]);
            put(t, " : ");
            put_value(t, p->operand[2]);
        } else {
            put_cast(t, p);
        }
        put(t, ")));\n");
    }
}

/* ---- loops ---- */

static void put_place(text *t, const ebb_chain_walk *w, int k)
{
    if (w->way[k] == EBB_CHAIN_DENSE)
        put(t, "i");
    else if (w->way[k] == EBB_CHAIN_ONE)
        put(t, "0");
    else
        put(t, "place(&a, %d, i)", k);
}

static void put_packs(text *t, const ebb_chain *chain, const ebb_chain_walk *w)
{
    put(t, "    EBB_GRID_LOOP(g, a.packed / %d)\n    {\n", w->lanes);
    put(t, "        const int64_t i = g * %d;\n", w->lanes);
    for (int k = 0; k < chain->input_count; k++) {
        const char *type = stored(chain->input[k].dtype);
        bool pack = w->way[k] == EBB_CHAIN_DENSE || w->way[k] == EBB_CHAIN_ROWS;
        if (pack)
            put(t,
                "        const pack_%s p%d = *(const pack_%s *)(const void *)((const %s *)"
                "a.in[%d] + ",
                type, k, type, type, k);
        else
            put(t, "        const %s p%d = *((const %s *)a.in[%d] + ", type, k, type, k);
        put_place(t, w, k);
        put(t, ");\n");
    }
    for (int o = 0; o < chain->output_count; o++)
        put(t, "        pack_%s o%d;\n", stored(ebb_chain_dtype(chain, chain->output[o])), o);
    put(t, "        EBB_UNROLL\n        for (int l = 0; l < %d; l++) {\n", w->lanes);
    for (int k = 0; k < chain->input_count; k++) {
        bool pack = w->way[k] == EBB_CHAIN_DENSE || w->way[k] == EBB_CHAIN_ROWS;
        put(t, "            const %s x%d = %s(p%d%s);\n", computed(chain->input[k].dtype), k,
            reader(chain->input[k].dtype), k, pack ? ".v[l]" : "");
    }
    put_steps(t, chain);
    for (int o = 0; o < chain->output_count; o++) {
        put(t, "            o%d.v[l] = %s(", o, writer(ebb_chain_dtype(chain, chain->output[o])));
        put_value(t, chain->output[o]);
        put(t, ");\n");
    }
    put(t, "        }\n");
    for (int o = 0; o < chain->output_count; o++) {
        const char *type = stored(ebb_chain_dtype(chain, chain->output[o]));
        put(t, "        *(pack_%s *)(void *)((%s *)a.out[%d] + i) = o%d;\n", type, type, o, o);
    }
    put(t, "    }\n");
}

static void put_singles(text *t, const ebb_chain *chain, const ebb_chain_walk *w)
{
    put(t, "    EBB_GRID_LOOP(g, a.n - a.packed)\n    {\n"
           "            const int64_t i = a.packed + g;\n");
    for (int k = 0; k < chain->input_count; k++) {
        uint8_t dtype = chain->input[k].dtype;
        put(t, "            const %s x%d = %s(*((const %s *)a.in[%d] + ", computed(dtype), k,
            reader(dtype), stored(dtype), k);
        put_place(t, w, k);
        put(t, "));\n");
    }
    put_steps(t, chain);
    for (int o = 0; o < chain->output_count; o++) {
        uint8_t dtype = ebb_chain_dtype(chain, chain->output[o]);
        put(t, "            ((%s *)a.out[%d])[i] = %s(", stored(dtype), o, writer(dtype));
        put_value(t, chain->output[o]);
        put(t, ");\n");
    }
    put(t, "    }\n");
}

/* ---- the whole ---- */

static void put_head(text *t, const ebb_chain_walk *w)
{
    static const uint8_t dtypes[] = {EBB_F32, EBB_F64, EBB_F16, EBB_BF16, EBB_BOOL};
#define AS_TEXT(...) #__VA_ARGS__
    put(t, "#include \"%s\"\n#include \"%s\"\n%s\n", ebb_chain_header_names[0],
        ebb_chain_header_names[1], EBB_CHAIN_ARGS(AS_TEXT));
    for (size_t k = 0; k < sizeof dtypes; k++) {
        int bytes = w->lanes * bytes_of(dtypes[k]);
        put(t, "typedef struct { %s v[%d]; } EBB_ALIGN(%d) pack_%s;\n", stored(dtypes[k]), w->lanes,
            bytes < 16 ? bytes : 16, stored(dtypes[k]));
    }
    put(t,
        "EBB_GPU_INLINE int64_t place(const ebb_chain_args *a, int k, int64_t i)\n{\n"
        "    %s rest = (%s)i;\n    int64_t at = 0;\n    EBB_UNROLL\n"
        "    for (int d = 0; d < %d; d++) {\n"
        "        %s next = rest / (%s)a->dims[d];\n"
        "        at += (int64_t)(rest - next * (%s)a->dims[d]) * a->stride[k][d];\n"
        "        rest = next;\n    }\n    return at;\n}\n",
        w->narrow ? "uint32_t" : "uint64_t", w->narrow ? "uint32_t" : "uint64_t", w->rank,
        w->narrow ? "uint32_t" : "uint64_t", w->narrow ? "uint32_t" : "uint64_t",
        w->narrow ? "uint32_t" : "uint64_t");
}

ebb_status ebb_chain_source(const ebb_chain *chain, char **source)
{
    ebb_chain_args a;
    ebb_chain_walk w;
    text t = {NULL, 0, 0, false};
    memset(&a, 0, sizeof a);
    *source = NULL;
    if (chain->input_count == 0 || chain->output_count == 0)
        return ebb_error(EBB_USAGE, "a chain without inputs or without outputs");
    ebb_chain_walk_make(chain, &w, a.dims, a.stride);
    put_head(&t, &w);
    put_formulas(&t, chain, EBB_F32);
    put_formulas(&t, chain, EBB_F64);
    put_formulas(&t, chain, EBB_BOOL);
    put(&t, "EBB_NAMED_GLOBAL(ebb_chain, ebb_chain_args)\n{\n");
    put_packs(&t, chain, &w);
    put_singles(&t, chain, &w);
    put(&t, "}\n");
    if (t.failed) {
        ebb_free(t.bytes);
        return ebb_error_memory();
    }
    *source = t.bytes;
    return NULL;
}
