/* frozen.c: products with weights in few bits beside the same products in float32, by rows.
 *
 *     bench_frozen [threads] [seconds a cell]
 *
 * The two are run in turns, each several times in a row, so that what else the machine does meets both;
 * time is the process's on its processors, the least of all turns. A cell is the time in few bits by that
 * in float32: forward (A W^T), backward (dY W).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"
#include "kernels/parallel.h"

typedef struct layer {
    const char *name;
    int64_t n, k;
} layer;

static const layer layers[] = {
    {"0.5B q_proj", 896, 896},     {"0.5B k_proj", 128, 896},  {"0.5B up_proj", 4864, 896},
    {"0.5B down_proj", 896, 4864}, {"1B up_proj", 8192, 2048},
};
static const int64_t rows[] = {16, 32, 64, 128, 256, 512, 1024, 2048};

static void stop_at(ebb_status status)
{
    if (status == NULL)
        return;
    (void)fprintf(stderr, "%s\n", ebb_status_text(status));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ebb_attr integer(const char *name, int64_t value)
{
    return (ebb_attr){.name = name, .type = EBB_ATTR_INT, .i = value};
}

typedef struct test {
    ebb_call call;
    ebb_attr attrs[6];
    ebb_operand in[5], out;
} test;

static void fill(ebb_operand *o, ebb_type type)
{
    *o = (ebb_operand){.type = type};
    if (!ebb_type_bytes(&type, &o->bytes))
        exit(1);
    o->data = aligned_alloc(4096, (o->bytes + 4095) / 4096 * 4096);
    for (size_t i = 0; i < o->bytes; i++)
        ((uint8_t *)o->data)[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; type.dtype == EBB_F32 && i < o->bytes / 4; i++)
        ((float *)o->data)[i] = (float)((int)(i * 2654435761u >> 20) - 2048) / 40960.0f;
}

static void prepare(test *t)
{
    ebb_call *c = &t->call;
    const ebb_backend *const *list;
    c->in = t->in;
    c->out = &t->out;
    c->output_count = 1;
    c->attrs.list = t->attrs;
    c->version = 1;
    c->node = "bench";
    stop_at(ebb_backends("cpu", &list));
    stop_at(ebb_pick(c, list));
    if (c->kernel->workspace != NULL)
        stop_at(c->kernel->workspace(c, &c->workspace_bytes));
    c->workspace = aligned_alloc(4096, (c->workspace_bytes + 4096) / 4096 * 4096);
    if (c->kernel->prepare != NULL)
        stop_at(c->kernel->prepare(c));
}

static void release(test *t)
{
    if (t->call.kernel->release != NULL && t->call.state != NULL)
        t->call.kernel->release(&t->call);
    for (uint32_t i = 0; i < t->call.input_count; i++)
        free(t->in[i].data);
    free(t->out.data);
    free(t->call.workspace);
}

static void put_float(test *t, const layer *l, int64_t m, bool forward)
{
    *t = (test){.call = {.op = EBB_OP_FUSED_MATMUL, .input_count = 2}};
    t->attrs[t->call.attrs.count++] = integer("transB", !forward);
    fill(&t->in[0], ebb_type_tensor(EBB_F32, 2, (int64_t[]){m, forward ? l->k : l->n}));
    fill(&t->in[1], ebb_type_tensor(EBB_F32, 2, (int64_t[]){l->k, l->n}));
    fill(&t->out, ebb_type_tensor(EBB_F32, 2, (int64_t[]){m, forward ? l->n : l->k}));
    prepare(t);
}

static void put_codes(test *t, const layer *l, int64_t m, bool forward, int64_t bits)
{
    const int64_t block = 32, blocks = l->k / block;
    *t = (test){.call = {.op = EBB_OP_MATMUL_CODES, .input_count = 5}};
    t->attrs[t->call.attrs.count++] = integer("transB", forward);
    t->attrs[t->call.attrs.count++] = integer("N", l->n);
    t->attrs[t->call.attrs.count++] = integer("K", l->k);
    t->attrs[t->call.attrs.count++] = integer("bits", bits);
    t->attrs[t->call.attrs.count++] = integer("block_size", block);
    fill(&t->in[0], ebb_type_tensor(EBB_F32, 2, (int64_t[]){m, forward ? l->k : l->n}));
    fill(&t->in[1], ebb_type_tensor(EBB_U8, 3, (int64_t[]){l->n, blocks, block * bits / 8}));
    fill(&t->in[2], ebb_type_tensor(EBB_F32, 2, (int64_t[]){l->n, blocks}));
    fill(&t->in[3], ebb_type_tensor(EBB_U8, 2, (int64_t[]){1, 1}));
    fill(&t->in[4], ebb_type_tensor(EBB_F32, 1, (int64_t[]){(int64_t)1 << bits}));
    for (int i = 0; i < 1 << bits; i++)
        ((float *)t->in[4].data)[i] = (float)i;
    fill(&t->out, ebb_type_tensor(EBB_F32, 2, (int64_t[]){m, forward ? l->n : l->k}));
    prepare(t);
}

static double time_of(test *t, int times)
{
    const double start = now();
    for (int i = 0; i < times; i++)
        stop_at(t->call.kernel->run(&t->call));
    return (now() - start) / times;
}

static double compare(const layer *l, int64_t m, bool forward, int64_t bits, double seconds,
                      double *rate)
{
    test plain, coded;
    put_float(&plain, l, m, forward);
    put_codes(&coded, l, m, forward, bits);
    double best[2] = {1e9, 1e9};
    const double once = time_of(&plain, 1), end = now() + seconds;
    const int times = once > 5e-3 ? 1 : (int)(5e-3 / (once + 1e-9)) + 1;
    for (int turn = 0; turn < 3 || now() < end; turn++) {
        test *t = turn % 2 == 0 ? &plain : &coded;
        const double s = time_of(t, times);
        best[turn % 2] = s < best[turn % 2] ? s : best[turn % 2];
    }
    *rate = 2e-9 * (double)m * (double)l->n * (double)l->k / best[0];
    release(&plain);
    release(&coded);
    return best[1] / best[0];
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const double seconds = argc > 2 ? atof(argv[2]) : 0.5;
    const ebb_threads_before before = ebb_threads_enter(threads);
    printf("%d threads; time in few bits by time in float32, and float32's GFLOP/s\n", threads);
    for (int64_t bits = 4; bits <= 8; bits += 4)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            for (int back = 0; back < 2; back++) {
                printf("%-15s %lld bits %-8s", layers[i].name, (long long)bits,
                       back ? "backward" : "forward");
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    double rate, ratio = compare(&layers[i], rows[r], !back, bits, seconds, &rate);
                    printf("  %lld: %.2f (%.0f)", (long long)rows[r], ratio, rate);
                    (void)fflush(stdout);
                }
                printf("\n");
            }
    ebb_threads_leave(before);
    return 0;
}
