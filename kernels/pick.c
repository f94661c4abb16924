/* pick.c: backends by name, and the first kernel that takes a call. */
#include "kernels/away/beside.h"
#include "kernels/nested/compose.h"
#include "kernels/nested/on_host.h"
#include "kernels/plugin.h"
#include "kernels/processor.h"
#include "kernels/nested/stream.h"
#include "kernels/nested/widen.h"

#include <stdio.h>

static ebb_status no_backend(const char *name)
{
    char plugins[200] = "";
    const char *next = ebb_plugin_name(0);
    for (size_t i = 0, length = 0; next != NULL && length < sizeof plugins; i++) {
        const char *plugin = next;
        next = ebb_plugin_name(i + 1);
        length += (size_t)snprintf(plugins + length, sizeof plugins - length, "%s%s",
                                   next != NULL ? ", " : " and ", plugin);
    }
    return ebb_hint(ebb_error(EBB_USAGE, "there is no backend '%s'", name),
                    "the backends are cpu, plain%s; cpu:bf16x3 is cpu with --fp32-by bf16x3",
                    plugins);
}

ebb_status ebb_backends(const char *name, const ebb_backend *const **list)
{
    *list = NULL;
    const bool plain = name != NULL && strcmp(name, "plain") == 0;
    const bool split = name != NULL && strcmp(name, "cpu:bf16x3") == 0;
    if (plain || split || name == NULL || strcmp(name, "cpu") == 0) {
        const ebb_processor *processor;
        EBB_TRY(ebb_processor_choose(&processor));
        *list = plain ? processor->plain : split ? processor->split : processor->cpu;
    } else {
        EBB_TRY(ebb_plugin_backends(list, name));
    }
    return *list != NULL ? NULL : no_backend(name);
}

static const ebb_kernel *find_among(const ebb_kernel *kernels, size_t count, ebb_op op)
{
    for (size_t i = 0; i < count; i++)
        if (kernels[i].op == op)
            return &kernels[i];
    return NULL;
}

const ebb_kernel *ebb_backend_find(const ebb_backend *backend, ebb_op op)
{
    const ebb_kernel *found = find_among(backend->kernels, backend->count, op);
    for (const ebb_family *f = backend->families; found == NULL && f != NULL && f->kernels; f++)
        found = find_among(f->kernels, *f->count, op);
    return found == NULL && ebb_is_composed(op) ? &ebb_kernel_compose : found;
}

/* Collects "dnnl.relu: why; plain.relu: why". */
typedef struct reasons {
    char text[400];
    size_t length;
} reasons;

static void add_reason(reasons *r, const char *kernel, const char *why)
{
    int n = snprintf(r->text + r->length, sizeof r->text - r->length, "%s%s: %s",
                     r->length > 0 ? "; " : "", kernel, why);
    if (n > 0)
        r->length += (size_t)n;
    if (r->length >= sizeof r->text)
        r->length = sizeof r->text - 1;
}

static bool pick_among(ebb_call *call, const ebb_kernel *kernels, size_t count, reasons *r)
{
    for (size_t i = 0; i < count; i++) {
        if (kernels[i].op != call->op && kernels[i].op != EBB_OP_UNKNOWN)
            continue;
        const char *why = ebb_kernel_declines(&kernels[i], call);
        if (why == NULL) {
            call->kernel = &kernels[i];
            return true;
        }
        add_reason(r, kernels[i].name, why);
    }
    return false;
}

static ebb_status no_kernel(const ebb_call *call, const reasons *r)
{
    const char *node = call->node != NULL ? call->node : ebb_op_row_of(call->op)->name;
    if (r->length == 0)
        return ebb_error(EBB_UNSUPPORTED, "%s: no kernel computes this operator", node);
    return ebb_error(EBB_UNSUPPORTED, "%s: no kernel takes it (%s)", node, r->text);
}

/* The kernels of some operators write an output without asking whether it is there. */
static ebb_status check_outputs(const ebb_call *call)
{
    for (uint32_t o = 0; ebb_op_output_mark(call->op, o) == '!'; o++)
        if (!ebb_call_wants(call, o))
            return ebb_error(EBB_UNSUPPORTED, "%s: its output %u has no name",
                             call->node != NULL ? call->node : ebb_op_row_of(call->op)->name,
                             (unsigned)o);
    return NULL;
}

ebb_status ebb_pick(ebb_call *call, const ebb_backend *const *backends)
{
    reasons r = {"", 0};
    call->kernel = NULL;
    call->backends = backends;
    EBB_TRY(check_outputs(call));
    if (call->streamed || ebb_reads_stream(call)) {
        (void)pick_among(call, call->streamed ? &ebb_kernel_decoder : &ebb_kernel_stream, 1, &r);
        return call->kernel != NULL ? NULL : no_kernel(call, &r);
    }
    const ebb_device *device = (*backends)->device;
    for (; *backends != NULL; backends++) {
        if (pick_among(call, (*backends)->kernels, (*backends)->count, &r))
            return NULL;
        const ebb_family *f = (*backends)->families;
        for (; f != NULL && f->kernels != NULL; f++)
            if (pick_among(call, f->kernels, *f->count, &r))
                return NULL;
    }
    if (ebb_is_composed(call->op))
        return ebb_pick_composed(call);
    if (device->is_host) // widen.c reads and writes the operands itself
        return ebb_can_widen(call) ? ebb_pick_widened(call) : no_kernel(call, &r);
    if (call->op == EBB_OP_STORE || call->op == EBB_OP_FETCH)
        return ebb_pick_beside(call);
    if (ebb_can_widen(call) && ebb_pick_widened(call) == NULL)
        return NULL;
    ebb_status status = device->visit != NULL ? ebb_pick_on_host(call) : no_kernel(call, &r);
    bool nobody = status != NULL && ebb_status_code(status) == EBB_UNSUPPORTED;
    return nobody ? no_kernel(call, &r) : status;
}
