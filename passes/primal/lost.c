/* lost.c: what the exporter took out of a model for good, judged from what it left. */
#include "passes/primal/lost.h"

#include <stdio.h>

#include "passes/common.h"
#include "passes/mended/copied.h"
#include "passes/mended/detached.h"
#include "passes/mended/gone.h"
#include "passes/mended/merged.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"
#include "passes/parameters/values.h"

typedef struct findings {
    const ebb_graph *g;
    ebb_arena *arena;
    ebb_lost *list;
    size_t count, capacity;
} findings;

const char *ebb_lost_help(ebb_lost_kind kind)
{
    static const char *const helps[EBB_LOST_KIND_COUNT] = {
        "to train it export in training mode, in PyTorch with optimize=False, or with "
        "do_constant_folding=False and training=TrainingMode.TRAINING",
        "`ebb rewrite` with --pass train-mode:split-shared=1 separates them",
        "they are trained as they are, with factors folded in; export with optimize=False (dynamo) "
        "or do_constant_folding=False (TorchScript) to keep names and shapes",
        "export with the weight shared, or freeze one of them with --freeze 'PATTERN'",
        "export with optimize=False, which keeps it",
        "export with optimize=False (dynamo), or with do_constant_folding=False and "
        "training=TrainingMode.TRAINING (TorchScript), which keep them",
        "--freeze them where they are buffers, --train weights --train 'NAME' where they are "
        "parameters, or export with dynamo=True, optimize=False, which marks both",
        "read what is kept by detach() in place of no_grad(), export with optimize=False, and give "
        "it as an output where the next forward is to have it",
        "export with optimize=False, or add a number above 1e-8",
    };
    return helps[kind];
}

static ebb_status add(findings *f, ebb_lost_kind kind, ebb_node n, ebb_value v, char *text)
{
    EBB_GOT(text && ebb_arena_grow(f->arena, &f->list, f->count, &f->capacity, sizeof *f->list));
    f->list[f->count++] = (ebb_lost){kind, n, v, text, false};
    return NULL;
}

/* ---- batch norm folded into convolutions ---- */

static const char *input_name(const ebb_graph *g, ebb_node n, uint32_t slot)
{
    ebb_value v = ebb_in(g, n, slot);
    return v.i != 0 ? ebb_value_name(g, v) : "";
}

static bool is_activation(ebb_op op)
{
    static const ebb_op all[] = {
        EBB_OP_RELU,         EBB_OP_CLIP,         EBB_OP_LEAKY_RELU, EBB_OP_PRELU,
        EBB_OP_ELU,          EBB_OP_SELU,         EBB_OP_CELU,       EBB_OP_SIGMOID,
        EBB_OP_HARD_SIGMOID, EBB_OP_HARD_SWISH,   EBB_OP_SWISH,      EBB_OP_TANH,
        EBB_OP_SOFTPLUS,     EBB_OP_SOFTSIGN,     EBB_OP_ERF,        EBB_OP_GELU,
        EBB_OP_MS_GELU,      EBB_OP_MS_FAST_GELU, EBB_OP_MISH,       EBB_OP_THRESHOLDED_RELU,
        EBB_OP_MS_QUICK_GELU};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (op == all[i])
            return true;
    return false;
}

/* Whether an activation reads v, or a sum or product of it with a constant, as GELU and hard swish in
 * steps begin. */
static bool is_activated(const ebb_graph *g, ebb_value v, bool again)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    for (size_t i = 0; i < info->use_count; i++) {
        ebb_node n = info->uses[i].node;
        ebb_op op = ebb_node_of(g, n)->op;
        if (is_activation(op))
            return true;
        bool scaled = op == EBB_OP_ADD || op == EBB_OP_MUL || op == EBB_OP_DIV;
        ebb_value other = scaled ? ebb_in(g, n, info->uses[i].slot == 0) : EBB_NO_VALUE;
        if (again && other.i != 0 && ebb_value_constant(g, other) != NULL &&
            is_activated(g, ebb_out(g, n, 0), false))
            return true;
    }
    return false;
}

/* "conv.weight" and "conv.bias": a bias that its author gave it. */
static bool has_own_bias(const ebb_graph *g, ebb_node n)
{
    const char *weight = input_name(g, n, 1), *bias = input_name(g, n, 2);
    size_t length = strlen(weight);
    return length > 7 && strcmp(weight + length - 7, ".weight") == 0 &&
           strncmp(weight, bias, length - 6) == 0 && strcmp(bias + length - 6, "bias") == 0;
}

