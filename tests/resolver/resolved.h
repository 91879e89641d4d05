/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolving in a made environment, for the tests of resolvers. */
#ifndef STRATA_TESTS_RESOLVED_H
#define STRATA_TESTS_RESOLVED_H

#include "strata/cluster_spec.h"

/* The variables given, and no others: "NAME=value" each, ending with NULL. */
#define VARIABLES(...) ((const char *const[]){__VA_ARGS__, NULL})
extern const char *const NO_VARIABLES[];

strata_cluster_options options_in(const char *const *variables);
/* Resolves, which must succeed; the spec is the caller's to finish. */
strata_cluster_spec resolved(const char *const *variables);
strata_cluster_spec resolved_by(strata_cluster_options opts);
/* Resolving must fail with this status and exactly this message. */
void refuses(const char *const *variables, const char *message);
void refuses_by(strata_cluster_options opts, strata_status status, const char *message);
/* "chief a:1; worker b:2 c:3; I am worker:0, rank 1 of 3, local 0 of 1; a:1": all of a spec in one line, static memory. */
const char *told(const strata_cluster_spec *spec);
/* Resolves and compares what is told. */
void tells(const char *const *variables, const char *line);

#endif
