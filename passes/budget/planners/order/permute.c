/* permute.c: the same problem with its operators in another order. */
#include <stdlib.h>

#include "passes/budget/planners/planner.h"

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

ebb_status ebb_remat_permute(ebb_remat_problem *permuted, const ebb_remat_problem *problem,
                             const ebb_remat_schedule *order, ebb_arena *arena)
{
    uint32_t n = problem->op_count;
    uint32_t *place = EBB_NEW(arena, uint32_t, (size_t)n + 1);
    ebb_remat_op *ops = EBB_NEW(arena, ebb_remat_op, (size_t)n + 1);
    ebb_remat_value *values = EBB_NEW(arena, ebb_remat_value, (size_t)problem->value_count + 1);
    EBB_GOT(place && ops && values);
    if (order->count != n)
        return ebb_error(EBB_VERIFY, "an order of %zu for %u operators", order->count, n);
    for (uint32_t i = 0; i < n; i++)
        place[order->ops[i]] = i;
    for (uint32_t i = 0; i < n; i++) {
        ops[i] = problem->ops[order->ops[i]];
        uint32_t *befores = EBB_NEW(arena, uint32_t, (size_t)ops[i].before_count + 1);
        EBB_GOT(befores);
        if (ops[i].before != EBB_REMAT_NONE) // in tests it may stand without the list
            ops[i].before = place[ops[i].before];
        for (uint32_t k = 0; k < ops[i].before_count; k++) {
            befores[k] = place[ops[i].befores[k]];
            if (befores[k] < ops[i].before)
                ops[i].before = befores[k];
        }
        ops[i].befores = befores;
    }
    for (uint32_t v = 0; v < problem->value_count; v++) {
        values[v] = problem->values[v];
        uint32_t *readers = EBB_NEW(arena, uint32_t, (size_t)values[v].reader_count + 1);
        EBB_GOT(readers);
        for (uint32_t k = 0; k < values[v].reader_count; k++)
            readers[k] = place[problem->values[v].readers[k]];
        qsort(readers, values[v].reader_count, sizeof *readers, by_number);
        values[v].readers = readers;
        if (values[v].op != EBB_REMAT_NONE)
            values[v].op = place[values[v].op];
    }
    *permuted = *problem;
    permuted->ops = ops;
    permuted->values = values;
    return NULL;
}
