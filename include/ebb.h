/* ebb.h: the public API of libebb, to be read top to bottom as a manual.
 *
 * ebb takes an exported ONNX model, makes its training graph, rewrites it to need less memory,
 * weighs it, and runs it. Five verbs do everything; this is a whole program, in C and in C++:
 *
 *     #include <ebb.h>
 *     #include <stdio.h>
 *
 *     static ebb_status train(ebb_model **m, ebb_program **p, ebb_data **d)
 *     {
 *         static const char *const map[] = {"image", "image", "label", "target", NULL};
 *         int64_t rows[16];
 *         char *text;
 *         ebb_batch batch;
 *         ebb_named loss;
 *         ebb_status s;
 *         ebb_step_options options = {sizeof options};
 *         options.loss = "cross-entropy";
 *         if ((s = ebb_open(m, "model.onnx")) != NULL ||
 *             (s = ebb_set_dim(*m, "batch", 16)) != NULL ||
 *             (s = ebb_step_pipeline(&text, &options)) != NULL)
 *             return s;
 *         s = ebb_rewrite(*m, text, NULL, NULL);
 *         ebb_release(text);
 *         if (s != NULL || (s = ebb_save(*m, "step.onnx")) != NULL ||
 *             (s = ebb_program_compile(p, *m, NULL)) != NULL ||
 *             (s = ebb_data_open(d, "data.npz", *m)) != NULL)
 *             return s;
 *         for (int64_t step = 0; step < 50; step++) {
 *             for (int64_t i = 0; i < 16; i++)
 *                 rows[i] = step * 16 + i;
 *             if ((s = ebb_data_rows(*d, rows, 16, map, &batch)) != NULL ||
 *                 (s = ebb_program_step(*p, &batch)) != NULL)
 *                 return s;
 *         }
 *         s = ebb_program_get(*p, ebb_program_loss_name(*p), &loss);
 *         if (s == NULL)
 *             printf("loss %.4f\n", ebb_element(&loss, 0));
 *         return s;
 *     }
 *
 *     int main(void)
 *     {
 *         ebb_model *m = NULL;
 *         ebb_program *p = NULL;
 *         ebb_data *d = NULL;
 *         ebb_status s = train(&m, &p, &d);
 *         if (s != NULL)
 *             fprintf(stderr, "%s\n", ebb_status_text(s));
 *         ebb_program_free(p);
 *         ebb_data_close(d);
 *         ebb_close(m);
 *         return ebb_status_code(s);
 *     }
 *
 * Errors: each call returns NULL, or a status: a sentence and a code. A status needs no freeing. It
 * can be read until 64 later errors of the same thread. The library never prints and never exits.
 * Where a call that returns a status is given a NULL that it cannot take, or a count below zero, the
 * status (EBB_USAGE) names the argument. Other calls take no NULL, but where they say so.
 *
 * Ownership: what ebb_open, ebb_data_open or ebb_program_compile gives is yours, until you call its
 * _close or _free. JSON and other texts go with ebb_release, and so do facts that a call makes. All
 * else that is returned belongs to the thing that you asked. A model must live longer than its
 * programs.
 *
 * Versions: a program goes on to work with a later library of the same number behind the name
 * (libebb.so.0). Structs with a `size` may get more fields at their end. What you fill
 * (ebb_..._options) has sizeof(the struct) there: of a program that is older than the library fewer
 * fields are read, and a field that the library is too old for is an error unless it is zero. 0 stands
 * for the fields of version 0.1. Facts that a call makes and you read may grow as well. Other structs
 * (ebb_named, ebb_batch, ebb_amount, ebb_metric) stay as they are.
 *
 * Threads: use a model or a program from one thread at a time; it need not be the same one. Several
 * threads may use several models and programs at once. A program computes with as many threads as it
 * was compiled for, whichever thread asks for a step.
 *
 * Numbers in texts, options and files have a decimal point, whatever locale the program has set.
 */
#ifndef EBB_H
#define EBB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EBB_API __attribute__((visibility("default")))
#else
#define EBB_API
#endif

#define EBB_VERSION "0.1.0"
#define EBB_VERSION_NUMBER 100 /* 10000 for the first part, 100 for the second, 1 for the third */
EBB_API const char *ebb_version(void); /* of the library, whatever header you compiled with */
EBB_API int ebb_version_number(void);

/* ---- status ---- */

typedef enum ebb_code { /* also the exit codes of the command */
                        EBB_OK = 0,
                        EBB_RUNTIME = 1, /* a run failed */
                        EBB_USAGE = 2,   /* called wrongly: unknown option, pass, verb */
                        EBB_NO_PLAN = 3, /* no plan fits the budget */
                        EBB_VERIFY = 4,  /* verification failed */
                        EBB_UNSUPPORTED =
                            5, /* operator, gradient or, under `strict`, a pass: not here */
                        EBB_REJECTED = 6, /* the model is malformed or unsafe */
                        EBB_DEVICE = 7,   /* no such device */
                        EBB_IO = 8,       /* reading or writing failed */
} ebb_code;

typedef const struct ebb_error *ebb_status; /* NULL: success */

EBB_API ebb_code ebb_status_code(ebb_status status);
EBB_API const char *
ebb_status_text(ebb_status status); /* sentence, then trail, newline-separated */

/* The entry of names[] nearest to word by edit distance, whatever their case, or else the first that
 * it begins; NULL where none is near: for "did you mean". */
EBB_API const char *ebb_nearest(const char *word, const char *const *names, size_t count);

/* An amount of memory as it is written: "6GiB", "1.5G" (the same unit), "512MB" (powers of 1000),
 * "1000" (bytes), or a share of something: "80%". It is more than zero. Upper and lower case mean the
 * same.
 * EBB_USAGE, with the accepted forms, for anything else. */
typedef struct ebb_amount {
    uint64_t bytes; /* 0: a share is given */
    double percent; /* 0: bytes are given */
} ebb_amount;

EBB_API ebb_status ebb_amount_parse(ebb_amount *amount, const char *text);
/* In bytes, rounded down; whole: what a share is of. At most INT64_MAX. */
EBB_API uint64_t ebb_amount_of(const ebb_amount *amount, uint64_t whole);

/* A number as an option gives it: digits, and for a real number a point and an exponent. range, or
 * NULL for any: "[0, 4096]", "[0, 1)" (without 1), "seconds (0, inf)", "[8, 64] by 8". EBB_USAGE
 * names `what` ("--threads"), the text and the range. */
EBB_API ebb_status ebb_whole_parse(int64_t *number, const char *text, const char *range,
                                   const char *what);
EBB_API ebb_status ebb_real_parse(double *number, const char *text, const char *range,
                                  const char *what);

/* ---- arrays ---- */

