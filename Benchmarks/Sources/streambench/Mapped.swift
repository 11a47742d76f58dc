import CLinux
import Glibc
import StreamRuntime

/// Measures readers of a mapped stream, beside subscribers by sockets, and many beside redis. The readers are a program in C.
func measureMapped(_ options: Options) throws {
  let files = try ServerProcess.temporaryFolder()
  defer { ServerProcess.remove(files) }
  if let complaint = try MapReaders.make(in: files) {
    return Report.note("mapped streams are not measured: \(complaint)")
  }
  var checked = 0
  for readers in [1, 10, 100, 1000] {
    Report.heading(
      "mapped stream, \(counted(readers, "reader")), 64 bytes per event", goal: readers == 1000 ? "30 x redis" : "")
    let mapped = try MappedContender(options, readers: readers, files)
    let sockets = try Contender(StreamdBroker(options.program), subscribers: readers, verifies: options.verifies)
    let server = readers < 100 ? nil : findProgram("redis-server")
    let redis = try server.map { try Contender(RedisBroker($0), subscribers: readers, verifies: options.verifies) }
    try compareCosts(mapped, sockets, redis, options)
    let latencies = try (0..<options.runs).map { _ in
      (
        try mapped.latencies(over: options.seconds, perSecond: 1000),
        try sockets.latencies(over: options.seconds, perSecond: 1000).percentiles()
      )
    }
    for (name, values) in [("mapped", latencies.map(\.0)), ("sockets", latencies.map(\.1))] {
      Report.line("\(name), p50", Figures(values.map(\.p50)), "ms")
      Report.line("\(name), p99", Figures(values.map(\.p99)), "ms")
    }
    checked += mapped.checkedCount
  }
  try comparePublishing(options, files, &checked)
  Report.line("events that were checked", checked, "none was torn")
}

/// One run: events that were read, in what time, and with what processor time.
private struct Cost {
  var events = 0
  var seconds = 0.0
  /// Processor time of the daemon, and of publisher and readers.
  var daemonSeconds = 0.0
  var clientSeconds = 0.0

  var rate: Double { Double(events) / seconds }
  func nanoseconds(_ part: KeyPath<Cost, Double>) -> Double { self[keyPath: part] * 1e9 / Double(max(1, events)) }
}

private func compareCosts(
  _ mapped: MappedContender, _ sockets: Contender, _ redis: Contender?, _ options: Options
) throws {
  guard let broker = sockets.server as? StreamdBroker else { return }
  var costs: [(mapped: Cost, sockets: Cost)] = []
  var redisRates: [Double] = []
  for _ in 0..<options.runs {
    let (daemon, own, before) = (try broker.process.processorSeconds(), ownProcessorSeconds(), sockets.pool.total)
    let rate = try sockets.deliveriesPerSecond(over: options.seconds)
    var cost = Cost(events: sockets.pool.total - before)
    cost.seconds = Double(cost.events) / rate
    cost.daemonSeconds = try broker.process.processorSeconds() - daemon
    cost.clientSeconds = ownProcessorSeconds() - own
    costs.append((try mapped.cost(over: options.seconds), cost))
    if let redis { redisRates.append(try redis.deliveriesPerSecond(over: options.seconds)) }
  }
  let (ofMaps, ofSockets) = (costs.map(\.mapped), costs.map(\.sockets))
  let rates = (Figures(ofMaps.map(\.rate)), Figures(ofSockets.map(\.rate)))
  let ofRedis = redisRates.isEmpty ? nil : Figures(redisRates)
  let ratios = [(rates.1, "sockets")] + (ofRedis.map { [($0, "redis")] } ?? [])
  Report.line("mapped", rates.0, "events/s", ratios.map { Report.times(rates.0.median, $0.0.median, $0.1) })
  Report.line("sockets", rates.1, "events/s")
  if let ofRedis { Report.line("redis pub/sub", ofRedis, "events/s") }
  for (name, part) in [("daemon", \Cost.daemonSeconds), ("clients", \Cost.clientSeconds)] {
    Report.line("mapped, \(name)", Figures(ofMaps.map { $0.nanoseconds(part) }), "ns/event")
    Report.line("sockets, \(name)", Figures(ofSockets.map { $0.nanoseconds(part) }), "ns/event")
  }
}

