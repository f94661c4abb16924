/* merged.c: initializers that an exporter made one because their values were equal.
 *
 *   before   b1 = BatchNormalization(x, one, zero, zero, one)      all scales and variances are 1 and
 *            b2 = BatchNormalization(y, one, zero, zero, one)      all biases and means 0 in fresh layers
 *   after    b1 = BatchNormalization(x, one, zero, b1.mean, b1.var)
 *            b2 = BatchNormalization(y, b2.scale, b2.bias, b2.mean, b2.var)
 *
 * Trained as they are, the running variance would be written into the scale, and one gradient would
 * move the scales of all layers. Three signs tell uses apart:
 *
 *   role    a running statistic is no weight, and neither is a scale, bound or size
 *   name    the TorchScript exporter leaves Identity(b1.weight) -> b2.weight behind
 *   source  the dynamo exporter notes at a node the parameters of the call that it stands for:
 *           "aten.batch_norm.default(args = (%x, %p_b2_weight, ...))"
 *
 * Fresh layers have more in common than ones and zeros where one was copied of another, by copy.deepcopy as
 * nn.TransformerEncoder does. Parameters that are tied on purpose have one name in both exporters' files.
 */
#include "passes/mended/merged.h"

#include "passes/common.h"
#include "passes/mended/absorbed.h"
#include "passes/parameters/noted.h"
#include "passes/mended/copied.h"
#include "passes/mended/detached.h"
#include "passes/mended/dropped.h"
#include "passes/mended/iterated.h"
#include "passes/mended/looked_up.h"
#include "passes/mended/merged_names.h"
#include "passes/mended/unfolded.h"
#include "passes/mended/zeros.h"
#include "passes/parameters/slots.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/weights.h"

/* ---- copies ---- */

static ebb_status copy_draw(ebb_graph *g, ebb_value from, ebb_value to)
{
    ebb_model *m = g->model;
    ebb_str name = ebb_value_of(g, from)->name;
    for (size_t i = 0; i < m->init_binding_count; i++)
        if (m->init_bindings[i].state.i == name.i)
            return ebb_draw_also(m, ebb_value_of(g, to)->name, m->init_bindings[i].value);
    return NULL;
}

ebb_status ebb_initializer_copy(ebb_graph *g, ebb_value from, const char *name, ebb_value *copy)
{
    ebb_type type = *ebb_value_of(g, from)->type;
    const ebb_tensor *t = ebb_value_of(g, from)->tensor;
    uint8_t role = ebb_value_of(g, from)->role;
    EBB_TRY(ebb_graph_add_initializer(g, copy, name, &type, NULL, (ebb_role)role));
    EBB_TRY(ebb_value_point(g, *copy, t->data)); // nobody writes there: states are a program's
    EBB_TRY(ebb_props_set_all(g, &ebb_value_of(g, *copy)->props, g, &ebb_value_of(g, from)->props));
    return copy_draw(g, from, *copy);
}

/* ---- whose parameter a use reads, by the exporter's note at the node ---- */

static const char *only_one_that_ends_in(const ebb_noted *s, const char *end)
{
    const char *found = NULL;
    for (int i = 0; i < s->count; i++) {
        if (!ebb_ends_in(s->name[i], end))
            continue;
        if (found != NULL)
            return NULL;
        found = s->name[i];
    }
    return found;
}

bool ebb_is_own_slot(const ebb_graph *g, ebb_use use)
{
    ebb_op op = ebb_node_of(g, use.node)->op;
    char slot = ebb_op_slot(op, use.slot);
    return slot == 'O' || slot == 'R' || op == EBB_OP_ADD;
}

/* Where one call has one such operand, which is its own. */
static bool is_own(const ebb_graph *g, ebb_use use)
{
    ebb_op op = ebb_node_of(g, use.node)->op;
    return ebb_is_own_slot(g, use) || op == EBB_OP_MUL || (op == EBB_OP_PRELU && use.slot == 1);
}

/* Takes away the parameter that another operand of the node is, with numbers of its own. */
static void leave_others_out(ebb_noted *s, const ebb_graph *g, ebb_node n)
{
    for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
        const ebb_value v = ebb_in(g, n, i);
        const ebb_tensor *t = v.i != 0 ? ebb_value_of(g, v)->tensor : NULL;
        const char *name = t != NULL && !ebb_tensor_is_uniform(t)
                               ? ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_NAME)
                               : NULL;
        for (int k = 0; name != NULL && k < s->count; k++)
            if (strcmp(s->name[k], name) == 0)
                memmove(s->name[k], s->name[k + 1], (size_t)(--s->count - k) * sizeof s->name[k]);
    }
}

