/* SPDX-License-Identifier: Apache-2.0
 *
 * Which transport "auto" chooses, depending on what each transport supports. */
#include "cluster/transport.h"

#include <criterion/criterion.h>

Test(transport, auto_takes_shared_memory_on_one_machine_and_bytes_elsewhere) {
    const strata_transport *first = strata_transport_next(NULL, false);
    cr_assert_str_eq(first->name, "shm");
    cr_assert_str_eq(strata_transport_next(first, false)->name, "tcp");
    cr_assert_str_eq(strata_transport_next(NULL, true)->name, "tcp");
    cr_assert_null(strata_transport_next(strata_transport_next(NULL, true), true));
}
