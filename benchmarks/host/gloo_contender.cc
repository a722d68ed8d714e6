#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#define OMPI_SKIP_MPICXX 1  // the C++ classes, which MPI has given up, ask for paths of their own
#include <mpi/mpi.h>

#include <algorithm>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {
namespace {

class Gloo : public Contender {
 public:
  Gloo(int rank, int world_size, const std::string& folder, const std::string& interface)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, world_size)) {
    gloo::rendezvous::FileStore store(folder);
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context_->connectFullMesh(store, device);
  }

  std::string Name() const override { return "gloo"; }

  void Prepare(const Workload& workload) override {
    workload_ = workload;
    reduce_scatter_.reset();
    if (workload.collective != COTUNE_COLLECTIVE_REDUCE_SCATTER) return;
    // Gloo's only reduce_scatter is one of its older kind: bound to a buffer, on which it works in
    // place, so that the copy that a call out of place needs is Run's.
    in_place_.resize(workload.SendElements());
    reduce_scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{in_place_.data()}, static_cast<int>(in_place_.size()),
        std::vector<int>(static_cast<size_t>(workload.world_size),
                         static_cast<int>(workload.count)));
  }

  void Run() override {
    const Workload& w = workload_;
    switch (w.collective) {
      case COTUNE_COLLECTIVE_ALL_REDUCE:
        return AllReduce();
      case COTUNE_COLLECTIVE_ALL_GATHER: {
        gloo::AllgatherOptions options(context_);
        options.setInput(w.send, w.SendElements());
        options.setOutput(w.recv, w.RecvElements());
        return gloo::allgather(options);
      }
      case COTUNE_COLLECTIVE_REDUCE_SCATTER:
        std::copy_n(w.send, w.SendElements(), in_place_.begin());
        reduce_scatter_->run();
        std::copy_n(in_place_.begin(), w.RecvElements(), w.recv);
        return;
      case COTUNE_COLLECTIVE_ALL_TO_ALL: {
        gloo::AlltoallOptions options(context_);
        options.setInput(w.send, w.SendElements());
        options.setOutput(w.recv, w.RecvElements());
        return gloo::alltoall(options);
      }
      default: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(w.recv, w.RecvElements());
        options.setRoot(0);
        return gloo::broadcast(options);
      }
    }
  }

 private:
  void AllReduce() {
    gloo::AllreduceOptions options(context_);
    options.setInput(workload_.send, workload_.SendElements());
    options.setOutput(workload_.recv, workload_.RecvElements());
    void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  Workload workload_;
  std::vector<float> in_place_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> reduce_scatter_;
};

}  // namespace

std::unique_ptr<Contender> MakeGloo(const std::string& folder, const std::string& interface) {
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  return std::make_unique<Gloo>(rank, world_size, folder, interface);
}

}  // namespace cotune::bench
