/* cache.c: plans on disk. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/cudnn/cache.h"
#include "onnx/arena.h"

enum { LARGEST = 16 << 20 }; /* bytes of a file that is believed */

/* ---- where ---- */

static uint64_t hash(const char *text) /* FNV-1a: names a file; the text inside decides */
{
    uint64_t h = 14695981039346656037ULL;
    for (const unsigned char *p = (const unsigned char *)text; *p != 0; p++)
        h = (h ^ *p) * 1099511628211ULL;
    return h;
}

static ebb_status folder(char *path, size_t size)
{
    const struct {
        const char *variable, *below;
    } places[] = {{"EBB_CACHE", ""}, {"XDG_CACHE_HOME", "/ebb"}, {"HOME", "/.cache/ebb"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = getenv(places[i].variable);
        if (value == NULL || value[0] == 0)
            continue;
        int length = snprintf(path, size, "%s%s", value, places[i].below);
        return length > 0 && (size_t)length < size
                   ? NULL
                   : ebb_error(EBB_IO, "the cache's folder has too long a name");
    }
    return ebb_hint(ebb_error(EBB_IO, "there is no folder for cached plans"),
                    "name one in EBB_CACHE");
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
    EBB_TRY(folder(path, size));
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

/* ---- reading and writing: both without errors, as a cache may ---- */

/* The whole file with a zero behind it, ebb_alloc()ed; NULL where there is none to believe. */
static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t bytes = 0, room = 0;
    if (file == NULL)
        return NULL;
    while (bytes < LARGEST) {
        if (room - bytes < 4096) {
            char *grown = ebb_realloc(text, room + 65536);
            if (grown == NULL)
                break;
            text = grown;
            room += 65536;
        }
        size_t got = fread(text + bytes, 1, room - bytes - 1, file);
        bytes += got;
        if (got == 0)
            break;
    }
    bool whole = text != NULL && feof(file) && !ferror(file);
    (void)fclose(file);
    if (!whole) {
        ebb_free(text);
        return NULL;
    }
    text[bytes] = 0;
    return text;
}

/* Makes the folders above a file. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0777); /* there already, or the file below will not open */
        *slash = '/';
    }
}

static void write_file(char *path, const char *text)
{
    char beside[4200];
    make_folders(path);
    int length = snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    if (length <= 0 || (size_t)length >= sizeof beside)
        return;
    int descriptor = mkstemp(beside);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (file == NULL) {
        if (descriptor >= 0) {
            (void)close(descriptor);
            (void)unlink(beside);
        }
        return;
    }
    size_t bytes = strlen(text);
    bool good = fwrite(text, 1, bytes, file) == bytes;
    good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0)
        (void)unlink(beside);
}

void ebb_cudnn_plan_keep(const ebb_cudnn_plan *plan, const ebb_cudnn_graph *graph,
                         const ebb_cudnn_target *target, const ebb_cudnn_rules *rules)
{
    char path[4096], *text = NULL;
    if (ebb_cudnn_cache_path(path, sizeof path, graph, target, rules) != NULL ||
        ebb_cudnn_plan_write(plan, &text) != NULL)
        return;
    write_file(path, text);
    ebb_free(text);
}

ebb_status ebb_cudnn_plan_cached(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph,
                                 const ebb_cudnn_target *target, const ebb_cudnn_rules *rules,
                                 bool *cached)
{
    char path[4096], *text = NULL;
    int made = 0;
    *plan = NULL;
    if (ebb_cudnn_cache_path(path, sizeof path, graph, target, rules) == NULL)
        text = read_file(path);
    if (text != NULL && ebb_cudnn_plan_read(plan, graph, target, text) != NULL)
        *plan = NULL;
    ebb_free(text);
    if (cached != NULL)
        *cached = *plan != NULL;
    if (*plan != NULL)
        return NULL;
    EBB_TRY(ebb_cudnn_plans_make(plan, 1, &made, graph, target, rules));
    ebb_cudnn_plan_keep(*plan, graph, target, rules);
    return NULL;
}
