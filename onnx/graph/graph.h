/* graph.h: what a graph is: nodes, values, attributes, initializers; add, replace, move, remove.
 *
 * Plain data. Nodes and values are records in blocks, named by dense ids; 0 is "none". Records do
 * not move, but their lists may: keep ids, never pointers, across a call that adds. Ids of removed
 * nodes and values are not reused while the graph lives, so side tables indexed by id stay valid.
 *
 * NODE ORDER IS EXECUTION ORDER: a doubly linked list. Nothing else decides when a node runs.
 *
 * The graph is not a blackboard: what a pass needs to remember lives in its own scratch, indexed by
 * id.
 *
 * Lifetimes: everything hangs on the model (ebb_model) and goes with it. Read next: build.h,
 * infer.h.
 */
#pragma once

#include "onnx/tables/op.h"

typedef struct {
    uint32_t i;
} ebb_node;

typedef struct {
    uint32_t i;
} ebb_value;

#define EBB_NO_NODE ((ebb_node){0})
#define EBB_NO_VALUE ((ebb_value){0})

static inline bool ebb_same_node(ebb_node a, ebb_node b)
{
    return a.i == b.i;
}
static inline bool ebb_same_value(ebb_value a, ebb_value b)
{
    return a.i == b.i;
}
static inline bool ebb_same_str(ebb_str a, ebb_str b)
{
    return a.i == b.i;
}

typedef enum ebb_phase { /* node metadata "ebb.phase" */
                         EBB_PHASE_NONE = 0,
                         EBB_FORWARD,
                         EBB_LOSS,
                         EBB_BACKWARD,
                         EBB_UPDATE,
                         EBB_PHASE_COUNT
} ebb_phase;

typedef struct ebb_prop { /* one metadata_props entry */
    ebb_str key, value;
} ebb_prop;

/* Of a node: the call that PyTorch's dynamo exporter wrote it for (passes/parameters/noted.h). */
#define EBB_NOTED_CALL "pkg.torch.onnx.fx_node"

/* One pointer, as most nodes and values have none. Read by EBB_EACH_PROP. */
typedef struct ebb_props {
    struct ebb_prop_list {
        uint32_t count, capacity;
        ebb_prop at[];
    } * all; /* NULL: none */
} ebb_props;

typedef struct ebb_use {
    ebb_node node;
    uint32_t slot;
} ebb_use;

typedef struct ebb_node_info {
    ebb_op op;
    ebb_str name, op_name, domain, overload, doc;
    ebb_value *in, *out; /* EBB_NO_VALUE: absent optional */
    uint32_t in_count, out_count;
    const ebb_attr *attr; /* a list that others may share */
    uint32_t attr_count;
    uint8_t phase; /* ebb_phase, mirrored in metadata "ebb.phase" by read and write */
    bool dead;
    /* Its output is never whole: its one reader decodes so many rows at a time (onnx/graph/stream.h). 0:
     * whole. Metadata "ebb.stream" = "rows". Set by the stream pass, obeyed by ruler and executor.
     */
    int64_t tile_rows;
    ebb_props props; /* metadata other than the above */
    ebb_node prev, next;
    const void *origin; /* its NodeProto's bytes (onnx/file/wire.h); so with the other origins */
} ebb_node_info;

enum {                              /* ebb_value_info.flags */
       EBB_IS_INPUT = 1 << 0,       /* graph input */
       EBB_IS_OUTPUT = 1 << 1,      /* graph output */
       EBB_IS_INITIALIZER = 1 << 2, /* has a tensor (which may be without bytes) */
       EBB_IS_STATE = 1 << 3,       /* key of an update binding: the step replaces it */
       EBB_IS_OUTER = 1 << 4,       /* subgraph: stands for a value of the graph outside */
       EBB_IS_CAPTURED = 1 << 5,    /* a subgraph reads it: it has uses that no list shows */
};

