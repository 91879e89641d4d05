/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole list of launches as one kernel, for CPU devices. There a launch costs 3 to 5 us, and waking a second core 8 us more.
 * That is as long as a small kernel runs, and a training step of MNIST has a dozen launches.
 *
 * Terms. A *task* is the work of one work-group of a launch. A *worker* is a work-group of the sequence; there is one for each
 * core. The *home* of a worker is the range of a launch's tasks that this worker takes first, so that their data stay in its
 * core's cache; after them it takes tasks of other homes. A *site* is a kernel together with the arenas to which its buffers
 * are bound. The source has one call for each site; all other arguments of a launch are read from a table.
 *
 * Workers process the launches in order. They take tasks by atomic counters. Before its first task of a launch, a worker waits
 * until all tasks of the launches on which it depends are finished; a launch depends on another one if it reads what that one
 * wrote, or writes what that one read or wrote. There is no deadlock, whatever number of workers runs at any time: all tasks of
 * a launch are taken before a worker goes on to the next launch. So a worker waits only for tasks that a running worker has
 * taken, and the tasks of the earliest unfinished launch wait for nothing. The last worker that ends sets the counters back to
 * 0.
 *
 * One call of the kernel can perform several runs, on different slots, because a call of the driver, its event and waking its
 * threads cost some microseconds. Each run has its own counters. A worker goes on to the next run when all tasks of the run
 * before are finished.
 *
 * While there is a trace, each worker stores when it began and ended its tasks of each launch (sequence_times.c). Without a
 * trace this costs only a branch that is always predicted, so the same compiled program is used for both.
 *
 * The sources of the kernels are those of separate launches: with one work-item for each group they need no barrier, and the
 * number of the group and the number of groups become parameters. So the results have the same bits as with separate
 * launches. */
#include "backends/opencl/opencl.h"
#include "core/base/locale.h"

enum {
    MOST_LAUNCHES = 256, /* dependencies are computed for every pair of launches */
    MOST_SITES = 128,
    MOST_ARENAS = 96, /* so many pointers fit into the 1 KiB of parameters that every device accepts */
    ROW = OPENCL_SEQUENCE_ROW,
    /* The ints in a cache line. Each counter has its own cache line. */
    LINE = 16
};

/* ---- what fits ---- */
bool strata_opencl_sequence_fits(const opencl_device *device, const strata_kernel_list *list) {
    if (!device->makes_sequences || list->n_launches < 2 || list->n_launches > MOST_LAUNCHES) return false;
    for (int l = 0; l < list->n_launches; l++) {
        const strata_kernel_launch *launch = &list->launches[l];
        if (launch->local[0] * launch->local[1] != 1 || launch->groups[1] != 1) return false;
        if (!list->kernels[launch->kernel].shader->opencl.bytes) return false;
        /* a worker computes the range of its home in 32 bits */
        if ((uint64_t)launch->groups[0] * device->limits.compute_units > UINT32_MAX) return false;
    }
    return true;
}

/* ---- dependencies ---- */
static bool overlap(const strata_kernel_range *a, const strata_kernel_range *b) {
    return a->arena == b->arena && a->begin < b->end && b->begin < a->end;
}

static bool depends(const strata_kernel_launch *later, const strata_kernel_launch *earlier) {
    for (int i = 0; i < later->n_buffers; i++)
        for (int j = 0; j < earlier->n_buffers; j++)
            if (((later->writes >> i | earlier->writes >> j) & 1u) && overlap(&later->buffers[i], &earlier->buffers[j]))
                return true;
    return false;
}

/* ---- sites and arenas ---- */
typedef struct sequence_writer {
    const strata_kernel_list *list;
    strata_text source;
    int sites[MOST_SITES]; /* for each site, a launch that uses it */
    int n_sites;
    opencl_sequence *out;
} sequence_writer;

static bool same_site(const strata_kernel_launch *a, const strata_kernel_launch *b) {
    if (a->kernel != b->kernel) return false;
    for (int i = 0; i < a->n_buffers; i++)
        if (a->buffers[i].arena != b->buffers[i].arena) return false;
    return true;
}

