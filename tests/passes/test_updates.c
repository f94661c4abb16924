/* test_updates.c: around the optimizers: which parameters are whose, what is in place, resuming,
 * averages given away, and what is refused.
 */
#include "tests/owned.h"
#include "tests/passes/optimizers.h"
#include "tests/status.h"
#include "tests/text.h"

#include <stdlib.h>

#include <unistd.h>

/* A table that is read by Gather is none, though the last product reads it too; nor is what is
 * next to the loss. A turned weight before it is one. */
TEST(tables_and_last_layers_are_no_hidden_matrices)
{
    static const char tied[] =
        "<ir_version: 10, opset_import: [\"\" : 20]>\n"
        "g (int64[5] ids) => (float loss) <float[7,3] table, float[4,3] up, float[3,4] down, "
        "float[3,3] last> {\n"
        "   e = Gather (table, ids)\n   turned = Transpose <perm = [1, 0]> (up)\n"
        "   h = MatMul (e, turned)\n   r = Relu (h)\n"
        "   f = Gemm <transB = 1> (r, down)\n   both = Add (e, f)\n"
        "   shown = Transpose <perm = [1, 0]> (table)\n   scores = MatMul (both, shown)\n"
        "   other = MatMul (both, last)\n   a = ReduceSumSquare <keepdims = 0> (scores)\n"
        "   b = ReduceSumSquare <keepdims = 0> (other)\n   loss = Add (a, b)\n}";
    OWNED_MODEL *m = model_of(tied);
    good(ebb_rewrite(m, "loss:name=loss,gradient:train=\"table;up;down;last\",optimizer:muon", NULL,
                     NULL));
    assert_true(ebb_value_find(m->graph, "up.momentum").i != 0);
    assert_true(ebb_value_find(m->graph, "down.momentum").i != 0);
    assert_true(ebb_value_find(m->graph, "table.exp_avg").i != 0);
    assert_true(ebb_value_find(m->graph, "last.exp_avg").i != 0);
}

static char path[] = "/tmp/ebb-optimizers-XXXXXX.safetensors";

/* The user's own file gets the averages; the step itself, which has a place for both, both. */
TEST(the_average_is_what_others_get)
{
    trial t = make("sgd,lr=0.02,ema=0.75");
    ebb_model *own = parse();
    ebb_program *p = NULL;
    for (int i = 1; i <= STEPS; i++)
        good(ebb_program_step(t.program, NULL));
    good(ebb_program_store(t.program, own));
    good(ebb_program_store(t.program, t.model));
    good(ebb_program_compile(&p, own, NULL));
    for (int k = 0; k < PARAMETERS; k++) {
        char average[64];
        (void)snprintf(average, sizeof average, "%s.ema", names[k]);
        const ebb_graph *g = t.model->graph;
        const ebb_tensor *w = ebb_value_of(g, ebb_value_find(g, names[k]))->tensor;
        for (int i = 0; i < sizes[k]; i++) {
            const double mean = value_of(t.program, average, (size_t)i);
            const double now = value_of(t.program, names[k], (size_t)i);
            assert_true(mean != now);
            assert_true(value_of(p, names[k], (size_t)i) == mean);
            assert_true((double)((const float *)w->data)[i] == now);
        }
    }
    ebb_program_free(p);
    ebb_close(own);
    drop(&t);
}

/* So do weights that are taken from a checkpoint. */
TEST(a_checkpoints_averages_are_its_weights_for_others)
{
    trial t = make("sgd,lr=0.02,ema=0.75"), step = {NULL, NULL};
    ebb_model *own = parse();
    good(rewrite(&step, "sgd,lr=0.02,ema=0.75"));
    for (int i = 1; i <= STEPS; i++)
        good(ebb_program_step(t.program, NULL));
    good(ebb_checkpoint_save(t.program, path, "{}"));
    good(ebb_load_weights(own, path));
    good(ebb_load_weights(step.model, path));
    for (int k = 0; k < PARAMETERS; k++) {
        char average[64];
        (void)snprintf(average, sizeof average, "%s.ema", names[k]);
        const ebb_graph *a = own->graph, *b = step.model->graph;
        const float *other = ebb_value_of(a, ebb_value_find(a, names[k]))->tensor->data;
        const float *same = ebb_value_of(b, ebb_value_find(b, names[k]))->tensor->data;
        for (int i = 0; i < sizes[k]; i++) {
            assert_true((double)other[i] == value_of(t.program, average, (size_t)i));
            assert_true((double)same[i] == value_of(t.program, names[k], (size_t)i));
        }
    }
    ebb_close(own);
    drop(&step);
    drop(&t);
}

