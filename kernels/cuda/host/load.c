/* load.c: chains on the host: by the C compiler that made this file, as a shared object; or by
 * NVRTC as PTX, where a player executes that. For tests alone, like all of this folder: it needs
 * the source tree. */
#include "kernels/cuda/fuse/compile.h"
#include "kernels/cuda/host/player.h"
#include "kernels/cuda/host/words.h"
#include "kernels/cuda/runtime.h"
#include "onnx/words/arena.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The bytes of a file that then is removed. */
static ebb_status take_file(const char *path, void **image, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    long size = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0)
        *image = ebb_alloc((size_t)size);
    bool good = *image != NULL && fseek(file, 0, SEEK_SET) == 0 &&
                fread(*image, 1, (size_t)size, file) == (size_t)size;
    *bytes = good ? (size_t)size : 0;
    if (file != NULL)
        (void)fclose(file);
    (void)unlink(path);
    return good ? NULL : ebb_error(EBB_RUNTIME, "the C compiler made nothing of a chain");
}

ebb_status ebb_gpu_compile(const char *source, int version, void **image, size_t *bytes)
{
    char c[] = "/tmp/ebb-chain-XXXXXX.c", so[] = "/tmp/ebb-chain-XXXXXX", command[2048];
    const ebb_host_player *player = ebb_host_player_named();
    (void)version;
    *image = NULL;
    *bytes = 0;
    if (player != NULL)
        return ebb_nvrtc_ptx(source, player->target(), image, bytes);
    int from = mkstemps(c, 2), to = mkstemp(so);
    FILE *file = from >= 0 ? fdopen(from, "w") : NULL;
    if (to >= 0)
        (void)close(to);
    if (file == NULL || to < 0)
        return ebb_error(EBB_IO, "no file for the source of a chain can be made in /tmp");
    bool good = fprintf(file, "#define EBB_HOST_LOADED 1\n%s", source) > 0;
    good = fclose(file) == 0 && good;
    (void)snprintf(
        command, sizeof command,
        "%s -std=c11 -O1 -shared -fPIC -Wall -Wextra -Wno-unused-variable "
        "-Wno-unused-but-set-variable -Wno-tautological-compare -Werror -I'%s' -o %s %s -lm",
        EBB_HOST_COMPILER, EBB_HOST_SOURCES, so, c);
    good = good && system(command) == 0;
    (void)unlink(c);
    if (good)
        return take_file(so, image, bytes);
    (void)unlink(so);
    return ebb_error(EBB_RUNTIME, "the C compiler does not take the source of a chain");
}

/* A shared object is opened by its name alone, so the image lies in a file meanwhile. It has a
 * place for where the running thread is told what it is. */
ebb_status ebb_gpu_load(const void *image, size_t bytes, const char *name, void **module,
                        ebb_gpu_kernel *kernel)
{
    const ebb_host_player *player = ebb_host_player_named();
    *module = NULL;
    if (player != NULL) {
        const char *wrong = player->load(image, bytes, name, module, kernel);
        return wrong != NULL ? ebb_error(EBB_RUNTIME, "a chain: %s", wrong) : NULL;
    }
    char path[] = "/tmp/ebb-chain-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return ebb_error(EBB_IO, "no file for a compiled chain can be made in /tmp");
    bool good = write(file, image, bytes) == (ssize_t)bytes;
    good = close(file) == 0 && good;
    *module = good ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    (void)unlink(path);
    ebb_host_where **place = *module != NULL ? dlsym(*module, "ebb_host_place") : NULL;
    void *symbol = *module != NULL ? dlsym(*module, name) : NULL;
    if (symbol == NULL || place == NULL) {
        ebb_gpu_unload(*module);
        *module = NULL;
        return ebb_error(EBB_RUNTIME, "a compiled chain cannot be opened, or has no '%s'", name);
    }
    *place = &ebb_host;
    memcpy(kernel, &symbol, sizeof symbol); // C converts no data pointer to a function
    return NULL;
}

void ebb_gpu_unload(void *module)
{
    const ebb_host_player *player = ebb_host_player_named();
    if (module != NULL && player != NULL)
        player->unload(module);
    else if (module != NULL)
        (void)dlclose(module);
}
