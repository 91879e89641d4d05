/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of samples. The build embeds each model, samples/<name>/model.json, as text. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "own.h"
#include "sample_models.h"
#include "strata/text.h"
#include "terminal.h"

static const sample samples[] = {
    {.name = "mnist",
     .about = "handwritten digits, two dense layers",
     .model = model_mnist,
     .open = open_mnist,
     .made = "images that the program draws",
     .fetch = "mnist",
     .epochs = 5,
     .batch = 64},
    {.name = "mnist_cnn",
     .about = "the same digits, two convolutions",
     .model = model_mnist_cnn,
     .open = open_mnist,
     .made = "images that the program draws",
     .fetch = "mnist",
     .epochs = 5,
     .batch = 64},
    {.name = "cifar10",
     .about = "small colour pictures of ten kinds, two convolutions",
     .model = model_cifar10,
     .open = open_cifar10,
     .fetch = "cifar10",
     .epochs = 10,
     .batch = 64,
     .classes = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"},
    {.name = "cifar10_resnet",
     .about = "the same pictures, a residual network with batch norm; flips and crops, warm-up and cosine",
     .model = model_cifar10_resnet,
     .open = open_cifar10,
     .fetch = "cifar10",
     .epochs = 12,
     .batch = 128,
     .augment = &(strata_flip_crop){.flip = true, .padding = 4},
     .classes = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"},
    {.name = "imdb",
     .about = "whether a film review is kind: word embedding and mean",
     .model = model_imdb,
     .open = open_imdb,
     .fetch = "imdb",
     .epochs = 5,
     .batch = 64,
     .classes = "negative,positive",
     .texts = true},
    {.name = "fake_news",
     .about = "whether a tweet is true: words, 1-D convolution; or the texts of your CSV",
     .model = model_fake_news,
     .open = open_own,
     .fetch = "fake_news",
     .epochs = 8,
     .batch = 64,
     .classes = "fake,real",
     .texts = true,
     .label = "label",
     .columns = "tweet",
     .tables = {{"covid_train", "train", "Constraint_Train"}, {"covid_test", "test", "english_test_with_labels"}}},
    {.name = "linear",
     .about = "a line through one point: the smallest model",
     .model = model_linear,
     .open = open_linear,
     .made = "the point (1, 1)",
     .epochs = 2,
     .batch = 10},
    {.name = "regression",
     .about = "a number from ten numbers, or from the columns of your CSV",
     .model = model_regression,
     .open = open_regression,
     .made = "numbers that the program makes",
     .epochs = 10,
     .batch = 64,
     .any_width = true,
     .tables = {{"train"}, {"test"}}},
};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

/* The row for the user's own data. */
static const sample own = {.name = "own", .open = open_own};
/* The row for arrays with the names of the inputs and outputs of the user's own model. */
static const sample columns = {.name = "columns", .open = open_columns};

const sample *own_sample(void) {
    return &own;
}

const sample *find_sample(const char *name) {
    for (int i = 0; i < N_SAMPLES; i++)
        if (!strcmp(samples[i].name, name)) return &samples[i];
    return NULL;
}

/* Whether the folder contains the MNIST files. */
static bool has_idx(const char *path) {
    char file[4096];
    static const char *const names[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte", "train-labels-idx1-ubyte"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++)
        if (snprintf(file, sizeof file, "%s/%s%s", path, names[i / 2], i % 2 ? ".gz" : "") < (int)sizeof file &&
            !access(file, F_OK))
            return true;
    return false;
}

const sample *sample_of_model(const strata_model *model, const data_options *options) {
    const sample *found = find_sample(strata_model_label(model));
    if (found) return found;
    if (has_several_ports(model) && !strata_model_note(model, "preprocessing"))
        return options->path && is_table(options->path) ? &own : &columns;
    if (strata_model_note(model, "preprocessing") || strata_model_input_dtype(model) == STRATA_DTYPE_I32) return &own;
    return options->path && (options->label || options->labels || is_own_data(options->path)) && !has_idx(options->path)
               ? &own
               : &samples[0];
}

const char *class_name(const sample *sample, const strata_preprocessing *preprocessing, int64_t class) {
    static char word[64];
    const char *at = sample->classes;
    if (preprocessing) return strata_preprocessing_class_name(preprocessing, class);
    for (; at && class > 0; class --) {
        at = strchr(at, ',');
        if (at) at++;
    }
    if (!at) return NULL;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
    return word;
}

bool classifies(const strata_model *model) {
    const strata_model_port output = strata_model_output_port(model, 0);
    if (strata_model_n_outputs(model) > 1) return false;
    if (output.has_loss) return output.answers != STRATA_ANSWERS_NONE;
    return output.ending || (output.shape.rank == 1 && output.shape.dims[0] > 1);
}

bool predicts_classes(const strata_model *model) {
    const strata_model_port output = strata_model_output_port(model, 0);
    const bool one = strata_shape_elements(output.shape) == 1;
    if (!classifies(model)) return false;
    if (output.has_loss) return one || output.answers != STRATA_ANSWERS_BINARY;
    if (!output.ending) return false;
    return strcmp(output.ending, "sigmoid") ? output.shape.rank == 1 && !one : one;
}

const char *choose_loss(const strata_model *model, const char *given, const strata_dataset *dataset) {
    const strata_model_port output = strata_model_output_port(model, 0);
    const int64_t size = strata_shape_elements(output.shape);
    if (given || strata_model_n_outputs(model) > 1 || output.has_loss) return given;
    if (strata_dataset_label_dtype(dataset) == STRATA_DTYPE_I32) {
        if (output.ending || (output.shape.rank == 1 && size > 1)) return NULL; /* compile chooses the loss of classes */
        return size == 1 && strata_dataset_class_name(dataset, 0) ? "binary_crossentropy" : "mse";
    }
    if (!output.ending) return "mse";
    return strcmp(output.ending, "softmax") ? NULL : "categorical_crossentropy";
}

const char *loss_for_description(const strata_model *model) {
    for (int i = 0; i < strata_model_n_outputs(model); i++)
        if (!strata_model_output_port(model, i).has_loss) return "mse";
    return NULL;
}

void print_metrics(FILE *to, const strata_model *model, const strata_metrics *metrics) {
    if (classifies(model))
        fprintf(to, "accuracy %.2f %% on %lld test example%s, loss %.4g", 100 * metrics->accuracy, (long long)metrics->examples,
                metrics->examples == 1 ? "" : "s", metrics->loss);
    else
        fprintf(to, "loss %.4g on %lld test example%s", metrics->loss, (long long)metrics->examples,
                metrics->examples == 1 ? "" : "s");
}

void print_samples(void) {
    printf("samples\n");
    for (int i = 0; i < N_SAMPLES; i++) print_columns(samples[i].name, samples[i].about);
}

static int unknown_sample(const char *name) {
    const char *words[N_SAMPLES];
    char list[512] = "";
    for (int i = 0; i < N_SAMPLES; i++) {
        words[i] = samples[i].name;
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", words[i]);
    }
    const char *near = strata_nearest_name(name, words, N_SAMPLES);
    if (!access(name, F_OK))
        return usage_error("%s: is no model; give MODEL.json, MODEL.strata or the name of a sample: %s", name, list);
    if (near)
        return usage_error(
            "there is no file and no sample \"%s\". Did you mean \"%s\"? To train your own model, give a file MODEL.json", name,
            near);
    return usage_error(
        "there is no file and no sample \"%s\"; the samples are: %s. To train your own model, give a file MODEL.json", name,
        list);
}

const char *foreign_model(const char *path) {
    static const char torch[] =
        "is a file of PyTorch, which contains code of Python. In Python, write the weights (safetensors.torch.save_file("
        "model.state_dict(), 'm.safetensors')) or the model (torch.onnx.export(model, (x,), 'm.onnx')); then strata convert "
        "reads "
        "it";
    static const char pickle[] = "is a pickle, which contains code of Python, and no file of a model that strata can read";
    static const char tensorflow[] =
        "is a model of TensorFlow. In Python, convert it to ONNX (tf2onnx) or save it by Keras as m.keras; then strata convert "
        "reads it";
    static const struct {
        const char *ending, *advice;
    } kinds[] = {{".pt", torch},      {".pth", torch},     {".ckpt", torch},    {".bin", torch},        {".pkl", pickle},
                 {".pickle", pickle}, {".joblib", pickle}, {".pb", tensorflow}, {".tflite", tensorflow}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends_with(path, kinds[i].ending)) return kinds[i].advice;
    return NULL;
}

strata_status check_converted(const char *path, strata_error *err) {
    const char *kind = ends_with(path, ".onnx")                              ? "ONNX"
                       : ends_with(path, ".keras") || ends_with(path, ".h5") ? "a file of Keras"
                                                                             : NULL;
    return kind ? strata_fail(err, STRATA_DATA, "%s: is %s; make a model of it first: strata convert %s MODEL.strata", path,
                              kind, path)
                : STRATA_OK;
}

/* The model's file in the newest checkpoint of a folder; false: the path is no folder with checkpoints. */
static bool find_newest(const char *path, char out[4096]) {
    DIR *folder = opendir(path);
    char newest[256] = "";
    for (const struct dirent *item; folder && (item = readdir(folder));)
        if (!strncmp(item->d_name, "step-", 5) && strcmp(item->d_name, newest) > 0)
            snprintf(newest, sizeof newest, "%s", item->d_name);
    if (folder) closedir(folder);
    return *newest && snprintf(out, 4096, "%s/%s/part-0.safetensors", path, newest) < 4096;
}

strata_status check_saved_name(const char *option, const char *path, strata_error *err) {
    if (!check_converted(path, NULL))
        return !is_table(path) && !ends_with(path, ".npz") && !ends_with(path, ".npy") && !ends_with(path, ".json")
                   ? STRATA_OK
                   : strata_fail(err, STRATA_INVALID,
                                 "--%s %s: is the name of other data, and the model would not be read; call it MODEL.strata",
                                 option, path);
    return strata_fail(
        err, STRATA_INVALID,
        "--%s %s: a training saves a .strata file; call it MODEL.strata, and then strata convert MODEL.strata %s", option, path,
        path);
}

strata_status load_trained(const char *path, strata_model **out_model, strata_error *err) {
    if (is_table(path) || ends_with(path, ".npz") || ends_with(path, ".npy"))
        return strata_fail(err, STRATA_DATA, "%s: is data, and the model comes before them: MODEL.strata %s", path, path);
    if (ends_with(path, ".json"))
        return strata_fail(err, STRATA_DATA, "%s: is a model that is to be trained first: strata train %s", path, path);
    STRATA_TRY(check_converted(path, err));
    char newest[4096];
    const strata_status status = strata_model_load(find_newest(path, newest) ? newest : path, out_model, err);
    const char *advice = status == STRATA_DATA ? foreign_model(path) : NULL; /* the ending may be a wrong one */
    return advice ? strata_fail(err, STRATA_DATA, "%s: %s", path, advice) : status;
}

int open_model(const char *name, bool saved, strata_model **out_model) {
    strata_error err = {0};
    strata_status status;
    const sample *found = find_sample(name);
    if (found)
        status = strata_model_from_json(found->model, strlen(found->model), name, out_model, &err);
    else if (ends_with(name, ".json"))
        status = strata_model_read_json(name, out_model, &err);
    else if (check_converted(name, &err))
        return usage_error("%s", err.message);
    else if (saved && (strchr(name, '.') || strchr(name, '/')))
        status = load_trained(name, out_model, &err);
    else if (foreign_model(name))
        return usage_error("%s: %s", name, foreign_model(name));
    else if (ends_with(name, ".strata") || ends_with(name, ".safetensors"))
        return usage_error("%s: is a trained model; to train it further: strata train --from %s DATA", name, name);
    else
        return unknown_sample(name);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

int set_precision(strata_model *model, const char *name) {
    strata_error err = {0};
    strata_dtype precision = STRATA_DTYPE_F32;
    if (!name) return EXIT_OK;
    if (strata_dtype_parse(name, &precision, NULL) || precision > STRATA_DTYPE_BF16)
        return usage_error("--precision %s: there are f32, f16 and bf16", name);
    strata_status status =
        strata_model_set_note(model, "precision", precision == STRATA_DTYPE_F32 ? NULL : strata_dtype_name(precision), &err);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

const char *precision_of(const strata_model *model) {
    const char *note = strata_model_note(model, "precision");
    return note ? note : "f32";
}
