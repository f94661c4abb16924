/* events.c: event files of TensorBoard: a record is
 *
 *     uint64 length    uint32 masked crc32c of it    length bytes    uint32 masked crc32c of those
 *
 * little-endian, and its bytes are one Event (event.proto).
 */
#include "api/trainer/log.h"

#include "event.pb-c.h"
#include "onnx/words/arena.h"

uint32_t ebb_crc32c(const void *bytes, size_t count)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u))); // Castagnoli's, reversed
    }
    return ~crc;
}

/* So that a checksum of bytes that hold checksums is still one. */
static uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static uint8_t *put(uint8_t *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *out++ = (uint8_t)(number >> (8 * i));
    return out;
}

size_t ebb_event_frame(uint8_t *out, const void *bytes, size_t count)
{
    uint8_t *at = put(out, count, 8);
    at = put(at, masked(ebb_crc32c(out, 8)), 4);
    memcpy(at, bytes, count);
    (void)put(at + count, masked(ebb_crc32c(bytes, count)), 4);
    return count + 16;
}

static ebb_status frame_event(uint8_t **out, size_t *bytes, const Events__Event *event)
{
    const size_t count = events__event__get_packed_size(event);
    uint8_t *packed = ebb_alloc(count);
    *out = ebb_alloc(count + 16);
    if (packed == NULL || *out == NULL) {
        ebb_free(packed);
        ebb_free(*out);
        return ebb_error_memory();
    }
    (void)events__event__pack(event, packed);
    *bytes = ebb_event_frame(*out, packed, count);
    ebb_free(packed);
    return NULL;
}

static ebb_status fill_values(Events__Summary *s, ebb_arena *scratch, const ebb_tag *tags,
                              size_t count)
{
    Events__Value *list = EBB_NEW(scratch, Events__Value, count + 1);
    s->value = EBB_NEW(scratch, Events__Value *, count + 1);
    EBB_GOT(list && s->value);
    for (size_t i = 0; i < count; i++) {
        events__value__init(&list[i]);
        list[i].tag = (char *)(uintptr_t)tags[i].name;
        list[i].simple_value = (float)tags[i].value;
        s->value[s->n_value++] = &list[i];
    }
    return NULL;
}

ebb_status ebb_event_make(uint8_t **out, size_t *bytes, double seconds, int64_t step,
                          const ebb_tag *tags, size_t count)
{
    EBB_LOCAL_ARENA(scratch);
    Events__Event e = EVENTS__EVENT__INIT;
    Events__Summary s = EVENTS__SUMMARY__INIT;
    Events__SessionLog begun = EVENTS__SESSION_LOG__INIT;
    ebb_status status = NULL;
    e.wall_time = seconds;
    e.step = step;
    if (tags != NULL) {
        status = fill_values(&s, scratch, tags, count);
        e.what_case = EVENTS__EVENT__WHAT_SUMMARY;
        e.summary = &s;
    } else if (step > 0) {
        begun.status = EVENTS__SESSION_LOG__STATUS__START;
        e.what_case = EVENTS__EVENT__WHAT_SESSION_LOG;
        e.session_log = &begun;
    } else {
        e.what_case = EVENTS__EVENT__WHAT_FILE_VERSION;
        e.file_version = (char *)(uintptr_t) "brain.Event:2";
    }
    if (status == NULL)
        status = frame_event(out, bytes, &e);
    return status;
}
