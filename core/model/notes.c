/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that are stored with a model: its tokenizer, its preprocessing, and notes of the user. In a model file they are
 * metadata, like the model's JSON. */
#include "core/data/prepare/preprocessing.h"
#include "core/model/agree.h"
#include "core/model/checkpoint.h"
#include "strata/tokenizer.h"

static const char prefix[] = "strata.", own_key[] = "model", tokenizer_key[] = "tokenizer",
                  preprocessing_key[] = "preprocessing";
enum { LONGEST_KEY = 64 };

static int find(const strata_model *model, const char *key) {
    for (int i = 0; i < model->notes.n; i++)
        if (!strcmp(model->notes.items[i].key + sizeof prefix - 1, key)) return i;
    return -1;
}

static void remove_note(strata_model *model, int index) {
    free(model->notes.items[index].key);
    free(model->notes.items[index].text);
    model->notes.items[index] = model->notes.items[--model->notes.n];
}

void strata_model_free_notes(strata_model *model) {
    while (model->notes.n) remove_note(model, model->notes.n - 1);
    free(model->notes.items);
    model->notes.items = NULL;
}

static strata_status add(strata_model *model, const char *key, const char *text, strata_error *err) {
    STRATA_FREED char *full = NULL, *copy = strdup(text);
    STRATA_TRY(STRATA_NEW(full, strlen(key) + sizeof prefix, err, "model: no host memory for its %s", key));
    if (!copy || !strata_grow(&model->notes.items, model->notes.n, sizeof *model->notes.items))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its %s", key);
    memcpy(full, prefix, sizeof prefix - 1);
    strcpy(full + sizeof prefix - 1, key);
    const int old = find(model, key);
    if (old >= 0) remove_note(model, old);
    model->notes.items[model->notes.n++] = (struct strata_model_note){full, copy};
    full = copy = NULL;
    return STRATA_OK;
}

strata_status strata_model_set_note(strata_model *model, const char *key, const char *text, strata_error *err) {
    size_t length = strlen(key);
    const char *of_checkpoints = &STRATA_TRAINING_METADATA[sizeof prefix - 1];
    if (!length || length > LONGEST_KEY || strspn(key, "abcdefghijklmnopqrstuvwxyz_") != length || !strcmp(key, own_key) ||
        !strcmp(key, of_checkpoints))
        return strata_fail(
            err, STRATA_INVALID,
            "model: a note's key is \"%.80s\"; it must be lower-case letters and _, and neither \"%s\" nor \"%s\"", key,
            own_key, of_checkpoints);
    if (text) return add(model, key, text, err);
    int old = find(model, key);
    if (old >= 0) remove_note(model, old);
    return STRATA_OK;
}

const char *strata_model_note(const strata_model *model, const char *key) {
    int index = find(model, key);
    return index < 0 ? NULL : model->notes.items[index].text;
}

strata_status strata_model_read_notes(strata_model *model, const strata_manifest *file, strata_error *err) {
    for (int i = 0; i < file->n_texts; i++) {
        const strata_manifest_text *t = &file->texts[i];
        /* The model's JSON is no note, and the description of the training is that of a checkpoint. */
        const bool other = !strcmp(t->key, STRATA_MODEL_METADATA) || !strcmp(t->key, STRATA_TRAINING_METADATA);
        if (other || strncmp(t->key, prefix, sizeof prefix - 1)) continue;
        STRATA_TRY(add(model, t->key + sizeof prefix - 1, t->text, err));
    }
    return STRATA_OK;
}

/* ---- the tokenizer ---- */

strata_status strata_model_set_tokenizer(strata_model *model, const strata_tokenizer *tokenizer, strata_error *err) {
    STRATA_FREED char *json = NULL;
    if (tokenizer) STRATA_TRY(strata_tokenizer_to_json(tokenizer, &json, err));
    return strata_model_set_note(model, tokenizer_key, json, err);
}

strata_status strata_model_tokenizer(const strata_model *model, strata_tokenizer **out_tokenizer, strata_error *err) {
    const char *json = strata_model_note(model, tokenizer_key);
    if (!json)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "the model has no tokenizer: it was not trained on text, or saved without one");
    return strata_tokenizer_from_json(json, strlen(json), "strata.tokenizer", out_tokenizer, err);
}

/* ---- preprocessing ---- */

strata_status strata_model_set_preprocessing(strata_model *model, const strata_preprocessing *preprocessing,
                                             strata_error *err) {
    STRATA_FREED char *json = NULL;
    if (preprocessing) STRATA_TRY(strata_preprocessing_to_json(preprocessing, &json, err));
    STRATA_TRY(strata_model_set_note(model, preprocessing_key, json, err));
    return strata_model_set_tokenizer(model, preprocessing ? preprocessing->tokenizer : NULL, err);
}

strata_status strata_model_preprocessing(const strata_model *model, strata_preprocessing **out_preprocessing,
                                         strata_error *err) {
    const char *json = strata_model_note(model, preprocessing_key);
    strata_preprocessing *p = NULL;
    if (!json)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "the model has no preprocessing: it was trained on arrays as they were, or saved without it");
    STRATA_TRY(strata_preprocessing_from_json(json, strlen(json), "strata.preprocessing", &p, err));
    strata_status status = strata_preprocessing_has_texts(p) ? strata_model_tokenizer(model, &p->tokenizer, err) : STRATA_OK;
    if (status)
        strata_preprocessing_destroy(p);
    else
        *out_preprocessing = p;
    return status;
}
