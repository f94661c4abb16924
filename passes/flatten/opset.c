/* opset: operators of older opsets get the form that they have in opset 17.
 *
 *   before   opset 9:    y = Clip <min = 0.0, max = 6.0> (x)      z = Upsample <mode = "nearest"> (y, s)
 *   after    opset 17:   y = Clip (x, zero, six)                  z = Resize <mode = "nearest", ...>
 *                                                                     (y, , s)
 *
 * A training step holds operators that no older opset has (SoftmaxCrossEntropyLoss is of 12), and
 * the bodies of ours are written in opset 17: checkers and runtimes read the step only where the
 * whole model is of that opset. And behind this pass no other need know of older forms.
 *
 * What changed is in opset.def. A model has one opset, so that all of its nodes are brought along,
 * those in bodies and functions too, or none. Types are inferred on the way: in a model of an older
 * opset there are nodes of which nothing is known.
 *
 * Exact: the same operators on the same operands.
 */
#include "onnx/graph/infer.h"
#include "passes/flatten/calls.h"
#include "passes/common.h"

enum { OLDEST = 7, TARGET = 17 }; // before opset 7 Add and others broadcast in another way

typedef struct site {
    ebb_edit *e;
    ebb_build *b;
    ebb_node n;
    bool gone; /* to set: the node has been replaced */
} site;

typedef enum form { MOVED, CHANGED, REFUSED } form;
typedef enum as { INTS, FLOATS, FLOAT, NUMBER } as;

static ebb_status change_spatial(site *s);
static ebb_status change_statistics(site *s);
static ebb_status change_mask(site *s);
static ebb_status change_flat(site *s);
static ebb_status change_resize(site *s);
static ebb_status change_absences(site *s);
static ebb_status change_regions(site *s);
static ebb_status change_scatter(site *s);

