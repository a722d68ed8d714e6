#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>

#include <utility>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {
namespace {

// Its errors end the job: that is MPI's default for MPI_COMM_WORLD.
class OpenMpi : public Contender {
 public:
  explicit OpenMpi(std::string name) : name_(std::move(name)) {}

  std::string Name() const override { return name_; }

  void Prepare(const Workload& workload) override { workload_ = workload; }

  void Run() override {
    const Workload& w = workload_;
    const int count = static_cast<int>(w.count);
    switch (w.collective) {
      case COTUNE_COLLECTIVE_ALL_REDUCE:
        MPI_Allreduce(w.send, w.recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case COTUNE_COLLECTIVE_ALL_GATHER:
        MPI_Allgather(w.send, count, MPI_FLOAT, w.recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        return;
      case COTUNE_COLLECTIVE_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(w.send, w.recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case COTUNE_COLLECTIVE_ALL_TO_ALL:
        MPI_Alltoall(w.send, count, MPI_FLOAT, w.recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        return;
      default:
        MPI_Bcast(w.recv, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
  }

 private:
  const std::string name_;
  Workload workload_;
};

}  // namespace

std::unique_ptr<Contender> MakeOpenMpi(const std::string& name) {
  return std::make_unique<OpenMpi>(name);
}

}  // namespace cotune::bench