/* The index of the launch's site; -1 if there are too many sites. */
static int find_site(sequence_writer *writer, int l) {
    const strata_kernel_launch *launches = writer->list->launches;
    for (int i = 0; i < writer->n_sites; i++)
        if (same_site(&launches[writer->sites[i]], &launches[l])) return i;
    if (writer->n_sites == MOST_SITES) return -1;
    writer->sites[writer->n_sites] = l;
    return writer->n_sites++;
}

/* The index of the arena among the kernel's parameters; -1 if there are too many arenas. */
static int find_arena(opencl_sequence *sequence, int arena) {
    for (int i = 0; i < sequence->n_arenas; i++)
        if (sequence->arenas[i] == arena) return i;
    if (sequence->n_arenas == MOST_ARENAS) return -1;
    sequence->arenas[sequence->n_arenas] = arena;
    return sequence->n_arenas++;
}

/* ---- the text ---- */
static const char head[] =
    "#define get_group_id(d) strata_task\n"
    "#define get_num_groups(d) strata_tasks\n"
    "#define get_global_id(d) strata_task\n"
    "#define get_global_size(d) strata_tasks\n"
    "#define get_local_id(d) 0u\n"
    "#define barrier(flags)\n"
    "#define __kernel static\n"
    "#define reqd_work_group_size(x, y, z) noinline\n"
    "#define __local\n";
static const char between[] =
    "#undef get_group_id\n#undef get_num_groups\n#undef get_global_id\n#undef get_global_size\n#undef get_local_id\n"
    "#undef barrier\n#undef __kernel\n#undef reqd_work_group_size\n#undef __local\n";

/* A waiting worker yields its core after about 20 us. If other programs share the cores, it would otherwise use up the time of
 * the worker for which it waits. It does not yield sooner: most waits between small kernels are shorter, and the thread that
 * gathers the next batch would then take the core for 30 us while all workers wait for this one. OpenCL C has no such function,
 * so this is Linux's sched_yield; on other systems a worker spins. */
static const char yield[] =
    "static void strata_yield(void) {\n"
    "#if defined(__x86_64__) && defined(__linux__)\n"
    "    long result;\n"
    "    __asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(24L) : \"rcx\", \"r11\", \"memory\");\n"
    "#endif\n"
    "}\n";

/* Reads the same counter as strata_opencl_read_counter. Intel's runtime compiles for __SPIR__ first, whatever the processor
 * is. */
static const char counter[] =
    "static ulong strata_count(void) {\n"
    "#if defined(__x86_64__) || defined(__SPIR__)\n"
    "    return __builtin_readcyclecounter();\n"
    "#else\n"
    "    return 0ul;\n"
    "#endif\n"
    "}\n";

/* The layout of `sync`, for each run: a cache line for each home of each launch (the number of tasks taken), a cache
 * line for each launch (the number of tasks finished), and a cache line for the number of workers that have ended.
 * counts: NULL, or for each run, worker and launch the begin and the end; 0 if the worker had no task. */
static const char begin_run[] =
    "    const uint me = get_group_id(0), workers = get_num_groups(0);\n"
    "    for (uint run = 0u; run < runs; run++, sync += (n_launches * (workers + 1u) + 1u) * LINE) {\n"
    "    if (run > 0u && counts != 0) counts += 2u * workers * n_launches;\n";