static const struct row {
    const char *op;
    int below;
    form form;
    const char *attr;
    uint32_t input;
    as as;
    ebb_status (*rule)(site *s);
    const char *why;
} rows[] = {
#define EBB_MOVED(op, below, attr, input, as) {#op, below, MOVED, attr, input, as, NULL, NULL},
#define EBB_CHANGED(op, below, rule) {#op, below, CHANGED, NULL, 0, INTS, change_##rule, NULL},
#define EBB_REFUSED(op, below, why) {#op, below, REFUSED, NULL, 0, INTS, NULL, why},
#include "passes/flatten/opset.def"
#undef EBB_MOVED
#undef EBB_CHANGED
#undef EBB_REFUSED
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static bool is_standard(const ebb_graph *g, const ebb_node_info *info)
{
    return ebb_calls_same_domain(ebb_text(g, info->domain), EBB_DOMAIN_ONNX);
}

static bool concerns(const struct row *row, const ebb_graph *g, const ebb_node_info *info,
                     int64_t from)
{
    return from < row->below && is_standard(g, info) &&
           strcmp(row->op, ebb_text(g, info->op_name)) == 0;
}

/* ---- constants ---- */

/* A function has no initializers, and knows no types. */
static bool in_function(const ebb_graph *g)
{
    return g->outer == NULL && g != g->model->graph;
}

static ebb_value ints_constant(ebb_build *b, const int64_t *list, uint32_t count)
{
    if (!in_function(b->g))
        return ebb_const_ints(b, list, count);
    ebb_with_ints(b, "value_ints", list, count);
    return ebb_emit_list(b, EBB_OP_CONSTANT, NULL, 0);
}

static ebb_value floats_constant(ebb_build *b, const float *list, uint32_t count)
{
    if (in_function(b->g)) {
        ebb_with_floats(b, "value_floats", list, count);
        return ebb_emit_list(b, EBB_OP_CONSTANT, NULL, 0);
    }
    const int64_t dims[1] = {count};
    ebb_type type = ebb_type_tensor(EBB_F32, 1, dims);
    return ebb_const_tensor(b, &type, list);
}

/* A lone number; of like's dtype where one is given. */
static ebb_value number_constant(ebb_build *b, double x, ebb_value like)
{
    const ebb_type *type = like.i != 0 ? ebb_build_type(b, like) : NULL;
    const bool known = type != NULL && type->kind == EBB_KIND_TENSOR && type->dtype != EBB_NONE;
    if (!in_function(b->g) && (like.i == 0 || known))
        return ebb_const_scalar(b, known ? (ebb_dtype)type->dtype : EBB_F32, x);
    ebb_with_float(b, "value_float", x);
    ebb_value number = ebb_emit_list(b, EBB_OP_CONSTANT, NULL, 0);
    return like.i != 0 ? ebb_emit(b, EBB_OP_CAST_LIKE, number, like) : number;
}

/* ---- an attribute becomes an input ---- */

static ebb_status move(site *s, const struct row *row)
{
    ebb_graph *g = s->e->g;
    ebb_attrs attrs = ebb_node_attrs(g, s->n);
    const ebb_attr *attr = ebb_attr_find(&attrs, row->attr);
    const ebb_value x = ebb_in(g, s->n, 0);
    ebb_value given = EBB_NO_VALUE;
    if (attr == NULL)
        return NULL;
    if (row->as == INTS)
        given = attr->type == EBB_ATTR_INT ? ints_constant(s->b, &attr->i, 1)
                                           : ints_constant(s->b, attr->ints, attr->count);
    else if (row->as == FLOATS)
        given = floats_constant(s->b, attr->floats, attr->count);
    else
        given = number_constant(s->b, attr->f, row->as == NUMBER ? x : EBB_NO_VALUE);
    EBB_TRY(s->b->status);
    EBB_TRY(ebb_node_drop_attr(g, s->n, row->attr));
    return ebb_node_set_input(g, s->n, row->input, given);
}

/* ---- more than that ---- */

/* `made` takes the place of the node's output, and of the node. */
static ebb_status stand_in(site *s, ebb_node named, ebb_value made)
{
    EBB_TRY(s->b->status);
    ebb_keep_name(s->e->g, named, s->n);
    EBB_TRY(ebb_edit_swap(s->e, s->n, made));
    s->gone = true;
    return NULL;
}

/* With spatial = 0 scale, bias and statistics have a number for each element of a sample: where a
 * sample is a row that is the same thing; else it is arithmetic that broadcasts over the batch. */
static ebb_status change_spatial(site *s)
{
    ebb_graph *g = s->e->g;
    ebb_build *b = s->b;
    ebb_attrs attrs = ebb_node_attrs(g, s->n);
    const ebb_value x = ebb_in(g, s->n, 0);
    const int rank = ebb_value_of(g, x)->type->rank;
    if (ebb_attr_int(&attrs, "spatial", 1) != 0 || (rank >= 0 && rank <= 2)) {
        EBB_TRY(ebb_node_drop_attr(g, s->n, "spatial"));
        return NULL;
    }
    const ebb_value variance = ebb_in(g, s->n, 4);
    ebb_value epsilon = number_constant(b, ebb_attr_float(&attrs, "epsilon", 1e-5), variance);
    ebb_value deviation = ebb_emit(b, EBB_OP_SQRT, ebb_emit(b, EBB_OP_ADD, variance, epsilon));
    ebb_value centred = ebb_emit(b, EBB_OP_SUB, x, ebb_in(g, s->n, 3));
    ebb_value unit = ebb_emit(b, EBB_OP_DIV, centred, deviation);
    ebb_value scaled = ebb_emit(b, EBB_OP_MUL, unit, ebb_in(g, s->n, 1));
    ebb_value y = ebb_emit(b, EBB_OP_ADD, scaled, ebb_in(g, s->n, 2));
    return stand_in(s, b->last, y);
}

/* Outputs beyond the first meant training; those that were kept for a backward are no more. */
static ebb_status change_statistics(site *s)
{
    ebb_graph *g = s->e->g;
    if (ebb_node_of(g, s->n)->out_count <= 1)
        return NULL;
    for (uint32_t k = ebb_node_of(g, s->n)->out_count; k-- > 3;)
        EBB_TRY(ebb_node_set_output(g, s->n, k, EBB_NO_VALUE));
    return ebb_node_set_int(g, s->n, "training_mode", 1);
}

static ebb_status change_mask(site *s)
{
    ebb_graph *g = s->e->g;
    const ebb_value x = ebb_in(g, s->n, 0), mask = ebb_out(g, s->n, 1);
    if (!ebb_value_is_read(g, mask))
        return ebb_node_set_output(g, s->n, 1, EBB_NO_VALUE);
    ebb_value bools;
    ebb_type type = *ebb_value_of(g, mask)->type;
    type.dtype = EBB_BOOL;
    EBB_TRY(ebb_value_add(g, &bools, NULL, &type));
    EBB_TRY(ebb_node_set_output(g, s->n, 1, bools));
    ebb_build after = ebb_edit_build(s->e, ebb_next(g, s->n), EBB_PHASE_NONE);
    after.phase = (ebb_phase)ebb_node_of(g, s->n)->phase;
    ebb_value numbers = ebb_emit(&after, EBB_OP_CAST_LIKE, bools, x);
    EBB_TRY(after.status);
    return ebb_edit_replace(s->e, mask, numbers);
}

/* y = Softmax(x) over all axes from `axis` on: over the rows of a matrix, where that is more than
 * the last one. */
static ebb_status change_flat(site *s)
{
    ebb_graph *g = s->e->g;
    ebb_build *b = s->b;
    ebb_attrs attrs = ebb_node_attrs(g, s->n);
    const ebb_value x = ebb_in(g, s->n, 0);
    const int rank = ebb_value_of(g, x)->type->rank;
    const int64_t axis = ebb_attr_int(&attrs, "axis", 1);
    const ebb_op op = ebb_op_find("", ebb_text(g, ebb_node_of(g, s->n)->op_name), TARGET);
    if (axis == -1 || (rank >= 0 && axis == rank - 1))
        return ebb_node_set_int(g, s->n, "axis", -1);
    ebb_value shape = ebb_emit(b, EBB_OP_SHAPE, x);
    ebb_with_int(b, "axis", axis);
    ebb_value rows_of_x = ebb_emit(b, EBB_OP_FLATTEN, x);
    ebb_with_int(b, "axis", -1);
    ebb_value matrix = ebb_emit(b, op, rows_of_x);
    ebb_node named = b->last;
    return stand_in(s, named, ebb_emit(b, EBB_OP_RESHAPE, matrix, shape));
}

/* (X, scales) of Upsample and of Resize before 11. */
static ebb_status change_resize(site *s)
{
    ebb_graph *g = s->e->g;
    const ebb_value scales = ebb_in(g, s->n, 1);
    EBB_TRY(ebb_node_set_input(g, s->n, 2, scales));
    EBB_TRY(ebb_node_set_input(g, s->n, 1, EBB_NO_VALUE));
    EBB_TRY(ebb_node_set_op(g, s->n, EBB_OP_RESIZE));
    EBB_TRY(ebb_node_set_string(g, s->n, "coordinate_transformation_mode", "asymmetric"));
    return ebb_node_set_string(g, s->n, "nearest_mode", "floor");
}

static ebb_status change_absences(site *s)
{
    ebb_graph *g = s->e->g;
    for (uint32_t i = 1; i <= 2; i++) {
        const ebb_value v = ebb_in(g, s->n, i);
        int64_t elements;
        if (v.i != 0 && ebb_type_elements(ebb_value_of(g, v)->type, &elements) && elements == 0)
            EBB_TRY(ebb_node_set_input(g, s->n, i, EBB_NO_VALUE));
    }
    return NULL;
}

static ebb_status change_regions(site *s)
{
    return ebb_node_set_string(s->e->g, s->n, "coordinate_transformation_mode",
                               "output_half_pixel");
}

static ebb_status change_scatter(site *s)
{
    return ebb_node_set_op(s->e->g, s->n, EBB_OP_SCATTER_ELEMENTS);
}

/* ---- a graph, with its bodies ---- */

/* Why a node, or one in its bodies, cannot be brought along; NULL: it can. */
static const char *refuses(const ebb_graph *g, int64_t from, ebb_node *which)
{
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        const char *why = NULL;
        for (size_t r = 0; r < ROWS; r++) {
            if (!concerns(&rows[r], g, info, from))
                continue;
            why = rows[r].form == REFUSED ? rows[r].why : why;
            for (uint32_t i = 0; i < info->attr_count; i++)
                if (info->attr[i].ref != NULL)
                    why = "it asks for its function's attributes";
            if (rows[r].rule == change_statistics)
                for (uint32_t k = 3; k < info->out_count; k++)
                    if (ebb_value_is_read(g, info->out[k]))
                        why = "its saved statistics are read, which opset 14 has no more";
        }
        EBB_EACH_BODY(info, body)
            if (why == NULL)
                why = refuses(*body, from, which);
        if (why != NULL) {
            *which = g->outer == NULL ? n : *which;
            return why;
        }
    }
    return NULL;
}

