/* checkpoint.h: safetensors out, and the checksum that a checkpoint's __metadata__ holds:
 *
 *     "ebb.checksum":"crc64-xz:0123456789abcdef"     of the whole file, with zeros for its digits
 */
#pragma once

#include "ebb.h"
#include "onnx/words/tensor.h"

#define EBB_CHECKSUM_KEY "ebb.checksum"
#define EBB_CHECKSUM_KIND "crc64-xz:"
#define EBB_CHECKSUM_ZERO "0000000000000000"
/* What stands before the digits. */
#define EBB_CHECKSUM_FIELD "\"" EBB_CHECKSUM_KEY "\":\"" EBB_CHECKSUM_KIND

/* "F32"; NULL where the format has no name for it. */
const char *ebb_safetensors_dtype(ebb_dtype dtype);

/* What a process does that writes no checkpoint while another of its group writes one: it gives its part
 * of the states that are there in parts (shards.h). */
ebb_status ebb_checkpoint_give(ebb_program *program);

/* Where `words` begins in text[0..length), or NULL. */
const char *ebb_text_find(const char *text, size_t length, const char *words);
