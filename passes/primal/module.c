/* module.c: names of modules from those of weights and nodes. */
#include "passes/primal/module.h"

#include "passes/common.h"
#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"

/* What exporters and quantisers call the last part of a path. */
static const char last_parts[] =
    "weight qweight MatMul Gemm FusedMatMul MatMulNBits MatMulBnb4 Conv";

/* "MatMul", "MatMul_1", "MatMul_Q4", "weight_quantized" */
static bool is_last_part(const char *part)
{
    for (const char *at = last_parts; *at != '\0'; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (strncmp(part, at, n) == 0 && (part[n] == '\0' || part[n] == '_'))
            return true;
        at += n;
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

/* The bias that is added to what n makes, be it rounded to codes first, or that n adds itself. */
static ebb_value bias_of(const ebb_graph *g, ebb_node n)
{
    enum { FAR = 2 };
    ebb_value y = ebb_out(g, n, 0);
    ebb_node user = ebb_only_user(g, y);
    if (ebb_node_of(g, n)->op == EBB_OP_GEMM)
        return ebb_in(g, n, 2);
    for (int step = 0; step < FAR && user.i != 0; step++) {
        const ebb_op op = ebb_node_of(g, user)->op;
        if (op != EBB_OP_QUANTIZE_LINEAR && op != EBB_OP_DEQUANTIZE_LINEAR)
            break;
        y = ebb_out(g, user, 0);
        user = ebb_only_user(g, y);
    }
    if (user.i == 0 || ebb_node_of(g, user)->op != EBB_OP_ADD)
        return EBB_NO_VALUE;
    return ebb_in(g, user, ebb_same_value(ebb_in(g, user, 0), y) ? 1 : 0);
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

/* "model.norm.weight" of what the exporter notes at n; NULL: nothing of a weight in n's own module. */
static const char *noted_weight(const ebb_graph *g, ebb_node n, ebb_arena *scratch)
{
    const char *name = NULL;
    ebb_noted *noted = EBB_NEW(scratch, ebb_noted, 1);
    if (noted == NULL)
        return NULL;
    ebb_noted_sources(noted, g, n, "p_");
    for (int i = 0; i < noted->count && name == NULL; i++)
        if (ebb_ends_in(noted->name[i], "_weight"))
            name = ebb_noted_name(g, n, noted->name[i], scratch);
    return name;
}

/* "optimum::if/else//lm_head/MatMul" lay in a branch, as merged decoders have it: the path is its own. */
static const char *within_body(const char *node)
{
    for (const char *at; (at = strstr(node, "//")) != NULL;)
        node = at + 1;
    return node;
}

char *ebb_module_in_file(const ebb_graph *g, ebb_node n, ebb_value stored, ebb_arena *scratch)
{
    const char *name = ebb_value_name(g, stored), *node = ebb_text(g, ebb_node_of(g, n)->name);
    const bool by_weight =
        stored.i != 0 && !ebb_name_is_anonymous(name) && (node[0] == '\0' || !is_table(g, stored));
    const char *noted = by_weight ? NULL : noted_weight(g, n, scratch);
    if (!by_weight && noted == NULL && node[0] == '\0')
        return ebb_arena_strdup(scratch, ebb_value_name(g, ebb_out(g, n, 0)));
    const char *from = by_weight ? name : noted != NULL ? noted : within_body(node);
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
