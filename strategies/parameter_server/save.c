/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that the servers write: each server writes its shards with their slots to a file in the checkpoint's folder, all
 * servers at the same time. The chief adds the contents of each file to the manifest (core/model/manifest.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/model/checkpoint.h"
#include "strategies/parameter_server/task.h"

enum { NAME_BYTES = 512, PATH_BYTES = 4096 + 64 };

/* ---- the contents of a server's file ---- */

/* Elements [begin, end) of a tensor of the checkpoint. The server has n of them, from element `first` of its values on; the
 * rest is the padding before the next parameter, which is zeros. */
typedef struct piece {
    char name[NAME_BYTES];
    strata_shape shape;
    int64_t begin, end, first, n;
} piece;

/* The pieces of a group, in an order that all tasks know. NULL: no memory. */
static piece *list_pieces(const strata_ps_fit *fit, int group, int *out_n) {
    const strata_ps_plan *plan = &fit->plan;
    const strata_parameter_set *set = &fit->model->parameters;
    const int n_shards = plan->begins[group + 1] - plan->begins[group];
    piece *pieces = calloc((size_t)(n_shards * (1 + plan->n_slots) + set->n + 1), sizeof *pieces);
    int n = 0;
    for (int i = plan->begins[group]; i < plan->begins[group + 1] && pieces; i++) {
        const strata_ps_shard *shard = &plan->shards[i];
        const strata_parameter_spec *p = shard->parameter >= 0 ? &set->items[shard->parameter] : NULL;
        for (int slot = 0; slot <= plan->n_slots && p; slot++) {
            piece *own = &pieces[n++];
            const int64_t size = strata_shape_elements(p->shape), first = shard->first - p->offset;
            const bool last = first + shard->n == size;
            *own = (piece){.shape = p->shape,
                           .begin = first,
                           .end = first + shard->n,
                           .first = strata_ps_plan_value(plan, shard, slot),
                           .n = shard->n};
            snprintf(own->name, sizeof own->name, "%s", slot ? strata_checkpoint_slot_name(slot - 1) : p->name);
            if (!slot) continue;
            own->shape = STRATA_SHAPE(set->flat_size);
            own->begin = shard->first;
            own->end = last ? p->offset + strata_parameter_aligned(size) : own->begin + shard->n;
        }
        for (int k = 0; k < set->n && !p; k++) { /* a shard of states contains all of them */
            const strata_parameter_spec *state = &set->items[k];
            const int64_t size = strata_shape_elements(state->shape);
            if (!state->state) continue;
            piece *own = &pieces[n++];
            *own = (piece){.shape = state->shape,
                           .end = size,
                           .first = strata_ps_plan_value(plan, shard, 0) + strata_model_place(fit->model, state) - shard->first,
                           .n = size};
            snprintf(own->name, sizeof own->name, "%s", state->name);
        }
    }
    *out_n = n;
    return pieces;
}

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory for a server's shards");
}

static strata_status name_array(const piece *p, const float *values, strata_named_array *out, strata_error *err) {
    const strata_manifest_tensor tensor = {
        .name = (char *)p->name, .dtype = STRATA_DTYPE_F32, .shape = p->shape}; /* borrowed */
    out->name = strata_manifest_piece_name(&tensor, (strata_manifest_piece){0, p->begin, p->end});
    if (!out->name) return no_memory(err);
    const bool whole = p->begin == 0 && p->end == strata_shape_elements(p->shape);
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, whole ? p->shape : STRATA_SHAPE(p->end - p->begin), &out->array, err));
    memset(out->array.data, 0, (size_t)(p->end - p->begin) * sizeof *values);
    memcpy(out->array.data, values + p->first, (size_t)p->n * sizeof *values);
    return STRATA_OK;
}

strata_status strata_ps_save_group(const strata_ps_fit *fit, int group, const float *values, const char *path,
                                   strata_ps_save_reply *out_reply, strata_error *err) {
    int n = 0;
    piece *pieces = list_pieces(fit, group, &n);
    strata_named_array *arrays = pieces ? calloc((size_t)n + 1, sizeof *arrays) : NULL;
    strata_status status = arrays ? STRATA_OK : no_memory(err);
    for (int i = 0; i < n && !status; i++) status = name_array(&pieces[i], values, &arrays[i], err);
    if (!status)
        status = strata_safetensors_write(
            path, arrays, (size_t)n, NULL, 0,
            &(strata_safetensors_writing){.sha256 = out_reply->sha256, .bytes = &out_reply->bytes}, err);
    for (int i = 0; i < n && arrays; i++) {
        free((void *)arrays[i].name);
        strata_array_finish(&arrays[i].array);
    }
    free(arrays);
    free(pieces);
    return status;
}

