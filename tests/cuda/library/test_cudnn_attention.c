/* test_cudnn_attention.c: which attentions are cuDNN's, what is asked of it for them, and where
 * their tensors lie. Plans are for a described device: nothing of cuDNN runs. */
#include "tests/cuda/library/cudnn_reading.h"

extern const ebb_kernel ebb_cuda_cudnn_attention[], ebb_cuda_cudnn_heads[];

/* ---- attention ---- */

static const uint8_t yes[1] = {1};
static const uint16_t zero[1] = {0};

static void put_constant(testing *t, ebb_tensor *value, ebb_dtype dtype, const void *data)
{
    ebb_operand *o = type_in(t, dtype, 0, NULL);
    memset(value, 0, sizeof *value);
    value->type = o->type;
    value->bytes = o->bytes;
    value->data = (void *)(uintptr_t)data;
    o->constant = value;
}

static ebb_tensor masks[2];

/* 2 batches of 3 heads; 40 queries of 16 features, 56 keys, values of 24. */
static void put_attention(testing *t, ebb_op op)
{
    const bool back = op == EBB_OP_EBB_ATTENTION_GRAD || op == EBB_OP_EBB_ATTENTION_DROPOUT_GRAD;
    begin(t, op);
    put_ints(t, "k_perm", 4, D(0, 1, 3, 2));
    put_float(t, "scale", 0.25);
    if (back)
        type_in(t, EBB_BF16, 4, D(2, 3, 40, 24));
    type_in(t, EBB_BF16, 4, D(2, 3, 40, 16));
    type_in(t, EBB_BF16, 4, D(2, 3, 56, 16));
    type_in(t, EBB_BF16, 4, D(2, 3, 56, 24));
    put_constant(t, &masks[0], EBB_BOOL, yes);
    put_constant(t, &masks[1], EBB_BF16, zero);
    for (int k = 0; back && k < 2; k++)
        type_in(t, EBB_F32, 4, D(2, 3, 40, 1));
    type_out(t, EBB_BF16, 4, back ? D(2, 3, 40, 16) : D(2, 3, 40, 24));
    if (back) {
        type_out(t, EBB_BF16, 4, D(2, 3, 56, 16));
        type_out(t, EBB_BF16, 4, D(2, 3, 56, 24));
    } else {
        type_out(t, EBB_F32, 4, D(2, 3, 40, 1));
        type_out(t, EBB_F32, 4, D(2, 3, 40, 1));
    }
}

/* Behind the other operands, but for the output. */
static void put_key(testing *t, double ratio)
{
    put_float(t, "ratio", ratio);
    type_in(t, EBB_I64, 1, D(2));
}

TEST(attention_gives_what_the_operator_keeps)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_int_equal(w.parts, 1);
    assert_int_equal(w.part[0].ask.with, EBB_CUDNN_WITH_PARTS);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_MAX)], 1);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_SUM)], 2);
    assert_int_equal(at(&w.part[0], EBB_CUDNN_BIAS), -1);
    assert_int_equal(s->batch * 1000 + s->heads, 2003);
    assert_int_equal(s->queries * 1000 + s->keys, 40056);
    assert_int_equal(s->width * 1000 + s->value_width, 16024);
    assert_true(s->scale == 0.25F && !s->causal && !s->bias && s->dropout == 0);
    t.out[1].type = t.out[2].type = ebb_type_none(); // no training
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_int_equal(w.part[0].ask.with, EBB_CUDNN_WITH_STATS); // it has no kernel for neither
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_STATS)], EBB_WORK_OWN);
}

TEST(its_gradient_finds_the_output_again)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.out[0].over = 2; // dQ over Q, which both plans read
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_work_part *again = &w.part[0], *back = &w.part[1];
    assert_int_equal(w.parts, 2);
    assert_int_equal(again->ask.kind, EBB_ASK_ATTENTION);
    assert_int_equal(again->ask.with, EBB_CUDNN_WITH_STATS);
    assert_int_equal(back->ask.kind, EBB_ASK_ATTENTION_BACKWARD);
    const ebb_cudnn_role passed[] = {EBB_CUDNN_O, EBB_CUDNN_STATS};
    for (int i = 0; i < 2; i++) {
        const int from = at(again, passed[i]), to = at(back, passed[i]);
        assert_int_equal(again->place[from], EBB_WORK_OWN);
        assert_int_equal(back->place[to], EBB_WORK_OWN);
        assert_int_equal(again->index[from], back->index[to]);
    }
    assert_int_equal(w.bytes[again->index[at(again, EBB_CUDNN_O)]], 2 * 3 * 40 * 24 * 2);
    assert_int_equal(w.bytes[again->index[at(again, EBB_CUDNN_STATS)]], 2 * 3 * 40 * 4);
    assert_int_equal(w.bytes[back->index[at(back, EBB_CUDNN_ROW_SUMS)]], 2 * 3 * 40 * 4);
    assert_int_equal(w.copies, 1);
    assert_int_equal(w.copy_to[0], 0);
    assert_int_equal(back->index[at(back, EBB_CUDNN_DK)], 1);
    assert_int_equal(back->index[at(back, EBB_CUDNN_DV)], 2);
}

