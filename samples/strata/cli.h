/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the commands of `strata`: the table of commands, options that are read from tables, exit codes,
 * messages. */
#ifndef STRATA_SAMPLES_CLI_H
#define STRATA_SAMPLES_CLI_H

#include <pthread.h>
#include <stdio.h>
#include <strata/cluster.h>
#include <strata/cluster_spec.h>
#include <strata/strata.h>
#include <time.h>

/* Exit codes: `strata help exit-codes` prints the same list (main.c). */
enum {
    EXIT_OK = 0,
    EXIT_USAGE = 2,
    EXIT_DATA = 3,
    EXIT_DEVICE = 4,
    EXIT_INTERNAL = 5,
    EXIT_INTERRUPTED = 130,
    EXIT_DEVICE_LOST = 160,
    EXIT_OUT_OF_DISK = 161,
    EXIT_PEER_LOST = 162,
    EXIT_TIMEOUT = 163
};

/* ---- options ---- */
/* TEXT is a text, and WORDS one that may be empty. INPUT names a file or folder that the command reads, and OUTPUT one that it
 * writes. LIST is a text_list of the option's values, and INPUTS one of files that are read; these options may be repeated.
 * PLUGIN loads a plugin when it is read, and may be repeated; VERBOSE shows plugins' messages; neither of the two is stored.
 * HEADING is not an option: it begins a group of the help and has its title. */
typedef enum option_kind {
    OPTION_FLAG,
    OPTION_INT,
    OPTION_NUMBER,
    OPTION_TEXT,
    OPTION_WORDS,
    OPTION_INPUT,
    OPTION_OUTPUT,
    OPTION_LIST,
    OPTION_INPUTS,
    OPTION_PLUGIN,
    OPTION_DRIVER_SECONDS,
    OPTION_VERBOSE,
    OPTION_HEADING
} option_kind;

#define OPTION_GROUP(heading) \
    { .name = "", .help = (heading), .kind = OPTION_HEADING }

/* The values of an option that may be repeated. */
enum { MOST_TEXTS = 64 };
typedef struct text_list {
    const char *items[MOST_TEXTS];
    int n;
} text_list;

typedef struct option_row {
    const char *name;  /* without the dashes; a single letter has one dash */
    const char *value; /* the name of the value in the help, for example "DIR"; NULL for flags */
    const char *help;
    option_kind kind;
    size_t offset;      /* in the command's options struct: bool, int64_t, double, const char *, text_list */
    double least, most; /* the range of an INT or NUMBER */
} option_row;

/* The options of another command that were given to this command, in their order. */
typedef struct handed_option {
    const option_row *row;
    const char *text; /* NULL: a flag */
} handed_option;
typedef struct handed_options {
    handed_option items[2 * MOST_TEXTS];
    int n;
} handed_options;

/* A command that runs another command also accepts options of that command: those of some groups, unless it has an option of
 * the same name. */
typedef struct taken_options {
    const option_row *rows;
    /* The groups, ends with NULL. */
    const char *const *groups;
    /* Offsets in the command's options struct: that of the other command's options struct, and that of a handed_options. */
    size_t offset, handed;
} taken_options;

typedef struct command {
    const char *name;
    const char *arguments;     /* "NAME|MODEL.json" */
    const char *summary;       /* one line, for the list of commands */
    const char *details;       /* further lines of its help; NULL: none */
    void (*print_more)(void);  /* prints text after the details, from tables; NULL: there is none */
    const option_row *options; /* ends at a NULL name */
    const taken_options *also; /* NULL: no others */
    int least_arguments, most_arguments;
    /* What the command does with the file of each argument: r reads it, w writes it, - is for an argument that is no file. The
     * last letter is also that of all further arguments. NULL: the arguments are no files. */
    const char *files;
    int (*run)(const struct command *command, int argc, char **argv);
} command;

