/* plan_text.c: a plan as JSON and back.
 *
 *     {"ebb": 3, "cudnn": 91900, "device": "h100", "graph": "...", "engine": 3,
 *      "knobs": [[2, 13], ...], "workspace": 0, "numeric": 1, "behaviour": 0, "fallback": false,
 *      "runs": true, "plan": "..."}
 */
#include <stdlib.h>

#include <jansson.h>

#include "kernels/cuda/library/cudnn/plan_internal.h"

/* An attribute that is text, ebb_alloc()ed; NULL where there is none. */
static char *text_of(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name)
{
    int64_t length = 0, count = 0;
    if (ebb_cudnn.get(of, name, CUDNN_TYPE_CHAR, 0, &length, NULL) != CUDNN_STATUS_SUCCESS ||
        length <= 0 || length > (1 << 24))
        return NULL;
    char *text = ebb_alloc((size_t)length + 1);
    if (text == NULL)
        return NULL;
    if (ebb_cudnn.get(of, name, CUDNN_TYPE_CHAR, length, &count, text) != CUDNN_STATUS_SUCCESS ||
        count > length) {
        ebb_free(text);
        return NULL;
    }
    text[length] = 0;
    return text;
}

ebb_status ebb_cudnn_device_dump(const ebb_cudnn_target *target, char **text)
{
    static const char label[] = "the device";
    cudnnBackendDescriptor_t device = NULL;
    cudnnHandle_t handle = (cudnnHandle_t)target->handle;
    *text = NULL;
    EBB_TRY(ebb_cudnn_open());
    EBB_TRY(ebb_cudnn_describe(&device, label, target));
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (device == NULL) {
        code = ebb_cudnn.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device);
        if (code == CUDNN_STATUS_SUCCESS)
            code =
                ebb_cudnn.set(device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        if (code == CUDNN_STATUS_SUCCESS)
            code = ebb_cudnn.finalize(device);
    }
    ebb_status status = ebb_cudnn_check(code, label, "its properties");
    if (status == NULL) {
        *text = text_of(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
        if (*text == NULL)
            status = ebb_error(EBB_RUNTIME, "cuDNN gives no text of the device");
    }
    if (device != NULL)
        (void)ebb_cudnn.drop(device);
    return status;
}

ebb_status ebb_cudnn_plan_write(const ebb_cudnn_plan *plan, char **text)
{
    const ebb_cudnn_choice *c = &plan->choice;
    char *own = c->runs ? text_of(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) : NULL;
    json_t *knobs = json_array();
    *text = NULL;
    for (int i = 0; i < c->knobs; i++)
        (void)json_array_append_new(
            knobs, json_pack("[I,I]", (json_int_t)c->knob[i], (json_int_t)c->value[i]));
    json_t *root =
        json_pack("{s:i, s:I, s:s, s:I, s:o, s:I, s:I, s:I, s:b, s:b, s:s*}", "ebb", 3, "cudnn",
                  (json_int_t)ebb_cudnn_version(), "graph", ebb_cudnn_graph_text(plan->graph),
                  "engine", (json_int_t)c->engine, "knobs", knobs, "workspace",
                  (json_int_t)c->workspace_bytes, "numeric", (json_int_t)c->numeric, "behaviour",
                  (json_int_t)c->behaviour, "fallback", c->fallback, "runs", c->runs, "plan", own);
    char *dumped = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (root != NULL)
        json_decref(root);
    ebb_free(own);
    if (dumped == NULL)
        return ebb_error_memory();
    size_t bytes = strlen(dumped) + 1;
    *text = ebb_alloc(bytes);
    if (*text != NULL)
        memcpy(*text, dumped, bytes);
    free(dumped); /* jansson's allocator is the C library's */
    return *text != NULL ? NULL : ebb_error_memory();
}

static bool whole(const json_t *root, const char *name, int64_t most, int64_t *value)
{
    const json_t *found = json_object_get(root, name);
    if (!json_is_integer(found) || json_integer_value(found) < 0 ||
        json_integer_value(found) > most)
        return false;
    *value = json_integer_value(found);
    return true;
}

/* False: it is no plan of this graph and this cuDNN. */
static bool read_choice(ebb_cudnn_choice *c, const ebb_cudnn_graph *graph, const json_t *root)
{
    int64_t form = 0, version = 0, numeric = 0, behaviour = 0;
    const char *text = json_string_value(json_object_get(root, "graph"));
    const json_t *knobs = json_object_get(root, "knobs");
    memset(c, 0, sizeof *c);
    if (!whole(root, "ebb", 3, &form) || form != 3 || !whole(root, "cudnn", INT64_MAX, &version) ||
        version != ebb_cudnn_version() || text == NULL ||
        strcmp(text, ebb_cudnn_graph_text(graph)) != 0 ||
        !whole(root, "engine", INT32_MAX, &c->engine) ||
        !whole(root, "workspace", INT64_MAX, &c->workspace_bytes) ||
        !whole(root, "numeric", UINT32_MAX, &numeric) ||
        !whole(root, "behaviour", UINT32_MAX, &behaviour) || !json_is_array(knobs) ||
        json_array_size(knobs) > EBB_CUDNN_KNOBS ||
        !json_is_boolean(json_object_get(root, "fallback")) ||
        !json_is_boolean(json_object_get(root, "runs")))
        return false;
    c->numeric = (uint32_t)numeric;
    c->behaviour = (uint32_t)behaviour;
    c->fallback = json_is_true(json_object_get(root, "fallback"));
    c->runs = json_is_true(json_object_get(root, "runs"));
    for (; c->knobs < (int)json_array_size(knobs); c->knobs++) {
        const json_t *pair = json_array_get(knobs, (size_t)c->knobs);
        const json_t *knob = json_array_get(pair, 0), *value = json_array_get(pair, 1);
        if (!json_is_integer(knob) || !json_is_integer(value))
            return false;
        c->knob[c->knobs] = json_integer_value(knob);
        c->value[c->knobs] = json_integer_value(value);
    }
    return true;
}

static ebb_status make(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph,
                       const ebb_cudnn_target *target, const ebb_cudnn_choice *choice,
                       const char *own)
{
    ebb_status status = NULL;
    if (target->handle == NULL) {
        /* Nothing will run: what is written is all that planning would find. */
        EBB_TRY(ebb_cudnn_plan_begin(plan, graph));
        (*plan)->choice = *choice;
        (*plan)->choice.runs = false;
        return NULL;
    }
    if (own != NULL) {
        EBB_TRY(ebb_cudnn_plan_begin(plan, graph));
        (*plan)->choice = *choice;
        status = ebb_cudnn_plan_finish(*plan, target, own);
        if (status == NULL)
            return NULL;
        ebb_cudnn_plan_free(*plan);
        *plan = NULL;
    }
    return ebb_cudnn_plan_of(plan, graph, target, choice);
}

ebb_status ebb_cudnn_plan_read(ebb_cudnn_plan **plan, const ebb_cudnn_graph *graph,
                               const ebb_cudnn_target *target, const char *text)
{
    json_error_t error;
    ebb_cudnn_choice choice;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    *plan = NULL;
    if (root == NULL)
        return ebb_error(EBB_REJECTED, "%s: a plan's text: line %d: %s", graph->label, error.line,
                         error.text);
    ebb_status status =
        read_choice(&choice, graph, root)
            ? make(plan, graph, target, &choice, json_string_value(json_object_get(root, "plan")))
            : ebb_error(EBB_REJECTED, "%s: the text is no plan of this graph and this cuDNN",
                        graph->label);
    json_decref(root);
    return status;
}
