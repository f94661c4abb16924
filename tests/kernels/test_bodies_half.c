/* test_bodies_half.c: each faster kernel of an operator with a function body, in 16 bits, against plain's.
 *
 * The cases are those of test_bodies.c, with float inputs as bfloat16, and as float16. Both round their
 * results; one may sum in another order and round what it multiplies. Operators without a body:
 * test_widen.c.
 */
#include "tests/kernels/body_cases.h"

#include "kernels/nested/widen.h"
#include "tests/owned.h"

/* A kernel that neither stands here nor takes a case has no comparison. */
static const char *const of_float32_alone[] = {
    "dnnl.conv_weight_grad_pooled", "dnnl.linear_cross_entropy", "dnnl.random_sketch",
    "rows.conv_weight_grad",        "rows.average_pool_grad",    "tiles.conv_weight_grad",
    "tiles.matmul_codes",           "tiles.experts_matmul",      "tiles.experts_matmul_codes",
    "tiles.matmul_dequantized"};

enum { MOST = 200 };
static const ebb_kernel *compared[MOST];
static size_t compared_count;

static bool stands(const ebb_kernel *kernel)
{
    for (size_t i = 0; i < compared_count; i++)
        if (compared[i] == kernel)
            return true;
    return false;
}

static bool is_of_float32_alone(const char *name)
{
    for (size_t i = 0; i < sizeof of_float32_alone / sizeof of_float32_alone[0]; i++)
        if (strcmp(of_float32_alone[i], name) == 0)
            return true;
    return false;
}

/* "float[2] x, double[2] y" with another word for "float". */
static void put_dtype(char *to, size_t room, const char *inputs, const char *word)
{
    size_t at = 0;
    for (const char *c = inputs; *c != '\0' && at + 12 < room;) {
        const bool begins = c == inputs || c[-1] == ' ';
        if (begins && strncmp(c, "float[", 6) == 0) {
            at += (size_t)snprintf(to + at, room - at, "%s", word);
            c += 5;
        } else {
            to[at++] = *c++;
        }
    }
    to[at] = '\0';
}

static ebb_tensor tensor_of(const ebb_operand *o)
{
    return (ebb_tensor){.type = o->type, .data = o->data, .bytes = o->bytes};
}

static void compare_calls(const ebb_call *got, const ebb_call *plain)
{
    for (uint32_t o = 0; o < plain->output_count; o++) {
        const ebb_tensor a = tensor_of(&got->out[o]), b = tensor_of(&plain->out[o]);
        if (plain->out[o].type.dtype != EBB_NONE)
            compare(&a, &b, 0x1p-6, o);
    }
}

/* What the back ends have for the case, one kernel after the other. A mixture of dtypes that the
 * operator does not know is passed by. */
static void check_case(const body_case *c, const char *inputs)
{
    const ebb_backend *const *cpu, *const *plain;
    OWNED_MODEL *model = open_case(c, inputs, 20);
    ebb_graph *g = model->graph;
    ebb_node n = ebb_first(g);
    ebb_call expected;
    ok(ebb_backends("cpu", &cpu), "cpu");
    ok(ebb_backends("plain", &plain), "plain");
    bool known = ebb_infer_node(g, n) == NULL;
    if (known)
        make_call(&expected, g, n);
    if (known && ebb_can_widen(&expected) && ebb_pick(&expected, plain) == NULL) {
        run_call(&expected, &model->arena);
        for (const ebb_family *f = cpu[0]->families; f->kernels != NULL; f++)
            for (size_t k = 0; k < *f->count; k++) {
                ebb_call call;
                if (f->kernels[k].op != c->op)
                    continue;
                make_call(&call, g, n);
                call.backends = cpu;
                if (ebb_kernel_declines(&f->kernels[k], &call) != NULL)
                    continue;
                call.kernel = &f->kernels[k];
                run_call(&call, &model->arena);
                compare_calls(&call, &expected);
                assert_true(compared_count < MOST);
                if (!stands(call.kernel))
                    compared[compared_count++] = call.kernel;
            }
    }
}

TEST(faster_kernels_agree_with_plain)
{
    static const char *const words[] = {"float", "bfloat16", "float16"};
    char inputs[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
            if (strstr(cases[i].constants, "int4[") != NULL)
                continue;
            put_dtype(inputs, sizeof inputs, cases[i].inputs, words[w]);
            check_case(&cases[i], inputs);
        }
}

/* Where the processor multiplies 16 bits: some kernels are for such alone. */
static bool multiplies(void)
{
    for (size_t i = 0; i < compared_count; i++)
        if (strcmp(compared[i]->name, "dnnl.conv_nhwc") == 0)
            return true;
    return false;
}

TEST(each_of_them_is_compared)
{
    const ebb_backend *const *cpu;
    ok(ebb_backends("cpu", &cpu), "cpu");
    if (!multiplies())
        skip();
    for (const ebb_family *f = cpu[0]->families; f->kernels != NULL; f++)
        for (size_t k = 0; k < *f->count; k++) {
            const ebb_kernel *kernel = &f->kernels[k];
            const bool is_asked =
                ebb_op_body(kernel->op) != NULL && !ebb_op_has(kernel->op, EBB_POINTWISE);
            if (is_asked && stands(kernel) && is_of_float32_alone(kernel->name))
                fail_msg("%s takes 16 bits, and stands among those that do not", kernel->name);
            if (is_asked && !stands(kernel) && !is_of_float32_alone(kernel->name))
                fail_msg("%s: no case in 16 bits that it takes", kernel->name);
        }
}
