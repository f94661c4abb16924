/* grad.h: gradient rules against central differences, in float64, by the plain kernels.
 *
 * A case is one node. Its outputs are weighed with random numbers and added up: L = sum w y. The
 * rule gets dy = w and gives dx; for each input a random direction v is drawn and dx . v compared
 * with (L(x + h v) - L(x - h v)) / 2h. Each case is drawn GRAD_DRAWS times.
 *
 * Inputs, one word each:
 *   d[2,3]  differentiable, magnitude 0.2 to 1.2      c[2,3]  the same, a constant
 *   p[2,3]  differentiable, 0.3 to 1.5                q[2,3]  the same, a constant
 *   u[2,3]  differentiable, -0.9 to 0.9               v[2,3]  differentiable, 1.2 to 2.4
 *   z[2,3]  differentiable, among them zeros
 *   m[3,3]  as d, and 2 n more on the diagonal of each n by n matrix: far from singular
 *   n5[2]   int64 below 5    w9[2]   uint8 below 9
 *   i{1,2}  int64 list    i[2,1]{0,1}  with a shape
 *   b[2]    bool             b{1,0}  given          t(1)  bool scalar
 *   j(3)    int64 scalar     s(0.5)  float64 scalar    f(0.5)  float32 scalar
 *   -       absent
 * A size is a sum of products of numbers and capital letters: d[A,2B+1]. A letter is a size from 1
 * to 4, drawn anew for each draw and the same in the whole case.
 * Attributes: axis=1  alpha=0.5  mode=tanh  pads=[1,A]  num_heads=(2A), a size in parentheses;
 * alpha=~ is a float from 0.3 to 1.5, and axis=0|1|-1 one of the alternatives, drawn. What ends in
 * a comma is a list: names=Tanh,Relu, of strings, alphas=~,0.5, of floats. Outputs, one letter
 * each: 1 weighed, w there but not weighed, 0 absent.
 */
#pragma once

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/weigh/call.h"
#include "onnx/graph/infer.h"
#include "onnx/ops/ops.h"
#include "onnx/words/mix.h"
#include "tests/test.h"

typedef struct grad_case {
    ebb_op op;
    const char *inputs, *attrs, *outputs;
    int opset; /* 0: 20 */
} grad_case;

enum { GRAD_DRAWS = 20, INPUTS = 16, OUTPUTS = 8, TEXT = 256, ELEMENTS = 2048 };

/* ---- draws ---- */

static uint64_t state_of_draws;

static double draw(void) /* [0, 1) */
{
    return (double)(ebb_draw(&state_of_draws) >> 11) / 9007199254740992.0;
}

static double draw_signed(void)
{
    double magnitude = 0.2 + draw();
    return draw() < 0.5 ? -magnitude : magnitude;
}

/* An element of the kinds above. */
static double draw_kind(char kind)
{
    switch (kind) {
    case 'd':
    case 'c':
        return draw_signed();
    case 'u':
        return 1.8 * draw() - 0.9;
    case 'v':
        return 1.2 + 1.2 * draw();
    case 'z':
        return draw() < 0.3 ? 0.0 : draw_signed();
    default:
        return 0.3 + 1.2 * draw();
    }
}

/* ---- a case as a graph ---- */

typedef struct bench {
    const grad_case *what;
    ebb_model *model;
    ebb_graph *g;
    ebb_build b;
    ebb_node node;
    uint32_t in_count, out_count;
    ebb_value x[INPUTS], y[OUTPUTS], dy[OUTPUTS], dx[INPUTS];
    bool varies[INPUTS];
    int64_t letters[26]; /* sizes; 0: not drawn yet */
    ebb_arena arena;
} bench;

static void describe(const grad_case *c)
{
    print_error("  %s(%s) {%s}\n", ebb_op_row_of(c->op)->name, c->inputs, c->attrs);
}

#define CHECK(status, c)                                  \
    do {                                                  \
        ebb_status check_ = (status);                     \
        if (check_ != NULL) {                             \
            print_error("%s\n", ebb_status_text(check_)); \
            describe(c);                                  \
            return false;                                 \
        }                                                 \
    } while (0)

/* "2A+1", "-3" */
static int64_t read_size(bench *t, const char **at)
{
    int64_t sum = 0;
    do {
        int64_t product = **at == '-' ? -1 : 1;
        if (**at == '-' || **at == '+')
            (*at)++;
        assert_true(isdigit((unsigned char)**at) || isupper((unsigned char)**at));
        while (isdigit((unsigned char)**at) || isupper((unsigned char)**at)) {
            if (isdigit((unsigned char)**at)) {
                char *end;
                product *= strtoll(*at, &end, 10);
                *at = end;
                continue;
            }
            int64_t *letter = &t->letters[*(*at)++ - 'A'];
            if (*letter == 0)
                *letter = 1 + (int64_t)(draw() * 4.0);
            product *= *letter;
        }
        sum += product;
    } while (**at == '+' || **at == '-');
    return sum;
}

