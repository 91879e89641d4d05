/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of progress of a training: on stderr, when that is a terminal, in the width that it has just now. A separate thread
 * draws it ten times a second from the last report of the training. So training does not wait for the terminal, a new width is
 * used at once, and the time is updated while kernels are compiled. */
#ifndef STRATA_SAMPLES_PROGRESS_H
#define STRATA_SAMPLES_PROGRESS_H

#include <strata/strata.h>

typedef struct progress progress;

typedef struct progress_options {
    /* Examples of a step. */
    int64_t batch;
    /* Answers are right or wrong, so that there is an accuracy. */
    bool classifies;
} progress_options;

/* NULL: stderr is no terminal, or there is no memory or thread for it. Every call takes NULL and does nothing then. */
progress *progress_begin(const progress_options *opts);
/* Clears the line. */
void progress_end(progress *line);
/* As strata_device_options.on_compile, from any time after progress_begin. */
void progress_compile(progress *line, const strata_compile_progress *compile);
/* After each step, and at the end of each epoch. */
void progress_step(progress *line, const strata_progress *p);
/* Shows this text behind the rest of a step's line, where there is room; it is copied. */
void progress_note(progress *line, const char *text);
/* Shows this text, static memory, until something else is reported. */
void progress_say(progress *line, const char *what);
/* Takes the line away, so that something can be printed; it comes back with the next report. */
void progress_hide(progress *line);

#endif
