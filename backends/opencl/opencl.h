/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the OpenCL backend.
 *     loader.c          opens libOpenCL at run time; names of status codes
 *     list.c            lists the devices for strata_devices_list
 *     device.c          opens a device; tickets and waiting
 *     memory.c          the device's buffers, and copies between them and the host
 *     program.c         compiles a piece of a graph: builds kernels and sets their arguments once, so that a run only enqueues
 *     kernels.c         loads the programs of kernels from the disk cache, or compiles them
 *     source.c          combines the sources of several kernels
 *     sequence.c        makes one kernel of a whole piece, on CPUs
 *     cores.c           connects the halves of a CPU, so that their programs have collectives
 *     times.c           measures when each kernel ran, for a trace
 *     sequence_times.c  the same for the launches within a sequence
 *     clblast.c         CLBlast's matrix product, if it is installed and options.fast allows it */
#ifndef STRATA_BACKENDS_OPENCL_H
#define STRATA_BACKENDS_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include "backends/kernel/kernel.h"
#include "core/base/text.h"

/* ---- loader.c ---- */
typedef struct opencl_functions {
    void *library;
#define FUNCTION(name) __typeof__(&cl##name) name;
#include "backends/opencl/functions.def"
} opencl_functions;

/* Fails: UNAVAILABLE if there is no libOpenCL, or if it lacks a function of OpenCL 1.2. */
strata_status strata_opencl_load(opencl_functions *out_cl, strata_error *err);
void strata_opencl_unload(opencl_functions *cl); /* a zeroed table is fine */
const char *strata_opencl_error_name(cl_int code);

/* ---- list.c ---- */
/* A device that was found by its id ("opencl:1", "opencl:0.1"), its platform, and its row in the list. A sub-device must be
 * released. */
typedef struct opencl_found {
    cl_platform_id platform;
    cl_device_id device;
    /* A half of the device `whole`, and which one. */
    bool is_sub_device;
    cl_device_id whole;
    int half;
    strata_device_info info;
} opencl_found;
strata_status strata_opencl_find(const opencl_functions *cl, const char *id, opencl_found *out_found, strata_error *err);

/* ---- device.c ---- */
/* How inputs and outputs get from the host to the kernels and back. */
typedef enum opencl_host_memory {
    /* Kernels access the host's own memory (CL_MEM_USE_HOST_PTR). Whether this works is checked when the device is opened. */
    OPENCL_HOST_SHARED,
    /* Host and kernels use the same memory, which is mapped for the host and unmapped before each run. */
    OPENCL_HOST_MAPPED,
    /* Inputs and outputs are in pinned host memory and are copied on the queue before and after each run. */
    OPENCL_HOST_STAGED
} opencl_host_memory;

/* The number of newest runs whose events are stored. The queue is in order, so waiting for an older ticket means
 * waiting for the oldest of these events. */
enum { OPENCL_TICKETS = 64 };

/* A compiled kernel. It is kept as long as the device is open, since several pieces may use it (for example for a batch
 * and for the shorter last batch). */
typedef struct opencl_built {
    strata_kernel kernel;
    /* This kernel has a reference to it. Several kernels may share a program. */
    cl_program program;
    /* The name of the kernel's function in the program. */
    char entry[64];
    /* It was built only for the tuner. A piece builds it again together with its other kernels. Then the piece's
     * program is the same as on the next start, which needs no tuning, and is found in the driver's cache. */
    bool trial;
} opencl_built;

typedef struct opencl_text {
    char *source;
    cl_program program;
} opencl_text;

typedef struct opencl_meeting opencl_meeting; /* cores.c */

typedef struct opencl_device {
    /* The first member, so that a pointer to the base is also a pointer to the device. */
    strata_device base;
    opencl_functions cl;
    cl_device_id id;
    bool is_sub_device;
    /* Of a half: the device that was divided, the half as a core of it, and whether both halves run at the same time. */
    cl_device_id whole;
    strata_topology topology;
    bool may_meet;
    /* NULL: the device is not connected with others. */
    opencl_meeting *meeting;
    cl_context context;
    /* `queue` is the in-order queue in use. Normally it has no profiling. While there is a trace, `queue` has
     * profiling, and plain_queue is the queue without. */
    cl_command_queue queue, plain_queue;
    /* The runs whose times have not been added to the trace yet, oldest first. */
    struct opencl_timed *timed;
    opencl_host_memory host_memory;
    /* clWaitForEvents keeps a core busy (NVIDIA), so the device polls and sleeps instead. */
    bool waits_spin;
    /* The device can run sequences (sequence.c): PoCL and Intel's runtime on a CPU. */
    bool makes_sequences;
    /* The device is Oclgrind, which checks accesses to memory; memory.c avoids its false reports. */
    bool is_oclgrind;
    /* The driver has its own cache of compiled programs on disk (PoCL, NVIDIA). */
    bool driver_caches;
    /* STRATA_DEVICE_LOST once a running command has failed. */
    strata_status lost;
    strata_kernel_limits limits;
    strata_cache cache;
    /* NULL: CLBlast is not used. */
    struct opencl_clblast *clblast;
    /* NULL: no tuning. */
    strata_tuner *tuner;
    opencl_built *built;
    int n_built, built_capacity;
    /* The programs of sequences, with their source. */
    opencl_text *texts;
    int n_texts;
    /* The most runs of one call of a sequence. */
    int longest_call;
    /* The newest ticket, and the newest that was waited for. */
    uint64_t last_ticket, done_ticket;
    /* The event of ticket t is at t % OPENCL_TICKETS; NULL once it is known to be done. */
    cl_event events[OPENCL_TICKETS];
} opencl_device;

