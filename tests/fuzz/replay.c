/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target on stored inputs, without libFuzzer: `replay_idx tests/fuzz/corpus/idx` gives each file of the folder
 * (or each file named) to LLVMFuzzerTestOneInput. The names are printed first, so that a crash shows its input. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each input lies in memory of exactly its size, so that AddressSanitizer sees one byte too many. Returns 0 on success. */
static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    int failed = 1;
    uint8_t *data = NULL;
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    if (size >= 0 && !fseek(file, 0, SEEK_SET)) data = malloc((size_t)size + !size);
    if (data && fread(data, 1, (size_t)size, file) == (size_t)size) {
        printf("%s (%ld bytes)\n", path, size);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, (size_t)size);
        failed = 0;
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(data);
    fclose(file);
    return failed;
}

static int replay_folder(const char *path, DIR *folder, int *n_inputs) {
    int n_failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        n_failed += replay_file(file);
        ++*n_inputs;
    }
    return n_failed;
}

int main(int argc, char **argv) {
    int n_inputs = 0, n_failed = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder) {
            n_failed += replay_folder(argv[i], folder, &n_inputs);
            closedir(folder);
        } else {
            n_failed += replay_file(argv[i]);
            n_inputs++;
        }
    }
    printf("%d inputs replayed, %d could not be read\n", n_inputs, n_failed);
    if (n_inputs == 0) fprintf(stderr, "no input: name files or folders of the corpus\n");
    return n_failed || n_inputs == 0;
}
