/* cli.h: one descriptor per verb, with a way for each thing that it does; help, completion and the
 * check of options come from it. A way lists the options that it reads: any other, and one that has
 * no effect beside or without another, is a usage error, so that nothing asked for is passed over.
 *
 * A verb gets its words as parsed: positional arguments and options in the order given. Data goes
 * to stdout, everything else to stderr. A verb returns an exit code (ebb_code).
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "ebb.h"

typedef struct cli_option {
    const char *name;  /* "--dim" */
    const char *value; /* what its value is, for help: "NAME=N"; NULL: a switch */
    const char *doc;
    const char *whole,
        *real;      /* a number: its range as ebb_whole_parse or ebb_real_parse reads it */
    bool repeats;   /* it may be given more than once */
    bool is_output; /* a file that is written */
} cli_option;

typedef struct cli_word {
    const cli_option *option;
    const char *value;
} cli_word;

enum { MOST_WORDS = 128 };

typedef struct cli {
    const struct cli_verb *verb;
    const struct cli_way *way;
    const char *files[8];
    int file_count;
    cli_word words[MOST_WORDS];
    int word_count;
    char *const *command; /* what stands after "--" */
    int command_count;
} cli;

typedef struct cli_way {
    const char *sign;      /* the option that asks for it; NULL: it is what is done without one */
    const char *value;     /* and one of these values of it: "types|check"; NULL: any */
    const char *arguments; /* for help: "MODEL -o STEP" */
    int file_least, file_most;
    const char *const *options; /* names from the table in verbs.c, NULL-terminated */
    const char *const *beside;  /* pairs, NULL-terminated: an option, and the one that it needs, or
                                   "!" and the one that it has no effect beside. NULL: none */
    int (*run)(const cli *c);
} cli_way;

typedef struct cli_verb {
    const char *name;
    const char *doc; /* one line */
    const cli_way *ways;
    int way_count;
    const char *ask;             /* what to say where none of the ways was asked for */
    const char *const *examples; /* what follows its name, NULL-terminated; a test runs them all */
} cli_verb;

extern const cli_verb cli_verbs[];
extern const int cli_verb_count;
enum { MOST_NAMES = 128 }; /* among which a word is looked for */
const cli_option *cli_find_option(const char *name);
const cli_verb *cli_find_verb(const char *name);
bool cli_takes(const cli_verb *verb, const char *option);
bool cli_is_among(const char *const *options, const char *name); /* of a list that ends in NULL */
/* What `ebb help` and its words say, of a verb, and of a word that is none; exit codes. */
int cli_help(int count, char **words);
void cli_print_verb(const cli_verb *verb);
int cli_unknown_verb(const char *word);
extern const cli_option cli_options[];
extern const int cli_option_count;
/* The options are in groups: a title, and the first that belongs to it. Ends with NULL. */
typedef struct cli_group {
    const char *title, *first;
} cli_group;
extern const cli_group cli_groups[];
/* What other programs call an option, and what it is here; ends with NULL. */
extern const char *const cli_elsewhere[][2];

/* ---- words ---- */

bool cli_has(const cli *c, const char *option);
const char *cli_get(const cli *c, const char *option,
                    const char *otherwise);                      /* the last one given */
const char *cli_next(const cli *c, const char *option, int *at); /* each in turn; *at starts at 0 */
/* All in turn, NULL-terminated. */
void cli_list(const cli *c, const char *option, const char *list[MOST_WORDS + 1]);

/* Numbers were checked against their ranges when the words were read. */
int64_t cli_whole(const cli *c, const char *option, int64_t otherwise);
double cli_number(const cli *c, const char *option, double otherwise);
uint64_t cli_seed(const cli *c);
int cli_threads(const cli *c);
/* Before a verb begins; words: all of the command's. An exit code. */
int cli_begin(cli *c, char **words);
void cli_give_back(void); /* memory that the heap has no use for */
/* Whether a value is one that the option takes: EBB_OK, or a sentence and an exit code. */
int cli_check_value(const cli_option *option, const char *value);

/* --backend, --device, --tf32 and --fp32-by as one word for the library, or NULL: "cuda:h100+tf32". Good until
 * the next call. */
const char *cli_backend(const cli *c);

/* --dialect ort: what is made goes to ONNX Runtime's training. */
bool cli_is_ort(const cli *c);

/* ---- saying ---- */

int cli_fail(ebb_status status); /* "ebb: ..." on stderr; the status's code */
const char *cli_last_said(void); /* the first line of it */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* stderr */
const char *cli_bytes(char text[32], double bytes);                           /* "1.25 GiB" */
const char *cli_time(char text[32], double ns);                               /* "12.3 ms" */
const char *cli_rate(char text[32], double number, const char *of);           /* "498.1 rows/s" */

