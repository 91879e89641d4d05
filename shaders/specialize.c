/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces the specialization constants of a module by values and removes the code that is then unreachable (SPIR-V
 * 1.3, sections 2.11 and 3.32).
 *
 * A kernel's module contains all its algorithms: `if (LOCAL_X == 1u) ... else ...`. Drivers know the constants only
 * when they create a pipeline, and some compile all branches before they drop half of them. So the branches are dropped
 * here. Constants become values, expressions of constants are folded, a conditional branch on a known value becomes an
 * unconditional one, and unreachable blocks are removed. An unreachable block that the rules of structured control flow
 * require (the merge block of an endless loop) stays as an empty block. */
#include "shaders/specialize.h"

#include <stdlib.h>
#include <string.h>

/* A module begins with HEADER words. Word BOUND is 1 + its largest id. A module with a bound above MOST_IDS is not specialized,
 * which limits the memory for id_facts. */
enum { HEADER = 5, BOUND = 3, MAGIC = 0x07230203, MOST_IDS = 1 << 18 };

enum opcode {
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_SPEC_CONSTANT_TRUE = 48,
    OP_SPEC_CONSTANT_FALSE = 49,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_CONSTANT_COMPOSITE = 51,
    OP_SPEC_CONSTANT_OP = 52,
    OP_FUNCTION = 54,
    OP_FUNCTION_END = 56,
    OP_STORE = 62,
    OP_DECORATE = 71,
    OP_IMAGE_WRITE = 99,
    OP_I_ADD = 128,
    OP_I_SUB = 130,
    OP_I_MUL = 132,
    OP_U_DIV = 134,
    OP_U_MOD = 137,
    OP_LOGICAL_OR = 166,
    OP_LOGICAL_AND = 167,
    OP_LOGICAL_NOT = 168,
    OP_SELECT = 169,
    OP_I_EQUAL = 170,
    OP_I_NOT_EQUAL = 171,
    OP_U_GREATER_THAN = 172,
    OP_U_GREATER_THAN_EQUAL = 174,
    OP_U_LESS_THAN = 176,
    OP_U_LESS_THAN_EQUAL = 178,
    OP_SHIFT_RIGHT_LOGICAL = 194,
    OP_SHIFT_LEFT_LOGICAL = 196,
    OP_BITWISE_OR = 197,
    OP_BITWISE_AND = 199,
    OP_CONTROL_BARRIER = 224,
    OP_MEMORY_BARRIER = 225,
    OP_PHI = 245,
    OP_LOOP_MERGE = 246,
    OP_SELECTION_MERGE = 247,
    OP_LABEL = 248,
    OP_BRANCH = 249,
    OP_BRANCH_CONDITIONAL = 250,
    OP_SWITCH = 251,
    OP_RETURN = 253,
    OP_UNREACHABLE = 255,
    OP_COOPERATIVE_MATRIX_STORE = 4458,
    DECORATION_SPEC_ID = 1,
    OP_UNDEF = 1
};

/* What is known about an id. */
typedef struct id_facts {
    /* Whether the id's value is a known constant: an integer of 32 bits, or a bool as 0 or 1. */
    bool known;
    uint32_t value;
    /* The id is the type of 32-bit integers, or the type of bools. */
    bool is_int32, is_bool;
    /* If the id is a label: 1 + the number of its block; else 0. */
    uint32_t block;
    /* If the id is a specialization constant: 1 + its number; else 0. */
    uint32_t spec;
    /* The instruction that defines the id is removed. */
    bool gone;
    /* If the id is a type: the id of an undefined value (OpUndef) of this type in the new module. 0: none is needed. */
    uint32_t undef;
} id_facts;

/* What becomes of a block: it is removed, it stays as an empty block that ends with OpUnreachable, it stays as a loop's empty
 * continue block, or it stays as it is. */
typedef enum block_fate { BLOCK_GONE, BLOCK_EMPTY, BLOCK_CONTINUES, BLOCK_LIVES } block_fate;

