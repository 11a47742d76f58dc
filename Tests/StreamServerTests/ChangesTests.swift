import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

/// `$changes`: a row for each stream, and each change of one.
@Suite struct ChangesTests {
  private static func text(_ event: (id: UInt64, data: [UInt8])) -> String {
    String(decoding: event.data, as: UTF8.self)
  }

  @Test func theStateHasEachStreamAndEachChangeIsAnEvent() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("a", status: status) { $0.description = "the first" }
      _ = try harness.add("b")
      let client = try WireClient.ready(harness.path)
      client.subscribe("$changes", credit: 100, options: #"{"from":"state"}"#)
      #expect(
        try Self.text(client.event())
          == #"{"description":"the first","name":"a","source":"publisher","state":"running","type":"application/json"}"#
      )
      #expect(try Self.text(client.event()).contains(#""name":"b""#))
      status.set(.failing("HTTP 503"))
      let failing = try Self.text(client.event())
      #expect(failing.contains(#""name":"a""#) && failing.contains(#""message":"HTTP 503""#))
      _ = try harness.add("c")
      #expect(try Self.text(client.event()).contains(#""name":"c""#))
      _ = harness.server.change([], removing: ["b"])
      #expect(try Self.text(client.event()) == #"{"gone":true,"name":"b"}"#)
      // One that comes now gets the present rows.
      let late = try WireClient.ready(harness.path)
      late.subscribe("$changes", credit: 100, options: #"{"from":"state"}"#)
      let rows = try (0..<2).map { _ in try Self.text(late.event()) }
      #expect(rows.contains { $0.contains("HTTP 503") } && rows.contains { $0.contains(#""name":"c""#) })
      #expect(try late.isSilent())
    }
  }

  @Test func nothingComesWhileOnlyEventsAndSubscriptionsDo() async throws {
    try await withServer { harness in
      let source = try harness.add("a")
      let client = try WireClient.ready(harness.path)
      client.subscribe("$changes", credit: 100, options: #"{"from":"state"}"#)
      _ = try client.event()
      source.send([1])
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("a", credit: 1)
      _ = try reader.event()
      harness.server.countFailedEvents(of: "a", 1)
      // Each request is an update.
      reader.get("$changes", options: #"{"key":"a"}"#, id: 3)
      _ = try reader.event()
      #expect(try client.isSilent())
    }
  }

  @Test func aClientSeesTheStreamsThatItMayReadAndBeginsAnewWhenItsRightsChange() async throws {
    try await withServer { harness in
      _ = try harness.add("open")
      _ = try harness.add("closed") { $0.read = AccessRules([.user(0)]) }
      _ = try harness.add("own") { $0.read = AccessRules([.user(4711)]) }
      let client = try WireClient(harness.server, user: 4711)
      client.subscribe("$changes", credit: 100, options: #"{"from":"state"}"#)
      let rows = try (0..<2).map { _ in try Self.text(client.event()) }
      #expect(rows.contains { $0.contains(#""name":"open""#) } && rows.contains { $0.contains(#""name":"own""#) })
      #expect(try client.isSilent())
      var configuration = try #require(harness.server.streams["own"]).configuration
      configuration.read = AccessRules([.user(0)])
      _ = harness.server.change([StreamChange(configuration)], removing: [])
      var frame = try client.receive()
      while case .payload? = frame { frame = try client.receive() }
      guard case .error(StreamID(1), _, let sentence)? = frame else { return #expect(Bool(false)) }
      #expect(sentence == "the rest of the state of \"$changes\" is lost: subscribe again")
      client.subscribe("$changes", credit: 100, options: #"{"from":"state"}"#, id: 3)
      #expect(try Self.text(client.event()).contains(#""name":"open""#))
      #expect(try client.isSilent())
    }
  }
}