static bool is_norm(const ebb_graph *g, ebb_node n) // other runtimes', too
{
    const ebb_node_info *info = ebb_node_of(g, n);
    return ebb_op_has(info->op, EBB_NORM) ||
           strstr(ebb_text(g, info->op_name), "Normalization") != NULL;
}

/* Of a file of unknown origin: convolutions with biases right before activations, where nothing is
 * normalised, or where the bias is not named as the weight is. */
static size_t count_suspects(const ebb_graph *g, ebb_node *first, bool *normalised)
{
    size_t all = 0, strange = 0;
    ebb_node first_strange = EBB_NO_NODE;
    *normalised = false;
    EBB_EACH_NODE(g, n) {
        ebb_op op = ebb_node_of(g, n)->op;
        *normalised |= is_norm(g, n);
        if ((op != EBB_OP_CONV && op != EBB_OP_CONV_TRANSPOSE) || ebb_in(g, n, 2).i == 0 ||
            ebb_out(g, n, 0).i == 0 || !is_activated(g, ebb_out(g, n, 0), true))
            continue;
        *first = all++ == 0 ? n : *first;
        if (!has_own_bias(g, n))
            first_strange = strange++ == 0 ? n : first_strange;
    }
    if (!*normalised)
        return all;
    *first = first_strange;
    return strange;
}

static bool is_ours(const ebb_graph *g, ebb_node n)
{
    return ebb_props_get(g, &ebb_node_of(g, n)->props, EBB_NORM_WITHIN) != NULL;
}

static ebb_status find_folded_norms(findings *f)
{
    const ebb_graph *g = f->g;
    ebb_node first = EBB_NO_NODE;
    size_t told = 0;
    bool normalised;
    EBB_EACH_NODE(g, n)
        if (ebb_holds_norm(g, n))
            first = told++ == 0 ? n : first;
    if (told > 0)
        return add(f, EBB_LOST_BATCH_NORM, first, EBB_NO_VALUE,
                   ebb_arena_printf(f->arena,
                                    "%zu convolution%s taken in the batch norm behind: the scale "
                                    "is in the weight, and nothing is normalised by the batch%s",
                                    told, told == 1 ? " has" : "s have",
                                    is_ours(g, first) ? "; train the file that `ebb export --fold` "
                                                        "was given instead"
                                                      : ""));
    if (ebb_is_from_pytorch(g))
        return NULL;
    size_t suspects = count_suspects(g, &first, &normalised);
    if (suspects == 0)
        return NULL;
    return add(
        f, EBB_LOST_BATCH_NORM, first, EBB_NO_VALUE,
        ebb_arena_printf(f->arena,
                         "%zu convolutions have a bias and an activation, and %s: batch norm may "
                         "have been folded into them in inference mode",
                         suspects,
                         normalised ? "the bias is not named as the weight is"
                                    : "nothing is normalised"));
}

/* ---- merged parameters ---- */

bool ebb_is_shared(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    int64_t elements;
    if (!ebb_trainable_candidate(g, v) || info->type->rank != 1 || info->use_count < 2 ||
        !ebb_type_elements(info->type, &elements) || elements < 2)
        return false;
    for (size_t u = 0; u < info->use_count; u++)
        if (!ebb_is_own_slot(g, info->uses[u]))
            return false;
    return true;
}

/* All of its elements are equal, as those of fresh scales and biases are; what is shared on purpose
 * holds numbers of its own once it was trained. */
static bool may_be_merged(const ebb_graph *g, ebb_value v)
{
    const ebb_tensor *t = ebb_value_of(g, v)->tensor;
    return !ebb_name_is_anonymous(ebb_value_name(g, v)) &&
           (t->data == NULL || t->bytes == 0 || ebb_tensor_is_uniform(t));
}

/* Whether a matrix is read as often as that: layers that are run several times, or a loop that was
 * unrolled. */
static bool is_in_shared_layers(const ebb_graph *g, size_t times)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        if (ebb_trainable_candidate(g, g->initializers[i]) && info->type->rank > 1 &&
            info->use_count == times)
            return true;
    }
    return false;
}