/* Which of them this operand is; NULL: they do not tell. own: that of the initializer, or "". */
static const char *source_of(const ebb_noted *s, const ebb_graph *g, ebb_use use, const char *own)
{
    ebb_op op = ebb_node_of(g, use.node)->op;
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->name[i], own) == 0)
            return s->name[i];
    if (!is_own(g, use))
        return NULL;
    if (ebb_slot_of(op, use.slot) == EBB_SLOT_STATISTIC)
        return only_one_that_ends_in(s, use.slot == 3 ? "_running_mean" : "_running_var");
    const bool bias = use.slot == 2 || op == EBB_OP_ADD;
    if (s->count == 1) // of a norm without a bias the zeros in its place are none
        return ebb_ends_in(s->name[0], bias ? "_weight" : "_bias") ? NULL : s->name[0];
    return only_one_that_ends_in(s, bias ? "_bias" : "_weight");
}

/* ---- uses that the file tells apart ---- */

/* What a use reads: a parameter, or what folding made, by its source; a statistic of that node and slot; a scale or
 * bound; or, all zero, what the file does not tell apart. */
typedef struct key {
    ebb_str source;
    ebb_node statistic;
    uint32_t slot;
    bool constant;
    /* the source is a call that folding took away, and the initializer a parameter */
    bool computed;
} key;

typedef struct merged { /* what is known of an initializer */
    key keeper;         /* who reads the initializer itself from now on */
    key plain;          /* the first that is no scale or bound */
    int score;          /* of the keeper, from 1 on */
    bool is_plain;      /* there is such a one */
    bool parts;         /* and another one than that */
    bool constant;      /* it is a scale or bound, too */
    bool untold;        /* numbers of its own, and the file does not tell who else reads it */
} merged;

typedef struct parting {
    ebb_graph *g;
    ebb_arena *scratch;
    merged *list;      /* by value id */
    ebb_value *copies; /* by the id of a source: the copy that was made for it */
    size_t value_count, source_count;
    ebb_noted sources; /* of the node that was looked at last */
    ebb_noted_losses losses;
    ebb_noted_calls calls;
    bool *gone; /* of losses.all: the file has no initializer of that name */
} parting;

static bool same_key(const key *a, const key *b)
{
    return a->source.i == b->source.i && ebb_same_node(a->statistic, b->statistic) &&
           a->slot == b->slot && a->constant == b->constant;
}

static bool is_fixed(ebb_slot slot)
{
    return slot == EBB_SLOT_SIZE || slot == EBB_SLOT_SCALE || slot == EBB_SLOT_BOUND;
}

bool ebb_may_be_merged(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return v.i != 0 && info->tensor != NULL && (info->flags & EBB_IS_INITIALIZER) != 0 &&
           (info->role == EBB_ROLE_NONE || info->role == EBB_ROLE_PARAMETER ||
            info->role == EBB_ROLE_FROZEN || info->role == EBB_ROLE_STATISTIC) &&
           ebb_dtype_is_float((ebb_dtype)info->type->dtype);
}

/* A group norm becomes an instance norm with scales of 1, whose note names the parameters that a
 * product and a sum behind it read. */
static bool is_unit_scale(const ebb_graph *g, ebb_use use)
{
    const ebb_node_info *info = ebb_node_of(g, use.node);
    const char *call = ebb_props_get(g, &info->props, EBB_NOTED_CALL);
    return info->op == EBB_OP_INSTANCE_NORMALIZATION && call != NULL &&
           strstr(call, "group_norm") != NULL;
}

static bool is_of_two(const char *call)
{
    static const char calls[][24] = {"aten.mul.Tensor]", "aten.add.Tensor]", "aten.div.Tensor]",
                                     "aten.sub.Tensor]", "aten.pow.Tensor_Tensor]"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strstr(call, calls[i]) != NULL)
            return true;
    return false;
}

/* Arithmetic in the author's own text, of two tensors: the one that stood in this place, "add_11" of
 * "mul.Tensor](args = (%mul_12, %add_11)", where folding made the same of "add_6" and it. "addcmul" is one of
 * each: what is added, and two factors. */
