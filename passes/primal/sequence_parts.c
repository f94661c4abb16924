/* sequence-parts: a long sequence is gone through in parts, one node behind the other.
 *
 *   before   hT, y = LSTM (x, h0)                        or a kept loop: hT, y = Scan (h0, x)
 *   after    h1, y0 = LSTM (Slice (x, 0 .. a), h0)
 *            h2, y1 = LSTM (Slice (x, a .. b), h1) ...   y = Concat (y0, y1 ...)
 *
 * So a sequence is a chain of stages like the blocks of a network, and whatever is known of chains holds for
 * it: `recompute` and `fit` keep the states between the parts and make the rest of a part again, or put
 * states on disk, by the published schedules. Parts are of one length but for a step, whatever the number of
 * steps is. With no length given, a part keeps about as much as all states between parts take.
 *
 * Layers one behind the other go through their parts together: what is between them need not be whole.
 *
 * A loop gives the same bits: its gradient adds up its steps in the same order (passes/gradient/loop.c), but
 * where two that go together read one weight. The gradients of RNN, GRU and LSTM sum over their steps within
 * one product, which are now several.
 *
 * Declines what goes both ways, sequences of unlike lengths, and loops that draw by the number of a step.
 */
#include <math.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/scan.h"
#include "passes/common.h"
#include "passes/primal/pieces.h"
#include "passes/parameters/trainable.h"

enum {
    MOST_PARTS = 256,         /* where no length is given */
    MOST_ASKED_FOR = 1 << 16, /* each is a node, with a body of its own */
    KEPT_BY_GATES = 8
};

typedef struct sequence { /* what is cut */
    ebb_pieces of;
    ebb_op op;
    ebb_scan scan;   /* of a Scan */
    uint32_t states; /* carried from part to part */
} sequence;

/* ---- how many ---- */

static double bytes_of(const ebb_graph *g, ebb_value v)
{
    size_t bytes = 0;
    return v.i != 0 && ebb_type_bytes(ebb_value_of(g, v)->type, &bytes) ? (double)bytes : 0;
}

/* What is kept of a step, in states. */
static double kept_of(const sequence *s)
{
    double state = 0, kept = 0;
    if (s->op != EBB_OP_SCAN)
        return KEPT_BY_GATES;
    for (uint32_t i = 0; i < s->states; i++)
        state += bytes_of(s->scan.body, s->scan.body->inputs[i]);
    EBB_EACH_NODE(s->scan.body, n)
        for (uint32_t k = 0; k < ebb_node_of(s->scan.body, n)->out_count; k++)
            kept += bytes_of(s->scan.body, ebb_out(s->scan.body, n, k));
    return state > 0 && kept > state ? kept / state : 1;
}

/* parts * state + length * kept is least where both are equal. */
static void set_parts(sequence *s)
{
    double length = (double)ebb_option_int(s->of.e, "steps");
    if (length == 0)
        length = ceil(sqrt((double)s->of.steps / kept_of(s)));
    if (!ebb_option_given(s->of.e, "steps") && length < (double)s->of.steps / MOST_PARTS)
        length = ceil((double)s->of.steps / MOST_PARTS);
    const double parts = ceil((double)s->of.steps / length);
    s->of.parts = parts < UINT32_MAX ? (uint32_t)parts : UINT32_MAX;
}

/* ---- the parts ---- */

/* in: states, then slices. out: those of the node, of this part. */
static ebb_status add_part(const sequence *s, uint32_t p, const ebb_value *in, uint32_t in_count,
                           const ebb_value *out)
{
    const ebb_node_info *info = ebb_node_of(s->of.g, s->of.n);
    ebb_node made;
    const char *name = ebb_arena_printf(s->of.e->scratch, "%s/part_%u", s->of.name, p);
    EBB_GOT(name);
    EBB_TRY(ebb_pieces_add_node(&s->of, &made, ebb_text(s->of.g, info->op_name), name, in, in_count,
                                out, info->out_count));
    for (uint32_t i = 0; i < ebb_node_of(s->of.g, s->of.n)->attr_count; i++) {
        const ebb_attr attr = ebb_node_of(s->of.g, s->of.n)->attr[i];
        EBB_TRY(ebb_node_set_attr(s->of.g, made, &attr));
    }
    EBB_TRY(ebb_bodies_own(s->of.g, made));
    if (s->op == EBB_OP_SCAN)
        EBB_TRY(ebb_props_set(s->of.g, &ebb_node_of(s->of.g, made)->props, EBB_KEPT_LOOP, "kept"));
    return ebb_infer_node(s->of.g, made);
}

