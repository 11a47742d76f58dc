import ClientTestSupport
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Filters and markers, with a server and with a scripted one.
@Suite(.timeLimit(.minutes(10))) struct FilteringTests {
  private let reports = Recorder<ReconnectPolicy.Report>()
  private static let loss = StreamError.disconnected("the server closed the connection")

  private var policy: ReconnectPolicy {
    ReconnectPolicy(first: .milliseconds(1)) { [reports] in reports.record($0) }
  }

  private func small() throws -> EventFilter { try EventFilter(.init("/price", .lessThan(100))) }

  /// Events in the order of arrival; ends with the stream.
  private func events(of stream: RemoteStream) async throws -> [StreamEvent] {
    var events: [StreamEvent] = []
    for try await event in stream.values { events.append(event) }
    return events
  }

  @Test(arguments: [false, true]) func aServerSendsTheEventsThatFitAndCountsTheOthers(reconnects: Bool) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let prices = ["99.5", "250", "100", "7", "99.50"].map { #"{"symbol":"AAPL","price":\#($0)}"# }
    let served = try prices.publisher.serve(as: "quotes", at: path)
    let connection = try StreamConnection(socket: path)

    let filter = try EventFilter(.init("/symbol", .equals("AAPL")), .init("/price", .oneOf([99.5, 7])))
    let quotes = connection.stream("quotes", where: filter, reconnect: reconnects ? policy : nil)
    let events = try await events(of: quotes)

    #expect(events.map { String(decoding: $0.data, as: UTF8.self) } == [prices[0], prices[3], prices[4]])
    #expect(events.map(\.leftOutCount) == [0, 2, 0])
    #expect(events.allSatisfy { $0.kind == .event && $0.gap == nil })
    served.cancel()
  }

  /// The example of the README.
  @Test func aLoopReadsEventsAndMarkers() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let prices = [99, 100].map { #"{"symbol":"AAPL","price":\#($0)}"# }
    let served = try prices.publisher.serve(as: "quotes", at: path)
    let connection = try StreamConnection(socket: path)
    let filter = try EventFilter(.init("/symbol", .equals("AAPL")), .init("/price", .atLeast(100)))
    var counts = (event: 0, leftOut: 0 as UInt64, marker: 0)
    for try await quote in connection.stream("quotes", where: filter, options: SubscribeOptions(marker: true)).values {
      switch quote.kind {
      case .event: counts.event += 1
      case .marker: counts.marker += 1
      }
      counts.leftOut += quote.leftOutCount
    }
    #expect(counts.event == 1 && counts.leftOut == 1 && counts.marker > 0)
    served.cancel()
  }

  @Test func aServerMarksThatASubscriptionIsCurrent() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let publishSource = PublishSource()
    try server.add(
      StreamConfiguration(name: "numbers", replay: 9), source: publishSource.setFailureType(to: StreamFailure.self),
      publishSource: publishSource)
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    let connection = try StreamConnection(socket: path)
    try await connection.publish(Just("5").values, to: "numbers")

    let filter = try EventFilter(.init("", .equals(6)))
    var all = connection.stream("numbers", where: filter, options: SubscribeOptions(marker: true)).values
      .makeAsyncIterator()
    let marker = try #require(try await all.next())
    #expect(marker.kind == .marker && marker.data.isEmpty && marker.leftOutCount == 1 && marker.time != nil)
    try await connection.publish(Just("6").values, to: "numbers")
    let event = try #require(try await all.next())
    #expect(event.kind == .event && event.data == Array("6".utf8) && event.leftOutCount == 0)
    #expect(event.id == marker.id.map { $0 + 1 })
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }

  @Test func aMarkerIsAPositionToResumeFrom() async throws {
    try await ScriptedServer.run { server in
      let seen = Recorder<StreamEvent>()
      let probe = try StreamConnection(socket: server.path)
        .stream("s", options: SubscribeOptions(marker: true), reconnect: policy)
        .handleEvents(receiveOutput: { seen.record($0) }).probe(5)
      #expect(await server.next() == .request(StreamID(1), .stream, 5, "s", #"{"gaps":true,"marker":true}"#))
      server.act { peer in
        peer.send("", on: StreamID(1), number: 8, kind: 1)
        peer.close()
      }
      let marker = StreamEvent(id: 8, time: 1_000_008, data: [], kind: .marker)
      #expect(await seen.next() == marker)
      let options = #"{"from":8,"gaps":true,"marker":true}"#
      #expect(await server.next() == .request(StreamID(1), .stream, 4, "s", options))
      server.act(1) { peer in
        peer.send("old", on: StreamID(1), number: 8, kind: 0)
        peer.send("", on: StreamID(1), number: 8, kind: 1)
        peer.send("9", on: StreamID(1), number: 9, kind: 0)
      }
      #expect(await seen.next() == marker)
      #expect(await seen.next() == StreamEvent(id: 9, time: 1_000_009, data: Array("9".utf8)))
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: nil))
      probe.cancel()
    }
  }

  @Test func countsStayTrueOverAReconnection() async throws {
    try await ScriptedServer.run { server in
      let filter = try small()
      let seen = Recorder<StreamEvent>()
      let probe = try StreamConnection(socket: server.path).stream("s", where: filter, reconnect: policy)
        .handleEvents(receiveOutput: { seen.record($0) }).probe(2)
      let options = #""gaps":true,"marker":true,"where":{"/price":{"lt":100}}}"#
      #expect(await server.next() == .request(StreamID(1), .stream, 2, "s", "{" + options))
      server.act { peer in
        peer.send("1", on: StreamID(1), number: 1, leftOut: 0, kind: 0)
        peer.send("", on: StreamID(1), number: 50, leftOut: 46, gap: 3, kind: 1)
      }
      #expect(await seen.next() == StreamEvent(id: 1, time: 1_000_001, data: Array("1".utf8)))
      // The credit of the marker that was not requested.
      #expect(await server.next() == .other(.requestN(StreamID(1), 1)))
      server.act { $0.close() }
      #expect(await server.next() == .request(StreamID(1), .stream, 1, "s", #"{"from":50,"# + options))
      server.act(1) { $0.send("70", on: StreamID(1), number: 70, leftOut: 15, gap: 4, kind: 0) }
      #expect(
        await seen.next()
          == StreamEvent(id: 70, time: 1_000_070, data: Array("70".utf8), gap: .events(7), leftOutCount: 61))
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: .events(7)))
      probe.request(1)
      #expect(await server.next() == .other(.requestN(StreamID(1), 1)))
      server.act(1) { $0.send("71", on: StreamID(1), number: 71, leftOut: 0, kind: 0) }
      #expect(await seen.next() == StreamEvent(id: 71, time: 1_000_071, data: Array("71".utf8)))
      probe.cancel()
    }
  }
}
