/* options.c: every option that a verb may take: its value, its range, and what help says of it.
 *
 *   TEXT    given once            WHOLE, REAL   a number in its range, given once
 *   EACH    may be given again    OUT           a file that is written; "-" is stdout
 */
#include "cli/cli.h"

// clang-format off
#define TEXT(name, value, doc) {name, value, doc, NULL, NULL, false, false}
#define EACH(name, value, doc) {name, value, doc, NULL, NULL, true, false}
#define OUT(name, value, doc) {name, value, doc, NULL, NULL, false, true}
#define WHOLE(name, value, range, doc) {name, value, doc, range, NULL, false, false}
#define REAL(name, value, range, doc) {name, value, doc, NULL, range, false, false}
const cli_option cli_options[] = {
    OUT("-o", "FILE", "where the result goes"),
    TEXT("--dialect", "onnx|ort", "one ONNX file (default), or the folder of ONNX Runtime's training artifacts"),
    TEXT("--json", NULL, "one JSON object on stdout instead of tables"),
    EACH("--dim", "NAME=N", "size of a symbolic dimension, e.g. batch=8"),
    EACH("--shape", "INPUT:AxBxC", "shape of an input, e.g. x:1x3x224x224"),
    EACH("--pass", "NAME:OPT=V,...", "a pass to run, in this order; `ebb help passes`"),
    TEXT("--loss", "KIND:OPT=V,...", "cross-entropy, mse, l1, bce-logits; or name=OUTPUT for one that is there"),
    TEXT("--optimizer", "KIND:OPT=V,...", "adamw (default), momentum, sgd, none (gradients stay outputs)"),
    EACH("--train", "GLOB", "train the parameters whose names match"),
    EACH("--freeze", "GLOB", "do not train those that match"),
    TEXT("--straight-through", NULL, "let gradients pass through Round, Sign, QuantizeLinear ...: train a quantised model"),
    TEXT("--dropout", "on|off|P", "dropout: as exported (on), removed (off), or this ratio"),
    TEXT("--precision", "bf16|fp16", "compute in 16 bits, parameters in float32: the pass precision"),
    TEXT("--batch-norm", "train|frozen", "batch norm by the batch's statistics, or by the running ones"),
    TEXT("--init", NULL, "draw weights by the model's own initialization graph"),
    TEXT("--weights", "FILE", "take weights from a safetensors file"),
    WHOLE("--seed", "N", "[0, inf)", "seed of dropout, shuffling and --init (default 0)"),
    TEXT("--backend", "NAME", "cpu (default: oneDNN, then plain), plain, or cuda"),
    TEXT("--device", "NAME", "plan for a described device that need not be here: h100, a100 ...; `ebb devices`"),
    TEXT("--tf32", NULL, "let the GPU compute float32 products by TF32 (10 bits of fraction)"),
    WHOLE("--threads", "N", "[0, 4096]", "threads of the run, which a budget is kept for (default: OMP_NUM_THREADS, or all processors)"),
    TEXT("--deterministic", NULL, "the same bits for every number of threads; slower"),
    TEXT("--trust", NULL, "plan nodes whose work is out of proportion to the file, too"),
    TEXT("--strict", NULL, "a requested pass that applies nowhere is an error (exit 5)"),
    TEXT("--dry-run", NULL, "report, and write nothing"),
    TEXT("--print-after", "PASS", "print the graph after this pass, or after `all`"),
    TEXT("--verify-each", NULL, "check every rule of a legal graph after each pass"),
    TEXT("--costs", "FILE", "plan by measured times: what `ebb bench --calibrate` wrote"),
    TEXT("--budget", "6GiB|80%|none", "make the step fit: bytes, or a share of what it needs now"),
    TEXT("--allow", "exact|rounding|lossy", "how exact the passes must be that a budget may bring in (default exact)"),
    REAL("--plan-time", "SECONDS", "seconds (0, 1e6]", "how long to look for a plan (with --budget)"),
    TEXT("--calibrate", NULL, "measure operators; write their times to -o FILE"),
    TEXT("--sweep", "FILE", "compare models x passes as this JSON file lists them, one line each to -o FILE"),
    TEXT("--sensitivity", NULL, "measure how much each saved tensor of a step bears to be coded, for quantise:bits=mixed,measured=FILE"),
    EACH("--passes", "LIST", "compare the step with these passes to the one without"),
    TEXT("--run", NULL, "also run a step and report what was measured"),
    TEXT("--data", "FILE", "arrays: .npz, .npy, .safetensors or a test_data_set folder"),
    EACH("--map", "ARRAY=INPUT", "which array feeds which input where names differ"),
    OUT("--save", "FILE", "write all outputs to a safetensors file"),
    WHOLE("--batch", "N", "[1, 2147483647]", "rows in a step (default 32)"),
    WHOLE("--epochs", "N", "[1, 1000000000]", "times through the data (default 1)"),
    WHOLE("--steps", "N", "[1, 1000000000]", "stop after this many steps; bench, diff: how many to time"),
    TEXT("--no-shuffle", NULL, "take rows in the order of the file"),
    TEXT("--repeat-batch", NULL, "train on the first batch again and again (a check that the loss falls)"),
    OUT("--checkpoint", "FILE", "write the state here at the end, atomically"),
    OUT("--save-checkpoint", "FILE", "the trained state as the `checkpoint` of ONNX Runtime's training artifacts"),
    WHOLE("--every", "N", "[1, inf)", "also write the checkpoint every N steps"),
    TEXT("--resume", "FILE", "go on from a checkpoint"),
    OUT("--save-model", "FILE", "the exported model with trained weights, nothing else changed"),
    OUT("--save-adapter", "FILE", "what pass lora trained, by itself (safetensors as PEFT has them)"),
    TEXT("--eval", "FILE", "at the end, loss and accuracy on these arrays: dropout off, running statistics"),
    EACH("--eval-map", "ARRAY=INPUT", "which of them feeds which input (default: --map)"),
    TEXT("--on-nan", "stop|warn", "what to do when the loss is not a number (default stop)"),
    TEXT("--node", "NAME", "show one node"),
    TEXT("--text", NULL, "the graph in ONNX text syntax"),
    TEXT("--profile", NULL, "time spent by operator"),
    WHOLE("--capacity", "BYTES", "bytes [1, inf)", "what must not be exceeded; without it: as low as can be"),
    REAL("--time", "SECONDS", "seconds (0, 1e9]", "search at most so long (default 5)"),
    TEXT("--function", "NAME", "gelu, gelu-tanh, silu, mish, hardswish, softplus, softsign, erf, atan, elu, tanh, sigmoid"),
    REAL("--alpha", "A", "(0, 1e6]", "of silu, x sigmoid(A x), and elu (default 1)"),
    WHOLE("--bits", "N", "[1, 4]", "of a level (default 3)"),
    TEXT("--weight", "flat|normal", "best on the whole line (default), or where x is N(0, 1)"),
    TEXT("--fails", "WHAT", "reduce: types, check, grad, rewrite, plan, run or nan (an output that is not finite)"),
    TEXT("--match", "TEXT", "reduce: what is said where it fails must contain this"),
    TEXT("--exit", "N|crash|timeout", "reduce: how COMMAND ends where a model is of interest (default 0)"),
    WHOLE("--timeout", "SECONDS", "seconds [1, 1000000]", "reduce: how long COMMAND may take for one model (default 60)"),
    WHOLE("--tests", "N", "[1, inf)", "reduce: stop after so many"),
    TEXT("--", "COMMAND...", "reduce: the test; {} is a candidate's file, which else is the last argument"),
    WHOLE("--align", "BYTES", "bytes [1, 1073741824]", "offsets are multiples of this (default 1)"),
};
const int cli_option_count = (int)(sizeof cli_options / sizeof cli_options[0]);
// clang-format on
