/* test_alias.c: over whole models, no node ever reads memory that something else was written into.
 *
 * A second opinion on the alias pass: the step is played with one token for the contents of each
 * block of memory, instead of numbers.
 */
#include <stdio.h>
#include <string.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/pipeline.h"
#include "tests/owned.h"
#include "tests/test.h"

#define SHARED EBB_SOURCE_DIR "/../shared/models/"
#define MAKE                                                                                \
    "inline,fold,train-mode,fold,fuse,loss:cross-entropy,axis=-1,gradient,optimizer:adamw," \
    "sign-mask,dropout-seed,drop-saves,"

typedef struct play {
    const ebb_graph *g;
    uint32_t *block;   /* value id -> another value of its block; roots point at themselves */
    uint32_t *content; /* value id -> what it shows: itself, or what it is a view of */
    uint32_t *holds;   /* root -> content */
    bool *state;       /* root -> a state lies there */
    char problem[512];
} play;

static uint32_t block_of(const play *p, ebb_value v)
{
    uint32_t i = v.i;
    while (p->block[i] != i)
        i = p->block[i];
    return i;
}

static void complain(play *p, ebb_node n, ebb_value v, const char *what)
{
    if (p->problem[0] == '\0')
        (void)snprintf(p->problem, sizeof p->problem, "%s: '%s' %s",
                       n.i != 0 ? ebb_node_label(p->g, n) : "the end of the step",
                       ebb_value_name(p->g, v), what);
}

static void must_hold(play *p, ebb_node n, ebb_value v)
{
    if (v.i != 0 && p->holds[block_of(p, v)] != p->content[v.i])
        complain(p, n, v, "was overwritten");
}

static void begin(play *p)
{
    const ebb_graph *g = p->g;
    EBB_EACH_VALUE(g, v)
        p->block[v.i] = p->content[v.i] = v.i;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t k = 0; k < info->out_count; k++)
            if (ebb_node_over(g, n, k) != 0)
                p->block[block_of(p, info->out[k])] =
                    block_of(p, ebb_in(g, n, ebb_node_over(g, n, k) - 1));
        if (ebb_op_has(info->op, EBB_VIEW) && info->out[0].i != 0)
            p->content[info->out[0].i] = p->content[info->in[0].i];
    }
    EBB_EACH_VALUE(g, v) {
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!info->dead && (info->flags & (EBB_IS_INPUT | EBB_IS_INITIALIZER)) != 0)
            p->holds[block_of(p, v)] = v.i;
        if ((info->flags & EBB_IS_STATE) != 0)
            p->state[block_of(p, v)] = true;
    }
}

static void step(play *p)
{
    const ebb_graph *g = p->g;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        for (uint32_t i = 0; i < info->in_count; i++)
            must_hold(p, n, info->in[i]);
        for (uint32_t k = 0; k < info->out_count; k++) {
            if (info->out[k].i == 0)
                continue;
            bool view = k == 0 && ebb_op_has(info->op, EBB_VIEW);
            for (uint32_t i = 0; i < info->in_count && !view; i++) {
                bool over = ebb_node_over(g, n, k) == i + 1;
                if (info->in[i].i != 0 && !over &&
                    block_of(p, info->in[i]) == block_of(p, info->out[k]))
                    complain(p, n, info->in[i], "is written while it is read");
            }
            p->holds[block_of(p, info->out[k])] = p->content[info->out[k].i];
        }
    }
}

static void end(play *p)
{
    const ebb_graph *g = p->g;
    for (size_t i = 0; i < g->output_count; i++)
        must_hold(p, EBB_NO_NODE, g->outputs[i]);
    for (size_t i = 0; i < g->binding_count; i++) {
        ebb_value state = g->bindings[i].state, next = g->bindings[i].next;
        must_hold(p, EBB_NO_NODE, next);
        if (block_of(p, state) != block_of(p, next) && p->state[block_of(p, next)])
            complain(p, EBB_NO_NODE, next, "lies in another state's memory");
    }
    for (size_t i = 0; i < g->initializer_count; i++)
        if ((ebb_value_of(g, g->initializers[i])->flags & EBB_IS_STATE) == 0)
            must_hold(p, EBB_NO_NODE, g->initializers[i]);
}