static const struct {
    int64_t dims[4], perm[4];
    ebb_cudnn_heads lies;
} results[] = {{{2, 3, 40, 24}, {0, 1, 2, 3}, {3 * 40 * 24, 40 * 24, 24}},
               {{2, 40, 3, 24}, {0, 2, 1, 3}, {40 * 3 * 24, 24, 3 * 24}},
               {{40, 2, 3, 24}, {1, 2, 0, 3}, {3 * 24, 24, 2 * 3 * 24}}};

static void put_result(testing *t, int i)
{
    put_ints(t, "y_perm", 4, results[i].perm);
    type_in(t, EBB_BF16, 4, results[i].dims);
}

TEST(an_output_that_is_given_is_read_where_it_lies)
{
    for (int i = 0; i < 3; i++) {
        ebb_work w;
        testing t;
        put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
        put_result(&t, i);
        taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
        const ebb_work_part *back = &w.part[0];
        const ebb_cudnn_attention_sizes *s = &back->ask.of.attention;
        assert_int_equal(w.parts, 1);
        assert_int_equal(back->ask.kind, EBB_ASK_ATTENTION_BACKWARD);
        assert_int_equal(back->ask.with, 0);
        const int o = at(back, EBB_CUDNN_O), stats = at(back, EBB_CUDNN_STATS);
        assert_int_equal(back->place[o], EBB_WORK_IN);
        assert_int_equal(back->index[o], 8);
        assert_memory_equal(&s->o, &results[i].lies, sizeof s->o);
        assert_int_equal(s->dout.head * 100 + s->dout.row, 40 * 24 * 100 + 24);
        assert_int_equal(back->place[stats], EBB_WORK_OWN); // of max and sum
        assert_int_equal(w.bytes[back->index[stats]], 2 * 3 * 40 * 4);
        assert_int_equal(w.scratches, 2); // and what the library sums in rows
        t.in[8].type.dims[1] += 1;
        refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "Y has another shape");
    }
}

TEST(a_batch_can_be_cut_into_slices)
{
    testing t;
    ebb_work w = {.slices = 2};
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.in[4].constant = NULL; // a mask for each sequence
    t.in[4].type = ebb_type_tensor(EBB_BOOL, 4, D(2, 1, 1, 56));
    put_result(&t, 2);
    taken(ebb_cuda_read_cudnn_attention(&w, &t.call));
    const ebb_work_part *back = &w.part[0];
    const ebb_cudnn_attention_sizes *s = &back->ask.of.attention;
    assert_int_equal(w.batch * 100 + s->batch * 10 + s->bias_batch, 211);
    const struct {
        ebb_cudnn_role role;
        size_t step;
    } steps[] = {{EBB_CUDNN_Q, 3 * 40 * 16 * 2},   {EBB_CUDNN_K, 3 * 56 * 16 * 2},
                 {EBB_CUDNN_DV, 3 * 56 * 24 * 2},  {EBB_CUDNN_O, 3 * 24 * 2}, // queries first
                 {EBB_CUDNN_DO, 3 * 40 * 24 * 2},  {EBB_CUDNN_BIAS, 56 * 2},
                 {EBB_CUDNN_ROW_SUMS, 3 * 40 * 4}, {EBB_CUDNN_STATS, 3 * 40 * 4}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_int_equal(back->step[at(back, steps[i].role)], steps[i].step);
    const int with_queries[] = {0, 1, 6, 7};
    for (int i = 0; i < 4; i++)
        t.in[with_queries[i]].type.dims[2] = 41;
    t.in[8].type.dims[0] = t.out[0].type.dims[2] = 41; // statistics of 3 x 41 rows
    w = (ebb_work){.slices = 2};
    refused(ebb_cuda_read_cudnn_attention(&w, &t.call), "multiples of 16 bytes");
}

TEST(masks_that_cudnn_has_are_told_it)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    put_int(&t, "causal", 1); // its fill is -infinity
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_true(w.part[0].ask.of.attention.causal);
    put_float(&t, "fill", -3e38); // as little as nothing, with no bias
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    t.attr[3].f = -10000;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "future");

    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[4].constant = NULL; // a bias for the keys of each sequence
    t.in[4].type = ebb_type_tensor(EBB_BF16, 4, D(2, 1, 1, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(s->bias && !s->causal);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20101);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_BIAS)], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[0].index[at(&w.part[0], EBB_CUDNN_BIAS)]], 2 * 56 * 2);
    t.in[3].constant = NULL; // and keys that are left out, for each head
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 3, D(3, 40, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20340);
}

