/* test_events.c: the framing of TensorBoard's event files. That TensorBoard itself reads them is
 * recorded by tests/cli/read_events.py.
 */
#include <string.h>

#include "api/trainer/log.h"
#include "onnx/words/arena.h"
#include "tests/test.h"

/* RFC 3720, appendix B.4, and the usual check value. */
TEST(checksums_are_those_of_known_bytes)
{
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(ebb_crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(ebb_crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(ebb_crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(ebb_crc32c(up, 32), 0x46dd794eu);
    assert_int_equal(ebb_crc32c(down, 32), 0x113fdb5cu);
    assert_int_equal(ebb_crc32c("", 0), 0);
}

/* Recorded from TensorBoard's own writer of records. */
TEST(a_record_is_framed_as_tensorboard_frames_it)
{
    static const uint8_t recorded[] = {0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                       0xff, 0x86, 0x24, 0x0f, 0x61, 0x20, 0x72, 0x65,
                                       0x63, 0x6f, 0x72, 0x64, 0xbe, 0x6e, 0x4e, 0x08};
    uint8_t out[64];
    assert_int_equal(ebb_event_frame(out, "a record", 8), sizeof recorded);
    assert_memory_equal(out, recorded, sizeof recorded);
}

/* wall_time 1.5, step 7, and a summary of one value: fields 1, 2 and 5 of an Event. */
TEST(an_event_is_the_documented_message)
{
    static const uint8_t message[] = {
        0x09, 0,  0,    0,  0,    0, 0,   0xf8, 0x3f,                        // 1: double 1.5
        0x10, 7,                                                             // 2: int64 7
        0x2a, 12, 0x0a, 10, 0x0a, 3, 'a', '/',  'b',  0x15, 0, 0, 0x20, 0x40 // 5: {1: {a/b, 2.5}}
    };
    const ebb_tag tag = {"a/b", 2.5};
    uint8_t *event;
    size_t bytes;
    assert_null(ebb_event_make(&event, &bytes, 1.5, 7, &tag, 1));
    assert_int_equal(bytes, sizeof message + 16);
    assert_memory_equal(event + 12, message, sizeof message);
    ebb_free(event);
    static const char version[] = "brain.Event:2";
    assert_null(ebb_event_make(&event, &bytes, 0, 0, NULL, 0));
    assert_memory_equal(event + bytes - 4 - strlen(version), version, strlen(version));
    ebb_free(event);
}
