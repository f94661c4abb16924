/* draw.c: weights drawn by a model's own initialization graph.
 *
 * They are drawn some at a time, and what is large goes to a file without a name that is mapped in their
 * stead, as if the model had come with it: so a large skeleton needs no memory for its weights, and those
 * that no step changes are read there (exec/weigh/memory.h).
 */
#include "exec/data/weights.h"

#include <errno.h>
#include <unistd.h>

#include "exec/run/program.h"
#include "onnx/graph/infer.h"
#include "onnx/words/map.h"

enum { TOGETHER_BYTES = 64 << 20, ALIGNMENT = 4096 };

typedef struct drawing {
    ebb_model *model;
    uint64_t seed;
    uint64_t *at; /* by binding: where in the file; NOT_THERE: its bytes go to memory */
    const unsigned char *data;
    const char *folder;
    int file;
} drawing;

#define NOT_THERE UINT64_MAX

/* Another seed for every node of the initialization graph: its own seed (a float that holds an
 * integer) XOR the given one, within the 24 bits that a float holds exactly. */
static ebb_status reseed(ebb_program *p, uint64_t seed)
{
    for (uint32_t k = 0; k < p->plan.count; k++) {
        ebb_call *call = &p->plan.calls[k];
        if (ebb_attr_find(&call->attrs, "seed") == NULL)
            continue;
        ebb_attr *list = EBB_NEW(&p->arena, ebb_attr, call->attrs.count);
        EBB_GOT(list);
        memcpy(list, call->attrs.list, call->attrs.count * sizeof *list);
        for (uint32_t a = 0; a < call->attrs.count; a++) {
            if (strcmp(list[a].name, "seed") != 0)
                continue;
            uint64_t own = list[a].f > 0 && list[a].f < 1e18 ? (uint64_t)list[a].f : 0;
            uint64_t mixed = own ^ seed ^ (seed >> 24) ^ (seed >> 48);
            list[a].f = (double)(mixed & 0xFFFFFF);
        }
        call->attrs.list = list;
    }
    return NULL;
}

/* The initializer that a binding draws; none: a rewrite removed it. */
static ebb_value drawn_of(const ebb_model *model, size_t binding)
{
    const char *name = ebb_names_text(&model->names, model->init_bindings[binding].state);
    const ebb_value v = ebb_value_find(model->graph, name);
    return v.i != 0 && (ebb_value_of(model->graph, v)->flags & EBB_IS_INITIALIZER) != 0
               ? v
               : EBB_NO_VALUE;
}

static ebb_status write_at(const drawing *d, const char *from, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(d->file, from + done, bytes - done, (off_t)(offset + done));
        if (n <= 0 && errno != EINTR)
            return ebb_error_io(d->folder, "writing weights in");
        done += n > 0 ? (size_t)n : 0;
    }
    return NULL;
}

static ebb_status keep(const drawing *d, const ebb_program *p, size_t binding)
{
    ebb_graph *g = d->model->graph;
    const ebb_value v = drawn_of(d->model, binding);
    const ebb_value value = d->model->init_bindings[binding].value;
    const ebb_type *need = ebb_value_of(g, v)->type;
    const ebb_type *drawn = ebb_value_of(p->plan.g, value)->type;
    const ebb_named named = {ebb_value_name(g, v), drawn->dtype, drawn->rank, drawn->dims, NULL};
    size_t bytes = 0;
    if (!ebb_weights_fit(need, &named))
        return ebb_weights_differ(ebb_value_name(g, v), need, &named);
    if (!ebb_type_bytes(need, &bytes))
        return NULL;
    const char *from = ebb_program_pointer(p, value);
    if (d->at[binding] == NOT_THERE)
        return ebb_weights_give(g, v, from, bytes);
    EBB_TRY(write_at(d, from, bytes, d->at[binding]));
    return ebb_value_point(g, v, d->data + d->at[binding]);
}

