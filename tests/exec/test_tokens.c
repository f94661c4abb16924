/* test_tokens.c: texts of token ids become rows of one length: cut, filled up, packed, and what is to be
 * predicted in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ebb.h"
#include "tests/owned.h"
#include "tests/status.h"

enum { NO = -100 };

static char path[] = "/tmp/ebb_tokens_XXXXXX.safetensors";

static ebb_status open_rows(ebb_data **data, const ebb_named *tensors, size_t count, int64_t length,
                            bool pack)
{
    good(ebb_tensors_save(path, tensors, count, NULL));
    return ebb_data_open_files(data, (const char *const[]){path, NULL},
                               &(ebb_data_options){.sequence = length, .pack = pack});
}

static void has(const ebb_data *data, const char *name, int64_t rows, int64_t columns,
                const int32_t *want)
{
    const ebb_named *t = ebb_data_find(data, name);
    assert_non_null(t);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[0], rows);
    assert_int_equal(t->dims[1], columns);
    for (int64_t i = 0; i < rows * columns; i++)
        if ((int32_t)ebb_element(t, (size_t)i) != want[i])
            fail_msg("%s[%lld] is %d, not %d", name, (long long)i, (int)ebb_element(t, (size_t)i),
                     want[i]);
}

TEST(a_stream_is_cut_and_goes_on_in_the_next_row)
{
    static const int64_t ids[] = {5, 6, 7, 8, 9, 10, 11}, dims[] = {7};
    OWNED_DATA *d = NULL;
    good(open_rows(&d, &(ebb_named){"input_ids", 7, 1, dims, ids}, 1, 3, false));
    has(d, "input_ids", 2, 3, (const int32_t[]){5, 6, 7, 8, 9, 10}); // the last predicts nothing
    has(d, "target", 2, 3, (const int32_t[]){6, 7, 8, 9, 10, 11});
    has(d, "attention_mask", 2, 3, (const int32_t[]){1, 1, 1, 1, 1, 1});
    has(d, "position_ids", 2, 3, (const int32_t[]){0, 1, 2, 0, 1, 2});
    assert_null(ebb_data_find(d, "segment_ids"));
}

TEST(texts_are_filled_up_on_the_right)
{
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11}, mask[] = {0, 0, 1, 0, 1, 1, 1};
    static const int64_t lengths[] = {3, 4}, seven[] = {7}, two[] = {2};
    const ebb_named tensors[] = {{"tokens", 6, 1, seven, ids},
                                 {"loss_mask", 6, 1, seven, mask},
                                 {"lengths", 7, 1, two, lengths}};
    OWNED_DATA *d = NULL;
    good(open_rows(&d, tensors, 3, 5, false));
    has(d, "input_ids", 2, 5, (const int32_t[]){5, 6, 7, 0, 0, 8, 9, 10, 11, 0});
    has(d, "target", 2, 5, (const int32_t[]){NO, 7, NO, NO, NO, 9, 10, 11, NO, NO});
    has(d, "attention_mask", 2, 5, (const int32_t[]){1, 1, 1, 0, 0, 1, 1, 1, 1, 0});
}

TEST(texts_are_packed_with_numbers_of_their_own)
{
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13};
    static const int64_t lengths[] = {3, 4, 2}, nine[] = {9}, three[] = {3};
    const ebb_named tensors[] = {{"tokens", 6, 1, nine, ids}, {"lengths", 7, 1, three, lengths}};
    OWNED_DATA *d = NULL;
    good(open_rows(&d, tensors, 2, 5, true));
    has(d, "input_ids", 2, 5, (const int32_t[]){5, 6, 7, 12, 13, 8, 9, 10, 11, 0});
    has(d, "target", 2, 5, (const int32_t[]){6, 7, NO, 13, NO, 9, 10, 11, NO, NO});
    has(d, "segment_ids", 2, 5, (const int32_t[]){1, 1, 1, 2, 2, 1, 1, 1, 1, 0});
    has(d, "position_ids", 2, 5, (const int32_t[]){0, 1, 2, 0, 1, 0, 1, 2, 3, 0});
}

TEST(rows_have_labels_and_a_mask)
{
    static const int64_t ids[] = {5, 6, 7, 0, 8, 9, 10, 11},
                         labels[] = {NO, 6, 7, NO, NO, NO, 2, 11},
                         mask[] = {1, 1, 1, 0, 1, 1, 1, 1}, dims[] = {2, 4};
    const ebb_named tensors[] = {{"input_ids", 7, 2, dims, ids},
                                 {"labels", 7, 2, dims, labels},
                                 {"attention_mask", 7, 2, dims, mask}};
    OWNED_DATA *d = NULL;
    good(open_rows(&d, tensors, 3, 4, false));
    has(d, "target", 2, 4, (const int32_t[]){6, 7, NO, NO, NO, 2, 11, NO});
    has(d, "attention_mask", 2, 4, (const int32_t[]){1, 1, 1, 0, 1, 1, 1, 1});
}

TEST(texts_that_are_longer_than_a_row_are_told)
{
    static const int64_t ids[] = {5, 6, 7, 8, 9, 10, 11}, dims[] = {7}, two[] = {2},
                         lengths[] = {2, 5};
    const ebb_named arrays[] = {{"input_ids", 7, 1, dims, ids}, {"lengths", 7, 1, two, lengths}};
    for (int sequence = 4; sequence <= 5; sequence++) {
        OWNED_DATA *d = NULL;
        bool told = false;
        good(open_rows(&d, arrays, 2, sequence, false));
        const char *note;
        for (size_t i = 0; (note = ebb_data_note(d, i)) != NULL; i++)
            told = told || strstr(note, "1 of 2 texts are longer than a row") != NULL;
        assert_int_equal(told, sequence == 4);
    }
}

TEST(what_is_wrong_with_texts_is_said)
{
    static const int64_t ids[] = {5, 6, 7, 8}, minus[] = {5, -1, 7, 8}, left[] = {0, 1, 1, 1};
    static const int64_t four[] = {4}, square[] = {2, 2}, row[] = {1, 4}, one[] = {1}, five[] = {5};
    static const float reals[] = {1, 2, 3, 4};
    static const struct {
        ebb_named tensors[2];
        const char *says;
    } cases[] = {
        {{{"a", 7, 1, four, ids}, {"b", 7, 1, four, ids}}, "which array holds tokens"},
        {{{"input_ids", 1, 1, four, reals}, {"b", 7, 1, four, ids}}, "whole numbers"},
        {{{"input_ids", 7, 1, four, minus}, {"b", 7, 1, four, ids}},
         "array 'input_ids' has -1 at 1"},
        {{{"input_ids", 7, 1, four, ids}, {"labels", 7, 2, square, ids}},
         "a number for each token"},
        {{{"input_ids", 7, 1, four, ids}, {"lengths", 7, 1, one, five}},
         "a length that the tokens"},
        {{{"input_ids", 7, 2, row, ids}, {"attention_mask", 7, 2, row, left}},
         "filled up on the right"},
        {{{"input_ids", 7, 1, one, ids}, {"b", 7, 1, one, ids}},
         "no token of it is to be predicted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ebb_data *d;
        ebb_status status = open_rows(&d, cases[i].tensors, 2, 4, false);
        if (status == NULL || strstr(ebb_status_text(status), cases[i].says) == NULL)
            fail_msg("%zu: %s", i, status != NULL ? ebb_status_text(status) : "no error");
    }
}

int main(void)
{
    const int file = mkstemps(path, (int)strlen(".safetensors"));
    if (file < 0)
        return 1;
    (void)close(file);
    const int failed = run_listed();
    (void)remove(path);
    return failed;
}
