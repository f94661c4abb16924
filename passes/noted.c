/* noted.c: what PyTorch's dynamo exporter notes in a file beside the graph. */
#include "passes/noted.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

ebb_noted_kind ebb_noted_kind_of(const ebb_graph *g, ebb_value v)
{
    const char *kind = ebb_props_get(g, &ebb_value_of(g, v)->props, EBB_NOTED_KIND);
    return kind == NULL                        ? EBB_NOTED_NOTHING
           : strstr(kind, "PARAMETER") != NULL ? EBB_NOTED_PARAMETER
                                               : EBB_NOTED_OTHER;
}

bool ebb_is_from_pytorch(const ebb_graph *g)
{
    if (g->model->torchscript)
        return true;
    EBB_EACH_NODE(g, n)
        if (ebb_props_get(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node") != NULL)
            return true;
    return false;
}

void ebb_noted_sources(ebb_noted *noted, const ebb_graph *g, ebb_node n, const char *begin)
{
    const char *at = ebb_props_get(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.fx_node");
    noted->count = 0;
    noted->call = at != NULL;
    at = at != NULL ? strstr(at, "args = (") : NULL;
    while (at != NULL && (at = strchr(at, '%')) != NULL && noted->count < EBB_NOTED_SOURCES) {
        size_t length = strspn(++at, "abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        if (strncmp(at, begin, strlen(begin)) == 0 && length < EBB_NOTED_LONGEST)
            (void)snprintf(noted->name[noted->count++], EBB_NOTED_LONGEST, "%.*s", (int)length, at);
        at += length;
    }
}

bool ebb_ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

const char *ebb_noted_name(const ebb_graph *g, ebb_node n, const char *source, ebb_arena *scratch)
{
    const char *scopes = ebb_props_get(g, &ebb_node_of(g, n)->props, "pkg.torch.onnx.name_scopes");
    const char *end = scopes != NULL ? strrchr(scopes, ',') : NULL, *begin;
    if (end == NULL || end == scopes || end[-1] != '\'')
        return NULL;
    for (begin = --end; begin > scopes && begin[-1] != '\'';)
        begin--;
    const char *rest = source + 2; // behind "p_"
    for (const char *c = begin; c < end; c++, rest++) {
        char plain = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
        if (plain != (char)tolower((unsigned char)*rest))
            return NULL;
    }
    return end > begin && rest[0] == '_'
               ? ebb_arena_printf(scratch, "%.*s.%s", (int)(end - begin), begin, rest + 1)
               : NULL;
}
