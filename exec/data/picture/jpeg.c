/* jpeg.c: baseline and progressive JPEG by libjpeg, as red, green and blue. */
#include "exec/data/picture/picture.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
    ebb_status status; /* of ours, where libjpeg has none */
} reader;

static void leave(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, r->text);
    longjmp(r->back, 1);
}

/* Bytes between markers that nobody needs are common and harmless. A file that ends too early is not:
 * libjpeg would paint the rest grey. */
static void judge(j_common_ptr jpeg, int level)
{
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER))
        leave(jpeg);
}

static void say_nothing(j_common_ptr jpeg)
{
    (void)jpeg;
}

/* Behind setjmp there are no variables of our own. */
static void decode(reader *r, ebb_picture *picture, const unsigned char *bytes, size_t size)
{
    struct jpeg_decompress_struct *j = &r->jpeg;
    jpeg_mem_src(j, bytes, (unsigned long)size);
    (void)jpeg_read_header(j, TRUE);
    r->status = ebb_picture_size(picture, j->image_width, j->image_height);
    if (r->status == NULL && (j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK))
        r->status = ebb_error(EBB_REJECTED, "a JPEG of four inks (CMYK): save it as RGB");
    if (r->status != NULL)
        return;
    j->out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        JSAMPROW row = picture->rgb + (size_t)j->output_scanline * (size_t)picture->width * 3;
        (void)jpeg_read_scanlines(j, &row, 1);
    }
    (void)jpeg_finish_decompress(j);
}

ebb_status ebb_jpeg_read(ebb_picture *picture, const unsigned char *bytes, size_t size)
{
    reader *r = ebb_alloc(sizeof *r); // not of this function, so longjmp leaves it as it is
    EBB_GOT(r);
    memset(r, 0, sizeof *r);
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = leave;
    r->errors.emit_message = judge;
    r->errors.output_message = say_nothing;
    r->jpeg.client_data = r;
    if (setjmp(r->back) == 0) {
        jpeg_create_decompress(&r->jpeg);
        decode(r, picture, bytes, size);
    } else {
        r->status = ebb_error(EBB_REJECTED, "not a whole JPEG: %s", r->text);
    }
    jpeg_destroy_decompress(&r->jpeg);
    ebb_status status = r->status;
    ebb_free(r);
    return status;
}
