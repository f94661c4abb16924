/* lives.h: the tensors of a plan, read from its JSON, for what draws them:
 *
 *   picture.c   --svg       live bytes over the step, by category, one plan or two
 *   page.c      --html      the same picture with page.html around it, which zooms and lists
 *   trace.c     --perfetto  each life as a slice, for ui.perfetto.dev
 */
#pragma once

#include <stdint.h>

#include "cli/cli.h"

enum { CLI_CATEGORIES = 8, CLI_PLACES = 4, CLI_ANY = -1 };
/* From the bottom of a pile to its top: what lives long lies low. */
extern const char *const cli_categories[CLI_CATEGORIES];
extern const char *const cli_places[CLI_PLACES]; /* the first is where the step runs */

typedef struct cli_life {
    const char *name;
    double bytes;
    int category, place;
    uint32_t birth, death; /* positions, both included */
} cli_life;

typedef struct cli_lives {
    const char *title;  /* "before", "after"; "": there is one plan alone */
    const json_t *plan; /* whose texts the lives borrow */
    cli_life *list;
    size_t count;
    uint32_t positions; /* nodes of the step */
    uint32_t turn;      /* where the backward begins; 0: there is none */
} cli_lives;

/* Bytes alive in a place at each position. category: CLI_ANY for all. */
void cli_live_bytes(double *live, const cli_lives *side, int place, int category);

/* Where the step of `side` is at `position`, from 0 to 1, so that backwards stand below each other. */
double cli_moment(const cli_lives sides[2], int count, const cli_lives *side, double position);
/* The moment at which all backwards begin; 0: not all have one. */
double cli_turn(const cli_lives sides[2], int count);

/* Text where < and & mean something. */
void cli_print_xml(FILE *out, const char *text);

void cli_print_picture(FILE *out, const cli_lives sides[2], int count);
void cli_print_trace(FILE *out, const cli_lives sides[2], int count);
void cli_print_html(FILE *out, const char *title, const json_t *o, const cli_lives sides[2],
                    int count);
