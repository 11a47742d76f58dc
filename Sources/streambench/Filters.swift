import CLinux
import Glibc
import RSocket
import StreamRuntime

/// Measures subscriptions with filters: as many as there are subscribers, and few that they share. Each event fits the
/// filters of one subscriber in ten.
func measureFilters(_ options: Options) throws {
  let subscribers = 1000
  Report.heading(
    "filters, \(counted(subscribers, "subscriber")), an event fits one in ten", goal: "10 filters: 5 x one each")
  var rates: [[Double]] = [[], []]
  let loads = try [10, subscribers].map { try FilterLoad(options, subscribers: subscribers, filters: $0) }
  for _ in 0..<options.runs {
    for (index, load) in loads.enumerated() { rates[index].append(try load.eventsPerSecond(over: options.seconds)) }
  }
  let (few, many) = (Figures(rates[0]), Figures(rates[1]))
  Report.line("10 filters", few, "events/s", [Report.times(few.median, many.median, "a filter each")])
  Report.line("1,000 filters", many, "events/s")
}

/// A daemon with one publisher of JSON, and subscribers with filters.
@safe private final class FilterLoad {
  private static let symbolCount = 10
  private static let stream = """
    [streams.b]
    publish = true
    type = "application/json"
    overflow = "block"
    """
  private let broker: StreamdBroker
  private let pool: SubscriberPool
  private let socket: CInt
  /// Whole rounds of events, one for each symbol.
  private let block: [UInt8]
  private let eventByteCount: Int
  private var sentByteCount = 0
  private var credit = 0
  private var answers = [UInt8](repeating: 0, count: 64 << 10)

  init(_ options: Options, subscribers: Int, filters: Int) throws {
    broker = try StreamdBroker(options.program, stream: Self.stream)
    let broker = broker
    let sockets = try (0..<subscribers).map { subscriber in
      let filter = subscriber % filters
      return try broker.subscribe(
        credit: Credit.unlimited,
        options: #"{"from":"new","where":{"/symbol":"S\#(filter % Self.symbolCount)","/n":{"gt":-\#(filter + 1)}}}"#)
    }
    var shape = broker.shape
    shape.byteCount += 8  // the number of events left out
    pool = try SubscriberPool("streamd", sockets, shape: shape, firstNumber: nil, verifiesAll: false)
    socket = try broker.connectPublisher()
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
    let events = (0..<Self.symbolCount).map { symbol -> [UInt8] in
      let text = #"{"symbol":"S\#(symbol)","n":187.25,"pad":""#
      let data = Array((text + String(repeating: "x", count: 62 - text.utf8.count) + "\"}").utf8)
      return StreamdBroker.encoded(
        .payload(StreamID(1), Payload(data: data), follows: false, isComplete: false, isNext: true))
    }
    eventByteCount = events[0].count
    let round = events.flatMap(\.self)
    block = Array(repeatElement(round, count: (64 << 10) / round.count).joined())
    try pool.watch(publisher: socket)
    pool.onPublisher = { [weak self] in try self?.hear() }
  }

  deinit { close(socket) }

  private var sent: Int { sentByteCount / eventByteCount }

  /// - Returns: published events per second that all subscribers have been sent as far as they fit.
  func eventsPerSecond(over seconds: Double) throws -> Double {
    try run(for: seconds / 4)
    let (start, before) = (monotonicSeconds(), pool.least)
    try run(for: seconds)
    return Double((pool.least - before) * Self.symbolCount) / (monotonicSeconds() - start)
  }

  private func run(for seconds: Double) throws {
    let end = monotonicSeconds() + seconds
    while monotonicSeconds() < end {
      try feed()
      try pool.read(timeout: 100)
    }
    guard pool.most <= sent / Self.symbolCount + 1 else { throw BenchError("more events than fit were received") }
  }

  /// Sends as many events as there is credit for.
  private func feed() throws {
    while credit > 0 {
      let offset = sentByteCount % block.count
      let count = min(block.count - offset, credit * eventByteCount - sentByteCount % eventByteCount)
      let written = unsafe block.withUnsafeBytes {
        unsafe send(socket, $0.baseAddress.map { unsafe $0 + offset }, count, CInt(MSG_NOSIGNAL))
      }
      guard written > 0 else {
        if errno == EAGAIN || errno == EINTR { return }
        throw SystemError("send", "streamd")
      }
      let before = sent
      sentByteCount += written
      credit -= sent - before
    }
  }

  private func hear() throws {
    while true {
      let count = unsafe recv(socket, &answers, answers.count, 0)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { throw BenchError("streamd hung up on the publisher after \(sent) events") }
      credit += try unsafe answers.withUnsafeBytes {
        try unsafe broker.credit(from: UnsafeRawBufferPointer(rebasing: $0[..<count]))
      }
    }
  }
}
