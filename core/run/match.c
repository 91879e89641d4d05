/* SPDX-License-Identifier: Apache-2.0
 *
 * Matches the communication nodes of replicas to exchanges, and finds the workers of each (exchange.h). */
#include "core/op/ops.h"
#include "core/run/device.h"
#include "core/run/exchange.h"

typedef struct matcher {
    strata_executable *const *replicas;
    int n_replicas;
    const strata_workers *workers;
    strata_memory *memory;
    strata_exchange *exchanges;
    int n;
    /* [n_replicas] How many communication nodes of each replica are part of an exchange. */
    int *at;
} matcher;

static strata_status no_memory(const matcher *m, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the communications of %d replicas", m->n_replicas);
}

/* ---- which nodes belong together ---- */

static strata_team team_of(const strata_tensor *node) {
    return ((const strata_communication_attrs *)node->attrs)->team;
}

static bool is_member(const matcher *m, strata_team team, int replica) {
    const int first = m->workers && !team.local ? m->workers->first_replica : 0;
    return strata_team_has(team, first + replica);
}

static const strata_communication *part_of(const matcher *m, int e, int replica) {
    return strata_exchange_part(&m->exchanges[e], m->replicas[replica], replica);
}

/* The replica's first communication node that is not part of an exchange yet; NULL: all are. */
static const strata_tensor *front(const matcher *m, int replica) {
    const strata_plan *plan = &m->replicas[replica]->plan;
    return m->at[replica] < plan->n_communications ? plan->communications[m->at[replica]].node : NULL;
}

/* A member of the team whose first unmatched node belongs to another team, or that has no unmatched node; -1: the first
 * unmatched nodes of all members belong to the team. */
static int missing(const matcher *m, strata_team team) {
    for (int r = 0; r < m->n_replicas; r++) {
        if (!is_member(m, team, r)) continue;
        const strata_tensor *node = front(m, r);
        if (!node || !strata_team_equal(team_of(node), team)) return r;
    }
    return -1;
}

static strata_status check_same(const matcher *m, int index, strata_error *err) {
    const strata_exchange *e = &m->exchanges[index];
    bool given = false;
    for (int r = 0; r < m->n_replicas; r++) {
        const strata_communication *c = part_of(m, index, r);
        if (!c) continue;
        given |= c->after >= 0;
        const strata_status status = r == e->first ? STRATA_OK : strata_exchange_check(e->node, c->node, err);
        if (status) return strata_fail_in(err, status, "communication %d of replicas %d and %d", index, e->first, r);
    }
    if (given || strata_exchange_spans_workers(e->node, m->workers))
        return STRATA_OK; /* a replica of another worker may contribute the value */
    return strata_fail(err, STRATA_INVALID, "communication %d, %s: no replica gives a value", index,
                       strata_tensor_name(e->node));
}

/* Finds the next exchange: a team to which the first unmatched nodes of all its members belong. Of several, it is the one
 * whose members have the fewest exchanges before it, so that workers whose devices make the same exchanges, each in its own
 * teams, choose the same order. */
static strata_status add_exchange(matcher *m, strata_error *err) {
    int lacks = -1, has = -1, next = -1;
    for (int r = 0; r < m->n_replicas; r++) {
        const strata_tensor *node = front(m, r);
        if (!node || (next >= 0 && m->at[r] >= m->at[next])) continue;
        const int without = is_member(m, team_of(node), r) ? missing(m, team_of(node)) : r;
        if (without < 0)
            next = r;
        else if (has < 0)
            has = r, lacks = without;
    }
    if (next < 0) {
        const strata_tensor *node = front(m, has), *other = front(m, lacks);
        return strata_fail(err, STRATA_INVALID,
                           "replica %d has communication %d, %s in team %lld, of which replica %d is a member and has %s%s "
                           "there; the members of a team must have the same communications in the same order",
                           has, m->at[has], strata_tensor_name(node), (long long)team_of(node).id, lacks,
                           other ? strata_tensor_name(other) : "nothing", other ? " of another team" : "");
    }
    strata_exchange *e = &m->exchanges[m->n++];
    const strata_team team = team_of(front(m, next));
    for (int r = m->n_replicas - 1; r >= 0; r--) {
        e->own[r] = -1;
        if (!is_member(m, team, r)) continue;
        e->first = r;
        e->node = front(m, r);
        e->own[r] = m->at[r]++;
    }
    return check_same(m, m->n - 1, err);
}

