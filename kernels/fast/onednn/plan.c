/* plan.c: see plan.h. */
#include "kernels/fast/onednn/plan.h"

enum { PIECES = EBB_DNNL_PIECES };

ebb_threads_before ebb_dnnl_enter(const ebb_call *call)
{
    return ebb_threads_enter(call->deterministic ? 1 : ebb_threads());
}

int64_t ebb_dnnl_pieces(const ebb_call *call, int64_t count, int64_t least)
{
    for (int64_t pieces = call->deterministic ? PIECES : 1; pieces > 1; pieces--)
        if (count % pieces == 0 && count / pieces % least == 0)
            return pieces;
    return 1;
}

/* ---- layouts ---- */

void ebb_dnnl_strided(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims,
                      const int64_t *strides)
{
    *md = (ebb_dnnl_layout){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        md->dims[i] = dims[i];
        md->strides[i] = strides[i];
    }
}

size_t ebb_dnnl_size(const ebb_dnnl_layout *md)
{
    return ebb_dtype_bits(md->dtype) / 8;
}

void ebb_dnnl_plain(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims)
{
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, rank, dims);
    ebb_dnnl_strided(md, dtype, rank, dims, strides);
}

void ebb_dnnl_any(ebb_dnnl_layout *md, ebb_dtype dtype, int rank, const int64_t *dims)
{
    ebb_dnnl_plain(md, dtype, rank, dims);
    md->tag = dnnl_format_tag_any;
}

static const char *blocked(ebb_dnnl_layout *md, const ebb_type *type)
{
    static const dnnl_format_tag_t by_16[] = {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c};
    static const dnnl_format_tag_t by_8[] = {dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c};
    int spatial = type->rank - 2;
    int64_t block = type->layout.block;
    if (spatial < 1 || spatial > 3 || (block != 8 && block != 16))
        return "a blocked layout that oneDNN does not have";
    ebb_dnnl_plain(md, (ebb_dtype)type->dtype, type->rank, type->dims);
    md->strides[0] = md->strides[1] * ((type->dims[1] + block - 1) / block * block);
    md->tag = (block == 16 ? by_16 : by_8)[spatial - 1];
    return NULL;
}

const char *ebb_dnnl_of_type(ebb_dnnl_layout *md, const ebb_type *type)
{
    if (type->layout.kind == EBB_LAYOUT_BLOCKED)
        return blocked(md, type);
    if (type->layout.kind == EBB_LAYOUT_PLAIN || type->rank < 3) {
        ebb_dnnl_plain(md, (ebb_dtype)type->dtype, type->rank, type->dims);
        return NULL;
    }
    int64_t strides[EBB_MAX_RANK], step = type->dims[1];
    strides[1] = 1;
    for (int i = type->rank - 1; i >= 2; i--) {
        strides[i] = step;
        step *= type->dims[i];
    }
    strides[0] = step;
    ebb_dnnl_strided(md, (ebb_dtype)type->dtype, type->rank, type->dims, strides);
    return NULL;
}

/* ---- operands ---- */

static const char *declines_number(const ebb_operand *o, bool plain)
{
    const ebb_dtype dtype = (ebb_dtype)o->type.dtype;
    if (ebb_is_narrow(&o->type) && !ebb_dnnl_multiplies(dtype))
        return "the processor multiplies no such 16 bits";
    if (dtype != EBB_NONE && dtype != EBB_F32 && !ebb_is_narrow(&o->type))
        return "computes in float32, or 16 bits";
    return ebb_dnnl_declines_shape(o, plain);
}

static const char *declines_numbers(const ebb_call *call, bool plain)
{
    for (uint32_t i = 0; i < call->input_count; i++)
        EBB_ASK(declines_number(&call->in[i], plain));
    for (uint32_t o = 0; o < call->output_count; o++)
        EBB_ASK(declines_number(&call->out[o], plain));
    return NULL;
}

const char *ebb_dnnl_numbers(const ebb_call *call)
{
    return declines_numbers(call, false);
}

const char *ebb_dnnl_plain_numbers(const ebb_call *call)
{
    return declines_numbers(call, true);
}

/* ---- operations ---- */

