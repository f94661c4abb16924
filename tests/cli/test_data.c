/* test_data.c: what the command does with data: names that do not fit, arrays that nobody asked
 * for, types and layouts that differ from the model's.
 */
#include "cli.h"

#include <png.h>

#include "onnx/file/file.h"
#include "onnx/graph/infer.h"
#include "tests/formatted.h"
#include "tests/text.h"

#define MLP DIGITS "mlp.onnx"
#define DATA "--data " DIGITS "digits.npz "
#define TRAIN "train " MLP " " DATA "--loss cross-entropy --batch 16 --steps 2 "

TEST(a_map_of_unknown_names_is_an_error_that_names_both_sides)
{
    static const char *const verbs[] = {
        "train " MLP " " DATA "--loss cross-entropy --batch 16 --steps 1 ",
        "bench " MLP " " DATA "--loss cross-entropy --batch 16 --sensitivity -o s.json "};
    char words[1024];
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        (void)snprintf(words, sizeof words, "%s--map lable=target", verbs[i]);
        says(words, 2, "no array 'lable'");
        assert_non_null(strstr(output, "did you mean 'label'"));
        assert_non_null(strstr(output, "'test_label'"));
        assert_non_null(strstr(output, "digits.npz"));
        (void)snprintf(words, sizeof words, "%s--map label=targt", verbs[i]);
        says(words, 2, "no input 'targt'");
        assert_non_null(strstr(output, "did you mean 'target'"));
        assert_non_null(strstr(output, "'label'"));
        (void)snprintf(words, sizeof words, "%s--map label=target --map test_label=target",
                       verbs[i]);
        says(words, 2, "two arrays");
    }
    says("run " MLP " " DATA "--map imag=image", 2, "no array 'imag'");
    says("run " MLP " " DATA "--map test_image=imgae", 2, "no input 'imgae'");
    says(TRAIN, 2, "input 'target'"); // and which arrays there are
    assert_non_null(strstr(output, "'label'"));
}

TEST(a_map_takes_several_pairs_and_is_told_apart_when_turned_round)
{
    says(TRAIN "--map test_image=image,test_label=target", 0, "2 steps");
    says(TRAIN "--map test_image=image,test_label=targt", 2, "no input 'targt'");
    says(TRAIN "--map test_image=image,test_label", 2, "no input 'image,test_label'");
    says(TRAIN "--map test_image", 2, "ARRAY=INPUT");
    says(TRAIN "--map target=label", 2, "the array comes first: label=target");
    says("train " MLP " --data " DIGITS "../text/text.npz --loss cross-entropy --batch 16", 2,
         "no array feeds input 'image'");
}

TEST(a_run_takes_mapped_arrays_and_leaves_others_out_with_a_note)
{
    says("run " MLP " " DATA "--map test_image=image", 0, "float32[360,10]");
    assert_non_null(strstr(output, "'label'"));
    assert_non_null(strstr(output, "feeds no input"));
    assert_null(strstr(output, "'test_image' of")); // that one is taken
    says("run " MLP " " DATA, 0, "float32[1437,10]");
    assert_int_equal(stdout_of("run " MLP " " DATA "--json"), 0);
    assert_int_equal(output[0], '{');
}

/* 32 images of bytes with the channel last and their labels as int32 [32, 1]: safetensors. */
static void write_images(const char *name)
{
    static const char header[] = "{\"image\":{\"dtype\":\"U8\",\"shape\":[32,8,8,1],"
                                 "\"data_offsets\":[0,2048]},\"label\":{\"dtype\":\"I32\","
                                 "\"shape\":[32,1],\"data_offsets\":[2048,2176]}} ";
    static char bytes[8 + sizeof header - 1 + 2176];
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    for (int i = 0; i < 32; i++) {
        bytes[8 + sizeof header - 1 + (size_t)i * 64] = (char)i;
        bytes[8 + sizeof header - 1 + 2048 + (size_t)i * 4] = (char)(i % 10);
    }
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
}

TEST(bytes_and_small_labels_train_without_being_saved_anew)
{
    write_images("u8.safetensors");
    says("train " MLP " --data u8.safetensors --map label=target --batch 16 --loss cross-entropy "
         "--scale 1/16 --mean 0.3 --std 0.4",
         0, "2 steps");
    assert_null(strstr(output, "0 to 255"));
    says("train " MLP " --data u8.safetensors --map label=target --batch 16 --loss cross-entropy",
         0, "0 to 255");
    says("train " MLP " --data u8.safetensors --data u8.safetensors --map label=target --batch 16 "
         "--loss cross-entropy --scale 1/16 --eval u8.safetensors",
         0, "4 steps");
    says("run " MLP " --data u8.safetensors --scale 1/16", 0, "float32[32,10]");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --scale x=2",
         2, "x=2");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --scale much",
         2, "much");
    says("train " MLP " --data u8.safetensors --map label=target --loss cross-entropy --layout abc",
         2, "nhwc or nchw");
}