/* ---- memory ---- */

static const char *const kinds[] = {"sgd",     "momentum", "adamw", "nesterov",  "adam",
                                    "rmsprop", "adagrad",  "lion",  "adafactor", "muon"};

/* Nothing stays to the end of the step for being carried over, whatever the optimizer. */
TEST(every_state_is_replaced_in_place)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer,
                       "%s,weight-decay=0.1,schedule=cosine,warmup=3,steps=9,clip-norm=1,ema=0.9",
                       kinds[k]);
        trial t = {NULL, NULL};
        good(rewrite(&t, optimizer));
        const ebb_graph *g = t.model->graph;
        for (size_t i = 0; i < g->binding_count; i++) {
            const ebb_value next = g->bindings[i].next;
            if (ebb_value_of(g, next)->over == 0)
                fail_msg("%s: '%s' is computed beside its state", kinds[k],
                         ebb_value_name(g, next));
        }
        drop(&t);
    }
}

/* Updates behind their gradients give the same bits. */
TEST(updates_of_every_kind_are_released_early)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer, "%s,lr=0.002,weight-decay=0.1,ema=0.9",
                       kinds[k]);
        trial late = make(optimizer);
        (void)snprintf(optimizer, sizeof optimizer, "%s,lr=0.002,weight-decay=0.1,ema=0.9,release",
                       kinds[k]);
        trial early = make(optimizer);
        for (int i = 0; i < STEPS; i++) {
            good(ebb_program_step(late.program, NULL));
            good(ebb_program_step(early.program, NULL));
        }
        assert_true(ebb_program_measure(early.program).peak_bytes <=
                    ebb_program_measure(late.program).peak_bytes);
        for (int p = 0; p < PARAMETERS; p++)
            for (int i = 0; i < sizes[p]; i++)
                if (value_of(late.program, names[p], (size_t)i) !=
                    value_of(early.program, names[p], (size_t)i))
                    fail_msg("%s: %s[%d] differs where updates are early", kinds[k], names[p], i);
        drop(&late);
        drop(&early);
    }
}

/* ---- resuming ---- */

static void steps(ebb_program *p, int count)
{
    for (int i = 0; i < count; i++)
        good(ebb_program_step(p, NULL));
}

/* 3 + 5 steps give the bits of 8, in the middle of a warm-up. */
TEST(a_resumed_step_goes_on_bit_for_bit)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char optimizer[256];
        (void)snprintf(optimizer, sizeof optimizer,
                       "%s,schedule=cosine,warmup=6,steps=12,clip-norm=1,ema=0.9,"
                       "groups=\"bias:weight-decay=0.01,lr=0.003\"",
                       kinds[k]);
        trial whole = make(optimizer), first = make(optimizer), second = make(optimizer);
        steps(whole.program, 8);
        steps(first.program, 3);
        good(ebb_checkpoint_save(first.program, path, "{}"));
        good(ebb_checkpoint_load(second.program, path, NULL));
        assert_null(ebb_checkpoint_note(second.program));
        steps(second.program, 5);
        const ebb_graph *g = whole.model->graph;
        for (size_t i = 0; i < g->initializer_count; i++) {
            const char *name = ebb_value_name(g, g->initializers[i]);
            if (!ebb_value_is_state(g, g->initializers[i]))
                continue;
            ebb_named a, b;
            size_t bytes;
            good(ebb_program_get(whole.program, name, &a));
            good(ebb_program_get(second.program, name, &b));
            assert_true(ebb_type_bytes(ebb_value_of(g, g->initializers[i])->type, &bytes));
            if (memcmp(a.data, b.data, bytes) != 0)
                fail_msg("%s: '%s' differs after the checkpoint", kinds[k], name);
        }
        drop(&whole);
        drop(&first);
        drop(&second);
    }
}

/* A rate that the run itself set goes on; one that another step has counts, and so does another
 * schedule: both with a sentence. */
