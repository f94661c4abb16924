/* chosen.c: which weights pass gradient trains, and what is said of those that it does not. */
#include "passes/gradient/chosen.h"

#include <stdlib.h>

#include "passes/parameters/noted.h"

ebb_status ebb_chosen_open(ebb_chosen *chosen, ebb_edit *e)
{
    *chosen = (ebb_chosen){.train = ebb_option_string(e, "train"),
                           .freeze = ebb_option_string(e, "freeze"),
                           .value_count = e->g->value_count};
    chosen->list = EBB_SCRATCH(e, ebb_weight, e->g->value_count);
    EBB_GOT(chosen->list);
    return ebb_weights_judge(chosen->list, &chosen->source, e->g, e->scratch);
}

ebb_status ebb_chosen_take(const ebb_chosen *chosen, ebb_reverse *r, size_t *count)
{
    const ebb_graph *g = r->g;
    size_t matched = 0, frozen = 0;
    *count = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (v.i >= chosen->value_count || !ebb_trainable_candidate(g, v))
            continue;
        const ebb_weight *weight = &chosen->list[v.i];
        const char *name = ebb_value_name(g, v);
        r->trains[v.i] = weight->kind == EBB_SURE_WEIGHT;
        if (chosen->train != NULL) {
            r->trains[v.i] = ebb_weight_matches(chosen->train, name, weight);
            matched += r->trains[v.i];
        }
        if (chosen->freeze != NULL && ebb_weight_matches(chosen->freeze, name, weight)) {
            r->trains[v.i] = false;
            frozen++;
        }
        *count += r->trains[v.i];
    }
    ebb_status status = NULL;
    if (chosen->train != NULL && matched == 0)
        status = ebb_error(EBB_USAGE, "gradient: no weight's name matches train=%s", chosen->train);
    else if (chosen->freeze != NULL && frozen == 0)
        status =
            ebb_error(EBB_USAGE, "gradient: no weight's name matches freeze=%s", chosen->freeze);
    return ebb_hint(status, "`ebb inspect MODEL` lists the weights; * stands for any letters");
}

/* ---- what is said of it ---- */

size_t ebb_chosen_lost(const ebb_chosen *chosen, const ebb_reverse *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->g->initializer_count; i++) {
        ebb_value v = r->g->initializers[i];
        count += v.i < chosen->value_count && r->trains[v.i] && chosen->list[v.i].lost;
    }
    return count;
}

/* What exporters must be told to keep all weights as they are. */
static const char *call_that_keeps_all(const ebb_chosen *chosen, const ebb_graph *g)
{
    if (g->model->torchscript)
        return "export with torch.onnx.export(..., dynamo=False, "
               "training=TrainingMode.TRAINING, do_constant_folding=False), which keeps all of "
               "them; --allow-partial trains these alone, --train 'PATTERN' chooses";
    if (chosen->source == EBB_TRAINABLE_METADATA || ebb_is_from_pytorch(g))
        return "export with torch.onnx.export(..., dynamo=True, optimize=False), which keeps all "
               "of "
               "them; --allow-partial trains these alone, --train 'PATTERN' chooses";
    return "export without constant folding, which keeps all of them; --allow-partial trains these "
           "alone, --train 'PATTERN' chooses";
}

static const char call_that_marks[] =
    "export with torch.onnx.export(..., dynamo=True, optimize=False), which marks parameters and "
    "buffers; --freeze 'NAME' where it is a buffer, --train weights --train 'NAME' where it is a "
    "parameter";

static const char frozen[] = "frozen", not_asked_for[] = "not asked for",
                  not_reached[] = "the loss does not depend on it",
                  did_nothing_yet[] = "the file does not have it: it did nothing yet, and the "
                                      "exporter dropped it with its node";

static const char *reason_of(const ebb_chosen *chosen, const char *name, const ebb_weight *weight)
{
    if (chosen->freeze != NULL && ebb_weight_matches(chosen->freeze, name, weight))
        return frozen;
    if (chosen->train != NULL && !ebb_weight_matches(chosen->train, name, weight))
        return not_asked_for;
    return weight->kind == EBB_DOUBTFUL_WEIGHT ? weight->why : not_reached;
}

typedef struct missing {
    size_t gone;   /* of so many the file has no more than what was made of them */
    size_t untold; /* so many are parameters or buffers */
    int64_t apart; /* on so many elements the loss does not depend */
} missing;

