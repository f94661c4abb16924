/* widen.c: computes a node on float16 or bfloat16 by the kernel that computes it on float32.
 *
 *     float16 inputs   |====|====|==|
 *                         | widen, exactly
 *     float32          [    ]              workspace: a piece of each 16-bit operand
 *                         | the node's own kernel
 *     float32          [    ]
 *                         | round to nearest, ties to even
 *     float16 outputs  |====|====|==|
 *
 * So every operator means in 16 bits: computed and accumulated in float32, each output rounded
 * once. Operands of other dtypes pass as they are, so that dtypes may be mixed (a norm of bfloat16
 * rows with a float32 scale). Operators that work element by element or row by row go piece by piece
 * (cut.h), and take little workspace; the others are widened whole.
 *
 * On a device the same is done whole, for the calls that its kernels do not take in 16 bits: its
 * Cast widens and rounds, and nothing is copied to the host.
 */
#include "kernels/nested/widen.h"

#include "kernels/nested/cut.h"
#include "kernels/nested/nested.h"
#include "kernels/nested/on_host.h"
#include "kernels/parallel.h"

/* What codes keep beside themselves has 16 bits whatever the tensor has: ranges and averages. */
static bool makes_codes(ebb_op op)
{
    return op == EBB_OP_QUANTIZE || op == EBB_OP_QUANTIZE_RUNNING || op == EBB_OP_SPLIT_FREQUENCY;
}

static bool widens_in(const ebb_call *c, uint32_t i)
{
    return ebb_is_narrow(&c->in[i].type) && !ebb_op_has(c->op, EBB_DECODES);
}

static bool widens_out(const ebb_call *c, uint32_t o)
{
    return ebb_is_narrow(&c->out[o].type) && !makes_codes(c->op);
}

bool ebb_can_widen(const ebb_call *c)
{
    for (uint32_t i = 0; i < c->input_count; i++)
        if (widens_in(c, i))
            return true;
    for (uint32_t o = 0; o < c->output_count; o++)
        if (widens_out(c, o))
            return true;
    return false;
}

/* ---- the calls of a piece ---- */

typedef struct calls {
    ebb_call most, rest; /* on float32: of a piece, and of the last along the axis */
} calls;

typedef struct widened {
    ebb_arena arena;
    ebb_cut cut;
    calls *slot;            /* one for each of the cut's */
    size_t *in_at, *out_at; /* in a slot's workspace, of the operands that are widened */
    size_t scratch_at, bytes;
} widened;

/* A constant that kernels may look at before they run: its numbers as float32. */
static ebb_status widen_constant(widened *w, ebb_operand *o)
{
    enum { LOOKED_AT = 1024 }; // scalars and short lists; no kernel looks into more
    const ebb_tensor *t = o->constant;
    int64_t n = ebb_elements(&t->type);
    o->constant = NULL;
    if (t->data == NULL || n > LOOKED_AT)
        return NULL;
    ebb_tensor *wide = EBB_NEW(&w->arena, ebb_tensor, 1);
    float *data = EBB_NEW(&w->arena, float, (size_t)n + 1);
    EBB_GOT(wide && data);
    for (int64_t i = 0; i < n; i++) // the file's bytes lie where they happen to
        data[i] = (float)ebb_tensor_double(t, i);
    *wide = (ebb_tensor){.type = o->type, .data = data, .bytes = (size_t)n * sizeof(float)};
    o->constant = wide;
    return NULL;
}

/* As an operand of a piece with `units` of the axis. */
static ebb_status cut_operand(widened *w, ebb_operand *o, int64_t units)
{
    const int64_t before = ebb_elements(&o->type);
    ebb_cut_type(&w->cut, &o->type, units);
    o->bytes = o->bytes / (size_t)before * (size_t)ebb_elements(&o->type);
    if (ebb_elements(&o->type) != before)
        o->constant = NULL;
    if (o->constant == NULL || ebb_is_narrow(&o->type))
        return NULL;
    ebb_tensor *same = EBB_NEW(&w->arena, ebb_tensor, 1);
    EBB_GOT(same);
    *same = *o->constant;
    same->type = o->type;
    o->constant = same;
    return NULL;
}

static ebb_status make_operand(widened *w, ebb_operand *o, const ebb_call *c, int64_t units,
                               bool narrow)
{
    if (o->type.dtype == EBB_NONE)
        return NULL;
    if (!w->cut.whole)
        EBB_TRY(cut_operand(w, o, units));
    if (!narrow)
        return NULL;
    o->type.dtype = EBB_F32;
    if (!ebb_size_mul(&o->bytes, o->bytes, 2))
        return ebb_call_error(c, "its operands in float32 pass what memory can be");
    return o->constant != NULL ? widen_constant(w, o) : NULL;
}

