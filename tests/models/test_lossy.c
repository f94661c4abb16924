/* test_lossy.c: passes that are not exact, on whole models, held to the bounds of lossy.def: the
 * gradient of every parameter beside that of the exact step with the same weights, batch and random
 * key, which computes in 16 bits where the row does so before other passes; the loss; bytes as
 * planned; a second run that finds nothing.
 *
 * Lengths. A gradient that is far smaller than the others of its model (a thousandth, element by
 * element) counts as of that size: what is left there is the noise of sums that cancel. Where it is
 * zero in mathematics (a bias before batch norm) it counts as of the size of the largest and has no
 * direction.
 */
#include <math.h>

#include "tests/models/models.h"

enum { EXPORTERS = 2 };

typedef struct bound {
    const char *passes, *exactness;
    double loss, cosine, error;
    const char *models;
} bound;

static const bound rows[] = {
#define LOSSY(...) {__VA_ARGS__},
#include "tests/models/lossy.def"
#undef LOSSY
};
enum { ROWS = sizeof rows / sizeof *rows };

typedef struct seen { /* the worst of a row, over models */
    int applied;
    double loss, cosine, error;
    char where_cosine[160], where_error[160];
} seen;
static seen worst[ROWS];

typedef struct step {
    ebb_model *model;
    ebb_program *program;
    ebb_named inputs[MOST_INPUTS];
    char *report;
} step;

static void step_free(step *s)
{
    ebb_program_free(s->program);
    ebb_close(s->model);
    ebb_release(s->report);
    *s = (step){0};
}

static ebb_status step_run(recorded *r, const char *passes, step *s)
{
    size_t count;
    *s = (step){0};
    ebb_status status = recorded_program_report(r, "on", "none", passes, &s->model, &s->program,
                                                s->inputs, &count, &s->report);
    const ebb_batch batch = {s->inputs, count};
    return status != NULL ? status : ebb_program_step(s->program, &batch);
}

static void complain(recorded *r, const bound *row, const char *what, const char *name)
{
    print_error("%s/%s: with %s, %s %s\n", r->model, r->file, row->passes, what, name);
    r->failures++;
}

/* ---- what the passes said ---- */

typedef struct said {
    size_t passes, applied;
    const char *exactness; /* of the least exact */
} said;

/* What a row is held against: the step in float32, or the one in 16 bits that its passes change. */
static const char *const bases[] = {"", "precision:bf16", "precision:fp16"};
enum { BASES = 3 };

static int base_of(const bound *row)
{
    for (int k = 1; k < BASES; k++) {
        size_t n = strlen(bases[k]);
        if (strncmp(row->passes, bases[k], n) == 0 && row->passes[n] == ',')
            return k;
    }
    return 0;
}

/* Those behind the base. */
static const char *passes_of(const bound *row)
{
    int k = base_of(row);
    return row->passes + (k == 0 ? 0 : strlen(bases[k]) + 1);
}

/* Of those that stand between the optimizer and drop-saves, and of precision where it is judged. */
static said read_report(json_t *report, bool precision)
{
    static const char *const order[] = {"exact", "rounding", "lossy"};
    said s = {.exactness = order[0]};
    size_t i;
    json_t *p;
    bool inside = false;
    json_array_foreach(json_object_get(report, "passes"), i, p) {
        const char *name = json_string_value(json_object_get(p, "name"));
        const char *exactness = json_string_value(json_object_get(p, "exactness"));
        if (strcmp(name, "drop-saves") == 0)
            break;
        if (inside || (precision && strcmp(name, "precision") == 0)) {
            s.passes++;
            s.applied += (size_t)json_integer_value(json_object_get(p, "applied"));
            for (int k = 1; k < 3; k++)
                if (strcmp(exactness, order[k]) == 0 && strcmp(s.exactness, "lossy") != 0)
                    s.exactness = order[k];
        }
        inside |= strcmp(name, "optimizer") == 0;
    }
    return s;
}

