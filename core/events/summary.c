/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the contents of events: a Summary with one Value, or a graph. The numbers of fields are those of
 * tensorboard/compat/proto/summary.proto and graph.proto; the names of the fields are given beside them. */
#include <math.h>
#include <time.h>

#include "core/events/events.h"

/* The numbers of fields of Event. */
enum { EVENT_GRAPH = 4, EVENT_SUMMARY = 5 };
/* The numbers of fields of Summary.Value. */
enum { VALUE_TAG = 1, VALUE_NUMBER = 2, VALUE_IMAGE = 4, VALUE_HISTOGRAM = 5, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
/* The numbers of TensorProto's types. */
enum { TYPE_FLOAT = 1, TYPE_STRING = 7 };

strata_status strata_events_check_tag(const char *tag, strata_error *err) {
    if (!tag || !*tag) return strata_fail(err, STRATA_INVALID, "events: a tag is empty; it names what is shown, as \"loss\"");
    if (!strata_utf8_valid(tag)) return strata_fail(err, STRATA_INVALID, "events: a tag is not UTF-8");
    return STRATA_OK;
}

/* Adds an event with a Value that is complete except for its tag. */
static strata_status add_value(strata_events *events, const char *tag, int64_t step, strata_text *value, strata_error *err) {
    strata_text summary = {0};
    strata_proto_string(value, VALUE_TAG, tag);
    strata_proto_message(&summary, 1, value);
    return strata_events_add(events, step, EVENT_SUMMARY, &summary, err);
}

strata_status strata_events_scalar(strata_events *events, const char *tag, int64_t step, double value, strata_error *err) {
    STRATA_TRY(strata_events_check_tag(tag, err));
    strata_text message = {0};
    strata_proto_float(&message, VALUE_NUMBER, (float)value);
    return add_value(events, tag, step, &message, err);
}

/* ---- histograms ---- */
enum { N_BUCKETS = 30 };

strata_status strata_events_histogram(strata_events *events, const char *tag, int64_t step, const strata_array *values,
                                      strata_error *err) {
    STRATA_TRY(strata_events_check_tag(tag, err));
    int64_t n = strata_shape_elements(values->shape), n_finite = 0;
    double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = strata_element_get(values->dtype, values->data, i);
        if (!isfinite(v)) continue;
        n_finite++;
        sum += v;
        squares += v * v;
        low = fmin(low, v);
        high = fmax(high, v);
    }
    double limits[N_BUCKETS] = {0}, counts[N_BUCKETS] = {0};
    if (!n_finite) low = high = 0;
    double width = (high - low) / N_BUCKETS;
    /* Bucket b counts the values above limits[b - 1] (for b = 0, from the smallest value on) and up to limits[b]. */
    for (int b = 0; b < N_BUCKETS; b++) limits[b] = b + 1 < N_BUCKETS ? low + width * (b + 1) : high;
    for (int64_t i = 0; i < n; i++) {
        double v = strata_element_get(values->dtype, values->data, i);
        if (!isfinite(v)) continue;
        int b = width > 0 ? (int)((v - low) / width) : N_BUCKETS - 1;
        counts[b < N_BUCKETS ? b : N_BUCKETS - 1]++;
    }
    strata_text histogram = {0}, value = {0};
    strata_proto_double(&histogram, 1, low);
    strata_proto_double(&histogram, 2, high);
    strata_proto_double(&histogram, 3, (double)n_finite);
    strata_proto_double(&histogram, 4, sum);
    strata_proto_double(&histogram, 5, squares);
    /* If all values are equal, they are in one bucket, since TensorBoard shows nothing for buckets with equal limits. */
    strata_proto_doubles(&histogram, 6, width > 0 ? limits : limits + N_BUCKETS - 1, width > 0 ? N_BUCKETS : 1);
    strata_proto_doubles(&histogram, 7, width > 0 ? counts : counts + N_BUCKETS - 1, width > 0 ? N_BUCKETS : 1);
    strata_proto_message(&value, VALUE_HISTOGRAM, &histogram);
    return add_value(events, tag, step, &value, err);
}