/* The one JSON object of a verb, on stdout; main gives one that names the error where a verb that
 * failed has printed none. */
void cli_print_json(const json_t *object, size_t flags);
bool cli_printed_json(void);
/* Prints the text as it is under --json, else hands it to `show` as JSON. Releases it. */
int cli_show(const cli *c, char *json, void (*show)(const json_t *object));
const char *cli_text(const json_t *object, const char *key);
double cli_real(const json_t *object, const char *key);
const char *cli_bytes_of(const json_t *object, const char *key); /* good for eight calls */

/* manual.c: what a package installs, "man", "bash", "zsh" or "fish", on stdout. */
bool cli_has_page(const char *name);
int cli_print_page(const char *name);
extern const char cli_exit_codes[];

/* show.c: the tables */
void cli_show_inspect(const json_t *o);
void cli_show_check(const json_t *o);
void cli_show_ops(const json_t *o);
void cli_show_passes(const json_t *o);
void cli_show_plan(const json_t *o);
void cli_show_profile(const json_t *o);
/* Bytes of device memory: planned, allocated, of the process. Nothing where allocated is 0. */
void cli_show_device(double planned, double allocated, double process);
void cli_show_bench(const json_t *o);
/* diff.c */
void cli_show_diff(const json_t *o);
/* curve.c: of a plan */
void cli_show_curve(const json_t *plan);
void cli_show_neighbourhood(const json_t *plan);
void cli_show_pack(const json_t *o);
/* look/: --html, --svg and --perfetto of a plan or a diff with `lives`; whether one is asked for. An
 * exit code. */
bool cli_wants_lives(const cli *c);
int cli_save_lives(const cli *c, const json_t *o);

/* ---- models ---- */

/* Opens files[0], applies --dim, --shape and --trust. */
ebb_status cli_open(const cli *c, ebb_model **model);
/* So does this, and says which sizes these options give: those of inputs before and after. */
typedef struct cli_sizes {
    ebb_model_facts *before, *after; /* NULL: neither option is there */
    int64_t rows;                    /* of an input; 0: they do not say */
} cli_sizes;

ebb_status cli_open_sizes(const cli *c, ebb_model **model, cli_sizes *sizes);
/* Whether what data were bound to has these sizes still, but for the rows; else says so. An exit code. */
int cli_check_sizes(const cli_sizes *sizes, const ebb_model *model);
void cli_free_sizes(cli_sizes *sizes);
ebb_status cli_open_at(const cli *c, ebb_model **model, int file);
ebb_status cli_open_unbound(const cli *c, ebb_model **model, int file); /* without all that */
ebb_status cli_bind(const cli *c, ebb_model *model); /* --dim, --shape, --trust alone */
/* Each of the sizes is one that `model` or `other` has open; other: may be NULL. */
ebb_status cli_bind_both(const cli *c, ebb_model *model, ebb_model *other);
/* Says what this pass noted, of ebb_rewrite's report; NULL is fine. */
void cli_note_pass(const json_t *report, const char *name);
/* --head, right after opening, before anything reads the model's shapes. */
ebb_status cli_head(const cli *c, ebb_model *model, bool quiet);
/* --threads and --deterministic, before anything is planned for them. */
ebb_status cli_set_threads(const cli *c, ebb_model *model);

/* make: a step is made of the model, as --loss, --optimizer, --train ... say; else --costs, --pass
 * and --budget go over it as it stands, and without them nothing happens. json, facts: as
 * ebb_rewrite fills them, or NULL. */
ebb_status cli_rewrite(const cli *c, ebb_model *model, bool make, char **json,
                       ebb_rewrite_facts *facts);
/* Of a model that is no step, for a run of so many steps: a schedule of the rate ends with them. What
 * it trains and what the doctor warns of is said, and stands in json. */
ebb_status cli_make_step(const cli *c, ebb_model *model, int64_t steps, char **json);
/* told.c */
json_t *cli_warnings(const ebb_model *model); /* of the doctor, to decref */
void cli_tell_made(char **json, json_t *warnings);
void cli_tell_compiled(const cli *c, const ebb_program *program);
/* The step of one of so many processes. */
ebb_status cli_step_for(const cli *c, ebb_model *model, int ranks, char **json);
/* ranks.c: what one of 1, 2, 4 ... --ranks processes needs, as "table" of a plan (an exit code); and as
 * text. */
int cli_plan_ranks(const cli *c, const ebb_plan_options *options, json_t *plan);
void cli_show_ranks(const json_t *plan);

