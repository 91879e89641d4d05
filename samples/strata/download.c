/* SPDX-License-Identifier: Apache-2.0
 *
 * Downloads through libcurl's easy interface. A transfer that breaks is continued where it ended, by a Range request that
 * starts at the length of the .part file; a few times in one call, and again in the next call. If the server does not support
 * ranges, the download starts again. A file is accepted only if its hash is correct. */
#include "download.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strata/file.h"
#include "strata/sha256.h"

enum {
    LONGEST_PATH = 4096,
    ATTEMPTS = 5,
    CONNECT_SECONDS = 30,
    SILENT_SECONDS = 60,
    MOST_REDIRECTS = 10,
    HASH_BYTES = 1 << 16
};

/* ---- the file on disk ---- */

/* Computes the SHA-256 of the file. Fails: UNAVAILABLE if there is no such file. */
static strata_status hash_file(const char *path, char out_text[STRATA_SHA256_TEXT_BYTES], strata_error *err) {
    strata_sha256 sha = {0};
    unsigned char *bytes = malloc(HASH_BYTES);
    FILE *file = bytes ? fopen(path, "rb") : NULL;
    if (!bytes) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to check it", path);
    strata_status status = file ? strata_sha256_init(&sha, err) : strata_file_fail(err, errno, path, "open");
    for (size_t n = 1; n && !status;) {
        n = fread(bytes, 1, HASH_BYTES, file);
        if (ferror(file))
            status = strata_file_fail(err, errno, path, "read");
        else
            status = strata_sha256_update(&sha, bytes, n, err);
    }
    if (!status) status = strata_sha256_final(&sha, out_text, err);
    strata_sha256_finish(&sha);
    if (file) fclose(file);
    free(bytes);
    return status;
}

static strata_status make_path(char path[LONGEST_PATH], const char *folder, const char *name, const char *end,
                               strata_error *err) {
    int length = snprintf(path, LONGEST_PATH, "%s/%s%s", folder, name, end);
    if (length > 0 && length < LONGEST_PATH) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "the name of the folder has %zu characters; at most %d are possible",
                       strlen(folder), LONGEST_PATH - 256);
}

/* Checks whether the file exists already. Fails: DATA if a file of that name has other content. */
static strata_status find_present(const download *file, const char *path, bool *out_present, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    struct stat info;
    *out_present = false;
    if (stat(path, &info)) return STRATA_OK;
    STRATA_TRY(hash_file(path, hash, err));
    *out_present = !strcmp(hash, file->sha256);
    if (*out_present) return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "%s is there, but its sha256 is %s, not %s; move it away to fetch the file, or fetch to another folder",
                       path, hash, file->sha256);
}

/* Renames the .part to the file if its hash is right; otherwise removes it. */
static strata_status accept_part(const download *file, const char *part, const char *path, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    STRATA_TRY(hash_file(part, hash, err));
    if (strcmp(hash, file->sha256)) {
        struct stat info = {0};
        stat(part, &info);
        unlink(part);
        return strata_fail(err, STRATA_DATA, "%s: %s sent %" PRId64 " bytes whose sha256 is %s, not %s; they were thrown away",
                           file->name, file->url, (int64_t)info.st_size, hash, file->sha256);
    }
    if (rename(part, path)) return strata_file_fail(err, errno, path, "write");
    return STRATA_OK;
}

#if STRATA_WITH_CURL

#include <curl/curl.h>

/* ---- one transfer ---- */

typedef struct transfer {
    const download *file;
    CURL *curl;
    FILE *part;
    int64_t begin;    /* the size of the part before this request */
    int64_t received; /* the size of the part now */
    int write_error;  /* errno of a failed write; 0: none failed */
    bool stopped;     /* the callback has ended the download */
    download_progress progress;
    void *user;
} transfer;

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    transfer *t = user;
    if (fwrite(bytes, size, n, t->part) != n) {
        t->write_error = errno;
        return 0;
    }
    t->received += (int64_t)(size * n);
    return n;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t upload_total, curl_off_t upload_now) {
    transfer *t = user;
    (void)now, (void)upload_total, (void)upload_now;
    t->stopped = t->progress && t->progress(t->file, t->received, total > 0 ? t->begin + total : t->file->bytes, t->user);
    return t->stopped;
}

