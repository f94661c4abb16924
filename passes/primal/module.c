/* module.c: names of modules from those of weights and nodes. */
#include "passes/primal/module.h"

#include "passes/common.h"
#include "passes/parameters/trainable.h"

/* What exporters and quantisers call the last part of a path. */
static const char *const last_parts[] = {"weight",      "qweight",     "MatMul",     "Gemm",
                                         "FusedMatMul", "MatMulNBits", "MatMulBnb4", "Conv"};

/* "MatMul", "MatMul_1", "MatMul_Q4", "weight_quantized" */
static bool is_last_part(const char *part)
{
    for (size_t i = 0; i < sizeof last_parts / sizeof last_parts[0]; i++) {
        const size_t n = strlen(last_parts[i]);
        if (strncmp(part, last_parts[i], n) == 0 && (part[n] == '\0' || part[n] == '_'))
            return true;
    }
    return false;
}

/* Rows of it are looked up as well: the module that it is named after is the table's. */
static bool is_table(const ebb_graph *g, ebb_value stored)
{
    const ebb_value_info *info = ebb_value_of(g, stored);
    for (size_t i = 0; i < info->use_count; i++)
        if (ebb_node_of(g, info->uses[i].node)->op == EBB_OP_GATHER)
            return true;
    return false;
}

static const char *last_of(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot != NULL ? dot + 1 : module;
}

/* The bias that is added to what n makes, or that n adds itself. */
static ebb_value bias_of(const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const ebb_node user = ebb_only_user(g, ebb_out(g, n, 0));
    if (info->op == EBB_OP_GEMM)
        return ebb_in(g, n, 2);
    if (user.i == 0 || ebb_node_of(g, user)->op != EBB_OP_ADD)
        return EBB_NO_VALUE;
    return ebb_in(g, user, ebb_same_value(ebb_in(g, user, 0), ebb_out(g, n, 0)) ? 1 : 0);
}

/* A module that calls another one's part directly is no part of a path; the bias kept its name:
 * "/decoder/layers.0/fc1/MatMul" beside "model.decoder.layers.0.fc1.bias". NULL: it says nothing more. */
static char *module_of_bias(const ebb_graph *g, ebb_node n, const char *module, ebb_arena *scratch)
{
    static const char ending[] = ".bias";
    const ebb_value bias = bias_of(g, n);
    if (bias.i == 0 || (ebb_value_of(g, bias)->flags & EBB_IS_INITIALIZER) == 0)
        return NULL;
    const char *name = ebb_value_name(g, bias);
    const size_t length = strlen(name), end = sizeof ending - 1, all = strlen(module);
    if (length <= end + all || strcmp(name + length - end, ending) != 0)
        return NULL;
    char *longer = ebb_arena_printf(scratch, "%.*s", (int)(length - end), name);
    return longer != NULL && strcmp(last_of(longer), last_of(module)) == 0 ? longer : NULL;
}

char *ebb_module_in_file(const ebb_graph *g, ebb_node n, ebb_value stored, ebb_arena *scratch)
{
    const char *name = ebb_value_name(g, stored), *node = ebb_text(g, ebb_node_of(g, n)->name);
    const bool by_weight =
        stored.i != 0 && !ebb_name_is_anonymous(name) && (node[0] == '\0' || !is_table(g, stored));
    if (!by_weight && node[0] == '\0')
        return ebb_arena_strdup(scratch, ebb_value_name(g, ebb_out(g, n, 0)));
    const char *from = by_weight ? name : node;
    char *module = ebb_arena_strdup(scratch, from + (from[0] == '/')), *last;
    for (char *c = module; c != NULL && *c != '\0'; c++)
        *c = *c == '/' ? '.' : *c;
    while (module != NULL && (last = strrchr(module, '.')) != NULL && is_last_part(last + 1))
        *last = '\0';
    char *longer = module != NULL && !by_weight ? module_of_bias(g, n, module, scratch) : NULL;
    return longer != NULL ? longer : module;
}

/* "model.layers.0.attn.q_proj": no module of the framework is called so, but in this one's files. */
static const char *genai_attention(const char *module)
{
    static const char before[] = "model.layers.", attention[] = ".attn.", after[] = "_proj";
    const char *at = strncmp(module, before, sizeof before - 1) == 0
                         ? strstr(module + sizeof before - 1, attention)
                         : NULL;
    const char *layer = at != NULL ? at + sizeof attention - 1 : "";
    return strstr(layer, after) != NULL && strchr(layer, '.') == NULL ? at : NULL;
}

char *ebb_module_of(const ebb_graph *g, ebb_node n, ebb_value stored, ebb_arena *scratch)
{
    char *module = ebb_module_in_file(g, n, stored, scratch);
    const char *at = module != NULL ? genai_attention(module) : NULL;
    return at == NULL
               ? module
               : ebb_arena_printf(scratch, "%.*s.self_%s", (int)(at - module), module, at + 1);
}