/* Of files from PyTorch all that is known was parted before: ebb_merged_part. */
static ebb_status find_merged(findings *f)
{
    const ebb_graph *g = f->g;
    if (ebb_is_from_pytorch(g))
        return NULL;
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!ebb_is_shared(g, v) || !may_be_merged(g, v) || is_in_shared_layers(g, info->use_count))
            continue;
        EBB_TRY(add(f, EBB_LOST_SHARING, info->uses[0].node, v,
                    ebb_arena_printf(f->arena,
                                     "'%s' is the scale or bias of %u operators: equal parameters "
                                     "were merged, and training would tie them",
                                     ebb_value_name(g, v), info->use_count)));
    }
    return NULL;
}

/* Two fresh norms of one input are one node: nothing of the other is left but its name in the exporter's list, where
 * parameters stand, too, that nothing reads. */
static ebb_status find_absorbed(findings *f)
{
    enum { MOST = 4096 }; // of parameters; the search is quadratic
    const ebb_graph *g = f->g;
    ebb_noted_losses losses;
    EBB_TRY(ebb_noted_losses_find(&losses, g, f->arena));
    for (size_t i = 0; losses.count > 0 && i < g->initializer_count && i < MOST; i++) {
        ebb_value v = g->initializers[i];
        ebb_look look;
        const char *name = ebb_value_name(g, v);
        const ebb_noted_loss *other =
            ebb_noted_kind_of(g, v) == EBB_NOTED_PARAMETER && ebb_ends_in(name, ".weight")
                ? ebb_noted_loss_beside(&losses, name)
                : NULL;
        if (other == NULL || ebb_value_of(g, v)->tensor == NULL)
            continue;
        EBB_TRY(ebb_values_look(&look, NULL, ebb_value_of(g, v)->tensor, f->arena));
        if (look == EBB_LOOK_EQUAL)
            return add(f, EBB_LOST_WEIGHT, EBB_NO_NODE, v,
                       ebb_arena_printf(f->arena,
                                        "of '%s' the file has no more than the name: if the model "
                                        "uses it, it and '%s' were equal and became one, and "
                                        "training would tie them",
                                        other->name, name));
    }
    return NULL;
}

/* Of a module that is there the exporter lists a parameter that went into nothing: it is not used, or a product
 * with ones or a sum with zeros was dropped with it. */
static ebb_status find_gone(findings *f)
{
    enum { NAMED = 8, MOST = 256 }; // of parameters; the search is quadratic
    size_t count = 0;
    const char *names = "";
    ebb_noted_losses losses;
    EBB_TRY(ebb_noted_losses_find(&losses, f->g, f->arena));
    for (size_t i = 0; i < losses.count && i < MOST && names != NULL; i++) {
        const ebb_noted_loss *p = &losses.list[i];
        if (!p->run || ebb_noted_is_within(f->g, p->name))
            continue;
        if (count++ < NAMED)
            names =
                ebb_arena_printf(f->arena, "%s%s'%.200s'", names, count > 1 ? ", " : "", p->name);
    }
    EBB_GOT(names);
    return count == 0
               ? NULL
               : add(f, EBB_LOST_WEIGHT, EBB_NO_NODE, EBB_NO_VALUE,
                     ebb_arena_printf(f->arena,
                                      "the exporter lists %zu parameter%s that the file does not "
                                      "have: %s%s: what was exported does not use them, or "
                                      "they did nothing yet, as a scale of 1 does",
                                      count, count == 1 ? "" : "s", names,
                                      count > NAMED ? " ..." : ""));
}

/* ---- parameters without name ---- */

static bool is_lost(const ebb_weight *weight)
{
    return weight->lost;
}

static bool is_gone(const ebb_weight *weight)
{
    return weight->made;
}

static bool is_untold(const ebb_weight *weight)
{
    return weight->untold;
}

/* The names of those, the first few: "a, b ..."; NULL: no memory, "": none. */
static const char *names_of(findings *f, const ebb_weight *list, bool (*is)(const ebb_weight *),
                            size_t *count, ebb_value *first)
{
    enum { NAMED = 8 };
    const ebb_graph *g = f->g;
    const char *names = "";
    *count = 0;
    for (size_t i = 0; i < g->initializer_count && names != NULL; i++) {
        ebb_value v = g->initializers[i];
        if (!is(&list[v.i]))
            continue;
        *first = *count == 0 ? v : *first;
        if ((*count)++ < NAMED)
            names = ebb_arena_printf(f->arena, "%s%s%s", names, *count > 1 ? ", " : "",
                                     ebb_value_name(g, v));
    }
    return *count > NAMED && names != NULL ? ebb_arena_printf(f->arena, "%s ...", names) : names;
}

