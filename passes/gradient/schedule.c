/* schedule.c: the learning rate as a function of the steps done, in nodes, so that a file says it
 * all and a resumed run goes on in the middle of it.
 *
 *   t = steps done before this one, u = max(t - warmup, 0), p = min(u / (steps - warmup), 1)
 *
 *   constant    1
 *   linear      1 - (1 - floor) p
 *   cosine      floor + (1 - floor) (1 + cos(pi p)) / 2
 *   step        gamma^floor(u / every)
 *   one-cycle   up by half a cosine from `start` to 1 until step rise steps - 1, then down to floor
 *               at the last; PyTorch's OneCycleLR
 *
 * times min((t + 1) / (warmup + 1), 1): a ramp that is 1 where the rest begins, and never 0. After
 * `steps` the factor stays. Computed in double: a count of steps has no rounding there.
 */
#include "passes/gradient/update.h"

typedef struct schedule {
    ebb_edit *e;
    ebb_build *b;
    double warmup, steps, floor;
    ebb_value t;
} schedule;

static ebb_value number(schedule *s, double x)
{
    return ebb_const_scalar(s->b, EBB_F64, x);
}

/* min(x / span, 1) */
static ebb_value part_of(schedule *s, ebb_value x, double span)
{
    ebb_value part = ebb_emit(s->b, EBB_OP_DIV, x, number(s, span));
    return ebb_emit(s->b, EBB_OP_MIN, part, number(s, 1));
}

/* max(t - before, 0) */
static ebb_value since(schedule *s, double before)
{
    if (before == 0)
        return s->t;
    ebb_value u = ebb_emit(s->b, EBB_OP_SUB, s->t, number(s, before));
    return ebb_emit(s->b, EBB_OP_MAX, u, number(s, 0));
}

/* From one number to another, as p goes from 0 to 1, along a line or half a wave. */
static ebb_value line(schedule *s, ebb_value p, double from, double to)
{
    ebb_value change = ebb_emit(s->b, EBB_OP_MUL, p, number(s, to - from));
    return ebb_emit(s->b, EBB_OP_ADD, change, number(s, from));
}

static ebb_value wave(schedule *s, ebb_value p, double from, double to)
{
    static const double pi = 3.14159265358979323846;
    ebb_value angle = ebb_emit(s->b, EBB_OP_MUL, p, number(s, pi));
    ebb_value height = ebb_emit(s->b, EBB_OP_COS, angle); // 1 .. -1
    height = ebb_emit(s->b, EBB_OP_MUL, height, number(s, (from - to) / 2));
    return ebb_emit(s->b, EBB_OP_ADD, height, number(s, (from + to) / 2));
}

/* ---- kinds ---- */

static ebb_value constant(schedule *s)
{
    return number(s, 1);
}

static ebb_value linear(schedule *s)
{
    return line(s, part_of(s, since(s, s->warmup), s->steps - s->warmup), 1, s->floor);
}

static ebb_value cosine(schedule *s)
{
    return wave(s, part_of(s, since(s, s->warmup), s->steps - s->warmup), 1, s->floor);
}

static ebb_value step(schedule *s)
{
    const double every = ebb_option_float(s->e, "every");
    ebb_value times = ebb_emit(s->b, EBB_OP_DIV, since(s, s->warmup), number(s, every));
    times = ebb_emit(s->b, EBB_OP_FLOOR, times);
    return ebb_emit(s->b, EBB_OP_POW, number(s, ebb_option_float(s->e, "gamma")), times);
}

static ebb_value one_cycle(schedule *s)
{
    const double top = ebb_option_float(s->e, "rise") * s->steps - 1;
    ebb_value up = wave(s, part_of(s, s->t, top), ebb_option_float(s->e, "start"), 1);
    ebb_value down = wave(s, part_of(s, since(s, top), s->steps - 1 - top), 1, s->floor);
    return ebb_emit(s->b, EBB_OP_MUL, up, down);
}