struct strata_buffer {
    cl_mem memory;
    int64_t bytes;
    /* The host memory of the buffer, if we allocated it; NULL: the driver did. */
    void *host;
};

/* Fills err with "what: CL_..." and returns the status for the caller: DEVICE_LOST, OUT_OF_MEMORY, ... */
strata_status strata_opencl_fail(opencl_device *device, cl_int code, const char *what, strata_error *err);
/* Fails with the status with which the device was lost, if it was. */
strata_status strata_opencl_check_alive(const opencl_device *device, strata_error *err);
/* Stores the event that ends a run, which the device then owns, and returns the run's ticket. */
uint64_t strata_opencl_ticket(opencl_device *device, cl_event event);

/* How many runs may have to end before the ticket. A call of a sequence makes several. */
int strata_opencl_runs_before(const opencl_device *device, uint64_t ticket);

strata_status strata_opencl_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                                 strata_error *err);

/* ---- cores.c ---- */
/* Implements strata_device_api.topology, collectives, connect and abandon. */
const strata_topology *strata_opencl_topology(strata_device *device);
const strata_device_collectives *strata_opencl_collectives(strata_device *device);
strata_status strata_opencl_connect(strata_device *const *devices, int n, strata_error *err);
void strata_opencl_abandon(strata_device *device, const strata_error *why);
/* When the device is closed. */
void strata_opencl_disconnect(opencl_device *device);
/* Whether a core was lost with which the device is connected, and that this device is. Programs do not wait for cores then. */
bool strata_opencl_lost_core(const opencl_device *device);
void strata_opencl_lose_core(const opencl_device *device);
/* alone: from now on, collectives use only the device's own values, because other cores do not run. Waits for all runs. */
void strata_opencl_run_alone(opencl_device *device, bool alone);

/* ---- memory.c ---- */
/* Bytes of a page of the host's memory. */
enum { OPENCL_PAGE = 4096 };
/* Allocates device memory with undefined contents, and counts it. */
strata_status strata_opencl_allocate(opencl_device *device, cl_mem_flags flags, int64_t bytes, void *host, cl_mem *out_memory,
                                     strata_error *err);
void strata_opencl_release(opencl_device *device, cl_mem memory, int64_t bytes); /* NULL is fine */
/* The same as strata_opencl_allocate in zeroed host memory, with huge pages for the part that fills whole huge pages.
 * The caller frees *out_host with free() after the buffer. */
strata_status strata_opencl_allocate_shared(opencl_device *device, int64_t bytes, void **out_host, cl_mem *out_memory,
                                            strata_error *err);
/* The functions of strata_device_api with these names. */
strata_status strata_opencl_buffer_create(strata_device *base, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
void strata_opencl_buffer_destroy(strata_device *base, strata_buffer *buffer);
strata_status strata_opencl_upload(strata_device *base, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err);
strata_status strata_opencl_download(strata_device *base, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err);

/* ---- program.c ---- */
strata_status strata_opencl_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err);
void strata_opencl_program_destroy(strata_program *program);
void *strata_opencl_program_input(strata_program *program, int slot);
const void *strata_opencl_program_output(strata_program *program, int slot);
strata_status strata_opencl_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
/* The functions of strata_device_api with these names. */
int strata_opencl_most_runs(strata_device *base);
strata_status strata_opencl_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err);
strata_status strata_opencl_check(strata_device *base, const strata_piece *piece, strata_program *program,
                                  const strata_check_request *request, strata_error *err);

/* ---- kernels.c ---- */
/* Builds those of n kernels that are not built yet, as one program. The program is loaded from the disk cache (if the driver
 * has no cache) or compiled; compiled programs are counted. out_built[i]: the index of kernels[i] in device->built; -1: the
 * kernel has no source. Fails: UNSUPPORTED, with the kernel's name and the first lines of the compiler's log, if the driver
 * rejects a kernel. */
strata_status strata_opencl_build(opencl_device *device, const strata_kernel *kernels, int n, int *out_built,
                                  strata_error *err);

/* The same as strata_opencl_build for one source, which contains the kernel function `entry`, made of n_kernels kernels. */
strata_status strata_opencl_build_text(opencl_device *device, const char *source, const char *entry, int n_kernels,
                                       cl_program *out_program, strata_error *err);