typedef enum ebb_dtype { /* the numbers of ONNX's TensorProto.DataType */
                         EBB_NONE = 0,
                         EBB_F32 = 1,
                         EBB_U8 = 2,
                         EBB_I8 = 3,
                         EBB_U16 = 4,
                         EBB_I16 = 5,
                         EBB_I32 = 6,
                         EBB_I64 = 7,
                         EBB_STRING = 8,
                         EBB_BOOL = 9,
                         EBB_F16 = 10,
                         EBB_F64 = 11,
                         EBB_U32 = 12,
                         EBB_U64 = 13,
                         EBB_C64 = 14,
                         EBB_C128 = 15,
                         EBB_BF16 = 16,
                         EBB_F8E4M3FN = 17,
                         EBB_F8E4M3FNUZ = 18,
                         EBB_F8E5M2 = 19,
                         EBB_F8E5M2FNUZ = 20,
                         EBB_U4 = 21, /* from here on two or four elements in a byte */
                         EBB_I4 = 22,
                         EBB_F4E2M1 = 23,
                         EBB_F8E8M0 = 24, /* but this one: a byte each */
                         EBB_U2 = 25,
                         EBB_I2 = 26,
} ebb_dtype;

typedef struct ebb_named { /* a named array, row-major */
    const char *name;
    int dtype; /* ebb_dtype */
    int rank;
    const int64_t *dims;
    const void *data;
} ebb_named;

/* Element `index` of any type as a number, bool as 0 or 1: NaN where it is none. */
EBB_API double ebb_element(const ebb_named *named, size_t index);
EBB_API const char *ebb_dtype_text(int dtype); /* "float16"; "?" where there is no such type */

typedef struct ebb_batch { /* the inputs of a step, by name */
    const ebb_named *tensors;
    size_t count;
} ebb_batch;

/* ---- models ---- */

typedef struct ebb_model ebb_model;

/* A .onnx file; or ONNX Runtime's training artifacts, by their folder or their training_model.onnx:
 * with the checkpoint and the optimizer_model.onnx beside it they are opened as one training step.
 */
EBB_API ebb_status ebb_open(ebb_model **model, const char *path);
/* As ebb_open, but it also opens a model whose types contradict each other: for ebb_check_json, which
 * names every such place, and for ebb_reduce. */
EBB_API ebb_status ebb_open_as_is(ebb_model **model, const char *path);
/* An .onnx file that is in memory already. Its bytes are not copied: they stay as they are until the
 * model is closed. folder: where its external data are; NULL: it has none, or is EBB_REJECTED. */
EBB_API ebb_status ebb_open_memory(ebb_model **model, const void *bytes, size_t size,
                                   const char *folder);
/* From now on the nodes of this model, and of what is made from it, may ask for any amount of work. Without
 * it a plan refuses (EBB_REJECTED) a node whose operations or bytes are out of proportion to the bytes
 * of the model's weights and inputs: a file of 200 bytes could keep a machine busy for years. */
EBB_API void ebb_trust(ebb_model *model);
EBB_API void ebb_close(ebb_model *model); /* NULL is fine */
EBB_API ebb_status ebb_save(const ebb_model *model, const char *path);

/* A training step as ONNX Runtime's training artifacts, into `folder`, which is made where there is
 * none: training_model.onnx, eval_model.onnx, checkpoint, and optimizer_model.onnx where the step
 * has an optimizer. The step stays as it is. json, or NULL: {"schema": "ebb.artifacts/1", "files",
 * "trained", "frozen", "optimizer", "notes": [what differs from the step]}. EBB_UNSUPPORTED: the
 * step does what they have no place for; EBB_USAGE: it is none, or its weights have no bytes. */
EBB_API ebb_status ebb_artifacts_save(const ebb_model *step, const char *folder, char **json);
/* The checkpoint alone. properties: a JSON object whose numbers and texts go in as well, or NULL.
 */
EBB_API ebb_status ebb_artifacts_checkpoint(const ebb_model *step, const char *path,
                                            const char *properties);

/* Sizes for symbolic dims ("batch"), and whole shapes for inputs. EBB_REJECTED: nodes do not fit
 * them; they hold all the same. */
EBB_API ebb_status ebb_set_dim(ebb_model *model, const char *symbol, int64_t size);
EBB_API ebb_status ebb_set_shape(ebb_model *model, const char *input, const int64_t *dims,
                                 int rank);

/* How steps of the model are computed, which decides what they need: what keeps to a budget plans
 * for it, and compiling takes it where its options do not say. Neither is part of the file.
 * threads: 0 for as many as OMP_NUM_THREADS says, or else as processors. deterministic: the same bits for every number of threads,
 * at some cost in time (docs/performance.md). */
EBB_API ebb_status ebb_set_threads(ebb_model *model, int threads);
EBB_API void ebb_set_deterministic(ebb_model *model, bool deterministic);

/* Fixes the inputs that sizes, trip counts and conditions still depend on to their values in the
 * batch: nodes read constants instead, which pass fold carries on. *count: how many; 0: none is
 * needed, or none would help. _defaults: those alone that have a value in the file as well, which
 * pass fold would take. */
EBB_API ebb_status ebb_bind_defaults(ebb_model *model, const ebb_batch *batch, size_t *count);
EBB_API ebb_status ebb_bind_values(ebb_model *model, const ebb_batch *batch, size_t *count);

/* What the techniques of a pipeline did. A pass that makes a step (gradient), or that every step is
 * brought into order with (fold), is not a technique. */
typedef struct ebb_rewrite_facts {
    size_t size;           /* yours, as in options */
    size_t applied;        /* sites */
    const char *exactness; /* of the least exact that applied: "exact", "rounding", "lossy" */
} ebb_rewrite_facts;

typedef struct ebb_rewrite_options {
    size_t size;
    bool strict;             /* a requested pass that applies nowhere is EBB_UNSUPPORTED */
    bool verify_each;        /* check every rule of a legal graph after each pass */
    const char *print_after; /* NULL, a pass's name, or "all" */
    /* Called after each pass that print_after names, with the graph as text. */
    void (*print)(void *context, const char *pass, const char *text);
    void *context;
    ebb_rewrite_facts *facts; /* filled at the end; or NULL */
} ebb_rewrite_options;

/* Runs a pipeline: "name:option=value,option=value,name,...". A value with commas stands in quotes,
 * with a backslash before each quote and each backslash in it: 'gradient:train="fc1*,fc2*"'. options:
 * NULL for all zero. json: if not NULL, a report, to release with ebb_release. */
EBB_API ebb_status ebb_rewrite(ebb_model *model, const char *pipeline,
                               const ebb_rewrite_options *options, char **json);
EBB_API void ebb_release(void *memory);

