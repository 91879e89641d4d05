/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins: how a vendor brings an accelerator to Strata. A plugin is one shared object that exports one symbol,
 *
 *     const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
 *
 * and includes this header, which includes no other header of Strata. It compiles as C11 and as C++17 (there: make a struct
 * with {}, then set `size` and the fields). A user names the file with --plugin FILE, in STRATA_PLUGINS (several, separated by
 * colons), or puts it into a plugin folder ($XDG_DATA_HOME/strata/plugins, PREFIX/lib/strata/plugins). `strata plugin-new NAME
 * --to DIR` writes a plugin to begin with. `strata plugin-check FILE` checks one: each op that it claims against Strata's
 * reference, its memory, and the training of a small model.
 *
 * In short. strata_plugin lists devices. A device creates buffers, compiles *programs* and runs them. A program is made of a
 * *piece*: a table of nodes (an op's name, attributes, ids of values) and a table of values (dtype, shape, where its bytes
 * are). It is compiled once and run for every training step.
 *
 * What Strata calls, in order, while it trains a model:
 *   1. start, then device_info for each device, then device_open for those that are used, and `table` for optional tables;
 *   2. supports, for each node of the step and for fused forms of them. What the device answers decides which nodes there are;
 *   3. buffer_create and upload for parameters and optimizer slots; compile for each program;
 *   4. for each step: the host writes the slot's input arena (the batch), run, wait, and the host reads the output arena (the
 *      loss). Parameters stay in their buffers, where programs update them;
 *   5. download, when the model is saved; program_destroy and buffer_destroy; close.
 *
 * Which ops. None is required. Strata composes an op that a device lacks of other ops where it can, and with --allow-fallback
 * host the host runs the rest; matmul and add are enough to begin with. `strata help ops` lists all ops, with the order of
 * inputs and the names of attributes; strata/ops.h has the formulas under the same names (op "matmul": strata_matmul). A flag
 * is an int, 0 or 1. Views, such as reshape, are never nodes: their result is an alias (strata_plugin_value.alias_of).
 *   fused products   matmul and the convolutions may have a bias, an activation or another operand folded in. With v an element
 *                    of the product and n its index along the last axis: if has_bias is 1, v = v + bias[n]; then
 *                    v = activation(v) ("linear" is v itself); then aux, with a an operand of the result's shape: "none": v;
 *                    "add": v + a; "relu_grad": a > 0 ? v : 0; "tanh_grad": v (1 - a^2); "sigmoid_grad": v a (1 - a). Inputs
 *                    are the product's two operands, then the bias where there is one, then a where there is one. A device
 *                    without that answers NO where an attribute is not 0, "linear" and "none".
 *   chains           "chain" is an expression of element-wise ops as one node; its parts are the expression, one node an op.
 *
 * Rules for every struct and call:
 *   size         The first member of every struct is its size in bytes as its author compiled it. Fields are only ever
 *                appended. Read a field only where `size` covers it (STRATA_PLUGIN_HAS); what is not counts as zero. Tables of
 *                structs are arrays of pointers, so that a larger struct moves nothing.
 *   status       Every call that can fail returns a strata_plugin_status, and fills `error` with one sentence: what is wrong,
 *                the values, what to do. Strata adds the device's name. `error` is never NULL.
 *   ownership    What Strata passes is borrowed until the call returns, unless the call says otherwise. What a plugin returns
 *                lives until the destroy call that belongs to it. Static tables and texts live as long as the plugin.
 *   threads      Strata calls a device and what was made on it by one thread at a time, but different devices by different
 *                threads at once. A plugin may have threads of its own.
 *   failure      After a call returned STRATA_PLUGIN_DEVICE_LOST Strata calls only destroy and close of that device.
 *   exceptions   No exception, longjmp or exit leaves a plugin. A plugin prints nothing: host->log takes messages.
 *   unloading    A plugin is never unloaded.
 *
 * Versions. STRATA_PLUGIN_VERSION_MAJOR changes when a plugin must be compiled again, and with it the entry symbol's name; a
 * library that knows a newer major version still loads plugins of the older one for at least two years. A new minor version
 * appends fields, ops' attributes, and names of tables, all optional for both sides. Within one major version a plugin of any
 * minor version works with a library of any minor version. No number of an enum is ever used again for something else. */