TEST(a_changed_rate_counts)
{
    const float set = 0.125f;
    const ebb_named rate = {"ebb.lr", EBB_F32, 0, NULL, &set};
    trial t = make("momentum,lr=0.5"), same = make("momentum,lr=0.5"),
          other = make("momentum,lr=0.25"),
          scheduled = make("momentum,lr=0.5,schedule=linear,steps=8");
    good(ebb_program_set(t.program, &rate));
    steps(t.program, 2);
    good(ebb_checkpoint_save(t.program, path, "{}"));
    good(ebb_checkpoint_load(same.program, path, NULL));
    assert_null(ebb_checkpoint_note(same.program));
    assert_true(value_of(same.program, "ebb.lr", 0) == 0.125);
    good(ebb_checkpoint_load(other.program, path, NULL));
    assert_non_null(ebb_checkpoint_note(other.program));
    assert_string_equal(ebb_checkpoint_note(other.program),
                        "ebb.lr is 0.25 now; it was 0.5 where the checkpoint was made");
    assert_true(value_of(other.program, "ebb.lr", 0) == 0.25);
    good(ebb_checkpoint_load(scheduled.program, path, NULL));
    assert_string_equal(ebb_checkpoint_note(scheduled.program),
                        "the schedule is linear,steps=8 now; it was none where the checkpoint was "
                        "made");
    steps(scheduled.program, 1);
    assert_true(fabs(value_of(scheduled.program, "ebb.rate", 0) - 0.125 * 0.75) < 1e-8);
    drop(&t);
    drop(&same);
    drop(&other);
    drop(&scheduled);
}

/* Files of before tell nothing: a rate that differs may be either. */
TEST(an_older_checkpoint_with_another_rate_is_refused)
{
    trial t = make("sgd,lr=0.5"), other = make("sgd,lr=0.25");
    const ebb_graph *g = t.model->graph;
    ebb_named list[16];
    size_t count = 0;
    for (size_t i = 0; i < g->initializer_count; i++)
        if (ebb_value_is_state(g, g->initializers[i]))
            good(ebb_program_get(t.program, ebb_value_name(g, g->initializers[i]), &list[count++]));
    good(ebb_tensors_save(
        path, list, count,
        "{\"format\": \"ebb.checkpoint/1\", \"steps\": \"0\", \"extra\": \"{}\"}"));
    good(ebb_checkpoint_load(t.program, path, NULL));
    refused(ebb_checkpoint_load(other.program, path, NULL), EBB_USAGE,
            "ebb.lr is 0.5 in the checkpoint");
    drop(&t);
    drop(&other);
}

/* ---- what is refused ---- */

static void says(const char *optimizer, const char *words)
{
    trial t = {NULL, NULL};
    ebb_status status = rewrite(&t, optimizer);
    if (status == NULL || strstr(ebb_status_text(status), words) == NULL)
        fail_msg("%s: '%s' instead of '%s'", optimizer,
                 status != NULL ? ebb_status_text(status) : "no error", words);
    assert_int_equal(ebb_status_code(status), EBB_USAGE);
    drop(&t);
}

TEST(options_without_effect_are_refused)
{
    says("sgd,momentum=0.9", "sgd has no option 'momentum'");
    says("momentum,beta1=0.9", "momentum has no option 'beta1'");
    says("lion,epsilon=1e-8", "lion has no option 'epsilon'");
    says("none,lr=1", "none updates nothing: lr has no effect");
    says("adamw,warmup=10", "warmup belongs to a schedule, and none is given");
    says("adamw,schedule=constant,floor=0.1", "schedule constant has no floor");
    says("adamw,schedule=one-cycle,steps=10,warmup=3", "schedule one-cycle has no warmup");
    says("adamw,schedule=cosine", "schedule cosine needs steps=N");
    says("adamw,schedule=step", "schedule step needs every=N");
    says("adamw,schedule=linear,warmup=10,steps=10", "a warm-up of 10 steps leaves none of 10");
    says("adamw,schedule=one-cycle,steps=3", "no step to rise or fall in within 3 steps");
    says("adamw,clip-norm=0", "clip-norm takes a number above 0");
    says("adamw,ema=1", "ema takes a number of at least 0 and below 1");
    says("adafactor,beta2-decay=1", "beta2-decay takes a number from -10 to 0");
    says("adamw,groups=bias", "the group 'bias' is not GLOBS:OPTION=VALUE,...");
    says("adamw,groups=\"bias:lr=x\"", "option lr takes a number");
    says("adamw,groups=\"bias:momentum=0.5\"", "adamw has no option 'momentum'");
    says("adamw,groups=\"bias:ema=0.5\"", "ema is the same for all groups, not of 'bias'");
    says("adamw,groups=\"bias:kind=none\"", "the group 'bias' has kind=none");
    says("adamw,groups=\"*norm*:lr=1\"", "the group '*norm*' has no trained parameter");
}

int main(void)
{
    const int made = mkstemps(path, (int)strlen(".safetensors"));
    if (made < 0 || close(made) != 0)
        return 1;
    const int failed = run_listed();
    return unlink(path) != 0 ? 1 : failed;
}