typedef enum ebb_role { /* what an initializer is for; metadata "ebb.role" */
                        EBB_ROLE_NONE = 0,
                        EBB_ROLE_PARAMETER, /* trained */
                        EBB_ROLE_FROZEN,    /* a float weight that is not trained */
                        EBB_ROLE_STATISTIC, /* running mean and variance */
                        EBB_ROLE_OPTIMIZER, /* momentum, Adam moments, step counter */
                        EBB_ROLE_RANDOM,    /* the random key: int64[2] {seed, step} */
                        EBB_ROLE_CONSTANT,
                        EBB_ROLE_COUNT
} ebb_role;

typedef struct ebb_value_info {
    const ebb_type *type; /* shared with others; changed by ebb_value_set_type */
    ebb_str name;
    ebb_node producer; /* none for inputs and initializers */
    uint32_t producer_slot;
    uint8_t flags;
    uint8_t role; /* ebb_role */
    bool dead;
    /* In place: it is written over its producer's input over - 1; 0: it has memory of its own.
     * Metadata "ebb.inplace" = "k:i k:i" of the producer. Set by the alias pass, obeyed by the ruler. */
    uint8_t over;
    uint32_t binding;         /* as state: its place among the bindings, from 1; 0: none */
    uint32_t bound;           /* how many bindings have it as next */
    const ebb_tensor *tensor; /* of an initializer; others may share it. ebb_value_set_tensor */
    ebb_use *uses;            /* unordered; kept by the functions below */
    uint32_t use_count, use_capacity;
    ebb_props props;    /* metadata of the value_info or initializer */
    const void *origin; /* ValueInfoProto, or NULL */
} ebb_value_info;

/* The step replaces `state` by `next`. Both values know of it: change by ebb_graph_bind and _unbind. */
typedef struct ebb_binding {
    ebb_value state, next;
} ebb_binding;

/* Block k holds 8 * 2^k records, so that a graph of any size needs few of them and copies none. */
enum { EBB_BLOCK_LEAST = 8, EBB_BLOCKS = 29 };

static inline uint32_t ebb_block_of(uint32_t id, uint32_t *at)
{
    uint64_t place = (uint64_t)id + EBB_BLOCK_LEAST;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(place);
    *at = (uint32_t)(place - (UINT64_C(1) << top));
    return top - 3; /* 8 = 2^3 */
}

typedef struct ebb_graph {
    struct ebb_model *model;
    struct ebb_graph *outer; /* of a subgraph, else NULL */
    ebb_str name, doc;
    ebb_node_info *nodes[EBB_BLOCKS];   /* 0 is the list's head: next = first, prev = last */
    ebb_value_info *values[EBB_BLOCKS]; /* 0 is "none" */
    size_t node_count, value_count;     /* ids in use, 0 included */
    ebb_value *inputs, *outputs; /* in the file's order; inputs may be initializers too (old IR) */
    size_t input_count, input_capacity, output_count, output_capacity;
    ebb_value *initializers; /* in the file's order */
    size_t initializer_count, initializer_capacity;
    ebb_value *by_name; /* open addressing; kept by names.c */
    size_t name_slots, name_count;
    ebb_binding *bindings;
    size_t binding_count, binding_capacity;
    ebb_value loss; /* of a training graph: metadata "ebb.loss"; else none */
    ebb_props props;
    const void *origin; /* GraphProto */
} ebb_graph;

typedef struct ebb_import {
    ebb_str domain; /* 0 or "" for ai.onnx */
    int64_t version;
} ebb_import;

typedef struct ebb_function {
    ebb_str domain, name, overload;
    ebb_graph *body; /* its inputs and outputs are the function's */
    ebb_str *attrs;  /* attributes without default */
    size_t attr_count;
    ebb_attr *defaults; /* with default */
    size_t default_count;
    ebb_import *imports;
    size_t import_count;
    const void *origin; /* FunctionProto; NULL for bodies that the writer adds for ai.ebb */
} ebb_function;

/* The last tensors and lists of attributes that values and nodes got: the next often get equal ones. */
enum { EBB_SHARED = 32 };

