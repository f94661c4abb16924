/* cache.c: plans on disk. */
#include <ctype.h>
#include <stdio.h>

#include "kernels/cuda/library/cache_files.h"
#include "kernels/cuda/library/cudnn/cache.h"
#include "onnx/words/arena.h"

/* ---- where ---- */

static uint64_t hash(const char *text) /* FNV-1a: names a file; the text inside decides */
{
    uint64_t h = 14695981039346656037ULL;
    for (const unsigned char *p = (const unsigned char *)text; *p != 0; p++)
        h = (h ^ *p) * 1099511628211ULL;
    return h;
}

/* What tells devices apart, as a folder's name. */
static void device_name(char name[80], const ebb_cudnn_target *target)
{
    const char *key = target->handle == NULL && target->device != NULL ? target->device->name
                      : target->key != NULL                            ? target->key
                                                                       : "present";
    size_t n = 0;
    for (; key[n] != 0 && n < 79; n++)
        name[n] = isalnum((unsigned char)key[n]) || key[n] == '.' || key[n] == '-' ? key[n] : '_';
    name[n] = 0;
    if (name[0] == '.')
        name[0] = '_';
}

ebb_status ebb_cudnn_cache_path(char *path, size_t size, const ebb_cudnn_graph *graph,
                                const ebb_cudnn_target *target, const ebb_cudnn_rules *rules)
{
    char name[80];
    EBB_TRY(ebb_cache_folder(path, size));
    size_t used = strlen(path);
    device_name(name, target);
    /* Without a driver fewer kernels are known, and another may be the best of them. */
    const char *few = target->handle == NULL && !ebb_cudnn_compiles() ? "-precompiled" : "";
    int length = snprintf(path + used, size - used, "/cudnn-%lld/%s%s/%016llx-%d%d%d%d%d-%llx.json",
                          (long long)ebb_cudnn_version(), name, few,
                          (unsigned long long)hash(ebb_cudnn_graph_text(graph)), rules->tf32,
                          rules->transforms, rules->nondeterministic, rules->precompiled_only,
                          rules->graph_only, (unsigned long long)rules->workspace_bytes);
    return length > 0 && (size_t)length < size - used
               ? NULL
               : ebb_error(EBB_IO, "the cache's folder has too long a name");
}

/* ---- plans ---- */

void ebb_cudnn_plan_keep(const ebb_cudnn_plan *plan, const ebb_cudnn_graph *graph,
                         const ebb_cudnn_target *target, const ebb_cudnn_rules *rules)
{
    char path[4096], *text = NULL;
    if (ebb_cudnn_plan_choice(plan)->makeshift ||
        ebb_cudnn_cache_path(path, sizeof path, graph, target, rules) != NULL ||
        ebb_cudnn_plan_write(plan, &text) != NULL)
        return;
    ebb_cache_write(path, text, strlen(text));
    ebb_free(text);
}

/* What lies in the cache, or NULL. */
static ebb_cudnn_plan *look(const ebb_cudnn_graph *graph, const ebb_cudnn_target *target,
                            const ebb_cudnn_rules *rules)
{
    char path[4096], *text = NULL;
    ebb_cudnn_plan *plan = NULL;
    if (ebb_cudnn_cache_path(path, sizeof path, graph, target, rules) == NULL)
        text = ebb_cache_read(path, NULL);
    if (text != NULL && ebb_cudnn_plan_read(&plan, graph, target, text) != NULL)
        plan = NULL;
    ebb_free(text);
    return plan;
}

ebb_status ebb_cudnn_plan_cached(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph,
                                 const ebb_cudnn_target *target, const ebb_cudnn_rules *rules,
                                 bool *cached)
{
    int made = 0;
    *plan = look(graph, target, rules);
    if (cached != NULL)
        *cached = *plan != NULL;
    if (*plan != NULL)
        return NULL;
    EBB_TRY(ebb_cudnn_plans_make(plan, 1, &made, graph, target, rules));
    ebb_cudnn_plan_keep(*plan, graph, target, rules);
    return NULL;
}
