/* loss_numbers.c: a list of numbers as an option gives it, itself or by a file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/loss/loss.h"

#include "onnx/words/print.h"

enum { MOST_NUMBERS = 1 << 22 }; // there are no more classes

typedef struct numbers {
    double *list;
    size_t count, capacity;
    ebb_arena *arena;
} numbers;

static ebb_status add(numbers *n, double x, const char *what)
{
    if (!isfinite(x) || x < 0)
        return ebb_error(EBB_USAGE, "%s: %g is no finite number from 0 on", what, x);
    if (n->count == MOST_NUMBERS)
        return ebb_error(EBB_USAGE, "%s: there are more than %d numbers", what, MOST_NUMBERS);
    EBB_GOT(ebb_arena_grow(n->arena, &n->list, n->count, &n->capacity, sizeof *n->list));
    n->list[n->count++] = x;
    return NULL;
}

/* *all: the text is numbers from its beginning to its end. */
static ebb_status read_text(numbers *n, const char *text, const char *what, bool *all)
{
    static const char between[] = ",; \t\r\n";
    char *end;
    *all = true;
    for (text += strspn(text, between); *text != '\0'; text = end + strspn(end, between)) {
        const double x = ebb_strtod(text, &end);
        *all = end != text && (*end == '\0' || strchr(between, *end) != NULL);
        if (!*all)
            return NULL;
        EBB_TRY(add(n, x, what));
    }
    return NULL;
}

static ebb_status read_array(numbers *n, const char *path, const char *what)
{
    ebb_data *data;
    EBB_TRY(ebb_while(ebb_data_open(&data, path, NULL), "reading %s", what));
    const ebb_named *a = ebb_data_count(data) == 1 ? ebb_data_at(data, 0) : NULL;
    const ebb_dtype dtype = a != NULL ? (ebb_dtype)a->dtype : EBB_NONE;
    ebb_status status = NULL;
    if ((!ebb_dtype_is_float(dtype) && !ebb_dtype_is_integer(dtype)) || a->rank != 1)
        status =
            ebb_error(EBB_USAGE, "%s: %s should hold one array of numbers, of rank 1", what, path);
    for (int64_t i = 0; status == NULL && i < a->dims[0]; i++) {
        const ebb_tensor t = {.type = ebb_type_tensor(dtype, 1, a->dims), .data = a->data};
        status = add(n, ebb_tensor_double(&t, i), what);
    }
    ebb_data_close(data);
    return status;
}

static ebb_status read_text_file(numbers *n, const char *path, const char *what)
{
    enum { MOST_BYTES = 1 << 26 };
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return ebb_hint(ebb_error_io(path, what),
                        "numbers as 1,2.5 are expected (in quotes, for they hold commas), or a "
                        "file of them");
    char *text = ebb_alloc(MOST_BYTES), line[1];
    const size_t size = text != NULL ? fread(text, 1, MOST_BYTES - 1, file) : 0;
    const bool whole = fread(line, 1, 1, file) == 0;
    bool all = false;
    (void)fclose(file);
    ebb_status status = text == NULL ? ebb_error_memory() : NULL;
    if (status == NULL) {
        text[size] = '\0';
        status = read_text(n, text, what, &all);
    }
    if (status == NULL && (!all || !whole || strlen(text) != size))
        status = ebb_error(EBB_USAGE, "%s: %s holds something else than numbers", what, path);
    ebb_free(text);
    return status;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), own = strlen(end);
    return length > own && strcmp(text + length - own, end) == 0;
}

ebb_status ebb_loss_numbers(const double **list, size_t *count, const char *text, const char *what,
                            ebb_arena *arena)
{
    numbers n = {.arena = arena};
    bool all;
    EBB_TRY(read_text(&n, text, what, &all));
    if (!all) {
        n.count = 0;
        if (ends_in(text, ".npy") || ends_in(text, ".npz") || ends_in(text, ".safetensors"))
            EBB_TRY(read_array(&n, text, what));
        else
            EBB_TRY(read_text_file(&n, text, what));
    }
    if (n.count == 0)
        return ebb_error(EBB_USAGE, "%s: no number is given", what);
    *list = n.list;
    *count = n.count;
    return NULL;
}
