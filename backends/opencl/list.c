/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of all OpenCL platforms, numbered consecutively: "opencl:0", "opencl:1", ... A CPU with several cores is also
 * listed as two halves of its cores, "opencl:0.0" and "opencl:0.1" (clCreateSubDevices, EQUALLY; with an odd number one core is
 * left out), so that strategies with several devices can run on every machine. */
#include "backends/opencl/opencl.h"
#include "backends/registry.h"
#include "core/base/locale.h"

enum { MAX_PLATFORMS = 32, MAX_DEVICES = 64, MAX_PARTITIONS = 8 };
#define MAX_RANGE_BYTES (UINT64_C(1) << 32)

/* ---- what a device reports ---- */
/* Removes blanks at the ends of a name and repeated blanks within it. Drivers pad names with blanks. */
static void remove_blanks(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++)
        if (*from != ' ' || (to > text && to[-1] != ' ')) *to++ = *from;
    while (to > text && to[-1] == ' ') to--;
    *to = '\0';
}

/* Reads a text of the device, or of the platform if there is no device; "" if it has none; truncated to the array's size. */
static void read_text(const opencl_functions *cl, cl_platform_id platform, cl_device_id device, cl_uint what, char *out,
                      size_t bytes) {
    char text[4096];
    size_t n = 0;
    const cl_int code = device ? cl->GetDeviceInfo(device, what, sizeof text - 1, text, &n)
                               : cl->GetPlatformInfo(platform, what, sizeof text - 1, text, &n);
    if (code != CL_SUCCESS) n = 0;
    text[n < sizeof text ? n : sizeof text - 1] = '\0';
    remove_blanks(text);
    snprintf(out, bytes, "%.*s", (int)bytes - 1, text);
}

