/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of remote calls (cluster/wire/connection.h) over a pair of sockets, or through memory that both sides map: sizes,
 * division into pieces, damage of each byte, frames that are missing, repeated or belong to another message, and wrong
 * lengths. Servers and clients are tested by tests/threads/rpc_main.c. */
#include "cluster/rpc/rpc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/rpc/hello.h"
#include "cluster/wire/connection.h"
#include "tests/support/check.h"

enum { MOST = 3 << 20, RING = 1 << 20 };

/* A receiver. It stores each message in `memory`, in consecutive pieces whose sizes `cut` determines. */
typedef struct taker {
    unsigned char *memory;
    struct iovec rooms[512];
    size_t cut;
    strata_packet last;
    int n_begun, n_ended;
    bool drops;
} taker;

static strata_status begin_message(void *user, const strata_packet *m, const struct iovec **out_parts, int *out_n_parts,
                                   strata_error *err) {
    taker *t = user;
    const size_t bytes = m->head_bytes + m->body_bytes;
    int n = 0;
    t->n_begun++;
    if (bytes > MOST) return strata_fail(err, STRATA_DATA, "%zu bytes", bytes);
    for (size_t at = 0; at < bytes && n < 511; n++) {
        const size_t room = n == 510 || t->cut == 0 ? bytes - at : (size_t)n * t->cut % 70001 % (bytes - at + 1);
        t->rooms[n] = (struct iovec){t->memory + at, room};
        at += room;
    }
    *out_parts = t->rooms;
    *out_n_parts = t->drops ? 0 : n;
    return STRATA_OK;
}

static strata_status end_message(void *user, const strata_packet *m, strata_error *err) {
    taker *t = user;
    (void)err;
    t->last = *m;
    t->n_ended++;
    return STRATA_OK;
}

typedef struct ends {
    strata_connection out, in;
    taker taker;
    strata_packet_receiver receiver;
} ends;

/* shares: `out` is a client, and `in` a server that maps the client's memory. */
static void open_ends(ends *e, bool shares) {
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    memset(e, 0, sizeof *e);
    cr_assert_eq(strata_connection_init(&e->out, (strata_stream){.fd = fds[0]}, NULL), STRATA_OK);
    cr_assert_eq(strata_connection_init(&e->in, (strata_stream){.fd = fds[1]}, NULL), STRATA_OK);
    e->taker.memory = calloc(1, MOST);
    e->receiver = (strata_packet_receiver){begin_message, end_message, &e->taker};
    if (!shares) return;
    strata_area *own = strata_area_make(RING), *other = own ? strata_area_open(own->shared.name) : NULL;
    if (!own) cr_skip_test("there is no /dev/shm here");
    cr_assert_not_null(other);
    strata_shared_hide(&own->shared);
    strata_connection_share(&e->out, own, true);
    strata_connection_share(&e->in, other, false);
}

static void close_ends(ends *e) {
    strata_connection_finish(&e->out);
    strata_connection_finish(&e->in);
    free(e->taker.memory);
}

/* Called when the sender's socket or pipe is full: the other side receives what it contains. */
static strata_status take_meanwhile(void *user, short events, strata_error *err) {
    ends *e = user;
    (void)events;
    return strata_connection_receive(&e->in, &e->receiver, INT_MAX, err);
}

static void send_all_sizes(bool shares) {
    static const size_t sizes[] = {0, 1, 55, 56, 4096, 32767, 262143, 262144, 262145, 1000003, MOST - 70000};
    ends e;
    strata_error err = {0};
    uint64_t random = 3;
    open_ends(&e, shares);
    unsigned char *data = malloc(MOST);
    for (int i = 0; i < MOST; i++) data[i] = (unsigned char)strata_test_next(&random);
    int n_sent = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t cut = 0; cut < 3; cut++) {
            const size_t head = s * 6000 % 65537, bytes = head + sizes[s];
            struct iovec parts[300];
            int n = 0;
            for (size_t at = 0; at < bytes && n < 300; n++) {
                const size_t part =
                    n == 299 || !cut ? bytes - at : strata_test_next(&random) % (bytes / 150 + 2) % (bytes - at + 1);
                parts[n] = (struct iovec){data + at, part};
                at += part;
            }
            const strata_packet m = {.type = STRATA_FRAME_ASK,
                                     .status = 3,
                                     .target = 9,
                                     .sequence = 1000 + s,
                                     .n_unanswered = 7,
                                     .head_bytes = head,
                                     .body_bytes = sizes[s]};
            e.taker.cut = cut * 977;
            e.taker.drops = cut == 2 && s % 2;
            cr_assert_eq(strata_connection_send(&e.out, &m, parts, n, take_meanwhile, &e, &err), STRATA_OK, "%s", err.message);
            cr_assert_eq(strata_connection_receive(&e.in, &e.receiver, INT_MAX, &err), STRATA_OK, "%s", err.message);
            cr_assert_eq(e.taker.n_ended, ++n_sent);
            e.taker.last.view = NULL;
            cr_assert(!memcmp(&e.taker.last, &m, sizeof m));
            if (!e.taker.drops) cr_assert(!memcmp(e.taker.memory, data, bytes), "%zu bytes, cut %zu", bytes, cut);
        }
    free(data);
    close_ends(&e);
}

