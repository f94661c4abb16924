/* norm_sites.h, of norm_from_output.c and inplace_abn.c: the backward nodes of normalisations, and
 * how they are given the output instead of the input. */
#pragma once

#include "passes/common.h"

typedef struct ebb_norm_site {
    ebb_node grad, forward; /* dx = grad(dy, x, scale, ...);  y = forward(x, scale, bias) */
    ebb_value x, y;
    ebb_value scale, bias; /* as the forward reads them; bias none: there is none */
    ebb_value inv_std;     /* 1 / deviation, which stays */
    bool by_channel;       /* batch and group norm: an activation behind them can be undone too */
    const char *refused;   /* NULL, or why its output cannot serve: a literal */
    double amplification;  /* of rounding in the output, on its way to the normalised value */
    bool assumed;          /* the weights are not in the file: 1 and 0 */
} ebb_norm_site;

/* What lies between the output of the norm, y, and what is kept, z. */
typedef struct ebb_norm_act {
    double slope; /* of a LeakyRelu; 1: there is none */
    double elu;   /* alpha of an Elu; 0: there is none */
} ebb_norm_act;

/* Whether node n of the backward is the gradient of a norm; then the site. Its amplification is
 * that by `act`. */
bool ebb_norm_site_find(ebb_norm_site *site, const ebb_graph *g, ebb_node n);

/* Of |scale|, |bias| and the activation: |error of xhat| <= u (|bias| + |scale xhat|) / |scale|
 * where z is rounded by u, as a multiple of u, for |xhat| up to 1 (with an Elu, which flattens:
 * up to 4 deviations below). Infinite where a scale is 0. Sets refused where the weights are not
 * those of the step. */
void ebb_norm_site_measure(ebb_norm_site *site, const ebb_graph *g, ebb_norm_act act);

/* Why rounding would grow too much by a site measured; NULL: it would not. */
const char *ebb_norm_site_guard(const ebb_norm_site *site, const ebb_graph *g, double limit);

/* dx, dscale and dbias from dz and z; the node of the input goes, and the mean where nobody else
 * reads it. */
ebb_status ebb_norm_site_rewrite(ebb_edit *e, const ebb_norm_site *site, ebb_value dz, ebb_value z,
                                 ebb_norm_act act);

/* What the site's rewriting saves besides the input: its mean. */
int64_t ebb_norm_site_mean_bytes(const ebb_graph *g, const ebb_norm_site *site);

/* ---- the guard as reported ---- */

typedef struct ebb_norm_guard { /* over the sites of one run */
    double worst;
    size_t measured, assumed;
} ebb_norm_guard;

/* A site is left because of its amplification: says how large that is. */
ebb_status ebb_norm_guard_declined(ebb_edit *e, const ebb_norm_site *site, const char *reason);
void ebb_norm_guard_passed(ebb_norm_guard *guard, const ebb_norm_site *site);
/* One note for all sites that were rewritten. */
ebb_status ebb_norm_guard_note(ebb_edit *e, const ebb_norm_guard *guard);