static int read_dims(bench *t, const char **at, char close, int64_t *dims)
{
    int count = 0;
    for ((*at)++; **at != close;) {
        if (**at == ',')
            (*at)++;
        dims[count++] = read_size(t, at);
    }
    (*at)++;
    return count;
}

/* One word of the inputs as an initializer. */
static ebb_status add_input(bench *t, const char *word, ebb_value *v, bool *varies)
{
    static const char kinds[] = "dcpquvzmnwbijsft";
    int64_t dims[32], list[64], below = 0, n = 1;
    int rank = 0, given = 0;
    char kind = word[0];
    double scalar = 0.0;
    *v = EBB_NO_VALUE;
    *varies = strchr("dpuvzm", kind) != NULL;
    if (kind == '-')
        return NULL;
    assert_non_null(strchr(kinds, kind));
    word++;
    if (isdigit((unsigned char)*word) || isupper((unsigned char)*word))
        below = read_size(t, &word);
    if (*word == '[')
        rank = read_dims(t, &word, ']', dims);
    if (*word == '{') {
        given = read_dims(t, &word, '}', list);
        if (rank == 0)
            dims[rank++] = given;
    }
    if (*word == '(')
        scalar = strtod(word + 1, NULL);
    ebb_dtype dtype = strchr("nij", kind) != NULL  ? EBB_I64
                      : strchr("bt", kind) != NULL ? EBB_BOOL
                      : kind == 'w'                ? EBB_U8
                      : kind == 'f'                ? EBB_F32
                                                   : EBB_F64;
    ebb_type type = ebb_type_tensor(dtype, rank, dims);
    double doubles[ELEMENTS];
    float single = (float)scalar;
    int64_t longs[ELEMENTS];
    uint8_t bools[ELEMENTS];
    const void *data = doubles;
    assert_true(ebb_type_elements(&type, &n) && n <= ELEMENTS);
    for (int64_t i = 0; i < n; i++) {
        doubles[i] = kind == 's' ? scalar : draw_kind(kind);
        longs[i] = given > 0     ? list[i]
                   : kind == 'j' ? (int64_t)scalar
                                 : (int64_t)(draw() * (double)below);
        bools[i] = given > 0 ? list[i] != 0 : kind == 't' ? scalar != 0.0 : draw() < 0.5;
    }
    for (int64_t i = 0; kind == 'm' && i < n; i++)
        doubles[i] += i / dims[rank - 1] % dims[rank - 1] == i % dims[rank - 1]
                          ? 2.0 * (double)dims[rank - 1]
                          : 0.0;
    for (int64_t i = 0; kind == 'w' && i < n; i++)
        bools[i] = (uint8_t)longs[i];
    if (dtype == EBB_I64)
        data = longs;
    else if (dtype == EBB_BOOL || dtype == EBB_U8)
        data = bools;
    else if (dtype == EBB_F32)
        data = &single;
    return ebb_graph_add_initializer(t->g, v, "x", &type, data,
                                     *varies ? EBB_ROLE_PARAMETER : EBB_ROLE_CONSTANT);
}

/* One of "0|1|-1". */
static char *choose(char *value)
{
    int count = 1;
    for (const char *at = value; *at != '\0'; at++)
        count += *at == '|';
    for (int skip = count > 1 ? (int)(draw() * count) : 0; skip > 0; skip--)
        value = strchr(value, '|') + 1;
    value[strcspn(value, "|")] = '\0';
    return value;
}

static double read_float(const char *word)
{
    return *word == '~' ? 0.3 + 1.2 * draw() : strtod(word, NULL);
}

/* "Tanh,Relu," or "0.5,~," */
static void add_list(bench *t, const char *name, char *value)
{
    const char *strings[8];
    float floats[8];
    uint32_t count = 0;
    char *save = NULL;
    bool named = isalpha((unsigned char)*value);
    for (char *w = strtok_r(value, ",", &save); w != NULL; w = strtok_r(NULL, ",", &save)) {
        assert_true(count < 8);
        strings[count] = w;
        floats[count++] = named ? 0.0F : (float)read_float(w);
    }
    if (named)
        ebb_with_strings(&t->b, name, strings, count);
    else
        ebb_with_floats(&t->b, name, floats, count);
}

