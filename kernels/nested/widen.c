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
 * rows with a float32 scale). Operators that work element by element go piece by piece, and take
 * little workspace; the others are widened whole.
 *
 * On a device the same is done whole, for the calls that its kernels do not take in 16 bits: its
 * Cast widens and rounds, and nothing is copied to the host.
 */
#include "kernels/nested/widen.h"

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

/* ---- how a call is cut ---- */

enum { PIECE = 1 << 16 }; /* elements of a piece: the widened operands stay in the second cache */

typedef enum cut {
    WHOLE,    /* one piece */
    ELEMENTS, /* every operand is one element or as many as the output: pieces of a flat array */
    ROWS,     /* operands broadcast: pieces are rows of axis 0 */
} cut;

typedef struct piece {
    int64_t units; /* elements, rows, or 1; 0: there is no such piece */
    ebb_call call; /* on float32 */
} piece;

typedef struct widened {
    ebb_arena arena;
    cut cut;
    int64_t units, per_piece;
    piece whole, rest;
    size_t *in_at, *out_at; /* in the workspace, of the operands that are widened */
    size_t scratch_at, bytes;
} widened;

/* The kernel must see an element alone, without its place: a drawn mask depends on the place. */
static bool is_pointwise(const ebb_call *c)
{
    return ebb_op_has(c->op, EBB_POINTWISE) && !ebb_op_has(c->op, EBB_RANDOM) &&
           c->op != EBB_OP_EBB_DROPOUT_SEED_GRAD && c->output_count == 1 &&
           c->out[0].type.dtype != EBB_NONE && c->out[0].type.rank > 0;
}

/* Whether an operand advances along the pieces; else it is the same for all. */
static bool advances(const ebb_call *c, cut how, const ebb_type *t)
{
    const ebb_type *y = &c->out[0].type;
    if (how == ELEMENTS)
        return ebb_type_same_shape(t, y) && ebb_elements(y) > 1;
    return how == ROWS && t->rank == y->rank && t->dims[0] == y->dims[0];
}

static cut find_cut(const ebb_call *c)
{
    bool flat = true, rows = true;
    if (!is_pointwise(c))
        return WHOLE;
    const ebb_type *y = &c->out[0].type;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const ebb_type *t = &c->in[i].type;
        if (t->dtype == EBB_NONE)
            continue;
        flat = flat && (ebb_type_same_shape(t, y) || ebb_elements(t) == 1);
        rows = rows && (t->rank < y->rank ||
                        (t->rank == y->rank && (t->dims[0] == y->dims[0] || t->dims[0] == 1)));
    }
    return flat ? ELEMENTS : rows && y->dims[0] > 1 ? ROWS : WHOLE;
}

static void find_units(widened *w, const ebb_call *c)
{
    w->cut = (*c->backends)->device->is_host ? find_cut(c) : WHOLE;
    w->units = w->per_piece = 1;
    if (w->cut == WHOLE)
        return;
    const ebb_type *y = &c->out[0].type;
    int64_t n = ebb_elements(y);
    w->units = w->cut == ELEMENTS ? n : y->dims[0];
    if (n == 0) {
        w->cut = WHOLE;
        w->units = 1;
        return;
    }
    w->per_piece = w->cut == ELEMENTS ? PIECE : PIECE / (n / w->units);
    w->per_piece = w->per_piece < 1 ? 1 : w->per_piece > w->units ? w->units : w->per_piece;
}

/* ---- the calls of a piece ---- */

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
    if (wide == NULL || data == NULL)
        return ebb_error_memory();
    for (int64_t i = 0; i < n; i++) // the file's bytes lie where they happen to
        data[i] = (float)ebb_tensor_double(t, i);
    *wide = (ebb_tensor){.type = o->type, .data = data, .bytes = (size_t)n * sizeof(float)};
    o->constant = wide;
    return NULL;
}

static ebb_status make_operand(widened *w, ebb_operand *o, const ebb_call *c, int64_t units,
                               bool narrow)
{
    if (o->type.dtype == EBB_NONE)
        return NULL;
    if (advances(c, w->cut, &o->type)) {
        if (w->cut == ELEMENTS)
            o->type = ebb_type_tensor((ebb_dtype)o->type.dtype, 1, &units);
        else
            o->type.dims[0] = units;
        o->bytes = o->bytes / (size_t)w->units * (size_t)units;
        o->constant = NULL;
    } else if (w->cut == ELEMENTS) {
        o->type.rank = 0; // so that it broadcasts against a flat piece
        if (o->constant != NULL && !narrow) {
            ebb_tensor *scalar = EBB_NEW(&w->arena, ebb_tensor, 1);
            if (scalar == NULL)
                return ebb_error_memory();
            *scalar = *o->constant;
            scalar->type.rank = 0;
            o->constant = scalar;
        }
    }
    if (!narrow)
        return NULL;
    o->type.dtype = EBB_F32;
    if (!ebb_size_mul(&o->bytes, o->bytes, 2))
        return ebb_call_error(c, "its operands in float32 pass what memory can be");
    return o->constant != NULL ? widen_constant(w, o) : NULL;
}