/* The pipeline of cli_rewrite as text, to release; "" where nothing is to be done. */
ebb_status cli_pipeline(const cli *c, const ebb_model *model, bool make, char **text);
const char *cli_step_option(const cli *c); /* the first of those options that was given, or NULL */
/* Of a model that is a step already none of them may be given: a sentence and an exit code. */
int cli_check_step(const cli *c, int file, bool step);
ebb_status cli_weights(const cli *c, ebb_model *model);     /* --init, --weights */
ebb_status cli_open_whole(const cli *c, ebb_model **model); /* cli_open, and then these */
/* --budget, before anything is opened: a sentence and an exit code. */
ebb_status cli_budget(ebb_amount *amount, const char *budget);
int cli_check_planning(const cli *c);
ebb_status cli_has_step(const ebb_model *model, bool *step);

/* ---- data.c: from arrays to inputs ---- */

typedef struct cli_map {
    const char *pairs[2 * MOST_WORDS + 2]; /* array, input, array, input ... as --map says */
    int count;
    const char **feeds;     /* the same for every input that has an array, NULL at the end */
    char *text;             /* keeps the strings of `pairs` ... */
    ebb_model_facts *facts; /* ... and of `feeds` */
} cli_map;

/* The files that this option names ("--data"), as --scale and its like say; trains: and as --augment says. */
ebb_status cli_open_data(const cli *c, const char *option, bool trains, const ebb_model *model,
                         ebb_data **data);
/* The same arrays for an evaluation. */
ebb_status cli_data_again(const cli *c, const ebb_data *of, ebb_data **data);
/* "--map label=target"; or a sentence on stderr and false. Goes with cli_free_map either way. */
bool cli_read_map(const cli *c, const char *option, cli_map *map);
void cli_free_map(cli_map *map);
/* Each input that has an array takes its shape, with `batch` rows. *rows: of the shortest array; -1
 * where there is none. */
ebb_status cli_bind_rows(ebb_model *model, ebb_data *data, const cli_map *map, int64_t batch,
                         int64_t *rows);
/* Fills map->feeds for the inputs of the finished step; a name that fits nowhere is an error. */
ebb_status cli_find_feeds(const ebb_model *model, ebb_data *data, cli_map *map);
/* Of two folders of pictures: the same classes. An exit code. */
int cli_check_classes(const ebb_data *data, const ebb_data *others, const char *path);
/* What is worth knowing of them, on stderr, but what was said of those before; NULL: nothing was. */
void cli_notes(const ebb_data *data, const ebb_data *before);

/* ---- training and comparing ---- */

/* That --metric fits --loss, before anything is computed. An exit code. */
int cli_check_metrics(const cli *c);
/* What a model is evaluated on. The caller's: the exported model, and rows, or NULL for all. */
typedef struct cli_evaluation {
    ebb_model *model;
    const int64_t *rows;
    int64_t row_count, batch;
    const ebb_data *of; /* whose rows they are; NULL: files are opened */
    const char *losses[MOST_WORDS + 1], *metrics[MOST_WORDS + 1], *passes[MOST_WORDS + 1];
    cli_map map;
    ebb_data *data;
    ebb_evaluator *evaluator;
} cli_evaluation;

/* The files that the option names, unless data are given, and the one that says which array feeds which input. An exit
 * code. */
int cli_open_evaluation(const cli *c, cli_evaluation *e, const char *files, const char *map);
void cli_close_evaluation(cli_evaluation *e);
/* Of the last evaluation: {rows, counted, loss} and each metric by its name, null where there is no
 * number. */
json_t *cli_metrics(const ebb_evaluator *evaluator);
void cli_print_metrics(FILE *out, const json_t *metrics);

/* What the words say of the loop; or a sentence on stderr and false. */
bool cli_trainer_options(const cli *c, ebb_trainer_options *o);
/* --dim and --shape may say how many rows a step takes, as --batch does. An exit code. */
int cli_take_rows(const cli *c, int64_t *batch, int64_t rows);

/* progress.c: one line that is drawn again and again, where stderr is a terminal, and lines above
 * it. */
bool cli_is_terminal(void);
void cli_draw_progress(const ebb_trainer_facts *f);
void cli_clear_progress(void);

/* ---- launch.c: several processes ---- */

/* The group that this process was started in, once, before anything is said: NULL where it is none. */
ebb_status cli_join(void);
ebb_group *cli_launched(void);
void cli_leave(void);
bool cli_speaks(void); /* whether it is this process that says an error */

int cli_launch(const cli *c);
int cli_calibrate_link(const cli *c);
int cli_check_alone(void); /* where several would be in each other's way */
int cli_run(const cli *c);
int cli_train(const cli *c);
int cli_eval(const cli *c);
int cli_few_bit(const cli *c);
int cli_sweep(const cli *c);
int cli_sensitivity(const cli *c);
int cli_devices(const cli *c);
int cli_reduce(const cli *c);
