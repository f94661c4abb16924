/* cache_files.c: files of the cache. Both reading and writing without errors, as a cache may. */
#include "kernels/cuda/fuse/cache_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/words/arena.h"

enum { LARGEST = 16 << 20 }; /* bytes of a file that is believed */

ebb_status ebb_cache_folder(char *path, size_t size)
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
    return ebb_hint(ebb_error(EBB_IO, "there is no folder for cached plans and kernels"),
                    "name one in EBB_CACHE");
}

char *ebb_cache_read(const char *path, size_t *length)
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
    if (length != NULL)
        *length = bytes;
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

void ebb_cache_write(char *path, const void *data, size_t bytes)
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
    bool good = fwrite(data, 1, bytes, file) == bytes;
    good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0)
        (void)unlink(beside);
}
