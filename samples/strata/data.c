/* SPDX-License-Identifier: Apache-2.0
 *
 * strata data: gets the samples' data. `fetch` downloads the original files and checks their hashes; `list` prints what is
 * available. Strata does not include the data, since their authors' licences apply. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "download.h"
#include "strata/json.h"
#include "strata/text.h"

enum { MOST_FILES = 64, MOST_LIST_BYTES = 1 << 20, MOST_NAMES = 8 };

typedef struct fetch_options {
    const char *to;
    bool json;
} fetch_options;

static const option_row rows[] = {{"to", "DIR", "the folder for the files; it is created if it does not exist", OPTION_OUTPUT,
                                   offsetof(fetch_options, to), 0, 0},
                                  {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(fetch_options, json), 0, 0},
                                  {0}};

/* ---- the samples' data ---- */

typedef struct source {
    const char *name;
    const char *about; /* what the data are, their authors, and the licence */
    download files[4]; /* ends with a NULL name */
} source;

#define MNIST_URL "https://storage.googleapis.com/cvdf-datasets/mnist/"
#define COVID_URL "https://raw.githubusercontent.com/diptamath/covid_fake_news/main/data/"
static const source sources[] = {
    {"mnist",
     "70,000 handwritten digits; Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
     {{"train-images-idx3-ubyte.gz", MNIST_URL "train-images-idx3-ubyte.gz",
       "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422},
      {"train-labels-idx1-ubyte.gz", MNIST_URL "train-labels-idx1-ubyte.gz",
       "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881},
      {"t10k-images-idx3-ubyte.gz", MNIST_URL "t10k-images-idx3-ubyte.gz",
       "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877},
      {"t10k-labels-idx1-ubyte.gz", MNIST_URL "t10k-labels-idx1-ubyte.gz",
       "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542}}},
    {"cifar10",
     "60,000 pictures of ten kinds; A. Krizhevsky; citation requested",
     {{"cifar-10-binary.tar.gz", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
       "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171}}},
    {"imdb",
     "50,000 film reviews; A. Maas and others; citation requested",
     {{"aclImdb_v1.tar.gz", "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
       "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe", 84125825}}},
    {"fake_news",
     "10,700 tweets on COVID-19, real or fake; P. Patwa and others; citation requested",
     {{"covid_train.csv", COVID_URL "Constraint_Train.csv", "441f3985bb76eb69d1e488cf292f80add96c4dddfa43ba7c060889607837ddce",
       1253562},
      {"covid_val.csv", COVID_URL "Constraint_Val.csv", "c610931d0641fe1d9b9495c453f99ae7aa45bf294c7db6333ec84ecebb0b6c3c",
       412789},
      {"covid_test.csv", COVID_URL "english_test_with_labels.csv",
       "7152fc681884a22013218c5dd9a73c6fd99d4b084705723e1e49d18c97ca8281", 424950}}},
};
enum { N_SOURCES = sizeof sources / sizeof *sources, FILES_OF_SOURCE = sizeof sources->files / sizeof *sources->files };

static void list_source(const source *source, bool json, bool first) {
    if (json)
        printf("%s{\"name\":\"%s\",\"files\":[", first ? "" : ",", source->name);
    else
        printf("%s: %s\n", source->name, source->about);
    for (int i = 0; i < FILES_OF_SOURCE && source->files[i].name; i++) {
        const download *file = &source->files[i];
        if (json)
            printf("%s{\"name\":\"%s\",\"url\":\"%s\",\"sha256\":\"%s\",\"bytes\":%lld}", i ? "," : "", file->name, file->url,
                   file->sha256, (long long)file->bytes);
        else
            printf("  %-28s %9sB  %s\n", file->name, readable((double)file->bytes).text, file->url);
    }
    if (json) printf("]}");
}

static int list(const fetch_options *options) {
    if (options->json) putchar('[');
    for (int i = 0; i < N_SOURCES; i++) list_source(&sources[i], options->json, i == 0);
    if (options->json) printf("]\n");
    return EXIT_OK;
}

/* ---- the user's own list: {"files": [{"name", "url", "sha256", "bytes"}, ...]} ---- */

static strata_status read_file(const strata_json *item, download *out_file, strata_error *err) {
    static const char *const known[] = {"name", "url", "sha256", "bytes"};
    STRATA_TRY(strata_json_expect(item, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(item, known, sizeof known / sizeof *known, err));
    STRATA_TRY(strata_json_get_string(item, "name", STRATA_JSON_REQUIRED, &out_file->name, err));
    STRATA_TRY(strata_json_get_string(item, "url", STRATA_JSON_REQUIRED, &out_file->url, err));
    STRATA_TRY(strata_json_get_string(item, "sha256", STRATA_JSON_REQUIRED, &out_file->sha256, err));
    STRATA_TRY(strata_json_get_int(item, "bytes", STRATA_JSON_OPTIONAL, 0, INT64_C(1) << 50, &out_file->bytes, err));
    if (!*out_file->name || *out_file->name == '.' || strchr(out_file->name, '/') || strlen(out_file->name) > 200)
        return strata_json_fail(item, err, STRATA_DATA, "name \"%.60s\" must be a plain file name", out_file->name);
    if (strncmp(out_file->url, "http://", 7) && strncmp(out_file->url, "https://", 8))
        return strata_json_fail(item, err, STRATA_DATA, "url \"%.100s\" must begin with http:// or https://", out_file->url);
    if (strlen(out_file->sha256) != 64 || strspn(out_file->sha256, "0123456789abcdef") != 64)
        return strata_json_fail(item, err, STRATA_DATA, "sha256 \"%.80s\" must be 64 lower-case hexadecimal digits",
                                out_file->sha256);
    return STRATA_OK;
}

static strata_status read_list(const strata_json *root, download files[MOST_FILES], int *out_n, strata_error *err) {
    static const char *const known[] = {"files"};
    strata_json list, item;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_check_keys(root, known, 1, err));
    STRATA_TRY(strata_json_get(root, "files", &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    if (strata_json_length(&list) > MOST_FILES)
        return strata_json_fail(&list, err, STRATA_DATA, "has %lld files; at most %d", (long long)strata_json_length(&list),
                                MOST_FILES);
    *out_n = 0;
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_file(&item, &files[(*out_n)++], err));
    return STRATA_OK;
}

/* ---- fetching ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    interrupted = 1;
    signal(signal_number, SIG_DFL);
}

typedef struct progress_line {
    bool terminal;
    double began, shown;
} progress_line;

static bool on_progress(const download *file, int64_t received, int64_t total, void *user) {
    progress_line *line = user;
    double now = now_seconds();
    if (!line->began) line->began = now;
    if (line->terminal && now - line->shown > 0.1) {
        fprintf(stderr, "\r\033[K%s  %sB", file->name, readable((double)received).text);
        if (total) fprintf(stderr, " of %sB, %.0f %%", readable((double)total).text, 100 * (double)received / (double)total);
        fprintf(stderr, ", %.0f s", now - line->began);
        line->shown = now;
    }
    return interrupted;
}

/* Creates a folder and those above it. */
static int make_folder(const char *path) {
    char *copy = strdup(path);
    int failed = !copy;
    for (char *slash = copy; slash && !failed; slash = strchr(slash + 1, '/')) {
        if (slash == copy) continue;
        *slash = 0;
        failed = mkdir(copy, 0777) && errno != EEXIST;
        *slash = '/';
    }
    struct stat info;
    failed = failed || (mkdir(path, 0777) && errno != EEXIST) || stat(path, &info);
    if (!failed && !S_ISDIR(info.st_mode)) failed = 1, errno = ENOTDIR;
    free(copy);
    if (!failed) return EXIT_OK;
    usage_error("--to %s: cannot make this folder: %s", path, strerror(errno));
    return errno == ENOSPC ? EXIT_OUT_OF_DISK : EXIT_DATA;
}

static int fetch_files(const download *files, int n, const fetch_options *options) {
    for (int i = 0; i < n; i++) {
        progress_line line = {.terminal = isatty(STDERR_FILENO)};
        strata_error err = {0};
        bool present = false;
        strata_status status = download_file(&files[i], options->to, on_progress, &line, &present, &err);
        if (line.terminal) fprintf(stderr, "\r\033[K");
        if (status) return report(FAILING_DATA, status, &err);
        if (!options->json) printf("%s/%s  %s\n", options->to, files[i].name, present ? "was there" : "fetched");
        fflush(stdout);
    }
    return EXIT_OK;
}

static int fetch_list(const char *path, const fetch_options *options) {
    strata_json root = {0};
    strata_error err = {0};
    download files[MOST_FILES] = {{0}};
    int n = 0, code;
    strata_status status = strata_json_read(path, MOST_LIST_BYTES, &root, &err);
    if (!status) status = read_list(&root, files, &n, &err);
    code = status ? report(FAILING_DATA, status, &err) : EXIT_OK;
    for (int i = 0; i < n && !code; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", options->to, files[i].name);
        code = check_output("--to", file, path);
    }
    if (!code) code = make_folder(options->to);
    if (!code) code = fetch_files(files, n, options);
    strata_json_finish(&root);
    return code;
}

static int fetch(const char *name, const fetch_options *options) {
    const char *words[N_SOURCES];
    if (!options->to) return usage_error("data fetch %s needs --to DIR; strata help data", name);
    if (ends_with(name, ".json")) return fetch_list(name, options);
    for (int i = 0; i < N_SOURCES; i++) {
        words[i] = sources[i].name;
        if (strcmp(name, sources[i].name)) continue;
        int n = 0, code = make_folder(options->to);
        while (n < FILES_OF_SOURCE && sources[i].files[n].name) n++;
        return code ? code : fetch_files(sources[i].files, n, options);
    }
    const char *near = strata_nearest_name(name, words, N_SOURCES);
    if (near) return usage_error("there are no data \"%s\". Did you mean \"%s\"? strata data list prints all", name, near);
    return usage_error("there are no data \"%s\"; strata data list prints all", name);
}

static int run(const command *command, int argc, char **argv) {
    fetch_options options = {0};
    const char *arguments[1 + MOST_NAMES] = {NULL};
    int n = 0, code = read_options(command, argc, argv, &options, arguments, &n);
    if (code) return code < 0 ? EXIT_OK : code;
    if (!strcmp(arguments[0], "list")) return n > 1 ? usage_error("data list takes no name; strata help data") : list(&options);
    if (strcmp(arguments[0], "fetch"))
        return usage_error("data does \"fetch\" and \"list\", not \"%s\"; strata help data", arguments[0]);
    if (n < 2) return usage_error("data fetch needs NAME|FILES.json; strata data list prints all");
    signal(SIGINT, on_interrupt);
    for (int i = 1; i < n && !code; i++) code = fetch(arguments[i], &options);
    if (!code && options.json) {
        printf("{\"fetched\":[");
        for (int i = 1; i < n; i++) printf("%s", i > 1 ? "," : ""), print_json_string(arguments[i]);
        printf("],\"to\":"), print_json_string(options.to), printf("}\n");
    }
    return code;
}

const command command_data = {
    .name = "data",
    .arguments = "list|fetch NAME|FILES.json ...",
    .summary = "fetch the samples' original data, checked by hash",
    .details =
        "strata data list                  lists the data, and where they come from\n"
        "strata data fetch mnist --to DIR  downloads, or continues an earlier download\n"
        "A file FILES.json lists your own files: {\"files\": [{\"name\": ..., \"url\": ..., \"sha256\": ...}]}\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1 + MOST_NAMES,
    .files = "-r",
    .run = run,
};
