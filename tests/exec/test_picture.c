/* test_picture.c: folders of pictures as data; what is drawn for training; files that are not whole. */
#include "tests/exec/taken.h"

#include <sys/stat.h>

#include <jpeglib.h>
#include <png.h>

#include "exec/data/picture/picture.h"
#include "tests/owned.h"

/* ---- pictures ---- */

enum { HEIGHT = 6, WIDTH = 8 };

static unsigned char pixels[HEIGHT * WIDTH * 3];

static void fill_pixels(void)
{
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
        pixels[i] = (unsigned char)((i * 37 + (i * i) % 251) % 256);
}

static void write_png(const char *path, const void *bytes, int height, int width, unsigned format)
{
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)width;
    image.height = (png_uint_32)height;
    image.format = format;
    assert_int_equal(png_image_write_to_file(&image, path, 0, bytes, 0, NULL), 1);
}

static void write_jpeg(const char *path, int height, int width)
{
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char row[WIDTH * 3];
    unsigned char *rows[] = {row};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    j.err = jpeg_std_error(&errors);
    jpeg_create_compress(&j);
    jpeg_stdio_dest(&j, file);
    j.image_width = (JDIMENSION)width;
    j.image_height = (JDIMENSION)height;
    j.input_components = 3;
    j.in_color_space = JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 95, TRUE);
    jpeg_start_compress(&j, TRUE);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            row[3 * x] = 200;
            row[3 * x + 1] = 100;
            row[3 * x + 2] = 50;
        }
        jpeg_write_scanlines(&j, rows, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    assert_int_equal(fclose(file), 0);
}

static const char *album(void)
{
    static bool made;
    if (!made) {
        assert_int_equal(mkdir(path_of("album"), 0700), 0);
        assert_int_equal(mkdir(path_of("album/cat"), 0700), 0);
        assert_int_equal(mkdir(path_of("album/ant"), 0700), 0);
        write_png(path_of("album/cat/1.png"), pixels, HEIGHT, WIDTH, PNG_FORMAT_RGB);
        write_jpeg(path_of("album/cat/2.JPG"), HEIGHT, WIDTH);
        write_png(path_of("album/ant/1.png"), pixels, HEIGHT, WIDTH, PNG_FORMAT_GRAY);
        made = true;
    }
    return path_of("album");
}

#define PICTURES "uint8[b,3,6,8] image"
#define IDENTITY IDENTITY_OF("image")

TEST(a_folder_of_pictures_is_images_and_labels)
{
    good(take_rows(album(), PICTURES ", int64[b] label", IDENTITY, NULL, 0, in_order, 3));
    assert_string_equal(ebb_data_metadata(data), "{\"classes\":[\"ant\",\"cat\"]}");
    assert_int_equal(ebb_data_find(data, "image")->dims[0], 3);
    const unsigned char *x = batch.tensors[0].data;
    const int64_t *label = batch.tensors[1].data;
    assert_int_equal(label[0], 0);
    assert_int_equal(label[1], 1);
    assert_int_equal(label[2], 1);
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < HEIGHT * WIDTH; p++) {
            assert_int_equal(x[c * HEIGHT * WIDTH + p], pixels[p]); // grey
            assert_int_equal(x[(3 + c) * HEIGHT * WIDTH + p], pixels[3 * p + c]);
            assert_true(abs(x[(6 + c) * HEIGHT * WIDTH + p] - (c == 0   ? 200
                                                               : c == 1 ? 100
                                                                        : 50)) <= 2);
        }
    // the last axis, one channel as Pillow makes it, and scaled
    static const unsigned char grey[8] = {31, 156, 43, 175, 127, 71, 108, 86};
    good(take_rows(album(), "uint8[b,6,8,1] image", IDENTITY, NULL, 0, in_order + 1, 1));
    assert_memory_equal(batch.tensors[0].data, grey, sizeof grey);
    const char *const scale[] = {"1/255", NULL};
    good(take_rows(album(), "float[b,3,6,8] image", IDENTITY, &(ebb_data_options){.scale = scale},
                   0, in_order + 1, 1));
    assert_true(((const float *)batch.tensors[0].data)[0] == (float)pixels[0] / 255.0f);
}

