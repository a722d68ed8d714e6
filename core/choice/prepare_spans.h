// A span for each plan that is made, on the thread that makes it.
#ifndef COTUNE_CORE_CHOICE_PREPARE_SPANS_H_
#define COTUNE_CORE_CHOICE_PREPARE_SPANS_H_

#include <memory>
#include <utility>

#include "core/base/event_sink.h"
#include "core/choice/choice_caller.h"
#include "core/choice/precompile.h"

namespace cotune {

// Emits SpanKind::kCompile around each prepare, and passes all on to `notes`, which may be nullptr.
// It shares the sink, because a thread whose call never returned may still emit the end of its
// span.
class PrepareSpans final : public PrepareNotes {
 public:
  PrepareSpans(std::shared_ptr<EventSink> sink, std::shared_ptr<PrepareNotes> notes)
      : sink_(std::move(sink)), notes_(std::move(notes)) {}

  bool IsSuspect(const ChoiceCaller& caller) override;
  void Begin(const ChoiceCaller& caller) override;
  void End(const ChoiceCaller& caller) override;

 private:
  void Emit(EventType type, const ChoiceCaller& caller);

  const std::shared_ptr<EventSink> sink_;
  const std::shared_ptr<PrepareNotes> notes_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_PREPARE_SPANS_H_