/* Operand and output of state i, and of what is walked through and put together, as the node lists them. */
static uint32_t state_in(const sequence *s, uint32_t i)
{
    return s->op == EBB_OP_SCAN ? i : 5 + i; // behind X, W, R, B, sequence_lens
}

static uint32_t state_out(const sequence *s, uint32_t i)
{
    return s->op == EBB_OP_SCAN ? i : 1 + i;
}

typedef struct lists {
    ebb_whole *read, *made; /* by operand, by output */
    uint32_t in_count, out_count;
} lists;

static ebb_status list_scan(const sequence *s, lists *l)
{
    for (uint32_t k = 0; k < s->scan.inputs + s->scan.outputs; k++) {
        const bool output = k >= s->scan.inputs;
        const uint32_t of = output ? k - s->scan.inputs : k, at = s->states + of;
        const ebb_value v = output ? ebb_out(s->of.g, s->of.n, at) : ebb_in(s->of.g, s->of.n, at);
        ebb_slices slices;
        if (v.i == 0)
            continue;
        const char *why = ebb_scan_slices(&slices, s->of.g, s->of.n, output, of);
        if (why != NULL)
            return ebb_error(EBB_UNSUPPORTED, "%s: %s", ebb_node_label(s->of.g, s->of.n), why);
        (output ? l->made : l->read)[at] =
            (ebb_whole){.v = v, .axis = slices.axis, .backwards = slices.backwards};
    }
    return NULL;
}

static void list_gates(const sequence *s, lists *l)
{
    ebb_attrs attrs = ebb_node_attrs(s->of.g, s->of.n);
    const char *direction = ebb_attr_string(&attrs, "direction", "forward");
    const bool backwards = strcmp(direction, "reverse") == 0;
    l->read[0] = (ebb_whole){.v = ebb_in(s->of.g, s->of.n, 0), .backwards = backwards};
    if (ebb_out(s->of.g, s->of.n, 0).i != 0)
        l->made[0] = (ebb_whole){.v = ebb_out(s->of.g, s->of.n, 0), .backwards = backwards};
}

static ebb_status list_all(const sequence *s, lists *l)
{
    const ebb_node_info *info = ebb_node_of(s->of.g, s->of.n);
    const uint32_t last = state_in(s, s->states);
    l->in_count = info->in_count > last ? info->in_count : last;
    l->out_count = info->out_count;
    l->read = EBB_SCRATCH(s->of.e, ebb_whole, l->in_count + (size_t)1);
    l->made = EBB_SCRATCH(s->of.e, ebb_whole, l->out_count + (size_t)1);
    EBB_GOT(l->read && l->made);
    if (s->op == EBB_OP_SCAN)
        EBB_TRY(list_scan(s, l));
    else
        list_gates(s, l);
    for (uint32_t k = 0; k < l->out_count; k++)
        if (l->made[k].v.i != 0 &&
            (l->made[k].piece = EBB_SCRATCH(s->of.e, ebb_value, s->of.parts)) == NULL)
            return ebb_error_memory();
    for (uint32_t i = 0; i < l->in_count; i++)
        if (l->read[i].v.i != 0)
            EBB_TRY(ebb_whole_open(&s->of, &l->read[i]));
    return NULL;
}

/* One part: `in` has the states that it begins with, and gets those that it ends with. */
static ebb_status make_part(const sequence *s, const lists *l, uint32_t p, ebb_value *in,
                            ebb_value *out)
{
    const bool last = p + 1 == s->of.parts;
    for (uint32_t i = 0; i < l->in_count; i++)
        if (l->read[i].v.i != 0)
            EBB_TRY(ebb_whole_take(&s->of, &l->read[i], p, &in[i]));
    for (uint32_t k = 0; k < l->out_count; k++) {
        const ebb_value v = ebb_out(s->of.g, s->of.n, k);
        const bool state = k >= state_out(s, 0) && k < state_out(s, s->states);
        out[k] = EBB_NO_VALUE;
        if (v.i != 0 || (state && !last))
            EBB_TRY(ebb_pieces_add_value(&s->of, &out[k],
                                         v.i != 0 ? ebb_value_name(s->of.g, v) : s->of.name));
        if (l->made[k].v.i != 0)
            l->made[k].piece[p] = out[k];
    }
    EBB_TRY(add_part(s, p, in, l->in_count, out));
    for (uint32_t i = 0; i < s->states; i++)
        in[state_in(s, i)] = out[state_out(s, i)];
    return NULL;
}

