/* stream.c: computes a node whose operand is kept in a code, one tile of rows at a time.
 *
 *     codes  |====|====|====|==|
 *               | decode
 *     tile    [    ]              workspace: one tile of each coded operand,
 *               | the node's own kernel, on these rows
 *     rows   |....|               outputs by rows are written in place,
 *     sums   [ + ]                the others add up, by way of a second buffer
 *
 * The kernels of the tiles are picked like any others, once for whole tiles and once for the rest.
 * Batch norm's backward walks twice: its sums first, then its rows.
 */
#include "kernels/nested/stream.h"

#include "kernels/plain/plain.h"
#include "kernels/nested/nested.h"
#include "kernels/nested/widen.h"
#include "onnx/graph/tile.h"

typedef struct piece { /* the calls of some rows */
    int64_t units;     /* 0: there is no such piece */
    ebb_call call;
    ebb_call decode[EBB_TILE_OPERANDS]; /* by input slot; those that are no source have no kernel */
} piece;

typedef struct stream {
    ebb_arena arena;
    ebb_tiling tiling;
    int64_t units;    /* the rows, in the smallest lots that every operand can be divided into */
    int64_t per_tile; /* units of a whole tile */
    piece whole, rest;
    size_t tile_at[EBB_TILE_OPERANDS], sum_at[EBB_TILE_OPERANDS], scratch_at, bytes;
    /* Of 16-bit operands in float32: the sums so far, and for the second walk the tile. */
    size_t total_at[EBB_TILE_OPERANDS], wide_at[EBB_TILE_OPERANDS], wide_rows_at;
} stream;

/* Sums of 16-bit outputs grow in float32 and are rounded once. */
static bool grows_wide(const stream *s, const ebb_call *c, uint32_t o)
{
    return s->tiling.out[o] == EBB_TILE_SUM && ebb_is_narrow(&c->out[o].type) &&
           c->backends[0]->device->is_host;
}

/* ---- the shape of the walk ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static const char *find_tiling(ebb_tiling *t, const ebb_call *c)
{
    const ebb_type *in[EBB_TILE_OPERANDS] = {NULL}, *out[EBB_TILE_OPERANDS] = {NULL};
    uint32_t slot = EBB_TILE_OPERANDS;
    if (c->input_count > EBB_TILE_OPERANDS || c->output_count > EBB_TILE_OPERANDS)
        return "it has too many operands to be computed in tiles";
    for (uint32_t i = 0; i < c->input_count; i++) {
        in[i] = c->in[i].type.dtype != EBB_NONE ? &c->in[i].type : NULL;
        if (c->in[i].source != NULL && slot == EBB_TILE_OPERANDS)
            slot = i;
    }
    for (uint32_t i = 0; i < c->output_count; i++)
        out[i] = c->out[i].type.dtype != EBB_NONE ? &c->out[i].type : NULL;
    const char *refused =
        ebb_tiling_find(t, c->op, &c->attrs, in, c->input_count, out, c->output_count, slot);
    for (uint32_t i = 0; refused == NULL && i < c->input_count; i++)
        if (c->in[i].source != NULL && t->in[i] != EBB_TILE_ROWS)
            refused = "it needs one of its coded operands whole";
    return refused;
}

static const char *find_units(int64_t *units, const ebb_call *c, const ebb_tiling *t)
{
    int64_t u = 0;
    for (uint32_t i = 0; i < c->input_count; i++) {
        if (t->in[i] == EBB_TILE_ROWS && c->in[i].type.dtype != EBB_NONE)
            u = common_divisor(c->in[i].type.dims[0], u);
        for (uint32_t k = 0; c->in[i].source != NULL && k < c->in[i].source->input_count; k++) {
            const ebb_type *code = &c->in[i].source->in[k].type;
            if (code->dtype == EBB_NONE)
                continue;
            if (code->rank < 1)
                return "a code has no rows";
            u = common_divisor(code->dims[0], u);
        }
    }
    *units = u;
    return u > 0 ? NULL : "it has no rows";
}

/* Units of a whole tile. */
static int64_t units_of_tile(const ebb_call *c, int64_t units)
{
    int64_t tile_rows = INT64_MAX, rows = 1;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i].source != NULL) {
            rows = c->in[i].type.dims[0];
            tile_rows = c->in[i].tile_rows < tile_rows ? c->in[i].tile_rows : tile_rows;
        }
    int64_t per_tile = tile_rows / (rows / units);
    return per_tile < 1 ? 1 : per_tile > units ? units : per_tile;
}

