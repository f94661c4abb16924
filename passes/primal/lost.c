/* lost.c: what the exporter took out of a model for good, judged from what it left. */
#include "passes/primal/lost.h"

#include "passes/trainable.h"

typedef struct findings {
    const ebb_graph *g;
    ebb_arena *arena;
    ebb_lost *list;
    size_t count, capacity;
} findings;

const char *ebb_lost_name(ebb_lost_kind kind)
{
    static const char *const names[EBB_LOST_KIND_COUNT] = {"batch-norm", "sharing", "name", "tie"};
    return names[kind];
}

const char *ebb_lost_help(ebb_lost_kind kind)
{
    static const char *const helps[EBB_LOST_KIND_COUNT] = {
        "to train it export with optimize=False, or with do_constant_folding=False and "
        "training=TrainingMode.TRAINING",
        "`ebb rewrite` with --pass train-mode:split-shared=1 separates them",
        "export with do_constant_folding=False to keep names; --train 'PATTERN' trains them as "
        "they are",
        "export with the weight shared, or freeze one of them with --freeze 'PATTERN'",
    };
    return helps[kind];
}

static ebb_status add(findings *f, ebb_lost_kind kind, ebb_node n, ebb_value v, char *text)
{
    if (text == NULL ||
        !ebb_arena_grow(f->arena, &f->list, f->count, &f->capacity, sizeof *f->list))
        return ebb_error_memory();
    f->list[f->count++] = (ebb_lost){kind, n, v, text};
    return NULL;
}

/* ---- batch norm folded into convolutions ---- */

static bool is_activation(ebb_op op)
{
    return op == EBB_OP_RELU || op == EBB_OP_CLIP || op == EBB_OP_LEAKY_RELU ||
           op == EBB_OP_HARD_SWISH || op == EBB_OP_SIGMOID;
}

/* A file keeps a folded batch norm's name on the convolution's output only by chance; what remains
 * is convolutions with biases right before activations and no normalisation anywhere. */
static ebb_status find_folded_norms(findings *f)
{
    const ebb_graph *g = f->g;
    ebb_node first = EBB_NO_NODE;
    size_t suspects = 0;
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        if (ebb_op_has(info->op, EBB_STATISTICS) || ebb_op_has(info->op, EBB_ROWWISE) ||
            strstr(ebb_text(g, info->op_name), "Normalization") != NULL) {
            if (info->op != EBB_OP_SOFTMAX && info->op != EBB_OP_LOG_SOFTMAX &&
                info->op != EBB_OP_SOFTMAX_CROSS_ENTROPY_LOSS)
                return NULL;
        }
        if (info->op != EBB_OP_CONV || ebb_in(g, n, 2).i == 0 || ebb_out(g, n, 0).i == 0)
            continue;
        const ebb_value_info *y = ebb_value_of(g, ebb_out(g, n, 0));
        for (size_t i = 0; i < y->use_count; i++) {
            if (!is_activation(ebb_node_of(g, y->uses[i].node)->op))
                continue;
            first = suspects++ == 0 ? n : first;
            break;
        }
    }
    if (suspects == 0)
        return NULL;
    return add(
        f, EBB_LOST_BATCH_NORM, first, EBB_NO_VALUE,
        ebb_arena_printf(f->arena,
                         "%zu convolutions have a bias and an activation, and nothing is "
                         "normalised: batch norm may have been folded into them in inference "
                         "mode",
                         suspects));
}

/* ---- merged parameters ---- */

bool ebb_is_own_slot(const ebb_graph *g, ebb_use use)
{
    switch (ebb_node_of(g, use.node)->op) {
    case EBB_OP_CONV:
    case EBB_OP_CONV_TRANSPOSE:
    case EBB_OP_CONV_NHWC:
    case EBB_OP_CONV_TRANSPOSE_NHWC:
    case EBB_OP_GEMM:
        return use.slot == 2;
    case EBB_OP_BATCH_NORMALIZATION:
    case EBB_OP_BATCH_NORM_TRAINING:
        return use.slot >= 1 && use.slot <= 4;
    case EBB_OP_LAYER_NORMALIZATION:
    case EBB_OP_INSTANCE_NORMALIZATION:
    case EBB_OP_GROUP_NORMALIZATION:
    case EBB_OP_GROUP_NORM:
        return use.slot == 1 || use.slot == 2;
    case EBB_OP_RMS_NORM:
    case EBB_OP_RMS_NORMALIZATION:
        return use.slot == 1;
    case EBB_OP_ADD:
        return true;
    default:
        return false;
    }
}

