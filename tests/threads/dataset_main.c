/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads read all batches of one dataset in one order at the same time. All must get the same batches. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "strata/strata.h"

enum { THREADS = 4, EXAMPLES = 100, FEATURES = 5, BATCH = 7 };

static strata_dataset *dataset;
static strata_order *order;

typedef struct reader {
    pthread_t thread;
    float features[EXAMPLES * FEATURES];
    int32_t labels[EXAMPLES];
} reader;

static void *read_all(void *user) {
    reader *r = user;
    for (int64_t first = 0; first < EXAMPLES; first += BATCH) {
        int64_t n = first + BATCH <= EXAMPLES ? BATCH : EXAMPLES - first;
        strata_dataset_fetch(dataset, order, first, n, r->features + first * FEATURES, r->labels + first);
    }
    return NULL;
}

int main(void) {
    static reader readers[THREADS];
    static unsigned char pixels[EXAMPLES * FEATURES], labels[EXAMPLES];
    strata_error err = {0};
    for (int i = 0; i < EXAMPLES * FEATURES; i++) pixels[i] = (unsigned char)(i * 7);
    for (int i = 0; i < EXAMPLES; i++) labels[i] = (unsigned char)i;
    strata_array x = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(EXAMPLES, FEATURES), pixels);
    strata_array y = strata_array_view(STRATA_DTYPE_U8, STRATA_SHAPE(EXAMPLES), labels);
    if (strata_dataset_from_arrays(&x, &y, 1.0 / 255, &dataset, &err) ||
        strata_order_create(EXAMPLES, true, 3, 1, &order, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int n = 0, wrong = 0;
    while (n < THREADS && !pthread_create(&readers[n].thread, NULL, read_all, &readers[n])) n++;
    for (int i = 0; i < n; i++) pthread_join(readers[i].thread, NULL);
    for (int i = 0; i < n; i++)
        wrong += memcmp(readers[i].features, readers[0].features, sizeof readers[0].features) != 0 ||
                 memcmp(readers[i].labels, readers[0].labels, sizeof readers[0].labels) != 0;
    strata_order_destroy(order);
    strata_dataset_destroy(dataset);
    if (n < THREADS || wrong) fprintf(stderr, "%d threads ran, %d of them saw other data than the first\n", n, wrong);
    return n < THREADS || wrong;
}