extern const command command_devices, command_train, command_evaluate, command_predict, command_summary, command_inspect,
    command_data, command_bench, command_launch, command_cluster, command_completion, command_plot, command_plugin_check,
    command_plugin_new, command_compile, command_convert, command_export, command_serve, command_trace, command_graph,
    command_tune;
extern const command *const commands[]; /* ends with NULL */

/* Reads argv[1..] by the command's table into `options`; other arguments are stored in arguments[0..n_arguments), in their
 * order. Returns EXIT_OK, EXIT_USAGE after a message on stderr, or -1 after printing the help. */
int read_options(const command *command, int argc, char **argv, void *options, const char **arguments, int *n_arguments);
void print_command_help(const command *command);
/* named_files.c: checks that no output of the command is one of its inputs or of its other outputs. Returns an exit code, after
 * a message. read_options calls it. */
int check_outputs(const command *command, const void *options, const char *const *arguments, int n_arguments);
/* The same for one file that the command finds out later. option: what writes it, for the message. */
int check_output(const char *option, const char *path, const char *input);
/* The row after `row`, including headings; NULL: the first row. Returns NULL after the last row. */
const option_row *next_row(const command *command, const option_row *row);
/* Whether the row is one of the command's own options, and not one that it accepts of another command. */
bool is_own_row(const command *command, const option_row *row);

/* ---- messages ---- */
/* What has failed. The same status has different exit codes for, say, a missing file and a missing device. */
typedef enum failing { FAILING_USAGE, FAILING_DATA, FAILING_DEVICE, FAILING_RUN } failing;
/* Prints "strata: <message>" on stderr; returns the exit code. */
int report(failing about, strata_status status, const strata_error *err);
int usage_error(const char *format, ...) STRATA_PRINTF(1, 2);

/* ---- driver_failure.c: drivers that hang or call exit ---- */
/* Called first: from now on a driver or plugin that hangs in a call, or calls exit, ends the process with a message and an exit
 * code. do_not_watch_drivers ends this, in a process that another one watches. */
void watch_drivers(void);
void do_not_watch_drivers(void);
/* save(user) is then called before the end, while no other thread uses what the command uses. */
void save_at_driver_failure(void (*save)(void *user), void *user);
/* Sets the limit of --driver-seconds; 0: the default. Returns an exit code. */
int set_driver_seconds(double seconds);
/* The last call of main. Returns the code, or ends the process with it if a thread may still be in a driver. */
int end_of_command(int code);

/* ---- what several commands do ---- */
typedef struct device_flags {
    const char *which, *allow_fallback;
    bool fast, direct, no_tune, no_cache, trust;
    double compile_seconds, stall_seconds;
    /* These are passed on in strata_device_options. */
    strata_compile_callback on_compile;
    bool (*is_interrupted)(void *user);
    void *user;
} device_flags;
#define PLUGIN_OPTION_ROWS                                                                                    \
    {"plugin",                                                                                                \
     "FILE[,K=V]|pjrt:FILE",                                                                                  \
     "load a vendor's plugin with its options, or an OpenXLA PJRT plugin; may be repeated ($STRATA_PLUGINS)", \
     OPTION_PLUGIN,                                                                                           \
     0,                                                                                                       \
     0,                                                                                                       \
     0},                                                                                                      \
        {"driver-seconds",                                                                                    \
         "S",                                                                                                 \
         "the longest time in which a driver or plugin may start, list, open or close a device (60)",         \
         OPTION_DRIVER_SECONDS,                                                                               \
         0,                                                                                                   \
         0.01,                                                                                                \
         1e9},                                                                                                \
    {                                                                                                         \
        "verbose", NULL, "show the messages of plugins on stderr", OPTION_VERBOSE, 0, 0, 0                    \
    }