/* A pass that comes again has nothing left to do. */
static ebb_status runs_once(recorded *r, const bound *row, step *s)
{
    char *text = NULL;
    ebb_program_free(s->program);
    s->program = NULL;
    ebb_status status = ebb_rewrite(s->model, passes_of(row), NULL, &text);
    if (status != NULL)
        return status;
    json_t *report = json_loads(text, 0, NULL), *p;
    size_t i;
    ebb_release(text);
    json_array_foreach(json_object_get(report, "passes"), i, p)
        if (json_integer_value(json_object_get(p, "applied")) > 0)
            complain(r, row, "a second run applies", json_string_value(json_object_get(p, "name")));
    json_decref(report);
    return NULL;
}

/* ---- numbers ---- */

static double length(const ebb_named *t)
{
    const float *f = t->data;
    double sum = 0;
    for (size_t i = 0, n = elements(t); i < n; i++)
        sum += (double)f[i] * (double)f[i];
    return sqrt(sum);
}

static bool is_gradient(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, "_grad") == 0;
}

static bool is_zero_in_mathematics(const recorded *r, const char *gradient)
{
    size_t i;
    json_t *p,
        *list = json_object_get(json_object_get(r->manifest, "near_zero_grads"), "parameters");
    json_array_foreach(list, i, p) {
        const char *name = name_in_file(r, json_string_value(p));
        if (strlen(gradient) == strlen(name) + 5 && strncmp(gradient, name, strlen(name)) == 0)
            return true;
    }
    return false;
}

/* The largest root mean square of a gradient. */
static double largest_gradient(ebb_program *exact)
{
    double most = 0;
    for (size_t i = 0; i < ebb_program_output_count(exact); i++) {
        const char *name = ebb_program_output_name(exact, i);
        ebb_named g;
        if (is_gradient(name) && ebb_program_get(exact, name, &g) == NULL && elements(&g) > 0)
            most = fmax(most, length(&g) / sqrt((double)elements(&g)));
    }
    return most;
}

typedef struct distance {
    double cosine, error;
} distance;

static distance between(const ebb_named *exact, const ebb_named *other, double size, bool zero)
{
    const float *a = exact->data, *b = other->data;
    size_t n = elements(exact);
    double ab = 0, apart = 0, root = sqrt((double)n);
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    double aa = length(exact), bb = length(other);
    bool small = aa < size * root / 1000;
    distance d = {.cosine = zero || small ? 1 : bb > 0 ? ab / (aa * bb) : 0};
    d.error = sqrt(apart) / (zero ? size * root : fmax(aa, size * root / 1000));
    return d;
}

static void compare_gradients(recorded *r, const bound *row, step *exact, step *other,
                              seen *worst_one)
{
    double size = largest_gradient(exact->program);
    for (size_t i = 0; i < ebb_program_output_count(exact->program); i++) {
        const char *name = ebb_program_output_name(exact->program, i);
        ebb_named a, b;
        if (!is_gradient(name))
            continue;
        if (ebb_program_get(exact->program, name, &a) != NULL ||
            ebb_program_get(other->program, name, &b) != NULL || elements(&a) != elements(&b)) {
            complain(r, row, "there is no gradient", name);
            continue;
        }
        distance d = between(&a, &b, size, is_zero_in_mathematics(r, name));
        if (!(d.cosine >= row->cosine) || !(d.error <= row->error)) {
            print_error("%s/%s: with %s, %s has cosine %.7f and error %.3g\n", r->model, r->file,
                        row->passes, name, d.cosine, d.error);
            r->failures++;
        }
        if (!(d.cosine >= worst_one->cosine)) {
            worst_one->cosine = d.cosine;
            (void)snprintf(worst_one->where_cosine, sizeof worst_one->where_cosine, "%s %.120s",
                           r->model, name);
        }
        if (!(d.error <= worst_one->error)) {
            worst_one->error = d.error;
            (void)snprintf(worst_one->where_error, sizeof worst_one->where_error, "%s %.120s",
                           r->model, name);
        }
    }
}

static double loss_of(ebb_program *program)
{
    ebb_named t;
    return ebb_program_get(program, "loss", &t) == NULL ? (double)*(const float *)t.data : NAN;
}

