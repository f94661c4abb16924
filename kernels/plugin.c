/* plugin.c: finds and opens the objects of its table. The libraries that they need they open
 * themselves. */
#define _GNU_SOURCE // dladdr
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct plugin {
    const char *name, *title;
    const char *object, *variable;
    bool tried; /* with what came of it: */
    const ebb_plugin *opened;
    const ebb_backend *list[2];
    char reason[512];
} table[] = {
    {.name = "cuda", .title = "CUDA", .object = "libebb_cuda.so", .variable = "EBB_CUDA_PLUGIN"},
};

enum { PLUGINS = sizeof table / sizeof *table };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

const char *ebb_plugin_name(size_t i)
{
    return i < PLUGINS ? table[i].name : NULL;
}

/* ---- the object ---- */

/* `below` libebb's folder; NULL: in the folder that the build puts it in. */
static void *open_beside(const char *object, const char *folder_of_build, const char *below)
{
    Dl_info self;
    char path[1024];
    if (dladdr(table, &self) == 0 || self.dli_fname == NULL)
        return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 1;
    const char *from = slash != NULL ? self.dli_fname : ".";
    int n = below != NULL ? snprintf(path, sizeof path, "%.*s/%s%s", folder, from, below, object)
                          : snprintf(path, sizeof path, "%.*s/kernels/%s/%s", folder, from,
                                     folder_of_build, object);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* The loader's words for each place tried are kept where the file was there but would not open:
 * "no such file" of the last place says nothing. */
void *ebb_object_open(const char *object, const char *variable, const char *folder, char why[512])
{
    static const char *const places[] = {"", "../lib/", NULL};
    const char *named = getenv(variable), *said = NULL;
    const bool is_named = named != NULL && *named != '\0';
    void *handle = is_named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    why[0] = '\0';
    for (size_t i = 0; !is_named && handle == NULL && i < sizeof places / sizeof *places; i++) {
        handle = open_beside(object, folder, places[i]);
        said = handle == NULL ? dlerror() : NULL;
        if (said != NULL && (why[0] == '\0' || strstr(said, object) == NULL))
            (void)snprintf(why, 512, "%s", said);
    }
    if (handle == NULL && why[0] == '\0') {
        said = dlerror();
        (void)snprintf(why, 512, "%s", said != NULL ? said : "it is not there");
    }
    return handle;
}

static void try_to_open(struct plugin *p)
{
    void *handle = ebb_object_open(p->object, p->variable, p->name, p->reason);
    if (handle == NULL)
        return;
    void *symbol = dlsym(handle, "ebb_plugin_table");
    const ebb_plugin *plugin = symbol;
    if (plugin == NULL)
        (void)snprintf(p->reason, sizeof p->reason, "it is no back end of ebb");
    else if (plugin->version != EBB_PLUGIN_VERSION || plugin->op_count != EBB_OP_COUNT)
        (void)snprintf(p->reason, sizeof p->reason, "it was built from another version of ebb");
    else
        p->opened = plugin;
    if (p->opened != NULL)
        p->list[0] = p->opened->backend;
}

ebb_status ebb_plugin_open(const ebb_plugin **plugin, size_t i)
{
    struct plugin *p = &table[i];
    (void)pthread_mutex_lock(&opening);
    if (!p->tried)
        try_to_open(p);
    p->tried = true;
    (void)pthread_mutex_unlock(&opening);
    *plugin = p->opened;
    if (p->opened != NULL)
        return NULL;
    return ebb_hint(
        ebb_error(EBB_DEVICE, "the %s back end cannot be opened: %s", p->title, p->reason),
        "`ebb devices` tells what was looked for; --backend cpu needs none of it");
}

/* ---- back ends ---- */

static ebb_status heed(const ebb_plugin *plugin, const char *words)
{
    char device[64] = "";
    bool tf32 = false;
    while (*words != '\0') {
        size_t length = strcspn(words, "+");
        if (length == 4 && strncmp(words, "tf32", 4) == 0)
            tf32 = true;
        else
            (void)snprintf(device, sizeof device, "%.*s", (int)length, words);
        words += length + (words[length] == '+');
    }
    plugin->allow_tf32(tf32);
    return plugin->describe(device[0] != '\0' ? device : NULL);
}

ebb_status ebb_plugin_backends(const ebb_backend *const **list, const char *name)
{
    const ebb_plugin *plugin;
    size_t length = strcspn(name, ":"), i = 0;
    *list = NULL;
    while (i < PLUGINS &&
           (strlen(table[i].name) != length || strncmp(table[i].name, name, length) != 0))
        i++;
    if (i == PLUGINS)
        return NULL;
    EBB_TRY(ebb_plugin_open(&plugin, i));
    EBB_TRY(heed(plugin, name[length] == ':' ? name + length + 1 : ""));
    *list = table[i].list;
    return NULL;
}
