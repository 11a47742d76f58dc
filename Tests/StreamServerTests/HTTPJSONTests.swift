import Events
import FoundationEssentials
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Events that are no JSON texts in a stream whose type is JSON, whatever their source: no reader of lines or of a
/// sequence sees another line, or another envelope, than the server's.
@Suite struct HTTPJSONTests {
  private struct Envelope: Decodable {
    let id: UInt64
    let data: [String: Int]?
    let data_base64: String?
  }

  /// None of them is one JSON text.
  private static let others: [[UInt8]] =
    [
      #"1,"id":9,"time":"2000-01-01T00:00:00.000000Z""#, "1}\n{\"id\":9,\"time\":\"\",\"data\":2", "{\"a\":",
      "\"a\u{1}\"",
      "", "plain text", "\n", "1\n2", "\u{1e}1\n\u{1e}2", "\"a\nb\"", "\"data_base64\":\"AA==\"", "\u{feff}{}", "é",
    ].map { Array($0.utf8) } + [[0xff], [0x22, 0xc3, 0x22], [UInt8](repeating: 0x5b, count: 600)]

  private static let texts = ["{\"a\":1}", "{ \"a\":\r\n1 }", "{\"\\u0061\":1}"].map { Array($0.utf8) }

  private static func isJSON(_ configuration: inout StreamConfiguration) {
    (configuration.type, configuration.replay) = ("application/json", 1000)
    configuration.limits = .init(events: 1000, bytes: 64 << 20)
  }

  /// The lines of a whole response, or the texts of a sequence.
  private static func lines(_ harness: ServerHarness, _ query: String, receiveBuffer: CInt? = nil) throws -> [[UInt8]] {
    let client = try HTTPWireClient(harness.path, receiveBuffer: receiveBuffer)
    client.get("/streams/s?follow=0&\(query)")
    let response = try client.response()
    #expect(response.status == 200 && response.isComplete, "\(response)")
    guard query.hasPrefix("as=json-seq") else {
      #expect(response.body.last == 10)
      return response.body.dropLast().split(separator: 10, omittingEmptySubsequences: false).map(Array.init)
    }
    return response.body.split(separator: 0x1e).map { text in
      #expect(text.last == 10)
      return Array(text.dropLast())
    }
  }

