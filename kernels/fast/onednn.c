/* onednn.c: see onednn.h. */
#include "kernels/fast/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "kernels/fast is written for oneDNN 2.6 and 3"
#endif

/* ---- memory ---- */

static const char out_of_memory[] = "oneDNN gets no memory";

/* oneDNN does not check what its code generator gets: without memory it writes through a null
 * pointer, and elsewhere it throws through C. Neither can be caught, so what one of its calls may
 * need is asked for before, and given back to be found again. The most that one call took is 2 MiB,
 * for the code of a reorder. Another thread may take it meanwhile. */
static bool has_room(void)
{
    const size_t bytes = (size_t)16 << 20;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* To run a primitive takes some hundred bytes, which a block just freed surely has. */
static bool has_crumbs(void)
{
    void *crumbs = malloc((size_t)32 << 10);
    free(crumbs);
    return crumbs != NULL;
}

/* ---- one engine ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t the_engine;

static void start(void)
{
    if (!has_room() || dnnl_engine_create(&the_engine, dnnl_cpu, 0) != dnnl_success)
        the_engine = NULL;
}

/* What could not start for want of memory is started later. */
dnnl_engine_t ebb_dnnl_engine(void)
{
    (void)pthread_mutex_lock(&lock);
    if (the_engine == NULL)
        start();
    dnnl_engine_t engine = the_engine;
    (void)pthread_mutex_unlock(&lock);
    return engine;
}

/* ---- the same bits for any number of threads ---- */

/* oneDNN divides work, and sums, by the number of threads. Where that may not show in the bits it
 * computes with one, and the work is divided here, into pieces that follow from shapes alone:
 *
 *     slot 0   | piece 0 | piece 2 | piece 4 |      a slot: one thread with a workspace of its own
 *     slot 1   | piece 1 | piece 3 |
 *
 * Pieces are runs of a repeated primitive, or plan->pieces parts of the result, each of which may
 * be the sum of several runs, added in their order. */
enum { PIECES = EBB_DNNL_PIECES };

static ebb_threads_before enter(const ebb_call *call)
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

void ebb_dnnl_strided(ebb_dnnl_layout *md, int rank, const int64_t *dims, const int64_t *strides)
{
    *md = (ebb_dnnl_layout){.rank = rank};
    for (int i = 0; i < rank; i++) {
        md->dims[i] = dims[i];
        md->strides[i] = strides[i];
    }
}

void ebb_dnnl_plain(ebb_dnnl_layout *md, int rank, const int64_t *dims)
{
    int64_t strides[EBB_MAX_RANK];
    ebb_strides(strides, rank, dims);
    ebb_dnnl_strided(md, rank, dims, strides);
}

void ebb_dnnl_any(ebb_dnnl_layout *md, int rank, const int64_t *dims)
{
    ebb_dnnl_plain(md, rank, dims);
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
    ebb_dnnl_plain(md, type->rank, type->dims);
    md->strides[0] = md->strides[1] * ((type->dims[1] + block - 1) / block * block);
    md->tag = (block == 16 ? by_16 : by_8)[spatial - 1];
    return NULL;
}

const char *ebb_dnnl_of_type(ebb_dnnl_layout *md, const ebb_type *type)
{
    if (type->layout.kind == EBB_LAYOUT_BLOCKED)
        return blocked(md, type);
    if (type->layout.kind == EBB_LAYOUT_PLAIN || type->rank < 3) {
        ebb_dnnl_plain(md, type->rank, type->dims);
        return NULL;
    }
    int64_t strides[EBB_MAX_RANK], step = type->dims[1];
    strides[1] = 1;
    for (int i = type->rank - 1; i >= 2; i--) {
        strides[i] = step;
        step *= type->dims[i];
    }
    strides[0] = step;
    ebb_dnnl_strided(md, type->rank, type->dims, strides);
    return NULL;
}

/* ---- what the versions name differently ---- */

/* A descriptor of ours: a value in version 2, a thing to be given back in 3. */
#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t held;

static ebb_dnnl_descriptor look(const held *h)
{
    return h;
}

static bool hold(held *h, int rank, const dnnl_dims_t dims, const dnnl_dims_t strides,
                 dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return (tag == 0 ? dnnl_memory_desc_init_by_strides(h, rank, dims, dtype, strides)
                     : dnnl_memory_desc_init_by_tag(h, rank, dims, dtype, tag)) == dnnl_success;
}

static void drop_held(held *h)
{
    (void)h;
}
#else
typedef dnnl_memory_desc_t held;

static ebb_dnnl_descriptor look(const held *h)
{
    return *h;
}

static bool hold(held *h, int rank, const dnnl_dims_t dims, const dnnl_dims_t strides,
                 dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return (tag == 0 ? dnnl_memory_desc_create_with_strides(h, rank, dims, dtype, strides)
                     : dnnl_memory_desc_create_with_tag(h, rank, dims, dtype, tag)) == dnnl_success;
}

static void drop_held(held *h)
{
    if (*h != NULL)
        dnnl_memory_desc_destroy(*h);
}
#endif

/* Up to four layouts as descriptors; one that is NULL has none. */
typedef struct descriptors {
    held held[4];
    ebb_dnnl_descriptor of[4];
    bool fine;
} descriptors;

static void hold_all(descriptors *d, const ebb_dnnl_layout *const *layouts)
{
    memset(d, 0, sizeof *d);
    d->fine = true;
    for (int i = 0; i < 4; i++) {
        const ebb_dnnl_layout *l = layouts[i];
        if (l == NULL)
            continue;
        d->fine = d->fine && hold(&d->held[i], l->rank, l->dims, l->strides, dnnl_f32, l->tag);
        d->of[i] = d->fine ? look(&d->held[i]) : NULL;
    }
}

static void drop_all(descriptors *d)
{
    for (int i = 0; i < 4; i++)
        drop_held(&d->held[i]);
}

/* result = scale (what is computed), in version 2 with the bits of its own scales. */
static dnnl_status_t scale_by(dnnl_primitive_attr_t attr, dnnl_post_ops_t after, float scale)
{
#if DNNL_VERSION_MAJOR == 2
    (void)after;
    return dnnl_primitive_attr_set_output_scales(attr, 1, 0, &scale);
#else
    (void)attr;
    return dnnl_post_ops_append_eltwise(after, dnnl_eltwise_linear, scale, 0.0f);
#endif
}

static dnnl_status_t add_to(dnnl_post_ops_t after)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_post_ops_append_sum(after, 1.0f);
#else
    return dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef);
