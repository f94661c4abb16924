/* draw.h: graphs of operators drawn by chance, or by the bytes of a fuzzer: any row of the table,
 * with operands of any type, number and rank, and attributes that make sense or do not.
 *
 *     bytes or seed --> draws --> draw_graph: x0 (input)  x1 (weight)  - (absent)
 *                                               \          |          /
 *                                                Conv {group=-3, pads=[1,0,9223372036854775807]}
 *
 * About half of what is drawn is what an operator expects, so that enough of it gets past inference
 * and reaches gradient, plan and kernel.
 */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/graph/graph.h"
#include "onnx/graph/schema.h"
#include "onnx/words/mix.h"

typedef struct draws {
    const uint8_t *bytes; /* NULL: by chance */
    size_t count, at;
    uint64_t state;
} draws;

/* 0 .. below - 1. Bytes that have run out are zeros. */
static inline uint64_t draw(draws *d, uint64_t below)
{
    uint64_t z = 0;
    if (d->bytes == NULL)
        return ebb_draw(&d->state) % below;
    for (uint64_t rest = below - 1; rest > 0; rest >>= 8)
        z = z << 8 | (d->at < d->count ? d->bytes[d->at++] : 0);
    return z % below;
}

static inline bool draw_once_in(draws *d, uint64_t n)
{
    return draw(d, n) == n - 1;
}

#define DRAW_ONE_OF(d, list) ((list)[draw((d), sizeof(list) / sizeof((list)[0]))])

static inline int64_t draw_integer(draws *d)
{
    static const int64_t odd[] = {INT64_MIN,
                                  INT64_MIN + 1,
                                  INT64_MAX,
                                  INT64_MAX - 1,
                                  INT32_MIN,
                                  INT32_MAX,
                                  UINT32_MAX,
                                  INT64_C(1) << 32,
                                  INT64_C(1) << 62,
                                  65536,
                                  1000,
                                  -1000,
                                  64,
                                  17};
    if (draw_once_in(d, 8))
        return DRAW_ONE_OF(d, odd);
    return (int64_t)draw(d, 8) - 2;
}

static inline double draw_float(draws *d)
{
    static const double odd[] = {0.0,
                                 -0.0,
                                 1e-45,
                                 1e38,
                                 -1e38,
                                 1e300,
                                 -1.0,
                                 2.0,
                                 1e-8,
                                 -1e-8,
                                 1e9,
                                 -1e9,
                                 (double)INFINITY,
                                 -(double)INFINITY,
                                 (double)NAN};
    if (draw_once_in(d, 6))
        return DRAW_ONE_OF(d, odd);
    return (double)draw(d, 256) / 64.0 - 2.0;
}

/* ---- types and their values ---- */

static inline ebb_dtype draw_dtype(draws *d)
{
    static const ebb_dtype common[] = {EBB_F32, EBB_F32, EBB_F32, EBB_I64, EBB_BOOL, EBB_F64,
                                       EBB_I32, EBB_U8,  EBB_F16, EBB_I8,  EBB_BF16};
    if (draw_once_in(d, 10))
        return (ebb_dtype)draw(d, EBB_DTYPE_COUNT);
    return DRAW_ONE_OF(d, common);
}

static inline int64_t draw_dim(draws *d)
{
    static const int64_t odd[] = {-1, 0, 0, INT64_C(1) << 31, INT64_C(1) << 40, INT64_MAX, 100, 16};
    static const int64_t common[] = {1, 2, 3, 4, 2, 4, 5, 8};
    return draw_once_in(d, 48) ? DRAW_ONE_OF(d, odd) : DRAW_ONE_OF(d, common);
}

static inline ebb_type draw_type(draws *d)
{
    static const int ranks[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5};
    ebb_dtype dtype = draw_dtype(d);
    int rank = draw_once_in(d, 24) ? (int)draw(d, EBB_MAX_RANK + 2) - 1 : DRAW_ONE_OF(d, ranks);
    ebb_type type = ebb_type_none();
    int64_t dims[EBB_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++)
        dims[i] = draw_dim(d);
    type = ebb_type_tensor(dtype, rank < 0 ? 0 : rank, dims);
    if (rank < 0)
        type.rank = -1;
    return type;
}

/* Fills `bytes` bytes of the dtype: numbers of its kind, now and then any bits. */
static inline void draw_values(draws *d, ebb_dtype dtype, void *data, size_t bytes)
{
    unsigned bits = ebb_dtype_bits(dtype);
    size_t size = bits < 8 ? 1 : bits / 8;
    bool odd = draw_once_in(d, 6);
    for (size_t i = 0; bits != 0 && i + size <= bytes; i += size) {
        int64_t integer = odd ? draw_integer(d) : (int64_t)draw(d, 6) - 1;
        float single = (float)(odd ? draw_float(d) : (double)draw(d, 64) / 16.0 - 2.0);
        double whole = (double)single;
        uint16_t half = dtype == EBB_F16 ? ebb_float_to_half(single) : ebb_float_to_bf16(single);
        const void *from = &integer; // little-endian: the low bytes
        if (dtype == EBB_F32)
            from = &single;
        else if (dtype == EBB_F64)
            from = &whole;
        else if (dtype == EBB_F16 || dtype == EBB_BF16)
            from = &half;
        else if (dtype == EBB_BOOL)
            integer &= odd ? 255 : 1;
        memcpy((char *)data + i, from, size < sizeof integer ? size : sizeof integer);
    }
}