static ebb_status find_nameless(findings *f)
{
    static const struct {
        bool (*is)(const ebb_weight *);
        ebb_lost_kind kind;
        const char *says;
    } rows[] = {
        {is_lost, EBB_LOST_NAME,
         "weights have lost their names to constant folding, and may lie transposed"},
        {is_gone, EBB_LOST_WEIGHT,
         "weights are gone, of which folding left only what it computed of them, and no run trains "
         "the model without --allow-partial"},
        {is_untold, EBB_LOST_MARK,
         "parameters or buffers, which the file does not tell, so that a run has to be told"},
    };
    ebb_trainable_source source;
    ebb_value first = EBB_NO_VALUE;
    ebb_weight *list = EBB_NEW(f->arena, ebb_weight, f->g->value_count);
    EBB_GOT(list);
    EBB_TRY(ebb_weights_judge(list, &source, f->g, f->arena));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t count;
        const char *names = names_of(f, list, rows[i].is, &count, &first);
        const char *number = rows[i].is == is_lost ? ebb_arena_printf(f->arena, "%zu ", count) : "";
        EBB_GOT(names && number);
        if (count == 0)
            continue;
        EBB_TRY(add(f, rows[i].kind, EBB_NO_NODE, first,
                    ebb_arena_printf(f->arena, "%s%s: %s", number, rows[i].says, names)));
        f->list[f->count - 1].refused = rows[i].kind != EBB_LOST_NAME;
    }
    return NULL;
}

/* ---- parameters that are stored twice ---- */

/* What is surely a copy in a file from PyTorch is joined before: ebb_copied_join. Of the others that
 * have names it stores a shared one once. */
static ebb_status find_ties(findings *f)
{
    enum { MOST = 4096 }; // of matrices; the search is quadratic
    const ebb_graph *g = f->g;
    ebb_value *list = EBB_NEW(f->arena, ebb_value, g->initializer_count + 1);
    size_t count = 0;
    if (ebb_is_from_pytorch(g))
        return NULL;
    EBB_GOT(list);
    for (size_t i = 0; i < g->initializer_count && count < MOST; i++) {
        ebb_value v = g->initializers[i];
        const ebb_value_info *info = ebb_value_of(g, v);
        if (!ebb_trainable_candidate(g, v) || info->type->rank < 2 || info->use_count == 0 ||
            !ebb_has_content(g, v))
            continue;
        bool same = false, turned = false;
        size_t k = 0;
        for (; k < count && !same; k++)
            same = ebb_is_copy(g, list[k], v, &turned);
        list[count++] = v;
        if (same)
            EBB_TRY(add(f, EBB_LOST_TIE, info->uses[0].node, v,
                        ebb_arena_printf(f->arena,
                                         "'%s' and '%s' have the same %s: if the two were one "
                                         "parameter, training would part them",
                                         ebb_value_name(g, list[k - 1]), ebb_value_name(g, v),
                                         turned ? "numbers, one of them transposed" : "bytes")));
    }
    return NULL;
}

static ebb_status find_lost_detach(findings *f)
{
    ebb_detach_loss told[EBB_DETACH_LOSSES] = {{.text = NULL}};
    EBB_TRY(ebb_detached_tell(told, f->g, f->arena));
    for (size_t i = 0; i < EBB_DETACH_LOSSES; i++)
        if (told[i].text != NULL)
            EBB_TRY(add(f, EBB_LOST_DETACH, told[i].first, EBB_NO_VALUE, told[i].text));
    return NULL;
}

/* ---- buffers that the module updates ---- */

/* Nothing of it is left, or a step keeps it: statistics of a batch norm, vectors of a spectral norm. */
static bool is_kept(const ebb_graph *g, const char *buffer, ebb_value put)
{
    const ebb_value v = ebb_value_find(g, buffer);
    const ebb_value_info *info = v.i != 0 ? ebb_value_of(g, v) : NULL;
    for (size_t i = 0; info != NULL && i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->op == EBB_OP_BATCH_NORMALIZATION)
            return true;
    return (info == NULL && (put.i == 0 || ebb_value_of(g, put)->use_count == 0)) ||
           ebb_is_of_spectral_norm(g, buffer) || ebb_ends_in(buffer, "num_batches_tracked");
}

