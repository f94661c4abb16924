/* doctor.c: findings, and their form as JSON. */
#include "api/doctor/doctor.h"

/* ---- findings ---- */

ebb_finding *ebb_doctor_add(ebb_doctor *d, ebb_severity severity, const char *kind)
{
    if (!ebb_arena_grow(&d->arena, &d->list, d->count, &d->capacity, sizeof *d->list))
        return NULL;
    ebb_finding *f = &d->list[d->count++];
    *f = (ebb_finding){.severity = severity,
                       .kind = kind,
                       .op = "",
                       .domain = "",
                       .what = "",
                       .help = "",
                       .pass = ""};
    return f;
}

ebb_status ebb_doctor_node(ebb_doctor *d, ebb_finding *f, const ebb_graph *g, ebb_node n)
{
    f->count++;
    if (f->node_count == EBB_NODES_NAMED)
        return NULL;
    const char *label = ebb_arena_strdup(&d->arena, ebb_node_label(g, n));
    f->nodes[f->node_count++] = label;
    return label != NULL ? NULL : ebb_error_memory();
}

ebb_finding *ebb_doctor_about(ebb_doctor *d, ebb_severity severity, const char *kind,
                              const ebb_graph *g, ebb_node n)
{
    const ebb_node_info *info = ebb_node_of(g, n);
    const char *op = ebb_text(g, info->op_name), *domain = ebb_text(g, info->domain);
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->list[i].kind, kind) == 0 && strcmp(d->list[i].op, op) == 0 &&
            strcmp(d->list[i].domain, domain) == 0)
            return &d->list[i];
    ebb_finding *f = ebb_doctor_add(d, severity, kind);
    if (f == NULL)
        return NULL;
    // copies: the graph that they are read from may go before the findings do
    f->op = ebb_arena_strdup(&d->arena, op);
    f->domain = ebb_arena_strdup(&d->arena, domain);
    f->opset = ebb_model_opset(g->model, domain);
    return f->op != NULL && f->domain != NULL ? f : NULL;
}

bool ebb_doctor_found(const ebb_doctor *d, const char *kind)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->list[i].kind, kind) == 0)
            return true;
    return false;
}

const char *ebb_doctor_sentence(ebb_doctor *d, ebb_status status)
{
    const char *text = ebb_status_text(status);
    return ebb_arena_printf(&d->arena, "%.*s", (int)strcspn(text, "\n"), text);
}

/* ---- as JSON ---- */

static json_t *row_of(const ebb_finding *f)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < f->node_count; i++)
        json_array_append_new(nodes, json_string(f->nodes[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o, s:s, s:s, s:s, s:i}", "kind", f->kind,
                     "node", f->node_count > 0 ? f->nodes[0] : "", "op", f->op, "domain", f->domain,
                     "opset", (json_int_t)f->opset, "count", (json_int_t)f->count, "nodes", nodes,
                     "what", f->what, "help", f->help, "pass", f->pass, "code", (int)f->code);
}

/* A file that contradicts itself first, then what is not supported, then what is missing. */
ebb_code ebb_doctor_code(const ebb_doctor *d)
{
    static const ebb_code order[] = {EBB_REJECTED, EBB_VERIFY, EBB_UNSUPPORTED, EBB_IO};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++)
        for (size_t i = 0; i < d->count; i++)
            if (d->list[i].severity == EBB_PROBLEM && d->list[i].code == order[k])
                return order[k];
    for (size_t i = 0; i < d->count; i++)
        if (d->list[i].severity == EBB_PROBLEM)
            return d->list[i].code;
    return EBB_OK;
}

/* Findings from `later` on go before that at `place`: they are told in this order. */
static ebb_status move_before(ebb_doctor *d, size_t place, size_t later)
{
    size_t count = d->count - later;
    ebb_finding *moved = EBB_NEW(&d->arena, ebb_finding, count);
    EBB_GOT(moved);
    if (count == 0)
        return NULL;
    memcpy(moved, d->list + later, count * sizeof *moved);
    memmove(d->list + place + count, d->list + place, (later - place) * sizeof *moved);
    memcpy(d->list + place, moved, count * sizeof *moved);
    return NULL;
}

ebb_status ebb_doctor_examine(ebb_doctor *d, const ebb_model *model)
{
    *d = (ebb_doctor){.model = model};
    EBB_TRY(ebb_doctor_types(d));
    EBB_TRY(ebb_doctor_tidy(d));
    EBB_TRY(ebb_doctor_sizes(d));
    EBB_TRY(ebb_doctor_operators(d));
    ebb_model_free(d->sized);
    d->sized = NULL;
    const size_t before = d->count;
    EBB_TRY(ebb_doctor_files(d));
    EBB_TRY(ebb_doctor_exporter(d));
    const size_t gradients = d->count;
    EBB_TRY(ebb_doctor_gradients(d)); // last, as it needs a model to spoil
    return move_before(d, before, gradients);
}

void ebb_doctor_fini(ebb_doctor *d)
{
    ebb_model_free(d->raw);
    ebb_model_free(d->tidy);
    ebb_model_free(d->sized);
    ebb_arena_fini(&d->arena);
}

static json_t *json_of(const ebb_doctor *d)
{
    json_t *rows[EBB_SEVERITY_COUNT];
    for (int s = 0; s < EBB_SEVERITY_COUNT; s++) {
        rows[s] = json_array();
        for (size_t i = 0; i < d->count; i++)
            if ((int)d->list[i].severity == s)
                json_array_append_new(rows[s], row_of(&d->list[i]));
    }
    return json_pack("{s:s, s:s, s:I, s:i, s:o, s:o, s:o}", "schema", "ebb.check/2", "path",
                     d->model->path, "opset", (json_int_t)ebb_model_opset(d->model, ""), "code",
                     (int)ebb_doctor_code(d), "problems", rows[EBB_PROBLEM], "warnings",
                     rows[EBB_WARNING], "notes", rows[EBB_REMARK]);
}

ebb_status ebb_check(const ebb_model *model, ebb_code *code, char **json)
{
    EBB_NEED(model);
    EBB_NEED(code);
    EBB_NEED(json);
    ebb_doctor d;
    ebb_status status = ebb_doctor_examine(&d, model);
    *code = ebb_doctor_code(&d);
    if (status == NULL)
        status = ebb_json_text(json, json_of(&d));
    ebb_doctor_fini(&d);
    return status;
}

ebb_status ebb_check_json(const ebb_model *model, char **json)
{
    EBB_NEED(model);
    EBB_NEED(json);
    ebb_code code;
    return ebb_check(model, &code, json);
}
