/* common.c: what several passes ask of a graph. */
#include "passes/common.h"

#include "exec/weigh/memory.h"
#include "onnx/ops/common.h"
#include "passes/parameters/noted.h"

#include <ctype.h>
#include <stdio.h>

int64_t ebb_stored_bytes(const ebb_graph *g, ebb_value v)
{
    size_t bytes;
    if (!ebb_type_bytes(ebb_value_of(g, v)->type, &bytes) || bytes > INT64_MAX / 2)
        return 0;
    return ((int64_t)bytes + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
}

int64_t ebb_stored_bits(int64_t n, unsigned bits)
{
    int64_t bytes = n / 8 * bits + (n % 8 * bits + 7) / 8;
    return (bytes + EBB_ALIGN - 1) / EBB_ALIGN * EBB_ALIGN;
}

bool ebb_is_backward(const ebb_graph *g, ebb_node n)
{
    uint8_t phase = ebb_node_of(g, n)->phase;
    return phase == EBB_BACKWARD || phase == EBB_UPDATE;
}

/* Whether a node can do without what it reads there: the output that a gradient of attention is given
 * because others keep it (onnx/ops/scores/attention.c). For exact passes it is an operand like any other; a
 * lossy pass that lets the value go takes it away, all such operands of v at once. */
static bool lets_go(const ebb_graph *g, ebb_use use)
{
    return ebb_op_reads(ebb_node_of(g, use.node)->op, use.slot) == 'G';
}

uint32_t ebb_letting_go(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    uint32_t count = 0;
    for (size_t i = 0; i < info->use_count; i++)
        count += lets_go(g, info->uses[i]);
    return count;
}

ebb_status ebb_let_go(ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = info->use_count; i-- > 0;)
        if (lets_go(g, info->uses[i]))
            EBB_TRY(ebb_node_set_input(g, info->uses[i].node, info->uses[i].slot, EBB_NO_VALUE));
    return NULL;
}

ebb_status ebb_draw_also(ebb_model *model, ebb_str state, ebb_value drawn)
{
    size_t count = model->init_binding_count;
    struct ebb_init_binding *longer = EBB_NEW(&model->arena, struct ebb_init_binding, count + 1);
    EBB_GOT(longer);
    if (count > 0)
        memcpy(longer, model->init_bindings, count * sizeof *longer);
    longer[count] = (struct ebb_init_binding){state, drawn};
    model->init_bindings = longer;
    model->init_binding_count = count + 1;
    return NULL;
}

ebb_node ebb_first_update(const ebb_graph *g)
{
    EBB_EACH_NODE(g, n)
        if (ebb_node_of(g, n)->phase == EBB_UPDATE)
            return n;
    return EBB_NO_NODE;
}

static void mark_kept(ebb_saves *s, const ebb_graph *g)
{
    EBB_EACH_VALUE(g, v) {
        uint16_t stays = EBB_IS_INITIALIZER | EBB_IS_OUTPUT;
        if (!ebb_value_of(g, v)->dead && (ebb_value_of(g, v)->flags & stays) != 0)
            s->kept[s->root[v.i].i] = true;
    }
    for (size_t i = 0; i < g->binding_count; i++)
        s->kept[s->root[g->bindings[i].next.i].i] = true;
}

ebb_status ebb_saves_find(ebb_saves *s, const ebb_graph *g, ebb_arena *scratch)
{
    s->value_count = g->value_count;
    s->root = EBB_NEW(scratch, ebb_value, g->value_count);
    s->reads = EBB_NEW(scratch, uint32_t, g->value_count);
    s->kept = EBB_NEW(scratch, bool, g->value_count);
    s->forward = EBB_NEW(scratch, bool, g->value_count);
    EBB_GOT(s->root && s->reads && s->kept && s->forward);
    EBB_EACH_VALUE(g, v) {
        s->root[v.i] = v;
        ebb_node maker = ebb_value_of(g, v)->producer;
        s->forward[v.i] = maker.i == 0 || !ebb_is_backward(g, maker);
    }
    EBB_EACH_NODE(g, n) { // in order: the root of an input is final when its view is met
        const ebb_node_info *info = ebb_node_of(g, n);
        bool view = ebb_op_has(info->op, EBB_VIEW) && info->out_count > 0 && info->in_count > 0;
        if (view && info->in[0].i != 0 && info->out[0].i != 0)
            s->root[info->out[0].i] = s->root[info->in[0].i];
        if (!ebb_is_backward(g, n))
            continue;
        for (uint32_t i = 0; i < info->in_count; i++) {
            bool unread = i == 0 && (view || ebb_op_has(info->op, EBB_SHAPE_OF_0));
            if (info->in[i].i != 0 && !unread)
                s->reads[s->root[info->in[i].i].i]++;
        }
    }
    mark_kept(s, g);
    return NULL;
}