TEST(what_is_drawn_for_training_resumes_byte_for_byte)
{
#define DRAWN                                                                   \
    "train " MLP " " DATA "--map label=target --loss cross-entropy --batch 64 " \
    "--augment flip --augment crop:padding=1 "
    says(DRAWN "--seed 5 --steps 60 --checkpoint whole.st", 0, "60 steps");
    says(DRAWN "--seed 5 --steps 25 --checkpoint part.st", 0, "25 steps");
    says(DRAWN "--steps 60 --resume part.st --checkpoint joined.st", 0, "60 steps");
    assert_int_equal(run_command("cmp whole.st joined.st"), 0);
    says("train " MLP " " DATA "--map label=target --loss cross-entropy --batch 64 --seed 5 "
         "--steps 60 --checkpoint plain.st",
         0, "60 steps");
    assert_int_not_equal(run_command("cmp -s whole.st plain.st"), 0);
    says(DRAWN "--augment flop --steps 1", 2, "there is no augmentation 'flop'");
    says("run " MLP " " DATA "--augment flip", 2, "takes no option --augment");
}

static void write_picture(const char *name, int brightness)
{
    static unsigned char pixels[12 * 10 * 3];
    png_image image;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (unsigned char)(brightness + (int)(i * 7 % 50));
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = 12;
    image.height = 10;
    image.format = PNG_FORMAT_RGB;
    assert_int_equal(png_image_write_to_file(&image, path_of(name), 0, pixels, 0, NULL), 1);
}

TEST(class_numbers_that_become_one_hot_rows_are_named)
{
    says("train " MLP " " DATA "--map label=target --loss mse --batch 16 --steps 2", 0,
         "as one-hot rows: if they are classes, loss cross-entropy takes their numbers");
    says("train " MLP " " DATA "--map label=target --loss cross-entropy --batch 16 --steps 2", 0,
         "2 steps");
    assert_null(strstr(output, "one-hot"));
}

TEST(a_batch_that_an_export_does_not_take_is_answered_with_its_own)
{
    ebb_model *model;
    assert_null(ebb_text_parse_model(
        &model,
        "<ir_version: 8, opset_import: [\"\" : 17]> g (float[4,1,8,8] x) => (float[4,64] y) "
        "<int64[3] pairs = {4,32,2}, int64[2] rows = {4,64}, float[2] w = {0.1,0.2}> "
        "{ a = Reshape (x, pairs) b = Mul (a, w) y = Reshape (b, rows) }"));
    assert_null(ebb_infer_graph(model->graph));
    assert_null(ebb_save(model, path_of("four.onnx")));
    ebb_close(model);
    const char *words = "train four.onnx " DATA "--map image=x --map label=target --steps 2 "
                        "--loss cross-entropy";
    says(words, 6,
         "the model was exported for 4 rows at a time, and input 'x' is given 32: --batch 4");
    says(formatted("%s --batch 4", words), 0, "2 steps");
}

TEST(a_size_of_the_batch_that_is_set_counts)
{
    const char *sizes[] = {"--dim batch=8", "--shape image:8x1x8x8", "--batch 8",
                           "--batch 8 --dim batch=8"};
    char words[512], first[200] = "";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        (void)snprintf(words, sizeof words,
                       "train " MLP " " DATA
                       "--map label=target --loss cross-entropy --steps 2 --seed 3 %s",
                       sizes[i]);
        says(words, 0, "2 steps, loss ");
        const char *said = strstr(output, "2 steps, loss ");
        if (i == 0)
            (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(said + 9, ",") + 9, said);
        else
            assert_int_equal(strncmp(first, said, strlen(first)), 0);
    }
    says("train " MLP " " DATA "--map label=target --loss cross-entropy --batch 16 --dim batch=8",
         2, "--batch is 16, and --dim or --shape gives a step 8 rows: leave one out");
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

