/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin of samples/plugin with one or several faults. STRATA_FAULTY names them, separated by '+':
 *
 *     entry-null size-small size-large major-0 major-2 minor-9 no-start no-device-info no-device-open name-long name-host
 *     start-fails start-many start-crash start-exit info-null info-small skipped
 *     open-null calls-null calls-small null:SLOT
 *     fail:CALL:K       the K-th call fails with OUT_OF_MEMORY
 *     lost:CALL:K       the K-th call fails with DEVICE_LOST; any call but destroy and close after it ends the process, and so
 *                       does a destroy of what a run uses that has not been waited for, as in all faults
 *     status            compile returns a status that plugin.h does not define
 *     silent            compile fails and writes no message
 *     refuses           compile fails with UNSUPPORTED
 *     support           supports returns a value that plugin.h does not define
 *     parts             supports asks for the parts of every node
 *     ticket            runs have the ticket 1
 *     no-ticket         the ticket of a run, an upload, a download or a copy is not written
 *     input-null input-odd output-null program-null buffer-null wrong
 *     hang              no run ends, so that wait times out
 *     hang-later:K      no run ends from the K-th wait on
 *     short             run leaves out the last element of an output
 *     skips             run leaves out the last step if there are several, so that tests of single ops find no error
 *     crash-run exit-run
 *     hangs:CALL        the call does not return; exits:CALL: it calls exit(0). CALL may also be entry, start or device_info.
 *                       hangs:CALL:K, exits:CALL:K: only the K-th call
 *     slow:MS           run takes this many milliseconds longer, which is not a fault
 *     copies            it has the table "transfers", which is not a fault; a copy is made at the next run or wait
 *     unordered         with copies: pending copies are made in the wrong order, the newest first
 *
 *     FIELD=NUMBER      a number of device_info
 *     noise             every fifth run adds a unit in the last place to an element
 *     large             results of more than 10000 elements are wrong in their last element
 *     thousandth        every 1000th element of a result is wrong
 *     half              operands of matmul are rounded to f16
 *     early             wait returns before the newest run is made
 *     stale             an upload of more than 1 MiB leaves the rest of the buffer as it was
 *     dirty             new buffers have the bytes of one that was destroyed
 *     writes-source writes-piece     upload, compile: writes to what it borrows
 *     keeps-source keeps-piece       upload, compile: reads what it borrowed in an earlier call
 *     leaks-run leaks-buffer leaks-program
 *
 * The plugin's name is "faulty". */
#define strata_plugin_v1 healthy_plugin
#include "samples/plugin/acme.c"
#undef strata_plugin_v1

#include <math.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static const char *fault(void) {
    const char *text = getenv("STRATA_FAULTY");
    return text ? text : "";
}

/* Whether the fault of this name is active. STRATA_FAULTY may name several, separated by '+'. */
static bool is(const char *name) {
    const size_t n = strlen(name);
    for (const char *at = fault(); *at; at += strcspn(at, "+"), at += *at == '+')
        if (strcspn(at, "+") == n && !strncmp(at, name, n)) return true;
    return false;
}

/* ---- the K-th call ---- */

static bool lost;

/* Whether this is the call that the fault "KIND:name:K" selects. */
static bool is_call(const char *kind, const char *name) {
    static char seen[64];
    static int count;
    char begin[64];
    const int n = snprintf(begin, sizeof begin, "%s:%s:", kind, name);
    const char *at = strstr(fault(), begin);
    if (!at) return false;
    if (strcmp(seen, fault()) != 0) { /* another fault than in the last call: the counting starts again */
        snprintf(seen, sizeof seen, "%s", fault());
        count = 0;
    }
    return ++count == atoi(at + n);
}

static void misbehave(const char *name) {
    char each[64];
    snprintf(each, sizeof each, "hangs:%s", name);
    const bool nth = is_call("hangs", name);
    while (nth || is(each)) usleep(10000); /* a test may end the hang by another value of the variable */
    snprintf(each, sizeof each, "exits:%s", name);
    if (is(each) || is_call("exits", name)) exit(0);
}

/* Strata destroys nothing of a device that hangs, and nothing that a run of a lost device may use. The list refers to these
 * objects, so that LeakSanitizer does not report them. */
enum { MOST_HELD = 256 };
extern const void *strata_faulty_held[MOST_HELD];
const void *strata_faulty_held[MOST_HELD];