/// Publishes as fast as possible, whether or not readers follow. As many readers as these take the processors from publisher
/// and daemon; the second line shows what they cost apart from that.
private func comparePublishing(_ options: Options, _ files: String, _ checked: inout Int) throws {
  Report.heading("publishing to a mapped stream, 64 bytes per event", goal: "with readers at most 10 % less")
  for (readers, usesSpareTime) in [(0, false), (1000, true), (1000, false)] {
    let contender = try MappedContender(options, readers: readers, files, usesSpareTime: usesSpareTime)
    let costs = try (0..<options.runs).map { _ in try contender.publishingCost(over: options.seconds) }
    let name =
      readers == 0 ? "without readers" : counted(readers) + (usesSpareTime ? " in spare time" : " readers")
    Report.line(name, Figures(costs.map(\.rate)), "events/s")
    Report.line("\(name), daemon", Figures(costs.map { $0.nanoseconds(\.daemonSeconds) }), "ns/event")
    checked += contender.checkedCount
  }
}

/// Processor time of this process.
private func ownProcessorSeconds() -> Double {
  var used = rusage()
  unsafe getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &used)
  func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
  return seconds(used.ru_utime) + seconds(used.ru_stime)
}

/// A daemon with a mapped stream, its publisher, and readers.
private final class MappedContender {
  private let broker: StreamdBroker
  private let readers: MapReaders?
  private let feeder: Feeder
  private(set) var checkedCount = 0

  /// Events that are published before all of them have to be read: half of the buffer.
  private static let round = 131_072

  /// - Parameter usesSpareTime: whether readers run only while no other process wants the processors.
  init(_ options: Options, readers: Int, _ files: String, usesSpareTime: Bool = false) throws {
    broker = try StreamdBroker(options.program, stream: StreamdBroker.stream + "\nmap = true")
    // Before the first event: the readers count as the publisher does.
    self.readers = readers > 0 ? try MapReaders(files, broker.path, count: readers, usesSpareTime: usesSpareTime) : nil
    feeder = try Feeder(broker)
  }

  /// Publishes in rounds, and waits for all readers after each.
  func cost(over seconds: Double) throws -> Cost {
    let before = try state(allowsMissing: true)
    let (start, daemon, own) = (monotonicSeconds(), try broker.process.processorSeconds(), ownProcessorSeconds())
    var cost = Cost()
    while cost.seconds < seconds {
      let limit = feeder.sent + Self.round
      try publish { feeder.sent < limit ? limit : nil }
      let now = try state(allowsMissing: false)
      cost.events = now.events - before.events
      cost.clientSeconds = ownProcessorSeconds() - own + now.processorSeconds - before.processorSeconds
      cost.seconds = monotonicSeconds() - start
    }
    cost.daemonSeconds = try broker.process.processorSeconds() - daemon
    return cost
  }

  /// The events are those that were published.
  func publishingCost(over seconds: Double) throws -> Cost {
    let (start, daemon, before) = (monotonicSeconds(), try broker.process.processorSeconds(), feeder.sent)
    let end = start + seconds
    try publish { monotonicSeconds() < end ? .max : nil }
    var cost = Cost(events: feeder.sent - before, seconds: monotonicSeconds() - start)
    cost.daemonSeconds = try broker.process.processorSeconds() - daemon
    _ = try state(allowsMissing: true)
    return cost
  }

  /// The times from publishing to reading of events for which a reader has waited, in milliseconds.
  func latencies(over seconds: Double, perSecond rate: Int) throws -> (p50: Double, p99: Double) {
    _ = try state(allowsMissing: true)
    try Pacer(feeder, count: Int(seconds * Double(rate)), perSecond: rate).join()
    let state = try state(allowsMissing: false)
    return (Double(state.p50) / 1e6, Double(state.p99) / 1e6)
  }