static ebb_status raise_node(ebb_edit *e, ebb_node n, int64_t from)
{
    ebb_graph *g = e->g;
    const char *name = ebb_text(g, ebb_node_of(g, n)->name);
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = name[0] != '\0' ? name : NULL;
    site s = {.e = e, .b = &b, .n = n};
    bool changed = false;
    for (size_t r = 0; r < ROWS && !s.gone; r++) {
        if (!concerns(&rows[r], g, ebb_node_of(g, n), from))
            continue;
        EBB_TRY(rows[r].form == MOVED ? move(&s, &rows[r]) : rows[r].rule(&s));
        changed = true;
    }
    if (changed) {
        ebb_found(e);
        ebb_applied(e);
    }
    if (s.gone)
        return NULL;
    const ebb_op now = ebb_op_find("", ebb_text(g, ebb_node_of(g, n)->op_name), TARGET);
    if (is_standard(g, ebb_node_of(g, n)) && now != ebb_node_of(g, n)->op && now != EBB_OP_UNKNOWN)
        EBB_TRY(ebb_node_set_op(g, n, now));
    return ebb_infer_node(g, n);
}

static ebb_status raise_graph(ebb_edit *e, ebb_graph *g, int64_t from)
{
    for (ebb_node n = ebb_first(g), next; n.i != 0; n = next) {
        next = ebb_next(g, n);
        EBB_EACH_BODY(ebb_node_of(g, n), body)
            EBB_TRY(raise_graph(e, *body, from));
        e->g = g;
        EBB_TRY(raise_node(e, n, from));
    }
    return NULL;
}