/* Options that a kind has no use for are refused. */
static const struct kind {
    const char *name;
    ebb_value (*emit)(schedule *s);
    bool warms, ends, falls; /* takes warmup; steps; floor */
    const char *own[3];      /* and these; NULL-terminated */
    double floor;            /* where none is given */
} kinds[] = {
    {"constant", constant, true, false, false, {NULL}, 0},
    {"linear", linear, true, true, true, {NULL}, 0},
    {"cosine", cosine, true, true, true, {NULL}, 0},
    {"step", step, true, false, false, {"every", "gamma", NULL}, 0},
    {"one-cycle", one_cycle, false, true, true, {"rise", "start", NULL}, 4e-6},
};

/* ---- checks ---- */

static bool takes(const struct kind *k, const char *option)
{
    for (size_t i = 0; k->own[i] != NULL; i++)
        if (strcmp(k->own[i], option) == 0)
            return true;
    return (k->warms && strcmp(option, "warmup") == 0) ||
           (k->falls && strcmp(option, "floor") == 0) || strcmp(option, "steps") == 0;
}

static ebb_status check(const schedule *s, const struct kind *k)
{
    static const char *const options[] = {"warmup", "floor", "every", "gamma", "rise", "start"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (ebb_option_given(s->e, options[i]) && !takes(k, options[i]))
            return ebb_error(EBB_USAGE, "optimizer: schedule %s has no %s", k->name, options[i]);
    if (k->ends && s->steps == 0)
        return ebb_error(EBB_USAGE, "optimizer: schedule %s needs steps=N: over how many steps",
                         k->name);
    if (k->ends && s->warmup >= s->steps)
        return ebb_error(EBB_USAGE, "optimizer: a warm-up of %.0f steps leaves none of %.0f",
                         s->warmup, s->steps);
    if (k->emit == step && !ebb_option_given(s->e, "every"))
        return ebb_error(EBB_USAGE, "optimizer: schedule step needs every=N: after how many steps "
                                    "the rate is multiplied by gamma");
    const double top = k->emit == one_cycle ? ebb_option_float(s->e, "rise") * s->steps - 1 : 1;
    if (top <= 0 || (k->emit == one_cycle && top >= s->steps - 1))
        return ebb_error(EBB_USAGE,
                         "optimizer: one-cycle with rise=%g has no step to rise or fall in "
                         "within %.0f steps",
                         ebb_option_float(s->e, "rise"), s->steps);
    return NULL;
}

/* Its options as model metadata "ebb.schedule", for who resumes by another. */
static ebb_status remember(const schedule *s)
{
    static const char *const options[] = {"schedule", "warmup", "steps", "floor",
                                          "every",    "gamma",  "rise",  "start"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!ebb_option_given(s->e, options[i]))
            continue;
        const char *value = ebb_option_string(s->e, options[i]);
        text =
            i == 0 ? value : ebb_arena_printf(s->e->scratch, "%s,%s=%s", text, options[i], value);
        EBB_GOT(text);
    }
    return ebb_props_set(s->e->g, &s->e->g->model->props, "ebb.schedule", text);
}

bool ebb_schedule_asked(const ebb_edit *e)
{
    return ebb_option_given(e, "schedule");
}

ebb_status ebb_schedule_emit(ebb_edit *e, ebb_build *b, ebb_value count, ebb_value *factor)
{
    const struct kind *k = kinds;
    schedule s = {.e = e,
                  .b = b,
                  .warmup = ebb_option_float(e, "warmup"),
                  .steps = ebb_option_float(e, "steps")};
    while (strcmp(k->name, ebb_option_string(e, "schedule")) != 0)
        k++; // the choices are those names
    s.floor = ebb_option_given(e, "floor") ? ebb_option_float(e, "floor") : k->floor;
    EBB_TRY(check(&s, k));
    b->name = "ebb.rate";
    s.t = ebb_emit_cast(b, count, EBB_F64);
    ebb_value now = k->emit(&s);
    if (s.warmup > 0) {
        ebb_value up = ebb_emit(b, EBB_OP_ADD, s.t, number(&s, 1));
        now = ebb_emit(b, EBB_OP_MUL, now, part_of(&s, up, s.warmup + 1));
    }
    *factor = ebb_emit_cast(b, now, EBB_F32);
    EBB_TRY(b->status);
    return remember(&s);
}
