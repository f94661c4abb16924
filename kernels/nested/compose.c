/* compose.c: operators that mean several others, by the kernels of those.
 *
 *     BatchNormAddRelu   X ─ BatchNormTraining ─> Z ─ + A ─> Z ─ Relu ─> Z ─ PackSign ─> bits
 *     ConvAddReluNhwc    X ─ ConvNhwc ──────────> Z ─ + A ─> Z ─ Relu ─> Z ─ PackSign ─> bits
 *     LinearGrad         A, B ─ Gemm ─> P    A ─ ReduceSum ─> sum_A    B ─ ReduceSum ─> sum_B
 *
 * A back end may have a kernel for the whole. Where none has, each part is computed by what the
 * same back ends have for it, so the bits are those of the parts as nodes of their own. What lies
 * between two parts lies in an output, which later parts write over in place, or in the workspace
 * where nobody wants that output.
 */
#include "kernels/nested/compose.h"

#include "kernels/nested/nested.h"

enum { PARTS = 4, INPUTS = 6, OUTPUTS = 6 };

/* Operands of a part: the whole's input i, its output o, or none. */
#define IN(i) ((i) + 1)
#define OUT(o) (-(o)-1)

typedef enum attributes { NO_ATTRIBUTES, THE_WHOLES } attributes;

typedef struct part {
    ebb_op op;
    int in[INPUTS], out[OUTPUTS];
    attributes attributes;
} part;

typedef struct recipe {
    ebb_op op;
    part parts[PARTS];
    /* An output that nobody wants and that lies between parts has the type of input 0. Where output
     * `passing` is one, a later part's output `host` holds it until then; equal: none does. */
    int passing, host;
} recipe;

// clang-format off
#define NORM {EBB_OP_BATCH_NORM_TRAINING, {IN(0), IN(1), IN(2), IN(3), IN(4)}, \
              {OUT(0), OUT(1), OUT(2), OUT(3), OUT(4)}, THE_WHOLES}
#define CONVOLUTION(op) {op, {IN(0), IN(1), IN(2)}, {OUT(0)}, THE_WHOLES}
#define PLUS(i) {EBB_OP_ADD, {OUT(0), IN(i)}, {OUT(0)}, NO_ATTRIBUTES}
#define RELU {EBB_OP_RELU, {OUT(0)}, {OUT(0)}, NO_ATTRIBUTES}
#define BITS(o) {EBB_OP_PACK_SIGN, {OUT(0)}, {OUT(o)}, NO_ATTRIBUTES}
static const recipe recipes[] = {
    {EBB_OP_BATCH_NORM_RELU, {NORM, RELU, BITS(5)}, 0, 0},
    {EBB_OP_BATCH_NORM_ADD_RELU, {NORM, PLUS(5), RELU, BITS(5)}, 0, 0},
    {EBB_OP_BATCH_NORM_RELU_GRAD,
     {{EBB_OP_MASK_GRAD, {IN(0), IN(5)}, {OUT(3)}, NO_ATTRIBUTES},
      {EBB_OP_BATCH_NORM_GRAD, {OUT(3), IN(1), IN(2), IN(3), IN(4)}, {OUT(0), OUT(1), OUT(2)}, THE_WHOLES}}, 3, 0},
    {EBB_OP_CONV_RELU, {CONVOLUTION(EBB_OP_CONV), RELU, BITS(1)}, 0, 0},
    {EBB_OP_CONV_RELU_NHWC, {CONVOLUTION(EBB_OP_CONV_NHWC), RELU, BITS(1)}, 0, 0},
    {EBB_OP_CONV_ADD_RELU_NHWC, {CONVOLUTION(EBB_OP_CONV_NHWC), PLUS(3), RELU, BITS(1)}, 0, 0},
};
// clang-format on

static ebb_attrs attributes_of(const part *what, const ebb_call *whole)
{
    return what->attributes == THE_WHOLES ? whole->attrs : (ebb_attrs){NULL, 0};
}

static const recipe *recipe_of(ebb_op op)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        if (recipes[i].op == op)
            return &recipes[i];
    return NULL;
}

bool ebb_is_composed(ebb_op op)
{
    return recipe_of(op) != NULL;
}

/* ---- the calls of the parts ---- */

typedef struct piece {
    const part *what;
    ebb_call call;
    ebb_operand in[INPUTS], out[OUTPUTS];
} piece;

typedef struct composed {
    piece pieces[PARTS];
    int count;
    bool passes[OUTPUTS]; /* made by one part and read by another */
    size_t at[OUTPUTS];   /* of those that nobody wants: in the workspace */
    size_t scratch_at, bytes;
    const recipe *recipe;
} composed;

/* The output that output o lies in; o itself: its own place, or the workspace. */
static int place_of(const composed *k, const ebb_call *c, int o)
{
    const bool moves = o == k->recipe->passing && !ebb_call_wants(c, (uint32_t)o);
    return moves && ebb_call_wants(c, (uint32_t)k->recipe->host) ? k->recipe->host : o;
}

/* Which outputs the parts hand on; whether a part is needed at all. */
static bool is_needed(composed *k, const ebb_call *c, int p)
{
    const part *what = &k->recipe->parts[p];
    bool needed = false;
    for (int i = 0; i < OUTPUTS; i++)
        if (what->out[i] != 0)
            needed = needed || k->passes[-what->out[i] - 1] ||
                     ebb_call_wants(c, (uint32_t)(-what->out[i] - 1));
    for (int i = 0; needed && i < INPUTS; i++)
        if (what->in[i] < 0)
            k->passes[-what->in[i] - 1] = true;
    return needed;
}

