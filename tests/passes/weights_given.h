/* weights_given.h: tensors as folding leaves them, for tests of what of a file is trained: their numbers, and
 * a model whose one node reads one of them in some slot.
 */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "ebb.h"
#include "passes/parameters/trainable.h"
#include "tests/owned.h"
#include "tests/test.h"
#include "tests/text.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

/* ---- numbers ---- */

static inline double drawn(int64_t i) // no two are alike
{
    uint64_t x = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    return ((double)(x >> 40) / (double)(1 << 24) - 0.5) * 0.2;
}

static inline double zero(int64_t i)
{
    (void)i;
    return 0;
}

static inline double one(int64_t i)
{
    (void)i;
    return 1;
}

static inline double quarter(int64_t i)
{
    (void)i;
    return 0.25;
}

static inline double mask(int64_t i) // of 8 columns: what comes later is hidden
{
    return i % 8 > i / 8 ? -100 : 0;
}

static inline double infinite_mask(int64_t i)
{
    return i % 8 > i / 8 ? -(double)INFINITY : 0;
}

static inline double region(int64_t i)
{
    return (double)(i * 7 % 9);
}

static inline double position(int64_t i) // sines and cosines of 8 columns
{
    double angle = (double)(i / 8) / pow(100, (double)(i % 8 / 2) / 4);
    return i % 2 == 0 ? sin(angle) : cos(angle);
}

static inline double halves(int64_t i) // sines in four columns, cosines in the others
{
    double angle = (double)(i / 8) / pow(10000, (double)(i % 4) / 4);
    return i % 8 < 4 ? sin(angle) : cos(angle);
}

static inline double moved(int64_t i) // by a thousandth, as training begins to
{
    return position(i) + 0.01 * drawn(i);
}

static inline double slope(int64_t i) // of 8 heads, and of 4 more between them
{
    return i < 8 ? pow(2, -(double)(i + 1)) : pow(2, -0.5 - (double)(i - 8));
}

static inline double identity(int64_t i) // of 8 columns
{
    return i % 9 == 0;
}

static inline double power(int64_t i)
{
    return pow(10, -(double)i / 8);
}

static inline double window(int64_t i)
{
    return 0.5 - 0.5 * cos(2 * 3.14159265358979 * (double)i / 64);
}

static inline double blackman(int64_t i) // of 32, as torch.blackman_window(32)
{
    double angle = 2 * 3.14159265358979 * (double)i / 32;
    return 0.42 - 0.5 * cos(angle) + 0.08 * cos(2 * angle);
}

static inline double triangle(int64_t i) // of 16, the same from both ends
{
    return 1 - fabs((double)i - 7.5) / 7.5;
}

static inline double looked_up(int64_t i) // 9 numbers of a table
{
    return drawn(i * 5 % 9);
}

static inline double repeated(int64_t i) // 8 columns, each row the same
{
    return drawn(i % 8);
}

static inline double exponential(int64_t i)
{
    return -exp(drawn(i));
}

static inline double of_two_weights(int64_t i) // zeros stand between two of them
{
    return i >= 8 && i < 16 ? 0 : drawn(i);
}

static inline ebb_value add(ebb_model *m, const char *name, const char *text, double (*of)(int64_t))
{
    int64_t dims[4], count = 1;
    int rank = 0;
    for (const char *at = text; *at != '\0'; at += strcspn(at, "x"), at += *at == 'x')
        count *= dims[rank++] = strtoll(at, NULL, 10);
    FREED float *data = calloc((size_t)count, sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)of(i);
    ebb_type type = ebb_type_tensor(EBB_F32, rank, dims);
    ebb_value v;
    good(ebb_graph_add_initializer(m->graph, &v, name, &type, data, EBB_ROLE_NONE));
    return v;
}

/* g (x) => (y) whose one node reads a tensor of these numbers in this slot. */
typedef struct given {
    const char *node, *shape; /* "MatMul", "8x8" */
    uint32_t slot;
    double (*of)(int64_t);
    const char *name; /* of the tensor; NULL: val_7 */
    const char *call; /* the exporter's note at the node, or NULL */
} given;

/* marked: another weight has a mark of the dynamo exporter. */
static inline ebb_model *model_with(const given *c, bool marked)
{
    char text[256], others[32] = "";
    for (uint32_t i = 0; i < (c->slot > 0 ? c->slot : 1); i++)
        (void)strcat(others, ", b");
    (void)snprintf(text, sizeof text,
                   HEAD "g (float[2,8,8] x, float[2,8,8] other) => (float[2,8,8] y) "
                        "{ a = Exp (x) b = Exp (other) y = %s (a%s) }",
                   c->node, others);
    ebb_model *m = parsed(text);
    ebb_graph *g = m->graph;
    ebb_value v = add(m, c->name != NULL ? c->name : "val_7", c->shape, c->of);
    ebb_node n = ebb_value_of(g, ebb_value_find(g, "y"))->producer;
    good(ebb_node_set_input(g, n, c->slot, v));
    if (c->call != NULL)
        good(ebb_props_set(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node", c->call));
    if (marked)
        good(ebb_props_set(g, &ebb_value_of(g, add(m, "w", "4", drawn))->props,
                           "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER"));
    return m;
}

static inline ebb_weight judged_in(const ebb_model *m, const char *name)
{
    OWNED_ARENA scratch = {0};
    ebb_trainable_source source;
    ebb_weight *list = EBB_NEW(&scratch, ebb_weight, m->graph->value_count);
    assert_non_null(list);
    good(ebb_weights_judge(list, &source, m->graph, &scratch));
    ebb_weight weight = list[ebb_value_find(m->graph, name).i];
    return weight;
}

static inline ebb_weight judged(const given *c, bool marked)
{
    OWNED_MODEL *m = model_with(c, marked);
    ebb_weight weight = judged_in(m, c->name != NULL ? c->name : "val_7");
    return weight;
}

static inline void are(ebb_weight_kind kind, const given *list, size_t count, bool marked)
{
    for (size_t i = 0; i < count; i++) {
        ebb_weight w = judged(&list[i], marked);
        if (w.kind != kind)
            fail_msg("tensor %zu, %s of %s, is %d (%s), not %d", i, list[i].shape, list[i].node,
                     w.kind, w.why != NULL ? w.why : "", kind);
    }
}
#define ARE(kind, marked, ...)                                 \
    do {                                                       \
        const given list[] = {__VA_ARGS__};                    \
        are(kind, list, sizeof list / sizeof list[0], marked); \
    } while (0)
