/* files.c: dims without size, weights without bytes, opsets. */
#include "api/doctor/doctor.h"

#include "passes/parameters/trainable.h"

enum { NEWEST_OPSET = 28, OLDEST_TRIED = 7 }; // of ai.onnx: what the table has, what suites have

/* ---- dims ---- */

static bool said_before(const ebb_graph *g, size_t input, int dim, ebb_str symbol)
{
    for (size_t i = 0; i <= input; i++) {
        const ebb_type *t = ebb_value_of(g, g->inputs[i])->type;
        for (int k = 0; k < t->rank && (i < input || k < dim); k++)
            if (t->dims[k] < 0 && symbol.i != 0 && ebb_same_str(t->symbols[k], symbol))
                return true;
    }
    return false;
}

static ebb_status open_dim(ebb_doctor *d, const char *input, int dim, const char *symbol)
{
    ebb_finding *f = ebb_doctor_add(d, EBB_REMARK, "dim");
    EBB_GOT(f);
    f->count = 1;
    if (dim < 0) {
        f->what = ebb_arena_printf(&d->arena, "the shape of input '%s' is not known", input);
        f->help = ebb_arena_printf(&d->arena, "give it with --shape %s:AxBxC", input);
    } else if (symbol[0] == '\0') {
        f->what = ebb_arena_printf(&d->arena, "dim %d of input '%s' has no size", dim, input);
        f->help = ebb_arena_printf(&d->arena, "give it with --shape %s:AxBxC", input);
    } else {
        f->what = ebb_arena_printf(&d->arena, "dim '%s' of input '%s' has no size", symbol, input);
        f->help = ebb_arena_printf(&d->arena, "give it with --dim %s=N", symbol);
    }
    return f->what != NULL && f->help != NULL ? NULL : ebb_error_memory();
}

static ebb_status find_open_dims(ebb_doctor *d)
{
    const ebb_graph *g = (d->tidy != NULL ? d->tidy : d->raw)->graph; // without a past
    for (size_t i = 0; i < g->input_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->inputs[i]);
        if ((info->flags & EBB_IS_INITIALIZER) != 0 || info->type->kind != EBB_KIND_TENSOR)
            continue;
        const char *name = ebb_text(g, info->name);
        if (info->type->rank < 0)
            EBB_TRY(open_dim(d, name, -1, ""));
        for (int k = 0; k < info->type->rank; k++)
            if (info->type->dims[k] < 0 && !said_before(g, i, k, info->type->symbols[k]))
                EBB_TRY(open_dim(d, name, k, ebb_text(g, info->type->symbols[k])));
    }
    return NULL;
}

/* ---- weights ---- */

static bool is_drawn(const ebb_model *m, const ebb_value_info *info)
{
    for (size_t i = 0; i < m->init_binding_count; i++)
        if (ebb_same_str(m->init_bindings[i].state, info->name))
            return true;
    return false;
}

/* location NULL: weights that the file itself left out. */
static ebb_status missing_from(ebb_doctor *d, const char *location)
{
    const ebb_graph *g = d->raw->graph;
    size_t count = 0, drawn = 0;
    double bytes = 0;
    const char *first = "";
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        const ebb_tensor *t = info->tensor;
        bool here = t->location == NULL || location == NULL ? t->location == location
                                                            : strcmp(t->location, location) == 0;
        if (t->data != NULL || t->bytes == 0 || !here)
            continue;
        first = count++ == 0 ? ebb_text(g, info->name) : first;
        drawn += is_drawn(d->raw, info);
        bytes += (double)t->bytes;
    }
    ebb_finding *f = ebb_doctor_add(d, drawn == count ? EBB_REMARK : EBB_PROBLEM, "external-data");
    EBB_GOT(f);
    f->code = drawn == count ? EBB_OK : EBB_IO;
    f->count = count;
    f->what = ebb_arena_printf(
        &d->arena, "%zu weights (%.4g MB) have no values%s%s%s; the first is '%s'", count,
        bytes / 1e6, location != NULL ? ", for their file '" : "", location != NULL ? location : "",
        location != NULL ? "' is not beside the model" : "", first);
    f->help = drawn == count ? "--init draws them by the model's own initialization graph, "
                               "--weights FILE takes them from a safetensors file"
              : location != NULL
                  ? "put that file into the model's folder, under this name; --weights FILE takes "
                    "values from a safetensors file"
                  : "--weights FILE takes values from a safetensors file";
    return f->what != NULL ? NULL : ebb_error_memory();
}

