/* ilp: the cheapest schedule of Checkmate's form, proven by an integer program.
 *
 * Stage t executes operator t for the first time, and before it, in list order, whatever is made
 * again for it. Values are kept from one stage to the next, or not:
 *
 *   stage      executed          kept at its start
 *   0          0                 -
 *   1          0 1               -                    0 was not kept: made again for 1
 *   2          2                 1
 *
 *   R[t,i]  stage t executes operator i, i <= t          R[t,t] = 1
 *   C[t,v]  ... and what it makes of v is wanted         C[t,v] <= R[t, maker of v]
 *   S[t,v]  v is there when stage t begins               S[t+1,v] <= S[t,v] + C[t,v]
 *   F[t,v,k]  reader k frees v in stage t: it runs, no later reader does, and v is not kept
 *                                                        F <= R[t,k], 1 - R[t,j], 1 - S[t+1,v]
 *   U[t,k]  bytes there when operator k has run, <= budget
 *
 *   reading     R[t,k] <= S[t,v] + C[t,v]    for each v that k reads
 *   memory      U[t,k] = U[t,k-1] + what k makes - what k-1 frees
 *   unwanted    U[t,k] + outputs of k that are not wanted + its workspace <= budget
 *   objective   sum of R[t,i] cost[i]
 *
 * The original has one output an operator. Here each value has its own C, S and F, so that one
 * output is dropped while another is kept; a value that is not wanted counts while its operator
 * runs. R and S are binary; C and F, at their best, then are so by themselves.
 *
 * The form is narrower than what a schedule may be: first executions stay in list order, one copy
 * of a value at a time, and a value which no operator reads in a stage counts to the stage's end.
 * Nothing is in place in it, and what is there from the start is there throughout. So the referee
 * may find a lower peak than the program, never a higher one.
 *
 * Declines above 100 operators: variables grow with their square. Work is bounded by counted
 * nodes of the search: the best schedule until then is returned.
 *
 * Paper: Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization",
 * MLSys 2020. The solver is CBC.
 */
#include "passes/budget/planners/cbc.h"
#include "passes/budget/planners/planner.h"
#include "onnx/words/amount.h"

#include <float.h>
#include <limits.h>

enum { MOST_OPERATORS = 100 };
static const double unit = 4096; // the budget in the program's bytes, for well-scaled rows

typedef struct entry {
    int row, column;
    double factor;
} entry;

typedef struct program {
    const ebb_remat_problem *p;
    uint32_t ops; /* T */
    uint64_t budget;
    double scale;           /* program bytes a byte */
    double grain;           /* ns of which all costs are multiples */
    uint32_t *made;         /* values in the order of their makers */
    uint32_t *made_base;    /* operator -> its first in made[] */
    uint32_t *made_at;      /* value -> index in made[]; UINT32_MAX: an input */
    int *r, *c, *s, *u, *f; /* first column of a stage; f: of (stage, reader) */
    int columns, rows;
    double *lower, *upper, *cost; /* of columns */
    char *integer;
    size_t column_capacity[4];
    double *row_lower, *row_upper;
    size_t row_capacity[2];
    entry *entries;
    size_t entry_count, entry_capacity;
    bool full; /* out of memory, or too large for CBC's ints: sticky */
    ebb_arena *arena;
} program;

/* ---- columns and rows ---- */

static int add_column(program *m, double lower, double upper, double cost, bool integer)
{
    size_t n = (size_t)m->columns;
    if (m->full || m->columns == INT_MAX ||
        !ebb_arena_grow(m->arena, &m->lower, n, &m->column_capacity[0], sizeof *m->lower) ||
        !ebb_arena_grow(m->arena, &m->upper, n, &m->column_capacity[1], sizeof *m->upper) ||
        !ebb_arena_grow(m->arena, &m->cost, n, &m->column_capacity[2], sizeof *m->cost) ||
        !ebb_arena_grow(m->arena, &m->integer, n, &m->column_capacity[3], sizeof *m->integer)) {
        m->full = true;
        return 0;
    }
    m->lower[n] = lower;
    m->upper[n] = upper;
    m->cost[n] = cost;
    m->integer[n] = integer;
    return m->columns++;
}

static void add(program *m, int column, double factor) /* to the row that is open */
{
    if (column < 0)
        return;
    if (m->full || m->entry_count >= INT_MAX ||
        !ebb_arena_grow(m->arena, &m->entries, m->entry_count, &m->entry_capacity,
                        sizeof *m->entries)) {
        m->full = true;
        return;
    }
    m->entries[m->entry_count++] = (entry){m->rows, column, factor};
}

