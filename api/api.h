/* api.h: where the two wings meet. Implements the part of ebb.h that needs both: opening and
 * saving, rewriting with its report, and the questions that are answered as JSON.
 */
#pragma once

#include <jansson.h>

#include "rewrite/rewrite.h"

/* Text of a JSON object for the caller to ebb_release; the object is released. */
ebb_status ebb_json_text(char **text, json_t *object);

/* inspect.c: sizes, or names where they are open. */
json_t *ebb_dims_json(const ebb_graph *g, const ebb_type *type);
/* inspect_weights.c: "weights" of ebb_inspect_json: [{name, dtype, dims, bytes, role, trained, why}],
 * one for each initializer: what a training without further options makes of it. */
ebb_status ebb_weights_json(json_t **list, const ebb_model *model);

/* The array of this name, or NULL. */
const ebb_named *ebb_batch_find(const ebb_batch *batch, const char *name);

/* metrics.c: an evaluation by several processes, in turns of one batch each. NULL: this one has none left,
 * but for the first turn. */
ebb_status ebb_metrics_turn(ebb_metrics *metrics, ebb_group *group, ebb_program *program,
                            const ebb_batch *batch);
/* At its end: what each counted, in all of them. */
ebb_status ebb_metrics_merge(ebb_metrics *metrics, ebb_group *group);
