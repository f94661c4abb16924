/* stream: let the reader of a coded tensor decode it a tile of rows at a time.
 *
 *   before   x = Dequantize(codes, range)        all of x, for one reader
 *            dW = ConvWeightGrad(dy, x)
 *   after    x = Dequantize(...)  read by 2 rows a tile of x in the reader's workspace
 *            dW = ConvWeightGrad(dy, x)          the same nodes; a mark on the first
 *
 * What was kept in few bits must not come back whole: else the decoded tensor sets the peak that
 * the code was to lower. The mark is part of the file (metadata "ebb.stream": rows of a tile), so
 * that the plan and the run are the same; other runtimes decode the whole tensor.
 *
 * Rounding: rows are computed as before, but what adds up over the rows (a weight gradient) adds up
 * tile by tile.
 *
 * Declines where the tensor has several readers, where its reader needs all rows at once, and where
 * it is no larger than a tile.
 */
#include "onnx/graph/stream.h"
#include "passes/common.h"

/* Rows of a tile of about so many bytes; 0: the tensor is no larger. */
static int64_t rows_of_tile(const ebb_graph *g, ebb_value v, uint64_t tile_bytes)
{
    const ebb_type *type = ebb_value_of(g, v)->type;
    size_t bytes;
    if (!ebb_type_bytes(type, &bytes) || bytes <= tile_bytes || type->dims[0] < 2)
        return 0;
    uint64_t row_bytes = bytes / (size_t)type->dims[0];
    return row_bytes == 0 || tile_bytes < row_bytes ? 1 : (int64_t)(tile_bytes / row_bytes);
}

/* The decoding nodes of one reader stand together, right before it. */
static void bring_near(ebb_graph *g, ebb_node n, ebb_node reader)
{
    ebb_node next = ebb_next(g, n);
    while (!ebb_same_node(next, reader) && ebb_node_of(g, next)->tile_rows != 0)
        next = ebb_next(g, next);
    if (!ebb_same_node(next, reader))
        ebb_node_move(g, n, reader);
}

static ebb_status consider(ebb_edit *e, ebb_node n, uint64_t tile_bytes)
{
    ebb_graph *g = e->g;
    ebb_use reader;
    if (ebb_node_of(g, n)->tile_rows != 0)
        return NULL;
    ebb_found(e);
    const char *refused = ebb_stream_refuses(g, n, &reader);
    if (refused != NULL)
        return ebb_skipped(e, n, refused);
    int64_t rows = rows_of_tile(g, ebb_out(g, n, 0), tile_bytes);
    if (rows == 0)
        return ebb_skipped(e, n, "it is no larger than a tile");
    ebb_node_of(g, n)->tile_rows = rows;
    bring_near(g, n, reader.node);
    ebb_applied(e);
    return NULL;
}

static ebb_status run(ebb_edit *e)
{
    uint64_t tile_bytes;
    ebb_node next;
    EBB_TRY(ebb_option_bytes(e, "tile", 0, &tile_bytes));
    for (ebb_node n = ebb_first(e->g); n.i != 0; n = next) {
        next = ebb_next(e->g, n);
        if (ebb_op_has(ebb_node_of(e->g, n)->op, EBB_DECODES))
            EBB_TRY(consider(e, n, tile_bytes));
    }
    return NULL;
}

static const ebb_option options[] = {
    {"tile", EBB_OPTION_BYTES, "4MiB", NULL, "about how large a tile is; at least one row"},
    {NULL, EBB_OPTION_INT, NULL, NULL, NULL},
};

const ebb_pass ebb_pass_stream = {
    .name = "stream",
    .doc = "let readers of coded tensors decode them a tile of rows at a time",
    .exactness = EBB_ROUNDING,
    .options = options,
    .run = run,
};
