/* test_low_bit_state.c: optimizer states in codes on whole models: what they take, to the byte, and
 * how far the weights stray from those of the exact optimizer over a hundred steps on real data.
 */
#include <math.h>

#include "onnx/file/file.h"
#include "tests/formatted.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { STEPS = 100, BATCH = 32 };

/* ---- bytes ---- */

static int64_t number_at(json_t *plan, const char *category)
{
    return json_integer_value(json_object_get(json_object_get(plan, "categories"), category));
}

static void plan_bert(const char *passes, int64_t *states, int64_t *peak, int64_t *formula,
                      int64_t bits, int64_t block)
{
    OWNED_MODEL *model = NULL;
    RELEASED char *text = NULL;
    *formula = 0;
    recorded r;
    assert_true(recorded_open(&r, "bert_base", "ts.onnx"));
    good(ebb_open(&model, SHARED "bert_base/ts.onnx"));
    good(ebb_set_dim(model, "batch", 1));
    good(recorded_rewrite(&r, model, "on", "adamw", passes));
    recorded_close(&r);
    const ebb_graph *g = model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        int64_t n;
        if (info->role != EBB_ROLE_PARAMETER || ebb_graph_bound(g, g->initializers[i]).i == 0)
            continue;
        assert_true(ebb_type_elements(info->type, &n));
        if (n >= 4096) // aligned to 64 bytes in the arena: 2 states
            *formula += 2 * ((4 * n + 63) / 64 * 64 - (n * bits / 8 + 63) / 64 * 64 -
                             ((n + block - 1) / block * 4 + 63) / 64 * 64);
    }
    good(ebb_plan_json(model, NULL, &text));
    json_t *plan = json_loads(text, 0, NULL);
    *states = number_at(plan, "OPTIMIZER_STATE");
    *peak = json_integer_value(json_object_get(plan, "peak_bytes"));
    json_decref(plan);
}

TEST(the_states_of_bert_take_what_arithmetic_says)
{
    if (models_are_missing())
        skip();
    int64_t states, peak, formula, coded_states, coded_peak;
    plan_bert("", &states, &peak, &formula, 8, 256);
    plan_bert("low-bit-state", &coded_states, &coded_peak, &formula, 8, 256);
    print_message("8 bits: %lld bytes of states become %lld, the peak %lld becomes %lld\n",
                  (long long)states, (long long)coded_states, (long long)peak,
                  (long long)coded_peak);
    assert_int_equal(states - coded_states, formula);
    assert_true(peak - coded_peak >= formula - 4096); // less two maps of 1 KiB
    plan_bert("low-bit-state:bits=4", &coded_states, &coded_peak, &formula, 4, 128);
    print_message("4 bits: %lld bytes of states become %lld, the peak %lld becomes %lld\n",
                  (long long)states, (long long)coded_states, (long long)peak,
                  (long long)coded_peak);
    assert_int_equal(states - coded_states, formula);
    assert_true(peak - coded_peak >= formula - 4096);
}

/* ---- trajectories ---- */

typedef struct run {
    double loss; /* mean of the last ten steps */
    double *weights;
    size_t count;
} run;

