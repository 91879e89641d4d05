/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a stream of packets, of the store, with requests in them: taken whole, or refused, and never more
 * memory than a message may have. The first byte cuts the stream into the pieces in which it arrives. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/store/loop.h"
#include "cluster/wire/connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct taker {
    unsigned char *payload;
    struct iovec room;
    int n_packets;
} taker;

static strata_status begin(void *user, const strata_packet *packet, const struct iovec **out_parts, int *out_n_parts,
                           strata_error *err) {
    taker *t = user;
    const size_t bytes = packet->head_bytes + packet->body_bytes;
    if (bytes > STRATA_MESSAGE_BYTES) return strata_fail(err, STRATA_DATA, "%zu bytes are too many", bytes);
    t->room = (struct iovec){t->payload, bytes};
    *out_parts = &t->room;
    *out_n_parts = packet->type % 2; /* half of them are dropped */
    return STRATA_OK;
}

static strata_status end(void *user, const strata_packet *packet, strata_error *err) {
    taker *t = user;
    const size_t bytes = packet->head_bytes + packet->body_bytes;
    char key[STRATA_STORE_KEY_BYTES + 1];
    strata_store_request request;
    double seconds;
    t->n_packets++;
    if (!packet->type || packet->type >= STRATA_FRAME_TYPES) abort();
    if (!strata_request_decode(t->payload, bytes, key, &request, &seconds, err)) {
        unsigned char *again = malloc(STRATA_MESSAGE_BYTES);
        if (!again || strlen(request.key) > STRATA_STORE_KEY_BYTES || strata_request_encode(&request, seconds, again) != bytes)
            abort();
        free(again);
    }
    return STRATA_OK;
}

/* Through a socket, as connections are read. */
static void read_stream(const uint8_t *data, size_t size, size_t piece) {
    strata_connection c;
    strata_error err = {0};
    int ends[2];
    taker t = {.payload = calloc(1, STRATA_MESSAGE_BYTES)};
    const strata_packet_receiver receiver = {begin, end, &t};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    if (strata_connection_init(&c, (strata_stream){.fd = ends[0]}, &err)) abort();
    strata_status status = STRATA_OK;
    for (size_t at = 0; at < size && !status; at += piece) {
        const size_t n = size - at < piece ? size - at : piece;
        if (send(ends[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n) break;
        status = strata_connection_receive(&c, &receiver, INT_MAX, &err);
    }
    if (status && (!err.message[0] || status != err.status)) abort();
    if (t.n_packets > (int)(size / STRATA_FRAME_BYTES)) abort();
    close(ends[1]);
    strata_connection_finish(&c);
    free(t.payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    strata_frame frame;
    if (size >= STRATA_FRAME_BYTES && !strata_frame_decode(data, 1 << 20, &frame, NULL)) {
        strata_frame_seal(&frame);
        if (memcmp(&frame, data, sizeof frame) != 0) abort(); /* one way to say it */
    }
    if (size > 1 && size < 60000) read_stream(data + 1, size - 1, (size_t)data[0] + 1);
    return 0;
}
