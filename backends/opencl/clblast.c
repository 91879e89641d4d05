/* SPDX-License-Identifier: Apache-2.0
 *
 * CLBlast's matrix product. The library is opened at run time. It has tuned parameters for hundreds of GPUs, but adds in
 * another order than our kernels, so it is used only as a candidate of gpu/matmul with options.fast. It compiles its kernels on
 * first use and may create temporary buffers during a run. */
#include "backends/opencl/opencl.h"

#if STRATA_WITH_CLBLAST
#include <clblast_c.h>
#include <dlfcn.h>

struct opencl_clblast {
    void *library;
    __typeof__(&CLBlastSgemmStridedBatched) multiply;
};

enum { M, N, K, BATCH, A_ROW, B_ROW, A_BATCH, B_BATCH, TRANSPOSE_A, TRANSPOSE_B, N_WORDS }; /* in the order of gpu_products.c */
enum { N_BUFFERS = 3 };

static const strata_shader clblast_shader = {
    .stem = "clblast/matmul", .variant = "f32", .n_buffers = N_BUFFERS, .n_words = N_BUFFERS + N_WORDS};

void strata_opencl_clblast_open(opencl_device *device) {
    void *library = dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library ? dlsym(library, "CLBlastSgemmStridedBatched") : NULL;
    struct opencl_clblast *clblast = symbol ? calloc(1, sizeof *clblast) : NULL;
    if (!clblast) {
        if (library) dlclose(library);
        return;
    }
    clblast->library = library;
    memcpy(&clblast->multiply, &symbol, sizeof symbol);
    device->clblast = clblast;
    device->limits.library = &clblast_shader;
    device->base.has_fast = true;
}

void strata_opencl_clblast_close(opencl_device *device) {
    if (!device->clblast) return;
    dlclose(device->clblast->library);
    free(device->clblast);
    device->clblast = NULL;
}

strata_status strata_opencl_clblast_run(opencl_device *device, const strata_kernel_launch *launch, const cl_mem *memory,
                                        cl_event *out_event, strata_error *err) {
    const strata_word *first = launch->words, *w = launch->words + N_BUFFERS;
    const CLBlastTranspose a_transpose = w[TRANSPOSE_A].u32 ? CLBlastTransposeYes : CLBlastTransposeNo;
    const CLBlastTranspose b_transpose = w[TRANSPOSE_B].u32 ? CLBlastTransposeYes : CLBlastTransposeNo;
    const size_t m = w[M].u32, n = w[N].u32;
    CLBlastStatusCode code = device->clblast->multiply(CLBlastLayoutRowMajor, a_transpose, b_transpose, m, n, w[K].u32, 1.0f,
                                                       memory[0], first[0].u32, w[A_ROW].u32, w[A_BATCH].u32, memory[1],
                                                       first[1].u32, w[B_ROW].u32, w[B_BATCH].u32, 0.0f, memory[2],
                                                       first[2].u32, n, m * n, w[BATCH].u32, &device->queue, out_event);
    if (code == CLBlastSuccess) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "%s: CLBlast fails with code %d; open the device without options.fast",
                       device->base.info.id, (int)code);
}
#else
void strata_opencl_clblast_open(opencl_device *device) {
    (void)device;
}
void strata_opencl_clblast_close(opencl_device *device) {
    (void)device;
}
strata_status strata_opencl_clblast_run(opencl_device *device, const strata_kernel_launch *launch, const cl_mem *memory,
                                        cl_event *out_event, strata_error *err) {
    (void)launch;
    (void)memory;
    (void)out_event;
    return strata_fail(err, STRATA_INTERNAL, "%s: built without CLBlast", device->base.info.id);
}
#endif