struct ebb_model { /* ebb_model in ebb.h */
    ebb_arena arena;
    ebb_names names;
    ebb_types types; /* of its values */
    ebb_attrs attrs[EBB_SHARED];
    const ebb_tensor *tensors[EBB_SHARED];
    uint32_t attrs_next, tensors_next; /* places that the next ones take: in a ring */
    ebb_graph *graph;
    int64_t ir_version;
    ebb_import *imports;
    size_t import_count, import_capacity;
    ebb_function *functions;
    size_t function_count, function_capacity;
    /* training_info[0].initialization: draws values for initializers by name; NULL: none. */
    ebb_graph *initialization;
    struct ebb_init_binding { /* initializer name <- output of `initialization` */
        ebb_str state;
        ebb_value value;
    } * init_bindings;
    size_t init_binding_count;
    ebb_props props;
    bool torchscript; /* PyTorch's TorchScript exporter wrote the file, which marks no parameters:
                         its initializers with names of their own are the state of a module */
    bool trusted; /* its nodes may ask for any work: exec/weigh/allowance.h. No part of the file */
    const struct ebb_rates
        *rates;         /* of the machine that it is planned for: exec/weigh/estimate.h; NULL:
                                      the host. No part of the file */
    int threads;        /* that its steps are planned for and computed with; 0: as many as
                           processors. No part of the file */
    bool deterministic; /* the bits of its steps are the same for any number. The same */
    const char *path, *folder; /* of the file, for external data and messages; "" when made here */
    const void *origin;        /* the bytes of the file; NULL: made here */
    size_t origin_bytes;
    struct ebb_mapping *mappings; /* mapped files, newest first; unmapped by ebb_model_free */
};

/* ---- model ---- */

/* An empty model with one empty graph, IR 10, ai.onnx at `opset`. Free with ebb_model_free. */
ebb_status ebb_model_new(ebb_model **model, int64_t opset);
void ebb_model_free(ebb_model *model);
ebb_status ebb_graph_new(ebb_graph **graph, ebb_model *model, ebb_graph *outer); /* model's arena */

int64_t ebb_model_opset(const ebb_model *model, const char *domain); /* 0: not imported */
ebb_status ebb_model_import(ebb_model *model, const char *domain,
                            int64_t version); /* add if absent */

/* A deep copy: nothing of it shares memory with the original but what does not change (names, types,
 * attributes, bytes of constants), for which the original must outlive it. */
ebb_status ebb_model_copy(ebb_model **copy, const ebb_model *model);
/* The model becomes what has become of a copy of it, and the copy is gone. Pointers to the model, to
 * its graph and to bytes of its tensors stay good; ids are the copy's. */
void ebb_model_adopt(ebb_model *model, ebb_model *copy);
/* A deep copy of one graph for the same model, as a body of a node of `outer`. Its stand-ins keep
 * their names. */
ebb_status ebb_graph_copy(ebb_graph **copy, ebb_graph *outer, const ebb_graph *from);

static inline const char *ebb_text(const ebb_graph *g, ebb_str s)
{
    return ebb_names_text(&g->model->names, s);
}
ebb_str ebb_graph_intern(ebb_graph *g, const char *text); /* 0: out of memory */

/* ---- look ---- */

static inline ebb_node_info *ebb_node_of(const ebb_graph *g, ebb_node n)
{
    uint32_t at, block = ebb_block_of(n.i, &at);
    return &g->nodes[block][at];
}
static inline ebb_value_info *ebb_value_of(const ebb_graph *g, ebb_value v)
{
    uint32_t at, block = ebb_block_of(v.i, &at);
    return &g->values[block][at];
}
static inline ebb_node ebb_first(const ebb_graph *g)
{
    return ebb_node_of(g, EBB_NO_NODE)->next;
}
static inline ebb_node ebb_next(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->next;
}
static inline ebb_node ebb_last(const ebb_graph *g)
{
    return ebb_node_of(g, EBB_NO_NODE)->prev;
}
static inline ebb_node ebb_prev(const ebb_graph *g, ebb_node n)
{
    return ebb_node_of(g, n)->prev;
}

