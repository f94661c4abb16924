/* find_library.c: the places where a library may be, in turn. */
#include "kernels/cuda/library/find_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_in(const char *folder, size_t length, const char *name)
{
    char path[1024];
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, name);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_in_list(const char *folders, const char *name)
{
    void *library = NULL;
    while (library == NULL && folders != NULL && *folders != '\0') {
        size_t length = strcspn(folders, ":");
        if (length > 0)
            library = open_in(folders, length, name);
        folders += length + (folders[length] == ':');
    }
    return library;
}

static void *open_in_wheels(const char *environment, const char *name)
{
    static const char *const wheels[] = {"cu13/lib", "cuda_nvrtc/lib", "cublas/lib", "cudnn/lib",
                                         "nccl/lib"};
    void *library = NULL;
    for (int minor = 9; environment != NULL && library == NULL && minor < 20; minor++)
        for (size_t i = 0; i < sizeof wheels / sizeof wheels[0] && library == NULL; i++) {
            char folder[1024];
            int n = snprintf(folder, sizeof folder, "%s/lib/python3.%d/site-packages/nvidia/%s",
                             environment, minor, wheels[i]);
            if (n > 0 && (size_t)n < sizeof folder)
                library = open_in(folder, (size_t)n, name);
        }
    return library;
}

/* The loader's own words are of the place where it looks by itself: of the others it could only say
 * that there is no such file. */
void *ebb_library_find(const char *variable, const char *name, char *why, size_t size)
{
    const char *file = getenv(variable), *usual = "/usr/local/cuda/lib64";
    const bool named = file != NULL && file[0] != '\0';
    void *library = named ? NULL : open_in_list(getenv("EBB_CUDA_LIBS"), name);
    if (library != NULL)
        return library;
    library = dlopen(named ? file : name, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL)
        return library;
    const char *words = dlerror();
    (void)snprintf(why, size, "%s", words != NULL ? words : "the loader does not say why");
    if (named)
        return NULL;
    library = open_in(usual, strlen(usual), name);
    return library != NULL ? library : open_in_wheels(getenv("VIRTUAL_ENV"), name);
}

/* dlsym() gives a data pointer, which C does not convert to a function: the bytes are copied. */
bool ebb_library_symbol(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    memcpy(place, &symbol, sizeof symbol);
    return symbol != NULL;
}

void ebb_library_list(char *text, size_t size, const char *name, const char *version,
                      const char *why)
{
    size_t used = strlen(text);
    const char *comma = used > 0 ? ", " : "";
    if (used >= size)
        return;
    if (version != NULL)
        (void)snprintf(text + used, size - used, "%s%s %s", comma, name, version);
    else
        (void)snprintf(text + used, size - used, "%sno %s (%.*s)", comma, name,
                       (int)strcspn(why, "\n"), why);
}