static ebb_status make_piece(widened *w, ebb_call *call, const ebb_call *c, int64_t units)
{
    EBB_TRY(ebb_nested_copy(call, c, &w->arena));
    for (uint32_t i = 0; i < c->input_count; i++)
        EBB_TRY(make_operand(w, &call->in[i], c, units, widens_in(c, i)));
    for (uint32_t o = 0; o < c->output_count; o++)
        EBB_TRY(make_operand(w, &call->out[o], c, units, widens_out(c, o)));
    EBB_TRY(ebb_nested_room(call, c->backends, &w->bytes)); // of the scratch, for now
    if (ebb_is_on_host(call->kernel))                       // which may as well have the 16 bits
        return ebb_error(EBB_UNSUPPORTED, "the device has no kernel for it in float32 either");
    return NULL;
}

static ebb_status lay_out(widened *w, const ebb_call *c)
{
    const size_t align = (*c->backends)->device->align;
    size_t scratch = w->bytes;
    bool fits = true;
    w->bytes = 0;
    w->in_at = EBB_NEW(&w->arena, size_t, c->input_count + (size_t)1);
    w->out_at = EBB_NEW(&w->arena, size_t, c->output_count + (size_t)1);
    EBB_GOT(w->in_at && w->out_at);
    for (uint32_t i = 0; i < c->input_count; i++)
        if (widens_in(c, i))
            fits = fits && ebb_size_room(&w->in_at[i], &w->bytes, w->slot->most.in[i].bytes, align);
    for (uint32_t o = 0; o < c->output_count; o++)
        if (widens_out(c, o))
            fits =
                fits && ebb_size_room(&w->out_at[o], &w->bytes, w->slot->most.out[o].bytes, align);
    fits = fits && ebb_size_room(&w->scratch_at, &w->bytes, scratch, align);
    return fits ? NULL : ebb_call_error(c, "its operands in float32 pass what memory can be");
}

/* A slot is one thread: its calls are planned for one. */
static ebb_threads_before enter(const widened *w)
{
    return ebb_threads_enter(w->cut.slots > 1 ? 1 : ebb_threads());
}

static ebb_status make_slots(widened *w, const ebb_call *c)
{
    const int64_t rest = ebb_cut_rest(&w->cut);
    for (uint32_t i = 0; i < w->cut.slots; i++) {
        EBB_TRY(make_piece(w, &w->slot[i].most, c, w->cut.per_piece));
        if (rest != 0)
            EBB_TRY(make_piece(w, &w->slot[i].rest, c, rest));
    }
    return lay_out(w, c);
}

static ebb_status build(widened *w, const ebb_call *c)
{
    w->cut = ebb_cut_find(c);
    w->slot = EBB_NEW(&w->arena, calls, w->cut.slots);
    EBB_GOT(w->slot);
    memset(w->slot, 0, w->cut.slots * sizeof *w->slot);
    const ebb_threads_before before = enter(w);
    ebb_status status = make_slots(w, c);
    ebb_threads_leave(before);
    return status;
}

static ebb_status all_bytes(size_t *bytes, const widened *w, const ebb_call *c)
{
    if (!ebb_size_mul(bytes, w->bytes, w->cut.slots))
        return ebb_call_error(c, "its operands in float32 pass what memory can be");
    return NULL;
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    widened w = {0};
    ebb_status status = build(&w, c);
    if (status == NULL)
        status = all_bytes(bytes, &w, c);
    ebb_arena_fini(&w.arena);
    return status;
}

/* ---- numbers, where they lie ---- */

/* By the device's Cast. */
static ebb_status cast(const ebb_call *c, const ebb_operand *to, const ebb_operand *from)
{
    ebb_operand in = *from, out = *to;
    ebb_call one = {.op = EBB_OP_CAST,
                    .version = c->version,
                    .node = c->node,
                    .queue = c->queue,
                    .position = c->position,
                    .step = c->step,
                    .in = &in,
                    .out = &out,
                    .input_count = 1,
                    .output_count = 1};
    in.constant = NULL;
    EBB_TRY(ebb_pick(&one, c->backends));
    return one.kernel->run(&one);
}

static ebb_status widen_operand(const widened *w, const ebb_call *c, const ebb_operand *to,
                                const ebb_operand *from)
{
    if (!(*c->backends)->device->is_host)
        return cast(c, to, from);
    (w->cut.whole ? ebb_widen : ebb_widen_here)(to->data, from->data, (ebb_dtype)from->type.dtype,
                                                ebb_elements(&to->type));
    return NULL;
}

static ebb_status narrow_operand(const widened *w, const ebb_call *c, const ebb_operand *to,
                                 const ebb_operand *from)
{
    if (!(*c->backends)->device->is_host)
        return cast(c, to, from);
    (w->cut.whole ? ebb_narrow : ebb_narrow_here)(to->data, from->data, (ebb_dtype)to->type.dtype,
                                                  ebb_elements(&from->type));
    return NULL;
}

/* ---- a run ---- */

/* The operand with its data from there on. */
static ebb_operand place(const widened *w, const ebb_operand *o, int64_t first)
{
    ebb_operand here = *o;
    const size_t size = ebb_dtype_bits((ebb_dtype)o->type.dtype) / 8;
    if (o->data != NULL && !w->cut.whole)
        here.data = (char *)o->data + (size_t)first * size;
    return here;
}