/* What of the work is not the tiles' kernels': their sums, and the second walk. */
static const char *declines_dtypes(const ebb_call *c, const ebb_tiling *t, bool one_tile)
{
    const bool host = c->backends[0]->device->is_host;
    for (uint32_t i = 0; i < c->output_count && !one_tile; i++) {
        const ebb_type *type = &c->out[i].type;
        if (t->out[i] == EBB_TILE_SUM && type->dtype != EBB_NONE && type->dtype != EBB_F32 &&
            type->dtype != EBB_F64 && !(host && ebb_is_narrow(type)))
            return host ? "sums of tiles are floats"
                        : "sums of tiles are float32 or float64 on a device";
    }
    if (t->two_walks && !host && c->out[0].type.dtype != EBB_NONE &&
        (c->in[0].type.dtype != c->in[1].type.dtype || c->out[0].type.dtype != c->in[1].type.dtype))
        return "its rows are of one dtype on a device";
    return NULL;
}

static const char *declines(const ebb_call *c)
{
    ebb_tiling t;
    int64_t units;
    const char *refused = find_tiling(&t, c);
    if (refused == NULL)
        refused = find_units(&units, c, &t);
    return refused != NULL ? refused : declines_dtypes(c, &t, units_of_tile(c, units) == units);
}

/* ---- the calls of a piece ---- */

static void cut_operand(ebb_operand *o, int64_t part, int64_t of)
{
    if (o->type.dtype == EBB_NONE)
        return;
    o->type.dims[0] = o->type.dims[0] / of * part;
    o->bytes = o->bytes / (size_t)of * (size_t)part;
    o->constant = NULL;
}

static ebb_status cut(stream *s, piece *p, const ebb_call *c, int64_t units)
{
    p->units = units;
    EBB_TRY(ebb_nested_copy(&p->call, c, &s->arena));
    for (uint32_t i = 0; i < c->input_count; i++) {
        ebb_operand *in = &p->call.in[i];
        const ebb_call *source = in->source;
        if (s->tiling.in[i] == EBB_TILE_ROWS)
            cut_operand(in, units, s->units);
        in->source = NULL;
        if (source == NULL)
            continue;
        ebb_call *decode = &p->decode[i];
        EBB_TRY(ebb_nested_copy(decode, source, &s->arena));
        for (uint32_t k = 0; k < decode->input_count; k++)
            cut_operand(&decode->in[k], units, s->units);
        cut_operand(&decode->out[0], units, s->units);
        EBB_TRY(ebb_nested_room(decode, c->backends, &s->bytes)); // of the scratch, for now
    }
    for (uint32_t i = 0; i < c->output_count; i++)
        if (s->tiling.out[i] == EBB_TILE_ROWS) {
            cut_operand(&p->call.out[i], units, s->units);
        } else if (grows_wide(s, c, i)) {
            p->call.out[i].type.dtype = EBB_F32;
            p->call.out[i].bytes *= 2;
        }
    if (s->tiling.two_walks) // the first walk wants the sums alone
        p->call.out[0].type.dtype = EBB_NONE;
    return ebb_nested_room(&p->call, c->backends, &s->bytes);
}

/* ---- the workspace ---- */

static ebb_status lay_out(stream *s, const ebb_call *c)
{
    /* Each piece begins as a tensor of the device does: a kernel's workspace is one of them. */
    const size_t align = c->backends[0]->device->align;
    size_t scratch = s->bytes;
    bool fits = true;
    s->bytes = 0;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (c->in[i].source != NULL)
            fits = fits &&
                   ebb_size_room(&s->tile_at[i], &s->bytes, s->whole.decode[i].out[0].bytes, align);
    for (uint32_t i = 0; i < c->output_count && s->units > s->per_tile; i++)
        if (s->tiling.out[i] == EBB_TILE_SUM && c->out[i].type.dtype != EBB_NONE)
            fits =
                fits && ebb_size_room(&s->sum_at[i], &s->bytes, s->whole.call.out[i].bytes, align);
    for (uint32_t i = 0; i < c->output_count; i++)
        if (grows_wide(s, c, i))
            fits = fits &&
                   ebb_size_room(&s->total_at[i], &s->bytes, s->whole.call.out[i].bytes, align);
    for (uint32_t i = 0; i < c->input_count && s->tiling.two_walks; i++)
        if (ebb_is_narrow(&c->in[i].type))
            fits = fits &&
                   ebb_size_room(&s->wide_at[i], &s->bytes, 2 * s->whole.call.in[i].bytes, align);
    if (s->tiling.two_walks && ebb_is_narrow(&c->out[0].type))
        fits = fits &&
               ebb_size_room(&s->wide_rows_at, &s->bytes, 2 * s->whole.call.out[0].bytes, align);
    fits = fits && ebb_size_room(&s->scratch_at, &s->bytes, scratch, align);
    return fits ? NULL : ebb_call_error(c, "its tiles pass what memory can be");
}

