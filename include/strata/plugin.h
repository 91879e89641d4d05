/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins: how a vendor brings an accelerator to Strata. A plugin is one shared object that exports one symbol,
 *
 *     const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
 *
 * and includes this header, which includes no other header of Strata. The header compiles as C11 and as C++17 (in C++
 * initialize a struct with {}, then set `size` and the fields). A user names the file with --plugin FILE or in STRATA_PLUGINS
 * (several, separated by colons), or puts it into a plugin folder ($XDG_DATA_HOME/strata/plugins, PREFIX/lib/strata/plugins).
 * `strata plugin-new NAME --to DIR` writes a plugin to begin with. `strata plugin-check FILE` checks a plugin: it compares each
 * op that the plugin supports with Strata's reference, tests its memory, and trains a small model on it.
 *
 * Overview. strata_plugin lists devices. A device creates buffers, compiles *programs* and runs them. A program is compiled
 * from a *piece*: a table of nodes (an op's name, attributes, ids of values) and a table of values (dtype, shape, where its
 * bytes are). Each program is compiled once and run for every training step.
 *
 * The calls that Strata makes, in order, while it trains a model:
 *   1. start, then device_info for each device, then device_open for the devices that are used, and `table` for optional
 *      tables;
 *   2. supports, for each node of the step and for fused forms of them. The answers decide which nodes the programs have;
 *   3. buffer_create and upload for parameters and optimizer slots; compile for each program;
 *   4. for each step: the host writes the slot's input arena (the batch), run, wait, and the host reads the output arena (the
 *      loss). Parameters stay in their buffers, where programs update them;
 *   5. download, when the model is saved; program_destroy and buffer_destroy; close.
 *
 * Ops. None is required. Strata composes an op that a device lacks from other ops where it can, and with --allow-fallback host
 * the host runs the rest; matmul and add are enough for a first version. `strata help ops` lists all ops, with the order of
 * inputs and the names of attributes; strata/ops.h has the formulas under the same names (op "matmul": strata_matmul). An
 * attribute that is a flag is an int, 0 or 1. Views, such as reshape, are never nodes: their result is an alias
 * (strata_plugin_value.alias_of).
 *   fused products   matmul and the convolutions may have a bias, an activation or another operand folded in. With v an element
 *                    of the product and n its index along the last axis: if has_bias is 1, v = v + bias[n]; then
 *                    v = activation(v) ("linear" is v itself); then aux, with a an operand of the result's shape: "none": v;
 *                    "add": v + a; "relu_grad": a > 0 ? v : 0; "tanh_grad": v (1 - a^2); "sigmoid_grad": v a (1 - a). The
 *                    inputs are the product's two operands, then the bias if has_bias is 1, then a if aux is not "none". A
 *                    device without fused products answers NO unless has_bias is 0, activation is "linear" and aux is "none".
 *   chains           "chain" is an expression of element-wise ops as one node; its parts are the same expression with one node
 *                    for each op.
 *
 * Rules for every struct and call:
 *   size         The first member of every struct is its size in bytes, as compiled by the side that made the struct. New
 *                versions only append fields. Read a field only where `size` covers it (STRATA_PLUGIN_HAS); a field that is not
 *                covered counts as zero. Tables of structs are arrays of pointers, so the elements of a table can be found
 *                whatever their size.
 *   status       Every call that can fail returns a strata_plugin_status, and if it fails, writes one sentence to `error`: what
 *                is wrong, the values, what to do. Strata adds the device's name. `error` is never NULL.
 *   ownership    Memory that Strata passes is borrowed until the call returns, unless the call's comment differs. An object
 *                that a plugin returns lives until the destroy call that belongs to it. Static tables and texts live as long as
 *                the plugin.
 *   threads      Strata calls a device, its buffers and its programs from one thread at a time, but not always from the same:
 *                start, device_info, device_open, compile and close are each called by a thread of their own. Different devices
 *                may be called by different threads at once. A plugin may create threads.
 *   failure      After a call returned STRATA_PLUGIN_DEVICE_LOST Strata calls only destroy and close of that device.
 *   time         A call that hangs cannot be ended. So each has a limit (`strata help train`: --driver-seconds,
 *                --compile-seconds, --stall-seconds). If it is over, or if a wait returns TIMEOUT, Strata calls nothing of that
 *                device any more, and the command ends.
 *   exceptions   A plugin must not throw an exception, longjmp or exit out of a call; the command reports a plugin that calls
 *                exit. It prints nothing: host->log takes messages.
 *   unloading    A plugin is never unloaded.
 *
 * Versions. STRATA_PLUGIN_VERSION_MAJOR changes when plugins must be compiled again, and the name of the entry symbol changes
 * with it; a library with a newer major version still loads plugins of the older one for at least two years. A new minor
 * version appends fields, attributes of ops, and names of tables, all of them optional for both sides. Within one major version
 * a plugin of any minor version works with a library of any minor version. The number of an enum value is never reused for
 * another meaning. */
