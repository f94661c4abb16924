/* adapters_zeros.c: an adapter that reads sums over blocks of codes (QA-LoRA) adds the same number to all
 * weights of a block, which their zero point takes up:
 *
 *     (q - z) s + d = (q - z') s,    z' = z - d / s
 *
 * MatMulNBits takes zero points as floats, so the model stays a file of codes for whoever runs it.
 */
#include "exec/data/adapters.h"

#include <math.h>
#include <stdlib.h>

#include "exec/data/weights.h"

enum { CODES = 1, SCALES, ZEROS };

typedef struct layer { /* a MatMulNBits */
    ebb_node node;
    int64_t rows, blocks, bits;
    const ebb_tensor *codes, *scales, *zeros; /* zeros: NULL where there are none */
} layer;

/* NULL, or why it is not one that an adapter of this size can go into. */
static const char *read_layer(layer *l, const ebb_graph *g, const ebb_adapter *adapter,
                              const ebb_type *a, const ebb_type *b)
{
    const ebb_attrs attrs = ebb_node_attrs(g, l->node);
    const int64_t k = ebb_attr_int(&attrs, "K", 0);
    const ebb_value zeros = ebb_in(g, l->node, ZEROS);
    int64_t count;
    l->rows = ebb_attr_int(&attrs, "N", 0);
    l->bits = ebb_attr_int(&attrs, "bits", 4);
    l->blocks = a->dims[1];
    l->codes = ebb_value_constant(g, ebb_in(g, l->node, CODES));
    l->scales = ebb_value_constant(g, ebb_in(g, l->node, SCALES));
    l->zeros = zeros.i != 0 ? ebb_value_constant(g, zeros) : NULL;
    if (ebb_attr_int(&attrs, "block_size", 0) != adapter->block || k < 1 ||
        k / adapter->block + (k % adapter->block != 0) != l->blocks || adapter->from < 0 ||
        b->dims[0] > l->rows || adapter->from > l->rows - b->dims[0])
        return "has not the blocks that the adapter was trained for";
    if (l->bits != 2 && l->bits != 4 && l->bits != 8)
        return "has bits of none of 2, 4 and 8";
    if (l->codes == NULL || l->codes->data == NULL || l->scales == NULL ||
        l->scales->data == NULL || l->scales->type.dtype != EBB_F32 ||
        !ebb_type_elements(&l->scales->type, &count) || count != l->rows * l->blocks)
        return "has no scales in float32, one for each block";
    if (zeros.i == 0)
        return NULL;
    const int64_t per = 8 / l->bits, bytes = l->blocks / per + (l->blocks % per != 0);
    if (l->zeros == NULL || l->zeros->data == NULL || !ebb_type_elements(&l->zeros->type, &count) ||
        !((l->zeros->type.dtype == EBB_U8 && count == l->rows * bytes) ||
          (l->zeros->type.dtype == EBB_F32 && count == l->rows * l->blocks)))
        return "has no zero points that are known, one for each block";
    return NULL;
}

static double zero_of(const layer *l, int64_t row, int64_t block)
{
    const int64_t per = 8 / l->bits, bytes = l->blocks / per + (l->blocks % per != 0);
    if (l->zeros == NULL)
        return (double)(1 << (l->bits - 1));
    if (l->zeros->type.dtype == EBB_F32)
        return (double)((const float *)l->zeros->data)[row * l->blocks + block];
    const unsigned byte = ((const uint8_t *)l->zeros->data)[row * bytes + block / per];
    return (double)(byte >> (unsigned)(block % per * l->bits) & ((1u << l->bits) - 1));
}

/* into: [rows, blocks], the new zero points. */
static ebb_status add(const layer *l, const ebb_adapter *adapter, const ebb_named *a,
                      const ebb_named *b, float *into)
{
    const int64_t rank = a->dims[0];
    const double by = adapter->scale * (double)l->blocks / (double)adapter->block;
    for (int64_t row = 0; row < l->rows; row++)
        for (int64_t block = 0; block < l->blocks; block++) {
            const int64_t o = row - adapter->from;
            const double s = (double)((const float *)l->scales->data)[row * l->blocks + block];
            double d = 0, z = zero_of(l, row, block);
            for (int64_t r = 0; o >= 0 && o < b->dims[0] && r < rank; r++)
                d += ebb_adapter_number(b, o * rank + r) *
                     ebb_adapter_number(a, r * l->blocks + block);
            if (d != 0 && s == 0)
                return ebb_error(EBB_UNSUPPORTED,
                                 "block %lld of row %lld has the scale 0: no zero point takes the "
                                 "adapter up",
                                 (long long)block, (long long)row);
            z -= d != 0 ? by * d / s : 0;
            into[row * l->blocks + block] = (float)z;
        }
    return NULL;
}