/* What a training step is to be. All zero is one with adamw, for a model that has its loss. */
typedef struct ebb_step_options {
    size_t size;
    const char *loss;      /* "cross-entropy:axis=1"; NULL: none is added */
    const char *optimizer; /* "adamw:lr=0.003"; NULL: "adamw" */
    /* Globs of parameters, NULL-terminated; NULL: none. The word "lost": the weights that an export
     * took the names of; "weights": what is trained without `train`. */
    const char *const *train, *const *freeze;
    bool straight_through;  /* gradients pass through Round, Sign ... */
    const char *dropout;    /* "on", "off", or the ratio everywhere; NULL: "on" */
    const char *batch_norm; /* "train", "frozen"; "sync": by the rows of all processes; NULL:
                                                 "train", but frozen in layers that are not trained */
    bool onnx_statistics;   /* running variances as ONNX has them, instead of PyTorch's */
    const char *precision;  /* "bf16", "fp16", "fp32"; NULL: as it is */
    uint64_t seed;
    const char *const *passes; /* further ones, each a pipeline, NULL-terminated; NULL: none */
    const char *costs;         /* a file of measured times, for the plan; NULL: none */
    const char *budget;        /* "6GiB", or "6GiB,disk=20GiB": amounts (ebb_amount_parse) of the
                                  device's memory and of other places; NULL: none. For it alone: */
    const char *plan_time, *allow, *backend; /* NULL: what pass fit does by itself */
    const char *schedule; /* of the rate: "cosine:warmup=100,steps=1000"; NULL: ebb.lr as it is */
    int64_t steps;        /* of a schedule that does not say it: where it ends; 0: it must */
    double clip_norm;     /* the most that the norm of all gradients together may be; 0: any */
    int64_t accumulate;   /* the step is computed in so many parts of its rows; 0, 1: whole */
    const char *const *groups; /* "bias,*norm*:weight-decay=0", NULL-terminated; NULL: none */
    double ema;                /* averages of weights are kept, by this decay; 0: none */
    const char *const *losses; /* instead of `loss`: one or several, which are added up,
                                  NULL-terminated; NULL: none */
    bool allow_partial;        /* less than half of what looks like a weight may be trained */
    const char *teacher; /* a model that is computed beside it and not trained: its outputs are
                                  targets, "kl:target=teacher/logits"; NULL: none */
    const char *
        adapters; /* a file or folder of adapters to start from, as pass lora reads them; NULL: none */
    bool segments; /* rows hold several texts, which input segment_ids tells apart */
    int ranks; /* the step is computed by so many processes, each with its part of the rows; 0, 1: one */
    /* By which these reach each other (ebb_link_parse), for the plan; NULL: as `costs` has it, or else
     * exchanges cost what copies do. */
    const char *link;
} ebb_step_options;

/* The pipeline of a training step for ebb_rewrite: all passes from "flatten" to "alias", in the one
 * order in which they go together. options NULL: all zero. To release with ebb_release.
 * _evaluation_: the model forward on data that it was not trained on, dropout off and running
 * statistics, with its outputs beside the loss; of the passes lora alone, so that it has the adapters. _change_: passes, costs and budget alone, on a
 * model as it stands; the text is empty where there is nothing to do. */
EBB_API ebb_status ebb_step_pipeline(char **text, const ebb_step_options *options);
EBB_API ebb_status ebb_evaluation_pipeline(char **text, const ebb_step_options *options);
EBB_API ebb_status ebb_change_pipeline(char **text, const ebb_model *model,
                                       const ebb_step_options *options);

/* A model as it is used: dropout gone, batch norm by its running statistics; fold: that in the weights of
 * the layer before it, where there is one. */
EBB_API ebb_status ebb_inference_pipeline(char **text, bool fold);

/* ---- facts: what a program asks of a model ---- */

typedef struct ebb_model_facts {
    const ebb_named *inputs, *outputs;  /* without data; dims of no known size are -1 */
    size_t input_count, output_count;   /* initializers are no inputs */
    size_t node_count, parameter_count; /* parameters: weights that the step has marked so */
    const char *loss;                   /* the output that is the loss; NULL: none */
    bool has_gradient;                  /* it has a backward */
    bool is_step;                       /* it replaces states at its end */
    bool trains; /* more of them than the running statistics and keys that pass train-mode adds */
    const struct ebb_weight_facts *const *weights; /* all initializers */
    size_t weight_count;
} ebb_model_facts;

typedef struct ebb_weight_facts {
    ebb_named value; /* data: the model's own, until it is changed; NULL: its bytes are not there */
    uint64_t bytes;  /* of the data */
    const char *role; /* "parameter", "constant", "statistic", "optimizer" ... */
    bool is_replaced; /* by what a step makes, at its end */
} ebb_weight_facts;

/* A copy, to release with ebb_release. */
EBB_API ebb_status ebb_facts_of(ebb_model_facts **facts, const ebb_model *model);

/* What "cross-entropy:axis=1" says, with defaults where it says nothing. To release with
 * ebb_release. */
typedef struct ebb_loss_facts {
    const char *kind;   /* "" where it only names the loss */
    const char *output; /* NULL: the first of floating-point numbers */
    const char *target;
    int64_t axis, ignore_index;
    bool is_sum;                 /* else a mean */
    const char *name;            /* the output that is the loss already; NULL: none */
    double weight;               /* it is multiplied by */
    const double *class_weights; /* NULL: none */
    size_t class_weight_count;
    int64_t time_axis, blank; /* of ctc */
    const char *lengths;      /* the input that tells steps of time in each row; NULL: all count */
} ebb_loss_facts;

EBB_API ebb_status ebb_loss_facts_of(ebb_loss_facts **facts, const char *loss);

/* ---- looking: each gives one JSON object, to release with ebb_release ---- */

EBB_API ebb_status ebb_inspect_json(const ebb_model *model, char **json);
EBB_API ebb_status ebb_inspect_text(const ebb_model *model, char **text); /* ONNX text syntax */
EBB_API ebb_status ebb_inspect_node(const ebb_model *model, const char *node, char **text);
/* The doctor: all that would keep a model from being trained, at once. {"schema": "ebb.check/2",
 * "path", "opset", "code", "problems": [...], "warnings": [...], "notes": [...]}; each entry
 * {"kind", "node", "op", "domain", "opset", "count", "nodes": [labels of the first], "what",
 * "help", "pass", "code"}. code, of the whole: what training would end with (ebb_code; 0: nothing
 * hinders it). Warnings: it trains, but not as its author would expect. Notes: `pass` sees to it,
 * or nothing need be done. Nothing in the model is changed. */