static bool is_sound(const ebb_graph *g, char *problem, size_t size)
{
    OWNED_ARENA scratch = {0};
    play p = {.g = g,
              .block = EBB_NEW(&scratch, uint32_t, g->value_count),
              .content = EBB_NEW(&scratch, uint32_t, g->value_count),
              .holds = EBB_NEW(&scratch, uint32_t, g->value_count),
              .state = EBB_NEW(&scratch, bool, g->value_count)};
    begin(&p);
    step(&p);
    end(&p);
    (void)snprintf(problem, size, "%s", p.problem);
    return problem[0] == '\0';
}

/* Each sum of gradients is written over one of its parts. */
static bool adds_in_place(const ebb_graph *g, char *problem, size_t size)
{
    problem[0] = '\0';
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool sum = strncmp(ebb_text(g, info->name), "AccumulateGrad_", 15) == 0;
        if (sum && ebb_node_over(g, n, 0) == 0)
            (void)snprintf(problem, size, "%s takes memory of its own", ebb_node_label(g, n));
    }
    return problem[0] == '\0';
}

TEST(no_step_of_any_model_reads_what_was_overwritten)
{
    static const char *const models[] = {
        "mlp_digits", "cnn_digits", "resnet20_cifar", "mobilenet_tiny",    "bert_tiny",
        "gpt2_tiny",  "lstm_char",  "resnet50",       "mobilenet_v2",      "vgg16_bn",
        "vit_b16",    "bert_base",  "gpt2",           "gelu_block_dropout"};
    static const char *const exporters[] = {"ts", "dynamo"};
    int failures = 0, seen = 0;
    for (size_t m = 0; m < 2 * (sizeof models / sizeof *models); m++) {
        char path[1024], problem[512];
        OWNED_MODEL *model = NULL;
        (void)snprintf(path, sizeof path, SHARED "%s/%s.onnx", models[m / 2], exporters[m % 2]);
        FILE *file = fopen(path, "rb");
        if (file == NULL)
            continue;
        fclose(file);
        seen++;
        OWNED_ARENA keep = {0};
        ebb_report *reports;
        size_t count, bound;
        const ebb_rewrite_options options = {.verify_each = true};
        ebb_status status = ebb_model_read(&model, path);
        if (status == NULL)
            status = ebb_bind_dim(model->graph, "batch", 4, &bound);
        if (status == NULL)
            status =
                ebb_pipeline_run(model, m % 2 == 0 ? MAKE "alias" : MAKE "release,reorder,alias",
                                 &options, &keep, &reports, &count);
        if (status != NULL) {
            print_error("%s: %s\n", path, ebb_status_text(status));
            failures++;
        } else if (!is_sound(model->graph, problem, sizeof problem) ||
                   !adds_in_place(model->graph, problem, sizeof problem)) {
            print_error("%s: %s\n", path, problem);
            failures++;
        }
    }
    if (seen == 0) {
        print_message("SKIP: no models beside the repository\n");
        skip();
    }
    assert_int_equal(failures, 0);
}

TEST(the_play_sees_what_is_wrong)
{
    OWNED_MODEL *model = NULL;
    char problem[512];
    assert_null(ebb_text_parse_model(
        &model, "<ir_version: 10, opset_import: [\"\" : 20]> g (float[4] x) => (float[4] z) "
                "{ a = Neg (x) b = Relu (a) z = Add (a, b) }"));
    ebb_graph *g = model->graph;
    assert_true(is_sound(g, problem, sizeof problem));
    ebb_node_set_over(g, ebb_value_of(g, ebb_value_find(g, "b"))->producer, 0, 0);
    assert_false(is_sound(g, problem, sizeof problem));
    assert_non_null(strstr(problem, "'a' was overwritten"));
}
