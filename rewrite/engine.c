/* engine.c: rule tables, applied until nothing fits any more.
 *
 * A site is a node at which a rule's pattern fits. The replacement goes before that node, and the
 * matched nodes then go. Fuel of one for each node and rule makes it stop whatever the rules say.
 */
#include "rewrite/match.h"

typedef struct engine {
    ebb_edit *e;
    const ebb_rule *rules;
    ebb_pattern *patterns, *replacements;
    size_t count;
    bool *told; // by node and rule: a skip is reported once
    size_t told_nodes;
} engine;

ebb_value ebb_match_value(const ebb_match *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->names[i], name) == 0)
            return m->values[i];
    return EBB_NO_VALUE;
}

/* ---- compile ---- */

static ebb_status compile(engine *s)
{
    ebb_arena *arena = s->e->scratch;
    s->patterns = EBB_NEW(arena, ebb_pattern, s->count);
    s->replacements = EBB_NEW(arena, ebb_pattern, s->count);
    EBB_GOT(s->patterns && s->replacements);
    for (size_t i = 0; i < s->count; i++) {
        const ebb_rule *rule = &s->rules[i];
        ebb_status status = ebb_pattern_read(&s->patterns[i], rule->pattern, arena);
        if (status == NULL)
            status = ebb_pattern_check(&s->patterns[i]);
        if (status == NULL && rule->replace != NULL)
            status = ebb_pattern_read(&s->replacements[i], rule->replace, arena);
        if (status == NULL && rule->replace != NULL && s->replacements[i].node_count != 1)
            status = ebb_error(EBB_USAGE, "the replacement is not one node");
        if (status != NULL)
            return ebb_while(status, "reading rule %s", rule->name);
    }
    return NULL;
}

/* ---- replace ---- */

static void give_attr(ebb_build *b, const ebb_attr *a)
{
    if (a->type == EBB_ATTR_INT)
        ebb_with_int(b, a->name, a->i);
    else if (a->type == EBB_ATTR_FLOAT)
        ebb_with_float(b, a->name, a->f);
    else if (a->type == EBB_ATTR_STRING)
        ebb_with_string(b, a->name, a->s);
    else if (a->type == EBB_ATTR_INTS)
        ebb_with_ints(b, a->name, a->ints, a->count);
    else
        ebb_build_fail(b, ebb_error(EBB_USAGE,
                                    "attribute '%s' of a replacement has a type that "
                                    "rules cannot give",
                                    a->name));
}

/* The one node of the replacement. Numbers are constants of the root's dtype. */
static void emit_replacement(ebb_build *b, const ebb_pattern *p, const ebb_match *m, ebb_value like,
                             ebb_value *root)
{
    const ebb_text_node *node = &p->nodes[0];
    ebb_value in[EBB_PATTERN_NAMES];
    int64_t version = ebb_model_opset(b->g->model, node->domain);
    ebb_op op = ebb_op_find(node->domain, node->op_name, version > 0 ? version : 1);
    if (op == EBB_OP_UNKNOWN || node->in_count > EBB_PATTERN_NAMES) {
        ebb_build_fail(b, ebb_error(EBB_USAGE,
                                    "operator %s of a replacement is not known at opset "
                                    "%lld",
                                    node->op_name, (long long)version));
        return;
    }
    for (size_t i = 0; i < node->in_count; i++) {
        const char *name = node->in[i].name;
        in[i] =
            name == NULL ? ebb_const_like(b, like, node->in[i].number) : ebb_match_value(m, name);
        if (name != NULL && name[0] != '\0' && in[i].i == 0)
            ebb_build_fail(b, ebb_error(EBB_USAGE, "the pattern binds no '%s'", name));
    }
    for (size_t i = 0; i < node->attr_count; i++)
        give_attr(b, &node->attr[i]);
    *root = ebb_emit_list(b, op, in, (uint32_t)node->in_count);
}

/* Takes out what matched, users first, so that nothing is removed while it is read. */
static void remove_matched(ebb_edit *e, const ebb_pattern *p, const ebb_binding_set *found)
{
    for (uint32_t k = p->node_count; k-- > 0;)
        if (!ebb_node_of(e->g, found->nodes[k])->dead)
            ebb_edit_remove(e, found->nodes[k]);
}