#endif
}

/* Scratch memory is the user's; the result is scaled, or added to what is there. NULL: no memory. */
static dnnl_primitive_attr_t attributes(float scale, bool adds)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t after = NULL;
    if (ebb_dnnl_engine() == NULL || !has_room() ||
        dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    dnnl_status_t got = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (got == dnnl_success && (adds || scale != 1.0f)) {
        got = dnnl_post_ops_create(&after);
        if (got == dnnl_success && scale != 1.0f)
            got = scale_by(attr, after, scale);
        if (got == dnnl_success && adds)
            got = add_to(after);
        if (got == dnnl_success)
            got = dnnl_primitive_attr_set_post_ops(attr, after);
        if (after != NULL)
            dnnl_post_ops_destroy(after);
    }
    if (got == dnnl_success)
        return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

static dnnl_status_t create_product(dnnl_primitive_desc_t *made, const descriptors *d,
                                    const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR == 2
    dnnl_matmul_desc_t o;
    dnnl_status_t got = dnnl_matmul_desc_init(&o, d->of[0], d->of[1], d->of[2], d->of[3]);
    return got == dnnl_success ? dnnl_primitive_desc_create(made, &o, attr, ebb_dnnl_engine(), NULL)
                               : got;
#else
    return dnnl_matmul_primitive_desc_create(made, ebb_dnnl_engine(), d->of[0], d->of[1], d->of[2],
                                             d->of[3], attr);
#endif
}

static dnnl_status_t create_forward(dnnl_primitive_desc_t *made, const descriptors *d,
                                    const ebb_dnnl_windows *w, const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR == 2
    dnnl_convolution_desc_t o;
    dnnl_status_t got = dnnl_dilated_convolution_forward_desc_init(
        &o, dnnl_forward_training, dnnl_convolution_direct, d->of[0], d->of[1], d->of[2], d->of[3],
        w->stride, w->dilation, w->begin, w->end);
    return got == dnnl_success ? dnnl_primitive_desc_create(made, &o, attr, ebb_dnnl_engine(), NULL)
                               : got;
#else
    return dnnl_convolution_forward_primitive_desc_create(
        made, ebb_dnnl_engine(), dnnl_forward_training, dnnl_convolution_direct, d->of[0], d->of[1],
        d->of[2], d->of[3], w->stride, w->dilation, w->begin, w->end, attr);
#endif
}

static dnnl_status_t create_backward(dnnl_primitive_desc_t *made, bool by_data,
                                     const descriptors *d, const ebb_dnnl_windows *w,
                                     const_dnnl_primitive_attr_t attr,
                                     const_dnnl_primitive_desc_t hint)
{
#if DNNL_VERSION_MAJOR == 2
    dnnl_convolution_desc_t o;
    dnnl_status_t got = by_data ? dnnl_dilated_convolution_backward_data_desc_init(
                                      &o, dnnl_convolution_direct, d->of[0], d->of[1], d->of[3],
                                      w->stride, w->dilation, w->begin, w->end)
                                : dnnl_dilated_convolution_backward_weights_desc_init(
                                      &o, dnnl_convolution_direct, d->of[0], d->of[1], NULL,
                                      d->of[3], w->stride, w->dilation, w->begin, w->end);
    return got == dnnl_success ? dnnl_primitive_desc_create(made, &o, attr, ebb_dnnl_engine(), hint)
                               : got;
#else
    return by_data ? dnnl_convolution_backward_data_primitive_desc_create(
                         made, ebb_dnnl_engine(), dnnl_convolution_direct, d->of[0], d->of[1],
                         d->of[3], w->stride, w->dilation, w->begin, w->end, hint, attr)
                   : dnnl_convolution_backward_weights_primitive_desc_create(
                         made, ebb_dnnl_engine(), dnnl_convolution_direct, d->of[0], d->of[1], NULL,
                         d->of[3], w->stride, w->dilation, w->begin, w->end, hint, attr);
#endif
}

static dnnl_status_t create_pool(dnnl_primitive_desc_t *made, dnnl_alg_kind_t kind,
                                 const descriptors *d, const ebb_dnnl_windows *w,
                                 const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR == 2
    dnnl_pooling_desc_t o;
    dnnl_status_t got =
        dnnl_pooling_forward_desc_init(&o, dnnl_forward_inference, kind, d->of[0], d->of[3],
                                       w->stride, w->kernel, w->begin, w->end);
    return got == dnnl_success ? dnnl_primitive_desc_create(made, &o, attr, ebb_dnnl_engine(), NULL)
                               : got;
#else
    return dnnl_pooling_forward_primitive_desc_create(
        made, ebb_dnnl_engine(), dnnl_forward_inference, kind, d->of[0], d->of[3], w->stride,
        w->kernel, w->dilation, w->begin, w->end, attr);
#endif
}

/* ---- operations ---- */

static const char *why_not(dnnl_status_t got)
{
    return got == dnnl_success         ? NULL
           : got == dnnl_out_of_memory ? out_of_memory
                                       : "oneDNN has no kernel for this";
}

/* The rest of a description: gives back what it needed. */
static const char *described(ebb_dnnl_plan *plan, dnnl_status_t got, descriptors *d,
                             dnnl_primitive_attr_t attr)
{
    drop_all(d);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    if (got != dnnl_success)
        plan->descriptor = NULL;
    return why_not(got);
}

const char *ebb_dnnl_describe_product(ebb_dnnl_plan *plan, const ebb_dnnl_layout *a,
                                      const ebb_dnnl_layout *b, const ebb_dnnl_layout *bias,
                                      const ebb_dnnl_layout *out, float alpha, bool adds)
{
    descriptors d;
    hold_all(&d, (const ebb_dnnl_layout *const[]){a, b, bias, out});
    dnnl_primitive_attr_t attr = d.fine ? attributes(alpha, adds) : NULL;
    dnnl_status_t got = !d.fine        ? dnnl_unimplemented
                        : attr == NULL ? dnnl_out_of_memory
                                       : create_product(&plan->descriptor, &d, attr);
    return described(plan, got, &d, attr);
}

const char *ebb_dnnl_describe_conv(ebb_dnnl_plan *plan, ebb_dnnl_conv_kind kind,
                                   const ebb_dnnl_layout *wide, const ebb_dnnl_layout *weight,
                                   const ebb_dnnl_layout *bias, const ebb_dnnl_layout *narrow,
                                   const ebb_dnnl_windows *windows)
{
    descriptors d;
    dnnl_primitive_desc_t forward = NULL; // the hint of a backward one
    hold_all(&d, (const ebb_dnnl_layout *const[]){wide, weight, bias, narrow});
    dnnl_primitive_attr_t attr = d.fine ? attributes(1.0f, false) : NULL;
    dnnl_status_t got = !d.fine        ? dnnl_unimplemented
                        : attr == NULL ? dnnl_out_of_memory
                                       : create_forward(&forward, &d, windows, attr);
    if (kind == EBB_DNNL_FORWARD) {
        plan->descriptor = forward;
        return described(plan, got, &d, attr);
    }
    if (got == dnnl_success && !has_room())
        got = dnnl_out_of_memory;
    if (got == dnnl_success)
        got = create_backward(&plan->descriptor, kind == EBB_DNNL_BY_DATA, &d, windows, attr,
                              forward);
    if (forward != NULL)
        dnnl_primitive_desc_destroy(forward);
    return described(plan, got, &d, attr);
}

const char *ebb_dnnl_describe_pool(ebb_dnnl_plan *plan, bool most, bool padded,
                                   const ebb_dnnl_layout *from, const ebb_dnnl_layout *to,
                                   const ebb_dnnl_windows *windows)
{
    descriptors d;
    dnnl_alg_kind_t kind = most     ? dnnl_pooling_max
                           : padded ? dnnl_pooling_avg_include_padding
                                    : dnnl_pooling_avg_exclude_padding;
    hold_all(&d, (const ebb_dnnl_layout *const[]){from, NULL, NULL, to});
    dnnl_primitive_attr_t attr = d.fine ? attributes(1.0f, false) : NULL;
    dnnl_status_t got = !d.fine        ? dnnl_unimplemented
                        : attr == NULL ? dnnl_out_of_memory
                                       : create_pool(&plan->descriptor, kind, &d, windows, attr);
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
    descriptors d;
    ebb_dnnl_descriptor inner =
        dnnl_primitive_desc_query_md(plan->descriptor, dnnl_query_exec_arg_md, arg);
    if (inner == NULL || plan->count == EBB_DNNL_PORTS)
        return "oneDNN does not know this operand";
    ebb_dnnl_port *port = &plan->port[plan->count++];
    *port = (ebb_dnnl_port){.arg = arg, .output = output, .index = index, .outer = *outer};
    port->inner = inner;
    port->inner_bytes = dnnl_memory_desc_get_size(inner);
    hold_all(&d, (const ebb_dnnl_layout *const[]){outer, NULL, NULL, NULL});
    port->copied = d.fine && dnnl_memory_desc_equal(d.of[0], inner) == 0;
    drop_all(&d);
    if (!d.fine)
        return out_of_memory;
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

/* The reorder that a copied operand needs. */
static const char *reorder_of(dnnl_primitive_desc_t *reorder, const ebb_dnnl_port *port)
{
    descriptors d;
    hold_all(&d, (const ebb_dnnl_layout *const[]){&port->outer, NULL, NULL, NULL});
    dnnl_primitive_attr_t attr = d.fine ? attributes(1.0f, port->adds) : NULL;
    ebb_dnnl_descriptor from = port->output ? port->inner : d.of[0];
    ebb_dnnl_descriptor to = port->output ? d.of[0] : port->inner;
    dnnl_status_t got = attr == NULL
                            ? dnnl_out_of_memory
                            : dnnl_reorder_primitive_desc_create(reorder, from, ebb_dnnl_engine(),
                                                                 to, ebb_dnnl_engine(), attr);
    drop_all(&d);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    return got == dnnl_success || got == dnnl_out_of_memory
               ? why_not(got)
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
        const char *why = reorder_of(&reorder, &plan->port[p]);
        if (why != NULL)
            return why;
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

typedef struct plans { /* of one call, one after the other in the same workspace */
    uint32_t count;
    ebb_dnnl_plan part[EBB_DNNL_PARTS];
    size_t bytes; /* of a slot */
    uint32_t slots;
} plans;

static void drop_plans(plans *all)
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
        size_t image = (size_t)port->outer.strides[0] * sizeof(float);
        if (port->images) {
            port->start = (size_t)first * image;
            port->step = (size_t)images * image;
        } else if (port->output) {
            port->adds = true;
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

static const char *make_all_parts(plans *all, const ebb_call *call, ebb_dnnl_make make)
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
        drop_plans(all);
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

/* How many pieces of a plan can be computed at once. */
static int64_t pieces_of(const ebb_dnnl_plan *plan)
{
    const int64_t pieces = plan->pieces > 1 ? plan->pieces : adds_up(plan) ? 1 : plan->repeat;
    return pieces < 1 ? 1 : pieces < PIECES ? pieces : PIECES;
}

static uint32_t slots_of(const plans *all, const ebb_call *call)
{
    const int64_t pieces = pieces_of(&all->part[0]);
    int64_t work = 0;
    for (uint32_t i = 0; i < call->input_count; i++)
        work += (int64_t)(call->in[i].bytes / sizeof(float));
    if (!call->deterministic || work <= EBB_PARALLEL_WORTH)
        return 1;
    return (uint32_t)(pieces < ebb_threads() ? pieces : ebb_threads());
}

static const char *make_plans(plans *all, const ebb_call *call, ebb_dnnl_make make)
{
    memset(all, 0, sizeof *all);
    const ebb_threads_before before = enter(call);
    const char *why = make_all_parts(all, call, make);
    ebb_threads_leave(before);
    all->slots = slots_of(all, call);
    if (why != NULL)
        drop_plans(all);
    return why;
}

/* ---- the phases ---- */

/* What oneDNN gets no memory for is refused by workspace(), not left to a slower kernel: a step is
 * the same whenever it is planned. */
const char *ebb_dnnl_declines(const ebb_call *call, ebb_dnnl_make make)
{
    plans all;
    const char *why = make_plans(&all, call, make);
    drop_plans(&all);
    return why != out_of_memory ? why : NULL;
}

ebb_status ebb_dnnl_workspace(const ebb_call *call, size_t *bytes, ebb_dnnl_make make)
{
    plans all;
    const char *why = make_plans(&all, call, make);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    drop_plans(&all);
    return ebb_size_mul(bytes, all.bytes, all.slots)
               ? NULL
               : ebb_call_error(call, "the scratch memory is too large to address");
}

typedef struct move { /* an operand at run time */
    ebb_dnnl_port port;
    dnnl_memory_t outer, inner; /* inner NULL: not copied */
    dnnl_primitive_t reorder;
} move;

typedef struct ready {    /* a plan at run time */
    dnnl_stream_t stream; /* its own: other programs run at the same time */
    dnnl_primitive_t primitive;
    uint32_t count;
    move move[EBB_DNNL_PORTS];
    dnnl_memory_t scratch;
    size_t scratch_offset;
    int64_t repeat, pieces;
} ready;

typedef struct runner {
    uint32_t slots;
    size_t bytes; /* of a slot */
    ready part[][EBB_DNNL_PARTS];
} runner;

static bool make_memory(dnnl_memory_t *memory, ebb_dnnl_descriptor md)
{
    return dnnl_memory_create(memory, md, ebb_dnnl_engine(), DNNL_MEMORY_NONE) == dnnl_success;
}

static const char *make_primitive(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t of)
{
    dnnl_status_t got = has_room() ? dnnl_primitive_create(primitive, of) : dnnl_out_of_memory;
    return got == dnnl_success         ? NULL
           : got == dnnl_out_of_memory ? out_of_memory
                                       : "oneDNN could not create the primitive";
}

static const char *make_move(move *m, const ebb_dnnl_port *port)
{
    descriptors d;
    m->port = *port;
    hold_all(&d, (const ebb_dnnl_layout *const[]){&port->outer, NULL, NULL, NULL});
    const bool made = d.fine && make_memory(&m->outer, d.of[0]);
    drop_all(&d);
    if (!made)
        return out_of_memory;
    if (!port->copied)
        return NULL;
    dnnl_primitive_desc_t reorder = NULL;
    const char *why = reorder_of(&reorder, port);
    if (why != NULL)
        return why;
    why =
        make_memory(&m->inner, port->inner) ? make_primitive(&m->reorder, reorder) : out_of_memory;
    dnnl_primitive_desc_destroy(reorder);
    return why;
}

static const char *make_ready(ready *r, const ebb_dnnl_plan *plan)
{
    const dnnl_dims_t scratch = {(dnnl_dim_t)plan->scratch_bytes};
    r->scratch_offset = plan->scratch_offset;
    r->repeat = plan->repeat > 0 ? plan->repeat : 1;
    r->pieces = plan->pieces;
    if (dnnl_stream_create(&r->stream, ebb_dnnl_engine(), dnnl_stream_default_flags) !=
        dnnl_success)
        return out_of_memory;
    const char *why = make_primitive(&r->primitive, plan->descriptor);
    while (why == NULL && r->count < plan->count) {
        why = make_move(&r->move[r->count], &plan->port[r->count]);
        r->count++;
    }
    if (why != NULL || plan->scratch_bytes == 0)
        return why;
    held h = {0};
    bool made =
        hold(&h, 1, scratch, scratch, dnnl_u8, dnnl_a) && make_memory(&r->scratch, look(&h));
    drop_held(&h);
    return made ? NULL : out_of_memory;
}

static const char *make_runner(runner *all, const plans *from)
{
    const char *why = NULL;
    all->slots = from->slots;
    all->bytes = from->bytes;
    for (uint32_t slot = 0; slot < all->slots; slot++)
        for (uint32_t i = 0; why == NULL && i < from->count; i++)
            why = make_ready(&all->part[slot][i], &from->part[i]);
    return why;
}

static ebb_status prepare(ebb_call *call, const plans *from)
{
    size_t need, size;
    runner *all = NULL;
    if (!ebb_size_mul(&need, from->bytes, from->slots) || need > call->workspace_bytes)
        return ebb_call_error(call,
                              "needs %zu bytes of workspace and has %zu; was the number of "
                              "threads changed after planning?",
                              need, call->workspace_bytes);
    if (ebb_size_mul(&size, from->slots, sizeof all->part[0]) &&
        ebb_size_add(&size, size, sizeof *all))
        all = ebb_alloc(size);
    if (all == NULL)
        return ebb_error_memory();
    memset(all, 0, size);
    call->state = all;
    const ebb_threads_before before = enter(call);
    const char *why = make_runner(all, from);
    ebb_threads_leave(before);
    if (why == NULL)
        return NULL;
    ebb_dnnl_release(call);
    return ebb_call_error(call, "%s", why);
}

ebb_status ebb_dnnl_prepare(ebb_call *call, ebb_dnnl_make make)
{
    plans all;
    const char *why = make_plans(&all, call, make);
    if (why != NULL)
        return ebb_call_error(call, "%s", why);
    ebb_status status = prepare(call, &all);
    drop_plans(&all);
    return status;
}

static void release(ready *r)
{
    for (uint32_t p = 0; p < r->count; p++) {
        if (r->move[p].outer != NULL)
            dnnl_memory_destroy(r->move[p].outer);
        if (r->move[p].inner != NULL)
            dnnl_memory_destroy(r->move[p].inner);
        if (r->move[p].reorder != NULL)
            dnnl_primitive_destroy(r->move[p].reorder);
    }
    if (r->scratch != NULL)
        dnnl_memory_destroy(r->scratch);
    if (r->primitive != NULL)
        dnnl_primitive_destroy(r->primitive);
    if (r->stream != NULL)
        dnnl_stream_destroy(r->stream);
}

void ebb_dnnl_release(ebb_call *call)
{
    runner *all = call->state;
    for (uint32_t slot = 0; all != NULL && slot < all->slots; slot++)
        for (uint32_t i = 0; i < EBB_DNNL_PARTS; i++)
            release(&all->part[slot][i]);
    ebb_free(all);
    call->state = NULL;
}

static dnnl_status_t reorder(const ready *r, const move *m)
{
    bool back = m->port.output;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, back ? m->inner : m->outer},
                              {DNNL_ARG_TO, back ? m->outer : m->inner},
                              {DNNL_ARG_SCRATCHPAD, r->scratch}};
    return dnnl_primitive_execute(m->reorder, r->stream, r->scratch == NULL ? 2 : 3, args);
}

static const ebb_operand *operand_of(const ebb_call *call, const ebb_dnnl_port *port)
{
    return &(port->output ? call->out : call->in)[port->index];
}

/* Points the handles at memory, once; what moves from run to run is set again by run_once(). */
static dnnl_status_t bind(const ready *r, char *workspace)
{
    dnnl_status_t got = dnnl_success;
    if (r->scratch != NULL)
        got = dnnl_memory_set_data_handle(r->scratch, workspace + r->scratch_offset);
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++)
        if (r->move[p].inner != NULL)
            got = dnnl_memory_set_data_handle(r->move[p].inner, workspace + r->move[p].port.offset);
    return got;
}

/* Run i of a piece; first: of this slot. */
static dnnl_status_t run_once(const ready *r, const ebb_call *call, int64_t piece, int64_t i,
                              bool first)
{
    dnnl_exec_arg_t args[EBB_DNNL_PORTS + 1];
    dnnl_status_t got = dnnl_success;
    int count = 0;
    if (r->scratch != NULL)
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, r->scratch};
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++) {
        const move *m = &r->move[p];
        const ebb_dnnl_port *port = &m->port;
        char *data = operand_of(call, port)->data;
        args[count++] = (dnnl_exec_arg_t){port->arg, m->inner != NULL ? m->inner : m->outer};
        const bool stays = port->step == 0 && (port->piece == 0 || i > 0);
        if (!first && stays)
            continue;
        data += port->start + (size_t)i * port->step + (size_t)piece * port->piece;
        got = dnnl_memory_set_data_handle(m->outer, data);
        if (got == dnnl_success && m->inner != NULL && !port->output)
            got = reorder(r, m);
    }
    if (got == dnnl_success)
        got = dnnl_primitive_execute(r->primitive, r->stream, count, args);
    for (uint32_t p = 0; got == dnnl_success && p < r->count; p++)
        if (r->move[p].port.output && r->move[p].inner != NULL)
            got = reorder(r, &r->move[p]);
    return got;
}

