/* version.c: see version.h. */
#include "kernels/fast/onednn/version.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "kernels/fast is written for oneDNN 2.6 and 3"
#endif

/* ---- memory ---- */

const char ebb_dnnl_no_memory[] = "oneDNN gets no memory";

/* oneDNN does not check what its code generator gets: without memory it writes through a null
 * pointer, and elsewhere it throws through C. Neither can be caught, so what one of its calls may
 * need is asked for before, and given back to be found again. The most that one call took is 2 MiB,
 * for the code of a reorder. Another thread may take it meanwhile. */
bool ebb_dnnl_has_room(void)
{
    const size_t bytes = (size_t)16 << 20;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* To run a primitive takes some hundred bytes, which a block just freed surely has. */
bool ebb_dnnl_has_crumbs(void)
{
    void *crumbs = malloc((size_t)32 << 10);
    free(crumbs);
    return crumbs != NULL;
}

/* ---- one engine ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t the_engine;

/* The code of products is made when the first of them runs, by whichever thread, and cannot fail
 * there but by ending the process. */
static dnnl_status_t make_code_of_products(void)
{
    static const float ones[16] = {1};
    float product[16];
    return !ebb_dnnl_has_room() ? dnnl_out_of_memory
                                : dnnl_sgemm('N', 'N', 4, 4, 4, 1, ones, 4, ones, 4, 0, product, 4);
}

static void start(void)
{
    if (make_code_of_products() != dnnl_success || !ebb_dnnl_has_room() ||
        dnnl_engine_create(&the_engine, dnnl_cpu, 0) != dnnl_success)
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

/* ---- what the versions name differently ---- */

#if DNNL_VERSION_MAJOR == 2
ebb_dnnl_descriptor ebb_dnnl_look(const ebb_dnnl_held *h)
{
    return h;
}

bool ebb_dnnl_hold(ebb_dnnl_held *h, int rank, const dnnl_dims_t dims, const dnnl_dims_t strides,
                   dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return (tag == 0 ? dnnl_memory_desc_init_by_strides(h, rank, dims, dtype, strides)
                     : dnnl_memory_desc_init_by_tag(h, rank, dims, dtype, tag)) == dnnl_success;
}

void ebb_dnnl_drop(ebb_dnnl_held *h)
{
    (void)h;
}
#else
ebb_dnnl_descriptor ebb_dnnl_look(const ebb_dnnl_held *h)
{
    return *h;
}

bool ebb_dnnl_hold(ebb_dnnl_held *h, int rank, const dnnl_dims_t dims, const dnnl_dims_t strides,
                   dnnl_data_type_t dtype, dnnl_format_tag_t tag)
{
    return (tag == 0 ? dnnl_memory_desc_create_with_strides(h, rank, dims, dtype, strides)
                     : dnnl_memory_desc_create_with_tag(h, rank, dims, dtype, tag)) == dnnl_success;
}

void ebb_dnnl_drop(ebb_dnnl_held *h)
{
    if (*h != NULL)
        dnnl_memory_desc_destroy(*h);
}
#endif

static dnnl_data_type_t data_type_of(ebb_dtype dtype)
{
    return dtype == EBB_F32    ? dnnl_f32
           : dtype == EBB_BF16 ? dnnl_bf16
           : dtype == EBB_F16  ? dnnl_f16
                               : dnnl_data_type_undef;
}

bool ebb_dnnl_multiplies(ebb_dtype dtype)
{
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa();
#if DNNL_VERSION_MAJOR == 2
    const unsigned f16 = ~0u; // none
#else
    const unsigned f16 = dnnl_cpu_isa_avx512_core_fp16;
#endif
    const unsigned asked = dtype == EBB_BF16 ? dnnl_cpu_isa_avx512_core_bf16 : f16;
    return (has & asked) == asked;
}

void ebb_dnnl_hold_all(ebb_dnnl_descriptors *d, const ebb_dnnl_layout *const *layouts)
{
    memset(d, 0, sizeof *d);
    d->fine = true;
    d->dtype = EBB_F32;
    for (int i = 0; i < 4; i++) {
        const ebb_dnnl_layout *l = layouts[i];
        if (l == NULL)
            continue;
        d->dtype = l->dtype != EBB_F32 ? l->dtype : d->dtype;
        d->fine = d->fine && ebb_dnnl_hold(&d->held[i], l->rank, l->dims, l->strides,
                                           data_type_of(l->dtype), l->tag);
        d->of[i] = d->fine ? ebb_dnnl_look(&d->held[i]) : NULL;
    }
}

void ebb_dnnl_drop_all(ebb_dnnl_descriptors *d)
{
    for (int i = 0; i < 4; i++)
        ebb_dnnl_drop(&d->held[i]);
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

dnnl_primitive_attr_t ebb_dnnl_attributes(float scale, bool adds)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t after = NULL;
    if (ebb_dnnl_engine() == NULL || !ebb_dnnl_has_room() ||
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

dnnl_status_t ebb_dnnl_create_product(dnnl_primitive_desc_t *made, const ebb_dnnl_descriptors *d,
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

dnnl_status_t ebb_dnnl_create_forward(dnnl_primitive_desc_t *made, const ebb_dnnl_descriptors *d,
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

dnnl_status_t ebb_dnnl_create_backward(dnnl_primitive_desc_t *made, bool by_data,
                                       const ebb_dnnl_descriptors *d, const ebb_dnnl_windows *w,
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

dnnl_status_t ebb_dnnl_create_pool(dnnl_primitive_desc_t *made, dnnl_alg_kind_t kind,
                                   const ebb_dnnl_descriptors *d, const ebb_dnnl_windows *w,
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

const char *ebb_dnnl_why_not(dnnl_status_t got)
{
    return got == dnnl_success         ? NULL
           : got == dnnl_out_of_memory ? ebb_dnnl_no_memory
                                       : "oneDNN has no kernel for this";
}
