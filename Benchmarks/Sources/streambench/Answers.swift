import CLinux
import Glibc
import StreamRuntime

// Measures requests whose answers are streams: that each is made once and read whole by several readers, and the time that streamd
// adds to an event, beside readers of the same upstream without streamd.

private let answerCount = 1000
private let readersOfEach = 3
/// Answers at a time.
private let answersAtATime = 32

func measureAnswers(_ options: Options) throws {
  let count = options.isQuick ? 100 : answerCount
  let (events, pause) = (AnswerUpstream.eventCount, AnswerUpstream.pause / 1_000_000)
  Report.heading(
    "\(counted(count, "answer")) of \(events) events, one each \(pause) ms, \(answersAtATime) at a time, "
      + "\(readersOfEach) readers each; time of an event in ms", goal: "adds: median < 0.1, p99 < 1")
  let upstream = try AnswerUpstream()
  defer { upstream.stop() }
  let template = """
    [streams."answers/{id}"]
    http = { url = "http://127.0.0.1:\(upstream.port)/", method = "POST", stream = "sse", body = "request" }
    write = ["*"]
    read = ["owner"]
    replay = "all"
    overflow = "block"
    running = \(answersAtATime)
    streams = \(2 * count)
    [http]
    max_per_host = \(answersAtATime)
    """
  let broker = try StreamdBroker(options.program, stream: template)
  var (direct, through): ([EventTimes], [EventTimes]) = ([], [])
  // One after the other, so that a slow moment of the machine affects both.
  for part in 0..<4 {
    let numbers = (part * count / 4)..<((part + 1) * count / 4)
    direct.append(try AnswerLoad(.upstream(upstream.port), numbers, "direct").run())
    through.append(try AnswerLoad(.streamd(broker.path), numbers, "client").run())
  }
  let requests = upstream.requests.filter { $0.key.hasPrefix("client") }
  guard requests.count == count, requests.values.allSatisfy({ $0 == 1 }) else {
    throw BenchError("\(requests.count) of \(count) requests were made, some \(requests.values.max() ?? 0) times")
  }
  for (name, runs) in [("upstream", direct), ("streamd", through)] {
    Report.line("\(name) p50", Figures(runs.map(\.p50)), "ms")
    Report.line("\(name) p99", Figures(runs.map(\.p99)), "ms")
  }
  Report.line("added p50", Figures(zip(direct, through).map { $1.p50 - $0.p50 }), "ms")
  Report.line("added p99", Figures(zip(direct, through).map { $1.p99 - $0.p99 }), "ms")
  Report.note("each POST was made once, and each reader has read each event once and in order")
}

/// The times from the writing of events to their reading, in milliseconds.
struct EventTimes {
  let p50: Double
  let p99: Double

  init(_ times: [UInt64]) {
    let sorted = times.sorted()
    func at(_ share: Double) -> Double { Double(sorted[Int(Double(sorted.count - 1) * share)]) / 1e6 }
    (p50, p99) = sorted.isEmpty ? (.nan, .nan) : (at(0.5), at(0.99))
  }
}

/// Makes requests, a number at a time, and reads their answers.
final class AnswerLoad {
  /// The server that gets the requests.
  enum Server {
    case upstream(UInt16)
    case streamd(String)
  }

  static let bodyByteCount = 12

  private final class Reader {
    let descriptor: OwnedDescriptor
    let answer: Int
    /// Whether it is the one that has asked.
    let asks: Bool
    var unread: [UInt8] = []
    /// The number of the last event.
    var last = 0
    /// When the head of the response was read: what was written before is replayed.
    var begin: UInt64?
    var hasEnded = false
    init(_ raw: CInt, _ answer: Int, asks: Bool) {
      descriptor = OwnedDescriptor(raw)
      (self.answer, self.asks) = (answer, asks)
    }
  }

  private let server: Server
  private var waiting: Range<Int>
  private let name: String
  private var readers: [Reader] = []
  private var times: [UInt64] = []

  init(_ server: Server, _ numbers: Range<Int>, _ name: String) {
    (self.server, waiting, self.name) = (server, numbers, name)
  }

