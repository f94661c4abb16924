/* trainable.c: which initializers are parameters. ONNX has no flag for it; four sources in order.
 */
#include <stdio.h>

#include "passes/parameters/trainable.h"

#include "passes/parameters/noted.h"
#include "passes/parameters/slots.h"
#include "passes/parameters/weights.h"

const char *ebb_trainable_words(ebb_trainable_source source)
{
    static const char *const words[] = {
        [EBB_TRAINABLE_ROLES] = "chosen by a pass",
        [EBB_TRAINABLE_BINDINGS] = "by the file's update bindings",
        [EBB_TRAINABLE_METADATA] = "marked PARAMETER by the exporter",
        [EBB_TRAINABLE_SLOTS] = "found where operators expect weights",
    };
    return words[source];
}

bool ebb_name_is_anonymous(const char *name)
{
    if (strncmp(name, "onnx::", 6) == 0 || name[0] == '/' || strstr(name, "Constant") != NULL ||
        strncmp(name, "_to_copy", 8) == 0)
        return true;
    if (strncmp(name, "val_", 4) != 0 && strncmp(name, "_v_", 3) != 0) // PyTorch's, onnxsim's
        return false;
    const char *begin = name + (name[0] == 'v' ? 4 : 3), *end = begin + strspn(begin, "0123456789");
    return end > begin && (*end == '\0' || (*end == '_' && strchr(end, '.') == NULL));
}

/* ---- names ---- */

const char *ebb_last_part(const char *name)
{
    size_t at = strlen(name);
    while (at > 0 && strchr("./:", name[at - 1]) == NULL)
        at--;
    return name + at;
}

bool ebb_name_is_after(const char *name, const char *calls)
{
    for (const char *c = calls; *c != '\0'; c += strspn(c, " ")) {
        const size_t length = strcspn(c, " ");
        if (strncmp(name, c, length) == 0 &&
            name[length + strspn(name + length, "0123456789_")] == '\0')
            return true;
        c += length;
    }
    return false;
}

bool ebb_name_is_of_arithmetic(const char *name)
{
    return ebb_name_is_after(
        name, "sub mul div exp neg rsub sigmoid softmax pow sqrt rsqrt log clamp clamp_min "
              "clamp_max tanh mm matmul bmm reciprocal linear addmm conv2d gelu relu cat maximum "
              "minimum layer_norm softplus einsum silu");
}

bool ebb_name_is_of_part(const char *name)
{
    return ebb_name_is_after(name, "embedding index index_select gather slice narrow select take");
}

bool ebb_name_is_of_statistic(const char *part)
{
    return strcmp(part, "running_mean") == 0 || strcmp(part, "running_var") == 0;
}

bool ebb_name_is_of_buffer(const char *part)
{
    static const char names[] =
        "inv_freq original_inv_freq freqs freqs_cis cos_cached sin_cached cos_cache sin_cache "
        "position_ids pe masked_bias final_logits_bias attn_mask attention_mask causal_mask mask "
        "relative_position_index relative_coords_table anchors anchor_points anchor_grid grid "
        "stride strides mean std pixel_mean pixel_std image_mean image_std window fb filterbank "
        "mel_filters mel_basis";
    const size_t length = strlen(part);
    for (const char *at = names; length > 0 && (at = strstr(at, part)) != NULL; at++)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return ebb_name_is_of_statistic(part);
}

bool ebb_is_of_spectral_norm(const ebb_graph *g, const char *name)
{
    static const char ends[][2][10] = {
        {".0._u", ".original"}, {".0._v", ".original"}, {"_u", "_orig"}, {"_v", "_orig"}};
    char beside[512];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t stem = strlen(name) - strlen(ends[i][0]);
        if (!ebb_ends_in(name, ends[i][0]) || stem >= sizeof beside / 2)
            continue;
        (void)snprintf(beside, sizeof beside, "%.*s%s", (int)stem, name, ends[i][1]);
        if (ebb_value_find(g, beside).i != 0)
            return true;
    }
    return false;
}

/* ---- use ---- */

static bool is_statistic(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->role == EBB_ROLE_STATISTIC)
        return true;
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_use_of(g, info->uses[i]) == EBB_SLOT_STATISTIC)
            return true;
    return false;
}

static bool computes_sizes(ebb_op op)
{
    switch (op) {
    case EBB_OP_CONCAT:
    case EBB_OP_CAST:
    case EBB_OP_ADD:
    case EBB_OP_SUB:
    case EBB_OP_MUL:
    case EBB_OP_DIV:
    case EBB_OP_FLOOR:
    case EBB_OP_CEIL:
    case EBB_OP_ROUND:
    case EBB_OP_SLICE:
    case EBB_OP_GATHER:
    case EBB_OP_RESHAPE:
    case EBB_OP_SQUEEZE:
    case EBB_OP_UNSQUEEZE:
        return true;
    default:
        return false;
    }
}

bool ebb_feeds_sizes_alone(const ebb_graph *g, ebb_value v)
{
    enum { MOST = 64 }; // values on the way; exporters need five
    ebb_value here[MOST] = {v};
    for (size_t done = 0, count = 1; done < count; done++) {
        const ebb_value_info *info = ebb_value_of(g, here[done]);
        if (info->use_count == 0 || ebb_value_is_held(g, here[done]))
            return false;
        for (size_t i = 0; i < info->use_count; i++) {
            ebb_node n = info->uses[i].node;
            ebb_op op = ebb_node_of(g, n)->op;
            if (ebb_slot_of(op, info->uses[i].slot) == EBB_SLOT_SIZE)
                continue;
            if (!computes_sizes(op) || count == MOST)
                return false;
            here[count++] = ebb_out(g, n, 0);
        }
    }
    return true;
}