  @Test(arguments: ["last=2", "from=-2"]) func aResponseMayBeginWithTheLastEvents(query: String) async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send(batch: (1...5).map { Array("\($0)".utf8) })
      #expect(try Self.lines(harness, "as=ndjson&" + query) == [Array("4".utf8), Array("5".utf8)])
    }
  }

  @Test(arguments: ["as=ndjson&ids=1", "as=json-seq&ids=1"]) func noEventForgesAnEnvelope(query: String) async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      let events = Self.others.enumerated().flatMap { [$1, Self.texts[$0 % Self.texts.count]] }
      source.send(batch: events)
      let lines = try Self.lines(harness, query)
      #expect(lines.count == events.count)
      var first: UInt64?
      for (index, (line, event)) in zip(lines, events).enumerated() {
        let envelope = try JSONDecoder().decode(Envelope.self, from: Data(line))
        first = first ?? envelope.id
        #expect(envelope.id == first! + UInt64(index))
        if index % 2 == 0 {
          let data = envelope.data_base64.flatMap { Data(base64Encoded: $0) }.map { Array($0) }
          #expect(data == event && envelope.data == nil, "\(String(decoding: line, as: UTF8.self))")
        } else {
          #expect(envelope.data == ["a": 1] && envelope.data_base64 == nil)
        }
      }
    }
  }

  @Test(arguments: ["as=ndjson", "as=json-seq"]) func eachLineIsAText(query: String) async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send(batch: Self.others + Self.texts)
      let lines = try Self.lines(harness, query)
      let strings = try lines.prefix(Self.others.count).map { try JSONDecoder().decode(String.self, from: Data($0)) }
      #expect(strings == Self.others.map { String(decoding: $0, as: UTF8.self) })
      let objects = try lines.dropFirst(Self.others.count).map {
        try JSONDecoder().decode([String: Int].self, from: Data($0))
      }
      #expect(objects == Self.texts.map { _ in ["a": 1] })
    }
  }

  @Test func publishedValuesAreNoException() async throws {
    try await withServer { harness in
      try harness.addPublished("s", Self.isJSON)
      let client = try HTTPWireClient(harness)
      client.post("/streams/s", "1,\"id\":9")
      #expect(try client.response().status == 200)
      let publisher = try WireClient.ready(harness.path)
      publisher.toss("s", Array("2}\n{".utf8), id: 1)
      harness.eventually { harness.server.statistics.eventsIn == 2 }
      let data = try Self.lines(harness, "as=ndjson&ids=1")
        .map { try JSONDecoder().decode(Envelope.self, from: Data($0)).data_base64 }
      #expect(data == ["1,\"id\":9", "2}\n{"].map { Data($0.utf8).base64EncodedString() })
      // The bytes themselves are what they are.
      #expect(try client.fetch("/streams/s").text == "2}\n{")
      #expect(try client.fetch("/streams/s?as=raw&follow=0").text == "1,\"id\":9\n2}\n{\n")
    }
  }

  @Test(arguments: ["as=ndjson", "as=ndjson&ids=1", "as=json-seq"]) func largeEventsInPartsAreNoException(query: String)
    async throws
  {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      // The last byte decides.
      let inside = String(repeating: "0123456789\\n", count: 200_000)
      let events = ["\"\(inside)\"", "\"\(inside)\",", "\"\(inside)"].map { Array($0.utf8) }
      source.send(batch: events)
      let lines = try Self.lines(harness, query, receiveBuffer: 4096)
      try #require(lines.count == 3)
      for (index, (line, event)) in zip(lines, events).enumerated() {
        let suffix = query.contains("ids") ? "}" : ""
        var text = String(decoding: line, as: UTF8.self)
        if query.contains("ids") {
          let mark = index == 0 ? ",\"data\":" : ",\"data_base64\":"
          let range = try #require(text.firstRange(of: mark))
          text = String(text[range.upperBound...].dropLast(suffix.count))
        }
        if index == 0 {
          #expect(text.utf8.elementsEqual(event))
        } else {
          let string = try JSONDecoder().decode(String.self, from: Data(text.utf8))
          let data = query.contains("ids") ? Data(base64Encoded: string).map { Array($0) } : Array(string.utf8)
          #expect(data == event, "event \(index)")
        }
      }
    }
  }

  /// No reader gets other bytes than were published: what is not UTF-8 is no string.
  @Test(arguments: ["as=ndjson&ids=1", "as=json-seq&ids=1"]) func anEnvelopeHasTheBytesOfAText(query: String)
    async throws
  {
    struct Envelope: Decodable {
      let data: String?
      let data_base64: String?
    }
    try await withServer { harness in
      let source = try harness.add("s") {
        ($0.type, $0.replay) = ("text/plain", 1000)
        $0.limits = .init(events: 1000, bytes: 64 << 20)
      }
      let slice = ContentVerdicts.sliceByteCount
      let long = [UInt8](repeating: 0x61, count: slice - 1)
      let texts =
        ["plain", "", "é\n\"\u{1}"].map { Array($0.utf8) } + [long + Array("é€😀".utf8) + long + Array("😀".utf8)]
      let others: [[UInt8]] = [
        [0xff], [0x61, 0xc3], [0xed, 0xa0, 0x80], long + [0xc3] + long, long + long + [0xf0, 0x9f, 0x98],
      ]
      source.send(batch: texts + others)
      let lines = try Self.lines(harness, query).map { try JSONDecoder().decode(Envelope.self, from: Data($0)) }
      #expect(lines.prefix(texts.count).map { $0.data.map { Array($0.utf8) } } == texts)
      #expect(
        lines.dropFirst(texts.count).map { $0.data_base64.flatMap { Data(base64Encoded: $0) }.map { Array($0) } }
          == others)
      #expect(lines.allSatisfy { ($0.data == nil) != ($0.data_base64 == nil) })
    }
  }

  @Test func aLargeTextIsExaminedInSlices() throws {
    let log = try #require(EventLog(name: "s", limits: .init(events: 100, bytes: 64 << 20), firstID: 1000))
    let verdicts = ContentVerdicts()
    let slices = 10
    log.append(EventBatch([[UInt8](repeating: UInt8(ascii: "1"), count: slices * ContentVerdicts.sliceByteCount)]))
    func holds(_ content: EventEncoding.Content) -> Bool? {
      verdicts.holds(content, for: log.record(at: 1000), at: 1000, in: log)
    }
    let expected = [Bool?](repeating: nil, count: slices - 1) + [true]
    #expect((1...slices).map { _ in holds(.text) } == expected)
    #expect(verdicts.known(1000, as: .text) == true && verdicts.known(1000, as: .json) == nil)
    // The type of the stream has changed.
    #expect((1...slices).map { _ in holds(.json) } == expected)
    #expect(verdicts.known(1000, as: .json) == true && verdicts.known(1000, as: .text) == nil)
  }

  @Test func aLargeEventIsExaminedOnce() throws {
    let log = try #require(EventLog(name: "s", limits: .init(events: 100, bytes: 64 << 20), firstID: 1000))
    let verdicts = ContentVerdicts()
    func isJSON(_ id: UInt64) -> Bool? { verdicts.holds(.json, for: log.record(at: id), at: id, in: log) }
    let large = [UInt8](repeating: UInt8(ascii: "1"), count: ContentVerdicts.leastByteCount)
    let other = [UInt8](repeating: UInt8(ascii: "a"), count: ContentVerdicts.leastByteCount)
    log.append(EventBatch([large, other, [49], [97]]))
    for _ in 0..<2 {
      #expect((1000..<1004).map { isJSON($0) } == [true, false, true, false])
      #expect(verdicts.count == 2)
    }
    // As many as there are large events, whatever has passed.
    for id in 1004..<2000 as Range<UInt64> {
      log.append(EventBatch([large]))
      #expect(isJSON(id) == true && verdicts.count <= 200)
    }
    let slices = 10
    log.append(EventBatch([[UInt8](repeating: UInt8(ascii: "1"), count: slices * ContentVerdicts.sliceByteCount)]))
    #expect((1...slices).map { _ in isJSON(2000) } == [Bool?](repeating: nil, count: slices - 1) + [true])
    #expect(isJSON(2000) == true)
  }
}
