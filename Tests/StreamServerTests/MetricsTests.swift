import Dispatch
import Events
import Foundation
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

@Suite struct MetricsTests {
  private let openMetrics = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"

  /// The value of a sample; nil: there is none.
  private func value(_ sample: String, in text: String) -> String? {
    text.split(separator: "\n").first { $0.hasPrefix(sample + " ") }.map { String($0.dropFirst(sample.count + 1)) }
  }

  @Test func streamsAndTheProcessAreCounted() async throws {
    try await withServer { harness in
      let source = try harness.add("prices")
      let wire = try WireClient.ready(harness.path)
      wire.subscribe("prices", credit: 10)
      harness.eventually { harness.server.load.subscribers == 1 }
      source.send(Array("one".utf8), Array("three".utf8))
      _ = try wire.events(2)
      let client = try HTTPWireClient(harness.path)
      let response = try client.fetch("/metrics")
      #expect(response.status == 200)
      #expect(response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8")
      #expect(response["Cache-Control"] == "no-store")
      let text = response.text
      for (sample, wanted) in [
        ("streamd_build_info{version=\"1.2.3\"}", "1"), ("streamd_connections{protocol=\"rsocket\"}", "1"),
        ("streamd_connections{protocol=\"http\"}", "1"), ("streamd_connections{protocol=\"websocket\"}", "0"),
        ("streamd_connections_accepted_total", "2"), ("streamd_refused_total", "0"),
        ("streamd_stream_up{stream=\"prices\"}", "1"), ("streamd_stream_subscribers{stream=\"prices\"}", "1"),
        ("streamd_stream_lag_events{stream=\"prices\"}", "0"),
        ("streamd_stream_received_events_total{stream=\"prices\"}", "2"),
        ("streamd_stream_received_bytes_total{stream=\"prices\"}", "8"),
        ("streamd_stream_sent_events_total{stream=\"prices\"}", "2"),
        ("streamd_stream_errors_total{stream=\"prices\"}", "0"),
        ("streamd_stream_lagged_events_total{stream=\"prices\"}", "0"),
      ] {
        #expect(value(sample, in: text) == wanted, "\(sample)")
      }
      for sample in [
        "process_start_time_seconds", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
        "streamd_writes_total", "streamd_loop_busy_seconds_total{loop=\"1\"}",
        "streamd_stream_sent_bytes_total{stream=\"prices\"}",
        "streamd_stream_newest_event_timestamp_seconds{stream=\"prices\"}",
      ] {
        #expect(value(sample, in: text).flatMap(Double.init) ?? 0 > 0, "\(sample)")
      }
      #expect(!text.contains("$") && !text.contains("# EOF"))
    }
  }

  @Test func streamsThatAreMeantToBeOnDiskHaveASample() async throws {
    try await withServer { harness in
      for name in ["disk", "memory", "lost"] { _ = try harness.add(name) }
      harness.server.setStorage(.disk, of: "disk")
      harness.server.setStorage(.notOnDisk(reason: "it is full"), of: "lost")
      let text = try HTTPWireClient(harness.path).fetch("/metrics").text
      for (name, wanted) in [("disk", "0"), ("memory", nil), ("lost", "1")] {
        #expect(value("streamd_stream_not_on_disk{stream=\"\(name)\"}", in: text) == wanted, "\(name)")
      }
    }
  }

