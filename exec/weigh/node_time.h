/* node_time.h: how long a node takes.
 *
 *     time of a node = node_ns + the longer of  operations / rate  and  bytes / rate
 *
 * by the rates (kernels/device.h) of the machine that the model is planned for. Where a node bears
 * the metadata "ebb.cost_ns" (the `cost` pass writes it from measurements), that is its time. What starts a
 * move takes what the move takes from the step (move_time.h). What exchanges with other processes takes what the link
 * needs besides (link.h), unless it only begins to: then the link is beside the step, but who lays out the bytes and adds
 * them up takes that time from it.
 */
#pragma once

#include "exec/weigh/move_time.h"

double ebb_node_ns(const ebb_graph *g, ebb_node n);
double ebb_node_bytes(const ebb_graph *g, ebb_node n); /* of its operands; unknown ones count 0 */

/* The same by rates of one's own. */
double ebb_node_ns_by(const struct ebb_rates *rates, const ebb_graph *g, ebb_node n);

/* What a node needs to do and to move so much; and one that multiplies matrices of this dtype. */
double ebb_roofline_ns(const ebb_graph *g, double flops, double bytes);
double ebb_product_ns(const ebb_graph *g, ebb_dtype dtype, double flops, double bytes);
double ebb_copy_ns(const ebb_graph *g); /* of a byte, which is read and written */

/* From now on times are those of this back end's device: as in ebb_plan_options; NULL: the
 * default. */
ebb_status ebb_estimate_for(ebb_model *model, const char *backend);
