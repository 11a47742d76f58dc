import Dispatch
import ReplayLog
import StreamRuntime
import Synchronization

// The server's metrics. Source of the names: docs/HTTP.md, "Metrics".

extension StreamServer {
  /// The maximum time that a loop has to measure its lag.
  private static let lagWait = DispatchTimeInterval.seconds(1)

  /// Renders metrics on a queue, once the lag is current.
  func renderMetrics(
    _ key: MetricsCache.Key, on queue: DispatchQueue, completed: @escaping @Sendable ([UInt8]) -> Void
  ) {
    let once = Once()
    let render: @Sendable () -> Void = { [self] in
      guard once.isFirst() else { return }
      queue.async { [self] in completed(metrics(key)) }
    }
    guard key.hasStreams else { return render() }
    queue.asyncAfter(deadline: .now() + Self.lagWait, execute: render)
    measureLag(completed: render)
  }

  /// The metrics that a client may see. About the process as a whole it sees no more than `$stats` shows it.
  func metrics(_ key: MetricsCache.Key) -> [UInt8] {
    var text = MetricsText(key.format)
    text.add(
      "streamd_build_info", .gauge, "A constant 1 with the version of streamd.",
      [(MetricsText.label("version", version), .number(1))])
    text.add(
      "process_start_time_seconds", .gauge, "Start time of the process since the Unix epoch, in seconds.",
      .microseconds(startTime))
    if key.visibility == .all { addProcess(to: &text) }
    addTemplates(key.visibility, to: &text)
    if key.hasStreams { addStreams(key.visibility, to: &text) }
    return text.finished()
  }

  private func addProcess(to text: inout MetricsText) {
    let usage = ProcessUsage.current()
    text.add(
      "process_cpu_seconds_total", .counter, "Processor time that the process has used, in seconds.",
      .microseconds(usage.processorMicroseconds))
    text.add(
      "process_resident_memory_bytes", .gauge, "Physical memory of the process in bytes.",
      usage.residentBytes.map { .number($0) })
    text.add("process_open_fds", .gauge, "Open file descriptors.", usage.openDescriptors.map { .number($0) })
    let protocols = counts.byProtocol
    text.add(
      "streamd_connections", .gauge, "Open connections by protocol; rsocket includes those that have sent nothing yet.",
      [("rsocket", protocols.rsocket), ("http", protocols.http), ("websocket", protocols.webSocket)].map {
        (MetricsText.label("protocol", $0), .number(UInt64($1)))
      })
    text.add(
      "streamd_config_last_reload_successful", .gauge,
      "1 unless a previous configuration is served because the files have errors.",
      configuration.withLock { $0.map { .number($0.error == nil ? 1 : 0) } })
    text.add(
      "streamd_fleet_connected", .gauge, "1 while the brokers of the fleet can be reached, otherwise 0.",
      fleetConnection.map { .number($0 == .connected ? 1 : 0) })
    text.add(
      "streamd_connections_accepted_total", .counter, "Connections accepted.",
      .number(counts.accepted.load(ordering: .relaxed)))
    text.add(
      "streamd_refused_total", .counter, "Connections and requests refused.",
      .number(counts.refused.load(ordering: .relaxed)))
    text.add(
      "streamd_writes_total", .counter, "System calls that wrote events to clients.",
      .number(workers.reduce(0) { $0 &+ $1.counters.writes.load(ordering: .relaxed) }))
    text.add(
      "streamd_loop_busy_seconds_total", .counter, "Time in which an event loop did anything but wait, in seconds.",
      workers.enumerated().map {
        (MetricsText.label("loop", String($0)), .microseconds($1.loop.busyNanoseconds / 1000))
      })
  }

  private func addStreams(_ visibility: Visibility, to text: inout MetricsText) {
    var families = StreamFamilies(text: text, now: EventLoop.wallClock(), rows: rows(visibility))
    families.addCounts()
    families.addUpstream()
    families.addFleet()
    text = families.text
  }