  @Test func theUpstreamIsCountedOnceItWasAsked() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("asked", status: status)
      _ = try harness.add("quiet")
      #expect(harness.server.statistics.byStream.allSatisfy { $0.upstream == nil })
      for (code, time) in [(200, 4), (304, 5), (500, 6000)] {
        status.noteAttempt()
        status.noteAnswer(status: code, after: .milliseconds(time))
      }
      status.noteReceived(byteCount: 7)
      status.noteFailure(nextAfter: .seconds(3600))
      let text = try HTTPWireClient(harness.path).fetch("/metrics").text
      for (name, wanted) in [
        ("attempts_total", "3"), ("unchanged_total", "1"), ("failures_total", "1"), ("received_bytes_total", "7"),
        ("response_seconds_sum", "6.009000"), ("response_seconds_count", "3"),
      ] {
        #expect(value("streamd_stream_upstream_\(name){stream=\"asked\"}", in: text) == wanted, "\(name)")
      }
      for (bound, wanted) in [("0.005000", "2"), ("5.000000", "2"), ("10.000000", "3"), ("+Inf", "3")] {
        let sample = "streamd_stream_upstream_response_seconds_bucket{stream=\"asked\",le=\"\(bound)\"}"
        #expect(value(sample, in: text) == wanted, "\(bound)")
      }
      #expect(value("streamd_stream_errors_total{stream=\"asked\"}", in: text) == "0")
      let (last, next) = (status.upstream.lastAnswer ?? 0, status.upstream.nextAttempt ?? 0)
      #expect(last <= EventLoop.wallClock() && next > EventLoop.wallClock())
      #expect(!text.contains("upstream_attempts_total{stream=\"quiet\"}"))
      status.noteAttempt()
      #expect(status.upstream.nextAttempt == nil)
      let later = SourceStatus()
      later.noteAttempt()
      later.inherit(from: status)
      #expect(later.upstream.attempts == 5 && later.upstream.lastAnswer == last)
    }
  }

  @Test func theFleetIsCountedForSharedStreamsOnly() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("shared", status: status)
      _ = try harness.add("alone")
      #expect(try !HTTPWireClient(harness.path).fetch("/metrics").text.contains("fleet"))
      harness.server.fleetConnection = .disconnected("no route")
      status.fleet = FleetStatus(
        isLeading: true, leader: "n1", term: 7, epoch: 2, lag: 0, staleSince: nil, otherHosts: ["n2", "n3"])
      func fleet() throws -> String {
        // Requests within a quarter of a second share one rendering.
        var text = ""
        try harness.eventually {
          text = try HTTPWireClient(harness.path).fetch("/metrics").text
          return value("streamd_stream_fleet_leading{stream=\"shared\"}", in: text)
            == (status.fleet?.isLeading == true ? "1" : "0")
        }
        return text
      }
      let leading = try fleet()
      for (sample, wanted) in [
        ("streamd_fleet_connected", "0"), ("streamd_stream_fleet_term{stream=\"shared\"}", "7"),
        ("streamd_stream_fleet_epoch{stream=\"shared\"}", "2"),
        ("streamd_stream_fleet_other_hosts{stream=\"shared\"}", "2"),
        ("streamd_stream_fleet_lag_records{stream=\"shared\"}", "0"),
        ("streamd_stream_fleet_stale_seconds{stream=\"shared\"}", "0.000000"),
      ] {
        #expect(value(sample, in: leading) == wanted, "\(sample)")
      }
      #expect(!leading.contains("n1") && leading.components(separatedBy: "streamd_stream_fleet_term{").count == 2)
      status.fleet = FleetStatus(
        isLeading: false, leader: "n1", term: 7, epoch: 2, lag: 4, staleSince: EventLoop.wallClock() - 5_000_000)
      let following = try fleet()
      #expect(value("streamd_stream_fleet_lag_records{stream=\"shared\"}", in: following) == "4")
      let stale = value("streamd_stream_fleet_stale_seconds{stream=\"shared\"}", in: following).flatMap(Double.init)
      #expect(stale ?? 0 >= 5)
    }
  }

  @Test func connectionsAreCountedByProtocolUntilTheyEnd() async throws {
    try await withServer { harness in
      let scraper = try HTTPWireClient(harness.path)
      func connections(_ name: String) throws -> String? {
        value("streamd_connections{protocol=\"\(name)\"}", in: try scraper.fetch("/metrics?streams=0").text)
      }
      do {
        let webSocket = try HTTPWireClient(harness.path)
        let opened = try webSocket.fetch(
          "/rsocket", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
        #expect(opened.status == 101)
        let silent = try HTTPWireClient(harness.path)
        try harness.eventually { try connections("websocket") == "1" && connections("rsocket") == "1" }
        #expect(try connections("http") == "1")
        withExtendedLifetime((webSocket, silent)) {}
      }
      try harness.eventually { try connections("websocket") == "0" && connections("rsocket") == "0" }
    }
  }

  @Test func lostEventsAreCountedPerStream() async throws {
    try await withServer { harness in
      let source = try harness.add("prices") { $0.limits = .init(events: 2, bytes: 1 << 20) }
      let wire = try WireClient.ready(harness.path)
      wire.subscribe("prices", credit: 1)
      harness.eventually { harness.server.load.subscribers == 1 }
      source.send([1])
      _ = try wire.event()
      source.send([2], [3], [4], [5], [6])
      wire.send(.requestN(StreamID(1), 10))
      _ = try wire.events(2)
      let text = try HTTPWireClient(harness.path).fetch("/metrics").text
      #expect(value("streamd_stream_lagged_events_total{stream=\"prices\"}", in: text) == "3")
    }
  }

  @Test func openMetricsIsSentIfItIsPreferred() async throws {
    try await withServer { harness in
      _ = try harness.add("prices")
      let client = try HTTPWireClient(harness.path)
      let response = try client.fetch("/metrics", openMetrics)
      #expect(response["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8")
      #expect(response.text.hasSuffix("\n# EOF\n"))
      #expect(response.text.contains("# TYPE streamd_stream_errors counter\nstreamd_stream_errors_total{"))
      let neither = try client.fetch("/metrics", "Accept: image/png")
      #expect(neither.status == 406)
    }
  }

  @Test func parametersAreChecked() async throws {
    try await withServer { harness in
      _ = try harness.add("prices")
      let client = try HTTPWireClient(harness.path)
      let without = try client.fetch("/metrics?streams=0").text
      #expect(!without.contains("streamd_stream_") && without.contains("streamd_writes_total"))
      #expect(try client.fetch("/metrics?streams=1").text.contains("streamd_stream_up"))
      for (query, name) in [("streams=2", "streams"), ("streams=0&streams=0", "streams"), ("stream=a", "stream")] {
        let response = try client.fetch("/metrics?" + query)
        #expect(response.status == 400 && response.text.contains("parameter \\\"\(name)\\\""), "\(response.text)")
      }
      #expect(try client.fetch("/metrics", method: "HEAD")["Content-Type"]?.hasPrefix("text/plain") == true)
      #expect(try client.fetch("/metrics", method: "POST")["Allow"] == "GET, HEAD, OPTIONS")
    }
  }

  @Test func clientsSeeTheStreamsThatTheyMayRead() async throws {
    try await withServer { harness in
      _ = try harness.add("open") { $0.read = AccessRules() }
      _ = try harness.add("closed") { $0.read = .owner }
      for user in [nil, getuid() + 1] {
        let text = try HTTPWireClient(harness.server, user: user).fetch("/metrics").text
        #expect(text.contains("stream=\"open\"") && !text.contains("closed"))
        #expect(text.contains("streamd_build_info") && text.contains("process_start_time_seconds"))
        #expect(!text.contains("streamd_connections") && !text.contains("process_open_fds"))
      }
      #expect(try HTTPWireClient(harness.server, user: getuid()).fetch("/metrics").text.contains("stream=\"closed\""))
    }
  }

  @Test func pipelinedRequestsAreAnsweredInOrder() async throws {
    try await withServer { harness in
      _ = try harness.add("prices")
      let client = try HTTPWireClient(harness.path)
      for index in 0..<100 { client.get("/metrics?streams=\(index % 2)") }
      for index in 0..<100 {
        #expect(try client.response().text.contains("streamd_stream_up") == (index % 2 == 1))
      }
    }
  }

  /// A slice of input ends with the request that waits for its body; those behind it are in the connection.
  @Test func requestsAfterTheEndOfASliceAreAnswered() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness.path)
      _ = try client.fetch("/metrics")  // a rendering that the next request shares at once
      let requests = [String](repeating: "/healthz", count: Slices.connectionFrames - 1) + ["/metrics", "/healthz"]
      client.send(requests.map { "GET \($0) HTTP/1.1\r\nHost: localhost\r\n\r\n" }.joined())
      for request in requests {
        #expect(try client.response().text.hasPrefix("ok") == (request == "/healthz"))
      }
    }
  }

  @Test func anUnreadFloodCostsOthersNothing() async throws {
    try await withServer { harness in
      for index in 0..<200 { _ = try harness.add("stream-\(index)") }
      let flood = try HTTPWireClient(harness.path)
      flood.send(String(repeating: "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", count: 1000))
      let client = try HTTPWireClient(harness.path)
      #expect(try client.fetch("/metrics").text.contains("stream-199"))
      // One response is in the socket and beside it, whatever was requested.
      let held = harness.server.accounts.heldBytes.load(ordering: .relaxed)
      #expect(held < 4 << 20)
    }
  }

  @Test func aRequestContinuesInTheNextProcess() async throws {
    let (former, next) = (try ServerHarness(), try ServerHarness(restores: true))
    _ = try next.add("prices")
    let renderer = HeldRenderer()
    former.server.systemStreams.setMetrics { _, _, completed in renderer.hold(completed) }  // never completes
    let client = try HTTPWireClient(former.path)
    client.request("GET", "/metrics", ["Connection: close", openMetrics])
    former.eventually { renderer.count == 1 }
    try await former.handOver(to: next)
    let response = try client.response()
    #expect(response.status == 200 && response["Connection"] == "close")
    #expect(response.text.contains("stream=\"prices\"") && response.text.hasSuffix("# EOF\n"))
    await former.stop()
    await next.stop()
  }

  @Test func aServerThatStopsAnswers() async throws {
    let harness = try ServerHarness()
    let renderer = HeldRenderer()
    harness.server.systemStreams.setMetrics { _, _, completed in renderer.hold(completed) }
    let client = try HTTPWireClient(harness.path)
    client.get("/metrics")
    harness.eventually { renderer.count == 1 }
    await harness.stop()
    #expect(try client.response().status == 503)
  }

  // MARK: Sharing

  private func key(_ index: UInt32) -> MetricsCache.Key {
    MetricsCache.Key(visibility: .admitted([.user(index)]), format: .prometheus, hasStreams: true)
  }

  @Test func requestsShareARenderingForAWhile() {
    let renderer = HeldRenderer()
    let cache = MetricsCache(maximumAge: .seconds(3600), on: DispatchQueue(label: "test"))
    cache.setRenderer { _, completed in renderer.hold(completed) }
    let waiters = (0..<10).map { _ in Waiter() }
    var requests = waiters[...]
    func request() { #expect(cache.request(key(1), for: requests.removeFirst()) { renderer.receive($0) }) }
    request()
    request()
    #expect(renderer.count == 1 && renderer.received.isEmpty)
    renderer.complete([1])
    request()
    #expect(renderer.count == 1 && renderer.received == [[1], [1], [1]])
    cache.dropAll()
    request()
    cache.dropAll()
    request()  // must not get what is rendered with the former rights
    #expect(renderer.count == 3)
    renderer.complete([2], of: 1)
    request()
    renderer.complete([3])
    request()
    #expect(renderer.count == 3 && renderer.received == [[1], [1], [1], [2], [3], [3], [3]])
  }

  @Test func renderingsAreLimited() {
    let cache = MetricsCache(maximumAge: .seconds(3600), on: DispatchQueue(label: "test"))
    cache.setRenderer { _, completed in completed([]) }
    let waiter = Waiter()
    for index in 0..<64 { #expect(cache.request(key(UInt32(index)), for: waiter) { _ in }) }
    #expect(!cache.request(key(64), for: waiter) { _ in })
    #expect(cache.request(key(0), for: waiter) { _ in })
  }

  @Test func labelsAreEscaped() {
    var text = MetricsText(.openMetrics)
    text.add("a_total", .counter, "Help.", [(MetricsText.label("stream", "a\\b\"c\nd{}é"), .microseconds(1_000_042))])
    text.add("nothing", .gauge, "Help.", nil)
    #expect(
      String(decoding: text.finished(), as: UTF8.self)
        == "# HELP a Help.\n# TYPE a counter\na_total{stream=\"a\\\\b\\\"c\\nd{}é\"} 1.000042\n# EOF\n")
  }
}

private final class Waiter {}

/// A renderer that completes when the test says so.
private final class HeldRenderer: Sendable {
  private let state = Locked((count: 0, pending: [@Sendable ([UInt8]) -> Void](), received: [[UInt8]]()))

  var count: Int { state.withLock { $0.count } }
  var received: [[UInt8]] { state.withLock { $0.received } }

  func hold(_ completed: @escaping @Sendable ([UInt8]) -> Void) {
    state.withLock {
      $0.count += 1
      $0.pending.append(completed)
    }
  }

  func receive(_ text: [UInt8]) { state.withLock { $0.received.append(text) } }

  /// Completes the oldest renderings, or all.
  func complete(_ text: [UInt8], of count: Int? = nil) {
    let pending = state.withLock { state in
      let count = count ?? state.pending.count
      defer { state.pending.removeFirst(count) }
      return state.pending.prefix(count)
    }
    for completed in pending { completed(text) }
  }
}