static void end_row(program *m, double lower, double upper)
{
    size_t n = (size_t)m->rows;
    if (m->full || m->rows == INT_MAX ||
        !ebb_arena_grow(m->arena, &m->row_lower, n, &m->row_capacity[0], sizeof *m->row_lower) ||
        !ebb_arena_grow(m->arena, &m->row_upper, n, &m->row_capacity[1], sizeof *m->row_upper)) {
        m->full = true;
        return;
    }
    m->row_lower[n] = lower;
    m->row_upper[n] = upper;
    m->rows++;
}

static double bytes_of(const program *m, uint32_t v)
{
    return (double)m->p->values[v].bytes * m->scale;
}

/* Columns; -1 where the variable is 0 by itself. t runs to T for S: what is there at the end. */
static int column_r(const program *m, uint32_t t, uint32_t i)
{
    return i <= t ? m->r[t] + (int)i : -1;
}

static int column_c(const program *m, uint32_t t, uint32_t v)
{
    uint32_t i = m->p->values[v].op;
    if (m->p->ops[i].out_count == 1)
        return column_r(m, t, i); // made for nothing else
    return i <= t ? m->c[t] + (int)m->made_at[v] : -1;
}

static int column_s(const program *m, uint32_t t, uint32_t v)
{
    return m->p->values[v].op < t ? m->s[t] + (int)m->made_at[v] : -1;
}

static int column_f(const program *m, uint32_t t, uint32_t k, uint32_t v)
{
    const ebb_remat_op *op = &m->p->ops[k];
    uint32_t input = 0;
    while (op->in[input] != v)
        input++;
    return m->f[(size_t)t * m->ops + k] + (int)input;
}

static bool is_made(const program *m, uint32_t v)
{
    return m->p->values[v].op != EBB_REMAT_NONE;
}

/* The greatest common divisor of the costs in ns. With costs in it, a gap below one is none. */
static double grain_of(const ebb_remat_problem *p)
{
    uint64_t grain = 0;
    for (uint32_t u = 0; u < p->op_count; u++) {
        double cost = p->ops[u].cost_ns;
        uint64_t a = cost < 1e15 ? (uint64_t)(cost + 0.5) : 0, b = grain;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        grain = a;
    }
    return grain > 0 ? (double)grain : 1;
}

static ebb_status number_values(program *m)
{
    const ebb_remat_problem *p = m->p;
    m->made = EBB_NEW(m->arena, uint32_t, (size_t)p->value_count + 1);
    m->made_at = EBB_NEW(m->arena, uint32_t, (size_t)p->value_count + 1);
    m->made_base = EBB_NEW(m->arena, uint32_t, (size_t)m->ops + 1);
    m->r = EBB_NEW(m->arena, int, m->ops);
    m->c = EBB_NEW(m->arena, int, m->ops);
    m->s = EBB_NEW(m->arena, int, (size_t)m->ops + 1);
    m->u = EBB_NEW(m->arena, int, m->ops);
    m->f = EBB_NEW(m->arena, int, (size_t)m->ops * m->ops);
    EBB_GOT(m->made && m->made_at && m->made_base && m->r && m->c && m->s && m->u && m->f);
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->ops; i++) {
        m->made_base[i] = count;
        for (uint32_t k = 0; k < p->ops[i].out_count; k++) {
            m->made_at[p->ops[i].out[k]] = count;
            m->made[count++] = p->ops[i].out[k];
        }
    }
    m->made_base[m->ops] = count;
    return NULL;
}

static void add_columns(program *m)
{
    const ebb_remat_problem *p = m->p;
    for (uint32_t t = 0; t <= m->ops; t++) {
        m->s[t] = m->columns;
        for (uint32_t k = 0; t > 0 && k < m->made_base[t]; k++)
            (void)add_column(m, t == m->ops && p->values[m->made[k]].stays, 1, 0, true);
        if (t == m->ops)
            break;
        m->r[t] = m->columns;
        for (uint32_t i = 0; i <= t; i++) {
            const ebb_remat_op *op = &p->ops[i];
            bool never = i < t && (op->once || (op->before != EBB_REMAT_NONE && op->before < t));
            (void)add_column(m, i == t, never ? 0 : 1, op->cost_ns / m->grain, true);
        }
        m->c[t] = m->columns;
        for (uint32_t k = 0; k < m->made_base[t + 1]; k++) // unused where C is R
            (void)add_column(m, 0, p->ops[p->values[m->made[k]].op].out_count > 1, 0, false);
        m->u[t] = m->columns;
        for (uint32_t k = 0; k <= t; k++)
            (void)add_column(m, 0, unit, 0, false);
        for (uint32_t k = 0; k <= t; k++) {
            m->f[(size_t)t * m->ops + k] = m->columns;
            for (uint32_t j = 0; j < p->ops[k].in_count; j++)
                (void)add_column(m, 0, is_made(m, p->ops[k].in[j]) ? 1 : 0, 0, false);
        }
    }
}

