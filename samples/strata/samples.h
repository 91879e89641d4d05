/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the samples of `strata train NAME` (samples.c), and opening their data (open.c). */
#ifndef STRATA_SAMPLES_SAMPLES_H
#define STRATA_SAMPLES_SAMPLES_H

#include <stdio.h>
#include <strata/preprocessing.h>
#include <strata/tokenizer.h>

#include "cli.h"

/* How a CSV is written; NULL: what the file shows. All commands that read tables have these options. read_dialect in own.h
 * reads them. */
typedef struct table_flags {
    const char *header, *separator, *quote, *decimal, *thousands, *dates, *na;
} table_flags;
#define TABLE_OPTION_ROWS(type, member)                                                                                       \
    {"header",                                                                                                                \
     "yes|no",                                                                                                                \
     "CSV: whether the first line has the names of the columns (found from the cells)",                                       \
     OPTION_TEXT,                                                                                                             \
     offsetof(type, member.header),                                                                                           \
     0,                                                                                                                       \
     0},                                                                                                                      \
        {"separator",                                                                                                         \
         "C",                                                                                                                 \
         "CSV: the character between cells: ; | tab ... (found from the first lines)",                                        \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.separator),                                                                                    \
         0,                                                                                                                   \
         0},                                                                                                                  \
        {"quote",                                                                                                             \
         "C",                                                                                                                 \
         "CSV: the character around cells that contain separators, or none (\")",                                             \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.quote),                                                                                        \
         0,                                                                                                                   \
         0},                                                                                                                  \
        {"decimal",                                                                                                           \
         "C",                                                                                                                 \
         "CSV: the character before the fraction of all numbers, . or , (found from the cells)",                              \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.decimal),                                                                                      \
         0,                                                                                                                   \
         0},                                                                                                                  \
        {"thousands",                                                                                                         \
         "C",                                                                                                                 \
         "CSV: the character between thousands: , or . or none (found from the cells)",                                       \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.thousands),                                                                                    \
         0,                                                                                                                   \
         0},                                                                                                                  \
        {"dates",                                                                                                             \
         "dmy|mdy|ymd",                                                                                                       \
         "CSV: the order of day, month and year (found from the cells)",                                                      \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.dates),                                                                                        \
         0,                                                                                                                   \
         0},                                                                                                                  \
    {                                                                                                                         \
        "na", "A,B,...", "CSV: the words of missing values, besides empty cells (NA,N/A,NaN,null,None,?,-,--)", OPTION_WORDS, \
            offsetof(type, member.na), 0, 0                                                                                   \
    }

/* Where the data are, and how to read them. All commands that read data have these options. */
typedef struct data_options {
    const char *path;            /* --data: a folder or file; NULL: the program generates data */
    const char *label, *columns; /* for a CSV; NULL: those of the sample */
    const char *weight;          /* for a CSV of numbers: the column of weights; NULL: there is none */
    table_flags table;           /* for a CSV */
    const char *labels;          /* for features in a .npy: the file of their labels */
    const char *row;             /* predict: the cells themselves, instead of a path */
    bool subwords;               /* a new tokenizer divides words into subwords */
    const char *task;            /* "classification" or "regression"; NULL: found from the label or the model's loss */
    double test_split;           /* the share for testing, of data without a part for testing; 0: a fifth */
    bool no_test;                /* all data are for training */
    int64_t size;                /* rows and columns of pictures; 0: chosen for the pictures */
    int64_t seed;                /* for dividing the data */
} data_options;
#define DATA_OPTION_ROWS(type, member)                                                                                        \
    {"data", "DIR", "the folder or file of the data (the program generates data)", OPTION_INPUT, offsetof(type, member.path), \
     0,      0},                                                                                                              \
        {"label",                                                                                                             \
         "COLUMN",                                                                                                            \
         "CSV: the column to learn (the last); A,B learns several columns of numbers together",                               \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.label),                                                                                        \
         0,                                                                                                                   \
         0},                                                                                                                  \
        TABLE_OPTION_ROWS(type, member.table),                                                                                \
        {"labels", "Y.npy", "for data.npy: the file with its labels", OPTION_INPUT, offsetof(type, member.labels), 0, 0},     \
        {"weight-column",                                                                                                     \
         "COLUMN",                                                                                                            \
         "CSV of numbers: the column of weights, by which the loss of each row is multiplied",                                \
         OPTION_TEXT,                                                                                                         \
         offsetof(type, member.weight),                                                                                       \
         0,                                                                                                                   \
         0},                                                                                                                  \
    {                                                                                                                         \
        "columns", "A,B,...", "CSV: the columns to learn from", OPTION_TEXT, offsetof(type, member.columns), 0, 0             \
    }

typedef struct sample sample;
enum { TABLE_STEMS = 3 };

/* A part of the data, and what belongs to the data as a whole. */
enum { MOST_ARRAYS = 16 };
typedef struct sample_data {
    strata_dataset *dataset;
    strata_array arrays[MOST_ARRAYS]; /* arrays that the dataset borrows; close_data finishes them */
    const strata_model *model;        /* a model with several inputs or outputs, after which arrays are named; borrowed */
    bool text_beside_numbers;         /* the model's inputs are the texts of a table and its other columns */
    strata_tokenizer *tokenizer;      /* for texts; NULL: it is made from the training texts */
    int64_t length, vocabulary;       /* for texts: tokens per example, and ids of the vocabulary; from the model */
    strata_task task;                 /* from the model's loss */
    strata_shape picture;             /* the model's input, if it is pictures */
    bool whole;                       /* no rows of a single CSV are kept for testing */
    bool for_validation;              /* an archive's arrays for validation are preferred to those for testing */
    /* The model is trained and has no preprocessing, since it comes from another program: it gets the data as they are. */
    bool as_they_are;
    /* For the user's own data: the model's preprocessing, or that made from the training part. */
    strata_preprocessing *preprocessing;
    strata_dataset *rest; /* for the user's own data without a part for testing: the examples that are kept for testing */
    bool split;           /* the data were divided into dataset and rest */
} sample_data;