bool ebb_trainable_candidate(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    if (info->dead || info->tensor == NULL || (info->flags & EBB_IS_INITIALIZER) == 0 ||
        !ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return false;
    bool ours = info->role == EBB_ROLE_CONSTANT || info->role == EBB_ROLE_OPTIMIZER ||
                info->role == EBB_ROLE_RANDOM;
    return !ours && !is_statistic(g, v) && !ebb_feeds_sizes_alone(g, v);
}

bool ebb_is_folded_state(const ebb_graph *g, ebb_value v)
{
    const char *name = ebb_value_name(g, v); // "/m/Expand_output_0": by a tool behind PyTorch
    return g->model->torchscript && (ebb_value_of(g, v)->flags & EBB_IS_INITIALIZER) != 0 &&
           (strncmp(name, "onnx::", 6) == 0 ||
            (name[0] == '/' && strstr(name, "Constant") == NULL));
}

bool ebb_feeds_weight_slot(const ebb_graph *g, ebb_value v)
{
    enum { FAR = 6 }; // an exported LSTM weight goes Slice, Concat, Unsqueeze; nothing goes further
    ebb_value here[64] = {v};
    size_t count = 1, done = 0;
    for (int step = 0; step < FAR && done < count; step++) {
        for (size_t end = count; done < end; done++) {
            const ebb_value_info *info = ebb_value_of(g, here[done]);
            for (size_t i = 0; i < info->use_count; i++) {
                ebb_value y = ebb_out(g, info->uses[i].node, 0);
                ebb_slot slot = ebb_use_of(g, info->uses[i]);
                if (slot == EBB_SLOT_WEIGHT)
                    return true;
                if (slot == EBB_SLOT_MOVED && count < 64 && y.i != 0)
                    here[count++] = y;
            }
        }
    }
    return false;
}

ebb_value ebb_input_as_weight(const ebb_graph *g)
{
    for (size_t i = 0; i < g->input_count; i++)
        if (strchr(ebb_value_name(g, g->inputs[i]), '.') != NULL &&
            ebb_feeds_weight_slot(g, g->inputs[i]))
            return g->inputs[i];
    return EBB_NO_VALUE;
}

/* ---- all of them ---- */

static ebb_trainable_source source_of(const ebb_graph *g)
{
    bool chosen = false, bound = false, marked = false;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        if (!ebb_trainable_candidate(g, v))
            continue;
        chosen |= ebb_value_of(g, v)->role == EBB_ROLE_PARAMETER;
        bound |= (ebb_value_of(g, v)->flags & EBB_IS_STATE) != 0;
        marked |= ebb_noted_kind_of(g, v) == EBB_NOTED_PARAMETER;
    }
    return chosen   ? EBB_TRAINABLE_ROLES
           : bound  ? EBB_TRAINABLE_BINDINGS
           : marked ? EBB_TRAINABLE_METADATA
                    : EBB_TRAINABLE_SLOTS;
}

ebb_status ebb_weights_judge(ebb_weight *list, ebb_trainable_source *source, const ebb_graph *g,
                             ebb_arena *scratch)
{
    ebb_judge j = {.g = g, .scratch = scratch};
    *source = source_of(g);
    if (*source == EBB_TRAINABLE_METADATA || *source == EBB_TRAINABLE_SLOTS)
        EBB_TRY(ebb_noted_losses_find(&j.losses, g, scratch));
    j.marked = *source == EBB_TRAINABLE_METADATA || j.losses.all_count > 0;
    if (g->model->torchscript)
        EBB_TRY(ebb_unmarked_find(&j.unmarked, g, scratch));
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!ebb_trainable_candidate(g, v) || info->role == EBB_ROLE_FROZEN)
            continue;
        bool told = *source == EBB_TRAINABLE_ROLES
                        ? info->role == EBB_ROLE_PARAMETER
                        : *source == EBB_TRAINABLE_BINDINGS && (info->flags & EBB_IS_STATE) != 0;
        if (told)
            list[v.i].kind = EBB_SURE_WEIGHT;
        else if (*source == EBB_TRAINABLE_METADATA || *source == EBB_TRAINABLE_SLOTS)
            EBB_TRY(ebb_weight_judge(&j, v, &list[v.i]));
    }
    return ebb_weights_judge_beside(&j, list);
}

static bool has_word(const char *patterns, const char *word)
{
    for (const char *at = patterns; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == patterns || strchr(",; ", at[-1]) != NULL;
        if (begins && strchr(",; ", at[strlen(word)]) != NULL) // or the end of the text
            return true;
    }
    return false;
}

bool ebb_weight_matches(const char *patterns, const char *name, const ebb_weight *weight)
{
    return ebb_glob(patterns, name) || (weight->lost && has_word(patterns, "lost")) ||
           (weight->kind == EBB_SURE_WEIGHT && has_word(patterns, "weights"));
}

ebb_status ebb_trainable_find(bool *trains, ebb_trainable_source *source, const ebb_graph *g)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_weight *list = EBB_NEW(scratch, ebb_weight, g->value_count);
    EBB_GOT(list);
    EBB_TRY(ebb_weights_judge(list, source, g, scratch));
    for (size_t i = 0; i < g->initializer_count; i++)
        if (list[g->initializers[i].i].kind == EBB_SURE_WEIGHT)
            trains[g->initializers[i].i] = true;
    return NULL;
}
