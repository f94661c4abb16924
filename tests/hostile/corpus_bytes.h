/* corpus_bytes.h: the files of the corpus that are protobuf by hand. Part of corpus.h. */

/* ---- graphs that cannot be ---- */

static inline void make_cycle(bytes *b)
{
    put_node(b, "Relu", "first", NAMES("b"), NAMES("a"));
    put_node(b, "Relu", "second", NAMES("a"), NAMES("b"));
    put_value(b, 12, "b", DIMS(1));
}

static inline void make_no_producer(bytes *b)
{
    put_node(b, "Relu", "r", NAMES("nobody"), NAMES("y"));
}

static inline void make_no_output(bytes *b)
{
    put_value(b, 12, "y", DIMS(1));
}

static inline void make_two_producers(bytes *b)
{
    put_node(b, "Relu", "r1", NAMES("x"), NAMES("y"));
    put_node(b, "Relu", "r2", NAMES("x"), NAMES("y"));
    put_value(b, 11, "x", DIMS(1));
}

static inline void make_makes_an_input(bytes *b)
{
    put_node(b, "Relu", "r", NAMES("x"), NAMES("x"));
    put_value(b, 11, "x", DIMS(1));
}

static inline void make_input_twice(bytes *b)
{
    put_value(b, 11, "x", DIMS(1));
    put_value(b, 11, "x", DIMS(1));
}

static inline void make_initializer_twice(bytes *b)
{
    put_initializer(b, "w", DIMS(2), 8);
    put_initializer(b, "w", DIMS(2), 8);
}

static inline void make_negative_dim(bytes *b)
{
    put_initializer(b, "w", DIMS(-2), 8);
}

static inline void make_negative_input_dim(bytes *b)
{
    put_value(b, 11, "x", DIMS(-7));
}

static inline void make_overflow(bytes *b)
{
    put_initializer(b, "w", DIMS(INT64_C(1) << 32, INT64_C(1) << 32), 8);
}

static inline void make_byte_overflow(bytes *b)
{
    put_initializer(b, "w", DIMS(INT64_C(1) << 62), 8);
}

static inline void make_rank_13(bytes *b)
{
    put_initializer(b, "w", DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 4);
}

static inline void make_rank_13_input(bytes *b)
{
    put_value(b, 11, "x", DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

static inline void make_raw_too_short(bytes *b)
{
    put_initializer(b, "w", DIMS(3), 8);
}

static inline void make_raw_too_long(bytes *b)
{
    put_initializer(b, "w", DIMS(3), 16);
}

static inline void make_floats_too_few(bytes *b)
{
    size_t tensor = open_initializer(b, DIMS(3));
    put_blob(b, 4, "\0\0\0\0\0\0\0", 8);
    put_text(b, 8, "w");
    close_message(b, tensor);
}

static inline void make_no_data(bytes *b)
{
    size_t tensor = open_initializer(b, DIMS(1000000));
    put_text(b, 8, "w");
    close_message(b, tensor);
}

static inline void make_no_operator(bytes *b)
{
    put_node(b, "", "n", NAMES("x"), NAMES("y"));
    put_value(b, 11, "x", DIMS(1));
}

static inline void make_nameless_attribute(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5);
    put_int(b, 3, 1);
    close_message(b, attribute);
    close_message(b, node);
}

static inline void make_attribute_without_tensor(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5);
    put_text(b, 1, "value");
    put_int(b, 20, 4);
    close_message(b, attribute);
    close_message(b, node);
}

static inline void make_wrong_attribute_tensor(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 2, "y");
    put_text(b, 3, "c");
    put_text(b, 4, "Constant");
    size_t attribute = open_message(b, 5), tensor;
    put_text(b, 1, "value");
    tensor = open_message(b, 5);
    put_int(b, 1, 5);
    put_int(b, 2, 1);
    put_blob(b, 9, "12345678", 8);
    close_message(b, tensor);
    put_int(b, 20, 4);
    close_message(b, attribute);
    close_message(b, node);
}