ebb_value ebb_sign_twin(const ebb_graph *g, ebb_node n)
{
    ebb_value v = ebb_in(g, n, 1);
    ebb_op grad = ebb_node_of(g, n)->op;
    ebb_op forward = grad == EBB_OP_RELU_GRAD         ? EBB_OP_RELU
                     : grad == EBB_OP_CLIP_GRAD       ? EBB_OP_CLIP
                     : grad == EBB_OP_LEAKY_RELU_GRAD ? EBB_OP_LEAKY_RELU
                                                      : EBB_OP_UNKNOWN;
    if (forward == EBB_OP_UNKNOWN || v.i == 0)
        return EBB_NO_VALUE;
    if (forward == EBB_OP_LEAKY_RELU) {
        ebb_attrs attrs = ebb_node_attrs(g, n);
        if (!(ebb_attr_float(&attrs, "alpha", 0.01) > 0))
            return EBB_NO_VALUE;
    }
    ebb_node maker = ebb_value_of(g, v)->producer;
    if (maker.i != 0 && ebb_node_of(g, maker)->op == forward)
        return ebb_in(g, maker, 0);
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_use use = info->uses[i];
        bool same_bounds =
            forward != EBB_OP_CLIP || (ebb_same_value(ebb_in(g, use.node, 1), ebb_in(g, n, 2)) &&
                                       ebb_same_value(ebb_in(g, use.node, 2), ebb_in(g, n, 3)));
        if (ebb_node_of(g, use.node)->op == forward && use.slot == 0 && same_bounds)
            return ebb_out(g, use.node, 0);
    }
    return EBB_NO_VALUE;
}

bool ebb_is_name_of_state(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && strchr("_.-", *name) == NULL)
            return false;
    return true;
}