bool ebb_dnnl_is_slow(const ebb_dnnl_plan *plan)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(plan->descriptor, dnnl_query_impl_info_str, 0, &name) ==
               dnnl_success &&
           name != NULL && strncmp(name, "ref", 3) == 0;
}

/* The rest of a description: gives back what it needed. A node of 16 bits is computed in float32
 * rather than by loops of oneDNN's reference. */
static const char *described(ebb_dnnl_plan *plan, dnnl_status_t got, ebb_dnnl_descriptors *d,
                             dnnl_primitive_attr_t attr)
{
    if (got == dnnl_success && d->dtype != EBB_F32 && ebb_dnnl_is_slow(plan)) {
        dnnl_primitive_desc_destroy(plan->descriptor);
        got = dnnl_unimplemented;
    }
    ebb_dnnl_drop_all(d);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    if (got != dnnl_success)
        plan->descriptor = NULL;
    return ebb_dnnl_why_not(got);
}

const char *ebb_dnnl_describe_product(ebb_dnnl_plan *plan, const ebb_dnnl_layout *a,
                                      const ebb_dnnl_layout *b, const ebb_dnnl_layout *bias,
                                      const ebb_dnnl_layout *out, float alpha, bool adds)
{
    ebb_dnnl_descriptors d;
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){a, b, bias, out});
    dnnl_primitive_attr_t attr = d.fine ? ebb_dnnl_attributes(alpha, adds) : NULL;
    dnnl_status_t got = !d.fine        ? dnnl_unimplemented
                        : attr == NULL ? dnnl_out_of_memory
                                       : ebb_dnnl_create_product(&plan->descriptor, &d, attr);
    return described(plan, got, &d, attr);
}

/* A backward primitive wants a forward one as a hint, which has weights of the images' dtype. */
static dnnl_status_t create_conv(dnnl_primitive_desc_t *made, ebb_dnnl_conv_kind kind,
                                 const ebb_dnnl_descriptors *d, const ebb_dnnl_layout *weight,
                                 const ebb_dnnl_windows *windows, const_dnnl_primitive_attr_t attr)
{
    if (kind == EBB_DNNL_FORWARD)
        return ebb_dnnl_create_forward(made, d, windows, attr);
    ebb_dnnl_descriptors own, hint = *d;
    dnnl_primitive_desc_t forward = NULL;
    ebb_dnnl_layout as_images = *weight;
    as_images.dtype = d->dtype;
    ebb_dnnl_hold_all(&own, (const ebb_dnnl_layout *const[]){NULL, &as_images, NULL, NULL});
    hint.of[1] = own.of[1];
    dnnl_status_t got =
        own.fine ? ebb_dnnl_create_forward(&forward, &hint, windows, attr) : dnnl_out_of_memory;
    ebb_dnnl_drop_all(&own);
    if (got == dnnl_success && !ebb_dnnl_has_room())
        got = dnnl_out_of_memory;
    if (got == dnnl_success)
        got = ebb_dnnl_create_backward(made, kind == EBB_DNNL_BY_DATA, d, windows, attr, forward);
    if (forward != NULL)
        dnnl_primitive_desc_destroy(forward);
    return got;
}

const char *ebb_dnnl_describe_conv(ebb_dnnl_plan *plan, ebb_dnnl_conv_kind kind,
                                   const ebb_dnnl_layout *wide, const ebb_dnnl_layout *weight,
                                   const ebb_dnnl_layout *bias, const ebb_dnnl_layout *narrow,
                                   const ebb_dnnl_windows *windows)
{
    ebb_dnnl_descriptors d;
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){wide, weight, bias, narrow});
    dnnl_primitive_attr_t attr = d.fine ? ebb_dnnl_attributes(1.0f, false) : NULL;
    dnnl_status_t got = !d.fine ? dnnl_unimplemented
                        : attr == NULL
                            ? dnnl_out_of_memory
                            : create_conv(&plan->descriptor, kind, &d, weight, windows, attr);
    return described(plan, got, &d, attr);
}