typedef struct block {
    /* Positions, in words, of its label and of its last instruction. */
    size_t label, last;
    /* In a loop's header: the position of OpLoopMerge; else 0. */
    size_t loop;
    block_fate fate;
    /* BLOCK_CONTINUES: an empty block that branches to this label, the loop's header. */
    uint32_t header;
} block;

typedef struct module {
    const uint32_t *words;
    size_t n;
    uint32_t bound;
    id_facts *ids;
    block *blocks;
    uint32_t n_blocks;
    uint32_t *out;
    size_t n_out;
} module;

static uint32_t op_at(const module *m, size_t at) {
    return m->words[at] & 0xffffu;
}

static uint32_t length_at(const module *m, size_t at) {
    return m->words[at] >> 16;
}

static size_t next(const module *m, size_t at) {
    return at + length_at(m, at);
}

/* Whether the module consists of whole instructions, and the last one is OpFunctionEnd. */
static bool is_whole(const module *m) {
    uint32_t newest = 0;
    for (size_t at = HEADER; at < m->n; at = next(m, at)) {
        const uint32_t n = length_at(m, at);
        if (!n || n > m->n - at) return false;
        newest = op_at(m, at);
    }
    return newest == OP_FUNCTION_END;
}

static id_facts *facts(const module *m, uint32_t id) {
    return &m->ids[id < m->bound ? id : 0]; /* no id is 0 */
}

/* ---- folding ---- */
static bool fold(uint32_t op, const uint32_t *v, int n, uint32_t *out) {
    if (n == 3 && op == OP_SELECT) {
        *out = v[0] ? v[1] : v[2];
        return true;
    }
    if (n == 1 && op == OP_LOGICAL_NOT) {
        *out = !v[0];
        return true;
    }
    if (n != 2) return false;
    const uint32_t a = v[0], b = v[1];
    switch (op) {
        case OP_I_ADD:
            *out = a + b;
            return true;
        case OP_I_SUB:
            *out = a - b;
            return true;
        case OP_I_MUL:
            *out = a * b;
            return true;
        case OP_U_DIV:
            *out = b ? a / b : 0;
            return b != 0;
        case OP_U_MOD:
            *out = b ? a % b : 0;
            return b != 0;
        case OP_LOGICAL_OR:
            *out = a || b;
            return true;
        case OP_LOGICAL_AND:
            *out = a && b;
            return true;
        case OP_I_EQUAL:
            *out = a == b;
            return true;
        case OP_I_NOT_EQUAL:
            *out = a != b;
            return true;
        case OP_U_GREATER_THAN:
            *out = a > b;
            return true;
        case OP_U_GREATER_THAN_EQUAL:
            *out = a >= b;
            return true;
        case OP_U_LESS_THAN:
            *out = a < b;
            return true;
        case OP_U_LESS_THAN_EQUAL:
            *out = a <= b;
            return true;
        case OP_SHIFT_RIGHT_LOGICAL:
            *out = b < 32 ? a >> b : 0;
            return b < 32;
        case OP_SHIFT_LEFT_LOGICAL:
            *out = b < 32 ? a << b : 0;
            return b < 32;
        case OP_BITWISE_OR:
            *out = a | b;
            return true;
        case OP_BITWISE_AND:
            *out = a & b;
            return true;
        default:
            return false;
    }
}

/* Folds `op`, whose operands are the words of the instruction at `at` from `first` on. Returns whether its result has
 * become known. */
static bool fold_at(module *m, size_t at, uint32_t op, uint32_t first) {
    const uint32_t *w = m->words + at, n = length_at(m, at);
    uint32_t values[3];
    id_facts *result = facts(m, w[2]);
    const id_facts *type = facts(m, w[1]);
    if (n < first || n - first > 3 || result->known || !(type->is_int32 || type->is_bool)) return false;
    for (uint32_t i = first; i < n; i++) {
        if (!facts(m, w[i])->known) return false;
        values[i - first] = facts(m, w[i])->value;
    }
    result->known = fold(op, values, (int)(n - first), &result->value);
    return result->known;
}