static void add_flow(program *m, uint32_t t) /* what is there comes from somewhere */
{
    const double none = -DBL_MAX;
    for (uint32_t k = 0; k < m->made_base[t + 1]; k++) {
        uint32_t v = m->made[k];
        if (m->p->ops[m->p->values[v].op].out_count > 1) {
            add(m, column_c(m, t, v), 1);
            add(m, column_r(m, t, m->p->values[v].op), -1);
            end_row(m, none, 0);
        }
        add(m, column_s(m, t + 1, v), 1); // kept or freed, once
        add(m, column_s(m, t, v), -1);
        add(m, column_c(m, t, v), -1);
        for (uint32_t r = 0; r < m->p->values[v].reader_count; r++)
            if (m->p->values[v].readers[r] <= t)
                add(m, column_f(m, t, m->p->values[v].readers[r], v), 1);
        end_row(m, none, 0);
        add(m, column_s(m, t, v), 1); // there is no use in making what is there
        add(m, column_c(m, t, v), 1);
        end_row(m, none, 1);
    }
    for (uint32_t i = 0; i <= t; i++) {
        for (uint32_t k = 0; k < m->p->ops[i].in_count; k++) {
            uint32_t v = m->p->ops[i].in[k];
            if (!is_made(m, v))
                continue;
            add(m, column_r(m, t, i), 1);
            add(m, column_s(m, t, v), -1);
            add(m, column_c(m, t, v), -1);
            end_row(m, none, 0);
        }
    }
}

/* F <= R, and no reader runs after the one that frees. */
static void add_frees(program *m, uint32_t t)
{
    for (uint32_t k = 0; k < m->made_base[t]; k++) {
        uint32_t v = m->made[k];
        const ebb_remat_value *value = &m->p->values[v];
        for (uint32_t r = 0; r < value->reader_count && value->readers[r] <= t; r++) {
            add(m, column_f(m, t, value->readers[r], v), 1);
            add(m, column_r(m, t, value->readers[r]), -1);
            end_row(m, -DBL_MAX, 0);
            for (uint32_t j = 0; j < r; j++)
                add(m, column_f(m, t, value->readers[j], v), 1);
            add(m, column_r(m, t, value->readers[r]), 1);
            end_row(m, -DBL_MAX, 1);
        }
    }
}

static void add_memory(program *m, uint32_t t)
{
    for (uint32_t k = 0; k <= t; k++) {
        const ebb_remat_op *op = &m->p->ops[k];
        add(m, m->u[t] + (int)k, 1);
        for (uint32_t i = 0; k == 0 && t > 0 && i < m->made_base[t]; i++)
            add(m, column_s(m, t, m->made[i]), -bytes_of(m, m->made[i]));
        if (k > 0)
            add(m, m->u[t] + (int)k - 1, -1);
        for (uint32_t j = 0; k > 0 && j < m->p->ops[k - 1].in_count; j++)
            add(m, column_f(m, t, k - 1, m->p->ops[k - 1].in[j]),
                bytes_of(m, m->p->ops[k - 1].in[j]));
        for (uint32_t j = 0; j < op->out_count; j++)
            add(m, column_c(m, t, op->out[j]), -bytes_of(m, op->out[j]));
        end_row(m, 0, 0);

        if (op->out_count == 1 && op->workspace == 0)
            continue;
        double all = (double)op->workspace * m->scale;
        add(m, m->u[t] + (int)k, 1);
        for (uint32_t j = 0; j < op->out_count; j++) {
            all += bytes_of(m, op->out[j]);
            add(m, column_c(m, t, op->out[j]), -bytes_of(m, op->out[j]));
        }
        add(m, column_r(m, t, k), all);
        end_row(m, -DBL_MAX, unit);
    }
}

/* ---- the solver ---- */