/* What falls to a slot of part k: every slots-th piece, with all its runs, or every slots-th run. */
static dnnl_status_t run_slot(const runner *all, const ebb_call *call, uint32_t k, uint32_t slot)
{
    const ready *r = &all->part[slot][k];
    const bool by_piece = r->pieces > 1;
    const int64_t jobs = by_piece ? r->pieces : r->repeat, runs = by_piece ? r->repeat : 1;
    dnnl_status_t got = bind(r, (char *)call->workspace + slot * all->bytes);
    for (int64_t job = slot; got == dnnl_success && job < jobs; job += all->slots)
        for (int64_t i = 0; got == dnnl_success && i < runs; i++)
            got = run_once(r, call, by_piece ? job : 0, by_piece ? i : job, job == slot && i == 0);
    return got == dnnl_success ? dnnl_stream_wait(r->stream) : got;
}

static dnnl_status_t run_part(const runner *all, const ebb_call *call, uint32_t k)
{
    dnnl_status_t got[PIECES] = {dnnl_success};
    if (all->slots == 1) { // oneDNN's own threads, unless it may have one only
        const ebb_threads_before before = enter(call);
        got[0] = run_slot(all, call, k, 0);
        ebb_threads_leave(before);
        return got[0];
    }
    EBB_PARALLEL_FOR(EBB_PARALLEL_WORTH + 1)
    for (uint32_t slot = 0; slot < all->slots; slot++) {
        const ebb_threads_before before = ebb_threads_enter(1);
        got[slot] = run_slot(all, call, k, slot);
        ebb_threads_leave(before);
    }
    for (uint32_t slot = 1; got[0] == dnnl_success && slot < all->slots; slot++)
        got[0] = got[slot];
    return got[0];
}