/* An If whose branch reads what only a later node makes. */
static inline void make_captured_too_early(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 3, "branch");
    put_text(b, 4, "If");
    size_t attribute = open_message(b, 5), graph;
    put_text(b, 1, "then_branch");
    graph = open_message(b, 6);
    put_node(b, "Relu", "inner", NAMES("later"), NAMES("z"));
    put_value(b, 12, "z", DIMS(1));
    close_message(b, graph);
    put_int(b, 20, 5);
    close_message(b, attribute);
    close_message(b, node);
    put_node(b, "Relu", "outer", NAMES("x"), NAMES("later"));
    put_value(b, 11, "x", DIMS(1));
}

static inline void make_bad_in_place(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 3, "n");
    put_text(b, 4, "Relu");
    put_entry(b, 9, "ebb.inplace", "0:9");
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
}

/* Its second output is absent, and written over its input. */
static inline void make_in_place_absent(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 2, "");
    put_text(b, 3, "n");
    put_text(b, 4, "Dropout");
    put_entry(b, 9, "ebb.inplace", "1:0");
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
}

/* ---- external data ---- */

static inline void make_external_absolute(bytes *b)
{
    put_external(b, "w", 4, "/etc/passwd", "0", "16");
}

static inline void make_external_up(bytes *b)
{
    put_external(b, "w", 4, "a/../../w.bin", "0", "16");
}

static inline void make_external_link(bytes *b)
{
    put_external(b, "w", 1, "link", "0", "4");
}

static inline void make_external_empty(bytes *b)
{
    put_external(b, "w", 4, "", "0", "16");
}

static inline void make_external_past_the_end(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "56", "16");
}

static inline void make_external_far_away(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "18446744073709551615", "16");
}

static inline void make_external_other_length(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "0", "12");
}

static inline void make_external_no_number(bytes *b)
{
    put_external(b, "w", 4, "w.bin", "-1", "16");
}

static inline void make_external_folder(bytes *b)
{
    put_external(b, "w", 4, ".", "0", "16");
}

/* A type inside a type inside a type ... */
static inline void make_deep_type(bytes *b)
{
    size_t open[200], depth = 0, value = open_message(b, 11);
    put_text(b, 1, "x");
    open[depth++] = open_message(b, 2);
    while (depth + 2 < 150) {
        open[depth++] = open_message(b, 4);
        open[depth++] = open_message(b, 1);
    }
    while (depth > 0)
        close_message(b, open[--depth]);
    close_message(b, value);
}

#define EXTERNAL(name, location, offset, length)           \
    static inline void make_external_##name(bytes *b)      \
    {                                                      \
        put_external(b, "w", 4, location, offset, length); \
    }
EXTERNAL(parent, "../w.bin", "0", "16")
EXTERNAL(parent_in_between, "folder/../w.bin", "0", "16")
EXTERNAL(folder_link, "folder_link/hostname", NULL, NULL)
EXTERNAL(loop, "loop", "0", "16")
EXTERNAL(backslash, "..\\w.bin", "0", "16")
EXTERNAL(share, "\\\\server\\w.bin", "0", "16")
EXTERNAL(drive, "C:\\w.bin", "0", "16")
EXTERNAL(memory, "/proc/self/mem", "0", "16")
EXTERNAL(device, "/dev/zero", "0", "16")
EXTERNAL(pipe, "pipe", "0", "16")
EXTERNAL(inner_folder, "folder", "0", "16")
EXTERNAL(hard, "hard", "0", "16")
EXTERNAL(petabyte, "w.bin", "0", "1125899906842624")
EXTERNAL(wraps, "w.bin", "18446744073709551600", "16")
EXTERNAL(number_too_long, "w.bin", "99999999999999999999999", "16")
EXTERNAL(hexadecimal, "w.bin", "0x10", "16")

/* ONNX Runtime's mark for a pointer in the file: to us the name of a file that is not there. */
static inline void make_external_pointer(bytes *b)
{
    put_external(b, "w", 4, "*/_ORT_MEM_ADDR_/*", "140737488347136", "16");
    put_node(b, "Relu", "r", NAMES("w"), NAMES("y"));
    put_value(b, 12, "y", DIMS(4));
}

static inline void make_external_long(bytes *b)
{
    static char name[5001];
    memset(name, 'a', 5000);
    put_external(b, "w", 4, name, "0", "16");
}

static inline void make_external_nameless(bytes *b)
{
    size_t tensor = open_initializer(b, DIMS(4));
    put_text(b, 8, "w");
    put_entry(b, 13, "offset", "0");
    put_int(b, 14, 1);
    close_message(b, tensor);
}