static ebb_status make_piece(widened *w, piece *p, const ebb_call *c, int64_t units)
{
    ebb_call *call = &p->call;
    p->units = units;
    EBB_TRY(ebb_nested_copy(call, c, &w->arena));
    for (uint32_t i = 0; i < c->input_count; i++)
        EBB_TRY(make_operand(w, &call->in[i], c, units, widens_in(c, i)));
    for (uint32_t o = 0; o < c->output_count; o++)
        EBB_TRY(make_operand(w, &call->out[o], c, units, widens_out(c, o)));
    EBB_TRY(ebb_nested_room(call, c->backends, &w->bytes)); // of the scratch, for now
    if (ebb_is_on_host(call))                               // which may as well have the 16 bits
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
    if (w->in_at == NULL || w->out_at == NULL)
        return ebb_error_memory();
    for (uint32_t i = 0; i < c->input_count; i++)
        if (widens_in(c, i))
            fits = fits && ebb_size_room(&w->in_at[i], &w->bytes, w->whole.call.in[i].bytes, align);
    for (uint32_t o = 0; o < c->output_count; o++)
        if (widens_out(c, o))
            fits =
                fits && ebb_size_room(&w->out_at[o], &w->bytes, w->whole.call.out[o].bytes, align);
    fits = fits && ebb_size_room(&w->scratch_at, &w->bytes, scratch, align);
    return fits ? NULL : ebb_call_error(c, "its operands in float32 pass what memory can be");
}

static ebb_status build(widened *w, const ebb_call *c)
{
    find_units(w, c);
    EBB_TRY(make_piece(w, &w->whole, c, w->per_piece));
    if (w->units % w->per_piece != 0)
        EBB_TRY(make_piece(w, &w->rest, c, w->units % w->per_piece));
    return lay_out(w, c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    widened w = {0};
    ebb_status status = build(&w, c);
    *bytes = w.bytes;
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

static ebb_status widen_operand(const ebb_call *c, const ebb_operand *to, const ebb_operand *from)
{
    if (!(*c->backends)->device->is_host)
        return cast(c, to, from);
    ebb_widen(to->data, from->data, (ebb_dtype)from->type.dtype, ebb_elements(&to->type));
    return NULL;
}

static ebb_status narrow_operand(const ebb_call *c, const ebb_operand *to, const ebb_operand *from)
{
    if (!(*c->backends)->device->is_host)
        return cast(c, to, from);
    ebb_narrow(to->data, from->data, (ebb_dtype)to->type.dtype, ebb_elements(&from->type));
    return NULL;
}

/* ---- a run ---- */

/* The operand with its data from `unit` on. */
static ebb_operand place(const widened *w, const ebb_call *c, const ebb_operand *o, int64_t unit)
{
    size_t skip = advances(c, w->cut, &o->type) ? o->bytes / (size_t)w->units * (size_t)unit : 0;
    ebb_operand here = *o;
    here.data = o->data != NULL ? (char *)o->data + skip : NULL;
    return here;
}

/* Where the piece's operands lie. */
static void point(const widened *w, piece *p, const ebb_call *c, int64_t unit)
{
    ebb_call *call = &p->call;
    for (uint32_t i = 0; i < c->input_count; i++)
        call->in[i].data = widens_in(c, i) ? (char *)c->workspace + w->in_at[i]
                                           : place(w, c, &c->in[i], unit).data;
    for (uint32_t o = 0; o < c->output_count; o++)
        call->out[o].data = widens_out(c, o) ? (char *)c->workspace + w->out_at[o]
                                             : place(w, c, &c->out[o], unit).data;
    ebb_nested_point(call, c, w->scratch_at);
}

static ebb_status compute(const widened *w, piece *p, const ebb_call *c, int64_t unit)
{
    ebb_call *call = &p->call;
    point(w, p, c, unit);
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (!widens_in(c, i) || (unit > 0 && !advances(c, w->cut, &c->in[i].type)))
            continue;
        const ebb_operand from = place(w, c, &c->in[i], unit);
        if (!(ebb_op_has(c->op, EBB_SHAPE_OF_0) && i == 0)) // its bytes may be gone
            EBB_TRY(widen_operand(c, &call->in[i], &from));
    }
    EBB_TRY(call->kernel->run(call));
    for (uint32_t o = 0; o < c->output_count; o++) {
        const ebb_operand to = place(w, c, &c->out[o], unit);
        if (widens_out(c, o))
            EBB_TRY(narrow_operand(c, &to, &call->out[o]));
    }
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    widened *w = c->state;
    for (int64_t unit = 0; unit < w->units; unit += w->per_piece)
        EBB_TRY(compute(w, w->units - unit >= w->per_piece ? &w->whole : &w->rest, c, unit));
    return NULL;
}

/* ---- from call to call ---- */

static void release(ebb_call *c)
{
    widened *w = c->state;
    ebb_nested_release(&w->whole.call);
    ebb_nested_release(&w->rest.call);
    ebb_arena_fini(&w->arena);
    ebb_free(w);
    c->state = NULL;
}

static ebb_status prepare(ebb_call *c)
{
    widened *w = ebb_alloc(sizeof *w);
    if (w == NULL)
        return ebb_error_memory();
    *w = (widened){0};
    c->state = w;
    EBB_TRY(build(w, c));
    EBB_TRY(ebb_nested_fits(c, w->bytes));
    point(w, &w->whole, c, 0);
    EBB_TRY(ebb_nested_prepare(&w->whole.call));
    if (w->rest.units == 0)
        return NULL;
    point(w, &w->rest, c, 0);
    return ebb_nested_prepare(&w->rest.call);
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
