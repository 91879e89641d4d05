/* SPDX-License-Identifier: Apache-2.0
 *
 * strata graph: shows a model's layers and the inputs of each, as a list or as a picture (SVG).
 *
 * The picture has levels, from top to bottom. A layer is one level below the lowest of its inputs. A line that crosses levels
 * has a point on each of them, and points are ordered in a level like layers. The members of a level are sorted by the mean
 * position of their inputs, so that few lines cross (the first phase of Sugiyama, Tagawa and Toda, 1981). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "samples.h"
#include "strata/file.h"

enum { BOX_WIDTH = 210, BOX_HEIGHT = 46, GAP_X = 26, GAP_Y = 34, MARGIN = 20, SWEEPS = 8, MOST_NODES = 20000 };

typedef struct graph_options {
    device_flags device;
    const char *to;
    int64_t batch;
    bool svg;
} graph_options;

static const option_row rows[] = {
    {"svg", NULL, "write a picture as SVG, to stdout or to --to FILE", OPTION_FLAG, offsetof(graph_options, svg), 0, 0},
    {"to", "FILE", "write to this file instead of stdout", OPTION_OUTPUT, offsetof(graph_options, to), 0, 0},
    {"batch", "N", "examples, the first axis of the shapes (64)", OPTION_INT, offsetof(graph_options, batch), 1, 1e12},
    {0}};

/* A layer, an input of the model, or a point of a line that crosses a level. */
typedef struct node {
    /* NULL: the node is an input of the model, called `name`, or a point, whose name is "". */
    const strata_layer_summary *layer;
    const char *name;
    /* The indices of its inputs. */
    int inputs[STRATA_MAX_SUMMARY_INPUTS], n_inputs;
    int level;
    double place;
} node;

typedef struct picture {
    node *nodes;
    int n, n_real, n_levels;
} picture;

static int find(const picture *p, const char *name) {
    for (int i = p->n; i-- > 0;)
        if (!strcmp(p->nodes[i].name, name)) return i;
    return -1;
}

static int add_node(picture *p, node added) {
    p->nodes[p->n] = added;
    return p->n++;
}

/* Adds the layers. They are in the order of computation, so each input of a layer is an earlier layer or an input of the
 * model. */
static void add_layers(picture *p, const strata_model_summary *summary) {
    for (int i = 0; i < summary->n_layers; i++) {
        const strata_layer_summary *layer = &summary->layers[i];
        node own = {.layer = layer, .name = layer->name};
        for (int k = 0; k < layer->n_inputs && k < STRATA_MAX_SUMMARY_INPUTS; k++) {
            int from = find(p, layer->inputs[k]);
            if (from < 0) from = add_node(p, (node){.name = layer->inputs[k]});
            own.inputs[own.n_inputs++] = from;
        }
        if (!layer->n_inputs) own.inputs[own.n_inputs++] = i ? p->n - 1 : add_node(p, (node){.name = "input"});
        for (int k = 0; k < own.n_inputs; k++)
            if (p->nodes[own.inputs[k]].level >= own.level) own.level = p->nodes[own.inputs[k]].level + 1;
        add_node(p, own);
    }
    p->n_real = p->n;
}

/* Adds the points of lines that cross levels. */
static void add_points(picture *p) {
    for (int i = 0; i < p->n_real; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            int from = p->nodes[i].inputs[k];
            while (p->nodes[from].level < p->nodes[i].level - 1)
                from = add_node(p, (node){.name = "", .inputs = {from}, .n_inputs = 1, .level = p->nodes[from].level + 1});
            p->nodes[i].inputs[k] = from;
        }
    for (int i = 0; i < p->n; i++)
        if (p->nodes[i].level >= p->n_levels) p->n_levels = p->nodes[i].level + 1;
}

static int64_t points_needed(const picture *p) {
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) n += p->nodes[i].level - p->nodes[p->nodes[i].inputs[k]].level - 1;
    return n;
}

typedef struct ordered {
    int node;
    double mean;
} ordered;

static int by_mean(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->mean != y->mean) return x->mean < y->mean ? -1 : 1;
    return x->node - y->node;
}

