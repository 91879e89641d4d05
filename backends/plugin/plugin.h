/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the plugin backend: plugins that were loaded, and devices that forward Strata's calls to a plugin. The
 * interface for vendors is include/strata/plugin.h. */
#ifndef STRATA_BACKENDS_PLUGIN_H
#define STRATA_BACKENDS_PLUGIN_H

#include "core/run/device.h"
#include "strata/plugin.h"

/* ---- plugins (load.c, find.c) ---- */

/* The most devices of one plugin. */
enum { PLUGIN_MOST_DEVICES = 1024 };

/* A plugin of this process, or a file that could not be loaded as one. It lives as long as the process. */
typedef struct plugin {
    struct plugin *next;
    /* The resolved path of the file, and its options "key=value;key=value" or NULL. */
    char *path, *options;
    /* The reason why the plugin cannot be used. Status OK: it can be used. */
    strata_error error;
    /* A copy of the plugin's struct; fields that the plugin's struct does not have are 0. */
    strata_plugin calls;
    int n_devices;
} plugin;

/* Checks the file, the version and the struct of the plugin in loaded->path, and starts it with loaded->options. Called
 * once for each file. The error is stored in `loaded` too. */
strata_status strata_bridge_open_file(plugin *loaded, strata_error *err);
/* Checks a strata_plugin and starts it. */
strata_status strata_bridge_start(plugin *loaded, const strata_plugin *given, strata_error *err);
/* Reads and checks the row of a device. If the device cannot be used, the row contains the reason. */
strata_device_info strata_bridge_device_row(const plugin *loaded, int index);
/* Adds the rows of the plugin's devices. If the plugin hangs, loaded->error is set, and the plugin is not called any
 * more. */
strata_status strata_bridge_add_rows(plugin *loaded, strata_device_list *list, strata_error *err);

/* Converts a plugin's status; a number that plugin.h does not define becomes INTERNAL. */
strata_status strata_bridge_status(strata_plugin_status status);

/* The rows of the devices of one loaded plugin, whose file and options are `text` (strata_plugin_load). The caller frees them
 * with strata_devices_free. */
strata_status strata_bridge_rows(const char *text, strata_device_info **out_rows, int *out_n, strata_error *err);
/* Copies a struct whose first member is its size. Bytes after the end of `source` are 0 in `target`; bytes that do not
 * fit into `target` are not copied. */
void strata_bridge_copy_struct(void *target, size_t target_bytes, const void *source);

/* ---- a device (device.c) ---- */

/* The range of stall_seconds. */
#define PLUGIN_LEAST_STALL_SECONDS 0.001
#define PLUGIN_MOST_STALL_SECONDS  1e9

enum { MOST_SPACES = sizeof((strata_device_features *)0)->spaces / sizeof(strata_memory_space) };

typedef struct plugin_device {
    strata_device base;
    strata_plugin_device *device;
    /* A copy of the plugin's table of calls. */
    strata_plugin_device_calls calls;
    double stall_seconds;
    /* The largest number of runs that were submitted in one call; a wait may take stall_seconds times this number. */
    int longest_call;
    uint64_t last_ticket;
    /* The tickets of runs and copies that have not been waited for, ascending. There is room for a run on each slot of each
     * program, and for some copies. */
    uint64_t *pending;
    int n_pending, capacity, n_slots;
    /* The device is lost, and `why` is the reason. From then on only destroy and close are called. */
    bool lost;
    strata_error why;
    /* From the plugin's optional tables: the most runs in one call; whether the device is a core of a system, and its
     * position there; whether it has collectives, and these. */
    int most_runs;
    bool is_core, exchanges;
    strata_topology topology;
    strata_device_collectives collectives;
    int64_t (*reached)(strata_plugin_device *device);
    /* All members are 0 if the device has no such table. */
    strata_plugin_transfers transfers;
    strata_device_transfers copies;
    int n_spaces;
    strata_memory_space spaces[MOST_SPACES];
} plugin_device;

struct strata_buffer {
    strata_plugin_buffer *buffer;
    int64_t bytes;
};

/* Converts the status that `call` returned to Strata's and inserts the device's name before the plugin's message. After
 * DEVICE_LOST the device stays lost. */
strata_status strata_bridge_result(plugin_device *device, const char *call, strata_plugin_status status,
                                   strata_plugin_error *message, strata_error *err);
/* Fails with DEVICE_LOST if the device was lost before, and if a call of it hung. */
strata_status strata_bridge_check_lost(const plugin_device *device, strata_error *err);
/* Whether a run or a call of the plugin hangs. The plugin is then not called any more, not even by destroy and close: these
 * would come while a run is active, and could hang too. */
bool strata_bridge_is_gone(const plugin_device *device);
/* Reports that the plugin broke a rule of plugin.h. Fails: INTERNAL with the device's name. */
strata_status strata_bridge_broke(const plugin_device *device, strata_error *err, const char *format, ...) STRATA_PRINTF(3, 4);
/* Waits until no more than `most` of the runs up to the ticket are pending, each for stall_seconds at most. */
strata_status strata_bridge_await(plugin_device *device, uint64_t ticket, int most, strata_error *err);

/* Makes room for n more tickets. When they are not needed any more, the caller reduces n_slots by n. */
strata_status strata_bridge_reserve_tickets(plugin_device *device, int n, strata_error *err);
/* make_room is called before something is submitted; it waits until there is room for the ticket. submitted is called after it,
 * and stores the ticket that `call` returned. */
strata_status strata_bridge_make_room(plugin_device *device, strata_error *err);
strata_status strata_bridge_submitted(plugin_device *device, const char *call, uint64_t ticket, strata_error *err);

/* program.c: the functions of strata_device_api with these names. */
strata_support strata_bridge_supports(strata_device *device, const strata_tensor *node, const char **reason);
strata_status strata_bridge_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                    strata_error *err);
void strata_bridge_program_destroy(strata_program *program);
void *strata_bridge_program_input(strata_program *program, int slot);
const void *strata_bridge_program_output(strata_program *program, int slot);
strata_status strata_bridge_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
strata_status strata_bridge_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err);

/* tables.c: reads and checks the tables "steps", "topology", "collectives", "transfers" and "spaces"; functions of
 * strata_device_api. */
strata_status strata_bridge_read_tables(plugin_device *device, strata_error *err);
int strata_bridge_most_runs(strata_device *device);
const strata_topology *strata_bridge_topology(strata_device *device);
const strata_device_collectives *strata_bridge_collectives(strata_device *device);
void strata_bridge_spaces(strata_device *device, strata_device_features *features);

/* transfers.c: checks the table and stores it; functions of strata_device_api. */
strata_status strata_bridge_take_transfers(plugin_device *device, const strata_plugin_transfers *given, strata_error *err);
const strata_device_transfers *strata_bridge_transfers(strata_device *device);
strata_status strata_bridge_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                   int64_t bytes, strata_error *err);
strata_status strata_bridge_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                     strata_error *err);

strata_status strata_bridge_program_cost(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err);

/* spans.c */
strata_status strata_bridge_set_trace(strata_device *device, strata_trace *trace, int track, strata_error *err);

/* program.c: the cost of a run of the program, or of one of its nodes, as the device reports it. node -1: the whole program. */
strata_status strata_bridge_cost(plugin_device *device, strata_plugin_program *program, int node, strata_device_cost *out_cost,
                                 strata_error *err);

/* Implements `open` of the backend's row for a device of this plugin. */
strata_status strata_bridge_device_open(const plugin *loaded, const strata_device_info *info, int index,
                                        const strata_device_options *opts, strata_device **out_device, strata_error *err);

#endif
