/* diff.h: two models, weighed or run side by side, as JSON. */
#pragma once

#include "exec/json.h"

/* Sets `before` and `after` (as ebb_plan_json), `peak_saved_bytes`, and with a run how far the
 * numbers of one step are apart. options: not NULL. */
ebb_status ebb_diff_measure(json_t *root, ebb_model *before, ebb_model *after,
                            const ebb_plan_options *options);
