#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the training part of cluster.sh: compares workers of this machine with one process, with TensorFlow's
MultiWorkerMirroredStrategy and with DistributedDataParallel."""
import argparse
import os
import shutil
import subprocess
import sys

from strategies import BATCH, TASKS, Bench, run

# task: what two workers must reach of one process, of TensorFlow's workers, of DistributedDataParallel
ASKED = {"mnist": (0.70, 20.0, 5.0), "cifar10": (0.90, 2.0, 2.0)}
EIGHT = 0.6  # of one process, by eight workers on the same cores


class Workers(Bench):
    def launched(self, task, n):
        job = self.train(task, "--strategy", "multi_worker_mirrored")[len(self.first):]
        return self.first + [self.o.strata, "launch", "-n", str(n), "--"] + job

    def one_process(self, task):
        alone = self.train(task, "--device", "opencl:0")
        self.compare(f"{task}: 2 workers / one process", self.launched(task, 2), alone, ASKED[task][0])
        self.compare(f"{task}: 8 workers / one process", self.launched(task, 8), alone, EIGHT)

    def tensorflow(self, task):
        script = os.path.join(self.o.scripts, "tf_multi_worker.sh")
        if subprocess.run([self.o.python, "-c", "import tensorflow"], stderr=subprocess.DEVNULL, check=False).returncode:
            print(f"# skipped: {task} beside TensorFlow's workers (needs tensorflow; set STRATA_BENCH_TENSORFLOW to its python3)")
            return
        os.environ.update(PYTHON=self.o.python, TF_USE_LEGACY_KERAS="1")
        peer = ["sh", script, "2", TASKS[task][1], "--batch", str(BATCH), "--epochs", "2"]
        self.compare(f"{task}: 2 workers / TensorFlow's", self.launched(task, 2), self.first + peer, ASKED[task][1])

    def torch(self, task):
        if not shutil.which(self.o.torchrun):
            print(f"# skipped: {task} beside DistributedDataParallel (needs torchrun; set STRATA_BENCH_TORCHRUN)")
            return
        self.compare(f"{task}: 2 workers / torch DDP, 2 gloo ranks", self.launched(task, 2), self.torch_ddp(task),
                     ASKED[task][2])


def main():
    parser = argparse.ArgumentParser()
    for name in ("strata", "data", "scripts", "torchrun", "python"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--tasks", default=",".join(ASKED))
    parser.add_argument("--rounds", type=int, default=3)
    bench = Workers(parser.parse_args())
    print(f"{'samples/s, global batch 128':<44} {'ours':>12} {'other':>12} {'ratio':>7}")
    for task in bench.o.tasks.split(","):
        if task not in ASKED:
            parser.error(f"there is no task {task}; there are: {', '.join(ASKED)}")
        bench.one_process(task)
        bench.tensorflow(task)
        bench.torch(task)
    print(f"# {bench.missed} missed")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