#define DEVICE_OPTION_ROWS(type, member)                                                                              \
    {"device",                                                                                                        \
     "WHICH",                                                                                                         \
     "the device: opencl:0, vulkan:1, host, part of a name, or opencl:part (the best)",                               \
     OPTION_TEXT,                                                                                                     \
     offsetof(type, member.which),                                                                                    \
     0,                                                                                                               \
     0},                                                                                                              \
        {"allow-fallback",                                                                                            \
         "host",                                                                                                      \
         "the host runs nodes that the device cannot run, which needs copies (an error lists these nodes)",           \
         OPTION_TEXT,                                                                                                 \
         offsetof(type, member.allow_fallback),                                                                       \
         0,                                                                                                           \
         0},                                                                                                          \
        {"fast",                                                                                                      \
         NULL,                                                                                                        \
         "use faster kernels with slightly different rounding (matrix units for f32, CLBlast)",                       \
         OPTION_FLAG,                                                                                                 \
         offsetof(type, member.fast),                                                                                 \
         0,                                                                                                           \
         0},                                                                                                          \
        {"direct",                                                                                                    \
         NULL,                                                                                                        \
         "compute convolutions without Winograd's method, which has larger rounding errors",                          \
         OPTION_FLAG,                                                                                                 \
         offsetof(type, member.direct),                                                                               \
         0,                                                                                                           \
         0},                                                                                                          \
        {"no-tune",                                                                                                   \
         NULL,                                                                                                        \
         "use the default kernels; do not read or write the tuning file",                                             \
         OPTION_FLAG,                                                                                                 \
         offsetof(type, member.no_tune),                                                                              \
         0,                                                                                                           \
         0},                                                                                                          \
        {"trust",                                                                                                     \
         NULL,                                                                                                        \
         "do not compare what the driver or plugin computes with the reference on first use",                         \
         OPTION_FLAG,                                                                                                 \
         offsetof(type, member.trust),                                                                                \
         0,                                                                                                           \
         0},                                                                                                          \
        {"compile-seconds",                                                                                           \
         "S",                                                                                                         \
         "the longest time in which a driver may compile a kernel (120), or a plugin a program (600)",                \
         OPTION_NUMBER,                                                                                               \
         offsetof(type, member.compile_seconds),                                                                      \
         0.01,                                                                                                        \
         1e9},                                                                                                        \
        {"stall-seconds",                                                                                             \
         "S",                                                                                                         \
         "the longest time of a step on the device, and of a driver's or plugin's other calls (600)",                 \
         OPTION_NUMBER,                                                                                               \
         offsetof(type, member.stall_seconds),                                                                        \
         0.01,                                                                                                        \
         1e9},                                                                                                        \
        PLUGIN_OPTION_ROWS, {                                                                                         \
        "no-cache", NULL, "do not store compiled kernels on disk", OPTION_FLAG, offsetof(type, member.no_cache), 0, 0 \
    }

/* Converts the flags to options. Returns the exit code, after a message. */
int read_device_flags(const device_flags *flags, strata_device_options *out_options);
int open_device(const device_flags *flags, strata_device **out_device);

/* fallback.c: prints on stderr which nodes of a program the host runs for its device, and later which copies that needed.
 * Prints nothing if the host runs none. */
typedef struct fallback_report {
    const strata_device *device;
    /* How many nodes of the program the host runs. */
    int n_host;
    strata_device_counters before;
    /* The copies and bytes of one run, set by say_what_it_copied. */
    double copies, bytes;
} fallback_report;
strata_status say_what_the_host_runs(strata_model *model, strata_model_part part, int64_t batch, int replica,
                                     const strata_device *device, fallback_report *out_report, strata_error *err);
/* Prints how many copies and bytes a run of the program needed. `run`: the word for one run, for example "step". */
void say_what_it_copied(fallback_report *report, const char *run);

