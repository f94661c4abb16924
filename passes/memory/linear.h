/* linear.h: the weight gradients of linear layers, by the input that they read.
 *
 *   dW = H' G  or  G' H:  Gemm or FusedMatMul of two matrices with transA, one of the forward
 *                         (H, or a view of it, [n, d]) and one of the backward (G, [n, e])
 *
 * Layers that read one H (the query, key and value of attention) are one group: H goes only if all
 * of them let it go.
 */
#pragma once

#include "passes/common.h"

typedef struct ebb_linear_site {
    ebb_node node;
    uint32_t slot; /* in which it reads H; 1 - slot: G */
} ebb_linear_site;

typedef struct ebb_linear_group {
    ebb_value root; /* H: the stored value */
    int64_t n, d;   /* as which the sites read it */
    const ebb_linear_site *sites;
    size_t count;
    const char *refused; /* why H would stay or the group cannot be served, or NULL */
} ebb_linear_group;

/* Bytes of rows x columns of root's dtype, in the arena. */
int64_t ebb_linear_bytes(const ebb_graph *g, const ebb_linear_group *group, int64_t rows,
                         int64_t columns);

/* The columns of a site's G. */
int64_t ebb_linear_columns(const ebb_graph *g, const ebb_linear_site *site);

/* Visits each group: declines it with its reason, or asks weigh() for its offer, and where that is
 * taken lets rewrite() replace all its sites (and not count them). */
typedef struct ebb_linear_plan {
    double ratio;
    void (*weigh)(ebb_offer *offer, const ebb_graph *g, const ebb_linear_group *group, int64_t k);
    ebb_status (*rewrite)(ebb_edit *e, const ebb_linear_group *group, int64_t k);
} ebb_linear_plan;
ebb_status ebb_linear_visit(ebb_edit *e, const ebb_linear_plan *plan);

/* A builder right after the group's H, and H as [n, d]. */
ebb_build ebb_linear_after(ebb_edit *e, const ebb_linear_group *group, ebb_value *matrix);

/* The site's product with other operands, in its place. */
ebb_status ebb_linear_replace(ebb_edit *e, const ebb_linear_site *site, ebb_value h, ebb_value g);
