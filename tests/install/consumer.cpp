/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's C++ program against the installed library: it trains a line on the host, and catches an error. */
#include <cstdio>
#include <strata/strata.hpp>

int main() try {
    strata::device device;
    strata::call(strata_device_open, "host", nullptr, device.out());

    strata::array x(STRATA_DTYPE_F32, strata::shape({64, 1})), y(STRATA_DTYPE_F32, strata::shape({64, 1}));
    for (int i = 0; i < 64; i++) {
        x.elements<float>()[i] = float(i) / 32 - 1;
        y.elements<float>()[i] = 2 * x.elements<float>()[i] + 0.5f;
    }
    strata::dataset data;
    strata::call(strata_dataset_from_arrays, &x, &y, 0, data.out());

    strata::model model;
    strata::call(strata_model_create, strata::shape({1}), model.out());
    strata_model_add_dense(model, strata::with<strata_dense_options>([](auto &o) { o.units = 1; }));
    strata::call(strata_model_compile, model, device, strata::with<strata_compile_options>([](auto &o) {
                     o.loss = "mse";
                     o.optimizer = strata_sgd_optimizer(0.3, 0, false);
                 }));
    strata::call(strata_model_fit, model, data, strata::with<strata_fit_options>([](auto &o) { o.epochs = 30, o.batch = 16; }),
                 nullptr);
    strata_metrics metrics{};
    strata::call(strata_model_evaluate, model, data, 0, &metrics);
    std::printf("loss %g\n", metrics.loss);
    if (!(metrics.loss < 1e-6)) return 1;

    strata::model moved = std::move(model);
    if (model.get() || !moved.get()) return 1;
    try {
        strata::device none;
        strata::call(strata_device_open, "no such device", nullptr, none.out());
        return 1;
    } catch (const strata::error &e) {
        return e.status() == STRATA_UNAVAILABLE && std::string(e.what()).find("no such device") != std::string::npos ? 0 : 1;
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