static ebb_status apply(engine *s, size_t rule, ebb_node n, const ebb_binding_set *found,
                        const ebb_match *m)
{
    ebb_edit *e = s->e;
    ebb_graph *g = e->g;
    ebb_value old = ebb_out(g, n, 0), made = EBB_NO_VALUE;
    size_t first_new = g->node_count;
    ebb_build b = ebb_edit_build_for(e, n);
    if (b.name[0] == '\0')
        b.name = ebb_value_name(g, old);
    if (s->rules[rule].replace != NULL)
        emit_replacement(&b, &s->replacements[rule], m, old, &made);
    else
        s->rules[rule].build(&b, m, &made);
    if (b.status != NULL)
        return ebb_while(b.status, "applying rule %s at %s", s->rules[rule].name,
                         ebb_node_label(g, n));
    if (made.i == 0) // the rule thought better of it
        return ebb_skipped(e, n, "the rule made no replacement");
    const char *name = ebb_value_name(g, old);
    EBB_TRY(ebb_edit_replace(e, old, made));
    remove_matched(e, &s->patterns[rule], found);
    ebb_applied(e);
    // A value that was made here takes the name that is free now; tools look for it.
    bool ours = ebb_value_of(g, made)->producer.i >= first_new;
    return ours && ebb_value_find(g, name).i == 0 ? ebb_value_rename(g, made, name) : NULL;
}

/* ---- sites ---- */

static ebb_status tell_skip(engine *s, size_t rule, ebb_node n, const char *reason)
{
    if (n.i < s->told_nodes) { // nodes made meanwhile are looked at, and not told about
        bool *told = &s->told[n.i * s->count + rule];
        if (*told)
            return NULL;
        *told = true;
        ebb_found(s->e);
        return ebb_skipped(s->e, n, reason);
    }
    return NULL;
}

/* One rule at one node. */
static ebb_status try_rule(engine *s, size_t rule, ebb_node n, bool *done)
{
    const ebb_pattern *p = &s->patterns[rule];
    ebb_binding_set found;
    if (!ebb_pattern_fits(p, s->e->g, n, &found))
        return NULL;
    ebb_match m = {.g = s->e->g,
                   .names = p->names,
                   .values = found.values,
                   .count = p->name_count,
                   .nodes = found.nodes,
                   .node_count = p->node_count};
    const char *reason = ebb_pattern_held(p, s->e->g, &found);
    if (reason == NULL && s->rules[rule].declines != NULL)
        reason = s->rules[rule].declines(&m);
    if (reason != NULL)
        return tell_skip(s, rule, n, reason);
    ebb_found(s->e);
    size_t before = s->e->report->applied;
    EBB_TRY(apply(s, rule, n, &found, &m));
    *done = s->e->report->applied > before;
    return NULL;
}

static ebb_status try_node(engine *s, ebb_node n, size_t *fuel, bool *any)
{
    for (size_t rule = 0; rule<s->count && * fuel> 0; rule++) {
        bool done = false;
        EBB_TRY(try_rule(s, rule, n, &done));
        if (!done)
            continue;
        --*fuel;
        *any = true;
        return NULL; // the node is gone
    }
    return NULL;
}

ebb_status ebb_rules_apply(ebb_edit *e, const ebb_rule *rules, size_t count)
{
    engine s = {.e = e, .rules = rules, .count = count, .told_nodes = e->g->node_count};
    size_t fuel, room;
    EBB_TRY(compile(&s));
    EBB_GOT(ebb_size_mul(&fuel, e->g->node_count, count) && ebb_size_add(&room, fuel, 1));
    s.told = EBB_SCRATCH(e, bool, room);
    EBB_GOT(s.told);
    for (bool any = true; any && fuel > 0;) {
        any = false;
        EBB_EACH_NODE(e->g, n)
            EBB_TRY(try_node(&s, n, &fuel, &any));
    }
    return NULL;
}
