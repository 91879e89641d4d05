/* SPDX-License-Identifier: Apache-2.0
 *
 * An event file and the thread that writes it. A caller appends complete records to a queue in memory. The thread takes
 * the whole queue, writes it, and then takes the next one. A caller waits only if more than MOST_QUEUED bytes are not
 * written yet. */
#include "core/events/events.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cluster/wire/crc32c.h"
#include "core/base/file.h"
#include "core/base/locale.h"

enum { MOST_QUEUED = 64 << 20 };

STRATA_OWNER(strata_events)

struct strata_events {
    pthread_t thread;
    pthread_mutex_t mutex;
    /* added: a record was added, or the events end. written: the thread has written the records that it took from the
     * queue. */
    pthread_cond_t added, written;
    strata_text queue;
    /* writing: the thread is writing records that it took from the queue. ending: no more records are added. */
    bool writing, ending;
    /* The first failure. Records that are added after it are dropped. */
    strata_error failure;
    char *path;
    int file;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* TFRecord does not store the CRC32C itself, since a CRC over bytes that contain CRCs is weak. It stores the CRC rotated
 * by 15 bits, plus a constant. */
static uint32_t masked_crc(const void *bytes, size_t n_bytes) {
    uint32_t crc = strata_crc32c(0, bytes, n_bytes);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* Appends a TFRecord: the length (8 bytes), the CRC of the length, the event's bytes, and their CRC. */
static void add_record(strata_text *queue, const strata_text *event) {
    size_t start = queue->n_bytes;
    strata_proto_little_endian(queue, event->n_bytes, 8);
    if (queue->failed) return;
    strata_proto_little_endian(queue, masked_crc(queue->bytes + start, 8), 4);
    strata_text_add_bytes(queue, event->bytes, event->n_bytes);
    strata_proto_little_endian(queue, masked_crc(event->bytes, event->n_bytes), 4);
}

static strata_status write_all(strata_events *e, const char *bytes, size_t n_bytes, strata_error *err) {
    while (n_bytes) {
        ssize_t n = write(e->file, bytes, n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return strata_file_fail(err, errno, e->path, "write");
        bytes += n;
        n_bytes -= (size_t)n;
    }
    return STRATA_OK;
}

static void *write_queue(void *argument) {
    strata_events *e = argument;
    pthread_mutex_lock(&e->mutex);
    for (;;) {
        while (!e->queue.n_bytes && !e->ending) pthread_cond_wait(&e->added, &e->mutex);
        if (!e->queue.n_bytes) break;
        strata_text taken = e->queue;
        e->queue = (strata_text){0};
        e->writing = true;
        bool failed = e->failure.status != STRATA_OK;
        pthread_mutex_unlock(&e->mutex);
        strata_error failure = {0};
        if (!failed) (void)!write_all(e, taken.bytes, taken.n_bytes, &failure);
        strata_text_finish(&taken);
        pthread_mutex_lock(&e->mutex);
        if (failure.status) e->failure = failure;
        e->writing = false;
        pthread_cond_broadcast(&e->written);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

static strata_status latched(const strata_events *e, strata_error *err) {
    if (!e->failure.status) return STRATA_OK;
    return strata_fail(err, e->failure.status, "%s", e->failure.message);
}

static strata_status add_event(strata_events *e, strata_text *event, strata_error *err) {
    pthread_mutex_lock(&e->mutex);
    while (e->queue.n_bytes > MOST_QUEUED && !e->failure.status) pthread_cond_wait(&e->written, &e->mutex);
    strata_status status = latched(e, err);
    if (!status) {
        size_t before = e->queue.n_bytes;
        if (!event->failed) add_record(&e->queue, event);
        if (event->failed || e->queue.failed) {
            e->queue.failed = false;
            e->queue.n_bytes = before; /* removes the incomplete record */
            status = strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for an event", e->path);
        }
        pthread_cond_signal(&e->added);
    }
    pthread_mutex_unlock(&e->mutex);
    strata_text_finish(event);
    return status;
}

strata_status strata_events_add(strata_events *events, int64_t step, int field, strata_text *content, strata_error *err) {
    strata_text event = {0};
    strata_proto_double(&event, 1, now());
    strata_proto_integer(&event, 2, step);
    strata_proto_message(&event, field, content);
    return add_event(events, &event, err);
}

strata_status strata_events_make_folders(const char *folder, strata_error *err) {
    STRATA_FREED char *path = strdup(folder);
    if (!path) return strata_fail(err, STRATA_OUT_OF_MEMORY, "events: the path of a folder");
    for (char *at = path + 1; *path; at++) {
        const char end = *at;
        struct stat info;
        if (end && end != '/') continue;
        *at = '\0';
        if ((mkdir(path, 0777) && errno != EEXIST) || stat(path, &info))
            return strata_file_fail(err, errno, folder, "make the folder");
        if (!S_ISDIR(info.st_mode)) return strata_file_fail(err, ENOTDIR, folder, "make the folder");
        *at = end;
        if (!end) break;
    }
    return STRATA_OK;
}

/* Creates a file with a new name. TensorBoard finds it by its name, events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER. */
static strata_status open_file(strata_events *e, const char *folder, strata_error *err) {
    char host[65] = "localhost";
    if (gethostname(host, sizeof host - 1)) strcpy(host, "localhost");
    for (int number = 0; number < 10000; number++) {
        strata_text path = {0};
        strata_text_add(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)now(), host, (long)getpid(),
                        number);
        free(e->path);
        e->path = NULL;
        STRATA_TRY(strata_text_take(&path, &e->path, NULL, err));
        e->file = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (e->file >= 0) return STRATA_OK;
        if (errno != EEXIST) break;
    }
    return strata_file_fail(err, errno, e->path, "create");
}

strata_status strata_events_create(const char *folder, strata_events **out_events, strata_error *err) {
    if (!folder || !*folder) return strata_fail(err, STRATA_INVALID, "events: the folder has no name");
    STRATA_TRY(strata_events_make_folders(folder, err));
    STRATA_OWNED(strata_events) *e = NULL;
    STRATA_TRY(STRATA_NEW(e, 1, err, "events: the writer of %s", folder));
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->added, NULL);
    pthread_cond_init(&e->written, NULL);
    e->file = -1;
    STRATA_TRY(open_file(e, folder, err));
    const int failed = pthread_create(&e->thread, NULL, write_queue, e);
    if (failed) {
        close(e->file);
        unlink(e->path);
        e->file = -1;
        return strata_fail(err, STRATA_UNAVAILABLE, "%s: no thread to write it: %s", e->path, strata_errno_text(failed));
    }
    strata_text first = {0};
    strata_proto_double(&first, 1, now());
    strata_proto_string(&first, 3, "brain.Event:2");
    STRATA_TRY(add_event(e, &first, err));
    STRATA_TRY(strata_events_flush(e, err));
    *out_events = strata_released(&e);
    return STRATA_OK;
}

strata_status strata_events_flush(strata_events *events, strata_error *err) {
    pthread_mutex_lock(&events->mutex);
    while ((events->queue.n_bytes || events->writing) && !events->failure.status)
        pthread_cond_wait(&events->written, &events->mutex);
    strata_status status = latched(events, err);
    pthread_mutex_unlock(&events->mutex);
    return status;
}

void strata_events_destroy(strata_events *events) {
    if (!events) return;
    if (events->file >= 0) {
        pthread_mutex_lock(&events->mutex);
        events->ending = true;
        pthread_cond_signal(&events->added);
        pthread_mutex_unlock(&events->mutex);
        pthread_join(events->thread, NULL);
        close(events->file);
    }
    strata_text_finish(&events->queue);
    pthread_cond_destroy(&events->added);
    pthread_cond_destroy(&events->written);
    pthread_mutex_destroy(&events->mutex);
    free(events->path);
    free(events);
}