TEST(kinds_of_png_are_all_red_green_and_blue)
{
    ebb_picture p = {0};
    RELEASED void *file = NULL;
    size_t size = 0;
    unsigned char alpha[HEIGHT * WIDTH * 4];
    uint16_t wide[HEIGHT * WIDTH * 3];
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        memcpy(alpha + 4 * i, pixels + 3 * i, 3);
        alpha[4 * i + 3] = (unsigned char)i;
    }
    write_png(path_of("p.png"), alpha, HEIGHT, WIDTH, PNG_FORMAT_RGBA);
    good(ebb_picture_read(&p, path_of("p.png"), &file, &size));
    assert_memory_equal(p.rgb, pixels, sizeof pixels);
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
        wide[i] = (uint16_t)(i * 400);
    write_png(path_of("p.png"), wide, HEIGHT, WIDTH, PNG_FORMAT_LINEAR_RGB);
    good(ebb_picture_read(&p, path_of("p.png"), &file, &size));
    assert_int_equal(p.width, WIDTH);
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
        assert_true(abs((int)p.rgb[i] * 257 - (int)wide[i]) <= 129);
    ebb_picture_free(&p);
}

/* Numbers of Pillow's resize with BILINEAR, on the same pixels. */
TEST(pictures_are_resized_as_pillow_does)
{
    static const unsigned char smaller[36] = {
        110, 85,  137, 94, 133, 131, 136, 67,  116, 134, 89,  141, 97,  130, 116, 168, 124, 78,
        85,  139, 105, 97, 78,  92,  125, 102, 91,  100, 101, 119, 100, 76,  108, 113, 93,  94};
    static const unsigned char larger[66] = {
        0,   38,  78,  71,  112, 156, 82,  128, 176, 9,   59,  100, 123, 177, 36, 117, 176,
        109, 61,  126, 191, 15,  87,  157, 159, 58,  132, 216, 36,  116, 199, 23, 110, 97,
        31,  95,  135, 74,  142, 147, 91,  164, 117, 68,  142, 98,  147, 130, 89, 172, 129,
        87,  146, 136, 95,  66,  155, 117, 85,  96,  146, 65,  93,  173, 21,  129};
    static const unsigned char part[18] = {117, 92, 130, 86, 133, 109, 152, 111, 62,
                                           110, 72, 75,  81, 73,  111, 99,  62,  78};
    const ebb_picture whole = {WIDTH, HEIGHT, pixels, sizeof pixels};
    ebb_picture out = {.width = 3, .height = 4}, between = {0};
    good(ebb_picture_resize(&out, &whole, 0, 0, WIDTH, HEIGHT, &between));
    assert_memory_equal(out.rgb, smaller, sizeof smaller);
    out.width = 11;
    out.height = 9;
    good(ebb_picture_resize(&out, &whole, 0, 0, WIDTH, HEIGHT, &between));
    assert_memory_equal(out.rgb, larger, sizeof larger);
    out.width = 3;
    out.height = 2;
    good(ebb_picture_resize(&out, &whole, 2, 1, 5, 5, &between));
    assert_memory_equal(out.rgb, part, sizeof part);
    ebb_picture_free(&out);
    ebb_picture_free(&between);
}

TEST(sizes_come_from_the_model_or_are_said)
{
    good(take_rows(album(), "float[b,3,4,4] image", IDENTITY, NULL, 0, in_order,
                   3)); // 4 x 5, the middle
    refused(take_rows(album(), "float[b,3,h,w] image", IDENTITY, NULL, 0, in_order, 3), EBB_USAGE,
            "--image-size");
    good(take_rows(album(), "float[b,3,h,w] image", IDENTITY,
                   &(ebb_data_options){.image_size = "3x5", .resize = "8"}, 0, in_order, 3));
    assert_int_equal(batch.tensors[0].dims[2], 3);
    assert_int_equal(batch.tensors[0].dims[3], 5);
    refused(take_rows(album(), "float[b,3,6,8] image", IDENTITY, &(ebb_data_options){.resize = "3"},
                      0, in_order, 3),
            EBB_USAGE, "smaller than");
    refused(take_rows(album(), "float[b,5,6,8] image", IDENTITY, NULL, 0, in_order, 3), EBB_USAGE,
            "1 or 3 channels");
    refused(take_rows(album(), PICTURES, IDENTITY, &(ebb_data_options){.image_size = "3"}, 0,
                      in_order, 3),
            EBB_USAGE, "224x224");
    ebb_data *d;
    const char *const two[] = {album(), album(), NULL};
    refused(ebb_data_open_files(&d, two, NULL), EBB_REJECTED, "one folder of pictures");
}

