/* kernels.c: how fast the kernels of the "cpu" back end are, case by case.
 *
 *     bench_kernels [--bf16] [word]      only cases whose name contains the word
 *
 * One line a case: the kernel that ebb_pick() chose, its GFLOP/s including the copies that it
 * makes, beside what oneDNN does when every operand already lies as its primitive likes best; and
 * how much workspace the kernel takes, as a part of its operands. Where the two rates are far
 * apart, copies cost too much. Best of several runs; the machine should have nothing else to do.
 * --bf16: our kernels' operands have 16 bits, beside oneDNN's float32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/fast/onednn/onednn.h"
#include "kernels/parallel.h"
#include "onnx/words/clock.h"

typedef struct product { /* [batch, M, K] x [batch, K, N] */
    const char *name;
    int64_t batch, m, n, k;
    bool left, right;
} product;

typedef struct convolution {
    const char *name;
    int64_t n, c, size, m, kernel, stride, groups;
} convolution;

// clang-format off
static const product products[] = {
    {"bert up",             1,   512, 3072,   768, false, false},
    {"bert up W[N,K]",      1,   512, 3072,   768, false, true},
    {"bert up dX",          1,   512,  768,  3072, false, true},
    {"bert up dW",          1,   768, 3072,   512, true,  false},
    {"bert down",           1,   512,  768,  3072, false, false},
    {"bert down dW",        1,  3072,  768,   512, true,  false},
    {"bert square W[N,K]",  1,   512,  768,   768, false, true},
    {"bert square dW",      1,   768,  768,   512, true,  false},
    {"attention scores",   12,   512,  512,    64, false, false},
    {"attention scores'",  12,   512,  512,    64, false, true},
    {"attention values",   12,   512,   64,   512, false, false},
    {"attention dK",       12,   512,   64,   512, true,  false},
    {"vocabulary W[N,K]",   1,  1024, 50257,  768, false, true},
    {"vocabulary dX",       1,  1024,  768, 50257, false, false},
    {"vocabulary dW",       1, 50257,  768,  1024, true,  false},
    {"classifier W[N,K]",   1,    16, 1000,   512, false, true},
    {"classifier dW",       1,  1000,  512,    16, true,  false},
    {"small W[N,K]",        1,    32,   10,    64, false, true},
};
static const convolution convolutions[] = {
    {"resnet18 stem",      16,   3, 224,  64, 7, 2, 1},
    {"resnet18 1",         16,  64,  56,  64, 3, 1, 1},
    {"resnet18 2 down",    16,  64,  56, 128, 3, 2, 1},
    {"resnet18 2 skip",    16,  64,  56, 128, 1, 2, 1},
    {"resnet18 2",         16, 128,  28, 128, 3, 1, 1},
    {"resnet18 3 down",    16, 128,  28, 256, 3, 2, 1},
    {"resnet18 3",         16, 256,  14, 256, 3, 1, 1},
    {"resnet18 4 down",    16, 256,  14, 512, 3, 2, 1},
    {"resnet18 4",         16, 512,   7, 512, 3, 1, 1},
    {"resnet50 1 in",       8,  64,  56,  64, 1, 1, 1},
    {"resnet50 1 out",      8,  64,  56, 256, 1, 1, 1},
    {"resnet50 1 back",     8, 256,  56,  64, 1, 1, 1},
    {"resnet50 2 out",      8, 128,  28, 512, 1, 1, 1},
    {"resnet50 2 back",     8, 512,  28, 128, 1, 1, 1},
    {"resnet50 3 out",      8, 256,  14, 1024, 1, 1, 1},
    {"resnet50 3 back",     8, 1024, 14, 256, 1, 1, 1},
    {"resnet50 4 out",      8, 512,   7, 2048, 1, 1, 1},
    {"resnet50 4 back",     8, 2048,  7, 512, 1, 1, 1},
    {"mobile stem",        16,   3, 224,  32, 3, 2, 1},
    {"mobile expand 1",    16,  16, 112,  96, 1, 1, 1},
    {"mobile project 1",   16,  96,  56,  24, 1, 1, 1},
    {"mobile expand 4",    16,  64,  14, 384, 1, 1, 1},
    {"mobile project 7",   16, 960,   7, 320, 1, 1, 1},
    {"mobile depth 1",     16,  32, 112,  32, 3, 1, 32},
    {"mobile depth 2 s2",  16,  96, 112,  96, 3, 2, 96},
    {"mobile depth 3",     16, 144,  56, 144, 3, 1, 144},
    {"mobile depth 4 s2",  16, 144,  56, 144, 3, 2, 144},
    {"mobile depth 5",     16, 192,  28, 192, 3, 1, 192},
    {"mobile depth 7",     16, 384,  14, 384, 3, 1, 384},
    {"mobile depth 10",    16, 960,   7, 960, 3, 1, 960},
    {"vit patches",         4,   3, 224, 768, 16, 16, 1},
};
// clang-format on

