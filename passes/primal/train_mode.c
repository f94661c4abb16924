/* train-mode: give back to the operators of an export what they do in training.
 *
 *   before   y = BatchNormalization(x, s, b, mean, var)         exporters freeze it, or let the new
 *                                                               statistics lead nowhere
 *   after    y, mean_next, var_next = ai.ebb.BatchNormTraining(x, s, b, mean, var)
 *            the step replaces mean by mean_next and var by var_next
 *
 *   before   y = Dropout(x, ratio)                              inactive without a training flag
 *   after    y = ai.ebb.Dropout(x, ebb.key)              ebb.key = {seed, step}; the step counts
 *
 * Dropout that an exporter wrote as arithmetic on random numbers is found, too: in place, and of
 * whole paths (drop_path.h).
 *
 * Each Dropout gets a stream of random numbers of its own, from a hash of its name, so that the
 * same numbers come back in every run, device and recompute. Two batch norms that an optimiser made
 * share their statistics get their own again. What an exporter lost for good is noted (lost.h).
 */
#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "passes/common.h"
#include "passes/mended/copied.h"
#include "passes/primal/drop_path.h"
#include "passes/primal/loop_key.h"
#include "passes/mended/dropped.h"
#include "passes/primal/lost.h"
#include "passes/mended/looked_up.h"
#include "passes/mended/merged.h"
#include "passes/mended/unfolded.h"
#include "passes/parameters/trainable.h"

/* ---- initializers that were merged ---- */

static ebb_status tell_mended(ebb_edit *e, const char *mark, const char *what)
{
    const ebb_graph *g = e->g;
    size_t count = 0;
    const char *first = "";
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        if (ebb_props_get(g, &info->props, mark) != NULL)
            first = count++ == 0 ? ebb_text(g, info->name) : first;
    }
    return count == 0 ? NULL
                      : ebb_note(e, "%zu initializer%s %s: '%s'%s", count, count == 1 ? "" : "s",
                                 what, first, count == 1 ? "" : " ...");
}

/* Parted and joined when the file was opened, or now that functions are gone. */
static ebb_status part_merged(ebb_edit *e)
{
    enum { SHOWN = 4 };
    const ebb_graph *g = e->g;
    size_t count = 0;
    const char *names = "";
    EBB_TRY(ebb_merged_part(e->g, e->scratch));
    if (strcmp(ebb_option_string(e, "copies"), "apart") == 0)
        EBB_TRY(ebb_copied_part(e->g));
    EBB_TRY(tell_mended(e, EBB_COPIED_AS, "stored twice by the exporter, one again"));
    EBB_TRY(tell_mended(e, EBB_REPEATED, "repeated by the exporter, once again"));
    EBB_TRY(tell_mended(e, EBB_LOOKED_UP, "looked up by the exporter, tables again"));
    EBB_TRY(tell_mended(e, EBB_DROPPED, "of zeros dropped by the exporter, there again"));
    for (size_t i = 0; i < g->initializer_count && names != NULL; i++) {
        ebb_value v = g->initializers[i];
        const char *of = ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_MERGED_WITH);
        if (of != NULL && count++ < SHOWN)
            names = ebb_arena_printf(e->scratch, "%s%s'%s' (with '%s')", names,
                                     count > 1 ? ", " : "", ebb_value_name(g, v), of);
    }
    EBB_GOT(names);
    if (count == 0)
        return NULL;
    return ebb_note(e,
                    "%zu initializer%s merged by the exporter, as the values were equal, and %s "
                    "apart again: %s%s",
                    count, count == 1 ? " was" : "s were", count == 1 ? "is" : "are", names,
                    count > SHOWN ? " ..." : "");
}

static ebb_status split_shared(ebb_edit *e)
{
    ebb_graph *g = e->g;
    for (size_t i = 0, count = g->initializer_count; i < count; i++) {
        ebb_value v = g->initializers[i], copy;
        if (!ebb_is_shared(g, v))
            continue;
        ebb_found(e);
        while (ebb_value_of(g, v)->use_count > 1) {
            ebb_use use = ebb_value_of(g, v)->uses[ebb_value_of(g, v)->use_count - 1];
            char *name =
                ebb_arena_printf(e->scratch, "%s.%u", ebb_node_name(g, use.node), use.slot);
            EBB_GOT(name);
            EBB_TRY(ebb_initializer_copy(g, v, name, &copy));
            EBB_TRY(ebb_node_set_input(g, use.node, use.slot, copy));
        }
        ebb_applied(e);
        EBB_TRY(
            ebb_note(e, "'%s' was shared: each operator has its own now", ebb_value_name(g, v)));
    }
    return NULL;
}

