/* costs_ways.c: moves to disk and back, and the link to other processes, in a file of costs. */
#include "exec/weigh/costs.h"

static const char *const names[2] = {"store", "fetch"};

void ebb_costs_ways_write(json_t *root, const ebb_costs *c)
{
    json_t *disk = c->moves ? json_object() : NULL;
    for (int way = 0; c->moves && way < 2; way++) {
        const ebb_move_time *t = &c->ways[way];
        (void)json_object_set_new(disk, names[way],
                                  json_pack("{s:f, s:f, s:f, s:f}", "alone_ns", t->alone,
                                            "beside_ns", t->beside, "taken_ns", t->taken,
                                            "processor_ns", c->processor_ns[way]));
    }
    if (c->moves)
        (void)json_object_set_new(root, "disk", disk);
    if (c->linked)
        (void)json_object_set_new(root, "link", ebb_link_json(&c->link));
    json_t *crowds = json_array();
    for (int ranks = 2; ranks <= EBB_GROUP_MOST; ranks++) {
        const ebb_crowd *crowd = &c->crowds[ranks];
        if (crowd->alone_ns > 0)
            (void)json_array_append_new(
                crowds, json_pack("{s:i, s:i, s:f, s:f}", "ranks", ranks, "threads", crowd->threads,
                                  "alone_ns", crowd->alone_ns, "together_ns", crowd->together_ns));
    }
    if (json_array_size(crowds) > 0)
        (void)json_object_set(root, "crowds", crowds);
    json_decref(crowds);
}

double ebb_costs_crowd(const ebb_costs *costs, int64_t ranks)
{
    if (ranks < 2 || ranks > EBB_GROUP_MOST || costs->crowds[ranks].alone_ns <= 0)
        return 1;
    return costs->crowds[ranks].together_ns / costs->crowds[ranks].alone_ns;
}

/* Finite, and no disk is slower than a byte a second. */
static bool read_number(double *number, const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    *number = json_number_value(value);
    return json_is_number(value) && *number >= 0 && *number <= 1e9;
}

static ebb_status read_crowds(ebb_costs *c, const json_t *list)
{
    size_t i;
    const json_t *row;
    json_array_foreach(list, i, row) {
        double ranks, threads;
        ebb_crowd crowd;
        if (!read_number(&ranks, row, "ranks") || ranks < 2 || ranks > EBB_GROUP_MOST ||
            !read_number(&threads, row, "threads") || threads > 1 << 20 ||
            !read_number(&crowd.alone_ns, row, "alone_ns") || crowd.alone_ns < 1 ||
            !read_number(&crowd.together_ns, row, "together_ns") || crowd.together_ns < 1)
            return ebb_error(EBB_REJECTED,
                             "crowds, %zu: 'ranks' should be a number from 2 to %d, 'threads' one "
                             "from 0, 'alone_ns' and 'together_ns' numbers from 1 to 1e9",
                             i, EBB_GROUP_MOST);
        crowd.threads = (int)threads;
        c->crowds[(int)ranks] = crowd;
    }
    return NULL;
}

ebb_status ebb_costs_ways_read(ebb_costs *c, const json_t *root)
{
    const json_t *disk = json_object_get(root, "disk"), *link = json_object_get(root, "link");
    c->moves = disk != NULL;
    for (int way = 0; c->moves && way < 2; way++) {
        const json_t *o = json_object_get(disk, names[way]);
        ebb_move_time *t = &c->ways[way];
        if (!read_number(&t->alone, o, "alone_ns") || !read_number(&t->beside, o, "beside_ns") ||
            !read_number(&t->taken, o, "taken_ns") ||
            !read_number(&c->processor_ns[way], o, "processor_ns"))
            return ebb_error(EBB_REJECTED,
                             "disk, %s: 'alone_ns', 'beside_ns', 'taken_ns' and 'processor_ns' "
                             "should be numbers from 0 to 1e9",
                             names[way]);
    }
    c->linked = link != NULL;
    if (c->linked && !ebb_link_read(&c->link, link))
        return ebb_error(EBB_REJECTED, "link: 'us' should be a number from 0 to 1e9, 'gb' one "
                                       "from 1e-9 to 1e9");
    return read_crowds(c, json_object_get(root, "crowds"));
}