/* Of each value whether a gradient comes to it that goes on to a parameter. */
static void mark_passed(bool *passed, const ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++)
        passed[g->initializers[i].i] =
            ebb_noted_kind_of(g, g->initializers[i]) != EBB_NOTED_OTHER &&
            ebb_trainable_candidate(g, g->initializers[i]);
    EBB_EACH_NODE(g, n) {
        const ebb_node_info *info = ebb_node_of(g, n);
        bool any = false;
        for (uint32_t i = 0; i < info->in_count && !ebb_is_detach(g, n); i++)
            any |= passed[ebb_in(g, n, i).i];
        for (uint32_t i = 0; i < info->out_count; i++)
            passed[ebb_out(g, n, i).i] = any && ebb_out(g, n, i).i != 0;
    }
}

/* "add: BUFFER_MUTATION target='mean'" in the exporter's list: the module keeps what 'add' is for the next forward,
 * mostly under no_grad(), of which nothing else is in the file. */
static ebb_status find_updated(findings *f)
{
    enum { NAMED = 8 };
    const ebb_graph *g = f->g;
    const char *at = ebb_props_get(g, &g->props, EBB_NOTED_LIST), *names = "", *read = "";
    size_t count = 0;
    bool *passed = at != NULL ? EBB_NEW(f->arena, bool, g->value_count) : NULL;
    EBB_GOT(at == NULL || passed);
    if (at != NULL)
        mark_passed(passed, g);
    while (names != NULL && read != NULL && at != NULL && (at = strchr(at, '\n')) != NULL) {
        static const char mark[] = ": BUFFER_MUTATION target='";
        char call[EBB_NOTED_LONGEST], buffer[EBB_NOTED_LONGEST];
        const size_t length = strcspn(++at, ":\n");
        if (strncmp(at + length, mark, sizeof mark - 1) != 0)
            continue;
        const char *target = at + length + sizeof mark - 1;
        (void)snprintf(call, sizeof call, "%.*s", (int)length, at);
        (void)snprintf(buffer, sizeof buffer, "%.*s", (int)strcspn(target, "'\n"), target);
        const ebb_value v = ebb_value_find(g, call);
        if (is_kept(g, buffer, v) || count++ >= NAMED)
            continue;
        names = ebb_arena_printf(f->arena, "%s%s'%s'", names, count > 1 ? ", " : "", buffer);
        if (v.i != 0 && passed[v.i] && ebb_value_of(g, v)->use_count > 0)
            read = ebb_arena_printf(f->arena, "%s%s'%s'", read,
                                    read[0] != '\0' ? ", " : "; gradients pass what is put there, ",
                                    call);
    }
    EBB_GOT(names && read);
    return count == 0 ? NULL
                      : add(f, EBB_LOST_UPDATE, EBB_NO_NODE, EBB_NO_VALUE,
                            ebb_arena_printf(
                                f->arena,
                                "each forward updates %zu buffer%s, which the file does not: %s%s "
                                "stay%s as "
                                "exported%s%s",
                                count, count == 1 ? "" : "s", names, count > NAMED ? " ..." : "",
                                count == 1 ? "s" : "", read,
                                read[0] != '\0' ? ", where no_grad() may have stopped them" : ""));
}

static ebb_status find_lost_sums(findings *f)
{
    char *text;
    ebb_node first;
    EBB_TRY(ebb_gone_sums(&text, &first, f->g, f->arena));
    return text != NULL ? add(f, EBB_LOST_SUM, first, EBB_NO_VALUE, text) : NULL;
}

ebb_status ebb_lost_list(ebb_lost **list, size_t *count, const ebb_graph *g, ebb_arena *arena)
{
    findings f = {.g = g, .arena = arena};
    EBB_TRY(find_folded_norms(&f));
    EBB_TRY(find_merged(&f));
    EBB_TRY(find_absorbed(&f));
    EBB_TRY(find_gone(&f));
    EBB_TRY(find_nameless(&f));
    EBB_TRY(find_ties(&f));
    EBB_TRY(find_lost_detach(&f));
    EBB_TRY(find_updated(&f));
    EBB_TRY(find_lost_sums(&f));
    *list = f.list;
    *count = f.count;
    return NULL;
}
