/* epilogue.h, of relu_epilogue.c: a ReLU, and what it can be one node with.
 *
 *     x ─ maker ─ y ─ (views) ─ Add ─ s ─ (views) ─ Relu ─ z ─ PackSign ─ bits
 *                     added ────┘
 *
 * Which makers there are: epilogue_norm.c, epilogue_conv.c.
 */
#pragma once

#include "passes/common.h"

enum { EBB_EPILOGUE_CHAIN = 16, EBB_EPILOGUE_PACKS = 8, EBB_EPILOGUE_VIEWS = 4 };

typedef struct ebb_epilogue {
    ebb_node relu, maker, chain[EBB_EPILOGUE_CHAIN]; /* chain: all between them, and both */
    uint32_t chain_count;
    ebb_value added; /* none: nothing is */
    bool shared;     /* something in between is read by others */
} ebb_epilogue;

typedef struct ebb_epilogue_state {
    ebb_edit *e;
    uint32_t *at; /* positions of the nodes that were there at first */
    uint32_t node_count;
} ebb_epilogue_state;

typedef struct ebb_epilogue_kind {
    bool (*makes)(const ebb_graph *g, ebb_node n); /* is n a maker? */
    /* Why it stays as it is, a literal; NULL: join it. */
    const char *(*decline)(const ebb_epilogue_state *s, const ebb_epilogue *t);
    ebb_status (*join)(const ebb_epilogue_state *s, const ebb_epilogue *t);
} ebb_epilogue_kind;

extern const ebb_epilogue_kind ebb_epilogue_norm, ebb_epilogue_conv;

bool ebb_epilogue_is_view(const ebb_graph *g, ebb_node n);

/* PackSigns of z > 0, views of z seen through; how many go into list. */
uint32_t ebb_epilogue_packs(const ebb_graph *g, ebb_value z, ebb_node list[EBB_EPILOGUE_PACKS]);

/* The node that was made of all has z and, where somebody wants them, its bits. */
ebb_status ebb_epilogue_joined(ebb_edit *e, const ebb_epilogue *t, ebb_value z, ebb_value bits,
                               const ebb_node *packs, uint32_t pack_count);
