/* code_sites.c: which saved tensors bear to be coded, by what reads them. */
#include "passes/memory/lossy/code_sites.h"

#include "exec/weigh/estimate.h"
#include "passes/memory/sign.h"

#include <math.h>

typedef enum reading { /* how a reader takes an error of what it reads */
                       READS_LINEAR,
                       READS_SMOOTH,   /* through a bounded function */
                       READS_EXPONENT, /* scores of attention: few bits would blow up */
                       READS_SIGN,
                       LETS_GO,       /* computes without it: a sum of dY Y bears no error of Y */
                       READS_EXACTLY, /* does not bear any */
} reading;

/* ---- readers ---- */

/* A leaky ReLU that is undone asks for the sign of each element, too, and an ELU for a logarithm,
 * of 0 where a code rounds down to its least value. */
static bool undoes_activation(const ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    return ebb_attr_float(&attrs, "slope", 1) != 1 || ebb_attr_float(&attrs, "elu", 0) != 0;
}

static reading reading_of(const ebb_graph *g, ebb_use use)
{
    ebb_sign_question q;
    switch (ebb_op_reads(ebb_node_of(g, use.node)->op, use.slot)) {
    case 'L':
        return READS_LINEAR;
    case 'S':
        return undoes_activation(g, use.node) ? READS_EXACTLY : READS_SMOOTH;
    case 'E':
        return READS_EXPONENT;
    case 'G':
        return LETS_GO;
    default:
        return ebb_asks_sign(g, use, &q) ? READS_SIGN : READS_EXACTLY;
    }
}

/* ---- sites ---- */

/* Means, variances, normalisers: few numbers on which many depend. */
static bool is_statistic(const ebb_graph *g, ebb_value v)
{
    ebb_node maker = ebb_value_of(g, v)->producer;
    if (maker.i == 0 || ebb_value_of(g, v)->producer_slot == 0)
        return false;
    ebb_op op = ebb_node_of(g, maker)->op;
    return op != EBB_OP_SPLIT && op != EBB_OP_RNN && op != EBB_OP_GRU && op != EBB_OP_LSTM &&
           op != EBB_OP_LSTM_TRAINING;
}

static bool is_of_loss(const ebb_graph *g, ebb_value v)
{
    ebb_node maker = ebb_value_of(g, v)->producer;
    return maker.i != 0 && ebb_node_of(g, maker)->phase == EBB_LOSS;
}

/* Readers, and bytes of masks. */
static void look(ebb_code_site *p, const ebb_graph *g)
{
    uint32_t signs = 0, masks = 0, others = 0;
    ebb_sign_question q, seen[2];
    for (uint32_t i = 0; i < p->count; i++) {
        reading how = reading_of(g, p->reads[i]);
        if (how == READS_EXACTLY)
            p->refused = "the backward reads it in a way that bears no error";
        p->exponent = p->exponent || how == READS_EXPONENT;
        others += how == LETS_GO;
        if (how != READS_SIGN)
            continue;
        signs++;
        (void)ebb_asks_sign(g, p->reads[i], &q);
        bool known = false;
        for (uint32_t k = 0; k < masks && k < 2; k++)
            known = known || (seen[k].low == q.low && seen[k].high == q.high);
        if (!known && masks < 2)
            seen[masks] = q;
        masks += !known;
    }
    if (p->refused == NULL && signs + others == p->count)
        p->refused = "the backward asks only its sign, for which sign-mask keeps a bit";
    p->masks = (int64_t)masks * ebb_stored_bits(p->elements, 1);
}

/* A parameter in another order, in another dtype, or with zeros beside it. */
static bool is_weight(const ebb_graph *g, ebb_value v)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    while (n.i != 0 &&
           (ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) ||
            ebb_node_of(g, n)->op == EBB_OP_TRANSPOSE || ebb_node_of(g, n)->op == EBB_OP_PAD ||
            ebb_node_of(g, n)->op == EBB_OP_CAST)) {
        v = ebb_in(g, n, 0);
        n = ebb_value_of(g, v)->producer;
    }
    return (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0;
}

