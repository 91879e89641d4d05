/* SPDX-License-Identifier: Apache-2.0
 *
 * All of Strata: train neural networks on any accelerator. A program includes this one. */
#ifndef STRATA_STRATA_H
#define STRATA_STRATA_H

#include "strata/ahead.h"
#include "strata/callbacks.h"
#include "strata/cluster.h"
#include "strata/cluster_spec.h"
#include "strata/coordinator.h"
#include "strata/csv.h"
#include "strata/dataset.h"
#include "strata/describe.h"
#include "strata/device.h"
#include "strata/distribute.h"
#include "strata/events.h"
#include "strata/executable.h"
#include "strata/file.h"
#include "strata/formats.h"
#include "strata/graph.h"
#include "strata/interchange.h"
#include "strata/json.h"
#include "strata/layers.h"
#include "strata/metrics.h"
#include "strata/model.h"
#include "strata/ops.h"
#include "strata/optimizers.h"
#include "strata/option.h"
#include "strata/philox.h"
#include "strata/pipeline.h"
#include "strata/preprocessing.h"
#include "strata/registry.h"
#include "strata/sha256.h"
#include "strata/status.h"
#include "strata/strategy.h"
#include "strata/summary.h"
#include "strata/tensor.h"
#include "strata/text.h"
#include "strata/tokenizer.h"
#include "strata/trace_file.h"
#include "strata/version.h"

#endif
