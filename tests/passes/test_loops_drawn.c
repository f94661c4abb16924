/* test_loops_drawn.c: loops that are drawn: any number of states, scanned inputs and outputs along any axis
 * in either direction, values read from outside, loops within. Kept they are what their copies are, and their gradients
 * are those of differences; and a Scan of an LSTM's or a GRU's cell has the gradients of the operator. */
#include "tests/formatted.h"
#include "tests/passes/loops.h"

/* ---- drawing ---- */

typedef struct drawing {
    uint64_t state;
    char text[8192];
    size_t length;
    int values; /* of the body so far */
    bool nests; /* bodies have loops within */
} drawing;

static unsigned draw(drawing *d, unsigned below)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((d->state >> 33) % below);
}

static void put(drawing *d, const char *format, ...) EBB_PRINTF(2, 3);
static void put(drawing *d, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int count = vsnprintf(d->text + d->length, sizeof d->text - d->length, format, args);
    va_end(args);
    assert_true(count >= 0 && d->length + (size_t)count < sizeof d->text);
    d->length += (size_t)count;
}

/* Every value of a body is double[2,3], so that anything goes with anything. */
enum { ROWS = 2, COLUMNS = 3, STEPS_MOST = 6 };

static void put_whole(drawing *d, const char *name, unsigned axis, unsigned steps)
{
    put(d, "double[%u,%u,%u] %s", axis == 0 ? steps : ROWS,
        axis == 0   ? (unsigned)ROWS
        : axis == 1 ? steps
                    : (unsigned)COLUMNS,
        axis == 2 ? steps : COLUMNS, name);
}

static void put_list(drawing *d, const char *name, const unsigned *list, unsigned count)
{
    put(d, ", %s = [", name);
    for (unsigned i = 0; i < count; i++)
        put(d, "%s%u", i > 0 ? ", " : "", list[i]);
    put(d, "]");
}

static const char *operand(drawing *d)
{
    static char names[4][16];
    static unsigned next;
    char *name = names[next++ % 4];
    if (draw(d, 4) == 0)
        (void)snprintf(name, 16, draw(d, 2) == 0 ? "u" : "w");
    else
        (void)snprintf(name, 16, "v%u", draw(d, (unsigned)d->values));
    return name;
}

static const char *const unary[] = {"Tanh", "Sin", "Sigmoid", "Neg", "Cos", "Softsign"},
                         *const binary[] = {"Add", "Sub", "Mul"};

/* One of `count` values of the loop within, or one of the body around. */
static const char *operand_within(drawing *d, unsigned count)
{
    static char name[2][16];
    static unsigned next;
    if (draw(d, 3) == 0)
        return operand(d);
    char *own = name[next++ % 2];
    (void)snprintf(own, 16, "i%d_%u", d->values, draw(d, count));
    return own;
}

/* A loop over two or three values of the body, from one of them: its end, and the mean of what it makes. */
static void put_loop(drawing *d)
{
    const int v = d->values;
    const unsigned steps = 2 + draw(d, 2), back = draw(d, 2), out_back = draw(d, 2),
                   nodes = 2 + draw(d, 3);
    for (unsigned i = 0; i < steps; i++)
        put(d, "      q%d_%u = Unsqueeze (%s, z0)\n", v, i, operand(d));
    put(d, "      x%d = Concat <axis = 0> (", v);
    for (unsigned i = 0; i < steps; i++)
        put(d, "%sq%d_%u", i > 0 ? ", " : "", v, i);
    put(d,
        ")\n      e%d, o%d = Scan <num_scan_inputs = 1, scan_input_directions = [%u], "
        "scan_output_directions = [%u],"
        " body = w%d (double[2,3] i%d_0, double[2,3] i%d_1) => (double[2,3] i%d_%u, double[2,3] "
        "i%d_%u) {\n",
        v, v, back, out_back, v, v, v, v, 1 + nodes, v, 2 + draw(d, nodes - 1));
    for (unsigned k = 2; k < 2 + nodes; k++) {
        if (draw(d, 2) == 0)
            put(d, "         i%d_%u = %s (%s)\n", v, k, unary[draw(d, 6)], operand_within(d, k));
        else
            put(d, "         i%d_%u = %s (%s, %s)\n", v, k, binary[draw(d, 3)],
                operand_within(d, k), operand_within(d, k));
    }
    put(d, "      }> (%s, x%d)\n", operand(d), v);
    put(d, "      r%d = ReduceMean <keepdims = 0> (o%d, z0)\n", v, v);
    put(d, "      v%d = Add (e%d, r%d)\n", v, v, v);
    d->values++;
}

