/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the Vulkan backend. Reading order:
 *     loader.c      libvulkan at run time, result codes in words
 *     instance.c    the instance, and what the validation layer says
 *     list.c        one physical device: what it has, what of it is asked for; the rows for strata_devices_list
 *     matrix_units.c  the matrix units of one
 *     device.c      opening one; tickets and waiting
 *     memory.c      buffers, cut from a few blocks of device memory
 *     transfer.c    bytes in and out of buffers, at once
 *     kernels.c     kernels to pipelines, and the pipeline cache on disk
 *     program.c     a piece of graph recorded once a slot; a run is one submission
 *     times.c       when each kernel ran, for a trace */
#ifndef STRATA_BACKENDS_VULKAN_H
#define STRATA_BACKENDS_VULKAN_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "backends/kernel/kernel.h"

/* ---- loader.c ---- */
typedef struct vulkan_functions {
    void *library;
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define LOADER(name)   PFN_vk##name name;
#define INSTANCE(name) PFN_vk##name name;
#define OPTIONAL(name) PFN_vk##name name;
#define DEVICE(name)   PFN_vk##name name;
#include "backends/vulkan/functions.def"
#undef LOADER
#undef INSTANCE
#undef OPTIONAL
#undef DEVICE
} vulkan_functions;

/* The rows that need no instance. UNAVAILABLE when there is no loader, or one of Vulkan 1.0. */
strata_status strata_vulkan_load(vulkan_functions *out_vk, strata_error *err);
strata_status strata_vulkan_load_instance(vulkan_functions *vk, VkInstance instance, strata_error *err);
strata_status strata_vulkan_load_device(vulkan_functions *vk, VkDevice device, strata_error *err);
void strata_vulkan_unload(vulkan_functions *vk); /* a zeroed table is fine */
/* Libraries that are mapped; and those beyond that many stay mapped until the process ends: drivers, which an instance's end
 * would unmap. NVIDIA's starts some forty times in a process's life (580.159), then vkCreateInstance finds no driver. */
int strata_vulkan_count_libraries(void);
void strata_vulkan_keep_libraries(int before);
const char *strata_vulkan_result_name(VkResult result);
/* Fills err with "what: VK_..." and the status that tells the caller what to do. */
strata_status strata_vulkan_fail_result(VkResult result, const char *what, strata_error *err);

/* ---- instance.c ---- */
/* What the validation layer said, warnings and errors. Its address stays while the instance lives. */
typedef struct vulkan_messages {
    int n;
    char first[STRATA_ERROR_MESSAGE_BYTES];
} vulkan_messages;

typedef struct vulkan_instance {
    vulkan_functions vk;
    VkInstance handle;
    /* Of the API that Strata asked for: 1.1 or 1.2. */
    uint32_t version;
    /* NULL: not validated. */
    vulkan_messages *messages;
    VkDebugUtilsMessengerEXT messenger;
} vulkan_instance;

/* UNAVAILABLE: no loader, no driver, or validation asked for without its layer. */
strata_status strata_vulkan_instance_create(bool validate, vulkan_instance *out_instance, strata_error *err);
void strata_vulkan_instance_destroy(vulkan_instance *instance); /* leaves `messages` to the caller, with what this added */
/* Whether STRATA_VULKAN_VALIDATION is set, to anything but 0. */
bool strata_vulkan_validation_wanted(void);

/* ---- list.c ---- */
enum { VULKAN_DEVICE_EXTENSIONS = 8 };

typedef struct vulkan_physical {
    VkPhysicalDevice handle;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    /* what may be used: the smaller of the device's and the instance's. */
    uint32_t version;
    /* UINT32_MAX: none computes. */
    uint32_t queue_family;
    /* Bits of the times that its commands can write; 0: they cannot. */
    uint32_t time_bits;
    /* There, and enabled when the device is opened. */
    bool storage_16bit, storage_8bit, int64;
    /* Kernels read texel buffers (shaders.h). */
    bool fetches;
    /* As in strata_kernel_limits. */
    strata_matrix_unit f16_unit, bf16_unit;
    uint32_t unit_lanes;
    /* The extensions that the device enables. */
    const char *extensions[VULKAN_DEVICE_EXTENSIONS];
    int n_extensions;
    strata_device_info info;
} vulkan_physical;