struct sample {
    const char *name;
    const char *about; /* one line, for the help */
    const char *model; /* the contents of samples/<name>/model.json */
    /* Opens a part of the data. split: "train" or "test". options->path is NULL only if `made` is not NULL. Returns an exit
     * code, after a message. */
    int (*open)(const sample *sample, const data_options *options, const char *split, sample_data *data);
    const char *made;  /* a description of the data that are generated if there is no --data; NULL: none are */
    const char *fetch; /* the name of the data in `strata data fetch`; NULL: there is nothing to fetch */
    int epochs;
    int64_t batch;
    strata_flip_crop *augment;          /* random changes of training pictures; NULL: none */
    bool any_width;                     /* the model's "input" is set to the number of features of the data */
    const char *classes;                /* the names of the classes, separated by commas, in order; NULL: their numbers */
    bool texts;                         /* the data are documents, which a tokenizer converts to tokens */
    const char *label, *columns;        /* the default columns of a CSV */
    const char *tables[2][TABLE_STEMS]; /* names of CSV files in a folder, for training and testing, without .csv */
};

/* The sample with this name; NULL: there is none. */
const sample *find_sample(const char *name);
/* The row whose data a model can be trained on: the sample that the model's label names (strata_model_label), else by the kind
 * of the data, else the first row. */
const sample *sample_of_model(const strata_model *model, const data_options *options);
/* Sets --precision for a model that is not compiled yet. name NULL: the precision with which it was trained. Returns an exit
 * code. */
int set_precision(strata_model *model, const char *name);
const char *precision_of(const strata_model *model);
/* The name of a class; NULL: it has none. Valid until the next call. */
const char *class_name(const sample *sample, const strata_preprocessing *preprocessing, int64_t class);
/* Whether there is an accuracy. This follows from the loss of a model with one output or, if it has no loss, from the loss that
 * compile gives it. */
bool classifies(const strata_model *model);
/* Whether each example has one class: the only output has a probability for each class, or the probability of class 1. */
bool predicts_classes(const strata_model *model);
/* The loss to compile a model with. given: --loss; NULL: the model's own loss, for which the result is NULL, or else the loss
 * for the labels of the dataset. */
const char *choose_loss(const strata_model *model, const char *given, const strata_dataset *dataset);
/* The loss for commands that only describe a training step: "mse" if an output has no loss, else NULL. */
const char *loss_for_description(const strata_model *model);
/* Prints for example "accuracy 97.00 % on 10000 test examples, loss 0.1", without an end of line; only the loss if the model
 * does not predict classes. */
void print_metrics(FILE *to, const strata_model *model, const strata_metrics *metrics);
/* What a model file of another program is, and how to convert it; NULL: the path does not end like one. */
const char *foreign_model(const char *path);
/* Fails for the files of models that strata convert reads: ONNX and Keras. */
strata_status check_converted(const char *path, strata_error *err);
/* Fails if load_trained refuses models of this name. `option` names it. */
strata_status check_saved_name(const char *option, const char *path, strata_error *err);
/* strata_model_load, with a better message if the file contains data or a model that was not trained. The path may also be a
 * folder of checkpoints, of which the newest is loaded. */
strata_status load_trained(const char *path, strata_model **out_model, strata_error *err);
/* Opens the model of a sample or of a JSON file, or a saved model if `saved`. Returns an exit code, after a message. */
int open_model(const char *name, bool saved, strata_model **out_model);
/* Checks that the data (NULL: there are none) are an .npz archive if the model has several inputs or outputs. Returns an exit
 * code, after a message. */
int check_ports(const char *name, const strata_model *model, const char *data);
/* Prints the list of samples, for the help. */
void print_samples(void);

/* ---- open.c ---- */
/* The names of a list "a,b,c". */
enum { MOST_COLUMNS = 1024 };
typedef struct column_list {
    const char *names[MOST_COLUMNS];
    int n;
    char *text;
} column_list;
/* Opens one part of a sample's data. Returns an exit code, after a message that explains how to get the data. */
int open_data(const sample *sample, const data_options *options, const char *split, sample_data *data);
void close_data(sample_data *data);
/* Sets the fields of `data` that follow from the model: for texts their length and vocabulary. */
void describe_inputs(const strata_model *model, sample_data *data);
/* Reads the model's preprocessing; *out NULL: it has none. */
STRATA_MUST_USE strata_status recall_preprocessing(const strata_model *model, strata_preprocessing **out, strata_error *err);
/* Sets the fields of `data` that are needed to open data for a trained model: its preprocessing, its tokenizer, the length of
 * its texts. Returns an exit code, after a message. */
int recall_data(const strata_model *model, const sample *sample, sample_data *data);
/* If the sample accepts any number of features, replaces the model by one with as many inputs as the data have features and as
 * many outputs as they have labels. Returns an exit code, after a message. */
int fit_model_to_data(const sample *sample, const sample_data *data, strata_model **model);
/* Whether the path is that of a CSV file; and whether it is that, or a folder that contains a CSV file of the sample. */
bool is_table(const char *path);
bool has_table(const sample *sample, const char *path);
int open_linear(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_regression(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_cifar10(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_imdb(const sample *sample, const data_options *options, const char *split, sample_data *data);
int open_mnist(const sample *sample, const data_options *options, const char *split, sample_data *data);

#endif