/* ---- batch norm ---- */

static bool is_own_initializer(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return v.i != 0 && info->tensor != NULL && (info->flags & EBB_IS_INITIALIZER) != 0;
}

/* The running statistic in slot of n, of its own: a copy where another node has it already. */
static ebb_status own_statistic(ebb_edit *e, ebb_node n, uint32_t slot, ebb_value *statistic)
{
    ebb_graph *g = e->g;
    ebb_value v = ebb_in(g, n, slot);
    if (ebb_graph_bound(g, v).i != 0 || (slot == 4 && ebb_same_value(v, ebb_in(g, n, 3)))) {
        char *name = ebb_arena_printf(e->scratch, "%s.running_%s", ebb_node_name(g, n),
                                      slot == 3 ? "mean" : "var");
        EBB_GOT(name);
        EBB_TRY(ebb_initializer_copy(g, v, name, &v));
    }
    ebb_value_of(g, v)->role = EBB_ROLE_STATISTIC;
    *statistic = v;
    return NULL;
}

static const char statistics_are_read[] = "its new statistics are read elsewhere";

/* Something reads what the batch norm makes beside its output. */
static bool reads_statistics(const ebb_graph *g, ebb_node n)
{
    for (uint32_t k = 1; k < ebb_node_of(g, n)->out_count; k++)
        if (ebb_value_is_read(g, ebb_out(g, n, k)))
            return true;
    return false;
}

static ebb_status train_batch_norm(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    bool was_training = ebb_attr_int(&attrs, "training_mode", 0) != 0;
    bool pytorch = strcmp(ebb_option_string(e, "statistics"), "pytorch") == 0;
    ebb_value mean, var, out[3];
    if (!is_own_initializer(g, ebb_in(g, n, 3)) || !is_own_initializer(g, ebb_in(g, n, 4)))
        return ebb_declined(e, n, "its running statistics are not initializers");
    if (reads_statistics(g, n))
        return ebb_declined(e, n, statistics_are_read);
    ebb_found(e);
    EBB_TRY(own_statistic(e, n, 3, &mean));
    EBB_TRY(own_statistic(e, n, 4, &var));
    ebb_build b = ebb_edit_build(e, n, EBB_FORWARD);
    b.name = ebb_node_name(g, n);
    ebb_with_float(&b, "epsilon", ebb_attr_float(&attrs, "epsilon", 1e-5));
    ebb_with_float(&b, "momentum", ebb_attr_float(&attrs, "momentum", 0.9));
    if (!pytorch)
        ebb_with_int(&b, "unbiased", 0);
    ebb_emit_node(&b, EBB_OP_BATCH_NORM_TRAINING,
                  (ebb_value[]){ebb_in(g, n, 0), ebb_in(g, n, 1), ebb_in(g, n, 2), mean, var}, 5,
                  out, 3, 7);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, n);
    EBB_TRY(ebb_bind_next(g, mean, out[1]));
    EBB_TRY(ebb_bind_next(g, var, out[2]));
    EBB_TRY(ebb_note(e, "%s normalises by the batch, and its running statistics are kept%s",
                     ebb_node_label(g, n),
                     was_training ? "" : "; the export had it in inference mode"));
    ebb_applied(e);
    return ebb_edit_swap(e, n, out[0]);
}

static ebb_status freeze_batch_norm(ebb_edit *e, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(e->g, n);
    for (uint32_t slot = 3; slot <= 4; slot++)
        if (is_own_initializer(e->g, ebb_in(e->g, n, slot)))
            ebb_value_of(e->g, ebb_in(e->g, n, slot))->role = EBB_ROLE_STATISTIC;
    if (ebb_attr_int(&attrs, "training_mode", 0) == 0 && ebb_node_of(e->g, n)->out_count <= 1)
        return NULL;
    if (reads_statistics(e->g, n))
        return ebb_declined(e, n, statistics_are_read);
    ebb_found(e);
    for (uint32_t k = ebb_node_of(e->g, n)->out_count; k-- > 1;)
        EBB_TRY(ebb_node_set_output(e->g, n, k, EBB_NO_VALUE));
    EBB_TRY(ebb_node_drop_attr(e->g, n, "training_mode"));
    ebb_applied(e);
    return ebb_note(e, "%s is frozen: it uses its running statistics", ebb_node_label(e->g, n));
}