typedef struct strategy_flags {
    const char *name, *devices, *parameter_device, *split, *cluster, *task, *tls_cert, *tls_key, *tls_ca, *tls_name;
    const char *cross_device_ops;
    const char *compress, *engine, *transport, *interface, *shard_optimizer, *tpu_address;
    const char *role, *partitioner, *staleness, *old_gradients;
    double wait_s, heartbeat_s, stall_s;
    bool insecure, sync;
    int64_t backup, ps_replicas;
    int64_t bytes_per_pack;
    /* After how many steps local_sgd averages; 0: the default. */
    int64_t every;
    /* model_parallel. */
    const char *mesh, *layout, *schedule;
    int64_t microbatches, zero;
} strategy_flags;
#define CLUSTER_OPTION_ROWS(type, member)                                                                                      \
    {"cluster",                                                                                                                \
     "A:PORT,B:PORT",                                                                                                          \
     "the addresses of the workers ($TF_CONFIG or the launcher's environment)",                                                \
     OPTION_TEXT,                                                                                                              \
     offsetof(type, member.cluster),                                                                                           \
     0,                                                                                                                        \
     0},                                                                                                                       \
        {"task", "worker:1", "with --cluster: which of the workers this process is", OPTION_TEXT, offsetof(type, member.task), \
         0,      0},                                                                                                           \
        {"tls-cert",                                                                                                           \
         "FILE",                                                                                                               \
         "TLS between workers: this worker's certificate as PEM ($STRATA_TLS_CERT)",                                           \
         OPTION_INPUT,                                                                                                         \
         offsetof(type, member.tls_cert),                                                                                      \
         0,                                                                                                                    \
         0},                                                                                                                   \
        {"tls-key",                                                                                                            \
         "FILE",                                                                                                               \
         "the certificate's key ($STRATA_TLS_KEY, else in the file of the certificate)",                                       \
         OPTION_INPUT,                                                                                                         \
         offsetof(type, member.tls_key),                                                                                       \
         0,                                                                                                                    \
         0},                                                                                                                   \
        {"tls-ca",                                                                                                             \
         "FILE",                                                                                                               \
         "the certificates of trusted authorities ($STRATA_TLS_CA)",                                                           \
         OPTION_INPUT,                                                                                                         \
         offsetof(type, member.tls_ca),                                                                                        \
         0,                                                                                                                    \
         0},                                                                                                                   \
        {"interface",                                                                                                          \
         "NAME",                                                                                                               \
         "listen on this network interface or address (the one that reaches rank 0)",                                          \
         OPTION_TEXT,                                                                                                          \
         offsetof(type, member.interface),                                                                                     \
         0,                                                                                                                    \
         0},                                                                                                                   \
        {"insecure",                                                                                                           \
         NULL,                                                                                                                 \
         "let other hosts connect without a secret ($STRATA_SECRET)",                                                          \
         OPTION_FLAG,                                                                                                          \
         offsetof(type, member.insecure),                                                                                      \
         0,                                                                                                                    \
         0},                                                                                                                   \
        {"wait",                                                                                                               \
         "S",                                                                                                                  \
         "for how many seconds this worker waits for the others (60)",                                                         \
         OPTION_NUMBER,                                                                                                        \
         offsetof(type, member.wait_s),                                                                                        \
         0.1,                                                                                                                  \
         1e6},                                                                                                                 \
        {"heartbeat",                                                                                                          \
         "S",                                                                                                                  \
         "seconds between heartbeats; a worker of which five are missing is lost (1)",                                         \
         OPTION_NUMBER,                                                                                                        \
         offsetof(type, member.heartbeat_s),                                                                                   \
         0.01,                                                                                                                 \
         1e6},                                                                                                                 \
        {"stall",                                                                                                              \
         "S",                                                                                                                  \
         "seconds after which a sum without progress fails, although all workers are alive (300)",                             \
         OPTION_NUMBER,                                                                                                        \
         offsetof(type, member.stall_s),                                                                                       \
         0.1,                                                                                                                  \
         1e9},                                                                                                                 \
    {                                                                                                                          \
        "tls-name", "NAME", "the name that every certificate must have ($STRATA_TLS_NAME, else the host)", OPTION_TEXT,        \
            offsetof(type, member.tls_name), 0, 0                                                                              \
    }