bool ebb_is_parameter(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if ((info->flags & EBB_IS_INITIALIZER) == 0 || info->role == EBB_ROLE_CONSTANT ||
        !ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return false;
    ebb_noted_kind kind = ebb_noted_kind_of(g, v);
    return kind != EBB_NOTED_NOTHING
               ? kind == EBB_NOTED_PARAMETER
               : g->model->torchscript && ebb_is_name_of_state(ebb_value_name(g, v));
}

bool ebb_is_detach(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    if (info->op != EBB_OP_IDENTITY)
        return false;
    if (ebb_props_get(g, &info->props, "ebb.detach") != NULL)
        return true;
    // "['Module', 'aten.detach.default']", from the outermost in
    const char *calls = ebb_props_get(g, &info->props, "pkg.torch.onnx.class_hierarchy");
    const char *last = calls != NULL ? strrchr(calls, ' ') : NULL;
    return calls != NULL && strstr(last != NULL ? last : calls, "'aten.detach") != NULL;
}

ebb_value ebb_emit_detached(ebb_build *b, ebb_value x)
{
    ebb_value y = ebb_emit(b, EBB_OP_IDENTITY, x);
    if (b->status == NULL)
        ebb_build_fail(b,
                       ebb_props_set(b->g, &ebb_node_of(b->g, b->last)->props, "ebb.detach", "1"));
    return y;
}

bool ebb_stops_gradient(const ebb_graph *g, ebb_node n)
{
    return ebb_op_stops_grad(ebb_node_of(g, n)->op) || ebb_is_detach(g, n) ||
           ebb_is_straight_through(g, n);
}

bool ebb_scalar_of(const ebb_graph *g, ebb_value v, double *x)
{
    return !ebb_is_parameter(g, v) && ebb_constant_scalar(g, v, x) && !ebb_noted_is_made(g, v);
}

bool ebb_read_product(ebb_product *p, const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const bool plain = op == EBB_OP_MATMUL;
    *p = (ebb_product){.a = ebb_in(g, n, 0),
                       .b = ebb_in(g, n, 1),
                       .out = ebb_out(g, n, 0),
                       .turn_a = !plain && ebb_attr_int(&attrs, "transA", 0) != 0,
                       .turn_b = !plain && ebb_attr_int(&attrs, "transB", 0) != 0,
                       .alpha = plain ? 1 : ebb_attr_float(&attrs, "alpha", 1)};
    return plain || (op == EBB_OP_GEMM && ebb_in(g, n, 2).i == 0) ||
           (op == EBB_OP_FUSED_MATMUL && ebb_attr_int(&attrs, "transBatchA", 0) == 0 &&
            ebb_attr_int(&attrs, "transBatchB", 0) == 0);
}

ebb_status ebb_bind_next(ebb_graph *g, ebb_value state, ebb_value next)
{
    EBB_LOCAL_ARENA(scratch);
    const char *name = ebb_arena_printf(scratch, "%s_next", ebb_value_name(g, state));
    EBB_GOT(name);
    if (ebb_value_find(g, name).i == 0)
        EBB_TRY(ebb_value_rename(g, next, name));
    return ebb_graph_bind(g, state, next);
}

ebb_status ebb_output_becomes(ebb_graph *g, size_t i, ebb_value made, const char *suffix)
{
    const ebb_value v = g->outputs[i];
    EBB_LOCAL_ARENA(scratch);
    const char *name = ebb_arena_strdup(scratch, ebb_value_name(g, v));
    const char *inner = ebb_arena_printf(scratch, "%s.%s", ebb_value_name(g, v), suffix);
    EBB_GOT(name);
    EBB_TRY(ebb_value_step_aside(g, v, inner));
    EBB_TRY(ebb_value_rename(g, made, name));
    ebb_graph_remove_output(g, v);
    EBB_TRY(ebb_graph_add_output(g, made));
    for (size_t k = g->output_count - 1; k > i; k--)
        g->outputs[k] = g->outputs[k - 1];
    g->outputs[i] = made;
    return NULL;
}

ebb_value ebb_unviewed(const ebb_graph *g, ebb_value v)
{
    ebb_node n = ebb_value_of(g, v)->producer;
    while (n.i != 0 && ebb_op_has(ebb_node_of(g, n)->op, EBB_VIEW) && ebb_in(g, n, 0).i != 0) {
        v = ebb_in(g, n, 0);
        n = ebb_value_of(g, v)->producer;
    }
    return v;
}

bool ebb_ints_of(const ebb_graph *g, ebb_value v, ebb_arena *scratch, const int64_t **list,
                 uint32_t *count)
{
    const ebb_tensor *t = ebb_value_constant(g, v);
    int64_t elements;
    if (t == NULL || t->type.rank > 1 || !ebb_dtype_is_integer((ebb_dtype)t->type.dtype) ||
        !ebb_type_elements(&t->type, &elements) || elements > UINT16_MAX)
        return false;
    int64_t *copy = EBB_NEW(scratch, int64_t, (size_t)elements + 1);
    if (copy == NULL)
        return false;
    for (int64_t i = 0; i < elements; i++)
        copy[i] = ebb_tensor_int(t, i);
    *list = copy;
    *count = (uint32_t)elements;
    return true;
}

bool ebb_axes_of(const ebb_graph *g, ebb_node n, ebb_arena *scratch, const int64_t **axes,
                 uint32_t *count)
{
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    *axes = ebb_attr_ints(&attrs, "axes", count);
    return ebb_in(g, n, 1).i == 0 || ebb_ints_of(g, ebb_in(g, n, 1), scratch, axes, count);
}

ebb_node ebb_reduced_by(const ebb_graph *g, ebb_value v, ebb_op op, int64_t *axis,
                        ebb_arena *scratch)
{
    const ebb_node n = ebb_value_of(g, v)->producer;
    const int64_t *axes;
    uint32_t count;
    if (n.i == 0 || ebb_node_of(g, n)->op != op || !ebb_axes_of(g, n, scratch, &axes, &count))
        return EBB_NO_NODE;
    const ebb_attrs attrs = ebb_node_attrs(g, n);
    const int rank = ebb_value_of(g, ebb_in(g, n, 0))->type->rank;
    if (rank < 1 || count != 1 || ebb_attr_int(&attrs, "keepdims", 1) != 1)
        return EBB_NO_NODE;
    *axis = axes[0] < 0 ? axes[0] + rank : axes[0];
    return n;
}

ebb_node ebb_only_user(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return info->use_count == 1 && !ebb_value_is_held(g, v) ? info->uses[0].node : EBB_NO_NODE;
}

void ebb_keep_name(ebb_graph *g, ebb_node made, ebb_node of)
{
    ebb_str name = ebb_node_of(g, of)->name;
    if (ebb_text(g, name)[0] != '\0')
        ebb_node_of(g, made)->name = name;
}

uint32_t ebb_hash31(const char *text)
{
    uint32_t h = 2166136261u;
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    h &= 0x7fffffffu;
    return h == 0 ? 1 : h;
}

ebb_status ebb_remember_budget(ebb_edit *e, uint64_t bytes, int threads)
{
    char text[32];
    ebb_props *props = &e->g->model->props;
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    EBB_TRY(ebb_props_set(e->g, props, "ebb.budget_bytes", text));
    (void)snprintf(text, sizeof text, "%d", threads);
    return ebb_props_set(e->g, props, "ebb.budget_threads", text);
}

ebb_status ebb_random_key(ebb_edit *e, ebb_value *key)
{
    ebb_graph *g = e->g;
    *key = ebb_value_find(g, "ebb.key");
    if (key->i != 0)
        return NULL;
    int64_t seed = 1;
    for (const ebb_option *o = e->pass->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, "seed") == 0)
            seed = ebb_option_int(e, "seed");
    int64_t start[2] = {seed, 0}, count[2] = {0, 1}, dims[1] = {2};
    ebb_type type = ebb_type_tensor(EBB_I64, 1, dims);
    EBB_TRY(ebb_graph_add_initializer(g, key, "ebb.key", &type, start, EBB_ROLE_RANDOM));
    ebb_build b = ebb_edit_build(e, EBB_NO_NODE, EBB_UPDATE);
    b.name = "ebb.key";
    ebb_with_name(&b, "ebb.key_next");
    ebb_value next = ebb_emit(&b, EBB_OP_ADD, *key, ebb_const_ints(&b, count, 2));
    EBB_TRY(b.status);
    return ebb_graph_bind(g, *key, next);
}

