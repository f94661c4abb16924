/* pipeline_text.h: the text of a pipeline.
 *
 *     flatten,loss:cross-entropy,axis=-1,gradient:train="fc1*,fc2*"
 *
 * Words stand between commas. "name" or "name:" begins a pass, a preset or a planner; "name=value"
 * is an option of the pass before it; a value right behind the colon is that of the pass's first
 * option. A value that holds commas stands in quotes, with a backslash before each quote and
 * backslash within.
 */
#pragma once

#include "rewrite/rewrite.h"

typedef struct ebb_stage {
    const ebb_pass *pass;
    struct ebb_option_value *options;
    size_t option_count, option_capacity;
    size_t preset; /* counts presets: the one that it is of; 0: it was asked for by name */
} ebb_stage;

typedef struct ebb_stages {
    ebb_arena *arena;
    ebb_stage *list;
    size_t count, capacity;
    size_t preset, preset_count; /* being read; so far */
} ebb_stages;

/* Names, options and values are checked: EBB_USAGE. Everything is in arena's memory. */
ebb_status ebb_stages_read(ebb_stages *stages, const char *text, ebb_arena *arena);

/* The one stage of `pass` that "cross-entropy:axis=1" stands for, as the command's --loss has it. */
ebb_status ebb_stage_read(ebb_stage *stage, const char *pass, const char *spec, ebb_arena *arena);

/* A stage's options as given, in this syntax: "kind=adamw,lr=0.01". NULL: no memory. */
const char *ebb_stage_text(const ebb_stage *s, ebb_arena *arena);

/* A value as this syntax needs it: in quotes, or as it is. NULL: no memory. */
const char *ebb_option_quoted(const char *value, ebb_arena *arena);