/* -infinity is what the library does to the future; another fill is put into the bias. */
TEST(causality_beside_a_mask_is_the_librarys_where_it_is_exact)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    put_int(&t, "causal", 1);
    t.in[3].constant = NULL;
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 4, D(2, 1, 1, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20101);
    put_float(&t, "fill", -3e38);
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_true(!s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 20140);
}

/* [d, t] is turned before, and its gradient after: both lie in scratch. */
TEST(a_turned_key_is_turned_back)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.ints[0][2] = 2;
    t.ints[0][3] = 3;
    t.in[2].type = t.out[1].type = ebb_type_tensor(EBB_BF16, 4, D(2, 3, 16, 56));
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    for (int part = 0; part < 2; part++) {
        const int k = at(&w.part[part], EBB_CUDNN_K);
        assert_int_equal(w.part[part].place[k], EBB_WORK_OWN);
        assert_int_equal(w.bytes[w.part[part].index[k]], 2 * 3 * 16 * 56 * 2);
    }
    const int dk = at(&w.part[1], EBB_CUDNN_DK);
    assert_int_equal(w.part[1].place[dk], EBB_WORK_OWN);
    assert_int_equal(w.bytes[w.part[1].index[dk]], 2 * 3 * 16 * 56 * 2);
    assert_int_equal(w.part[1].ask.of.attention.keys, 56);
    assert_int_equal(w.part[1].ask.of.attention.width, 16);
}

TEST(attentions_that_are_not_cudnns_say_why)
{
    ebb_work w;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[3].constant = NULL; // a mask that is made in the step
    put_float(&t, "fill", -10000);
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "probability");
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[3].constant = NULL;
    for (int i = 0; i < 5; i++)
        if (i != 3)
            t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t)); // by a float32 bias
    assert_int_equal(w.part[0].ask.of.attention.bias_dtype, EBB_F32);
    assert_int_equal(w.bytes[w.part[0].index[at(&w.part[0], EBB_CUDNN_BIAS)]], 4 * 56);
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    for (int i = 0; i < 5; i++)
        if (i != 3)
            t.in[i].type.dtype = EBB_F32;
    t.out[0].type.dtype = EBB_F32;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "float16 and bfloat16");
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    t.in[0].type.dims[3] = t.in[1].type.dims[3] = 20;
    refused(read_with(ebb_cuda_read_cudnn_attention, &w, &t), "multiples of 8");
}

/* A number a score, for as many sequences at a time as are not too many; drawn anew for each. */
TEST(the_draws_of_a_dropout_are_handed_over)
{
    testing t;
    ebb_work w = {.slices = 2};
    put_attention(&t, EBB_OP_EBB_ATTENTION_DROPOUT_GRAD);
    put_key(&t, 0.25);
    put_result(&t, 0);
    taken(ebb_cuda_read_cudnn_attention(&w, &t.call));
    const ebb_work_part *back = &w.part[0];
    const int kept = at(back, EBB_CUDNN_KEPT);
    assert_int_equal(w.parts, 1);
    assert_true(back->ask.of.attention.dropout == 0.25 && w.before != NULL && !w.crowded);
    assert_int_equal(back->place[kept], EBB_WORK_OWN);
    assert_int_equal(back->step[kept], 0);
    assert_int_equal(w.bytes[back->index[kept]], 3 * 40 * 56 * 2);
    put_attention(&t, EBB_OP_EBB_ATTENTION_DROPOUT);
    put_key(&t, 0.25);
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_int_equal(w.bytes[w.part[0].index[at(&w.part[0], EBB_CUDNN_KEPT)]], 6 * 40 * 56 * 2);
    put_attention(&t, EBB_OP_EBB_ATTENTION_DROPOUT);
    put_key(&t, 0); // drops nothing
    taken(read_with(ebb_cuda_read_cudnn_attention, &w, &t));
    assert_true(at(&w.part[0], EBB_CUDNN_KEPT) == -1 && w.before == NULL);
}