TEST(sizes_that_contradict_the_data_are_refused)
{
    static const char *const verbs[] = {"train " MLP " --steps 1 ", "eval " MLP " "};
    static const struct {
        const char *words, *said;
    } wrong[] = {
        {"--dim nosuch=7", "no input has a dimension 'nosuch'"},
        {"--dim batch=x", "whole number"},
        {"--shape img:1x2", "img"},
        {"--dim batch=8 --batch 16", "--batch is 16, and --dim or --shape gives a step 8"}};
    char words[1024];
    for (size_t v = 0; v < 2; v++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            (void)snprintf(words, sizeof words,
                           "%s" DATA "--map label=target --loss cross-entropy %s", verbs[v],
                           wrong[i].words);
            says(words, 2, wrong[i].said);
        }
    says("eval " MLP " " DATA "--map label=target --loss cross-entropy --batch 8", 0, "of 1437");
    char first[256];
    (void)snprintf(first, sizeof first, "%.200s", output);
    static const char *const same[] = {"--dim batch=8", "--shape image:8x1x8x8"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(words, sizeof words,
                       "eval " MLP " " DATA "--map label=target --loss cross-entropy %s", same[i]);
        says(words, 0, first);
    }
    write_text("wide.csv", "a,b,c\n1,2,3\n2,3,4\n3,4,5\n4,5,6\n");
    ebb_model *model = model_of("<ir_version: 8, opset_import: [\"\" : 17]> "
                                "g (float[n,t] x) => (float[n,t] y) "
                                "<float[1] weight = {2}> { y = Mul (x, weight) }");
    assert_null(ebb_save(model, path_of("wide.onnx")));
    ebb_close(model);
    static const char *const both[] = {"train --train weight", "eval"};
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(
            words, sizeof words,
            "%s wide.onnx --data wide.csv --columns x=a,b,c --loss mse:target=x --batch 2",
            both[i]);
        says(words, 0, "loss");
        (void)strcat(words, " --dim t=5");
        says(words, 2,
             "--dim or --shape gives dim 1 of input 'x' a size of 5, and its array one of 3");
    }
}

TEST(a_folder_of_pictures_trains)
{
    assert_int_equal(run_command("mkdir -p photos/dark photos/light others/dark others/grey"), 0);
    for (int i = 0; i < 8; i++) {
        write_picture(formatted("photos/%s/%d.png", i % 2 == 0 ? "dark" : "light", i),
                      i % 2 == 0 ? 20 + i : 180 + i);
    }
    write_picture("others/dark/1.png", 30);
    write_picture("others/grey/1.png", 120);
    says("train " MLP " --data photos --map label=target --loss cross-entropy --batch 4 "
         "--scale 1/255 --epochs 10 --augment resized-crop:least=0.5 --augment flip --eval photos "
         "--metric accuracy --optimizer adamw:lr=1e-2",
         0, "accuracy 100.00 %");
    says("train " MLP " --data photos --map label=target --loss cross-entropy --batch 4 "
         "--scale 1/255 --eval others",
         2, "its sub-folders are not those");
    says("run " MLP " --data photos --scale 1/255", 0, "float32[8,10]");
    assert_non_null(strstr(output, "labels of photos are 0 'dark', 1 'light'"));
}

TEST(pictures_that_say_no_class_are_told)
{
    assert_int_equal(run_command("mkdir -p alone/cats mixed/dark mixed/light none"), 0);
    for (int i = 0; i < 8; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "alone/cats/%d.png", i);
        write_picture(name, 20 + i);
        (void)snprintf(name, sizeof name, "mixed/%s/%d.png", i % 2 == 0 ? "dark" : "light", i);
        write_picture(name, i % 2 == 0 ? 20 + i : 180 + i);
    }
    write_picture("mixed/beside.png", 20);
    write_text("mixed/notes.txt", "no picture");
#define PICTURES "train " MLP " --scale 1/255 --batch 4 --save-model never.onnx --data "
    says(PICTURES "alone --map label=target --loss cross-entropy", 2, "alone has no array 'label'");
    assert_non_null(strstr(output, "alone has one sub-folder of pictures alone, so no labels"));
    says(PICTURES "none --map label=target --loss cross-entropy", 2, "stand in one sub-folder");
    says(PICTURES "mixed --map label=target --loss cross-entropy --image-size 16x16", 2,
         "an image size of 16x16, where input 'image' takes 8x8");
    says(PICTURES "mixed --map images=image --map label=target --loss cross-entropy", 2,
         "did you mean 'image'?");
    assert_false(exists("never.onnx"));
    says("run " MLP " --data alone --scale 1/255", 0, "float32[8,10]");
    says(PICTURES "mixed --map label=target --loss cross-entropy --eval-split 0.5", 0, "1 steps");
    assert_non_null(strstr(output,
                           "pictures of mixed that lie in no sub-folder have no class and are left "
                           "out: 1"));
    const char *first = strstr(output, "labels of mixed");
    assert_non_null(first);
    assert_null(strstr(first + 1, "labels of mixed")); // nor again of those held out
    write_text("mixed/dark/9.png", "this is no picture, although it is called one\n");
    says(PICTURES "mixed --map label=target --loss cross-entropy", 6, "mixed/dark/9.png");
}