/* Floats for zero points: in place of those that nobody else reads, else of their own. */
static ebb_status put(ebb_graph *g, const layer *l, const char *codes, const float *zeros)
{
    const ebb_type type = ebb_type_tensor(EBB_F32, 2, (int64_t[]){l->rows, l->blocks});
    ebb_value v = ebb_in(g, l->node, ZEROS);
    size_t bytes;
    EBB_GOT(ebb_type_bytes(&type, &bytes));
    if (v.i != 0 && l->zeros->type.dtype == EBB_F32 && ebb_value_of(g, v)->use_count == 1)
        return ebb_weights_give(g, v, zeros, bytes);
    char *name = ebb_arena_printf(&g->model->arena, "%s_zero_points", codes);
    while (name != NULL && ebb_value_find(g, name).i != 0)
        name = ebb_arena_printf(&g->model->arena, "%s_", name);
    void *copy = ebb_arena_alloc(&g->model->arena, bytes + 1);
    EBB_GOT(name && copy);
    memcpy(copy, zeros, bytes);
    EBB_TRY(ebb_graph_add_initializer(g, &v, name, &type, copy, EBB_ROLE_FROZEN));
    return ebb_node_set_input(g, l->node, ZEROS, v);
}

static ebb_status change(ebb_graph *to, ebb_node n, const ebb_adapter *adapter, const ebb_named *a,
                         const ebb_named *b)
{
    layer l = {.node = n};
    const ebb_type ta = ebb_type_tensor((ebb_dtype)a->dtype, a->rank, a->dims),
                   tb = ebb_type_tensor((ebb_dtype)b->dtype, b->rank, b->dims);
    const char *why = read_layer(&l, to, adapter, &ta, &tb);
    if (why != NULL)
        return ebb_error(EBB_REJECTED, "%s %s", ebb_node_label(to, n), why);
    float *zeros = malloc((size_t)l.rows * (size_t)l.blocks * sizeof *zeros);
    EBB_GOT(zeros);
    ebb_status status = ebb_at(add(&l, adapter, a, b, zeros), ebb_node_label(to, n));
    if (status == NULL)
        status = put(to, &l, adapter->codes, zeros);
    free(zeros);
    return status;
}

static bool reads_codes(const ebb_graph *g, ebb_node n, ebb_value codes)
{
    return strcmp(ebb_text(g, ebb_node_of(g, n)->op_name), "MatMulNBits") == 0 &&
           ebb_same_value(ebb_in(g, n, CODES), codes);
}

ebb_status ebb_adapter_into_zeros(ebb_program *program, const ebb_adapter *adapter, ebb_graph *to)
{
    const ebb_value codes =
        adapter->codes != NULL ? ebb_value_find(to, adapter->codes) : EBB_NO_VALUE;
    ebb_named a = {0}, b = {0};
    void *copy[2] = {NULL};
    bool any = false;
    ebb_status status = ebb_adapter_copy(program, adapter->a, to, &a, &copy[0]);
    if (status == NULL)
        status = ebb_adapter_copy(program, adapter->b, to, &b, &copy[1]);
    EBB_EACH_NODE(to, n)
        if (status == NULL && codes.i != 0 && reads_codes(to, n, codes)) {
            any = true;
            status = change(to, n, adapter, &a, &b);
        }
    if (status == NULL && !any)
        status = ebb_error(EBB_REJECTED,
                           "the model has no MatMulNBits with the codes '%s' of the adapter '%s'",
                           adapter->codes != NULL ? adapter->codes : "",
                           ebb_value_name(program->plan.g, adapter->b));
    free(copy[0]);
    free(copy[1]);
    return status;
}
