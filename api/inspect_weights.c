/* inspect_weights.c: what a training makes of each initializer of a model, and why.
 *
 * A step says it itself, by the roles of its states. Any other model is judged as pass gradient judges
 * it: on a copy, after the passes that `ebb grad` runs before it. Which weights the loss depends on is
 * not known yet.
 */
#include "api/api.h"

#include "passes/parameters/trainable.h"

typedef struct verdict {
    const char *role, *why;
    bool trained;
} verdict;

typedef struct study {
    const ebb_model *model;
    ebb_model *copy;  /* as the gradient sees it */
    ebb_weight *list; /* by value id of the copy */
    ebb_trainable_source source;
    ebb_arena arena;
} study;

/* The passes before the gradient. A model that they cannot be run on is judged as it stands. */
static ebb_status prepare(study *s)
{
    char *pipeline = NULL;
    EBB_TRY(ebb_model_copy(&s->copy, s->model));
    EBB_TRY(ebb_step_pipeline(&pipeline, NULL));
    char *end = strstr(pipeline, ",gradient");
    if (end != NULL)
        *end = '\0';
    const ebb_status failed = ebb_rewrite(s->copy, pipeline, NULL, NULL);
    ebb_release(pipeline);
    if (failed == NULL)
        return NULL;
    ebb_model_free(s->copy);
    s->copy = NULL;
    return ebb_model_copy(&s->copy, s->model);
}

static ebb_status judge(study *s)
{
    if (s->model->graph->binding_count > 0)
        return ebb_model_copy(&s->copy, s->model);
    EBB_TRY(prepare(s));
    s->list = EBB_NEW(&s->arena, ebb_weight, s->copy->graph->value_count + (size_t)1);
    EBB_GOT(s->list);
    return ebb_weights_judge(s->list, &s->source, s->copy->graph, &s->arena);
}

static verdict of_weight(const study *s, const ebb_weight *weight)
{
    if (weight->kind == EBB_SURE_WEIGHT)
        return (verdict){"parameter",
                         weight->why != NULL ? weight->why : ebb_trainable_words(s->source), true};
    if (weight->kind == EBB_DOUBTFUL_WEIGHT)
        return (verdict){"doubtful", weight->why, false};
    return (verdict){"constant", "neither its readers nor its values are those of a weight", false};
}

static verdict verdict_of(const study *s, ebb_value original)
{
    const ebb_graph *g = s->copy->graph;
    const ebb_value v = ebb_value_find(g, ebb_value_name(s->model->graph, original));
    const ebb_value_info *info = ebb_value_of(g, v);
    if (v.i == 0 || info->dead || (info->flags & EBB_IS_INITIALIZER) == 0)
        return (verdict){"constant", "it is computed with before the training begins", false};
    switch (info->role) {
    case EBB_ROLE_PARAMETER:
        if (s->list == NULL)
            return (verdict){"parameter", "the step updates it", true};
        break;
    case EBB_ROLE_FROZEN:
        return (verdict){"frozen", "no pass trains it", false};
    case EBB_ROLE_STATISTIC:
        return (verdict){"statistic", "a running mean or variance", false};
    case EBB_ROLE_OPTIMIZER:
        return (verdict){"optimizer", "a state of the optimizer", false};
    case EBB_ROLE_RANDOM:
        return (verdict){"random", "the key of random numbers", false};
    default:
        break;
    }
    if (s->list == NULL)
        return (verdict){"constant", "the step leaves it as it is", false};
    if (!ebb_dtype_is_float((ebb_dtype)info->type->dtype))
        return (verdict){"constant", "it holds no floating-point numbers", false};
    return of_weight(s, &s->list[v.i]);
}

static json_t *list_of(const study *s)
{
    const ebb_graph *g = s->model->graph;
    json_t *list = json_array();
    for (size_t i = 0; i < g->initializer_count; i++) {
        const ebb_value_info *info = ebb_value_of(g, g->initializers[i]);
        const verdict v = verdict_of(s, g->initializers[i]);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:I, s:s, s:b, s:s}", "name", ebb_text(g, info->name),
                            "dtype", ebb_dtype_name((ebb_dtype)info->type->dtype), "dims",
                            ebb_dims_json(g, info->type), "bytes", (json_int_t)info->tensor->bytes,
                            "role", v.role, "trained", (int)v.trained, "why",
                            v.why != NULL ? v.why : ""));
    }
    return list;
}

ebb_status ebb_weights_json(json_t **list, const ebb_model *model)
{
    study s = {.model = model};
    ebb_status status = judge(&s);
    if (status == NULL)
        *list = list_of(&s);
    ebb_model_free(s.copy);
    ebb_arena_fini(&s.arena);
    return status;
}
