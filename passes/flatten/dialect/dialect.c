/* dialect.c: which rule a node has, applying it, and what rules share. */
#include "passes/flatten/dialect/dialect.h"

#include "onnx/graph/infer.h"
#include "passes/flatten/body.h"
#include "passes/common.h"
#include "passes/parameters/noted.h"

enum { OLDEST_OPSET = 13 }; // of ai.onnx: Softmax, ReduceSum and others meant something else before

enum { ONNX, MS, ML, EXPERIMENTS };
static const char domains[][24] = {
    [ONNX] = EBB_DOMAIN_ONNX,
    [MS] = EBB_DOMAIN_MS,
    [ML] = EBB_DOMAIN_ML,
    [EXPERIMENTS] = EBB_DOMAIN_EXPERIMENTS,
};

static const struct entry {
    const char *name;
    ebb_dialect_fn rule;
    uint8_t domain;
    bool also;
} table[] = {
#define EBB_DIALECT(domain, name, rule) {name, ebb_dialect_##rule, domain, false},
#define EBB_DIALECT_ALSO(domain, name, rule) {name, ebb_dialect_##rule, domain, true},
#include "passes/flatten/dialect/dialect.def"
#undef EBB_DIALECT
#undef EBB_DIALECT_ALSO
};

static const struct entry *entry_of(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *domain = ebb_text(g, info->domain), *name = ebb_text(g, info->op_name);
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0 && strcmp(domains[table[i].domain], domain) == 0)
            return table[i].also || info->op == EBB_OP_UNKNOWN ? &table[i] : NULL;
    return NULL;
}

bool ebb_dialect_knows(const ebb_graph *g, ebb_node n)
{
    return entry_of(g, n) != NULL;
}

/* ---- applying ---- */

static void look(ebb_foreign *f, const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    *f = (ebb_foreign){.node = n,
                       .input_count = info->in_count,
                       .output_count = info->out_count,
                       .attrs = ebb_node_attrs(g, n),
                       .scratch = scratch};
    for (uint32_t i = 0; i < info->in_count; i++)
        f->x[i] = info->in[i];
    for (uint32_t k = 0; k < info->out_count; k++)
        f->wants[k] = ebb_value_is_read(g, info->out[k]);
}

ebb_status ebb_dialect_apply(ebb_edit *e, ebb_node n, bool *done, const char **why)
{
    ebb_graph *g = e->g;
    const struct entry *entry = entry_of(g, n);
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *name = ebb_text(g, info->name);
    size_t before = g->value_count;
    ebb_foreign f;
    *done = false;
    *why = NULL;
    if (entry == NULL)
        return NULL;
    if (!entry->also && ebb_model_opset(g->model, "") < OLDEST_OPSET)
        *why = "its meaning is known for ai.onnx of opset 13 and newer";
    else if (info->in_count > EBB_DIALECT_INPUTS || info->out_count > EBB_DIALECT_OUTPUTS)
        *why = "it has more inputs or outputs than is known here";
    if (*why != NULL)
        return NULL;
    look(&f, g, n, e->scratch);
    f.edit = e;
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.phase = (ebb_phase)info->phase;
    b.name = name[0] != '\0' ? name : entry->name;
    entry->rule(&b, &f);
    *why = f.declines;
    if (f.native || f.declines != NULL)
        return NULL;
    EBB_TRY(b.status);
    for (uint32_t k = 0; k < f.output_count; k++)
        if (!f.wants[k] && ebb_out(g, n, k).i != 0)
            EBB_TRY(ebb_node_set_output(g, n, k, EBB_NO_VALUE));
    *done = true;
    return ebb_body_stand_in(e, n, f.y, f.output_count, before);
}

/* ---- what rules ask ---- */

bool ebb_foreign_ranked(const ebb_build *b, ebb_foreign *f, uint32_t input, ebb_type *type)
{
    if (b->status != NULL || f->declines != NULL)
        return false;
    if (ebb_foreign_declines(f, input >= f->input_count || f->x[input].i == 0,
                             "an input that it needs is missing"))
        return false;
    *type = *ebb_build_type(b, f->x[input]);
    if (type->rank < 0 || type->dtype == EBB_NONE)
        f->declines = "the shape of its input is not known";
    return f->declines == NULL;
}

bool ebb_foreign_declines(ebb_foreign *f, bool so, const char *why)
{
    if (so)
        f->declines = why;
    return so;
}

void ebb_foreign_refuse(ebb_build *b, const ebb_foreign *f, ebb_code code, const char *why)
{
    ebb_build_fail(b, ebb_error(code, "%s: %s", ebb_node_label(b->g, f->node), why));
}