static double now(void)
{
    return 1e-9 * (double)ebb_now_ns();
}

static void stop_at(bool failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static void *memory(size_t bytes)
{
    float *m = aligned_alloc(64, (bytes + 127) / 64 * 64);
    stop_at(m == NULL, "out of memory");
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        m[i] = (float)(i % 17) * 0.125f - 1.0f;
    return m;
}

/* Seconds: the best of at least five runs and half a second. */
#define BEST(seconds, statement)                                             \
    do {                                                                     \
        double begun_ = now();                                               \
        (seconds) = 1e9;                                                     \
        for (int round_ = 0; round_ < 5 || now() - begun_ < 0.5; round_++) { \
            double at_ = now();                                              \
            statement;                                                       \
            at_ = now() - at_;                                               \
            (seconds) = at_ < (seconds) ? at_ : (seconds);                   \
        }                                                                    \
    } while (0)

/* ---- oneDNN with every layout its own ---- */

static dnnl_stream_t stream;
static ebb_dtype dtype = EBB_F32; /* of our operands */

static dnnl_exec_arg_t argument(int arg, ebb_dnnl_descriptor md)
{
    dnnl_exec_arg_t made = {arg, NULL};
    stop_at(dnnl_memory_create(&made.memory, md, ebb_dnnl_engine(),
                               memory(dnnl_memory_desc_get_size(md))) != dnnl_success,
            "oneDNN takes no memory");
    return made;
}

/* Of a plan that has its descriptor, which it gives back. */
static double seconds_of(ebb_dnnl_plan *plan, const char *why, const int *args)
{
    double seconds = 1e9;
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t list[4];
    int count = 0;
    if (why != NULL || dnnl_primitive_create(&primitive, plan->descriptor) != dnnl_success)
        return seconds;
    for (; count < 3; count++)
        list[count] = argument(
            args[count],
            dnnl_primitive_desc_query_md(plan->descriptor, dnnl_query_exec_arg_md, args[count]));
    ebb_dnnl_descriptor scratch =
        dnnl_primitive_desc_query_md(plan->descriptor, dnnl_query_scratchpad_md, 0);
    if (scratch != NULL && dnnl_memory_desc_get_size(scratch) > 0)
        list[count++] = argument(DNNL_ARG_SCRATCHPAD, scratch);
    BEST(seconds, dnnl_primitive_execute(primitive, stream, count, list); dnnl_stream_wait(stream));
    for (int i = 0; i < count; i++) {
        void *data;
        dnnl_memory_get_data_handle(list[i].memory, &data);
        free(data);
        dnnl_memory_destroy(list[i].memory);
    }
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(plan->descriptor);
    return seconds;
}

static ebb_dnnl_layout any(int rank, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e)
{
    ebb_dnnl_layout layout;
    ebb_dnnl_any(&layout, EBB_F32, rank, (const int64_t[]){a, b, c, d, e});
    return layout;
}

static double best_product(const product *p)
{
    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    const ebb_dnnl_layout a = any(3, p->batch, p->m, p->k, 0, 0);
    const ebb_dnnl_layout b = any(3, p->batch, p->k, p->n, 0, 0);
    const ebb_dnnl_layout y = any(3, p->batch, p->m, p->n, 0, 0);
    ebb_dnnl_plan plan = {0};
    const char *why = ebb_dnnl_describe_product(&plan, &a, &b, NULL, &y, 1.0f, false);
    return seconds_of(&plan, why, args);
}

static double best_convolution(const convolution *c, ebb_op op, int64_t out)
{
    static const int args[][3] = {
        [EBB_DNNL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [EBB_DNNL_BY_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        [EBB_DNNL_BY_WEIGHTS] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS},
    };
    const int64_t g = c->groups, k = c->kernel, pad = k == 16 ? 0 : k / 2;
    const ebb_dnnl_windows w = {
        .stride = {c->stride, c->stride}, .begin = {pad, pad}, .end = {pad, pad}};
    const ebb_dnnl_layout x = any(4, c->n, c->c, c->size, c->size, 0);
    const ebb_dnnl_layout y = any(4, c->n, c->m, out, out, 0);
    const ebb_dnnl_layout weight =
        g > 1 ? any(5, g, c->m / g, c->c / g, k, k) : any(4, c->m, c->c, k, k, 0);
    const ebb_dnnl_conv_kind kind = op == EBB_OP_CONV             ? EBB_DNNL_FORWARD
                                    : op == EBB_OP_CONV_TRANSPOSE ? EBB_DNNL_BY_DATA
                                                                  : EBB_DNNL_BY_WEIGHTS;
    ebb_dnnl_plan plan = {0};
    const char *why = ebb_dnnl_describe_conv(&plan, kind, &x, &weight, NULL, &y, &w);
    return seconds_of(&plan, why, args[kind]);
}

/* ---- ours ---- */

static void measure(ebb_call *call, const char *name, double gflop, double best)
{
    size_t operands = 0;
    for (uint32_t i = 0; i < call->input_count + call->output_count; i++) {
        ebb_operand *o = i < call->input_count ? &call->in[i] : &call->out[i - call->input_count];
        stop_at(!ebb_type_bytes(&o->type, &o->bytes), "a shape is too large");
        o->data = memory(o->bytes);
        operands += o->bytes;
    }
    const ebb_backend *const *backends;
    ebb_status status = ebb_backends("cpu", &backends);
    if (status == NULL)
        status = ebb_pick(call, backends);
    if (status == NULL && call->kernel->workspace != NULL)
        status = call->kernel->workspace(call, &call->workspace_bytes);
    call->workspace = memory(call->workspace_bytes);
    if (status == NULL && call->kernel->prepare != NULL)
        status = call->kernel->prepare(call);
    stop_at(status != NULL, ebb_status_text(status));
    double seconds;
    BEST(seconds, status = call->kernel->run(call));
    stop_at(status != NULL, ebb_status_text(status));
    printf("%-18s %-22s %8.3f ms %7.1f GFLOP/s %7.1f best  workspace %4.0f%%%s\n", name,
           call->kernel->name, seconds * 1e3, gflop / seconds, gflop / best,
           100.0 * (double)call->workspace_bytes / (double)operands,
           seconds > 1.5 * best ? "  <--" : "");
    fflush(stdout);
    if (call->kernel->release != NULL)
        call->kernel->release(call);
    free(call->workspace);
    for (uint32_t i = 0; i < call->input_count + call->output_count; i++)
        free(i < call->input_count ? call->in[i].data : call->out[i - call->input_count].data);
}

static ebb_attr integer(const char *name, int64_t value)
{
    return (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = value};
}

static ebb_attr integers(const char *name, uint32_t count, const int64_t *list)
{
    return (ebb_attr){.name = name, .type = EBB_ATTR_INTS, .ints = list, .count = count};
}

static void run_product(const product *p)
{
    const ebb_attr attrs[] = {integer("transA", p->left), integer("transB", p->right)};
    const int64_t a[] = {p->batch, p->left ? p->k : p->m, p->left ? p->m : p->k};
    const int64_t b[] = {p->batch, p->right ? p->n : p->k, p->right ? p->k : p->n};
    const int64_t y[] = {p->batch, p->m, p->n};
    int from = p->batch == 1 ? 1 : 0;
    ebb_operand in[] = {{.type = ebb_type_tensor(dtype, 3 - from, a + from)},
                        {.type = ebb_type_tensor(dtype, 3 - from, b + from)}};
    ebb_operand out = {.type = ebb_type_tensor(dtype, 3 - from, y + from)};
    ebb_call call = {
        .op = EBB_OP_FUSED_MATMUL, .version = 1, .node = p->name, .in = in, .out = &out};
    call.input_count = 2;
    call.output_count = 1;
    call.attrs = (ebb_attrs){attrs, 2};
    double flop = 2e-9 * (double)p->batch * (double)p->m * (double)p->n * (double)p->k;
    measure(&call, p->name, flop, best_product(p));
}

static void run_convolution(const convolution *c, ebb_op op)
{
    int64_t pad = c->kernel == 16 ? 0 : c->kernel / 2;
    int64_t size = (c->size + 2 * pad - c->kernel) / c->stride + 1;
    int64_t rest = (c->size + 2 * pad - c->kernel) % c->stride;
    const int64_t strides[] = {c->stride, c->stride}, pads[] = {pad, pad, pad, pad};
    const int64_t kernel[] = {c->kernel, c->kernel}, extra[] = {rest, rest};
    const ebb_attr attrs[] = {integers("strides", 2, strides), integers("pads", 4, pads),
                              integers("kernel_shape", 2, kernel),
                              integers("output_padding", 2, extra), integer("group", c->groups)};
    const int64_t x[] = {c->n, c->c, c->size, c->size}, y[] = {c->n, c->m, size, size};
    const int64_t w[] = {c->m, c->c / c->groups, c->kernel, c->kernel};
    ebb_type tx = ebb_type_tensor(dtype, 4, x), ty = ebb_type_tensor(dtype, 4, y);
    ebb_type tw = ebb_type_tensor(dtype, 4, w);
    bool forward = op == EBB_OP_CONV, by_data = op == EBB_OP_CONV_TRANSPOSE;
    ebb_operand in[] = {{.type = forward ? tx : ty}, {.type = forward || by_data ? tw : tx}};
    ebb_operand out = {.type = forward ? ty : by_data ? tx : tw};
    ebb_call call = {.op = op, .version = forward ? 11 : 1, .node = c->name, .in = in, .out = &out};
    call.input_count = 2;
    call.output_count = 1;
    call.attrs = (ebb_attrs){attrs, 5};
    double flop = 2e-9 * (double)c->n * (double)c->m * (double)(size * size) *
                  (double)(c->c / c->groups) * (double)(c->kernel * c->kernel);
    measure(&call, c->name, flop, best_convolution(c, op, size));
}

int main(int argc, char **argv)
{
    const bool narrow = argc > 1 && strcmp(argv[1], "--bf16") == 0;
    const char *word = argc > 1 + narrow ? argv[1 + narrow] : "";
    dtype = narrow ? EBB_BF16 : EBB_F32;
    stop_at(ebb_dnnl_engine() == NULL ||
                dnnl_stream_create(&stream, ebb_dnnl_engine(), dnnl_stream_default_flags) !=
                    dnnl_success,
            "oneDNN does not start");
    printf("%d threads\n", ebb_threads());
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        if (strstr(products[i].name, word) != NULL)
            run_product(&products[i]);
    for (size_t i = 0; i < sizeof convolutions / sizeof convolutions[0]; i++) {
        if (strstr(convolutions[i].name, word) == NULL)
            continue;
        run_convolution(&convolutions[i], EBB_OP_CONV);
        if (convolutions[i].c != 3)
            run_convolution(&convolutions[i], EBB_OP_CONV_TRANSPOSE);
        run_convolution(&convolutions[i], EBB_OP_CONV_WEIGHT_GRAD);
    }
    dnnl_stream_destroy(stream);
    return 0;
}
