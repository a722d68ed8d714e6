// Decides who may join a job: compares the first words of a rank against what rank 0 runs.
#ifndef COTUNE_SYNC_MACHINE_RENDEZVOUS_H_
#define COTUNE_SYNC_MACHINE_RENDEZVOUS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/status.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire_forward.h"

namespace cotune::sync {

// These values must be equal on all ranks before anything else is compared.
struct JobIdentity {
  int world_size = 1;
  std::string job_id;        // at most kNameBytesMax characters
  std::string code_version;  // at most kNameBytesMax characters
};

wire::Hello MakeHello(const JobIdentity& job, int rank, int64_t deadline_left_ns);

// The first field that does not fit the job, as an error that names field, rank and both values;
// nullopt when the rank may join. A rank that is out of range is named with the number it gave.
std::optional<Error> CheckHello(const JobIdentity& job, const wire::Hello& hello);

// Whether the process is meant to be a rank of this job, whatever else is wrong with it: it names
// the job and a rank that the job has.
bool ClaimsPlace(const JobIdentity& job, const wire::Hello& hello);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_RENDEZVOUS_H_