static void hold(const void *object) {
    static int n_held;
    if (strstr(fault(), "hang") || strstr(fault(), "lost")) strata_faulty_held[n_held++ % MOST_HELD] = object;
}

static strata_plugin_status before(const char *name, strata_plugin_error *error) {
    misbehave(name);
    if (lost) _exit(99); /* no call but destroy and close may follow */
    if (is_call("fail", name)) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "injected", 0);
    if (!is_call("lost", name)) return STRATA_PLUGIN_OK;
    lost = true;
    return fail(error, STRATA_PLUGIN_DEVICE_LOST, "the chip does not answer", 0);
}

#define BEFORE(name)                                              \
    do {                                                          \
        strata_plugin_status before_status = before(name, error); \
        if (before_status) return before_status;                  \
    } while (0)

/* ---- deferred copies ---- */

enum { MOST_LATER = 64 };
static struct {
    void *to;
    const void *from;
    size_t bytes;
} later[MOST_LATER];
static int n_later;

static void make_copies(void) {
    for (int k = 0; k < n_later; k++) {
        const int i = is("unordered") ? n_later - 1 - k : k;
        memcpy(later[i].to, later[i].from, later[i].bytes);
    }
    n_later = 0;
}

static strata_plugin_status copy_later(strata_plugin_device *device, void *to, const void *from, int64_t bytes,
                                       uint64_t *out_ticket) {
    if (is("no-ticket")) return STRATA_PLUGIN_OK;
    if (n_later == MOST_LATER) make_copies();
    later[n_later].to = to;
    later[n_later].from = from;
    later[n_later++].bytes = (size_t)bytes;
    *out_ticket = ++device->last_ticket;
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status begin_upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                         const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    BEFORE("upload");
    return copy_later(device, buffer->bytes + offset, source, bytes, out_ticket);
}

static strata_plugin_status begin_download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                           void *target, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    BEFORE("download");
    return copy_later(device, target, buffer->bytes + offset, bytes, out_ticket);
}

/* ---- runs that have not been waited for ---- */

enum { MOST_ACTIVE = 64 };
static struct {
    strata_plugin_program *program;
    uint64_t ticket;
} active[MOST_ACTIVE];

static void begin_run(strata_plugin_program *program, uint64_t ticket) {
    for (int i = 0; i < MOST_ACTIVE; i++)
        if (!active[i].program) {
            active[i].program = program;
            active[i].ticket = ticket;
            return;
        }
}

static void end_runs(uint64_t ticket) {
    for (int i = 0; i < MOST_ACTIVE; i++)
        if (active[i].ticket <= ticket) active[i].program = NULL;
}

/* Ends the process if a run uses the program, or, for NULL, any. */
static void expect_idle(const strata_plugin_program *program) {
    for (int i = 0; i < MOST_ACTIVE; i++)
        if (active[i].program && (!program || active[i].program == program)) _exit(98);
}

/* ---- faults of results ---- */

/* With the fault "early": the run that is made when it is too late. */
static struct {
    strata_plugin_program *program;
    int32_t slot;
} late;

static void make_late_run(void) {
    strata_plugin_error error = {.size = sizeof error};
    uint64_t ticket;
    strata_plugin_program *program = late.program;
    late.program = NULL;
    if (program) run(program, late.slot, 1, &ticket, &error);
}

static void round_operands(const strata_plugin_program *program, int32_t slot) {
    for (int k = 0; k < program->n_steps; k++) {
        const int32_t operands[2] = {program->steps[k].a, program->steps[k].b};
        for (int i = 0; i < 2 && program->steps[k].is_matmul; i++) {
            float *x = address(program, operands[i], slot);
            for (int64_t e = 0; e < elements(&program->values[operands[i]]); e++) {
                int exponent;
                const double fraction = frexp(x[e], &exponent);
                x[e] = (float)ldexp(rint(fraction * 2048), exponent - 11); /* the 11 bits of an f16 */
            }
        }
    }
}

/* Damages the results of a run that was right. */
static void damage(const strata_plugin_program *program, int32_t slot) {
    static int n_runs;
    n_runs++;
    for (int k = 0; k < program->n_steps; k++) {
        const value *out = &program->values[program->steps[k].out];
        const int64_t n = elements(out);
        float *y = address(program, program->steps[k].out, slot);
        if (is("large") && n > 10000) y[n - 1] += 1;
        for (int64_t i = 999; i < n && is("thousandth"); i += 1000) y[i] += 1;
        if (is("noise") && n > 1 && n_runs % 5 == 0) y[n / 2] *= 1.0000002f;
    }
}