/* Where the piece's operands lie. */
static void point(const widened *w, ebb_call *call, const ebb_call *c, uint32_t s, int64_t piece)
{
    const size_t at = s * w->bytes;
    for (uint32_t i = 0; i < c->input_count; i++)
        call->in[i].data =
            widens_in(c, i)
                ? (char *)c->workspace + at + w->in_at[i]
                : place(w, &c->in[i], ebb_cut_first(&w->cut, &c->in[i].type, piece)).data;
    for (uint32_t o = 0; o < c->output_count; o++)
        call->out[o].data =
            widens_out(c, o)
                ? (char *)c->workspace + at + w->out_at[o]
                : place(w, &c->out[o], ebb_cut_first(&w->cut, &c->out[o].type, piece)).data;
    ebb_nested_point(call, c, at + w->scratch_at);
}

/* before: the piece that this slot had before, or -1. What lies at the same place is there yet. */
static ebb_status compute(const widened *w, ebb_call *call, const ebb_call *c, uint32_t s,
                          int64_t piece, int64_t before)
{
    point(w, call, c, s, piece);
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (!widens_in(c, i) || (ebb_op_has(c->op, EBB_SHAPE_OF_0) && i == 0)) // it may be gone
            continue;
        const int64_t first = ebb_cut_first(&w->cut, &c->in[i].type, piece);
        if (before >= 0 && first == ebb_cut_first(&w->cut, &c->in[i].type, before))
            continue;
        const ebb_operand from = place(w, &c->in[i], first);
        EBB_TRY(widen_operand(w, c, &call->in[i], &from));
    }
    EBB_TRY(call->kernel->run(call));
    for (uint32_t o = 0; o < c->output_count; o++) {
        const ebb_operand to = place(w, &c->out[o], ebb_cut_first(&w->cut, &c->out[o].type, piece));
        if (widens_out(c, o))
            EBB_TRY(narrow_operand(w, c, &to, &call->out[o]));
    }
    return NULL;
}

/* A slot has neighbouring pieces: what is repeated over them is widened once. */
static ebb_status run_slot(const widened *w, const ebb_call *c, uint32_t s)
{
    const ebb_cut *k = &w->cut;
    const int64_t first = k->pieces * s / k->slots, end = k->pieces * (s + 1) / k->slots;
    const int64_t along = k->pieces / k->outer;
    for (int64_t piece = first; piece < end; piece++) {
        const bool last = ebb_cut_rest(k) != 0 && piece % along == along - 1;
        calls *own = &w->slot[s];
        EBB_TRY(compute(w, last ? &own->rest : &own->most, c, s, piece,
                        piece > first ? piece - 1 : -1));
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    const widened *w = c->state;
    if (w->cut.slots == 1)
        return run_slot(w, c, 0);
    ebb_status first = NULL;
    EBB_PARALLEL_FOR(EBB_PARALLEL_WORTH + 1)
    for (uint32_t s = 0; s < w->cut.slots; s++) {
        const ebb_threads_before before = enter(w);
        ebb_status status = run_slot(w, c, s);
        ebb_threads_leave(before);
        if (status != NULL) {
            EBB_PRAGMA(omp critical)
            first = first == NULL ? status : first;
        }
    }
    return first;
}

/* ---- from call to call ---- */

static void release(ebb_call *c)
{
    widened *w = c->state;
    for (uint32_t s = 0; w->slot != NULL && s < w->cut.slots; s++) {
        ebb_nested_release(&w->slot[s].most);
        ebb_nested_release(&w->slot[s].rest);
    }
    ebb_arena_fini(&w->arena);
    ebb_free(w);
    c->state = NULL;
}

static ebb_status prepare_slots(widened *w, ebb_call *c)
{
    for (uint32_t s = 0; s < w->cut.slots; s++) {
        point(w, &w->slot[s].most, c, s, 0);
        EBB_TRY(ebb_nested_prepare(&w->slot[s].most));
        if (w->slot[s].rest.kernel == NULL)
            continue;
        point(w, &w->slot[s].rest, c, s, 0);
        EBB_TRY(ebb_nested_prepare(&w->slot[s].rest));
    }
    return NULL;
}

static ebb_status prepare(ebb_call *c)
{
    widened *w = ebb_alloc(sizeof *w);
    EBB_GOT(w);
    *w = (widened){0};
    c->state = w;
    size_t bytes = 0;
    EBB_TRY(build(w, c));
    EBB_TRY(all_bytes(&bytes, w, c));
    EBB_TRY(ebb_nested_fits(c, bytes));
    const ebb_threads_before before = enter(w);
    ebb_status status = prepare_slots(w, c);
    ebb_threads_leave(before);
    return status;
}

static const ebb_kernel kernel = {.name = "widen",
                                  .op = EBB_OP_UNKNOWN,
                                  .workspace = workspace,
                                  .prepare = prepare,
                                  .run = run,
                                  .release = release};

ebb_status ebb_pick_widened(ebb_call *c)
{
    size_t bytes;
    EBB_TRY(workspace(c, &bytes));
    c->kernel = &kernel;
    return NULL;
}
