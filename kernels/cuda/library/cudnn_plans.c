/* cudnn_plans.c: which device, and the plans of this process. */
#include "kernels/cuda/library/cudnn_plans.h"

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/library/find_library.h"

#include <pthread.h>
#include <stdio.h>

enum { ROOM = 64 << 20 }; /* bytes of workspace that any graph may have */

typedef struct made { /* a plan, or why there is none */
    struct made *next;
    ebb_cuda_cudnn_ask ask;
    const char *device; /* a described one's name; NULL: the one that is here */
    bool tf32;
    ebb_cudnn_plan *plan;
    bool again; /* there was none for want of memory: to be asked for again */
    char why[240];
} made;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static made *all;
static ebb_cudnn_device described;
static bool describes;

static struct {
    ebb_cudnn_target target; /* with no handle: there was none the last time */
    char why[240];
} present;

/* The first line: hints are for whom the error reaches. */
static void keep_reason(char *why, size_t size, ebb_status status)
{
    const char *text = ebb_status_text(status);
    (void)snprintf(why, size, "%.*s", (int)strcspn(text, "\n"), text);
}

/* ---- devices ---- */

ebb_status ebb_cuda_cudnn_describe(const char *name)
{
    ebb_cudnn_device found;
    ebb_status status = name != NULL ? ebb_cudnn_device_find(&found, name) : NULL;
    if (status != NULL)
        return ebb_error(EBB_USAGE, "%s", ebb_status_text(status));
    (void)pthread_mutex_lock(&lock);
    describes = name != NULL;
    if (describes)
        described = found;
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

bool ebb_cuda_cudnn_described(void)
{
    (void)pthread_mutex_lock(&lock);
    bool so = describes;
    (void)pthread_mutex_unlock(&lock);
    return so;
}

/* A handle to plan with. Those that run belong to queues. */
static void find_present(void)
{
    ebb_device_facts f;
    ebb_status status = ebb_cudnn_open();
    if (status == NULL)
        status = ebb_gpu_facts(&f); /* says what is missing */
    if (status == NULL)
        status = ebb_cudnn_handle_new(&present.target.handle, NULL);
    if (status != NULL)
        keep_reason(present.why, sizeof present.why, status);
}

/* NULL, or why there is no device to plan for. */
static const char *find_target(ebb_cudnn_target *target)
{
    memset(target, 0, sizeof *target);
    if (describes) {
        target->device = &described;
        return NULL;
    }
    if (present.target.handle == NULL)
        find_present();
    *target = present.target;
    return target->handle != NULL ? NULL : present.why;
}

void ebb_cuda_cudnn_library(char *text, size_t size, bool device)
{
    char version[48], why[240] = "";
    const int64_t v = ebb_cudnn_version();
    ebb_cudnn_target target;
    (void)pthread_mutex_lock(&lock);
    const char *trouble = device && !describes ? find_target(&target) : NULL;
    (void)snprintf(why, sizeof why, "%s", trouble != NULL ? trouble : "");
    (void)pthread_mutex_unlock(&lock);
    if (v == 0)
        keep_reason(why, sizeof why, ebb_cudnn_open());
    (void)snprintf(version, sizeof version, "%d.%d.%d", (int)(v / 10000), (int)(v / 100 % 100),
                   (int)(v % 100));
    ebb_library_list(text, size, why[0] == 0 ? "cuDNN" : "cuDNN 9", why[0] == 0 ? version : NULL,
                     why);
}

/* ---- plans ---- */

static ebb_status build(ebb_cudnn_graph **graph, const ebb_cuda_cudnn_ask *ask)
{
    switch (ask->kind) {
    case EBB_ASK_CONV:
        return ebb_cudnn_conv_forward(graph, &ask->of.conv, ask->with);
    case EBB_ASK_CONV_DATA:
        return ebb_cudnn_conv_backward_data(graph, &ask->of.conv);
    case EBB_ASK_CONV_FILTER:
        return ebb_cudnn_conv_backward_filter(graph, &ask->of.conv);
    case EBB_ASK_POOL:
    case EBB_ASK_POOL_GRADIENT:
        return ebb_cudnn_pooling(graph, &ask->of.pool, ask->kind == EBB_ASK_POOL_GRADIENT);
    case EBB_ASK_BATCH_NORM:
        return ebb_cudnn_batch_norm_forward(graph, &ask->of.norm, ask->with);
    case EBB_ASK_BATCH_NORM_BACKWARD:
        return ebb_cudnn_batch_norm_backward(graph, &ask->of.norm, ask->with);
    case EBB_ASK_ATTENTION:
        return ebb_cudnn_attention_forward(graph, &ask->of.attention, ask->with);
    default:
        return ebb_cudnn_attention_backward(graph, &ask->of.attention);
    }
}

/* Copies of the operands in another layout, and some room: what takes more is not worth it here. */
static int64_t most_bytes(const ebb_cudnn_graph *graph)
{
    int64_t sum = ROOM;
    for (int role = 1; role < EBB_CUDNN_ROLES; role++)
        sum += ebb_cudnn_role_bytes(graph, (ebb_cudnn_role)role);
    return sum;
}

static void make(made *m, const ebb_cudnn_target *target)
{
    ebb_cudnn_graph *graph;
    ebb_status status = build(&graph, &m->ask);
    if (status == NULL) {
        const ebb_cudnn_rules rules = {.tf32 = m->tf32, .workspace_bytes = most_bytes(graph)};
        status = ebb_cudnn_plan_make(&m->plan, graph, target, &rules);
    }
    m->again = status != NULL && ebb_status_code(status) != EBB_UNSUPPORTED;
    if (status != NULL)
        keep_reason(m->why, sizeof m->why, status);
}

static made *find(const ebb_cuda_cudnn_ask *ask, const ebb_cudnn_target *target)
{
    const char *device = target->device != NULL ? target->device->name : NULL;
    for (made *m = all; m != NULL; m = m->next)
        if (m->tf32 == ebb_cuda_tf32 && m->device == device &&
            memcmp(&m->ask, ask, sizeof *ask) == 0) {
            if (m->again)
                make(m, target);
            return m;
        }
    made *m = (made *)ebb_alloc(sizeof *m);
    if (m == NULL)
        return NULL;
    memset(m, 0, sizeof *m);
    m->ask = *ask;
    m->device = device;
    m->tf32 = ebb_cuda_tf32;
    make(m, target);
    m->next = all;
    all = m;
    return m;
}

const ebb_cudnn_plan *ebb_cuda_cudnn_plan(const char **why, const ebb_cuda_cudnn_ask *ask)
{
    const ebb_cudnn_plan *plan = NULL;
    ebb_cudnn_target target;
    (void)pthread_mutex_lock(&lock);
    *why = find_target(&target);
    if (*why == NULL) {
        const made *m = find(ask, &target);
        plan = m != NULL ? m->plan : NULL;
        *why = m == NULL ? "out of memory" : plan == NULL ? m->why : NULL;
    }
    (void)pthread_mutex_unlock(&lock);
    return plan;
}
