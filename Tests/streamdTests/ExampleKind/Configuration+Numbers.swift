import Events
import Reactive
import StreamSources

@testable import streamd

extension Configuration {
  /// A source that reads a file of numbers. This is all that a kind of source needs in the daemon, besides its element of
  /// `SourceKind.all`.
  struct Numbers: Sendable, Equatable {
    var path = ""
  }
}

extension Configuration.Numbers: SourceTable {
  static let name = "numbers"
  static let example = #"{ path = "/srv/numbers" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "path", suchAs: "path = \"/srv/numbers\"", \.path, .path(upTo: 4095))
  ]

  var definition: [DefinitionField] { [("numbers.path", path)] }
  var descriptorCount: Int { 1 }
  var isJSON: Bool { true }
  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] { localError("numbers") }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    Source(NumberSource(path: path, retry: stream.retry), in: context.source).eraseToAnyPublisher()
  }
}