static ebb_status build(stream *s, const ebb_call *c)
{
    if (find_tiling(&s->tiling, c) != NULL || find_units(&s->units, c, &s->tiling) != NULL)
        return ebb_call_error(c, "its operands cannot be read in tiles");
    s->per_tile = units_of_tile(c, s->units);
    EBB_TRY(cut(s, &s->whole, c, s->per_tile));
    if (s->units % s->per_tile != 0)
        EBB_TRY(cut(s, &s->rest, c, s->units % s->per_tile));
    return lay_out(s, c);
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    stream *s = ebb_alloc(sizeof *s);
    EBB_GOT(s);
    *s = (stream){0};
    ebb_status status = build(s, c);
    *bytes = s->bytes;
    ebb_arena_fini(&s->arena);
    ebb_free(s);
    return status;
}

/* ---- from call to call ---- */

static void release(ebb_call *c)
{
    stream *s = c->state;
    for (int k = 0; k < 2; k++) {
        piece *p = k == 0 ? &s->whole : &s->rest;
        for (uint32_t i = 0; i < EBB_TILE_OPERANDS; i++)
            ebb_nested_release(&p->decode[i]);
        ebb_nested_release(&p->call);
    }
    ebb_arena_fini(&s->arena);
    ebb_free(s);
    c->state = NULL;
}

static ebb_status prepare_piece(const stream *s, piece *p, const ebb_call *c)
{
    for (uint32_t i = 0; i < EBB_TILE_OPERANDS; i++) {
        ebb_nested_point(&p->decode[i], c, s->scratch_at);
        EBB_TRY(ebb_nested_prepare(&p->decode[i]));
    }
    ebb_nested_point(&p->call, c, s->scratch_at);
    return ebb_nested_prepare(&p->call);
}

static ebb_status prepare(ebb_call *c)
{
    stream *s = ebb_alloc(sizeof *s);
    EBB_GOT(s);
    *s = (stream){0};
    c->state = s;
    EBB_TRY(build(s, c));
    EBB_TRY(ebb_nested_fits(c, s->bytes));
    EBB_TRY(prepare_piece(s, &s->whole, c));
    return prepare_piece(s, &s->rest, c);
}

/* ---- a walk ---- */

static const ebb_tile_parts *parts_of(const ebb_call *c)
{
    const ebb_backend *const *b = c->backends;
    while (b[0]->parts == NULL && b[1] != NULL)
        b++;
    return b[0]->parts;
}

/* to += from, element by element. */
static ebb_status add(const ebb_call *c, const ebb_operand *like, void *to, const void *from)
{
    return parts_of(c)->add(c, (ebb_dtype)like->type.dtype, ebb_elements(&like->type), to, from);
}

static void *rows_from(const ebb_operand *whole, int64_t unit, int64_t units)
{
    return (char *)whole->data + whole->bytes / (size_t)units * (size_t)unit;
}

/* Points the piece's calls at the rows that begin with `unit`, and decodes them. */
static ebb_status fetch(const stream *s, piece *p, const ebb_call *c, int64_t unit)
{
    for (uint32_t i = 0; i < c->input_count; i++) {
        ebb_operand *in = &p->call.in[i];
        const ebb_call *source = c->in[i].source;
        in->data = s->tiling.in[i] == EBB_TILE_ROWS && source == NULL && c->in[i].data != NULL
                       ? rows_from(&c->in[i], unit, s->units)
                       : c->in[i].data;
        if (source == NULL)
            continue;
        ebb_call *decode = &p->decode[i];
        for (uint32_t k = 0; k < decode->input_count; k++)
            decode->in[k].data = rows_from(&source->in[k], unit, s->units);
        in->data = decode->out[0].data = (char *)c->workspace + s->tile_at[i];
        ebb_nested_point(decode, c, s->scratch_at);
        EBB_TRY(decode->kernel->run(decode));
    }
    for (uint32_t i = 0; i < c->output_count; i++)
        if (c->out[i].type.dtype != EBB_NONE)
            p->call.out[i].data = s->tiling.out[i] == EBB_TILE_ROWS
                                      ? rows_from(&c->out[i], unit, s->units)
                                  : grows_wide(s, c, i) ? (char *)c->workspace + s->total_at[i]
                                                        : c->out[i].data;
    ebb_nested_point(&p->call, c, s->scratch_at);
    return NULL;
}