TEST(a_head_for_other_classes_is_trained_saved_and_used)
{
    static const char *const models[] = {MLP, DIGITS "cnn.onnx", DIGITS "transformer.onnx"};
    char words[2048];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(
            words, sizeof words,
            "train %s " DATA "--map label=target --loss cross-entropy --batch 64 --epochs 2 "
            "--head classes=12 --save-model head.onnx --eval-split 0.1 --metric accuracy",
            models[i]);
        says(words, 0, "gives 12 classes instead of 10");
        says("run head.onnx " DATA "--map test_image=image", 0, "float32[360,12]");
        // drawn by the seed, the same in all runs
        (void)snprintf(words, sizeof words, "rewrite %s --pass head:classes=12,seed=3 -o a.onnx",
                       models[i]);
        says(words, 0, "drawn anew");
        (void)snprintf(words, sizeof words, "rewrite %s --pass head:classes=12,seed=3 -o b.onnx",
                       models[i]);
        says(words, 0, "drawn anew");
        assert_int_equal(run_command("cmp a.onnx b.onnx"), 0);
        (void)snprintf(words, sizeof words, "rewrite %s --pass head:classes=12 -o b.onnx",
                       models[i]);
        says(words, 0, "drawn anew");
        assert_int_not_equal(run_command("cmp -s a.onnx b.onnx"), 0);
    }
    says("rewrite " MLP " --pass head -o s.onnx", 2, "say how many classes");
    says("grad " MLP " --head classes=0 --loss cross-entropy -o s.onnx", 2, "classes");
    says("grad " MLP " --head classs=3 --loss cross-entropy -o s.onnx", 2, "classes");
    says("grad " MLP " --dim batch=4 --loss cross-entropy -o s.onnx", 0, "");
    says("rewrite s.onnx --pass head:classes=3 -o t.onnx", 2, "before the step is made");
}

TEST(an_export_is_as_the_model_is_to_be_used)
{
    says("train " DIGITS "cnn.onnx " DATA "--map label=target --loss cross-entropy --batch 64 "
         "--epochs 1 --save-model trained.onnx",
         0, "");
    says("export trained.onnx -o used.onnx", 0, "wrote used.onnx");
    says("inspect used.onnx --text", 0, "BatchNormalization");
    assert_null(strstr(output, "Dropout"));
    says("export trained.onnx --fold -o folded.onnx", 0, "goes into the weight");
    says("inspect folded.onnx --text", 0, "Conv");
    assert_null(strstr(output, "BatchNormalization"));
    assert_null(strstr(output, "Dropout"));
    says("train folded.onnx " DATA "--map label=target --loss cross-entropy --steps 1", 0,
         "taken in the batch norm");
    assert_non_null(strstr(output, "train the file that `ebb export --fold` was given"));
    says("train used.onnx " DATA "--map label=target --loss cross-entropy --steps 1", 0, "1 step");
    assert_null(strstr(output, "taken in the batch norm"));
    says("diff used.onnx folded.onnx --dim batch=4 --run --json", 0, "max_rel_error");
    const char *at = strstr(output, "\"max_rel_error\"");
    double error = 1;
    assert_int_equal(sscanf(at, "\"max_rel_error\": %lf", &error), 1);
    assert_true(error < 1e-4);
    says("export trained.onnx", 2, "-o FILE");
    says("grad " MLP " --dim batch=4 --loss cross-entropy -o s.onnx", 0, "");
    says("export s.onnx -o t.onnx", 2, "is a training step");
    assert_false(exists("t.onnx"));
}

