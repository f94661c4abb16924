/* plugin.c: finds and opens libebb_cuda.so. The libraries that it needs it opens itself. */
#define _GNU_SOURCE // dladdr
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const object = "libebb_cuda.so";

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const ebb_plugin *opened;
static char reason[512];

/* ---- the object ---- */

static void *open_beside(const char *below)
{
    Dl_info self;
    char path[1024];
    if (dladdr(&opened, &self) == 0 || self.dli_fname == NULL)
        return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 1;
    const char *from = slash != NULL ? self.dli_fname : ".";
    int n = snprintf(path, sizeof path, "%.*s/%s%s", folder, from, below, object);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* The loader's words for each place tried are kept where the file was there but would not open:
 * "no such file" of the last place says nothing. */
static void *open_object(void)
{
    static const char *const places[] = {"", "../lib/", "kernels/cuda/"};
    const char *named = getenv("EBB_CUDA_PLUGIN");
    if (named != NULL && *named != '\0')
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        void *handle = open_beside(places[i]);
        const char *why = handle == NULL ? dlerror() : NULL;
        if (handle != NULL)
            return handle;
        if (why != NULL && (reason[0] == '\0' || strstr(why, object) == NULL))
            (void)snprintf(reason, sizeof reason, "%s", why);
    }
    return NULL;
}

static void open_plugin(void)
{
    void *handle = open_object();
    if (handle == NULL) {
        const char *why = dlerror();
        if (reason[0] == '\0')
            (void)snprintf(reason, sizeof reason, "%s", why != NULL ? why : "it is not there");
        return;
    }
    void *symbol = dlsym(handle, "ebb_plugin_table");
    const ebb_plugin *plugin = symbol;
    if (plugin == NULL)
        (void)snprintf(reason, sizeof reason, "it is no back end of ebb");
    else if (plugin->version != EBB_PLUGIN_VERSION || plugin->op_count != EBB_OP_COUNT)
        (void)snprintf(reason, sizeof reason, "it was built from another version of ebb");
    else
        opened = plugin;
}

ebb_status ebb_plugin_backend(const ebb_backend **backend, const char *words)
{
    const ebb_plugin *plugin;
    char device[64] = "";
    bool tf32 = false;
    EBB_TRY(ebb_plugin_cuda(&plugin));
    while (words != NULL && *words != '\0') {
        size_t length = strcspn(words, "+");
        if (length == 4 && strncmp(words, "tf32", 4) == 0)
            tf32 = true;
        else
            (void)snprintf(device, sizeof device, "%.*s", (int)length, words);
        words += length + (words[length] == '+');
    }
    plugin->allow_tf32(tf32);
    *backend = plugin->backend;
    return plugin->describe(device[0] != '\0' ? device : NULL);
}

ebb_status ebb_plugin_cuda(const ebb_plugin **plugin)
{
    (void)pthread_once(&once, open_plugin);
    *plugin = opened;
    if (opened != NULL)
        return NULL;
    return ebb_hint(ebb_error(EBB_DEVICE, "the CUDA back end cannot be opened: %s", reason),
                    "`ebb devices` tells what was looked for; --backend cpu needs none of it");
}
