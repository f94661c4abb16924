/* open.c: a model from its file, or from ONNX Runtime's training artifacts. */
#include "api/artifacts.h"

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "passes/mended/merged.h"

/* What is illegal in a file is the file's fault. */
static ebb_status verify_file(const ebb_graph *g)
{
    ebb_status status = ebb_verify(g);
    return ebb_status_code(status) == EBB_VERIFY
               ? ebb_error(EBB_REJECTED, "%s", ebb_status_text(status))
               : status;
}

static ebb_status open_file(ebb_model *m, const char *file, bool as_it_is)
{
    bool joined;
    EBB_TRY(ebb_artifacts_join(m, &joined));
    if (as_it_is && !joined)
        return NULL;
    if (!joined) {
        ebb_arena scratch = {0};
        ebb_status status = ebb_merged_part(m->graph, &scratch);
        ebb_arena_fini(&scratch);
        EBB_TRY(status);
    }
    EBB_TRY(ebb_infer_graph(m->graph));
    EBB_TRY(verify_file(m->graph));
    return joined ? ebb_artifacts_finish(m, file) : NULL;
}

static ebb_status open_at(ebb_model **model, const char *path, bool as_it_is)
{
    ebb_arena scratch = {0};
    ebb_model *m = NULL;
    *model = NULL;
    const char *file = ebb_artifacts_file(&scratch, path);
    ebb_status status = file == NULL ? ebb_error_memory() : ebb_model_read(&m, file);
    if (file != NULL && file != path && ebb_status_code(status) == EBB_IO)
        status = ebb_hint(status,
                          "%s is a folder: give an .onnx file, or a folder of ONNX "
                          "Runtime's training artifacts",
                          path);
    if (status == NULL)
        status = ebb_at(open_file(m, file, as_it_is), file);
    ebb_arena_fini(&scratch);
    if (status != NULL) {
        ebb_model_free(m);
        return status;
    }
    *model = m;
    return NULL;
}

ebb_status ebb_open(ebb_model **model, const char *path)
{
    return open_at(model, path, false);
}

ebb_status ebb_open_as_is(ebb_model **model, const char *path)
{
    return open_at(model, path, true);
}