#ifndef STRATA_PLUGIN_H
#define STRATA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_PLUGIN_VERSION_MAJOR 1
#define STRATA_PLUGIN_VERSION_MINOR 0

/* Whether a struct that somebody else compiled has the field. */
#define STRATA_PLUGIN_HAS(pointer, type, field) ((pointer)->size >= offsetof(type, field) + sizeof(((const type *)0)->field))

#if defined(_WIN32)
#define STRATA_PLUGIN_EXPORT __declspec(dllexport)
#else
#define STRATA_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/* ---- status ---- */

/* int32_t rather than an enum, whose size would be the compiler's choice. Each says what the user can do. */
typedef int32_t strata_plugin_status;
enum {
    STRATA_PLUGIN_OK = 0,
    /* The call was wrong. */
    STRATA_PLUGIN_INVALID = 1,
    /* Not there now: no chip, a driver that does not answer. */
    STRATA_PLUGIN_UNAVAILABLE = 3,
    /* This device cannot do it. */
    STRATA_PLUGIN_UNSUPPORTED = 4,
    STRATA_PLUGIN_OUT_OF_MEMORY = 5,
    /* The device or its driver died. */
    STRATA_PLUGIN_DEVICE_LOST = 7,
    /* No progress until the deadline. */
    STRATA_PLUGIN_TIMEOUT = 9,
    /* The plugin's own bug. */
    STRATA_PLUGIN_INTERNAL = 11
};

typedef struct strata_plugin_error {
    size_t size;
    /* UTF-8, NUL-terminated, written by the one who fails. */
    char message[1024];
} strata_plugin_error;

/* ---- values, nodes, programs ---- */

/* Element types. */
typedef int32_t strata_plugin_dtype;
enum {
    STRATA_PLUGIN_F32 = 0,
    /* IEEE binary16, and the upper half of an f32. Storage only: arithmetic is at least f32. */
    STRATA_PLUGIN_F16 = 1,
    STRATA_PLUGIN_BF16 = 2,
    STRATA_PLUGIN_I32 = 3,
    STRATA_PLUGIN_I64 = 4,
    STRATA_PLUGIN_U8 = 5,
    /* One byte, 0 or 1. */
    STRATA_PLUGIN_BOOL = 6
};

typedef int32_t strata_plugin_role;
enum {
    /* Computed by a node of this program and read by others of it. In a piece that `supports` gets, every value that is not
     * constant may have this role. */
    STRATA_PLUGIN_TEMPORARY = 0,
    /* Written by the host before each run, in the INPUT arena of the run's slot. */
    STRATA_PLUGIN_INPUT = 1,
    /* Computed by a node and read by the host after each run, in the OUTPUT arena of the run's slot. */
    STRATA_PLUGIN_OUTPUT = 2,
    /* Never changes: `data` has its elements. */
    STRATA_PLUGIN_CONSTANT = 3,
    /* Lies in a buffer that lives longer than the program: parameters, optimizer slots. Nodes that write it update it in
     * place. */
    STRATA_PLUGIN_VARIABLE = 4,
    /* Passed from one program of a step to a later one, in a buffer. `enters` is 1 where an earlier program computed it, and 0
     * where this one does. */
    STRATA_PLUGIN_CARRIED = 5
};

typedef int32_t strata_plugin_attribute_type;
enum {
    /* ints[0 .. n) */
    STRATA_PLUGIN_INTS = 0,
    /* floats[0 .. n) */
    STRATA_PLUGIN_FLOATS = 1,
    /* text */
    STRATA_PLUGIN_TEXT = 2
};

/* One attribute of a node, by name. `strata help ops` lists each op's attributes and the texts that one may be ("relu",
 * "sum"). */
typedef struct strata_plugin_attribute {
    size_t size;
    const char *name;
    strata_plugin_attribute_type type;
    int32_t n;
    const int64_t *ints;
    const double *floats;
    const char *text;
} strata_plugin_attribute;