/* ---- the workers of each exchange ---- */

/* Sets e->workers.first_replicas to the numbers of the workers' first members, and ranks to those that have members; returns
 * how many have. */
static int count_members(const strata_workers *all, strata_team team, strata_exchange *e, int *ranks) {
    int n = 0, *firsts = e->workers.first_replicas;
    for (int w = 0; w < all->n; w++) {
        int members = 0;
        for (int d = all->first_replicas[w]; d < all->first_replicas[w + 1]; d++) members += strata_team_has(team, d);
        if (!members) continue;
        firsts[n + 1] = firsts[n] + members;
        ranks[n++] = w;
    }
    return n;
}

/* A gather or a scatter has a part for each device that takes part. */
static strata_status check_parts(const matcher *m, int index, int n_devices, strata_error *err) {
    const strata_tensor *node = m->exchanges[index].node;
    const strata_parts_attrs *attrs = node->attrs;
    if (!strata_exchange_is_parts(node) || attrs->n == n_devices) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "communication %d, %s: it has %lld parts and %d devices take part", index,
                       strata_tensor_name(node), (long long)attrs->n, n_devices);
}

static strata_status find_workers(const matcher *m, int index, strata_error *err) {
    const strata_workers *all = m->workers;
    strata_exchange *e = &m->exchanges[index];
    const strata_team team = team_of(e->node);
    if (strata_exchange_is_point(e->node) || strata_exchange_is_message(e->node, all)) return STRATA_OK;
    if (!strata_exchange_spans_workers(e->node, all))
        return check_parts(m, index, team.n_members ? (int)team.n_members : m->n_replicas, err);
    int *firsts = e->workers.first_replicas = strata_memory_take(m->memory, all->n + 1, sizeof *firsts);
    int *ranks = strata_memory_take(m->memory, all->n, sizeof *ranks);
    if (m->memory->failed) return no_memory(m, err);
    const int n = count_members(all, team, e, ranks);
    if (team.n_members && firsts[n] != team.n_members)
        return strata_fail(err, STRATA_INVALID,
                           "communication %d, %s: its team has %lld devices, of which the workers have %d; their devices are "
                           "numbered 0 to %d",
                           index, strata_tensor_name(e->node), (long long)team.n_members, firsts[n], all->n_replicas - 1);
    STRATA_TRY(check_parts(m, index, firsts[n], err));
    /* Exchanges without a device in common may be performed at the same time, so each team has its own communicator. */
    e->workers = *all;
    const strata_status status = firsts[n] < all->n_replicas
                                     ? all->subset(all, ranks, n, team.members, (int)team.n_members, &e->workers, err)
                                     : STRATA_OK;
    if (status) return strata_fail_in(err, status, "communication %d, %s", index, strata_tensor_name(e->node));
    e->workers.first_replicas = firsts;
    e->workers.n_replicas = firsts[n];
    e->workers.first_replica = firsts[e->workers.rank];
    return STRATA_OK;
}

/* ---- all exchanges ---- */

static void find_limits(const matcher *m) {
    for (int r = 0; r < m->n_replicas; r++) {
        int limit = m->exchanges[m->n].limit[r] = m->replicas[r]->plan.n_segments;
        for (int e = m->n - 1; e >= 0; e--) {
            const strata_communication *c = part_of(m, e, r);
            if (c && c->before >= 0 && c->before < limit) limit = c->before;
            m->exchanges[e].limit[r] = limit;
        }
    }
}