static ebb_status find_merged(findings *f)
{
    const ebb_graph *g = f->g;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        int64_t elements;
        if (!ebb_trainable_candidate(g, v) || info->type.rank != 1 || info->use_count < 2 ||
            !ebb_type_elements(&info->type, &elements) || elements < 2)
            continue;
        size_t own = 0;
        for (size_t u = 0; u < info->use_count; u++)
            own += ebb_is_own_slot(g, info->uses[u]);
        if (own < 2 || own != info->use_count)
            continue;
        EBB_TRY(add(f, EBB_LOST_SHARING, info->uses[0].node, v,
                    ebb_arena_printf(f->arena,
                                     "'%s' is the scale or bias of %zu operators: equal parameters "
                                     "were merged, and training would tie them",
                                     ebb_value_name(g, v), own)));
    }
    return NULL;
}

/* ---- parameters without name ---- */

static ebb_status find_nameless(findings *f)
{
    const ebb_graph *g = f->g;
    enum { NAMED = 8 };
    ebb_value first = EBB_NO_VALUE;
    size_t count = 0;
    char *names = NULL;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!ebb_trainable_candidate(g, v) || info->type.rank < 2 ||
            info->role == EBB_ROLE_PARAMETER || !ebb_name_is_anonymous(ebb_value_name(g, v)) ||
            !ebb_feeds_weight_slot(g, v))
            continue;
        if (count++ < NAMED)
            names = ebb_arena_printf(f->arena, "%s%s%s", names != NULL ? names : "",
                                     names != NULL ? ", " : "", ebb_value_name(g, v));
        if (names == NULL)
            return ebb_error_memory();
        first = first.i == 0 ? v : first;
    }
    if (count == 0)
        return NULL;
    return add(
        f, EBB_LOST_NAME, EBB_NO_NODE, first,
        ebb_arena_printf(f->arena,
                         "%zu weights have lost their names to constant folding, and may lie "
                         "transposed: %s%s",
                         count, names, count > NAMED ? " ..." : ""));
}

/* ---- parameters that are stored twice ---- */

/* Its bytes say something: they are not one element over and over. */
static bool has_content(const ebb_tensor *t)
{
    size_t element = ebb_dtype_bits((ebb_dtype)t->type.dtype) / 8;
    const unsigned char *bytes = t->data;
    return bytes != NULL && element > 0 && t->bytes > 16 * element &&
           memcmp(bytes, bytes + element, t->bytes - element) != 0;
}

static bool same_bytes(const ebb_value_info *a, const ebb_value_info *b)
{
    return a->type.dtype == b->type.dtype && ebb_type_same_shape(&a->type, &b->type) &&
           a->tensor->bytes == b->tensor->bytes &&
           (a->tensor->data == b->tensor->data ||
            memcmp(a->tensor->data, b->tensor->data, a->tensor->bytes) == 0);
}

static ebb_status find_ties(findings *f)
{
    enum { MOST = 4096 }; // of matrices; the search is quadratic
    const ebb_graph *g = f->g;
    ebb_value *list = EBB_NEW(f->arena, ebb_value, g->initializer_count + 1);
    size_t count = 0;
    if (list == NULL)
        return ebb_error_memory();
    for (size_t i = 0; i < g->initializer_count && count < MOST; i++) {
        ebb_value v = g->initializers[i];
        if (!ebb_trainable_candidate(g, v) || ebb_value_of(g, v)->type.rank < 2 ||
            ebb_value_of(g, v)->use_count == 0 || !has_content(ebb_value_of(g, v)->tensor))
            continue;
        size_t k = 0;
        while (k < count && !same_bytes(ebb_value_of(g, list[k]), ebb_value_of(g, v)))
            k++;
        list[count++] = v;
        if (k + 1 < count)
            EBB_TRY(add(f, EBB_LOST_TIE, ebb_value_of(g, v)->uses[0].node, v,
                        ebb_arena_printf(f->arena,
                                         "'%s' and '%s' have the same bytes: if the two were one "
                                         "parameter, training would part them",
                                         ebb_value_name(g, list[k]), ebb_value_name(g, v))));
    }
    return NULL;
}

ebb_status ebb_lost_list(ebb_lost **list, size_t *count, const ebb_graph *g, ebb_arena *arena)
{
    findings f = {.g = g, .arena = arena};
    EBB_TRY(find_folded_norms(&f));
    EBB_TRY(find_merged(&f));
    EBB_TRY(find_nameless(&f));
    EBB_TRY(find_ties(&f));
    *list = f.list;
    *count = f.count;
    return NULL;
}
