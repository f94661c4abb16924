/* signal.c: see signal.h. */
#include "kernels/call/signal.h"

/* ---- DFT(X, length?, axis?) ---- */

const char *ebb_dft_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    if (x->rank < 2 || x->dims[x->rank - 1] < 1 || x->dims[x->rank - 1] > 2 || y->rank != x->rank ||
        y->dims[y->rank - 1] < 1 || y->dims[y->rank - 1] > 2)
        return "the last axis does not hold real and imaginary parts";
    return NULL;
}

static ebb_status axis_of(const ebb_call *c, ebb_signal_number number, int *axis)
{
    const int rank = c->in[0].type.rank;
    int64_t given = c->version < 20 ? ebb_attr_int(&c->attrs, "axis", 1) : -2;
    if (c->version >= 20 && ebb_call_has(c, 2))
        given = number(&c->in[2], 0);
    if (given < -rank || given >= rank)
        return ebb_call_error(c, "axis %lld is outside -%d..%d", (long long)given, rank, rank - 1);
    *axis = (int)(given < 0 ? given + rank : given);
    return NULL;
}

ebb_status ebb_dft_read(ebb_transforms *t, const ebb_call *c, ebb_signal_number number)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    const bool half = ebb_attr_int(&c->attrs, "onesided", 0) != 0;
    int axis = 0;
    *t = (ebb_transforms){.lines = 1, .inner = 1};
    EBB_TRY(axis_of(c, number, &axis));
    t->inverse = ebb_attr_int(&c->attrs, "inverse", 0) != 0;
    t->mirrored = t->inverse && half;
    t->parts = (int32_t)x->dims[x->rank - 1];
    t->made = (int32_t)y->dims[y->rank - 1];
    t->have = x->dims[axis];
    t->bins = y->dims[axis];
    t->n = ebb_call_has(c, 1) ? number(&c->in[1], 0) : t->mirrored ? 2 * (t->have - 1) : t->have;
    if (t->bins != (half && !t->inverse ? t->n / 2 + 1 : t->n) || t->n < 1)
        return ebb_call_error(c, "a length of %lld does not give the planned %lld", (long long)t->n,
                              (long long)t->bins);
    for (int d = 0; d < x->rank - 1; d++) {
        if (d > axis)
            t->inner *= x->dims[d];
        if (d != axis)
            t->lines *= x->dims[d];
    }
    t->inner_step = t->parts;
    t->step = t->inner * t->parts;
    t->outer_step = t->have * t->step;
    t->out_inner = t->made;
    t->out_step = t->inner * t->made;
    t->out_outer = t->bins * t->out_step;
    return NULL;
}

/* ---- STFT(signal, step, window?, frame length?) ---- */

/* Numbers of an element of the signal: 1, or 2 where it is complex. */
static int64_t parts_of_signal(const ebb_type *x)
{
    return x->rank == 2 ? 1 : x->dims[2];
}

const char *ebb_stft_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    bool fits = (x->rank == 2 || x->rank == 3) && parts_of_signal(x) >= 1 &&
                parts_of_signal(x) <= 2 && y->rank == 4 && y->dims[0] == x->dims[0] &&
                y->dims[3] == 2;
    return fits ? NULL : "the signal is not [batch, length, 1 or 2]";
}

ebb_status ebb_stft_read(ebb_transforms *t, const ebb_call *c, ebb_signal_number number)
{
    const ebb_type *x = &c->in[0].type, *y = &c->out[0].type;
    const int64_t step = number(&c->in[1], 0), frames = y->dims[1];
    const bool half = ebb_attr_int(&c->attrs, "onesided", 1) != 0;
    *t = (ebb_transforms){.n = x->dims[1], .bins = y->dims[2], .inner = frames};
    t->window = ebb_call_has(c, 2) ? ebb_elements(&c->in[2].type) : 0;
    if (ebb_call_has(c, 3))
        t->n = number(&c->in[3], 0);
    else if (ebb_call_has(c, 2))
        t->n = t->window;
    if (t->n < 1 || step < 1 || t->n > x->dims[1] || frames != 1 + (x->dims[1] - t->n) / step ||
        t->bins != (half ? t->n / 2 + 1 : t->n))
        return ebb_call_error(c, "frames of %lld by steps of %lld are not the planned ones",
                              (long long)t->n, (long long)step);
    t->parts = (int32_t)parts_of_signal(x);
    t->made = 2;
    t->lines = y->dims[0] * frames;
    t->have = t->n;
    t->step = t->parts;
    t->inner_step = step * t->parts;
    t->outer_step = x->dims[1] * t->parts;
    t->out_step = 2;
    t->out_inner = t->bins * 2;
    t->out_outer = frames * t->out_inner;
    return NULL;
}

/* ---- both ---- */

/* The length is at most twice the output's longest axis. */
ebb_status ebb_signal_roots(const ebb_call *c, size_t *count)
{
    int64_t most = 1;
    for (int d = 0; d < c->out[0].type.rank; d++)
        most = c->out[0].type.dims[d] > most ? c->out[0].type.dims[d] : most;
    return ebb_size_mul(count, (size_t)most, 4)
               ? NULL
               : ebb_call_error(c, "its table passes what memory can be");
}
