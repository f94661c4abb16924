/* test_states_away.c: states of optimizers, and weights, that lie on disk from step to step: the bits of the step
 * that keeps them in memory, bytes as planned, the same checkpoint; and where a file may not say so. */
#include <stdio.h>
#include <string.h>

#include "onnx/graph/infer.h"
#include "onnx/graph/place.h"
#include "tests/formatted.h"
#include "tests/models/alike.h"
#include "tests/owned.h"
#include "tests/text.h"

static const char states_pass[] = "offload:what=state,least=1";
static const char weights_pass[] = "offload:what=weights,least=1";

/* ---- whole steps ---- */

static void write_with(const char *step, size_t i, const ebb_step_options *options)
{
    char path[1024], *pipeline = NULL;
    OWNED_MODEL *m = NULL;
    (void)snprintf(path, sizeof path, EBB_SOURCE_DIR "/samples/%s", samples[i].model);
    good(ebb_open(&m, path));
    good(ebb_set_dim(m, "batch", samples[i].batch));
    good(ebb_step_pipeline(&pipeline, options));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    good(ebb_save(m, step));
    ebb_release(pipeline);
}

static void same_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    assert_true(x != NULL && y != NULL);
    for (int c = 0, d; c != EOF;) {
        c = getc(x);
        d = getc(y);
        if (c != d)
            fail_msg("%s and %s differ at %ld", a, b, ftell(x));
    }
    (void)fclose(x);
    (void)fclose(y);
}

static void check_bytes(const run *r)
{
    const ebb_program_facts f = ebb_program_measure(r->program);
    assert_int_equal(f.planned_arena_bytes, f.measured_arena_bytes);
    assert_int_equal(f.planned_disk_bytes, f.disk_bytes);
    assert_int_equal(f.planned_host_bytes, f.host_bytes);
}

/* Steps from a checkpoint of the other one, both ways. */
static void go_on(const char *path, const char *checkpoint, const char *pass, const char *end)
{
    run r = {NULL, NULL};
    run_open(&r, path, pass); // two steps, which the checkpoint undoes
    good(ebb_checkpoint_load(r.program, checkpoint, NULL));
    good(ebb_checkpoint_save(r.program, end, NULL));
    check_bytes(&r);
    run_close(&r);
    same_file(checkpoint, end);
}

static void check_step(const char *path, const char *pass, const char *to_host, const char *what)
{
    static const char *const files[] = {EBB_BINARY_DIR "/states_kept.st",
                                        EBB_BINARY_DIR "/states_away.st",
                                        EBB_BINARY_DIR "/states_end.st"};
    const char *const saved = EBB_BINARY_DIR "/states_away.onnx";
    run kept = {NULL, NULL}, away = {NULL, NULL}, host = {NULL, NULL}, again = {NULL, NULL};
    run_open(&kept, path, NULL);
    run_open(&away, path, pass);
    run_open(&host, path, to_host);
    compare(&kept, &away, what);
    compare(&kept, &host, what);
    check_bytes(&away);
    check_bytes(&host);
    const ebb_program_facts f = ebb_program_measure(away.program);
    if (f.planned_disk_bytes == 0)
        fail_msg("%s: nothing lies on disk", what);
    assert_true(ebb_program_measure(host.program).host_bytes > 0);
    assert_true(f.planned_arena_bytes <= ebb_program_measure(kept.program).planned_arena_bytes);

    good(ebb_checkpoint_save(kept.program, files[0], NULL));
    good(ebb_checkpoint_save(away.program, files[1], NULL));
    same_file(files[0], files[1]);
    go_on(path, files[0], pass, files[2]);
    go_on(path, files[1], NULL, files[2]);

    good(ebb_save(away.model, saved)); // what it holds is where it was
    run_open(&again, saved, NULL);
    assert_int_equal(ebb_program_measure(again.program).planned_disk_bytes, f.planned_disk_bytes);
    assert_int_equal(ebb_program_measure(again.program).planned_arena_bytes, f.planned_arena_bytes);
    compare(&kept, &again, what);
    for (size_t i = 0; i < 3; i++)
        (void)remove(files[i]);
    (void)remove(saved);
    run_close(&again);
    run_close(&host);
    run_close(&away);
    run_close(&kept);
}

TEST(samples_train_alike_wherever_their_states_lie)
{
    static const char *const optimizers[] = {"adam", "momentum:lr=0.1",      "adamw",    "adagrad",
                                             "lion", "rmsprop:momentum=0.9", "adafactor"};
    for (size_t i = 0; i < SAMPLES; i++)
        for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++) {
            char what[256];
            const char *const step = EBB_BINARY_DIR "/states.onnx";
            if (i > 0 && k > 1 && i + k != 5) // all on the smallest, and two on each
                continue;
            (void)snprintf(what, sizeof what, "%s, %s", samples[i].model, optimizers[k]);
            write_with(step, i,
                       &(ebb_step_options){.loss = samples[i].loss,
                                           .optimizer = optimizers[k],
                                           .clip_norm = k % 2 == 0 ? 1 : 0,
                                           .ema = k == 2 ? 0.9 : 0});
            check_step(step, states_pass, formatted("%s,place=host", states_pass), what);
            if (k == 0)
                check_step(step, weights_pass, formatted("%s,place=host", weights_pass), what);
            (void)remove(step);
        }
}