static void add_attr(bench *t, char *word)
{
    char *value = strchr(word, '=');
    *value++ = '\0';
    value = choose(value);
    const char *at = value;
    if (*value != '\0' && value[strlen(value) - 1] == ',') {
        add_list(t, word, value);
    } else if (*value == '[') {
        int64_t list[32];
        int count = read_dims(t, &at, ']', list);
        ebb_with_ints(&t->b, word, list, (uint32_t)count);
    } else if (*value == '(') {
        at++;
        ebb_with_int(&t->b, word, read_size(t, &at));
    } else if (*value == '~') {
        ebb_with_float(&t->b, word, read_float(value));
    } else if (isalpha((unsigned char)*value) || *value == '.') {
        ebb_with_string(&t->b, word, value);
    } else if (strchr(value, '.') != NULL) {
        ebb_with_float(&t->b, word, strtod(value, NULL));
    } else {
        ebb_with_int(&t->b, word, strtoll(value, NULL, 10));
    }
}

static bool set_up(bench *t)
{
    const grad_case *c = t->what;
    char text[TEXT], *save = NULL;
    uint32_t wanted = 0;
    CHECK(ebb_model_new(&t->model, c->opset != 0 ? c->opset : 20), c);
    t->g = t->model->graph;
    t->b = ebb_build_at(t->g, EBB_NO_NODE, EBB_FORWARD, NULL);
    t->b.name = "case";
    (void)snprintf(text, sizeof text, "%s", c->inputs);
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        CHECK(add_input(t, w, &t->x[t->in_count], &t->varies[t->in_count]), c);
        t->in_count++;
    }
    (void)snprintf(text, sizeof text, "%s", c->attrs);
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
        add_attr(t, w);
    t->out_count = (uint32_t)strlen(c->outputs);
    for (uint32_t k = 0; k < t->out_count; k++)
        if (c->outputs[k] != '0')
            wanted |= UINT32_C(1) << k;
    ebb_emit_node(&t->b, c->op, t->x, t->in_count, t->y, t->out_count, wanted);
    CHECK(t->b.status, c);
    t->node = t->b.last;
    for (uint32_t k = 0; k < t->out_count; k++) {
        if (c->outputs[k] != '1')
            continue;
        ebb_type type = *ebb_value_of(t->g, t->y[k])->type;
        int64_t n;
        double w[ELEMENTS];
        if (!ebb_type_elements(&type, &n) || n > ELEMENTS || type.dtype != EBB_F64) {
            print_error("output %u has no usable type\n", k);
            describe(c);
            return false;
        }
        for (int64_t i = 0; i < n; i++)
            w[i] = draw_signed();
        CHECK(ebb_graph_add_initializer(t->g, &t->dy[k], "dy", &type, w, EBB_ROLE_PARAMETER), c);
    }
    return true;
}

static bool differentiate(bench *t)
{
    ebb_node_info *info = ebb_node_of(t->g, t->node);
    ebb_grad rule = {.node = t->node,
                     .input_count = info->in_count,
                     .output_count = t->out_count,
                     .x = t->x,
                     .y = t->y,
                     .dy = t->dy,
                     .wants = t->varies,
                     .dx = t->dx,
                     .attrs = ebb_node_attrs(t->g, t->node)};
    t->b.phase = EBB_BACKWARD;
    t->b.name = "case_Grad";
    ebb_grad_rule(&t->b, t->what->op, &rule);
    CHECK(t->b.status, t->what);
    assert_int_equal(t->b.pending_count, 0);
    for (uint32_t i = 0; i < t->in_count; i++) {
        if (!t->varies[i] || t->dx[i].i == 0)
            continue;
        const ebb_type *x = ebb_value_of(t->g, t->x[i])->type;
        const ebb_type *dx = ebb_value_of(t->g, t->dx[i])->type;
        if (!ebb_type_same_shape(x, dx) || x->dtype != dx->dtype) {
            char a[128], b[128];
            print_error("input %u is %s, its gradient %s\n", i,
                        ebb_type_print(a, sizeof a, x, NULL),
                        ebb_type_print(b, sizeof b, dx, NULL));
            describe(t->what);
            return false;
        }
    }
    return true;
}

/* ---- evaluation: by the plain kernels, values kept as the value's tensor ---- */

