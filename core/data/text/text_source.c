/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline's source of documents, and the map that converts them to tokens. */

#include "core/data/stage/stage.h"
#include "core/data/text/tokenizer.h"

static strata_status document_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                                 strata_element *out, strata_error *err) {
    const strata_texts *texts = *(strata_texts **)dataset->state;
    const struct strata_document *document = &texts->documents[index];
    STRATA_FINISHED(strata_element) made = {.key = {seed, epoch, index}, .n_parts = dataset->spec.n_parts};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE((int64_t)document->length), &made.parts[0], err));
    memcpy(made.parts[0].data, texts->all.bytes + document->first, document->length);
    if (made.n_parts > 1) {
        STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &made.parts[1], err));
        *(int32_t *)made.parts[1].data = document->label;
    }
    *out = strata_element_released(&made);
    return STRATA_OK;
}

static void destroy_documents(strata_dataset *dataset) {
    strata_texts_destroy(*(strata_texts **)dataset->state);
}

static const strata_stage documents_stage = {.name = "documents", .at = document_at, .destroy = destroy_documents};

strata_status strata_dataset_take_texts(strata_texts **texts, strata_dataset **out_dataset, strata_error *err) {
    const strata_element_spec spec = {.n_parts = (*texts)->has_labels ? 2 : 1,
                                      .parts = {{STRATA_DTYPE_U8, STRATA_SHAPE(-1)}, {STRATA_DTYPE_I32, STRATA_SHAPE()}}};
    STRATA_TRY(strata_stage_create(&documents_stage, NULL, 0, texts, sizeof *texts, &spec, out_dataset, err));
    (*out_dataset)->n = (*texts)->n;
    (*out_dataset)->n_classes = (*texts)->n_classes;
    *texts = NULL;
    return STRATA_OK;
}

strata_status strata_map_tokenize(strata_element *element, void *user, strata_error *err) {
    const strata_tokenize *options = user;
    strata_array *text = &element->parts[0];
    STRATA_FINISHED(strata_array) ids = {0};
    int64_t n = options->length;
    if (text->dtype != STRATA_DTYPE_U8 || text->shape.rank != 1)
        return strata_fail(err, STRATA_DATA, "tokenize: the element is %s %s; it must be a text, u8 (n)",
                           strata_dtype_name(text->dtype), strata_shape_text(text->shape).text);
    const char *bytes = text->data;
    size_t n_bytes = (size_t)text->shape.dims[0];
    if (!n) STRATA_TRY(strata_tokenizer_encode(options->tokenizer, bytes, n_bytes, 0, NULL, &n, err));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(n), &ids, err));
    STRATA_TRY(strata_tokenizer_encode(options->tokenizer, bytes, n_bytes, n, ids.data, NULL, err));
    strata_array_finish(text);
    *text = ids;
    ids.owned = NULL;
    return STRATA_OK;
}
