import Dispatch
import RSocket
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Metrics of streams that templates make.
@Suite struct TemplateMetricsTests {
  private typealias Rules = @Sendable (NameValues) -> (read: AccessRules, write: AccessRules)

  /// Serves templates whose streams are fed by clients.
  @discardableResult private func serve(
    _ harness: ServerHarness, _ templates: [StreamTemplate], _ rules: @escaping Rules = { _ in (AccessRules(), .owner) }
  ) -> TestMaker {
    let maker = TestMaker(harness.server, published: true, rules)
    maker.queue.sync { harness.server.setTemplates(templates, maker: maker) }
    return maker
  }

  private func template(
    _ name: String = "s/{x}", limit: Int = 1000, shownTo: AccessRules = AccessRules(), each: Bool = false
  ) throws -> StreamTemplate {
    StreamTemplate(
      try NameTemplate(name), limit: limit, forgetTime: nil, source: "publish", takesValues: true, shownTo: shownTo,
      hasMetricsOfEach: each)
  }

  private func post(_ name: String, _ text: String, _ client: HTTPWireClient) throws {
    client.post("/streams/\(name)", text, "Content-Type: application/x-ndjson")
    #expect(try client.response().status == 200)
  }

  private func delete(_ name: String, _ client: HTTPWireClient) throws {
    client.request("DELETE", "/streams/\(name)")
    #expect(try client.response().status == 204)
  }

  private func expect(
    _ wanted: [(sample: String, value: String?)], _ client: HTTPWireClient, _ query: String = "",
    at location: SourceLocation = #_sourceLocation
  ) throws {
    let lines = try client.fetch("/metrics\(query)").text.split(separator: "\n")
    for (sample, value) in wanted {
      let line = lines.first { $0.hasPrefix("streamd_\(sample) ") }
      #expect(line?.dropFirst(sample.count + 9) == value.map { $0[...] }, "\(sample)", sourceLocation: location)
    }
  }

  @Test func theStreamsOfATemplateAreSummed() async throws {
    try await withServer { harness in
      serve(harness, [try template(), try template("empty/{x}")])
      _ = try harness.add("configured")
      let subscriber = try WireClient.ready(harness.path)
      for (id, name) in [(1, "s/a"), (3, "s/b")] as [(UInt32, String)] { subscriber.subscribe(name, credit: 2, id: id) }
      harness.eventually { harness.server.load.subscribers == 2 }
      let client = try HTTPWireClient(harness)
      try post("s/a", "1\n2\n3\n", client)
      try post("s/b", "44\n", client)
      _ = try subscriber.events(3)
      let label = "{template=\"s/{x}\"}"
      try expect(
        [
          ("stream_received_events_total\(label)", "4"), ("stream_received_bytes_total\(label)", "5"),
          ("stream_sent_events_total\(label)", "3"), ("stream_subscribers\(label)", "2"), ("stream_up\(label)", "1"),
          // The largest one.
          ("stream_lag_events\(label)", "1"), ("stream_errors_total\(label)", "0"),
          ("stream_upstream_attempts_total\(label)", nil), ("stream_state_keys\(label)", nil),
          ("stream_up{stream=\"configured\"}", "1"),
          // A template without streams has its rows from the beginning.
          ("stream_received_events_total{template=\"empty/{x}\"}", "0"), ("stream_up{template=\"empty/{x}\"}", "1"),
        ], client)
      let text = try client.fetch("/metrics").text
      #expect(!text.contains("s/a") && !text.contains("s/b"))
      let once = "\nstreamd_stream_up\(label) "
      #expect(text.components(separatedBy: once).count == 2)
    }
  }