/* 2 texts, 4 heads of queries for 2 of keys; 40 queries of 16 features, 56 keys, values of 24. */
static void put_heads(testing *t, bool packed, int64_t past)
{
    begin(t, EBB_OP_ATTENTION);
    t->call.version = 24;
    if (packed) {
        put_int(t, "q_num_heads", 4);
        put_int(t, "kv_num_heads", 2);
        type_in(t, EBB_BF16, 3, D(2, 40, 4 * 16));
        type_in(t, EBB_BF16, 3, D(2, 56 - past, 2 * 16));
        type_in(t, EBB_BF16, 3, D(2, 56 - past, 2 * 24));
    } else {
        type_in(t, EBB_BF16, 4, D(2, 4, 40, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, 56 - past, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, 56 - past, 24));
    }
    t->in[t->call.input_count++].type = ebb_type_none();
    if (past > 0) {
        type_in(t, EBB_BF16, 4, D(2, 2, past, 16));
        type_in(t, EBB_BF16, 4, D(2, 2, past, 24));
    }
    if (packed)
        type_out(t, EBB_BF16, 3, D(2, 40, 4 * 24));
    else
        type_out(t, EBB_BF16, 4, D(2, 4, 40, 24));
}

TEST(heads_are_read_where_they_lie)
{
    ebb_work w;
    testing t;
    put_heads(&t, true, 0);
    put_int(&t, "is_causal", 1);
    put_float(&t, "softcap", 30);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_int_equal(s->batch * 10000 + s->heads * 100 + s->kv_heads, 20402);
    assert_int_equal(s->queries * 1000 + s->keys, 40056);
    assert_int_equal(s->width * 1000 + s->value_width, 16024);
    assert_true(s->causal && !s->bias && s->scale == 0.25F && s->cap == 30);
    assert_int_equal(s->q.row, 4 * 16);
    assert_int_equal(s->k.head, 16);
    assert_int_equal(s->v.row, 2 * 24);
    assert_int_equal(s->o.row, 4 * 24);
    assert_int_equal(w.scratches, 1);                       // of what the library keeps of rows
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 2, D(40, 50)); // the last keys are left out
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    assert_true(s->causal && s->bias);
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 10140);
}

TEST(past_tokens_are_put_before_the_new_ones)
{
    ebb_work w;
    testing t;
    put_heads(&t, true, 16);
    put_int(&t, "is_causal", 1);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    const ebb_cudnn_attention_sizes *s = &w.part[0].ask.of.attention;
    assert_true(!s->causal && s->bias && s->keys == 56); // the diagonal begins behind the past
    assert_int_equal(s->bias_batch * 10000 + s->bias_heads * 100 + s->bias_rows, 10140);
    assert_int_equal(s->k.head, 56 * 16);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_K)], EBB_WORK_OWN);
    assert_int_equal(w.bytes[0], 2 * 2 * 56 * 16 * 2);
    type_out(&t, EBB_BF16, 4, D(2, 2, 56, 16));
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_K)], EBB_WORK_OUT);
    assert_int_equal(w.part[0].index[at(&w.part[0], EBB_CUDNN_K)], 1);
    assert_int_equal(w.part[0].place[at(&w.part[0], EBB_CUDNN_V)], EBB_WORK_OWN);
    assert_int_equal(w.copies, 0);
}

