import Events
import Reactive
import StreamRuntime
import StreamServer
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// A kind of source is a driver, a section of the configuration, and an element of the list of kinds.
struct ExampleKindTests {
  private func parse(_ text: String) throws(ConfigurationErrors) -> Configuration {
    try ConfigurationSource.parse(
      [ConfigurationText(path: "/x", bytes: Array(text.utf8))], kinds: SourceKind.all + [Configuration.Numbers.self]
    ).configuration
  }

  private func sentences(_ text: String) -> [String] {
    do throws(ConfigurationErrors) {
      _ = try parse(text)
      return []
    } catch {
      return error.sentences
    }
  }

  @Test func anotherKindIsReadAndChecked() throws {
    let stream = try parse("[streams.s]\nnumbers = { path = \"/n\" }\nretry.first = \"2s\"").streams[0]
    #expect(stream.source == .init(Configuration.Numbers(path: "/n")) && stream.source.kind == "numbers")
    #expect(StreamConfiguration(stream).source == "numbers")
    #expect(
      sentences("[streams.s]\nnumbers = 5") == [
        #"/x:2: streams.s.numbers: expected a table, such as numbers = { path = "/srv/numbers" }, got a number"#
      ])
    #expect(sentences("[streams.s]\nbuffer.events = 1").first?.contains("publish or numbers), got none") == true)
    #expect(
      sentences("[streams.s]\nnumbers = { path = \"/n\" }\ntimer = { every = \"1s\" }")
        == ["/x:1: streams.s: expected one source, got timer and numbers"])
    #expect(
      sentences("[streams.s]\nnumbers.path = \"/n\"\nshare = \"fleet\"\n[cluster]\nnats = [\"nats://h\"]\nname = \"f\"")
        == [#"/x:3: streams.s.share: expected no share = "fleet" with numbers: each host has its own"#])
  }

  @Test func aReloadAndTheFleetCompareAnotherKind() throws {
    let streams = try ["/n", "/m"].map { try parse("[streams.s.numbers]\npath = \"\($0)\"").streams[0] }
    #expect(streams[0].definitionDigest != streams[1].definitionDigest)
    let change = ConfigurationDifference.Change(former: streams[0], stream: streams[1])
    #expect(change.hasOtherFeed && !change.hasOtherLog)
  }

  @Test func anotherKindIsTheSourceOfAStream() async throws {
    let folder = try TemporaryFolder(["numbers": "1\n2\n3\n"])
    let thread = try SourceThread()
    try thread.start()
    defer { thread.stop(within: .zero) {} }
    let stream = try parse("[streams.s.numbers]\npath = \"\(folder.path)/numbers\"").streams[0]
    let reports = Locked<[SourceReport]>([])
    let context = SectionContext(
      source: SourceContext(on: thread) { report in reports.withLock { $0.append(report) } },
      publishSource: PublishSource(), derived: { _, _ in Empty(completeImmediately: true).eraseToAnyPublisher() })
    for await batch in stream.source.section.publisher(of: stream, in: context).first().values {
      #expect(batch.map { String(decoding: $0, as: UTF8.self) } == ["1", "2", "3"])
    }
    #expect(reports.withLock { $0 } == [])
  }
}