typedef struct strata_plugin_buffer strata_plugin_buffer;   /* device memory; the plugin's struct */
typedef struct strata_plugin_program strata_plugin_program; /* a compiled program; the plugin's struct */
typedef struct strata_plugin_device strata_plugin_device;   /* an opened device; the plugin's struct */

/* A value: an array that the program reads or computes. Row-major, without gaps. */
typedef struct strata_plugin_value {
    size_t size;
    strata_plugin_dtype dtype;
    strata_plugin_role role;
    /* At most 8; 0: a scalar, of one element. A dimension may be 0. */
    int32_t rank;
    const int64_t *dims;
    /* Its elements times the bytes of one. */
    int64_t bytes;
    /* For messages and traces; NULL: none. */
    const char *name;
    /* This value has the bytes of another one, from byte `alias_offset` on: a reshape of it, a variable after an update, a part
     * of a pack (an op that lays values end to end) which can be computed straight into its place. That one may be an alias
     * itself. An alias has the role of the value at the end of this path, and the fields below say where its own bytes begin
     * (arena_offset, buffer_offset, data, work_offset): only for a TEMPORARY without `work` does a plugin have to add up the
     * offsets of the path. -1: bytes of its own. */
    int32_t alias_of;
    int64_t alias_offset;
    /* Positions in `nodes` of the first node that computes it and the last that reads it; -1: none in this program. A
     * TEMPORARY's bytes may be used for another value outside of that span. The span of a value contains those of its
     * aliases. */
    int32_t first_node, last_node;
    /* CONSTANT: `bytes` bytes of host memory. */
    const void *data;
    /* VARIABLE and CARRIED: where its bytes begin. */
    strata_plugin_buffer *buffer;
    int64_t buffer_offset;
    /* INPUT and OUTPUT: where its bytes begin in that arena. */
    int64_t arena_offset;
    /* CARRIED: 1: an earlier program computed it. */
    int32_t enters;
    /* The buffer of a TEMPORARY, and where in it the bytes begin, for devices that set wants_arenas; NULL for others. Strata
     * has planned them: values whose spans do not meet share bytes, and the result of an element-wise node may lie over an
     * operand of its own shape that no later node reads. */
    strata_plugin_buffer *work;
    int64_t work_offset;
} strata_plugin_value;

typedef struct strata_plugin_node strata_plugin_node;
struct strata_plugin_node {
    size_t size;
    /* "matmul", "add", ... The node computes values[output] from values[inputs[0 .. n_inputs)]. */
    const char *op;
    int32_t n_inputs;
    const int32_t *inputs;
    int32_t output;
    int32_t n_attributes;
    const strata_plugin_attribute *const *attributes;
    /* Inputs that the node writes in place, by position in `inputs` (an optimizer writes its parameters and slots); `output` is
     * then an alias of the first of them. */
    int32_t n_writes;
    const int32_t *writes;
    /* The same computation by simpler nodes, in order, the last of which computes `output`: what a fused node was made of, or
     * the composition that replaces an op. Their intermediate values are at the end of `values`, and are of no use to one who
     * runs the node itself. 0: there is none. */
    int32_t n_parts;
    const strata_plugin_node *const *parts;
    /* For messages; NULL: none. */
    const char *name;
};

/* A piece of a training step, or all of it. */
typedef struct strata_plugin_piece {
    size_t size;
    /* To be run as if in this order. Each computes another value. */
    int32_t n_nodes;
    const strata_plugin_node *const *nodes;
    int32_t n_values;
    const strata_plugin_value *const *values;
    /* The bytes of the INPUT and OUTPUT arenas, of which there is a pair for each slot. */
    int64_t input_bytes, output_bytes;
    /* A slot is one set of host memory: the host fills one while a run of another goes on. */
    int32_t n_slots;
} strata_plugin_piece;

/* ---- a device ---- */

typedef int32_t strata_plugin_support;
enum {
    /* The node is not run as it is. Strata uses its parts where there are any. Else the node is an error, or goes to the host
     * where the user allows it (--allow-fallback host). */
    STRATA_PLUGIN_NO = 0,
    STRATA_PLUGIN_YES = 1,
    /* The device runs the node, and runs its parts better. */
    STRATA_PLUGIN_PARTS = 2
};

