/* open.c: a model from its file, or from ONNX Runtime's training artifacts. */
#include "api/artifacts.h"

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/mended/gone.h"
#include "passes/mended/merged.h"

/* What is illegal in a file is the file's fault. */
static ebb_status verify_file(const ebb_graph *g)
{
    ebb_status status = ebb_verify(g);
    return ebb_status_code(status) == EBB_VERIFY
               ? ebb_error(EBB_REJECTED, "%s", ebb_status_text(status))
               : status;
}

/* file: where it lies; NULL: in memory. */
static ebb_status open_file(ebb_model *m, const char *file, bool as_it_is)
{
    bool joined;
    EBB_TRY(ebb_artifacts_join(m, &joined));
    if (as_it_is && !joined)
        return NULL;
    if (!joined) {
        EBB_LOCAL_ARENA(scratch);
        EBB_TRY(ebb_merged_part(m->graph, scratch));
        EBB_TRY(ebb_gone_mark(m->graph, scratch));
    }
    EBB_TRY(ebb_infer_graph(m->graph));
    EBB_TRY(verify_file(m->graph));
    return joined && file != NULL ? ebb_artifacts_finish(m, file) : NULL;
}

static ebb_status open_at(ebb_model **model, const char *path, bool as_it_is)
{
    EBB_LOCAL_ARENA(scratch);
    ebb_model *m = NULL;
    *model = NULL;
    const char *file = ebb_artifacts_file(scratch, path);
    ebb_status status = file == NULL ? ebb_error_memory() : ebb_model_read(&m, file);
    if (file != NULL && file != path && ebb_status_code(status) == EBB_IO)
        status = ebb_hint(status,
                          "%s is a folder: give an .onnx file, or a folder of ONNX "
                          "Runtime's training artifacts",
                          path);
    if (status == NULL)
        status = ebb_at(open_file(m, file, as_it_is), file);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *model = m;
    return NULL;
}

/* An initializer whose bytes the file leaves to another one; NULL: there is none. */
static const char *external_of(const ebb_graph *g)
{
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *v = ebb_value_of(g, g->initializers[i]);
        if (v->tensor != NULL && v->tensor->external)
            return ebb_text(g, v->name);
    }
    return NULL;
}

static ebb_status open_bytes(ebb_model *m, const char *folder)
{
    const char *away = folder == NULL ? external_of(m->graph) : NULL;
    if (away != NULL)
        return ebb_error(EBB_REJECTED,
                         "'%s' has its data in another file: tell the folder where it is", away);
    return open_file(m, NULL, false);
}

ebb_status ebb_open_memory(ebb_model **model, const void *bytes, size_t size, const char *folder)
{
    EBB_NEED(model);
    EBB_NEED(bytes);
    ebb_model *m = NULL;
    *model = NULL;
    EBB_TRY(ebb_model_read_memory(&m, bytes, size, folder));
    ebb_status status = open_bytes(m, folder);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *model = m;
    return NULL;
}

ebb_status ebb_open(ebb_model **model, const char *path)
{
    EBB_NEED(model);
    EBB_NEED(path);
    return open_at(model, path, false);
}

ebb_status ebb_open_as_is(ebb_model **model, const char *path)
{
    EBB_NEED(model);
    EBB_NEED(path);
    return open_at(model, path, true);
}