/* ---- dropout ---- */

typedef struct mode {
    bool on, keep; /* dropout */
    const ebb_weight *weights;
    const ebb_loop_place *at; /* NULL: the graph is no loop's body */
} mode;

static ebb_status remove_dropout(ebb_edit *e, ebb_node n)
{
    ebb_value x = ebb_in(e->g, n, 0);
    EBB_TRY(ebb_note(e, "%s is removed", ebb_node_label(e->g, n)));
    ebb_applied(e);
    return ebb_edit_swap(e, n, x);
}

/* That of the option, where it is given; else the node's own stays. */
static ebb_status ratio_of(const ebb_edit *e, ebb_node n, double *ratio)
{
    if (ebb_option_given(e, "ratio"))
        *ratio = ebb_option_float(e, "ratio");
    if (!(*ratio >= 0 && *ratio < 1))
        return ebb_error(EBB_USAGE, "%s: a dropout ratio of %g is not in [0, 1)",
                         ebb_node_label(e->g, n), *ratio);
    return NULL;
}

/* What drops is one node again, or nothing; a path's mask is one number for each sample. */
static ebb_status set_drop_path(const mode *m, ebb_edit *e, ebb_node n, const ebb_drop_path *d)
{
    ebb_graph *g = e->g;
    ebb_value x = d->x, key;
    double ratio = 1 - d->keep;
    ebb_found(e);
    if (d->elements && ebb_option_given(e, "ratio"))
        EBB_TRY(ratio_of(e, n, &ratio));
    if (!m->on || ratio <= 0) {
        EBB_TRY(ebb_note(e, "the dropout that ends in %s is removed", ebb_node_label(g, n)));
    } else {
        EBB_TRY(ebb_loop_key(e, m->at, &key));
        ebb_build b = ebb_edit_build(e, n, EBB_FORWARD);
        b.name = ebb_node_name(g, n);
        ebb_value dropped = x;
        if (!d->elements)
            dropped = ebb_emit(&b, EBB_OP_EXPAND, ebb_const_like(&b, x, 1),
                               ebb_emit(&b, EBB_OP_SHAPE, d->drawn));
        ebb_with_float(&b, "ratio", ratio);
        ebb_with_int(&b, "stream", ebb_random_stream(g, ebb_node_name(g, n)));
        dropped = ebb_emit(&b, EBB_OP_EBB_DROPOUT, dropped, key);
        x = d->elements ? dropped : ebb_emit(&b, EBB_OP_MUL, x, dropped);
        EBB_TRY(b.status);
        ebb_keep_name(g, b.last, n);
        EBB_TRY(ebb_note(e, "%s drops %s with ratio %g", ebb_node_label(g, n),
                         d->elements ? "elements" : "paths", ratio));
    }
    ebb_applied(e);
    return ebb_edit_swap(e, n, x);
}

static ebb_status set_dropout(const mode *m, ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    double ratio = 0.5, flag = 0;
    ebb_value mask = ebb_out(g, n, 1), key, y;
    if (ebb_value_is_read(g, mask))
        return ebb_declined(e, n, "its mask is read elsewhere");
    if (ebb_in(g, n, 1).i != 0 && !ebb_scalar_of(g, ebb_in(g, n, 1), &ratio))
        return ebb_declined(e, n, "its ratio is not constant");
    bool flagged = ebb_in(g, n, 2).i != 0 && ebb_scalar_of(g, ebb_in(g, n, 2), &flag) && flag != 0;
    ebb_found(e);
    EBB_TRY(ratio_of(e, n, &ratio));
    if (!m->on || ratio == 0)
        return remove_dropout(e, n);
    EBB_TRY(ebb_loop_key(e, m->at, &key));
    ebb_build b = ebb_edit_build(e, n, EBB_FORWARD);
    b.name = ebb_node_name(g, n);
    ebb_with_float(&b, "ratio", ratio);
    ebb_with_int(&b, "stream", ebb_random_stream(g, ebb_node_name(g, n)));
    y = ebb_emit(&b, EBB_OP_EBB_DROPOUT, ebb_in(g, n, 0), key);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, n);
    EBB_TRY(ebb_note(e, "%s drops with ratio %g%s", ebb_node_label(g, n), ratio,
                     flagged ? "" : "; the export had it inactive"));
    ebb_applied(e);
    return ebb_edit_swap(e, n, y);
}