/* Whatever else the node reads is there from the start. */
static ebb_status needs_nothing_else(const sequence *s, const lists *l, bool *nothing)
{
    const ebb_graph *g = s->of.g;
    uint32_t count;
    const ebb_value *names = ebb_captures_of(g, s->of.n, s->of.e->scratch, &count);
    EBB_GOT(names);
    *nothing = true;
    for (uint32_t i = 0; i < ebb_node_of(g, s->of.n)->in_count; i++)
        *nothing = *nothing &&
                   (l->read[i].joined || (l->read[i].piece == NULL &&
                                          ebb_value_of(g, ebb_in(g, s->of.n, i))->producer.i == 0));
    for (uint32_t i = 0; i < count; i++)
        *nothing = *nothing && ebb_value_of(g, names[i])->producer.i == 0;
    return NULL;
}

/* A part stands right behind the one whose piece it reads, where it can: so of two layers no more is
 * alive at a time than the states of both, and they are one chain. */
static ebb_status find_leader(const sequence *s, const lists *l, const ebb_whole **leader)
{
    bool nothing;
    uint32_t count = 0;
    *leader = NULL;
    EBB_TRY(needs_nothing_else(s, l, &nothing));
    for (uint32_t i = 0; nothing && i < l->in_count; i++)
        if (l->read[i].v.i != 0 && l->read[i].joined) {
            *leader = &l->read[i];
            count++;
        }
    *leader = count == 1 && !(*leader)->backwards ? *leader : NULL;
    return NULL;
}

/* A state that nobody reads behind the sequence is still handed on. */
static ebb_status name_states(const sequence *s)
{
    for (uint32_t i = 0; i < s->states; i++) {
        ebb_value v;
        if (ebb_out(s->of.g, s->of.n, state_out(s, i)).i != 0)
            continue;
        EBB_TRY(ebb_pieces_add_value(&s->of, &v, s->of.name));
        EBB_TRY(ebb_node_set_output(s->of.g, s->of.n, state_out(s, i), v));
    }
    return ebb_infer_node(s->of.g, s->of.n);
}

static ebb_status cut(const sequence *s)
{
    lists l = {0};
    EBB_TRY(name_states(s));
    EBB_TRY(list_all(s, &l));
    ebb_value *in = EBB_SCRATCH(s->of.e, ebb_value, l.in_count + (size_t)1);
    ebb_value *out = EBB_SCRATCH(s->of.e, ebb_value, l.out_count + (size_t)1);
    EBB_GOT(in && out);
    for (uint32_t i = 0; i < ebb_node_of(s->of.g, s->of.n)->in_count; i++)
        in[i] = ebb_in(s->of.g, s->of.n, i);
    const ebb_whole *leader;
    sequence here = *s;
    EBB_TRY(find_leader(s, &l, &leader));
    for (uint32_t p = 0; p < s->of.parts; p++) {
        if (leader != NULL)
            here.of.before = ebb_next(s->of.g, ebb_value_of(s->of.g, leader->piece[p])->producer);
        EBB_TRY(make_part(&here, &l, p, in, out));
    }
    for (uint32_t i = 0; i < s->states; i++)
        EBB_TRY(ebb_edit_replace(s->of.e, ebb_out(s->of.g, s->of.n, state_out(s, i)),
                                 in[state_in(s, i)]));
    for (uint32_t k = 0; k < l.out_count; k++)
        if (l.made[k].v.i != 0)
            EBB_TRY(ebb_whole_put_together(&s->of, &l.made[k]));
    ebb_edit_remove(s->of.e, s->of.n);
    return NULL;
}

/* ---- which ---- */

static bool draws(const ebb_graph *body)
{
    EBB_EACH_NODE(body, n)
        if (ebb_op_has(ebb_node_of(body, n)->op, EBB_RANDOM) ||
            (ebb_node_body(body, n, "body") != NULL && draws(ebb_node_body(body, n, "body"))))
            return true;
    return false;
}

