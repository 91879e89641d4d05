/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the Vulkan backend. Reading order:
 *     loader.c        libvulkan at run time, names of result codes
 *     instance.c      the instance, and the messages of the validation layer
 *     list.c          the physical devices: their properties and what is enabled; rows for strata_devices_list
 *     matrix_units.c  the matrix units of a physical device
 *     device.c        opens a device; tickets and waiting
 *     memory.c        buffers, which are parts of a few blocks of device memory
 *     transfer.c      copies between the host and buffers, with waiting
 *     kernels.c       compiles kernels to pipelines; the pipeline cache on disk
 *     program.c       records a piece of a graph once for each slot; a run is one submission
 *     times.c         when each kernel ran, for a trace */
#ifndef STRATA_BACKENDS_VULKAN_H
#define STRATA_BACKENDS_VULKAN_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "backends/kernel/kernel.h"

/* ---- loader.c ---- */
typedef struct vulkan_functions {
    void *library;
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define LOADER(name) PFN_vk##name name;
#define INSTANCE     LOADER
#define OPTIONAL     LOADER
#define DEVICE       LOADER
#include "backends/vulkan/functions.def"
} vulkan_functions;

/* Loads the functions that need no instance. Fails: UNAVAILABLE if there is no libvulkan, or only one of Vulkan 1.0. */
strata_status strata_vulkan_load(vulkan_functions *out_vk, strata_error *err);
strata_status strata_vulkan_load_instance(vulkan_functions *vk, VkInstance instance, strata_error *err);
strata_status strata_vulkan_load_device(vulkan_functions *vk, VkDevice device, strata_error *err);
void strata_vulkan_unload(vulkan_functions *vk); /* a zeroed table is fine */
/* strata_vulkan_count_libraries returns the number of libraries that are mapped into the process.
 * strata_vulkan_keep_libraries keeps all libraries after the first `before` mapped until the process ends. They are
 * drivers, which would otherwise be unmapped together with the instance. NVIDIA's driver (580.159) can be started
 * only some forty times in a process; then vkCreateInstance finds no driver. */
int strata_vulkan_count_libraries(void);
void strata_vulkan_keep_libraries(int before);
const char *strata_vulkan_result_name(VkResult result);
/* Fills err with "what: VK_..." and the status that tells the caller what to do. */
strata_status strata_vulkan_fail_result(VkResult result, const char *what, strata_error *err);

/* ---- instance.c ---- */
/* The warnings and errors of the validation layer: their number and the first message. Its address does not change
 * while the instance exists. */
typedef struct vulkan_messages {
    int n;
    char first[STRATA_ERROR_MESSAGE_BYTES];
} vulkan_messages;

typedef struct vulkan_instance {
    vulkan_functions vk;
    VkInstance handle;
    /* The API version that Strata requested: 1.1 or 1.2. */
    uint32_t version;
    /* NULL: there is no validation. */
    vulkan_messages *messages;
    VkDebugUtilsMessengerEXT messenger;
} vulkan_instance;

/* Fails: UNAVAILABLE if there is no libvulkan or no driver, or if validation is requested and its layer is missing. */
strata_status strata_vulkan_instance_create(bool validate, vulkan_instance *out_instance, strata_error *err);
void strata_vulkan_instance_destroy(vulkan_instance *instance); /* does not free `messages`, which may get more entries here */
/* Whether the environment variable STRATA_VULKAN_VALIDATION is set to anything but 0. */
bool strata_vulkan_validation_wanted(void);

/* ---- list.c ---- */
enum { VULKAN_DEVICE_EXTENSIONS = 8 };

typedef struct vulkan_physical {
    VkPhysicalDevice handle;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    /* The version that may be used: the smaller one of the device's and the instance's. */
    uint32_t version;
    /* UINT32_MAX: no queue family supports compute. */
    uint32_t queue_family;
    /* The number of valid bits in the times that commands of the queue family write; 0: they cannot write times. */
    uint32_t time_bits;
    /* The features that the device supports. They are enabled when it is opened. */
    bool storage_16bit, storage_8bit, int64;
    /* Kernels use texel buffers (shaders.h). */
    bool fetches;
    /* The same as in strata_kernel_limits. */
    strata_matrix_unit f16_unit, bf16_unit;
    uint32_t unit_lanes;
    /* The extensions that the device enables. */
    const char *extensions[VULKAN_DEVICE_EXTENSIONS];
    int n_extensions;
    strata_device_info info;
} vulkan_physical;

/* Lists the devices of an instance, in the driver's order. The caller frees *out_devices. */
strata_status strata_vulkan_physical_list(const vulkan_instance *instance, vulkan_physical **out_devices, int *out_n,
                                          strata_error *err);

/* The extensions that a device has. */
typedef struct vulkan_extensions {
    VkExtensionProperties *names;
    uint32_t n;
} vulkan_extensions;
static inline bool vulkan_has(const vulkan_extensions *list, const char *name) {
    for (uint32_t i = 0; i < list->n; i++)
        if (!strcmp(list->names[i].extensionName, name)) return true;
    return false;
}
/* Adds an extension to those that the device enables. */
static inline void vulkan_enable(vulkan_physical *device, const char *extension) {
    device->extensions[device->n_extensions++] = extension;
}

