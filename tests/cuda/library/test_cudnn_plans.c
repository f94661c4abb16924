/* test_cudnn_plans.c: every convolution, pool, batch norm and attention layer of the public models
 * has kernels of cuDNN on the described devices, forward and backward.
 *
 *     test_cudnn_plans [DEVICE]       all of them without
 *
 * Each device plans one layer in 48, others than the other devices; EBB_TEST_ALL=1 asks for all,
 * which compile thousands of kernels, for half an hour.
 *
 * layers.txt has each distinct layer once. What a device cannot do is a line `refused ...` there:
 * one that is missing fails the test, and so does one that is no longer true. A table of the plans,
 * with workspaces, is written into the build folder.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/library/cudnn/plan.h"
#include "kernels/cuda/library/cudnn/shapes.h"
#include "tests/formatted.h"
#include "tests/share.h"
#include "tests/test.h"

enum { NUMBERS = 20, LINE = 512, REFUSED = 512 };

typedef struct layer {
    char op[32], row[LINE], word[32]; /* row: the line without the models; word: its last */
    int64_t n[NUMBERS];
    int count;
} layer;

static char refused[REFUSED][LINE];
static bool met[REFUSED];
static int refusals;

static struct {
    ebb_cudnn_device device;
    FILE *table;
    uint64_t index; /* in ebb_cudnn_described_names */
    int plans, refused, broken;
    int64_t most_bytes;
} at;

/* ---- the table ---- */

/* "conv 32 64 ... 0 resnet50*3" -> op, numbers, row. False: nothing to plan. */
static bool read_layer(layer *l, const char *line)
{
    char text[LINE], *rest = text;
    memset(l, 0, sizeof *l);
    (void)snprintf(text, sizeof text, "%s", line);
    char *models = strrchr(text, ' ');
    if (line[0] == '#' || models == NULL || strncmp(line, "refused ", 8) == 0)
        return false;
    *models = 0;
    (void)snprintf(l->row, sizeof l->row, "%s", text);
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *end = word;
        long long number = strtoll(word, &end, 10);
        if (*end == 0 && l->count < NUMBERS)
            l->n[l->count++] = number;
        else
            (void)snprintf(l->op[0] == 0 ? l->op : l->word, sizeof l->op, "%s", word);
    }
    return true;
}

/* "refused DEVICE GRAPH ROW: reason"; DEVICE may be *. */
static void read_refusal(const char *line)
{
    const char *reason = strstr(line, ": ");
    assert_true(refusals < REFUSED && reason != NULL);
    (void)snprintf(refused[refusals++], LINE, "%.*s", (int)(reason - line - 8), line + 8);
}

static bool is_refused(const char *graph, const char *row)
{
    char one[2 * LINE], any[2 * LINE];
    bool found = false;
    (void)snprintf(one, sizeof one, "%s %s %s", at.device.name, graph, row);
    (void)snprintf(any, sizeof any, "* %s %s", graph, row);
    for (int i = 0; i < refusals; i++)
        if (strcmp(refused[i], one) == 0 || strcmp(refused[i], any) == 0)
            found = met[i] = true;
    return found;
}

/* ---- one graph ---- */

static void plan(const char *name, const layer *l, ebb_status built, ebb_cudnn_graph *graph)
{
    const ebb_cudnn_target target = {.device = &at.device};
    const ebb_cudnn_rules rules = EBB_CUDNN_EXACT;
    ebb_cudnn_plan *made = NULL;
    bool expected = is_refused(name, l->row);
    ebb_status status = built != NULL ? built : ebb_cudnn_plan_make(&made, graph, &target, &rules);
    if (status != NULL) {
        at.refused += expected;
        at.broken += !expected;
        if (!expected)
            print_error("refused %s %s %s: %s\n", at.device.name, name, l->row,
                        ebb_status_text(status));
    } else {
        const ebb_cudnn_choice *c = ebb_cudnn_plan_choice(made);
        at.plans++;
        at.most_bytes = c->workspace_bytes > at.most_bytes ? c->workspace_bytes : at.most_bytes;
        if (at.table != NULL)
            (void)fprintf(at.table, "%12lld  %s  %s\n", (long long)c->workspace_bytes, name,
                          l->row);
        if (expected) {
            at.broken++;
            print_error("%s %s %s: has a plan now: take its line `refused` away\n", at.device.name,
                        name, l->row);
        }
    }
    ebb_cudnn_plan_free(made);
}

/* As the pass `layout` does. */
static int64_t padded(int64_t channels)
{
    return (channels + 7) / 8 * 8;
}

/* ---- the operators ---- */

/* With what follows it in a network exported in eval mode: its batch norm is a bias. */
static void joined_conv(const layer *l, const ebb_cudnn_conv_sizes *s, bool wide)
{
    const unsigned relu = EBB_CUDNN_WITH_BIAS | EBB_CUDNN_WITH_RELU;
    ebb_cudnn_graph *g;
    ebb_status status = ebb_cudnn_conv_forward(&g, s, relu);
    plan(wide ? "f32_relu" : "bf16_relu", l, status, g);
    if (wide || s->groups > 1) /* which the pass relu-epilogue leaves as they are */
        return;
    status = ebb_cudnn_conv_forward(&g, s, relu | EBB_CUDNN_WITH_ADD | EBB_CUDNN_WITH_MASK);
    plan("bf16_add_relu_bits", l, status, g);
}

