/* gone.c: parameters that went with their node because they did nothing yet.
 *
 *   before   y = Mul(x, exp(-log_sigma))     log_sigma = 0
 *   after    y = x
 *
 * The dynamo exporter folds the factor to 1 and drops the product. Its list still has the parameter; but it has
 * tied ones and those that the model does not use, too. Two more signs tell: it is one that its module computes
 * with by itself, unlike the weight of a layer, and who reads the product, or the list of outputs, names a
 * call, "mul_2", that no node stands for.
 */
#include "passes/mended/gone.h"

#include <stdio.h>
#include <string.h>

#include "passes/parameters/noted.h"
#include "passes/parameters/trainable.h"

static bool is_of_layer(const char *part)
{
    return strstr(part, "weight") != NULL || strstr(part, "bias") != NULL;
}

static bool is_elementwise(const char *call)
{
    return ebb_name_is_after(call, "mul div add sub");
}

/* "mul_2: USER_OUTPUT": an output of a call that no node stands for. */
static bool has_dropped_output(const ebb_graph *g, const ebb_noted_calls *calls)
{
    const char *at = ebb_props_get(g, &g->props, EBB_NOTED_LIST);
    at = at != NULL ? strstr(at, "# outputs\n") : NULL;
    for (; at != NULL && (at = strchr(at, '\n')) != NULL; at++) {
        char call[EBB_NOTED_LONGEST];
        (void)snprintf(call, sizeof call, "%.*s", (int)strcspn(at + 1, ":\n"), at + 1);
        if (is_elementwise(call) && !ebb_noted_has(calls, call))
            return true;
    }
    return false;
}

static bool reads_dropped(const ebb_graph *g, const ebb_noted_calls *calls, ebb_noted *noted)
{
    EBB_EACH_NODE(g, n) {
        ebb_noted_sources(noted, g, n, "");
        for (int i = 0; i < noted->count; i++)
            if (is_elementwise(noted->name[i]) && !ebb_noted_has(calls, noted->name[i]))
                return true;
    }
    return false;
}

ebb_status ebb_gone_mark(ebb_graph *g, ebb_arena *scratch)
{
    enum { FEW = 256 }; // parameters; the text is made longer for each
    ebb_noted_losses losses;
    const char *lines = "";
    EBB_TRY(ebb_noted_losses_find(&losses, g, scratch));
    for (size_t i = 0; i < losses.count && i < FEW && lines != NULL; i++) {
        const ebb_noted_loss *p = &losses.list[i];
        if (p->run && !is_of_layer(p->name + p->module) && !ebb_noted_is_within(g, p->name))
            lines = ebb_arena_printf(scratch, "%s1 %s\n", lines, p->name);
    }
    EBB_GOT(lines);
    if (lines[0] == '\0')
        return NULL;
    ebb_noted_calls calls;
    ebb_noted *noted = EBB_NEW(scratch, ebb_noted, 1);
    EBB_GOT(noted);
    EBB_TRY(ebb_noted_calls_find(&calls, g, scratch));
    return has_dropped_output(g, &calls) || reads_dropped(g, &calls, noted)
               ? ebb_props_set(g, &g->props, EBB_GONE, lines)
               : NULL;
}