/* Folds an OpPhi if all live predecessors give it the same known value. Returns whether its result has become known. */
static bool fold_phi(module *m, size_t at) {
    const uint32_t *w = m->words + at, n = length_at(m, at);
    id_facts *result = facts(m, w[2]);
    bool any = false;
    uint32_t value = 0;
    if (result->known) return false;
    for (uint32_t i = 3; i + 1 < n; i += 2) {
        const uint32_t from = facts(m, w[i + 1])->block;
        const id_facts *given = facts(m, w[i]);
        if (!from || m->blocks[from - 1].fate != BLOCK_LIVES) continue;
        if (!given->known || (any && given->value != value)) return false;
        value = given->value;
        any = true;
    }
    result->known = any;
    result->value = value;
    return any;
}

/* ---- reading ---- */
/* Reads types, decorations and constants. Returns false if one is of a kind that kernels do not have. */
static bool read_globals(module *m, const uint32_t *values, int n_values, size_t *out_functions) {
    size_t at = HEADER;
    for (; at < m->n && op_at(m, at) != OP_FUNCTION; at = next(m, at)) {
        const uint32_t *w = m->words + at, n = length_at(m, at);
        switch (op_at(m, at)) {
            case OP_DECORATE:
                if (n == 4 && w[2] == DECORATION_SPEC_ID) facts(m, w[1])->spec = w[3] + 1;
                break;
            case OP_TYPE_BOOL:
                facts(m, w[1])->is_bool = true;
                break;
            case OP_TYPE_INT:
                facts(m, w[1])->is_int32 = n == 4 && w[2] == 32;
                break;
            case OP_CONSTANT_TRUE:
            case OP_CONSTANT_FALSE:
                facts(m, w[2])->known = true;
                facts(m, w[2])->value = op_at(m, at) == OP_CONSTANT_TRUE;
                break;
            case OP_CONSTANT:
                facts(m, w[2])->known = n == 4 && facts(m, w[1])->is_int32;
                facts(m, w[2])->value = w[3];
                break;
            case OP_SPEC_CONSTANT: {
                id_facts *constant = facts(m, w[2]);
                if (n != 4 || !facts(m, w[1])->is_int32 || !constant->spec) return false;
                constant->known = true;
                constant->value = constant->spec <= (uint32_t)n_values ? values[constant->spec - 1] : w[3];
                break;
            }
            case OP_SPEC_CONSTANT_OP:
                fold_at(m, at, w[3], 4); /* if it cannot be folded, it stays in the module */
                break;
            case OP_SPEC_CONSTANT_TRUE:
            case OP_SPEC_CONSTANT_FALSE:
                return false;
            default:
                break;
        }
    }
    *out_functions = at;
    return true;
}

static bool ends_block(uint32_t op) {
    return op >= OP_BRANCH && op <= OP_UNREACHABLE;
}

static bool read_blocks(module *m, size_t functions) {
    size_t n = 0;
    for (size_t at = functions; at < m->n; at = next(m, at)) n += op_at(m, at) == OP_LABEL;
    m->blocks = calloc(n + 1, sizeof *m->blocks);
    if (!m->blocks) return false;
    block *b = NULL;
    for (size_t at = functions; at < m->n; at = next(m, at)) {
        const uint32_t op = op_at(m, at);
        if (op == OP_LABEL) {
            if (b) return false;
            b = &m->blocks[m->n_blocks++];
            *b = (block){.label = at, .fate = BLOCK_LIVES};
            facts(m, m->words[at + 1])->block = m->n_blocks;
        }
        if (b && op == OP_LOOP_MERGE) b->loop = at;
        if (b && ends_block(op)) {
            b->last = at;
            b = NULL;
        }
    }
    return !b;
}

/* ---- what is reached ---- */
static uint32_t block_of(const module *m, uint32_t label) {
    return facts(m, label)->block - 1;
}