/* Bindings first .. last - 1, by a copy of the graph that makes nothing else. */
static ebb_status draw_with(const drawing *d, ebb_model *copy, size_t first, size_t last,
                            ebb_program **p)
{
    const ebb_compile_options options = {.backend = "cpu", .seed = d->seed};
    ebb_graph *g = copy->initialization;
    bool *gone = EBB_NEW(&copy->arena, bool, g->value_count + (size_t)1);
    EBB_GOT(gone);
    memset(gone, true, g->value_count + (size_t)1);
    ebb_graph_remove_outputs(g, gone); // those of the file need not be what is bound
    for (size_t i = first; i < last; i++)
        if (drawn_of(d->model, i).i != 0)
            EBB_TRY(ebb_graph_add_output(g, copy->init_bindings[i].value));
    (void)ebb_graph_sweep(g);
    EBB_TRY(ebb_infer_graph(g));
    EBB_TRY(ebb_program_compile_graph(p, copy, g, &options));
    if (d->seed != 0)
        EBB_TRY(reseed(*p, d->seed));
    EBB_TRY(ebb_program_step(*p, NULL));
    for (size_t i = first; i < last; i++)
        if (drawn_of(d->model, i).i != 0)
            EBB_TRY(keep(d, *p, i));
    return NULL;
}

static ebb_status draw_some(const drawing *d, size_t first, size_t last)
{
    ebb_model *copy = NULL;
    ebb_program *p = NULL;
    EBB_TRY(ebb_model_copy(&copy, d->model));
    ebb_status status = draw_with(d, copy, first, last, &p);
    ebb_program_free(p);
    ebb_model_free(copy);
    return status;
}

/* Where no file can be made for all of them, they go to memory. */
static ebb_status make_room(drawing *d, const uint64_t *bytes, size_t count)
{
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) {
        d->at[i] = NOT_THERE;
        if (bytes[i] < EBB_MAPPED_LEAST || bytes[i] > INT64_MAX - ALIGNMENT - all)
            continue;
        d->at[i] = all;
        all += (bytes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (all == 0)
        return NULL;
    ebb_status status = ebb_mapping_make(&d->model->mappings, &d->file, d->folder, (size_t)all);
    if (status == NULL)
        d->data = d->model->mappings->data;
    for (size_t i = 0; i < count && status != NULL; i++)
        d->at[i] = NOT_THERE;
    return status != NULL && ebb_status_code(status) == EBB_IO ? NULL : status;
}

static ebb_status draw(drawing *d, ebb_arena *scratch)
{
    const size_t count = d->model->init_binding_count;
    uint64_t *bytes = EBB_NEW(scratch, uint64_t, count + 1), together = 0;
    d->at = EBB_NEW(scratch, uint64_t, count + 1);
    EBB_GOT(bytes && d->at);
    for (size_t i = 0; i < count; i++) {
        const ebb_value v = drawn_of(d->model, i);
        size_t size = 0;
        if (v.i != 0 && ebb_type_bytes(ebb_value_of(d->model->graph, v)->type, &size))
            bytes[i] = size;
    }
    EBB_TRY(make_room(d, bytes, count));
    for (size_t i = 0, first = 0; i < count; i++) {
        together += bytes[i];
        if (i + 1 < count && together + bytes[i + 1] <= TOGETHER_BYTES)
            continue;
        EBB_TRY(draw_some(d, first, i + 1));
        first = i + 1;
        together = 0;
    }
    return NULL;
}

EBB_API ebb_status ebb_init_weights(ebb_model *model, uint64_t seed)
{
    EBB_NEED(model);
    if (model->initialization == NULL)
        return ebb_hint(
            ebb_error(EBB_USAGE, "the model says nothing about how to draw its weights"),
            "give them with --weights FILE.safetensors");
    drawing d = {.model = model, .seed = seed, .folder = ebb_spill_folder(NULL), .file = -1};
    EBB_LOCAL_ARENA(scratch);
    ebb_status status = draw(&d, scratch);
    if (d.file >= 0)
        (void)close(d.file);
    return ebb_while(status, "drawing weights by the model's initialization graph");
}