const char *ebb_dnnl_describe_pool(ebb_dnnl_plan *plan, bool most, bool padded,
                                   const ebb_dnnl_layout *from, const ebb_dnnl_layout *to,
                                   const ebb_dnnl_windows *windows)
{
    ebb_dnnl_descriptors d;
    dnnl_alg_kind_t kind = most     ? dnnl_pooling_max
                           : padded ? dnnl_pooling_avg_include_padding
                                    : dnnl_pooling_avg_exclude_padding;
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){from, NULL, NULL, to});
    dnnl_primitive_attr_t attr = d.fine ? ebb_dnnl_attributes(1.0f, false) : NULL;
    dnnl_status_t got = !d.fine ? dnnl_unimplemented
                        : attr == NULL
                            ? dnnl_out_of_memory
                            : ebb_dnnl_create_pool(&plan->descriptor, kind, &d, windows, attr);
    return described(plan, got, &d, attr);
}

/* ---- plans ---- */

static bool take(ebb_dnnl_plan *plan, size_t bytes, size_t *offset)
{
    *offset = plan->bytes;
    return ebb_size_add(&plan->bytes, plan->bytes, bytes) &&
           ebb_size_align(&plan->bytes, plan->bytes, 64);
}

const char *ebb_dnnl_add(ebb_dnnl_plan *plan, int arg, bool output, uint32_t index,
                         const ebb_dnnl_layout *outer)
{
    ebb_dnnl_descriptors d;
    ebb_dnnl_descriptor inner =
        dnnl_primitive_desc_query_md(plan->descriptor, dnnl_query_exec_arg_md, arg);
    if (inner == NULL || plan->count == EBB_DNNL_PORTS)
        return "oneDNN does not know this operand";
    ebb_dnnl_port *port = &plan->port[plan->count++];
    *port = (ebb_dnnl_port){.arg = arg, .output = output, .index = index, .outer = *outer};
    port->inner = inner;
    port->inner_bytes = dnnl_memory_desc_get_size(inner);
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){outer, NULL, NULL, NULL});
    port->copied = d.fine && dnnl_memory_desc_equal(d.of[0], inner) == 0;
    ebb_dnnl_drop_all(&d);
    if (!d.fine)
        return ebb_dnnl_no_memory;
    if (port->copied && !take(plan, port->inner_bytes, &port->offset))
        return "the scratch memory is too large to address";
    return NULL;
}

const char *ebb_dnnl_add_images(ebb_dnnl_plan *plan, int arg, bool output, uint32_t index,
                                const ebb_dnnl_layout *outer)
{
    const char *why = ebb_dnnl_add(plan, arg, output, index, outer);
    if (why == NULL)
        plan->port[plan->count - 1].images = true;
    return why;
}

const char *ebb_dnnl_reorder_of(dnnl_primitive_desc_t *reorder, const ebb_dnnl_port *port)
{
    ebb_dnnl_descriptors d;
    ebb_dnnl_hold_all(&d, (const ebb_dnnl_layout *const[]){&port->outer, NULL, NULL, NULL});
    dnnl_primitive_attr_t attr = d.fine ? ebb_dnnl_attributes(1.0f, port->adds) : NULL;
    ebb_dnnl_descriptor from = port->output ? port->inner : d.of[0];
    ebb_dnnl_descriptor to = port->output ? d.of[0] : port->inner;
    dnnl_status_t got = attr == NULL
                            ? dnnl_out_of_memory
                            : dnnl_reorder_primitive_desc_create(reorder, from, ebb_dnnl_engine(),
                                                                 to, ebb_dnnl_engine(), attr);
    ebb_dnnl_drop_all(&d);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    return got == dnnl_success || got == dnnl_out_of_memory
               ? ebb_dnnl_why_not(got)
               : "oneDNN cannot bring an operand into its layout";
}

static size_t scratch_of(const_dnnl_primitive_desc_t descriptor)
{
    ebb_dnnl_descriptor md = dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    return md == NULL ? 0 : dnnl_memory_desc_get_size(md);
}