typedef struct strata_plugin_device_info {
    size_t size;
    /* What the user sees: "Systolic S1", "Acme". */
    const char *name, *vendor, *driver_version;
    /* 0: not known. */
    int64_t memory_bytes;
    /* The largest buffer; 0: memory_bytes. */
    int64_t max_buffer_bytes;
    /* Cores or units, for `strata devices`; 0: not known. */
    int32_t compute_units;
    /* Bit (1 << dtype) for each dtype that values on the device may have. `supports` is never asked about others, so that nodes
     * that read labels and tokens (I32) are run elsewhere where the device does not have I32. */
    uint32_t dtypes;
    /* 1: buffers are the host's memory. */
    int32_t unified_memory;
    /* 1: Strata plans the memory of temporaries (strata_plugin_value.work). 0: the plugin does. */
    int32_t wants_arenas;
    /* Why the device cannot be opened; NULL: it can. */
    const char *skipped;
    /* How long one run, or one copy of the table "transfers", may take, in seconds. One that has not ended by then hangs:
     * Strata reports TIMEOUT, and the device counts as lost. 0: 600. */
    double stall_seconds;
    /* What the f32 operands of products (matmul, convolutions) are rounded to before they are multiplied: F16 or BF16; their
     * sums are f32. F32: they are not rounded. `strata plugin-check` allows for it. */
    strata_plugin_dtype product_dtype;
} strata_plugin_device_info;

/* A device's calls. All are required unless "optional" is said. */
typedef struct strata_plugin_device_calls {
    size_t size;
    /* The last call for the device: its buffers and programs have been destroyed. Waits for what still runs. */
    void (*close)(strata_plugin_device *device);

    /* ---- memory ---- */
    /* A new buffer of `bytes` (> 0) bytes, all of them 0. */
    strata_plugin_status (*buffer_create)(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out_buffer,
                                          strata_plugin_error *error);
    /* Called while no program that uses the buffer runs. */
    void (*buffer_destroy)(strata_plugin_device *device, strata_plugin_buffer *buffer);
    /* Copies from host memory to the buffer, and back. A copy sees the results of every run that was submitted before it, and
     * is done when the call returns. Strata has checked that the range lies in the buffer. */
    strata_plugin_status (*upload)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error);
    strata_plugin_status (*download)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error);

    /* ---- programs ---- */
    /* Whether the device can run nodes[node] of the piece, by its op, attributes, dtypes and shapes alone: where values lie is
     * not known yet. Any answer but YES sets *out_reason to a static text, which the user may see: "no kernel for f16". */
    strata_plugin_support (*supports)(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                      const char **out_reason);
    /* Makes a program of the piece, whose nodes are all ones that `supports` said YES to. The piece, and constants' data, are
     * gone when the call returns, so the program keeps copies of what it needs; the buffers in it outlive the program. A plugin
     * that plans the memory of temporaries gives a value with the op "pack" zeroed bytes that no other value shares: there may
     * be gaps between the pack's parts, which are read and must be 0. */
    strata_plugin_status (*compile)(strata_plugin_device *device, const strata_plugin_piece *piece,
                                    strata_plugin_program **out_program, strata_plugin_error *error);
    /* Called while no run of the program goes on. */
    void (*program_destroy)(strata_plugin_program *program);
    /* The host memory of a slot's two arenas, which the plugin owns: piece->input_bytes and piece->output_bytes bytes, aligned
     * to 64, at the same address for the program's life. Strata writes inputs before a run of the slot, and reads outputs after
     * it has waited for the run. NULL means failure. Not called for an arena of 0 bytes. */
    void *(*program_input)(strata_plugin_program *program, int32_t slot);
    const void *(*program_output)(strata_plugin_program *program, int32_t slot);
    /* Submits a run for each of the slots first, first + 1, ..., first + n - 1 (modulo n_slots), and returns at once. Runs are
     * carried out in the order of their submission. n is 1, or up to n_slots where the device has the table "steps": the host
     * does nothing between these runs. *out_ticket, a number larger than every ticket of this device before, stands for the
     * last of them. A device that computes in the caller's thread may return when the runs have ended. */
    strata_plugin_status (*run)(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                strata_plugin_error *error);
    /* Blocks, without spinning, until what has this ticket, and with it all that was submitted before, has ended. When
     * timeout_ns are over it returns TIMEOUT. With a timeout of 0 it only asks. */
    strata_plugin_status (*wait)(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns, strata_plugin_error *error);

    /* (optional) A table of calls by name, which begins with its size; NULL: the device does not have it. Tables are below. */
    const void *(*table)(strata_plugin_device *device, const char *name);
} strata_plugin_device_calls;