  /// A row for each stream that a client may see, sorted by name, and then one for each template whose streams are summed.
  private func rows(_ visibility: Visibility) -> [StreamFamilies.Row] {
    let (hasLag, templates) = (hasLag, templates.all.map(\.terms))
    // At one moment, so that each stream counts exactly once for its template, while it exists or afterwards.
    let (present, leaving, retired) = retired.withLock { retired in
      (streams.unsorted.map { ($0, $0.template) }, retired.leaving.map { ($0, $0.template) }, retired)
    }
    var survey = BaseSurvey()
    var (single, sums): ([(name: String, figures: StreamFigures)], [String: StreamFigures]) = ([], [:])
    func add(_ figures: StreamFigures, to template: String) {
      sums[template, default: StreamFigures(hasLag: hasLag)].add(figures)
    }
    for template in templates where !template.hasMetricsOfEach {
      if visibility.shows(template.shownTo) { add(StreamFigures(hasLag: hasLag), to: template.name.text) }
      for figures in retired.figures(of: template.name.text, visibility) { add(figures, to: template.name.text) }
    }
    let withEach = Set(templates.filter(\.hasMetricsOfEach).map(\.name.text))
    for (stream, template) in present where !stream.name.hasPrefix("$") && visibility.shows(stream) {
      let figures = StreamFigures(stream, hasLag: hasLag, &survey)
      if let template, !withEach.contains(template) {
        add(figures, to: template)
      } else {
        single.append((stream.name, figures))
      }
    }
    for (stream, template) in leaving where visibility.shows(stream) {
      guard let template, !withEach.contains(template) else { continue }
      add(StreamFigures(stream, hasLag: hasLag, &survey), to: template)
    }
    return single.sorted { $0.name < $1.name }.map { (MetricsText.label("stream", $0.name), $0.figures) }
      + sums.sorted { $0.key < $1.key }.map { (MetricsText.label("template", $0.key), $0.value) }
  }

  /// The templates as `$templates` shows them.
  private func addTemplates(_ visibility: Visibility, to text: inout MetricsText) {
    let shown = templates.all.filter { visibility.shows($0.terms.shownTo) }.sorted { $0.name.text < $1.name.text }
    func add(
      _ name: String, _ kind: MetricsText.Kind, _ help: String, _ value: (ServedTemplate) -> UInt64,
      to text: inout MetricsText
    ) {
      text.add(
        "streamd_template_" + name, kind, help,
        shown.map { (MetricsText.label("template", $0.name.text), .number(value($0))) })
    }
    add("streams", .gauge, "Streams of the template.", { UInt64($0.count) }, to: &text)
    add("limit", .gauge, "The most streams of the template at a time.", { UInt64($0.terms.limit) }, to: &text)
    add("made_total", .counter, "Streams that were made.", { $0.madeCount.load(ordering: .relaxed) }, to: &text)
    add(
      "forgotten_total", .counter, "Streams that were forgotten or ended.",
      { $0.forgottenCount.load(ordering: .relaxed) }, to: &text)
    add(
      "refused_total", .counter, "Requests for a stream that would have exceeded a limit.",
      { $0.refusedCount.load(ordering: .relaxed) }, to: &text)
    add(
      "unrouted_total", .counter, "Parts of answers for all streams together that belong to none of them.",
      { $0.unroutedCount.load(ordering: .relaxed) }, to: &text)
  }
}

/// The families of metrics that have a sample for each stream, or for all streams of a template.
private struct StreamFamilies {
  typealias Row = (labels: [UInt8], figures: StreamFigures)

  var text: MetricsText
  /// Microseconds since the Unix epoch.
  let now: UInt64
  let rows: [Row]

  private mutating func add(
    _ name: String, _ kind: MetricsText.Kind, _ help: String, _ value: (Statistics.Stream) -> MetricsText.Value?
  ) {
    text.add(
      "streamd_stream_" + name, kind, help,
      rows.compactMap { row in value(row.figures.counts).map { (row.labels, $0) } })
  }

  private mutating func addUpstream(
    _ name: String, _ kind: MetricsText.Kind, _ help: String, _ value: (UpstreamFigures) -> MetricsText.Value?
  ) { add("upstream_" + name, kind, help) { $0.upstream.flatMap(value) } }

  private mutating func addShared(_ name: String, _ help: String, _ value: (FleetStatus) -> MetricsText.Value) {
    add("fleet_" + name, .gauge, help) { $0.fleet.map(value) }
  }