static inline void make_itself(bytes *b)
{
    put_node(b, "Relu", "r", NAMES("y"), NAMES("y"));
}

/* If in If in If ..., and a list of names that ends far away. */
static inline void make_deep_bodies(bytes *b)
{
    size_t open[200], depth = 0;
    while (depth + 3 < 150) {
        open[depth++] = open_message(b, 1);
        put_text(b, 4, "If");
        open[depth++] = open_message(b, 5);
        put_text(b, 1, "then_branch");
        open[depth++] = open_message(b, 6);
    }
    while (depth > 0)
        close_message(b, open[--depth]);
}

static inline void make_unknown_dtype(bytes *b)
{
    size_t tensor = open_message(b, 5);
    put_int(b, 1, 4);
    put_int(b, 2, 77);
    put_text(b, 8, "w");
    put_blob(b, 9, "1234", 4);
    close_message(b, tensor);
    put_node(b, "Relu", "r", NAMES("w"), NAMES("y"));
    put_value(b, 12, "y", DIMS(4));
}

static inline void make_rank_1000(bytes *b)
{
    size_t tensor = open_message(b, 5);
    for (int i = 0; i < 1000; i++)
        put_int(b, 1, 1);
    put_int(b, 2, 1);
    put_text(b, 8, "w");
    put_blob(b, 9, "1234", 4);
    close_message(b, tensor);
}

static inline void make_many_attributes(bytes *b)
{
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 3, "r");
    put_text(b, 4, "Relu");
    for (int i = 0; i < 65; i++) {
        size_t attribute = open_message(b, 5);
        put_text(b, 1, formatted("a%d", i));
        put_int(b, 3, 1);
        put_int(b, 20, 2);
        close_message(b, attribute);
    }
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
    put_value(b, 12, "y", DIMS(1));
}

/* Negative zeros of the wire: a dim of -1 in ten bytes, in a weight that has bytes. */
static inline void make_zero_by_huge(bytes *b)
{
    put_initializer(b, "w", DIMS(INT64_C(1) << 62, INT64_C(1) << 62, 0), 0);
}

/* Escape sequences in a name would steer the terminal that the sentence is printed on. */
static inline void make_escapes(bytes *b)
{
    put_node(b, "Relu", "\x1b[2J\x1b[31m", NAMES("nobody\x07"), NAMES("y"));
}

/* A training step whose bindings lead nowhere: training_info is field 20 of the model. */
static inline void put_step(bytes *b, const char *state, const char *next)
{
    size_t graph = open_model(b);
    put_node(b, "Add", "a", NAMES("x", "w"), NAMES("y"));
    put_initializer(b, "w", DIMS(2), 8);
    put_value(b, 11, "x", DIMS(2));
    put_value(b, 12, "y", DIMS(2));
    close_model(b, graph);
    size_t training = open_message(b, 20);
    put_entry(b, 4, state, next);
    close_message(b, training);
}

static inline void make_binding_of_nothing(bytes *b)
{
    put_step(b, "nobody", "y");
}

static inline void make_binding_to_nothing(bytes *b)
{
    put_step(b, "w", "nobody");
}

static inline void make_binding_of_an_input(bytes *b)
{
    put_step(b, "x", "y");
}

/* A list in a list in a list ...: a recursive parser of JSON would need a deep stack. */
static inline void make_deep_json(bytes *b)
{
    enum { DEEP = 4000 };
    for (int i = 0; i < 8; i++)
        put_byte(b, (uint8_t)((uint64_t)(DEEP + 5) >> (8 * i)));
    put_byte(b, '{');
    put_byte(b, '"');
    put_byte(b, 'a');
    put_byte(b, '"');
    put_byte(b, ':');
    for (int i = 0; i < DEEP; i++)
        put_byte(b, '[');
}

/* A function that calls itself. */
static inline void make_recursion(bytes *b)
{
    put_int(b, 1, 10);
    size_t graph = open_message(b, 7);
    size_t node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 4, "F");
    put_text(b, 7, "local");
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
    put_value(b, 12, "y", DIMS(1));
    close_message(b, graph);
    for (int k = 0; k < 2; k++) {
        size_t import = open_message(b, 8);
        put_text(b, 1, k == 0 ? "" : "local");
        put_int(b, 2, k == 0 ? 17 : 1);
        close_message(b, import);
    }
    size_t function = open_message(b, 25);
    put_text(b, 1, "F");
    put_text(b, 4, "a");
    put_text(b, 5, "b");
    node = open_message(b, 7);
    put_text(b, 1, "a");
    put_text(b, 2, "b");
    put_text(b, 4, "F");
    put_text(b, 7, "local");
    close_message(b, node);
    put_text(b, 10, "local");
    close_message(b, function);
}