/* ---- pictures ---- */
strata_status strata_events_image(strata_events *events, const char *tag, int64_t step, const strata_array *picture,
                                  strata_error *err) {
    STRATA_TRY(strata_events_check_tag(tag, err));
    const strata_shape s = picture->shape;
    bool bytes = picture->dtype == STRATA_DTYPE_U8, floats = picture->dtype == STRATA_DTYPE_F32;
    int channels = s.rank == 3 ? (int)s.dims[2] : 0;
    if ((!bytes && !floats) || s.rank != 3 || (s.dims[2] != 1 && s.dims[2] != 3 && s.dims[2] != 4))
        return strata_fail(err, STRATA_INVALID, "events: %s is %s %s; a picture is u8 or f32 (rows, columns, 1, 3 or 4)", tag,
                           strata_dtype_name(picture->dtype), strata_shape_text(s).text);
    int64_t n = strata_shape_elements(s);
    STRATA_FREED unsigned char *converted = NULL;
    if (floats) STRATA_TRY(STRATA_NEW(converted, n, err, "events: a picture of %lld bytes", (long long)n));
    for (int64_t i = 0; floats && i < n; i++) {
        float v = ((const float *)picture->data)[i];
        converted[i] = (unsigned char)(v >= 1 ? 255 : v > 0 ? v * 255 + 0.5F : 0); /* NaN becomes 0 */
    }
    STRATA_FINISHED(strata_text) file = {0};
    strata_text image = {0}, value = {0};
    STRATA_TRY(strata_png_encode(floats ? converted : picture->data, s.dims[0], s.dims[1], channels, &file, err));
    strata_proto_integer(&image, 1, s.dims[0]);
    strata_proto_integer(&image, 2, s.dims[1]);
    strata_proto_integer(&image, 3, channels);
    strata_proto_message(&image, 4, &file); /* encoded_image_string; bytes are encoded like a message */
    strata_proto_message(&value, VALUE_IMAGE, &image);
    return add_value(events, tag, step, &value, err);
}

/* ---- data for plugins of TensorBoard: a tensor, and metadata that name the plugin ---- */

/* Adds SummaryMetadata {plugin_data {plugin_name, content}, data_class}. Finishes `content`, which may be NULL. */
static void add_metadata(strata_text *value, const char *plugin, strata_text *content) {
    enum { CLASS_TENSOR = 2 };
    strata_text plugin_data = {0}, metadata = {0};
    strata_proto_string(&plugin_data, 1, plugin);
    if (content) strata_proto_message(&plugin_data, 2, content);
    strata_proto_message(&metadata, 1, &plugin_data);
    strata_proto_integer(&metadata, 4, CLASS_TENSOR);
    strata_proto_message(value, VALUE_METADATA, &metadata);
}

/* Adds TensorProto {dtype, tensor_shape {dim {size}}} with one axis. If `text` is not NULL, it is the only element. */
static void add_tensor(strata_text *value, int type, int64_t size, const char *text) {
    strata_text tensor = {0}, dim = {0}, shape = {0};
    strata_proto_integer(&tensor, 1, type);
    strata_proto_integer(&dim, 1, size);
    strata_proto_message(&shape, 2, &dim);
    strata_proto_message(&tensor, 2, &shape);
    if (text) strata_proto_string(&tensor, 8, text);
    strata_proto_message(value, VALUE_TENSOR, &tensor);
}

strata_status strata_events_text(strata_events *events, const char *tag, int64_t step, const char *text, strata_error *err) {
    STRATA_TRY(strata_events_check_tag(tag, err));
    strata_text value = {0};
    add_tensor(&value, TYPE_STRING, 1, text);
    add_metadata(&value, "text", NULL);
    return add_value(events, tag, step, &value, err);
}

/* Adds an event with a Value for the plugin hparams: an HParamsPluginData with this field. Finishes the field. */
static strata_status add_hparams(strata_events *events, const char *tag, int field, strata_text *content, strata_error *err) {
    strata_text data = {0}, value = {0};
    strata_proto_message(&data, field, content);
    add_tensor(&value, TYPE_FLOAT, 0, NULL);
    add_metadata(&value, "hparams", &data);
    return add_value(events, tag, 0, &value, err);
}