/* The devices of an instance, in the driver's order. Caller frees *out_devices. */
strata_status strata_vulkan_physical_list(const vulkan_instance *instance, vulkan_physical **out_devices, int *out_n,
                                          strata_error *err);

/* ---- matrix_units.c ---- */
/* Structures of features for vkCreateDevice. */
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

/* Fills in the device's units, the extensions that they need, and their words in its row. Its features must be known. */
void strata_vulkan_find_matrix_units(const vulkan_functions *vk, const VkExtensionProperties *extensions, uint32_t n_extensions,
                                     vulkan_physical *device);
/* Puts what the device's units need in front of the chain `next`, in *out; returns the new head. */
void *strata_vulkan_enable_matrix_units(const vulkan_physical *device, vulkan_matrix_features *out, void *next);

/* ---- device.c ---- */
/* Fences of the newest submissions: ticket t has number t % VULKAN_TICKETS. */
enum { VULKAN_TICKETS = 64 };

/* What kernels of equal bindings share. */
typedef struct vulkan_layout {
    unsigned bindings;
    VkDescriptorSetLayout set;
    VkPipelineLayout pipeline;
} vulkan_layout;

typedef struct vulkan_timed vulkan_timed;
typedef struct vulkan_block vulkan_block;
typedef struct vulkan_pipeline vulkan_pipeline;

typedef struct vulkan_device {
    /* The first member, so that a pointer to the device is one to this. */
    strata_device base;
    vulkan_instance instance;
    vulkan_physical physical;
    VkDevice handle;
    VkQueue queue;
    bool lost;
    /* Whether a submission did not end in time: what it uses is freed only after it has ended (strata_vulkan_is_idle). */
    enum { VULKAN_RUNS = 0, VULKAN_STALLED, VULKAN_HANGS } stall;
    /* strata_device_options.stall_seconds, or the default. */
    double stall_seconds;
    strata_kernel_limits limits;
    strata_cache cache;
    /* NULL: no tuning. */
    strata_tuner *tuner;

    VkFence fences[VULKAN_TICKETS];
    /* The newest submitted, the newest known to be done. */
    uint64_t last_ticket, done_ticket;

    /* memory.c. */
    vulkan_block *blocks;

    /* Everything that is recorded on the device. */
    VkCommandPool command_pool;
    VkCommandBuffer transfer_commands;
    /* NULL until needed. */
    strata_buffer *upload_staging, *download_staging;

    vulkan_layout *layouts;
    int n_layouts, layouts_capacity;
    VkPipelineCache pipeline_cache;
    vulkan_pipeline *pipelines;
    int n_pipelines, pipelines_capacity;
    /* Bound where a kernel leaves a binding unused. */
    strata_buffer *nothing;

    /* times.c: bits of the queue's time, 0: it has none; the newest time that was read, in ticks; what is added to the device's
     * seconds for the host's; runs whose times were not read yet, oldest first. */
    uint32_t time_bits;
    uint64_t newest_time;
    double time_apart;
    vulkan_timed *timed;
} vulkan_device;

/* As strata_vulkan_fail_result, naming the device; remembers when it is lost. */
strata_status strata_vulkan_fail(vulkan_device *device, VkResult result, const char *what, strata_error *err);
/* INTERNAL with the first message of the validation layer, if it said any. */
strata_status strata_vulkan_check_messages(const vulkan_device *device, strata_error *err);

/* Submits after all that was submitted before. Waits for the oldest ticket when all fences are in use. */
strata_status strata_vulkan_submit(vulkan_device *device, VkCommandBuffer commands, uint64_t *out_ticket, strata_error *err);
strata_status strata_vulkan_wait(vulkan_device *device, uint64_t ticket, strata_error *err);
/* Whether nothing that was submitted still runs, so that what it uses may be freed. True except after a stall; the first call
 * after a stall waits some seconds for the submission to end. */
bool strata_vulkan_is_idle(vulkan_device *device);

/* For tests: messages so far; and closing while keeping what the layer says about that, in memory of the caller, who gives a
 * zeroed struct. Only of devices opened under validation; else there are none. */
