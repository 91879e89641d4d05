/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct that describes an optimizer. A new optimizer needs core/optimizer/<name>.c, a row in optimizers.def and a
 * test; its update is an op. Gradients are clipped before the optimizer's op (clip.c), and schedule.c computes the
 * learning rate of a step. */
#ifndef STRATA_CORE_OPTIMIZER_H
#define STRATA_CORE_OPTIMIZER_H

#include "core/base/option.h"
#include "strata/ops.h"
#include "strata/optimizers.h"

enum { STRATA_MAX_OPTIMIZER_SLOTS = 3, STRATA_MAX_OPTIMIZER_OPTIONS = 12, STRATA_MOST_ACCUMULATED = 1000000 };

/* The position of each parameter in the flat range, for computing the norm of each. A chunk is STRATA_SEGMENT_CHUNK contiguous
 * elements. Each parameter begins at a chunk, and the elements after its end in its last chunk are zero. */
enum { STRATA_SEGMENT_CHUNK = 64 };
typedef struct strata_segments {
    /* How many parameters there are. */
    int n;
    /* How many chunks the flat range has. */
    int64_t n_chunks;
    /* [n] The index of the chunk after the parameter's last one. */
    const int32_t *ends;
    /* [n_chunks] The number of the parameter that a chunk belongs to. */
    const int32_t *owner;
} strata_segments;

/* The tensors of one update of all parameters, or of one parameter. They have one shape; `step` and `gate` are as in
 * strata/ops.h. */
typedef struct strata_update {
    strata_tensor *parameters, *slots[STRATA_MAX_OPTIMIZER_SLOTS], *gradients, *step, *gate;
    /* The parameters of the range, which is then flat. If it has none (n 0), the range is one parameter of any shape. */
    const strata_segments *segments;
} strata_update;

/* A number in strata_optimizer: its default, and whether it must be below 1. It must be at least 0. */
typedef struct strata_optimizer_number {
    const char *name;
    size_t offset;
    double otherwise;
    bool share;
} strata_optimizer_number;

typedef struct strata_optimizer_kind {
    const char *name;
    /* The fields of strata_optimizer that it uses, for JSON, without the learning rate; ends at a NULL name. */
    strata_option options[STRATA_MAX_OPTIMIZER_OPTIONS];
    /* The numbers among them, besides those that all optimizers have; ends at a NULL name. */
    strata_optimizer_number numbers[STRATA_MAX_OPTIMIZER_OPTIONS];
    /* Checks what the numbers' limits do not say. NULL: there is nothing. */
    strata_status (*check)(const strata_optimizer *settings, strata_error *err);
    /* The default learning rate. */
    double learning_rate;
    /* The update needs norms of whole parameters. A block must have all of a parameter. */
    bool whole_parameters;
    /* How many flat slots (momentum, m, v) it needs, and how many more for these settings; NULL: none. */
    int n_slots;
    int (*more_slots)(const strata_optimizer *settings);
    /* The initial value of the slots' elements; NULL: 0. */
    double (*slot_begins)(const strata_optimizer *settings);
    /* Sets the words (STRATA_STEP_...) of step t = 1, 2, ... other than the rates; may change words[STRATA_STEP_LEARNING_RATE],
     * which is the scheduled rate. NULL: there are none. */
    void (*fill_step)(const strata_optimizer *settings, int64_t t, double *words);
    strata_tensor *(*build)(const strata_optimizer *settings, const strata_update *update);
} strata_optimizer_kind;