void ebb_with_draw(ebb_build *b, ebb_node n)
{
    const ebb_attrs attrs = ebb_node_attrs(b->g, n);
    const int64_t run = ebb_attr_int(&attrs, "run", 0);
    ebb_with_float(b, "ratio", ebb_attr_float(&attrs, "ratio", 0.5));
    ebb_with_int(b, "stream", ebb_attr_int(&attrs, "stream", 0));
    if (run != 0)
        ebb_with_int(b, "run", run);
}

bool ebb_same_draw(const ebb_graph *g, ebb_node a, ebb_node b)
{
    const ebb_attrs x = ebb_node_attrs(g, a), y = ebb_node_attrs(g, b);
    return ebb_attr_int(&x, "stream", 0) == ebb_attr_int(&y, "stream", 0) &&
           ebb_attr_int(&x, "run", 0) == ebb_attr_int(&y, "run", 0) &&
           ebb_attr_float(&x, "ratio", 0.5) == ebb_attr_float(&y, "ratio", 0.5);
}

int64_t ebb_random_stream(const ebb_graph *g, const char *name)
{
    int64_t stream = ebb_hash31(name);
    for (bool taken = true; taken;) {
        taken = false;
        EBB_EACH_NODE(g, n) {
            ebb_attrs attrs = ebb_node_attrs(g, n);
            if (ebb_attr_int(&attrs, "stream", -1) != stream)
                continue;
            stream = stream == INT32_MAX ? 1 : stream + 1;
            taken = true;
        }
    }
    return stream;
}

/* ---- losses ---- */

const char *ebb_loss_gradient(const ebb_graph *g, ebb_node loss, ebb_node *grad)
{
    ebb_value p = ebb_out(g, loss, 1);
    ebb_attrs attrs = ebb_node_attrs(g, loss);
    if (strcmp(ebb_attr_string(&attrs, "reduction", "mean"), "none") == 0)
        return "its losses are not added up";
    if (p.i == 0 || ebb_value_of(g, p)->use_count == 0)
        return "nothing is trained through it";
    *grad = ebb_only_user(g, p);
    if (grad->i == 0 || ebb_node_of(g, *grad)->op != EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS_GRAD)
        return "its log-probabilities are read by something else";
    ebb_attrs back = ebb_node_attrs(g, *grad);
    const ebb_attr *a = ebb_attr_find(&attrs, "ignore_index");
    const ebb_attr *b = ebb_attr_find(&back, "ignore_index");
    if (!ebb_same_value(ebb_in(g, *grad, 1), p) ||
        !ebb_same_value(ebb_in(g, *grad, 2), ebb_in(g, loss, 1)) ||
        !ebb_same_value(ebb_in(g, *grad, 3), ebb_in(g, loss, 2)) || (a == NULL) != (b == NULL) ||
        (a != NULL && a->i != b->i) ||
        strcmp(ebb_attr_string(&attrs, "reduction", "mean"),
               ebb_attr_string(&back, "reduction", "mean")) != 0)
        return "its gradient is that of another loss";
    return NULL;
}