static const char walk[] =
    "    __global volatile int *drawn = sync, *finished = sync + n_launches * workers * LINE;\n"
    "    __global volatile int *gone = finished + n_launches * LINE;\n"
    "    for (uint l = 0u; l < n_launches; l++) {\n"
    "        __global const uint *row = table + l * ROW;\n"
    "        const uint tasks = row[0];\n"
    "        int mine = 0;\n"
    "        ulong began = 0ul;\n"
    "        for (uint h = 0u; h < workers; h++) {\n"
    "            const uint home = me + h < workers ? me + h : me + h - workers;\n"
    "            const uint begin = home * tasks / workers, count = (home + 1u) * tasks / workers - begin;\n"
    "            __global volatile int *counter = drawn + (l * workers + home) * LINE;\n"
    "            while (*counter < (int)count) {\n"
    "                const uint task = (uint)atomic_inc(counter);\n"
    "                if (task >= count) break;\n"
    "                for (__global const uint *after = table + row[3]; mine == 0 && *after < n_launches; after++)\n"
    "                    for (uint turns = 0u; finished[*after * LINE] < (int)table[*after * ROW]; turns++)\n"
    "                        if (turns > 20000u) strata_yield();\n"
    "                mem_fence(CLK_GLOBAL_MEM_FENCE);\n"
    "                if (counts != 0 && mine == 0) began = strata_count();\n"
    "                strata_call(row[1], begin + task, tasks, table + row[2] ARENAS);\n"
    "                mine++;\n"
    "            }\n"
    "        }\n"
    "        if (counts != 0) {\n"
    "            __global ulong *own = counts + 2u * (me * n_launches + l);\n"
    "            own[0] = began;\n"
    "            own[1] = mine > 0 ? strata_count() : 0ul;\n"
    "        }\n"
    "        mem_fence(CLK_GLOBAL_MEM_FENCE);\n"
    "        if (mine > 0) atomic_add(finished + l * LINE, mine);\n"
    "    }\n"
    "    for (uint l = run + 1u < runs ? n_launches : 0u; l-- > 0u;)\n"
    "        for (uint turns = 0u; finished[l * LINE] < (int)table[l * ROW]; turns++)\n"
    "            if (turns > 20000u) strata_yield();\n"
    "    if (atomic_inc(gone) == (int)workers - 1)\n"
    "        for (__global volatile int *counter = sync; counter <= gone; counter += LINE) *counter = 0;\n"
    "    }\n"
    "}\n";

static void write_site(sequence_writer *writer, int site, const char *entry) {
    const strata_kernel_launch *launch = &writer->list->launches[writer->sites[site]];
    const strata_shader *shader = writer->list->kernels[launch->kernel].shader;
    strata_text_add(&writer->source, "    case %d: %s(task, tasks", site, entry);
    for (int i = 0; i < launch->n_buffers; i++)
        strata_text_add(&writer->source, ", (__global void *)a%d", find_arena(writer->out, launch->buffers[i].arena));
    for (int i = 0; i < launch->n_words; i++) {
        const char *form = shader->words[i].type == STRATA_SHADER_FLOAT ? ", as_float(w[%d])"
                           : shader->words[i].type == STRATA_SHADER_INT ? ", as_int(w[%d])"
                                                                        : ", w[%d]";
        char word[32];
        strata_format(word, sizeof word, form, i);
        strata_text_add(&writer->source, "%s", word);
    }
    strata_text_add(&writer->source, "); break;\n");
}

static strata_status write_source(sequence_writer *writer, strata_error *err) {
    char entries[MOST_SITES][64];
    strata_text *text = &writer->source;
    strata_text_add(text, "%s", head);
    int written[MOST_SITES]; /* for each site, the first site with the same kernel */
    for (int s = 0; s < writer->n_sites; s++) {
        int kernel = writer->list->launches[writer->sites[s]].kernel;
        written[s] = s;
        for (int i = 0; i < s && written[s] == s; i++)
            if (writer->list->launches[writer->sites[i]].kernel == kernel) written[s] = i;
        if (written[s] != s) continue;
        char suffix[16];
        snprintf(suffix, sizeof suffix, "_%d", s);
        STRATA_TRY(strata_opencl_source_add(text, &writer->list->kernels[kernel], suffix,
                                            "uint strata_task, uint strata_tasks, ", entries[s], err));
    }
    strata_text_add(text, "%s%s%s#define ROW %du\n#define LINE %du\n", between, yield, counter, ROW, LINE);
    strata_text_add(text, "static void strata_call(uint site, uint task, uint tasks, __global const uint *w");
    for (int i = 0; i < writer->out->n_arenas; i++) strata_text_add(text, ", __global uchar *a%d", i);
    strata_text_add(text, ") {\n    switch (site) {\n");
    for (int s = 0; s < writer->n_sites; s++) write_site(writer, s, entries[written[s]]);
    strata_text_add(text, "    }\n}\n#define ARENAS ");
    for (int i = 0; i < writer->out->n_arenas; i++) strata_text_add(text, ", a%d", i);
    strata_text_add(text,
                    "\n__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void strata_sequence(uint n_launches, "
                    "__global const uint *table, __global volatile int *sync, __global ulong *counts");
    for (int i = 0; i < writer->out->n_arenas; i++) strata_text_add(text, ", __global uchar *a%d", i);
    strata_text_add(text, ", uint runs");
    for (int run = 1; run < OPENCL_RUNS_IN_A_CALL; run++)
        for (int i = 0; i < writer->out->n_arenas; i++)
            if (strata_opencl_sequence_is_of_slot(writer->out, i)) strata_text_add(text, ", __global uchar *a%d_%d", i, run);
    strata_text_add(text, ") {\n%s", begin_run);
    for (int run = 1; run < OPENCL_RUNS_IN_A_CALL; run++)
        for (int i = 0; i < writer->out->n_arenas; i++)
            if (strata_opencl_sequence_is_of_slot(writer->out, i))
                strata_text_add(text, "    if (run == %du) a%d = a%d_%d;\n", run, i, i, run);
    strata_text_add(text, "%s", walk);
    return STRATA_OK;
}