#ifndef STRATA_PLUGIN_H
#define STRATA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_PLUGIN_VERSION_MAJOR 1
#define STRATA_PLUGIN_VERSION_MINOR 0

/* Whether a struct that the other side compiled has the field. */
#define STRATA_PLUGIN_HAS(pointer, type, field) ((pointer)->size >= offsetof(type, field) + sizeof(((const type *)0)->field))

#if defined(_WIN32)
#define STRATA_PLUGIN_EXPORT __declspec(dllexport)
#else
#define STRATA_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/* ---- status ---- */

/* int32_t rather than an enum type, because the compiler chooses an enum's size. */
typedef int32_t strata_plugin_status;
enum {
    STRATA_PLUGIN_OK = 0,
    /* The call was wrong. */
    STRATA_PLUGIN_INVALID = 1,
    /* The device is not available now: there is no chip, or its driver does not respond. */
    STRATA_PLUGIN_UNAVAILABLE = 3,
    /* This device cannot do what was requested. */
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
    /* UTF-8, NUL-terminated, written by the call that fails. */
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
    /* Computed by a node of this program and read by other nodes of it. In a piece that is passed to `supports`, every value
     * that is not constant may have this role. */
    STRATA_PLUGIN_TEMPORARY = 0,
    /* Written by the host before each run, in the INPUT arena of the run's slot. */
    STRATA_PLUGIN_INPUT = 1,
    /* Computed by a node and read by the host after each run, in the OUTPUT arena of the run's slot. */
    STRATA_PLUGIN_OUTPUT = 2,
    /* Never changes. `data` points to the elements. */
    STRATA_PLUGIN_CONSTANT = 3,
    /* Stored in a buffer that lives longer than the program, as parameters and optimizer slots are. Nodes that write it update
     * it in place. */
    STRATA_PLUGIN_VARIABLE = 4,
    /* Passed from one program of a step to a later one, in a buffer. `enters` is 1 if an earlier program computed the value,
     * and 0 if this one computes it. */
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

/* One attribute of a node, by name. `strata help ops` lists each op's attributes and the texts that are allowed for them
 * ("relu", "sum"). */
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

/* A value: an array that the program reads or computes. Its elements are in row-major order without gaps. */
typedef struct strata_plugin_value {
    size_t size;
    strata_plugin_dtype dtype;
    strata_plugin_role role;
    /* The number of dimensions, at most 8; 0: a scalar, which has one element. A dimension may be 0. */
    int32_t rank;
    const int64_t *dims;
    /* The number of elements times the bytes of an element. */
    int64_t bytes;
    /* For messages and traces; NULL: none. */
    const char *name;
    /* The id of a value whose bytes this value shares, from byte `alias_offset` on; -1: this value has its own bytes. Examples:
     * a reshape, a variable after an update, and a part of a pack (an op that concatenates values), which is computed directly
     * into the pack. The other value may be an alias too. An alias has the role of the last value of such a chain of aliases.
     * arena_offset, buffer_offset, data and work_offset below are those of this value's own first byte; only for a TEMPORARY
     * without `work` must a plugin add up the offsets along the chain. */
    int32_t alias_of;
    int64_t alias_offset;
    /* The positions in `nodes` of the first node that computes this value and of the last node that reads it; -1: there is no
     * such node in this program. Outside of this span the bytes of a TEMPORARY may be used for another value. The span of a
     * value contains those of its aliases. */
    int32_t first_node, last_node;
    /* CONSTANT: `bytes` bytes of host memory. */
    const void *data;
    /* VARIABLE and CARRIED: the buffer, and where in it the value's bytes begin. */
    strata_plugin_buffer *buffer;
    int64_t buffer_offset;
    /* INPUT and OUTPUT: where the value's bytes begin in the arena of that role. */
    int64_t arena_offset;
    /* CARRIED: 1: an earlier program computed the value; 0: this one computes it. */
    int32_t enters;
    /* TEMPORARY, for devices that set wants_arenas: the buffer, and where in it the value's bytes begin; NULL for other
     * devices. Strata plans this memory: values whose spans do not overlap may share bytes, and the result of an element-wise
     * node may have the bytes of an operand of the same shape that no later node reads. */
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
    /* Inputs that the node updates in place, by position in `inputs` (an optimizer updates its parameters and slots); `output`
     * is then an alias of the first of these inputs. */
    int32_t n_writes;
    const int32_t *writes;
    /* The same computation as a list of simpler nodes, in order; the last one computes `output`. They are the nodes that a
     * fused node was made from, or the composition that replaces an op. Their intermediate values are at the end of `values`; a
     * device that runs the node itself does not need them. 0: there are no parts. */
    int32_t n_parts;
    const strata_plugin_node *const *parts;
    /* For messages; NULL: none. */
    const char *name;
};

/* A piece of a training step, or all of it. */
typedef struct strata_plugin_piece {
    size_t size;
    /* The results must be those of running the nodes in this order. Each node computes a different value. */
    int32_t n_nodes;
    const strata_plugin_node *const *nodes;
    int32_t n_values;
    const strata_plugin_value *const *values;
    /* The bytes of the INPUT arena and of the OUTPUT arena. Each slot has one of each. */
    int64_t input_bytes, output_bytes;
    /* A slot is one set of host memory. The host fills one slot while a run of another slot is in progress. */
    int32_t n_slots;
} strata_plugin_piece;

/* ---- a device ---- */

typedef int32_t strata_plugin_support;
enum {
    /* The device does not run the node. Strata then uses the node's parts if it has any. Otherwise the node is an error, or the
     * host runs it if the user allows that (--allow-fallback host). */
    STRATA_PLUGIN_NO = 0,
    STRATA_PLUGIN_YES = 1,
    /* The device can run the node, but runs its parts faster. */
    STRATA_PLUGIN_PARTS = 2
};

typedef struct strata_plugin_device_info {
    size_t size;
    /* Shown to the user: "Systolic S1", "Acme". */
    const char *name, *vendor, *driver_version;
    /* 0: not known. */
    int64_t memory_bytes;
    /* The largest buffer; 0: memory_bytes. */
    int64_t max_buffer_bytes;
    /* Cores or units, for `strata devices`; 0: not known. */
    int32_t compute_units;
    /* Bit (1 << dtype) for each dtype that values on the device may have. `supports` is never called for nodes with other
     * dtypes. So a device without I32 does not run the nodes that read labels and tokens. */
    uint32_t dtypes;
    /* 1: buffers are the host's memory. */
    int32_t unified_memory;
    /* 1: Strata plans the memory of temporaries (strata_plugin_value.work). 0: the plugin does. */
    int32_t wants_arenas;
    /* Why the device cannot be opened; NULL: it can. */
    const char *skipped;
    /* How long one run, or one copy of the table "transfers", may take, in seconds. If it takes longer, Strata reports TIMEOUT
     * and treats the device as lost. 0: 600. */
    double stall_seconds;
    /* What the f32 operands of products (matmul, convolutions) are rounded to before they are multiplied: F16 or BF16; their
     * sums are f32. F32: they are not rounded. `strata plugin-check` allows for it. */
    strata_plugin_dtype product_dtype;
} strata_plugin_device_info;

/* A device's calls. All are required unless marked "(optional)". */
typedef struct strata_plugin_device_calls {
    size_t size;
    /* The last call for the device, after its buffers and programs have been destroyed. Waits for runs that have not ended. */
    void (*close)(strata_plugin_device *device);

    /* ---- memory ---- */
    /* Creates a buffer of `bytes` (> 0) bytes, which are set to 0. */
    strata_plugin_status (*buffer_create)(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out_buffer,
                                          strata_plugin_error *error);
    /* Called only when no program that uses the buffer runs. */
    void (*buffer_destroy)(strata_plugin_device *device, strata_plugin_buffer *buffer);
    /* Copies from host memory to the buffer, and back. A copy sees the results of every run that was submitted before it, and
     * is done when the call returns. Strata has checked that the range lies in the buffer. */
    strata_plugin_status (*upload)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error);
    strata_plugin_status (*download)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error);

    /* ---- programs ---- */
    /* Whether the device can run nodes[node] of the piece. The answer depends only on the node's op, attributes, dtypes and
     * shapes: the memory of the values is not known yet. Every answer other than YES sets *out_reason to a static text, which
     * may be shown to the user: "no kernel for f16". */
    strata_plugin_support (*supports)(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                      const char **out_reason);
    /* Compiles the piece to a program. `supports` returned YES for all of its nodes. The piece and the data of constants are
     * freed after the call, so the program must copy what it needs of them. The buffers in the piece outlive the program. A
     * plugin that plans the memory of temporaries must give the result of an op "pack" zeroed bytes that no other value shares,
     * because the gaps that may be between the parts of a pack are read too and must be 0. */
    strata_plugin_status (*compile)(strata_plugin_device *device, const strata_plugin_piece *piece,
                                    strata_plugin_program **out_program, strata_plugin_error *error);
    /* Called only when no run of the program is in progress. */
    void (*program_destroy)(strata_plugin_program *program);
    /* The host memory of a slot's two arenas, of piece->input_bytes and piece->output_bytes bytes. The plugin owns it. It is
     * aligned to 64 bytes, and its address stays the same as long as the program lives. Strata writes inputs before a run of
     * the slot, and reads outputs after it has waited for the run. Returning NULL means failure. Not called for an arena of 0
     * bytes. */
    void *(*program_input)(strata_plugin_program *program, int32_t slot);
    const void *(*program_output)(strata_plugin_program *program, int32_t slot);
    /* Submits a run for each of the slots first, first + 1, ..., first + n - 1 (modulo n_slots), and returns at once. The
     * device executes runs in the order of their submission. n is 1, or up to n_slots where the device has the table "steps";
     * the host does nothing between these runs. *out_ticket is the ticket of the last of them, a number larger than every
     * earlier ticket of this device. A device that computes in the caller's thread may return only when the runs have ended. */
    strata_plugin_status (*run)(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                strata_plugin_error *error);
    /* Blocks, without spinning, until the run or copy with this ticket and everything submitted before it has ended. Returns
     * TIMEOUT after timeout_ns. With a timeout of 0 it returns at once. */
    strata_plugin_status (*wait)(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns, strata_plugin_error *error);

    /* (optional) Returns the table of calls with this name, a struct whose first member is its size; NULL: the device does not
     * have it. The tables are below. */
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
    /* How many cores the system has, and the number of this core. Collectives add the cores' operands in the order of these
     * numbers. */
    int32_t n_cores, core;
    /* The size of the grid of cores and this core's coordinates in it, for `strata devices`; rank is at most 4. */
    int32_t rank;
    const int32_t *dims, *coordinates;
} strata_plugin_topology;