static void take(ebb_training *t, const ebb_weight *weight, bool trains, int64_t elements)
{
    t->weights++;
    t->trained += trains;
    t->lost += trains && weight->lost;
    t->elements += elements;
    t->trained_elements += trains ? elements : 0;
}

/* False: no memory. */
static bool leave_out(ebb_training *t, ebb_left_out *left, missing *m, const char *name,
                      const char *why, const ebb_weight *weight, int64_t elements)
{
    left[t->weights - t->trained] = (ebb_left_out){name, why};
    take(t, weight, false, elements);
    m->gone += weight->made;
    m->untold += weight->untold;
    m->apart += why == not_reached ? elements : 0;
    return name != NULL;
}

/* Those of outputs that no loss reads, or that the file does not have: the lines of EBB_UNREACHED, EBB_GONE. */
static bool count_lines_of(ebb_training *t, ebb_left_out *left, missing *m,
                           const ebb_chosen *chosen, const ebb_weight *weight, const char *lines,
                           ebb_arena *keep)
{
    for (const char *end; lines != NULL && (end = strchr(lines, '\n')) != NULL; lines = end + 1) {
        char *at;
        const int64_t elements = strtoll(lines, &at, 10);
        const char *name = ebb_arena_printf(keep, "%.*s", (int)(end - at - 1), at + 1);
        const char *why = name != NULL ? reason_of(chosen, name, weight) : NULL;
        if (!leave_out(t, left, m, name, why, weight, elements))
            return false;
    }
    return true;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; text != NULL && (text = strchr(text, '\n')) != NULL; text++)
        lines++;
    return lines;
}

/* Takes down all that looks like a weight or is trained. NULL: no memory. */
static ebb_training *count_weights(const ebb_chosen *chosen, const ebb_reverse *r,
                                   const char *unreached, const char *gone, missing *m)
{
    const ebb_weight sure = {.kind = EBB_SURE_WEIGHT};
    const ebb_weight dropped = {.kind = EBB_DOUBTFUL_WEIGHT, .made = true, .why = did_nothing_yet};
    const ebb_graph *g = r->g;
    ebb_arena *keep = r->e->keep;
    ebb_training *t = EBB_NEW(keep, ebb_training, 1);
    ebb_left_out *left = EBB_NEW(
        keep, ebb_left_out, g->initializer_count + count_lines(unreached) + count_lines(gone) + 1);
    if (t == NULL || left == NULL)
        return NULL;
    t->left_out = left;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        int64_t elements;
        if (v.i >= chosen->value_count || !ebb_trainable_candidate(g, v) ||
            !ebb_type_elements(ebb_value_of(g, v)->type, &elements))
            continue;
        const ebb_weight *weight = &chosen->list[v.i];
        const char *name = ebb_value_name(g, v);
        if (r->trains[v.i] && r->counts[v.i]) {
            take(t, weight, true, elements);
            continue;
        }
        if (weight->kind == EBB_NO_WEIGHT)
            continue;
        if (weight->kind == EBB_DOUBTFUL_WEIGHT && weight->elements > 0)
            elements = weight->elements; // of the table, not of what was looked up in it
        if (!leave_out(t, left, m, ebb_arena_strdup(keep, name), reason_of(chosen, name, weight),
                       weight, elements))
            return NULL;
    }
    return count_lines_of(t, left, m, chosen, &sure, unreached, keep) &&
                   count_lines_of(t, left, m, chosen, &dropped, gone, keep)
               ? t
               : NULL;
}

enum { SHOWN = 4 }; // names in a sentence

/* "training 42 of 44 weights, 99.9 % of the elements; not: 'a' (why), 'b' (why) and 3 more" */
static const char *sentence_of(const ebb_training *t, ebb_arena *arena)
{
    size_t others = t->weights - t->trained;
    double share = t->elements > 0 ? 100.0 * (double)t->trained_elements / (double)t->elements : 0;
    if (others > 0 && share > 99.9 && t->trained_elements < t->elements)
        share = 99.9; // not 100, which would say that nothing is left
    const char *text =
        ebb_arena_printf(arena, "training %zu of %zu weights, %.*f %% of the elements", t->trained,
                         t->weights, others > 0 ? 1 : 0, share);
    size_t named = 0; // what somebody left out is known to them
    for (size_t i = 0; i < others && text != NULL; i++) {
        const ebb_left_out *o = &t->left_out[i];
        if (o->why != frozen && o->why != not_asked_for && named++ < SHOWN)
            text = ebb_arena_printf(arena, "%s%s'%.200s' (%s)", text, named == 1 ? "; not: " : ", ",
                                    o->name, o->why);
    }
    if (named > SHOWN && text != NULL)
        text = ebb_arena_printf(arena, "%s and %zu more", text, named - SHOWN);
    return text;
}

