/* amount.h: amounts of memory as people read them. How they are written to be read: ebb_amount_parse. */
#pragma once

#include <stdint.h>

typedef struct ebb_bytes_text {
    char text[24];
} ebb_bytes_text;

/* "1.25 GiB", "640 B"; for a format: ebb_bytes(n).text. */
ebb_bytes_text ebb_bytes(uint64_t bytes);
