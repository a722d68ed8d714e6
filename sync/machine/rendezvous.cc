#include "sync/machine/rendezvous.h"

#include <fmt/format.h>

#include "sync/wire/failure_text.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

Error FieldDiffers(int rank, const char* field, const std::string& theirs, const std::string& ours,
                   const char* cause, const char* next_step) {
  return RankLost(fmt::format("rank {} has {} {}, rank 0 has {}", rank, field, theirs, ours),
                  "the rendezvous", cause, next_step, {rank});
}

}  // namespace

wire::Hello MakeHello(const JobIdentity& job, int rank, int64_t deadline_left_ns) {
  wire::Hello hello;
  hello.set_protocol(kProtocolVersion);
  hello.set_rank(rank);
  hello.set_world_size(job.world_size);
  hello.set_job_id(job.job_id);
  hello.set_code_version(job.code_version);
  hello.set_deadline_left_ns(deadline_left_ns);
  return hello;
}

std::optional<Error> CheckHello(const JobIdentity& job, const wire::Hello& hello) {
  const int rank = hello.rank();
  if (hello.job_id() != job.job_id) {
    return FieldDiffers(rank, "job id", Quoted(hello.job_id()), Quoted(job.job_id),
                        "two jobs use one socket path",
                        "give each job its own socket path or wait for the other job");
  }
  if (hello.protocol() != kProtocolVersion) {
    return FieldDiffers(rank, "protocol version", fmt::format("{}", hello.protocol()),
                        fmt::format("{}", kProtocolVersion), "two versions of cotune in one job",
                        "run the same build on every rank");
  }
  if (hello.code_version() != job.code_version) {
    return FieldDiffers(rank, "code version", Quoted(hello.code_version()),
                        Quoted(job.code_version), "two versions of cotune in one job",
                        "run the same build on every rank");
  }
  if (hello.world_size() != job.world_size) {
    return FieldDiffers(rank, "world size", fmt::format("{}", hello.world_size()),
                        fmt::format("{}", job.world_size),
                        "the launcher gave the ranks different world sizes",
                        "start every rank with the same world size");
  }
  if (rank < 0 || rank >= job.world_size) {
    return RankLost(fmt::format("rank {} is outside of world size {}", rank, job.world_size),
                    "the rendezvous", "the launcher numbered the ranks wrongly",
                    fmt::format("number the ranks 0 to {}", job.world_size - 1), {rank});
  }
  return std::nullopt;
}

bool ClaimsPlace(const JobIdentity& job, const wire::Hello& hello) {
  return hello.job_id() == job.job_id && hello.rank() >= 0 && hello.rank() < job.world_size;
}

}  // namespace cotune::sync