  /// - Parameter limit: up to which number of events to send; nil: no more.
  private func publish(_ limit: () -> Int?) throws {
    while true {
      let limit = limit()
      if limit == nil, !feeder.hasUnwritten { return }
      try feeder.feed(upTo: limit ?? feeder.sent)
      var ready = pollfd(fd: feeder.socket, events: Int16(POLLIN | (feeder.hasUnwritten ? POLLOUT : 0)), revents: 0)
      if feeder.hasUnwritten || limit != nil && feeder.sent < limit ?? 0 { unsafe poll(&ready, 1, 100) }
      try feeder.hear()
    }
  }

  private var missedCount = 0

  /// What the readers say once they have read everything.
  private func state(allowsMissing: Bool) throws -> MapReaders.State {
    guard let readers else { return MapReaders.State([0, 0, 0, 0, 0, 0]) }
    let state = try readers.state(atEvent: feeder.sent)
    guard state.torn == 0 else { throw BenchError("\(state.torn) events were torn") }
    guard allowsMissing || state.missed == missedCount else {
      throw BenchError("\(state.missed - missedCount) events were missed")
    }
    (missedCount, checkedCount) = (state.missed, state.events)
    return state
  }
}

/// The program of the readers.
@safe private final class MapReaders {
  struct State {
    let events, missed, torn: Int
    let processorSeconds: Double
    /// Nanoseconds.
    let p50, p99: Int

    init(_ numbers: [Int]) {
      (events, missed, torn) = (numbers[0], numbers[1], numbers[2])
      (processorSeconds, p50, p99) = (Double(numbers[3]) / 1e6, numbers[4], numbers[5])
    }
  }

  private let id: pid_t
  private let input: UnsafeMutablePointer<FILE>
  private let output: OwnedDescriptor

  /// - Returns: nil, or the last line of what went wrong.
  static func make(in folder: String) throws -> String? {
    let (said, status) = try shell(
      """
      { command -v cc > /dev/null || { echo there is no cc; exit 1; }; \
      make -s -C Sources/libstreamd BUILD="$0/c" CFLAGS=-O2 && cc -O2 -pthread -ISources/libstreamd Benchmarks/Clients/map.c \
      "$0/c/libstreamd.a" -o "$0/map"; } 2>&1
      """, folder)
    return status == 0 ? nil : said.last ?? "status \(status)"
  }

  init(_ files: String, _ path: String, count: Int, usesSpareTime: Bool) throws {
    let (questions, answers) = (try Self.pipe(), try Self.pipe())
    defer { [questions.reading, answers.writing].forEach { close($0) } }
    var program = Spawn([files + "/map", path, String(count)] + (usesSpareTime ? ["spare"] : []))
    program.descriptors = [.copy(questions.reading), .copy(answers.writing), .copy(STDERR_FILENO)]
    id = try program.start()
    output = OwnedDescriptor(questions.writing)
    guard let file = unsafe fdopen(answers.reading, "r") else { throw SystemError("fdopen") }
    unsafe input = unsafe file
    guard try line() == "ready" else { throw BenchError("the readers do not begin") }
  }

  private static func pipe() throws -> (reading: CInt, writing: CInt) {
    var ends: [CInt] = [0, 0]
    guard unsafe pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
    return (ends[0], ends[1])
  }

  deinit {
    kill(id, SIGKILL)
    waitpid(id, nil, 0)
    unsafe fclose(input)
  }

  /// Waits until each reader has read, or missed, so many events.
  func state(atEvent number: Int) throws -> State {
    let question = "\(number)\n"
    guard unsafe write(output.raw, question, question.utf8.count) == question.utf8.count else {
      throw SystemError("write", "readers")
    }
    let numbers = try line().split(separator: " ").compactMap { Int($0) }
    guard numbers.count == 6 else { throw BenchError("the readers' reply is not understood") }
    return State(numbers)
  }

  private func line() throws -> String {
    var line = [CChar](repeating: 0, count: 256)
    guard unsafe fgets(&line, CInt(line.count), input) != nil else { throw BenchError("the readers have ended") }
    return String(decoding: line.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