/* "collectives": the ops "all_reduce", "all_gather" and "reduce_scatter" between cores of one system, inside of programs. The
 * attribute "members" (ints) lists the numbers of the cores that take part, in ascending order; the program of each of them has
 * the node, with one input. "reduction" is "sum". "lengths" (ints) is the length of each part that is gathered or scattered
 * along "axis" (reduce_scatter: 0), in the order of the members, and "own" is the position of this core's part in "lengths".
 *   order    The programs of all members have the same collectives in the same order. Strata submits the runs of all cores
 *            before it waits for any of them, so run() must not wait for other cores.
 *   bits     Sums are computed in the order of the members, so that every core gets the same bits: F32 is added in F32, F16 and
 *            BF16 are added in F32 and rounded once, and integers wrap around.
 *   failure  When a run fails on one core, the runs of other cores that would wait for that core end with DEVICE_LOST, and
 *            their message names the core that failed. */
typedef struct strata_plugin_collectives {
    size_t size;
    /* Bit (1 << dtype) for each dtype that can be summed. all_gather takes every dtype of the device. */
    uint32_t sum_dtypes;
    /* (optional) How many collectives this core has begun since it was opened. When cores wait for a core that hangs, that core
     * has begun the fewest, and Strata names it in the error. Called by the thread that uses the device, also after a call
     * failed. */
    int64_t (*reached)(strata_plugin_device *device);
} strata_plugin_collectives;