static const void *faulty_table(strata_plugin_device *device, const char *name) {
    static const strata_plugin_transfers transfers = {
        .size = sizeof transfers, .upload = begin_upload, .download = begin_download};
    (void)device;
    misbehave("table");
    return is("copies") && !strcmp(name, "transfers") ? &transfers : NULL;
}

/* ---- calls ---- */

static strata_plugin_status faulty_buffer_create(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out_buffer,
                                                 strata_plugin_error *error) {
    BEFORE("buffer_create");
    if (is("buffer-null")) return STRATA_PLUGIN_OK;
    static int64_t earlier_bytes;
    const strata_plugin_status status = buffer_create(device, bytes, out_buffer, error);
    if (!status) hold(*out_buffer);
    if (!status && is("dirty") && bytes == earlier_bytes) (*out_buffer)->bytes[bytes - 1] = 1;
    earlier_bytes = bytes;
    return status;
}

static void faulty_buffer_destroy(strata_plugin_device *device, strata_plugin_buffer *buffer) {
    misbehave("buffer_destroy");
    if (lost) expect_idle(NULL);
    if (!is("leaks-buffer")) buffer_destroy(device, buffer);
}

static void faulty_close(strata_plugin_device *device) {
    misbehave("close");
    close_device(device);
}

static strata_plugin_status faulty_upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                          const void *source, int64_t bytes, strata_plugin_error *error) {
    BEFORE("upload");
    if (is("copies")) return fail(error, STRATA_PLUGIN_INTERNAL, "the table has copies of %lld bytes", bytes);
    static const volatile char *kept;
    make_late_run();
    if (is("keeps-source") && kept) (void)*kept;
    kept = source;
    if (is("writes-source")) ((volatile char *)source)[0] ^= 1;
    if (is("stale") && bytes > 1 << 20) bytes = 1 << 20;
    return upload(device, buffer, offset, source, bytes, error);
}

static strata_plugin_status faulty_download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                            void *target, int64_t bytes, strata_plugin_error *error) {
    BEFORE("download");
    make_late_run();
    return download(device, buffer, offset, target, bytes, error);
}

static strata_plugin_support faulty_supports(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                             const char **out_reason) {
    if (lost) _exit(99);
    misbehave("supports");
    if (is("support")) return 7;
    if (is("parts") && piece->nodes[node]->n_parts) return STRATA_PLUGIN_PARTS;
    return supports(device, piece, node, out_reason);
}

static strata_plugin_status faulty_compile(strata_plugin_device *device, const strata_plugin_piece *piece,
                                           strata_plugin_program **out_program, strata_plugin_error *error) {
    BEFORE("compile");
    if (is("status")) return 77;
    if (is("silent")) return STRATA_PLUGIN_UNAVAILABLE;
    if (is("refuses"))
        return fail(error, STRATA_PLUGIN_UNSUPPORTED, "the compiler has no kernel for %lld nodes", piece->n_nodes);
    if (is("program-null")) return STRATA_PLUGIN_OK;
    static const volatile strata_plugin_piece *kept;
    if (is("keeps-piece") && kept) (void)kept->n_nodes;
    kept = piece;
    if (is("writes-piece")) ((volatile strata_plugin_piece *)(uintptr_t)piece)->n_slots = piece->n_slots;
    const strata_plugin_status status = compile(device, piece, out_program, error);
    if (!status) hold(*out_program);
    return status;
}

static void faulty_program_destroy(strata_plugin_program *program) {
    misbehave("program_destroy");
    expect_idle(program);
    if (late.program == program) late.program = NULL;
    if (!is("leaks-program")) program_destroy(program);
}

static void *faulty_program_input(strata_plugin_program *program, int32_t slot) {
    misbehave("program_input");
    if (is("input-null")) return NULL;
    return (char *)program_input(program, slot) + (is("input-odd") ? 4 : 0);
}

static const void *faulty_program_output(strata_plugin_program *program, int32_t slot) {
    return is("output-null") ? NULL : program_output(program, slot);
}

