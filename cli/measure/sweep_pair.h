/* sweep_pair.h: one line of a sweep: a step without and with techniques, compared. */
#pragma once

#include <jansson.h>

#include "cli/cli.h"

typedef struct cli_pair {
    cli exact, other; /* the words of both steps */
    ebb_model *before, *after;
    ebb_data *data;
    cli_map map;
    char *report;
    const char *refused; /* an option that the model, a step already, has no use for */
} cli_pair;

/* Says in the line what came of it: numbers of so many timed steps, or why there are none. */
void cli_pair_measure(cli_pair *p, int steps, json_t *line);
void cli_pair_free(cli_pair *p);
