/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "strata/formats.h"

/* What a file is, with what can be done; text NULL: it is not known. */
typedef struct finding {
    const char *text;
    strata_file_kind kind;
} finding;

/* Whether a name of a zip member, or a part of one, is in the bytes. */
static bool contains(const unsigned char *bytes, size_t n_bytes, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i + n <= n_bytes; i++)
        if (bytes[i] == (unsigned char)name[0] && !memcmp(bytes + i, name, n)) return true;
    return false;
}

static finding find_zip(const unsigned char *bytes, size_t n_bytes) {
    /* The directory with all names is at the end; the first names are at the begin. */
    const size_t part = n_bytes < (64 << 10) ? n_bytes : 64 << 10;
    const unsigned char *last = bytes + (n_bytes - part);
    if (contains(last, part, "model.weights.h5") || contains(bytes, part, "config.json"))
        return (finding){"it is a .keras file; give it the ending .keras", STRATA_FILE_KERAS};
    if (contains(last, part, "/data.pkl") || contains(bytes, part, "/data.pkl"))
        return (finding){.text =
                             "it is a file of torch.save, which only Python can read; export the model to ONNX in PyTorch: "
                             "torch.onnx.export(model, example, \"m.onnx\"), which Strata reads; for the weights alone, "
                             "safetensors.torch.save_file(model.state_dict(), \"m.safetensors\") and strata convert --map"};
    if (contains(last, part, ".npy") || contains(bytes, part, ".npy"))
        return (finding){.text = "it is an .npz archive of arrays, not a model; arrays are data to train on or to predict"};
    return (finding){.text = "it is a zip archive, not a model; unpack it"};
}

static bool is_text(const unsigned char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes && i < 4096; i++)
        if (!bytes[i] || (bytes[i] < ' ' && !strchr("\t\n\r\f", bytes[i]))) return false;
    return true;
}

/* What a file with these first bytes, or with all bytes, is. */
static finding find_kind(const unsigned char *bytes, size_t n_bytes) {
    static const struct {
        const char *begin;
        size_t at, n;
        const char *text;
    } rows[] = {
        {"\x89HDF\r\n\x1a\n", 0, 8, "it is an HDF5 file; a model that Keras saved in this format is read under the ending .h5"},
        {"\x93NUMPY", 0, 6, "it is an .npy array, not a model; arrays are data to train on or to predict"},
        {"\x1f\x8b", 0, 2, "it is compressed by gzip; expand it: gunzip"},
        {"GGUF", 0, 4, "it is a GGUF file of llama.cpp, which Strata does not read"},
        {"TFL3", 4, 4, "it is a TensorFlow Lite file, which Strata does not read; save the model in Keras as m.keras"},
        {"{", 0, 1,
         "it is a JSON text, not a model file: a description of a model without weights is trained by "
         "`strata train FILE.json`, and read by strata_model_read_json"}};
    if (!n_bytes)
        return (finding){.text = "it is empty (0 bytes); the program that wrote it was interrupted, or the disk was full"};
    if (n_bytes >= 4 && !memcmp(bytes, "PK\3\4", 4)) return find_zip(bytes, n_bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (n_bytes >= rows[i].at + rows[i].n && !memcmp(bytes + rows[i].at, rows[i].begin, rows[i].n))
            return (finding){.text = rows[i].text};
    /* Protocol 2 to 5 of pickle, whose last byte is '.'. */
    if (n_bytes >= 4 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5)
        return (finding){.text =
                             "it is a pickle (torch.save, joblib or pickle), which only Python can read; export a PyTorch "
                             "model to ONNX: torch.onnx.export(model, example, \"m.onnx\"), which Strata reads"};
    /* Field 1 of an ONNX model is its version. The keys of the fields that may follow: names of the program, domain, version of
     * the model, text, graph, opsets. */
    static const char fields[] = {0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42};
    if (n_bytes >= 4 && bytes[0] == 0x08 && bytes[1] < 0x20 && memchr(fields, bytes[2], sizeof fields))
        return (finding){"it seems to be an ONNX file; give it the ending .onnx", STRATA_FILE_ONNX};
    return (finding){.text = is_text(bytes, n_bytes) ? "it is a text, not a model file" : NULL};
}

strata_status strata_file_explain(const char *path, const unsigned char *bytes, size_t n_bytes, strata_file_kind expected,
                                  strata_status status, strata_error *err) {
    const finding found = find_kind(bytes, n_bytes);
    if (status != STRATA_DATA || !found.text || (found.kind && found.kind == expected)) return status;
    return strata_fail(err, STRATA_DATA, "%s: %s", path, found.text);
}
