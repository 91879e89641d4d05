/* SPDX-License-Identifier: Apache-2.0
 *
 * The classes of Keras' layers and the Strata layers that correspond to them. The import and the export of .keras files
 * use the same table. */
#ifndef STRATA_CORE_INTERCHANGE_KERAS_CLASSES_H
#define STRATA_CORE_INTERCHANGE_KERAS_CLASSES_H

#include "strata/json.h"

enum { STRATA_KERAS_NAME_BYTES = 128, STRATA_KERAS_WORD_BYTES = 40 };

/* STRATA_KERAS_METADATA is the key in metadata.json for the label, the loss and the notes of a file that Strata wrote.
 * The others are the names of the Keras layers that do the work of the model's preprocessing. */
#define STRATA_KERAS_METADATA    "strata"
#define STRATA_KERAS_STANDARDIZE "standardize"
#define STRATA_KERAS_RESTORE     "restore"

/* The name of the row for a ReLU with max_value. */
#define STRATA_KERAS_LIMITED_RELU "ReLU(max_value)"

/* How an option of Keras is converted to an option of Strata. In the table, the sign is written before the option. */
typedef enum strata_keras_way {
    STRATA_KERAS_COPY = 0,         /* a number, a flag, a string, or a list of numbers */
    STRATA_KERAS_FIRST = '[',      /* a list with one number becomes this number */
    STRATA_KERAS_NEGATED = '!',    /* a flag whose name is negated in Strata */
    STRATA_KERAS_ACTIVATION = '@', /* the name of a function; "linear" means no function */
    STRATA_KERAS_NOT_ZERO = '~',   /* like COPY, but zeros, which mean another thing in Keras, are refused */
    STRATA_KERAS_AXIS = '#',       /* an axis: the last one, for which Strata needs no option, or a number from 1 on */
    STRATA_KERAS_PENALTY = '*',    /* an L1L2 object becomes the two numbers kernel_l1 and kernel_l2 */
    STRATA_KERAS_REQUIRED = '?',   /* must have the value `to`, or be missing or null */
    STRATA_KERAS_FIXED = '+'       /* not a Keras option: sets the option of the Strata layer to `to` */
} strata_keras_way;

typedef struct strata_keras_field {
    strata_keras_way way;
    char key[STRATA_KERAS_WORD_BYTES], to[STRATA_KERAS_WORD_BYTES];
} strata_keras_field;

/* A row of the table: the name of the class, the kind of the Strata layer, then the fields, and after a bar the weights. */
typedef struct strata_keras_class {
    char name[STRATA_KERAS_WORD_BYTES], kind[STRATA_KERAS_WORD_BYTES];
    /* The rest of the row, for the functions below. */
    const char *fields, *weights;
} strata_keras_class;

/* Finds the row of a class. Returns false if there is none. */
bool strata_keras_find_class(const char *name, strata_keras_class *out);
/* Finds the class to which a layer of this kind is exported if its inputs (N, ...) have `rank` axes. Returns false if
 * there is none; this is so for layers `op`. */
bool strata_keras_find_kind(const char *kind, int rank, strata_keras_class *out);
/* Iterates over the fields: for (const char *at = row->fields; strata_keras_next_field(&at, &field);) */
bool strata_keras_next_field(const char **at, strata_keras_field *out);
/* The form of a class's name that is used in the names of groups: "separable_conv2d". */
void strata_keras_group(const char *class_name, char *out, size_t bytes);
/* Finds the path of the parameter "kernel" in the weights, relative to the layer's group: "/vars/0". both: the layer is
 * inside of a Bidirectional, and the names of its second direction's parameters begin with "backward_". Returns false if
 * there is no such parameter. */
bool strata_keras_weight_path(const strata_keras_class *row, bool both, const char *parameter, char *out, size_t bytes);
/* Copies the name of the class's weight number `index`, in the order of the row; false: there are at most `index`. */
bool strata_keras_weight_name(const strata_keras_class *row, int index, char *out, size_t bytes);
/* Whether the class is LSTM or GRU. "linear" is not their default activation, and a Bidirectional may contain them. */
bool strata_keras_is_recurrent(const strata_keras_class *row);
/* What a layer does with the mask of an embedding with mask_zero, which marks the positions that are padding. */
typedef enum strata_keras_mask {
    STRATA_KERAS_MASK_ENDS, /* the next layers compute with all positions */
    STRATA_KERAS_MASK_GOES_ON,
    STRATA_KERAS_MASK_DIFFERS /* Keras computes something else than the Strata layer */
} strata_keras_mask;
strata_keras_mask strata_keras_mask_behind(const char *kind, bool return_sequences, bool go_backwards);
/* The mask of a call whose inputs have the masks a and b. A mask is 0 (none), a number for each embedding, or -1: Keras
 * combines the masks, but the Strata layer drops them. */
int strata_keras_common_mask(int a, int b);
/* Whether Keras has an activation with this name of Strata's. */
bool strata_keras_has_activation(const char *function);
/* Writes a number, a string, a flag, or a list of these. Fails: UNSUPPORTED for anything else. */
STRATA_MUST_USE strata_status strata_keras_copy_value(const strata_json *value, strata_json_writer *w, strata_error *err);

#endif