/* Returns the label to which the block's conditional branch always goes. Returns 0 if both labels are possible, or if
 * the block ends otherwise. A branch back to a loop's header stays conditional, as a header needs one. */
static uint32_t decided(const module *m, const block *b) {
    const uint32_t *w = m->words + b->last;
    if (op_at(m, b->last) != OP_BRANCH_CONDITIONAL || !facts(m, w[1])->known) return 0;
    for (int i = 2; i < 4; i++)
        if (m->blocks[block_of(m, w[i])].label <= b->label) return 0;
    return facts(m, w[1])->value ? w[2] : w[3];
}

/* Finds the labels to which a block branches: words *out_first, *out_first + *out_step, ... below *out_end of its last
 * instruction. */
static void targets(const module *m, const block *b, uint32_t *out_first, uint32_t *out_end, uint32_t *out_step) {
    const uint32_t op = op_at(m, b->last), n = length_at(m, b->last);
    *out_step = 1;
    *out_first = op == OP_BRANCH ? 1 : op == OP_BRANCH_CONDITIONAL || op == OP_SWITCH ? 2 : n;
    *out_end = op == OP_BRANCH_CONDITIONAL ? 4 : n; /* weights follow */
    if (op == OP_SWITCH) *out_step = 2;             /* default, then literals with labels */
}

static void reach(module *m, uint32_t *stack) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < m->n_blocks; k++) m->blocks[k].fate = BLOCK_GONE;
    /* The first block of each function is live, although no branch goes there. */
    for (uint32_t k = 0; k < m->n_blocks; k++) {
        const bool first = k == 0 || op_at(m, next(m, m->blocks[k - 1].last)) != OP_LABEL;
        if (!first) continue;
        m->blocks[k].fate = BLOCK_LIVES;
        stack[n++] = k;
    }
    while (n) {
        const block *b = &m->blocks[stack[--n]];
        const uint32_t *w = m->words + b->last, only = decided(m, b);
        uint32_t i, end, step;
        targets(m, b, &i, &end, &step);
        for (; i < end; i += step) {
            const uint32_t to = block_of(m, only ? only : w[i]);
            if (m->blocks[to].fate == BLOCK_LIVES) continue;
            m->blocks[to].fate = BLOCK_LIVES;
            stack[n++] = to;
        }
    }
}

/* Repeats reach() and folding until nothing more becomes known. */
static bool settle(module *m) {
    uint32_t *stack = calloc((size_t)m->n_blocks + 1, sizeof *stack);
    if (!stack) return false;
    bool more = true;
    while (more) {
        more = false;
        reach(m, stack);
        for (uint32_t k = 0; k < m->n_blocks; k++) {
            if (m->blocks[k].fate != BLOCK_LIVES) continue;
            for (size_t at = next(m, m->blocks[k].label); at < m->blocks[k].last; at = next(m, at)) {
                const uint32_t op = op_at(m, at);
                if (op == OP_PHI)
                    more |= fold_phi(m, at);
                else if (op >= OP_I_ADD && op <= OP_BITWISE_AND && length_at(m, at) > 3)
                    more |= fold_at(m, at, op, 3);
            }
        }
    }
    free(stack);
    return true;
}

/* Keeps blocks that merge instructions of live blocks name, as empty blocks. Returns false if a loop has lost its
 * branch back to the header elsewhere than in its continue block. */