static void *leaked;

static strata_plugin_status faulty_run(strata_plugin_program *program, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                       strata_plugin_error *error) {
    BEFORE("run");
    make_copies();
    make_late_run();
    if (is("early")) {
        late.program = program;
        late.slot = first_slot;
        *out_ticket = ++program->device->last_ticket;
        return STRATA_PLUGIN_OK;
    }
    if (is("leaks-run")) *(void *volatile *)&leaked = malloc(40);
    if (is("half")) round_operands(program, first_slot);
    const char *slow = strstr(fault(), "slow:");
    if (slow) usleep((useconds_t)atoi(slow + strlen("slow:")) * 1000);
    if (is("crash-run")) abort();
    if (is("exit-run")) _exit(3);
    const step *end = &program->steps[program->n_steps - 1];
    const bool is_short = is("short") && program->n_steps && program->values[end->out].role == STRATA_PLUGIN_OUTPUT &&
                          elements(&program->values[end->out]);
    float *last = is_short ? address(program, end->out, first_slot) + elements(&program->values[end->out]) - 1 : NULL;
    const float before = last ? *last : 0;
    const int skipped = is("skips") && program->n_steps > 1;
    program->n_steps -= skipped;
    uint64_t ticket = 0;
    const strata_plugin_status status = run(program, first_slot, n, &ticket, error);
    program->n_steps += skipped;
    damage(program, first_slot);
    /* Strata cannot wait for a run without a ticket. */
    if (!is("ticket") && !is("no-ticket")) begin_run(program, ticket);
    if (last) *last = before;
    if (!is("no-ticket")) *out_ticket = is("ticket") ? 1 : ticket;
    if (is("wrong") && program->outputs[first_slot]) *(float *)(void *)program->outputs[first_slot] += 1;
    return status;
}

/* With the fault "hang" it behaves like a device whose program never ends. */
static strata_plugin_status faulty_wait(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns,
                                        strata_plugin_error *error) {
    const strata_plugin_status status = before("wait", error);
    if (status) n_later = 0; /* after an error the device must not access host memory any more */
    if (status) return status;
    make_copies();
    static int waits;
    const char *later = strstr(fault(), "hang-later:");
    const bool hangs = is("hang") || (later && ++waits >= atoi(later + strlen("hang-later:")));
    if (!hangs) {
        end_runs(ticket);
        return wait_for(device, ticket, timeout_ns, error);
    }
    const struct timespec time = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    nanosleep(&time, NULL);
    lost = timeout_ns > 0; /* Strata treats the device as lost from now on */
    return STRATA_PLUGIN_TIMEOUT;
}

/* ---- tables that are larger than in this version of Strata ---- */

static struct {
    strata_plugin_device_calls calls;
    char later[64];
} own_calls;
static struct {
    strata_plugin_device_info info;
    char later[64];
} own_info;
static struct {
    strata_plugin plugin;
    char later[64];
} own_plugin;

static strata_plugin_status faulty_start(const char *options, int32_t *out_n_devices, strata_plugin_error *error) {
    misbehave("start");
    if (is("start-fails")) return fail(error, STRATA_PLUGIN_UNAVAILABLE, "no chip on board %lld", 3);
    if (is("start-crash")) abort();
    if (is("start-exit")) _exit(3);
    const strata_plugin_status status = start(options, out_n_devices, error);
    if (is("start-many")) *out_n_devices = -5;
    return status;
}

/* The number that the fault "FIELD=NUMBER" gives; `otherwise` without it. */
static double number(const char *field, double otherwise) {
    const size_t n = strlen(field);
    for (const char *at = fault(); *at; at += strcspn(at, "+"), at += *at == '+')
        if (!strncmp(at, field, n) && at[n] == '=') return strtod(at + n + 1, NULL);
    return otherwise;
}