  @Test func aSumHasTheWorstStateTheNewestTimesAndAllDurations() async throws {
    try await withServer { harness in
      serve(harness, [try template()])
      let client = try HTTPWireClient(harness)
      for name in ["s/a", "s/b", "s/c"] { try post(name, "1\n", client) }
      let streams = ["s/a", "s/b", "s/c"].compactMap { harness.server.streams[$0] }
      try #require(streams.count == 3)
      for (stream, time) in zip(streams, [4, 4, 6000]) {
        stream.status.noteAttempt()
        stream.status.noteAnswer(status: 200, after: .milliseconds(time))
        stream.status.noteReceived(byteCount: time)
      }
      streams[0].status.noteNextAttempt(after: .seconds(3600))
      streams[1].status.noteNextAttempt(after: .seconds(60))
      streams[1].status.set(.failing("no route"))
      streams[2].status.noteMissed(5)
      streams[2].setStorage(.notOnDisk(reason: "it is full"))
      streams[1].setStorage(.disk)
      let label = "{template=\"s/{x}\"}"
      func seconds(_ microseconds: UInt64?) -> String? {
        microseconds.map { "\($0 / 1_000_000).\(String(1_000_000 + $0 % 1_000_000).dropFirst())" }
      }
      let buckets = [("0.005000", "2"), ("5.000000", "2"), ("10.000000", "3"), ("+Inf", "3")].map {
        ("stream_upstream_response_seconds_bucket{template=\"s/{x}\",le=\"\($0)\"}", $1) as (String, String?)
      }
      try expect(
        buckets + [
          ("stream_up\(label)", "0"), ("stream_not_on_disk\(label)", "1"), ("stream_missed_events_total\(label)", "5"),
          ("stream_upstream_attempts_total\(label)", "3"), ("stream_upstream_received_bytes_total\(label)", "6008"),
          ("stream_upstream_response_seconds_sum\(label)", "6.008000"),
          (
            "stream_upstream_last_answer_timestamp_seconds\(label)",
            seconds(streams.compactMap(\.status.upstream.lastAnswer).max())
          ),
          (
            "stream_upstream_next_attempt_timestamp_seconds\(label)", seconds(streams[1].status.upstream.nextAttempt)
          ),
          (
            "stream_newest_event_timestamp_seconds\(label)",
            seconds(streams.compactMap { $0.log.read { storage, _ in storage.newestTime } }.max())
          ),
        ], client)
    }
  }

  @Test func countersNeverDecreaseWhenStreamsGo() async throws {
    try await withServer { harness in
      let maker = serve(harness, [try template(limit: 2)])
      let client = try HTTPWireClient(harness)
      let label = "{template=\"s/{x}\"}"
      func expectCounters(events: Int, streams: Int, at location: SourceLocation = #_sourceLocation) throws {
        try expect(
          [
            ("stream_received_events_total\(label)", "\(events)"), ("stream_upstream_attempts_total\(label)", "1"),
            ("template_streams\(label)", "\(streams)"), ("stream_subscribers\(label)", "0"), ("stream_up\(label)", "1"),
          ], client, at: location)
      }
      try post("s/a", "1\n2\n", client)
      harness.server.streams["s/a"]?.status.noteAttempt()
      harness.server.streams["s/a"]?.status.noteNextAttempt(after: .seconds(60))
      harness.server.streams["s/a"]?.status.set(.healthy)
      try expectCounters(events: 2, streams: 1)
      try delete("s/a", client)
      try expectCounters(events: 2, streams: 0)
      try expect([("stream_upstream_next_attempt_timestamp_seconds\(label)", nil)], client)
      // The third one is made in place of the first.
      for name in ["s/b", "s/c", "s/d"] { try post(name, "3\n", client) }
      try expectCounters(events: 5, streams: 2)
      // While a stream is being taken out of the table, and when it returns or is gone.
      let removed = harness.server.remove(["s/d"])
      try expectCounters(events: 5, streams: 2)
      #expect(harness.server.statistics.eventsIn == 5)
      harness.server.putBack(removed)
      try expectCounters(events: 5, streams: 2)
      maker.queue.sync { _ = harness.server.change([], removing: ["s/d"]) }
      try expectCounters(events: 5, streams: 2)
      #expect(harness.server.statistics.eventsIn == 5)
    }
  }

  @Test func aReloadThatChangesATemplateContinuesItsCounters() async throws {
    try await withServer { harness in
      let maker = serve(harness, [try template()])
      let client = try HTTPWireClient(harness)
      for name in ["s/a", "s/b", "s/c"] { try post(name, "1\n", client) }
      try delete("s/a", client)
      let sample = "stream_received_events_total{template=\"s/{x}\"}"
      func reload(_ templates: [StreamTemplate], besides configured: Set<String> = []) {
        maker.queue.sync { harness.server.setTemplates(templates, besides: configured, maker: maker) }
      }
      reload([try template(limit: 5)])
      try expect([(sample, "3"), ("template_limit{template=\"s/{x}\"}", "5")], client)
      reload([try template(each: true)])
      try expect([(sample, nil), ("stream_received_events_total{stream=\"s/b\"}", "1")], client)
      // The name is configured now.
      reload([try template()], besides: ["s/b"])
      try expect([(sample, "3"), ("stream_received_events_total{stream=\"s/b\"}", nil)], client)
      let configured = StreamConfiguration(name: "s/b", source: "publish", replay: 100)
      maker.queue.sync { _ = harness.server.change([StreamChange(configured)], removing: []) }
      try expect([(sample, "3"), ("stream_received_events_total{stream=\"s/b\"}", "1")], client)
      reload([])
      try expect([("template_limit{template=\"s/{x}\"}", nil)], client)
    }
  }