/* Two of each parameter's size leave, or all three; some of them are here at a time. */
TEST(what_lasts_leaves_the_arena)
{
    static const struct {
        const char *pass;
        uint64_t percent;
    } cases[] = {{states_pass, 75}, {weights_pass, 65}};
    const char *const step = EBB_BINARY_DIR "/states.onnx";
    run kept = {NULL, NULL};
    write_with(step, 0, &(ebb_step_options){.loss = samples[0].loss, .optimizer = "adam"});
    run_open(&kept, step, NULL);
    const uint64_t all = ebb_program_measure(kept.program).planned_arena_bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run away = {NULL, NULL};
        run_open(&away, step, cases[i].pass);
        const uint64_t left = ebb_program_measure(away.program).planned_arena_bytes;
        if (left >= all / 100 * cases[i].percent)
            fail_msg("%s: %llu of %llu", cases[i].pass, (unsigned long long)left,
                     (unsigned long long)all);
        run_close(&away);
    }
    (void)remove(step);
    run_close(&kept);
}

/* ---- in parts ---- */

static void keep(ebb_model *m, ebb_value v)
{
    good(ebb_graph_keep_input(m->graph, v, EBB_ROLE_PARAMETER));
    ebb_tensor *t = EBB_NEW(&m->arena, ebb_tensor, 1);
    assert_non_null(t);
    *t = (ebb_tensor){.type = *ebb_value_of(m->graph, v)->type};
    assert_true(ebb_type_bytes(&t->type, &t->bytes));
    float *data = ebb_arena_alloc(&m->arena, t->bytes);
    assert_non_null(data);
    for (size_t k = 0; k < t->bytes / sizeof *data; k++)
        data[k] = (float)((int)(k * 37 % 101) - 50) / 512;
    t->data = data;
    ebb_value_of(m->graph, v)->tensor = t;
}

static void write_wide(const char *step, const char *columns, const char *optimizer,
                       const char *precision)
{
    char *pipeline = NULL;
    OWNED_MODEL *m = parsed(
        formatted("<ir_version: 10, opset_import: [\"\" : 20]>\n"
                  "g (float[2,1003] x, float[1003,%s] w, float[%s] b, float[%s,10] v) => "
                  "(float[2,10] y) { h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = MatMul(r, v) }",
                  columns, columns, columns));
    while (m->graph->input_count > 1)
        keep(m, m->graph->inputs[m->graph->input_count - 1]);
    good(ebb_step_pipeline(&pipeline, &(ebb_step_options){.loss = "cross-entropy",
                                                          .optimizer = optimizer,
                                                          .precision = precision}));
    good(ebb_rewrite(m, pipeline, NULL, NULL));
    good(ebb_save(m, step));
    ebb_release(pipeline);
}

/* Of the first state that is in parts; 0: there is none. */
static uint32_t parts_of(const char *step, const char *pass)
{
    uint32_t parts = 0;
    OWNED_MODEL *m = NULL;
    good(ebb_open(&m, step));
    good(ebb_rewrite(m, pass, &(ebb_rewrite_options){.verify_each = true}, NULL));
    for (size_t i = 0; i < m->graph->binding_count && parts == 0; i++) {
        const ebb_node split = ebb_state_split(m->graph, m->graph->bindings[i].state);
        parts = split.i != 0 ? ebb_node_of(m->graph, split)->out_count : 0;
    }
    return parts;
}

/* Where the update of the largest weight does not fit it is cut, and the step learns the same. */
TEST(a_large_weight_is_updated_some_rows_at_a_time)
{
    static const struct {
        const char *optimizer, *columns; /* of 1,003 rows */
        const char *precision;
        int budget;
        uint32_t parts;
    } cases[] = {
        {"adamw", "128", NULL, 1500000, 8},
        {"adamw", "66", NULL, 960000, 2}, // 512 rows fill pages
        {"adamw:order=transformers", "128", NULL, 1650000, 8},
        {"momentum:lr=0.1", "128", NULL, 1450000, 8},
        {"adamw", "128", "bf16", 1700000, 8},
    };
    const char *const step = EBB_BINARY_DIR "/states_wide.onnx";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const pass = formatted("fit:budget=%d,disk=1GiB", cases[i].budget);
        write_wide(step, cases[i].columns, cases[i].optimizer, cases[i].precision);
        assert_int_equal(parts_of(step, pass), cases[i].parts);
        check_step(step, pass, formatted("fit:budget=%d,host=1GiB", cases[i].budget),
                   cases[i].optimizer);
    }
    (void)remove(step);
}

/* ---- what a file may say ---- */