/* ---- the chief ---- */

static strata_status add_to_manifest(const strata_ps_fit *fit, int group, const char *folder, const strata_ps_save_reply *reply,
                                     strata_manifest *manifest, strata_error *err) {
    char name[32], path[PATH_BYTES + sizeof name];
    struct stat found;
    int n = 0;
    snprintf(name, sizeof name, "ps-%d.safetensors", group);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &found) || (int64_t)found.st_size != reply->bytes)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "checkpoint: ps:%d has written %s, but the chief does not see it there; servers and chief need one "
                           "folder that all of them reach",
                           group, path);
    STRATA_TRY(strata_manifest_add_file(manifest, name, reply->bytes, reply->sha256, err));
    piece *pieces = list_pieces(fit, group, &n);
    strata_status status = pieces ? STRATA_OK : no_memory(err);
    for (int i = 0; i < n && !status; i++)
        status = strata_manifest_add_piece(manifest, pieces[i].name, STRATA_DTYPE_F32, pieces[i].shape,
                                           (strata_manifest_piece){manifest->n_files - 1, pieces[i].begin, pieces[i].end}, err);
    free(pieces);
    return status;
}

/* A request to each server that has a group. */
typedef struct request {
    strata_rpc_request *request;
    strata_rpc_answer answer;
    strata_ps_pull_ask head;
    strata_ps_save_reply reply;
    struct iovec body;
    char path[PATH_BYTES];
} request;

static strata_status start(const strata_ps_watch *watch, const strata_ps_close *close, const char *folder, int group,
                           request *r, strata_error *err) {
    r->head = (strata_ps_pull_ask){.has_close = close != NULL, .group = group};
    if (close) r->head.close = *close;
    if ((size_t)snprintf(r->path, sizeof r->path, "%s/ps-%d.safetensors", folder, group) >= sizeof r->path)
        return strata_fail(err, STRATA_INVALID, "checkpoint: the folder's name %.60s... is too long", folder);
    r->body = (struct iovec){r->path, strlen(r->path) + 1};
    const strata_rpc_ask ask = {.method = STRATA_PS_SAVE,
                                .head = &r->head,
                                .head_bytes = sizeof r->head,
                                .body = &r->body,
                                .n_body = 1,
                                .what = "a server's part of a checkpoint"};
    r->answer = (strata_rpc_answer){.head = &r->reply, .head_bytes = sizeof r->reply};
    return strata_rpc_client_start(watch->clients[strata_ps_server_of(&watch->fit->route, group, watch->n)], &ask, &r->answer,
                                   STRATA_PS_CALL_SECONDS, &r->request, err);
}

strata_status strata_ps_save_all(const strata_ps_watch *watch, const strata_ps_close *close, const char *folder,
                                 strata_manifest *manifest, int64_t *out_t, strata_error *err) {
    request *requests = calloc((size_t)watch->n, sizeof *requests);
    strata_status status = requests ? STRATA_OK : no_memory(err);
    *out_t = 0;
    for (int g = 0; g < watch->n && !status; g++) status = start(watch, close, folder, g, &requests[g], err);
    for (int g = 0; g < watch->n && requests; g++) {
        request *r = &requests[g];
        const strata_status one = r->request ? strata_rpc_request_wait(r->request, status ? NULL : err) : STRATA_OK;
        if (!status) status = one;
        if (!status && r->answer.head_bytes != sizeof r->reply)
            status = strata_fail(err, STRATA_INTERNAL, "checkpoint: ps:%d answered in another way", g);
        r->reply.sha256[sizeof r->reply.sha256 - 1] = '\0';
        if (!status) status = add_to_manifest(watch->fit, g, folder, &r->reply, manifest, err);
        if (r->reply.t > *out_t) *out_t = r->reply.t;
    }
    free(requests);
    return status;
}