static bool keep_named(module *m) {
    for (uint32_t k = 0; k < m->n_blocks; k++) {
        const block *b = &m->blocks[k];
        if (b->fate != BLOCK_LIVES) continue;
        for (size_t at = b->label; at < b->last; at = next(m, at)) {
            const uint32_t op = op_at(m, at);
            if (op != OP_LOOP_MERGE && op != OP_SELECTION_MERGE) continue;
            if (op == OP_SELECTION_MERGE && decided(m, b)) continue;
            block *merge = &m->blocks[block_of(m, m->words[at + 1])];
            if (merge->fate == BLOCK_GONE) merge->fate = BLOCK_EMPTY;
            if (op == OP_SELECTION_MERGE) continue;
            block *goes_on = &m->blocks[block_of(m, m->words[at + 2])];
            if (goes_on->fate == BLOCK_LIVES) continue;
            goes_on->fate = BLOCK_CONTINUES;
            goes_on->header = m->words[b->label + 1];
        }
    }
    for (uint32_t k = 0; k < m->n_blocks; k++) {
        const block *b = &m->blocks[k];
        bool back = false;
        if (b->fate != BLOCK_LIVES || !b->loop) continue;
        if (m->blocks[block_of(m, m->words[b->loop + 2])].fate == BLOCK_CONTINUES) continue;
        for (uint32_t j = k; j < m->n_blocks && !back; j++) {
            uint32_t i, end, step;
            targets(m, &m->blocks[j], &i, &end, &step);
            for (; i < end && m->blocks[j].fate == BLOCK_LIVES; i += step)
                back |= m->words[m->blocks[j].last + i] == m->words[b->label + 1];
        }
        if (!back) return false;
    }
    return true;
}

/* ---- writing ---- */
static void put(module *m, const uint32_t *words, size_t n) {
    memcpy(m->out + m->n_out, words, n * sizeof *words);
    m->n_out += n;
}

static void put_instruction(module *m, uint32_t op, uint32_t n, const uint32_t *operands) {
    const uint32_t head = (n + 1) << 16 | op;
    put(m, &head, 1);
    put(m, operands, n);
}

/* Whether an instruction in a function defines no id. */
static bool has_no_result(uint32_t op) {
    return op == OP_STORE || op == OP_IMAGE_WRITE || op == OP_CONTROL_BARRIER || op == OP_MEMORY_BARRIER ||
           op == OP_COOPERATIVE_MATRIX_STORE || (op >= OP_LOOP_MERGE && op <= OP_UNREACHABLE);
}

/* Marks ids whose definitions are removed. Allocates an id for OpUndef for each type of which a loop's header takes a
 * value from an empty block. */
static void note_gone(module *m, uint32_t *bound) {
    for (uint32_t k = 0; k < m->n_blocks; k++) {
        const block *b = &m->blocks[k];
        for (size_t at = next(m, b->label); at <= b->last; at = next(m, at)) {
            const uint32_t *w = m->words + at, op = op_at(m, at);
            if (b->fate != BLOCK_LIVES) {
                if (!has_no_result(op)) facts(m, w[2])->gone = true;
                continue;
            }
            for (uint32_t i = 3; op == OP_PHI && i + 1 < length_at(m, at); i += 2)
                if (m->blocks[block_of(m, w[i + 1])].fate == BLOCK_CONTINUES && !facts(m, w[1])->undef)
                    facts(m, w[1])->undef = (*bound)++;
        }
        if (b->fate == BLOCK_GONE) facts(m, m->words[b->label + 1])->gone = true;
    }
}

static void put_global(module *m, size_t at) {
    const uint32_t *w = m->words + at, op = op_at(m, at), n = length_at(m, at);
    if (op == OP_DECORATE && ((n == 4 && w[2] == DECORATION_SPEC_ID) || facts(m, w[1])->gone)) return;
    if (op == 5 || op == 6) return; /* OpName and OpMemberName may name removed ids */
    if (op == OP_SPEC_CONSTANT || (op == OP_SPEC_CONSTANT_OP && facts(m, w[2])->known)) {
        const id_facts *constant = facts(m, w[2]);
        if (facts(m, w[1])->is_bool)
            put_instruction(m, constant->value ? OP_CONSTANT_TRUE : OP_CONSTANT_FALSE, 2, w + 1);
        else
            put_instruction(m, OP_CONSTANT, 3, (const uint32_t[]){w[1], w[2], constant->value});
    } else if (op == OP_SPEC_CONSTANT_COMPOSITE) {
        put_instruction(m, OP_CONSTANT_COMPOSITE, n - 1, w + 1);
    } else {
        put(m, w, n);
    }
}