/* ---- optional tables ---- */

/* "steps": run() takes n > 1. */
typedef struct strata_plugin_steps {
    size_t size;
    /* The most runs of one call; 0: as many as a program has slots. */
    int32_t most;
} strata_plugin_steps;

/* "topology": the device is one core of a system whose cores have an interconnect of their own. */
typedef struct strata_plugin_topology {
    size_t size;
    /* Cores of the same system have the same text, of any form: "board 0". */
    const char *system;
    /* The cores of the system, and this one's number, which is its place in folds of collectives. */
    int32_t n_cores, core;
    /* The place in a grid, for `strata devices`; rank at most 4. */
    int32_t rank;
    const int32_t *dims, *coordinates;
} strata_plugin_topology;

/* "collectives": the ops "all_reduce", "all_gather" and "reduce_scatter" between cores of one system, inside of programs. An
 * attribute "members" (ints) lists the numbers of the cores that take part, in ascending order; each has the node with one
 * input. "reduction" is "sum". Of the parts that are gathered or scattered "lengths" (ints) has the length of each along
 * "axis" (of reduce_scatter: 0), in the order of the members, and "own" is the place of this core's among them.
 *   order    The programs of all members have the same collectives in the same order. Their runs are submitted, one a core,
 *            before any is waited for: run() must not wait for other cores.
 *   bits     Sums are folded in the order of the members, so that every core gets the same bits: f32 is added in f32, F16 and
 *            BF16 are added in f32 and rounded once, integers wrap.
 *   failure  When a run fails on one core, the runs of others that would wait for it end as DEVICE_LOST, and the message names
 *            the core that failed. */
typedef struct strata_plugin_collectives {
    size_t size;
    /* Bit (1 << dtype): what can be added up. Gathers take every dtype of the device. */
    uint32_t sum_dtypes;
    /* (optional) How many collectives this core has come to since it was opened. While the others wait for a core that hangs,
     * it has come to fewest, and Strata names it. Called by the thread that uses the device, also after a call failed. */
    int64_t (*reached)(strata_plugin_device *device);
} strata_plugin_collectives;

/* "transfers": copies that return before they are done. A device that has this table is asked for these copies instead of
 * upload and download of strata_plugin_device_calls, which it must have nevertheless. Each is done when its ticket has been
 * waited for; tickets of copies and of runs grow together. The device does what is submitted in the order of submission, as if
 * it did one thing at a time: a run sees what was uploaded before it, and a download what was run before it. A copy that has
 * not ended within stall_seconds counts as a run that has not. When a wait with timeout_ns > 0 fails, also by TIMEOUT, Strata
 * gives the copies up: after its return the plugin must not touch `source` or `target` of any copy any more. */
typedef struct strata_plugin_transfers {
    size_t size;
    /* Host memory to the buffer. `source` stays as it is, and valid, until the ticket has been waited for. */
    strata_plugin_status (*upload)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error);
    /* The buffer to host memory. Strata reads `target` after it has waited for the ticket. */
    strata_plugin_status (*download)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error);
    /* (optional) From a buffer of another device of this plugin to one of this device, over the link between them. Nothing runs
     * on `from`, and it is asked for nothing until the ticket, which is one of `to`, has been waited for. Strata uses it where
     * several devices get the same values: the first device gets them from the host, the others from the first. */
    strata_plugin_status (*copy)(strata_plugin_device *to, strata_plugin_buffer *to_buffer, int64_t to_offset,
                                 strata_plugin_device *from, strata_plugin_buffer *from_buffer, int64_t from_offset,
                                 int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error);
} strata_plugin_transfers;