static const char *operand_of(ebb_noted *s, const ebb_graph *g, ebb_use use)
{
    const char *call = ebb_props_get(g, &ebb_node_of(g, use.node)->props, EBB_NOTED_CALL);
    const ebb_op op = ebb_node_of(g, use.node)->op;
    ebb_noted_sources(s, g, use.node, "");
    if (call != NULL && s->count == 3 && strstr(call, "aten.addcmul.default]") != NULL)
        return op == EBB_OP_ADD && use.slot == 0  ? s->name[0]
               : op == EBB_OP_MUL && use.slot < 2 ? s->name[1 + use.slot]
                                                  : NULL;
    return call != NULL && s->count == 2 && use.slot < 2 && is_of_two(call) ? s->name[use.slot]
                                                                            : NULL;
}

/* The parameter that a layer takes as its weight or bias, by the order of its arguments where names do not tell. */
static const char *operand_of_layer(const ebb_noted *s, ebb_op op, uint32_t slot)
{
    const bool bias = slot == 2 || op == EBB_OP_ADD;
    if (op == EBB_OP_LSTM || op == EBB_OP_GRU ||
        op == EBB_OP_RNN) // of weights for input and state, and biases
        return slot - 1 < 3 && s->count > 2 ? s->name[slot - 1] : NULL;
    const char *found = only_one_that_ends_in(s, bias ? "_bias" : "_weight");
    if (found != NULL || s->count == 0 || s->count > 2)
        return found;
    found = s->name[bias ? s->count - 1 : 0];
    return ebb_ends_in(found, bias ? "_weight" : "_bias") ? NULL : found;
}

static bool is_of_layer(const ebb_graph *g, ebb_use use)
{
    const ebb_op op = ebb_node_of(g, use.node)->op;
    return op == EBB_OP_ADD ||
           (ebb_use_of(g, use) == EBB_SLOT_WEIGHT && (use.slot > 0 || op == EBB_OP_GATHER));
}

/* Of a parameter with numbers of its own: itself, or one of which the file has nothing else. */
static const char *source_of_copy(parting *m, ebb_use use, ebb_value v, const char *own)
{
    ebb_noted *s = &m->sources;
    const bool parameter = strncmp(own, "p_", 2) == 0 ||
                           ebb_noted_is_parameter(&m->losses, ebb_value_name(m->g, v)) ||
                           ebb_noted_fold_of(&m->losses, m->g, v) >= EBB_FOLD_OF_PARAMETERS;
    if (m->losses.all_count == 0 || !parameter)
        return NULL;
    ebb_noted_sources(s, m->g, use.node, "p_");
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->name[i], own) == 0)
            return s->name[i];
    const char *source = is_of_layer(m->g, use)
                             ? operand_of_layer(s, ebb_node_of(m->g, use.node)->op, use.slot)
                             : NULL;
    const ebb_noted_loss *p = source != NULL ? ebb_noted_parameter(&m->losses, source) : NULL;
    return p != NULL && m->gone[p - m->losses.all] ? source : NULL;
}

static bool is_parameter(const char *source)
{
    return strncmp(source, "p_", 2) == 0;
}

/* What reads a parameter of equal numbers by another name than its own does: the parameter, where it was only moved,
 * or a call that was computed before the run: a + 1e-9 of ones is ones again, and folding makes one of both, by the
 * name of a. NULL: neither. */
static const char *source_by_call(const parting *m, bool *computed, const char *operand,
                                  const char *own)
{
    if (!is_parameter(own) || ebb_noted_has(&m->calls, operand))
        return NULL;
    if (ebb_name_is_after(operand, "view reshape clone expand permute unsqueeze squeeze flatten"))
        return own;
    *computed = ebb_name_is_of_arithmetic(operand) ||
                ebb_name_is_after(operand, "add abs sin cos expm1 log1p");
    return *computed ? operand : NULL;
}

static ebb_status key_of(parting *m, key *k, ebb_use use, ebb_value v)
{
    ebb_graph *g = m->g;
    const ebb_value_info *info = ebb_value_of(g, v);
    bool statistic = ebb_use_of(g, use) == EBB_SLOT_STATISTIC;
    const char *own = ebb_props_get(g, &info->props, EBB_NOTED_NAME), *source = NULL;
    *k = (key){0};
    if (ebb_tensor_is_uniform(info->tensor) && !is_unit_scale(g, use)) {
        ebb_noted_sources(&m->sources, g, use.node, statistic ? "b_" : "p_");
        leave_others_out(&m->sources, g, use.node);
        source = source_of(&m->sources, g, use, own != NULL ? own : "");
        const char *operand = source == NULL ? operand_of(&m->sources, g, use) : NULL;
        if (operand != NULL && (ebb_noted_is_folded(g, v) || is_parameter(operand)))
            source = operand;
        else if (operand != NULL && own != NULL)
            source = source_by_call(m, &k->computed, operand, own);
    } else if (!ebb_tensor_is_uniform(info->tensor)) {
        source = source_of_copy(m, use, v, own != NULL ? own : "");
    }
    if (source != NULL && (k->source = ebb_graph_intern(g, source)).i == 0)
        return ebb_error_memory();
    if (source == NULL && statistic)
        *k = (key){.statistic = use.node, .slot = use.slot};
    k->constant = source == NULL && is_fixed(ebb_use_of(g, use));
    return NULL;
}

