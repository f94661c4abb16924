/* test_grad_second.c: gradients of gradients against central differences, by the words of grad.h.
 *
 * L = sum u dx, over all inputs' gradients dx, with u drawn. The pass's reverse mode differentiates
 * L by the inputs and by the dy that the first order was given; nodes that have no rule become
 * their bodies (passes/gradient/second_order.c). The differences are those of L as the first order's own
 * kernels compute it, in a second copy of the case.
 */
#include "grad.h"

#include "passes/gradient/reverse.h"

static const grad_case cases[] = {
#include "grad_second.def"
};
enum { CASES = sizeof cases / sizeof cases[0] };

typedef struct pair {
    bench second; /* differentiated twice */
    bench first;  /* once; its kernels say what L is */
    double u[INPUTS][ELEMENTS];
    ebb_value loss;
} pair;

static int64_t elements(const bench *t, ebb_value v)
{
    int64_t n = 0;
    assert_true(ebb_type_elements(ebb_value_of(t->g, v)->type, &n) && n <= ELEMENTS);
    return n;
}

static bool is_gradient(const bench *t, uint32_t i)
{
    return t->varies[i] && t->dx[i].i != 0;
}

static bool run_all(bench *t)
{
    EBB_EACH_NODE(t->g, n)
        CHECK(run_node(t, n), t->what);
    return true;
}

/* ---- the second order ---- */

static ebb_value put_loss(pair *p)
{
    bench *t = &p->second;
    ebb_value sum = EBB_NO_VALUE;
    t->b.phase = EBB_FORWARD;
    t->b.name = "second";
    for (uint32_t i = 0; i < t->in_count; i++) {
        if (!is_gradient(t, i))
            continue;
        ebb_type type = *ebb_value_of(t->g, t->dx[i])->type;
        ebb_value u = ebb_const_tensor(&t->b, &type, p->u[i]);
        ebb_value product = ebb_emit(&t->b, EBB_OP_MUL, t->dx[i], u);
        ebb_with_int(&t->b, "keepdims", 0);
        ebb_value one = ebb_emit(&t->b, EBB_OP_REDUCE_SUM, product);
        sum = sum.i == 0 ? one : ebb_emit(&t->b, EBB_OP_ADD, sum, one);
    }
    return sum;
}

/* grad: by input, and behind those by output. */
static bool differentiate_again(pair *p, ebb_value *grad)
{
    bench *t = &p->second;
    const grad_case *c = t->what;
    ebb_report report = {0};
    ebb_edit e = {.g = t->g,
                  .pass = ebb_pass_find("gradient"),
                  .scratch = &t->arena,
                  .keep = &t->arena,
                  .report = &report};
    ebb_reverse r = {.g = t->g};
    p->loss = put_loss(p);
    CHECK(t->b.status, c);
    for (ebb_node n = ebb_first(t->g); n.i != 0; n = ebb_next(t->g, n))
        ebb_node_of(t->g, n)->phase = EBB_FORWARD;
    const char *loss = ebb_value_name(t->g, p->loss);
    for (bool again = true; again;) {
        r = (ebb_reverse){.e = &e, .g = t->g, .nameless = true};
        CHECK(ebb_reverse_open(&r, EBB_NO_NODE), c);
        for (uint32_t i = 0; i < t->in_count; i++)
            r.trains[t->x[i].i] = t->varies[i];
        for (uint32_t k = 0; k < t->out_count; k++)
            r.trains[t->dy[k].i] = t->dy[k].i != 0;
        r.y = ebb_value_find(t->g, loss);
        ebb_reverse_mark(&r);
        CHECK(ebb_reverse_expand(&r, &again), c);
    }
    CHECK(ebb_reverse_find_unsupported(&r), c);
    CHECK(ebb_reverse_say_unsupported(&r), c);
    r.b = ebb_edit_build(&e, EBB_NO_NODE, EBB_BACKWARD);
    r.b.phase = EBB_BACKWARD;
    r.grad[r.y.i] = ebb_const_like(&r.b, r.y, 1.0);
    CHECK(ebb_reverse_run(&r), c);
    for (uint32_t i = 0; i < t->in_count; i++)
        grad[i] = t->varies[i] ? r.grad[t->x[i].i] : EBB_NO_VALUE;
    for (uint32_t k = 0; k < t->out_count; k++)
        grad[INPUTS + k] = t->dy[k].i != 0 ? r.grad[t->dy[k].i] : EBB_NO_VALUE;
    return true;
}