  mutating func addCounts() {
    add("up", .gauge, "1 unless the stream is failing or failed.") {
      .number($0.isFailing ? 0 : 1)
    }
    add(
      "not_on_disk", .gauge, "1 if the events are not on disk, of a stream whose events are meant to be; otherwise 0."
    ) {
      $0.isOnDisk.map { .number($0 ? 0 : 1) }
    }
    add("subscribers", .gauge, "Live subscriptions.") { .number(UInt64($0.subscribers)) }
    add("lag_events", .gauge, "Events that the slowest subscription has not been sent.") { $0.lag.map { .number($0) } }
    add("newest_event_timestamp_seconds", .gauge, "Time of the newest event since the Unix epoch, in seconds.") {
      $0.newest.map { .microseconds($0) }
    }
    add("fresh_timestamp_seconds", .gauge, "Time at which the newest event was last known to be the present one.") {
      $0.fresh.map { .microseconds($0) }
    }
    add("stale_seconds", .gauge, "Time for which a stream with expect_every has been stale, in seconds.") {
      [now] stream in
      stream.expectEvery.map { _ in .microseconds(stream.staleSince.map { now - min(now, $0) } ?? 0) }
    }
    add("state_keys", .gauge, "Keys in the state of a stream with keys.") {
      $0.keyedState.map { .number(UInt64($0.keys)) }
    }
    add("state_bytes", .gauge, "Size of the state of a stream with keys, as state_bytes limits it.") {
      $0.keyedState.map { .number(UInt64($0.bytes)) }
    }
    add("state_incomplete", .gauge, "1 if the state lacks events, and is refused; otherwise 0.") {
      $0.keyedState.map { .number($0.incompleteness == nil ? 0 : 1) }
    }
    add("map_readers", .gauge, "Requests for the demand of readers of a mapped stream.") {
      $0.mapReaders.map { .number(UInt64($0)) }
    }
    add("received_events_total", .counter, "Events received from the source.") { .number($0.eventsIn) }
    add("received_bytes_total", .counter, "Data bytes received from the source.") { .number($0.bytesIn) }
    add("sent_events_total", .counter, "Events sent to clients.") { .number($0.eventsOut) }
    add("sent_bytes_total", .counter, "Bytes of frames and response bodies sent to clients.") { .number($0.bytesOut) }
    add("errors_total", .counter, "Events that the pipeline failed on, and dropped.") { .number($0.errors) }
    add("malformed_total", .counter, "Events and published values that are not JSON, where JSON is expected.") {
      .number($0.malformed)
    }
    add(
      "missed_events_total", .counter, "Events of other streams that a stream made of them has missed."
    ) {
      $0.missed.map { .number($0) }
    }
    text.add(
      "streamd_stream_lagged_events_total", .counter, "Events evicted before a subscription was sent them.",
      rows.map { ($0.labels, .number($0.figures.laggedEvents)) })
  }

  mutating func addUpstream() {
    addUpstream("attempts_total", .counter, "Requests of the source, or runs of its program.") { .number($0.attempts) }
    addUpstream("unchanged_total", .counter, "Responses without a change (304).") { .number($0.unchanged) }
    addUpstream("failures_total", .counter, "Failed attempts of the source.") { .number($0.failures) }
    addUpstream("received_bytes_total", .counter, "Bytes of responses, decoded, or of a program's output.") {
      .number($0.bytes)
    }
    addUpstream("last_answer_timestamp_seconds", .gauge, "Time of the last response with success.") {
      $0.lastAnswer.map { .microseconds($0) }
    }
    addUpstream("next_attempt_timestamp_seconds", .gauge, "Time at which the next attempt is due.") {
      $0.nextAttempt.map { .microseconds($0) }
    }
    text.addHistogram(
      "streamd_stream_upstream_response_seconds", "Times from a request to the head of its response, in seconds.",
      rows.compactMap { row in
        row.figures.counts.upstream.flatMap { upstream in
          upstream.latency.counts.allSatisfy { $0 == 0 } ? nil : (row.labels, upstream.latency)
        }
      })
  }

  mutating func addFleet() {
    addShared("leading", "1 if this host leads the stream, otherwise 0.") { .number($0.isLeading ? 1 : 0) }
    addShared("term", "Number of the present leadership.") { .number($0.term) }
    addShared("epoch", "Rises when the brokers have lost events.") { .number($0.epoch) }
    addShared("other_hosts", "Hosts that are known to define the stream otherwise.") {
      .number(UInt64($0.otherHosts.count))
    }
    addShared("lag_records", "Records of the stream's shard that this host has not read.") { .number($0.lag) }
    addShared("stale_seconds", "Time for which this host has not known whether it has the newest event, in seconds.") {
      [now] in
      .microseconds($0.staleSince.map { now - min(now, $0) } ?? 0)
    }
  }
}

/// Identifies the first of several calls.
private final class Once: Sendable {
  private let isDone = Atomic(false)
  func isFirst() -> Bool { !isDone.exchange(true, ordering: .acquiringAndReleasing) }
}