static void conv(const layer *l, bool wide)
{
    const int64_t *n = l->n;
    ebb_cudnn_graph *g;
    ebb_cudnn_conv_sizes s = {.dtype = wide ? EBB_F32 : EBB_BF16,
                              .channels_last = !wide,
                              .batch = n[0],
                              .channels = n[1],
                              .filters = n[2],
                              .groups = n[3],
                              .window = {.spatial = 2}};
    assert_int_equal(l->count, 17);
    for (int i = 0; i < 2; i++) {
        s.in[i] = n[4 + i];
        s.kernel[i] = n[6 + i];
        s.window.stride[i] = n[8 + i];
        s.window.dilation[i] = n[10 + i];
        s.window.before[i] = n[12 + i];
        s.window.after[i] = n[14 + i];
    }
    if (!wide && s.groups == 1) {
        s.channels = padded(s.channels);
        s.filters = padded(s.filters);
    }
    joined_conv(l, &s, wide);
    unsigned bias = n[16] != 0 ? EBB_CUDNN_WITH_BIAS : 0;
    ebb_status status = ebb_cudnn_conv_forward(&g, &s, bias);
    plan(wide ? "f32_forward" : "bf16_forward", l, status, g);
    status = ebb_cudnn_conv_backward_filter(&g, &s);
    plan(wide ? "f32_filter" : "bf16_filter", l, status, g);
    if (n[1] <= 3) /* the gradient of the model's input is not asked for */
        return;
    status = ebb_cudnn_conv_backward_data(&g, &s);
    plan(wide ? "f32_data" : "bf16_data", l, status, g);
}

static void pool(const layer *l, bool wide)
{
    const int64_t *n = l->n;
    ebb_cudnn_graph *g;
    bool most = strcmp(l->op, "max_pool") == 0;
    ebb_cudnn_pool_sizes s = {.dtype = wide ? EBB_F32 : EBB_BF16,
                              .channels_last = true,
                              .kind = most ? EBB_CUDNN_MAX_POOL
                                      : strcmp(l->op, "average_pool") == 0
                                          ? EBB_CUDNN_AVERAGE_POOL
                                          : EBB_CUDNN_AVERAGE_POOL_INSIDE,
                              .batch = n[0],
                              .channels = wide ? n[1] : padded(n[1]),
                              .window = {.spatial = 2}};
    assert_int_equal(l->count, 14);
    for (int i = 0; i < 2; i++) {
        s.in[i] = n[2 + i];
        s.out[i] = n[4 + i];
        s.window.size[i] = n[6 + i];
        s.window.stride[i] = n[8 + i];
        s.window.before[i] = n[10 + i];
        s.window.after[i] = n[12 + i];
    }
    ebb_status status = ebb_cudnn_pooling(&g, &s, false);
    plan(wide ? "f32_forward" : "bf16_forward", l, status, g);
    if (most) /* whose gradient is pool.cu's */
        return;
    status = ebb_cudnn_pooling(&g, &s, true);
    plan(wide ? "f32_gradient" : "bf16_gradient", l, status, g);
}

/* Of [rows, channels], as the calls ask for it (cudnn_norm.c): with what follows the layer. */
static void batch_norm(const layer *l, bool wide)
{
    const int64_t *n = l->n;
    ebb_cudnn_graph *g;
    const ebb_cudnn_batch_norm_sizes s = {.dtype = wide ? EBB_F32 : EBB_BF16,
                                          .rows = n[0] * n[2] * n[3],
                                          .channels = padded(n[1]),
                                          .epsilon = 1e-5F};
    bool add = strcmp(l->word, "add_relu") == 0, relu = strcmp(l->word, "none") != 0;
    unsigned relu_bits = relu ? EBB_CUDNN_WITH_RELU | EBB_CUDNN_WITH_MASK : 0;
    unsigned add_bit = add ? EBB_CUDNN_WITH_ADD : 0;
    assert_int_equal(l->count, 4);
    ebb_status status = ebb_cudnn_batch_norm_forward(&g, &s, relu_bits | add_bit);
    plan(wide ? "f32_forward" : "bf16_forward", l, status, g);
    status = ebb_cudnn_batch_norm_backward(
        &g, &s, (relu ? EBB_CUDNN_WITH_MASK : 0U) | (add ? EBB_CUDNN_WITH_ADDED : 0U));
    plan(wide ? "f32_backward" : "bf16_backward", l, status, g);
}

