/* plan.c: heuristics, rules, plans, execution. */
#include "kernels/cuda/library/cudnn/internal.h"

#include <stdio.h>

enum { CONFIGURATIONS = 64 }; /* as many as are asked of one heuristic mode */

struct ebb_cudnn_plan {
    ebb_cudnn_graph *graph; /* its own, once it is a plan */
    ebb_cudnn_choice choice;
    cudnnBackendDescriptor_t plan, config;
};

typedef struct search {
    ebb_cudnn_graph *graph;
    const ebb_cudnn_target *target;
    const ebb_cudnn_rules *rules;
    cudnnBackendDescriptor_t device; /* a described one's, or NULL */
    ebb_cudnn_plan *plan;            /* the first that the rules admit */
    int seen, refused;
    const char *refusal; /* the last rule that refused */
    ebb_status last;     /* why the last configuration made no plan */
    char passing[240];   /* and one that another time might have; "" where there was none */
    bool floats;
} search;

/* ---- small things ---- */

static cudnnStatus_t get_one(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, void *value)
{
    int64_t count = 0;
    cudnnStatus_t code = ebb_cudnn.get(of, name, type, 1, &count, value);
    return code == CUDNN_STATUS_SUCCESS && count < 1 ? CUDNN_STATUS_INTERNAL_ERROR : code;
}

/* Sets one value of a descriptor, unless something before it failed. */
static void set_one(cudnnStatus_t *code, cudnnBackendDescriptor_t of,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    const void *value)
{
    if (*code == CUDNN_STATUS_SUCCESS)
        *code = ebb_cudnn.set(of, name, type, 1, value);
}

static uint32_t numerical_notes(cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[32];
    int64_t count = 0;
    uint32_t bits = 0;
    if (ebb_cudnn.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 32,
                      &count, notes) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int64_t i = 0; i < count && i < 32; i++)
        if ((unsigned)notes[i] < 32)
            bits |= 1U << (unsigned)notes[i];
    return bits;
}

/* The described device of a target, as cuDNN has it; nothing for the present one. */
static ebb_status describe(search *s)
{
    const ebb_cudnn_device *device = s->target->device;
    const char *label = s->graph->label;
    if (s->target->handle != NULL || device == NULL)
        return NULL;
    EBB_TRY(ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &s->device), label,
                            "a described device"));
    cudnnStatus_t code =
        ebb_cudnn.set(s->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                      (int64_t)strlen(device->json) + 1, device->json);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.finalize(s->device);
    return ebb_cudnn_check(code, label, device->name);
}

/* ---- a configuration ---- */

/* What a configuration says of itself. */
static ebb_status read_choice(ebb_cudnn_choice *choice, bool *may_pass, const char *label,
                              cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = NULL;
    EBB_TRY(ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), label,
                            "an engine"));
    cudnnStatus_t code =
        get_one(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &engine);
    choice->numeric = numerical_notes(engine);
    (void)ebb_cudnn.drop(engine);
    *may_pass = ebb_cudnn_may_pass(code);
    return ebb_cudnn_check(code, label, "reading a configuration");
}