/* One scratch area serves the primitive and its reorders: they run one after the other. */
static const char *place_scratch(ebb_dnnl_plan *plan)
{
    plan->scratch_bytes = scratch_of(plan->descriptor);
    for (uint32_t p = 0; p < plan->count; p++) {
        if (!plan->port[p].copied)
            continue;
        dnnl_primitive_desc_t reorder = NULL;
        EBB_ASK(ebb_dnnl_reorder_of(&reorder, &plan->port[p]));
        size_t bytes = scratch_of(reorder);
        dnnl_primitive_desc_destroy(reorder);
        if (bytes > plan->scratch_bytes)
            plan->scratch_bytes = bytes;
    }
    return take(plan, plan->scratch_bytes, &plan->scratch_offset)
               ? NULL
               : "the scratch memory is too large to address";
}

static void drop(ebb_dnnl_plan *plan)
{
    if (plan->descriptor != NULL)
        dnnl_primitive_desc_destroy(plan->descriptor);
    plan->descriptor = NULL;
}

/* ---- parts ---- */

/* Copies of more bytes than this are made part by part. On the shapes of VGG-16 and ResNet-50, 16,
 * 32 and 64 MiB all take as long as whole operands within 1 %; smaller parts mean more waits of the
 * threads for each other. */
static const size_t PART_BYTES = (size_t)32 << 20;

/* A part has so many times the bytes of a result that is added up: adding 8 MiB of 1x1 weights took
 * a sixth of the time that 16 images needed. */
enum { TIMES_THE_SUM = 6 };

void ebb_dnnl_drop_plans(ebb_dnnl_plans *all)
{
    for (uint32_t i = 0; i < EBB_DNNL_PARTS; i++)
        drop(&all->part[i]);
}

/* The plan of a call, or of `images` images of it from the first-th on, repeat times. */
static const char *make_part(ebb_dnnl_plan *plan, const ebb_call *call, ebb_dnnl_make make,
                             int64_t first, int64_t images, int64_t repeat)
{
    const char *why = make(plan, call);
    for (uint32_t p = 0; why == NULL && repeat > 0 && p < plan->count; p++) {
        ebb_dnnl_port *port = &plan->port[p];
        size_t image = (size_t)port->outer.strides[0] * ebb_dnnl_size(&port->outer);
        if (port->images) {
            port->start = (size_t)first * image;
            port->step = (size_t)images * image;
        } else if (port->output) {
            port->adds = true;
            port->rounded = port->outer.dtype != EBB_F32;
            port->piece = port->piece / ebb_dnnl_size(&port->outer) * sizeof(float);
            port->outer.dtype = EBB_F32;
            if (!port->copied && !take(plan, port->inner_bytes, &port->offset))
                why = "the scratch memory is too large to address";
            port->copied = true;
        }
    }
    if (repeat > 0)
        plan->repeat = repeat;
    return why != NULL ? why : place_scratch(plan);
}

/* The call with fewer images, where the plan's ports have any; in and out are its operands. */
static bool cut(ebb_call *less, ebb_operand *in, ebb_operand *out, const ebb_call *call,
                const ebb_dnnl_plan *whole, int64_t images)
{
    if (call->input_count > EBB_DNNL_PORTS || call->output_count > EBB_DNNL_PORTS)
        return false;
    *less = *call;
    memcpy(in, call->in, call->input_count * sizeof *in);
    memcpy(out, call->out, call->output_count * sizeof *out);
    less->in = in;
    less->out = out;
    for (uint32_t p = 0; p < whole->count; p++)
        if (whole->port[p].images)
            (whole->port[p].output ? out : in)[whole->port[p].index].type.dims[0] = images;
    return true;
}

/* How many images a run of the plan should take, and of how many; 0: all. A divisor of their number
 * is preferred where one is near: it saves a primitive for the rest. In pieces: no more than each
 * has. */
static int64_t images_of_part(const ebb_dnnl_plan *whole, int64_t *batch, bool in_pieces)
{
    size_t copies = 0, most = PART_BYTES;
    bool adds = false;
    for (uint32_t p = 0; p < whole->count; p++) {
        const ebb_dnnl_port *port = &whole->port[p];
        size_t bytes = port->inner_bytes;
        if (port->images)
            *batch = port->outer.dims[0];
        if (port->images && port->copied)
            copies += bytes;
        else if (!port->images && port->output && bytes > most / TIMES_THE_SUM)
            most = bytes * TIMES_THE_SUM;
        adds = adds || (!port->images && port->output);
    }
    const int64_t piece = in_pieces && !adds ? (*batch + PIECES - 1) / PIECES : 0;
    if (copies <= most || *batch == 0)
        return piece;
    int64_t images = (int64_t)(most / (copies / (size_t)*batch + 1));
    images = images < whole->least_images ? whole->least_images : images;
    images = images < 1 ? 1 : piece > 0 && images > piece ? piece : images;
    for (int64_t near = images; near >= whole->least_images && near > images / 2; near--)
        if (*batch % near == 0)
            return near;
    return images;
}