static ebb_status run_node(bench *t, ebb_node n)
{
    static const ebb_backend *const plain[] = {&ebb_backend_plain, NULL};
    ebb_call call;
    ebb_arena *arena = &t->arena;
    EBB_TRY(ebb_call_make(&call, arena, t->g, n, 11));
    for (uint32_t i = 0; i < call.input_count; i++) {
        ebb_value v = ebb_in(t->g, n, i);
        if (v.i == 0)
            continue;
        const ebb_tensor *tensor = ebb_value_of(t->g, v)->tensor;
        assert_non_null(tensor);
        assert_int_equal(tensor->bytes, call.in[i].bytes);
        call.in[i].data = ebb_read_only(tensor->data);
    }
    EBB_TRY(ebb_pick(&call, plain));
    if (call.kernel->workspace != NULL)
        EBB_TRY(call.kernel->workspace(&call, &call.workspace_bytes));
    call.workspace = ebb_arena_alloc(arena, call.workspace_bytes + 64);
    call.workspace = (void *)(((uintptr_t)call.workspace + 63) & ~(uintptr_t)63);
    for (uint32_t i = 0; i < call.output_count; i++) {
        ebb_value v = ebb_out(t->g, n, i);
        if (v.i == 0)
            continue;
        call.out[i].data = ebb_arena_zeroed(arena, call.out[i].bytes + 1, 1);
        ebb_tensor *tensor = EBB_NEW(arena, ebb_tensor, 1);
        *tensor = (ebb_tensor){
            .type = call.out[i].type, .data = call.out[i].data, .bytes = call.out[i].bytes};
        ebb_value_of(t->g, v)->tensor = tensor;
    }
    if (call.kernel->prepare != NULL)
        EBB_TRY(call.kernel->prepare(&call));
    ebb_status status = call.kernel->run(&call);
    if (call.kernel->release != NULL)
        call.kernel->release(&call);
    return status;
}

static double weighed(const bench *t)
{
    double sum = 0.0;
    for (uint32_t k = 0; k < t->out_count; k++) {
        if (t->dy[k].i == 0)
            continue;
        const ebb_tensor *w = ebb_value_of(t->g, t->dy[k])->tensor;
        const ebb_tensor *y = ebb_value_of(t->g, t->y[k])->tensor;
        int64_t n = 0;
        assert_true(ebb_type_elements(&w->type, &n));
        for (int64_t i = 0; i < n; i++)
            sum += ebb_tensor_double(w, i) * ebb_tensor_double(y, i);
    }
    return sum;
}

/* L where input `which` stands `step` along v. */
static ebb_status loss_at(bench *t, uint32_t which, const double *v, double step, double *loss)
{
    ebb_value_info *info = ebb_value_of(t->g, t->x[which]);
    const ebb_tensor *here = info->tensor;
    ebb_tensor moved = *here;
    int64_t n = (int64_t)(here->bytes / sizeof(double));
    double *data = ebb_arena_alloc(&t->arena, here->bytes + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = ebb_tensor_double(here, i) + step * v[i];
    moved.data = data;
    info->tensor = &moved;
    ebb_status status = run_node(t, t->node);
    ebb_value_of(t->g, t->x[which])->tensor = here;
    *loss = weighed(t);
    return status;
}

static bool compare(bench *t, uint32_t which)
{
    const double h = 1e-5;
    double v[ELEMENTS], along = 0.0, size = 0.0, above, below;
    const ebb_tensor *dx = t->dx[which].i != 0 ? ebb_value_of(t->g, t->dx[which])->tensor : NULL;
    int64_t n = 0;
    assert_true(ebb_type_elements(ebb_value_of(t->g, t->x[which])->type, &n));
    for (int64_t i = 0; i < n; i++) {
        v[i] = draw_signed();
        double part = dx != NULL ? ebb_tensor_double(dx, i) * v[i] : 0.0;
        along += part;
        size += fabs(part);
    }
    CHECK(loss_at(t, which, v, h, &above), t->what);
    CHECK(loss_at(t, which, v, -h, &below), t->what);
    double slope = (above - below) / (2.0 * h);
    if (fabs(slope - along) <= 1e-6 * (1.0 + size))
        return true;
    print_error("input %u: the rule gives %.9g, the difference %.9g\n", which, along, slope);
    describe(t->what);
    return false;
}

/* The rule and its differences, of a case that is set up. */
static inline bool rule_agrees(bench *t)
{
    if (!differentiate(t))
        return false;
    EBB_EACH_NODE(t->g, n)
        CHECK(run_node(t, n), t->what);
    bool good = true;
    for (uint32_t i = 0; good && i < t->in_count; i++)
        good = !t->varies[i] || compare(t, i);
    return good;
}

static inline bool first_order_passes(const grad_case *c, uint64_t seed)
{
    bench t = {.what = c};
    state_of_draws = seed;
    bool good = set_up(&t) && rule_agrees(&t);
    ebb_model_free(t.model);
    ebb_arena_fini(&t.arena);
    return good;
}

/* Each case is drawn GRAD_DRAWS times, up to its first failure. */
static void all_cases_pass(const grad_case *cases, size_t count,
                           bool (*passes)(const grad_case *c, uint64_t seed))
{
    int bad = 0;
    for (size_t k = 0; k < count; k++)
        for (uint64_t seed = 1; seed <= GRAD_DRAWS; seed++)
            if (!passes(&cases[k], seed * 1000 + k)) {
                bad++;
                break;
            }
    if (bad > 0)
        fail_msg("%d of %zu cases", bad, count);
}