/* Sorts each level by the mean position of its members' inputs (down), or of the nodes whose inputs they are (up). room: [n] */
static void sweep(picture *p, bool down, ordered *room) {
    for (int step = 0; step < p->n_levels; step++) {
        const int level = down ? step : p->n_levels - 1 - step;
        int n = 0;
        for (int i = 0; i < p->n; i++) {
            if (p->nodes[i].level != level) continue;
            double sum = 0;
            int others = 0;
            for (int k = 0; down && k < p->nodes[i].n_inputs; k++, others++) sum += p->nodes[p->nodes[i].inputs[k]].place;
            for (int o = 0; !down && o < p->n; o++)
                for (int k = 0; k < p->nodes[o].n_inputs; k++)
                    if (p->nodes[o].inputs[k] == i) sum += p->nodes[o].place, others++;
            room[n++] = (ordered){i, others ? sum / others : p->nodes[i].place};
        }
        qsort(room, (size_t)n, sizeof *room, by_mean);
        for (int k = 0; k < n; k++) p->nodes[room[k].node].place = k - (n - 1) / 2.0;
    }
}

static int widest(const picture *p) {
    int most = 1;
    for (int level = 0; level < p->n_levels; level++) {
        int n = 0;
        for (int i = 0; i < p->n; i++) n += p->nodes[i].level == level;
        if (n > most) most = n;
    }
    return most;
}

/* ---- drawing ---- */

static void draw(strata_text *svg, const picture *p) {
    const double width = 2 * MARGIN + widest(p) * (BOX_WIDTH + GAP_X) - GAP_X,
                 height = 2 * MARGIN + p->n_levels * (BOX_HEIGHT + GAP_Y) - GAP_Y;
    svg_begin(svg, width, height);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->nodes[i].n_inputs; k++) {
            const node *from = &p->nodes[p->nodes[i].inputs[k]], *to = &p->nodes[i];
            const double x0 = width / 2 + from->place * (BOX_WIDTH + GAP_X), x1 = width / 2 + to->place * (BOX_WIDTH + GAP_X),
                         y0 = MARGIN + from->level * (BOX_HEIGHT + GAP_Y) + BOX_HEIGHT,
                         y1 = MARGIN + to->level * (BOX_HEIGHT + GAP_Y);
            const bool point = !*to->name; /* the line continues through the point */
            strata_text_add(svg, "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"#888\"/>\n", x0,
                            y0, x0, y0 + GAP_Y * 0.6, x1, y1 - GAP_Y * 0.6, x1, y1);
            if (point)
                strata_text_add(svg, "<path d=\"M%.1f %.1fv%d\" fill=\"none\" stroke=\"#888\"/>\n", x1, y1, BOX_HEIGHT);
            else
                strata_text_add(svg, "<path d=\"M%.1f %.1fl-4 -7h8z\" fill=\"#888\"/>\n", x1, y1);
        }
    for (int i = 0; i < p->n_real; i++) {
        const node *own = &p->nodes[i];
        const double x = width / 2 + own->place * (BOX_WIDTH + GAP_X), y = MARGIN + own->level * (BOX_HEIGHT + GAP_Y);
        char line[256];
        strata_text_add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"#555\"/>\n",
                        x - BOX_WIDTH / 2.0, y, BOX_WIDTH, BOX_HEIGHT,
                        !own->layer              ? "#fff4d6"
                        : own->layer->parameters ? "#dbe9f6"
                                                 : "#f2f2f2");
        if (!own->layer) {
            svg_text(svg, x, y + 28, 13, "middle", own->name);
            continue;
        }
        if (strcmp(own->name, own->layer->kind))
            snprintf(line, sizeof line, "%.24s (%.20s)", own->name, own->layer->kind);
        else
            snprintf(line, sizeof line, "%.40s", own->name);
        svg_text(svg, x, y + 19, 13, "middle", line);
        snprintf(line, sizeof line, "%s", strata_shape_text(own->layer->output).text);
        if (own->layer->parameters)
            snprintf(line + strlen(line), sizeof line - strlen(line), "  %lld parameters", (long long)own->layer->parameters);
        svg_text(svg, x, y + 36, 11, "middle", line);
    }
    svg_end(svg);
}