/* A strategy and, with several workers, their communicator. */
typedef struct opened_strategy {
    strata_strategy *strategy;
    strata_communicator *communicator;
    bool chief; /* this process writes files and prints */
    /* For parameter_server: this task is the evaluator; the cluster has an evaluator. */
    bool evaluates, has_evaluator;
    /* For parameter_server: the name of this task, for example "worker1"; "" is the chief. */
    char task[32];
} opened_strategy;
/* Reads --compress, "bf16" or "f16"; NULL means f32. Returns the exit code, after a message. */
int read_compress(const char *text, strata_dtype *out_wire);
/* Reads the file of --layout. *out_text NULL: none is named, or "auto"; else the caller frees it. Returns the exit code, after
 * a message. */
int read_layout(const char *layout, char **out_text);
/* Opens the strategy of --strategy, --devices (a,b,c), --parameter-device and --split (3:1, auto); --device names one
 * device. */
int open_strategy(const strategy_flags *flags, const device_flags *device, opened_strategy *out_opened);
void close_strategy(opened_strategy *opened); /* after everything that uses the strategy was destroyed */
/* Whether --tls-cert or the environment enables TLS. */
bool wants_tls(const strategy_flags *flags);
/* A free port of 127.0.0.1; -1: there is none, and errno has the reason. *out_socket, which the caller closes if it is not -1,
 * reserves the port: since it is bound, the system does not assign the port to others; since it does not listen, a process that
 * sets SO_REUSEADDR can still bind the port and listen there (socket(7)). */
int hold_port(int *out_socket);
/* Find the tasks of the job from --cluster and --task, or from the environment. resolve_workers fails unless this task is one
 * that trains. join_workers creates the communicator of the tasks; `more` has the options that the flags do not set. All return
 * exit codes, after a message. */
int resolve_tasks(const strategy_flags *flags, strata_cluster_spec *out_spec);
int resolve_workers(const strategy_flags *flags, strata_cluster_spec *out_spec);
int join_workers(const strategy_flags *flags, const strata_cluster_spec *spec, const strata_communicator_options *more,
                 strata_communicator **out_comm);

/* Prints ",\"metrics\":{\"auc\":0.9, ...}" with the metrics of --metrics, including the confusion matrix; prints nothing if
 * there are none. */
void print_more_json(const strata_model *model, const strata_metrics *metrics);
/* manual.c: the manual page of all commands, in troff. */
void print_manual(const char *exit_codes);
/* layers.c: prints the layers and options of a model.json. */
int print_layers(void);
/* ops.c: prints every op with its attributes, as plugins get them. */
int print_ops(void);
/* Prints each further metric, for example "  auc 0.9000", with the prefix before its name. */
void print_more(FILE *to, const strata_metrics *metrics, const char *prefix);
/* Prints the confusion matrix as a table, if --metrics contains it. */
void print_confusion(const strata_model *model);
/* The largest resident memory of the process so far, in MiB. */
int64_t peak_rss_mib(void);
/* Write a JSON string with quotes, and an array of the shape's dimensions. */
void print_json_string(const char *text);
void print_json_shape(strata_shape shape);
/* Prints a number in printf's format; prints null for infinity and NaN, which JSON does not have. */
void print_json_number(double value, const char *format);
/* A number in a short form: 1234567.0 becomes "1.23 M". */
typedef struct readable_number {
    char text[32];
} readable_number;
readable_number readable(double value);
bool ends_with(const char *text, const char *end);
double now_seconds(void);
/* Makes a condition for pthread_cond_timedwait with times of the monotonic clock, as time_after returns them. */
void condition_init(pthread_cond_t *condition);
/* The time `seconds` from now. */
struct timespec time_after(double seconds);

#endif