static void put_node(drawing *d)
{
    if (d->nests && draw(d, 3) == 0) {
        put_loop(d);
        return;
    }
    switch (draw(d, 4)) {
    case 0:
        put(d, "      v%d = MatMul (%s, m)\n", d->values, operand(d));
        break;
    case 1:
        put(d, "      v%d = %s (%s)\n", d->values, unary[draw(d, 6)], operand(d));
        break;
    case 2: // of rows, and back by broadcasting
        put(d, "      s%d = ReduceMean <keepdims = 1> (%s, ax)\n", d->values, operand(d));
        put(d, "      v%d = Mul (s%d, %s)\n", d->values, d->values, operand(d));
        break;
    default:
        put(d, "      v%d = %s (%s, %s)\n", d->values, binary[draw(d, 3)], operand(d), operand(d));
    }
    d->values++;
}

static void put_weights(drawing *d)
{
    static const char *const names[] = {"w", "u", "m"};
    put(d, "<int64[1] ax = {-1}, int64[1] z0 = {0}");
    for (unsigned i = 0; i < 3; i++) {
        unsigned count = i == 2 ? COLUMNS * COLUMNS : ROWS * COLUMNS;
        put(d, ", double[%u,3] %s = {", i == 2 ? COLUMNS : ROWS, names[i]);
        for (unsigned k = 0; k < count; k++)
            put(d, "%s%.4f", k > 0 ? ", " : "", (double)draw(d, 10000) / 5000.0 - 1);
        put(d, "}");
    }
    put(d, ">\n");
}

/* y is the sum of a state's end and of what is put together, so that gradients come from both. */
static void draw_loop(drawing *d, uint64_t seed, bool nests)
{
    *d = (drawing){.state = seed * 77 + 5, .nests = nests};
    const unsigned states = 1 + draw(d, 3), inputs = 1 + draw(d, 3), outputs = 1 + draw(d, 2),
                   steps = 2 + draw(d, STEPS_MOST - 1), nodes = 3 + draw(d, 6);
    unsigned in_axes[3], in_back[3], out_axes[2], out_back[2];
    for (unsigned i = 0; i < 3; i++) {
        in_axes[i] = draw(d, 3);
        in_back[i] = draw(d, 2);
        out_axes[i % 2] = draw(d, 3);
        out_back[i % 2] = draw(d, 2);
    }
    put(d, HEAD "g (double[2,3] h0");
    for (unsigned i = 0; i < inputs; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%u", i);
        put(d, ", ");
        put_whole(d, name, in_axes[i], steps);
    }
    put(d, ") => (double[2,3] y)\n");
    put_weights(d);
    put(d, "{\n");
    for (unsigned i = 0; i < states; i++)
        put(d, "%se%u", i > 0 ? ", " : "   ", i);
    for (unsigned k = 0; k < outputs; k++)
        put(d, ", o%u", k);
    put(d, " = Scan <num_scan_inputs = %u", inputs);
    put_list(d, "scan_input_axes", in_axes, inputs);
    put_list(d, "scan_input_directions", in_back, inputs);
    put_list(d, "scan_output_axes", out_axes, outputs);
    put_list(d, "scan_output_directions", out_back, outputs);
    put(d, ", body = b (");
    for (unsigned i = 0; i < states + inputs; i++)
        put(d, "%sdouble[2,3] v%u", i > 0 ? ", " : "", i);
    d->values = (int)(states + inputs);
    put(d, ") => (");
    const unsigned last = (unsigned)d->values + nodes;
    bool taken[16] = {false};
    for (unsigned i = 0; i < states + outputs; i++) { // any value, one that is given too
        unsigned v = i == 0 || draw(d, 3) > 0 ? last - 1 - draw(d, nodes) : draw(d, last);
        while (taken[v])
            v = (v + 1) % last;
        taken[v] = true;
        put(d, "%sdouble[2,3] v%u", i > 0 ? ", " : "", v);
    }
    put(d, ") {\n");
    while ((unsigned)d->values < last)
        put_node(d);
    put(d, "   }> (");
    for (unsigned i = 0; i < states; i++)
        put(d, "%s%s", i > 0 ? ", " : "", draw(d, 2) == 0 ? "h0" : "w");
    for (unsigned i = 0; i < inputs; i++)
        put(d, ", x%u", i);
    put(d, ")\n   y0 = Identity (e0)\n");
    for (unsigned k = 0; k < outputs; k++) {
        put(d, "   ax%u = Constant <value = int64[1] {%u}> ()\n", k, out_axes[k]);
        put(d, "   r%u = ReduceMean <keepdims = 0> (o%u, ax%u)\n", k, k, k);
        put(d, "   y%u = Add (y%u, r%u)\n", k + 1, k, k);
    }
    put(d, "   y = Tanh (y%u)\n}\n", outputs);
}