TEST(heads_that_are_not_cudnns_say_why)
{
    ebb_work w;
    testing t;
    put_heads(&t, false, 0);
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    t.out[t.call.output_count++].type = ebb_type_none();
    t.out[t.call.output_count++].type = ebb_type_none();
    type_out(&t, EBB_BF16, 4, D(2, 4, 40, 56));
    refused(read_with(ebb_cuda_read_cudnn_heads, &w, &t), "scores");
    put_heads(&t, false, 0);
    for (int i = 0; i < 3; i++)
        t.in[i].type.dtype = EBB_F16;
    t.out[0].type.dtype = EBB_F16;
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    t.in[3].type = ebb_type_tensor(EBB_BOOL, 2, D(40, 56));
    taken(read_with(ebb_cuda_read_cudnn_heads, &w, &t));
    assert_int_equal(w.part[0].ask.of.attention.bias_dtype, EBB_F32);
    t.in[0].type.dims[3] = t.in[1].type.dims[3] = 20;
    refused(read_with(ebb_cuda_read_cudnn_heads, &w, &t), "multiples of 8");
}

/* ---- plans ---- */

static void attention_is_planned_with_its_scratch(void **state)
{
    (void)state;
    testing t;
    put_attention(&t, EBB_OP_EBB_ATTENTION);
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention, 0);
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD); // O, stats and row sums
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention,
                    11520 + 1024 + 1024);
    for (int i = 0; i < 3; i++) { // no O where it is given
        put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
        put_result(&t, i);
        check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention, 1024 + 1024);
    }
    put_attention(&t, EBB_OP_EBB_ATTENTION_GRAD);
    t.in[4].constant = NULL; // a mask for each sequence: its bias, the living rows, and dO of these
    t.in[4].type = ebb_type_tensor(EBB_BOOL, 4, D(2, 1, 1, 56));
    check_workspace(&t, ebb_cuda_cudnn_attention, ebb_cuda_read_cudnn_attention,
                    11520 + 1024 + 1024 + 256 + 256 + 11520);
    put_heads(&t, true, 0);
    put_int(&t, "is_causal", 1);
    put_float(&t, "softcap", 30);
    check_workspace(&t, ebb_cuda_cudnn_heads, ebb_cuda_read_cudnn_heads, 1280);
    put_heads(&t, true, 16); // past and new K and V, the bias, the living rows
    put_int(&t, "is_causal", 1);
    check_workspace(&t, ebb_cuda_cudnn_heads, ebb_cuda_read_cudnn_heads,
                    7168 + 10752 + 4608 + 256 + 1280);
}

/* 16 sequences of 1024, 12 heads of 64, causal: the workspace of its gradient. */
static size_t plan_long_text(ebb_op op)
{
    testing t;
    size_t bytes = SIZE_MAX;
    const int64_t *x = D(16, 12, 1024, 64), *row = D(16, 12, 1024, 1);
    const ebb_kernel *k = kernel_for(ebb_cuda_cudnn_attention, op);
    begin(&t, op);
    put_ints(&t, "k_perm", 4, D(0, 1, 3, 2));
    put_int(&t, "causal", 1);
    for (int i = 0; i < 4; i++)
        type_in(&t, EBB_BF16, 4, x);
    put_constant(&t, &masks[0], EBB_BOOL, yes);
    put_constant(&t, &masks[1], EBB_BF16, zero);
    type_in(&t, EBB_F32, 4, row);
    type_in(&t, EBB_F32, 4, row);
    if (op == EBB_OP_EBB_ATTENTION_DROPOUT_GRAD)
        put_key(&t, 0.1);
    type_in(&t, EBB_BF16, 4, x);
    for (int i = 0; i < 3; i++)
        type_out(&t, EBB_BF16, 4, x);
    check_status(ebb_cuda_cudnn_describe("h100"), "h100");
    taken(ebb_kernel_declines(k, &t.call));
    check_status(k->workspace(&t.call, &bytes), k->name);
    return bytes;
}

/* Sums in one order want a copy of dQ for each block of keys, as much as all operands together; and
 * the draws of a dropout, whole, would be 16 times as large as an operand. */
static void a_long_text_is_planned_in_slices(void **state)
{
    (void)state;
    const size_t operand = 16 * 12 * 1024 * 64 * 2;
    assert_true(plan_long_text(EBB_OP_EBB_ATTENTION_GRAD) < 5 * operand);
    assert_true(plan_long_text(EBB_OP_EBB_ATTENTION_DROPOUT_GRAD) < 5 * operand + (64U << 20));
}

int main(void)
{
    const struct CMUnitTest plans[] = {
        cmocka_unit_test(attention_is_planned_with_its_scratch),
        cmocka_unit_test(a_long_text_is_planned_in_slices),
    };
    return read_then_plan(plans, sizeof plans / sizeof plans[0]);
}
