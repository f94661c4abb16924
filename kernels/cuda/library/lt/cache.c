/* cache.c: algorithms that won, on disk. */
#include "kernels/cuda/library/cache_files.h"
#include "kernels/cuda/library/lt.h"
#include "onnx/words/arena.h"

#include <ctype.h>
#include <stdio.h>

typedef struct record { /* a file */
    char kind[8];
    int64_t version;
    ebb_lt_problem problem;
    uint8_t algorithm[EBB_LT_ALGORITHM];
    uint64_t sum; /* of what stands before it */
} record;

static const char kind[8] = {'e', 'b', 'b', 'l', 't', ' ', ' ', '1'};

static uint64_t sum_of(const void *data, size_t bytes) /* FNV-1a */
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return h;
}

ebb_status ebb_lt_cache_path(char *path, size_t size, const char *device,
                             const ebb_lt_problem *problem)
{
    char name[80];
    size_t n = 0;
    for (; device[n] != 0 && n < sizeof name - 1; n++)
        name[n] = isalnum((unsigned char)device[n]) || device[n] == '-' ? device[n] : '_';
    name[n] = 0;
    EBB_TRY(ebb_cache_folder(path, size));
    size_t used = strlen(path);
    int length = snprintf(path + used, size - used, "/cublaslt-%lld/%s/%016llx.bin",
                          (long long)ebb_lt_version(), name,
                          (unsigned long long)sum_of(problem, sizeof *problem));
    return length > 0 && (size_t)length < size - used
               ? NULL
               : ebb_error(EBB_IO, "the cache's folder has too long a name");
}

void ebb_lt_keep(const char *device, const ebb_lt_problem *problem,
                 const uint8_t bytes[EBB_LT_ALGORITHM])
{
    char path[4096];
    record r;
    memset(&r, 0, sizeof r);
    memcpy(r.kind, kind, sizeof kind);
    r.version = ebb_lt_version();
    r.problem = *problem;
    memcpy(r.algorithm, bytes, EBB_LT_ALGORITHM);
    r.sum = sum_of(&r, offsetof(record, sum));
    if (ebb_lt_cache_path(path, sizeof path, device, problem) == NULL)
        ebb_cache_write(path, &r, sizeof r);
}

bool ebb_lt_recall(const char *device, const ebb_lt_problem *problem,
                   uint8_t bytes[EBB_LT_ALGORITHM])
{
    char path[4096];
    size_t length = 0;
    record r;
    if (ebb_lt_cache_path(path, sizeof path, device, problem) != NULL)
        return false;
    char *file = ebb_cache_read(path, &length);
    bool good = file != NULL && length == sizeof r;
    if (good) {
        memcpy(&r, file, sizeof r);
        good = memcmp(r.kind, kind, sizeof kind) == 0 && r.version == ebb_lt_version() &&
               memcmp(&r.problem, problem, sizeof *problem) == 0 &&
               r.sum == sum_of(&r, offsetof(record, sum));
    }
    if (good)
        memcpy(bytes, r.algorithm, EBB_LT_ALGORITHM);
    ebb_free(file);
    return good;
}
