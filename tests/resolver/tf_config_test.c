/* SPDX-License-Identifier: Apache-2.0
 *
 * TF_CONFIG: what of its schema is taken, what is ignored, and what is said to wrong ones. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/resolver/resolved.h"

#define CONFIG(json) VARIABLES("TF_CONFIG=" json)

Test(tf_config, two_workers_meet_at_worker_0) {
    tells(CONFIG("{\"cluster\":{\"worker\":[\"host1:2222\",\"host2:2222\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"),
          "worker host1:2222 host2:2222; I am worker:0, rank 0 of 2, local 0 of 1, chief; host1:2222");
    tells(CONFIG("{\"cluster\":{\"worker\":[\"host1:2222\",\"host2:2222\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"),
          "worker host1:2222 host2:2222; I am worker:1, rank 1 of 2, local 0 of 1; host1:2222");
}

Test(tf_config, a_chief_is_rank_0_and_shifts_the_workers) {
    tells(CONFIG("{\"cluster\":{\"worker\":[\"b:1\",\"c:1\"],\"chief\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"),
          "chief a:1; worker b:1 c:1; I am worker:1, rank 2 of 3, local 0 of 1; a:1");
    tells(CONFIG("{\"cluster\":{\"worker\":[\"b:1\",\"c:1\"],\"chief\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"),
          "chief a:1; worker b:1 c:1; I am worker:0, rank 1 of 3, local 0 of 1; a:1");
    tells(CONFIG("{\"cluster\":{\"worker\":[\"b:1\"],\"chief\":[\"a:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}"),
          "chief a:1; worker b:1; I am chief:0, rank 0 of 2, local 0 of 1, chief; a:1");
}

Test(tf_config, parameter_servers_and_evaluators_are_no_ranks) {
    tells(
        CONFIG("{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"c:1\",\"d:1\"]},\"task\":{\"type\":\"ps\",\"index\":1}}"),
        "worker a:1 b:1; ps c:1 d:1; I am ps:1, rank -1 of 2, local 0 of 1; a:1");
    tells(CONFIG("{\"cluster\":{\"worker\":[\"a:1\"],\"evaluator\":[\"e:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}"),
          "worker a:1; evaluator e:1; I am evaluator:0, rank -1 of 1, local 0 of 1, chief; a:1");
}

Test(tf_config, an_evaluator_need_not_stand_in_the_cluster) {
    tells(CONFIG("{\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}"),
          "worker a:1; I am evaluator:0, rank -1 of 1, local 0 of 1, chief; a:1");
}

Test(tf_config, unset_empty_and_braces_are_a_world_of_one) {
    tells(NO_VARIABLES, "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
    tells(CONFIG(""), "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
    tells(CONFIG("{}"), "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
}

Test(tf_config, ignores_keys_that_are_not_its_own) {
    tells(CONFIG("{\"cluster\":{\"worker\":[\"j-worker-0.ns.svc:2222\"],\"tpu_worker\":7},\"rpc_layer\":\"grpc\","
                 "\"environment\":\"cloud\","
                 "\"sparseCluster\":{\"worker\":{\"0\":\"x\"}},\"session_master\":null,"
                 "\"task\":{\"type\":\"worker\",\"index\":0,\"trial\":\"1\"}}"),
          "worker j-worker-0.ns.svc:2222; I am worker:0, rank 0 of 1, local 0 of 1, chief; j-worker-0.ns.svc:2222");
}

Test(tf_config, counts_the_tasks_of_this_host) {
    tells(CONFIG("{\"cluster\":{\"worker\":[\"a:1\",\"b:1\",\"a:2\",\"b:2\"]},\"task\":{\"type\":\"worker\",\"index\":3}}"),
          "worker a:1 b:1 a:2 b:2; I am worker:3, rank 3 of 4, local 1 of 2; a:1");
    tells(CONFIG("{\"cluster\":{\"worker\":[\"[::1]:1\",\"[::1]:2\",\"[::2]:2\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"),
          "worker [::1]:1 [::1]:2 [::2]:2; I am worker:1, rank 1 of 3, local 1 of 2; [::1]:1");
}

/* --task beside TF_CONFIG: the same task, or a contradiction. */
Test(tf_config, a_task_that_is_given_too_must_be_the_same) {
    static const char *const same[] = {"worker:1", "1"}, *const others[] = {"worker:0", "0", "worker", "ps:0", "worker:2"};
    strata_cluster_options opts = options_in(
        CONFIG("{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"c:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"));
    for (int i = 0; i < 2; i++) {
        opts.task = same[i];
        strata_cluster_spec spec = resolved_by(opts);
        cr_expect(spec.task_type == STRATA_TASK_WORKER && spec.task_index == 1);
        strata_cluster_spec_finish(&spec);
    }
    for (int i = 0; i < 5; i++) {
        char message[200];
        opts.task = others[i];
        snprintf(message, sizeof message,
                 "--task is \"%s\", but TF_CONFIG says that this process is worker:1; give --cluster with --task, or leave "
                 "--task out",
                 others[i]);
        refuses_by(opts, STRATA_INVALID, message);
    }
}

Test(tf_config, explains_what_is_not_json) {
    refuses(CONFIG("x"), "TF_CONFIG:1:1: expected a value, found 'x'");
    refuses(CONFIG("{'cluster': 1}"), "TF_CONFIG:1:2: expected a key in double quotes, found '''");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:1\",]}}"), "TF_CONFIG:1:29: expected a value, found ']'");
    refuses(CONFIG("{\"task\":1,\"task\":2}"), "TF_CONFIG:1:11: key \"task\" is given twice in one object");
    refuses(CONFIG("[]"), "TF_CONFIG: must be an object, is an array");
    refuses(CONFIG("null"), "TF_CONFIG: must be an object, is null");
}