/* F0 calls F1 ten times, which calls F2 ten times ...: ten to the twelfth nodes in two kilobytes.
 */
static inline void make_explosion(bytes *b)
{
    enum { LEVELS = 12, CALLS = 10 };
    put_int(b, 1, 10);
    size_t graph = open_message(b, 7), node;
    node = open_message(b, 1);
    put_text(b, 1, "x");
    put_text(b, 2, "y");
    put_text(b, 4, "F0");
    put_text(b, 7, "local");
    close_message(b, node);
    put_value(b, 11, "x", DIMS(1));
    put_value(b, 12, "y", DIMS(1));
    close_message(b, graph);
    for (int k = 0; k < 2; k++) {
        size_t import = open_message(b, 8);
        put_text(b, 1, k == 0 ? "" : "local");
        put_int(b, 2, k == 0 ? 17 : 1);
        close_message(b, import);
    }
    for (int level = 0; level < LEVELS; level++) {
        char own[16], called[16], from[16], to[16];
        (void)snprintf(own, sizeof own, "F%d", level);
        (void)snprintf(called, sizeof called, "F%d", level + 1);
        size_t function = open_message(b, 25);
        put_text(b, 1, own);
        put_text(b, 4, "v0");
        put_text(b, 5, "v10");
        for (int k = 0; k < CALLS; k++) {
            (void)snprintf(from, sizeof from, "v%d", k);
            (void)snprintf(to, sizeof to, "v%d", k + 1);
            node = open_message(b, 7);
            put_text(b, 1, from);
            put_text(b, 2, to);
            put_text(b, 4, level + 1 < LEVELS ? called : "Relu");
            put_text(b, 7, level + 1 < LEVELS ? "local" : "");
            close_message(b, node);
        }
        put_text(b, 10, "local");
        close_message(b, function);
    }
}

#define CHECKED(kind, file, sentence, ...)                                               \
    {                                                                                    \
        .class = kind, .name = file ".onnx", .command = "check %", .code = EBB_REJECTED, \
        .says = sentence, __VA_ARGS__                                                    \
    }