/* Two clouds of points: the class is whether b is above a. */
TEST(a_table_of_text_trains)
{
    static char text[64 * 200];
    size_t used = (size_t)sprintf(text, "a,b,class,remark\n");
    for (int i = 0; i < 200; i++)
        used += (size_t)sprintf(text + used, "%d.5,%d.25,%d,\n", i * 7 % 10, i * 3 % 11,
                                i * 3 % 11 >= i * 7 % 10 + 1);
    write_text("points.csv", text);
    ebb_model *model;
    assert_null(ebb_text_parse_model(
        &model, "<ir_version: 8, opset_import: [\"\" : 17]> g (float[n,2] x) => (float[n,2] y) "
                "<float[2,2] weight = {0.1,-0.2,0.3,0.1}, float[2] bias = {0.1,0}> "
                "{ y = Gemm (x, weight, bias) }"));
    assert_null(ebb_infer_graph(model->graph));
    assert_null(ebb_save(model, path_of("points.onnx")));
    ebb_close(model);
    says("train points.onnx --data points.csv --columns x=a,b --map class=target --batch 20 "
         "--loss cross-entropy --optimizer adam:lr=0.1 --epochs 20 --eval-split 0.2 --seed 1",
         0, "accuracy");
    assert_non_null(strstr(output, "nothing of this training is saved"));
    assert_true(strtod(strstr(output, "held out: ") + strlen("held out: loss "), NULL) < 0.2);
    says("train points.onnx --data points.csv --map class=target --loss cross-entropy", 2,
         "which columns with --columns x=NAMES");
    says("train points.onnx --data points.csv --columns x=remark,b --map class=target "
         "--loss cross-entropy",
         1, "row ");
    assert_non_null(strstr(output, "of 'x' in points.csv: element 1 is not a number"));
    says("train points.onnx --data points.csv --columns x=c,d --loss mse", 2,
         "no .csv file has a column of 'x=c,d'");
    says("train points.onnx --data points.csv --columns x=a,b,class --map class=target "
         "--loss cross-entropy",
         2, "has no array 'class'"); // it is one of x
    says("train points.onnx --data points.csv --columns x=a,b,remark --map class=target "
         "--loss cross-entropy --on-nan warn",
         6, "array 'x' of points.csv is float32[200,3], and input 'x' takes float32[n,2]");
}

/* Hours of work do not end at a row that somebody mistyped. */
TEST(steps_before_a_bad_row_are_saved_and_gone_on_with)
{
    static const char *const files[] = {"whole.csv", "bad.csv", "infinite.csv"};
    for (int bad = 0; bad < 3; bad++) {
        FILE *f = fopen(path_of(files[bad]), "w");
        assert_non_null(f);
        (void)fprintf(f, "a,b,class\n");
        for (int i = 0; i < 200; i++)
            (void)fprintf(f, "%d.5%s,%d.25,%d\n", i * 7 % 10, bad == 2 && i == 117 ? "e99" : "",
                          i * 3 % 11, bad == 1 && i == 117 ? 2 : i * 3 % 11 >= i * 7 % 10 + 1);
        assert_int_equal(fclose(f), 0);
    }
#define POINTS(file)                                                                             \
    "train points.onnx --data " file " --columns x=a,b --map class=target --loss cross-entropy " \
    "--batch 20 --epochs 2 --no-shuffle --threads 1 --save-model "
    says(POINTS("whole.csv") "whole.onnx", 0, "20 steps");
    says(POINTS("bad.csv") "bad.onnx --checkpoint p.safetensors", 1,
         "row 117 of 'class' in bad.csv: label 2 is outside 0..1");
    assert_non_null(strstr(output, "p.safetensors has the 5 steps before it"));
    assert_false(exists("bad.onnx"));
    says(POINTS("whole.csv") "again.onnx --resume p.safetensors", 0, "20 steps");
    assert_int_equal(run_command("cmp whole.onnx again.onnx"), 0);
    says(POINTS("infinite.csv") "never.onnx", 1, "input 'x' is infinite in row 117 of the data");
}

/* What a newcomer types, and what is said. */
TEST(wrong_words_and_files_are_answered_with_what_to_do)
{
    assert_int_equal(
        run_command("head -c 60000 " MLP " > cut.onnx && cp " DIGITS "digits.npz not.safetensors"),
        0);
#define ASKS "train " MLP " " DATA "--map label=target --loss cross-entropy "
    says(ASKS "--lr 0.1", 2, "unknown option '--lr': here it is --optimizer adamw:lr=0.001");
    says(ASKS "--optimizer adam:learning-rate=1", 2,
         "`ebb help passes optimizer` lists its options");
    says("train " MLP " " DATA "--map label=target --loss crossentropy", 2,
         "did you mean 'cross-entropy'?");
    says("train cut.onnx " DATA "--loss mse", 6,
         "it is no ONNX model (torch.onnx.export writes one), or not all of one");
    says("train . " DATA "--loss mse", 8, ". is a folder: give an .onnx file");
    says(ASKS "--resume not.safetensors", 6, "it is no safetensors file, or not all of one");
    says(ASKS "--optimizer sgd:lr=1e30", 1, "is not a number; nothing was saved after it");
    assert_non_null(strstr(output, "hint: a smaller rate"));
    says(ASKS "--batch 5000", 2,
         "1437 rows are fewer than one batch of 5000: take a smaller one, at most --batch 1437");
}

const fixture around_all = {make_folder, remove_folder};
