/* profile.c: where the time of steps went, by operator and by node, as JSON. Operations are those that were made. The
 * first step of this process is left out where others came: it touches memory that nobody had before.
 */
#include "exec/run/program.h"

#include <stdlib.h>

#include "exec/json.h"
#include "onnx/graph/infer.h"

typedef struct cost {
    const char *op, *kernel;
    int64_t ns;
    uint64_t calls;
    double flops; /* of all steps */
    double bytes; /* of one */
} cost;

static int slowest_first(const void *a, const void *b)
{
    const cost *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? 1 : -1;
    return strcmp(x->op, y->op);
}

static json_t *cost_json(const cost *c, uint64_t steps)
{
    double ns = c->ns > 0 ? (double)c->ns : 1.0, times = (double)steps;
    return json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "op", c->op, "kernel", c->kernel,
                     "ns", (json_int_t)c->ns, "calls", (json_int_t)(c->calls * steps), "flops",
                     c->flops, "gflops_per_s", c->flops / ns, "bytes", c->bytes * times, "gb_per_s",
                     c->bytes * times / ns);
}

static uint64_t steps_of(const ebb_program *p)
{
    return p->profiled > 1 ? p->profiled - 1 : p->profiled;
}

static cost cost_of(const ebb_program *p, uint32_t k)
{
    const ebb_call *call = &p->plan.calls[k];
    ebb_node n = p->plan.order[k];
    cost c = {.op = ebb_text(p->plan.g, ebb_node_of(p->plan.g, n)->op_name),
              .kernel = call->kernel->name,
              .ns = p->node_ns[k] - (p->profiled > 1 ? p->first_ns[k] : 0),
              .calls = 1,
              .flops = ebb_node_flops(p->plan.g, n) * (double)steps_of(p) - p->node_spared[k] +
                       (p->profiled > 1 ? p->first_spared[k] : 0)};
    for (uint32_t i = 0; i < call->input_count; i++)
        c.bytes += (double)call->in[i].bytes;
    for (uint32_t i = 0; i < call->output_count; i++)
        c.bytes += (double)call->out[i].bytes;
    return c;
}

/* Operators by (op, kernel), slowest first; then every node in order. */
static ebb_status profile(const ebb_program *p, ebb_arena *scratch, json_t **root)
{
    cost *list = EBB_NEW(scratch, cost, p->plan.count + (size_t)1);
    EBB_GOT(list);
    size_t count = 0;
    json_t *nodes = json_array(), *operators = json_array();
    int64_t total = 0;
    for (uint32_t k = 0; k < p->plan.count; k++) {
        cost c = cost_of(p, k);
        size_t i = 0;
        while (i < count && (strcmp(list[i].op, c.op) != 0 || list[i].kernel != c.kernel))
            i++;
        if (i == count)
            list[count++] = c;
        else {
            list[i].ns += c.ns;
            list[i].calls += c.calls;
            list[i].flops += c.flops;
            list[i].bytes += c.bytes;
        }
        total += c.ns;
        json_t *node = cost_json(&c, steps_of(p));
        (void)json_object_set_new(node, "node", json_string(p->plan.calls[k].node));
        (void)json_array_append_new(nodes, node);
    }
    qsort(list, count, sizeof *list, slowest_first);
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(operators, cost_json(&list[i], steps_of(p)));
    *root = json_pack("{s:s, s:I, s:I, s:o, s:o}", "schema", "ebb.profile/1", "steps",
                      (json_int_t)steps_of(p), "ns", (json_int_t)total, "operators", operators,
                      "nodes", nodes);
    return *root != NULL ? NULL : ebb_error_memory();
}

EBB_API ebb_status ebb_program_profile_json(const ebb_program *program, char **json)
{
    EBB_NEED(program);
    EBB_NEED(json);
    *json = NULL;
    if (program->node_ns == NULL)
        return ebb_error(EBB_USAGE, "the program was compiled without profile");
    EBB_LOCAL_ARENA(scratch);
    json_t *root = NULL;
    ebb_status status = profile(program, scratch, &root);
    if (status == NULL)
        status = ebb_json_dump(root, json);
    json_decref(root);
    return status;
}
