/* test_states_away.c: states of optimizers, and weights, that lie on disk from step to step: the bits of the step
 * that keeps them in memory, bytes as planned, the same checkpoint; and where a file may not say so. */
#include <stdio.h>
#include <string.h>

#include "onnx/graph/infer.h"
#include "tests/formatted.h"
#include "tests/models/alike.h"
#include "tests/owned.h"

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

static void check_step(const char *path, const char *pass, const char *what)
{
    static const char *const files[] = {EBB_BINARY_DIR "/states_kept.st",
                                        EBB_BINARY_DIR "/states_away.st",
                                        EBB_BINARY_DIR "/states_end.st"};
    const char *const saved = EBB_BINARY_DIR "/states_away.onnx";
    run kept = {NULL, NULL}, away = {NULL, NULL}, host = {NULL, NULL}, again = {NULL, NULL};
    run_open(&kept, path, NULL);
    run_open(&away, path, pass);
    run_open(&host, path, formatted("%s,place=host", pass));
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
            check_step(step, states_pass, what);
            if (k == 0)
                check_step(step, weights_pass, what);
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

/* ---- what a file may say ---- */

static const char *refused_because(const char *nodes, const char *other)
{
    static char said[512];
    OWNED_MODEL *m = NULL;
    good(ebb_text_parse_model(
        &m, formatted("<ir_version: 10, opset_import: [\"\" : 20, \"ai.ebb\" : 1]>\n"
                      "g (float[4] x, float[4] m, float[4] o) => (float[4] y) { %s }",
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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *said = refused_because(cases[i].nodes, cases[i].other);
        if (cases[i].why[0] == '\0' ? said[0] != '\0' : strstr(said, cases[i].why) == NULL)
            fail_msg("%s\n'%s', expected '%s'", cases[i].nodes, said, cases[i].why);
    }
}