static void compare_forward(recorded *r, const bound *row, step *exact, step *other,
                            seen *worst_one)
{
    double a = loss_of(exact->program), b = loss_of(other->program);
    double apart = a == b ? 0 : fabs(a - b) / fabs(a);
    worst_one->loss = fmax(worst_one->loss, apart);
    if (!(apart <= row->loss))
        complain(r, row, "the loss is too far from that of", "the exact step");
    for (size_t i = 0; row->loss == 0 && i < ebb_data_count(r->reference); i++) {
        const ebb_named *t = ebb_data_at(r->reference, i);
        ebb_named x, y;
        if (strncmp(t->name, "buffer_after/", 13) != 0 || t->dtype != 1)
            continue;
        const char *name = name_in_file(r, t->name + 13);
        if (ebb_program_get(exact->program, name, &x) != NULL)
            continue; // a model's file may have lost it: the recorded tests tell
        if (ebb_program_get(other->program, name, &y) != NULL ||
            memcmp(x.data, y.data, elements(&x) * sizeof(float)) != 0)
            complain(r, row, "other bits are in", name);
    }
}

/* ---- one row on one model ---- */

static void hold_to_bounds(recorded *r, const bound *row, step *exact, seen *worst_one)
{
    step other;
    json_t *report = NULL;
    MUST(step_run(r, row->passes, &other));
    report = json_loads(other.report, 0, NULL);
    said s = read_report(report, base_of(row) == 0);
    if (s.applied == 0)
        goto done;
    worst_one->applied++;
    if (strcmp(s.exactness, row->exactness) != 0)
        complain(r, row, "the passes call themselves", s.exactness);
    ebb_program_facts f = ebb_program_measure(other.program);
    if (f.planned_arena_bytes != f.measured_arena_bytes)
        complain(r, row, "planned and measured arena differ:", "plan again");
    compare_gradients(r, row, exact, &other, worst_one);
    compare_forward(r, row, exact, &other, worst_one);
    if (s.passes == 1)
        MUST(runs_once(r, row, &other));
done:
    json_decref(report);
    step_free(&other);
}

static bool wants(const bound *row, const char *model)
{
    size_t n = strlen(model);
    if (row->models[0] == '\0')
        return true;
    for (const char *at = row->models; (at = strstr(at, model)) != NULL; at += n)
        if ((at == row->models || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

static int all_rows(size_t m, size_t e)
{
    const char *model = small_models[m], *file = exporters[e];
    recorded r;
    step exact[BASES] = {0};
    recorded_need(&r, model, file);
    for (size_t i = 0; i < ROWS; i++) {
        int k = base_of(&rows[i]);
        bool turn = k > 0 ? e == 0 : has_turn(m, e); // 16 bits are slow on a CPU
        const bool of_all = rows[i].models[0] == '\0';
        if (!wants(&rows[i], model) || !turn || (of_all && (i + m) % share(2) != 0))
            continue;
        ebb_status status = exact[k].program == NULL ? step_run(&r, bases[k], &exact[k]) : NULL;
        if (status != NULL)
            fail_msg("%s/%s: %s", model, file, ebb_status_text(status));
        hold_to_bounds(&r, &rows[i], &exact[k], &worst[i]);
    }
    for (int k = 0; k < BASES; k++)
        step_free(&exact[k]);
    recorded_close(&r);
    return r.failures;
}

TEST(gradients_stay_within_their_bounds_on_every_small_model)
{
    int failures = 0;
    for (size_t i = 0; i < ROWS; i++)
        worst[i] = (seen){.cosine = 1};
    for (size_t m = 0; m < sizeof small_models / sizeof small_models[0]; m++)
        for (size_t e = 0; e < EXPORTERS; e++)
            failures += all_rows(m, e);
    print_message("%-40s %6s %9s %11s %9s  where\n", "passes", "models", "loss", "1 - cosine",
                  "error");
    for (size_t i = 0; i < ROWS; i++) {
        const seen *w = &worst[i];
        print_message("%-40s %6d %9.2g %11.2g %9.2g  %s; %s\n", rows[i].passes, w->applied, w->loss,
                      1 - w->cosine, w->error, w->where_cosine, w->where_error);
        if (w->applied == 0) {
            print_error("%s applied on no model\n", rows[i].passes);
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (models_are_missing())
        return SKIPPED;
    return run_listed();
}
