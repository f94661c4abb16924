/* test_bodies.c: plain kernels against the function bodies that files carry.
 *
 * A case is a call in ONNX text. Its kernel runs on it, and its body does, node by node, in plain
 * kernels too; at several opsets, which bodies differ by. An operator that has a body and no case
 * fails.
 */
#include "tests/kernels/body_cases.h"
#include "tests/owned.h"

/* ---- a body ---- */

static const ebb_attr *meant(const ebb_attrs *call, const ebb_function *f, const char *name)
{
    const ebb_attr *given = ebb_attr_find(call, name);
    for (size_t i = 0; given == NULL && i < f->default_count; i++)
        if (strcmp(f->defaults[i].name, name) == 0)
            given = &f->defaults[i];
    return given;
}

/* References to the function's attributes become the call's values, or go. */
static void resolve(ebb_graph *g, ebb_node n, const ebb_attrs *call, const ebb_function *f)
{
    ebb_node_info *info = ebb_node_of(g, n);
    for (uint32_t i = 0; i < info->attr_count;) {
        if (info->attr[i].ref == NULL) {
            i++;
            continue;
        }
        const char *name = info->attr[i].name;
        const ebb_attr *value = meant(call, f, info->attr[i].ref);
        if (value == NULL) {
            assert_null(ebb_node_drop_attr(g, n, name));
            continue;
        }
        ebb_attr resolved = *value;
        resolved.name = name;
        assert_null(ebb_node_set_attr(g, n, &resolved));
        i++;
    }
}

/* ---- Scan, which no kernel of ours does ---- */

static ebb_tensor row_of(const ebb_tensor *t, int64_t row)
{
    ebb_tensor one = {
        .type = ebb_type_tensor((ebb_dtype)t->type.dtype, t->type.rank - 1, t->type.dims + 1),
        .bytes = t->bytes / (size_t)t->type.dims[0]};
    one.data = (const char *)t->data + (size_t)row * one.bytes;
    return one;
}

static void put_row(ebb_graph *g, ebb_tensor *all, const ebb_tensor *one, int64_t row, int64_t rows)
{
    if (all->data == NULL) {
        int64_t dims[EBB_MAX_RANK] = {rows};
        for (int i = 0; i < one->type.rank; i++)
            dims[i + 1] = one->type.dims[i];
        all->type = ebb_type_tensor((ebb_dtype)one->type.dtype, one->type.rank + 1, dims);
        all->bytes = one->bytes * (size_t)rows;
        all->data = ebb_arena_zeroed(&g->model->arena, all->bytes + 1, 1);
        assert_non_null(all->data);
    }
    memcpy((char *)(uintptr_t)all->data + (size_t)row * one->bytes, one->data, one->bytes);
}

static bool is_set(const ebb_attrs *attrs, const char *name)
{
    uint32_t count;
    const int64_t *list = ebb_attr_ints(attrs, name, &count);
    return list != NULL && list[0] != 0;
}

/* As bodies have it: all scanned inputs one way, all scanned outputs one way, along axis 0. */
static void scan(ebb_graph *g, ebb_node n)
{
    ebb_attrs attrs = ebb_node_attrs(g, n);
    const ebb_attr *body = ebb_attr_find(&attrs, "body");
    assert_non_null(body);
    ebb_graph *step = body->graphs[0];
    size_t scanned = (size_t)ebb_attr_int(&attrs, "num_scan_inputs", 0);
    size_t states = step->input_count - scanned, outputs = step->output_count;
    bool in_back = is_set(&attrs, "scan_input_directions");
    bool out_back = is_set(&attrs, "scan_output_directions");
    ebb_tensor result[16] = {{.bytes = 0}};
    int64_t rows = ebb_value_constant(g, ebb_in(g, n, (uint32_t)states))->type.dims[0];
    assert_true(outputs <= 16);
    for (size_t i = 0; i < states; i++)
        result[i] = *ebb_value_constant(g, ebb_in(g, n, (uint32_t)i));
    for (int64_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < step->input_count; i++) {
            const ebb_tensor *t = ebb_value_constant(g, ebb_in(g, n, (uint32_t)i));
            ebb_tensor now = i < states ? result[i] : row_of(t, in_back ? rows - 1 - row : row);
            give(step, step->inputs[i], &now);
        }
        EBB_EACH_NODE(step, s)
            compute(step, s);
        for (size_t i = 0; i < outputs; i++) {
            const ebb_tensor *t = ebb_value_of(step, step->outputs[i])->tensor;
            if (i < states)
                result[i] = *t;
            else
                put_row(g, &result[i], t, out_back ? rows - 1 - row : row, rows);
        }
    }
    for (size_t i = 0; i < outputs; i++)
        give(g, ebb_out(g, n, (uint32_t)i), &result[i]);
}