strata_status strata_exchanges_match(strata_executable *const *replicas, int n_replicas, const strata_workers *workers,
                                     strata_memory *memory, strata_exchange **out_exchanges, int *out_n, strata_error *err) {
    matcher m = {.replicas = replicas, .n_replicas = n_replicas, .workers = workers, .memory = memory};
    int total = 0;
    for (int r = 0; r < n_replicas; r++) total += replicas[r]->plan.n_communications;
    m.at = strata_memory_take(memory, n_replicas, sizeof *m.at);
    m.exchanges = strata_memory_take(memory, total + 1, sizeof *m.exchanges);
    for (int e = 0; e <= total && m.exchanges; e++) {
        m.exchanges[e].own = strata_memory_take(memory, n_replicas, sizeof *m.exchanges[e].own);
        m.exchanges[e].limit = strata_memory_take(memory, n_replicas, sizeof *m.exchanges[e].limit);
    }
    if (memory->failed) return no_memory(&m, err);
    for (int left = total; left;) {
        STRATA_TRY(add_exchange(&m, err));
        for (int r = 0; r < n_replicas; r++) left -= m.exchanges[m.n - 1].own[r] >= 0;
    }
    for (int e = 0; e < m.n; e++) STRATA_TRY(find_workers(&m, e, err));
    for (int r = 0; r < n_replicas; r++) m.exchanges[m.n].own[r] = -1;
    find_limits(&m);
    *out_exchanges = m.exchanges;
    *out_n = m.n;
    return STRATA_OK;
}

/* ---- collectives of cores ---- */

/* Collective number `index` of the replica, with its segment; its node is NULL where there are fewer. */
static strata_executable_node collective_of(const strata_executable *exe, int index) {
    for (int i = 0; i < exe->plan.n_schedule; i++) {
        const strata_executable_node node = strata_executable_get_node(exe, i);
        if (strata_is_collective(node.node) && !index--) return node;
    }
    return (strata_executable_node){0};
}

/* Checks that every replica makes the collectives which replica r makes before the exchange before it, too. */
static strata_status check_order(strata_executable *const *replicas, int n_replicas, const strata_exchange *exchange,
                                 int number, int r, strata_error *err) {
    const strata_communication *c = strata_exchange_part(exchange, replicas[r], r);
    for (int i = 0; c; i++) {
        const strata_executable_node own = collective_of(replicas[r], i);
        if (!own.node || own.segment > c->after) break;
        for (int other = 0; other < n_replicas; other++)
            if (collective_of(replicas[other], i).segment >= exchange->limit[other])
                return strata_fail(err, STRATA_INVALID,
                                   "communication %d, %s: replica %d makes collective %s before it and replica %d behind it; "
                                   "the order must be the same",
                                   number, strata_tensor_name(exchange->node), r, strata_tensor_name(own.node), other);
    }
    return STRATA_OK;
}

strata_status strata_exchanges_check_collectives(strata_executable *const *replicas, int n_replicas,
                                                 const strata_exchange *exchanges, int n_exchanges, int *out_n, uint64_t *read,
                                                 uint64_t *written, strata_error *err) {
    for (*out_n = 0;; ++*out_n) {
        const strata_tensor *first = collective_of(replicas[0], *out_n).node;
        for (int r = 0; r < n_replicas; r++) {
            const strata_tensor *own = collective_of(replicas[r], *out_n).node;
            if (!own != !first)
                return strata_fail(err, STRATA_INVALID, "replicas 0 and %d: one has a collective %s more than the other", r,
                                   strata_tensor_name(own ? own : first));
            if (!own) continue;
            const strata_status status = r ? strata_exchange_check(first, own, err) : STRATA_OK;
            if (status) return strata_fail_in(err, status, "collective %d of replicas 0 and %d", *out_n, r);
            *read += (uint64_t)strata_tensor_bytes(own->inputs[0]);
            *written += (uint64_t)strata_tensor_bytes(own);
        }
        if (!first) break;
    }
    for (int e = 0; e < n_exchanges && *out_n; e++)
        for (int r = 0; r < n_replicas; r++) STRATA_TRY(check_order(replicas, n_replicas, &exchanges[e], e, r, err));
    return STRATA_OK;
}