static ebb_status find_missing_weights(ebb_doctor *d)
{
    const ebb_graph *g = d->raw->graph;
    double external = 0;
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_tensor *t = ebb_value_of(g, g->initializers[i])->tensor;
        external += t->external ? (double)t->bytes : 0;
        bool first = t->data == NULL && t->bytes > 0 && t->type.dtype != EBB_STRING;
        for (size_t k = 0; first && k < i; k++) {
            const ebb_tensor *u = ebb_value_of(g, g->initializers[k])->tensor;
            if (u->data != NULL || u->bytes == 0)
                continue;
            first = u->location == NULL || t->location == NULL
                        ? u->location != t->location
                        : strcmp(u->location, t->location) != 0;
        }
        if (first)
            EBB_TRY(missing_from(d, t->location));
    }
    if (external <= 2147483648.0)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, EBB_REMARK, "large-file");
    EBB_GOT(f);
    f->what = ebb_arena_printf(&d->arena,
                               "%.2f GB of weights lie in files beside the model, which above 2 "
                               "GiB they must; they are mapped, and so are those that ebb writes",
                               external / 1e9);
    return f->what != NULL ? NULL : ebb_error_memory();
}

/* ---- opsets, parameters ---- */

static ebb_status find_opset(ebb_doctor *d)
{
    int64_t opset = ebb_model_opset(d->raw, "");
    if (opset >= OLDEST_TRIED && opset <= NEWEST_OPSET)
        return NULL;
    ebb_finding *f = ebb_doctor_add(d, opset > NEWEST_OPSET ? EBB_WARNING : EBB_REMARK, "opset");
    EBB_GOT(f);
    f->opset = opset;
    f->what = opset == 0 ? "the file names no opset of ai.onnx"
              : opset > NEWEST_OPSET
                  ? ebb_arena_printf(&d->arena,
                                     "opset %lld is newer than %d, the newest that ebb knows: "
                                     "operators are taken to be what they were then",
                                     (long long)opset, NEWEST_OPSET)
                  : ebb_arena_printf(&d->arena,
                                     "opset %lld is older than %d, before which operators "
                                     "broadcast in another way",
                                     (long long)opset, OLDEST_TRIED);
    f->help = opset > NEWEST_OPSET ? "export with a lower opset_version"
                                   : "onnx.version_converter brings it to a newer one";
    return f->what != NULL ? NULL : ebb_error_memory();
}

static ebb_status find_parameters(ebb_doctor *d)
{
    const ebb_model *m = d->tidy != NULL ? d->tidy : d->raw;
    const ebb_graph *g = m->graph;
    bool *trains = EBB_NEW(&d->arena, bool, g->value_count);
    ebb_trainable_source source;
    size_t count = 0, shared = 0;
    EBB_GOT(trains);
    EBB_TRY(ebb_trainable_find(trains, &source, g));
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        count += trains[g->initializers[i].i];
        shared += trains[g->initializers[i].i] && info->type->rank > 1 && info->use_count > 1;
    }
    const bool hindered = ebb_doctor_code(d) != EBB_OK; // and weights may be in what is not read
    ebb_finding *f = ebb_doctor_add(d,
                                    count > 0  ? EBB_REMARK
                                    : hindered ? EBB_WARNING
                                               : EBB_PROBLEM,
                                    "parameters");
    EBB_GOT(f);
    f->count = count;
    f->code = count > 0 ? EBB_OK : EBB_USAGE; // as gradient ends
    ebb_value input = ebb_input_as_weight(g);
    f->what = count > 0 ? ebb_arena_printf(&d->arena, "%zu initializers would be trained, %s",
                                           count, ebb_trainable_words(source))
              : input.i != 0
                  ? ebb_arena_printf(&d->arena,
                                     "nothing in the file looks like a weight that can be trained; "
                                     "the input '%.200s' stands where a weight does",
                                     ebb_value_name(g, input))
                  : "nothing in the file looks like a weight that can be trained";
    f->help = count > 0      ? "--train 'PATTERN' and --freeze 'PATTERN' choose others; no export "
                               "tells what requires_grad=False holds fixed"
              : input.i != 0 ? EBB_INPUT_AS_WEIGHT_HELP
                             : "name them with --train 'PATTERN', or put adapters beside products "
                               "with --pass lora";
    EBB_GOT(f->what);
    if (source == EBB_TRAINABLE_SLOTS) // else somebody has told
        EBB_TRY(ebb_doctor_buffers(d, g, trains));
    if (shared == 0)
        return NULL;
    f = ebb_doctor_add(d, EBB_REMARK, "shared-weight");
    EBB_GOT(f);
    f->count = shared;
    f->what = "weights that several operators read: each is trained once, by the sum of its "
              "gradients";
    return NULL;
}

ebb_status ebb_doctor_files(ebb_doctor *d)
{
    EBB_TRY(find_open_dims(d));
    EBB_TRY(find_missing_weights(d));
    EBB_TRY(find_opset(d));
    return find_parameters(d);
}