/* ---- once more ---- */

/* What this pass made before becomes what it was made of, where no backward reads it yet, so that
 * options that ask for something else hold for it, too. */
static ebb_status take_back_norm(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    for (uint32_t k = 3; k < ebb_node_of(g, n)->out_count; k++)
        if (ebb_value_is_read(g, ebb_out(g, n, k)))
            return NULL;
    ebb_build b = ebb_edit_build(e, n, EBB_FORWARD);
    b.name = ebb_node_name(g, n);
    ebb_with_float(&b, "epsilon", ebb_attr_float(&attrs, "epsilon", 1e-5));
    ebb_with_float(&b, "momentum", ebb_attr_float(&attrs, "momentum", 0.9));
    ebb_value y = ebb_emit(&b, EBB_OP_BATCH_NORMALIZATION, ebb_in(g, n, 0), ebb_in(g, n, 1),
                           ebb_in(g, n, 2), ebb_in(g, n, 3), ebb_in(g, n, 4));
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, n);
    ebb_graph_unbind(g, ebb_in(g, n, 3));
    ebb_graph_unbind(g, ebb_in(g, n, 4));
    return ebb_edit_swap(e, n, y);
}

static ebb_status take_back_dropout(ebb_edit *e, ebb_node n)
{
    ebb_graph *g = e->g;
    ebb_attrs attrs = ebb_node_attrs(g, n);
    if (ebb_value_is_read(g, ebb_out(g, n, 1)) || ebb_model_opset(g->model, "") < 12)
        return NULL;
    ebb_build b = ebb_edit_build(e, n, EBB_FORWARD);
    b.name = ebb_node_name(g, n);
    ebb_value ratio = ebb_const_scalar(&b, EBB_F32, ebb_attr_float(&attrs, "ratio", 0.5));
    ebb_value y = ebb_emit(&b, EBB_OP_DROPOUT, ebb_in(g, n, 0), ratio);
    EBB_TRY(b.status);
    ebb_keep_name(g, b.last, n);
    return ebb_edit_swap(e, n, y);
}

static ebb_status take_back(ebb_edit *e, bool norm, bool dropout)
{
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->op == EBB_OP_BATCH_NORM_TRAINING && norm)
            EBB_TRY(take_back_norm(e, n));
        else if (ebb_node_of(e->g, n)->op == EBB_OP_EBB_DROPOUT && dropout)
            EBB_TRY(take_back_dropout(e, n));
    return NULL;
}

/* ---- the pass ---- */

static ebb_status note_what_is_lost(ebb_edit *e)
{
    ebb_lost *lost;
    size_t count;
    EBB_TRY(ebb_lost_list(&lost, &count, e->g, e->scratch));
    for (size_t i = 0; i < count; i++)
        EBB_TRY(ebb_note(e, "%s (%s)", lost[i].sentence, ebb_lost_help(lost[i].kind)));
    return NULL;
}

/* Whether the options of pass gradient, which are given here too, train the scale or the bias of n. A
 * norm without either is trained unless only some weights are. */
static bool is_trained(const ebb_edit *e, ebb_node n, const ebb_weight *weights)
{
    const char *train = ebb_option_string(e, "train"), *freeze = ebb_option_string(e, "freeze");
    bool any = false, has = false;
    for (uint32_t slot = 1; slot <= 2; slot++) {
        ebb_value v = ebb_in(e->g, n, slot);
        if (!is_own_initializer(e->g, v))
            continue;
        const char *name = ebb_value_name(e->g, v);
        has |= weights[v.i].kind == EBB_SURE_WEIGHT;
        any |= (train != NULL ? ebb_weight_matches(train, name, &weights[v.i])
                              : weights[v.i].kind == EBB_SURE_WEIGHT) &&
               (freeze == NULL || !ebb_weight_matches(freeze, name, &weights[v.i]));
    }
    return any || (!has && train == NULL);
}

static ebb_status set_batch_norm(ebb_edit *e, ebb_node n, const ebb_weight *weights)
{
    const char *how = ebb_option_string(e, "batch-norm");
    bool train = strcmp(how, "train") == 0;
    if (strcmp(how, "trained") == 0)
        train = is_trained(e, n, weights);
    return train ? train_batch_norm(e, n) : freeze_batch_norm(e, n);
}

