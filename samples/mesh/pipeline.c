/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: a pipeline. Two devices have half of a residual network's layers each, and compute the parts of a batch in turns.
 *     sample_pipeline FOLDER MODEL.json [A,B]     the folder contains CIFAR-10; the model, for example
 *     samples/cifar10_resnet/model.json; two devices, each "host" by default */
#include <stdio.h>
#include <strata/strata.h>
#include <string.h>

enum { STAGES = 2 };

/* Prints what the mesh makes of the model before it trains. */
static strata_status show(strata_model *model, int64_t batch, const strata_strategy_options *mesh, strata_error *err) {
    strata_model_mesh report = {0};
    STRATA_TRY(strata_model_list_mesh(model, batch, mesh, &report, err));
    for (int i = 0; i < report.n_parameters; i++)
        printf("%-40s %s\n", report.parameters[i].name, report.parameters[i].placement);
    printf("%sstages wait for %.0f %% of a step\n", report.schedule, 100 * report.bubble);
    strata_model_mesh_finish(&report);
    return STRATA_OK;
}

int main(int argc, char **argv) {
    const char *devices[STAGES] = {"host", "host"};
    char *rest = argc > 3 ? argv[3] : NULL;
    for (int i = 0; rest && i < STAGES; i++) devices[i] = strsep(&rest, ",");
    /* The update is that of one device with the whole batch, except that batch norm takes each micro-batch's statistics. */
    const strata_strategy_options mesh = {
        .devices = devices, .n_devices = STAGES, .mesh = "stage=2", .microbatches = 4, .schedule = "1f1b"};
    const strata_fit_options fit = {.epochs = 1, .batch = 128, .seed = 1};
    strata_strategy *strategy = NULL;
    strata_dataset *train = NULL, *test = NULL;
    strata_model *model = NULL;
    strata_metrics metrics = {0};
    strata_error err = {0};
    if (argc < 3) return fprintf(stderr, "usage: sample_pipeline FOLDER MODEL.json [A,B]\n"), 2;
    strata_status status = strata_strategy_create("model_parallel", &mesh, &strategy, &err);
    if (!status) status = strata_dataset_cifar10(argv[1], "train", &train, &err);
    if (!status) status = strata_dataset_cifar10(argv[1], "test", &test, &err);
    if (!status) status = strata_model_read_json(argv[2], &model, &err);
    if (!status) status = strata_model_compile(model, NULL, &(strata_compile_options){.strategy = strategy, .seed = 1}, &err);
    if (!status) status = show(model, fit.batch, &mesh, &err);
    if (!status) status = strata_model_fit(model, train, &fit, NULL, &err);
    if (!status) status = strata_model_evaluate(model, test, 0, &metrics, &err);
    fprintf(status ? stderr : stdout, "%s\n", status ? err.message : strata_strategy_choice(strategy));
    if (!status) printf("accuracy %.2f %%\n", 100 * metrics.accuracy);
    strata_strategy_destroy(strategy); /* also destroys the model */
    strata_dataset_destroy(train), strata_dataset_destroy(test);
    return status ? 1 : 0;
}
