/* segments: several texts in a row, none of which sees another.
 *
 *   before   p = Softmax(scores)                              scores [B, heads, S, S]
 *   after    same = Equal(segment_ids [B, S], of each key)    [B, 1, S, S], one for all layers
 *            p = Softmax(Where(same, scores, lowest))
 *
 * segment_ids is a new input: a number for each text of a row, as `--pack` gives it. Gradients are those of
 * the texts in rows of their own. What mixes tokens otherwise than by attention is not kept apart: a
 * convolution along them, or a state.
 */
#include "passes/common.h"

/* The input that has a number for each token. */
static ebb_value tokens_of(const ebb_graph *g)
{
    const ebb_value ids = ebb_value_find(g, "input_ids");
    if (ids.i != 0 && ebb_value_of(g, ids)->type->rank == 2)
        return ids;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_type *t = ebb_value_of(g, g->inputs[i])->type;
        if (t->rank == 2 && ebb_dtype_is_integer((ebb_dtype)t->dtype))
            return g->inputs[i];
    }
    return EBB_NO_VALUE;
}

static bool is_over_last(const ebb_graph *g, ebb_node n, int rank)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const int64_t axis = ebb_attr_int(&attrs, "axis", -1);
    return axis == -1 || axis == rank - 1;
}

/* Scores of each token against each. */
static bool is_attention(const ebb_graph *g, ebb_node n, int64_t length)
{
    const ebb_type *t = ebb_value_of(g, ebb_in(g, n, 0))->type;
    return ebb_node_of(g, n)->op == EBB_OP_SOFTMAX && t->rank >= 3 &&
           t->dims[t->rank - 1] == length && t->dims[t->rank - 2] == length &&
           is_over_last(g, n, t->rank);
}

/* bool [B, 1, S, S], before the first node. */
static ebb_value make_same(ebb_edit *e, ebb_value segments)
{
    static const int64_t rows[4] = {0, 1, -1, 1}, columns[4] = {0, 1, 1, -1};
    ebb_build b = ebb_edit_build(e, ebb_first(e->g), EBB_FORWARD);
    b.name = "segments";
    ebb_value query = ebb_emit(&b, EBB_OP_RESHAPE, segments, ebb_const_ints(&b, rows, 4));
    ebb_value key = ebb_emit(&b, EBB_OP_RESHAPE, segments, ebb_const_ints(&b, columns, 4));
    ebb_value same = ebb_emit(&b, EBB_OP_EQUAL, query, key);
    return b.status == NULL ? same : EBB_NO_VALUE;
}

static ebb_status part(ebb_edit *e, ebb_node n, ebb_value same, int64_t batch)
{
    ebb_graph *g = e->g;
    const ebb_value scores = ebb_in(g, n, 0);
    const ebb_type type = *ebb_value_of(g, scores)->type;
    ebb_found(e);
    if (type.rank != 4 || type.dims[0] != batch)
        return ebb_error(EBB_UNSUPPORTED,
                         "segments: the scores of %s are not [batch, heads, tokens, tokens]",
                         ebb_node_label(g, n));
    ebb_build b = ebb_edit_build(e, n, EBB_PHASE_NONE);
    b.name = "segments";
    const double lowest = type.dtype == EBB_F16 ? -65504.0 : -3.402823466e38;
    ebb_value apart = ebb_emit(&b, EBB_OP_WHERE, same, scores, ebb_const_like(&b, scores, lowest));
    EBB_TRY(b.status);
    EBB_TRY(ebb_node_set_input(g, n, 0, apart));
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    ebb_graph *g = e->g;
    const char *name = ebb_option_string(e, "input");
    const ebb_value ids = tokens_of(g);
    size_t count = 0;
    if (ebb_value_find(g, name).i != 0)
        return ebb_declined(e, EBB_NO_NODE, "the segments are an input already");
    if (ids.i == 0 || !ebb_type_is_static(ebb_value_of(g, ids)->type))
        return ebb_error(EBB_USAGE, "segments: no input of known size has a number for each token");
    ebb_type type = *ebb_value_of(g, ids)->type;
    const int64_t batch = type.dims[0], length = type.dims[1];
    type.dtype = EBB_I64;
    EBB_EACH_NODE(g, n)
        count += is_attention(g, n, length);
    if (count == 0)
        return ebb_error(EBB_UNSUPPORTED,
                         "segments: the model has no attention over %lld tokens "
                         "that could be kept apart",
                         (long long)length);
    ebb_value segments;
    EBB_TRY(ebb_value_add(g, &segments, name, &type));
    EBB_TRY(ebb_graph_add_input(g, segments));
    const ebb_value same = make_same(e, segments);
    EBB_GOT(same.i != 0);
    EBB_EACH_NODE(g, n)
        if (is_attention(g, n, length))
            EBB_TRY(part(e, n, same, batch));
    return ebb_note(e, "the new input '%s' keeps texts of a row apart in %zu attentions", name,
                    count);
}

static const ebb_option options[] = {
    {"input", EBB_OPTION_STRING, "segment_ids", NULL, "name of the new graph input"},
    {0},
};

const ebb_pass ebb_pass_segments = {
    .name = "segments",
    .doc = "keep several texts in a row apart, by numbers that are a new input",
    .exactness = EBB_MAKES,
    .options = options,
    .run = run,
};