/* ---- attributes ---- */

static inline const char *draw_word(draws *d)
{
    static const char *const words[] = {"",           "SAME_UPPER",    "SAME_LOWER",
                                        "VALID",      "NOTSET",        "constant",
                                        "reflect",    "edge",          "wrap",
                                        "linear",     "cubic",         "nearest",
                                        "add",        "mul",           "max",
                                        "min",        "none",          "mean",
                                        "sum",        "bilinear",      "DCR",
                                        "CRD",        "bidirectional", "reverse",
                                        "forward",    "tanh",          "half_pixel",
                                        "asymmetric", "align_corners", "border",
                                        "ij,jk->ik",  "...i,i...",     "ii->i",
                                        "->",         "i,i,i->zz",     "tf_crop_and_resize",
                                        "floor",      "ceil",          "avg",
                                        "LEFT",       "RIGHT",         "TF",
                                        "IDF",        "TFIDF",         "gated",
                                        "delta",      "silu",          "x0",
                                        "x1",         "standard",      "nesterov",
                                        "Sigmoid",    "Tanh",          "a\xff"};
    return DRAW_ONE_OF(d, words);
}

static inline uint32_t draw_list_length(draws *d)
{
    static const uint32_t lengths[] = {0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 8};
    return DRAW_ONE_OF(d, lengths);
}

static inline const ebb_tensor *draw_tensor(draws *d, ebb_arena *arena)
{
    ebb_tensor *t = EBB_NEW(arena, ebb_tensor, 1);
    t->type = draw_type(d);
    if (!ebb_type_bytes(&t->type, &t->bytes) || t->bytes > 4096) {
        int64_t one = 1;
        t->type = ebb_type_tensor(EBB_I64, 1, &one);
        t->bytes = 8;
    }
    void *data = ebb_arena_zeroed(arena, t->bytes + 1, 1);
    draw_values(d, (ebb_dtype)t->type.dtype, data, t->bytes);
    t->data = data;
    return t;
}

/* One of that kind; false for kinds that cannot be drawn. */
static inline bool draw_attr(draws *d, ebb_arena *arena, const char *name, ebb_attr_type type,
                             ebb_attr *a)
{
    *a = (ebb_attr){.name = name, .type = type};
    uint32_t count = draw_list_length(d);
    int64_t *ints = EBB_NEW(arena, int64_t, 8);
    float *floats = EBB_NEW(arena, float, 8);
    const char **strings = (const char **)ebb_arena_zeroed(arena, 8, sizeof *strings);
    bool odd = draw_once_in(d, 3);
    for (uint32_t i = 0; i < 8; i++) {
        ints[i] = odd ? draw_integer(d) : (int64_t)draw(d, 4);
        floats[i] = (float)draw_float(d);
        strings[i] = draw_word(d);
    }
    switch (type) {
    case EBB_ATTR_INT:
        a->i = ints[0];
        return true;
    case EBB_ATTR_FLOAT:
        a->f = (double)floats[0];
        return true;
    case EBB_ATTR_STRING:
        a->s = strings[0];
        a->s_bytes = strlen(strings[0]);
        return true;
    case EBB_ATTR_TENSOR:
        a->tensor = draw_tensor(d, arena);
        return true;
    case EBB_ATTR_INTS:
        a->ints = ints;
        a->count = count;
        return true;
    case EBB_ATTR_FLOATS:
        a->floats = floats;
        a->count = count;
        return true;
    case EBB_ATTR_STRINGS:
        a->strings = strings;
        a->count = count;
        return true;
    default:
        return false;
    }
}

static inline ebb_status draw_attrs(draws *d, ebb_graph *g, ebb_node n)
{
    static const ebb_attr_type wrong[] = {EBB_ATTR_INT, EBB_ATTR_FLOAT, EBB_ATTR_STRING,
                                          EBB_ATTR_INTS, EBB_ATTR_TENSOR};
    uint64_t once_in = 3 + draw(d, 9);
    ebb_attr_type type;
    const char *name;
    for (size_t k = 0; (name = ebb_attr_known(k, &type)) != NULL; k++) {
        ebb_attr a;
        if (!draw_once_in(d, once_in))
            continue;
        if (draw_once_in(d, 2000))
            type = DRAW_ONE_OF(d, wrong);
        if (draw_attr(d, &g->model->arena, name, type, &a))
            EBB_TRY(ebb_node_set_attr(g, n, &a));
    }
    return NULL;
}

/* ---- nodes ---- */