EBB_API ebb_status ebb_check_json(const ebb_model *model, char **json);
EBB_API ebb_status ebb_check(const ebb_model *model, ebb_code *code, char **json); /* both */
EBB_API ebb_status ebb_ops_json(const ebb_model *model, char **json); /* NULL model: the table */
EBB_API ebb_status ebb_passes_json(char **json);
/* What can run a step here and why not: {"schema": "ebb.devices/1", "devices": [{"backend",
 * "available", "reason", "help", "name", "libraries", "driver", "runtime", "version",
 * "total_bytes", "free_bytes"}], "described": [names]}.
 * That there is no GPU is no error. */
EBB_API ebb_status ebb_devices_json(char **json);

/* The best borders and levels of 2^bits pieces for the derivative of an activation, as the pass
 * few-bit uses them, and their errors. function: gelu, gelu-tanh, silu, ... ; alpha: of silu, which
 * is x sigmoid(alpha x), and elu; bits: 1 to 4; normal: for N(0, 1), else over the whole line. */
EBB_API ebb_status ebb_few_bit_json(const char *function, double alpha, unsigned bits, bool normal,
                                    char **json);

/* ---- reducing ---- */

typedef struct ebb_reduce_options {
    size_t size;
    /* Which failure of ebb's own: "types" (they contradict each other), "check" (ebb_check_json has
     * problems), "rewrite" (the pipeline ends in an error), "plan" (so does planning, after the
     * pipeline), "run" (so does one run on random numbers, after that), "nan" (an output of that
     * run is not finite). NULL: `test` is asked. */
    const char *fails;
    const char
        *pipeline; /* as ebb_rewrite takes it; NULL: none, and what `ebb run` does before it */
    /* What the sentence must contain. NULL: the code is the same, and the sentence the first one's
     * but for names, numbers and what is missing from lists. */
    const char *match;
    /* Whether this model is still of interest; it may be changed, and goes afterwards. An error
     * ends the search. */
    ebb_status (*test)(void *context, ebb_model *model, bool *still);
    /* After each change that was taken; or NULL. stage: what is being made less. */
    void (*progress)(void *context, const char *stage, size_t nodes, size_t tests);
    void *context;
    size_t most_tests;   /* 0: until nothing more goes */
    const char *backend; /* of plan, run and nan; NULL: "cpu" */
    uint64_t seed;
    int threads;
} ebb_reduce_options;

/* Writes to `path` (NULL: nowhere) the smallest model found that fails as this one does: fewer
 * nodes, outputs, operands, attributes and weights, smaller dims; reads it back and tests it once
 * more (EBB_VERIFY where it fails no longer). The same in every run. Neither the model nor what it
 * reads is changed. json, or NULL: {"schema": "ebb.reduce/1", "fails", "code", "sentence",
 * "before":
 * {"nodes", "inputs", "outputs", "initializers", "initializer_bytes", "functions"}, "after": {...},
 * "file_bytes", "tests", "verified"}. EBB_USAGE: it does not fail at all. */
EBB_API ebb_status ebb_reduce(const ebb_model *model, const char *path,
                              const ebb_reduce_options *options, char **json);

/* ---- weighing ---- */

typedef struct ebb_plan_options {
    size_t size;
    /* "cpu" (default), "cpu:bf16x3", "plain", "cuda"; of a described device: "cuda:h100" */
    const char *backend;
    bool run; /* also run a step and report what was measured */
    uint64_t seed;
    int threads; /* of the run; 0: as many as processors */
    /* Of ebb_diff_json alone: */
    const ebb_batch *batch; /* what both run on; NULL: random numbers */
    int steps;              /* then time so many more, in turns; 0: none */
    bool brief;             /* do not find out which pass saved what */
    bool
        lives; /* as JSON also `tensors`, each from its birth to its death, and the nodes in `order` */
} ebb_plan_options;

/* What a step needs, without running one (`run` is not looked at). To release with ebb_release. */
typedef struct ebb_plan_facts {
    uint64_t peak_bytes;  /* alive together at most */
    uint64_t arena_bytes; /* the one block that the step runs in */
    uint64_t saved_bytes; /* made forward and kept for the backward */
    /* At the peak; they add up to it. */
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, input_bytes, activation_bytes,
        temporary_bytes, workspace_bytes;
    uint64_t disk_bytes, host_bytes, mapped_bytes; /* in other places */
    int64_t planned_ns;                            /* an estimate, by the rates of the device */
    const char *peak_node;                         /* where the peak is; NULL: there are no nodes */
    const char *missing; /* what the back end has no kernel for; NULL: nothing */
} ebb_plan_facts;

EBB_API ebb_status ebb_plan_facts_of(ebb_plan_facts **facts, ebb_model *model,
                                     const ebb_plan_options *options);
EBB_API ebb_status ebb_plan_json(ebb_model *model, const ebb_plan_options *options, char **json);
/* Both plans; with a run also how far apart every output, state and parameter's gradient is after
 * one step of both from the same weights on the same batch: largest differences, cosine, and
 * relative L2 (the length of the difference by that of the one before). */
EBB_API ebb_status ebb_diff_json(ebb_model *before, ebb_model *after,
                                 const ebb_plan_options *options, char **json);

/* ---- costs ---- */

typedef struct ebb_calibrate_options {
    size_t size;
    const char *backend; /* NULL: "cpu" */
    uint64_t seed;
    int threads;       /* 0: as many as processors */
    int steps;         /* timed for each model; 0: 7, fewer where they take long */
    const char *spill; /* the folder whose disk is timed; NULL: $TMPDIR, or /var/tmp */
} ebb_calibrate_options;

/* Times every node of these models within steps of theirs (random data) and writes to `path` what
 * operators cost on this machine, for the pass `cost`; and what moves to disk and back take, beside
 * steps of the first. count 0: steps of its own, over operators and sizes. json: what was measured; or NULL. */
EBB_API ebb_status ebb_calibrate(ebb_model *const *models, size_t count,
                                 const ebb_calibrate_options *options, const char *path,
                                 char **json);

/* ---- sensitivities ---- */

typedef struct ebb_sensitivity_options {
    size_t size;
    const ebb_batch *batch; /* what the step runs on: needed */
    const char *backend;    /* NULL: "cpu" */
    uint64_t seed;
    int threads; /* 0: as many as processors */
    /* Before each tensor, and with tensor NULL at the end; or NULL. */
    void (*progress)(void *context, size_t done, size_t count, const char *tensor);
    void *context;
} ebb_sensitivity_options;

/* Measures on one batch how much each saved tensor of a training step bears to be coded, with three
 * runs of the step for each at most, and writes to `path` (NULL: nowhere) what
 * `quantise:bits=mixed,measured=FILE` reads: {"schema": "ebb.sensitivity/1", "model", "gradients",
 * "tensors": [{"name", "bytes", "range2", "grad2", "sensitivity"}], "skipped": [{"reason",
 * "count"}]}. The model stays as it is. json: the same text; or NULL. EBB_USAGE: it is no step. */
