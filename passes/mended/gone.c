/* gone.c: what went with its node because it did nothing, or next to nothing.
 *
 *   before   y = Mul(x, exp(-log_sigma))     log_sigma = 0
 *   after    y = x
 *
 * The dynamo exporter folds the factor to 1 and drops the product. Its list still has the parameter; but it has
 * tied ones and those that the model does not use, too. Two more signs tell: it is one that its module computes
 * with by itself, unlike the weight of a layer, and who reads the product, or the list of outputs, names a
 * call, "mul_2", that no node stands for.
 *
 * So goes the 1e-8 of sqrt(x + 1e-8), and the root has no gradient at 0: it reads "add_1", which no node gives.
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

/* Of which nothing may be 0, or no gradient is a number there. */
static ebb_value what_may_not_be_zero(const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    return op == EBB_OP_DIV                                                   ? ebb_in(g, n, 1)
           : op == EBB_OP_SQRT || op == EBB_OP_LOG || op == EBB_OP_RECIPROCAL ? ebb_in(g, n, 0)
                                                                              : EBB_NO_VALUE;
}

ebb_status ebb_gone_sums(char **text, ebb_node *first, const ebb_graph *g, ebb_arena *arena)
{
    ebb_noted_calls calls;
    ebb_noted *noted = EBB_NEW(arena, ebb_noted, 1);
    size_t count = 0;
    EBB_GOT(noted);
    EBB_TRY(ebb_noted_calls_find(&calls, g, arena));
    EBB_EACH_NODE(g, n) {
        const ebb_value v = what_may_not_be_zero(g, n);
        const ebb_node by = v.i != 0 ? ebb_value_of(g, v)->producer : EBB_NO_NODE;
        if (by.i == 0 || ebb_node_of(g, by)->op == EBB_OP_ADD)
            continue; // an equal sum that was made one with it
        ebb_noted_sources(noted, g, n, "");
        const char *sum = noted->count > 0 ? noted->name[noted->count - 1] : "sub";
        if (ebb_name_is_after(sum, "add") && !ebb_noted_has(&calls, sum))
            *first = count++ == 0 ? n : *first;
    }
    *text = NULL;
    if (count == 0)
        return NULL;
    *text = ebb_arena_printf(arena,
                             "roots, logarithms or quotients, %zu, of sums with a number of at "
                             "most 1e-8, which the exporter dropped: at 0 they have no gradient",
                             count);
    EBB_GOT(*text);
    return NULL;
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
