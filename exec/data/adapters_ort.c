/* adapters_ort.c: adapters as ONNX Runtime takes them: values for inputs of a model that has a place beside each layer,
 *
 *     y = x W + (x A) B        A [in, r] and B [r, out] are inputs, of which r is open
 *
 * so both are turned round, and B is multiplied by the scale (as ONNX Runtime GenAI's builder does it).
 */
#include "exec/data/adapters.h"

#include <stdlib.h>

#include "exec/data/ort_checkpoint.h"

bool ebb_adapters_is_ort(const char *path)
{
    static const char ending[] = ".onnx_adapter";
    const size_t length = strlen(path), end = sizeof ending - 1;
    return length > end && strcmp(path + length - end, ending) == 0;
}

typedef struct saving {
    ebb_program *program;
    ebb_arena *arena;
    ebb_named *list;
    size_t count;
} saving;

/* v [rows, columns] turned round and multiplied. */
static ebb_status add(saving *s, ebb_value v, double by)
{
    void *copy;
    ebb_named t;
    EBB_TRY(ebb_adapter_copy(s->program, v, NULL, &t, &copy));
    const int64_t rows = t.dims[0], columns = t.dims[1];
    int64_t *dims = EBB_NEW(s->arena, int64_t, 2);
    double *turned = EBB_NEW(s->arena, double, (size_t)(rows * columns) + 1);
    ebb_status status = turned == NULL || dims == NULL ? ebb_error_memory() : NULL;
    for (int64_t i = 0; status == NULL && i < rows * columns; i++) {
        const double x = by * ebb_adapter_number(&t, i % rows * columns + i / rows);
        if (t.dtype == EBB_F32)
            ((float *)(void *)turned)[i] = (float)x;
        else
            turned[i] = x;
    }
    free(copy);
    EBB_TRY(status);
    dims[0] = columns;
    dims[1] = rows;
    s->list[s->count++] = (ebb_named){t.name, t.dtype, 2, dims, turned};
    return NULL;
}

static ebb_status add_adapter(saving *s, const ebb_adapter *a)
{
    if (a->length.i != 0 || a->block > 0)
        return ebb_hint(
            ebb_error(EBB_UNSUPPORTED, "'%s': an .onnx_adapter has no place for %s",
                      ebb_value_name(s->program->plan.g, a->b),
                      a->block > 0 ? "sums over blocks (qalora)" : "lengths of rows (dora)"),
            "save them as FILE.safetensors or a folder");
    EBB_TRY(add(s, a->a, 1));
    return add(s, a->b, a->scale);
}

static ebb_status collect(saving *s)
{
    const ebb_graph *g = s->program->plan.g;
    bool *part = ebb_arena_zeroed(s->arena, g->value_count + 1, sizeof *part);
    s->list = EBB_NEW(s->arena, ebb_named, g->initializer_count + 1);
    EBB_GOT(part && s->list);
    for (size_t i = 0; i < g->initializer_count; i++) {
        ebb_adapter a;
        if (!ebb_adapter_of(g, g->initializers[i], &a))
            continue;
        part[a.a.i] = part[a.b.i] = true;
        EBB_TRY(add_adapter(s, &a));
    }
    for (size_t i = 0; i < g->initializer_count; i++)
        if (!part[g->initializers[i].i] &&
            ebb_value_of(g, g->initializers[i])->role == EBB_ROLE_PARAMETER)
            return ebb_error(EBB_UNSUPPORTED,
                             "'%s' is trained whole, for which an .onnx_adapter has no place",
                             ebb_value_name(g, g->initializers[i]));
    return NULL;
}

ebb_status ebb_adapters_save_ort(ebb_program *program, const char *path)
{
    EBB_LOCAL_ARENA(arena);
    saving s = {.program = program, .arena = arena};
    EBB_TRY(collect(&s));
    return ebb_ort_adapter_write(path, s.list, s.count);
}
