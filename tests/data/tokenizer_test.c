/* SPDX-License-Identifier: Apache-2.0
 *
 * Words, vocabularies, byte-pair merges, encoding, documents from files, and storing a tokenizer in a model file. */
#include "strata/tokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/data/text/tokenizer.h"
#include "tests/support/folder.h"

TestSuite(tokenizer, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* Returns the words of a text, joined by '|'. */
static const char *words_of(const char *text) {
    static char out[512];
    strata_word_reader reader = {.text = text, .n_bytes = strlen(text)};
    out[0] = 0;
    for (bool more = true; more;) {
        OK(strata_word_next(&reader, "t", &more, &err));
        if (more) strcat(strcat(out, out[0] ? "|" : ""), reader.word);
    }
    return out;
}

Test(tokenizer, cuts_words_by_the_stated_rules) {
    cr_assert_str_eq(words_of("The QUICK fox -- it's 2 late... Isn't it?!"), "the|quick|fox|it's|2|late|isn't|it|?|!");
    cr_assert_str_eq(words_of("a<br /><br />b <i>c</i> 1 < 2 > 0"), "a|b|c|1|2|0");
    cr_assert_str_eq(words_of("'quoted' 'tis rock'n'roll dogs'"), "quoted|tis|rock'n'roll|dogs");
    cr_assert_str_eq(words_of("don\xE2\x80\x99t \xE2\x80\x9Cno\xE2\x80\x9D\xE2\x80\x94yes"), "don't|no|yes");
    cr_assert_str_eq(words_of("\xC3\x89T\xC3\x89 \xCE\xA3\xCE\x91 \xD0\x96\xD0\x81 \xE6\x97\xA5\xE6\x9C\xAC"),
                     "\xC3\xA9t\xC3\xA9|\xCF\x83\xCE\xB1|\xD0\xB6\xD1\x91|\xE6\x97\xA5|\xE6\x9C\xAC");
    cr_assert_str_eq(words_of(" \t\n.,;"), "");
}

Test(tokenizer, refuses_what_is_not_utf8) {
    strata_word_reader reader = {.text = "ab \xFF", .n_bytes = 4};
    bool more;
    OK(strata_word_next(&reader, "t", &more, &err));
    cr_assert_eq(strata_word_next(&reader, "t", &more, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: byte 0xFF at 3 is not valid UTF-8");
}

Test(tokenizer, long_runs_are_cut) {
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    strata_word_reader reader = {.text = text, .n_bytes = strlen(text)};
    size_t n = 0;
    for (bool more = true; more; n += more ? reader.length : 0) {
        OK(strata_word_next(&reader, "t", &more, &err));
        cr_assert_leq(reader.length, STRATA_LONGEST_WORD);
    }
    cr_assert_eq(n, 1999);
}

static strata_texts *lines(const char *text) {
    strata_texts *texts = NULL;
    OK(strata_texts_lines(test_file("lines.txt", text, strlen(text)), &texts, &err));
    return texts;
}

static strata_tokenizer *train(const char *text, strata_tokenizer_options opts) {
    strata_texts *texts = lines(text);
    strata_tokenizer *tokenizer = NULL;
    OK(strata_tokenizer_train(texts, &opts, &tokenizer, &err));
    strata_texts_destroy(texts);
    return tokenizer;
}

Test(tokenizer, frequent_words_come_first_and_equal_ones_as_they_came) {
    strata_tokenizer *t = train("d b a\nb c a\nb e", (strata_tokenizer_options){.vocabulary = 6});
    const char *const wanted[] = {"", "?", "b", "a", "d", "c"};
    cr_assert_eq(strata_tokenizer_size(t), 6);
    for (int i = 0; i < 6; i++) cr_assert_str_eq(strata_tokenizer_token(t, i), wanted[i]);
    cr_assert(!strata_tokenizer_token(t, 6) && !strata_tokenizer_token(t, -1));
    int32_t ids[4];
    int64_t n;
    OK(strata_tokenizer_encode(t, "A new b", 7, 4, ids, &n, &err));
    cr_assert(n == 3 && ids[0] == 3 && ids[1] == STRATA_TOKEN_UNKNOWN && ids[2] == 2 && ids[3] == STRATA_TOKEN_PAD);
    OK(strata_tokenizer_encode(t, "b a d c e b", 11, 4, ids, &n, &err));
    cr_assert(n == 6 && ids[3] == 5);
    strata_tokenizer_destroy(t);
    t = train("d b a\nb c a\nb e", (strata_tokenizer_options){.least_count = 2});
    cr_assert_eq(strata_tokenizer_size(t), 4);
    strata_tokenizer_destroy(t);
}

/* The expected result was computed by hand. The characters by count are " " 9, "o" 9, "l" 7, "w" 7, "e" 2, "r" 2, "n" 2
 * ("e" occurs in lower before new). The pairs " l", "lo" and "ow" are tried by count, and those of equal count by the
 * smaller ids. */
Test(tokenizer, subwords_are_merged_by_count_and_then_by_the_smaller_ids) {
    strata_tokenizer *t = train("low low low low low lower lower now now",
                                (strata_tokenizer_options){.kind = STRATA_TOKENIZER_SUBWORDS, .vocabulary = 12});
    const char *const wanted[] = {"", "?", " ", "o", "w", "l", "e", "r", "n", "ow", " l", " low"};
    cr_assert_eq(strata_tokenizer_size(t), 12);
    for (int i = 0; i < 12; i++)
        cr_assert_str_eq(strata_tokenizer_token(t, i), wanted[i], "%d: \"%s\"", i, strata_tokenizer_token(t, i));
    int32_t ids[8];
    int64_t n;
    OK(strata_tokenizer_encode(t, "low owl", 7, 8, ids, &n, &err));
    const int32_t expected[] = {11, 2, 9, 5, 0, 0, 0, 0};
    cr_assert(n == 4 && !memcmp(ids, expected, sizeof ids));
    OK(strata_tokenizer_encode(t, "xo", 2, 8, ids, &n, &err));
    cr_assert(n == 3 && ids[0] == 2 && ids[1] == STRATA_TOKEN_UNKNOWN && ids[2] == 3);
    strata_tokenizer_destroy(t);
}

/* Joining the pieces of a word must give the word again, whatever was merged. */
Test(tokenizer, subwords_lose_nothing) {
    const char *text =
        "banana bandana ananas aaaa aaaaa aaaaaaa mississippi sassafras sass \xC3\xA9t\xC3\xA9s \xC3\xA9t\xC3\xA9";
    for (int size = 14; size < 60; size += 5) {
        strata_tokenizer *t = train(text, (strata_tokenizer_options){.kind = STRATA_TOKENIZER_SUBWORDS, .vocabulary = size});
        int32_t ids[200];
        int64_t n;
        char back[400] = "";
        cr_assert_leq(strata_tokenizer_size(t), size);
        OK(strata_tokenizer_encode(t, text, strlen(text), 200, ids, &n, &err));
        for (int64_t i = 0; i < n; i++) strcat(back, strata_tokenizer_token(t, ids[i]));
        if (size >= 19) cr_assert_str_eq(back + 1, text, "%d", size);
        strata_tokenizer_destroy(t);
    }
}

Test(tokenizer, json_gives_the_same_tokenizer) {
    for (int kind = 0; kind < 2; kind++) {
        strata_tokenizer *t = train("the cat \xC3\xA9 sat on the mat\nthe bat sat",
                                    (strata_tokenizer_options){.kind = (strata_tokenizer_kind)kind, .vocabulary = 25}),
                         *back = NULL;
        char *json = NULL, *again = NULL;
        OK(strata_tokenizer_to_json(t, &json, &err));
        OK(strata_tokenizer_from_json(json, strlen(json), "j", &back, &err));
        OK(strata_tokenizer_to_json(back, &again, &err));
        cr_assert_str_eq(json, again);
        cr_assert_eq(strata_tokenizer_size(t), strata_tokenizer_size(back));
        int32_t a[20], b[20];
        OK(strata_tokenizer_encode(t, "the sat hat", 11, 20, a, NULL, &err));
        OK(strata_tokenizer_encode(back, "the sat hat", 11, 20, b, NULL, &err));
        cr_assert(!memcmp(a, b, sizeof a));
        free(json);
        free(again);
        strata_tokenizer_destroy(t);
        strata_tokenizer_destroy(back);
    }
}

Test(tokenizer, json_that_is_wrong_is_refused) {
    const struct {
        const char *json, *part;
    } wrong[] = {
        {"[]", "must be an object"},
        {"{\"kind\":\"word\",\"tokens\":[]}", "kind is \"word\"; there are: words, subwords"},
        {"{\"kind\":\"words\"}", "\"tokens\" is missing"},
        {"{\"kind\":\"words\",\"tokens\":[]}", "tokens: must not be empty"},
        {"{\"kind\":\"words\",\"tokens\":[\"a\",\"b\",\"a\"]}", "tokens[2]: \"a\" is given twice, the first time as token 2"},
        {"{\"kind\":\"words\",\"tokens\":[\"\"]}", "tokens[0]: must be a word of 1 to 256 bytes"},
        {"{\"kind\":\"subwords\",\"characters\":[\"ab\"],\"merges\":[]}", "characters[0]: must be one character"},
        {"{\"kind\":\"subwords\",\"characters\":[\"a\",\"b\"],\"merges\":[2]}", "merges: must be pairs of ids"},
        {"{\"kind\":\"subwords\",\"characters\":[\"a\",\"b\"],\"merges\":[2,4]}", "merges[1]: must be an integer 2..3, is 4"},
        {"{\"kind\":\"subwords\",\"characters\":[\"a\",\"b\"],\"merges\":[2,3,2,3]}", "merges[3]: this pair is given twice"},
        {"{\"kind\":\"words\",\"tokens\":[\"a\"],\"size\":3}", "size"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strata_tokenizer *t = NULL;
        cr_assert_eq(strata_tokenizer_from_json(wrong[i].json, strlen(wrong[i].json), "j", &t, &err), STRATA_DATA);
        cr_assert(strstr(err.message, wrong[i].part), "%s", err.message);
        cr_assert_null(t);
    }
}

Test(tokenizer, refuses_what_cannot_be_trained_on) {
    strata_texts *texts = lines("...\n--\n");
    strata_tokenizer *t = NULL;
    cr_assert_eq(strata_tokenizer_train(texts, NULL, &t, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "its 2 documents contain no word"), "%s", err.message);
    cr_assert_eq(strata_tokenizer_train(texts, &(strata_tokenizer_options){.vocabulary = 2}, &t, &err), STRATA_INVALID);
    strata_texts_destroy(texts);
    texts = lines("a b\n");
    cr_assert_eq(strata_tokenizer_train(texts, &(strata_tokenizer_options){.least_count = 2}, &t, &err), STRATA_DATA);
    strata_texts_destroy(texts);
    cr_assert_null(t);
    texts = NULL;
    cr_assert_eq(strata_texts_lines(test_file("bad.txt", "ok\na\xFF\n", 6), &texts, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "bad.txt:2: this line is not valid UTF-8"), "%s", err.message);
}

/* ---- documents ---- */

static void write_review(const char *name, const char *text) {
    test_file(name, text, strlen(text));
}

static void make_reviews(const char *root) {
    static const char *const folders[] = {"", "/train", "/train/pos", "/train/neg", "/train/unsup"};
    char path[256];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        mkdir(test_path(path), 0777);
    }
    snprintf(path, sizeof path, "%s/train/pos/1_9.txt", root), write_review(path, "good film");
    snprintf(path, sizeof path, "%s/train/pos/0_8.txt", root), write_review(path, "great film");
    snprintf(path, sizeof path, "%s/train/neg/0_1.txt", root), write_review(path, "bad film");
    snprintf(path, sizeof path, "%s/train/unsup/0_0.txt", root), write_review(path, "what film");
}

static void holds_reviews(const char *path) {
    strata_texts *texts = NULL;
    OK(strata_texts_imdb(path, "train", &texts, &err));
    const char *const wanted[] = {"bad film", "great film", "good film"};
    cr_assert_eq(strata_texts_size(texts), 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_str_eq(strata_texts_get(texts, i), wanted[i]);
        cr_assert_eq(strata_texts_label(texts, i), i > 0);
    }
    cr_assert(strata_texts_n_classes(texts) == 2 && !strcmp(strata_texts_class_name(texts, 1), "positive"));
    strata_texts_destroy(texts);
}

Test(tokenizer, reads_reviews_from_the_folder_its_parent_and_its_tar) {
    char command[600];
    strata_texts *texts = NULL;
    make_reviews("aclImdb");
    holds_reviews(test_path("aclImdb"));
    holds_reviews(test_folder());
    snprintf(command, sizeof command, "cd '%s' && tar czf aclImdb_v1.tar.gz aclImdb && rm -r aclImdb", test_folder());
    cr_assert_eq(system(command), 0);
    holds_reviews(test_folder());
    holds_reviews(test_path("aclImdb_v1.tar.gz"));
    cr_assert_eq(strata_texts_imdb(test_folder(), "test", &texts, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "has neither imdb_test.csv"), "%s", err.message);
    cr_assert_eq(strata_texts_imdb(test_folder(), "dev", &texts, &err), STRATA_INVALID);
}

Test(tokenizer, a_review_that_is_not_utf8_is_named) {
    strata_texts *texts = NULL;
    make_reviews("aclImdb");
    write_review("aclImdb/train/pos/5_9.txt", "caf\xE9");
    cr_assert_eq(strata_texts_imdb(test_path("aclImdb"), "train", &texts, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "train/pos/5_9.txt: byte 0xE9 at 3 is not valid UTF-8"), "%s", err.message);
}

Test(tokenizer, reads_reviews_from_csv) {
    const char *text = "review,sentiment\n\"good, good\",positive\nbad,negative\n";
    strata_texts *texts = NULL;
    test_file("imdb_train.csv", text, strlen(text));
    OK(strata_texts_imdb(test_folder(), "train", &texts, &err));
    cr_assert(strata_texts_size(texts) == 2 && strata_texts_label(texts, 0) == 1 && strata_texts_label(texts, 1) == 0);
    strata_texts_destroy(texts);
    text = "review,sentiment\ngood,postive\n";
    test_file("imdb_train.csv", text, strlen(text));
    cr_assert_eq(strata_texts_imdb(test_folder(), "train", &texts, &err), STRATA_DATA);
    cr_assert(
        strstr(err.message,
               "imdb_train.csv:2: the label \"postive\" in column \"sentiment\" is not one of the 2 classes; the nearest is "
               "\"positive\""),
        "%s", err.message);
}

Test(tokenizer, csv_columns_are_joined) {
    const char *text = "id,title,body,label\n1,A,b c,fake\n2,D,,real\n", *const columns[] = {"title", "body"};
    strata_texts *texts = NULL;
    OK(strata_texts_csv(test_file("news.csv", text, strlen(text)),
                        &(strata_csv_options){.features = columns, .n_features = 2, .label = "label"}, &texts, &err));
    cr_assert_str_eq(strata_texts_get(texts, 0), "A b c");
    cr_assert_str_eq(strata_texts_get(texts, 1), "D ");
    cr_assert(strata_texts_label(texts, 0) == 0 && !strcmp(strata_texts_class_name(texts, 1), "real"));
    strata_texts_destroy(texts);
}

/* ---- datasets and models ---- */

Test(tokenizer, documents_become_rows_of_tokens) {
    const char *text = "text,label\nb a b,x\na,y\n";
    strata_texts *texts = NULL;
    strata_tokenizer *t = NULL;
    strata_dataset *data = NULL;
    strata_order *order = NULL;
    OK(strata_texts_csv(test_file("t.csv", text, strlen(text)), &(strata_csv_options){.label = "label"}, &texts, &err));
    OK(strata_tokenizer_train(texts, NULL, &t, &err));
    OK(strata_dataset_from_texts(texts, t, 2, &data, &err));
    cr_assert(strata_dataset_feature_dtype(data) == STRATA_DTYPE_I32 &&
              strata_shape_equal(strata_dataset_element_shape(data), STRATA_SHAPE(2)));
    cr_assert_str_eq(strata_dataset_class_name(data, 1), "y");
    int32_t x[4], y[2];
    OK(strata_order_create(2, false, 0, 0, &order, &err));
    strata_dataset_fetch(data, order, 0, 2, x, y);
    cr_assert(x[0] == 2 && x[1] == 3 && x[2] == 3 && x[3] == 0 && y[0] == 0 && y[1] == 1);
    strata_dataset_destroy(data);
    data = NULL;
    OK(strata_dataset_from_text("A new B", t, 4, &data, &err));
    cr_assert(strata_dataset_size(data) == 1 && !strata_dataset_has_labels(data));
    strata_dataset_destroy(data);
    data = NULL;
    cr_assert_eq(strata_dataset_from_text("...", t, 4, &data, &err), STRATA_DATA);
    cr_assert_eq(strata_dataset_from_text("a", t, 0, &data, &err), STRATA_INVALID);
    strata_order_destroy(order);
    strata_tokenizer_destroy(t);
    strata_texts_destroy(texts);
}

Test(tokenizer, travels_inside_the_model_file) {
    strata_tokenizer *t = train("b a b", (strata_tokenizer_options){0}), *back = NULL;
    strata_device *device = NULL;
    strata_model *model = NULL;
    OK(strata_device_open("host", NULL, &device, &err));
    OK(strata_model_create(STRATA_SHAPE(3), &model, &err));
    strata_model_add_dense(model, (strata_dense_options){.units = 2});
    OK(strata_model_compile(model, device, NULL, &err));
    cr_assert_eq(strata_model_tokenizer(model, &back, &err), STRATA_UNAVAILABLE);
    OK(strata_model_set_tokenizer(model, t, &err));
    OK(strata_model_set_note(model, "classes", "old", &err));
    OK(strata_model_set_note(model, "classes", "[\"no\",\"yes\"]", &err));
    cr_assert_eq(strata_model_set_note(model, "model", "x", &err), STRATA_INVALID);
    cr_assert_eq(strata_model_set_note(model, "training", "x", &err), STRATA_INVALID); /* a checkpoint has its own */
    cr_assert_eq(strata_model_set_note(model, "Bad key", "x", &err), STRATA_INVALID);
    OK(strata_model_save(model, test_path("m.strata"), &err));
    strata_model_destroy(model);
    OK(strata_model_load(test_path("m.strata"), &model, &err));
    cr_assert_str_eq(strata_model_note(model, "classes"), "[\"no\",\"yes\"]");
    OK(strata_model_tokenizer(model, &back, &err));
    cr_assert(strata_tokenizer_size(back) == 4 && !strcmp(strata_tokenizer_token(back, 2), "b"));
    OK(strata_model_set_tokenizer(model, NULL, &err));
    cr_assert_null(strata_model_note(model, "tokenizer"));
    strata_model_destroy(model);
    strata_device_close(device);
    strata_tokenizer_destroy(t);
    strata_tokenizer_destroy(back);
}

Test(tokenizer, reads_the_real_reviews_as_they_are, .timeout = 180) {
    if (!test_data("imdb")) cr_skip_test("no real data: set STRATA_TEST_DATA to a folder with imdb/ in it");
    if (!STRATA_WITH_XZ) cr_skip_test("the files are .xz and this build has no liblzma");
    strata_texts *texts = NULL;
    OK(strata_texts_imdb(test_data("imdb"), "train", &texts, &err));
    int64_t positive = 0;
    for (int64_t i = 0; i < strata_texts_size(texts); i++) positive += strata_texts_label(texts, i);
    cr_assert(strata_texts_size(texts) == 25000 && positive == 12500);
    strata_texts_destroy(texts);
}