static const char *make_all_parts(ebb_dnnl_plans *all, const ebb_call *call, ebb_dnnl_make make)
{
    all->count = 1;
    int64_t batch = 0, images = 0;
    const char *why = make_part(&all->part[0], call, make, 0, 0, 0);
    if (why == NULL)
        images = images_of_part(&all->part[0], &batch, call->deterministic);
    ebb_dnnl_plan whole = all->part[0];
    if (images > 0 && images < batch) {
        ebb_call less;
        ebb_operand in[EBB_DNNL_PORTS], out[EBB_DNNL_PORTS];
        int64_t rest = batch % images, first = batch - rest;
        ebb_dnnl_drop_plans(all);
        memset(all->part, 0, sizeof all->part);
        if (!cut(&less, in, out, call, &whole, images))
            return "more operands than a convolution has";
        why = make_part(&all->part[0], &less, make, 0, images, batch / images);
        if (why == NULL && rest > 0 && cut(&less, in, out, call, &whole, rest)) {
            all->count = 2;
            why = make_part(&all->part[1], &less, make, first, rest, 1);
        }
    }
    for (uint32_t i = 0; i < all->count; i++)
        all->bytes = all->part[i].bytes > all->bytes ? all->part[i].bytes : all->bytes;
    return why;
}

static bool adds_up(const ebb_dnnl_plan *plan)
{
    for (uint32_t p = 0; p < plan->count; p++)
        if (plan->port[p].adds)
            return true;
    return false;
}

/* Bytes of the sum that is rounded at the end. */
static bool sum_of(size_t *bytes, const ebb_dnnl_plan *plan, const ebb_call *call)
{
    *bytes = 0;
    for (uint32_t p = 0; p < plan->count; p++)
        if (plan->port[p].rounded)
            return ebb_size_mul(bytes, sizeof(float),
                                (size_t)ebb_elements(&call->out[plan->port[p].index].type));
    return true;
}

bool ebb_dnnl_bytes_of(size_t *bytes, const ebb_dnnl_plans *all)
{
    return ebb_size_mul(bytes, all->bytes, all->slots) && ebb_size_add(bytes, *bytes, all->sum);
}

/* How many pieces of a plan can be computed at once. */
static int64_t pieces_of(const ebb_dnnl_plan *plan)
{
    const int64_t pieces = plan->pieces > 1 ? plan->pieces : adds_up(plan) ? 1 : plan->repeat;
    return pieces < 1 ? 1 : pieces < PIECES ? pieces : PIECES;
}

static uint32_t slots_of(const ebb_dnnl_plans *all, const ebb_call *call)
{
    const int64_t pieces = pieces_of(&all->part[0]);
    int64_t work = 0;
    for (uint32_t i = 0; i < call->input_count; i++)
        work += (int64_t)(call->in[i].bytes / sizeof(float));
    if (!call->deterministic || work <= EBB_PARALLEL_WORTH)
        return 1;
    return (uint32_t)(pieces < ebb_threads() ? pieces : ebb_threads());
}

const char *ebb_dnnl_make_plans(ebb_dnnl_plans *all, const ebb_call *call, ebb_dnnl_make make)
{
    memset(all, 0, sizeof *all);
    const ebb_threads_before before = ebb_dnnl_enter(call);
    const char *why = make_all_parts(all, call, make);
    ebb_threads_leave(before);
    all->slots = slots_of(all, call);
    if (why == NULL && !sum_of(&all->sum, &all->part[0], call))
        why = "the scratch memory is too large to address";
    if (why != NULL)
        ebb_dnnl_drop_plans(all);
    return why;
}