/* ---- matrix_units.c ---- */
/* The structures of features for vkCreateDevice. */
typedef struct vulkan_matrix_features {
    VkPhysicalDeviceVulkanMemoryModelFeatures model;
    VkPhysicalDeviceShaderFloat16Int8Features halves;
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroups;
#ifdef VK_KHR_cooperative_matrix
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices;
#endif
#ifdef VK_KHR_shader_bfloat16
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloats;
#endif
} vulkan_matrix_features;

/* Fills in the device's matrix units, adds the extensions that they need, and describes them in the device's row. The
 * device's features must have been read before. */
void strata_vulkan_find_matrix_units(const vulkan_functions *vk, const vulkan_extensions *extensions, vulkan_physical *device);
/* Fills *out with the features that the device's matrix units need and inserts them before the chain `next`. Returns
 * the new head. */
void *strata_vulkan_enable_matrix_units(const vulkan_physical *device, vulkan_matrix_features *out, void *next);

/* ---- device.c ---- */
/* The number of fences, one for each of the newest submissions. Ticket t has fence t % VULKAN_TICKETS. */
enum { VULKAN_TICKETS = 64 };

/* The layouts that all kernels with the same bindings share. */
typedef struct vulkan_layout {
    unsigned bindings;
    VkDescriptorSetLayout set;
    VkPipelineLayout pipeline;
} vulkan_layout;

typedef struct vulkan_timed vulkan_timed;
typedef struct vulkan_block vulkan_block;
typedef struct vulkan_pipeline vulkan_pipeline;

typedef struct vulkan_device {
    /* The first member, so that a pointer to the base is also a pointer to the device. */
    strata_device base;
    vulkan_instance instance;
    /* See strata_vulkan_report_close; NULL: nobody reads the messages. */
    vulkan_messages *closing;
    vulkan_physical physical;
    VkDevice handle;
    VkQueue queue;
    bool lost;
    /* Whether a submission did not end in time. The objects that it uses are freed only after it has ended
     * (strata_vulkan_is_idle). */
    enum { VULKAN_RUNS = 0, VULKAN_STALLED, VULKAN_HANGS } stall;
    /* strata_device_options.stall_seconds, or the default. */
    double stall_seconds;
    strata_kernel_limits limits;
    strata_cache cache;
    /* NULL: no tuning. */
    strata_tuner *tuner;

    VkFence fences[VULKAN_TICKETS];
    /* The newest ticket that was submitted, and the newest one that is known to have finished. */
    uint64_t last_ticket, done_ticket;

    /* Used by memory.c. */
    vulkan_block *blocks;

    /* The pool of all command buffers of the device. */
    VkCommandPool command_pool;
    VkCommandBuffer transfer_commands;
    /* NULL until they are needed. */
    strata_buffer *upload_staging, *download_staging;

    vulkan_layout *layouts;
    int n_layouts, n_pipelines;
    int64_t layouts_capacity, pipelines_capacity;
    VkPipelineCache pipeline_cache;
    vulkan_pipeline *pipelines;
    /* The buffer that is bound if a kernel does not use a binding. */
    strata_buffer *nothing;

    /* For times.c. time_bits: the number of valid bits in the queue's times; 0: it has no times. newest_time: the
     * newest time that was read, in ticks. time_apart: what is added to seconds of the device's clock to get those of
     * the host's clock. timed: the runs whose times have not been read, oldest first. */
    uint32_t time_bits;
    uint64_t newest_time;
    double time_apart;
    vulkan_timed *timed;
} vulkan_device;

/* The same as strata_vulkan_fail_result, with the device's name. Sets device->lost if the device was lost. */
strata_status strata_vulkan_fail(vulkan_device *device, VkResult result, const char *what, strata_error *err);
/* Fails: INTERNAL with the first message of the validation layer, if there are any. */
strata_status strata_vulkan_check_messages(const vulkan_device *device, strata_error *err);

/* Submits the commands, which run after all earlier submissions. Waits for the oldest ticket if all fences are in use. */
strata_status strata_vulkan_submit(vulkan_device *device, VkCommandBuffer commands, uint64_t *out_ticket, strata_error *err);
strata_status strata_vulkan_wait(vulkan_device *device, uint64_t ticket, strata_error *err);
/* Whether all submissions have ended, so that the objects that they use may be freed. It is true except after a stall.
 * The first call after a stall waits some seconds for the submission to end. */
bool strata_vulkan_is_idle(vulkan_device *device);

/* For tests. The number of messages so far; and where strata_device_close stores all messages, in the caller's zeroed struct.
 * There are messages only for devices that were opened with validation. */
int strata_vulkan_validation_messages(const strata_device *device);
void strata_vulkan_report_close(strata_device *device, vulkan_messages *out_messages);

