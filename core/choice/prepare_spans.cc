#include "core/choice/prepare_spans.h"

#include <string>

namespace cotune {

bool PrepareSpans::IsSuspect(const ChoiceCaller& caller) {
  return notes_ != nullptr && notes_->IsSuspect(caller);
}

void PrepareSpans::Begin(const ChoiceCaller& caller) {
  if (notes_ != nullptr) notes_->Begin(caller);
  Emit(EventType::kBegin, caller);
}

void PrepareSpans::End(const ChoiceCaller& caller) {
  Emit(EventType::kEnd, caller);
  if (notes_ != nullptr) notes_->End(caller);
}

void PrepareSpans::Emit(EventType type, const ChoiceCaller& caller) {
  const std::string node = ToText(caller.problem().cls);
  const std::string choice = caller.id().text();
  sink_->OnEvent({.type = type,
                  .kind = SpanKind::kCompile,
                  .name = kCompileSpan,
                  .node = node,
                  .choice = choice});
}

}  // namespace cotune
