#include "strata/interchange.h"
strata_status strata_model_load_keras(const char *path, strata_model **out_model, strata_error *err) {
    (void)out_model;
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: later", path);
}
strata_status strata_model_take_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    (void)model, (void)map_path;
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: later", path);
}