uint32_t ebb_foreign_wanted(const ebb_foreign *f)
{
    uint32_t wanted = 0;
    for (uint32_t k = 0; k < EBB_DIALECT_OUTPUTS; k++)
        wanted |= f->wants[k] ? UINT32_C(1) << k : 0;
    return wanted;
}

bool ebb_foreign_scalar(const ebb_build *b, ebb_foreign *f, uint32_t input, double otherwise,
                        double *x)
{
    *x = otherwise;
    if (input < f->input_count && f->x[input].i != 0 && !ebb_scalar_of(b->g, f->x[input], x))
        f->declines = "a number among its inputs is not constant";
    return f->declines == NULL;
}

void ebb_foreign_grad(ebb_build *b, ebb_foreign *f, ebb_op op, ebb_node forward, const ebb_value *x,
                      uint32_t count, ebb_value y, ebb_value dy)
{
    bool wants[EBB_DIALECT_OUTPUTS] = {false};
    if (b->status != NULL)
        return;
    for (uint32_t k = 0; k < f->output_count; k++)
        wants[k] = f->wants[k];
    ebb_grad c = {.node = forward,
                  .input_count = count,
                  .output_count = 1,
                  .x = x,
                  .y = &y,
                  .dy = &dy,
                  .wants = wants,
                  .dx = f->y,
                  .attrs = ebb_node_attrs(b->g, forward)};
    ebb_grad_rule(b, op, &c);
}

void ebb_with_foreign_list(ebb_build *b, const ebb_foreign *f, const char *const *names)
{
    for (; *names != NULL; names++) {
        const ebb_attr *a = ebb_attr_find(&f->attrs, *names);
        const int type = a != NULL ? (int)a->type : -1;
        if (type == EBB_ATTR_INT)
            ebb_with_int(b, *names, a->i);
        if (type == EBB_ATTR_FLOAT)
            ebb_with_float(b, *names, a->f);
        if (type == EBB_ATTR_STRING)
            ebb_with_string(b, *names, a->s);
        if (type == EBB_ATTR_INTS)
            ebb_with_ints(b, *names, a->ints, a->count);
    }
}

void ebb_foreign_name(ebb_build *b, const ebb_foreign *f)
{
    if (b->status != NULL)
        return;
    ebb_keep_name(b->g, b->last, f->node);
    ebb_status status = ebb_noted_keep(b->g, b->last, f->node);
    if (status != NULL)
        ebb_build_fail(b, status);
}

/* ---- formulas ---- */

ebb_value ebb_emit_between(ebb_build *b, ebb_value x, int64_t axis, int64_t from, int64_t to)
{
    return ebb_emit_part(b, x, (int)axis, from, to - from);
}

ebb_value ebb_emit_shaped(ebb_build *b, ebb_value x, const int64_t *dims, uint32_t count)
{
    return ebb_emit(b, EBB_OP_RESHAPE, x, ebb_const_ints(b, dims, count));
}

ebb_value ebb_emit_joined(ebb_build *b, ebb_value first, ebb_value second, int64_t axis)
{
    ebb_with_int(b, "axis", axis);
    return ebb_emit(b, EBB_OP_CONCAT, first, second);
}

ebb_value ebb_emit_counting(ebb_build *b, ebb_foreign *f, int64_t count)
{
    int64_t *list = NULL;
    if (count >= 0 && count <= EBB_DIALECT_COUNTED)
        list = EBB_NEW(f->scratch, int64_t, (size_t)count + 1);
    if (!ebb_build_got(b, list))
        return EBB_NO_VALUE;
    for (int64_t i = 0; i < count; i++)
        list[i] = i;
    return ebb_const_ints(b, list, (uint32_t)count);
}

ebb_value ebb_emit_levels(ebb_build *b, ebb_value scales, int64_t bits, const double *list)
{
    double itself[256];
    const int64_t count = (int64_t)1 << bits;
    const bool wide = ebb_build_type(b, scales)->dtype == EBB_F64;
    for (int i = 0; i < count; i++)
        itself[i] = i;
    return ebb_const_floats(b, wide ? EBB_F64 : EBB_F32, 1, &count, list != NULL ? list : itself);
}

ebb_value ebb_emit_code(ebb_build *b, uint8_t byte)
{
    const ebb_type type = ebb_type_tensor(EBB_U8, 2, (const int64_t[]){1, 1});
    return ebb_const_tensor(b, &type, &byte);
}

ebb_value ebb_emit_middle(ebb_build *b, int64_t bits)
{
    return ebb_emit_code(b, bits == 2 ? 0xAA : bits == 4 ? 0x88 : 0x80);
}

ebb_value ebb_emit_plus(ebb_build *b, ebb_value x, ebb_value y)
{
    return y.i != 0 ? ebb_emit(b, EBB_OP_ADD, x, y) : x;
}
