/* chain.cu: what a chain may hold, and its launch; chain_source.cu writes its source. */
#include "kernels/cuda/fuse/chain.h"

#include "kernels/cuda/fuse/chain_source.h"

void ebb_chain_begin(ebb_chain *chain, const ebb_type *shape)
{
    memset(chain, 0, sizeof *chain);
    chain->shape = *shape;
}

static bool computes_in(uint8_t dtype)
{
    return ebb_dtype_is_float((ebb_dtype)dtype) || dtype == EBB_BOOL;
}

const char *ebb_chain_input(ebb_chain *chain, const ebb_type *type, int *value)
{
    if (chain->input_count == EBB_CHAIN_INPUTS)
        return "a chain has at most 16 inputs";
    if (!computes_in(type->dtype))
        return "chains compute with floats and bools only";
    if (type->rank > chain->shape.rank)
        return "an input is not broadcast to the chain's shape";
    for (int d = 0; d < type->rank; d++) {
        int64_t n = chain->shape.dims[chain->shape.rank - type->rank + d];
        if (type->dims[d] != n && type->dims[d] != 1)
            return "an input is not broadcast to the chain's shape";
    }
    *value = chain->input_count;
    chain->input[chain->input_count++] = *type;
    return NULL;
}

uint8_t ebb_chain_dtype(const ebb_chain *chain, int value)
{
    return value < EBB_CHAIN_INPUTS ? chain->input[value].dtype
                                    : chain->step[value - EBB_CHAIN_INPUTS].dtype;
}

static bool is_value(const ebb_chain *chain, int value)
{
    return value >= 0 && (value < EBB_CHAIN_INPUTS ? value < chain->input_count
                                                   : value - EBB_CHAIN_INPUTS < chain->step_count);
}

/* Where and Cast: what pointwise.def has no formula for. */
static const char *other_step(ebb_chain_part *p, const uint8_t *dtypes)
{
    switch (p->op) {
    case EBB_OP_WHERE:
        p->of = p->dtype;
        return p->count == 3 && dtypes[0] == EBB_BOOL && dtypes[1] == p->dtype &&
                       dtypes[2] == p->dtype
                   ? NULL
                   : "the choices of Where differ in type";
    case EBB_OP_CAST:
    case EBB_OP_CAST_LIKE:
        p->of = dtypes[0];
        p->count = 1; // the second input lends its dtype only
        return NULL;
    default:
        return "chains have no such operator";
    }
}

static const char *formula_step(ebb_chain_part *p, const uint8_t *dtypes)
{
    const ebb_formula_row *row = &ebb_formula_rows[p->use.formula];
    p->formula = true;
    p->of = dtypes[0];
    if (p->count > (int)row->inputs)
        return "too many inputs for one step";
    for (int k = 0; k < p->count; k++)
        if (p->operand[k] >= 0 && dtypes[k] != p->of)
            return "inputs differ in dtype";
    if ((row->dtypes & (p->of == EBB_BOOL ? EBB_FLAGS : EBB_REALS)) == 0)
        return "the operator does not compute in this dtype";
    if (p->op == EBB_OP_MAX || p->op == EBB_OP_MIN)
        if (p->count != 2)
            return "chains choose between two inputs";
    return p->dtype == (row->flag ? (uint8_t)EBB_BOOL : p->of) ? NULL
                                                               : "the result is of another dtype";
}

const char *ebb_chain_step(ebb_chain *chain, const ebb_call *call, const int *operands, int *value)
{
    uint8_t dtypes[EBB_CUDA_INPUTS] = {0};
    ebb_chain_part p;
    memset(&p, 0, sizeof p);
    if (chain->step_count == EBB_CHAIN_STEPS)
        return "a chain has at most 48 steps";
    if (call->input_count < 1 || call->input_count > EBB_CUDA_INPUTS)
        return "too many inputs for one step";
    p.op = call->op;
    p.count = (int)call->input_count;
    p.dtype = call->out[0].type.dtype;
    for (int k = 0; k < p.count; k++) {
        p.operand[k] = operands[k];
        if (operands[k] < 0 && k > 0)
            continue;
        if (!is_value(chain, operands[k]))
            return "an operand is no value of the chain";
        dtypes[k] = ebb_chain_dtype(chain, operands[k]);
    }
    if (!computes_in(p.dtype))
        return "chains compute with floats and bools only";
    EBB_ASK(ebb_formula_of(call, &p.use) && p.op != EBB_OP_WHERE ? formula_step(&p, dtypes)
                                                                 : other_step(&p, dtypes));
    if (p.op == EBB_OP_POW && p.operand[1] < EBB_CHAIN_INPUTS) // one exponent for all?
        p.use.p = ebb_elements(&chain->input[p.operand[1]]) == 1 ? 1 : 0;
    *value = EBB_CHAIN_INPUTS + chain->step_count;
    chain->step[chain->step_count++] = p;
    return NULL;
}

const char *ebb_chain_store(ebb_chain *chain, int value)
{
    if (chain->output_count == EBB_CHAIN_OUTPUTS)
        return "a chain stores at most 8 values";
    if (!is_value(chain, value))
        return "no value of the chain";
    chain->output[chain->output_count++] = value;
    return NULL;
}

/* ---- launch ---- */

ebb_status ebb_chain_open(const ebb_chain *chain, int version, ebb_chain_kernel *kernel)
{
    char *source = NULL;
    void *image = NULL;
    size_t bytes = 0;
    memset(kernel, 0, sizeof *kernel);
    EBB_TRY(ebb_chain_source(chain, &source));
    ebb_status status = ebb_gpu_compile(source, version, &image, &bytes);
    ebb_free(source);
    if (status == NULL)
        status = ebb_gpu_load(image, bytes, "ebb_chain", &kernel->module, &kernel->kernel);
    ebb_free(image);
    return status;
}

void ebb_chain_close(ebb_chain_kernel *kernel)
{
    ebb_gpu_unload(kernel->module);
    memset(kernel, 0, sizeof *kernel);
}

static bool packs(const ebb_chain *chain, const ebb_chain_args *a, const ebb_chain_walk *w)
{
    if (w->rank == 0 || (w->rank > 1 && a->dims[0] % w->lanes != 0))
        return false;
    for (int k = 0; k < chain->output_count; k++)
        if ((uintptr_t)a->out[k] % 16 != 0)
            return false;
    for (int k = 0; k < chain->input_count; k++) {
        if (a->stride[k][0] == 0)
            continue;
        if ((uintptr_t)a->in[k] % 16 != 0)
            return false;
        for (int d = 1; d < w->rank; d++)
            if (a->stride[k][d] % w->lanes != 0)
                return false;
    }
    return true;
}

ebb_status ebb_chain_run(const ebb_chain *chain, const ebb_chain_kernel *kernel, void *stream,
                         const void *const *in, void *const *out)
{
    ebb_chain_args a;
    ebb_chain_walk w;
    memset(&a, 0, sizeof a);
    a.n = ebb_elements(&chain->shape);
    for (int k = 0; k < chain->input_count; k++)
        a.in[k] = in[k];
    for (int k = 0; k < chain->output_count; k++)
        a.out[k] = out[k];
    ebb_chain_walk_make(chain, &w, a.dims, a.stride);
    a.packed = packs(chain, &a, &w) ? a.n / w.lanes * w.lanes : 0;
    int64_t rest = a.n - a.packed, pieces = a.packed / w.lanes;
    return ebb_gpu_launch(stream, kernel->kernel, ebb_cuda_grid(pieces > rest ? pieces : rest),
                          EBB_CUDA_BLOCK, 0, &a, sizeof a);
}