static bool is_saved_float(const ebb_code_sites *s, const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    uint32_t count;
    (void)ebb_reads_of(&s->reads, v, &count);
    return count > 0 && ebb_same_value(s->reads.saves.root[v.i], v) &&
           s->reads.saves.forward[v.i] && (info->flags & EBB_IS_INITIALIZER) == 0 &&
           ebb_value_constant(g, v) == NULL && !is_weight(g, v) &&
           info->type->kind == EBB_KIND_TENSOR &&
           ebb_dtype_is_float((ebb_dtype)info->type->dtype) && !is_statistic(g, v);
}

static void add_site(ebb_code_sites *s, const ebb_graph *g, ebb_value v, const char *only)
{
    ebb_code_site p = {.root = v};
    if (!is_saved_float(s, g, v) || (only != NULL && !ebb_glob(only, ebb_value_name(g, v))))
        return;
    p.reads = ebb_reads_of(&s->reads, v, &p.count);
    ebb_node maker = ebb_value_of(g, v)->producer;
    p.node = maker.i != 0 ? maker : p.reads[0].node;
    p.refused = ebb_must_stay(&s->reads, v);
    p.bytes = ebb_stored_bytes(g, v);
    if (p.refused == NULL && is_of_loss(g, v))
        p.refused = "it is the loss's own";
    if (!ebb_type_elements(ebb_value_of(g, v)->type, &p.elements) || p.elements == 0 ||
        p.bytes == 0) {
        p.elements = 0;
        p.refused = "its size is not known";
    }
    if (p.refused == NULL)
        look(&p, g);
    s->list[s->count++] = p;
}

ebb_status ebb_code_sites_find(ebb_code_sites *s, ebb_edit *e, const char *only)
{
    const ebb_graph *g = e->g;
    *s = (ebb_code_sites){.count = 0};
    EBB_TRY(ebb_reads_find(&s->reads, g, e->scratch));
    s->list = EBB_SCRATCH(e, ebb_code_site, g->value_count);
    EBB_GOT(s->list);
    for (size_t i = 0; i < g->input_count; i++)
        add_site(s, g, g->inputs[i], only);
    EBB_EACH_NODE(g, n)
        for (uint32_t k = 0; k < ebb_node_of(g, n)->out_count; k++)
            if (ebb_out(g, n, k).i != 0)
                add_site(s, g, ebb_out(g, n, k), only);
    return NULL;
}

ebb_status ebb_code_site_decode(ebb_edit *e, const ebb_code_site *p, ebb_decode_fn decode,
                                void *context)
{
    for (uint32_t i = 0; i < p->count; i++) {
        ebb_sign_question q;
        ebb_value read = ebb_in(e->g, p->reads[i].node, p->reads[i].slot);
        if (reading_of(e->g, p->reads[i]) == READS_SIGN) {
            (void)ebb_asks_sign(e->g, p->reads[i], &q);
            q.v = p->root;
            EBB_TRY(ebb_sign_mask(e, &q));
        } else if (reading_of(e->g, p->reads[i]) == LETS_GO) {
            EBB_TRY(ebb_node_set_input(e->g, p->reads[i].node, p->reads[i].slot, EBB_NO_VALUE));
        } else if (!ebb_op_has(ebb_producer_op(e->g, read), EBB_DECODES)) // the other operand's
            EBB_TRY(ebb_decode_before(e, p->reads[i], decode, context));
    }
    ebb_applied(e);
    return NULL;
}

bool ebb_code_rows(const ebb_type *type, int *axis, int64_t *rows)
{
    *rows = 1;
    *axis = 0;
    while (*axis < type->rank && *rows == 1)
        *rows = type->dims[(*axis)++];
    if (*axis < type->rank)
        return true;
    *axis = 0;
    *rows = 1;
    return false;
}

double ebb_code_error(int bits)
{
    return 5.66 / ((double)((1 << bits) - 1) * sqrt(6.0));
}

/* A draw of sixteen bits, a range and a code take 1.16 ns of one core, decoding 0.2 to 0.6; the
 * roofline's machine does 50 operations in a nanosecond of one. */
static const double flops_per_code = 58, flops_per_decode = 20;

double ebb_code_ns(const ebb_graph *g, int64_t elements, int64_t bytes, int64_t codes,
                   uint32_t readers)
{
    double n = (double)elements, moved = (double)bytes + (double)codes;
    return ebb_roofline_ns(g, flops_per_code * n, moved) +
           readers * ebb_roofline_ns(g, flops_per_decode * n, moved);
}