static ebb_status freeze_in_loop(ebb_edit *e, ebb_node n)
{
    EBB_TRY(ebb_note(e, "%s stands in a loop, and uses its running statistics",
                     ebb_node_label(e->g, n)));
    return freeze_batch_norm(e, n);
}

static ebb_status set_all(const mode *m, ebb_edit *e);

/* The steps of a loop share the nodes of its body: each draws with a key of its own, and none of them can
 * replace running statistics that the next one reads. */
static ebb_status set_body(const mode *m, ebb_edit *e, ebb_node n)
{
    ebb_scan s;
    if (!ebb_scan_is_kept(e->g, n) || ebb_scan_read(&s, e->g, n) != NULL)
        return NULL;
    const ebb_loop_place place = {m->at, e->g, n};
    mode inside = *m;
    ebb_edit inner = *e;
    inside.at = &place;
    inner.g = s.body;
    EBB_TRY(set_all(&inside, &inner));
    return ebb_infer_node(e->g, n);
}

static ebb_status set_all(const mode *m, ebb_edit *e)
{
    ebb_drop_path path;
    EBB_EACH_NODE(e->g, n) {
        ebb_op op = ebb_node_of(e->g, n)->op;
        if (op == EBB_OP_BATCH_NORMALIZATION && m->at != NULL)
            EBB_TRY(freeze_in_loop(e, n));
        else if (op == EBB_OP_BATCH_NORMALIZATION)
            EBB_TRY(set_batch_norm(e, n, m->weights));
        if (op == EBB_OP_DROPOUT && !m->keep)
            EBB_TRY(set_dropout(m, e, n));
        if (!m->keep && ebb_drop_path_at(e->g, n, &path))
            EBB_TRY(set_drop_path(m, e, n, &path));
        EBB_TRY(set_body(m, e, n));
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    const char *dropout = ebb_option_string(e, "dropout");
    ebb_trainable_source source;
    ebb_weight *weights;
    mode m = {.on = strcmp(dropout, "on") == 0, .keep = strcmp(dropout, "keep") == 0};
    bool all = strcmp(ebb_option_string(e, "batch-norm"), "train") == 0;
    EBB_TRY(take_back(e, !all, !m.keep && (!m.on || ebb_option_given(e, "ratio"))));
    EBB_TRY(part_merged(e));
    if (ebb_option_int(e, "split-shared") != 0)
        EBB_TRY(split_shared(e));
    weights = EBB_SCRATCH(e, ebb_weight, e->g->value_count);
    EBB_GOT(weights);
    if (strcmp(ebb_option_string(e, "batch-norm"), "trained") == 0)
        EBB_TRY(ebb_weights_judge(weights, &source, e->g, e->scratch));
    m.weights = weights;
    EBB_TRY(set_all(&m, e));
    return note_what_is_lost(e);
}

// clang-format off
static const ebb_option options[] = {
    {"dropout",      EBB_OPTION_CHOICE, "on",      "on|off|keep",  "on: active, seeded by ebb.key; off: removed; keep: as the file has it"},
    {"ratio",        EBB_OPTION_FLOAT,  NULL,      "[0, 1)",       "the same dropout ratio everywhere"},
    {"batch-norm",   EBB_OPTION_CHOICE, "train",   "train|frozen|trained", "train: by the batch; frozen: by the running statistics; trained: by the batch where train= and freeze= leave its scale or bias to be trained"},
    {"train",        EBB_OPTION_STRING, NULL,      NULL,           "for batch-norm=trained: as pass gradient has it"},
    {"freeze",       EBB_OPTION_STRING, NULL,      NULL,           "the same"},
    {"statistics",   EBB_OPTION_CHOICE, "pytorch", "pytorch|onnx", "running variance of N elements: divided by N-1 (pytorch) or N (onnx)"},
    {"seed",         EBB_OPTION_INT,    "1",       "[0, inf)",     "of the random key"},
    {"split-shared", EBB_OPTION_INT,    "0",       "[0, 1]",       "1: separate equal parameters that the exporter merged"},
    {"copies",       EBB_OPTION_CHOICE, "joined",  "joined|apart", "apart: a tied weight that the exporter stored twice, turned, is trained as two"},
    {0},
};
// clang-format on

const ebb_pass ebb_pass_train_mode = {
    .name = "train-mode",
    .doc = "put batch norm and dropout into training mode",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