/* ---- the table ---- */
static strata_status write_table(sequence_writer *writer, strata_error *err) {
    const strata_kernel_list *list = writer->list;
    const int n = list->n_launches;
    size_t most = (size_t)n * (ROW + STRATA_LAUNCH_WORDS + 1);
    for (int l = 0; l < n; l++)
        for (int j = 0; j < l; j++) most += depends(&list->launches[l], &list->launches[j]);
    uint32_t *table = NULL;
    STRATA_TRY(STRATA_NEW(table, most, err, "compile: no memory for a table of %zu words", most));
    uint32_t at = (uint32_t)(n * ROW);
    for (int l = 0; l < n; l++) {
        const strata_kernel_launch *launch = &list->launches[l];
        uint32_t *row = table + l * ROW;
        row[0] = launch->groups[0];
        row[1] = (uint32_t)find_site(writer, l);
        row[2] = at;
        memcpy(table + at, launch->words, (size_t)launch->n_words * sizeof *table);
        at += (uint32_t)launch->n_words;
        row[3] = at;
        for (int j = l - 1; j >= 0; j--) /* the newest launch first: when it has finished, most others have too */
            if (depends(launch, &list->launches[j])) table[at++] = (uint32_t)j;
        table[at++] = UINT32_MAX;
    }
    writer->out->table = table;
    writer->out->table_words = at;
    return STRATA_OK;
}

strata_status strata_opencl_sequence_write(const opencl_device *device, const strata_kernel_list *list, opencl_sequence *out,
                                           strata_error *err) {
    sequence_writer writer = {.list = list, .out = out};
    *out = (opencl_sequence){.n_workers = device->limits.compute_units};
    STRATA_TRY(STRATA_NEW(out->arenas, MOST_ARENAS, err, "compile: no memory for a sequence"));
    bool fits = true;
    for (int l = 0; l < list->n_launches && fits; l++) {
        fits = find_site(&writer, l) >= 0;
        for (int i = 0; i < list->launches[l].n_buffers && fits; i++)
            fits = find_arena(out, list->launches[l].buffers[i].arena) >= 0;
    }
    strata_status status = STRATA_OK;
    if (fits) {
        status = write_source(&writer, err);
        if (!status) status = strata_text_take(&writer.source, &out->source, NULL, err);
        if (!status) status = write_table(&writer, err);
        out->sync_bytes =
            (int64_t)sizeof(cl_int) * LINE * OPENCL_RUNS_IN_A_CALL * (list->n_launches * ((int64_t)out->n_workers + 1) + 1);
    }
    strata_text_finish(&writer.source);
    if (status) strata_opencl_sequence_finish(out);
    return status;
}

bool strata_opencl_sequence_is_of_slot(const opencl_sequence *sequence, int arena) {
    return sequence->arenas[arena] <= STRATA_ARENA_OUTPUT;
}

void strata_opencl_sequence_finish(opencl_sequence *sequence) {
    free(sequence->source);
    free(sequence->table);
    free(sequence->arenas);
    *sequence = (opencl_sequence){0};
}
