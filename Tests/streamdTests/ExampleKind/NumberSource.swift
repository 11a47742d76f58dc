import Events
import Foundation
import Reactive
import StreamRuntime

@testable import StreamSources

/// Reads a file of numbers again and again: each line is an event. This is all that a kind of source needs in StreamSources.
struct NumberSource: SourceDriver {
  let path: String
  let retry: Backoff

  func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: retry, run: "the file")
    return { NumberSubscription(path, context, memory, to: $0) }
  }
}

private final class NumberSubscription: SourceSubscription<RestartMachine>, @unchecked Sendable {
  private let path: String

  init(
    _ path: String, _ context: SourceContext, _ memory: SourceMemory<RestartMachine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    self.path = path
    super.init(context, memory, to: down)
  }

  override func begin() { continueSchedule() }

  override func perform(_ action: RestartMachine.Action) { perform(action) { read() } }

  private func read() {
    context.progress(.attempted)
    guard let bytes = FileManager.default.contents(atPath: path) else {
      return conclude(SourceFailure("\(path) cannot be read"))
    }
    report(machine?.answered(at: now))
    give(EventBatch(bytes.split(separator: UInt8(ascii: "\n")).map { Array($0) }), nil)
    conclude(nil)
  }
}