/* In execution order. Removing the current node inside EBB_EACH_NODE is allowed (its links stay).
 */
#define EBB_EACH_NODE(g, n) for (ebb_node n = ebb_first(g); n.i != 0; n = ebb_next((g), n))
/* *body: each graph in the attributes of a node's info, of control flow, say. */
#define EBB_EACH_BODY(info, body)                                            \
    for (ebb_graph *const *body = ebb_body_next((info), NULL); body != NULL; \
         body = ebb_body_next((info), body))
#define EBB_EACH_VALUE(g, v) for (ebb_value v = {1}; v.i < (g)->value_count; v.i++)

ebb_value ebb_value_find(const ebb_graph *g, const char *name); /* none when absent */
ebb_value ebb_value_named(const ebb_graph *g, ebb_str name);    /* the same, by the name's id */
ebb_node ebb_node_find(const ebb_graph *g, const char *name);   /* linear; none when absent */

/* Input i of a node; none when absent or beyond its inputs. The same for outputs. */
ebb_value ebb_in(const ebb_graph *g, ebb_node n, uint32_t i);
ebb_value ebb_out(const ebb_graph *g, ebb_node n, uint32_t i);

/* The input that output k, one of the node's, is written over, from 1; 0: none. */
static inline uint32_t ebb_node_over(const ebb_graph *g, ebb_node n, uint32_t k)
{
    return ebb_value_of(g, ebb_node_of(g, n)->out[k])->over;
}

/* The op of the producing node, EBB_OP_UNKNOWN when none. */
ebb_op ebb_producer_op(const ebb_graph *g, ebb_value v);

/* Whether a binding replaces a state by v. */
bool ebb_value_is_bound(const ebb_graph *g, ebb_value v);
/* Whether v is wanted whatever the nodes of this graph read: it is an output or the loss, it is
 * bound, or a body reads it by its name. */
bool ebb_value_is_held(const ebb_graph *g, ebb_value v);
/* Whether anything reads v: a node of this graph, or what holds it. Nothing reads none. */
bool ebb_value_is_read(const ebb_graph *g, ebb_value v);

/* Whether v is an initializer that is not the same in all steps and runs: a binding replaces it, or
 * it is a parameter, a statistic, of the optimizer (as the learning rate is) or the random key. */
bool ebb_value_is_state(const ebb_graph *g, ebb_value v);
/* The value as a constant: a Constant node's, or an initializer that is no state and no input, for
 * which a caller may give other bytes. NULL where it is not constant or its bytes are missing. */
const ebb_tensor *ebb_value_constant(const ebb_graph *g, ebb_value v);

ebb_attrs ebb_node_attrs(const ebb_graph *g, ebb_node n);
/* The graph in the attributes of a node's info behind `at`, a place that it gave (NULL: the first one). */
ebb_graph *const *ebb_body_next(const ebb_node_info *info, ebb_graph *const *at);
/* What a value of a body of g's stands for in g; none: it is the body's own. */
ebb_value ebb_body_outside(const ebb_graph *g, const ebb_graph *body, ebb_value v);
/* The body that a node has as this attribute; NULL: none. */
const ebb_graph *ebb_node_body(const ebb_graph *g, ebb_node n, const char *name);
const char *ebb_value_name(const ebb_graph *g, ebb_value v);

/* Whether those that are there have sizes that are known. */
bool ebb_values_have_sizes(const ebb_graph *g, const ebb_value *list, uint32_t count);
size_t ebb_graph_size(const ebb_graph *g); /* how many nodes there are */
/* The name of a node; where it has none, its first output's. */
const char *ebb_node_name(const ebb_graph *g, ebb_node n);
/* "Conv 'layer3.conv1'" for messages, by that name. Ring of buffers: good until eight later calls. */
const char *ebb_node_label(const ebb_graph *g, ebb_node n);