/* What a trained weight is instead of a parameter, or is taken for; NULL: it is one. */
static const char *stand_in(const ebb_chosen *chosen, const ebb_reverse *r, ebb_value v)
{
    return v.i < chosen->value_count && r->trains[v.i] && r->counts[v.i] &&
                   chosen->list[v.i].kind == EBB_SURE_WEIGHT
               ? chosen->list[v.i].why
               : NULL;
}

/* "...; 'mul', 'mul_1' and 3 more: it was computed ...", of one reason. */
static const char *with_reason(const char *text, const char *why, const ebb_chosen *chosen,
                               const ebb_reverse *r, ebb_arena *arena)
{
    size_t count = 0;
    for (size_t i = 0; i < r->g->initializer_count && text != NULL; i++) {
        ebb_value v = r->g->initializers[i];
        if (stand_in(chosen, r, v) == why && count++ < SHOWN)
            text = ebb_arena_printf(arena, "%s%s'%.200s'", text, count == 1 ? "; " : ", ",
                                    ebb_value_name(r->g, v));
    }
    if (count > SHOWN && text != NULL)
        text = ebb_arena_printf(arena, "%s and %zu more", text, count - SHOWN);
    return text != NULL ? ebb_arena_printf(arena, "%s: %s", text, why) : NULL;
}

/* Weights that stand in for others, each reason once. */
static const char *with_stand_ins(const char *text, const ebb_chosen *chosen, const ebb_reverse *r,
                                  ebb_arena *arena)
{
    enum { REASONS = 4 };
    const char *told[REASONS];
    size_t count = 0;
    for (size_t i = 0; i < r->g->initializer_count && text != NULL; i++) {
        const char *why = stand_in(chosen, r, r->g->initializers[i]);
        size_t k = 0;
        while (k < count && told[k] != why)
            k++;
        if (why == NULL || k < count || count == REASONS)
            continue;
        told[count++] = why;
        text = with_reason(text, why, chosen, r, arena);
    }
    return text;
}

ebb_status ebb_chosen_tell(const ebb_chosen *chosen, const ebb_reverse *r)
{
    ebb_edit *e = r->e;
    const char *unreached = ebb_props_get(r->g, &r->g->props, EBB_UNREACHED);
    const char *gone = ebb_props_get(r->g, &r->g->props, EBB_GONE);
    ebb_props_drop(r->g, &r->g->props, EBB_UNREACHED);
    ebb_props_drop(r->g, &r->g->props, EBB_GONE);
    if (chosen->source == EBB_TRAINABLE_ROLES || chosen->source == EBB_TRAINABLE_BINDINGS)
        return NULL;
    missing m = {0};
    ebb_training *t = count_weights(chosen, r, unreached, gone, &m);
    if (t != NULL)
        t->said = with_stand_ins(sentence_of(t, e->keep), chosen, r, e->keep);
    EBB_GOT(t && t->said);
    bool asked = chosen->train != NULL || chosen->freeze != NULL ||
                 strcmp(ebb_option_string(e, "partial"), "allow") == 0;
    const int64_t reached = t->elements - m.apart; // PyTorch would not train the others either
    const char *why = t->trained_elements < reached - t->trained_elements
                          ? "less than half would be trained"
                      : m.gone > 0   ? "not all would be trained that PyTorch trains"
                      : m.untold > 0 ? "the file does not tell what PyTorch trains"
                                     : NULL;
    if (!asked && why != NULL)
        return ebb_hint(ebb_error(EBB_REJECTED, "gradient: %s: %s", why, t->said), "%s",
                        m.untold > 0 ? call_that_marks : call_that_keeps_all(chosen, r->g));
    e->report->training = t;
    return ebb_note(e, "%s", t->said);
}