EBB_API ebb_status ebb_sensitivity(const ebb_model *model, const ebb_sensitivity_options *options,
                                   const char *path, char **json);

/* ---- packing: intervals in, offsets out, as the arena is packed ---- */

typedef struct ebb_pack_csv_options {
    size_t size;
    uint64_t alignment; /* of offsets, in bytes; 0: 1 */
    uint64_t capacity;  /* bytes; stop as soon as it is met; 0: as low as can be */
    int64_t time_ns;    /* search at most so long; 0: a fraction of a second of counted steps, with
                           the same result on every machine */
} ebb_pack_csv_options;

/* Reads the CSV file `in` with the columns id, lower, upper, size and perhaps offset, found by name
 * in its first line: an interval of `size` bytes is alive at positions lower .. upper - 1; where an
 * offset is given it is kept. Writes `out` (NULL: nothing), whole or not at all: the same rows, all
 * with offsets such that no two alive together overlap. options: NULL for all zero. A report as
 * JSON if json is not NULL. EBB_REJECTED names the line of what is wrong; EBB_NO_PLAN: the capacity
 * was not met, and whether it is proven that it cannot be. */
EBB_API ebb_status ebb_pack_csv(const char *in, const char *out,
                                const ebb_pack_csv_options *options, char **json);

/* ---- weights ---- */

/* Draws values for initializers by the model's own initialization graph. A seed of 0 keeps its own.
 */
EBB_API ebb_status ebb_init_weights(ebb_model *model, uint64_t seed);
/* By name, from a safetensors file or from the `checkpoint` of ONNX Runtime's training artifacts,
 * whose parameters also become initializers where the model has inputs of their names. A checkpoint's
 * running averages become the weights of a model that has no place for averages. Missing names are an
 * error naming them; others are ignored. */
EBB_API ebb_status ebb_load_weights(ebb_model *model, const char *path);

/* ---- several processes, which compute one step together ----
 *
 *     ebb_group *group;
 *     ebb_group_join(&group);                                     in each of those that ebb_launch started
 *     ebb_rewrite(m, "data-parallel:ranks=4", NULL, NULL);        or ebb_step_options.ranks
 *     ebb_program_compile(&p, m, &(ebb_compile_options){.group = group});
 *
 * All hold the same step and make it at the same time; each gives it its own part of a batch's rows.
 */
typedef struct ebb_group ebb_group;

/* The group that this process was started in; NULL: it was started alone. To leave before it ends,
 * after its programs are gone. Once in a process. */
EBB_API ebb_status ebb_group_join(ebb_group **group);
EBB_API void ebb_group_leave(ebb_group *group);      /* NULL is fine */
EBB_API int ebb_group_rank(const ebb_group *group);  /* from 0; of NULL 0 */
EBB_API int ebb_group_ranks(const ebb_group *group); /* how many; of NULL 1 */
/* A link between processes: 1gbe, 10gbe, 100gbe, ndr400, nvlink4, or "MICROSECONDS,GBYTES_PER_SECOND", which are
 * what a message to one other process takes and how many bytes of 10^9 go by it in a second. */
EBB_API ebb_status ebb_link_parse(double *us, double *gb, const char *text);
/* Measures the link of this group by exchanges of all sizes, and by how much longer computing takes where all do so at
 * once; puts both into a file of costs (ebb_calibrate), which is made where there is none and keeps what was measured of
 * other numbers of processes. All its processes call it; rank 0 writes. json: what was measured; or NULL. */
EBB_API ebb_status ebb_calibrate_link(ebb_group *group, const char *path, char **json);
/* For an error that may be everybody's: true in the first process that asks, which is to say it. */
EBB_API bool ebb_group_speaks(ebb_group *group);

typedef struct ebb_launch_options {
    size_t size;
    const char *const
        *command;  /* a program, found as a shell does, and its words; NULL-terminated */
    int ranks;     /* [1, 64] */
    double late_s; /* a rank may keep the others waiting so long; 0: ten minutes */
    /* A signal's number that the caller has caught and rank 0 is to get, which stops all; NULL: none. */
    volatile int *signal;
    /* Exchanges take as long as by a link between machines that takes so many microseconds for a message and brings
     * so many bytes a nanosecond; both 0: as long as they take. */
    double link_us, link_gb;
} ebb_launch_options;

/* Starts the command so many times on this machine and waits until all have ended. Where one fails the
 * others end within seconds; all end when this process does. *code: of the first that failed, or 0. A
 * status: what no process could say itself. */
EBB_API ebb_status ebb_launch(const ebb_launch_options *options, int *code);

/* ---- running ---- */

typedef struct ebb_program ebb_program;

typedef struct ebb_compile_options {
    size_t size;
    const char *backend; /* NULL: "cpu" */
    uint64_t seed;       /* for operators that draw without a key in the file */
    int threads;         /* 0: as many as the model says (ebb_set_threads) */
    bool profile;        /* time each node */
    const char *spill;   /* a folder for what the step keeps on disk; NULL: $TMPDIR, or /var/tmp */
    bool
        spill_unchecked; /* what is read there is not compared with the checksum of what was written */
    struct ebb_group
        *group; /* the processes that compute the step together; NULL: this one alone */
} ebb_compile_options;

EBB_API ebb_status ebb_program_compile(ebb_program **program, ebb_model *model,
                                       const ebb_compile_options *options);
EBB_API void ebb_program_free(ebb_program *program);

/* What is worth knowing of it, as a sentence, or NULL: that its budget was planned for another
 * number of threads. */
EBB_API const char *ebb_program_note(const ebb_program *program);

/* One walk over the program, then the update bindings. Inputs are copied in; NULL: there are none. */
EBB_API ebb_status ebb_program_step(ebb_program *program, const ebb_batch *batch);

/* A graph output or initializer after the step, in the program's memory. *named is borrowed until
 * the next step. EBB_USAGE when there is none of that name. */
EBB_API ebb_status ebb_program_get(ebb_program *program, const char *name, ebb_named *named);
EBB_API size_t ebb_program_output_count(const ebb_program *program);
EBB_API const char *ebb_program_output_name(const ebb_program *program, size_t index);
EBB_API const char *ebb_program_loss_name(const ebb_program *program); /* NULL: no loss */
EBB_API ebb_status ebb_program_set(ebb_program *program, const ebb_named *named); /* a state */

