/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of transports. */
#include <string.h>

#include "cluster/transport.h"

static const strata_transport *const transports[] = {
#define TRANSPORT(name, chosen) &strata_transport_##name,
#include "cluster/transport/transports.def"
};

#define CHOSEN_0(name)
#define CHOSEN_1(name) #name,
const char *const strata_transport_names[] = {"auto",
#define TRANSPORT(name, chosen) CHOSEN_##chosen(name)
#include "cluster/transport/transports.def"
                                              NULL};

const strata_transport *strata_transport_find(const char *name) {
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
        if (!strcmp(transports[i]->name, name)) return transports[i];
    return NULL;
}

const strata_transport *strata_transport_next(const strata_transport *after, bool several_hosts) {
    size_t i = 0;
    const size_t n = sizeof transports / sizeof *transports;
    while (after && i < n && transports[i++] != after) continue;
    while (i < n && !(transports[i]->automatic && !(transports[i]->shares_memory && several_hosts))) i++;
    return i < n ? transports[i] : NULL;
}
