/* SPDX-License-Identifier: Apache-2.0
 *
 * Keras' classes of layers, and what each is here: one table for those who read .keras files and those who write them. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_CLASSES_H
#define STRATA_CORE_INTERCHANGE_KERAS_CLASSES_H

#include "core/base/json.h"

enum { STRATA_KERAS_NAME_BYTES = 128, STRATA_KERAS_WORD_BYTES = 40 };

/* The key of metadata.json below which a file that Strata wrote has label, loss and notes; and the names of the layers that do
 * in Keras what the model's preprocessing does here. */
#define STRATA_KERAS_METADATA    "strata"
#define STRATA_KERAS_STANDARDIZE "standardize"
#define STRATA_KERAS_RESTORE     "restore"

/* The row of a ReLU with max_value. */
#define STRATA_KERAS_LIMITED_RELU "ReLU(max_value)"

/* How an option of Keras becomes one of Strata. The sign stands in front of the option in the table. */
typedef enum strata_keras_way {
    STRATA_KERAS_COPY = 0,         /* a number, a flag, a text, or a list of numbers */
    STRATA_KERAS_FIRST = '[',      /* a list of one number, which is the number */
    STRATA_KERAS_NEGATED = '!',    /* a flag that is named by its negation */
    STRATA_KERAS_ACTIVATION = '@', /* the name of a function; "linear" is none */
    STRATA_KERAS_NOT_ZERO = '~',   /* as COPY; zeros, which are no default in Keras, are refused */
    STRATA_KERAS_AXIS = '#',       /* the last axis, which no option says here, or a number from 1 on */
    STRATA_KERAS_PENALTY = '*',    /* an L1L2, which is two numbers here: kernel_l1, kernel_l2 */
    STRATA_KERAS_REQUIRED = '?',   /* must have the value `to`, or be missing or null */
    STRATA_KERAS_FIXED = '+'       /* not Keras' option but one of the layer here, which has the value `to` */
} strata_keras_way;

typedef struct strata_keras_field {
    strata_keras_way way;
    char key[STRATA_KERAS_WORD_BYTES], to[STRATA_KERAS_WORD_BYTES];
} strata_keras_field;

/* A row of the table: the class's name and the kind of the layer here; then fields; then, behind a bar, weights. */
typedef struct strata_keras_class {
    char name[STRATA_KERAS_WORD_BYTES], kind[STRATA_KERAS_WORD_BYTES];
    /* What follows them in the row: for the calls below. */
    const char *fields, *weights;
} strata_keras_class;

/* False: there is no such class. */
bool strata_keras_find_class(const char *name, strata_keras_class *out);
/* The class that a layer of this kind is written as, for inputs (N, ...) of `rank` axes. False: there is none, as for
 * layers `op`. */
bool strata_keras_find_kind(const char *kind, int rank, strata_keras_class *out);
/* The fields in their order, for (const char *at = row->fields; strata_keras_next_field(&at, &field);) */
bool strata_keras_next_field(const char **at, strata_keras_field *out);
/* A class's name as it stands in names of groups: "separable_conv2d". */
void strata_keras_group(const char *class_name, char *out, size_t bytes);
/* Where the parameter "kernel" of a layer lies in the weights, below the layer's group: "/vars/0". both: the layer is inside of
 * Bidirectional, and parameters of its second direction have "backward_" in front. False: it has no such parameter. */
bool strata_keras_weight_path(const strata_keras_class *row, bool both, const char *parameter, char *out, size_t bytes);
/* LSTM or GRU: "linear" is not their default activation, and Bidirectional may be around them. */
bool strata_keras_is_recurrent(const strata_keras_class *row);
/* What becomes of the padding that an embedding with mask_zero leaves out, behind a layer of this kind that has it in front. */
typedef enum strata_keras_mask {
    STRATA_KERAS_MASK_ENDS, /* what follows computes with all places */
    STRATA_KERAS_MASK_GOES_ON,
    STRATA_KERAS_MASK_DIFFERS /* Keras does otherwise than the layer here */
} strata_keras_mask;
strata_keras_mask strata_keras_mask_behind(const char *kind, bool return_sequences, bool go_backwards);
/* The mask of a call whose inputs have the masks a and b: 0, none; a number for each embedding; -1: Keras joins them, and the
 * layer here drops them. */
int strata_keras_common_mask(int a, int b);
/* Whether Keras has the activation function by the name that it has here. */
bool strata_keras_has_activation(const char *function);
/* Writes a number, a text, a flag, or a list of these. Fails: UNSUPPORTED for anything else. */
STRATA_MUST_USE strata_status strata_keras_copy_value(const strata_json *value, strata_json_writer *w, strata_error *err);

#endif