typedef struct ebb_program_facts {
    uint64_t arena_bytes, planned_arena_bytes, peak_bytes, measured_arena_bytes;
    /* Of device memory; 0 on the host: what the program allocated, arena included, and what the
     * driver says that the process holds (0: it does not say). The difference is the driver's
     * context, its libraries and their kernels. */
    uint64_t device_bytes, process_bytes;
    uint64_t steps;
    int64_t step_ns; /* the last one */
    uint64_t exchanges,
        sent_bytes; /* with the other processes of its group, so far; 0: there are none */
    /* In other places: the length of the file, memory of the host; and how long all steps stood still
     * for moves to and from them. */
    uint64_t planned_disk_bytes, disk_bytes, planned_host_bytes, host_bytes;
    int64_t waited_ns;
    /* Of the model's files: weights that kernels read where these are mapped. */
    uint64_t planned_mapped_bytes, mapped_bytes;
} ebb_program_facts;

/* The first `size` bytes of them. */
EBB_API void ebb_program_measure_to(const ebb_program *program, ebb_program_facts *facts,
                                    size_t size);
static inline ebb_program_facts ebb_program_measure(const ebb_program *program)
{
    ebb_program_facts facts;
    ebb_program_measure_to(program, &facts, sizeof facts);
    return facts;
}
EBB_API ebb_status ebb_program_profile_json(const ebb_program *program, char **json);

/* ---- metrics: how good predictions are, over the batches of an evaluation ----
 *
 *     ebb_evaluation_pipeline(&text, &step);            the model forward, with its losses
 *     ebb_metrics_new(&metrics, losses, NULL);
 *     while (next(&batch)) {
 *         ebb_program_step(p, &batch);
 *         ebb_metrics_take(metrics, p, &batch);         batches may be of different sizes
 *     }
 *     for (size_t i = 0; i < ebb_metrics_count(metrics); i++)
 *         show(ebb_metrics_at(metrics, i));
 */
typedef struct ebb_metrics ebb_metrics;

typedef struct ebb_metric {
    const char *name; /* "loss", "accuracy"; of one of several losses "accuracy/TARGET" */
    double value;     /* NaN: nothing was counted */
    bool higher_is_better;
    int64_t counted; /* targets; of a loss without class numbers, rows */
} ebb_metric;

/* losses: as given to the step, NULL-terminated. names: metrics, NULL-terminated; NULL or empty:
 * those that are usual for each loss and the shape of its predictions. EBB_USAGE: there is no such
 * metric, or it fits none of the losses. */
EBB_API ebb_status ebb_metrics_new(ebb_metrics **metrics, const char *const *losses,
                                   const char *const *names);
/* Counts what the program has predicted in its last step, which was of this batch. The program is of
 * ebb_evaluation_pipeline with the same losses; there may be several, of different batch sizes. */
EBB_API ebb_status ebb_metrics_take(ebb_metrics *metrics, ebb_program *program,
                                    const ebb_batch *batch);
/* The first is always the loss: its mean over all that was counted. The others are known from the
 * first batch on. */
EBB_API size_t ebb_metrics_count(const ebb_metrics *metrics);
EBB_API ebb_metric ebb_metrics_at(const ebb_metrics *metrics, size_t index);
EBB_API void ebb_metrics_clear(ebb_metrics *metrics); /* for the next evaluation */
EBB_API void ebb_metrics_free(ebb_metrics *metrics);  /* NULL is fine */
EBB_API const char *ebb_metric_name(size_t index);    /* the table; NULL behind its end */

/* Copies the program's states (parameters, statistics, optimizer) back into the model, so that
 * ebb_save writes them; or into `target`, another model with initializers of these names (the
 * user's own export), changing initializers only. Adapters that the target lacks are added into the
 * weights that they stand beside. A target without a place for the running averages that the program
 * keeps (optimizer option `ema`) gets them as its weights. */
EBB_API ebb_status ebb_program_store(ebb_program *program, ebb_model *target);

/* The adapters of pass lora, and what else is trained, into a safetensors file; or where `path` is a folder,
 * or a name without an ending, into one that PEFT loads (adapter_model.safetensors, adapter_config.json); FILE.onnx_adapter
 * is ONNX Runtime's: MODULE.lora_A.weight [in, r], MODULE.lora_B.weight [r, out] with its scale, EBB_UNSUPPORTED for what else
 * is trained.
 * EBB_USAGE where there are none, and for another ending. Pass lora starts from either by its option `file`.
 * _check: whether they can be written there, before there are any. Nothing is changed. */
EBB_API ebb_status ebb_adapters_save(ebb_program *program, const char *path);
EBB_API ebb_status ebb_adapters_check(const char *path);

/* Writes all states and `extra` (JSON text kept for you) to a safetensors file, whole or not at all;
 * and reads them back. A file in which a bit has changed is refused: its checksum is wrong. A file that
 * lacks a state, or has one too many, is refused, and the state is named. Older files have no checksum
 * and are read too; ebb_checkpoint_was_checked says whether the last one had it. */
EBB_API ebb_status ebb_checkpoint_save(ebb_program *program, const char *path, const char *extra);
EBB_API ebb_status ebb_checkpoint_load(ebb_program *program, const char *path, char **extra);
EBB_API bool ebb_checkpoint_was_checked(const ebb_program *program);
/* A rate (ebb.lr ...) that another step's file sets than that of the run which wrote the checkpoint
 * counts, and so does another schedule: this is a sentence about it, or NULL where nothing differs. A
 * rate that the run itself had set goes on. */
EBB_API const char *ebb_checkpoint_note(const ebb_program *program);

/* ---- data ---- */

typedef struct ebb_data ebb_data; /* named arrays in memory or mapped */

/* .npz, .npy, .safetensors, .csv, or a test_data_set_* folder (inputs named by the model). An array's `data` is
 * NULL where it is not in memory as it stands: its rows can be asked for. */
EBB_API ebb_status ebb_data_open(ebb_data **data, const char *path, const ebb_model *model);
EBB_API void ebb_data_close(ebb_data *data);
EBB_API const char *
ebb_data_metadata(const ebb_data *data); /* of safetensors and of pictures: JSON text, or NULL */
EBB_API size_t ebb_data_count(const ebb_data *data);
EBB_API const ebb_named *ebb_data_at(const ebb_data *data, size_t index);
EBB_API const ebb_named *ebb_data_find(const ebb_data *data, const char *name);

/* How data are opened, and how rows of arrays become rows of inputs. All zero: as the files and the
 * model have it. Lists are NULL-terminated; NULL: none. */