/* An operand: a graph input, a constant, a weight, something that is there already, or absent. */
static inline ebb_status draw_operand(draws *d, ebb_graph *g, const ebb_type *like, ebb_value *v)
{
    ebb_type type = draw_once_in(d, 6) ? draw_type(d) : *like;
    size_t bytes = 0;
    *v = EBB_NO_VALUE;
    if (draw_once_in(d, 64))
        return NULL;
    if (draw_once_in(d, 8) && g->value_count > 1) {
        v->i = 1 + (uint32_t)draw(d, g->value_count - 1);
        return NULL;
    }
    if (draw_once_in(d, 6)) // short lists of integers: axes, shapes, pads
    {
        int64_t count = (int64_t)draw_list_length(d);
        type = ebb_type_tensor(draw_once_in(d, 8) ? EBB_I32 : EBB_I64, draw_once_in(d, 4) ? 0 : 1,
                               &count);
    }
    if (!ebb_type_bytes(&type, &bytes) || bytes > 65536 || draw_once_in(d, 4)) {
        EBB_TRY(ebb_value_add(g, v, "x", &type));
        return ebb_graph_add_input(g, *v);
    }
    void *data = ebb_arena_zeroed(&g->model->arena, bytes + 1, 1);
    draw_values(d, (ebb_dtype)type.dtype, data, bytes);
    bool weight = ebb_dtype_is_float((ebb_dtype)type.dtype) && !draw_once_in(d, 4);
    return ebb_graph_add_initializer(g, v, "w", &type, draw_once_in(d, 64) ? NULL : data,
                                     weight ? EBB_ROLE_PARAMETER : EBB_ROLE_CONSTANT);
}

enum { DRAW_OPERANDS = 12 };

static inline ebb_status draw_node(draws *d, ebb_graph *g, ebb_op op)
{
    const ebb_op_row *row = ebb_op_row_of(op);
    const ebb_arity arity = ebb_op_arity(op);
    uint32_t most_in = arity.inputs < DRAW_OPERANDS ? arity.inputs : 4;
    uint32_t most_out = arity.outputs < DRAW_OPERANDS ? arity.outputs : 3;
    uint32_t ins = most_in, outs = 1 + (uint32_t)draw(d, most_out);
    ebb_value in[DRAW_OPERANDS], out[DRAW_OPERANDS];
    ebb_type like = draw_type(d);
    if (draw_once_in(d, 2))
        like.dtype = EBB_F32;
    ebb_node n;
    if (most_in > arity.required)
        ins = arity.required + (uint32_t)draw(d, most_in - arity.required + 1);
    if (draw_once_in(d, 16))
        ins = (uint32_t)draw(d, DRAW_OPERANDS);
    if (draw_once_in(d, 32))
        outs = (uint32_t)draw(d, DRAW_OPERANDS);
    for (uint32_t i = 0; i < ins; i++)
        EBB_TRY(draw_operand(d, g, &like, &in[i]));
    for (uint32_t i = 0; i < outs; i++) {
        // what a file declares stands where no rule knows better
        ebb_type declared = draw_once_in(d, 4) ? like : ebb_type_none();
        out[i] = EBB_NO_VALUE;
        if (!draw_once_in(d, i == 0 ? 80 : 12))
            EBB_TRY(ebb_value_add(g, &out[i], "y", &declared));
    }
    EBB_TRY(ebb_node_add(g, &n, EBB_NO_NODE, row->domain, row->name, in, ins, out, outs));
    EBB_TRY(draw_attrs(d, g, n));
    for (uint32_t i = 0; i < outs; i++)
        if (out[i].i != 0 && (i == 0 || draw_once_in(d, 2)))
            EBB_TRY(ebb_graph_add_output(g, out[i]));
    return NULL;
}

/* `nodes` nodes, the first of them of this operator at a version that has it. */
static inline ebb_status draw_graph(draws *d, ebb_op op, uint32_t nodes, ebb_model **model)
{
    const ebb_op_row *row = ebb_op_row_of(op);
    int64_t newest = 26, opset = newest;
    bool standard = row->domain[0] == '\0';
    if (draw_once_in(d, 2))
        opset = (standard ? row->since : 13) + (int64_t)draw(d, 6);
    EBB_TRY(ebb_model_new(model, opset > newest ? newest : opset));
    ebb_status status = NULL;
    static const char *const domains[] = {EBB_DOMAIN_MS, EBB_DOMAIN_EBB, EBB_DOMAIN_PREVIEW,
                                          EBB_DOMAIN_EXPERIMENTS};
    for (size_t i = 0; status == NULL && i < sizeof domains / sizeof domains[0]; i++)
        status = ebb_model_import(*model, domains[i], 1);
    for (uint32_t k = 0; status == NULL && k < nodes; k++)
        status =
            draw_node(d, (*model)->graph, k == 0 ? op : (ebb_op)(1 + draw(d, EBB_OP_COUNT - 1)));
    if (status != NULL) {
        ebb_model_free(*model);
        *model = NULL;
    }
    return status;
}