/* Why the rules refuse a choice, or NULL. */
static const char *refuse(const ebb_cudnn_choice *choice, const ebb_cudnn_rules *rules,
                          bool float_inputs)
{
    const uint32_t rounded =
        1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    const uint32_t transformed = 1U << CUDNN_NUMERICAL_NOTE_FFT |
                                 1U << CUDNN_NUMERICAL_NOTE_WINOGRAD |
                                 1U << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                                 1U << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                                 1U << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    /* On bfloat16 a tensor core rounds nothing away; on float32 it drops thirteen bits. */
    if (!rules->tf32 && float_inputs && (choice->numeric & rounded) != 0)
        return "rounds float32 (TF32)";
    if ((choice->numeric & transformed) != 0)
        return "multiplies in another domain (Winograd, FFT)";
    if ((choice->numeric & 1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != 0)
        return "is not deterministic";
    if ((choice->numeric & 1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) != 0)
        return "sums in less than float32";
    if (rules->workspace_bytes >= 0 && choice->workspace_bytes > rules->workspace_bytes)
        return "needs more workspace";
    return NULL;
}

/* Whether a kernel of tensor cores would round float32. What multiplies nothing (a pool) is
 * computed in float32 though its engine has the note. */
static bool may_round(const ebb_cudnn_graph *graph)
{
    /* By what operands of products are: X and W, or Q and K; statistics are float32 always. */
    static const int operands[] = {EBB_CUDNN_X, EBB_CUDNN_W, EBB_CUDNN_DY, EBB_CUDNN_Q,
                                   EBB_CUDNN_K, EBB_CUDNN_V, EBB_CUDNN_DO};
    for (size_t i = 0; graph->products && i < sizeof operands / sizeof operands[0]; i++)
        if (graph->tensor[operands[i]] != NULL && graph->shape[operands[i]].dtype == EBB_F32)
            return true;
    return false;
}

/* ---- a plan from a configuration ---- */

void ebb_cudnn_plan_free(ebb_cudnn_plan *plan)
{
    if (plan == NULL)
        return;
    if (plan->plan != NULL)
        (void)ebb_cudnn.drop(plan->plan);
    (void)ebb_cudnn.drop(plan->config);
    ebb_cudnn_graph_free(plan->graph);
    ebb_free(plan);
}

const ebb_cudnn_choice *ebb_cudnn_plan_choice(const ebb_cudnn_plan *plan)
{
    return &plan->choice;
}

/* The finalised one, from its configuration. */
static ebb_status finish(ebb_cudnn_plan *plan, bool *may_pass, const search *s)
{
    cudnnHandle_t handle = (cudnnHandle_t)s->target->handle;
    cudnnStatus_t code = ebb_cudnn.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan);
    set_one(&code, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, &plan->config);
    if (s->device != NULL)
        set_one(&code, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                CUDNN_TYPE_BACKEND_DESCRIPTOR, &s->device);
    else
        set_one(&code, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.finalize(plan->plan);
    plan->choice.runs = code == CUDNN_STATUS_SUCCESS;
    if (code == CUDNN_STATUS_SUCCESS)
        code = get_one(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                       &plan->choice.workspace_bytes);
    else if (code == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER && s->target->handle == NULL)
        /* The kernel was compiled for the described device, and there is no driver to load it:
         * all that planning can know is known. */
        code = get_one(plan->config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                       &plan->choice.workspace_bytes);
    *may_pass = ebb_cudnn_may_pass(code);
    return ebb_cudnn_check(code, s->graph->label, "making the plan");
}

/* A configuration failed, or a whole mode. */
static void note_failure(search *s, ebb_status status, bool may_pass)
{
    s->last = status;
    if (may_pass && s->passing[0] == '\0')
        (void)snprintf(s->passing, sizeof s->passing, "%s", ebb_status_text(status));
}

/* Takes over config. */
static ebb_status try_configuration(search *s, cudnnBackendDescriptor_t config)
{
    bool may_pass = false;
    ebb_cudnn_plan *plan = ebb_alloc(sizeof *plan);
    if (plan == NULL) {
        (void)ebb_cudnn.drop(config);
        return ebb_error_memory();
    }
    *plan = (ebb_cudnn_plan){.config = config};
    s->seen++;
    ebb_status status = read_choice(&plan->choice, &may_pass, s->graph->label, config);
    const char *why = status == NULL ? refuse(&plan->choice, s->rules, s->floats) : NULL;
    if (status == NULL && why == NULL)
        status = finish(plan, &may_pass, s);
    if (status == NULL && why == NULL) /* once more: now its workspace is known */
        why = refuse(&plan->choice, s->rules, s->floats);
    if (status == NULL && why == NULL) {
        s->plan = plan;
        return NULL;
    }
    if (why != NULL) {
        s->refused++;
        s->refusal = why;
    } else {
        note_failure(s, status, may_pass);
    }
    ebb_cudnn_plan_free(plan);
    return NULL;
}

/* ---- heuristics ---- */

static ebb_status heuristics(const search *s, bool *may_pass, cudnnBackendDescriptor_t *heuristic,
                             cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs,
                             int64_t *count)
{
    cudnnStatus_t code = ebb_cudnn.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, heuristic);
    set_one(&code, *heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            &s->graph->graph);
    set_one(&code, *heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    if (s->device != NULL)
        set_one(&code, *heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                &s->device);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.finalize(*heuristic);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.get(*heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGURATIONS, count, configs);
    *may_pass = ebb_cudnn_may_pass(code);
    return ebb_cudnn_check(code, s->graph->label, "the heuristics");
}

/* Asks one mode, and tries what it answers until there is a plan. */
static ebb_status ask(search *s, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heuristic = NULL, configs[CONFIGURATIONS];
    ebb_status status = NULL;
    int64_t count = 0, made = 0;
    while (made < CONFIGURATIONS && status == NULL) {
        status = ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]),
                                 s->graph->label, "a configuration");
        made += status == NULL;
    }
    if (status == NULL) {
        bool may_pass = false;
        ebb_status refused = heuristics(s, &may_pass, &heuristic, mode, configs, &count);
        if (refused != NULL) {
            note_failure(s, refused, may_pass); /* the other mode may know more */
            count = 0;
        }
    }
    int64_t i = 0;
    for (; i < count && i < made && status == NULL && s->plan == NULL; i++)
        status = try_configuration(s, configs[i]);
    for (; i < made; i++)
        (void)ebb_cudnn.drop(configs[i]);
    if (heuristic != NULL)
        (void)ebb_cudnn.drop(heuristic);
    return status;
}

