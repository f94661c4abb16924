/* node_time.h: how long a node takes.
 *
 *     time of a node = node_ns + the longer of  operations / rate  and  bytes / rate
 *
 * by the rates (kernels/device.h) of the machine that the model is planned for. Where a node bears
 * the metadata "ebb.cost_ns" (the `cost` pass writes it from measurements), that is its time.
 *
 * A node that starts a move to another place counts the time by which the move slows the step down
 * (move_time.h). A node that exchanges with other processes and waits for them also counts the time of
 * the link (link.h). One that only starts an exchange does not, since the link works beside the step; it
 * counts the time to arrange the bytes and to add them up.
 */
#pragma once

#include "exec/weigh/move_time.h"

double ebb_node_ns(const ebb_graph *g, ebb_node n);
double ebb_node_bytes(const ebb_graph *g, ebb_node n); /* of its operands; unknown ones count 0 */

/* The same by rates of one's own. */
double ebb_node_ns_by(const struct ebb_rates *rates, const ebb_graph *g, ebb_node n);

/* Of a node with so many operations and bytes; and of one that multiplies matrices of this dtype. */
double ebb_roofline_ns(const ebb_graph *g, double flops, double bytes);
double ebb_product_ns(const ebb_graph *g, ebb_dtype dtype, double flops, double bytes);
double ebb_copy_ns(const ebb_graph *g); /* of a byte, which is read and written */

/* From now on times are those of this back end's device: as in ebb_plan_options; NULL: the
 * default. */
ebb_status ebb_estimate_for(ebb_model *model, const char *backend);