/* None: it is not there, or behind the last. */
static ebb_operand input_of(const ebb_call *c, int i)
{
    return (uint32_t)i < c->input_count ? c->in[i] : (ebb_operand){.type = ebb_type_none()};
}

static ebb_operand output_of(const composed *k, const ebb_call *c, int o)
{
    ebb_operand made = {.type = ebb_type_none()};
    if ((uint32_t)o < c->output_count)
        made = c->out[o];
    if (made.type.dtype == EBB_NONE && k->passes[o]) {
        made.type = c->in[0].type;
        made.bytes = c->in[0].bytes;
    }
    made.over = 0;
    return made;
}

/* Which input of the piece lies where its output o does: 1 + its number, or 0. */
static uint32_t lies_over(const composed *k, const ebb_call *c, const part *what, int o)
{
    for (int i = 0; i < INPUTS; i++)
        if (what->in[i] < 0 &&
            place_of(k, c, -what->in[i] - 1) == place_of(k, c, -what->out[o] - 1))
            return 1 + (uint32_t)i;
    return 0;
}

static ebb_status make_piece(composed *k, const ebb_call *c, const part *what, size_t *room)
{
    piece *p = &k->pieces[k->count++];
    p->what = what;
    p->call = ebb_nested_make(c);
    p->call.op = what->op;
    p->call.version = ebb_op_row_of(what->op)->since;
    p->call.attrs = attributes_of(what, c);
    p->call.in = p->in;
    p->call.out = p->out;
    p->call.input_count = p->call.output_count = 0;
    for (int i = 0; i < INPUTS && what->in[i] != 0; i++)
        p->in[p->call.input_count++] =
            what->in[i] > 0 ? input_of(c, what->in[i] - 1) : output_of(k, c, -what->in[i] - 1);
    for (int o = 0; o < OUTPUTS && what->out[o] != 0; o++) {
        p->out[o] = output_of(k, c, -what->out[o] - 1);
        p->out[o].over = lies_over(k, c, what, o);
        p->call.output_count++;
    }
    return ebb_nested_room(&p->call, c->backends, room);
}

static ebb_status build(composed *k, const ebb_call *c)
{
    const uint32_t align = (*c->backends)->device->align;
    bool needed[PARTS] = {false}, fits = true;
    size_t scratch = 0;
    memset(k, 0, sizeof *k);
    k->recipe = recipe_of(c->op);
    for (int p = PARTS; p-- > 0;) /* from the last, which is read by nobody */
        needed[p] = k->recipe->parts[p].op != EBB_OP_UNKNOWN && is_needed(k, c, p);
    for (int p = 0; p < PARTS; p++)
        if (needed[p])
            EBB_TRY(make_piece(k, c, &k->recipe->parts[p], &scratch));
    for (int o = 0; o < OUTPUTS; o++)
        if (k->passes[o] && !ebb_call_wants(c, (uint32_t)o) && place_of(k, c, o) == o)
            fits = fits && ebb_size_room(&k->at[o], &k->bytes, c->in[0].bytes, align);
    fits = fits && ebb_size_room(&k->scratch_at, &k->bytes, scratch, align);
    return fits ? NULL : ebb_call_error(c, "its parts need more memory than there can be");
}

static ebb_status workspace(const ebb_call *c, size_t *bytes)
{
    composed k;
    ebb_status status = build(&k, c);
    *bytes = k.bytes;
    return status;
}

/* ---- from call to call ---- */

static void *output_at(const composed *k, const ebb_call *c, int o)
{
    const int place = place_of(k, c, o);
    if (ebb_call_wants(c, (uint32_t)place))
        return c->out[place].data;
    return k->passes[o] ? (char *)c->workspace + k->at[place] : NULL;
}

static void point(composed *k, const ebb_call *c)
{
    for (int n = 0; n < k->count; n++) {
        piece *p = &k->pieces[n];
        for (uint32_t i = 0; i < p->call.input_count; i++)
            p->in[i].data = p->what->in[i] > 0 ? input_of(c, p->what->in[i] - 1).data
                                               : output_at(k, c, -p->what->in[i] - 1);
        for (uint32_t o = 0; o < p->call.output_count; o++)
            p->out[o].data = output_at(k, c, -p->what->out[o] - 1);
        ebb_nested_point(&p->call, c, k->scratch_at);
    }
}

static void release(ebb_call *c)
{
    composed *k = c->state;
    for (int p = 0; p < k->count; p++)
        ebb_nested_release(&k->pieces[p].call);
    ebb_free(k);
    c->state = NULL;
}

static ebb_status prepare(ebb_call *c)
{
    composed *k = ebb_alloc(sizeof *k);
    EBB_GOT(k);
    memset(k, 0, sizeof *k);
    c->state = k;
    EBB_TRY(build(k, c));
    EBB_TRY(ebb_nested_fits(c, k->bytes));
    point(k, c);
    for (int p = 0; p < k->count; p++)
        EBB_TRY(ebb_nested_prepare(&k->pieces[p].call));
    return NULL;
}

static ebb_status run(const ebb_call *c)
{
    composed *k = c->state;
    point(k, c);
    for (int p = 0; p < k->count; p++)
        EBB_TRY(k->pieces[p].call.kernel->run(&k->pieces[p].call));
    return NULL;
}

const ebb_kernel ebb_kernel_compose = {.name = "compose",
                                       .op = EBB_OP_UNKNOWN,
                                       .workspace = workspace,
                                       .prepare = prepare,
                                       .run = run,
                                       .release = release};

ebb_status ebb_pick_composed(ebb_call *c)
{
    size_t bytes;
    EBB_TRY(workspace(c, &bytes));
    c->kernel = &ebb_kernel_compose;
    return NULL;
}