/* ---- change: NULL status or out of memory, unless said otherwise ---- */

/* A new value; name NULL or taken: a fresh one is made from it ("x", "x_1", ...; NULL: "v"). */
ebb_status ebb_value_add(ebb_graph *g, ebb_value *value, const char *name, const ebb_type *type);
ebb_status ebb_value_set_type(ebb_graph *g, ebb_value v, const ebb_type *type);
ebb_status ebb_value_rename(ebb_graph *g, ebb_value v, const char *name); /* taken: refused */
/* v gets an unused name that is made from `base`, as its own is for another value. */
ebb_status ebb_value_step_aside(ebb_graph *g, ebb_value v, const char *base);
/* The name of `old`, which is NAME_before from now on, is that of `with`. */
ebb_status ebb_value_take_name(ebb_graph *g, ebb_value with, ebb_value old);
void ebb_value_bury(ebb_graph *g, ebb_value v);          /* it is dead, and its name is free */
ebb_str ebb_graph_fresh(ebb_graph *g, const char *base); /* an unused value name; 0: no memory */

/* A new node before `before` (none: at the end), looked up in the table by (domain, op_name) at the
 * model's opset. Values are recorded as produced and used. A value has one producer (asserted). */
ebb_status ebb_node_add(ebb_graph *g, ebb_node *node, ebb_node before, const char *domain,
                        const char *op_name, const ebb_value *in, uint32_t in_count,
                        const ebb_value *out, uint32_t out_count);
void ebb_node_move(ebb_graph *g, ebb_node n, ebb_node before); /* none: to the end */

/* Unlinks it, drops its uses, leaves its outputs without producer (and dead when unused). */
void ebb_node_remove(ebb_graph *g, ebb_node n);

ebb_status ebb_node_set_input(ebb_graph *g, ebb_node n, uint32_t slot,
                              ebb_value v); /* may extend */
ebb_status ebb_node_set_output(ebb_graph *g, ebb_node n, uint32_t slot,
                               ebb_value v);                     /* may extend */
ebb_status ebb_node_set_op(ebb_graph *g, ebb_node n, ebb_op op); /* name, domain and op at once */
/* An output that is there. */
void ebb_node_set_over(ebb_graph *g, ebb_node n, uint32_t output, uint32_t input);

/* Every use of `old`, graph outputs and bindings included, becomes `with`. Names stay where they
 * are: a graph output keeps its name only if the caller renames. */
ebb_status ebb_value_replace(ebb_graph *g, ebb_value old, ebb_value with);

/* capture.c: bodies read v, which was called `from`, by its name now; and `with` instead of `old`.
 * Renaming and replacing (above) ask for it. */
ebb_status ebb_captures_rename(ebb_graph *g, ebb_value v, const char *from);
ebb_status ebb_captures_replace(ebb_graph *g, ebb_value old, ebb_value with);
/* The body's stand-in named `from` stands for what is called `to` outside. */
ebb_status ebb_captures_move(ebb_graph *body, const char *from, const char *to);
/* Marks again which values bodies read: after nodes with bodies have gone, or come. */
void ebb_captures_mark(ebb_graph *g);
void ebb_captures_mark_of(ebb_graph *g, ebb_node n); /* what this one's bodies read, too */

/* Attributes: set or replace. Data is copied into the model's arena. */
ebb_status ebb_node_set_int(ebb_graph *g, ebb_node n, const char *name, int64_t i);
ebb_status ebb_node_set_float(ebb_graph *g, ebb_node n, const char *name, double f);
ebb_status ebb_node_set_string(ebb_graph *g, ebb_node n, const char *name, const char *s);
ebb_status ebb_node_set_ints(ebb_graph *g, ebb_node n, const char *name, const int64_t *list,
                             uint32_t count);
