/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/shims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/folder.h"

static size_t read_text(const char *path, char *out, size_t bytes) {
    FILE *file = fopen(path, "rb");
    out[0] = 0;
    if (!file) return 0;
    const size_t n = fread(out, 1, bytes - 1, file);
    out[n] = 0;
    fclose(file);
    return n;
}

void test_shim_path(const char *api, char out[512]) {
    const char *build = getenv("STRATA_BUILD_DIR");
    snprintf(out, 512, "%s/suites/shims/%s_shim.so", build ? build : "", api);
}

const char *test_use_opencl_shim(void) {
    char path[512], library[256];
    if (!read_text("/etc/OpenCL/vendors/pocl.icd", library, sizeof library)) return "PoCL is not installed (pocl-opencl-icd)";
    if (!getenv("STRATA_BUILD_DIR")) return "STRATA_BUILD_DIR is not set";
    library[strcspn(library, "\n")] = 0;
    test_shim_path("opencl", path);
    test_file("shim.icd", path, strlen(path));
    setenv("OCL_ICD_VENDORS", test_folder(), 1);
    setenv("STRATA_SHIM_DRIVER", library, 1);
    return NULL;
}

void test_vulkan_library(const char *manifest, char out[512]) {
    char text[2048];
    out[0] = 0;
    read_text(manifest, text, sizeof text);
    const char *key = strstr(text, "\"library_path\"");
    if (key) sscanf(key, "\"library_path\" : \"%511[^\"]", out);
}

void test_use_vulkan_driver(const char *manifest) {
    setenv("VK_ICD_FILENAMES", manifest, 1);
    setenv("VK_DRIVER_FILES", manifest, 1);
}

const char *test_use_vulkan_shim(void) {
    char driver[512], path[512], manifest[1024];
    const char *used = getenv("VK_DRIVER_FILES");
    test_vulkan_library(used ? used : "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", driver);
    if (!driver[0]) return "no Vulkan driver by its manifest (VK_DRIVER_FILES)";
    if (!getenv("STRATA_BUILD_DIR")) return "STRATA_BUILD_DIR is not set";
    test_shim_path("vulkan", path);
    snprintf(manifest, sizeof manifest,
             "{\"file_format_version\": \"1.0.0\", \"ICD\": {\"library_path\": \"%s\", \"api_version\": \"1.3.0\"}}", path);
    setenv("STRATA_SHIM_DRIVER", driver, 1);
    test_use_vulkan_driver(test_file("shim.json", manifest, strlen(manifest)));
    return NULL;
}