enum { OWN = 4 };

/* Who keeps the initializer: its own source, or what nobody tells apart, or a parameter, or the
 * first. */
static int score_of(const ebb_graph *g, ebb_value v, const key *k)
{
    const char *own = ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_NAME);
    const char *source = ebb_text(g, k->source);
    if (k->source.i != 0)
        return own != NULL && strcmp(source, own) == 0 ? OWN : is_parameter(source) ? 2 : 1;
    return k->statistic.i == 0 && !k->constant ? 3 : 1;
}

/* Of one with numbers of its own; ones and zeros that nobody tells apart are one by themselves. */
static bool is_untold(const ebb_graph *g, const key *k, ebb_value v)
{
    return k->source.i == 0 && k->statistic.i == 0 && !k->constant &&
           !ebb_tensor_is_uniform(ebb_value_of(g, v)->tensor);
}

static ebb_status look_at(parting *m, ebb_use use, ebb_value v)
{
    merged *o = &m->list[v.i];
    key k;
    EBB_TRY(key_of(m, &k, use, v));
    int score = score_of(m->g, v, &k);
    if (score > o->score) {
        o->keeper = k;
        o->score = score;
    }
    const bool untold = is_untold(m->g, &k, v);
    o->untold |= untold;
    if (k.constant) {
        o->constant = true;
    } else if (!o->is_plain || is_untold(m->g, &o->plain, v)) {
        o->plain = k;
        o->is_plain = true;
    } else {
        o->parts |= !untold && !same_key(&k, &o->plain);
    }
    return NULL;
}

static const char *name_of_copy(parting *m, const key *k, ebb_use use, ebb_value v)
{
    const ebb_graph *g = m->g;
    const char *name = NULL;
    // what was computed of parameters, or stands in another order, is none of that name
    const bool other = ebb_noted_fold_of(&m->losses, g, v) == EBB_FOLD_OF_SEVERAL ||
                       ebb_holds_norm(g, use.node) ||
                       ebb_op_is_recurrent(ebb_node_of(g, use.node)->op);
    if (k->source.i != 0 && !other)
        name = ebb_noted_name(g, use.node, ebb_text(g, k->source), m->scratch);
    if (name != NULL)
        return name;
    if (k->statistic.i != 0)
        return ebb_arena_printf(m->scratch, "%s.running_%s", ebb_node_name(g, use.node),
                                use.slot == 3 ? "mean" : "var");
    return ebb_arena_printf(m->scratch, "%s.%u", ebb_node_name(g, use.node), use.slot);
}

static ebb_status mark(ebb_graph *g, ebb_value v, const char *as, const char *value)
{
    return ebb_props_set(g, &ebb_value_of(g, v)->props, as, value);
}

/* What the exporter's marks say of the initializer that stood for all is not said of its copies. */
static ebb_status copy_for(parting *m, ebb_value *copy, const key *k, ebb_use use, ebb_value v)
{
    ebb_graph *g = m->g;
    const char *name = name_of_copy(m, k, use, v), *source = ebb_text(g, k->source);
    EBB_GOT(name);
    EBB_TRY(ebb_initializer_copy(g, v, name, copy));
    EBB_TRY(mark(g, *copy, EBB_MERGED_WITH, ebb_value_name(g, v)));
    if (ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_KIND) != NULL)
        EBB_TRY(mark(g, *copy, EBB_NOTED_KIND,
                     k->constant            ? "CONSTANT_TENSOR"
                     : is_parameter(source) ? "PARAMETER"
                                            : "BUFFER"));
    if (ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_NAME) != NULL)
        EBB_TRY(mark(g, *copy, EBB_NOTED_NAME, source));
    const ebb_noted_loss *p = ebb_noted_parameter(&m->losses, source);
    if (p != NULL && ebb_noted_is_folded(g, v))
        EBB_TRY(mark(g, *copy, EBB_NOTED_FOLDED, ebb_arena_printf(m->scratch, "['%s']", p->name)));
    if (k->constant)
        ebb_value_of(g, *copy)->role = EBB_ROLE_CONSTANT;
    return k->computed ? mark(g, *copy, EBB_COMPUTED, source) : NULL;
}

