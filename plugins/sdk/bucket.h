// Takes a bucket, which is a region of several collectives, apart.
#ifndef COTUNE_PLUGINS_SDK_BUCKET_H_
#define COTUNE_PLUGINS_SDK_BUCKET_H_

#include <cstddef>
#include <vector>

#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::sdk {

// One collective of a bucket with the operations around it, as a region of its own.
struct BucketPiece {
  Program program;              // has all inputs of the bucket
  int collective = 0;           // the value of its collective
  std::vector<size_t> outputs;  // for each output, the output of the bucket
};

// The pieces of a region that has two collectives or more, in the order of these. Pieces may be
// computed in any order, and at the same time. COTUNE_UNSUPPORTED, with the reason, if an operation
// does not belong to exactly one collective, or an output overwrites an input that the operations
// of another one read. Pure.
Result<std::vector<BucketPiece>> PiecesOf(const Program& bucket);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_BUCKET_H_
