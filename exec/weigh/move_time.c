/* move_time.c: a way's three numbers, as measured or of the device; a step's moves on a clock. */
#include "exec/weigh/move_time.h"

#include "exec/weigh/node_time.h"
#include "exec/weigh/traffic.h"
#include "kernels/device.h"
#include "onnx/graph/infer.h"
#include "onnx/words/print.h"

#include <stdio.h>
#include <stdlib.h>

const char ebb_ways_key[] = "ebb.disk_ns";

void ebb_ways_print(char text[EBB_WAYS_BYTES], const ebb_move_time ways[2])
{
    (void)ebb_snprintf(text, EBB_WAYS_BYTES, "%.4g %.4g %.4g %.4g %.4g %.4g", ways[0].alone,
                       ways[0].beside, ways[0].taken, ways[1].alone, ways[1].beside, ways[1].taken);
}

/* Six numbers from 0 to 1e9; a file may say anything. */
static bool read_ways(ebb_move_time ways[2], const char *text)
{
    double number[6];
    for (int i = 0; i < 6; i++) {
        char *end;
        number[i] = ebb_strtod(text, &end);
        if (end == text || !(number[i] >= 0 && number[i] <= 1e9))
            return false;
        text = end;
    }
    for (int way = 0; way < 2; way++)
        ways[way] = (ebb_move_time){number[3 * way], number[3 * way + 1], number[3 * way + 2]};
    return *text == '\0';
}

/* Of a byte. */
static ebb_move_time way_of(const ebb_rates *rates, const ebb_graph *g, ebb_place place, bool back)
{
    ebb_move_time ways[2];
    const char *measured = place == EBB_PLACE_DISK
                               ? ebb_props_get(g->model->graph, &g->model->props, ebb_ways_key)
                               : NULL;
    if (measured != NULL && read_ways(ways, measured))
        return ways[back];
    const ebb_way *way = place == EBB_PLACE_DISK ? &rates->disk : &rates->link;
    return (ebb_move_time){way->alone, way->beside, way->taken};
}

static ebb_move_time times(double bytes, ebb_move_time way)
{
    return (ebb_move_time){bytes * way.alone, bytes * way.beside, bytes * way.taken};
}

ebb_move_time ebb_move_time_of(const ebb_graph *g, double bytes, ebb_place place, bool back)
{
    const ebb_rates *rates = g->model->rates != NULL ? g->model->rates : ebb_device_host.rates();
    return times(bytes, way_of(rates, g, place, back));
}

ebb_move_time ebb_move_time_by(const ebb_rates *rates, const ebb_graph *g, ebb_node n)
{
    const bool back = ebb_node_of(g, n)->op == EBB_OP_FETCH;
    const ebb_value away = back ? ebb_in(g, n, 0) : ebb_out(g, n, 0);
    size_t bytes = 0;
    if (!ebb_type_bytes(ebb_value_of(g, away)->type, &bytes))
        bytes = 0;
    return times((double)bytes, way_of(rates, g, ebb_value_place(g, away), back));
}

double ebb_move_clock_start(ebb_move_clock *c, const ebb_move_time *t, bool back)
{
    const double here = c->now + c->sooner[back];
    double *queue = &c->queue[back];
    *queue = (*queue > here ? *queue : here) + t->beside;
    c->now += t->taken;
    return *queue;
}

/* What is moved while the step stands still goes faster, and takes nothing. */
void ebb_move_clock_wait(ebb_move_clock *c, double over, const ebb_move_time *t, bool back)
{
    const double left = over - c->now - c->sooner[back];
    if (left <= 0 || t->beside <= 0)
        return;
    const double stands = left * t->alone / t->beside;
    c->sooner[back] += left - stands;
    c->now += stands;
    c->stood += stands - left * (t->taken < t->alone ? t->taken : t->alone) / t->beside;
}

/* ---- a step's ---- */

static void stand(ebb_move_clock *clock, ebb_waits *waits, double until)
{
    const double ns = until > clock->now ? until - clock->now : 0;
    clock->now += ns;
    clock->stood += ns;
    waits->exposed += ns;
}

/* Made at once: behind those that were begun, and the step waits. Its own time is the node's. */
static void exchange_now(ebb_move_clock *clock, ebb_waits *waits, double ns)
{
    stand(clock, waits, clock->link);
    waits->exchange += ns;
    waits->exposed += ns;
    clock->link = clock->now + ns;
}

/* The sums are made between, and take `ns` from the step. */
static double exchange_beside(ebb_move_clock *clock, ebb_waits *waits, double link_ns, double ns)
{
    waits->exchange += link_ns;
    clock->link = (clock->link > clock->now ? clock->link : clock->now) + link_ns + ns;
    clock->now += ns;
    return clock->link;
}

static double start(ebb_move_clock *clock, ebb_waits *waits, const ebb_rates *rates,
                    const ebb_graph *g, ebb_node n)
{
    const ebb_op op = ebb_node_of(g, n)->op;
    if (ebb_op_has(op, EBB_TOGETHER))
        return exchange_beside(clock, waits, ebb_exchange_ns(g, n), ebb_node_ns_by(rates, g, n));
    clock->now += rates->node_ns;
    const ebb_move_time t = ebb_move_time_by(rates, g, n);
    return ebb_move_clock_start(clock, &t, op == EBB_OP_FETCH);
}

static void wait(ebb_move_clock *clock, ebb_waits *waits, const ebb_rates *rates,
                 const ebb_graph *g, ebb_node started, double over)
{
    const ebb_op op = ebb_node_of(g, started)->op;
    if (ebb_op_has(op, EBB_TOGETHER)) {
        stand(clock, waits, over);
        return;
    }
    const ebb_move_time t = ebb_move_time_by(rates, g, started);
    ebb_move_clock_wait(clock, over, &t, op == EBB_OP_FETCH);
}

ebb_status ebb_waits_of(ebb_waits *waits, const ebb_rates *rates, const ebb_graph *g,
                        ebb_arena *scratch)
{
    ebb_move_clock clock = {0};
    double *over = NULL; // by node id
    *waits = (ebb_waits){0};
    EBB_EACH_NODE(g, n) {
        const ebb_op op = ebb_node_of(g, n)->op;
        if (ebb_op_has(op, EBB_STARTS)) {
            if (over == NULL &&
                (over = EBB_NEW(scratch, double, g->node_count + (size_t)1)) == NULL)
                return ebb_error_memory();
            over[n.i] = start(&clock, waits, rates, g, n);
            continue;
        }
        if (ebb_op_has(op, EBB_TOGETHER))
            exchange_now(&clock, waits, ebb_exchange_ns(g, n));
        clock.now += ebb_node_ns_by(rates, g, n);
        const ebb_node started =
            op == EBB_OP_WAIT ? ebb_value_of(g, ebb_in(g, n, 0))->producer : EBB_NO_NODE;
        if (started.i != 0 && over != NULL)
            wait(&clock, waits, rates, g, started, over[started.i]);
    }
    waits->stood = clock.stood;
    return NULL;
}
