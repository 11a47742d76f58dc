import Events
import Testing

@testable import StreamSources

/// Names and ids of server-sent events in envelopes.
@Suite struct ServerSentEventFormTests {
  private func events(_ text: String, _ form: ServerSentEventForm) throws -> [String] {
    var parser = ServerSentEventSplitter(maximumBytes: 1000, form: form)
    var events = EventBatch()
    try Array(text.utf8).withUnsafeBytes { try parser.split($0, into: &events) }
    return events.map { String(decoding: $0, as: UTF8.self) }
  }

  @Test func anEnvelopeHasNameIDAndData() throws {
    let text =
      "event: price\nid: 7\ndata: {\"eur\":3}\n\ndata: plain \"text\"\ndata: more\n\nid\nevent: a\"b\ndata: [1,\ndata: 2]\n\n"
    #expect(
      try events(text, .envelope) == [
        #"{"event":"price","id":"7","data":{"eur":3}}"#,
        #"{"event":"message","id":"7","data":"plain \"text\"\nmore"}"#,
        "{\"event\":\"a\\\"b\",\"data\":[1,\n2]}",
      ])
    #expect(try events(text, .data) == ["{\"eur\":3}", "plain \"text\"\nmore", "[1,\n2]"])
  }

  /// The recipe of streamd.toml(5).
  @Test func theEndOfAModelsAnswerCanBeLeftOut() throws {
    let events = try events("data: {\"a\":1}\n\ndata: [DONE]\n\n", .envelope)
    let program = try JQProgram(#"select(.data != "[DONE]") | .data"#)
    let outputs = try events.flatMap { try program.outputs(for: Array($0.utf8)) }
    #expect(outputs.map { String(decoding: $0, as: UTF8.self) } == [#"{"a":1}"#])
  }

  @Test func aNameAppliesToOneEventAndDataIsRequired() throws {
    #expect(
      try events("event: a\n\nevent: b\nevent: c\ndata: 1\n\ndata: 2\n\n", .envelope) == [
        #"{"event":"c","data":1}"#, #"{"event":"message","data":2}"#,
      ])
  }
}