/* ---- what is drawn ---- */

enum { SIDE = 5 };

/* Eight images [5, 5] whose pixels say where they were, and masks of them. */
static const char *images(void)
{
    static uint8_t image[8 * SIDE * SIDE];
    static int64_t mask[8 * SIDE * SIDE];
    for (int i = 0; i < 8 * SIDE * SIDE; i++) {
        image[i] = (uint8_t)(1 + i);
        mask[i] = 1 + i;
    }
    const member list[] = {MEMBER("image", "|u1", "8, 5, 5", image),
                           MEMBER("mask", "<i8", "8, 5, 5", mask)};
    write_npz(path_of("images.npz"), list, 2, true);
    return path_of("images.npz");
}

#define IMAGES "float[b,1,5,5] image, int64[b,5,5] mask"

TEST(draws_depend_on_seed_epoch_and_row_alone)
{
    const char *const augment[] = {"flip", "flip-vertical", NULL};
    const ebb_data_options options = {.augment = augment};
    float first[8 * SIDE * SIDE];
    good(take_rows(images(), IMAGES, IDENTITY, &options, 3, in_order, 8));
    memcpy(first, batch.tensors[0].data, sizeof first);
    int flipped = 0;
    for (int n = 0; n < 8; n++) {
        const float *x = first + n * SIDE * SIDE;
        const int corner = (int)x[0] - 1 - n * SIDE * SIDE;
        assert_true(corner == 0 || corner == 4 || corner == 20 || corner == 24);
        flipped += corner != 0;
        for (int y = 0; y < SIDE; y++)
            for (int z = 0; z < SIDE; z++) {
                const int from =
                    (corner >= 20 ? SIDE - 1 - y : y) * SIDE + (corner % 5 != 0 ? SIDE - 1 - z : z);
                assert_int_equal((int)x[y * SIDE + z], 1 + n * SIDE * SIDE + from);
            }
        const int64_t *mask = (const int64_t *)batch.tensors[1].data + n * SIDE * SIDE;
        for (int p = 0; p < SIDE * SIDE; p++) // which went along
            assert_int_equal(mask[p], (int)x[p]);
    }
    assert_true(flipped > 0 && flipped < 8);
    // in another in_order, alone, ahead and again: the same
    for (int64_t n = 7; n >= 0; n--) {
        good(ebb_data_rows(data, &n, 1, NULL, &batch));
        assert_memory_equal(batch.tensors[0].data, first + n * SIDE * SIDE, sizeof first / 8);
    }
    good(ebb_data_ahead(data, in_order, 8, NULL));
    good(ebb_data_rows(data, in_order, 8, NULL, &batch));
    assert_memory_equal(batch.tensors[0].data, first, sizeof first);
    ebb_data_epoch(data, 7, 4);
    good(ebb_data_rows(data, in_order, 8, NULL, &batch));
    assert_memory_not_equal(batch.tensors[0].data, first, sizeof first);
}

TEST(a_crop_moves_by_at_most_its_padding)
{
    const char *const augment[] = {"crop:padding=2", NULL};
    good(take_rows(images(), "float[b,5,5] image", IDENTITY,
                   &(ebb_data_options){.augment = augment}, 0, in_order, 8));
    bool moved = false;
    for (int n = 0; n < 8; n++) {
        const float *x = (const float *)batch.tensors[0].data + n * SIDE * SIDE;
        // the middle stays inside, and says how far it came
        const int from = (int)x[2 * SIDE + 2] - 1 - n * SIDE * SIDE;
        const int down = from / SIDE - 2, right = from % SIDE - 2;
        moved = moved || down != 0 || right != 0;
        for (int y = 0; y < SIDE; y++)
            for (int z = 0; z < SIDE; z++) {
                const int a = y + down, b = z + right;
                const bool inside = a >= 0 && a < SIDE && b >= 0 && b < SIDE;
                assert_int_equal((int)x[y * SIDE + z],
                                 inside ? 1 + n * SIDE * SIDE + a * SIDE + b : 0);
            }
    }
    assert_true(moved);
    const char *const part[] = {"resized-crop:least=0.2", NULL};
    good(take_rows(album(), PICTURES, IDENTITY, &(ebb_data_options){.augment = part}, 0, in_order,
                   3));
    unsigned char before[3 * HEIGHT * WIDTH];
    memcpy(before, (const unsigned char *)batch.tensors[0].data + sizeof before, sizeof before);
    ebb_data_epoch(data, 7, 1);
    good(ebb_data_rows(data, in_order, 3, NULL, &batch));
    assert_memory_not_equal(before, (const unsigned char *)batch.tensors[0].data + sizeof before,
                            sizeof before);
}