/* "transfers": asynchronous copies, which return before they are done. If a device has this table, Strata uses these copies
 * instead of upload and download of strata_plugin_device_calls, which are required nevertheless. A copy is done when Strata has
 * waited for its ticket; copies and runs take their tickets from one increasing sequence. The results must be as if the device
 * executed everything one after the other in the order of submission: a run reads what was uploaded before it, and a download
 * what was computed before it. A copy that does not end within stall_seconds is treated as a run that does not. When a wait
 * with timeout_ns > 0 fails, also by TIMEOUT, Strata abandons the copies: after that wait has returned, the plugin must not
 * access `source` or `target` of any copy. */
typedef struct strata_plugin_transfers {
    size_t size;
    /* Copies from host memory to the buffer. `source` stays valid and unchanged until Strata has waited for the ticket. */
    strata_plugin_status (*upload)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error);
    /* Copies from the buffer to host memory. Strata reads `target` after it has waited for the ticket. */
    strata_plugin_status (*download)(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error);
    /* (optional) Copies from a buffer of another device of this plugin, `from`, to a buffer of this device, `to`, over the link
     * between them. The ticket belongs to `to`. Nothing runs on `from`, and Strata makes no call for it until it has waited for
     * the ticket. Strata uses this call where several devices get the same values: the first device gets them from the host,
     * the others from the first. */
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
    /* 1: buffer_create allocates from this memory. 0: only programs use it. */
    int32_t buffers;
    /* The peak rate at which the device reads or writes this memory; 0: not known. */
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
    /* The duration of one run, estimated or measured on the device's clock. */
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