/* ---- memory.c ---- */
typedef enum vulkan_memory_use {
    VULKAN_MEMORY_DEVICE,      /* used by kernels; also mapped if memory is unified */
    VULKAN_MEMORY_STAGING_IN,  /* written by the host, read by copies */
    VULKAN_MEMORY_STAGING_OUT, /* written by copies, read by the host */
    VULKAN_MEMORY_SHARED_IN,   /* written by the host, read by kernels */
    VULKAN_MEMORY_SHARED_OUT,  /* written by kernels, read by the host */
    VULKAN_MEMORY_USES
} vulkan_memory_use;

struct strata_buffer {
    VkBuffer handle;
    /* The size that was requested. */
    int64_t bytes;
    /* The block that contains its memory, the offset and the bytes of its part of the block, and the next buffer there. */
    vulkan_block *block;
    VkDeviceSize offset, span;
    strata_buffer *next;
    /* Its address for the host. NULL: the host cannot access it. */
    char *mapped;
    bool cached, counted;
};

/* Creates a buffer with undefined contents. It is counted as an allocation. */
strata_status strata_vulkan_buffer_make(vulkan_device *device, vulkan_memory_use use, int64_t bytes, strata_buffer **out_buffer,
                                        strata_error *err);
void strata_vulkan_buffer_free(vulkan_device *device, strata_buffer *buffer); /* NULL is fine */
void strata_vulkan_blocks_free(vulkan_device *device);                        /* no buffer may exist any more */
int strata_vulkan_count_blocks(const vulkan_device *device);                  /* for tests */

/* ---- transfer.c ---- */
strata_status strata_vulkan_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
void strata_vulkan_buffer_destroy(strata_device *device, strata_buffer *buffer);
strata_status strata_vulkan_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err);
strata_status strata_vulkan_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err);
strata_status strata_vulkan_clear(vulkan_device *device, strata_buffer *buffer, strata_error *err); /* to zeros */

/* ---- kernels.c ---- */
/* The bindings of a kernel's buffers on this device: two bits for each buffer, 1 + its strata_shader_binding. */
unsigned strata_vulkan_bindings_of(const vulkan_device *device, const strata_shader *shader);
/* Returns false if there is no binding of this number. */
bool strata_vulkan_binding_type(unsigned bindings, int number, VkDescriptorType *out_type);
/* Returns the device's layouts for kernels with these bindings, and creates them on first use. They exist as long as
 * the device. */
strata_status strata_vulkan_layout_get(vulkan_device *device, unsigned bindings, vulkan_layout *out_layout, strata_error *err);
/* Opens the pipeline cache; strata_vulkan_pipelines_finish closes it and destroys all pipelines and layouts. */
strata_status strata_vulkan_pipelines_init(vulkan_device *device, strata_error *err);
void strata_vulkan_pipelines_finish(vulkan_device *device);
/* Returns the device's pipeline for the kernel, and builds it on first use. It exists as long as the device. */
strata_status strata_vulkan_pipeline_get(vulkan_device *device, const strata_kernel *kernel, VkPipeline *out_pipeline,
                                         strata_error *err);
/* Writes the pipeline cache to disk if a pipeline was built since the last time. */
void strata_vulkan_pipelines_save(vulkan_device *device);
/* Whether the data was written by this version of the device's driver, according to the header that Vulkan defines. */
bool strata_vulkan_pipeline_data_fits(const vulkan_device *device, const void *data, size_t bytes);

/* ---- times.c ---- */
/* Implements strata_device_api.set_trace. */
strata_status strata_vulkan_set_trace(strata_device *device, strata_trace *trace, int track, strata_error *err);
/* Creates a pool of queries for n times. */
strata_status strata_vulkan_time_pool(vulkan_device *device, uint32_t n, VkQueryPool *out_pool, strata_error *err);
/* Stores that a run with this ticket was submitted, which writes n + 1 times. labels: [n] the labels of the intervals
 * between two times; NULL: the interval is not shown. */
void strata_vulkan_time_submitted(vulkan_device *device, VkQueryPool queries, const strata_trace_label *const *labels,
                                  uint32_t n, uint64_t ticket);
/* Adds the runs up to this ticket, which must have finished, to the trace. */
void strata_vulkan_time_collect(vulkan_device *device, uint64_t ticket);

/* ---- program.c ---- */
strata_status strata_vulkan_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err);
void strata_vulkan_program_destroy(strata_program *program);
void *strata_vulkan_program_input(strata_program *program, int slot);
const void *strata_vulkan_program_output(strata_program *program, int slot);
strata_status strata_vulkan_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
/* Implements strata_device_api.check. */
strata_status strata_vulkan_check(strata_device *device, const strata_piece *piece, strata_program *program,
                                  const strata_check_request *request, strata_error *err);
/* Records a barrier in the commands. */
void strata_vulkan_barrier(const vulkan_device *device, VkCommandBuffer commands, VkPipelineStageFlags from,
                           VkAccessFlags wrote, VkPipelineStageFlags to, VkAccessFlags will);

#endif