ebb_status ebb_dnnl_run(const ebb_call *call)
{
    const runner *all = call->state;
    const ready *first = &all->part[0][0];
    dnnl_status_t got = has_crumbs() ? dnnl_success : dnnl_out_of_memory;
    for (uint32_t p = 0; p < first->count; p++)
        if (first->move[p].port.adds) {
            const ebb_operand *sum = operand_of(call, &first->move[p].port);
            memset(sum->data, 0, sum->bytes);
        }
    for (uint32_t k = 0; k < EBB_DNNL_PARTS && all->part[0][k].primitive != NULL; k++)
        if (got == dnnl_success)
            got = run_part(all, call, k);
    if (got == dnnl_success)
        return NULL;
    return got == dnnl_out_of_memory
               ? ebb_call_error(call, "%s", out_of_memory)
               : ebb_call_error(call, "oneDNN failed with status %d", (int)got);
}

/* ---- products in the midst of other loops ---- */

static dnnl_status_t multiply(const ebb_dnnl_matrix *a, const ebb_dnnl_matrix *b, int64_t first,
                              int64_t m, int64_t n, int64_t k, float alpha, float beta, float *c,
                              int64_t row)
{
    return dnnl_sgemm(a->turned ? 'T' : 'N', b->turned ? 'T' : 'N', m, n, k, alpha,
                      a->data + first * (a->turned ? 1 : a->row), a->row, b->data, b->row, beta,
                      c + first * row, row);
}

