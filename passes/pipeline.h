/* pipeline.h: a list of passes, run over a model one by one.
 *
 * The text is that of pipeline_text.h: "name:option=value,option=value,name,...". Presets stand for
 * lists, with options where they need some: "flatten" is decoder,differentiate,opset,inline,fold,unroll
 * (ebb_presets).
 *
 * Passes run in the order of the text, but for those that change the primal: they run before
 * `gradient` wherever they stand (ebb_primal).
 *
 * Passes side by side that make offers hold a contest for what several of them want (contest.h).
 *
 * After each pass dead nodes are swept, types inferred, rules checked (verify_each), and the graph
 * is weighed where all sizes are known. Marks of memory shared in place hold for one graph only:
 * they are taken off before any pass that edits, and put back after it where the graph had them.
 */
#pragma once

#include "rewrite/rewrite.h"

/* Reports, one a pass, in keep's memory. The whole text is checked before anything runs
 * (EBB_USAGE); if a pass fails, those before it have changed the model. Appends to model metadata
 * "ebb.passes": a JSON list of {name, options, found, applied, saved_bytes, peak_before_bytes,
 * peak_after_bytes}; options as given, in this text's syntax, so that a pass can be run again. */
ebb_status ebb_pipeline_run(ebb_model *model, const char *pipeline,
                            const ebb_rewrite_options *options, ebb_arena *keep,
                            ebb_report **reports, size_t *count);

typedef struct ebb_preset {
    const char *name, *stands_for, *doc;
} ebb_preset;
const ebb_preset *ebb_presets(size_t *count);

/* ---- for passes that try other passes before they decide ---- */

/* Who decides about a pass's offers, as in ebb_edit. */
typedef const char *(*ebb_decides)(void *context, const ebb_pass *pass, ebb_node site,
                                   const ebb_offer *offer);

/* One pass on g, then the sweep and inference that follow any pass. options: ends with a NULL name;
 * NULL: the defaults. Marks of shared memory must be off. The report is in keep's memory. */
ebb_status ebb_pipeline_one(ebb_graph *g, const ebb_pass *pass,
                            const struct ebb_option_value *options, ebb_decides decides,
                            void *context, ebb_arena *keep, ebb_report *report);
/* Marks of shared memory, as the alias pass puts them; and none. */
ebb_status ebb_pipeline_mark(ebb_graph *g);
void ebb_pipeline_unmark(ebb_graph *g);
