/* move_time.h: how long a move to another place takes, and what it takes from the step.
 *
 *     now     the step computes        | stands still at a Wait | computes
 *     move    [ beside ns of a byte ...|... alone ns of a byte ]
 *
 * Moves to a place go one after the other, and so do those from it. On a processor whose cores all compute a
 * move is not free: who copies and sums its bytes takes time from them, so many ns of a byte.
 *
 * Exchanges with other processes go one behind another too, by their link; one that is made at once waits for those
 * that were begun before it.
 *
 * A model bears what was measured in the metadata "ebb.disk_ns" (the `cost` pass writes it from a file of
 * costs): the three numbers of the way there, then those of the way back. Else the rates of its device count.
 */
#pragma once

#include "onnx/graph/place.h"

struct ebb_rates;

typedef struct ebb_move_time { /* ns */
    double alone, beside; /* until it is over: while the step stands still, while it computes */
    double taken;         /* by which the step is longer */
} ebb_move_time;

/* Of a move of so many bytes to that place, or back from it. */
ebb_move_time ebb_move_time_of(const ebb_graph *g, double bytes, ebb_place place, bool back);
/* The same by rates of one's own; n is a Store or a Fetch. */
ebb_move_time ebb_move_time_by(const struct ebb_rates *rates, const ebb_graph *g, ebb_node n);

/* The times of a step from its nodes' and its moves', one after the other. */
typedef struct ebb_move_clock {
    double now; /* when the step is where it is */
    double queue
        [2]; /* when what was started, there and back, is over if the step never stands still */
    double sooner[2]; /* by which it is sooner since it did */
    double stood;     /* in all */
    double link;      /* when the exchanges with other processes that were begun are over */
} ebb_move_clock;

/* The step starts a move; what it gives is for the Wait. */
double ebb_move_clock_start(ebb_move_clock *c, const ebb_move_time *t, bool back);
void ebb_move_clock_wait(ebb_move_clock *c, double over, const ebb_move_time *t, bool back);

typedef struct ebb_waits { /* ns */
    double stood;          /* the step stands still, besides what its nodes take */
    double exchange;       /* what exchanges take by the link (traffic.h): all of them, */
    double exposed;        /* and how much of it the step waits for */
} ebb_waits;

ebb_status ebb_waits_of(ebb_waits *waits, const struct ebb_rates *rates, const ebb_graph *g,
                        ebb_arena *scratch);

/* The metadata of a model: ns of a byte, there and back. */
enum { EBB_WAYS_BYTES = 128 };
extern const char ebb_ways_key[]; /* "ebb.disk_ns" */
void ebb_ways_print(char text[EBB_WAYS_BYTES], const ebb_move_time ways[2]);