/* Macros for the rows of `options`. */
#define STRATA_OPTIMIZER_NUMBER(field, most) \
    { #field, STRATA_OPTION_NUMBER, offsetof(strata_optimizer, field), 0, most, false }
#define STRATA_OPTIMIZER_FLAG(field) \
    { #field, STRATA_OPTION_BOOL, offsetof(strata_optimizer, field), 0, 0, false }
/* The rows that all optimizers have. */
#define STRATA_OPTIMIZER_COMMON                                                                                       \
    STRATA_OPTIMIZER_NUMBER(clip_value, 1e30), STRATA_OPTIMIZER_NUMBER(clip_norm, 1e30),                              \
        STRATA_OPTIMIZER_NUMBER(clip_global_norm, 1e30), {                                                            \
        "gradient_accumulation_steps", STRATA_OPTION_INT, offsetof(strata_optimizer, gradient_accumulation_steps), 1, \
            STRATA_MOST_ACCUMULATED, false                                                                            \
    }

/* Macros for the rows of `numbers`. */
#define STRATA_OPTIMIZER_POSITIVE(field, otherwise) \
    { #field, offsetof(strata_optimizer, field), otherwise, false }
#define STRATA_OPTIMIZER_SHARE(field, otherwise) \
    { #field, offsetof(strata_optimizer, field), otherwise, true }
#define STRATA_OPTIMIZER_EPSILON STRATA_OPTIMIZER_POSITIVE(epsilon, 1e-7)
#define STRATA_OPTIMIZER_MOMENTS \
    STRATA_OPTIMIZER_SHARE(beta1, 0.9), STRATA_OPTIMIZER_SHARE(beta2, 0.999), STRATA_OPTIMIZER_EPSILON

/* Finds the optimizer with this name. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_optimizer_find(const char *name, const strata_optimizer_kind **out_kind,
                                                    strata_error *err);
/* Finds the kind, sets settings that are not given to their defaults, and checks all settings. */
STRATA_MUST_USE strata_status strata_optimizer_check(strata_optimizer *settings, const strata_optimizer_kind **out_kind,
                                                     strata_error *err);
/* How many flat slots an optimizer with these settings needs. _momentum_slots: one for a momentum. */
int strata_optimizer_n_slots(const strata_optimizer_kind *kind, const strata_optimizer *settings);
int strata_optimizer_momentum_slots(const strata_optimizer *settings);
/* Computes the words of update t = 1, 2, ... (STRATA_STEP_WORDS). */
void strata_optimizer_step(const strata_optimizer_kind *kind, const strata_optimizer *settings, int64_t t, float *out_words);

/* The settings with `rate` in place of the schedule's learning rate. If rate is below 0, they are unchanged. */
strata_optimizer strata_optimizer_with_rate(const strata_optimizer *settings, double rate);

/* clip.c: whether an update needs the gradients of all parameters, to compute norms of them. */
bool strata_optimizer_takes_norms(const strata_optimizer *settings);
/* Clips the gradients, which are in n blocks, according to the settings, and replaces them by the results.
 * segments: [n] the parameters of each block; if it has none, the block is one parameter. *out_square is the sum of the
 * squares of all gradients (one number) if it was needed, else NULL. */
void strata_clip_gradients(const strata_optimizer *settings, strata_tensor **gradients, const strata_segments *segments, int n,
                           strata_tensor **out_square);

/* segments.c: the sum of the squares of each parameter's elements, (n); for n 0 one number. */
strata_tensor *strata_segment_squares(const strata_segments *segments, strata_tensor *flat);
/* Multiplies the elements of each parameter by its factor, or, for n 0, all elements by the one factor. */
strata_tensor *strata_segment_scale(const strata_segments *segments, strata_tensor *flat, strata_tensor *factors);
/* a / b where both are above 0, else 1. */
strata_tensor *strata_ratio_or_one(strata_tensor *a, strata_tensor *b);

/* schedule.c: the learning rate of update t = 0, 1, ... `rate` is the rate of update 0 without a warm-up. */
double strata_schedule_rate(const strata_schedule *schedule, double rate, int64_t t);
/* Fails with INVALID if an option is wrong. The name is replaced by one in static memory. */
STRATA_MUST_USE strata_status strata_schedule_check(strata_schedule *schedule, strata_error *err);
/* Finds a schedule and its options for JSON. Fails with INVALID and the list of names if there is none. */
STRATA_MUST_USE strata_status strata_schedule_find(const char *name, const char **out_name, const strata_option **out_options,
                                                   strata_error *err);

#define STRATA_OPTIMIZER(name) extern const strata_optimizer_kind strata_optimizer_##name;
#include "core/optimizer/optimizers.def"

#undef STRATA_OPTIMIZER

#endif