  func run() throws -> EventTimes {
    while true {
      while !waiting.isEmpty, readers.count(where: \.asks) < answersAtATime { try ask(waiting.removeFirst()) }
      guard !readers.isEmpty else { return EventTimes(times) }
      var watched = readers.map { pollfd(fd: $0.descriptor.raw, events: Int16(POLLIN), revents: 0) }
      guard unsafe poll(&watched, nfds_t(watched.count), 30_000) > 0 else {
        throw BenchError("nothing comes from \(readers.count) readers for 30 s")
      }
      for (reader, state) in zip(readers, watched) where state.revents != 0 { try read(reader) }
      readers.removeAll(where: \.hasEnded)
    }
  }

  private func ask(_ answer: Int) throws {
    var number = "\(answer)"
    while number.utf8.count + name.utf8.count < Self.bodyByteCount { number = "0" + number }
    let body = name + number
    switch server {
    case .upstream(let port):
      try begin(try Handshake.connect(toPort: port), answer, "POST /", body, asks: true)
    case .streamd(let path):
      try begin(try Handshake.connect(to: path), answer, "PUT /streams/answers/\(answer)", body, asks: true)
    }
  }

  private func begin(_ raw: CInt, _ answer: Int, _ request: String, _ body: String, asks: Bool) throws {
    let reader = Reader(raw, answer, asks: asks)
    readers.append(reader)
    let fields = body.isEmpty ? "" : "Content-Length: \(body.utf8.count)\r\n"
    let head = "\(request) HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\(fields)\r\n"
    try Handshake.say(Array((head + body).utf8), to: raw)
  }

  private func read(_ reader: Reader) throws {
    let count = unsafe withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 1) { buffer in
      let count = unsafe recv(reader.descriptor.raw, buffer.baseAddress, buffer.count, 0)
      if count > 0 { unsafe reader.unread += UnsafeRawBufferPointer(rebasing: buffer[..<count]) }
      return count
    }
    let now = monotonicNanoseconds()
    if reader.begin == nil, let end = reader.unread.firstRange(of: [13, 10, 13, 10])?.upperBound {
      guard reader.unread.starts(with: "HTTP/1.1 20".utf8) else {
        throw BenchError("answer \(reader.answer) is \(String(decoding: reader.unread.prefix(500), as: UTF8.self))")
      }
      reader.begin = now
      reader.unread.removeFirst(end)
      if reader.asks, case .streamd(let path) = server {
        for _ in 1..<readersOfEach {
          try begin(
            try Handshake.connect(to: path), reader.answer, "GET /streams/answers/\(reader.answer)", "", asks: false)
        }
      }
    }
    while let end = reader.unread.firstIndex(of: 10) {
      try read(reader.unread[..<end], reader, now)
      reader.unread.removeFirst(end + 1)
    }
    guard count <= 0 else { return }
    guard reader.last == AnswerUpstream.eventCount else {
      throw BenchError("answer \(reader.answer) ends after event \(reader.last)")
    }
    reader.hasEnded = true
  }

  /// A line of server-sent events; any other, such as the size of a chunk, is of no interest.
  private func read(_ line: ArraySlice<UInt8>, _ reader: Reader, _ now: UInt64) throws {
    let prefix = Array("data: {\"number\":".utf8)
    guard line.starts(with: prefix) else { return }
    let number = Self.digits(line.dropFirst(prefix.count))
    guard number == reader.last + 1 else {
      throw BenchError("answer \(reader.answer) has event \(number) behind event \(reader.last)")
    }
    reader.last = number
    guard let place = line.firstRange(of: Array("\"at\":".utf8))?.upperBound, let begin = reader.begin else { return }
    let written = UInt64(Self.digits(line[place...]))
    if written > begin { times.append(now - written) }
  }

  private static func digits(_ text: ArraySlice<UInt8>) -> Int {
    text.prefix { (0x30...0x39).contains($0) }.reduce(0) { $0 * 10 + Int($1 - 0x30) }
  }
}
