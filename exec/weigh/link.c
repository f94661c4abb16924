/* link.c: links by name and by numbers, and on a model. */
#include "exec/weigh/link.h"

#include "onnx/words/print.h"
#include "onnx/words/status.h"

#include <stdio.h>
#include <string.h>

static const char key[] = "ebb.link";

/* No message takes longer than a thousand seconds, and no byte than one. */
static bool is_link(double us, double gb)
{
    return us >= 0 && us <= 1e9 && gb >= 1e-9 && gb <= 1e9;
}

/* What is usual, from data sheets and published measurements. */
static const struct {
    const char *name;
    double us, gb;
} links[] = {
    {"1gbe", 50, 0.117}, {"10gbe", 30, 1.17},   {"100gbe", 5, 11.5},
    {"ndr400", 5, 47},   {"nvlink4", 3.4, 360},
};

/* "5,47", and behind it what follows */
static bool reads_as_link(double *us, double *gb, const char *text, char **end)
{
    *us = ebb_strtod(text, end);
    if (**end != ',')
        return false;
    *gb = ebb_strtod(*end + 1, end);
    return is_link(*us, *gb);
}

EBB_API ebb_status ebb_link_parse(double *us, double *gb, const char *text)
{
    EBB_NEED(us);
    EBB_NEED(gb);
    EBB_NEED(text);
    char *end;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (strcmp(links[i].name, text) == 0)
            return *us = links[i].us, *gb = links[i].gb, NULL;
    if (reads_as_link(us, gb, text, &end) && *end == '\0')
        return NULL;
    return ebb_error(EBB_USAGE,
                     "link '%.80s': it is none of 1gbe, 10gbe, 100gbe, ndr400, nvlink4, nor "
                     "MICROSECONDS,GBYTES_PER_SECOND",
                     text);
}

/* Asked of every node whose time is an estimate: nothing is read of a link that has none. */
double ebb_link_crowd(const ebb_graph *g)
{
    const char *text = ebb_props_get(g->model->graph, &g->model->props, key);
    const char *first = text != NULL ? strchr(text, ',') : NULL;
    ebb_link link;
    const bool is_there = first != NULL && strchr(first + 1, ',') != NULL;
    return is_there && ebb_link_of(&link, g) && link.crowd > 0 ? link.crowd : 1;
}

bool ebb_link_of(ebb_link *link, const ebb_graph *g)
{
    const char *text = ebb_props_get(g->model->graph, &g->model->props, key);
    double us, gb;
    char *end;
    if (text == NULL || !reads_as_link(&us, &gb, text, &end))
        return false; // a file may say anything
    const double crowd = *end == ',' ? ebb_strtod(end + 1, &end) : 0;
    *link = (ebb_link){us * 1e3, 1 / gb, crowd > 0 && crowd < 1e6 ? crowd : 0};
    return *end == '\0';
}

ebb_status ebb_link_set(ebb_graph *g, const ebb_link *link)
{
    char text[64];
    (void)ebb_snprintf(text, sizeof text, link->crowd > 0 ? "%.6g,%.6g,%.6g" : "%.6g,%.6g",
                       link->message_ns / 1e3, 1 / link->byte_ns, link->crowd);
    return ebb_props_set(g->model->graph, &g->model->props, key, text);
}

ebb_status ebb_link_set_text(ebb_graph *g, const char *text)
{
    double us, gb;
    EBB_TRY(ebb_link_parse(&us, &gb, text));
    return ebb_link_set(g, &(ebb_link){us * 1e3, 1 / gb, 0});
}

json_t *ebb_link_json(const ebb_link *link)
{
    json_t *json = json_pack("{s:f, s:f}", "us", link->message_ns / 1e3, "gb", 1 / link->byte_ns);
    if (link->crowd > 0)
        (void)json_object_set_new(json, "crowd", json_real(link->crowd));
    return json;
}

bool ebb_link_read(ebb_link *link, const json_t *json)
{
    const double us = json_number_value(json_object_get(json, "us")),
                 gb = json_number_value(json_object_get(json, "gb"));
    if (!json_is_number(json_object_get(json, "us")) || !is_link(us, gb))
        return false;
    *link = (ebb_link){us * 1e3, 1 / gb, 0};
    return true;
}