static const char *refused_because(const char *nodes, const char *other)
{
    static char said[512];
    OWNED_MODEL *m = NULL;
    good(ebb_text_parse_model(
        &m, formatted("<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]>\n"
                      "g (float[2048] x, float[2048] m, float[2048] o) => (float[2048] y) { %s }",
                      nodes)));
    ebb_graph *g = m->graph;
    const ebb_value k = ebb_value_find(g, "k");
    good(ebb_graph_keep_input(g, ebb_value_find(g, "o"), EBB_ROLE_OPTIMIZER));
    good(ebb_graph_keep_input(g, ebb_value_find(g, "m"), EBB_ROLE_OPTIMIZER));
    good(ebb_graph_bind(g, ebb_value_find(g, "m"), k));
    if (other != NULL) // another state is replaced by this
        good(ebb_graph_bind(g, ebb_value_find(g, "o"), ebb_value_find(g, other)));
    ebb_status status = ebb_infer_graph(g);
    if (status == NULL)
        status = ebb_verify(g);
    (void)snprintf(said, sizeof said, "%s", status != NULL ? ebb_status_text(status) : "");
    return said;
}

#define APART "m0, m1 = Split <num_outputs = 2> (m) x0, x1 = Split <num_outputs = 2> (x) "
#define FETCHED "f = ai.ebb.Fetch(m1) n = ai.ebb.Wait(f, m1) "
#define STORED                                        \
    "s0 = ai.ebb.Store(x0) k0 = ai.ebb.Wait(s0, x0) " \
    "s1 = ai.ebb.Store(x1) k1 = ai.ebb.Wait(s1, x1) "

TEST(a_state_is_read_before_it_is_written_where_it_lies)
{
    static const struct {
        const char *nodes, *why, *other;
    } cases[] = {
        {"f = ai.ebb.Fetch(m) n = ai.ebb.Wait(f, m) p = Add(n, x) s = ai.ebb.Store(p) "
         "k = ai.ebb.Wait(s, p) y = Relu(p)",
         "", NULL},
        {"p = Relu(x) s = ai.ebb.Store(p) k = ai.ebb.Wait(s, p) f = ai.ebb.Fetch(m) "
         "n = ai.ebb.Wait(f, m) y = Add(n, x)",
         "is still read there", NULL},
        {"f = ai.ebb.Fetch(m) p = Relu(x) s = ai.ebb.Store(p) n = ai.ebb.Wait(f, m) "
         "k = ai.ebb.Wait(s, p) y = Add(n, x)",
         "is still read there", NULL},
        {"y = Add(m, x) s = ai.ebb.Store(x) k = ai.ebb.Wait(s, x)", "it reads what lies in another",
         NULL},
        {"f = ai.ebb.Fetch(m) n = ai.ebb.Wait(f, m) p = Add(n, x) s = ai.ebb.Store(p) "
         "k = ai.ebb.Wait(s, p) y = Relu(p)",
         "two states cannot lie at once", "k"},
        {"f = ai.ebb.Fetch(m) n = ai.ebb.Wait(f, m) p = Add(n, x) s = ai.ebb.Store(p) "
         "k = ai.ebb.Wait(s, p) y = Relu(p)",
         "is read by its name", "m"},
        {APART FETCHED STORED "k = Concat <axis = 0> (k0, k1) y = Relu(x)", "", NULL},
        {APART STORED FETCHED "k = Concat <axis = 0> (k0, k1) y = Relu(x)",
         "still read where it is written", NULL},
        {APART FETCHED STORED "k = Concat <axis = 0> (k0, k1) y = Add(m, x)",
         "is a state, and what replaces it", NULL},
        {APART FETCHED STORED "k = Concat <axis = 0> (k0, x0) y = Relu(x)", "was not stored", NULL},
        {APART FETCHED STORED "k = Concat <axis = 0> (k0, k0) y = Relu(k1)",
         "is read by something else", NULL},
        {"m0, m1 = Split <num_outputs = 2, axis = 0> (m) x0, x1 = Split <num_outputs = 2> (x) "
         "s = ai.ebb.Store(x) k = ai.ebb.Wait(s, x) y = Relu(m0)",
         "is a state, and what replaces it", NULL},
        {"a, b, c, d = Split <num_outputs = 4> (m) p, q, r, t = Split <num_outputs = 4> (x) "
         "s = ai.ebb.Store(p) u = ai.ebb.Wait(s, p) s1 = ai.ebb.Store(q) u1 = ai.ebb.Wait(s1, q) "
         "s2 = ai.ebb.Store(r) u2 = ai.ebb.Wait(s2, r) s3 = ai.ebb.Store(t) u3 = ai.ebb.Wait(s3, "
         "t) "
         "k = Concat <axis = 0> (u, u1, u2, u3) y = Relu(x)",
         "fill no pages", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = refused_because(cases[i].nodes, cases[i].other);
        if (cases[i].why[0] == '\0' ? said[0] != '\0' : strstr(said, cases[i].why) == NULL)
            fail_msg("%s\n'%s', expected '%s'", cases[i].nodes, said, cases[i].why);
    }
}
