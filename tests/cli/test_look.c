/* test_look.c: the page of --html and the picture of --svg: their numbers are those of the plan, names
 * of a file do no harm there, and a browser opens the page, shows both curves and answers a click.
 */
#include "tests/cli/cli.h"
#include "tests/formatted.h"

#include <math.h>

#include <jansson.h>
#include <png.h>

#define STEP DIGITS "cnn.onnx --dim batch=64 --loss cross-entropy --optimizer adamw:lr=0.003 "
/* What it weighs is the same on every machine. */
#define ALIKE "--backend plain --threads 1 "

static char *text_of(const char *path)
{
    static char text[4 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s cannot be read", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int make_steps(void **state)
{
    if (make_folder(state) != 0)
        return 1;
    return ebb("grad " STEP "-o before.onnx") != 0 ||
           ebb("grad " STEP "-o after.onnx --pass sign-mask --pass dropout-seed") != 0 ||
           ebb("diff before.onnx after.onnx --html page.html --svg page.svg --perfetto "
               "trace.json " ALIKE) != 0;
}

/* The JSON within a page. */
static json_t *data_of(const char *page)
{
    char *from = strstr(page, "<script id=\"data\""), *to;
    json_error_t error;
    if (from == NULL || (from = strchr(from, '{')) == NULL ||
        (to = strstr(from, "</script>")) == NULL)
        fail_msg("there are no data in the page");
    json_t *o = json_loadb(from, (size_t)(to - from), 0, &error);
    if (o == NULL)
        fail_msg("%s", error.text);
    return o;
}

/* ---- numbers ---- */

static json_int_t integer(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static json_int_t alive_at(const json_t *plan, json_int_t position, const char *category)
{
    size_t i;
    json_t *t;
    json_int_t sum = 0;
    json_array_foreach(json_object_get(plan, "tensors"), i, t)
        if (integer(t, "birth") <= position && position <= integer(t, "death") &&
            strcmp(json_string_value(json_object_get(t, "place")), "device") == 0 &&
            (category == NULL ||
             strcmp(json_string_value(json_object_get(t, "category")), category) == 0))
            sum += integer(t, "bytes");
    return sum;
}

static void check_plan(const json_t *plan)
{
    const char *category;
    size_t i;
    json_t *bytes, *point;
    assert_int_equal(json_array_size(json_object_get(plan, "order")), integer(plan, "nodes"));
    json_object_foreach(json_object_get(plan, "categories"), category, bytes)
        assert_int_equal(alive_at(plan, integer(plan, "peak_position"), category),
                         json_integer_value(bytes));
    json_array_foreach(json_object_get(plan, "curve"), i, point)
        assert_int_equal(alive_at(plan, integer(point, "position"), NULL),
                         integer(point, "live_bytes"));
    assert_true(i > 9);
}

TEST(who_is_alive_adds_up_to_the_curve)
{
    json_t *o = data_of(text_of(path_of("page.html")));
    check_plan(json_object_get(o, "before"));
    check_plan(json_object_get(o, "after"));
    assert_true(integer(o, "peak_saved_bytes") > 0);
    json_decref(o);
}

/* The highest point of a panel's piles, and the peak: the same share of the taller one. */
static double top_of(const char *panel)
{
    double top = 1e9, y;
    const char *end = strstr(panel, "<path fill=\"none\""); // the other plan
    for (const char *at = strstr(panel, "<path fill="); at != NULL && at < end;
         at = strstr(at + 1, "<path fill="))
        for (const char *c = strstr(at, "d=\""); *c != '/'; c++)
            if (sscanf(c, *c == 'M' ? "M0 %lf" : "V%lf", &y) == 1 && y < top)
                top = y;
    return top;
}

TEST(the_curves_are_as_high_as_the_peaks)
{
    json_t *o = data_of(text_of(path_of("page.html")));
    const json_t *before = json_object_get(o, "before"), *after = json_object_get(o, "after");
    const double ratio =
        (double)integer(after, "peak_bytes") / (double)integer(before, "peak_bytes");
    json_decref(o);
    const char *svg = text_of(path_of("page.svg")), *first = strstr(svg, "data-side=\"before\""),
               *second = strstr(svg, "data-side=\"after\"");
    assert_true(first != NULL && second != NULL);
    const double height = 190;
    assert_true(fabs(top_of(first)) < 0.01);
    const double expected = height * (1 - ratio);
    if (fabs(top_of(second) - expected) > 0.01)
        fail_msg("the second curve ends at %g, not %g", top_of(second), expected);
}

TEST(a_plan_has_one_panel)
{
    says("plan after.onnx --svg plan.svg --html plan.html " ALIKE, 0, "peak");
    const char *svg = text_of(path_of("plan.svg"));
    assert_non_null(strstr(svg, "class=\"panel\""));
    assert_null(strstr(strstr(svg, "class=\"panel\"") + 1, "class=\"panel\""));
    json_t *o = data_of(text_of(path_of("plan.html")));
    check_plan(o);
    json_decref(o);
}

TEST(disk_has_a_panel_of_its_own)
{
    says("plan " STEP "--budget 45%,disk=1GiB --plan-time 1 --svg disk.svg --html disk.html " ALIKE,
         0, "disk");
    assert_non_null(strstr(text_of(path_of("disk.svg")), "on disk, peak"));
    assert_non_null(strstr(text_of(path_of("disk.svg")), ">budget<"));
}

/* ---- the trace ---- */

enum { PROCESSES = 128, LANES = 512 };

/* Slices of a lane do not overlap, each tensor has one, and the counters reach the peaks. */
TEST(a_trace_has_every_life_once)
{
    static json_int_t ends[PROCESSES][LANES];
    json_t *o = json_load_file(path_of("trace.json"), 0, NULL),
           *page = data_of(text_of(path_of("page.html"))), *event;
    json_int_t most[2] = {0}, slices = 0;
    size_t i;
    json_array_foreach(json_object_get(o, "traceEvents"), i, event) {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        const json_int_t process = integer(event, "pid"), lane = integer(event, "tid"),
                         start = integer(event, "ts");
        const json_int_t bytes = integer(json_object_get(event, "args"), "bytes");
        if (kind[0] == 'C' && bytes > most[process > 64])
            most[process > 64] = bytes;
        if (kind[0] != 'X')
            continue;
        assert_true(process < PROCESSES && lane < LANES);
        assert_true(start >= ends[process][lane]);
        ends[process][lane] = start + integer(event, "dur");
        slices++;
    }
    for (int s = 0; s < 2; s++) {
        const json_t *plan = json_object_get(page, s == 0 ? "before" : "after");
        assert_int_equal(most[s], integer(plan, "peak_bytes"));
        slices -= (json_int_t)json_array_size(json_object_get(plan, "tensors"));
        slices -= integer(plan, "nodes");
    }
    assert_int_equal(slices, 0);
    json_decref(o);
    json_decref(page);
}

/* ---- what it depends on, and what names may do ---- */

TEST(a_page_asks_nobody_for_anything)
{
    static const char *const outside[] = {"src=", "href=", "@import", "url(", "fetch(", "import("};
    const char *page = text_of(path_of("page.html"));
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strstr(page, outside[i]) != NULL)
            fail_msg("the page has %s", outside[i]);
    for (const char *at = page; (at = strstr(at, "http")) != NULL; at++)
        assert_int_equal(strncmp(at, "http://www.w3.org/2000/svg", 26), 0); // a name, not a place
}

TEST(a_name_is_no_markup)
{
    assert_int_equal(run_command("LC_ALL=C sed 's|/1/Gemm_output_0|</script><b o=1>|g' " DIGITS
                                 "mlp.onnx > evil.onnx"),
                     0);
    says("plan evil.onnx --dim batch=8 --loss cross-entropy --html evil.html --svg evil.svg " ALIKE,
         0, "</script><b o=1>");
    const char *page = text_of(path_of("evil.html"));
    assert_null(strstr(page, "<b o=1>"));
    assert_non_null(strstr(page, "\\u003c/script>\\u003cb o=1>"));
    assert_null(strstr(text_of(path_of("evil.svg")), "<b o=1>"));
}

/* ---- the picture of README.md ---- */

TEST(the_picture_of_the_readme_is_made_by_this)
{
    const char *mode = getenv("EBB_GOLDEN");
    if (mode != NULL && strcmp(mode, "update") == 0)
        assert_int_equal(run_command("cp page.svg " EBB_SOURCE_DIR "/docs/digits.svg"), 0);
    assert_int_equal(run_command("cmp page.svg " EBB_SOURCE_DIR "/docs/digits.svg"), 0);
    assert_non_null(strstr(text_of(EBB_SOURCE_DIR "/README.md"), "docs/digits.svg"));
}

/* ---- a browser ---- */

/* What the page is once its scripts have run, and shot.png, how it looks then. Errors of the scripts are in it as well. */
static void open_page(const char *page, const char *script)
{
    char command[4096];
    if (system("command -v chromium > /dev/null") != 0) {
        print_message("SKIP: there is no chromium\n");
        skip();
    }
    (void)snprintf(command, sizeof command,
                   "(echo '<script>onerror = e => document.body.append(`BROKEN ${e}`)</script>'; "
                   "cat %s; echo '<script>%s</script>') > tried.html && "
                   "chromium --headless --no-sandbox --disable-gpu --user-data-dir=%s/browser "
                   "--window-size=1200,1600 --virtual-time-budget=5000 --screenshot=%s/shot.png "
                   "--dump-dom file://%s/tried.html 2>/dev/null",
                   page, script, folder, folder, folder);
    assert_int_equal(run_command(command), 0);
    assert_null(strstr(strstr(output, "<h1>"), "BROKEN"));
}

TEST(a_browser_shows_who_is_alive_at_the_peaks)
{
    json_t *o = data_of(text_of(path_of("page.html")));
    char words[64];
    (void)snprintf(words, sizeof words, "node %d of %d, backward",
                   (int)integer(json_object_get(o, "after"), "peak_position") + 1,
                   (int)integer(json_object_get(o, "after"), "nodes"));
    json_decref(o);
    open_page("page.html", "");
    const char *alive = strstr(output, "<div id=\"alive\">");
    assert_non_null(alive);
    assert_non_null(strstr(alive, words));
    assert_non_null(strstr(alive, "Peak saved by pass"));
}

/* At the left end of the first panel: the first node of both; dragged: the plot shows a part. */
TEST(a_browser_answers_a_click_and_zooms)
{
    open_page("page.html",
              "const p = panels[0], box = p.field.getBoundingClientRect();"
              "const point = (kind, x) => p.group.dispatchEvent(new MouseEvent(kind, "
              "{clientX: box.left + x * box.width, clientY: box.top + 9, bubbles: true}));"
              "p.group.setPointerCapture = () => {};"
              "point(\"pointerdown\", .001); point(\"pointerup\", .001);"
              "point(\"pointerdown\", .25); point(\"pointerup\", .75);");
    const char *alive = strstr(output, "<div id=\"alive\">"), *second;
    assert_non_null(alive = strstr(alive, "node 1 of "));
    assert_non_null(second = strstr(alive + 1, "node 1 of "));
    double from, wide;
    assert_non_null(alive = strstr(strstr(output, "class=\"plot\""), "viewBox"));
    assert_int_equal(sscanf(alive, "viewBox=\"%lf 0 %lf", &from, &wide), 2);
    assert_true(fabs(from - 215) < 2 && fabs(wide - 430) < 4);
}

/* ---- a screenshot ---- */

typedef struct box { /* of a panel's plot, in pixels */
    double left, top, width, height;
} box;

static bool is_coloured(const png_byte *rgb)
{
    int least = 255, most = 0;
    for (int i = 0; i < 3; i++) {
        least = rgb[i] < least ? rgb[i] : least;
        most = rgb[i] > most ? rgb[i] : most;
    }
    return most - least > 12;
}

/* How high the piles are there, as a share of the plot without its strip of phases. Some of it must be painted. */
static double height_in(const png_image *image, const png_byte *pixels, const box *b)
{
    const double plot = b->height * 190 / 198;
    int first = -1, count = 0;
    assert_true(b->left >= 0 && b->left + b->width <= image->width);
    assert_true(b->top >= 0 && b->top + b->height <= image->height);
    for (int y = (int)b->top; y < (int)(b->top + plot); y++)
        for (int x = (int)b->left + 1; x < (int)(b->left + b->width) - 1; x++)
            if (is_coloured(pixels + 3 * ((size_t)y * image->width + (size_t)x))) {
                first = first < 0 ? y : first;
                count++;
            }
    assert_true(count > b->width * plot / 10);
    return 1 - (first - b->top) / plot;
}

/* Both curves, as high as the peaks of their steps: to three pixels of some two hundred. */
static void a_screenshot_shows_both(const char *name)
{
    json_t *o = data_of(text_of(path_of(name)));
    const double ratio = (double)integer(json_object_get(o, "after"), "peak_bytes") /
                         (double)integer(json_object_get(o, "before"), "peak_bytes");
    json_decref(o);
    open_page(name, "for (const p of panels) p.line.remove();"
                    "document.title = `BOXES ${panels.flatMap(p => { const b = "
                    "p.field.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })"
                    ".join(\" \")}`;");
    box before, after;
    const char *boxes = strstr(output, "<title>BOXES ");
    assert_non_null(boxes);
    assert_int_equal(sscanf(boxes, "<title>BOXES %lf %lf %lf %lf %lf %lf %lf %lf", &before.left,
                            &before.top, &before.width, &before.height, &after.left, &after.top,
                            &after.width, &after.height),
                     8);
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, path_of("shot.png")));
    image.format = PNG_FORMAT_RGB;
    png_byte *pixels = malloc(PNG_IMAGE_SIZE(image));
    assert_non_null(pixels);
    assert_true(png_image_finish_read(&image, NULL, pixels, 0, NULL));
    const double first = height_in(&image, pixels, &before),
                 second = height_in(&image, pixels, &after);
    free(pixels);
    if (fabs(first - 1) > 0.015 || fabs(second - ratio) > 0.015)
        fail_msg("%s: the curves are %.3f and %.3f high, not 1 and %.3f", name, first, second,
                 ratio);
}

