/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles random graphs (random_graph.h) and compares what the program computes with what the references of the nodes compute
 * one after the other without any pass: with all passes and without fusion, in two runs each, of which the second finds the
 * variables as the first left them. */
#ifndef STRATA_TESTS_COMPILE_RANDOM_GRAPH_CHECK_H
#define STRATA_TESTS_COMPILE_RANDOM_GRAPH_CHECK_H

#include "tests/compile/random_graph.h"
#include "tests/support/check.h"

/* Makes the graph of this seed and checks it on the device. The fields of the scene that say which graph it is are set; the
 * call fills the recipes, so that another scene can repeat them. The text says what differs first. dump: NULL, or receives the
 * nodes of the graph, a line each, in `bytes` bytes. */
strata_test_result random_graph_check(scene *s, strata_device *device, uint64_t seed, char *dump, size_t bytes);

#endif