static const strata_plugin_device_info *faulty_device_info(int32_t index) {
    misbehave("device_info");
    own_info.info = *device_info(index);
    own_info.info.size = is("info-small") ? 24 : is("size-large") ? sizeof own_info : sizeof own_info.info;
    strata_plugin_device_info *i = &own_info.info;
    i->memory_bytes = (int64_t)number("memory_bytes", (double)i->memory_bytes);
    i->max_buffer_bytes = (int64_t)number("max_buffer_bytes", (double)i->max_buffer_bytes);
    i->compute_units = (int32_t)number("compute_units", i->compute_units);
    i->dtypes = (uint32_t)number("dtypes", i->dtypes);
    i->unified_memory = (int32_t)number("unified_memory", i->unified_memory);
    i->wants_arenas = (int32_t)number("wants_arenas", i->wants_arenas);
    i->stall_seconds = number("stall_seconds", i->stall_seconds);
    i->product_dtype = (int32_t)number("product_dtype", i->product_dtype);
    if (is("skipped")) own_info.info.skipped = "the board has no power";
    return is("info-null") ? NULL : &own_info.info;
}

static void drop(const char *slot) {
    const struct {
        const char *name;
        void **slot;
    } slots[] = {{"close", (void **)&own_calls.calls.close},
                 {"buffer_create", (void **)&own_calls.calls.buffer_create},
                 {"buffer_destroy", (void **)&own_calls.calls.buffer_destroy},
                 {"upload", (void **)&own_calls.calls.upload},
                 {"download", (void **)&own_calls.calls.download},
                 {"supports", (void **)&own_calls.calls.supports},
                 {"compile", (void **)&own_calls.calls.compile},
                 {"program_destroy", (void **)&own_calls.calls.program_destroy},
                 {"program_input", (void **)&own_calls.calls.program_input},
                 {"program_output", (void **)&own_calls.calls.program_output},
                 {"run", (void **)&own_calls.calls.run},
                 {"wait", (void **)&own_calls.calls.wait}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (!strcmp(slots[i].name, slot)) *slots[i].slot = NULL;
}

/* Devices whose function `close` a fault has removed. The list refers to them, so that LeakSanitizer does not report them. */
enum { MOST_KEPT = 64 };
static strata_plugin_device *kept[MOST_KEPT];
static int n_kept;

static strata_plugin_status faulty_open(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    lost = false;
    end_runs(UINT64_MAX);
    BEFORE("device_open");
    const strata_plugin_status status = device_open(index, out_device, out_calls, error);
    if (status) return status;
    kept[n_kept++ % MOST_KEPT] = *out_device;
    own_calls.calls = **out_calls;
    own_calls.calls.size = is("calls-small")  ? offsetof(strata_plugin_device_calls, run)
                           : is("size-large") ? sizeof own_calls
                                              : sizeof own_calls.calls;
    own_calls.calls.close = faulty_close;
    own_calls.calls.buffer_create = faulty_buffer_create;
    own_calls.calls.buffer_destroy = faulty_buffer_destroy;
    own_calls.calls.program_destroy = faulty_program_destroy;
    own_calls.calls.upload = faulty_upload;
    own_calls.calls.download = faulty_download;
    own_calls.calls.supports = faulty_supports;
    own_calls.calls.compile = faulty_compile;
    own_calls.calls.program_input = faulty_program_input;
    own_calls.calls.program_output = faulty_program_output;
    own_calls.calls.run = faulty_run;
    own_calls.calls.wait = faulty_wait;
    own_calls.calls.table = faulty_table;
    if (!strncmp(fault(), "null:", 5)) drop(fault() + 5);
    *out_calls = is("calls-null") ? NULL : &own_calls.calls;
    if (is("open-null")) *out_device = NULL;
    return STRATA_PLUGIN_OK;
}

STRATA_PLUGIN_EXPORT const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
const strata_plugin *strata_plugin_v1(const strata_plugin_host *host) {
    misbehave("entry");
    own_plugin.plugin = *healthy_plugin(host);
    own_plugin.plugin.name = is("name-long") ? "a-name-of-many-letters" : is("name-host") ? "host" : "faulty";
    own_plugin.plugin.size = is("size-small") ? 16 : is("size-large") ? sizeof own_plugin : sizeof own_plugin.plugin;
    if (is("major-0")) own_plugin.plugin.version_major = 0;
    if (is("major-2")) own_plugin.plugin.version_major = 2;
    if (is("minor-9")) own_plugin.plugin.version_minor = 9;
    own_plugin.plugin.start = is("no-start") ? NULL : faulty_start;
    own_plugin.plugin.device_info = is("no-device-info") ? NULL : faulty_device_info;
    own_plugin.plugin.device_open = is("no-device-open") ? NULL : faulty_open;
    return is("entry-null") ? NULL : &own_plugin.plugin;
}