/* ---- the model ---- */

static ebb_import *import_of(const ebb_model *m, ebb_import *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ebb_calls_same_domain(ebb_names_text(&m->names, list[i].domain), EBB_DOMAIN_ONNX))
            return &list[i];
    return NULL;
}

static bool is_old(const ebb_import *import)
{
    return import != NULL && import->version < TARGET;
}

static ebb_status raise_all(ebb_edit *e)
{
    ebb_graph *g = e->g;
    ebb_model *m = g->model;
    ebb_import *ours = import_of(m, m->imports, m->import_count);
    const int64_t from = ours->version;
    ours->version = TARGET;
    ebb_status status = raise_graph(e, g, from);
    for (size_t i = 0; status == NULL && i < m->function_count; i++) {
        ebb_function *f = &m->functions[i];
        ebb_import *theirs = import_of(m, f->imports, f->import_count);
        if (!is_old(theirs))
            continue;
        const int64_t was = theirs->version;
        theirs->version = TARGET;
        f->origin = NULL; // what the file says of its imports holds no more
        status = raise_graph(e, f->body, was);
    }
    e->g = g;
    EBB_TRY(status);
    ebb_captures_mark(g);
    return ebb_note(e, "the model is of opset %d now, not %lld", (int)TARGET, (long long)from);
}

static ebb_status run(ebb_edit *e)
{
    ebb_model *m = e->g->model;
    ebb_import *ours = import_of(m, m->imports, m->import_count);
    ebb_node which = EBB_NO_NODE;
    if (!is_old(ours))
        return NULL;
    const char *why = ours->version < OLDEST ? "operators broadcast in another way before opset 7"
                                             : refuses(e->g, ours->version, &which);
    for (size_t i = 0; why == NULL && i < m->function_count; i++) {
        const ebb_function *f = &m->functions[i];
        const ebb_import *theirs = import_of(m, f->imports, f->import_count);
        if (is_old(theirs))
            why = refuses(f->body, theirs->version, &(ebb_node){0});
    }
    return why != NULL ? ebb_declined(e, which, why) : raise_all(e);
}

const ebb_pass ebb_pass_opset = {
    .name = "opset",
    .doc = "bring operators of older opsets to their form in opset 17",
    .exactness = EBB_EXACT,
    .run = run,
};
