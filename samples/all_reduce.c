/* SPDX-License-Identifier: Apache-2.0
 *
 * Teaches: collectives between processes with the library strata_cluster alone, without the rest of Strata. Each process adds
 * its rank to a sum, and sends its neighbour a greeting.
 *
 *     cc all_reduce.c -o all_reduce $(pkg-config --cflags --libs strata-cluster)
 *     strata launch -n 3 -- ./all_reduce          or mpirun, srun, torchrun --no-python */
#include <stdio.h>
#include <stdlib.h>
#include <strata/cluster.h>
#include <strata/cluster_spec.h>
#include <string.h>

#define TRY(call) \
    if (call) return fprintf(stderr, "all_reduce: %s\n", err.message), 1
int main(void) {
    strata_error err = {0};
    strata_cluster_spec spec;
    TRY(strata_cluster_spec_resolve(NULL, &spec, &err)); /* what the launcher says about this process */

    const char *secret = getenv("STRATA_SECRET");
    const strata_communicator_options opts = {.rank = spec.rank,
                                              .world = spec.world_size,
                                              .store = spec.rendezvous ? spec.rendezvous : "127.0.0.1:0",
                                              .secret = secret,
                                              .secret_bytes = secret ? strlen(secret) : 0};
    strata_communicator *comm;
    TRY(strata_communicator_create(&opts, &comm, &err));

    float sum = (float)spec.rank;
    TRY(strata_communicator_all_reduce(comm, &sum, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));

    char greeting[32], got[32] = "";
    strata_request *sent;
    snprintf(greeting, sizeof greeting, "hello from rank %d", spec.rank);
    TRY(strata_message_start_send(comm, greeting, sizeof greeting, (spec.rank + 1) % spec.world_size, 0, &sent, &err));
    TRY(strata_message_receive(comm, got, sizeof got, STRATA_ANY, 0, 60, NULL, &err));
    TRY(strata_request_wait(sent, &err));

    printf("rank %d of %d over %s: the sum of all ranks is %g; %s\n", spec.rank, spec.world_size,
           strata_communicator_transport(comm), sum, got);
    strata_communicator_destroy(comm);
    strata_cluster_spec_finish(&spec);
    return 0;
}
