/* fold-norm: batch norm that uses its running statistics is a scale and a shift of each channel, which the
 * layer before it can have in its weight.
 *
 *   before   y = Conv(x, W, b)   z = BatchNormalization(y, s, t, mean, var)
 *   after    z = Conv(x, W k, (b - mean) k + t)        k = s / sqrt(var + epsilon), for each channel
 *
 * For a model that is to be used, not trained: the scale is gone for good. Declines where y is read
 * elsewhere, and where a weight is.
 */
#include "passes/common.h"
#include "passes/parameters/noted.h"

#include <math.h>

typedef struct site {
    ebb_node layer, norm;
    ebb_value weight, bias; /* bias: none where there is none */
    int axis;               /* of the weight: the channels that come out */
    int64_t channels;
    const ebb_tensor *parts[4]; /* scale, shift, mean, variance */
    double epsilon;
} site;

static const ebb_tensor *floats_of(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return v.i != 0 && (info->flags & EBB_IS_INITIALIZER) != 0 && info->type->dtype == EBB_F32 &&
                   info->tensor != NULL && info->tensor->data != NULL
               ? info->tensor
               : NULL;
}

/* NULL: it can be folded. */
static const char *read_site(const ebb_graph *g, ebb_node norm, site *s)
{
    const ebb_attrs attrs = ebb_node_attrs(g, norm);
    *s = (site){.norm = norm,
                .layer = ebb_value_of(g, ebb_in(g, norm, 0))->producer,
                .epsilon = ebb_attr_float(&attrs, "epsilon", 1e-5)};
    const ebb_op op = s->layer.i != 0 ? ebb_node_of(g, s->layer)->op : EBB_OP_UNKNOWN;
    if (op != EBB_OP_CONV && op != EBB_OP_CONV_TRANSPOSE && op != EBB_OP_GEMM)
        return "no Conv, ConvTranspose or Gemm is before it";
    if (ebb_attr_int(&attrs, "training_mode", 0) != 0 || ebb_node_of(g, norm)->out_count > 1)
        return "it is in training mode";
    if (ebb_only_user(g, ebb_out(g, s->layer, 0)).i != norm.i)
        return "what it reads is read elsewhere";
    s->weight = ebb_in(g, s->layer, 1);
    s->bias = ebb_in(g, s->layer, 2);
    if (floats_of(g, s->weight) == NULL || ebb_only_user(g, s->weight).i != s->layer.i ||
        (s->bias.i != 0 &&
         (floats_of(g, s->bias) == NULL || ebb_only_user(g, s->bias).i != s->layer.i)))
        return "the weight before it is not its own, or not float32";
    const ebb_attrs own = ebb_node_attrs(g, s->layer);
    const ebb_type *type = ebb_value_of(g, s->weight)->type;
    s->axis =
        op == EBB_OP_CONV_TRANSPOSE || (op == EBB_OP_GEMM && ebb_attr_int(&own, "transB", 0) == 0);
    if ((op == EBB_OP_CONV_TRANSPOSE && ebb_attr_int(&own, "group", 1) != 1) ||
        (op == EBB_OP_GEMM &&
         (ebb_attr_float(&own, "alpha", 1) != 1 || ebb_attr_float(&own, "beta", 1) != 1)) ||
        type->rank < 2)
        return "the layer before it has groups or factors of its own";
    s->channels = type->dims[s->axis];
    for (int i = 0; i < 4; i++) {
        ebb_value v = ebb_in(g, norm, (uint32_t)i + 1);
        s->parts[i] = floats_of(g, v);
        if (s->parts[i] == NULL || ebb_value_of(g, v)->type->rank != 1 ||
            ebb_value_of(g, v)->type->dims[0] != s->channels)
            return "its scale or statistics are not known";
    }
    if (s->bias.i != 0 && (ebb_value_of(g, s->bias)->type->rank != 1 ||
                           ebb_value_of(g, s->bias)->type->dims[0] != s->channels))
        return "the bias before it is not one number for each channel";
    return NULL;
}

static ebb_status give(ebb_edit *e, ebb_value v, const float *numbers)
{
    ebb_graph *g = e->g;
    size_t bytes = ebb_value_of(g, v)->tensor->bytes;
    void *copy = ebb_arena_alloc(&g->model->arena, bytes + 1);
    EBB_GOT(copy);
    return ebb_value_point(g, v, memcpy(copy, numbers, bytes));
}

static double factor_of(const site *s, int64_t channel)
{
    return ebb_tensor_double(s->parts[0], channel) /
           sqrt(ebb_tensor_double(s->parts[3], channel) + s->epsilon);
}

static ebb_status fold(ebb_edit *e, const site *s)
{
    ebb_graph *g = e->g;
    const ebb_type type = *ebb_value_of(g, s->weight)->type;
    const ebb_tensor *w = floats_of(g, s->weight);
    const ebb_tensor *b = s->bias.i != 0 ? floats_of(g, s->bias) : NULL;
    int64_t count, inner = 1;
    if (!ebb_type_elements(&type, &count))
        return NULL;
    for (int i = s->axis + 1; i < type.rank; i++)
        inner *= type.dims[i];
    float *scaled = EBB_SCRATCH(e, float, (size_t)count + 1);
    float *shift = EBB_SCRATCH(e, float, (size_t)s->channels + 1);
    EBB_GOT(scaled && shift);
    for (int64_t i = 0; i < count; i++)
        scaled[i] = (float)(ebb_tensor_double(w, i) * factor_of(s, i / inner % s->channels));
    for (int64_t c = 0; c < s->channels; c++)
        shift[c] = (float)(((b != NULL ? ebb_tensor_double(b, c) : 0) -
                            ebb_tensor_double(s->parts[2], c)) *
                               factor_of(s, c) +
                           ebb_tensor_double(s->parts[1], c));
    EBB_TRY(give(e, s->weight, scaled));
    if (s->bias.i != 0) {
        EBB_TRY(give(e, s->bias, shift));
    } else {
        ebb_value fresh;
        const ebb_type one = ebb_type_tensor(EBB_F32, 1, (const int64_t[]){s->channels});
        const char *name = ebb_arena_printf(e->scratch, "%s_bias", ebb_value_name(g, s->weight));
        EBB_TRY(ebb_graph_add_initializer(g, &fresh, name, &one, shift,
                                          (ebb_role)ebb_value_of(g, s->weight)->role));
        EBB_TRY(ebb_node_set_input(g, s->layer, 2, fresh));
    }
    EBB_TRY(ebb_props_set(g, &ebb_node_of(g, s->layer)->props, EBB_NORM_WITHIN, "1"));
    EBB_TRY(ebb_note(e, "%s goes into the weight of %s", ebb_node_label(g, s->norm),
                     ebb_node_label(g, s->layer)));
    ebb_applied(e);
    return ebb_edit_swap(e, s->norm, ebb_out(g, s->layer, 0));
}

static ebb_status run(ebb_edit *e)
{
    EBB_EACH_NODE(e->g, n) {
        site s;
        if (ebb_node_of(e->g, n)->op != EBB_OP_BATCH_NORMALIZATION)
            continue;
        const char *reason = read_site(e->g, n, &s);
        ebb_found(e);
        if (reason != NULL)
            EBB_TRY(ebb_skipped(e, n, reason));
        else
            EBB_TRY(fold(e, &s));
    }
    return NULL;
}

const ebb_pass ebb_pass_fold_norm = {
    .name = "fold-norm",
    .doc = "put batch norm with running statistics into the weights before it, for use",
    .exactness = EBB_ROUNDING,
    .run = run,
};