static void attention(const layer *l, bool wide)
{
    const int64_t *n = l->n;
    ebb_cudnn_graph *g;
    bool bias = strcmp(l->word, "bias") == 0;
    if (wide) /* cuDNN has none of float32: it is kernels of our own there */
        return;
    assert_int_equal(l->count, 5);
    ebb_cudnn_attention_sizes s = {.dtype = EBB_BF16,
                                   .batch = n[0],
                                   .heads = n[1],
                                   .kv_heads = n[1],
                                   .queries = n[2],
                                   .keys = n[3],
                                   .width = n[4],
                                   .value_width = n[4],
                                   .scale = 0.125F,
                                   .causal = strcmp(l->word, "causal") == 0,
                                   .bias = bias,
                                   .bias_batch = bias ? n[0] : 0,
                                   .bias_heads = 1,
                                   .bias_rows = n[2]};
    s.q = s.o = s.dout = ebb_cudnn_heads_inside(n[1], n[2], n[4]);
    s.k = s.v = ebb_cudnn_heads_inside(n[1], n[3], n[4]);
    ebb_status status = ebb_cudnn_attention_forward(&g, &s, EBB_CUDNN_WITH_STATS);
    plan("bf16_forward", l, status, g);
    status = ebb_cudnn_attention_backward(&g, &s);
    plan("bf16_backward", l, status, g);
    s.q = s.dout = ebb_cudnn_heads_first(n[1], n[2], n[4]); // as steps have them
    s.k = s.v = ebb_cudnn_heads_first(n[1], n[3], n[4]);
    status = ebb_cudnn_attention_backward(&g, &s);
    plan("bf16_backward_of_steps", l, status, g);
}

static const struct {
    const char *op;
    void (*plans)(const layer *l, bool wide);
} operators[] = {{"conv", conv},
                 {"max_pool", pool},
                 {"average_pool", pool},
                 {"average_pool_inside", pool},
                 {"batch_norm", batch_norm},
                 {"attention", attention}};

static void plan_layer(const layer *l)
{
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        if (strcmp(l->op, operators[i].op) == 0) {
            operators[i].plans(l, false);
            operators[i].plans(l, true);
            return;
        }
    fail_msg("layers.txt: no such operator: %s", l->row);
}

static void walk(void (*each)(const char *line))
{
    char line[LINE];
    FILE *file = fopen(EBB_SOURCE_DIR "/tests/cuda/library/layers.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        each(line);
    }
    (void)fclose(file);
}

/* Is the layer of this row, without models, in this device's share? */
static bool in_share(const char *row)
{
    const uint64_t parts = share(48);
    uint64_t hash = 14695981039346656037u;
    for (const char *c = row; *c != 0; c++)
        hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
    return parts == 1 || (hash >> 20) % parts == at.index % parts;
}

static void refusal_line(const char *line)
{
    if (strncmp(line, "refused ", 8) == 0)
        read_refusal(line);
}

static void layer_line(const char *line)
{
    layer l;
    if (read_layer(&l, line) && in_share(l.row))
        plan_layer(&l);
}

/* "DEVICE GRAPH ROW" */
static const char *row_of(const char *refusal)
{
    const char *graph = strchr(refusal, ' ');
    const char *row = graph != NULL ? strchr(graph + 1, ' ') : NULL;
    return row != NULL ? row + 1 : refusal;
}

static void every_layer_has_plans_on_a_described_device(void **state)
{
    ebb_status status = ebb_cudnn_device_find(&at.device, *state);
    assert_null(status);
    at.table = fopen(formatted("%s/cudnn_plans_%s.txt", EBB_BINARY_DIR, at.device.name), "w");
    at.index = 0;
    while (ebb_cudnn_described_names[at.index] != *state)
        at.index++;
    at.plans = at.refused = at.broken = 0;
    at.most_bytes = 0;
    refusals = 0;
    memset(met, 0, sizeof met);
    walk(refusal_line);
    walk(layer_line);
    if (at.table != NULL)
        (void)fclose(at.table);
    for (int i = 0; i < refusals; i++)
        if (!met[i] && in_share(row_of(refused[i])) &&
            (refused[i][0] == '*' ||
             strncmp(refused[i], at.device.name, strlen(at.device.name)) == 0)) {
            at.broken++;
            print_error("refused %s: no layer has this graph\n", refused[i]);
        }
    print_message("%s: %d plans, %d refused as expected, most workspace %.1f MiB\n", at.device.name,
                  at.plans, at.refused, (double)at.most_bytes / (1 << 20));
    assert_true(at.plans > (share(2) == 1 ? 100 : 10)); /* it was read */
    assert_int_equal(at.broken, 0);
}

int main(int argc, char **argv)
{
    ebb_status status = ebb_cudnn_open();
    if (status != NULL || !ebb_cudnn_compiles()) {
        printf("SKIP: no layer is planned: %s\n",
               status != NULL ? ebb_status_text(status)
                              : "no libcuda.so.1 and no stub of it (EBB_CUDA_STUB)");
        return 77;
    }
    for (const char *const *name = ebb_cudnn_described_names; *name != NULL; name++)
        if (argc < 2 || strcmp(argv[1], *name) == 0)
            list_test(*name, every_layer_has_plans_on_a_described_device, *name);
    return run_listed();
}
