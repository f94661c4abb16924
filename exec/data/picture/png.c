/* png.c: any PNG by libpng, as red, green and blue: palettes and grey are widened, 16 bits become 8, what
 * is transparent counts as it is painted. */
#include "exec/data/picture/picture.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

typedef struct reader {
    png_struct *png;
    png_info *info;
    const unsigned char *bytes;
    size_t left;
    jmp_buf back;
    char text[128];
    png_byte **rows;
    ebb_status status;
} reader;

static void leave(png_struct *png, const char *message)
{
    reader *r = png_get_error_ptr(png);
    (void)snprintf(r->text, sizeof r->text, "%s", message);
    longjmp(r->back, 1);
}

static void say_nothing(png_struct *png, const char *message)
{
    (void)png;
    (void)message;
}

static void take(png_struct *png, png_byte *out, size_t count)
{
    reader *r = png_get_io_ptr(png);
    if (count > r->left)
        png_error(png, "the file ends too early");
    memcpy(out, r->bytes, count);
    r->bytes += count;
    r->left -= count;
}

static void decode(reader *r, ebb_picture *picture)
{
    png_set_read_fn(r->png, r, take);
    png_set_user_limits(r->png, 1 << 20, 1 << 20);
    png_read_info(r->png, r->info);
    const png_uint_32 width = png_get_image_width(r->png, r->info);
    const png_uint_32 height = png_get_image_height(r->png, r->info);
    r->status = ebb_picture_size(picture, width, height);
    r->rows = r->status == NULL ? ebb_alloc(height * sizeof *r->rows) : NULL;
    if (r->status == NULL && r->rows == NULL)
        r->status = ebb_error_memory();
    if (r->status != NULL)
        return;
    png_set_expand(r->png);
    png_set_scale_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
    (void)png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != (size_t)width * 3)
        png_error(r->png, "its rows are not red, green and blue");
    for (png_uint_32 y = 0; y < height; y++)
        r->rows[y] = picture->rgb + (size_t)y * width * 3;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
}

ebb_status ebb_png_read(ebb_picture *picture, const unsigned char *bytes, size_t size)
{
    reader *r = ebb_alloc(sizeof *r); // not of this function, so longjmp leaves it as it is
    EBB_GOT(r);
    memset(r, 0, sizeof *r);
    r->bytes = bytes;
    r->left = size;
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, leave, say_nothing);
    r->info = r->png != NULL ? png_create_info_struct(r->png) : NULL;
    if (r->info == NULL)
        r->status = ebb_error_memory();
    else if (setjmp(r->back) == 0)
        decode(r, picture);
    else
        r->status = ebb_error(EBB_REJECTED, "not a whole PNG: %s", r->text);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    ebb_free(r->rows);
    ebb_status status = r->status;
    ebb_free(r);
    return status;
}