static void list(strata_text *text, const picture *p) {
    for (int i = 0; i < p->n_real; i++) {
        const node *own = &p->nodes[i];
        if (!own->layer) {
            strata_text_add(text, "%-24s input\n", own->name);
            continue;
        }
        strata_text_add(text, "%-24s %-20s %-22s", own->name, own->layer->kind, strata_shape_text(own->layer->output).text);
        for (int k = 0; k < own->n_inputs; k++) strata_text_add(text, "%s%s", k ? ", " : " <- ", p->nodes[own->inputs[k]].name);
        strata_text_add(text, "\n");
    }
}

static strata_status make(const graph_options *options, const strata_model_summary *summary, strata_text *text,
                          strata_error *err) {
    const size_t most = (size_t)summary->n_layers * (STRATA_MAX_SUMMARY_INPUTS + 1) + 1;
    picture p = {.nodes = calloc(most, sizeof *p.nodes)};
    ordered *room = NULL;
    strata_status status = p.nodes ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "graph: no host memory");
    if (!status) add_layers(&p, summary);
    if (!status && !options->svg) list(text, &p);
    if (!status && options->svg) {
        const int64_t all = p.n + points_needed(&p);
        node *nodes = all <= MOST_NODES ? realloc(p.nodes, (size_t)all * sizeof *nodes) : NULL;
        if (nodes) p.nodes = nodes;
        room = calloc((size_t)(nodes ? all : 1), sizeof *room);
        if (!nodes || !room)
            status = strata_fail(err, STRATA_OUT_OF_MEMORY,
                                 "graph: a picture of %lld boxes and points is too large; the list, without "
                                 "--svg, has no limit",
                                 (long long)all);
        if (!status) {
            add_points(&p);
            for (int i = 0; i < SWEEPS; i++) sweep(&p, i % 2 == 0, room);
            draw(text, &p);
        }
    }
    free(room);
    free(p.nodes);
    return status;
}

static int write_text(const char *path, strata_text *text) {
    strata_error err = {0};
    char *bytes = NULL;
    size_t n = 0;
    strata_status status = strata_text_take(text, &bytes, &n, &err);
    if (!status && path) status = strata_file_write(path, bytes, n, &err);
    if (!status && !path) fwrite(bytes, 1, n, stdout);
    free(bytes);
    if (status) return report(FAILING_DATA, status, &err);
    if (path) printf("wrote %s\n", path);
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    graph_options options = {.device.which = "host", .batch = 64};
    const char *name = NULL;
    int n = 0;
    int code = read_options(command, argc, argv, &options, &name, &n);
    if (code) return code < 0 ? EXIT_OK : code;
    strata_model *model = NULL;
    strata_device *device = NULL;
    strata_model_summary summary = {0};
    strata_error err = {0};
    strata_text text = {0};
    code = open_model(name, true, &model);
    if (!code) code = open_device(&options.device, &device);
    strata_status status = STRATA_OK;
    if (!code) status = strata_model_build(model, device, NULL, &err);
    if (!code && !status) status = strata_model_summarize(model, options.batch, &summary, &err);
    if (!code && !status) status = make(&options, &summary, &text, &err);
    if (status) code = report(FAILING_RUN, status, &err);
    if (!code) code = write_text(options.to, &text);
    strata_text_finish(&text);
    strata_model_summary_finish(&summary);
    strata_model_destroy(model);
    strata_device_close(device);
    return code;
}

const command command_graph = {.name = "graph",
                               .arguments = "NAME|MODEL.json|MODEL.strata",
                               .summary = "show a model's layers and their inputs, as a list or a picture",
                               .details =
                                   "  strata graph mnist_cnn\n"
                                   "  strata graph m.strata --svg --to m.svg\n",
                               .options = rows,
                               .least_arguments = 1,
                               .most_arguments = 1,
                               .files = "r",
                               .run = run};