typedef struct ebb_data_options {
    size_t size;
    const ebb_model *model; /* its inputs name the arrays of a test_data_set_* folder */
    /* For inputs of floats: (x * scale - mean) / std, one number or one for each channel. "0.5,0.4,0.4"
     * is for images of bytes (arrays of at least 3 dims); "image=0.5,0.4,0.4" for this input. A scale
     * may be a fraction: "1/255". */
    const char *const *scale, *const *mean, *const *std;
    const char *layout; /* of the arrays: "nhwc", "nchw"; NULL: what fits */
    bool round;         /* floats that the model's type cannot hold are rounded, not refused */
    bool allow_nan;     /* rows with a NaN are taken, not refused */
    /* What is drawn anew in each epoch for images: "flip", "flip-vertical", "crop:padding=4",
     * "resized-crop:least=0.08" (of pictures). Flips move masks of classes along. */
    const char *const *augment;
    /* Of folders of pictures: "256" makes the shorter side so long, "256x320" both, before the middle is
     * taken; NULL: so that it just covers the input. And the size, "224x224", of an input that
     * leaves it open. */
    const char *resize, *image_size;
    /* Columns of .csv files side by side as one array: "x=sepal*,petal*". The others are an array each. */
    const char *const *columns;
    /* Texts that are token ids become rows of so many tokens; 0: arrays as they are. input_ids (or tokens) is
     * one stream, or has a text in each row; beside it may be lengths, labels (-100: not learned) or loss_mask.
     * Arrays are then input_ids, target (the next token), attention_mask, position_ids. pack: several texts
     * in a row, and segment_ids, which pass segments reads. */
    int64_t sequence;
    bool pack;
} ebb_data_options;

/* Files, folders and patterns ("part-*.npz"), at least one. A folder is of test data, of such files, or of
 * pictures (.jpg, .png) in a sub-folder for each class: then the arrays are "image" and "label", and the
 * metadata {"classes": [names]}. Arrays of one name in several files are joined by rows, in the order given;
 * of other names they stand side by side. What is in a file as it is (.npy, .safetensors, .npz that is not
 * compressed) is mapped and read row by row: little of a large file is in memory at a time. Texts (.jsonl,
 * .txt) need `sequence`, and one more path: what ends in .json is their tokenizer. options NULL: all zero. */
EBB_API ebb_status ebb_data_open_files(ebb_data **data, const char *const *paths,
                                       const ebb_data_options *options);

/* Arrays that are in memory: they are not copied, and stay yours as long as the data. What their rows
 * become is said by the options, as for files. */
EBB_API ebb_status ebb_data_of(ebb_data **data, const ebb_named *arrays, size_t count,
                               const ebb_data_options *options);

/* The same arrays, of which nothing is read anew, to be taken in another way: for another model, by other
 * options. `data` must outlive them. */
EBB_API ebb_status ebb_data_again(ebb_data **again, const ebb_data *data,
                                  const ebb_data_options *options);

/* Which arrays feed the inputs of a model. map: pairs (array, input), NULL-terminated, or NULL; an
 * input that is in no pair takes the array of its own name. A pair of unknown names is EBB_USAGE,
 * with the arrays and the inputs that there are.
 * _shape, before a step is made of the model: inputs get the shapes of their arrays, with `batch`
 * rows; inputs on the right that are not there yet may come with the loss. *rows: of the arrays that
 * are used, which have equally many; -1 where no input needs one. That none has one is EBB_USAGE.
 * _bind, on the finished model: each of its inputs has an array, and each pair an input. From now on
 * rows come as these inputs take them: numbers of another type where they stay the same numbers,
 * channels first or last, [N] beside [N, 1], one-hot and class numbers, scaled. */
EBB_API ebb_status ebb_data_shape(ebb_data *data, ebb_model *model, const char *const *map,
                                  int64_t batch, int64_t *rows);
EBB_API ebb_status ebb_data_bind(ebb_data *data, const ebb_model *model, const char *const *map);

/* The arrays whole, as one run of a model takes them, also for inputs that have a default; the batch
 * is good until the data are closed. A note names each array that feeds no input. */
EBB_API ebb_status ebb_data_whole(ebb_data *data, const ebb_model *model, const char *const *map,
                                  ebb_batch *batch);

/* What is worth knowing of how the data are used, as a sentence; NULL: there are no more. */
EBB_API const char *ebb_data_note(const ebb_data *data, size_t index);

/* Rows `index[0..count)`, gathered into one batch; borrowed until the next call. map: of the arrays of its
 * pairs alone; NULL: of what was bound, or of all arrays where nothing was. Of bound arrays a number that the
 * input's type cannot hold is EBB_USAGE; a label that is no class, or a NaN, EBB_RUNTIME: all name row and
 * file. */
EBB_API ebb_status ebb_data_rows(ebb_data *data, const int64_t *index, size_t count,
                                 const char *const *map, ebb_batch *batch);

/* Announces the rows that will be asked for next: they are read by threads meanwhile. The batch that is
 * borrowed stays good until it is asked for them. */
EBB_API ebb_status ebb_data_ahead(ebb_data *data, const int64_t *index, size_t count,
                                  const char *const *map);

/* Rows that are asked for and announced from now on are of this epoch: what augmentation draws depends on
 * seed, epoch and row alone. */
EBB_API void ebb_data_epoch(ebb_data *data, uint64_t seed, uint64_t epoch);

/* A permutation of 0..count-1 by seed and epoch (Fisher-Yates over Philox): the same everywhere. */
EBB_API void ebb_shuffle(int64_t *order, int64_t count, uint64_t seed, uint64_t epoch);

/* Named tensors into a safetensors file, atomically. */
EBB_API ebb_status ebb_tensors_save(const char *path, const ebb_named *tensors, size_t count,
                                    const char *metadata_json);

/* ---- evaluating: a model on data that it was not trained on ---- */

typedef struct ebb_evaluator ebb_evaluator;

typedef struct ebb_evaluator_options {
    size_t size;
    const char *const *losses;  /* as given to the step, NULL-terminated */
    const char *const *metrics; /* as ebb_metrics_new takes them */
    const char *const *map;     /* pairs (array, input), NULL-terminated; NULL: names agree */
    const int64_t *rows;        /* of the data, row_count of them; NULL: all */
    int64_t row_count;
    int64_t batch;       /* rows at a time; 0: 32. The rest of them is a batch of its own */
    const char *backend; /* NULL: "cpu" */
    int threads;
    /* Called with each copy of the model, which has the sizes of the arrays by then, for those that
     * no array gives; or NULL. */
    void (*bind)(void *context, ebb_model *model);
    void *context;
    const char *teacher;       /* as given to the step; or NULL */
    const char *const *passes; /* as given to the step, for adapters; NULL: none */
    const char *adapters;      /* as given to the step; or NULL */
    bool segments;             /* as given to the step */
    struct ebb_group *group;   /* that shares the batches; NULL: that of `trained`, if it has one */
} ebb_evaluator_options;

/* The model forward, dropout off and with running statistics. It is as exported, stays as it is and
 * lives as long; so do the data, which may be those of the training: nothing is drawn of them here. One
 * batch is tried here, so that what is wrong is known before a
 * training begins. */