/* ---- differences ---- */

static double loss_of(const pair *p)
{
    const bench *t = &p->first;
    double sum = 0;
    for (uint32_t i = 0; i < t->in_count; i++) {
        if (!is_gradient(t, i))
            continue;
        const ebb_tensor *dx = ebb_value_of(t->g, t->dx[i])->tensor;
        for (int64_t k = 0; k < elements(t, t->dx[i]); k++)
            sum += p->u[i][k] * ebb_tensor_double(dx, k);
    }
    return sum;
}

static bool loss_along(pair *p, ebb_value x, const double *v, double step, double *loss)
{
    bench *t = &p->first;
    ebb_value_info *info = ebb_value_of(t->g, x);
    const ebb_tensor *here = info->tensor;
    ebb_tensor moved = *here;
    double *data = ebb_arena_alloc(&t->arena, here->bytes + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < elements(t, x); i++)
        data[i] = ebb_tensor_double(here, i) + step * v[i];
    moved.data = data;
    info->tensor = &moved;
    bool good = run_all(t);
    *loss = loss_of(p); // some dx is dy itself
    info->tensor = here;
    return good;
}

static bool agrees(pair *p, ebb_value x, ebb_value grad, const char *what, uint32_t which)
{
    const double h = 1e-5;
    double v[ELEMENTS], along = 0, size = 0, above, below;
    const ebb_tensor *dx = grad.i != 0 ? ebb_value_of(p->second.g, grad)->tensor : NULL;
    for (int64_t i = 0; i < elements(&p->first, x); i++) {
        v[i] = draw_signed();
        double part = dx != NULL ? ebb_tensor_double(dx, i) * v[i] : 0;
        along += part;
        size += fabs(part);
    }
    if (!loss_along(p, x, v, h, &above) || !loss_along(p, x, v, -h, &below))
        return false;
    double slope = (above - below) / (2 * h);
    if (fabs(slope - along) <= 1e-6 * (1 + size))
        return true;
    print_error("%s %u: reverse mode gives %.9g, the difference %.9g\n", what, which, along, slope);
    describe(p->first.what);
    return false;
}

static bool second_order_passes(const grad_case *c, uint64_t seed)
{
    static pair p;
    ebb_value grad[INPUTS + OUTPUTS] = {{0}};
    p = (pair){.second.what = c, .first.what = c};
    state_of_draws = seed;
    bool good = set_up(&p.first) && differentiate(&p.first);
    state_of_draws = seed;
    good = good && set_up(&p.second) && differentiate(&p.second);
    for (uint32_t i = 0; good && i < p.first.in_count; i++)
        for (int64_t k = 0; is_gradient(&p.first, i) && k < elements(&p.first, p.first.dx[i]); k++)
            p.u[i][k] = draw_signed();
    good = good && differentiate_again(&p, grad) && run_all(&p.second) && run_all(&p.first);
    for (uint32_t i = 0; good && i < p.first.in_count; i++)
        if (p.first.varies[i])
            good = agrees(&p, p.first.x[i], grad[i], "input", i);
    for (uint32_t k = 0; good && k < p.first.out_count; k++)
        if (p.first.dy[k].i != 0)
            good = agrees(&p, p.first.dy[k], grad[INPUTS + k], "dy", k);
    ebb_model_free(p.first.model);
    ebb_model_free(p.second.model);
    ebb_arena_fini(&p.first.arena);
    ebb_arena_fini(&p.second.arena);
    return good;
}

TEST(gradients_of_gradients_agree_with_the_difference_quotient)
{
    all_cases_pass(cases, CASES, second_order_passes);
}
