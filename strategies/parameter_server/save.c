/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that the servers write: each server writes its shards with their slots to a file in the checkpoint's folder, all
 * servers at the same time. The chief adds the contents of each file to the manifest (core/model/manifest.h). */
#include <stdio.h>
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

/* The pieces of a bundle, in an order that all tasks know. NULL: no memory. */
static piece *list_pieces(const strata_ps_fit *fit, int bundle, strata_memory *memory, int *out_n) {
    const strata_ps_plan *plan = &fit->plan;
    const strata_parameter_set *set = &fit->model->parameters;
    const strata_ps_bundle *own = &plan->bundles[bundle];
    piece *pieces = strata_memory_take(memory, own->n_shards * (1 + plan->n_slots) + set->n, sizeof *pieces);
    int n = 0;
    for (int i = 0; i < own->n_shards && pieces; i++) {
        const strata_ps_shard *shard = &own->shards[i];
        const strata_parameter_spec *p = shard->parameter >= 0 ? &set->items[shard->parameter] : NULL;
        for (int slot = 0; slot <= plan->n_slots && p; slot++) {
            piece *made = &pieces[n++];
            const int64_t size = strata_shape_elements(p->shape), first = shard->first - p->offset;
            const bool last = first + shard->n == size;
            *made = (piece){.shape = p->shape,
                            .begin = first,
                            .end = first + shard->n,
                            .first = strata_ps_plan_value(plan, shard, slot),
                            .n = shard->n};
            snprintf(made->name, sizeof made->name, "%s", slot ? strata_checkpoint_slot_name(slot - 1) : p->name);
            if (!slot) continue;
            made->shape = STRATA_SHAPE(set->flat_size);
            made->begin = shard->first;
            made->end = last ? p->offset + strata_parameter_aligned(size) : made->begin + shard->n;
        }
        for (int k = 0; k < set->n && !p; k++) { /* a shard of states contains all of them */
            const strata_parameter_spec *state = &set->items[k];
            const int64_t size = strata_shape_elements(state->shape);
            if (!state->state) continue;
            piece *made = &pieces[n++];
            *made =
                (piece){.shape = state->shape,
                        .end = size,
                        .first = strata_ps_plan_value(plan, shard, 0) + strata_model_place(fit->model, state) - shard->first,
                        .n = size};
            snprintf(made->name, sizeof made->name, "%s", state->name);
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

strata_status strata_ps_save_bundle(const strata_ps_fit *fit, int bundle, const float *values, const char *path,
                                    strata_ps_save_reply *out_reply, strata_error *err) {
    STRATA_FINISHED(strata_memory) memory = {0};
    int n = 0;
    piece *pieces = list_pieces(fit, bundle, &memory, &n);
    strata_named_array *arrays = strata_memory_take(&memory, n, sizeof *arrays);
    strata_status status = memory.failed ? no_memory(err) : STRATA_OK;
    for (int i = 0; i < n && !status; i++) status = name_array(&pieces[i], values, &arrays[i], err);
    if (!status)
        status = strata_safetensors_write(
            path, arrays, (size_t)n, NULL, 0,
            &(strata_safetensors_writing){.sha256 = out_reply->sha256, .bytes = &out_reply->bytes}, err);
    for (int i = 0; i < n && arrays; i++) {
        free((void *)arrays[i].name);
        strata_array_finish(&arrays[i].array);
    }
    return status;
}

/* ---- the chief ---- */

static strata_status add_to_manifest(const strata_ps_fit *fit, int bundle, const char *folder,
                                     const strata_ps_save_reply *reply, strata_manifest *manifest, strata_error *err) {
    char name[32], path[PATH_BYTES + sizeof name];
    struct stat found;
    int n = 0;
    snprintf(name, sizeof name, "ps-%d.safetensors", bundle);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &found) || (int64_t)found.st_size != reply->bytes)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "checkpoint: ps:%d has written %s, but the chief does not see it there; servers and chief need one "
                           "folder that all of them reach",
                           bundle, path);
    STRATA_TRY(strata_manifest_add_file(manifest, name, reply->bytes, reply->sha256, err));
    STRATA_FINISHED(strata_memory) memory = {0};
    const piece *pieces = list_pieces(fit, bundle, &memory, &n);
    if (!pieces) return no_memory(err);
    for (int i = 0; i < n; i++)
        STRATA_TRY(strata_manifest_add_piece(manifest, pieces[i].name, STRATA_DTYPE_F32, pieces[i].shape,
                                             (strata_manifest_piece){manifest->n_files - 1, pieces[i].begin, pieces[i].end},
                                             err));
    return STRATA_OK;
}

/* A request to each server that has a bundle. */
typedef struct request {
    strata_ps_message message;
    struct iovec body;
    char path[PATH_BYTES];
} request;

static strata_status start(const strata_ps_watch *watch, const strata_ps_close *close, const char *folder, int bundle,
                           request *r, strata_error *err) {
    strata_rpc_client *client = watch->clients[strata_ps_server_of(&watch->fit->route, bundle, watch->n)];
    r->message.head.pull = strata_ps_about(bundle, close);
    if ((size_t)snprintf(r->path, sizeof r->path, "%s/ps-%d.safetensors", folder, bundle) >= sizeof r->path)
        return strata_fail(err, STRATA_INVALID, "checkpoint: the folder's name %.60s... is too long", folder);
    r->body = (struct iovec){r->path, strlen(r->path) + 1};
    return strata_ps_start(&r->message, client, STRATA_PS_SAVE, &r->body, 1, NULL, 0, err);
}

strata_status strata_ps_save_all(const strata_ps_watch *watch, const strata_ps_close *close, const char *folder,
                                 strata_manifest *manifest, int64_t *out_t, strata_error *err) {
    STRATA_FREED request *requests = calloc((size_t)watch->n, sizeof *requests);
    if (!requests) return no_memory(err);
    strata_status status = STRATA_OK;
    *out_t = 0;
    for (int g = 0; g < watch->n && !status; g++) status = start(watch, close, folder, g, &requests[g], err);
    for (int g = 0; g < watch->n; g++) {
        strata_ps_message *m = &requests[g].message;
        strata_ps_save_reply *reply = &m->reply.saved;
        strata_ps_wait(m, &status, err);
        if (!status && m->answer.head_bytes != sizeof *reply)
            status = strata_fail(err, STRATA_INTERNAL, "checkpoint: ps:%d answered in another way", g);
        reply->sha256[sizeof reply->sha256 - 1] = '\0';
        if (!status) status = add_to_manifest(watch->fit, g, folder, reply, manifest, err);
        if (reply->t > *out_t) *out_t = reply->t;
    }
    return status;
}