/* ---- source.c ---- */
/* Appends the kernel's source to `text`, with its constants as macros. `suffix` is appended to the names of its functions,
 * including the kernel, and `parameters` are inserted before the kernel's own parameters. *out_entry: the resulting name of the
 * kernel function. */
STRATA_MUST_USE strata_status strata_opencl_source_add(strata_text *text, const strata_kernel *kernel, const char *suffix,
                                                       const char *parameters, char out_entry[64], strata_error *err);

/* ---- sequence.c ---- */
/* The most runs of a sequence in one call of its kernel. */
enum { OPENCL_RUNS_IN_A_CALL = 4 };
/* The words of a launch's row at the beginning of the table: its number of tasks (0: it is left out), its site, the position of
 * its arguments, and the position of the list of launches that it waits for. */
enum { OPENCL_SEQUENCE_ROW = 4 };
typedef struct opencl_sequence {
    /* The source of the kernel strata_sequence(n_launches, table, sync, counts, arenas..., runs, arenas of later slots...).
     * NULL: the list exceeds a limit of sequences. */
    char *source;
    uint32_t *table;
    size_t table_words;
    /* The size of the buffer `sync`, which is zero before the first run and after each run. */
    int64_t sync_bytes;
    /* The indices of those arenas of the piece that are passed to the kernel. */
    int *arenas;
    int n_arenas;
    /* The number of work-groups to launch. Each has one work-item. */
    uint32_t n_workers;
} opencl_sequence;
bool strata_opencl_sequence_fits(const opencl_device *device, const strata_kernel_list *list);
strata_status strata_opencl_sequence_write(const opencl_device *device, const strata_kernel_list *list, opencl_sequence *out,
                                           strata_error *err);
void strata_opencl_sequence_finish(opencl_sequence *sequence); /* a zeroed one is fine */
/* Whether each slot has its own arena (INPUT and OUTPUT). `arena` is an index in sequence->arenas. The kernel's last parameters
 * are these arenas of the second run's slot, then those of the third run's slot, and so on. */
bool strata_opencl_sequence_is_of_slot(const opencl_sequence *sequence, int arena);

/* ---- sequence_times.c ---- */
/* The times at which each worker of a sequence began and ended each launch, in the newest call for one slot. */
typedef struct opencl_counts opencl_counts;
/* The processor's counter and the host's clock (strata_trace_now), read together. */
typedef struct opencl_moment {
    uint64_t count;
    double seconds;
} opencl_moment;
/* Whether host and kernels can read such a counter: only on x86-64. */
bool strata_opencl_has_counter(void);
uint64_t strata_opencl_read_counter(void);
strata_status strata_opencl_counts_create(opencl_device *device, uint32_t n_workers, int n_launches, opencl_counts **out_counts,
                                          strata_error *err);
void strata_opencl_counts_destroy(opencl_device *device, opencl_counts *counts); /* NULL is fine */
/* The argument `counts` of the kernel. */
cl_mem strata_opencl_counts_memory(const opencl_counts *counts);
/* Adds a slice to the trace for each launch of a run; `run` is its index in the call, which was queued at the moment `queued`
 * and is over now. labels: [launches]. */
void strata_opencl_counts_add(opencl_counts *counts, int run, strata_trace *trace, int track,
                              const strata_trace_label *const *labels, int64_t step, opencl_moment queued, opencl_moment over);

/* ---- times.c ---- */
/* The commands of one run, while there is a trace. */
typedef struct opencl_timed opencl_timed;
/* Implements strata_device_api.set_trace. */
strata_status strata_opencl_set_trace(strata_device *device, strata_trace *trace, int track, strata_error *err);
/* Allocates the events for a run's n commands. Returns NULL if the device has no trace, or if there is no memory. */
opencl_timed *strata_opencl_time_begin(opencl_device *device, int n);
/* The same for `runs` runs of a sequence in one call, whose workers write into `counts`. labels: those of the
 * sequence's launches. Both must outlive the runs. */
opencl_timed *strata_opencl_time_begin_sequence(opencl_device *device, opencl_counts *counts, int runs,
                                                const strata_trace_label *const *labels);
/* Returns where to store the next command's event, and sets its label. NULL if `timed` is NULL. */
cl_event *strata_opencl_time_next(opencl_timed *timed, const strata_trace_label *label);
/* Ends the run with this ticket. NULL is fine. */
void strata_opencl_time_end(opencl_device *device, opencl_timed *timed, uint64_t ticket);
/* Adds the runs up to this ticket, which must have finished, to the trace. */
void strata_opencl_time_collect(opencl_device *device, uint64_t ticket);

/* ---- clblast.c ---- */
/* Sets device->clblast and limits.library if CLBlast can be opened. Without CLBlast it does nothing. */
void strata_opencl_clblast_open(opencl_device *device);
void strata_opencl_clblast_close(opencl_device *device);
/* Enqueues a launch of CLBlast's kernel. memory: its three buffers. */
strata_status strata_opencl_clblast_run(opencl_device *device, const strata_kernel_launch *launch, const cl_mem *memory,
                                        cl_event *out_event, strata_error *err);

#endif