/* The weights after some steps, one after the other. */
static void train(const char *optimizer, const char *passes, int steps, run *r)
{
    OWNED_MODEL *model = NULL;
    OWNED_PROGRAM *program = NULL;
    OWNED_DATA *data = NULL;
    char pipeline[512];
    good(ebb_open(&model, EBB_SOURCE_DIR "/samples/digits/cnn.onnx"));
    good(ebb_set_dim(model, "batch", BATCH));
    (void)snprintf(pipeline, sizeof pipeline,
                   "inline,fold,train-mode:dropout=off,fold,fuse,loss:kind=cross-entropy,gradient,"
                   "optimizer:kind=%s,lr=0.003%s,drop-saves,alias",
                   optimizer, passes);
    const ebb_rewrite_options strict = {.strict = false, .verify_each = true};
    good(ebb_rewrite(model, pipeline, &strict, NULL));
    good(ebb_data_open(&data, EBB_SOURCE_DIR "/samples/digits/digits.npz", model));
    good(ebb_program_compile(&program, model, &(ebb_compile_options){.threads = 1}));
    static const char *const map[] = {"image", "image", "label", "target", NULL};
    *r = (run){.weights = calloc(1 << 17, sizeof(double))};
    assert_non_null(r->weights);
    for (int step = 0; step < steps; step++) {
        int64_t rows[BATCH];
        ebb_batch batch;
        ebb_named loss;
        for (int64_t i = 0; i < BATCH; i++)
            rows[i] = (step * BATCH + i) % 1437;
        good(ebb_data_rows(data, rows, BATCH, map, &batch));
        good(ebb_program_step(program, &batch));
        good(ebb_program_get(program, ebb_program_loss_name(program), &loss));
        if (step >= steps - 10)
            r->loss += (double)*(const float *)loss.data / 10;
    }
    const ebb_graph *g = model->graph;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_named w;
        if (ebb_value_of(g, g->initializers[i])->role != EBB_ROLE_PARAMETER)
            continue;
        good(ebb_program_get(program, ebb_value_name(g, g->initializers[i]), &w));
        size_t n = 1;
        for (int d = 0; d < w.rank; d++)
            n *= (size_t)w.dims[d];
        assert_true(r->count + n <= 1 << 17);
        for (size_t k = 0; k < n; k++)
            r->weights[r->count++] = (double)((const float *)w.data)[k];
    }
}

/* |a - b| / |a - start|. */
static double strays(const run *a, const run *b, const run *start)
{
    double apart = 0, way = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        apart += (a->weights[i] - b->weights[i]) * (a->weights[i] - b->weights[i]);
        way += (a->weights[i] - start->weights[i]) * (a->weights[i] - start->weights[i]);
    }
    return sqrt(apart / way);
}

TEST(weights_stay_near_those_of_the_exact_optimizer)
{
    static const struct {
        const char *optimizer, *pass;
        double stray, loss; /* at most: of the way made; of the exact loss */
    } cases[] = {
        {"adamw", "low-bit-state:least=64", 0.2, 0.05},
        {"adamw", "low-bit-state:least=64,rounding=stochastic", 0.2, 0.05},
        {"adamw", "low-bit-state:least=64,bits=4", 0.7, 0.3},
        {"adamw", "low-bit-state:least=64,bits=4,rounding=stochastic", 0.7, 0.3},
        {"momentum", "low-bit-state:least=64", 0.1, 0.05},
        {"momentum", "low-bit-state:least=64,bits=4,rounding=stochastic", 0.5, 0.3},
    };
    run start, exact[2];
    train("adamw", "", 0, &start);
    train("adamw", "", STEPS, &exact[0]);
    train("momentum", "", STEPS, &exact[1]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run coded;
        const run *beside = &exact[strcmp(cases[i].optimizer, "momentum") == 0];
        train(cases[i].optimizer, formatted(",%s", cases[i].pass), STEPS, &coded);
        double stray = strays(beside, &coded, &start);
        print_message("%-8s %-52s strays %.4f of the way, loss %.4f beside %.4f\n",
                      cases[i].optimizer, cases[i].pass, stray, coded.loss, beside->loss);
        assert_true(stray > 0);
        assert_true(stray < cases[i].stray);
        assert_true(coded.loss < beside->loss * (1 + cases[i].loss));
        free(coded.weights);
    }
    free(start.weights);
    free(exact[0].weights);
    free(exact[1].weights);
}

/* A first step from zeros is that of the exact optimizer, bit for bit. */
TEST(the_first_step_is_exact)
{
    static const char *const optimizers[] = {"adamw", "momentum"};
    for (int i = 0; i < 2; i++) {
        run exact, coded;
        train(optimizers[i], "", 1, &exact);
        train(optimizers[i], ",low-bit-state:least=1,bits=4,rounding=stochastic", 1, &coded);
        assert_int_equal(exact.count, coded.count);
        assert_memory_equal(exact.weights, coded.weights, exact.count * sizeof *exact.weights);
        free(exact.weights);
        free(coded.weights);
    }
}