EBB_API ebb_status ebb_evaluator_new(ebb_evaluator **evaluator, const ebb_model *exported,
                                     ebb_data *data, const ebb_evaluator_options *options);
/* trained: whose parameters and statistics are taken; NULL: the model's own. stop: asked before each
 * batch; or NULL. EBB_RUNTIME where it says so. */
EBB_API ebb_status ebb_evaluator_run(ebb_evaluator *evaluator, ebb_program *trained,
                                     bool (*stop)(void *context), void *context);
EBB_API int64_t ebb_evaluator_rows(const ebb_evaluator *evaluator);
/* Of the last run: the first is the loss. Names are known before. */
EBB_API size_t ebb_evaluator_count(const ebb_evaluator *evaluator);
EBB_API ebb_metric ebb_evaluator_at(const ebb_evaluator *evaluator, size_t index);
EBB_API void ebb_evaluator_free(ebb_evaluator *evaluator); /* NULL is fine */

/* ---- training: the loop that `ebb train` runs ----
 *
 *     ebb_trainer_new(&t, program, data, &options);
 *     status = ebb_trainer_run(t);              until the last step, or until it is stopped
 *     show(ebb_trainer_measure(t));
 *     ebb_trainer_free(t);
 *
 * What decides the numbers is in the step (keys, counters, states) or follows from the seed and the
 * count of steps. So N steps, a stop, and M more from the checkpoint give the bytes of N + M.
 */
typedef struct ebb_trainer ebb_trainer;

typedef enum ebb_trainer_event {
    EBB_TRAINER_STEP,      /* a step is done */
    EBB_TRAINER_EPOCH,     /* so is an epoch, or what there was of the last one */
    EBB_TRAINER_EVALUATED, /* the evaluator has run */
    EBB_TRAINER_SAVED,     /* a checkpoint is written */
} ebb_trainer_event;

typedef struct ebb_trainer_options {
    size_t size;
    const char *const *map;    /* as ebb_data_rows takes it; NULL: what ebb_data_bind has bound */
    const int64_t *rows;       /* of the data, row_count of them; NULL: all */
    int64_t row_count;         /* how many there are, by ebb_data_shape; also where rows is NULL */
    int64_t batch;             /* rows of a step; 0: 32 */
    int64_t steps, epochs;     /* where it ends; steps 0: after so many epochs, 0: one */
    uint64_t seed;             /* of the order of rows */
    bool seed_is_given;        /* a checkpoint of another seed is refused, instead of followed */
    bool in_order;             /* rows as they stand */
    bool repeat_batch;         /* the first batch again and again */
    bool goes_on_after_nan;    /* else a loss that is no number ends the run */
    ebb_evaluator *evaluator;  /* or NULL */
    int64_t eval_every;        /* steps; 0: after each epoch */
    int64_t patience;          /* stop after so many evaluations that were not better; 0: never */
    bool keep_best;            /* results are those of the best evaluation, not of the last step */
    int keep;                  /* checkpoints: the last so many; 0: one */
    const char *resume;        /* a checkpoint; or NULL */
    const char *checkpoint;    /* where one is written at the end; NULL: nowhere */
    int64_t every, every_ns;   /* and after so many steps, or so much time; 0: no */
    const char *const *logs;   /* .jsonl, .csv, or a folder for TensorBoard; NULL-terminated */
    int64_t log_every;         /* steps; 0: each */
    const ebb_model *exported; /* of which save_model is a copy with trained values */
    ebb_model *step;           /* which save_ort is made of */
    const char *save_model, *save_adapter, *save_ort; /* results; NULL: none */
    void (*tell)(void *context, ebb_trainer *trainer, ebb_trainer_event event); /* or NULL */
    void *context;
    const char *best_by; /* the metric of the evaluator that says which is better; NULL: its loss */
} ebb_trainer_options;

typedef struct ebb_trainer_facts {
    int64_t steps, until;                /* done, those before a resume included; where it ends */
    int64_t resumed_at;                  /* steps that the checkpoint had; 0: it began */
    int64_t epoch;                       /* of the last step, from 1 */
    int64_t per_epoch;                   /* steps */
    int64_t left_out;                    /* rows of an epoch that fill no batch */
    int64_t epoch_steps;                 /* of this epoch so far, its mean loss beside */
    double loss, epoch_loss;             /* of the last step; NaN: there is none yet */
    double rate;                         /* of the optimizer; NaN: the step has none by name */
    int64_t step_ns, median_ns, left_ns; /* the last; of the last 101; until the end */
    double rows_per_second, tokens_per_second; /* by the clock; 0 tokens: the rows are no texts */
    int64_t evaluated_at, best_at, not_better; /* steps; evaluations since the best */
    double best;                               /* of the evaluator; NaN: there is none */
    bool stopped_early, was_stopped, was_over; /* patience; ebb_trainer_stop; nothing was left */
    const char *best_by;                       /* the metric that `best` is of: "loss" */
} ebb_trainer_facts;

/* How many steps a run with these options takes. EBB_USAGE: rows are fewer than a batch. */
EBB_API ebb_status ebb_trainer_steps(int64_t *steps, const ebb_trainer_options *options);
/* Loads the checkpoint and opens the logs. Lists and texts of the options stay yours and live as
 * long. */
EBB_API ebb_status ebb_trainer_new(ebb_trainer **trainer, ebb_program *program, ebb_data *data,
                                   const ebb_trainer_options *options);
/* Ends with the checkpoint and the results written, also where it is stopped. */
EBB_API ebb_status ebb_trainer_run(ebb_trainer *trainer);
/* It ends after the step that is being computed. May be called by a signal handler. */
EBB_API void ebb_trainer_stop(ebb_trainer *trainer);
/* The first `size` bytes of them. */
EBB_API void ebb_trainer_measure_to(const ebb_trainer *trainer, ebb_trainer_facts *facts,
                                    size_t size);
static inline ebb_trainer_facts ebb_trainer_measure(const ebb_trainer *trainer)
{
    ebb_trainer_facts facts;
    ebb_trainer_measure_to(trainer, &facts, sizeof facts);
    return facts;
}
EBB_API void ebb_trainer_free(ebb_trainer *trainer); /* NULL is fine */

/* Holds out a share of rows for evaluation, the same whatever the seed: order[0..rows - *held) are to
 * be trained on, the rest is not; both ascend. EBB_USAGE: one of them would be empty. */
EBB_API ebb_status ebb_rows_split(int64_t *order, int64_t rows, double share, int64_t *held);

/* Whether a result can be written to `path`, before there is one: EBB_IO. Nothing is changed. */
EBB_API ebb_status ebb_output_check(const char *path);

#ifdef __cplusplus
}
#endif
#endif
