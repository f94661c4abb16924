/* resizing.c: see resizing.h.
 *
 *     Upsample, Resize 10   (X, scales)                scales of Upsample 7: an attribute
 *     Resize 11 on          (X, roi?, scales?, sizes?)
 */
#include "kernels/call/move/resizing.h"

static uint32_t scales_at(const ebb_call *c)
{
    return c->op == EBB_OP_UPSAMPLE || c->version < 11 ? 1 : 2;
}

static bool has_sizes(const ebb_call *c)
{
    return scales_at(c) == 2 && ebb_call_has(c, 3) && ebb_elements(&c->in[3].type) > 0;
}

const char *ebb_resizing_misfit(const ebb_call *c)
{
    const ebb_type *x = &c->in[0].type;
    if (!ebb_dtype_is_float((ebb_dtype)x->dtype) && !ebb_dtype_is_integer((ebb_dtype)x->dtype))
        return "works on numbers only";
    if (c->out[0].type.rank != x->rank)
        return "the output differs in rank";
    uint32_t at = scales_at(c);
    int64_t entries = ebb_resize_entries(&c->attrs, x->rank);
    if (entries > EBB_MAX_RANK)
        return "axes names an axis twice";
    const ebb_attr *old = ebb_attr_find(&c->attrs, "scales");
    if (has_sizes(c))
        return ebb_elements(&c->in[3].type) == entries ? NULL : "sizes do not fit the axes";
    if (ebb_call_has(c, at))
        return ebb_elements(&c->in[at].type) == entries ? NULL : "scales do not fit the axes";
    return old != NULL && old->floats != NULL && (int64_t)old->count == entries
               ? NULL
               : "neither scales nor sizes are given";
}

ebb_resizing_inputs ebb_resizing_inputs_of(const ebb_call *c)
{
    ebb_resizing_inputs in = {-1, -1, -1};
    if (has_sizes(c))
        in.sizes = 3;
    else if (ebb_attr_find(&c->attrs, "scales") == NULL)
        in.scales = (int)scales_at(c);
    if (scales_at(c) == 2 && ebb_call_has(c, 1))
        in.roi = 1;
    return in;
}

void ebb_resizing_read(ebb_resize *r, const ebb_call *c)
{
    ebb_resize_read(r, &c->attrs, scales_at(c) == 1, &c->in[0].type, &c->out[0].type);
}

const char *ebb_resizing_roi_misfit(const ebb_resize *r, const ebb_call *c)
{
    const int roi = ebb_resizing_inputs_of(c).roi;
    if (r->transform != EBB_RESIZE_CROP || roi < 0 ||
        ebb_elements(&c->in[roi].type) == 2 * ebb_resize_entries(&c->attrs, r->rank))
        return NULL;
    return "roi has not two numbers for each axis";
}

ebb_status ebb_resizing_scale(ebb_resize *r, const ebb_call *c, ebb_resizing_number number)
{
    double scales[EBB_MAX_RANK], sizes[EBB_MAX_RANK], roi[2 * EBB_MAX_RANK];
    const ebb_resizing_inputs in = ebb_resizing_inputs_of(c);
    const ebb_attr *old = ebb_attr_find(&c->attrs, "scales");
    ebb_resize_values values = {.scales = scales};
    for (int64_t i = 0; i < ebb_resize_entries(&c->attrs, r->rank); i++) {
        if (in.sizes >= 0)
            sizes[i] = number(&c->in[in.sizes], i);
        else
            scales[i] = in.scales < 0 ? (double)old->floats[i] : number(&c->in[in.scales], i);
    }
    if (in.sizes >= 0)
        values.sizes = sizes;
    if (in.roi >= 0) {
        values.roi = roi;
        values.roi_count = ebb_elements(&c->in[in.roi].type);
        for (int64_t i = 0; i < values.roi_count && i < 2 * EBB_MAX_RANK; i++)
            roi[i] = number(&c->in[in.roi], i);
    }
    const char *why = ebb_resize_scale(r, &c->attrs, &values);
    return why != NULL ? ebb_call_error(c, "%s", why) : NULL;
}
