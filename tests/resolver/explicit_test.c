/* SPDX-License-Identifier: Apache-2.0
 *
 * The cluster said by hand, as a text or in a file. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/resolver/resolved.h"
#include "tests/support/folder.h"

static strata_cluster_options by_hand(const char *cluster, const char *task) {
    strata_cluster_options opts = options_in(NO_VARIABLES);
    opts.cluster = cluster;
    opts.task = task;
    return opts;
}

static void says(const char *cluster, const char *task, const char *line) {
    strata_cluster_spec spec = resolved_by(by_hand(cluster, task));
    cr_expect_str_eq(told(&spec), line);
    strata_cluster_spec_finish(&spec);
}

Test(explicit_cluster, a_plain_list_is_workers) {
    says("a:1,b:2", "1", "worker a:1 b:2; I am worker:1, rank 1 of 2, local 0 of 1; a:1");
    says(" a:1 , b:2 ", "worker:0", "worker a:1 b:2; I am worker:0, rank 0 of 2, local 0 of 1, chief; a:1");
    says("a:1", NULL, "worker a:1; I am worker:0, rank 0 of 1, local 0 of 1, chief; a:1");
}

Test(explicit_cluster, jobs_are_named) {
    says("chief=a:1;worker=b:2,c:3;ps=d:4", "worker:1",
         "chief a:1; worker b:2 c:3; ps d:4; I am worker:1, rank 2 of 3, local 0 of 1; a:1");
    says("chief=a:1;worker=b:2", "chief", "chief a:1; worker b:2; I am chief:0, rank 0 of 2, local 0 of 1, chief; a:1");
    says("worker=b:2;evaluator=e:1", "evaluator",
         "worker b:2; evaluator e:1; I am evaluator:0, rank -1 of 1, local 0 of 1, chief; b:2");
    says("chief=a:1", NULL, "chief a:1; I am chief:0, rank 0 of 1, local 0 of 1, chief; a:1");
}

static void says_in_file(const char *text, size_t n_bytes, char (*out_option)[600]) {
    snprintf(*out_option, sizeof *out_option, "@%s", test_file("hosts", text, n_bytes));
}

Test(explicit_cluster, a_file_has_one_group_a_line, .init = test_folder_make, .fini = test_folder_remove) {
    static const char text[] = "# two boxes\r\nchief = a:1\r\n\nb:2  # the old one\nworker = c:3, c:4;d:5";
    char option[600];
    says_in_file(text, sizeof text - 1, &option);
    says(option, "worker:2", "chief a:1; worker b:2 c:3 c:4 d:5; I am worker:2, rank 3 of 5, local 1 of 2; a:1");
}

Test(explicit_cluster, variables_say_it_too) {
    tells(VARIABLES("STRATA_CLUSTER=a:1,b:2", "STRATA_TASK=worker:1", "TF_CONFIG=not looked at"),
          "worker a:1 b:2; I am worker:1, rank 1 of 2, local 0 of 1; a:1");
}

Test(explicit_cluster, explains_a_wrong_list) {
    refuses_by(by_hand("a", "0"), STRATA_DATA, "--cluster:1: the address \"a\" has no port; it must be host:port");
    refuses_by(by_hand("a:1,", "0"), STRATA_DATA, "--cluster:1: the address \"\" is empty; it must be host:port");
    refuses_by(by_hand("boss=a:1", "0"), STRATA_DATA,
               "--cluster:1: \"boss\" is no type of task; there are chief, worker, ps and evaluator");
    refuses_by(by_hand("ps=a:1", "ps:0"), STRATA_DATA,
               "--cluster: there is neither a chief nor a worker, so nobody trains; add a worker");
    refuses_by(by_hand("worker=", "0"), STRATA_DATA, "--cluster:1: the address \"\" is empty; it must be host:port");
    refuses_by(by_hand("@/no/such/file", "0"), STRATA_UNAVAILABLE, "/no/such/file: cannot open: No such file or directory");
}

Test(explicit_cluster, explains_a_wrong_line_of_a_file, .init = test_folder_make, .fini = test_folder_remove) {
    char option[600], message[800];
    says_in_file("a:1\n\nb:99999\n", 13, &option);
    snprintf(message, sizeof message, "%s:3: the address \"b:99999\" has a wrong port; it must be a number from 1 to 65535",
             option + 1);
    refuses_by(by_hand(option, "0"), STRATA_DATA, message);
    says_in_file("a:1\0b", 5, &option);
    snprintf(message, sizeof message, "%s has a NUL byte; it must be a text of addresses", option + 1);
    refuses_by(by_hand(option, "0"), STRATA_DATA, message);
}

Test(explicit_cluster, explains_a_wrong_task) {
    static const char *const wrong[] = {"worker", "ps:", "boss:1", "worker:x", "x", "worker:-1", ":1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char message[200];
        snprintf(message, sizeof message, "--task is \"%s\"; it must be TYPE:INDEX, as in worker:0, or chief or evaluator",
                 wrong[i]);
        refuses_by(by_hand("a:1,b:1", wrong[i]), STRATA_INVALID, message);
    }
    refuses_by(by_hand("a:1,b:1", NULL), STRATA_INVALID,
               "--cluster names several tasks; say which one this process is: --task TYPE:INDEX, or STRATA_TASK");
    refuses_by(by_hand("chief=a:1;worker=b:1", "1"), STRATA_INVALID,
               "--task is 1, but there is a chief; say chief or worker:INDEX");
    refuses_by(by_hand("a:1,b:1", "2"), STRATA_DATA,
               "--cluster: this task is worker:2, but the cluster has 2 of that type: indices 0 to 1");
}