  @Test func withMetricsOfEachEveryStreamHasItsRows() async throws {
    try await withServer { harness in
      serve(harness, [try template(each: true)])
      let client = try HTTPWireClient(harness)
      try post("s/a", "1\n2\n", client)
      try post("s/b", "1\n", client)
      try delete("s/b", client)
      try expect(
        [
          ("stream_received_events_total{stream=\"s/a\"}", "2"), ("stream_received_events_total{stream=\"s/b\"}", nil),
          ("stream_received_events_total{template=\"s/{x}\"}", nil), ("stream_up{template=\"s/{x}\"}", nil),
          ("template_made_total{template=\"s/{x}\"}", "2"), ("template_streams{template=\"s/{x}\"}", "1"),
        ], client)
    }
  }

  @Test func aTemplateHasItsNumbers() async throws {
    try await withServer { harness in
      serve(harness, [try template(limit: 1), try template("t/{x}", shownTo: .owner)])
      let client = try HTTPWireClient(harness)
      let holder = try HTTPWireClient(harness)
      for name in ["s/a", "s/b"] { try post(name, "1\n", client) }
      holder.get("/streams/s/b?as=sse")
      _ = try holder.head()
      let refused = try HTTPWireClient(harness)
      refused.post("/streams/s/c", "1")
      #expect(try refused.response().status == 503)
      let wanted: [(String, String?)] = [
        ("streams", "1"), ("limit", "1"), ("made_total", "2"), ("forgotten_total", "1"), ("refused_total", "1"),
      ].map { ("template_\($0){template=\"s/{x}\"}", $1) }
      for query in ["", "?streams=0"] {
        try expect(wanted + [("template_streams{template=\"t/{x}\"}", "0")], client, query)
        // As in $templates.
        let other = try HTTPWireClient(harness.server, user: 4711)
        try expect(wanted + [("template_streams{template=\"t/{x}\"}", nil)], other, query)
      }
      try expect([("stream_up{template=\"s/{x}\"}", nil)], client, "?streams=0")
    }
  }

  @Test func aClientSeesTheSumsOfTheStreamsThatItSees() async throws {
    try await withServer { harness in
      let maker = serve(harness, [try template("s/{user}", shownTo: AccessRules([]))]) { values in
        (AccessRules([.user(values["user"].flatMap { UInt32($0) } ?? 0)]), .owner)
      }
      let client = try HTTPWireClient(harness)
      for (user, text) in [(4711, "1\n2\n"), (4712, "1\n")] { try post("s/\(user)", text, client) }
      let sample = "stream_received_events_total{template=\"s/{user}\"}"
      func expectSums(_ location: SourceLocation = #_sourceLocation) throws {
        for (user, value) in [(4711, "2"), (4712, "1"), (4713, nil), (nil, nil)] as [(UInt32?, String?)] {
          try expect([(sample, value)], HTTPWireClient(harness.server, user: user), at: location)
        }
        try expect([(sample, "3")], client, at: location)
      }
      try expectSums()
      try delete("s/4711", client)
      try expectSums()
      // A reload that concerns no stream.
      maker.queue.sync { _ = harness.server.change([], removing: []) }
      try expectSums()
    }
  }

  @Test func theCatalogueOfVeryManyStreamsIsRenewedLessOften() async throws {
    var limits = ServerLimits(workers: 2)
    (limits.manyStreams, limits.manyStreamsAge) = (2, .seconds(86400))
    let harness = try ServerHarness(limits)
    let client = try HTTPWireClient(harness)
    func shows(_ name: String) throws -> Bool {
      client.get("/streams/$streams")
      return try client.response().text.contains("\"\(name)\"")
    }
    for name in ["a", "b"] {
      _ = try harness.add(name)
      #expect(try shows(name))
    }
    _ = try harness.add("c")
    #expect(try !shows("c"))  // since the last renewal there are very many
    _ = harness.server.change([], removing: ["a"])
    #expect(try shows("c") && !shows("a"))
    await harness.stop()
  }
}
