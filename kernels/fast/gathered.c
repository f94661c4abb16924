/* gathered.c: see gathered.h. */
#include "kernels/fast/gathered.h"

#include "kernels/fast/tile.h"
#include "kernels/parallel.h"

/* A stretch of k, and the largest block: what is packed of both sides and the block itself stay in the
 * second cache. */
enum {
    DEPTH = EBB_GATHERED_LINE,
    MOST_ROWS = 24 * EBB_TILE_ROWS,
    MOST_COLUMNS = EBB_GATHERED_LINE
};
enum { JOBS = 32 }; /* fewer leave threads without work: blocks are made smaller */

typedef struct blocks {
    int64_t rows, columns;       /* of a block: whole slivers, whole panels */
    int64_t down, across, jobs;  /* blocks of C; of all batches */
    int64_t left, right, result; /* floats of a slot, in this order ... */
    size_t places, bytes;        /* ... behind these bytes; all of it */
} blocks;

/* n in `parts` parts, each a multiple of `unit`. */
static int64_t part_of(int64_t n, int64_t parts, int64_t unit)
{
    int64_t part = (n + parts - 1) / parts;
    return (part + unit - 1) / unit * unit;
}

static void cut(blocks *b, const ebb_gathered *p, int64_t rows, int64_t columns)
{
    b->rows = part_of(p->m, (p->m + rows - 1) / rows, EBB_TILE_ROWS);
    b->columns = part_of(p->n, (p->n + columns - 1) / columns, EBB_TILE_COLUMNS);
    b->down = (p->m + b->rows - 1) / b->rows;
    b->across = (p->n + b->columns - 1) / b->columns;
    b->jobs = p->batches * b->down * b->across;
}

static blocks blocks_of(const ebb_gathered *p)
{
    blocks b;
    int64_t rows = MOST_ROWS, columns = MOST_COLUMNS;
    cut(&b, p, rows, columns);
    for (; b.jobs < JOBS && columns > 4 * EBB_TILE_COLUMNS; cut(&b, p, rows, columns))
        columns /= 2;
    for (; b.jobs < JOBS && rows > 8 * EBB_TILE_ROWS; cut(&b, p, rows, columns))
        rows /= 2;
    b.left = b.rows * DEPTH;
    b.right = b.columns * DEPTH;
    b.result = b.rows * b.columns;
    int64_t along = p->by_columns ? DEPTH : b.columns;
    b.places = p->places != NULL ? (size_t)(p->place_rows * (along + 1)) * sizeof(ebb_stretch) : 0;
    b.places = (b.places + 63) / 64 * 64;
    b.bytes = b.places + (size_t)(b.left + b.right + b.result) * sizeof(float);
    return b;
}

ebb_status ebb_gathered_workspace(const ebb_gathered *p, const ebb_call *call, size_t *bytes)
{
    blocks b = blocks_of(p);
    if (!ebb_size_mul(bytes, b.bytes, (size_t)ebb_least(b.jobs, ebb_threads())))
        return ebb_call_error(call, "its product takes too much memory");
    return NULL;
}

/* Slivers of EBB_TILE_ROWS rows, each by columns; rows that A has not are 0. */
static void pack_left(const ebb_gathered *p, float *to, int64_t batch, int64_t row, int64_t rows,
                      int64_t k, int64_t depth)
{
    float line[DEPTH];
    for (int64_t r = 0; r < rows; r++) {
        float *at = to + r / EBB_TILE_ROWS * EBB_TILE_ROWS * depth + r % EBB_TILE_ROWS;
        if (row + r < p->m)
            p->left(p, line, batch, row + r, k, depth);
        else
            memset(line, 0, sizeof line);
        for (int64_t i = 0; i < depth; i++)
            at[i * EBB_TILE_ROWS] = line[i];
    }
}

/* Panels as ebb_tile_pack makes them. */
static void pack_rows(const ebb_gathered *p, float *to, int64_t batch, int64_t column,
                      int64_t columns, int64_t k, int64_t depth, const ebb_stretch *places)
{
    float line[MOST_COLUMNS];
    int64_t there = ebb_least(columns, p->n - column);
    memset(line, 0, sizeof line);
    for (int64_t i = 0; i < depth; i++) {
        p->right(p, line, batch, k + i, column, there, places);
        for (int64_t j = 0; j < columns; j += EBB_TILE_COLUMNS)
            memcpy(to + j * depth + i * EBB_TILE_COLUMNS, line + j,
                   EBB_TILE_COLUMNS * sizeof(float));
    }
}

static void pack_columns(const ebb_gathered *p, float *to, int64_t batch, int64_t column,
                         int64_t columns, int64_t k, int64_t depth, const ebb_stretch *places)
{
    float line[DEPTH];
    for (int64_t j = 0; j < columns; j++) {
        float *at = to + j / EBB_TILE_COLUMNS * EBB_TILE_COLUMNS * depth + j % EBB_TILE_COLUMNS;
        if (column + j < p->n)
            p->right(p, line, batch, column + j, k, depth, places);
        else
            memset(line, 0, sizeof line);
        for (int64_t i = 0; i < depth; i++)
            at[i * EBB_TILE_COLUMNS] = line[i];
    }
}

static void compute(const ebb_gathered *p, const blocks *b, void *memory, int64_t job)
{
    ebb_stretch *places = p->places != NULL ? memory : NULL;
    float *left = (float *)(void *)((char *)memory + b->places);
    float *right = left + b->left, *result = right + b->right;
    const int64_t batch = job / (b->down * b->across);
    const int64_t row = job / b->across % b->down * b->rows, column = job % b->across * b->columns;
    const int64_t rows = ebb_least(b->rows, p->m - row),
                  columns = ebb_least(b->columns, p->n - column);
    const int64_t width = ebb_tile_width(columns);
    if (places != NULL && !p->by_columns)
        p->places(p, places, column, columns);
    if (p->k == 0)
        memset(result, 0, (size_t)b->result * sizeof *result);
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        const int64_t depth = ebb_least(DEPTH, p->k - k);
        if (places != NULL && p->by_columns)
            p->places(p, places, k, depth);
        pack_left(p, left, batch, row, part_of(rows, 1, EBB_TILE_ROWS), k, depth);
        (p->by_columns ? pack_columns : pack_rows)(p, right, batch, column, width, k, depth,
                                                   places);
        for (int64_t j = 0; j < width; j += EBB_TILE_COLUMNS)
            for (int64_t r = 0; r < rows; r += EBB_TILE_ROWS)
                ebb_tile_block(result + r * b->columns + j, b->columns, left + r * depth, 1,
                               EBB_TILE_ROWS, right + j * depth, depth, EBB_TILE_ROWS, k > 0);
    }
    for (int64_t r = 0; r < rows; r++)
        p->store(p, result + r * b->columns, batch, row + r, column, columns);
}

void ebb_gathered_run(const ebb_gathered *p, const ebb_call *call)
{
    const blocks b = blocks_of(p);
    const int64_t slots = (int64_t)(call->workspace_bytes / b.bytes);
    EBB_PARALLEL_FOR(b.jobs * b.result * ebb_least(p->k, DEPTH))
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t job = slot; job < b.jobs; job += slots)
            compute(p, &b, (char *)call->workspace + (size_t)slot * b.bytes, job);
}
