/* SPDX-License-Identifier: Apache-2.0
 *
 * The samples that `strata train NAME` knows, one row each (samples.c), and how each gets its data (open.c). */
#ifndef STRATA_SAMPLES_SAMPLES_H
#define STRATA_SAMPLES_SAMPLES_H

#include <stdio.h>
#include <strata/preprocessing.h>
#include <strata/tokenizer.h>

#include "cli.h"

/* The location of data and the part of them to read; these options are common to all commands that read data. */
typedef struct data_options {
    const char *path;            /* --data: folder or file; NULL: made data */
    const char *label, *columns; /* of a CSV; NULL: the sample's own */
    const char *weight;          /* of a CSV of numbers: the column of weights; NULL: none */
    const char *separator;       /* of a CSV; NULL: it is found */
    const char *labels;          /* of .npy features: the file of their labels */
    const char *row;             /* predict: the cells themselves, instead of a path */
    bool subwords;               /* a new tokenizer cuts words into pieces */
    const char *task;            /* "classification" or "regression"; NULL: as the label looks, or as the model's loss says */
    double test_split;           /* of data without a part for testing; 0: a fifth */
    bool no_test;                /* all are for training */
    int64_t size;                /* rows and columns of pictures; 0: as they are */
    int64_t seed;                /* of the division */
} data_options;
#define DATA_OPTION_ROWS(type, member)                                                                             \
    {"data",                                                                                                       \
     "DIR",                                                                                                        \
     "folder (or file) of the data; default: data that the program makes",                                         \
     OPTION_TEXT,                                                                                                  \
     offsetof(type, member.path),                                                                                  \
     0,                                                                                                            \
     0},                                                                                                           \
        {"label",                                                                                                  \
         "COLUMN",                                                                                                 \
         "CSV: the column to be learned (the last); several, A,B, are numbers learned together",                   \
         OPTION_TEXT,                                                                                              \
         offsetof(type, member.label),                                                                             \
         0,                                                                                                        \
         0},                                                                                                       \
        {"separator",                                                                                              \
         "C",                                                                                                      \
         "CSV: what stands between cells: ; | tab ... (found in the first lines)",                                 \
         OPTION_TEXT,                                                                                              \
         offsetof(type, member.separator),                                                                         \
         0,                                                                                                        \
         0},                                                                                                       \
        {"labels", "Y.npy", "data.npy: the file of its labels", OPTION_TEXT, offsetof(type, member.labels), 0, 0}, \
        {"weight-column",                                                                                          \
         "COLUMN",                                                                                                 \
         "CSV of numbers: the column that says what a row's loss counts",                                          \
         OPTION_TEXT,                                                                                              \
         offsetof(type, member.weight),                                                                            \
         0,                                                                                                        \
         0},                                                                                                       \
    {                                                                                                              \
        "columns", "A,B,...", "CSV: the columns to learn from", OPTION_TEXT, offsetof(type, member.columns), 0, 0  \
    }

typedef struct sample sample;
enum { TABLE_STEMS = 3 };

/* What opening gives. */
enum { MOST_ARRAYS = 16 };
typedef struct sample_data {
    strata_dataset *dataset;
    strata_array arrays[MOST_ARRAYS]; /* what the dataset borrows; finished by close_data */
    const strata_model *model;        /* whose names arrays have, where it has several inputs or outputs; borrowed */
    bool text_beside_numbers;         /* it learns from the texts of a table and its other columns */
    strata_tokenizer *tokenizer;      /* of texts: used when it is there, else made from the texts */
    int64_t length, vocabulary;       /* of texts: tokens of an example, and how many there are, told by the model */
    strata_task task;                 /* by the model's loss */
    strata_shape picture;             /* what the model takes, where it is pictures */
    bool whole;                       /* of a CSV that is the only one all rows are taken, none kept for testing */
    /* Of own data: a model's, or made from the training part. */
    strata_preprocessing *preprocessing;
    strata_dataset *rest; /* of own data that have no part for testing: what training left for it */
    bool split;           /* whether it left something */
} sample_data;