static ebb_status compute(const stream *s, piece *p, const ebb_call *c, int64_t unit)
{
    EBB_TRY(fetch(s, p, c, unit));
    for (uint32_t i = 0; unit > 0 && i < c->output_count; i++)
        if (s->tiling.out[i] == EBB_TILE_SUM)
            p->call.out[i].data = (char *)c->workspace + s->sum_at[i];
    EBB_TRY(p->call.kernel->run(&p->call));
    for (uint32_t i = 0; unit > 0 && i < c->output_count; i++)
        if (s->tiling.out[i] == EBB_TILE_SUM && c->out[i].type.dtype != EBB_NONE)
            EBB_TRY(
                add(c, &p->call.out[i],
                    grows_wide(s, c, i) ? (char *)c->workspace + s->total_at[i] : c->out[i].data,
                    p->call.out[i].data));
    return NULL;
}

/* The rows of the second walk, where some operand has 16 bits: all in float32, dx rounded. */
static ebb_status second_walk(const stream *s, const piece *p, const ebb_call *c, void *dx)
{
    ebb_operand in[EBB_TILE_OPERANDS], out[EBB_TILE_OPERANDS];
    ebb_call tile = p->call, whole = *c;
    memcpy(in, tile.in, tile.input_count * sizeof *in);
    memcpy(out, c->out, c->output_count * sizeof *out);
    tile.in = in;
    whole.out = out;
    for (uint32_t i = 0; i < tile.input_count; i++) {
        if (!ebb_is_narrow(&in[i].type))
            continue;
        float *wide = (float *)((char *)c->workspace + s->wide_at[i]);
        ebb_widen(wide, in[i].data, (ebb_dtype)in[i].type.dtype, ebb_elements(&in[i].type));
        in[i].data = wide;
        in[i].type.dtype = EBB_F32;
    }
    for (uint32_t o = 1; o < c->output_count; o++)
        if (grows_wide(s, c, o))
            out[o].data = (char *)c->workspace + s->total_at[o];
    bool narrow = ebb_is_narrow(&c->out[0].type);
    float *rows = (float *)((char *)c->workspace + s->wide_rows_at);
    EBB_TRY(parts_of(c)->batch_norm_rows(&tile, &whole, narrow ? (void *)rows : dx));
    if (narrow)
        ebb_narrow(dx, rows, (ebb_dtype)c->out[0].type.dtype, ebb_elements(&in[1].type));
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    stream *s = c->state;
    for (int walk = 0; walk < (s->tiling.two_walks ? 2 : 1); walk++)
        for (int64_t unit = 0; unit < s->units; unit += s->per_tile) {
            piece *p = s->units - unit >= s->per_tile ? &s->whole : &s->rest;
            if (walk == 0) {
                EBB_TRY(compute(s, p, c, unit));
            } else if (c->out[0].type.dtype != EBB_NONE) {
                EBB_TRY(fetch(s, p, c, unit));
                void *dx = rows_from(&c->out[0], unit, s->units);
                bool host = c->backends[0]->device->is_host;
                EBB_TRY(host && ebb_can_widen(c) ? second_walk(s, p, c, dx)
                                                 : parts_of(c)->batch_norm_rows(&p->call, c, dx));
            }
        }
    for (uint32_t i = 0; i < c->output_count; i++)
        if (grows_wide(s, c, i))
            ebb_narrow(c->out[i].data, (const float *)((char *)c->workspace + s->total_at[i]),
                       (ebb_dtype)c->out[i].type.dtype, ebb_elements(&c->out[i].type));
    return NULL;
}

const ebb_kernel ebb_kernel_stream = {.name = "stream",
                                      .op = EBB_OP_UNKNOWN,
                                      .fits = declines,
                                      .workspace = workspace,
                                      .prepare = prepare,
                                      .run = run,
                                      .release = release};

/* ---- what is read in tiles ---- */

static ebb_status leave(const ebb_call *c)
{
    (void)c;
    return NULL;
}

const ebb_kernel ebb_kernel_decoder = {
    .name = "stream.decoder", .op = EBB_OP_UNKNOWN, .run = leave};