TEST(a_screenshot_shows_both_curves)
{
    a_screenshot_shows_both("page.html");
}

static int elements(void)
{
    int count = 0;
    for (const char *at = output; (at = strchr(at, '<')) != NULL; at++)
        count += at[1] >= 'a' && at[1] <= 'z';
    return count;
}

/* Some thousand nodes in a file that is sent by mail. It opens as soon as that of a small step: it has not much more
 * to draw. (bench/page.py: in how many seconds.) */
TEST(the_page_of_a_large_step_is_small_and_shows_no_more)
{
    static const char model[] = EBB_SOURCE_DIR "/../shared/models/gpt2/ts.onnx";
    if (access(model, R_OK) != 0) {
        print_message("SKIP: no recorded models beside the repository\n");
        skip();
    }
    static const char *const steps[] = {"-o large.onnx", "-o less.onnx --pass attention"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ebb(formatted("grad %s %s --dim batch=4 --loss cross-entropy:axis=-1",
                                       model, steps[i])),
                         0);
    }
    assert_int_equal(ebb("diff large.onnx less.onnx --html large.html " ALIKE), 0);
    assert_in_range(strlen(text_of(path_of("large.html"))), 100000, 2000000);
    open_page("page.html", "");
    const int small = elements();
    a_screenshot_shows_both("large.html");
    print_message("%d elements, %d of a small step\n", elements(), small);
    assert_in_range(elements(), 1, 2 * small);
}

const fixture around_all = {make_steps, remove_folder};