static void put_phi(module *m, size_t at, uint32_t label) {
    const uint32_t *w = m->words + at, n = length_at(m, at);
    const size_t head = m->n_out;
    put(m, w, 3);
    for (uint32_t i = 3; i + 1 < n; i += 2) {
        const block *from = &m->blocks[block_of(m, w[i + 1])];
        const bool live = from->fate == BLOCK_LIVES;
        const uint32_t only = live ? decided(m, from) : 0;
        if (live ? only && only != label : from->fate != BLOCK_CONTINUES) continue;
        put(m, (const uint32_t[]){live ? w[i] : facts(m, w[1])->undef, w[i + 1]}, 2);
    }
    m->out[head] = (uint32_t)(m->n_out - head) << 16 | OP_PHI;
}

static void put_block(module *m, const block *b) {
    const uint32_t label = m->words[b->label + 1], only = b->fate == BLOCK_LIVES ? decided(m, b) : 0;
    if (b->fate == BLOCK_GONE) return;
    put_instruction(m, OP_LABEL, 1, &label);
    if (b->fate == BLOCK_EMPTY) put_instruction(m, OP_UNREACHABLE, 0, NULL);
    if (b->fate == BLOCK_CONTINUES) put_instruction(m, OP_BRANCH, 1, &b->header);
    if (b->fate != BLOCK_LIVES) return;
    for (size_t at = next(m, b->label); at <= b->last; at = next(m, at)) {
        const uint32_t op = op_at(m, at);
        if (op == OP_PHI)
            put_phi(m, at, label);
        else if (only && at == b->last)
            put_instruction(m, OP_BRANCH, 1, &only);
        else if (!(only && op == OP_SELECTION_MERGE))
            put(m, m->words + at, length_at(m, at));
    }
}

static bool write(module *m, size_t functions) {
    uint32_t bound = m->bound, k = 0;
    note_gone(m, &bound);
    m->out = malloc((m->n + 3 * (size_t)(bound - m->bound) + 3 * (size_t)m->n_blocks) * sizeof *m->out);
    if (!m->out) return false;
    put(m, m->words, HEADER);
    m->out[BOUND] = bound;
    for (size_t at = HEADER; at < functions; at = next(m, at)) put_global(m, at);
    for (uint32_t id = 0; id < m->bound; id++)
        if (m->ids[id].undef) put_instruction(m, OP_UNDEF, 2, (const uint32_t[]){id, m->ids[id].undef});
    for (size_t at = functions; at < m->n; at = next(m, at)) {
        if (op_at(m, at) != OP_LABEL) {
            put(m, m->words + at, length_at(m, at));
            continue;
        }
        put_block(m, &m->blocks[k]);
        at = m->blocks[k++].last;
    }
    return true;
}

uint32_t *strata_shader_specialize(const uint32_t *words, size_t n_words, const uint32_t *values, int n_values,
                                   size_t *out_words) {
    module m = {.words = words, .n = n_words};
    size_t functions = 0;
    if (n_words < HEADER || words[0] != MAGIC || words[BOUND] > MOST_IDS || !is_whole(&m)) return NULL;
    m.bound = words[BOUND];
    m.ids = calloc((size_t)m.bound + 1, sizeof *m.ids);
    const bool done = m.ids && read_globals(&m, values, n_values, &functions) && read_blocks(&m, functions) && settle(&m) &&
                      keep_named(&m) && write(&m, functions);
    free(m.ids);
    free(m.blocks);
    if (!done) free(m.out);
    *out_words = m.n_out;
    return done ? m.out : NULL;
}

size_t strata_shader_count_instructions(const uint32_t *words, size_t n_words) {
    const module m = {.words = words, .n = n_words};
    size_t count = 0;
    bool inside = false;
    if (n_words < HEADER || words[0] != MAGIC || !is_whole(&m)) return 0;
    for (size_t at = HEADER; at < n_words; at = next(&m, at)) {
        inside |= op_at(&m, at) == OP_FUNCTION;
        count += inside && op_at(&m, at) != OP_LABEL;
    }
    return count;
}