TEST(what_cannot_be_drawn_is_said)
{
    static const struct {
        const char *word, *inputs, *words;
    } cases[] = {
        {"flop", IMAGES, "did you mean 'flip'"},         {"crop:pad=2", IMAGES, "crop[:padding=N]"},
        {"crop:padding=many", IMAGES, "padding"},        {"crop:padding=1", IMAGES, "only flips"},
        {"resized-crop", IMAGES, "folders of pictures"}, {"resized-crop:least=2", IMAGES, "least"},
        {"flip", "int64[b,5,5] mask", "no effect"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const augment[] = {cases[i].word, NULL};
        refused(take_rows(images(), cases[i].inputs, i == 6 ? "y = Identity (mask)" : IDENTITY,
                          &(ebb_data_options){.augment = augment}, 0, in_order, 8),
                EBB_USAGE, cases[i].words);
    }
}

/* ---- hostile files ---- */

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, room, f);
    assert_int_equal(fclose(f), 0);
    return size;
}

TEST(a_picture_that_is_cut_or_damaged_is_refused_or_read)
{
    static unsigned char bytes[4096];
    const char *const names[] = {"album/cat/1.png", "album/cat/2.JPG"};
    ebb_picture p = {0};
    (void)album();
    for (int k = 0; k < 2; k++) {
        const size_t size = read_file(path_of(names[k]), bytes, sizeof bytes);
        assert_true(size > 100 && size < sizeof bytes);
        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *exact = malloc(cut + 1); // so that a sanitizer sees a read beyond
            assert_non_null(exact);
            memcpy(exact, bytes, cut);
            ebb_status status =
                k == 0 ? ebb_png_read(&p, exact, cut) : ebb_jpeg_read(&p, exact, cut);
            if (status == NULL && cut + 16 < size) // the last marker may be missing
                fail_msg("%zu of %zu bytes of %s were enough", cut, size, names[k]);
            free(exact);
        }
        for (size_t i = 0; i < size; i++) { // each byte in turn: never a crash
            bytes[i] ^= 0x5A;
            (void)(k == 0 ? ebb_png_read(&p, bytes, size) : ebb_jpeg_read(&p, bytes, size));
            bytes[i] ^= 0x5A;
        }
    }
    ebb_picture_free(&p);
}

TEST(a_bad_picture_is_named_with_its_row)
{
    assert_int_equal(mkdir(path_of("bad"), 0700), 0);
    assert_int_equal(mkdir(path_of("bad/cat"), 0700), 0);
    write_png(path_of("bad/cat/1.png"), pixels, HEIGHT, WIDTH, PNG_FORMAT_RGB);
    FILE *f = fopen(path_of("bad/cat/2.png"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite("GIF89a------", 1, 12, f), 12);
    assert_int_equal(fclose(f), 0);
    ebb_status status = take_rows(path_of("bad"), PICTURES, IDENTITY, NULL, 0, in_order, 2);
    refused(status, EBB_REJECTED, "neither JPEG nor PNG");
    assert_non_null(strstr(ebb_status_text(status), "bad/cat/2.png"));
    // a claim of 2^32 - 1 pixels
    static unsigned char bytes[4096];
    const size_t size = read_file(path_of("bad/cat/1.png"), bytes, sizeof bytes);
    memset(bytes + 16, 0xFF, 8);
    ebb_picture p = {0};
    assert_non_null(ebb_png_read(&p, bytes, size));
    refused(ebb_picture_size(&p, 70000, 1), EBB_REJECTED, "70000 x 1");
    refused(ebb_picture_size(&p, 60000, 60000), EBB_REJECTED, "60000 x 60000");
    assert_int_equal(mkdir(path_of("bad/empty"), 0700), 0);
    refused(take_rows(path_of("bad"), PICTURES, IDENTITY, NULL, 0, in_order, 2), EBB_REJECTED,
            "without a picture");
}

const fixture around_all = {make_folder, remove_folder};

int main(void)
{
    fill_pixels();
    int failed = run_listed();
    closed();
    return failed;
}
