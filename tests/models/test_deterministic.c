/* test_deterministic.c: under ebb_set_deterministic the bits of a step are the same for every number
 * of threads, and its numbers those of the ordinary step but for rounding; on the samples and on the
 * small recorded models, by both of which every kernel of oneDNN is asked.
 */
#include <math.h>

#include "exec/data/sample.h"
#include "exec/run/program.h"
#include "tests/models/models.h"
#include "tests/owned.h"
#include "tests/status.h"

static const int threads[] = {1, 2, 3, 4, 8};
enum { COUNTS = sizeof threads / sizeof threads[0], TAKEN = 2 };

/* All states after some steps, one behind the other; the caller frees them. */
static char *states_after(ebb_model *m, const char *backend, int count, const ebb_batch *batch,
                          size_t *size, const char *what)
{
    const ebb_compile_options options = {.backend = backend, .threads = count};
    OWNED_PROGRAM *p = NULL;
    char *all = NULL;
    *size = 0;
    good_for(ebb_program_compile(&p, m, &options), what);
    for (int k = 0; k < TAKEN; k++)
        good_for(ebb_program_step(p, batch), what);
    for (ebb_value v = {1}; v.i < m->graph->value_count; v.i++) {
        const ebb_type *type = ebb_value_of(m->graph, v)->type;
        ebb_named t;
        size_t bytes;
        if (!ebb_program_is_state(p, v) || type->dtype != EBB_F32 || !ebb_type_bytes(type, &bytes))
            continue;
        good_for(ebb_program_get(p, ebb_value_name(m->graph, v), &t), what);
        all = realloc(all, *size + bytes);
        assert_non_null(all);
        memcpy(all + *size, t.data, bytes);
        *size += bytes;
    }
    return all;
}

static double distance(const void *x, const void *y, size_t size)
{
    const float *a = x, *b = y;
    double apart = 0, length = 0;
    for (size_t i = 0; i < size / sizeof *a; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        length += (double)b[i] * (double)b[i];
    }
    return sqrt(apart) / sqrt(length);
}

static void check(ebb_model *m, const ebb_batch *batch, const char *what)
{
    size_t size, other;
    FREED char *ordinary = states_after(m, "cpu", 2, batch, &size, what);
    FREED char *plain = states_after(m, "plain", 2, batch, &size, what);
    ebb_set_deterministic(m, true);
    FREED char *first = states_after(m, "cpu", threads[0], batch, &size, what);
    /* No further away than the plain kernels, by which an activation within rounding of a bend may be
     * on its other side. */
    const double apart = distance(first, ordinary, size), most = distance(plain, ordinary, size);
    if (!(apart <= fmax(1e-4, 2 * most)))
        fail_msg("%s: %g of the ordinary step's states, plain %g", what, apart, most);
    for (int i = 1; i < COUNTS; i++) {
        FREED char *states = states_after(m, "cpu", threads[i], batch, &other, what);
        assert_int_equal(other, size);
        if (memcmp(states, first, size) != 0)
            fail_msg("%s: %d threads give other bits than %d", what, threads[i], threads[0]);
    }
}

static const struct {
    const char *sample, *loss, *early, *late;
} samples[] = {
    {"digits/cnn", "", "", ""},
    {"digits/cnn", "", "layout,", ""},
    {"digits/cnn", "", "", "pool-input,"},
    {"digits/mlp", "", "", "sample-matmul,"},
    {"digits/transformer", "", "", "quantise:bits=8,"},
    {"digits/transformer", "", "precision:bf16,", ""},
    {"text/char", ",axis=-1", "", "attention,"},
    {"text/char", ",axis=-1", "", "chunk-loss,"},
};

TEST(the_samples_have_the_same_bits_for_every_number_of_threads)
{
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        char path[1024], pipeline[1024], what[128];
        OWNED_MODEL *m = NULL;
        ebb_batch batch;
        OWNED_ARENA scratch = {0};
        (void)snprintf(what, sizeof what, "%s %s%s", samples[i].sample, samples[i].early,
                       samples[i].late);
        (void)snprintf(path, sizeof path, "%s/samples/%s.onnx", EBB_SOURCE_DIR, samples[i].sample);
        (void)snprintf(pipeline, sizeof pipeline,
                       "flatten,train-mode,fold,fuse,loss:cross-entropy%s,%sgradient,optimizer:sgd,"
                       "%sdrop-saves,stream,alias",
                       samples[i].loss, samples[i].early, samples[i].late);
        good_for(ebb_open(&m, path), what);
        good_for(ebb_set_dim(m, "batch", 48), what);
        good_for(ebb_rewrite(m, pipeline, NULL, NULL), what);
        good_for(ebb_sample_batch(&batch, m->graph, 1, &scratch), what);
        check(m, &batch, what);
    }
}

TEST(small_models_have_the_same_bits_for_every_number_of_threads)
{
    for (size_t i = 0; i < sizeof small_models / sizeof small_models[0]; i += share(2)) {
        recorded r;
        ebb_model *m = NULL;
        ebb_program *p = NULL;
        ebb_named inputs[MOST_INPUTS];
        size_t count;
        if (!recorded_open(&r, small_models[i], exporters[0])) {
            printf("SKIP: no %s beside the repository\n", small_models[i]);
            continue;
        }
        good_for(recorded_program(&r, "on", "sgd", "", &m, &p, inputs, &count), small_models[i]);
        ebb_program_free(p);
        check(m, &(ebb_batch){inputs, count}, small_models[i]);
        ebb_close(m);
        recorded_close(&r);
    }
}