/* "spaces": the device's memories, which `strata devices` lists. */
typedef struct strata_plugin_space {
    size_t size;
    /* "HBM", "on-chip"; at most 31 bytes. */
    const char *name;
    int64_t bytes;
    /* 1: buffer_create takes from this memory. 0: the device uses it inside of programs. */
    int32_t buffers;
    /* What the device reads or writes at best; 0: not known. */
    double bytes_per_second;
} strata_plugin_space;
typedef struct strata_plugin_spaces {
    size_t size;
    /* At most 8. */
    int32_t n;
    const strata_plugin_space *const *spaces;
} strata_plugin_spaces;

/* "costs": what a run of a program costs, for `strata summary MODEL --times`. Fields that are not known are 0. */
typedef struct strata_plugin_cost {
    size_t size;
    /* Of one run: the estimate or the measurement, in the device's own time. */
    double seconds;
    double cycles;
    /* Bytes that are read from and written to the device's main memory. */
    double bytes;
    /* 0..1: the share of the matrix units' multiply-adds that were used. */
    double utilisation;
    /* The most bytes that the program's temporaries take at one time. */
    int64_t work_bytes;
} strata_plugin_cost;
typedef struct strata_plugin_costs {
    size_t size;
    /* The cost of a whole program. Strata sets out_cost->size, and all other fields to 0. */
    strata_plugin_status (*program)(strata_plugin_program *program, strata_plugin_cost *out_cost, strata_plugin_error *error);
    /* (optional) The cost of nodes[node] of the piece that the program was compiled from. */
    strata_plugin_status (*node)(strata_plugin_program *program, int32_t node, strata_plugin_cost *out_cost,
                                 strata_plugin_error *error);
} strata_plugin_costs;

/* "profile": what the device's units did when, for `strata train --trace FILE`. */
typedef struct strata_plugin_span {
    size_t size;
    /* What ran, and on which unit of the device ("matrix", "vector", "dma"). */
    const char *name, *unit;
    /* Since the device was opened, on a clock that does not jump. */
    int64_t begin_ns, end_ns;
} strata_plugin_span;
typedef struct strata_plugin_profile {
    size_t size;
    /* 1: spans are kept from now on; 0: no more. */
    void (*enable)(strata_plugin_device *device, int32_t on);
    /* Calls `take` with each span since the last call, in order of their beginnings. */
    void (*drain)(strata_plugin_device *device, void (*take)(void *user, const strata_plugin_span *span), void *user);
    /* The device's clock now, in ns since it was opened. */
    int64_t (*now)(strata_plugin_device *device);
} strata_plugin_profile;

/* ---- the plugin ---- */

/* What Strata offers a plugin; lives as long as the process. */
typedef struct strata_plugin_host {
    size_t size;
    int32_t version_major, version_minor;
    /* Takes a message for the user, who sees it with --verbose. Any thread. */
    void (*log)(const char *message);
} strata_plugin_host;

/* Options are texts, "key=value;key=value", as the user wrote them behind the file's name: --plugin FILE,key=value. A plugin
 * reports keys that it does not know. */
typedef struct strata_plugin {
    size_t size;
    /* STRATA_PLUGIN_VERSION_MAJOR and _MINOR as the plugin was compiled. */
    int32_t version_major, version_minor;
    /* The name of its devices: "systolic" gives systolic:0, systolic:1, ... Letters, digits and '-', at most 15. */
    const char *name;
    /* Finds the devices, which are numbered from 0 on, and returns how many there are. Called once, before all else. `options`:
     * NULL for none. */
    strata_plugin_status (*start)(const char *options, int32_t *out_n_devices, strata_plugin_error *error);
    /* What device `index` is, without opening it: static. */
    const strata_plugin_device_info *(*device_info)(int32_t index);
    /* May be called again for a device that is open, by another user of it in the same process: UNAVAILABLE where that is
     * impossible. */
    strata_plugin_status (*device_open)(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error);
} strata_plugin;

typedef const strata_plugin *strata_plugin_entry(const strata_plugin_host *host);
#define STRATA_PLUGIN_ENTRY "strata_plugin_v1"

#ifdef __cplusplus
}
#endif
#endif
