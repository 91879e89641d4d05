/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a stream of frames of the store, with requests and answers in them: taken whole, or refused, and never more
 * memory than a message may have. The first byte cuts the stream into the pieces in which it arrives. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/wire/connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static strata_status take(void *user, const strata_frame *frame, const unsigned char *payload, strata_error *err) {
    char key[STRATA_STORE_KEY_BYTES + 1];
    strata_store_request request;
    strata_store_reply reply = {0};
    strata_error told = {0};
    double seconds;
    ++*(int *)user;
    if (frame->bytes > STRATA_MESSAGE_BYTES || !frame->type || frame->type >= STRATA_FRAME_TYPES) abort();
    if (!strata_request_decode(payload, frame->bytes, key, &request, &seconds, err)) {
        unsigned char *again = malloc(STRATA_MESSAGE_BYTES);
        if (!again || strlen(request.key) > STRATA_STORE_KEY_BYTES ||
            strata_request_encode(&request, seconds, again) != frame->bytes)
            abort();
        free(again);
    }
    if (!strata_answer_decode(payload, frame->bytes, &told, &reply, err) && reply.n_value > frame->bytes) abort();
    free(reply.value);
    return STRATA_OK;
}

/* Through a socket, as connections are read. */
static void read_stream(const uint8_t *data, size_t size, size_t piece) {
    strata_connection c;
    strata_error err = {0};
    int ends[2], n_frames = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    strata_connection_init(&c, (strata_stream){.fd = ends[0]});
    strata_status status = STRATA_OK;
    for (size_t at = 0; at < size && !status; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        if (send(ends[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n) break;
        status = strata_connection_read(&c, take, &n_frames, &err);
    }
    if (status && (!err.message[0] || status != err.status)) abort();
    if (n_frames > (int)(size / STRATA_FRAME_BYTES)) abort();
    close(ends[1]);
    strata_connection_finish(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_frame frame;
    unsigned char again[STRATA_FRAME_BYTES];
    if (size >= STRATA_FRAME_BYTES && !strata_frame_decode(data, 1 << 20, &frame, NULL)) {
        strata_frame_encode(&frame, again);
        if (memcmp(again, data, sizeof again) != 0) abort(); /* one way to say it */
    }
    if (size > 1 && size < 60000) read_stream(data + 1, size - 1, (size_t)data[0] + 1);
    return 0;
}