TEST(drawn_loops_are_what_their_copies_are)
{
    drawing d;
    for (uint64_t seed = 0; seed < 100; seed++) {
        draw_loop(&d, seed, seed >= 60);
        if (getenv("EBB_SHOW") != NULL)
            print_message("%s\n", d.text);
        same_kept_and_unrolled(d.text, ",alias", 1, &plain, 1e-12);
    }
}

static const char trained[] =
    ",loss:mse,gradient:train=\"w u m\",partial=allow,optimizer:sgd,drop-saves,stream,alias";

/* Whether the loop reads a weight at all; else there is nothing to differentiate. */
static bool learns(const char *text)
{
    ran r;
    ebb_status status = prepare(&r, text, formatted("opset,inline,fold,unroll%s", trained));
    finish(&r);
    return status == NULL;
}

TEST(gradients_of_drawn_loops_are_those_of_their_copies)
{
    drawing d;
    size_t count = 0;
    for (uint64_t seed = 100; seed < 200; seed++) {
        draw_loop(&d, seed, seed >= 160);
        if (!learns(d.text))
            continue;
        if (getenv("EBB_SHOW") != NULL)
            print_message("%s\n", d.text);
        same_kept_and_unrolled(d.text, trained, 0, &plain, 1e-10);
        count++;
    }
    assert_true(count >= 70);
}

/* The backward reads what the loop within has made, not that loop, nor what that one reads by name. */
TEST(a_loop_within_that_nothing_is_trained_of_stays_in_the_forward)
{
    static const char text[] =
        HEAD "g (double[2,3] h0, double[4,2,3] x0) => (double[2,3] y)\n"
             "<int64[1] z0 = {0}, double[2,3] w = {1, -2, 3, -4, 5, -6}>\n"
             "{\n"
             "   e0 = Scan <num_scan_inputs = 1, body = b (double[2,3] v0, double[2,3] v1) => "
             "(double[2,3] v4) {\n"
             "      s = Sigmoid (v1)\n"
             "      q = Unsqueeze (v1, z0)\n"
             "      x = Concat <axis = 0> (q, q)\n"
             "      e = Scan <num_scan_inputs = 1, body = c (double[2,3] i0, double[2,3] i1) => "
             "(double[2,3] i3) {\n"
             "         i2 = Add (i0, s)\n"
             "         i3 = Mul (i1, i2)\n"
             "      }> (v1, x)\n"
             "      v3 = Mul (e, w)\n"
             "      v4 = Add (v0, v3)\n"
             "   }> (h0, x0)\n"
             "   y = Tanh (e0)\n"
             "}\n";
    same_kept_and_unrolled(text, ",loss:mse,gradient,optimizer:sgd,drop-saves,stream,alias", 0,
                           &plain, 1e-10);
}