static ebb_status part_use(parting *m, ebb_use use, ebb_value v)
{
    const merged *o = &m->list[v.i];
    ebb_value copy = EBB_NO_VALUE;
    key k;
    if (o->keeper.computed) // nobody reads the parameter itself
        EBB_TRY(mark(m->g, v, EBB_COMPUTED, ebb_text(m->g, o->keeper.source)));
    if (!o->parts && !(o->constant && o->is_plain && ebb_feeds_weight_slot(m->g, v)))
        return NULL;
    EBB_TRY(key_of(m, &k, use, v));
    if (same_key(&k, &o->keeper) || is_untold(m->g, &k, v) ||
        (o->untold && o->score < OWN && !k.constant))
        return NULL;
    if (k.source.i != 0 && k.source.i < m->source_count)
        copy = m->copies[k.source.i];
    const char *of =
        copy.i != 0 ? ebb_props_get(m->g, &ebb_value_of(m->g, copy)->props, EBB_MERGED_WITH) : NULL;
    if (of == NULL || strcmp(of, ebb_value_name(m->g, v)) != 0)
        EBB_TRY(copy_for(m, &copy, &k, use, v));
    if (k.source.i != 0 && k.source.i < m->source_count)
        m->copies[k.source.i] = copy;
    return ebb_node_set_input(m->g, use.node, use.slot, copy);
}

static ebb_status each_use(parting *m, ebb_status (*visit)(parting *, ebb_use, ebb_value))
{
    const ebb_graph *g = m->g;
    EBB_EACH_NODE(g, n) {
        for (uint32_t slot = 0; slot < ebb_node_of(g, n)->in_count; slot++) {
            ebb_value v = ebb_in(g, n, slot);
            if (v.i < m->value_count && ebb_may_be_merged(g, v))
                EBB_TRY(visit(m, (ebb_use){n, slot}, v));
        }
    }
    return NULL;
}

/* ---- all of it ---- */

static void mark_unit_scales(ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        bool all =
            info->use_count > 0 && info->tensor != NULL && ebb_tensor_is_uniform(info->tensor);
        for (size_t u = 0; all && u < info->use_count; u++)
            all = is_unit_scale(g, info->uses[u]);
        if (all)
            info->role = EBB_ROLE_CONSTANT;
    }
}

static ebb_status find_gone(parting *m)
{
    EBB_TRY(ebb_noted_losses_find(&m->losses, m->g, m->scratch));
    m->gone = EBB_NEW(m->scratch, bool, m->losses.all_count + 1);
    EBB_GOT(m->gone);
    for (size_t i = 0; i < m->losses.all_count; i++)
        m->gone[i] = ebb_value_find(m->g, m->losses.all[i].name).i == 0;
    return NULL;
}

ebb_status ebb_merged_part(ebb_graph *g, ebb_arena *scratch)
{
    parting m = {.g = g, .scratch = scratch};
    if (g->binding_count > 0)
        return NULL; // a step: what its states are was decided before
    EBB_TRY(ebb_zeros_drop(g));
    EBB_TRY(ebb_detached_restore(g, scratch));
    EBB_TRY(ebb_iterated_detach(g));
    EBB_TRY(ebb_merged_names_part(g));
    mark_unit_scales(g);
    EBB_TRY(find_gone(&m));
    EBB_TRY(ebb_noted_calls_find(&m.calls, g, scratch));
    m.value_count = g->value_count;
    m.list = EBB_NEW(scratch, merged, m.value_count);
    EBB_GOT(m.list);
    EBB_TRY(each_use(&m, look_at));
    m.source_count = g->model->names.count;
    m.copies = EBB_NEW(scratch, ebb_value, m.source_count);
    EBB_GOT(m.copies);
    EBB_TRY(each_use(&m, part_use));
    EBB_TRY(ebb_absorbed_part(g, scratch));
    EBB_TRY(ebb_dropped_restore(g, scratch));
    EBB_TRY(ebb_copied_join(g, scratch));
    EBB_TRY(ebb_repeated_shrink(g));
    return ebb_looked_up_restore(g);
}