static void run_body(ebb_model *model, ebb_function *f, ebb_graph *caller, ebb_node call)
{
    ebb_op op = ebb_node_of(caller, call)->op;
    ok(ebb_text_parse_body(model, f, op, ebb_model_opset(model, EBB_DOMAIN_ONNX),
                           ebb_is_narrow(ebb_value_of(caller, ebb_in(caller, call, 0))->type)),
       "the body's text");
    ebb_attrs attrs = ebb_node_attrs(caller, call);
    ebb_graph *g = f->body;
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_tensor *t = ebb_value_constant(caller, ebb_in(caller, call, (uint32_t)i));
        if (t != NULL)
            give(g, g->inputs[i], t);
    }
    EBB_EACH_NODE(g, n) {
        for (uint32_t i = 0; i < ebb_node_of(g, n)->in_count; i++) {
            ebb_value v = ebb_in(g, n, i);
            bool absent =
                (ebb_value_of(g, v)->flags & EBB_IS_INPUT) != 0; // given ones are no more inputs
            if (v.i != 0 && absent)
                ok(ebb_node_set_input(g, n, i, EBB_NO_VALUE), "an input that is not there");
        }
        resolve(g, n, &attrs, f);
        if (strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), "Scan") == 0)
            scan(g, n);
        else
            compute(g, n);
    }
}

/* ---- a case ---- */

static void run_case(const body_case *c, int64_t opset)
{
    OWNED_MODEL *model = open_case(c, c->inputs, opset);
    ebb_graph *g = model->graph;
    ebb_node call = ebb_first(g);
    if (ebb_node_of(g, call)->op != c->op)
        fail_msg("%s: calls another operator than the case says", label);
    compute(g, call);
    ebb_function f = {0};
    run_body(model, &f, g, call);
    const ebb_node_info *info = ebb_node_of(g, call);
    assert_int_equal(f.body->output_count, ebb_op_body_outputs(c->op));
    assert_true(info->out_count <= f.body->output_count);
    for (uint32_t o = 0; o < info->out_count; o++)
        compare(ebb_value_of(g, info->out[o])->tensor,
                ebb_value_of(f.body, f.body->outputs[o])->tensor, c->tolerance, o);
}

/* ---- tests ---- */

TEST(kernels_compute_what_the_bodies_say)
{
    static const int64_t opsets[] = {17, 18, 20, 21};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t k = 0; k < sizeof opsets / sizeof opsets[0]; k++)
            if (opsets[k] >= 21 || strstr(cases[i].constants, "int4[") == NULL)
                run_case(&cases[i], opsets[k]);
}

TEST(every_body_has_a_case)
{
    for (int op = 1; op < EBB_OP_COUNT; op++) {
        bool found = ebb_op_body((ebb_op)op) == NULL;
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            found |= cases[i].op == (ebb_op)op;
        if (!found)
            fail_msg("%s has a body and no case here", ebb_op_row_of((ebb_op)op)->name);
    }
}