/* In pieces of some rows, each of which one thread computes. */
static dnnl_status_t multiply_in_pieces(const ebb_dnnl_matrix *a, const ebb_dnnl_matrix *b,
                                        int64_t m, int64_t n, int64_t k, float alpha, float beta,
                                        float *c, int64_t row)
{
    const int64_t rows = (m + PIECES - 1) / PIECES;
    dnnl_status_t got[PIECES] = {dnnl_success};
    EBB_PARALLEL_FOR(m * n)
    for (int64_t first = 0; first < m; first += rows) {
        const ebb_threads_before before = ebb_threads_enter(1);
        got[first / rows] =
            multiply(a, b, first, m - first < rows ? m - first : rows, n, k, alpha, beta, c, row);
        ebb_threads_leave(before);
    }
    for (int i = 1; got[0] == dnnl_success && i < PIECES; i++)
        got[0] = got[i];
    return got[0];
}

/* Its code is made when the first product asks for it. */
ebb_status ebb_dnnl_product(const ebb_call *call, const ebb_dnnl_matrix *a,
                            const ebb_dnnl_matrix *b, int64_t m, int64_t n, int64_t k, float alpha,
                            float beta, float *c, int64_t row)
{
    dnnl_status_t got = !has_room() ? dnnl_out_of_memory
                        : call->deterministic
                            ? multiply_in_pieces(a, b, m, n, k, alpha, beta, c, row)
                            : multiply(a, b, 0, m, n, k, alpha, beta, c, row);
    if (got == dnnl_success)
        return NULL;
    if (got == dnnl_out_of_memory)
        return ebb_call_error(call, "%s", out_of_memory);
    return ebb_call_error(call, "oneDNN did not multiply [%lld, %lld] by [%lld, %lld]",
                          (long long)m, (long long)k, (long long)k, (long long)n);
}