struct sample {
    const char *name;
    const char *about; /* one line, for the help */
    const char *model; /* JSON, as in a model file: samples/<name>/model.json */
    /* split: "train" or "test". Returns an exit code. options->path is NULL only where there are made data. */
    int (*open)(const sample *sample, const data_options *options, const char *split, sample_data *data);
    const char *made;  /* what the program makes where there is no --data, for messages; NULL: it makes none */
    const char *fetch; /* what `strata data fetch` calls the data; NULL: there is nothing to fetch */
    int epochs;
    int64_t batch;
    strata_flip_crop *augment;          /* what pictures go through before they are learned from; NULL: nothing */
    bool any_width;                     /* the data say how many numbers an example has: the model's "input" follows */
    const char *classes;                /* their words, separated by commas, in order; NULL: they are their numbers */
    bool texts;                         /* documents, which a tokenizer makes numbers of */
    const char *label, *columns;        /* of a CSV */
    const char *tables[2][TABLE_STEMS]; /* of CSV files in a folder: names for training and for testing, without .csv */
};

/* The sample of that name, or NULL. */
const sample *find_sample(const char *name);
/* The row whose data a model learns: by its label, else what the data look like, else the first row. */
const sample *sample_of_model(const strata_model *model, const data_options *options);
/* --precision for a model that is not compiled yet; NULL: as it was trained. */
int set_precision(strata_model *model, const char *name);
const char *precision_of(const strata_model *model);
/* The word for a class; NULL: it is its number. Holds until the next call. */
const char *class_name(const sample *sample, const strata_preprocessing *preprocessing, int64_t class);
/* Whether answers are right or wrong, so that accuracy says something: by the loss of a model with one output. */
bool classifies(const strata_model *model);
/* "accuracy 97.00 % on 10000 test examples, loss 0.1", without an end of line; the loss alone where answers are no classes. */
void print_metrics(FILE *to, const strata_model *model, const strata_metrics *metrics);
/* strata_model_load, with a word to who names data or a model that was not trained. */
strata_status load_trained(const char *path, strata_model **out_model, strata_error *err);
/* The model that `name` means: a sample's own, a file of JSON, or a saved model where `saved` allows one.
 * Prints what is wrong; returns an exit code. */
int open_model(const char *name, bool saved, strata_model **out_model);
/* Whether these data (NULL: there are none) can be those of a model with several inputs or outputs. Returns an exit code. */
int check_ports(const char *name, const strata_model *model, const char *data);
/* Prints the samples' rows of a help. */
void print_samples(void);

/* ---- open.c ---- */
/* The names in "a,b,c". */
enum { MOST_COLUMNS = 1024 };
typedef struct column_list {
    const char *names[MOST_COLUMNS];
    int n;
    char *text;
} column_list;
/* Opens one part of a sample's data, or says how to get them. Returns an exit code. */
int open_data(const sample *sample, const data_options *options, const char *split, sample_data *data);
void close_data(sample_data *data);
/* What the model says of the texts that it takes: their length and vocabulary. */
void describe_inputs(const strata_model *model, sample_data *data);
/* The model's; *out NULL: it has none. */
STRATA_MUST_USE strata_status recall_preprocessing(const strata_model *model, strata_preprocessing **out, strata_error *err);
/* Puts into `data` what opening another part of what the model learned from needs of it: its preprocessing, its tokenizer, the
 * length of its texts. */
int recall_data(const strata_model *model, const sample *sample, sample_data *data);
/* Where the sample takes any width: the model anew with the data's number of numbers, and as many outputs as there are
 * labels. */
int fit_model_to_data(const sample *sample, const sample_data *data, strata_model **model);
/* Whether the path is a CSV's, or a folder that has one of the sample's. */
bool is_table(const char *path);
bool has_table(const sample *sample, const char *path);
int open_linear(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_regression(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_cifar10(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_imdb(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_mnist(const sample *sample, const data_options *options, const char *split, sample_data *data);

#endif