static strata_status transfer_failed(const transfer *t, CURLcode code, const char *detail, strata_error *err) {
    long answer = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &answer);
    const char *reason = *detail ? detail : curl_easy_strerror(code);
    if (t->stopped)
        return strata_fail(err, STRATA_INTERRUPTED, "%s: interrupted after %" PRId64 " bytes; the same command continues there",
                           t->file->name, t->received);
    if (t->write_error == ENOSPC || t->write_error == EDQUOT || t->write_error == EFBIG)
        return strata_fail(err, STRATA_OUT_OF_DISK, "%s: %s after %" PRId64 " bytes; make room and run the same command again",
                           t->file->name, strerror(t->write_error), t->received);
    if (t->write_error) return strata_file_fail(err, t->write_error, t->file->name, "write");
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s: %s answers with code %ld", t->file->name, t->file->url, answer);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return strata_fail(err, STRATA_TIMEOUT, "%s: %s: %s; the same command continues there", t->file->name, t->file->url,
                           reason);
    return strata_fail(err, STRATA_UNAVAILABLE, "%s: %s: %s%s", t->file->name, t->file->url, reason,
                       t->received ? "; the same command continues there" : "");
}

static void set_options(transfer *t, char detail[CURL_ERROR_SIZE]) {
    curl_easy_setopt(t->curl, CURLOPT_URL, t->file->url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(t->curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "strata");
    curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(t->curl, CURLOPT_MAXREDIRS, (long)MOST_REDIRECTS);
    curl_easy_setopt(t->curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_SECONDS);
    curl_easy_setopt(t->curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->begin);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, detail);
}

/* Sends one request. *out_again: another one may help, since the connection broke after some bytes or the server does not
 * support ranges. */
static strata_status request(transfer *t, const char *part, bool *out_again, strata_error *err) {
    char detail[CURL_ERROR_SIZE] = "";
    *out_again = false;
    t->part = fopen(part, "ab");
    if (!t->part) return strata_file_fail(err, errno, part, "write");
    fseek(t->part, 0, SEEK_END);
    t->begin = t->received = ftell(t->part);
    t->curl = curl_easy_init();
    if (!t->curl) {
        fclose(t->part);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for a transfer", t->file->name);
    }
    set_options(t, detail);
    CURLcode code = curl_easy_perform(t->curl);
    if (fclose(t->part) && !t->write_error) t->write_error = errno, code = CURLE_WRITE_ERROR;
    long answer = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &answer);
    /* 416 means that the file has no bytes after the part. The hash then shows whether the part is complete. */
    bool whole = code == CURLE_OK || (code == CURLE_HTTP_RETURNED_ERROR && answer == 416 && t->begin);
    strata_status status = whole ? STRATA_OK : transfer_failed(t, code, detail, err);
    *out_again = !whole && !t->stopped && !t->write_error && t->received > t->begin;
    if (code == CURLE_RANGE_ERROR && !truncate(part, 0)) *out_again = true;
    curl_easy_cleanup(t->curl);
    return status;
}

strata_status download_file(const download *file, const char *folder, download_progress progress, void *user, bool *out_present,
                            strata_error *err) {
    char path[LONGEST_PATH], part[LONGEST_PATH];
    STRATA_TRY(make_path(path, folder, file->name, "", err));
    STRATA_TRY(make_path(part, folder, file->name, ".part", err));
    STRATA_TRY(find_present(file, path, out_present, err));
    if (*out_present) return STRATA_OK;
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) return strata_fail(err, STRATA_INTERNAL, "libcurl does not start");
    transfer t = {.file = file, .progress = progress, .user = user};
    bool again = true;
    strata_status status = STRATA_UNAVAILABLE;
    for (int i = 0; i < ATTEMPTS && again; i++) status = request(&t, part, &again, err);
    curl_global_cleanup();
    return status ? status : accept_part(file, part, path, err);
}

#else

strata_status download_file(const download *file, const char *folder, download_progress progress, void *user, bool *out_present,
                            strata_error *err) {
    char path[LONGEST_PATH], part[LONGEST_PATH];
    (void)progress, (void)user;
    STRATA_TRY(make_path(path, folder, file->name, "", err));
    STRATA_TRY(make_path(part, folder, file->name, ".part", err));
    STRATA_TRY(find_present(file, path, out_present, err));
    if (*out_present) return STRATA_OK;
    if (!access(part, R_OK)) return accept_part(file, part, path, err);
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "this build has no libcurl. Get %s yourself, as %s, and run the command again: it checks the file",
                       file->url, part);
}

#endif