static uint64_t device_number(const opencl_functions *cl, cl_device_id device, cl_device_info what) {
    /* Its size is enough for cl_bool, cl_uint, size_t and cl_ulong. Every OpenCL host is little-endian. */
    uint64_t value = 0;
    return cl->GetDeviceInfo(device, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static strata_device_class device_class(cl_device_type type, bool unified) {
    if (type & CL_DEVICE_TYPE_CPU) return STRATA_DEVICE_CPU;
    if (type & CL_DEVICE_TYPE_GPU) return unified ? STRATA_DEVICE_INTEGRATED_GPU : STRATA_DEVICE_DISCRETE_GPU;
    return STRATA_DEVICE_ACCELERATOR;
}

/* Writes the reason why the device cannot be used; "" if it can. */
static void find_obstacle(const opencl_functions *cl, cl_device_id device, char *reason, size_t bytes) {
    char version[128];
    int major = 0, minor = 0;
    read_text(cl, NULL, device, CL_DEVICE_VERSION, version, sizeof version);
    if (strata_scan(version, "OpenCL %d.%d", &major, &minor) != 2 || major < 1 || (major == 1 && minor < 2))
        snprintf(reason, bytes, "it speaks \"%s\"; OpenCL 1.2 or later is needed", version);
    else if (!device_number(cl, device, CL_DEVICE_AVAILABLE))
        snprintf(reason, bytes, "the driver says that it is not available now");
    else if (!device_number(cl, device, CL_DEVICE_COMPILER_AVAILABLE))
        snprintf(reason, bytes, "the driver has no compiler");
    else if (!device_number(cl, device, CL_DEVICE_ENDIAN_LITTLE))
        snprintf(reason, bytes, "it is big-endian");
}

static void describe(const opencl_functions *cl, cl_platform_id platform, cl_device_id device, strata_device_info *info) {
    char platform_name[64], version[64];
    read_text(cl, NULL, device, CL_DEVICE_NAME, info->name, sizeof info->name);
    read_text(cl, NULL, device, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    read_text(cl, NULL, device, CL_DRIVER_VERSION, version, sizeof version);
    read_text(cl, platform, NULL, CL_PLATFORM_NAME, platform_name, sizeof platform_name);
    snprintf(info->driver, sizeof info->driver, "%s %s", platform_name, version);
    snprintf(info->backend, sizeof info->backend, "opencl");

    cl_device_type type = device_number(cl, device, CL_DEVICE_TYPE);
    info->unified_memory = device_number(cl, device, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
    info->device_class = device_class(type, info->unified_memory);
    info->memory_bytes = device_number(cl, device, CL_DEVICE_GLOBAL_MEM_SIZE);
    info->max_allocation_bytes = device_number(cl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    /* kernels use 32-bit indices of elements, and an element may be one byte */
    info->max_range_bytes = info->max_allocation_bytes < MAX_RANGE_BYTES ? info->max_allocation_bytes : MAX_RANGE_BYTES;
    info->compute_units = (uint32_t)device_number(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS);
    info->max_workgroup = (uint32_t)device_number(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    info->local_bytes = device_number(cl, device, CL_DEVICE_LOCAL_MEM_SIZE);
    info->vector_width = 1;
    if (info->device_class == STRATA_DEVICE_CPU) {
        uint32_t preferred = (uint32_t)device_number(cl, device, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT);
        uint32_t native = (uint32_t)device_number(cl, device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
        info->vector_width = preferred > native ? preferred : native ? native : 1;
    }
    /* f16 is loaded and stored by vload_half and vstore_half, which need no extension */
    info->dtypes = (1u << STRATA_DTYPE_COUNT) - 1;
    find_obstacle(cl, device, info->skipped, sizeof info->skipped);
}

/* ---- all devices ---- */
typedef struct listed {
    cl_platform_id platform;
    cl_device_id device;
} listed;

/* Writes the devices of all platforms and returns their number. If it is 0, *out_code says why there is no platform. */
static int enumerate(const opencl_functions *cl, listed out[MAX_PLATFORMS * MAX_DEVICES], cl_int *out_code) {
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    int n = 0;
    *out_code = cl->GetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms);
    for (cl_uint p = 0; *out_code == CL_SUCCESS && p < n_platforms && p < MAX_PLATFORMS; p++) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint n_devices = 0;
        if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &n_devices) != CL_SUCCESS) continue;
        for (cl_uint d = 0; d < n_devices && d < MAX_DEVICES; d++) out[n++] = (listed){platforms[p], devices[d]};
    }
    return n;
}

static bool partitions_equally(const opencl_functions *cl, cl_device_id device) {
    cl_device_partition_property properties[MAX_PARTITIONS] = {0};
    size_t bytes = 0;
    if (device_number(cl, device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) return false;
    if (cl->GetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof properties, properties, &bytes) != CL_SUCCESS)
        return false;
    for (size_t i = 0; i < bytes / sizeof *properties && i < MAX_PARTITIONS; i++)
        if (properties[i] == CL_DEVICE_PARTITION_EQUALLY) return true;
    return false;
}

static bool has_halves(const opencl_functions *cl, cl_device_id device, const strata_device_info *info) {
    return info->device_class == STRATA_DEVICE_CPU && info->compute_units >= 2 && !info->skipped[0] &&
           partitions_equally(cl, device);
}

/* ---- the list ---- */
/* Adds the device's row, and those of its halves. */
static strata_status list_device(const opencl_functions *cl, const listed *found, int index, strata_device_list *list,
                                 strata_error *err) {
    strata_device_info info = {0};
    describe(cl, found->platform, found->device, &info);
    snprintf(info.id, sizeof info.id, "opencl:%d", index);
    STRATA_TRY(strata_device_list_add(list, &info, err));
    if (!has_halves(cl, found->device, &info)) return STRATA_OK;
    info.compute_units /= 2;
    for (int half = 0; half < 2; half++) {
        snprintf(info.id, sizeof info.id, "opencl:%d.%d", index, half);
        STRATA_TRY(strata_device_list_add(list, &info, err));
    }
    return STRATA_OK;
}

static strata_status list_reason(strata_device_list *list, const char *reason, strata_error *err) {
    strata_device_info info = {.id = "opencl", .backend = "opencl", .name = "OpenCL"};
    snprintf(info.skipped, sizeof info.skipped, "%.*s", (int)sizeof info.skipped - 1, reason);
    return strata_device_list_add(list, &info, err);
}

static strata_status opencl_list(strata_device_list *list, strata_error *err) {
    opencl_functions cl = {0};
    strata_error why;
    if (strata_opencl_load(&cl, &why)) return list_reason(list, why.message, err);
    listed devices[MAX_PLATFORMS * MAX_DEVICES];
    strata_status status = STRATA_OK;
    cl_int code;
    const int n = enumerate(&cl, devices, &code);
    for (int i = 0; i < n && !status; i++) status = list_device(&cl, &devices[i], i, list, err);
    if (!n) {
        char reason[160];
        snprintf(reason, sizeof reason, "the loader finds no driver (%s); install one (Debian: pocl-opencl-icd for CPUs)",
                 code == CL_SUCCESS ? "no device" : strata_opencl_error_name(code));
        status = list_reason(list, reason, err);
    }
    strata_opencl_unload(&cl);
    return status;
}

/* ---- finding one ---- */
static strata_status take_half(const opencl_functions *cl, int half, opencl_found *found, strata_error *err) {
    cl_device_partition_property properties[] = {CL_DEVICE_PARTITION_EQUALLY, found->info.compute_units / 2, 0};
    cl_device_id parts[MAX_DEVICES];
    cl_uint n = 0;
    cl_int code = cl->CreateSubDevices(found->device, properties, MAX_DEVICES, parts, &n);
    if (code != CL_SUCCESS || (int)n <= half)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s: the driver does not divide the device: %s", found->info.id,
                           strata_opencl_error_name(code));
    for (cl_uint i = 0; i < n; i++)
        if ((int)i != half) cl->ReleaseDevice(parts[i]);
    found->whole = found->device;
    found->device = parts[half];
    found->is_sub_device = true;
    found->half = half;
    return STRATA_OK;
}

strata_status strata_opencl_find(const opencl_functions *cl, const char *id, opencl_found *out_found, strata_error *err) {
    int index = -1, half = -1;
    if (strata_scan(id, "opencl:%d.%d", &index, &half) < 1)
        return strata_fail(err, STRATA_UNAVAILABLE, "\"%s\" is not an OpenCL device; one is called opencl:0 or opencl:0.1", id);
    listed devices[MAX_PLATFORMS * MAX_DEVICES];
    cl_int code;
    if (index < 0 || index >= enumerate(cl, devices, &code))
        return strata_fail(err, STRATA_UNAVAILABLE, "%s is not there any more", id);

    opencl_found found = {.platform = devices[index].platform, .device = devices[index].device};
    describe(cl, found.platform, found.device, &found.info);
    snprintf(found.info.id, sizeof found.info.id, "%s", id);
    if (half >= 0) {
        if (!has_halves(cl, found.device, &found.info) || half > 1)
            return strata_fail(err, STRATA_UNAVAILABLE, "%s: the device has no such part", id);
        STRATA_TRY(take_half(cl, half, &found, err));
        found.info.compute_units /= 2;
    }
    *out_found = found;
    return STRATA_OK;
}

const strata_backend strata_backend_opencl = {
    .name = "opencl", .is_tried = true, .list = opencl_list, .open = strata_opencl_open};