static ebb_status load(const ebb_cbc *cbc, ebb_cbc_model *model, const program *m)
{
    int *start = EBB_NEW(m->arena, int, (size_t)m->columns + 2);
    int *row = EBB_NEW(m->arena, int, m->entry_count + 1);
    double *factor = EBB_NEW(m->arena, double, m->entry_count + 1);
    EBB_GOT(start && row && factor);
    for (size_t i = 0; i < m->entry_count; i++)
        start[m->entries[i].column + 2]++;
    for (int j = 0; j < m->columns; j++)
        start[j + 2] += start[j + 1];
    for (size_t i = 0; i < m->entry_count; i++) {
        int at = start[m->entries[i].column + 1]++;
        row[at] = m->entries[i].row;
        factor[at] = m->entries[i].factor;
    }
    cbc->load(model, m->columns, m->rows, start, row, factor, m->lower, m->upper, m->cost,
              m->row_lower, m->row_upper);
    for (int j = 0; j < m->columns; j++)
        if (m->integer[j])
            cbc->set_integer(model, j);
    return NULL;
}

static ebb_status read_schedule(ebb_remat_schedule *schedule, const program *m,
                                const double *solution)
{
    uint32_t *ops = EBB_NEW(m->arena, uint32_t, (size_t)m->ops * m->ops + 1);
    size_t count = 0;
    EBB_GOT(ops);
    for (uint32_t t = 0; t < m->ops; t++)
        for (uint32_t i = 0; i <= t; i++)
            if (solution[column_r(m, t, i)] > 0.5)
                ops[count++] = i;
    *schedule = (ebb_remat_schedule){ops, count};
    return NULL;
}

static ebb_status solve(ebb_remat_schedule *schedule, const program *m, uint64_t steps)
{
    const ebb_cbc *cbc;
    EBB_TRY(ebb_cbc_open(&cbc));
    ebb_cbc_model *model = cbc->create();
    EBB_GOT(model);
    cbc->set_log_level(model, 0);
    cbc->set_gap(model, 1 - 1e-3); // costs are whole
    ebb_status status = load(cbc, model, m);
    if (status == NULL) {
        // A node solves a linear program: microseconds in the order of its rows.
        uint64_t nodes = steps / ((uint64_t)m->rows + 1) + 1;
        cbc->set_most_nodes(model, nodes > INT_MAX ? INT_MAX : (int)nodes);
        (void)cbc->solve(model);
        if (cbc->is_infeasible(model))
            status = ebb_error(EBB_NO_PLAN, "no schedule of Checkmate's form needs at most %s",
                               ebb_bytes(m->budget).text);
        else if (cbc->solution(model) == NULL)
            status = ebb_error(EBB_NO_PLAN, "%llu nodes of the search found no schedule that fits",
                               (unsigned long long)nodes);
        else
            status = read_schedule(schedule, m, cbc->solution(model));
    }
    cbc->release(model);
    return status;
}

static ebb_status plan(ebb_remat_schedule *schedule, const ebb_remat_problem *problem,
                       uint64_t budget, uint64_t steps, ebb_arena *arena)
{
    program m = {.p = problem, .ops = problem->op_count, .budget = budget, .arena = arena};
    if (problem->op_count > MOST_OPERATORS)
        return ebb_hint(ebb_error(EBB_UNSUPPORTED,
                                  "'ilp' plans at most %d operators, and this step has %u",
                                  (int)MOST_OPERATORS, problem->op_count),
                        "'search' has no such limit");
    ebb_remat_weight weight;
    EBB_TRY(ebb_remat_keep_all(schedule, problem, arena));
    EBB_TRY(ebb_remat_weigh(&weight, NULL, problem, schedule, arena));
    if (weight.peak_bytes <= budget)
        return NULL;
    uint64_t there = problem->base_bytes;
    for (uint32_t v = 0; v < problem->value_count; v++)
        if (problem->values[v].op == EBB_REMAT_NONE)
            there += problem->values[v].bytes;
    if (budget <= there)
        return ebb_error(EBB_NO_PLAN, "the budget of %s does not hold the inputs",
                         ebb_bytes(budget).text);
    m.grain = grain_of(problem);
    m.scale = unit / (double)(budget - there);
    EBB_TRY(number_values(&m));
    add_columns(&m);
    for (uint32_t t = 0; t < m.ops; t++) {
        add_flow(&m, t);
        add_frees(&m, t);
        add_memory(&m, t);
    }
    EBB_GOT(!m.full);
    return solve(schedule, &m, steps);
}

const ebb_planner ebb_planner_ilp = {
    .name = "ilp",
    .doc = "the cheapest schedule of Checkmate's form, proven by CBC; up to 100 operators",
    .paper = "Jain et al., \"Checkmate: breaking the memory wall with optimal tensor "
             "rematerialization\", MLSys 2020",
    .plan = plan,
};
