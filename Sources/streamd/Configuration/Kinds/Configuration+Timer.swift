import Events
import Reactive
import StreamSources

extension Configuration {
  /// A timer source.
  struct Timer: Sendable, Equatable {
    /// The interval of the ticks, 1 ms to 365 days.
    var every = Duration.seconds(1)
    /// How late a tick may be, to save wake-ups. Less than `every`.
    var leeway = Duration.zero
    /// Ticks until the stream completes, at least 1; `nil`: without end.
    var times: Int?
  }
}

extension Configuration.Timer: SourceTable {
  static let name = "timer"
  static let example = #"{ every = "1s" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "every", suchAs: "every = \"30s\"", \.every, .duration()),
    .init("leeway", \.leeway, .duration(from: .zero)),
    .init("times", \.times, .count(1...Int.max)),
    .check { table, timer in
      if table.isComplete, timer.leeway >= timer.every { table.expected("less than every", at: "leeway") }
    },
  ]

  var definition: [DefinitionField] { [("timer.every", every.definition)] }
  var descriptorCount: Int { 0 }
  var hasUpstream: Bool { false }
  var isJSON: Bool { true }

  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] {
    guard times != nil else { return [] }
    return [("expected no timer.times with share = \"fleet\": a stream of a fleet does not complete", "timer")]
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    TimerSource(every: every, leeway: leeway, times: times, resumption: context.source.resumption(.log))
      .eraseToAnyPublisher()
  }
}