Test(rpc, messages_of_all_sizes_come_whole_in_any_pieces) {
    send_all_sizes(false);
}

Test(rpc, messages_of_all_sizes_come_whole_through_shared_memory, .timeout = 300) {
    send_all_sizes(true);
}

Test(rpc, several_messages_that_come_at_once_are_taken_one_by_one) {
    ends e;
    strata_error err = {0};
    char data[300] = "many";
    open_ends(&e, false);
    for (int i = 0; i < 100; i++) {
        const strata_packet m = {
            .type = STRATA_FRAME_ANSWER, .sequence = (uint64_t)i, .head_bytes = (size_t)i, .body_bytes = (size_t)i};
        const struct iovec part = {data, (size_t)i * 2};
        cr_assert_eq(strata_connection_send(&e.out, &m, &part, 1, take_meanwhile, &e, &err), STRATA_OK, "%s", err.message);
    }
    cr_assert_eq(strata_connection_receive(&e.in, &e.receiver, INT_MAX, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(e.taker.n_ended, 100);
    strata_connection_finish(&e.out);
    cr_assert_eq(strata_connection_receive(&e.in, &e.receiver, INT_MAX, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "closed"), "%s", err.message);
    strata_connection_finish(&e.in);
    free(e.taker.memory);
}

/* A recording of the bytes that were sent. */
typedef struct tape {
    int fd;
    unsigned char *bytes;
    size_t n, room;
} tape;

static strata_status wind(void *user, short events, strata_error *err) {
    tape *t = user;
    ssize_t more;
    (void)events, (void)err;
    while (t->n < t->room && (more = read(t->fd, t->bytes + t->n, t->room - t->n)) > 0) t->n += (size_t)more;
    return STRATA_OK;
}

/* Records the bytes of two messages, the first of which has two frames. Returns their number. */
static size_t record(unsigned char *out, size_t room) {
    static unsigned char data[STRATA_SEGMENT_BYTES + 100];
    ends e;
    strata_error err = {0};
    const strata_packet first = {.type = STRATA_FRAME_ASK,
                                 .sequence = 1,
                                 .head_bytes = 20,
                                 .body_bytes = STRATA_SEGMENT_BYTES + 10},
                        second = {.type = STRATA_FRAME_ASK, .sequence = 2, .head_bytes = 5};
    const struct iovec parts[2] = {{data, STRATA_SEGMENT_BYTES + 30}, {data, 5}};
    open_ends(&e, false);
    tape t = {e.in.stream.fd, out, 0, room};
    cr_assert_eq(strata_connection_send(&e.out, &first, &parts[0], 1, wind, &t, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_connection_send(&e.out, &second, &parts[1], 1, wind, &t, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(wind(&t, 0, &err), STRATA_OK);
    close_ends(&e);
    return t.n;
}

/* Receives these bytes and returns the status. */
static strata_status replay(const unsigned char *bytes, size_t n, int *out_ended, strata_error *err) {
    ends e;
    open_ends(&e, false);
    strata_status status = STRATA_OK;
    for (size_t at = 0; at < n && !status;) {
        const ssize_t sent = write(e.out.stream.fd, bytes + at, n - at);
        if (sent > 0) at += (size_t)sent;
        if (sent < 0 && errno != EAGAIN) break;
        status = strata_connection_receive(&e.in, &e.receiver, INT_MAX, err);
    }
    *out_ended = e.taker.n_ended;
    close_ends(&e);
    return status;
}

Test(rpc, damage_loss_and_repetition_of_bytes_are_noticed, .timeout = 300) {
    enum { ROOM = STRATA_SEGMENT_BYTES + 4096, HEADER = 56 };
    unsigned char *bytes = malloc(ROOM), *other = malloc(2 * ROOM);
    strata_error err = {0};
    int ended;
    const size_t n = record(bytes, ROOM), first = HEADER + STRATA_SEGMENT_BYTES, second = first + HEADER + 30;
    cr_assert_eq(n, second + HEADER + 5);
    cr_assert_eq(replay(bytes, n, &ended, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(ended, 2);
    /* each byte of the headers, and the first and last bytes of payloads */
    for (size_t at = 0; at < n; at = at == HEADER + 8 ? first - 8 : at + 1) {
        memcpy(other, bytes, n);
        other[at] ^= (unsigned char)(1 << at % 8);
        const strata_status status = replay(other, n, &ended, &err);
        cr_assert_eq(status, STRATA_DATA, "byte %zu: %d", at, status);
        cr_assert_leq(ended, at >= second);
    }
    /* The second frame is missing; it is repeated; the first message starts again after its first frame; two frames are
     * exchanged. */
    memcpy(other, bytes, first);
    memcpy(other + first, bytes + second, n - second);
    cr_assert_eq(replay(other, n - (second - first), &ended, &err), STRATA_DATA);
    memcpy(other, bytes, second);
    memcpy(other + second, bytes + first, n - first);
    cr_assert_eq(replay(other, n + second - first, &ended, &err), STRATA_DATA);
    cr_assert_eq(ended, 1);
    memcpy(other, bytes, first);
    memcpy(other + first, bytes, n);
    cr_assert_eq(replay(other, first + n, &ended, &err), STRATA_DATA);
    memcpy(other, bytes + second, n - second);
    cr_assert_eq(replay(other, n - second, &ended, &err), STRATA_DATA);
    free(bytes);
    free(other);
}

/* Receives a frame with these fields and a correct checksum, and returns the status. */
static strata_status say(strata_frame frame, strata_error *err) {
    int ended;
    strata_frame_seal(&frame);
    return replay((const unsigned char *)&frame, sizeof frame, &ended, err);
}

Test(rpc, lengths_and_kinds_that_are_lies_are_refused) {
    const strata_frame sound = {.type = STRATA_FRAME_ASK, .part = {.flags = STRATA_PART_FIRST}};
    strata_error err = {0};
    strata_frame frame = sound;
    cr_assert_eq(say(frame, &err), STRATA_OK, "%s", err.message);
    frame.part.head_bytes = UINT32_MAX;
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame.part.head_bytes = STRATA_RPC_HEAD_BYTES + 1;
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.part.body_bytes = UINT64_MAX;
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame.part.body_bytes = MOST + 1; /* above the receiver's limit */
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.bytes = 10; /* in a message without bytes */
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.part.body_bytes = 10; /* an empty frame of a message with bytes */
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.part.status = 200;
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.part.flags = 0; /* continues a message that has not begun */
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    frame = sound;
    frame.number = 1;
    cr_assert_eq(say(frame, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "frame 1 came where 0"), "%s", err.message);
}

/* Receives a frame that a client wrote to the shared memory, after the bits of one of its bytes were flipped there. Returns
 * the status. */
static strata_status say_shared(const strata_frame *frame, size_t at, unsigned char bits, strata_error *err) {
    strata_frame sealed = *frame;
    const struct iovec part = {&sealed, sizeof sealed};
    ends e;
    open_ends(&e, true);
    strata_frame_seal(&sealed);
    cr_assert_eq(strata_pipes_send(&e.out.pipes, &part, 1), (ssize_t)sizeof sealed);
    e.out.area->shared.memory[4096 + at] ^= bits; /* in the client's pipe */
    const strata_status status = strata_connection_receive(&e.in, &e.receiver, INT_MAX, err);
    close_ends(&e);
    return status;
}

Test(rpc, damage_and_places_outside_of_shared_memory_are_refused, .timeout = 300) {
    const strata_frame sound = {.type = STRATA_FRAME_ASK,
                                .bytes = 2000,
                                .payload_crc = 64,
                                .part = {.flags = STRATA_PART_FIRST | STRATA_PART_SHARED, .body_bytes = 2000}};
    strata_error err = {0};
    uint64_t random = 9;
    cr_assert_eq(say_shared(&sound, 0, 0, &err), STRATA_OK, "%s", err.message);
    for (size_t at = 0; at < STRATA_FRAME_BYTES; at++)
        cr_assert_eq(say_shared(&sound, at, (unsigned char)(1 << at % 8), &err), STRATA_DATA, "byte %zu", at);
    static const uint32_t places[] = {0, 63, 65, RING - 1984, RING, 2 * RING, UINT32_MAX - 63, UINT32_MAX};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        strata_frame frame = sound;
        frame.payload_crc = places[i];
        cr_assert_eq(say_shared(&frame, 0, 0, &err), STRATA_DATA, "place %u", places[i]);
    }
    for (int i = 0; i < 300; i++) { /* random fields: the frame is refused, or its message lies within the memory */
        strata_frame frame = sound;
        frame.bytes = (uint32_t)(strata_test_next(&random) % (RING + 100));
        frame.payload_crc = (uint32_t)(strata_test_next(&random) % (RING + 100) / 64 * 64);
        frame.part.head_bytes = (uint32_t)(strata_test_next(&random) % 200);
        frame.part.body_bytes = strata_test_next(&random) % (RING + 100);
        const strata_status status = say_shared(&frame, 0, 0, &err);
        cr_assert(status == STRATA_OK || status == STRATA_DATA, "%d", status);
    }
}

Test(rpc, positions_of_a_pipe_that_are_wrong_end_a_connection) {
    strata_error err = {0};
    ends e;
    open_ends(&e, true);
    const uint32_t wrong = STRATA_PIPE_BYTES + 1;
    memcpy(e.out.area->shared.memory, &wrong, sizeof wrong); /* the client's position `written` */
    cr_assert_eq(strata_connection_receive(&e.in, &e.receiver, INT_MAX, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "damaged"), "%s", err.message);
    close_ends(&e);
}

Test(rpc, greetings_are_read_as_they_were_written) {
    strata_rpc_hello sent = strata_rpc_hello_of("worker:12", 0x123456789abcdef0u, 0.25, "/strata-12ab"), came, wrong;
    strata_error err = {0};
    cr_assert_eq(strata_rpc_hello_read(&sent, sizeof sent, &came, &err), STRATA_OK);
    cr_assert_str_eq(came.task, "worker:12");
    cr_assert_str_eq(came.area, "/strata-12ab");
    sent = strata_rpc_hello_of("worker:12", 0x123456789abcdef0u, 0.25, NULL);
    cr_assert_eq(strata_rpc_hello_read(&sent, sizeof sent, &came, &err), STRATA_OK);
    cr_assert_str_eq(came.area, "");
    cr_assert_str_eq(came.task, "worker:12");
    cr_assert_eq(came.incarnation, 0x123456789abcdef0u);
    cr_assert_float_eq(came.heartbeat, 0.25, 1e-9);
    for (size_t cut = 0; cut < sizeof sent; cut++) cr_assert_eq(strata_rpc_hello_read(&sent, cut, &came, &err), STRATA_DATA);
    cr_assert_eq(strata_rpc_hello_read(&sent, sizeof sent + 1, &came, &err), STRATA_DATA);
    wrong = sent;
    wrong.task[0] = 0;
    cr_assert_eq(strata_rpc_hello_read(&wrong, sizeof wrong, &came, &err), STRATA_DATA);
    wrong.task[0] = '\n';
    cr_assert_eq(strata_rpc_hello_read(&wrong, sizeof wrong, &came, &err), STRATA_DATA);
    memset(wrong.task, 'w', sizeof wrong.task);
    cr_assert_eq(strata_rpc_hello_read(&wrong, sizeof wrong, &came, &err), STRATA_DATA);
    wrong = sent;
    memset(wrong.area, 'a', sizeof wrong.area);
    cr_assert_eq(strata_rpc_hello_read(&wrong, sizeof wrong, &came, &err), STRATA_DATA);
    wrong = sent;
    wrong.heartbeat = -1;
    cr_assert_eq(strata_rpc_hello_read(&wrong, sizeof wrong, &came, &err), STRATA_DATA);
    cr_assert_not_null(strata_rpc_task_problem(NULL));
    cr_assert_not_null(strata_rpc_task_problem("a task whose name is much longer than the sixty-three bytes that it may have"));
    cr_assert_neq(strata_rpc_incarnation(), strata_rpc_incarnation());
}