/* "profile": which operation each unit of the device executed, and when, for `strata train --trace FILE`. */
typedef struct strata_plugin_span {
    size_t size;
    /* What ran, and on which unit of the device ("matrix", "vector", "dma"). */
    const char *name, *unit;
    /* Times since the device was opened, on a monotonic clock. */
    int64_t begin_ns, end_ns;
} strata_plugin_span;
typedef struct strata_plugin_profile {
    size_t size;
    /* 1: record spans from now on; 0: stop. */
    void (*enable)(strata_plugin_device *device, int32_t on);
    /* Calls `take` with each span since the last call of drain, in the order of begin_ns. */
    void (*drain)(strata_plugin_device *device, void (*take)(void *user, const strata_plugin_span *span), void *user);
    /* The device's clock now, in ns since it was opened. */
    int64_t (*now)(strata_plugin_device *device);
} strata_plugin_profile;

/* ---- the plugin ---- */

/* The functions of Strata that a plugin can call. It lives as long as the process. */
typedef struct strata_plugin_host {
    size_t size;
    int32_t version_major, version_minor;
    /* Takes a message for the user, who sees it with --verbose. Any thread. */
    void (*log)(const char *message);
} strata_plugin_host;

/* Options are texts, "key=value;key=value", as the user wrote them after the file's name: --plugin FILE,key=value. A plugin
 * must report keys that it does not know. */
typedef struct strata_plugin {
    size_t size;
    /* STRATA_PLUGIN_VERSION_MAJOR and _MINOR as the plugin was compiled. */
    int32_t version_major, version_minor;
    /* The name of the plugin's devices: "systolic" gives systolic:0, systolic:1, ... Letters, digits and '-', at most 15. */
    const char *name;
    /* Finds the devices, which are numbered from 0 on, and returns how many there are. Called once, before every other call.
     * `options`: NULL if there are none. */
    strata_plugin_status (*start)(const char *options, int32_t *out_n_devices, strata_plugin_error *error);
    /* Describes device `index` without opening it. The struct is static. */
    const strata_plugin_device_info *(*device_info)(int32_t index);
    /* May be called again for a device that is already open in this process; returns UNAVAILABLE if the device cannot be opened
     * twice. */
    strata_plugin_status (*device_open)(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error);
} strata_plugin;

typedef const strata_plugin *strata_plugin_entry(const strata_plugin_host *host);
#define STRATA_PLUGIN_ENTRY "strata_plugin_v1"

#ifdef __cplusplus
}
#endif
#endif