static ebb_status nothing(const search *s)
{
    const char *on = s->device == NULL ? "the device" : s->target->device->name;
    if (s->passing[0] != '\0')
        return ebb_while(ebb_error(EBB_RUNTIME, "%s", s->passing), "planning for %s", on);
    if (s->refused > 0)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "%s: of %d kernels of cuDNN for %s, %d are against the rules "
                                  "(the last one %s) and none of the others can be made",
                                  s->graph->label, s->seen, on, s->refused, s->refusal),
                        "allow TF32 or more workspace");
    if (s->last != NULL)
        return ebb_while(ebb_error(EBB_UNSUPPORTED, "%s", ebb_status_text(s->last)),
                         "planning for %s: none of %d kernels can be made", on, s->seen);
    ebb_status status =
        ebb_error(EBB_UNSUPPORTED, "%s: cuDNN has no kernel for %s", s->graph->label, on);
    if (s->target->handle == NULL && !ebb_cudnn_compiles())
        (void)ebb_hint(status, "without libcuda.so.1 only kernels that are compiled already can be "
                               "planned: name the toolkit's lib64/stubs/libcuda.so in "
                               "EBB_CUDA_STUB");
    return status;
}

ebb_status ebb_cudnn_plan_make(ebb_cudnn_plan **plan, ebb_cudnn_graph *graph,
                               const ebb_cudnn_target *target, const ebb_cudnn_rules *rules)
{
    search s = {.graph = graph, .target = target, .rules = rules, .floats = may_round(graph)};
    ebb_status status = describe(&s);
    if (target->handle == NULL)
        (void)ebb_cudnn_compiles(); /* before the first question */
    if (status == NULL)
        status = ask(&s, CUDNN_HEUR_MODE_A);
    if (status == NULL && s.plan == NULL)
        status = ask(&s, CUDNN_HEUR_MODE_FALLBACK);
    if (status == NULL && s.plan == NULL)
        status = nothing(&s);
    if (s.device != NULL)
        (void)ebb_cudnn.drop(s.device);
    *plan = s.plan;
    if (s.plan != NULL)
        s.plan->graph = graph;
    else
        ebb_cudnn_graph_free(graph);
    return status;
}

/* ---- running ---- */

ebb_status ebb_cudnn_plan_run(const ebb_cudnn_plan *plan, void *handle, int count,
                              const int64_t *roles, void *const *pointers, void *workspace)
{
    enum { ALL = EBB_CUDNN_ROLES + EBB_CUDNN_NUMBERS };
    const ebb_cudnn_graph *graph = plan->graph;
    int64_t uids[ALL];
    void *data[ALL];
    float numbers[EBB_CUDNN_NUMBERS];
    cudnnBackendDescriptor_t pack = NULL;
    if (!plan->choice.runs || count < 0 || count >= EBB_CUDNN_ROLES)
        return ebb_error(EBB_RUNTIME, "%s: %s", graph->label,
                         plan->choice.runs ? "more operands than roles"
                                           : "a plan for a described device does not run");
    for (int i = 0; i < count; i++) {
        uids[i] = roles[i];
        data[i] = pointers[i];
    }
    for (int i = 0; i < graph->numbers; i++) {
        numbers[i] = graph->number[i];
        uids[count + i] = graph->number_of[i];
        data[count + i] = &numbers[i];
    }
    int all = count + graph->numbers;
    EBB_TRY(ebb_cudnn_check(ebb_cudnn.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
                            graph->label, "the operands"));
    cudnnStatus_t code =
        ebb_cudnn.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, all, data);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, all, uids);
    set_one(&code, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.finalize(pack);
    if (code == CUDNN_STATUS_SUCCESS)
        code = ebb_cudnn.execute((cudnnHandle_t)handle, plan->plan, pack);
    (void)ebb_cudnn.drop(pack);
    return ebb_cudnn_check(code, graph->label, "running");
}
