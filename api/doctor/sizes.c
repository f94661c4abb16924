/* sizes.c: nodes whose outputs have no size before they run, as NonZero's have not: a step has all its
 * sizes before. Where dims of inputs are open, sizes are tried on a copy: what has none then has none
 * for any.
 */
#include "api/doctor/doctor.h"

#include "onnx/graph/infer.h"

/* ---- a copy with sizes ---- */

static bool is_open(const ebb_graph *g, ebb_value v)
{
    const ebb_value_info *info = ebb_value_of(g, v);
    return (info->flags & EBB_IS_INITIALIZER) == 0 && info->type->kind == EBB_KIND_TENSOR &&
           !ebb_type_is_static(info->type);
}

static bool has_open_inputs(const ebb_graph *g)
{
    for (size_t i = 0; i < g->input_count; i++)
        if (is_open(g, g->inputs[i]))
            return true;
    return false;
}

static ebb_status bind(ebb_graph *g, ebb_value input, int64_t size)
{
    ebb_type type = *ebb_value_of(g, input)->type;
    size_t bound;
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] < 0 && type.symbols[k].i != 0)
            EBB_TRY(ebb_bind_dim(g, ebb_text(g, type.symbols[k]), size, &bound));
    type = *ebb_value_of(g, input)->type;
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] < 0)
            type.dims[k] = size;
    return type.rank < 0 ? NULL : ebb_bind_shape(g, ebb_value_name(g, input), type.dims, type.rank);
}

/* The model with this size for each open dim; NULL: it contradicts the model. */
static ebb_status try_size(ebb_doctor *d, ebb_model **copy, int64_t size)
{
    ebb_report report;
    size_t known = d->count;
    EBB_TRY(ebb_model_copy(copy, d->tidy));
    ebb_graph *g = (*copy)->graph;
    ebb_status status = NULL;
    for (size_t i = 0; status == NULL && i < g->input_count; i++)
        if (is_open(g, g->inputs[i]))
            status = bind(g, g->inputs[i], size);
    if (status == NULL && !has_open_inputs(g))
        status = ebb_infer_graph(g);
    if (status == NULL && !has_open_inputs(g))
        status = ebb_doctor_pass(d, *copy, "fold", &report);
    bool fits = status == NULL && d->count == known && !has_open_inputs(g);
    d->count = known; // it is only tried
    if (!fits) {
        ebb_model_free(*copy);
        *copy = NULL;
    }
    return ebb_status_code(status) == EBB_RUNTIME ? status : NULL;
}

/* ---- what has none ---- */

ebb_status ebb_doctor_sizes(ebb_doctor *d)
{
    static const int64_t sizes[] = {2, 16, 64, 224}; // a batch or a length; then images
    if (d->tidy == NULL)
        return NULL;
    const bool open = has_open_inputs(d->tidy->graph);
    for (size_t i = 0; open && i < sizeof sizes / sizeof *sizes && d->sized == NULL; i++)
        EBB_TRY(try_size(d, &d->sized, sizes[i]));
    const ebb_graph *g = !open ? d->tidy->graph : d->sized != NULL ? d->sized->graph : NULL;
    for (ebb_node n = g != NULL ? ebb_first(g) : EBB_NO_NODE; n.i != 0; n = ebb_next(g, n)) {
        if (!ebb_node_gives_no_size(g, n))
            continue;
        ebb_finding *f = ebb_doctor_about(d, EBB_PROBLEM, "sizes", g, n);
        EBB_GOT(f);
        f->code = EBB_UNSUPPORTED;
        f->what = "how large its output is hangs on values, and a step has all its sizes before "
                  "it runs";
        f->help = ebb_help_of_sizes(g, n);
        EBB_TRY(ebb_doctor_node(d, f, g, n));
    }
    return NULL;
}