strata_status strata_events_hyperparameters(strata_events *events, const strata_hyperparameter *parameters, int n_parameters,
                                            const char *const *metric_tags, int n_metric_tags, strata_error *err) {
    enum { EXPERIMENT = 2, SESSION_START = 3, KIND_STRING = 1, KIND_NUMBER = 3 };
    for (int i = 0; i < n_parameters; i++) STRATA_TRY(strata_events_check_tag(parameters[i].name, err));
    for (int i = 0; i < n_metric_tags; i++) STRATA_TRY(strata_events_check_tag(metric_tags[i], err));
    STRATA_FINISHED(strata_text) experiment = {0}, session = {0};
    for (int i = 0; i < n_parameters; i++) {
        const strata_hyperparameter *p = &parameters[i];
        strata_text info = {0}, pair = {0}, value = {0};
        strata_proto_string(&info, 1, p->name);
        strata_proto_integer(&info, 4, p->text ? KIND_STRING : KIND_NUMBER);
        strata_proto_message(&experiment, 4, &info);
        /* the field of google.protobuf.Value: 2 for a number, 3 for a string */
        if (p->text)
            strata_proto_string(&value, 3, p->text);
        else
            strata_proto_double(&value, 2, p->number);
        strata_proto_string(&pair, 1, p->name);
        strata_proto_message(&pair, 2, &value);
        strata_proto_message(&session, 1, &pair);
    }
    for (int i = 0; i < n_metric_tags; i++) {
        strata_text info = {0}, name = {0};
        strata_proto_string(&name, 2, metric_tags[i]);
        strata_proto_message(&info, 1, &name);
        strata_proto_message(&experiment, 5, &info);
    }
    strata_proto_double(&session, 5, (double)time(NULL));
    STRATA_TRY(add_hparams(events, "_hparams_/experiment", EXPERIMENT, &experiment, err));
    return add_hparams(events, "_hparams_/session_start_info", SESSION_START, &session, err);
}

/* ---- graphs ---- */

/* TensorFlow's numbers for the element types. */
static const int tensorflow_types[STRATA_DTYPE_COUNT] = {
    [STRATA_DTYPE_F32] = 1, [STRATA_DTYPE_F16] = 19, [STRATA_DTYPE_BF16] = 14, [STRATA_DTYPE_I32] = 3,
    [STRATA_DTYPE_I64] = 9, [STRATA_DTYPE_U8] = 4,   [STRATA_DTYPE_BOOL] = 10,
};

/* Adds an entry to the map NodeDef.attr, and finishes its value. */
static void add_attribute(strata_text *node, const char *key, strata_text *value) {
    strata_text entry = {0};
    strata_proto_string(&entry, 1, key);
    strata_proto_message(&entry, 2, value);
    strata_proto_message(node, 5, &entry);
}

static void add_shape(strata_text *message, int field, strata_shape shape) {
    strata_text dims = {0};
    for (int i = 0; i < shape.rank; i++) {
        strata_text dim = {0};
        strata_proto_integer(&dim, 1, shape.dims[i]);
        strata_proto_message(&dims, 2, &dim);
    }
    strata_proto_message(message, field, &dims);
}

strata_status strata_events_graph(strata_events *events, const strata_event_node *nodes, int n_nodes, strata_error *err) {
    enum { GRAPH_NODE = 1, GRAPH_VERSIONS = 4 };
    for (int i = 0; i < n_nodes; i++) STRATA_TRY(strata_events_check_tag(nodes[i].name, err));
    strata_text graph = {0};
    for (int i = 0; i < n_nodes; i++) {
        const strata_event_node *n = &nodes[i];
        strata_text node = {0}, type = {0}, list = {0}, shapes = {0};
        strata_proto_string(&node, 1, n->name);
        strata_proto_string(&node, 2, n->op ? n->op : "node");
        for (int k = 0; k < n->n_inputs; k++) strata_proto_string(&node, 3, n->inputs[k]);
        if (n->device) strata_proto_string(&node, 4, n->device);
        strata_proto_integer(&type, 6, tensorflow_types[n->dtype]);
        add_attribute(&node, "T", &type);
        add_shape(&list, 7, n->shape); /* AttrValue.list.shape */
        strata_proto_message(&shapes, 1, &list);
        add_attribute(&node, "_output_shapes", &shapes);
        strata_proto_message(&graph, GRAPH_NODE, &node);
    }
    strata_text versions = {0};
    strata_proto_integer(&versions, 1, 22);
    strata_proto_message(&graph, GRAPH_VERSIONS, &versions);
    return strata_events_add(events, 0, EVENT_GRAPH, &graph, err);
}