Test(tf_config, explains_a_wrong_cluster) {
    refuses(CONFIG("{\"cluster\":[]}"), "TF_CONFIG: cluster: must be an object, is an array");
    refuses(CONFIG("{\"cluster\":{\"worker\":\"a:1\"}}"), "TF_CONFIG: cluster.worker: must be an array, is \"a:1\"");
    refuses(CONFIG("{\"cluster\":{\"worker\":{\"0\":\"a:1\"}}}"), "TF_CONFIG: cluster.worker: must be an array, is an object");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:1\",2]}}"), "TF_CONFIG: cluster.worker[1]: must be a string, is 2");
    refuses(CONFIG("{\"cluster\":{},\"task\":{\"type\":\"worker\",\"index\":0}}"),
            "TF_CONFIG: there is neither a chief nor a worker, so nobody trains; add a worker");
    refuses(CONFIG("{\"cluster\":{\"chief\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}"),
            "TF_CONFIG: there are 2 tasks of type chief; a cluster has at most one");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:1\"],\"evaluator\":[\"d:1\",\"b:1\",\"c:1\"]},\"task\":{\"type\":\"worker\","
                   "\"index\":0}}"),
            "TF_CONFIG: there are 3 tasks of type evaluator; a cluster has at most one");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"),
            "TF_CONFIG: two tasks have the address a:1; each needs its own");
}

Test(tf_config, explains_a_wrong_address) {
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"\"]}}"), "TF_CONFIG: cluster.worker[0]: \"\" is empty; it must be host:port");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"host1\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \"host1\" has no port; it must be host:port");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\":2222\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \":2222\" has no host; it must be host:port");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:0\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \"a:0\" has a wrong port; it must be a number from 1 to 65535");
    refuses(CONFIG("{\"cluster\":{\"chief\":[\"a:65536\"]}}"),
            "TF_CONFIG: cluster.chief[0]: \"a:65536\" has a wrong port; it must be a number from 1 to 65535");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a:http\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \"a:http\" has a wrong port; it must be a number from 1 to 65535");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"::1:22\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \"::1:22\" has several colons; an IPv6 host stands in brackets, as in [::1]:2222");
    refuses(
        CONFIG("{\"cluster\":{\"worker\":[\"grpc://a:22\"]}}"),
        "TF_CONFIG: cluster.worker[0]: \"grpc://a:22\" has several colons; an IPv6 host stands in brackets, as in [::1]:2222");
    refuses(CONFIG("{\"cluster\":{\"worker\":[\"a b:22\"]}}"),
            "TF_CONFIG: cluster.worker[0]: \"a b:22\" has a character that no host name has");
}

Test(tf_config, explains_a_wrong_task) {
#define CLUSTER "{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]}"
    refuses(
        CONFIG(CLUSTER "}"),
        "TF_CONFIG: \"task\" is missing; each process says which it is, as in \"task\": {\"type\": \"worker\", \"index\": 0}");
    refuses(CONFIG("{\"task\":{\"type\":\"worker\",\"index\":0}}"),
            "TF_CONFIG: there is a \"task\" but no \"cluster\"; it must list the addresses, as in \"cluster\": "
            "{\"worker\": [\"host1:2222\", \"host2:2222\"]}");
    refuses(CONFIG(CLUSTER ",\"task\":0}"), "TF_CONFIG: task: must be an object, is 0");
    refuses(CONFIG(CLUSTER ",\"task\":{\"index\":0}}"), "TF_CONFIG: task: \"type\" is missing");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"worker\"}}"), "TF_CONFIG: task: \"index\" is missing");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":0,\"index\":0}}"), "TF_CONFIG: task.type: must be a string, is 0");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"master\",\"index\":0}}"),
            "TF_CONFIG: task.type: must be chief, worker, ps or evaluator, is \"master\"");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"worker\",\"index\":\"0\"}}"),
            "TF_CONFIG: task.index: must be an integer 0..65535, is \"0\"");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"worker\",\"index\":-1}}"),
            "TF_CONFIG: task.index: must be an integer 0..65535, is -1");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"worker\",\"index\":0.5}}"),
            "TF_CONFIG: task.index: must be an integer 0..65535, is 0.5");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"worker\",\"index\":2}}"),
            "TF_CONFIG: this task is worker:2, but the cluster has 2 of that type: indices 0 to 1");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"evaluator\",\"index\":1}}"),
            "TF_CONFIG: this task is evaluator:1, but the cluster has 0 of that type: indices 0 to 0");
    refuses(CONFIG(CLUSTER ",\"task\":{\"type\":\"chief\",\"index\":0}}"),
            "TF_CONFIG: this task is chief:0, but the cluster has no chief");
    refuses(CONFIG("{\"cluster\":{\"chief\":[\"a:1\"],\"workers\":[\"b:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}"),
            "TF_CONFIG: cluster: this task is worker:0, but there is no \"worker\"; is \"workers\" meant to be it?");
}
