/* picture.h: a JPEG or PNG file as rows of red, green and blue bytes; and a smaller or larger one of it.
 *
 * jpeg.c and png.c hand a file of any kind to libjpeg and libpng, whose errors come back by longjmp and
 * end as a status; read.c tells the two apart; resize.c computes as Pillow does, to the bit.
 */
#pragma once

#include "onnx/words/arena.h"

/* Largest number of pixels that are decoded: a file of 100 bytes may claim any. */
enum { EBB_PICTURE_PIXELS = 1 << 27, EBB_PICTURE_SIDE = (1 << 16) - 1 };

typedef struct ebb_picture {
    int width, height;
    unsigned char *rgb; /* height x width x 3 */
    size_t capacity;    /* bytes that rgb has room for; it grows */
} ebb_picture;

void ebb_picture_free(ebb_picture *picture);
/* Room for width x height; EBB_REJECTED above the limit. */
ebb_status ebb_picture_size(ebb_picture *picture, uint64_t width, uint64_t height);

/* file, size: scratch memory for the bytes of the file, which grows. */
ebb_status ebb_picture_read(ebb_picture *picture, const char *path, void **file, size_t *size);
ebb_status ebb_jpeg_read(ebb_picture *picture, const unsigned char *bytes, size_t size);
ebb_status ebb_png_read(ebb_picture *picture, const unsigned char *bytes, size_t size);

/* The part of `from` at (left, top) of width x height, as out's width x height, which are set:
 * bilinear over all pixels that a smaller one covers. between: scratch for one direction. */
ebb_status ebb_picture_resize(ebb_picture *out, const ebb_picture *from, int left, int top,
                              int width, int height, ebb_picture *between);