/* ---- differences ---- */

static double loss_of(ran *r)
{
    ebb_named t;
    good(step(r, &plain));
    good(ebb_program_get(r->program, ebb_program_loss_name(r->program), &t));
    return number_at(&t, 0);
}

enum { WEIGHTS_MOST = 16 };

typedef struct weights {
    double at[3][WEIGHTS_MOST], by[3][WEIGHTS_MOST];
} weights;

static const char *const weight_names[] = {"w", "u", "m"};

static void move(ran *r, const weights *w, double far)
{
    for (unsigned i = 0; i < 3; i++) {
        double now[WEIGHTS_MOST];
        ebb_named t;
        if (ebb_value_find(r->model->graph, weight_names[i]).i == 0)
            continue;
        for (unsigned k = 0; k < WEIGHTS_MOST; k++)
            now[k] = w->at[i][k] + far * w->by[i][k];
        good(ebb_program_get(r->program, weight_names[i], &t));
        t.data = now;
        good(ebb_program_set(r->program, &t));
    }
}

static double along_gradient(ran *r, const weights *w)
{
    double sum = 0;
    for (unsigned i = 0; i < 3; i++) {
        char name[16];
        ebb_named t;
        (void)snprintf(name, sizeof name, "%s_grad", weight_names[i]);
        if (ebb_value_find(r->model->graph, name).i == 0)
            continue;
        good(ebb_program_get(r->program, name, &t));
        for (unsigned k = 0; k < (i == 2 ? 9u : 6u); k++)
            sum += number_at(&t, k) * w->by[i][k];
    }
    return sum;
}

TEST(gradients_are_those_of_differences)
{
    drawing d;
    size_t count = 0;
    for (uint64_t seed = 200; count < 40 && seed < 300; seed++) {
        weights w;
        ran r;
        draw_loop(&d, seed, count >= 20);
        if (prepare(&r, d.text,
                    count % 2 == 0
                        ? "opset,inline,fold,unroll:most=1,loss:mse,"
                          "gradient:train=\"w u m\",partial=allow,alias"
                        : "opset,inline,fold,unroll:most=1,loss:mse,"
                          "gradient:train=\"w u m\",partial=allow,loops=again,alias") != NULL) {
            finish(&r);
            continue;
        }
        (void)loss_of(&r);
        for (unsigned i = 0; i < 3; i++)
            for (unsigned k = 0; k < WEIGHTS_MOST; k++) {
                ebb_named t;
                w.by[i][k] = (double)draw(&d, 2000) / 1000.0 - 1;
                w.at[i][k] = 0;
                if (ebb_value_find(r.model->graph, weight_names[i]).i == 0 ||
                    k >= (i == 2 ? 9u : 6u))
                    continue;
                good(ebb_program_get(r.program, weight_names[i], &t));
                w.at[i][k] = number_at(&t, k);
            }
        const double h = 1e-5;
        move(&r, &w, h);
        double more = loss_of(&r);
        move(&r, &w, -h);
        double less = loss_of(&r);
        move(&r, &w, 0);
        (void)loss_of(&r);
        double difference = (more - less) / (2 * h), slope = along_gradient(&r, &w);
        if (fabs(difference - slope) > 1e-8 + 1e-6 * fabs(slope))
            fail_msg("loop %u: a difference of %.12g, a slope of %.12g\n%s", (unsigned)seed,
                     difference, slope, d.text);
        finish(&r);
        count++;
    }
    assert_int_equal(count, 40);
}