/* NULL, or why it stays whole. */
static const char *read_sequence(sequence *s)
{
    if (s->op == EBB_OP_SCAN) {
        const char *why = ebb_scan_read(&s->scan, s->of.g, s->of.n);
        if (why != NULL)
            return why;
        s->states = s->scan.states;
        s->of.steps = s->scan.trips;
        return draws(s->scan.body) ? "its body draws random numbers by the number of a step" : NULL;
    }
    ebb_attrs attrs = ebb_node_attrs(s->of.g, s->of.n);
    const ebb_type *x = ebb_value_of(s->of.g, ebb_in(s->of.g, s->of.n, 0))->type;
    s->states = s->op == EBB_OP_LSTM ? 2 : 1;
    if (x->rank != 3 || x->dims[0] < 0)
        return "how long it is is not known: bind its size (--dim)";
    s->of.steps = x->dims[0];
    if (strcmp(ebb_attr_string(&attrs, "direction", "forward"), "bidirectional") == 0)
        return "it goes through its sequence both ways";
    if (ebb_attr_int(&attrs, "layout", 0) != 0)
        return "its batch comes before its steps";
    return ebb_in(s->of.g, s->of.n, 4).i != 0 ? "its sequences are of unlike lengths" : NULL;
}

/* Made by this pass before. */
static bool is_part(const sequence *s)
{
    const char *by = ebb_props_get(s->of.g, &ebb_node_of(s->of.g, s->of.n)->props, "ebb.pass");
    return by != NULL && strcmp(by, s->of.e->pass->name) == 0;
}

static ebb_status visit(ebb_edit *e, ebb_node n, const bool *learns, size_t value_count)
{
    sequence s = {
        .of = {
            .e = e, .g = e->g, .n = n, .before = n, .learns = learns, .value_count = value_count}};
    s.op = ebb_node_of(e->g, n)->op;
    const bool gates = s.op == EBB_OP_RNN || s.op == EBB_OP_GRU || s.op == EBB_OP_LSTM;
    if ((!gates && s.op != EBB_OP_SCAN) || is_part(&s))
        return NULL;
    const char *why = read_sequence(&s);
    if (why != NULL)
        return ebb_declined(e, n, why);
    set_parts(&s);
    if (s.of.steps < 2 || s.of.parts < 2)
        return NULL;
    if (s.of.parts > MOST_ASKED_FOR)
        return ebb_declined(e, n, "it would be in more than 65,536 parts: give more steps");
    ebb_found(e);
    s.of.name = ebb_text(e->g, ebb_node_of(e->g, n)->name);
    for (uint32_t k = 0; s.of.name[0] == '\0'; k++)
        s.of.name = ebb_value_name(e->g, ebb_out(e->g, n, k));
    EBB_TRY(ebb_note(e, "%s: %lld steps in %u parts", ebb_node_label(e->g, n),
                     (long long)s.of.steps, s.of.parts));
    EBB_TRY(cut(&s));
    ebb_applied(e);
    return NULL;
}

static ebb_status find_learning(const ebb_edit *e, bool *learns)
{
    const ebb_graph *g = e->g;
    for (size_t i = 0; i < g->initializer_count; i++)
        learns[g->initializers[i].i] = ebb_trainable_candidate(g, g->initializers[i]);
    EBB_EACH_NODE(g, n) {
        uint32_t names;
        const ebb_node_info *info = ebb_node_of(g, n);
        const ebb_value *list = ebb_captures_of(g, n, e->scratch, &names);
        bool any = false;
        EBB_GOT(list);
        for (uint32_t i = 0; i < info->in_count; i++)
            any = any || (info->in[i].i != 0 && learns[info->in[i].i]);
        for (uint32_t i = 0; i < names; i++)
            any = any || learns[list[i].i];
        for (uint32_t k = 0; any && k < info->out_count; k++)
            learns[info->out[k].i] = info->out[k].i != 0;
    }
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    const size_t value_count = e->g->value_count;
    bool *learns = EBB_SCRATCH(e, bool, value_count);
    EBB_GOT(learns);
    EBB_EACH_NODE(e->g, n)
        if (ebb_node_of(e->g, n)->phase == EBB_BACKWARD)
            return ebb_declined(e, n, "the graph has its gradient: sequences are cut before it");
    EBB_TRY(find_learning(e, learns));
    for (ebb_node n = ebb_first(e->g), next; n.i != 0; n = next) {
        next = ebb_next(e->g, n);
        EBB_TRY(visit(e, n, learns, value_count));
    }
    ebb_captures_mark(e->g);
    return NULL;
}

static const ebb_option options[] = {
    {"steps", EBB_OPTION_INT, "0", "[0, 16777216]",
     "most steps of a part; 0: as many as keep what all states between parts take"},
    {0},
};

const ebb_pass ebb_pass_sequence_parts = {
    .name = "sequence-parts",
    .doc = "long loops, RNN, GRU and LSTM in parts, which fit and recompute keep, make again or "
           "put on disk",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
