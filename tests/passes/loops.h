/* loops.h: models with loops, rewritten and run, for tests that hold kept loops against their copies. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run/program.h"
#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "passes/pipeline.h"
#include "tests/status.h"
#include "tests/test.h"

#define HEAD "<ir_version: 10, opset_import: [\"\" : 20]>\n"

/* ---- a run ---- */

/* The same numbers for an input of the same name, whatever the program. */
static inline double drawn(const char *name, size_t i)
{
    uint64_t x = i * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (; *name != '\0'; name++)
        x = (x ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    x ^= x >> 31;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 29;
    return (double)(x >> 11) * 0x1p-53 * 2 - 1;
}

static inline void *array_for(const char *name, const ebb_type *type)
{
    int64_t count = ebb_elements(type);
    size_t bytes = 0;
    assert_true(ebb_type_bytes(type, &bytes));
    void *data = calloc(1, bytes + 8);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        double x = drawn(name, (size_t)i);
        if (type->dtype == EBB_F32)
            ((float *)data)[i] = (float)x;
        else if (type->dtype == EBB_F64)
            ((double *)data)[i] = x;
        else if (type->dtype == EBB_I64)
            ((int64_t *)data)[i] = (int64_t)(x * 8);
        else if (type->dtype == EBB_BOOL)
            ((uint8_t *)data)[i] = x > 0;
    }
    return data;
}

typedef struct ran {
    ebb_model *model;
    ebb_program *program;
    size_t loops; /* kept */
} ran;

static inline ebb_status prepare(ran *r, const char *text, const char *passes)
{
    const ebb_rewrite_options options = {.verify_each = true};
    ebb_arena keep = {0};
    ebb_report *reports;
    size_t count;
    *r = (ran){0};
    ebb_status status = ebb_text_parse_model(&r->model, text);
    if (status == NULL)
        status = ebb_pipeline_run(r->model, passes, &options, &keep, &reports, &count);
    ebb_arena_fini(&keep);
    if (status == NULL)
        EBB_EACH_NODE(r->model->graph, n)
            r->loops += ebb_node_of(r->model->graph, n)->op == EBB_OP_SCAN;
    return status;
}

static inline ebb_status step(ran *r, const ebb_compile_options *options)
{
    enum { MOST = 16 };
    const ebb_graph *g = r->model->graph;
    ebb_named named[MOST];
    assert_true(g->input_count <= MOST);
    if (r->program == NULL)
        EBB_TRY(ebb_program_compile(&r->program, r->model, options));
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *type = ebb_value_of(g, g->inputs[i])->type;
        const char *name = ebb_value_name(g, g->inputs[i]);
        named[i] = (ebb_named){name, type->dtype, type->rank, type->dims, array_for(name, type)};
    }
    const ebb_batch batch = {named, g->input_count};
    ebb_status status = ebb_program_step(r->program, &batch);
    for (size_t i = 0; i < g->input_count; i++)
        free((void *)(uintptr_t)named[i].data);
    return status;
}

static inline void finish(ran *r)
{
    ebb_program_free(r->program);
    ebb_model_free(r->model);
}

static inline double number_at(const ebb_named *t, int64_t i)
{
    switch (t->dtype) {
    case EBB_F32:
        return (double)((const float *)t->data)[i];
    case EBB_F64:
        return ((const double *)t->data)[i];
    case EBB_I64:
        return (double)((const int64_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}

/* Every output of the one is one of the other, and within `share` of its largest. */
static inline void agree(const ran *a, const ran *b, double share)
{
    for (size_t k = 0; k < ebb_program_output_count(a->program); k++) {
        ebb_named x, y;
        const char *name = ebb_program_output_name(a->program, k);
        good(ebb_program_get(a->program, name, &x));
        good(ebb_program_get(b->program, name, &y));
        assert_int_equal(x.rank, y.rank);
        int64_t count = 1;
        double largest = 0, off = 0;
        for (int d = 0; d < x.rank; d++) {
            assert_int_equal(x.dims[d], y.dims[d]);
            count *= x.dims[d];
        }
        for (int64_t i = 0; i < count; i++) {
            double u = number_at(&x, i), v = number_at(&y, i);
            assert_true(isfinite(u) && isfinite(v));
            largest = fabs(u) > largest ? fabs(u) : largest;
            off = fabs(u - v) > off ? fabs(u - v) : off;
        }
        if (off > share * largest)
            fail_msg("'%s' is off by %g of %g", name, off, largest);
    }
}

static inline void planned_is_measured(const ran *r)
{
    ebb_program_facts facts = ebb_program_measure(r->program);
    assert_int_equal(facts.planned_arena_bytes, facts.measured_arena_bytes);
}

/* Copies against loops, forward alone or with what comes behind. loops 0: some. */
static inline void same_kept_and_unrolled(const char *text, const char *behind, size_t loops,
                                          const ebb_compile_options *options, double share)
{
    char passes[512];
    ran copies, kept;
    (void)snprintf(passes, sizeof passes, "opset,inline,fold,unroll%s", behind);
    good(prepare(&copies, text, passes));
    assert_int_equal(copies.loops, 0);
    (void)snprintf(passes, sizeof passes, "opset,inline,fold,unroll:most=1%s", behind);
    good(prepare(&kept, text, passes));
    if (loops != 0)
        assert_int_equal(kept.loops, loops);
    assert_true(kept.loops > 0);
    for (int steps = 0; steps < 2; steps++) { // the second one finds the memory used
        good(step(&copies, options));
        good(step(&kept, options));
        agree(&copies, &kept, share);
    }
    planned_is_measured(&kept);
    finish(&copies);
    finish(&kept);
}

static const ebb_compile_options plain = {.backend = "plain", .threads = 1, .seed = 3},
                                 cpu = {.threads = 1, .seed = 3};