// clang-format off
static const hostile_file corpus_bytes[] = {
    CHECKED("cycle", "cycle", "cycle", .make = make_cycle),
    CHECKED("graph", "no_producer", "Relu 'r' reads 'nobody'", .make = make_no_producer),
    CHECKED("graph", "no_output", "output 'y' is made by no node", .make = make_no_output),
    CHECKED("graph", "two_producers", "Relu 'r2' makes 'y', which is a node's output already", .make = make_two_producers),
    CHECKED("graph", "makes_an_input", "Relu 'r' makes 'x', which is an input already", .make = make_makes_an_input),
    CHECKED("graph", "input_twice", "input 'x' is there twice", .make = make_input_twice),
    CHECKED("graph", "initializer_twice", "initializer 'w' is there twice", .make = make_initializer_twice),
    CHECKED("size", "negative_dim", "initializer 'w': dim 0 is negative (-2)", .make = make_negative_dim),
    CHECKED("size", "negative_input_dim", "input 'x': dim 0 is -7", .make = make_negative_input_dim),
    CHECKED("size", "overflow", "initializer 'w': the product of its dims is too large", .make = make_overflow),
    CHECKED("size", "byte_overflow", "initializer 'w': the product of its dims is too large", .make = make_byte_overflow),
    CHECKED("size", "rank_13", "initializer 'w': rank 13", .make = make_rank_13),
    CHECKED("size", "rank_13_input", "input 'x': rank 13", .make = make_rank_13_input),
    CHECKED("size", "raw_too_short", "initializer 'w': has 8 bytes where its shape wants 12", .make = make_raw_too_short),
    CHECKED("size", "raw_too_long", "initializer 'w': has 16 bytes where its shape wants 12", .make = make_raw_too_long),
    CHECKED("size", "floats_too_few", "initializer 'w': has 2 numbers where its shape wants 3", .make = make_floats_too_few),
    CHECKED("size", "no_data", "initializer 'w': has 0 numbers where its shape wants 1000000", .make = make_no_data),
    CHECKED("graph", "no_operator", "'n' has no operator", .make = make_no_operator),
    CHECKED("graph", "nameless_attribute", "Constant 'n': an attribute has no name", .make = make_nameless_attribute),
    CHECKED("graph", "attribute_without_tensor", "Constant 'n': attribute 'value': holds no tensor", .make = make_attribute_without_tensor),
    CHECKED("graph", "wrong_attribute_tensor", "Constant 'c': attribute 'value': has 8 bytes", .make = make_wrong_attribute_tensor),
    CHECKED("cycle", "captured_too_early", "If 'branch' reads 'later' in a subgraph before it is made", .make = make_captured_too_early),
    CHECKED("graph", "bad_in_place", "Relu 'n': metadata ebb.inplace", .make = make_bad_in_place),
    CHECKED("graph", "in_place_absent", "Dropout 'n': output 1 is absent, and written over input 0",
            .make = make_in_place_absent),
    CHECKED("external data", "external_absolute", "initializer 'w': external data location '/etc/passwd'", .make = make_external_absolute),
    CHECKED("external data", "external_up", "initializer 'w': external data location 'a/../../w.bin' leads out", .make = make_external_up),
    CHECKED("external data", "external_link", "initializer 'w': external data location 'link' leads out", .make = make_external_link),
    CHECKED("external data", "external_empty", "initializer 'w': external data location '' is empty", .make = make_external_empty),
    CHECKED("external data", "external_past_the_end", "runs past the end of 'w.bin' (64 bytes)", .make = make_external_past_the_end),
    CHECKED("external data", "external_far_away", "runs past the end of 'w.bin' (64 bytes)", .make = make_external_far_away),
    CHECKED("external data", "external_other_length", "external data has 12 bytes where its shape wants 16", .make = make_external_other_length),
    CHECKED("external data", "external_no_number", "external data offset '-1' is not a number", .make = make_external_no_number),
    {"external data", "external_folder.onnx", "check %", EBB_IO, "not a regular file", .make = make_external_folder},
    CHECKED("external data", "external_parent", "'../w.bin' leads out of the model's folder", .make = make_external_parent),
    CHECKED("external data", "external_parent_in_between", "'folder/../w.bin' leads out of the model's folder", .make = make_external_parent_in_between),
    CHECKED("external data", "external_folder_link", "'folder_link/hostname' leads out of the model's folder", .make = make_external_folder_link),
    {"external data", "external_loop.onnx", "check %", EBB_IO, "loop: resolving external data", .make = make_external_loop},
    CHECKED("external data", "external_backslash", "holds a backslash", .make = make_external_backslash),
    CHECKED("external data", "external_share", "holds a backslash", .make = make_external_share),
    CHECKED("external data", "external_drive", "holds a backslash", .make = make_external_drive),
    CHECKED("external data", "external_memory", "'/proc/self/mem' is an absolute path", .make = make_external_memory),
    CHECKED("external data", "external_device", "'/dev/zero' is an absolute path", .make = make_external_device),
    {"external data", "external_pipe.onnx", "check %", EBB_IO, "pipe: not a regular file", .make = make_external_pipe},
    {"external data", "external_inner_folder.onnx", "check %", EBB_IO, "folder: not a regular file", .make = make_external_inner_folder},
    CHECKED("external data", "external_hard", "'hard' is a hard link", .make = make_external_hard),
    CHECKED("external data", "external_petabyte", "external data has 1125899906842624 bytes where its shape wants 16", .make = make_external_petabyte),
    CHECKED("external data", "external_wraps", "runs past the end of 'w.bin' (64 bytes)", .make = make_external_wraps),
    CHECKED("external data", "external_number_too_long", "offset '99999999999999999999999' is not a number", .make = make_external_number_too_long),
    CHECKED("external data", "external_hexadecimal", "offset '0x10' is not a number", .make = make_external_hexadecimal),
    CHECKED("external data", "external_long", "is too long", .make = make_external_long),
    CHECKED("external data", "external_nameless", "is external but names no file", .make = make_external_nameless),
    {"in-band pointer", "external_pointer.onnx", "run % --data none.safetensors", EBB_RUNTIME, "'w'", .make = make_external_pointer},
    CHECKED("cycle", "itself", "cycle", .make = make_itself),
    CHECKED("nesting", "deep_bodies", "nested too deeply", .make = make_deep_bodies),
    {"size", "unknown_dtype.onnx", "plan %", EBB_REJECTED, "'w'", .make = make_unknown_dtype},
    CHECKED("size", "rank_1000", "rank 1000 is above", .make = make_rank_1000),
    CHECKED("size", "zero_by_huge", "the product of its dims is too large", .make = make_zero_by_huge),
    CHECKED("attribute", "many_attributes", "Relu 'r': has 65 attributes", .make = make_many_attributes),
    CHECKED("output", "escapes", "Relu '?[2J?[31m' reads 'nobody?'", .make = make_escapes),
    CHECKED("binding", "binding_of_nothing", "'nobody'", .make_model = make_binding_of_nothing),
    CHECKED("binding", "binding_to_nothing", "'nobody'", .make_model = make_binding_to_nothing),
    CHECKED("binding", "binding_of_an_input", "'x'", .make_model = make_binding_of_an_input),
    {"nesting", "recursion.onnx", "rewrite % --pass inline -o out", EBB_REJECTED, "function 'F' calls itself", .make_model = make_recursion},
    {"nesting", "explosion.onnx", "rewrite % --pass inline -o out", EBB_REJECTED, "unfold to more than 1048576 nodes", .make_model = make_explosion},
    CHECKED("protobuf", "deep_type", "nested too deeply", .make = make_deep_type),
    CHECKED("protobuf", "empty", "no graph", .data = (const uint8_t[]){0}, .count = 0),
    CHECKED("protobuf", "graph_cut", "byte 1: graph: length runs past", BYTES(0x3a, 0x05, 0x12)),
    CHECKED("protobuf", "varint_cut", "byte 1: ir_version: a number runs past its parent", BYTES(0x08, 0x80)),
    CHECKED("protobuf", "varint_65_bits", "ir_version: a number has more than 64 bits", BYTES(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)),
    CHECKED("protobuf", "graph_as_number", "byte 0: graph: the wire type", BYTES(0x38, 0x01)),
    CHECKED("protobuf", "version_as_text", "byte 0: ir_version: the wire type", BYTES(0x0a, 0x00)),
    CHECKED("protobuf", "version_as_fixed", "byte 0: ir_version: the wire type", BYTES(0x0d, 0, 0, 0, 0)),
    CHECKED("protobuf", "group_begins", "groups", BYTES(0x0b, 0x0c)),
    CHECKED("protobuf", "group_ends", "groups", BYTES(0x0c)),
    CHECKED("protobuf", "wire_type_7", "no such wire type", BYTES(0x0f)),
    CHECKED("protobuf", "field_0", "no field has this number", BYTES(0x00, 0x00)),
    CHECKED("protobuf", "graph_twice", "graph: is given twice", BYTES(0x3a, 0x00, 0x3a, 0x00)),
    CHECKED("protobuf", "zero_in_text", "producer_name: text holds a zero byte", BYTES(0x12, 0x02, 'a', 0x00)),
    CHECKED("protobuf", "name_past_graph", "graph.name: length runs past its parent", BYTES(0x3a, 0x03, 0x12, 0x7f, 'g')),
    CHECKED("protobuf", "node_past_graph", "graph.node[1]: length runs past", BYTES(0x3a, 0x04, 0x0a, 0x00, 0x0a, 0x01)),
    CHECKED("protobuf", "packed_dims_cut", "dims[0]: a number runs past", BYTES(0x3a, 0x05, 0x2a, 0x03, 0x0a, 0x01, 0x80)),
    CHECKED("protobuf", "packed_floats_cut", "float_data[0]: a packed list ends inside an element", BYTES(0x3a, 0x07, 0x2a, 0x05, 0x22, 0x03, 0, 0, 0)),
    CHECKED("protobuf", "unknown_past_end", "(field 99): length runs past", BYTES(0x9a, 0x06, 0x09)),
    CHECKED("protobuf", "unknown_fixed_cut", "(field 99): a number runs past", BYTES(0x99, 0x06, 0x09)),
};
// clang-format on
