/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the files of --tensorboard: event files in DIR/train and DIR/validation, which `tensorboard --logdir DIR` shows. */
#ifndef STRATA_SAMPLES_BOARD_H
#define STRATA_SAMPLES_BOARD_H

#include <strata/strata.h>

typedef struct board {
    strata_events *train, *validation; /* NULL: not open */
    const char *folder;
    bool classifies;
    /* The data whose first batch is used for histograms of gradients; borrowed. */
    const strata_dataset *dataset;
    int64_t batch;
} board;

/* Opens the files, and writes the model as text and as a graph, and its settings as hyper-parameters. If the inputs are
 * pictures, also writes the first 25 of them as one picture. Returns an exit code, after a message. */
int board_open(board *b, const char *folder, strata_model *model, const strata_optimizer *optimizer,
               const strata_dataset *dataset, int64_t batch, bool classifies);
/* Adds loss and learning rate of a step. At the end of an epoch, adds the epoch's numbers, histograms of the weights and of
 * their gradients on the first batch of the data, and the norms of these gradients. If the board is not open, this does
 * nothing. If a file cannot be written, the training ends. */
strata_status board_add(board *b, const strata_progress *p, strata_model *model, strata_error *err);
/* Adds the test data's numbers and closes the files. Returns an exit code. A zeroed board is fine. */
int board_close(board *b, const strata_metrics *test);

#endif
