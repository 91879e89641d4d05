/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory in which the cores of one CPU meet, for collectives (backends/opencl/cores.c has the same layout). It consists of
 * cache lines of 64 bytes. Line 0: the number of cores, and whether one was lost. Core c has three lines. The first one has the
 * number of meetings to which it has come, and how many other cores sleep until it comes to the next one. The second one: 1 if
 * the core runs alone, because its program is being checked; whether the last meeting took place; the time from the end of the
 * first meeting to the end of the second one, the sum over every 17th collective, as reading the counter takes long on some
 * systems; and when the first meeting ended. The third one has
 * the addresses of its operand and its result.
 *
 * Each core comes to two meetings in a collective: one before the operands are read, and one after the results were written.
 * Then every core may use its own memory again. A core that runs alone, or whose peer was lost, only uses its own operand. */
#define LINE_OF(core)       (meeting + (1u + 3u * (core)) * 16u)
#define CORES               meeting[0]
#define LOST                meeting[1]
#define COME(core)          LINE_OF(core)[0]
#define SLEEPERS(core)      LINE_OF(core)[1]
#define ALONE(core)         LINE_OF(core)[16]
#define MET(core)           LINE_OF(core)[17]
#define SPENT(core)         LINE_OF(core)[18]
#define BEGAN(core)         LINE_OF(core)[19]
#define IS_TIMED(core)      (COME(core) / 2u % 17u == 0u)
#define ADDRESS_OF(core)    ((__global volatile ulong *)(LINE_OF(core) + 32))
#define MEETING             ((__global volatile uint *)(ulong)((ulong)meeting_high << 32 | meeting_low))
#define OPERAND_OF(T, core) ((__global const T *)(ulong)ADDRESS_OF(core)[0])
#define RESULT_OF(T, core)  ((__global T *)(ulong)ADDRESS_OF(core)[1])

/* A directive for the driver's compiler. */
#define DIRECTIVE #
/* clang-format off */

/* Calls futex of the system, which OpenCL C lacks: operation 128 waits while the word has this value, for at most 10 ms, and
 * operation 129 wakes all who wait. On other systems a core spins. */
static void call_futex(__global volatile uint *word, ulong operation, uint value) {
DIRECTIVE if defined(__x86_64__) && defined(__linux__)
    long times[2] = {0, 10000000};
    long result;
    __asm__ volatile("movq %5, %%r10\n\tsyscall"
                     : "=a"(result)
                     : "a"(202L), "D"(word), "S"(operation), "d"((ulong)value), "r"(times)
                     : "rcx", "r10", "r11", "memory");
DIRECTIVE endif
}
/* clang-format on */

/* Waits until the core has come to the meeting. It spins for about 100 us, since most waits are shorter, and sleeps then: if
 * other programs share the cores, it would otherwise use up the time of the core for which it waits. Returns 0 if a core was
 * lost. */
static uint wait_for(__global volatile uint *meeting, uint core, uint number) {
    for (uint turns = 0u; (int)(COME(core) - number) < 0; turns++) {
        if (LOST) return 0u;
        if (turns < 100000u) continue;
        atomic_inc(&SLEEPERS(core));
        const uint value = COME(core);
        if ((int)(value - number) < 0) call_futex(&COME(core), 128ul, value);
        atomic_dec(&SLEEPERS(core));
    }
    return 1u;
}

/* clang-format off */
/* The processor's counter in units of 16, as in backends/opencl/sequence.c; 0: it has none. */
static uint count_now(void) {
DIRECTIVE if defined(__x86_64__)
    return (uint)(__builtin_readcyclecounter() >> 4);
DIRECTIVE else
    return 0u;
DIRECTIVE endif
}
/* clang-format on */

/* Waits until all cores have come to this meeting. Returns 0 if a core was lost. */
static uint meet(__global volatile uint *meeting, uint own) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    const uint number = atomic_inc(&COME(own)) + 1u;
    if (SLEEPERS(own)) call_futex(&COME(own), 129ul, 0x7fffffffu);
    for (uint c = 0u; c < CORES; c++)
        if (!wait_for(meeting, c, number)) return 0u;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return 1u;
}