ebb_status ebb_node_set_attr(ebb_graph *g, ebb_node n, const ebb_attr *attr); /* shallow copy */
ebb_status ebb_node_drop_attr(ebb_graph *g, ebb_node n, const char *name);
/* All of a node's: shallow copies, in memory that nodes with equal ones share. Names are interned. */
ebb_status ebb_node_set_attrs(ebb_graph *g, ebb_node n, const ebb_attr *list, uint32_t count);

/* Metadata. get: NULL when absent. */
static inline uint32_t ebb_props_count(const ebb_props *props)
{
    return props->all != NULL ? props->all->count : 0;
}
static inline const ebb_prop *ebb_props_at(const ebb_props *props, uint32_t i)
{
    return props->all != NULL ? &props->all->at[i] : NULL;
}
#define EBB_EACH_PROP(props, p)                                                   \
    for (const ebb_prop *p = ebb_props_at((props), 0),                            \
                        *p##_end = ebb_props_at((props), ebb_props_count(props)); \
         p != p##_end; p++)
const char *ebb_props_get(const ebb_graph *g, const ebb_props *props, const char *key);
ebb_status ebb_props_add(ebb_graph *g, ebb_props *props,
                         ebb_prop prop); /* be its key there or not */
ebb_status ebb_props_set(ebb_graph *g, ebb_props *props, const char *key, const char *value);
/* All of `from`, which may be another graph's. */
ebb_status ebb_props_set_all(ebb_graph *g, ebb_props *props, const ebb_graph *of,
                             const ebb_props *from);
void ebb_props_drop(const ebb_graph *g, ebb_props *props, const char *key);

ebb_status ebb_graph_add_input(ebb_graph *g, ebb_value v);
void ebb_graph_remove_input(ebb_graph *g, ebb_value v); /* unused, or an initializer, which stays */
ebb_status ebb_graph_add_output(ebb_graph *g, ebb_value v);
void ebb_graph_remove_output(ebb_graph *g, ebb_value v);
void ebb_graph_remove_outputs(ebb_graph *g, const bool *gone); /* by value id */

/* An initializer with its own copy of the bytes (data NULL: bytes missing). */
ebb_status ebb_graph_add_initializer(ebb_graph *g, ebb_value *value, const char *name,
                                     const ebb_type *type, const void *data, ebb_role role);
/* An initializer's bytes from now on, of its present type: not copied, and they outlive the model. What
 * the file said of their form stays. */
ebb_status ebb_value_point(ebb_graph *g, ebb_value v, const void *data);
/* And type and form, too: those of `tensor`, of which the value gets a copy or an equal one. */
ebb_status ebb_value_set_tensor(ebb_graph *g, ebb_value v, const ebb_tensor *tensor);
/* An input, of static shape, becomes an initializer whose bytes are missing. */
ebb_status ebb_graph_keep_input(ebb_graph *g, ebb_value v, ebb_role role);
/* The other way: the bytes of an initializer are the caller's to give from now on. */
ebb_status ebb_graph_ask_input(ebb_graph *g, ebb_value v);
void ebb_graph_remove_initializer(ebb_graph *g, ebb_value v); /* it must be unused */
ebb_status ebb_graph_bind(ebb_graph *g, ebb_value state, ebb_value next);
void ebb_graph_unbind(ebb_graph *g, ebb_value state);           /* the step replaces it no more */
ebb_value ebb_graph_bound(const ebb_graph *g, ebb_value state); /* its `next`, or none */

/* Removes nodes whose outputs nobody uses, then initializers and inputs... not inputs: those are
 * the user's. Returns how many nodes went. */
size_t ebb_graph_sweep(ebb_graph *g);

/* Position of each node in execution order, by id (dead: UINT32_MAX); scratch memory, NULL: none
 * left. */
uint32_t *ebb_graph_positions(const ebb_graph *g, ebb_arena *scratch);

/* Orders the nodes topologically, keeping the present order where it is legal (stable). A cycle is
 * EBB_REJECTED and names a node on it. */
ebb_status ebb_graph_sort(ebb_graph *g);