int strata_vulkan_validation_messages(const strata_device *device);
void strata_vulkan_close_and_report(strata_device *device, vulkan_messages *out_messages);

/* ---- memory.c ---- */
typedef enum vulkan_memory_use {
    VULKAN_MEMORY_DEVICE,      /* kernels; mapped too where memory is unified              */
    VULKAN_MEMORY_STAGING_IN,  /* the host writes, copies read                             */
    VULKAN_MEMORY_STAGING_OUT, /* copies write, the host reads                             */
    VULKAN_MEMORY_SHARED_IN,   /* the host writes, kernels read                            */
    VULKAN_MEMORY_SHARED_OUT,  /* kernels write, the host reads                            */
    VULKAN_MEMORY_USES
} vulkan_memory_use;

struct strata_buffer {
    VkBuffer handle;
    /* The size that was asked for. */
    int64_t bytes;
    /* Where its memory is mapped on the host. */
    vulkan_block *block;
    /* ... and where in it. */
    VkDeviceSize offset;
    /* bytes taken there. */
    VkDeviceSize span;
    /* NULL: the host cannot reach it. */
    char *mapped;
    bool cached, counted;
};

/* Undefined contents. Counted as an allocation. */
strata_status strata_vulkan_buffer_make(vulkan_device *device, vulkan_memory_use use, int64_t bytes, strata_buffer **out_buffer,
                                        strata_error *err);
void strata_vulkan_buffer_free(vulkan_device *device, strata_buffer *buffer); /* NULL is fine */
void strata_vulkan_blocks_free(vulkan_device *device);                        /* all buffers must be gone */
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
/* What is bound where: two bits for each of the kernel's buffers, 1 + its strata_shader_binding on this device. */
unsigned strata_vulkan_bindings_of(const vulkan_device *device, const strata_shader *shader);
/* False where there is no binding of that number. */
bool strata_vulkan_binding_type(unsigned bindings, int number, VkDescriptorType *out_type);
/* The device's layouts for kernels of these bindings, made when they are new. They live as long as the device. */
strata_status strata_vulkan_layout_get(vulkan_device *device, unsigned bindings, vulkan_layout *out_layout, strata_error *err);
/* The pipeline cache; strata_vulkan_pipelines_finish undoes what was made. */
strata_status strata_vulkan_pipelines_init(vulkan_device *device, strata_error *err);
void strata_vulkan_pipelines_finish(vulkan_device *device);
/* The device's pipeline for the kernel, built when it is new. Lives as long as the device. */
strata_status strata_vulkan_pipeline_get(vulkan_device *device, const strata_kernel *kernel, VkPipeline *out_pipeline,
                                         strata_error *err);
/* Writes the cache to disk when a pipeline was built since the last time. */
void strata_vulkan_pipelines_save(vulkan_device *device);
/* Whether the driver of this device, in this version, wrote the data: by the header that Vulkan prescribes. */
bool strata_vulkan_pipeline_data_fits(const vulkan_device *device, const void *data, size_t bytes);

/* ---- times.c ---- */
/* strata_device_api.set_trace. */
strata_status strata_vulkan_set_trace(strata_device *device, strata_trace *trace, int track, strata_error *err);
/* Room for n times. */
strata_status strata_vulkan_time_pool(vulkan_device *device, uint32_t n, VkQueryPool *out_pool, strata_error *err);
/* A run with this ticket was submitted that writes n + 1 times; labels: [n] of what lies between them, NULL for nothing. */
void strata_vulkan_time_submitted(vulkan_device *device, VkQueryPool queries, const strata_trace_label *const *labels,
                                  uint32_t n, uint64_t ticket);
/* Adds the runs up to this ticket, which are done, to the trace. */
void strata_vulkan_time_collect(vulkan_device *device, uint64_t ticket);

/* ---- program.c ---- */
strata_status strata_vulkan_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err);
void strata_vulkan_program_destroy(strata_program *program);
void *strata_vulkan_program_input(strata_program *program, int slot);
const void *strata_vulkan_program_output(strata_program *program, int slot);
strata_status strata_vulkan_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
/* strata_step_run.run. */
strata_status strata_vulkan_run_nodes(strata_program *program, int slot, const bool *wanted, strata_error *err);

#endif
